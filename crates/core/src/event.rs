//! What the node tells the outside: for logs, status and state that outlives the process.

use std::net::SocketAddr;

use weft_noise::PublicKey;

use crate::{Frames, Path, PathReason, Trouble};

/// Something happened to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A link was established, or re-established by a peer that restarted.
    LinkUp {
        /// The peer.
        peer: PublicKey,
        /// Where it is.
        path: SocketAddr,
        /// The peer is not the process that it was before.
        restarted: bool,
    },
    /// A link ended.
    LinkDown {
        /// The peer.
        peer: PublicKey,
        /// Why.
        reason: LinkDown,
    },
    /// A neighbour answers nothing right now: traffic goes round it where there is another way. The link stays.
    LinkSilent {
        /// The peer.
        peer: PublicKey,
    },
    /// A neighbour that was silent has been answering for a while.
    LinkAnswers {
        /// The peer.
        peer: PublicKey,
    },
    /// The peer's address changed, as an authenticated frame proved.
    Roamed {
        /// The peer.
        peer: PublicKey,
        /// Where it is now.
        path: SocketAddr,
    },
    /// Packets for a peer take another way from now on.
    PathChanged {
        /// The peer.
        peer: PublicKey,
        /// The way; `None` if there is none.
        path: Option<Path>,
        /// Why.
        reason: PathReason,
    },
    /// Link keys were replaced.
    LinkRekeyed {
        /// The peer.
        peer: PublicKey,
    },
    /// An end-to-end session was established.
    SessionUp {
        /// The other end.
        peer: PublicKey,
    },
    /// Session keys were replaced.
    SessionRekeyed {
        /// The other end.
        peer: PublicKey,
    },
    /// Data of a session goes in other frames from now on.
    FramesChanged {
        /// The other end.
        peer: PublicKey,
        /// Which.
        frames: Frames,
    },
    /// Fast frames to a peer have another size from now on.
    PathSized {
        /// The peer.
        peer: PublicKey,
        /// UDP payload, bytes.
        payload: u16,
        /// The size before no longer gets through; otherwise a probe showed that the path takes more.
        black_hole: bool,
    },
    /// A neighbour says that the way through it takes only frames of this size, which no usable way does. Its label is
    /// refused, so data through it goes in FIPS frames. Told at most every 10 s for all neighbours.
    SizeRefused {
        /// The neighbour.
        peer: PublicKey,
        /// What it says, bytes of UDP payload.
        told: u16,
    },
    /// The direct path to a peer takes less than weft needs, or takes it again.
    PathNarrow {
        /// The peer.
        peer: PublicKey,
        /// It takes less.
        narrow: bool,
    },
    /// Packets do not pass in one direction, although there is a link or a session; or nothing speaks against it any more.
    Troubled {
        /// The peer.
        peer: PublicKey,
        /// In which way; `None` if in none any more.
        trouble: Option<Trouble>,
    },
    /// Keys are old, and new ones could not be agreed on so far. They end at the age of `ends_in` from now.
    KeysOverdue {
        /// The peer.
        peer: PublicKey,
        /// Those of the session; otherwise of the link.
        session: bool,
        /// When they end, ms from now.
        ends_in: u64,
    },
    /// A node asked to link that is not configured. Told once for each key as long as it is
    /// remembered, at a bounded rate.
    TurnedAway {
        /// Its key.
        key: PublicKey,
        /// Where its handshake message came from, which need not be where the node is.
        from: SocketAddr,
    },
    /// Two running nodes have the key of this peer.
    KeyInTwo {
        /// The peer.
        peer: PublicKey,
        /// Where they are: the one that spoke last, and the other one.
        seen: [SocketAddr; 2],
    },
    /// Another running node has our key.
    OwnKeyInTwo {
        /// The neighbour that says so; `None` if the other node itself came to us.
        told_by: Option<PublicKey>,
        /// Where it is.
        seen: SocketAddr,
    },
    /// An end-to-end session ended.
    SessionDown {
        /// The other end.
        peer: PublicKey,
        /// Why.
        reason: SessionDown,
    },
}

/// Why a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkDown {
    /// Nothing was heard for [`Config::link_dead`](crate::Config::link_dead).
    Silent,
    /// The peer said goodbye, with this FMP reason code.
    Disconnected(u8),
    /// The peer seems to use keys whose handshake answer we never got, and was silent: both must begin anew.
    OutOfStep,
    /// The keys reached their last age, as no new ones could be agreed on.
    KeysTooOld,
    /// The peer is not configured, and all places for such peers are taken.
    NoRoom,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionDown {
    /// No IP packet passed for [`Config::session_idle`](crate::Config::session_idle).
    Idle,
    /// The peer restarted and cannot have its keys any more.
    PeerRestarted,
    /// The other end never proved that it has the keys.
    Unconfirmed,
    /// The keys reached their last age, as no new ones could be agreed on.
    KeysTooOld,
}
