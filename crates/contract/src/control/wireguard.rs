//! Commands about peers that speak WireGuard, and what a lane reports of them.
//!
//! Such a peer has no link and no npub: a [`NodeAddr`] that its WireGuard key is hashed to stands for it in all
//! tables. Handshakes are processed outside of the lane, which has the keys that they lead to.

use std::fmt;

use weft_noise::Key;

use crate::endpoint::Endpoint;
use crate::place::Audience;

/// The keys of one handshake of WireGuard.
#[derive(Clone)]
pub struct WireGuardKeys {
    /// The index in messages to this node.
    pub local: u32,
    /// The index in messages to the peer.
    pub remote: u32,
    /// The key of messages that this node sends. Counters start at 0.
    pub send: Key,
    /// The key of messages that this node receives.
    pub receive: Key,
}

impl fmt::Debug for WireGuardKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WireGuardKeys")
            .field("local", &self.local)
            .field("remote", &self.remote)
            .finish_non_exhaustive()
    }
}

/// A change of a peer that speaks WireGuard.
#[derive(Clone, Debug)]
pub enum WireGuardCommand {
    /// Packets to the peer go in data messages of WireGuard from now on, and wait for keys.
    Add,
    /// Takes messages under these keys from now on.
    Install {
        /// The keys.
        keys: WireGuardKeys,
        /// Whether this node sends under them at once. Otherwise it does so after
        /// [`WireGuardCommand::Use`], or the first message that they open.
        use_now: bool,
    },
    /// Sends under these keys from now on.
    Use {
        /// The index of the keys in messages to this node.
        local: u32,
    },
    /// Ends keys.
    Retire {
        /// The index of the keys in messages to this node.
        local: u32,
    },
    /// The peer is at this address: messages go to it from now on.
    Place {
        /// The address, and the socket of WireGuard.
        path: Endpoint,
    },
    /// Sends a data message without a packet, under the keys that are in use.
    Keepalive,
    /// Drops the packets that wait for keys, and sends ICMP errors to their senders.
    DropQueue,
}

impl WireGuardCommand {
    /// Returns the lanes that the command is for.
    pub(super) const fn audience(&self) -> Audience {
        match self {
            Self::Add => Audience::All,
            Self::Install { .. }
            | Self::Use { .. }
            | Self::Retire { .. }
            | Self::Place { .. }
            | Self::Keepalive
            | Self::DropQueue => Audience::First,
        }
    }
}

/// What has passed under the keys of one handshake since the last report. What was received counts as the
/// answer to what was sent: what was sent after it is in a report of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireGuardTraffic {
    /// The index of the keys in messages to this node.
    pub local: u32,
    /// Data messages with a packet that were sent.
    pub sent: u64,
    /// Authentic data messages with a packet that were received.
    pub received: u64,
    /// Authentic data messages without one that were received.
    pub keepalives: u64,
    /// Where the last of those that were received came from.
    pub from: Option<Endpoint>,
}
