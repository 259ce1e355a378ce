//! The messages between the core and a lane.
//!
//! The core decides and never seals. A lane processes packets and never decides. A [`Command`]
//! changes the tables of a lane, or hands it plaintext to seal in order with the data. A [`Report`]
//! gives the core what the lane received and authenticated. Both are plain values: they pass
//! between threads in the daemon, and within one virtual clock in the simulator.

use std::net::{IpAddr, SocketAddr};

use weft_noise::Key;
use weft_noise::fast::{LaneSecrets, Suite};
use weft_noise::tag::TagKey;
use weft_wire::mmp::ReceiverReport;
use weft_wire::{Network, NodeAddr};

/// The number of a link. The core assigns it, and never reuses it in the life of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

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
    /// the lane then seals with it and reports [`Report::LinkProven`] or [`Report::SessionProven`].
    Candidate,
    /// Open only, and never promoted: the losing half of a simultaneous open.
    ReceiveOnly,
}

/// The keys of one FMP (link) epoch. The handshake that made them fixes the pair of indices.
#[derive(Clone, Debug)]
pub struct LinkKeys {
    /// The receiver index in frames from the peer to this node.
    pub our_index: u32,
    /// The receiver index in frames from this node to the peer.
    pub their_index: u32,
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
    pub our_index: u32,
    /// The receiver index in fast frames from this node to the peer.
    pub their_index: u32,
    /// The largest fast frame that the peer accepts, in bytes of UDP payload.
    pub max_payload: u16,
    /// Whether the peer reads frames of packets with their whole header: IPv4, and IPv6 to or from
    /// a network behind a node.
    pub reads_full: bool,
    /// The suite that both ends agreed on.
    pub suite: Suite,
    /// The secrets of both directions.
    pub secrets: LaneSecrets,
    /// The number of frames that this node seals under one key before the next phase begins.
    pub phase_frames: u64,
}

/// The relayed path of a session's fast frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relay {
    /// The link to the next hop.
    pub link: LinkId,
    /// The label by which the next hop knows the peer of the session.
    pub label: u32,
    /// The largest relayed frame that the whole path takes, in bytes of UDP payload.
    pub mtu: u16,
}

/// Where relayed frames with a label go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carry {
    /// This node is their last hop.
    Here,
    /// To the next hop, over this link and with this label.
    On {
        /// The link to the next hop.
        link: LinkId,
        /// The label by which the next hop knows the destination.
        label: u32,
    },
}

/// The path MTU of the direct path to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSize {
    /// The largest UDP payload, in bytes.
    pub payload: u16,
    /// Whether no larger size is expected soon, so that senders of larger packets may receive an
    /// error.
    pub settled: bool,
}

/// What identifies the handshake messages of a node before anything of them is authenticated.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The node.
    pub peer: NodeAddr,
    /// The hosts where the node is expected.
    pub hosts: Vec<IpAddr>,
    /// The key of the tags on the node's messages, or `None` if it sends no tags.
    pub tag: Option<TagKey>,
}

/// The limits on what link handshake messages that prove nothing may cost.
#[derive(Clone, Copy, Debug)]
pub struct HandshakeLimits {
    /// Diffie-Hellmans a second for first messages. Answers to messages of this node may cost half
    /// as many in addition.
    pub per_second: u64,
    /// The key of the hashes and of the random draws, so that no sender can predict these. It is
    /// needed only while the process runs, and protects nothing else.
    pub key: [u8; 16],
}

impl Default for HandshakeLimits {
    /// 400 Diffie-Hellmans a second, which is 2 % of a core at 50 us each, and a key that is not
    /// secret: for tests and simulations.
    fn default() -> Self {
        Self {
            per_second: 400,
            key: [0; 16],
        }
    }
}

