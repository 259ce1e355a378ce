//! A time limit of each test. One that waits for what never comes would stop a run for ever, and say
//! nothing. A thread cannot be ended, so the process ends, after a line that names the test.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::report;

/// The time limit, far above that of the longest test.
const LIMIT: Duration = Duration::from_secs(600);
/// The variable with another limit in seconds.
const VARIABLE: &str = "WEFT_TEST_LIMIT";
/// The exit status of a test program with a failed test.
const FAILED: i32 = 101;

static RUNNING: Mutex<Tests> = Mutex::new(Tests::new());

/// The tests that run, and when each began.
struct Tests {
    next: u64,
    begun: BTreeMap<u64, (String, Instant)>,
}

impl Tests {
    const fn new() -> Self {
        Self {
            next: 0,
            begun: BTreeMap::new(),
        }
    }

    fn begin(&mut self, name: &str, now: Instant) -> u64 {
        self.next += 1;
        self.begun.insert(self.next, (name.to_owned(), now));
        self.next
    }

    /// The test that began first, if it runs for longer than the limit.
    fn late(&self, now: Instant, limit: Duration) -> Option<&str> {
        let (name, begun) = self.begun.first_key_value()?.1;
        (now.duration_since(*begun) > limit).then_some(name)
    }
}

/// A test that runs, until this is dropped.
pub(super) struct Running(u64);

impl Drop for Running {
    fn drop(&mut self) {
        tests().begun.remove(&self.0);
    }
}

/// Notes that a test begins.
pub(super) fn begin(name: &str) -> Running {
    Running(tests().begin(name, Instant::now()))
}

/// Returns the limit of this process.
pub(super) fn of_tests() -> Duration {
    let own = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
    own.map_or(LIMIT, Duration::from_secs)
}

/// Ends the process if a test runs for longer than the limit.
pub(super) fn enforce(limit: Duration) {
    let tests = tests();
    if let Some(name) = tests.late(Instant::now(), limit) {
        let line = format!("TIMEOUT: {name}: no end within {} s\n", limit.as_secs());
        report(&line);
        std::process::exit(FAILED);
    }
}

fn tests() -> MutexGuard<'static, Tests> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_test_that_runs_for_too_long_is_late() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut tests = Tests::new();
        let first = tests.begin("first", at(0));
        tests.begin("second", at(5));
        assert_eq!(tests.late(at(10), Duration::from_secs(10)), None);
        assert_eq!(tests.late(at(11), Duration::from_secs(10)), Some("first"));
        tests.begun.remove(&first);
        assert_eq!(tests.late(at(11), Duration::from_secs(10)), None);
        assert_eq!(tests.late(at(16), Duration::from_secs(10)), Some("second"));
    }
}
