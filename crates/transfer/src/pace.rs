//! Limits of bytes a second, which several threads and transfers share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The least bytes of a piece of a group, where a limit holds.
const LEAST_PIECE: u64 = 4_096;

/// Lets bytes through at a rate, which may change at any time.
#[derive(Debug)]
pub struct Pace(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    /// Bytes a second; `None` for no limit.
    rate: Option<u64>,
    /// All bytes that have asked for their turn.
    asked: u64,
    /// How many of them have had it.
    through: f64,
    at: Instant,
}

impl Pace {
    /// A limit in bytes a second, at least 1; `None` for none.
    #[must_use]
    pub fn new(rate: Option<u64>, now: Instant) -> Self {
        Self(Mutex::new(Inner {
            rate: rate.map(|rate| rate.max(1)),
            asked: 0,
            through: 0.0,
            at: now,
        }))
    }

    fn at(&self, now: Instant) -> MutexGuard<'_, Inner> {
        // No code panics while it holds the lock.
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = inner.asked as f64;
        let spent = now.saturating_duration_since(inner.at).as_secs_f64();
        inner.through = match inner.rate {
            Some(rate) => (inner.through + spent * rate as f64).min(all),
            None => all,
        };
        inner.at = inner.at.max(now);
        inner
    }

    /// Changes the rate, also for those that wait.
    pub fn set_rate(&self, rate: Option<u64>, now: Instant) {
        self.at(now).rate = rate.map(|rate| rate.max(1));
    }

    /// The rate in bytes a second; `None` for no limit.
    #[must_use]
    pub fn rate(&self) -> Option<u64> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).rate
    }

    /// Takes the turn of `bytes`, behind all that have asked before. Returns which one it is, for [`Pace::wait`].
    pub fn take(&self, bytes: u64, now: Instant) -> u64 {
        let mut inner = self.at(now);
        let turn = inner.asked;
        inner.asked += bytes;
        turn
    }

    /// How long a turn has to wait, if the rate does not change meanwhile.
    #[must_use]
    pub fn wait(&self, turn: u64, now: Instant) -> Duration {
        let inner = self.at(now);
        match inner.rate {
            Some(rate) => Duration::from_secs_f64((turn as f64 - inner.through).max(0.0) / rate as f64),
            None => Duration::ZERO,
        }
    }

    /// Gives a turn back that was not used: those behind it come as much earlier.
    pub fn give_back(&self, bytes: u64, now: Instant) {
        let mut inner = self.at(now);
        inner.through = (inner.through + bytes as f64).min(inner.asked as f64);
    }
}

/// All limits that a transfer keeps to: one after the other.
#[derive(Clone, Debug, Default)]
pub struct Paces {
    /// Those that hold always.
    pub always: Vec<Arc<Pace>>,
    /// Those that hold while the path goes through a relay.
    pub relayed: Vec<Arc<Pace>>,
}

impl Paces {
    /// The limits that hold, and whether each holds only through a relay.
    pub fn all(&self) -> impl Iterator<Item = (&Pace, bool)> {
        let always = self.always.iter().map(|pace| (&**pace, false));
        always.chain(self.relayed.iter().map(|pace| (&**pace, true)))
    }

    /// The bytes to read at once, of `len`: as many as come in a quarter of a second at the lowest rate, so that a
    /// connection does not stand still for long.
    #[must_use]
    pub fn piece(&self, len: usize) -> usize {
        let lowest = self.always.iter().filter_map(|pace| pace.rate()).min();
        let piece = lowest.map_or(u64::MAX, |rate| (rate / 4).max(LEAST_PIECE));
        len.min(usize::try_from(piece).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn bytes_wait_for_those_before_them() {
        let now = Instant::now();
        let pace = Pace::new(Some(1_000), now);
        let first = pace.take(500, now);
        let second = pace.take(500, now);
        assert_eq!(pace.wait(first, now), Duration::ZERO);
        assert_eq!(pace.wait(second, now), SECOND / 2);
        assert_eq!(pace.wait(second, now + SECOND / 4), SECOND / 4);
        let later = now + 9 * SECOND;
        let (third, fourth) = (pace.take(1, later), pace.take(1_000, later));
        assert_eq!(pace.wait(third, later), Duration::ZERO);
        assert_eq!(
            pace.wait(fourth, later),
            SECOND / 1_000,
            "rest of the time before is not saved up"
        );
    }

    #[test]
    fn a_new_rate_holds_for_those_that_wait() {
        let now = Instant::now();
        let pace = Pace::new(Some(1_000), now);
        pace.take(10_000, now);
        let turn = pace.take(1, now);
        assert_eq!(pace.wait(turn, now), 10 * SECOND);
        pace.set_rate(Some(5_000), now + 5 * SECOND);
        assert_eq!(pace.wait(turn, now + 5 * SECOND), SECOND);
        pace.set_rate(None, now + 5 * SECOND);
        assert_eq!(pace.wait(turn, now + 5 * SECOND), Duration::ZERO);
        pace.set_rate(Some(1), now + 6 * SECOND);
        let next = pace.take(1, now + 6 * SECOND);
        assert_eq!(pace.wait(next, now + 6 * SECOND), Duration::ZERO, "no debt is left");
    }

    #[test]
    fn a_turn_that_is_given_back_holds_up_no_other() {
        let now = Instant::now();
        let pace = Pace::new(Some(1_000), now);
        pace.take(1_000, now);
        pace.take(50_000, now);
        let turn = pace.take(1_000, now);
        pace.give_back(50_000, now);
        assert_eq!(pace.wait(turn, now), SECOND);
    }

    #[test]
    fn pieces_are_as_small_as_the_lowest_rate_needs() {
        let now = Instant::now();
        let pace = |rate| Arc::new(Pace::new(rate, now));
        let mut paces = Paces::default();
        assert_eq!(paces.piece(1 << 20), 1 << 20);
        paces.always = vec![pace(None), pace(Some(100_000)), pace(Some(400_000))];
        assert_eq!(paces.piece(1 << 20), 25_000);
        assert_eq!(paces.piece(10), 10);
        paces.always.push(pace(Some(1_000)));
        assert_eq!(paces.piece(1 << 20), 4_096);
    }
}
