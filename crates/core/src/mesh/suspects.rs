//! Neighbours that do not answer at present, and routes that lead nowhere: avoided while there is
//! another choice.

use std::collections::{BTreeMap, BTreeSet};

use weft_wire::NodeAddr;

/// Time for which a route without an answer is avoided, in ms: long enough to try others.
const ROUTE_LIFE: u64 = 10_000;
/// Maximum number of suspect routes. Only traffic of this node itself adds some.
const MAX_ROUTES: usize = 256;

/// The doubts of a node; see the module. Times are ms on the caller's clock.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    silent: BTreeSet<NodeAddr>,
    /// By destination: the neighbour, and the end of the doubt.
    routes: BTreeMap<NodeAddr, (NodeAddr, u64)>,
}

impl Suspects {
    /// Records whether a neighbour is silent, and returns whether that changed.
    pub(crate) fn set_silent(&mut self, neighbour: NodeAddr, silent: bool) -> bool {
        if silent {
            self.silent.insert(neighbour)
        } else {
            self.silent.remove(&neighbour)
        }
    }

    /// Records that messages to `dest` through `via` were not answered.
    pub(crate) fn suspect_route(&mut self, now: u64, dest: NodeAddr, via: NodeAddr) {
        if self.routes.len() >= MAX_ROUTES {
            self.routes.retain(|_, (_, until)| *until > now);
        }
        if self.routes.len() < MAX_ROUTES || self.routes.contains_key(&dest) {
            self.routes.insert(dest, (via, now + ROUTE_LIFE));
        }
    }

    /// Whether `via` is suspect as the next hop to `dest`.
    pub(crate) fn cover(&self, now: u64, via: &NodeAddr, dest: &NodeAddr) -> bool {
        let route = |(doubted, until): &(NodeAddr, u64)| doubted == via && now < *until;
        self.silent.contains(via) || self.routes.get(dest).is_some_and(route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(n: u8) -> NodeAddr {
        NodeAddr::new([n; 16])
    }

    #[test]
    fn a_silent_neighbour_leads_nowhere_and_a_doubted_way_not_to_its_end() {
        let mut doubts = Suspects::default();
        assert!(doubts.set_silent(addr(1), true) && !doubts.set_silent(addr(1), true));
        doubts.suspect_route(0, addr(9), addr(2));
        assert!(doubts.cover(0, &addr(1), &addr(8)) && doubts.cover(0, &addr(2), &addr(9)));
        assert!(!doubts.cover(0, &addr(2), &addr(8)) && !doubts.cover(0, &addr(3), &addr(9)));
        assert!(!doubts.cover(ROUTE_LIFE, &addr(2), &addr(9)));
        assert!(doubts.set_silent(addr(1), false) && !doubts.cover(0, &addr(1), &addr(8)));
    }

    #[test]
    fn doubted_ways_are_bounded_and_make_room() {
        let mut doubts = Suspects::default();
        for n in 0..2 * MAX_ROUTES {
            let mut dest = [0; 16];
            dest[..8].copy_from_slice(&(n as u64).to_be_bytes());
            doubts.suspect_route(0, NodeAddr::new(dest), addr(1));
        }
        assert_eq!(doubts.routes.len(), MAX_ROUTES);
        assert!(doubts.cover(0, &addr(1), &addr(0)), "the first ones stay");
        doubts.suspect_route(ROUTE_LIFE, addr(9), addr(2));
        assert!(doubts.cover(ROUTE_LIFE, &addr(2), &addr(9)));
    }
}
