//! Token buckets: how often something may happen.

/// How often something may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// In the long run.
    pub(crate) per_second: u64,
    /// At once, after a pause.
    pub(crate) burst: u64,
}

/// What is left of a [`Rate`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// Thousandths of a token at `at`, so that a millisecond's share is a whole number.
    level: u64,
    at: u64,
}

impl Bucket {
    /// A full one.
    pub(super) fn new(rate: Rate, now: u64) -> Self {
        Self {
            level: rate.burst * 1_000,
            at: now,
        }
    }

    /// Takes up to `count` tokens; returns how many there were.
    pub(super) fn take(&mut self, rate: Rate, now: u64, count: usize) -> usize {
        self.level = self.level_at(rate, now);
        self.at = self.at.max(now);
        let taken = (self.level / 1_000).min(count as u64);
        self.level -= taken * 1_000;
        taken as usize
    }

    /// Whether it is as good as a new one.
    pub(super) fn is_full(&self, rate: Rate, now: u64) -> bool {
        self.level_at(rate, now) == rate.burst * 1_000
    }

    fn level_at(&self, rate: Rate, now: u64) -> u64 {
        let gained = now.saturating_sub(self.at).saturating_mul(rate.per_second);
        self.level.saturating_add(gained).min(rate.burst * 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate {
        per_second: 4,
        burst: 8,
    };

    #[test]
    fn a_burst_then_the_rate() {
        let mut bucket = Bucket::new(RATE, 1_000);
        assert_eq!(bucket.take(RATE, 1_000, 20), 8);
        assert_eq!(bucket.take(RATE, 1_249, 1), 0);
        assert_eq!(bucket.take(RATE, 1_250, 2), 1);
        assert_eq!(bucket.take(RATE, 2_250, 20), 4);
        assert!(!bucket.is_full(RATE, 4_249));
        assert!(bucket.is_full(RATE, 4_250));
        assert_eq!(bucket.take(RATE, 90_000, 20), 8);
    }

    #[test]
    fn a_clock_that_steps_back_gives_nothing() {
        let mut bucket = Bucket::new(RATE, 5_000);
        assert_eq!(bucket.take(RATE, 5_000, 8), 8);
        assert_eq!(bucket.take(RATE, 1_000, 1), 0);
        assert_eq!(bucket.take(RATE, 5_000, 1), 0);
        assert_eq!(bucket.take(RATE, 5_250, 1), 1);
    }
}
