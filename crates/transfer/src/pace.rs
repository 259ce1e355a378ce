//! A limit of bytes a second for several threads.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::live::{Live, Work};

/// The longest pause without a look whether the transfer ends.
const PART: Duration = Duration::from_millis(500);

/// Lets bytes through at a rate.
#[derive(Debug)]
pub struct Pace {
    per_second: u64,
    next: Mutex<Instant>,
}

impl Pace {
    /// A limit in bytes a second, at least 1.
    #[must_use]
    pub fn new(per_second: u64) -> Self {
        Self {
            per_second: per_second.max(1),
            next: Mutex::new(Instant::now()),
        }
    }

    /// Takes the turn of `bytes`: returns how long to wait before they are sent.
    pub fn take(&self, bytes: u64, now: Instant) -> Duration {
        // No code panics while it holds the lock.
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let at = (*next).max(now);
        *next = at + Duration::from_secs_f64(bytes as f64 / self.per_second as f64);
        at.saturating_duration_since(now)
    }

    /// Waits for the turn of `bytes`, or until the transfer ends.
    pub fn keep(&self, bytes: usize, live: &Live) {
        let mut wait = self.take(bytes as u64, Instant::now());
        live.times.of(Work::Limit, || {
            while !wait.is_zero() && !live.stop().is_set() {
                let part = wait.min(PART);
                thread::sleep(part);
                wait -= part;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_wait_for_those_before_them() {
        let pace = Pace::new(1_000);
        let now = Instant::now() + Duration::from_secs(1);
        assert_eq!(pace.take(500, now), Duration::ZERO);
        assert_eq!(pace.take(500, now), Duration::from_millis(500));
        assert_eq!(
            pace.take(1, now + Duration::from_secs(9)),
            Duration::ZERO,
            "rest is not saved up"
        );
    }
}
