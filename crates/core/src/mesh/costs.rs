//! What it costs to hand a message to a neighbour, as far as the choice of ways goes.
//!
//! Measurements move all the time, and ways must not move with them: a cost counts until another one differs from it by
//! more than a fifth, which is also what makes the tree change a parent.

use std::collections::BTreeMap;

use weft_wire::NodeAddr;

/// What one hop over a perfect link costs, in thousandths: also what an unmeasured link is taken for, as by FIPS.
pub(super) const HOP: u64 = 1_000;

/// The costs in use, in thousandths of a perfect hop.
#[derive(Debug, Default)]
pub(super) struct Costs {
    links: BTreeMap<NodeAddr, u32>,
}

impl Costs {
    /// Takes a measurement, and tells whether it counts from now on.
    pub(super) fn measured(&mut self, neighbour: NodeAddr, cost: u32) -> bool {
        let present = self.of(&neighbour);
        let counts = u64::from(cost).abs_diff(present) * 5 > present;
        if counts {
            self.links.insert(neighbour, cost);
        }
        counts
    }

    /// The neighbour is gone.
    pub(super) fn forget(&mut self, neighbour: &NodeAddr) {
        self.links.remove(neighbour);
    }

    /// What the link costs.
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
