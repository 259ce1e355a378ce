//! How often something may happen. Times are milliseconds.

use std::collections::VecDeque;

/// A token bucket whose tokens come at whole intervals, which may be longer than a second.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// How long it takes to fill the empty bucket.
    whole: u64,
    interval: u64,
    /// When it is full again.
    full: u64,
}

impl Bucket {
    /// Makes a full bucket of `burst` tokens, into which one more comes each `interval` ms.
    #[must_use]
    pub const fn new(burst: u64, interval: u64) -> Self {
        Self {
            whole: burst * interval,
            interval,
            full: 0,
        }
    }

    /// Takes a token at `now`, ms, and returns whether there was one.
    pub fn take(&mut self, now: u64) -> bool {
        let full = self.full.max(now).saturating_add(self.interval);
        let found = full <= now.saturating_add(self.whole);
        if found {
            self.full = full;
        }
        found
    }

    /// Whether nothing was taken that has not come back.
    #[must_use]
    pub const fn is_full(&self, now: u64) -> bool {
        self.full <= now
    }

    /// Returns when there is a token: `now`, or later, ms.
    #[must_use]
    pub fn next(&self, now: u64) -> u64 {
        let one = self.full.saturating_add(self.interval);
        one.saturating_sub(self.whole).max(now)
    }
}

/// At most a number of events in any second, wherever the second begins, and a tenth of it in any
/// 100 ms: what is sent at once fits into small queues, and what becomes due meanwhile waits for less.
#[derive(Clone, Debug)]
pub(crate) struct PerSecond {
    /// In [`PART`].
    most: usize,
    /// When the latest events happened.
    times: VecDeque<u64>,
}

/// A tenth of a second, ms.
const PART: u64 = 100;

impl PerSecond {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most: (most / 10).max(1),
            times: VecDeque::new(),
        }
    }

    /// Takes part of the rate, and returns whether there was some.
    pub(crate) fn take(&mut self, now: u64) -> bool {
        if self.next(now) > now {
            return false;
        }
        if self.times.len() >= self.most {
            self.times.pop_front();
        }
        self.times.push_back(now);
        true
    }

    /// Returns when the next event may happen: `now`, or later.
    pub(crate) fn next(&self, now: u64) -> u64 {
        let first = self.times.front().filter(|_| self.times.len() >= self.most);
        first.map_or(now, |at| at.saturating_add(PART).max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_one_an_interval() {
        let mut bucket = Bucket::new(6, 10_000);
        assert!((0..6).all(|_| bucket.take(5_000)));
        assert_eq!((bucket.take(14_999), bucket.next(14_999)), (false, 15_000));
        assert_eq!((bucket.take(15_000), bucket.take(15_000)), (true, false));
        assert!((0..6).all(|_| bucket.take(500_000)) && !bucket.take(500_000));
        // A clock that steps back gives nothing.
        assert!(!bucket.take(1_000) && bucket.take(510_000));
    }

    #[test]
    fn no_second_has_more_than_the_rate() {
        let mut rate = PerSecond::new(150);
        let taken: Vec<u64> = (0..10_000).filter(|now| rate.take(*now)).collect();
        for window in taken.windows(151) {
            assert!(window[150] - window[0] >= 1_000);
        }
        assert!(taken.windows(16).all(|window| window[15] - window[0] >= 100));
        assert_eq!(taken.len(), 1_500);
        assert_eq!((rate.next(9_950), rate.next(10_050)), (10_000, 10_050));
    }
}
