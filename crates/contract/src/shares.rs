//! A bounded store that several parties fill, so that none of them takes it all.

use std::collections::BTreeMap;

/// A party may hold the free store divided by this.
const HELD_OF_FREE: usize = 4;
/// Or the whole store divided by this, if that is more.
const LEAST_SHARE: usize = 64;

/// A number of items and their size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// The number of items.
    pub count: usize,
    /// Their size together, in bytes.
    pub bytes: usize,
}

/// The accounts of a store with a bound.
///
/// A party may hold a quarter of the free store (dynamic thresholds, Choudhury and Hahne 1998), and
/// a 64th of the whole store while any of it is free. So one party that floods holds a fifth of the
/// store, ten that flood leave a tenth of it, and others find room. If so many flood that nothing
/// is free, a party with less than a 64th, and less than an equal part, displaces an item of one
/// with more ([`Shares::displaces`]).
#[derive(Debug)]
pub struct Shares<K> {
    bound: Load,
    all: Load,
    of: BTreeMap<K, Load>,
}

impl<K: Ord + Copy> Shares<K> {
    /// Makes an empty store with this bound.
    #[must_use]
    pub const fn new(bound: Load) -> Self {
        Self {
            bound,
            all: Load { count: 0, bytes: 0 },
            of: BTreeMap::new(),
        }
    }

    /// Adds one item of `bytes` to the account of `party`. Returns false if that party already has
    /// its share.
    #[must_use]
    pub fn take(&mut self, party: K, bytes: usize) -> bool {
        let free = Load {
            count: self.bound.count.saturating_sub(self.all.count),
            bytes: self.bound.bytes.saturating_sub(self.all.bytes),
        };
        let held = self.of.get(&party).copied().unwrap_or_default();
        let share = Load {
            count: (free.count / HELD_OF_FREE).max(self.bound.count / LEAST_SHARE),
            bytes: (free.bytes / HELD_OF_FREE).max(self.bound.bytes / LEAST_SHARE),
        };
        let within = held.count < share.count && held.bytes + bytes <= share.bytes;
        let fits = within && free.count > 0 && bytes <= free.bytes;
        if fits {
            let held = self.of.entry(party).or_default();
            for load in [held, &mut self.all] {
                load.count += 1;
                load.bytes += bytes;
            }
        }
        fits
    }

    /// Returns the party whose newest item has to leave the store so that one item of `party`,
    /// which was refused, finds room: the party that holds most. Returns `None` if the store is not
    /// full, or if `party` would then hold more than a 64th or more than an equal part.
    #[must_use]
    pub fn displaces(&self, party: K, bytes: usize) -> Option<K> {
        let short_of_bytes = self.all.bytes + bytes > self.bound.bytes;
        if !short_of_bytes && self.all.count < self.bound.count {
            return None;
        }
        let (held, parties) = match self.of.get(&party) {
            Some(held) => (*held, self.of.len()),
            None => (Load::default(), self.of.len() + 1),
        };
        let part = |bound: usize| bound / parties.max(LEAST_SHARE);
        if held.count >= part(self.bound.count) || held.bytes + bytes > part(self.bound.bytes) {
            return None;
        }
        let size = |load: &Load| if short_of_bytes { load.bytes } else { load.count };
        let others = self.of.iter().filter(|(other, _)| **other != party);
        Some(*others.max_by_key(|(_, load)| size(load))?.0)
    }

    /// Removes one item of `bytes` from the account of `party`.
    pub fn give_back(&mut self, party: K, bytes: usize) {
        let Some(held) = self.of.get_mut(&party) else { return };
        for load in [&mut *held, &mut self.all] {
            load.count = load.count.saturating_sub(1);
            load.bytes = load.bytes.saturating_sub(bytes);
        }
        if held.count == 0 {
            self.of.remove(&party);
        }
    }

    /// Returns the items in the store.
    #[must_use]
    pub fn load(&self) -> Load {
        self.all
    }

    /// Returns the bound of the store.
    #[must_use]
    pub fn bound(&self) -> Load {
        self.bound
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOUND: Load = Load {
        count: 64,
        bytes: 1_000,
    };

    /// Adds items until one is refused, and returns how many were accepted.
    fn flood(shares: &mut Shares<u8>, party: u8, bytes: usize) -> usize {
        (0..).find(|_| !shares.take(party, bytes)).unwrap_or_default()
    }

    #[test]
    fn a_flood_takes_a_fifth_and_leaves_room_for_others() {
        for bytes in [0, 1, 10, 15] {
            let mut shares = Shares::new(BOUND);
            let taken = flood(&mut shares, 0, bytes);
            assert!((12..=14).contains(&taken), "{bytes}: {taken}");
            for party in 1..10 {
                flood(&mut shares, party, bytes);
            }
            for party in 10..15 {
                assert!(shares.take(party, bytes), "{bytes}");
            }
        }
    }

    #[test]
    fn in_a_full_store_a_party_gets_its_equal_part() {
        for bytes in [0, 15] {
            let mut shares = Shares::new(BOUND);
            let flooding = 1..=100;
            for party in flooding.clone() {
                flood(&mut shares, party, bytes);
            }
            assert!(!shares.take(0, bytes), "{bytes}");
            while let Some(most) = shares.displaces(0, bytes) {
                assert!(flooding.contains(&most));
                shares.give_back(most, bytes);
                assert!(shares.take(0, bytes), "{bytes}");
                // The party with most floods again, and gets nothing.
                flood(&mut shares, most, bytes);
            }
            assert_eq!(shares.of[&0].count, 1, "{bytes}");
        }
    }

    #[test]
    fn where_there_is_room_none_is_displaced() {
        let mut shares = Shares::new(BOUND);
        flood(&mut shares, 1, 10);
        assert_eq!((shares.displaces(1, 10), shares.displaces(2, 10)), (None, None));
    }

    #[test]
    fn bytes_that_leave_make_room() {
        let mut shares = Shares::new(BOUND);
        for _ in 0..100 {
            let taken = flood(&mut shares, 7, 100);
            assert_eq!(taken, 2);
            (0..taken).for_each(|_| shares.give_back(7, 100));
            assert_eq!(shares.load(), Load::default());
        }
    }

    proptest! {
        /// Any floods of any parties: the bound holds, and a party that holds nothing finds room
        /// for a small item while the store is not full.
        #[test]
        fn never_more_than_the_bound(events in prop::collection::vec((0_u8..8, 0_usize..60, any::<bool>()), 0..400)) {
            let (mut shares, mut held) = (Shares::new(BOUND), Vec::new());
            for (party, bytes, leaves) in events {
                if leaves && !held.is_empty() {
                    let (party, bytes) = held.remove(0);
                    shares.give_back(party, bytes);
                } else if shares.take(party, bytes) {
                    held.push((party, bytes));
                }
                let all = Load { count: held.len(), bytes: held.iter().map(|(_, bytes)| bytes).sum() };
                prop_assert_eq!(shares.load(), all);
                prop_assert!(all.count <= BOUND.count && all.bytes <= BOUND.bytes);
                prop_assert_eq!(shares.take(9, 0), all.count < BOUND.count);
                shares.give_back(9, 0);
            }
        }
    }
}
