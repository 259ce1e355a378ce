//! Routes of messages that this node forwards, as the lanes have them: the next link of a message
//! to a node.
//!
//! Neighbours choose the destinations in the messages that they send. So each route is charged to
//! the link of the message that requested it, and in a full table the link with the most routes
//! loses its oldest one. A neighbour that invents destinations displaces its own routes.

use std::collections::BTreeMap;

use weft_contract::LinkId;
use weft_wire::NodeAddr;

/// Maximum number of routes for other nodes in the lanes.
pub(super) const MAX_ROUTES: usize = 4096;

#[derive(Debug)]
struct Route {
    over: LinkId,
    /// The key of this route in `asked`.
    asked: (Option<LinkId>, u64),
}

/// The table of routes; see the module.
#[derive(Debug, Default)]
pub(super) struct Routes {
    entries: BTreeMap<NodeAddr, Route>,
    /// Destinations by the link that requested them, the oldest first. Those of links that are gone
    /// share one entry, without a link.
    asked: BTreeMap<Option<LinkId>, BTreeMap<u64, NodeAddr>>,
    /// Number of routes ever entered.
    entered: u64,
}

impl Routes {
    /// Returns the link for messages to `dest`.
    pub(super) fn get(&self, dest: &NodeAddr) -> Option<LinkId> {
        Some(self.entries.get(dest)?.over)
    }

    /// Returns the destinations that have a route.
    pub(super) fn dests(&self) -> impl Iterator<Item = NodeAddr> {
        self.entries.keys().copied()
    }

    /// Enters a route that a message over `asked_by` requested. Returns whether the route is
    /// another one than before, and the destination whose route it displaced. An existing route
    /// stays charged to the link that requested it first, so that no other link can take it over
    /// and then displace it.
    pub(super) fn insert(&mut self, dest: NodeAddr, over: LinkId, asked_by: LinkId) -> (bool, Option<NodeAddr>) {
        if let Some(route) = self.entries.get_mut(&dest) {
            let before = std::mem::replace(&mut route.over, over);
            return (before != over, None);
        }
        let displaced = (self.entries.len() >= MAX_ROUTES).then(|| self.displace()).flatten();
        let asked = (Some(asked_by), self.entered);
        self.entered += 1;
        self.asked.entry(asked.0).or_default().insert(asked.1, dest);
        self.entries.insert(dest, Route { over, asked });
        (true, displaced)
    }

    /// Removes the route to `dest`.
    pub(super) fn remove(&mut self, dest: &NodeAddr) -> Option<LinkId> {
        let Route { over, asked: (by, at) } = self.entries.remove(dest)?;
        if let Some(of_link) = self.asked.get_mut(&by) {
            of_link.remove(&at);
            if of_link.is_empty() {
                self.asked.remove(&by);
            }
        }
        Some(over)
    }

    /// Removes the routes over a link, and returns their destinations.
    pub(super) fn remove_over(&mut self, link: LinkId) -> Vec<NodeAddr> {
        let over = self.entries.iter().filter(|(_, route)| route.over == link);
        let dests: Vec<NodeAddr> = over.map(|(dest, _)| *dest).collect();
        for dest in &dests {
            self.remove(dest);
        }
        dests
    }

    /// Handles the end of a link: its routes move to the shared entry. So a neighbour that returns
    /// over one link after another has one share, not many.
    pub(super) fn forget_asker(&mut self, link: LinkId) {
        let Some(asked) = self.asked.remove(&Some(link)) else {
            return;
        };
        for dest in asked.values() {
            if let Some(route) = self.entries.get_mut(dest) {
                route.asked.0 = None;
            }
        }
        self.asked.entry(None).or_default().extend(asked);
    }

    /// Removes all routes.
    pub(super) fn drain(&mut self) -> Vec<(NodeAddr, LinkId)> {
        self.asked.clear();
        let entries = std::mem::take(&mut self.entries);
        entries.into_iter().map(|(dest, route)| (dest, route.over)).collect()
    }

    /// Removes the oldest route of the link that has requested the most.
    fn displace(&mut self) -> Option<NodeAddr> {
        let most = self.asked.values().max_by_key(|of_link| of_link.len())?;
        let dest = *most.values().next()?;
        self.remove(&dest);
        Some(dest)
    }

    /// Checks that the table is bounded and charges each route once.
    ///
    /// # Errors
    /// The broken invariant, in words.
    pub(super) fn check(&self) -> Result<(), String> {
        let charged: usize = self.asked.values().map(BTreeMap::len).sum();
        if self.entries.len() > MAX_ROUTES || charged != self.entries.len() {
            return Err(format!("{} routes for others, {charged} charged", self.entries.len()));
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
        assert_eq!(routes.entries.len(), MAX_ROUTES);
        assert!((0..50).all(|n| routes.get(&dest(n)) == Some(ON)));
    }

    #[test]
    fn a_route_of_two_links_outlasts_a_flood_of_either() {
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
        assert_eq!((routes.get(&dest(0)), routes.entries.len()), (Some(ON), MAX_ROUTES));
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
