//! One side restarts while a third host floods weft with forged handshakes, some of them from the
//! daemon's own address.
//!
//! The duration of a restart without a flood depends on the daemon: how soon it dials, or answers.
//! It is measured in the same run. A flood may add one second to a restart of weft, as promised to
//! peers that are weft nodes (docs/protocol/security.md, P4); a daemon is linked again after some
//! of its repeats.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use weft_lab::traffic::PingOptions;
use weft_noise::{Identity, SecretKey, ik};
use weft_os::test_support::in_namespaces;
use weft_wire::fmp::Msg1;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

use crate::common::spoof::{Flood, Running, from_anywhere};
use crate::common::{PATIENCE, between, wait_until};
use crate::mixed::{Case, Dialler, Mixed, Side, THIRD, binary};

/// The delay that a flood may add to a restart of weft, which dials and is recognised by its tags.
const WEFT_DELAY: Duration = Duration::from_secs(1);
/// The delay that a flood may add to a restart of the daemon, whose messages have no tag. A quarter
/// of the flood has the daemon's own address as its source, so only a few in a hundred of the
/// daemon's messages are admitted; its repeats and weft's own dialling decide.
const FIPS_DELAY: Duration = Duration::from_secs(15);
/// Forged msg1 a second.
const RATE: u64 = 5_000;
/// After this time the flood has used up the burst of the budget.
const FLOODED: Duration = Duration::from_secs(2);

/// Handshakes that are well-formed up to the sealed key in them, from the attacker's address, from
/// one that no host has, and from the daemon's.
fn forged(mixed: &Mixed) -> Box<dyn Flood> {
    let [weft, fips] = mixed.addresses;
    let sources = [THIRD, "192.0.2.99", "203.0.113.9", fips];
    let third = mixed.third.as_ref().unwrap();
    let sockets = sources.map(|ip| from_anywhere(third, Mixed::at(ip)));
    let mut rng = ChaCha20Rng::seed_from_u64(7);
    let stranger = Identity::new(SecretKey::generate(&mut rng));
    let remote = mixed.weft.identity().npub.parse().unwrap();
    let messages = [0_u32; 64].map(|_| {
        let (_, mut noise) = ik::Initiator::start(&stranger, remote, [0; 8], &mut rng);
        noise[40] ^= 1;
        let (mut message, msg1) = (
            [0; Msg1::LEN],
            Msg1 {
                sender_idx: 1,
                noise: &noise,
            },
        );
        msg1.emit(&mut message).unwrap();
        message
    });
    let (target, mut n) = (Mixed::at(weft), 0);
    Box::new(move || {
        n += 1;
        u64::from(
            sockets[n % sockets.len()]
                .send_to(&messages[n % messages.len()], target)
                .is_ok(),
        )
    })
}

/// Kills and starts a side; returns the time from the first line in its log to the link, by the
/// timestamps of weft's log.
fn restart(mixed: &mut Mixed, victim: Side) -> Duration {
    let logs = [Side::Weft, Side::Fips].map(|side| mixed.log_path(side).to_owned());
    let lines = |path: &Path| {
        let log = fs::read_to_string(path).unwrap();
        log.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    mixed.kill(victim);
    let seen = [0, 1].map(|side| lines(&logs[side]).len());
    mixed.restart(victim);
    let new = |side: usize| lines(&logs[side]).split_off(seen[side]);
    let linked = |lines: Vec<String>| lines.into_iter().find(|line| line.contains(" link up "));
    wait_until(PATIENCE, "the link after the restart", || linked(new(0)).is_some());
    let first = new(victim as usize).swap_remove(0);
    between(&first, &linked(new(0)).unwrap())
}

fn attacked(fips: &Path, victim: Side) {
    let case = Case {
        switched: true,
        ..Case::new(Dialler::Both, victim)
    };
    let mut mixed = Mixed::start(fips, &case);
    let pingers = [Side::Weft, Side::Fips].map(|from| mixed.pinger(from, PingOptions::default()));
    let calm = restart(&mut mixed, victim);
    for from in [Side::Weft, Side::Fips] {
        mixed.first_answer(from, Instant::now(), PATIENCE);
    }

    let flood = Running::start(RATE, forged(&mixed));
    std::thread::sleep(FLOODED);
    let took = restart(&mut mixed, victim);
    for from in [Side::Weft, Side::Fips] {
        mixed.first_answer(from, Instant::now(), PATIENCE);
        mixed.assert_pings(from);
    }
    let sent = flood.stop();
    println!(
        "{victim:?} restarted: linked after {:.2} s, under {sent} forged msg1 after {:.2} s",
        calm.as_secs_f64(),
        took.as_secs_f64(),
    );
    let delay = match victim {
        Side::Weft => WEFT_DELAY,
        Side::Fips => FIPS_DELAY,
    };
    assert!(took <= calm + delay, "{took:?}, without a flood {calm:?}");
    for pinger in pingers {
        pinger.stop().unwrap();
    }
    mixed.finish();
}

#[test]
fn fips_comes_back_while_weft_is_flooded() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| attacked(&fips, Side::Fips));
}

#[test]
fn weft_comes_back_while_it_is_flooded() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| attacked(&fips, Side::Weft));
}
