//! What the node reports to the daemon: for logs, status, and state that outlives the process.

use std::net::SocketAddr;

use weft_noise::PublicKey;
use weft_wire::NodeAddr;

use crate::{Frames, HopSaid, Path, PathReason, Trouble};

/// A change of a peer, or of the node itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A link came up, or came up again with a peer that has restarted.
    LinkUp {
        /// The peer.
        peer: PublicKey,
        /// The peer's address.
        path: SocketAddr,
        /// The peer runs as another process than before.
        restarted: bool,
    },
    /// A link ended.
    LinkDown {
        /// The peer.
        peer: PublicKey,
        /// The reason.
        reason: LinkDown,
    },
    /// A neighbour does not answer at present. Traffic avoids it if there is another path. The link
    /// stays up.
    LinkSilent {
        /// The peer.
        peer: PublicKey,
    },
    /// A neighbour that was silent has answered for some time.
    LinkAnswers {
        /// The peer.
        peer: PublicKey,
    },
    /// The peer's address changed, as an authenticated frame proved.
    Roamed {
        /// The peer.
        peer: PublicKey,
        /// The new address.
        path: SocketAddr,
    },
    /// A neighbour says at which address it sees this node. It may be wrong.
    Observed {
        /// The neighbour.
        by: PublicKey,
        /// The address.
        at: SocketAddr,
    },
    /// A neighbour that was asked sees a third node at this address
    /// ([`Node::ask_sighting`](crate::Node::ask_sighting)). It may be wrong.
    Sighted {
        /// The neighbour.
        by: PublicKey,
        /// The node that it sees.
        of: NodeAddr,
        /// Where it sees it.
        at: SocketAddr,
    },
    /// A node on the path to a peer has said something about itself
    /// ([`Node::ask_hops`](crate::Node::ask_hops)). It may be wrong.
    Hop {
        /// The number of the request.
        id: u32,
        /// What it says.
        said: HopSaid,
    },
    /// Packets for a peer take another path from now on.
    PathChanged {
        /// The peer.
        peer: PublicKey,
        /// The new path; `None` if there is none.
        path: Option<Path>,
        /// The reason.
        reason: PathReason,
    },
    /// Link keys were replaced.
    LinkRekeyed {
        /// The peer.
        peer: PublicKey,
    },
    /// An end-to-end session was established.
    SessionUp {
        /// The peer.
        peer: PublicKey,
    },
    /// Session keys were replaced.
    SessionRekeyed {
        /// The peer.
        peer: PublicKey,
    },
    /// The peer of a session has said what frames it reads, as weft nodes do: its first message of an
    /// epoch about this.
    Announced {
        /// The peer.
        peer: PublicKey,
    },
    /// Data of a session goes in other frames from now on.
    FramesChanged {
        /// The peer.
        peer: PublicKey,
        /// The kind of frames.
        frames: Frames,
    },
    /// Fast frames to a peer have another size from now on.
    PathSized {
        /// The peer.
        peer: PublicKey,
        /// UDP payload, bytes.
        payload: u16,
        /// `true` if frames of the previous size no longer arrive; `false` if a probe showed that
        /// the path takes larger ones.
        black_hole: bool,
    },
    /// A neighbour claims a path MTU that is smaller than that of any usable path. The node refuses
    /// its label, so that data through it goes in FIPS frames. Reported at most every 10 s for all
    /// neighbours together.
    SizeRefused {
        /// The neighbour.
        peer: PublicKey,
        /// The claimed size, in bytes of UDP payload.
        told: u16,
    },
    /// The direct path to a peer takes less than weft needs, or takes it again.
    PathNarrow {
        /// The peer.
        peer: PublicKey,
        /// `true` if the path takes less.
        narrow: bool,
    },
    /// Packets do not pass in one direction, although there is a link or a session; or such trouble
    /// has ended.
    Troubled {
        /// The peer.
        peer: PublicKey,
        /// The kind of trouble; `None` if it has ended.
        trouble: Option<Trouble>,
    },
    /// Keys are overdue, because the ends could not agree on new ones so far.
    KeysOverdue {
        /// The peer.
        peer: PublicKey,
        /// `true` for the keys of the session, `false` for those of the link.
        session: bool,
        /// Time until the keys end, in ms.
        ends_in: u64,
    },
    /// A node that is not configured asked to link. Reported once for each key while the key is
    /// remembered, at a bounded rate.
    TurnedAway {
        /// The node's public key.
        key: PublicKey,
        /// The source address of its handshake message. The node need not be there.
        from: SocketAddr,
    },
    /// A node that is not configured has come as a guest, to ask for membership.
    GuestUp {
        /// The node.
        key: PublicKey,
    },
    /// Two running nodes have the key of this peer.
    KeyInTwo {
        /// The peer.
        peer: PublicKey,
        /// Their addresses: first that of the node that sent last, then the other one.
        seen: [SocketAddr; 2],
    },
    /// Another running node has the key of this node.
    OwnKeyInTwo {
        /// The neighbour that reports it; `None` if the other node itself contacted this one.
        told_by: Option<PublicKey>,
        /// The address of the other node.
        seen: SocketAddr,
    },
    /// An end-to-end session ended.
    SessionDown {
        /// The peer.
        peer: PublicKey,
        /// The reason.
        reason: SessionDown,
    },
}

/// The reason why a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkDown {
    /// The link received nothing for [`Config::link_dead`](crate::Config::link_dead).
    Silent,
    /// The peer sent a disconnect with this FMP reason code.
    Disconnected(u8),
    /// The peer seems to use keys whose handshake answer never arrived here, and was silent. Both
    /// ends have to begin a new handshake.
    OutOfStep,
    /// The keys reached their maximum age, because the ends could not agree on new ones.
    KeysTooOld,
    /// The peer is not configured, and all places for such peers are taken.
    NoRoom,
    /// The peer was removed from the configuration.
    Removed,
}

/// The reason why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionDown {
    /// No IP packet passed for [`Config::session_idle`](crate::Config::session_idle).
    Idle,
    /// The peer restarted and cannot have its keys any more.
    PeerRestarted,
    /// The peer never proved that it holds the keys.
    Unconfirmed,
    /// The peer was removed from the configuration.
    Removed,
    /// The keys reached their maximum age, because the ends could not agree on new ones.
    KeysTooOld,
}
