//! After a time without traffic the next packet passes: sessions end when idle, by each side's own clock.

use std::path::Path;
use std::time::{Duration, Instant};

use weft_os::test_support::in_namespaces;

use crate::mixed::{Case, Dialler, Mixed, Side, binary};

const LIMIT: Duration = Duration::from_secs(5);

/// Nothing is sent for `silence`, then one side pings.
fn after(fips: &Path, silence: Duration, from: Side) {
    let mixed = Mixed::start(fips, &Case::new(Dialler::Weft, Side::Fips));
    std::thread::sleep(silence);
    println!("{}", mixed.status());
    println!("{}", mixed.fips.query("show_sessions").unwrap());
    let time = mixed.first_answer(from, Instant::now(), LIMIT);
    println!(
        "after {} s of silence a ping from {from:?} is answered in {:.2} s",
        silence.as_secs(),
        time.as_secs_f64()
    );
    for from in [Side::Weft, Side::Fips] {
        mixed.assert_pings(from);
    }
    mixed.finish();
}

/// Weft ends an idle session after 80 s and the daemon after 90 s: this falls between.
#[test]
fn fips_speaks_in_a_session_that_weft_has_ended() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| after(&fips, Duration::from_secs(85), Side::Fips));
}

#[test]
fn weft_speaks_in_a_session_that_only_fips_has() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| after(&fips, Duration::from_secs(85), Side::Weft));
}

#[test]
fn both_have_ended_the_session() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| after(&fips, Duration::from_secs(100), Side::Fips));
}

#[test]
fn weft_speaks_after_both_have_ended_the_session() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| after(&fips, Duration::from_secs(100), Side::Weft));
}
