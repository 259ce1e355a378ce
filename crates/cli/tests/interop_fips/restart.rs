//! One side is killed while pings run and comes back: payload passes within five seconds of its
//! return.
//!
//! The time is measured from the start of the new process to the first answered ping, for each
//! direction.

use std::path::Path;
use std::time::{Duration, Instant};

use weft_lab::traffic::PingOptions;
use weft_os::test_support::in_namespaces;

use crate::mixed::{Case, Dialler, Mixed, Side, binary};

const LIMIT: Duration = Duration::from_secs(5);
/// How long the victim is down: restarted at once by a supervisor, after a short time, and after
/// the survivor has given up the link (30 s without a frame).
const AWAY: [Duration; 3] = [Duration::ZERO, Duration::from_secs(8), Duration::from_secs(40)];

fn killed(fips: &Path, case: &Case, victim: Side) {
    for away in AWAY {
        let mut mixed = Mixed::start(fips, case);
        let pingers = [Side::Weft, Side::Fips].map(|from| mixed.pinger(from, PingOptions::default()));
        std::thread::sleep(Duration::from_secs(2));
        mixed.kill(victim);
        std::thread::sleep(away);
        let since = Instant::now();
        mixed.restart(victim);
        let times = std::thread::scope(|scope| {
            let (mixed, limit) = (&mixed, 4 * LIMIT);
            let threads =
                [Side::Weft, Side::Fips].map(|from| scope.spawn(move || mixed.first_answer(from, since, limit)));
            threads.map(|thread| thread.join().unwrap())
        });
        let [weft, fips] = times.map(|time| time.as_secs_f64());
        let Case { dialler, smaller, .. } = case;
        println!(
            "{dialler:?} dials, {smaller:?} is smaller, {victim:?} killed for {} s: \
             ping from weft after {weft:.2} s, from fips after {fips:.2} s",
            away.as_secs(),
        );
        assert!(times.iter().all(|time| *time <= LIMIT), "{times:?}");
        for pinger in pingers {
            pinger.stop().unwrap();
        }
        for from in [Side::Weft, Side::Fips] {
            mixed.assert_pings(from);
            mixed.assert_transfer(from, 1_000_000);
        }
        mixed.finish();
    }
}

#[test]
fn weft_dials_and_weft_is_killed() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| killed(&fips, &Case::new(Dialler::Weft, Side::Weft), Side::Weft));
}

#[test]
fn weft_dials_and_fips_is_killed() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| killed(&fips, &Case::new(Dialler::Weft, Side::Fips), Side::Fips));
}

#[test]
fn fips_dials_and_weft_is_killed() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| killed(&fips, &Case::new(Dialler::Fips, Side::Weft), Side::Weft));
}

#[test]
fn fips_dials_and_fips_is_killed() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| killed(&fips, &Case::new(Dialler::Fips, Side::Fips), Side::Fips));
}

#[test]
fn both_dial_and_weft_is_killed() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| killed(&fips, &Case::new(Dialler::Both, Side::Fips), Side::Weft));
}

#[test]
fn both_dial_and_fips_is_killed() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| killed(&fips, &Case::new(Dialler::Both, Side::Weft), Side::Fips));
}
