//! After a time without traffic the first packet passes: sessions end when idle, by each side's own
//! timer.
//!
//! Weft ends its side of a session 80 s after the last packet, the daemon after 90 s.

use std::path::Path;
use std::time::{Duration, Instant};

use weft_os::test_support::in_namespaces;

use crate::mixed::{Case, Dialler, Mixed, Side, binary};

const LIMIT: Duration = Duration::from_secs(5);
const ONLY_WEFT_HAS_ENDED: Duration = Duration::from_secs(85);
const BOTH_HAVE_ENDED: Duration = Duration::from_secs(100);

/// Nothing is sent for `silence`, then one side pings.
fn after(fips: &Path, silence: Duration, from: Side) {
    let mixed = Mixed::start(fips, &Case::new(Dialler::Weft, Side::Fips));
    std::thread::sleep(silence);
    let status = mixed.status();
    assert!(status["session"].is_null(), "weft has a session: {status}");
    let answer = mixed.fips.query("show_sessions").unwrap();
    let sessions = answer["sessions"].as_array().unwrap().len();
    assert_eq!(sessions, usize::from(silence == ONLY_WEFT_HAS_ENDED), "{answer}");

    let time = mixed.first_answer(from, Instant::now(), 4 * LIMIT);
    println!(
        "after {} s of silence a ping from {from:?} is answered in {:.2} s",
        silence.as_secs(),
        time.as_secs_f64()
    );
    assert!(time < LIMIT, "{time:?}");
    for from in [Side::Weft, Side::Fips] {
        mixed.assert_pings(from);
    }
    mixed.finish();
}

#[test]
fn fips_speaks_in_a_session_that_weft_has_ended() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| after(&fips, ONLY_WEFT_HAS_ENDED, Side::Fips));
}

#[test]
fn weft_speaks_when_only_fips_has_a_session() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| after(&fips, ONLY_WEFT_HAS_ENDED, Side::Weft));
}

#[test]
fn fips_speaks_after_both_have_ended_the_session() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| after(&fips, BOTH_HAVE_ENDED, Side::Fips));
}

#[test]
fn weft_speaks_after_both_have_ended_the_session() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| after(&fips, BOTH_HAVE_ENDED, Side::Weft));
}
