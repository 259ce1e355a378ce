//! Guests: nodes that are not configured and may ask for membership, while an invite is open.
//!
//! A guest links and has a session for messages of services, for a short time. No IP packet passes,
//! and if the mesh does not admit it otherwise, it takes no part in the mesh either.

use weft_contract::LinkId;
use weft_wire::NodeAddr;

use super::{Node, Peer};
use crate::{Event, SessionDown};

/// Maximum number of guests at a time.
pub(super) const MAX_GUESTS: usize = 8;
/// How long a guest stays, in ms.
const STAY: u64 = 60_000;

/// The stay of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guest {
    /// When it ends.
    pub(super) until: u64,
    /// The mesh does not admit the node.
    pub(super) apart: bool,
}

impl Node {
    /// Lets nodes that are not configured link and ask for membership, or does so no longer. Those
    /// that are there stay until their time is over.
    pub fn set_guests(&mut self, welcome: bool) {
        self.guests_welcome = welcome;
    }

    /// Whether a node that the mesh does not admit may come as a guest.
    pub(super) fn admits_guest(&self, addr: &NodeAddr) -> bool {
        self.guests_welcome && !self.denied.contains(addr) && self.guests() < MAX_GUESTS
    }

    /// Begins the stay of a node that is not configured and whose link has come up.
    pub(super) fn welcome_guest(&mut self, now: u64, addr: NodeAddr) {
        let stranger = |peer: &Peer| !peer.configured && peer.guest.is_none();
        let comes = self.guests_welcome && self.peers.get(&addr).is_some_and(stranger);
        if !comes || self.guests() >= MAX_GUESTS {
            return;
        }
        let (until, apart) = (now + STAY, !self.is_welcome(&addr));
        if let Some(peer) = self.peers.get_mut(&addr) {
            peer.guest = Some(Guest { until, apart });
            self.ctx.event(Event::GuestUp { key: peer.key() });
        }
    }

    /// Whether the neighbour on this link takes no part in the mesh.
    pub(super) fn is_apart(&self, link: LinkId) -> bool {
        let peer = self.by_link.get(&link).and_then(|addr| self.peers.get(addr));
        peer.is_some_and(|peer| peer.guest.is_some_and(|guest| guest.apart))
    }

    /// Ends the stay of a guest whose time is over. Its link stays if the mesh admits it. Returns
    /// whether the link has ended.
    pub(super) fn end_stay(&mut self, now: u64, addr: NodeAddr) -> bool {
        let Some(peer) = self.peers.get_mut(&addr) else {
            return false;
        };
        let Some(guest) = peer.guest.take_if(|guest| guest.until <= now) else {
            return false;
        };
        peer.session.take_down(&mut self.ctx, SessionDown::Removed);
        if guest.apart {
            peer.link.turn_away(&mut self.ctx, now);
        }
        guest.apart
    }

    fn guests(&self) -> usize {
        self.peers.values().filter(|peer| peer.guest.is_some()).count()
    }
}
