//! A set of groups of a file.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of numbers in blocks of 64, so that a file of a tebibyte takes 16,384 entries at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupSet {
    blocks: BTreeMap<u64, u64>,
    len: u64,
}

impl GroupSet {
    /// Adds a group. Returns whether it is new.
    pub fn insert(&mut self, group: u64) -> bool {
        let block = self.blocks.entry(group / 64).or_default();
        let is_new = *block & bit(group) == 0;
        *block |= bit(group);
        self.len += u64::from(is_new);
        is_new
    }

    /// Removes a group. Returns whether it was there.
    pub fn remove(&mut self, group: u64) -> bool {
        let Some(block) = self.blocks.get_mut(&(group / 64)) else {
            return false;
        };
        let was_there = *block & bit(group) != 0;
        *block &= !bit(group);
        if *block == 0 {
            self.blocks.remove(&(group / 64));
        }
        self.len -= u64::from(was_there);
        was_there
    }

    /// Whether a group is there.
    #[must_use]
    pub fn contains(&self, group: u64) -> bool {
        self.blocks
            .get(&(group / 64))
            .is_some_and(|block| block & bit(group) != 0)
    }

    /// How many groups there are.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The groups, as ranges in ascending order that do not touch.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        let mut groups = self
            .blocks
            .iter()
            .flat_map(|(block, bits)| {
                (0..64)
                    .filter(move |at| bits >> at & 1 == 1)
                    .map(move |at| block * 64 + at)
            })
            .peekable();
        std::iter::from_fn(move || {
            let start = groups.next()?;
            let mut end = start + 1;
            while groups.next_if_eq(&end).is_some() {
                end += 1;
            }
            Some(start..end)
        })
    }
}

const fn bit(group: u64) -> u64 {
    1 << (group % 64)
}
