//! Memory that peers share.

use std::collections::BTreeMap;

/// The part of the memory that a peer has for certain: one in so many.
const CERTAIN: usize = 64;

/// The accounts of memory, in bytes.
///
/// A peer holds at most its own bound, and at most as much as is free (dynamic thresholds, Choudhury
/// and Hahne 1998). So a peer that takes all it can leaves at least half. Where many have left
/// nothing, a peer that holds little displaces something of the one that holds most.
#[derive(Debug)]
pub(crate) struct Budget<P> {
    bound: usize,
    peer_bound: usize,
    all: usize,
    of: BTreeMap<P, usize>,
}

impl<P: Ord + Copy> Budget<P> {
    /// Makes accounts of `bound` bytes, of which a peer holds at most `peer_bound`.
    pub(crate) fn new(bound: usize, peer_bound: usize) -> Self {
        Self {
            bound,
            peer_bound,
            all: 0,
            of: BTreeMap::new(),
        }
    }

    /// Takes `bytes` for `peer`. Returns false, and takes nothing, if that is more than its part.
    #[must_use]
    pub(crate) fn take(&mut self, peer: P, bytes: usize) -> bool {
        let held = self.of.get(&peer).copied().unwrap_or(0).saturating_add(bytes);
        let free = self.bound.saturating_sub(self.all);
        let fits = held <= self.peer_bound.min(free);
        if fits && bytes > 0 {
            self.of.insert(peer, held);
            self.all += bytes;
        }
        fits
    }

    /// Returns the peer that has to give up something so that `peer`, which was refused `bytes`,
    /// finds room: the one that holds most. Returns `None` if `peer` would then hold more than a
    /// 64th of the memory, or if none holds more than that.
    pub(crate) fn displaces(&self, peer: P, bytes: usize) -> Option<P> {
        let certain = self.bound / CERTAIN;
        let held = self.of.get(&peer).copied().unwrap_or(0).saturating_add(bytes);
        let (most, other) = self.of.iter().map(|(other, held)| (*held, *other)).max()?;
        (held <= certain && most > certain).then_some(other)
    }

    /// Gives back `bytes` of `peer`.
    pub(crate) fn give(&mut self, peer: P, bytes: usize) {
        if let Some(held) = self.of.get_mut(&peer) {
            let bytes = bytes.min(*held);
            *held -= bytes;
            self.all -= bytes;
            if *held == 0 {
                self.of.remove(&peer);
            }
        }
    }

    /// Returns the bytes that are held.
    pub(crate) fn held(&self) -> usize {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_takes_all_leaves_half() {
        let mut budget = Budget::new(1_000, 700);
        while budget.take(1, 10) {}
        assert_eq!(budget.held(), 500);
        while budget.take(2, 10) {}
        assert_eq!(budget.held(), 750);
        assert!(budget.take(3, 100) && !budget.take(3, 100));
        assert_eq!(budget.displaces(4, 15), Some(1));
        assert_eq!(budget.displaces(4, 16), None);
        budget.give(1, 500);
        budget.give(1, 500);
        assert_eq!(budget.held(), 350);
        budget.give(2, 250);
        budget.give(3, 100);
        assert!(budget.of.is_empty() && budget.held() == 0);
    }

    #[test]
    fn a_peer_has_a_bound_of_its_own() {
        let mut budget = Budget::new(1_000, 200);
        assert!(budget.take(1, 200) && !budget.take(1, 1) && budget.take(1, 0));
        assert!(!budget.take(2, usize::MAX));
    }
}
