//! Neighbours that do not answer at present, and routes that lead nowhere: avoided while there is
//! another choice.

use std::collections::BTreeMap;

use weft_wire::NodeAddr;

/// Time for which a route without an answer is avoided, in ms: long enough to try others.
const ROUTE_LIFE: u64 = 10_000;
/// Maximum number of suspect routes. Only traffic of this node itself adds some.
const MAX_ROUTES: usize = 256;

/// A neighbour that does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// Nothing has been heard since it fell silent.
    Unheard,
    /// It has been heard again, and is not yet trusted.
    Heard,
}

/// The doubts with which a next hop is chosen, the least first.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Doubt {
    /// None.
    None,
    /// The route through it is suspect, or the neighbour was silent until a moment ago.
    OfTheRoute,
    /// Nothing is heard of the neighbour.
    OfTheNeighbour,
}

/// The doubts of a node; see the module. Times are ms on the caller's clock.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    silent: BTreeMap<NodeAddr, Silence>,
    /// By destination: the neighbour, and the end of the doubt.
    routes: BTreeMap<NodeAddr, (NodeAddr, u64)>,
}

impl Suspects {
    /// Records how silent a neighbour is, and returns how silent it was before.
    pub(crate) fn set_silence(&mut self, neighbour: NodeAddr, silence: Option<Silence>) -> Option<Silence> {
        match silence {
            Some(silence) => self.silent.insert(neighbour, silence),
            None => self.silent.remove(&neighbour),
        }
    }

    /// Whether the doubt about `via` as the next hop to `dest` is at most this one.
    pub(crate) fn accept(&self, now: u64, via: &NodeAddr, dest: &NodeAddr, most: Doubt) -> bool {
        match most {
            Doubt::None => !self.cover(now, via, dest),
            Doubt::OfTheRoute => self.silent.get(via) != Some(&Silence::Unheard),
            Doubt::OfTheNeighbour => true,
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
        self.silent.contains_key(via) || self.routes.get(dest).is_some_and(route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(n: u8) -> NodeAddr {
        NodeAddr::new([n; 16])
    }

    #[test]
    fn silent_neighbours_and_doubted_routes_are_not_used() {
        let mut doubts = Suspects::default();
        assert_eq!(doubts.set_silence(addr(1), Some(Silence::Unheard)), None);
        assert_eq!(
            doubts.set_silence(addr(1), Some(Silence::Unheard)),
            Some(Silence::Unheard)
        );
        doubts.suspect_route(0, addr(9), addr(2));
        assert!(doubts.cover(0, &addr(1), &addr(8)) && doubts.cover(0, &addr(2), &addr(9)));
        assert!(!doubts.cover(0, &addr(2), &addr(8)) && !doubts.cover(0, &addr(3), &addr(9)));
        assert!(!doubts.cover(ROUTE_LIFE, &addr(2), &addr(9)));
        let accepted = |via, dest, most| doubts.accept(0, &addr(via), &addr(dest), most);
        assert!(accepted(3, 9, Doubt::None) && !accepted(2, 9, Doubt::None) && !accepted(1, 8, Doubt::None));
        assert!(accepted(2, 9, Doubt::OfTheRoute) && !accepted(1, 8, Doubt::OfTheRoute));
        assert!(accepted(1, 8, Doubt::OfTheNeighbour));
        assert_eq!(
            doubts.set_silence(addr(1), Some(Silence::Heard)),
            Some(Silence::Unheard)
        );
        let accepted = |most| doubts.accept(0, &addr(1), &addr(8), most);
        assert!(accepted(Doubt::OfTheRoute) && !accepted(Doubt::None));
        assert_eq!(doubts.set_silence(addr(1), None), Some(Silence::Heard));
        assert!(!doubts.cover(0, &addr(1), &addr(8)));
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
