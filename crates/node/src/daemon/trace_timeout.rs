//! How long the lanes are still measured after the last request.

use std::time::{Duration, Instant};

use weft_control::trace::TIMEOUT;

/// The time at which measuring of the lanes ends: for clients that watch, and for tests, which set
/// a duration. Neither of the two shortens the time of the other.
#[derive(Debug, Default)]
pub(super) struct TraceTimeout {
    watched: Option<Instant>,
    tested: Option<Instant>,
}

impl TraceTimeout {
    /// Handles a request of a client. A request with a duration replaces the last request of this
    /// kind.
    pub(super) fn ask(&mut self, now: Instant, wanted: Option<Duration>) {
        match wanted {
            None => self.watched = Some(now + TIMEOUT),
            Some(time) => self.tested = (!time.is_zero()).then(|| now + time.min(TIMEOUT)),
        }
    }

    /// Returns true if the lanes are measured at this time.
    pub(super) fn is_on(&self, now: Instant) -> bool {
        self.ends().is_some_and(|end| now < end)
    }

    /// Returns the time at which measuring ends without a further request.
    pub(super) fn ends(&self) -> Option<Instant> {
        self.watched.max(self.tested)
    }

    /// Clears the times that have passed, and returns whether the lanes are still measured.
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
        let mut timeout = TraceTimeout::default();
        assert!(!timeout.is_on(start) && timeout.ends().is_none());
        timeout.ask(start, None);
        assert!(timeout.is_on(at(2_999)) && !timeout.is_on(at(3_000)));
        timeout.ask(at(1_000), Some(Duration::from_millis(500)));
        assert!(timeout.is_on(at(2_999)), "a test does not end what others watch");
        timeout.ask(at(2_900), Some(Duration::from_secs(60)));
        assert_eq!(timeout.ends(), Some(at(5_900)), "nor measures for ever");
        assert!(timeout.expire(at(5_899)));
        timeout.ask(at(5_000), Some(Duration::ZERO));
        assert!(!timeout.is_on(at(5_000)), "it takes back what it wanted");
        assert!(!timeout.expire(at(5_001)) && timeout.ends().is_none());
    }
}
