//! Offers and answers by which this node and a peer agree to traverse their NATs, in their session: from
//! peers to the caller, and back. Nodes of nvpn send them; two weft nodes have
//! [`Node::send_service`] for that.

use thiserror::Error;
use weft_contract::{Bucket, MAX_SERVICE, Rate};
use weft_noise::PublicKey;
use weft_wire::NodeAddr;
use weft_wire::session::{DataPorts, TraversalType};

use super::Node;
use crate::context::Output;

/// The longest document that is sent, in bytes: with its frame it fits into 1,200 bytes of UDP
/// payload, which every usable path has.
pub const MAX_TRAVERSAL: usize = MAX_SERVICE + DataPorts::LEN;
/// Documents of one peer that are passed on.
pub const TRAVERSALS: Rate = Rate {
    per_second: 10,
    burst: 10,
};

/// Why an offer or answer is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TraversalError {
    /// The key belongs to no configured peer.
    #[error("no peer has this key")]
    NoPeer,
    /// The session with the peer is not up, or has no path.
    #[error("there is no session with the peer")]
    NoSession,
    /// It is longer than any path is sure to take.
    #[error("a document of {0} bytes, at most {max} fit", max = MAX_TRAVERSAL)]
    TooLong(usize),
}

impl Node {
    /// Sends an offer or answer in the session with a peer. It may get lost, as datagrams do.
    ///
    /// # Errors
    /// [`TraversalError`]: nothing is sent.
    pub fn send_traversal(&mut self, peer: &PublicKey, kind: TraversalType, text: &[u8]) -> Result<(), TraversalError> {
        if text.len() > MAX_TRAVERSAL {
            return Err(TraversalError::TooLong(text.len()));
        }
        let known = self.peers.get(&peer.node_addr()).filter(|known| known.configured);
        let known = known.ok_or(TraversalError::NoPeer)?;
        match known.session.send_traversal(&mut self.ctx, kind, text) {
            true => Ok(()),
            false => Err(TraversalError::NoSession),
        }
    }

    /// Whether there is a session with a peer that has not shown to be a weft node. Offers and answers
    /// are for such peers.
    #[must_use]
    pub fn has_fips_session(&self, peer: &PublicKey) -> bool {
        let peer = self.peers.get(&peer.node_addr()).filter(|peer| peer.configured);
        peer.is_some_and(|peer| peer.session.is_up() && !peer.session.is_with_weft())
    }

    /// Handles an offer or answer of a peer. Those of nodes that are not configured are unknown
    /// messages.
    pub(super) fn handle_traversal(&mut self, now: u64, peer: NodeAddr, kind: TraversalType, text: Vec<u8>) {
        let Some(peer) = self.peers.get_mut(&peer).filter(|peer| peer.configured) else {
            self.counters.messages_unknown += 1;
            return;
        };
        let bucket = peer
            .traversals
            .get_or_insert_with(|| Box::new(Bucket::new(TRAVERSALS, now)));
        if bucket.take(TRAVERSALS, now, 1) == 0 {
            self.counters.traversals_refused += 1;
            return;
        }
        let peer = peer.key();
        self.ctx.output(Output::Traversal { peer, kind, text });
    }
}
