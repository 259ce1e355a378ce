//! The record of numbered datagrams as they are received: loss, duplicates, reordering, jitter.

use serde::{Deserialize, Serialize};

/// How many of the last numbers are remembered, so that duplicates are recognised.
const WINDOW: u64 = 1 << 16;

/// Counts of received datagrams so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ArrivalCounts {
    /// Datagrams without duplicates.
    pub datagrams: u64,
    /// Duplicates, and datagrams too late to be told from duplicates.
    pub duplicates: u64,
    /// Received after one that was sent later.
    pub reordered: u64,
    /// The highest number, from 1.
    pub highest: u64,
    /// Interarrival jitter in milliseconds (RFC 3550, section 6.4.1).
    pub jitter_ms: f64,
}

impl ArrivalCounts {
    /// How many datagrams up to the highest number have not been received.
    #[must_use]
    pub const fn missing(&self) -> u64 {
        self.highest.saturating_sub(self.datagrams)
    }
}

/// Records datagrams in the order of their arrival.
#[derive(Debug)]
pub struct Arrivals {
    counts: ArrivalCounts,
    /// One bit for each of the last [`WINDOW`] numbers.
    seen: Vec<u64>,
    /// Arrival less departure of the previous datagram, in nanoseconds of two clocks.
    transit: Option<i64>,
}

impl Arrivals {
    /// A record without datagrams.
    #[must_use]
    pub fn new() -> Self {
        Self {
            counts: ArrivalCounts::default(),
            seen: vec![0; (WINDOW / 64) as usize],
            transit: None,
        }
    }

    /// Records the datagram `number`, from 1, sent at `sent` and received at `received`:
    /// nanoseconds of the sender's and the receiver's clocks, which need not agree.
    pub fn take(&mut self, number: u64, sent: u64, received: u64) {
        if number == 0 || !self.note(number) {
            self.counts.duplicates += 1;
            return;
        }
        self.counts.datagrams += 1;
        if number < self.counts.highest {
            self.counts.reordered += 1;
        }
        self.counts.highest = self.counts.highest.max(number);
        // The difference of the clocks cancels between consecutive datagrams, also when it wraps.
        let transit = received.wrapping_sub(sent).cast_signed();
        if let Some(before) = self.transit.replace(transit) {
            let change = transit.wrapping_sub(before).unsigned_abs() as f64 * 1e-6;
            self.counts.jitter_ms += (change - self.counts.jitter_ms) / 16.0;
        }
    }

    /// The counts so far.
    #[must_use]
    pub const fn counts(&self) -> ArrivalCounts {
        self.counts
    }

    /// Returns true if `number` is new.
    fn note(&mut self, number: u64) -> bool {
        let highest = self.counts.highest;
        // By words, because a word stands for one range of numbers only.
        if is_old(number, highest) {
            return false;
        }
        // Words that come to stand for newer numbers are cleared.
        if number > highest {
            let (from, to) = (highest / 64 + 1, number / 64);
            for word in from.max((to + 1).saturating_sub(WINDOW / 64))..=to {
                self.clear(word);
            }
        }
        let bit = 1 << (number % 64);
        let Some(word) = self.seen.get_mut((number % WINDOW / 64) as usize) else {
            return false;
        };
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    fn clear(&mut self, word: u64) {
        if let Some(word) = self.seen.get_mut((word % (WINDOW / 64)) as usize) {
            *word = 0;
        }
    }
}

fn is_old(number: u64, highest: u64) -> bool {
    number / 64 + WINDOW / 64 <= highest / 64
}

impl Default for Arrivals {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn counts(numbers: &[u64]) -> ArrivalCounts {
        let mut arrivals = Arrivals::new();
        for number in numbers {
            arrivals.take(*number, 0, 0);
        }
        arrivals.counts()
    }

    #[test]
    fn loss_order_and_duplicates() {
        let all = counts(&[1, 2, 5, 4, 4, 8]);
        assert_eq!((all.datagrams, all.duplicates, all.reordered), (5, 1, 1));
        assert_eq!((all.highest, all.missing()), (8, 3));
        // Numbers that no sender of weft assigns.
        let odd = counts(&[0, u64::MAX - WINDOW, 1]);
        assert_eq!((odd.datagrams, odd.duplicates), (1, 2));
    }

    #[test]
    fn jitter_is_that_of_the_gaps() {
        let mut even = Arrivals::new();
        let mut odd = Arrivals::new();
        for number in 1..=1000_u64 {
            let sent = number * 1_000_000;
            even.take(number, sent, sent.wrapping_sub(500));
            odd.take(number, sent, sent + 7_000_000 + number % 2 * 2_000_000);
        }
        assert_eq!(even.counts().jitter_ms, 0.0);
        assert!((odd.counts().jitter_ms - 2.0).abs() < 0.01, "{:?}", odd.counts());
    }

    proptest! {
        /// Compares with a set of all numbers, which the window must equal as long as nothing is
        /// older than it.
        #[test]
        fn as_a_set(start in 1_u64..u64::MAX / 2, steps in proptest::collection::vec(-300_i64..3000, 1..400)) {
            let mut arrivals = Arrivals::new();
            let (mut set, mut highest, mut late, mut twice, mut at) = (BTreeSet::new(), 0, 0, 0, start);
            for step in steps {
                at = at.saturating_add_signed(step).max(1);
                arrivals.take(at, 0, 0);
                if is_old(at, highest) || !set.insert(at) {
                    twice += 1;
                } else if at < highest {
                    late += 1;
                }
                highest = highest.max(at);
            }
            let counts = arrivals.counts();
            prop_assert_eq!(counts.datagrams, set.len() as u64);
            prop_assert_eq!((counts.reordered, counts.duplicates, counts.highest), (late, twice, highest));
        }
    }
}