/// A message of the core to the lanes that [`Command::audience`] names.
#[derive(Clone, Debug)]
pub enum Command {
    /// Reserves a receiver index for a handshake in flight, so that the lane notices frames that
    /// arrive under it before the answer does ([`Report::EarlyFrame`]).
    ArmIndex {
        /// The link of the handshake.
        link: LinkId,
        /// The responder.
        peer: NodeAddr,
        /// The index of this node, as sent in msg1.
        index: u32,
    },
    /// Releases an index that [`Command::ArmIndex`] reserved.
    DisarmIndex {
        /// The index.
        index: u32,
    },
    /// Adds a link, or adds an epoch to it.
    InstallLink {
        /// The link.
        link: LinkId,
        /// The neighbour.
        peer: NodeAddr,
        /// The address of the peer in the handshake: the destination of this node's answer, or the
        /// source of the peer's answer.
        path: SocketAddr,
        /// Whether the handshake shows that the peer receives what is sent to `path`, once the
        /// epoch is proven.
        proven: bool,
        /// The keys of the epoch.
        keys: LinkKeys,
        /// What the keys are used for.
        usage: EpochUse,
    },
    /// The peer has proven that it is at this address: frames of the link go to it from now on. It
    /// also announces the link to lanes that do not own it.
    PlaceLink {
        /// The link.
        link: LinkId,
        /// The neighbour.
        peer: NodeAddr,
        /// The address to send to from now on.
        path: SocketAddr,
        /// The address that the link has left, if a copy of every frame still goes to it.
        left: Option<SocketAddr>,
    },
    /// The answer to the handshake of this candidate was also sent to another address, so its proof
    /// does not show where the peer is.
    DoubtPath {
        /// The link.
        link: LinkId,
        /// The receiver index of the epoch at this node.
        index: u32,
    },
    /// Asks the peer whether it is at this address, in a link message of type
    /// [`PROBE`](weft_wire::link::PROBE). [`Report::Roamed`] grants the bytes that may go to an
    /// unproven address.
    ProbeLink {
        /// The link.
        link: LinkId,
        /// The address.
        to: SocketAddr,
        /// A number that the answer returns; unpredictable.
        number: u64,
    },
    /// Ends an epoch of a link: its drain is over, or its candidate was never proven.
    RetireLinkEpoch {
        /// The link.
        link: LinkId,
        /// The receiver index of the epoch at this node.
        index: u32,
    },
    /// Seals with this epoch from now on. A lane promotes a candidate by itself on proof. This
    /// command settles which epoch seals if the core installed another one while the report of that
    /// proof was on its way.
    SelectLinkEpoch {
        /// The link.
        link: LinkId,
        /// The receiver index of the epoch at this node.
        index: u32,
    },
    /// A candidate epoch lost a simultaneous open: it only opens from now on.
    Demote {
        /// The link.
        link: LinkId,
        /// The receiver index of the epoch at this node.
        index: u32,
    },
    /// Ends a link. Sessions that are bound to it keep their keys and their queue.
    RemoveLink {
        /// The link.
        link: LinkId,
    },
    /// Adds an epoch to the session with a peer, and adds the session if it is new.
    InstallSession {
        /// The peer.
        peer: NodeAddr,
        /// The keys of the epoch.
        keys: SessionKeys,
        /// What the keys are used for.
        usage: EpochUse,
    },
    /// Like [`Command::SelectLinkEpoch`], for a session.
    SelectSessionEpoch {
        /// The peer.
        peer: NodeAddr,
        /// The epoch.
        id: EpochId,
    },
    /// Ends an epoch of a session, and the fast keys of its number.
    RetireSessionEpoch {
        /// The peer.
        peer: NodeAddr,
        /// The epoch.
        id: EpochId,
    },
    /// Opens fast frames under these keys from now on, and seals data with them once a frame has
    /// proven them ([`Report::FastProven`]). They end with the session epoch of their number.
    InstallFast {
        /// The peer.
        peer: NodeAddr,
        /// The keys.
        keys: FastKeys,
    },
    /// Sends the peer a fast frame under these keys, which shows that this node holds them, and
    /// asks for one in return.
    ConfirmFast {
        /// The peer.
        peer: NodeAddr,
        /// The number of the keys.
        id: EpochId,
    },
    /// Opens the fast frames of a hop under these keys from now on, and seals with them once a
    /// frame has proven them ([`Report::HopProven`]). Their numbers count up within the link.
    InstallHop {
        /// The link.
        link: LinkId,
        /// The keys.
        keys: FastKeys,
    },
    /// Sends the neighbour a fast frame under these keys, which shows that this node holds them,
    /// and asks for one in return.
    ConfirmHop {
        /// The link.
        link: LinkId,
        /// The number of the keys.
        id: EpochId,
    },
    /// Ends the keys of a hop.
    RetireHop {
        /// The link.
        link: LinkId,
        /// The number of the keys.
        id: EpochId,
    },
    /// Sets where relayed frames with this label, from the neighbour of this link, go from now on.
    SetLabel {
        /// The link over which the frames arrive.
        link: LinkId,
        /// The label in the neighbour's frames.
        label: u32,
        /// Where the frames go.
        to: Carry,
    },
    /// Removes a label: frames with it are no longer forwarded.
    RemoveLabel {
        /// The link over which the frames arrive.
        link: LinkId,
        /// The label in the neighbour's frames.
        label: u32,
    },
    /// Sets the relayed path of the session's fast frames while the session is bound to the link of
    /// that path. With `None` they have no such path.
    RelaySession {
        /// The peer.
        peer: NodeAddr,
        /// The path.
        relay: Option<Relay>,
    },
    /// From now on seals relayed frames whole for each hop, those of this node and those that it
    /// forwards, so that an observer of two hops does not see the same bytes on both.
    SealWhole,
    /// Seals nothing more under a session's keys, but still opens what is received. The next packet
    /// requests new keys ([`Report::Wanted`]).
    SuspendSession {
        /// The peer.
        peer: NodeAddr,
    },
    /// Ends a session. Packets that wait for it stay queued for the next one.
    RemoveSession {
        /// The peer.
        peer: NodeAddr,
    },
    /// Sends the session's frames over this link from now on.
    BindSession {
        /// The peer.
        peer: NodeAddr,
        /// The link of the next hop.
        link: LinkId,
    },
    /// Sets the route of datagrams that this node forwards to a destination.
    SetRoute {
        /// The destination.
        dest: NodeAddr,
        /// The link of the next hop.
        link: LinkId,
    },
    /// Sets whether datagrams and frames that are forwarded over this link are marked as having
    /// experienced congestion.
    MarkCongestion {
        /// The link.
        link: LinkId,
        /// Whether they are marked from now on.
        on: bool,
    },
    /// Limits from now on the size of those frames of the session whose size neither probes nor the
    /// hops of a relayed path determine.
    LimitSession {
        /// The peer.
        peer: NodeAddr,
        /// The largest UDP payload, in bytes.
        mtu: u16,
    },
    /// Sends the peer a probe of the path MTU in a fast frame. The answer arrives as
    /// [`Report::SessionMessage`]. Nothing is sent unless data goes in fast frames over the direct
    /// path.
    ProbePath {
        /// The peer.
        peer: NodeAddr,
        /// A number that the answer returns.
        id: u16,
        /// The size of the whole frame, in bytes of UDP payload. A size below the smallest probe
        /// gives the smallest probe.
        size: u16,
    },
    /// Sets the largest fast frame to this node over the direct path from now on. If the lane's
    /// settings leave that size to probes, it is [`SURE_PAYLOAD`](weft_wire::fast::SURE_PAYLOAD)
    /// before the first such command.
    SizePath {
        /// The peer.
        peer: NodeAddr,
        /// The size that the probes have shown.
        size: PathSize,
    },
    /// Removes a route: the lane again asks the core about datagrams to this node
    /// ([`Report::Transit`]).
    RemoveRoute {
        /// The destination.
        dest: NodeAddr,
    },
    /// Allows IP packets between this node and a peer.
    AllowPeer {
        /// The peer. Its address in `fd00::/8` follows from it.
        peer: NodeAddr,
    },
    /// Ends what [`Command::AllowPeer`] allowed, and the session with the peer.
    DenyPeer {
        /// The peer.
        peer: NodeAddr,
    },
    /// Replaces the networks behind nodes, including this one. Packets to or from them go in fast
    /// frames with their whole header. The lists need not contain the nodes' own addresses.
    SetNetworks {
        /// The networks behind this node that peers may send to, including further addresses of the
        /// node.
        ours: Vec<Network>,
        /// The networks behind each peer: packets to them go to the peer, and the peer may send
        /// from them. The longest prefix wins.
        theirs: Vec<(Network, NodeAddr)>,
    },
    /// Sends data for this node in fast frames only: packets wait while there are no keys for them.
    RequireFast {
        /// The peer.
        peer: NodeAddr,
    },
    /// Sets the hosts and the tag key of the handshakes that are expected from a node, so that a
    /// flood of others does not keep them out. Replaces what an earlier command set for the node.
    Expect(Expected),
    /// Ends what [`Command::Expect`] set: no handshakes of this node are expected.
    Unexpect {
        /// The node.
        peer: NodeAddr,
    },
    /// Drops the packets that wait for a session that will not be made, and sends ICMPv6 errors to
    /// their senders.
    DropQueue {
        /// The peer.
        peer: NodeAddr,
    },
    /// Seals one link message in order with the data.
    SendOnLink {
        /// The link.
        link: LinkId,
        /// The epoch that seals, by the receiver index at this node; the current one if `None`.
        epoch: Option<u32>,
        /// The FMP message type.
        msg_type: u8,
        /// The body behind the inner header.
        body: Vec<u8>,
    },
    /// Seals one session message in order with the data.
    SendOnSession {
        /// The peer.
        peer: NodeAddr,
        /// The epoch that seals; the current one if `None`. A candidate may be named to prove this
        /// node's keys to the peer.
        epoch: Option<EpochId>,
        /// The FSP message type.
        msg_type: u8,
        /// The body behind the inner header.
        body: Vec<u8>,
    },
    /// Sends a neighbour the report on what was sent to it, or on what was received from it. If
    /// nothing was received, a heartbeat takes the place of the latter.
    ReportOnLink {
        /// The link.
        link: LinkId,
        /// The kind of report.
        kind: ReportKind,
    },
    /// Like [`Command::ReportOnLink`], for the peer of a session. If there is nothing to report,
    /// nothing is sent.
    ReportOnSession {
        /// The peer.
        peer: NodeAddr,
        /// The kind of report.
        kind: ReportKind,
    },
    /// Sends the coordinates of a session's ends in the clear, for the nodes on the path, in front
    /// of an empty sealed message (FIPS wire-formats, "CoordsWarmup").
    Warm {
        /// The peer.
        peer: NodeAddr,
        /// The coordinates of this node, its own address first.
        src: Vec<NodeAddr>,
        /// The coordinates of the peer.
        dest: Vec<NodeAddr>,
    },
    /// Sends an ICMPv6 echo request to a peer, as if the TUN had supplied its packet. The answer
    /// arrives as [`Report::EchoReply`].
    Echo {
        /// The peer.
        peer: NodeAddr,
        /// A number that distinguishes the node's own echoes from those of other programs. The
        /// latest one is in force.
        token: u64,
        /// The sequence number, which the answer returns.
        seq: u16,
    },
    /// Announces that any lane may receive the answer to a [`Command::Echo`] with this token.
    ExpectEcho {
        /// The token of that command.
        token: u64,
    },
    /// Sends bytes as they are: handshake messages.
    Transmit {
        /// The destination.
        to: SocketAddr,
        /// One datagram.
        datagram: Vec<u8>,
    },
}

