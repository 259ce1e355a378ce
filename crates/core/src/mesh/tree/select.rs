//! The choice of the parent: which of two neighbours leads better to a root.

use weft_wire::NodeAddr;

/// The cost of one hop over a perfect link, in thousandths.
const HOP: u64 = 1_000;

/// The rank of a neighbour as a parent: the lower the better, in the order of the fields.
///
/// The smallest root comes first, whatever the path to it. Among the neighbours that lead to it,
/// one without a measured link is chosen only if no measured one leads there, so that a new
/// neighbour does not win because it is unknown. (FIPS does not consider it at all; a FIPS node
/// prefers to be a root itself until the first round trip.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// The root that it leads to.
    pub(super) root: NodeAddr,
    unmeasured: bool,
    /// Its depth plus the cost of the link to it, in thousandths of a hop.
    effective_depth: u64,
    /// The neighbour; between equals, the smaller address.
    pub(super) peer: NodeAddr,
}

impl Rank {
    /// Returns the rank of `peer` with this path and link cost (in thousandths); `None` if the path
    /// is empty.
    pub(super) fn new(peer: NodeAddr, path: &[NodeAddr], cost: Option<u32>) -> Option<Self> {
        let (root, below) = path.split_last()?;
        Some(Self {
            root: *root,
            unmeasured: cost.is_none(),
            effective_depth: below.len() as u64 * HOP + cost.map_or(HOP, u64::from),
            peer,
        })
    }

    /// Whether this one, at the same root, is worth a change from `present`: it has to be more than
    /// 20 % nearer.
    pub(super) fn clearly_beats(&self, present: &Self) -> bool {
        self.effective_depth * 5 < present.effective_depth * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(n: u8) -> NodeAddr {
        NodeAddr::new([n; 16])
    }

    fn rank(peer: u8, path: &[u8], cost: Option<u32>) -> Rank {
        let path: Vec<_> = path.iter().copied().map(addr).collect();
        Rank::new(addr(peer), &path, cost).unwrap()
    }

    #[test]
    fn the_root_decides_before_the_way_to_it() {
        assert!(rank(9, &[9, 8, 7, 1], Some(90_000)) < rank(5, &[5, 2], Some(1_000)));
    }

    #[test]
    fn depth_and_cost_decide_and_between_equals_the_address() {
        assert!(rank(9, &[9, 8, 1], Some(1_010)) < rank(5, &[5, 1], Some(6_000)));
        assert!(rank(9, &[9, 1], Some(1_500)) < rank(5, &[5, 4, 1], Some(1_000)));
        assert!(rank(5, &[5, 1], Some(2_000)) < rank(9, &[9, 8, 1], Some(1_000)));
    }

    #[test]
    fn an_unmeasured_link_wins_against_no_measured_one() {
        assert!(rank(9, &[9, 8, 7, 1], Some(9_000)) < rank(5, &[5, 1], None));
        assert!(rank(5, &[5, 1], None) < rank(4, &[4, 3, 1], None));
    }

    #[test]
    fn twenty_percent_is_not_yet_clearly_better() {
        let present = rank(9, &[9, 1], Some(4_000));
        assert!(!rank(5, &[5, 1], Some(3_000)).clearly_beats(&present));
        assert!(rank(5, &[5, 1], Some(2_999)).clearly_beats(&present));
    }

    #[test]
    fn no_path_no_rank() {
        assert_eq!(Rank::new(addr(1), &[], Some(1)), None);
    }
}
