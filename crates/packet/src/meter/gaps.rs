//! Gaps in the counters of one epoch, and which of them are losses.

/// How many counters behind the newest one a frame may arrive without counting as lost.
const PATIENCE: u64 = 64;
/// The same number when a report is made: three later frames are the usual sign of a loss (RFC 5681
/// section 3.2).
const AT_REPORT: u64 = 3;

/// Runs of lost counters since the last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bursts {
    /// The number of runs.
    pub(super) count: u32,
    /// The number of counters in the longest run.
    pub(super) longest: u16,
    /// The number of counters in all runs.
    pub(super) lost: u64,
}

impl Bursts {
    /// Returns the mean length as 8.8 fixed point.
    pub(super) fn mean(&self) -> u16 {
        let mean = self.lost.saturating_mul(256) / u64::from(self.count.max(1));
        u16::try_from(mean).unwrap_or(u16::MAX)
    }

    fn end(&mut self, run: u64) {
        if run > 0 {
            self.count = self.count.saturating_add(1);
            self.longest = self.longest.max(u16::try_from(run).unwrap_or(u16::MAX));
            self.lost = self.lost.saturating_add(run);
        }
    }
}

/// The counters that were received. Those below `judged` are decided, the others are in `seen`.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    highest: u64,
    /// Bit i: counter `highest - i` was received.
    seen: u64,
    judged: u64,
    /// The number of lost counters right below `judged`.
    run: u64,
    bursts: Bursts,
}

impl Gaps {
    /// Begins with a first counter. Counters before it do not count as lost.
    pub(super) fn new(first: u64) -> Self {
        Self {
            highest: first,
            seen: 1,
            judged: first,
            ..Self::default()
        }
    }

    /// Returns the highest counter received.
    pub(super) fn highest(&self) -> u64 {
        self.highest
    }

    /// Records a counter that was not received before, except for the first, and returns whether it
    /// is the highest so far.
    #[inline]
    pub(super) fn receive(&mut self, counter: u64) -> bool {
        if counter <= self.highest {
            let age = self.highest - counter;
            if age < PATIENCE {
                self.seen |= 1 << age;
            }
            return age == 0;
        }
        let step = counter - self.highest;
        if step < PATIENCE {
            self.judge_below(counter.saturating_sub(PATIENCE - 1));
            self.seen = self.seen << step | 1;
        } else {
            // The step is so large that all counters still waited for are lost.
            self.judge_below(self.highest + 1);
            let below = counter - (PATIENCE - 1);
            self.run = self.run.saturating_add(below - self.judged);
            self.judged = below;
            self.seen = 1;
        }
        self.highest = counter;
        true
    }

    /// Returns the runs since the last report.
    pub(super) fn report(&mut self) -> Bursts {
        self.judge_below(self.highest.saturating_sub(AT_REPORT - 1));
        // A run that has not ended is in the report after its end.
        std::mem::take(&mut self.bursts)
    }

    /// Decides about the counters below `below`, which is at most one above the highest. Each
    /// counter takes one step, once.
    fn judge_below(&mut self, below: u64) {
        while self.judged < below {
            let age = self.highest - self.judged;
            if age < PATIENCE && self.seen >> age & 1 == 1 {
                self.bursts.end(std::mem::take(&mut self.run));
            } else {
                self.run = self.run.saturating_add(1);
            }
            self.judged += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn after(counters: impl IntoIterator<Item = u64>) -> Gaps {
        let mut counters = counters.into_iter();
        let mut gaps = Gaps::new(counters.next().unwrap());
        counters.for_each(|counter| {
            gaps.receive(counter);
        });
        gaps
    }

    #[test]
    fn runs_are_told_apart() {
        let bursts = after([0, 1, 4, 5, 6, 8, 9, 10, 11]).report();
        assert_eq!((bursts.count, bursts.longest, bursts.mean()), (2, 2, 384));
    }

    #[test]
    fn late_frames_are_not_lost() {
        let mut gaps = after([0, 1, 2, 5, 6, 7]);
        assert!(!gaps.receive(3));
        assert!(!gaps.receive(4));
        assert_eq!(gaps.report(), Bursts::default());
    }

    #[test]
    fn a_leap_is_one_run() {
        let mut gaps = after([0, 1, 1_000_000_000_001]);
        assert_eq!(gaps.report().count, 0, "the run may go on");
        (2..100).for_each(|i| {
            gaps.receive(1_000_000_000_000 + i);
        });
        let bursts = gaps.report();
        assert_eq!((bursts.count, bursts.longest), (1, u16::MAX));
        assert_eq!(bursts.lost, 999_999_999_999);
    }

    /// Returns the runs of counters that are missing from the set of received ones.
    fn runs(came: &BTreeSet<u64>) -> (u64, u64, u64) {
        let (mut count, mut longest, mut lost) = (0, 0, 0);
        let list: Vec<u64> = came.iter().copied().collect();
        for pair in list.windows(2) {
            let run = pair[1] - pair[0] - 1;
            count += u64::from(run > 0);
            longest = longest.max(run);
            lost += run;
        }
        (count, longest, lost)
    }

    proptest! {
        /// Losses and some reordering, compared with the set of all received counters.
        #[test]
        fn as_the_set_says(steps in prop::collection::vec((1_u64..70, 0_u64..6), 1..300), every in 1_usize..50) {
            let mut counters = vec![0];
            let mut at = 0;
            for (step, _) in &steps {
                at += if *step < 60 { 1 } else { step - 58 };
                counters.push(at);
            }
            // The first stays first. The others are late by some places, fewer than are waited for.
            for (late, (_, places)) in counters[1..].chunks_mut(4).zip(&steps) {
                let places = *places as usize % late.len();
                late.rotate_left(places);
            }
            let mut gaps = Gaps::new(0);
            let (mut count, mut longest, mut lost) = (0, 0, 0);
            let mut take = |bursts: Bursts| {
                count += u64::from(bursts.count);
                longest = longest.max(u64::from(bursts.longest));
                lost += bursts.lost;
            };
            let reordered = counters.windows(2).any(|pair| pair[0] > pair[1]);
            for (i, counter) in counters.iter().enumerate().skip(1) {
                gaps.receive(*counter);
                // Reports only if nothing is out of order, since they wait for fewer counters.
                if i % every == 0 && !reordered {
                    take(gaps.report());
                }
            }
            let top = gaps.highest();
            (1..=PATIENCE).for_each(|i| {
                gaps.receive(top + i);
            });
            take(gaps.report());
            prop_assert_eq!((count, longest, lost), runs(&counters.into_iter().collect()));
        }

        #[test]
        fn any_counters(counters in prop::collection::vec(any::<u64>(), 1..100)) {
            let mut gaps = after(counters.iter().copied());
            prop_assert_eq!(gaps.highest(), *counters.iter().max().unwrap());
            gaps.report();
        }
    }
}
