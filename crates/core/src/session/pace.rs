//! The rate of messages that other nodes can cause: one at once, and the next after a pause, with
//! the state of that time.

/// Minimum time between two messages, in ms.
const PAUSE: u64 = 1_000;

/// When a message may be sent again, and whether one is due then. Times are ms on the caller's
/// clock.
///
/// Each peer has several of these, so both values share one number: twice the time, plus one if a
/// message is due.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace(u64);

impl Pace {
    /// Whether a message may be sent now. Otherwise it becomes due later.
    pub(crate) fn take(&mut self, now: u64) -> bool {
        let may = now >= self.0 >> 1;
        self.0 = if may { (now + PAUSE) << 1 } else { self.0 | 1 };
        may
    }

    /// Returns when the postponed message is due; `u64::MAX` if there is none.
    pub(crate) fn due(&self) -> u64 {
        if self.0 & 1 == 1 { self.0 >> 1 } else { u64::MAX }
    }

    /// Cancels the postponed message.
    pub(crate) fn forget(&mut self) {
        self.0 &= !1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_wishes_are_told_once_and_once_more() {
        let mut pace = Pace::default();
        assert_eq!(pace.due(), u64::MAX);
        let told = (0..1_000).filter(|now| pace.take(5_000 + now)).count();
        assert_eq!((told, pace.due()), (1, 6_000));
        assert!(pace.take(6_000));
        assert_eq!(pace.due(), u64::MAX);
        assert!(!pace.take(6_001));
        pace.forget();
        assert_eq!(pace.due(), u64::MAX);
    }
}
