//! A cache of results of curve operations within a fuzzer's process.
//!
//! Inputs of a fuzzer begin alike: the same nodes, whose random numbers follow from a seed, compute
//! the same points again for each of them, at 20 to 100 µs apiece. A computation without randomness
//! of its own gives the same result the second time, so its result is cached. The cache exists only
//! under `cfg(fuzzing)` and in tests: it keeps secrets.

#[cfg(any(fuzzing, test))]
use std::{cell::RefCell, collections::BTreeMap};

/// Maximum number of cached results of each computation; above it, all are dropped.
#[cfg(any(fuzzing, test))]
const MAX: usize = 1 << 15;

/// The results of one computation, by its inputs.
#[cfg(any(fuzzing, test))]
pub(crate) struct Memo<K, V>(RefCell<BTreeMap<K, V>>);

#[cfg(any(fuzzing, test))]
impl<K: Ord, V: Clone> Memo<K, V> {
    pub(crate) fn new() -> Self {
        Self(RefCell::new(BTreeMap::new()))
    }

    /// Returns the result for `key`, which is the only input of `compute`.
    pub(crate) fn recall(&self, key: K, compute: impl FnOnce() -> V) -> V {
        if let Some(known) = self.0.borrow().get(&key) {
            return known.clone();
        }
        let value = compute();
        let mut known = self.0.borrow_mut();
        if known.len() == MAX {
            known.clear();
        }
        known.insert(key, value.clone());
        value
    }
}

/// `$compute`, whose only input is `$key`; a fuzzer's process computes it once.
macro_rules! recalled {
    ($key:expr, $in:ty => $out:ty, $compute:expr) => {{
        #[cfg(fuzzing)]
        {
            thread_local! {
                static KNOWN: $crate::memo::Memo<$in, $out> = $crate::memo::Memo::new();
            }
            KNOWN.with(|known| known.recall($key, || $compute))
        }
        #[cfg(not(fuzzing))]
        {
            $compute
        }
    }};
}
pub(crate) use recalled;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_computed_once_for_each_key() {
        let memo = Memo::new();
        assert_eq!(memo.recall(1, || 10), 10);
        assert_eq!(memo.recall(2, || 20), 20);
        assert_eq!(memo.recall(1, || unreachable!()), 10);
    }

    #[test]
    fn a_full_cache_is_emptied() {
        let memo = Memo::new();
        for key in 0..=MAX {
            memo.recall(key, || key);
        }
        assert_eq!(memo.0.borrow().len(), 1);
        assert_eq!(memo.recall(0, || 5), 5);
    }
}
