//! The cost of handing a message to a neighbour, as the choice of routes uses it.
//!
//! Measurements vary all the time, and routes must not vary with them. So a cost stays in use until
//! a measurement differs from it by more than a fifth. The tree changes a parent by the same
//! margin.

use std::collections::BTreeMap;

use weft_wire::NodeAddr;

/// The cost of one hop over a perfect link, in thousandths. An unmeasured link counts as a perfect
/// one, as in FIPS.
pub(super) const HOP: u64 = 1_000;

/// The costs in use, in thousandths of a perfect hop.
#[derive(Debug, Default)]
pub(super) struct Costs {
    links: BTreeMap<NodeAddr, u32>,
}

impl Costs {
    /// Handles a measurement, and returns whether it is in use from now on.
    pub(super) fn measured(&mut self, neighbour: NodeAddr, cost: u32) -> bool {
        let present = self.of(&neighbour);
        let counts = u64::from(cost).abs_diff(present) * 5 > present;
        if counts {
            self.links.insert(neighbour, cost);
        }
        counts
    }

    /// Forgets a neighbour that is gone.
    pub(super) fn forget(&mut self, neighbour: &NodeAddr) {
        self.links.remove(neighbour);
    }

    /// Returns the cost of the link.
    pub(super) fn of(&self, neighbour: &NodeAddr) -> u64 {
        self.links.get(neighbour).map_or(HOP, |cost| u64::from(*cost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_changes_do_not_count() {
        let (mut costs, neighbour) = (Costs::default(), NodeAddr::new([1; 16]));
        assert!(!costs.measured(neighbour, 1_200));
        assert_eq!(costs.of(&neighbour), HOP);
        assert!(costs.measured(neighbour, 1_201));
        assert!(!costs.measured(neighbour, 961));
        assert!(costs.measured(neighbour, 960));
        assert_eq!(costs.of(&neighbour), 960);
        costs.forget(&neighbour);
        assert_eq!(costs.of(&neighbour), HOP);
    }

    #[test]
    fn no_cost_is_too_large() {
        let (mut costs, neighbour) = (Costs::default(), NodeAddr::new([1; 16]));
        assert!(costs.measured(neighbour, u32::MAX));
        assert!(costs.measured(neighbour, 0) && costs.measured(neighbour, 1));
    }
}
