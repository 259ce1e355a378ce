//! Ways of what is carried for others, as the lanes have them: the link over which a message to a node goes on.
//!
//! Destinations are what neighbours write into messages. So a way is charged to the link of the message that asked for it,
//! and in a full table the link with the most ways loses its oldest. A neighbour that makes destinations up takes the places
//! of its own.

use std::collections::BTreeMap;

use weft_packet::LinkId;
use weft_wire::NodeAddr;

/// Ways that the lanes have for others, at most.
pub(super) const MAX_ROUTES: usize = 4096;

#[derive(Debug)]
struct Route {
    over: LinkId,
    /// Where `asked` has it.
    asked: (Option<LinkId>, u64),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Routes {
    ways: BTreeMap<NodeAddr, Route>,
    /// Destinations by the link that asked for them, the oldest first. Those of links that are gone are together, with no link.
    asked: BTreeMap<Option<LinkId>, BTreeMap<u64, NodeAddr>>,
    /// Ways that were ever entered.
    entered: u64,
}

impl Routes {
    /// The link over which messages to `dest` go.
    pub(super) fn get(&self, dest: &NodeAddr) -> Option<LinkId> {
        Some(self.ways.get(dest)?.over)
    }

    /// The destinations that have a way.
    pub(super) fn dests(&self) -> impl Iterator<Item = NodeAddr> {
        self.ways.keys().copied()
    }

    /// Enters a way that a message which came over `asked_by` asked for. Returns whether it is another than before, and the
    /// destination whose way it displaced. A way that is there stays charged to the link that asked first: another link cannot
    /// take it over and then displace it.
    pub(super) fn insert(&mut self, dest: NodeAddr, over: LinkId, asked_by: LinkId) -> (bool, Option<NodeAddr>) {
        if let Some(route) = self.ways.get_mut(&dest) {
            let before = std::mem::replace(&mut route.over, over);
            return (before != over, None);
        }
        let displaced = (self.ways.len() >= MAX_ROUTES).then(|| self.displace()).flatten();
        let asked = (Some(asked_by), self.entered);
        self.entered += 1;
        self.asked.entry(asked.0).or_default().insert(asked.1, dest);
        self.ways.insert(dest, Route { over, asked });
        (true, displaced)
    }

    /// Takes out the way to `dest`.
    pub(super) fn remove(&mut self, dest: &NodeAddr) -> Option<LinkId> {
        let Route { over, asked: (by, at) } = self.ways.remove(dest)?;
        if let Some(of_link) = self.asked.get_mut(&by) {
            of_link.remove(&at);
            if of_link.is_empty() {
                self.asked.remove(&by);
            }
        }
        Some(over)
    }

    /// Takes out the ways over a link, and returns where they led.
    pub(super) fn remove_over(&mut self, link: LinkId) -> Vec<NodeAddr> {
        let over = self.ways.iter().filter(|(_, route)| route.over == link);
        let dests: Vec<NodeAddr> = over.map(|(dest, _)| *dest).collect();
        for dest in &dests {
            self.remove(dest);
        }
        dests
    }

    /// A link is gone. A neighbour that comes back over one link after another has one share, not many.
    pub(super) fn forget_asker(&mut self, link: LinkId) {
        let Some(asked) = self.asked.remove(&Some(link)) else {
            return;
        };
        for dest in asked.values() {
            if let Some(route) = self.ways.get_mut(dest) {
                route.asked.0 = None;
            }
        }
        self.asked.entry(None).or_default().extend(asked);
    }

    /// Takes out everything.
    pub(super) fn drain(&mut self) -> Vec<(NodeAddr, LinkId)> {
        self.asked.clear();
        let ways = std::mem::take(&mut self.ways);
        ways.into_iter().map(|(dest, route)| (dest, route.over)).collect()
    }

    /// Takes out the oldest way of the link that has asked for most.
    fn displace(&mut self) -> Option<NodeAddr> {
        let most = self.asked.values().max_by_key(|of_link| of_link.len())?;
        let dest = *most.values().next()?;
        self.remove(&dest);
        Some(dest)
    }

    /// Checks that the table is bounded and charges each way once.
    ///
    /// # Errors
    /// The broken invariant, in words.
    pub(super) fn check(&self) -> Result<(), String> {
        let charged: usize = self.asked.values().map(BTreeMap::len).sum();
        if self.ways.len() > MAX_ROUTES || charged != self.ways.len() {
            return Err(format!("{} ways for others, {charged} charged", self.ways.len()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: LinkId = LinkId(1);
    const FLOOD: LinkId = LinkId(2);
    const ON: LinkId = LinkId(3);

    fn dest(n: usize) -> NodeAddr {
        let mut bytes = [0; 16];
        bytes[8..].copy_from_slice(&(n as u64).to_be_bytes());
        NodeAddr::new(bytes)
    }

    #[test]
    fn made_up_destinations_displace_those_of_their_own_link() {
        let mut routes = Routes::default();
        for n in 0..50 {
            assert_eq!(routes.insert(dest(n), ON, GOOD), (true, None));
        }
        for n in 50..3 * MAX_ROUTES {
            let (_, displaced) = routes.insert(dest(n), ON, FLOOD);
            let oldest = (n >= MAX_ROUTES).then(|| dest(n - MAX_ROUTES + 50));
            assert_eq!(displaced, oldest);
            routes.check().unwrap();
        }
        assert_eq!(routes.ways.len(), MAX_ROUTES);
        assert!((0..50).all(|n| routes.get(&dest(n)) == Some(ON)));
    }

    #[test]
    fn a_way_that_another_link_asks_for_too_is_not_displaced_with_those_of_that_link() {
        let mut routes = Routes::default();
        routes.insert(dest(0), ON, GOOD);
        assert_eq!(routes.insert(dest(0), ON, FLOOD), (false, None));
        for n in 1..2 * MAX_ROUTES {
            routes.insert(dest(n), ON, FLOOD);
        }
        routes.check().unwrap();
        assert_eq!(routes.get(&dest(0)), Some(ON));
    }

    #[test]
    fn a_neighbour_that_comes_back_over_and_over_has_one_share() {
        let mut routes = Routes::default();
        routes.insert(dest(0), ON, GOOD);
        let mut n = 1;
        for link in 10..2 * MAX_ROUTES as u32 {
            for _ in 0..2 {
                routes.insert(dest(n), ON, LinkId(link));
                n += 1;
            }
            routes.forget_asker(LinkId(link));
        }
        routes.check().unwrap();
        assert_eq!((routes.get(&dest(0)), routes.ways.len()), (Some(ON), MAX_ROUTES));
    }

    #[test]
    fn ways_over_a_link_go_with_it() {
        let mut routes = Routes::default();
        routes.insert(dest(1), ON, GOOD);
        routes.insert(dest(2), FLOOD, GOOD);
        assert_eq!(routes.insert(dest(2), FLOOD, GOOD), (false, None));
        assert_eq!(routes.insert(dest(3), GOOD, ON), (true, None));
        assert_eq!(routes.remove_over(ON), [dest(1)]);
        assert_eq!((routes.get(&dest(1)), routes.get(&dest(2))), (None, Some(FLOOD)));
        routes.check().unwrap();
        assert_eq!(routes.drain(), [(dest(2), FLOOD), (dest(3), GOOD)]);
        routes.check().unwrap();
    }
}
