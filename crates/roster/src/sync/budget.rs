//! How many bytes a member may cause.

/// The most bytes at once: a network of 2,000 members, with room to spare.
pub(super) const BURST: u64 = 4 << 20;

/// Bytes that a message costs beside its own: each one takes a look at all identifiers.
pub(super) const EACH: usize = 8_192;

/// Bytes that are added each millisecond, up to [`BURST`].
const REFILL: u64 = 64;

/// A token bucket of bytes.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    left: u64,
    since: u64,
}

impl Budget {
    /// Creates a full bucket at the time `now`, in ms.
    pub(super) const fn full(now: u64) -> Self {
        Self {
            left: BURST,
            since: now,
        }
    }

    /// Returns true if it is full at the time `now`.
    pub(super) fn is_full(&self, now: u64) -> bool {
        let passed = now.saturating_sub(self.since);
        self.left.saturating_add(passed.saturating_mul(REFILL)) >= BURST
    }

    /// Takes `bytes`, if there are as many.
    pub(super) fn take(&mut self, bytes: usize, now: u64) -> bool {
        let passed = now.saturating_sub(self.since);
        self.left = self.left.saturating_add(passed.saturating_mul(REFILL)).min(BURST);
        self.since = self.since.max(now);
        let bytes = bytes as u64;
        let enough = bytes <= self.left;
        if enough {
            self.left -= bytes;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_fills_up_again() {
        let mut budget = Budget::full(5);
        assert!(budget.is_full(5) && budget.take(BURST as usize, 5));
        assert!(!budget.take(1, 5) && !budget.is_full(5 + BURST / REFILL - 1) && budget.is_full(5 + BURST / REFILL));
        assert!(!budget.take(641, 15));
        assert!(budget.take(640, 15));
        assert!(!budget.take(1, 0), "a clock that goes back adds nothing");
        assert!(!budget.take(BURST as usize + 1, u64::MAX));
        assert!(budget.take(BURST as usize, u64::MAX));
    }
}
