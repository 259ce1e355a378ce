//! When a fact that another program removes is set up again.

use std::collections::VecDeque;

/// How long a repair counts, in ms.
const WINDOW: u64 = 60_000;
/// The pause before the next repair, in ms, by the number of those within the last ten seconds. With
/// the last one two programs that undo each other's work go on.
const PAUSES: [u64; 5] = [0, 250, 500, 1_000, 2_000];
/// How long a repair delays the next ones, in ms.
const RECENT: u64 = 10_000;
/// From this number of repairs within [`WINDOW`] on, another program is at work.
const FIGHT: usize = 4;

/// Times of repairs, in ms.
#[derive(Debug, Default)]
pub struct Pace {
    repairs: VecDeque<u64>,
}

impl Pace {
    /// Notes that something was set up again, or that it was tried.
    pub fn note(&mut self, now: u64) {
        self.forget(now);
        self.repairs.push_back(now);
    }

    /// The earliest time of the next repair.
    #[must_use]
    pub fn next(&self, now: u64) -> u64 {
        let Some(last) = self.repairs.back() else {
            return now;
        };
        let recent = self.repairs.iter().filter(|at| **at + RECENT > now).count();
        let pause = PAUSES.get(recent).or(PAUSES.last()).copied().unwrap_or_default();
        now.max(last + pause)
    }

    /// The number of repairs within the last minute, if there are so many that another program must
    /// be at work.
    #[must_use]
    pub fn fight(&self, now: u64) -> Option<usize> {
        let count = self.repairs.iter().filter(|at| **at + WINDOW > now).count();
        (count >= FIGHT).then_some(count)
    }

    fn forget(&mut self, now: u64) {
        while self.repairs.front().is_some_and(|at| at + WINDOW <= now) {
            self.repairs.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_repair_is_at_once_and_a_fight_is_slow() {
        let mut pace = Pace::default();
        let mut now = 1_000_000;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let at = pace.next(now);
            pauses.push(at - now);
            now = at;
            assert_eq!(pace.fight(now).is_some(), pauses.len() > FIGHT);
            pace.note(now);
        }
        assert_eq!(pauses, [0, 250, 500, 1_000, 2_000, 2_000, 2_000, 2_000]);
    }

    #[test]
    fn a_repair_of_long_ago_delays_none() {
        let mut pace = Pace::default();
        for now in [1_000, 1_001, 1_002, 1_003, 1_004] {
            pace.note(now);
        }
        assert_eq!(pace.next(2_000), 3_004);
        assert_eq!(pace.next(20_000), 20_000);
        assert_eq!((pace.fight(20_000), pace.fight(61_004)), (Some(5), None));
        pace.note(70_000);
        assert_eq!(pace.repairs.len(), 1);
    }

    proptest::proptest! {
        #[test]
        fn repairs_are_within_two_seconds_and_bounded(waits in proptest::collection::vec(0_u64..5_000, 1..200)) {
            let (mut pace, mut now) = (Pace::default(), 0);
            for wait in waits {
                now += wait;
                let at = pace.next(now);
                proptest::prop_assert!(at - now <= 2_000);
                now = at;
                pace.note(now);
                proptest::prop_assert!(pace.repairs.len() <= 64);
            }
        }
    }
}
