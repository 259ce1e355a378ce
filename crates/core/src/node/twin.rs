//! Another running node with our key, and keys that others may have since a machine was restored.

use std::net::SocketAddr;

use weft_noise::PublicKey;
use weft_packet::LinkId;

use super::Node;
use crate::Event;
use crate::link::twin_address;

/// Time between two events about it, ms.
const TELL_EVERY: u64 = 600_000;

/// Another running node has our key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twin {
    /// The neighbour that said so last; `None` if the other node itself came to us.
    pub told_by: Option<PublicKey>,
    /// Where it was.
    pub seen: SocketAddr,
    /// When that was last noticed, ms on the caller's clock.
    pub at: u64,
}

impl Node {
    /// Another running node with our key, if one was noticed within the last 10 minutes.
    pub fn twin(&self, now: u64) -> Option<Twin> {
        self.twin.filter(|twin| now.saturating_sub(twin.at) < TELL_EVERY)
    }

    /// The clock jumped, or the process runs from a restored image: keys in use may be in use elsewhere, with the same
    /// counters. All of them are replaced now; links and sessions stay.
    pub fn handle_resumed(&mut self, now: u64) {
        for peer in self.peers.values_mut() {
            peer.link.handle_resumed(now);
            peer.session.handle_resumed(&mut self.ctx, now);
        }
        self.handle_timeout(now);
    }

    /// A configured neighbour says that another node has our key. It may be wrong: nothing but status and log depend on it.
    pub(super) fn handle_key_in_two(&mut self, now: u64, link: LinkId, body: &[u8]) {
        let Some(seen) = twin_address(body) else {
            self.counters.messages_malformed += 1;
            return;
        };
        let peer = self.by_link.get(&link).and_then(|addr| self.peers.get(addr));
        if let Some(key) = peer.filter(|peer| peer.configured).map(|peer| peer.key) {
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
