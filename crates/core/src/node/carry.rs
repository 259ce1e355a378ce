//! Ways of what we carry for others, as the lanes have them, and how long a way that works outlasts what is told.
//!
//! Where a message goes next follows from tree, filters and coordinates, and a neighbour can lie about all of them. That
//! a node's own messages come from where those to it go is evidence of another kind. So a way in use that something else
//! would now be preferred to is held for a moment, and stays in use if the node is heard over it meanwhile. A way that
//! brings no answer is given up.
//!
//! Ways that stay make no circles: each leads to the neighbour that had the node's latest message before us.

use weft_packet::{Command, LinkId};
use weft_wire::NodeAddr;

use super::Node;
use super::routes::MAX_ROUTES;

/// Ways that are held, at most.
pub(super) const MAX_HELD: usize = MAX_ROUTES;
/// How long a way has to show that it works, ms.
const HOLD: u64 = 2_000;

/// A way that was in use until something else was preferred.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    link: LinkId,
    /// The last ms.
    until: u64,
    /// Whether the node was heard over it since.
    heard: bool,
}

impl Node {
    /// The neighbour to hand a message of others to, which came over `link`. Lanes carry further ones by themselves, unless
    /// the way has yet to show that it works.
    pub(super) fn carry_to(&mut self, now: u64, src: NodeAddr, dest: NodeAddr, link: LinkId) -> Option<NodeAddr> {
        if let Some(held) = self.held.get_mut(&src).filter(|held| held.link == link) {
            (held.heard, held.until) = (true, now + HOLD);
        }
        let from = self.by_link.get(&link).copied();
        let preferred = self.mesh.next_hop(now, dest, from);
        let (used, via) = self.way_in_use(now, dest, from).unzip();
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

    /// Something else than the way in use is preferred: lanes hand us messages of both directions until `dest` was heard.
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

    /// Lanes ask again about those that a link leads to, and nothing keeps to it.
    pub(super) fn withdraw_routes_over(&mut self, link: LinkId) {
        self.held.retain(|_, held| held.link != link);
        for dest in self.routes.remove_over(link) {
            self.ctx.lane(Command::RemoveRoute { dest });
        }
    }

    /// Lanes ask again about every node.
    pub(super) fn withdraw_routes(&mut self, now: u64) {
        for (dest, link) in self.routes.drain() {
            self.ctx.lane(Command::RemoveRoute { dest });
            self.hold(now, dest, link, false);
        }
    }

    /// Lanes ask again about one node.
    pub(super) fn withdraw_route(&mut self, now: u64, dest: NodeAddr) {
        if let Some(link) = self.withdraw(dest) {
            self.hold(now, dest, link, false);
        }
    }

    pub(super) fn way_in_use(&self, now: u64, dest: NodeAddr, from: Option<NodeAddr>) -> Option<(LinkId, NodeAddr)> {
        let held = self.held.get(&dest).filter(|held| now <= held.until);
        let told = self.routes.get(&dest).or(held.map(|held| held.link));
        let link = told.or_else(|| self.labelled_way(dest))?;
        let via = *self.by_link.get(&link)?;
        let up = self.peers.get(&via).is_some_and(|peer| peer.link.is_up());
        (up && Some(via) != from && !self.mesh.is_doubted(now, via, dest)).then_some((link, via))
    }

    /// The link that fast frames of others take to `dest`: what goes there besides takes it too.
    fn labelled_way(&self, dest: NodeAddr) -> Option<LinkId> {
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
        self.ctx.lane(Command::RemoveRoute { dest });
        Some(link)
    }

    /// Lets the lane carry further messages to `dest` by itself, as a message that came over `asked_by` asked.
    fn publish_route(&mut self, dest: NodeAddr, over: LinkId, asked_by: LinkId) {
        let (changed, displaced) = self.routes.insert(dest, over, asked_by);
        if let Some(dest) = displaced {
            self.ctx.lane(Command::RemoveRoute { dest });
        }
        if changed {
            self.ctx.lane(Command::SetRoute { dest, link: over });
        }
    }
}
