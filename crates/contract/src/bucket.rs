//! Token buckets. With them the core and the packet path bound what others cause.

/// The rate at which something may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Tokens a second, in the long run.
    pub per_second: u64,
    /// Tokens at once, after a pause.
    pub burst: u64,
}

/// The tokens that remain of a [`Rate`]. Times are milliseconds on the caller's clock.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// The level at `at`, in thousandths of a token, so that the gain of a millisecond is a whole
    /// number.
    level: u64,
    at: u64,
}

impl Bucket {
    /// Makes a full bucket.
    #[must_use]
    #[inline]
    pub fn new(rate: Rate, now: u64) -> Self {
        Self {
            level: rate.burst * 1_000,
            at: now,
        }
    }

    /// Takes up to `count` tokens, and returns how many there were.
    pub fn take(&mut self, rate: Rate, now: u64, count: usize) -> usize {
        self.level = self.level_at(rate, now);
        self.at = self.at.max(now);
        let taken = (self.level / 1_000).min(count as u64);
        self.level -= taken * 1_000;
        taken as usize
    }

    /// Takes one token by a random draw, and returns whether it did. Once less than half of the
    /// burst remains, the chance falls with the level. So if more tokens are requested than there
    /// are, each request has the same chance. A plain bucket would give a steady flood every token
    /// as soon as it exists, and nothing to rare requests. `draw` is a uniformly distributed random
    /// number.
    pub fn take_by_lot(&mut self, rate: Rate, now: u64, draw: u32) -> bool {
        let (level, half) = (self.level_at(rate, now), rate.burst * 500);
        let unlucky = level < half && (u64::from(draw) * half) >> 32 >= level;
        !unlucky && self.take(rate, now, 1) == 1
    }

    /// Returns whether the bucket is full, like a new one.
    #[must_use]
    #[inline]
    pub fn is_full(&self, rate: Rate, now: u64) -> bool {
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

    /// In a plain bucket, a flood of exactly the rate leaves nothing for other senders.
    #[test]
    fn those_that_ask_seldom_get_their_part_beside_a_steady_flood() {
        let rate = Rate {
            per_second: 40,
            burst: 64,
        };
        let mut bucket = Bucket::new(rate, 0);
        let (mut flood, mut seldom, mut state) = (0, 0, 1_u64);
        for now in 0..600_000 {
            let mut draw = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 32) as u32
            };
            if now % 25 == 0 {
                flood += u32::from(bucket.take_by_lot(rate, now, draw()));
            }
            if now % 1_000 == 500 {
                seldom += u32::from(bucket.take_by_lot(rate, now, draw()));
            }
        }
        assert!(seldom > 540, "{seldom} of 600");
        assert!(flood + seldom <= 600 * 40 + 64);
    }

    #[test]
    fn a_clock_that_steps_back_gives_nothing() {
        let mut bucket = Bucket::new(RATE, 5_000);
        assert_eq!(bucket.take(RATE, 5_000, 8), 8);
        assert_eq!(bucket.take(RATE, 1_000, 1), 0);
        assert_eq!(bucket.take(RATE, 5_000, 1), 0);
        assert_eq!(bucket.take(RATE, 5_250, 1), 1);
    }

    #[test]
    fn the_chance_is_the_part_of_half_a_burst_that_is_left() {
        // The number of tokens left, of the four that are half of the burst: draws below this part
        // of all values succeed.
        for (left, lucky) in [(1, 1 << 30), (2, 2 << 30), (3, 3 << 30), (4, 1 << 32), (8, 1 << 32)] {
            for (draw, taken) in [
                (0, true),
                (lucky - 1, true),
                (lucky, false),
                (u64::from(u32::MAX), lucky == 1 << 32),
            ] {
                let Ok(draw) = u32::try_from(draw) else { continue };
                let mut bucket = Bucket::new(RATE, 0);
                bucket.take(RATE, 0, 8 - left);
                assert_eq!(bucket.take_by_lot(RATE, 0, draw), taken, "{left} left, {draw:#x}");
                assert_eq!(bucket.take(RATE, 0, 8), left - usize::from(taken));
            }
        }
        let mut bucket = Bucket::new(RATE, 0);
        bucket.take(RATE, 0, 8);
        assert!(!bucket.take_by_lot(RATE, 0, 0), "nothing is left");
    }
}
