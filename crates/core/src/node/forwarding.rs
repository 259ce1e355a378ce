//! The routes of messages that this node forwards, as the lanes have them, and how long a route
//! that works takes precedence over newer announcements.
//!
//! The next hop of a message follows from tree, filters and coordinates, and a neighbour can forge
//! all of them. A node's own messages are independent evidence: they arrive over the link over
//! which messages to the node have to go. So if another next hop becomes preferable, the route in
//! use is held for a moment, and stays in use if the node is heard over it meanwhile. A route on
//! which no answer returns is given up.
//!
//! Routes that stay form no loops: each leads to the neighbour that had the node's latest message
//! before this node.

use weft_contract::{LinkId, TableCommand};
use weft_wire::NodeAddr;

use super::Node;
use super::routes::MAX_ROUTES;

/// Maximum number of held routes.
pub(super) const MAX_HELD: usize = MAX_ROUTES;
/// Time in which a route has to prove that it works, in ms.
const HOLD: u64 = 2_000;

/// A route that was in use until another one was preferred.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    link: LinkId,
    /// The last ms of the hold.
    until: u64,
    /// Whether the node was heard over this route since.
    heard: bool,
}

impl Node {
    /// Returns the neighbour to which a message of another node is handed that was received over
    /// `link`. Lanes forward further messages themselves, unless the route still has to prove that
    /// it works.
    pub(super) fn forward_to(&mut self, now: u64, src: NodeAddr, dest: NodeAddr, link: LinkId) -> Option<NodeAddr> {
        if let Some(held) = self.held.get_mut(&src).filter(|held| held.link == link) {
            (held.heard, held.until) = (true, now + HOLD);
        }
        let from = self.by_link.get(&link).copied();
        let preferred = self.mesh.next_hop(now, dest, from);
        let (used, via) = self.next_hop_in_use(now, dest, from).unzip();
        if used.is_some() && via != preferred && preferred != Some(dest) {
            self.put_to_proof(now, src, dest, link);
            return via;
        }
        self.held.remove(&dest);
        if let Some(over) = preferred.and_then(|next| Some(self.peers.get(&next)?.link.id)) {
            self.publish_route(dest, over, link);
        }
        preferred
    }

    /// Handles a preference for another route than the one in use: lanes hand the messages of both
    /// directions to the core until `dest` is heard.
    fn put_to_proof(&mut self, now: u64, src: NodeAddr, dest: NodeAddr, link: LinkId) {
        if let Some(used) = self.withdraw(dest) {
            self.hold(now, dest, used, false);
            if let Some(back) = self.withdraw(src) {
                self.hold(now, src, back, back == link);
            }
        } else if let Some(proven) = self.held.get(&dest).copied().filter(|held| held.heard) {
            self.held.remove(&dest);
            self.publish_route(dest, proven.link, link);
        }
    }

    /// Withdraws the routes over a link from the lanes, which then ask again, and ends all holds
    /// over it.
    pub(super) fn withdraw_routes_over(&mut self, link: LinkId) {
        self.held.retain(|_, held| held.link != link);
        for dest in self.routes.remove_over(link) {
            self.ctx.lane(TableCommand::RemoveRoute { dest });
        }
    }

    /// Withdraws all routes, so that lanes ask again about every node.
    pub(super) fn withdraw_routes(&mut self, now: u64) {
        for (dest, link) in self.routes.drain() {
            self.ctx.lane(TableCommand::RemoveRoute { dest });
            self.hold(now, dest, link, false);
        }
    }

    /// Withdraws the route to one node, so that lanes ask again about it.
    pub(super) fn withdraw_route(&mut self, now: u64, dest: NodeAddr) {
        if let Some(link) = self.withdraw(dest) {
            self.hold(now, dest, link, false);
        }
    }

    pub(super) fn next_hop_in_use(
        &self,
        now: u64,
        dest: NodeAddr,
        from: Option<NodeAddr>,
    ) -> Option<(LinkId, NodeAddr)> {
        let held = self.held.get(&dest).filter(|held| now <= held.until);
        let told = self.routes.get(&dest).or(held.map(|held| held.link));
        let link = told.or_else(|| self.labelled_next_hop(dest))?;
        let via = *self.by_link.get(&link)?;
        let up = self.peers.get(&via).is_some_and(|peer| peer.link.is_up());
        (up && Some(via) != from && !self.mesh.is_doubted(now, via, dest)).then_some((link, via))
    }

    /// Returns the link on which labelled fast frames for `dest` leave this node. Other messages to
    /// `dest` use it too.
    fn labelled_next_hop(&self, dest: NodeAddr) -> Option<LinkId> {
        let mut links = self.by_link.keys();
        links.find(|link| self.labels.bound(**link, dest).is_some()).copied()
    }

    fn hold(&mut self, now: u64, dest: NodeAddr, link: LinkId, heard: bool) {
        if self.held.len() >= MAX_HELD {
            self.held.retain(|_, held| now <= held.until);
        }
        if self.held.len() < MAX_HELD || self.held.contains_key(&dest) {
            let until = now + HOLD;
            self.held.insert(dest, Held { link, until, heard });
        }
    }

    fn withdraw(&mut self, dest: NodeAddr) -> Option<LinkId> {
        let link = self.routes.remove(&dest)?;
        self.ctx.lane(TableCommand::RemoveRoute { dest });
        Some(link)
    }

    /// Lets the lanes forward further messages to `dest` themselves, as requested by a message that
    /// was received over `asked_by`.
    fn publish_route(&mut self, dest: NodeAddr, over: LinkId, asked_by: LinkId) {
        let (changed, displaced) = self.routes.insert(dest, over, asked_by);
        if let Some(dest) = displaced {
            self.ctx.lane(TableCommand::RemoveRoute { dest });
        }
        if changed {
            self.ctx.lane(TableCommand::SetRoute { dest, link: over });
        }
    }
}
