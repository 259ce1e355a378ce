//! What came lately, so that it counts once.

use std::collections::{BTreeSet, VecDeque};

/// How long something is remembered, in ms: longer than an offer holds by the clocks of both nodes.
pub(super) const WINDOW: u64 = 300_000;
/// Things that are remembered at most; the oldest is forgotten first.
pub(super) const MOST: usize = 1_024;

/// The things of a window of time.
#[derive(Debug)]
pub(super) struct Seen<T> {
    order: VecDeque<(u64, T)>,
    known: BTreeSet<T>,
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        let (order, known) = (VecDeque::new(), BTreeSet::new());
        Self { order, known }
    }
}

impl<T: Clone + Ord> Seen<T> {
    pub(super) fn contains(&self, thing: &T) -> bool {
        self.known.contains(thing)
    }

    /// Remembers something. Returns whether it is new.
    pub(super) fn insert(&mut self, now: u64, thing: T) -> bool {
        let old = |at: &u64| at.saturating_add(WINDOW) <= now;
        while self.order.front().is_some_and(|(at, _)| old(at)) || self.order.len() >= MOST {
            if let Some((_, thing)) = self.order.pop_front() {
                self.known.remove(&thing);
            }
        }
        let new = self.known.insert(thing.clone());
        if new {
            self.order.push_back((now, thing));
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_remembered_for_the_window_and_are_bounded() {
        let mut seen = Seen::default();
        assert!(seen.insert(0, 7) && !seen.insert(WINDOW - 1, 7) && seen.insert(WINDOW, 7));
        for n in 100..100 + 2 * MOST {
            assert!(seen.insert(WINDOW, n));
            assert!(seen.order.len() <= MOST && seen.order.len() == seen.known.len());
        }
        assert!(!seen.contains(&100) && seen.contains(&(99 + 2 * MOST)));
    }
}
