//! Messages with types of their own that nodes of nvpn send in their sessions: from peers to the caller, and
//! back. They are offers and answers by which two nodes agree to traverse their NATs, and control frames;
//! two weft nodes have [`Node::send_service`] for that.

use thiserror::Error;
use weft_contract::{Bucket, MAX_SERVICE, Rate, TableCommand};
use weft_noise::PublicKey;
use weft_wire::NodeAddr;
use weft_wire::session::{DataPorts, TraversalType, WHOLE_PACKET};

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
        self.send_aside(peer, kind.to_byte(), text)
    }

    /// Sends a control frame of nvpn in the session with a peer. It may get lost, as datagrams do.
    ///
    /// # Errors
    /// [`TraversalError`]: nothing is sent.
    pub fn send_control(&mut self, peer: &PublicKey, bytes: &[u8]) -> Result<(), TraversalError> {
        self.send_aside(peer, WHOLE_PACKET, bytes)
    }

    fn send_aside(&mut self, peer: &PublicKey, msg_type: u8, body: &[u8]) -> Result<(), TraversalError> {
        if body.len() > MAX_TRAVERSAL {
            return Err(TraversalError::TooLong(body.len()));
        }
        let known = self.peers.get(&peer.node_addr()).filter(|known| known.configured);
        let known = known.ok_or(TraversalError::NoPeer)?;
        match known.session.send_aside(&mut self.ctx, msg_type, body) {
            true => Ok(()),
            false => Err(TraversalError::NoSession),
        }
    }

    /// Decides whether packets with their whole header pass in FIPS frames, and control frames of nvpn come
    /// as [`Output::Control`]. At first neither is so.
    pub fn take_whole_packets(&mut self, on: bool) {
        self.ctx.lane(TableCommand::TakeWhole { on });
        self.ctx.takes_whole = on;
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
        if let Some(peer) = self.take_aside(now, peer, true) {
            self.ctx.output(Output::Traversal { peer, kind, text });
        }
    }

    /// Handles a control frame of a peer. It is in use, so its session stays.
    pub(super) fn handle_control(&mut self, now: u64, peer: NodeAddr, bytes: Vec<u8>) {
        if let Some(peer) = self.take_aside(now, peer, self.ctx.takes_whole) {
            self.with_peer(peer.node_addr(), |_, p| p.session.note_service(now));
            self.ctx.output(Output::Control { peer, bytes });
        }
    }

    /// Returns the key of a peer whose message is passed on. One of a node that is not configured is an
    /// unknown message, and so is each that is not `wanted`.
    fn take_aside(&mut self, now: u64, peer: NodeAddr, wanted: bool) -> Option<PublicKey> {
        let Some(peer) = self.peers.get_mut(&peer).filter(|peer| wanted && peer.configured) else {
            self.counters.messages_unknown += 1;
            return None;
        };
        let bucket = peer
            .asides
            .get_or_insert_with(|| Box::new(Bucket::new(TRAVERSALS, now)));
        if bucket.take(TRAVERSALS, now, 1) == 0 {
            self.counters.traversals_refused += 1;
            return None;
        }
        Some(peer.key())
    }
}
