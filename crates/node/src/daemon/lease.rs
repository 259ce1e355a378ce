//! How long the lanes go on being measured after the last request.

use std::time::{Duration, Instant};

use crate::trace::LEASE;

/// Until when the lanes are to be measured: for clients that watch, and for tests, which say how long. The two do not end
/// each other's time.
#[derive(Debug, Default)]
pub(super) struct TraceLease {
    watched: Option<Instant>,
    tested: Option<Instant>,
}

impl TraceLease {
    /// A client asks. A request that says for how long replaces the last such request.
    pub(super) fn ask(&mut self, now: Instant, wanted: Option<Duration>) {
        match wanted {
            None => self.watched = Some(now + LEASE),
            Some(time) => self.tested = (!time.is_zero()).then(|| now + time.min(LEASE)),
        }
    }

    /// Whether the lanes are to be measured at this moment.
    pub(super) fn is_on(&self, now: Instant) -> bool {
        self.ends().is_some_and(|end| now < end)
    }

    /// When that ends, if it does not end before.
    pub(super) fn ends(&self) -> Option<Instant> {
        self.watched.max(self.tested)
    }

    /// Forgets what has passed, and returns whether the lanes are still to be measured.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let on = self.is_on(now);
        if !on {
            *self = Self::default();
        }
        on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_after_the_last_question_of_both_kinds() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut lease = TraceLease::default();
        assert!(!lease.is_on(start) && lease.ends().is_none());
        lease.ask(start, None);
        assert!(lease.is_on(at(2_999)) && !lease.is_on(at(3_000)));
        lease.ask(at(1_000), Some(Duration::from_millis(500)));
        assert!(lease.is_on(at(2_999)), "a test does not end what others watch");
        lease.ask(at(2_900), Some(Duration::from_secs(60)));
        assert_eq!(lease.ends(), Some(at(5_900)), "nor measures for ever");
        assert!(lease.expire(at(5_899)));
        lease.ask(at(5_000), Some(Duration::ZERO));
        assert!(!lease.is_on(at(5_000)), "it takes back what it wanted");
        assert!(!lease.expire(at(5_001)) && lease.ends().is_none());
    }
}
