//! Times at which this machine stood still: those of sleeps that took much longer than asked for. A
//! failure beside such a time may be its consequence.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A sleep that takes longer is a stall.
const STALL: Duration = Duration::from_millis(200);
/// Stalls that are kept.
const KEPT: usize = 1024;

/// The ends of sleeps that took long, and how long each took, oldest first.
static STALLS: Mutex<VecDeque<(Instant, Duration)>> = Mutex::new(VecDeque::new());

/// The stalls during a test.
#[derive(Debug, PartialEq)]
pub(super) struct Stalls {
    longest: Duration,
    count: usize,
}

impl fmt::Display for Stalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the machine stood still for {} ms", self.longest.as_millis())?;
        if self.count > 1 {
            write!(f, ", the longest of {} times", self.count)?;
        }
        Ok(())
    }
}

/// Notes a sleep of some milliseconds that has taken this long.
pub(super) fn handle_sleep(took: Duration) {
    if took > STALL {
        note(&mut stalls(), Instant::now(), took);
    }
}

/// The stalls after `start`; `None` without any.
pub(super) fn since(start: Instant) -> Option<Stalls> {
    sum(&stalls(), start)
}

fn stalls() -> MutexGuard<'static, VecDeque<(Instant, Duration)>> {
    STALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note(stalls: &mut VecDeque<(Instant, Duration)>, end: Instant, took: Duration) {
    if stalls.len() == KEPT {
        stalls.pop_front();
    }
    stalls.push_back((end, took));
}

fn sum(stalls: &VecDeque<(Instant, Duration)>, start: Instant) -> Option<Stalls> {
    let during = || stalls.iter().filter(|(end, _)| *end > start).map(|(_, took)| *took);
    let longest = during().max()?;
    Some(Stalls {
        longest,
        count: during().count(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stalls_of_the_test_are_named() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut kept = VecDeque::new();
        assert_eq!(sum(&kept, start), None);
        note(&mut kept, at(100), Duration::from_millis(900));
        note(&mut kept, at(2500), Duration::from_millis(2000));
        let one = sum(&kept, at(100)).unwrap();
        assert_eq!(one.to_string(), "the machine stood still for 2000 ms");
        let both = sum(&kept, start).unwrap();
        assert_eq!(
            both.to_string(),
            "the machine stood still for 2000 ms, the longest of 2 times"
        );
        for ms in 0..2 * KEPT as u64 {
            note(&mut kept, at(3000 + ms), STALL);
        }
        assert_eq!(kept.len(), KEPT);
    }
}
