//! Commands to the session with a peer, and its reports.

use weft_wire::session::DataPorts;

use super::{EpochId, EpochUse, FastKeys, Label, LinkId, SessionKeys};
use crate::place::{Audience, lane_of};

/// The relayed path of a session's fast frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relay {
    /// The link to the next hop.
    pub link: LinkId,
    /// The label by which the next hop knows the peer of the session.
    pub label: Label,
    /// The largest relayed frame that each node of the path has announced to forward, in bytes of UDP
    /// payload.
    pub mtu: u16,
}

/// The path MTU of the path of fast frames to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSize {
    /// The largest UDP payload, in bytes.
    pub payload: u16,
    /// Whether no larger size is expected soon, so that senders of larger packets may receive an
    /// error.
    pub settled: bool,
}

/// A change of a session.
#[derive(Clone, Debug)]
pub enum SessionCommand {
    /// Adds an epoch to the session, and adds the session if it is new.
    Install {
        /// The keys of the epoch.
        keys: SessionKeys,
        /// What the keys are used for.
        usage: EpochUse,
    },
    /// Like [`LinkCommand::SelectEpoch`](super::LinkCommand::SelectEpoch), for a session.
    SelectEpoch {
        /// The number of the epoch.
        id: EpochId,
    },
    /// Ends an epoch, and the fast keys of its number.
    RetireEpoch {
        /// The number of the epoch.
        id: EpochId,
    },
    /// Opens fast frames under these keys from now on, and seals data with them once a frame has
    /// proven them ([`SessionReport::FastProven`]). They end with the session epoch of their
    /// number.
    InstallFast {
        /// The keys of the lane that their index names.
        keys: FastKeys,
    },
    /// Sends the peer a fast frame under these keys, which shows that this node holds them, and
    /// asks for one in return.
    ConfirmFast {
        /// The number of the keys.
        id: EpochId,
    },
    /// Decides whether data to the peer goes in fast frames only: packets wait while there are no
    /// keys for them.
    RequireFast {
        /// `false` ends the restriction.
        required: bool,
    },
    /// Sets the relayed path of the session's fast frames while the session is bound to the link of
    /// that path. With `None` they have no such path.
    Relay {
        /// The relayed path.
        relay: Option<Relay>,
    },
    /// Seals nothing more under the session's keys, but still opens what is received. The next
    /// packet requests new keys ([`SessionReport::Wanted`]).
    Suspend,
    /// Ends the session. Packets that wait for it stay queued for the next one.
    Remove,
    /// Sends the session's frames over this link from now on.
    Bind {
        /// The link of the next hop.
        link: LinkId,
    },
    /// Limits from now on the size of those frames of the session whose size neither probes nor the
    /// hops of a relayed path determine.
    Limit {
        /// The largest UDP payload, in bytes.
        mtu: u16,
    },
    /// Sends the peer a probe of the path MTU in a fast frame. The answer arrives as
    /// [`SessionReport::Message`]. Nothing is sent unless data goes in fast frames.
    ProbePath {
        /// A number that the answer returns.
        id: u16,
        /// The size of the whole frame, in bytes of UDP payload. A size below the smallest probe
        /// gives the smallest probe.
        size: u16,
    },
    /// Sets the largest fast frame to the peer from now on; relays may have announced less. If the
    /// lane's settings leave that size to probes, it is
    /// [`SURE_PAYLOAD`](weft_wire::fast::SURE_PAYLOAD) before the first such command.
    SizePath {
        /// The size that the probes have shown.
        size: PathSize,
    },
    /// Drops the packets that wait for a session that will not be made, and sends ICMPv6 errors to
    /// their senders.
    DropQueue,
}

impl SessionCommand {
    /// Returns the lanes that the command is for.
    pub(super) fn audience(&self) -> Audience {
        match self {
            Self::InstallFast { keys } => Audience::One(lane_of(keys.our_index.0)),
            Self::RetireEpoch { .. }
            | Self::ConfirmFast { .. }
            | Self::Suspend
            | Self::Remove
            | Self::Bind { .. }
            | Self::Limit { .. }
            | Self::SizePath { .. } => Audience::All,
            Self::Install { .. }
            | Self::SelectEpoch { .. }
            | Self::RequireFast { .. }
            | Self::Relay { .. }
            | Self::ProbePath { .. }
            | Self::DropQueue => Audience::First,
        }
    }
}

/// A report of a session.
#[derive(Debug)]
pub enum SessionReport {
    /// The first frame under a candidate epoch was authenticated, and the lane now seals with that
    /// epoch.
    Proven {
        /// The number of the epoch.
        id: EpochId,
    },
    /// The first frame from the peer under an epoch that this node already seals with: the peer has
    /// the keys too.
    Confirmed {
        /// The number of the epoch.
        id: EpochId,
    },
    /// A fast frame was opened that shows that the frames of this node open at the peer. It is the
    /// first such frame under these keys, or the first that no other node has relayed. Data now
    /// goes in fast frames, over a direct path only after the latter.
    FastProven {
        /// The number of the keys.
        id: EpochId,
        /// Whether no other node has relayed the frame.
        direct: bool,
    },
    /// An authenticated session message that is not an IP packet.
    Message {
        /// The epoch that opened it.
        id: EpochId,
        /// The FSP message type.
        msg_type: u8,
        /// The body behind the inner header.
        body: Vec<u8>,
    },
    /// A message for a service of this node ([`TableCommand::Listen`](super::TableCommand::Listen)),
    /// in a FIPS frame.
    Service {
        /// The ports of sender and service.
        ports: DataPorts,
        /// What is behind the ports.
        bytes: Vec<u8>,
    },
    /// The newest frame of the session arrived over another link than those before: the peer has
    /// changed its path. The session's keys authenticate the frame, so a relay cannot forge it.
    Arrives {
        /// The link over which it arrived.
        link: LinkId,
    },
    /// The peer answered a [`SendCommand::Echo`](super::SendCommand::Echo).
    EchoReply {
        /// The sequence number of the request.
        seq: u16,
    },
    /// An IP packet waits for the session.
    Wanted,
}