impl Command {
    /// Returns the size of a command in bytes if it is a message that may be dropped. Such a
    /// message becomes a datagram, which may be lost on its path too, and changes no table. Returns
    /// `None` for any other command.
    #[must_use]
    pub fn loss_tolerant_bytes(&self) -> Option<usize> {
        let more = match self {
            Self::SendOnLink { body, .. } | Self::SendOnSession { body, .. } => body.len(),
            Self::Transmit { datagram, .. } => datagram.len(),
            Self::Warm { src, dest, .. } => (src.len() + dest.len()) * size_of::<NodeAddr>(),
            _ => return None,
        };
        Some(size_of::<Self>() + more)
    }
}

/// A message of a lane to the core.
#[derive(Debug)]
pub enum Report {
    /// A handshake datagram (FMP phase 1 or 2). Nothing of it is authenticated.
    Handshake {
        /// The source of the datagram.
        from: SocketAddr,
        /// The whole datagram.
        datagram: Vec<u8>,
    },
    /// A frame arrived for an armed index: the peer already uses keys whose handshake answer this
    /// node never received. It is not authenticated, so it is only a hint.
    EarlyFrame {
        /// The link that the index was armed for.
        link: LinkId,
        /// The index.
        index: u32,
    },
    /// The first frame under a candidate link epoch was authenticated, and the lane now seals with
    /// that epoch.
    LinkProven {
        /// The link.
        link: LinkId,
        /// The receiver index of the epoch at this node.
        index: u32,
        /// The address to which the lane now sends.
        path: SocketAddr,
        /// Whether the peer has proven that it is at `path`. If not, no more goes to it than
        /// [`Report::Roamed`] grants.
        proven: bool,
    },
    /// The first frame under a candidate session epoch was authenticated, and the lane now seals
    /// with that epoch.
    SessionProven {
        /// The peer.
        peer: NodeAddr,
        /// The epoch.
        id: EpochId,
    },
    /// A fast frame was opened that shows that the frames of this node open at the peer. It is the
    /// first such frame under these keys, or the first that no other node has relayed. Data now
    /// goes in fast frames, over a direct path only after the latter.
    FastProven {
        /// The peer.
        peer: NodeAddr,
        /// The number of the keys.
        id: EpochId,
        /// Whether no other node has relayed the frame.
        direct: bool,
    },
    /// Like [`Report::FastProven`], for the keys of a hop: relayed frames may go over it.
    HopProven {
        /// The link.
        link: LinkId,
        /// The number of the keys.
        id: EpochId,
    },
    /// A neighbour sends relayed frames with a label that this node does not have, or whose next
    /// hop cannot take them. The rate of this report is bounded.
    LabelFailed {
        /// The link over which the frames arrived.
        link: LinkId,
        /// The label in the neighbour's frames.
        label: u32,
    },
    /// The first frame from the peer under an epoch that this node already seals with: the peer has
    /// the keys too.
    SessionConfirmed {
        /// The peer.
        peer: NodeAddr,
        /// The epoch.
        id: EpochId,
    },
    /// An authenticated link message that is not data of an established session.
    LinkMessage {
        /// The link.
        link: LinkId,
        /// The receiver index, at this node, of the epoch that opened it.
        index: u32,
        /// The FMP message type.
        msg_type: u8,
        /// The body behind the inner header.
        body: Vec<u8>,
    },
    /// A session datagram between other nodes for which the lane has no route, or which announces
    /// coordinates.
    Transit {
        /// The link over which it arrived.
        link: LinkId,
        /// Its body behind the inner header, as received.
        body: Vec<u8>,
    },
    /// A session datagram between other nodes that is too large for this node's links. The lane
    /// drops it, and reports its source and destination without its content.
    TransitTooLarge {
        /// The link over which it arrived.
        link: LinkId,
        /// The source that it names, which is not authenticated.
        src: NodeAddr,
        /// The destination that it names.
        dest: NodeAddr,
        /// The length of its body behind the inner header, in bytes.
        len: usize,
    },
    /// An authenticated session message that is not an IP packet.
    SessionMessage {
        /// The peer.
        peer: NodeAddr,
        /// The epoch that opened it.
        id: EpochId,
        /// The FSP message type.
        msg_type: u8,
        /// The body behind the inner header.
        body: Vec<u8>,
    },
    /// The peer reported what it has received from this node.
    Measured {
        /// The link or session that the report is about.
        on: Layer,
        /// This node's epoch (index or number) under which the report was sealed.
        epoch: u32,
        /// The number of frames that this node has sealed under that epoch.
        sent: u64,
        /// The clock of this node in that epoch when the report arrived, in ms. The timestamp that
        /// the report echoes is compared with it.
        clock: u32,
        /// The report.
        report: ReceiverReport,
    },
    /// An authenticated neighbour sent an FSP frame that no session of this node opens.
    UnknownSession {
        /// The link over which it arrived.
        link: LinkId,
        /// The source that it names, which is not authenticated.
        src: NodeAddr,
    },
    /// The newest frame of a session arrived over another link than those before: the peer has
    /// changed its path. The session's keys authenticate the frame, so a relay cannot forge it.
    Arrives {
        /// The peer.
        peer: NodeAddr,
        /// The link over which it arrived.
        link: LinkId,
    },
    /// A peer answered a [`Command::Echo`].
    EchoReply {
        /// The peer.
        peer: NodeAddr,
        /// The sequence number of the request.
        seq: u16,
    },
    /// An IP packet waits for a session with this peer.
    Wanted {
        /// The peer.
        peer: NodeAddr,
    },
    /// The newest frame of a link came from an address that its peer has not proven. The lane sends
    /// a bounded number of bytes to it, in addition to the proven address. A link reports at most
    /// every 100 ms, and the same address at most every 500 ms.
    Roamed {
        /// The link.
        link: LinkId,
        /// The new address.
        path: SocketAddr,
        /// How much the core may send to that address until the next report, in bytes.
        room: u32,
    },
    /// The activity of links and sessions since the last sample. Only those that changed are
    /// listed.
    Activity {
        /// The links that changed.
        links: Vec<LinkActivity>,
        /// The sessions that changed.
        sessions: Vec<SessionActivity>,
    },
}

