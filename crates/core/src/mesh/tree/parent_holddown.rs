//! Delays of mere improvements: after a change of parent, and longer after several.
//!
//! A lost parent or a better root never waits.

/// Time after a change of parent in which measurements of the new link settle.
const HOLD_DOWN: u64 = 30_000;
/// This number of changes of parent ...
const FLAPS: usize = 4;
/// ... within this time counts as flapping, ...
const WINDOW: u64 = 60_000;
/// ... and mere improvements wait for this long.
const DAMPING: u64 = 120_000;

/// The recent changes of parent. Times are ms.
#[derive(Debug, Default)]
pub(super) struct ParentHolddown {
    held_until: u64,
    damped_until: u64,
    /// The changes within [`WINDOW`] of the last one that counted: at most [`FLAPS`], because none
    /// counts while damped.
    switches: Vec<u64>,
}

impl ParentHolddown {
    /// Records a change to another parent. Becoming the root is not such a change.
    pub(super) fn switched(&mut self, now: u64) {
        self.held_until = now.saturating_add(HOLD_DOWN);
        if now < self.damped_until {
            return;
        }
        self.switches.retain(|at| at.saturating_add(WINDOW) > now);
        self.switches.push(now);
        if self.switches.len() >= FLAPS {
            self.damped_until = now.saturating_add(DAMPING);
        }
    }

    /// Returns the time from which the parent may change for a mere improvement.
    pub(super) fn free_at(&self) -> u64 {
        self.held_until.max(self.damped_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(switches: &[u64]) -> ParentHolddown {
        let mut parent_holddown = ParentHolddown::default();
        switches.iter().for_each(|at| parent_holddown.switched(*at));
        parent_holddown
    }

    #[test]
    fn one_change_holds_for_half_a_minute() {
        assert_eq!(ParentHolddown::default().free_at(), 0);
        assert_eq!(after(&[5_000]).free_at(), 35_000);
    }

    #[test]
    fn the_fourth_change_within_a_minute_damps() {
        assert_eq!(after(&[0, 20_000, 40_000]).free_at(), 70_000);
        assert_eq!(after(&[0, 20_000, 40_000, 59_999]).free_at(), 179_999);
        assert_eq!(after(&[0, 20_000, 40_000, 60_000]).free_at(), 90_000);
    }

    #[test]
    fn changes_while_damped_only_hold() {
        let mut parent_holddown = after(&[0, 1, 2, 3]);
        for at in [100_000, 100_001, 100_002, 120_002] {
            parent_holddown.switched(at);
        }
        assert_eq!(parent_holddown.free_at(), 150_002);
        parent_holddown.switched(130_000);
        assert_eq!(parent_holddown.free_at(), 160_000);
    }
}
