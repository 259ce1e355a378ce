//! Keys of links, sessions and fast frames, as the core installs them in a lane.

use weft_noise::Key;
use weft_noise::fast::{LaneSecrets, Suite};

/// A receiver index: four bytes in a frame by which its receiver finds the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiverIndex(pub u32);

/// The number of an FSP epoch within its session. The core assigns it in increasing order. It is
/// never on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochId(pub u32);

/// What an epoch is used for when it is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochUse {
    /// Seal with it from now on. The epoch that it replaces still opens late frames.
    Send,
    /// Open only. The first frame that authenticates under it proves that the peer holds the keys:
    /// the lane then seals with it and reports [`LinkReport::Proven`](super::LinkReport::Proven) or
    /// [`SessionReport::Proven`](super::SessionReport::Proven).
    Candidate,
    /// Open only, and never promoted: the losing half of a simultaneous open.
    ReceiveOnly,
}

/// The keys of one FMP (link) epoch. The handshake that made them fixes the pair of indices.
#[derive(Clone, Debug)]
pub struct LinkKeys {
    /// The receiver index in frames from the peer to this node.
    pub our_index: ReceiverIndex,
    /// The receiver index in frames from this node to the peer.
    pub their_index: ReceiverIndex,
    /// The key that seals frames to the peer.
    pub send: Key,
    /// The key that opens frames from the peer.
    pub recv: Key,
}

/// The keys of one FSP (session) epoch.
#[derive(Clone, Debug)]
pub struct SessionKeys {
    /// The number of the epoch.
    pub id: EpochId,
    /// Whether this node was the initiator of the handshake.
    pub initiator: bool,
    /// The key that seals frames to the peer.
    pub send: Key,
    /// The key that opens frames from the peer.
    pub recv: Key,
}

/// The keys for fast frames of one session epoch or hop, in one lane.
#[derive(Clone, Debug)]
pub struct FastKeys {
    /// The number of the session epoch that they come from, or of the keys within their link.
    pub id: EpochId,
    /// The receiver index in fast frames from the peer to this node. It names the lane
    /// ([`lane_of`](crate::lane_of)).
    pub our_index: ReceiverIndex,
    /// The receiver index in fast frames from this node to the peer.
    pub their_index: ReceiverIndex,
    /// The largest fast frame that the peer accepts, in bytes of UDP payload.
    pub max_payload: u16,
    /// Whether the peer reads frames of packets with their whole header: IPv4, and IPv6 to or from
    /// a subnet behind a node.
    pub reads_full: bool,
    /// The suite that both ends agreed on.
    pub suite: Suite,
    /// The secrets of both directions.
    pub secrets: LaneSecrets,
    /// The number of frames that this node seals under one key before the next phase begins.
    pub phase_frames: u64,
}