/// A link or a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// This link.
    Link(LinkId),
    /// The session with this node.
    Session(NodeAddr),
}

/// One of the two reports of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportKind {
    /// SenderReport: what this node has sent.
    Sender,
    /// ReceiverReport: what this node has received.
    Receiver,
}

/// What was received on a link or in a session, by the counters of its sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The epoch (index or number) whose counters are followed.
    pub epoch: u32,
    /// The highest counter of that epoch.
    pub highest: u64,
    /// The number of frames counted, over all epochs.
    pub frames: u64,
    /// The number of frames that arrived behind a later one.
    pub reordered: u64,
    /// The number of frames marked as having experienced congestion.
    pub ce: u64,
    /// The interarrival jitter (RFC 3550), in microseconds. The clocks that it is computed from
    /// count milliseconds.
    pub jitter_us: u32,
}

/// The running totals of a link or a session. Times are on the lane's clock; 0 means never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames sealed.
    pub tx_frames: u64,
    /// Frames opened.
    pub rx_frames: u64,
    /// UDP payload bytes sent (links) or IP bytes sent (sessions).
    pub tx_bytes: u64,
    /// UDP payload bytes received (links) or IP bytes received (sessions).
    pub rx_bytes: u64,
    /// Frames opened that may call for an answer. Heartbeats and reports, among others, do not.
    pub rx_payload: u64,
    /// When the last frame was sealed, in ms.
    pub last_tx: u64,
    /// When the last frame that may call for an answer was sealed for a link, in ms.
    pub last_payload_tx: u64,
    /// When the last frame was opened, in ms.
    pub last_rx: u64,
}

/// The activity of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkActivity {
    /// The link.
    pub link: LinkId,
    /// The totals over all epochs.
    pub totals: Totals,
    /// The measurements of what was received.
    pub received: Received,
}

/// The activity of a session. `totals` counts all frames, but the bytes of IP packets only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionActivity {
    /// The peer.
    pub peer: NodeAddr,
    /// The totals over all epochs.
    pub totals: Totals,
    /// The measurements of what was received.
    pub received: Received,
    /// When an IP packet was last sent or received, in ms; 0 if never.
    pub last_data: u64,
    /// When an IP packet was last sent, in ms; 0 if never.
    pub last_data_tx: u64,
    /// When a fast frame above [`SURE_PAYLOAD`](weft_wire::fast::SURE_PAYLOAD) was last sent, in
    /// ms; 0 if never.
    pub last_large_tx: u64,
    /// The path MTU of the last frame from the peer, in bytes of UDP payload, as the nodes on its
    /// path reported it in the frame.
    pub path_mtu: Option<u16>,
}
