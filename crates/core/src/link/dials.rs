//! The rate at which handshakes with peers begin.
//!
//! A node with thousands of peers would otherwise begin all its handshakes in the same instant. It
//! would compute for seconds, while more answers arrive than may wait.

/// Handshakes that may begin at once.
pub(crate) const BURST: u64 = 256;
/// Time for each further one, in ms: 500 a second, which take about a seventh of a core.
pub(crate) const EVERY: u64 = 2;

/// When the next handshake may begin.
#[derive(Debug, Default)]
pub(crate) struct Dials {
    next: u64,
}

impl Dials {
    /// Takes the next place, and returns its time, in ms: `now` or later.
    pub(crate) fn take(&mut self, now: u64) -> u64 {
        let at = self.next.max(now.saturating_sub(BURST * EVERY));
        self.next = at.saturating_add(EVERY);
        at.max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_begins_at_once_and_the_rest_one_after_the_other() {
        let mut dials = Dials::default();
        let mut take = |now| dials.take(now);
        assert!((0..=BURST).all(|_| take(10_000) == 10_000));
        assert_eq!([take(10_000), take(10_000), take(10_001)], [10_002, 10_004, 10_006]);
        let later = 10_006 + BURST * EVERY;
        assert!((0..BURST).all(|_| take(later) == later));
        assert!(take(later + 60_000) == later + 60_000);
    }
}
