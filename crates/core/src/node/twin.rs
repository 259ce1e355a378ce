//! Another running node with this node's key, and keys that another node may hold since a host was
//! restored.

use std::net::SocketAddr;

use weft_contract::LinkId;
use weft_noise::PublicKey;
use weft_wire::address;

use super::{Node, Peer};
use crate::Event;

/// Time between two events about it, in ms.
const TELL_EVERY: u64 = 600_000;

/// Another running node with the key of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twin {
    /// The neighbour that reported it last; `None` if the other node itself contacted this one.
    pub told_by: Option<PublicKey>,
    /// The address of the other node.
    pub seen: SocketAddr,
    /// When it was last noticed, in ms on the caller's clock.
    pub at: u64,
}

impl Node {
    /// Returns the other running node with this node's key, if one was noticed within the last 10
    /// minutes.
    pub fn twin(&self, now: u64) -> Option<Twin> {
        self.twin.filter(|twin| now.saturating_sub(twin.at) < TELL_EVERY)
    }

    /// Handles a jump of the clock, or a start from a restored image: another process may use the
    /// same keys with the same counters. All keys are replaced now; links and sessions stay.
    pub fn handle_resumed(&mut self, now: u64) {
        for peer in self.peers.values_mut() {
            peer.link.handle_resumed(now);
            peer.session.handle_resumed(&mut self.ctx, now);
        }
        self.handle_timeout(now);
    }

    /// Handles a configured neighbour's report that another node has this node's key. It may be
    /// wrong, so only status and log depend on it.
    pub(super) fn handle_key_in_two(&mut self, now: u64, link: LinkId, body: &[u8]) {
        let Some(seen) = address::from_bytes(body) else {
            self.counters.messages_malformed += 1;
            return;
        };
        let peer = self.by_link.get(&link).and_then(|addr| self.peers.get(addr));
        if let Some(key) = peer.filter(|peer| peer.configured).map(Peer::key) {
            self.note_twin(now, Some(key), seen);
        }
    }

    pub(super) fn note_twin(&mut self, now: u64, told_by: Option<PublicKey>, seen: SocketAddr) {
        let news = self.twin(now).is_none();
        self.twin = Some(Twin { told_by, seen, at: now });
        if news {
            self.ctx.event(Event::OwnKeyInTwo { told_by, seen });
        }
    }
}
