//! Control frames: a magic value, then JSON with a version and one of several kinds of frame.
//!
//! [`Frame::Ping`] and [`Frame::Pong`] travel as a session message among the packets of members. The
//! first byte of the magic value looks like that of an IPv4 packet, so [`is_control`] comes first. All
//! other kinds are documents of a stream.

use thiserror::Error;
use weft_nostr::event::{EventError, Unverified};
use weft_nostr::json::{Limits, OverLimit};
use weft_wire::Subnet;

use crate::hint::Hint;
use crate::secret::Secret;

mod emit;
mod read;

pub use emit::{capabilities, join_request, join_roster, join_roster_ack, ping, pong, roster};

/// What all control frames begin with.
pub use weft_wire::session::CONTROL_MAGIC as MAGIC;
/// The version that this module reads and writes.
const VERSION: u64 = 1;
/// The bytes of the longest frame, magic value included.
pub const MAX_FRAME: usize = 131_072;
/// The service port of the stream that carries documents, at both ends.
pub const PORT: u16 = 7370;
/// What a frame may have: that of a network of 1,000 members has about 11,000 marks, and seven levels.
const LIMITS: Limits = Limits {
    bytes: MAX_FRAME - MAGIC.len(),
    depth: 8,
    marks: 16_384,
};
/// Routes, addresses and features of one node that are looked at, at most.
const MAX_LISTED: usize = 64;

/// A control frame, as it was read: nothing in it is proven but by what carried it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A question whether the member is there.
    Ping {
        /// What the sender calls the network.
        network: String,
        /// When it was sent, in seconds since 1970.
        sent_at: u64,
        /// Whether a node of weft has sent it: the field `weft`, which nvpn has not.
        weft: bool,
    },
    /// The answer, with the time of the question.
    Pong {
        /// What the sender calls the network.
        network: String,
        /// The time in the question.
        sent_at: u64,
        /// When the answer was sent.
        replied_at: u64,
        /// Whether a node of weft has sent it.
        weft: bool,
    },
    /// The signed list of members. What a frame says beside it counts for nothing.
    Roster(Box<Unverified>),
    /// The signed list of members, for a device that asked to join.
    JoinRoster {
        /// The list.
        event: Box<Unverified>,
        /// What the link of the device has, or the token of a manual join.
        secret: Secret,
    },
    /// The device has stored the list with this identifier.
    JoinRosterAck {
        /// The identifier of the event.
        id: [u8; 32],
    },
    /// A device asks an administrator to be taken in.
    JoinRequest {
        /// When it began to ask.
        requested_at: u64,
        /// The network that it asks for.
        network: String,
        /// A secret of older versions; often empty.
        secret: Secret,
        /// What the device calls itself.
        name: String,
    },
    /// What a member offers, and where it may be reached.
    Capabilities(Capabilities),
}

/// What a member offers, and where it may be reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The subnets behind it; 0.0.0.0/0 and ::/0 for an exit.
    pub routes: Vec<Subnet>,
    /// Where it may be reached by UDP.
    pub hints: Vec<Hint>,
    /// What its packet path understands.
    pub features: Vec<String>,
    /// When it said so, in seconds since 1970. The newest counts.
    pub signed_at: u64,
}

/// The reason why bytes are not a frame that is understood. nvpn ignores such frames in silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The bytes do not begin with [`MAGIC`].
    #[error("the bytes are not a control frame")]
    Magic,
    /// The frame is too long, too deep, or has too many values.
    #[error("{0}")]
    OverLimit(#[from] OverLimit),
    /// Not the JSON of a frame.
    #[error("the control frame has another form")]
    Form,
    /// Another version.
    #[error("the control frame has version {0}")]
    Version(u64),
    /// A kind that is not known.
    #[error("the control frame has a kind that is not known")]
    Kind,
    /// A roster without a signed one.
    #[error("the roster is not signed")]
    Unsigned,
    /// The field `event` of the signed roster is not a Nostr event.
    #[error("the roster: {0}")]
    Event(#[from] EventError),
}

/// Whether bytes are a control frame and not an IP packet.
#[must_use]
pub fn is_control(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

#[cfg(test)]
mod tests;
