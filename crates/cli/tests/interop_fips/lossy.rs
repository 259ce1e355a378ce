//! A relay between the two drops, duplicates and corrupts datagrams.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use weft_lab::cable::Direction;
use weft_lab::relay::{Verdict, fmp_phase};
use weft_lab::traffic::{PingOptions, ProbeReport};
use weft_os::test_support::in_namespaces;

use crate::mixed::{Case, Dialler, Mixed, NEVER_S, Side, binary};

const MSG1: u8 = 1;
const MSG2: u8 = 2;

/// Pings of both sides, five a second, for `time`.
fn pings(mixed: &Mixed, time: Duration) -> [ProbeReport; 2] {
    let options = PingOptions {
        interval: Duration::from_millis(200),
        grace: Duration::from_secs(5),
        ..PingOptions::default()
    };
    let pingers = [Side::Weft, Side::Fips].map(|from| mixed.pinger(from, options));
    std::thread::sleep(time);
    pingers.map(|pinger| pinger.stop().unwrap())
}

/// The first message of the first link rekey that comes from `victim` is dropped; returns the pings
/// of one minute.
fn first_lost(fips: &Path, rekeyer: Side, phase: u8, victim: Direction) -> (Mixed, [ProbeReport; 2]) {
    let mut case = Case::new(Dialler::Both, rekeyer.other());
    case.relayed = true;
    (case.weft_rekey_s, case.fips_rekey_s) = match rekeyer {
        Side::Weft => (35, NEVER_S),
        Side::Fips => (NEVER_S, 20),
    };
    let mixed = Mixed::start(fips, &case);
    let lost = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lost);
    mixed.relay.as_ref().unwrap().set_rule(move |direction, datagram| {
        let chosen = direction == victim && fmp_phase(datagram) == Some(phase);
        if chosen && count.fetch_add(1, Ordering::Relaxed) == 0 {
            return Verdict::Drop;
        }
        Verdict::Pass
    });
    let reports = pings(&mixed, Duration::from_secs(60));
    let [link, session] = mixed.rekeys();
    println!(
        "message {phase} of a link rekey by {rekeyer:?} lost: pings lost {:?}, longest gaps {:.0} and {:.0} ms, \
         {link} link and {session} session rekeys, link {}",
        reports.each_ref().map(|report| report.lost.len()),
        reports[0].longest_gap_ms,
        reports[1].longest_gap_ms,
        mixed.status()["why"],
    );
    assert!(lost.load(Ordering::Relaxed) > 0, "no such message came by");
    (mixed, reports)
}

#[test]
fn our_rekey_request_is_lost() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| {
        let (mixed, reports) = first_lost(&fips, Side::Weft, MSG1, Direction::AToB);
        assert!(reports.iter().all(|report| report.lost.is_empty()), "{reports:?}");
        mixed.finish();
    });
}

/// The daemon switches to new keys at its next tick although weft does not have them, and answers
/// the repeated request with an old message: only a new link restores traffic.
#[test]
fn the_answer_to_our_rekey_is_lost() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| {
        let (mixed, reports) = first_lost(&fips, Side::Weft, MSG2, Direction::BToA);
        assert!(
            reports.iter().all(|report| report.longest_gap_ms < 6000.0),
            "{reports:?}"
        );
        for from in [Side::Weft, Side::Fips] {
            mixed.assert_pings(from);
        }
        mixed.finish();
    });
}

#[test]
fn the_rekey_request_of_fips_is_lost() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| {
        let (mixed, reports) = first_lost(&fips, Side::Fips, MSG1, Direction::BToA);
        assert!(reports.iter().all(|report| report.lost.is_empty()), "{reports:?}");
        mixed.finish();
    });
}

#[test]
fn our_answer_to_the_rekey_of_fips_is_lost() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| {
        let (mixed, reports) = first_lost(&fips, Side::Fips, MSG2, Direction::AToB);
        assert!(reports.iter().all(|report| report.lost.is_empty()), "{reports:?}");
        mixed.finish();
    });
}

/// One datagram in 50 has a bit flipped, one is dropped, one is duplicated.
#[test]
fn a_bad_cable_breaks_neither_link_nor_session() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| {
        let mut case = Case::new(Dialler::Both, Side::Weft);
        case.relayed = true;
        let mixed = Mixed::start(&fips, &case);
        let before = mixed.fips_peer();
        let relay = mixed.relay.as_ref().unwrap();
        let mut number = 0;
        relay.set_rule(move |_, datagram| {
            number += 1;
            match number % 50 {
                7 => Verdict::Flip(number * 13 % (8 * datagram.len())),
                23 => Verdict::Drop,
                41 => Verdict::Duplicate,
                _ => Verdict::Pass,
            }
        });
        for from in [Side::Weft, Side::Fips] {
            let report = mixed.assert_transfer(from, 5_000_000);
            println!("bad cable: 5 MB from {from:?} at {:.1} Mbit/s", report.mbit_s);
        }
        println!("bad cable: {:?}", relay.counts());
        relay.set_rule(weft_lab::relay::pass);
        for from in [Side::Weft, Side::Fips] {
            mixed.assert_pings(from);
        }
        let after = mixed.fips_peer();
        assert_eq!(before["authenticated_at_ms"], after["authenticated_at_ms"], "{after}");
        mixed.finish();
    });
}
