//! What passes between the core, which decides, and a lane, which moves packets.
//!
//! The core never seals and a lane never decides: a [`Command`] changes a lane's tables or hands it plaintext to
//! seal in order with the data, a [`Report`] tells the core what was authenticated. Both are plain values, so the
//! same pair runs between threads in the daemon and inside one virtual clock in the simulator.

use std::net::{IpAddr, SocketAddr};

use weft_noise::Key;
use weft_noise::fast::{LaneSecrets, Suite};
use weft_noise::tag::TagKey;
use weft_wire::mmp::ReceiverReport;
use weft_wire::{Network, NodeAddr};

/// A link's number: given by the core, never used twice in the life of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// The number of an FSP epoch within its session: given by the core, counts up, never on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochId(pub u32);

/// What an epoch may be used for when it is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochUse {
    /// Seal with it from now on; the epoch it replaces stays open for late frames.
    Send,
    /// Open only. The first frame that authenticates under it proves that the peer holds the keys: the lane then
    /// seals with it and reports [`Report::LinkProven`] or [`Report::SessionProven`].
    Candidate,
    /// Open only, and never promoted: the losing half of a simultaneous open.
    ReceiveOnly,
}

/// Keys of one FMP (link) epoch. The pair of indices is fixed by the handshake that made it.
#[derive(Clone, Debug)]
pub struct LinkKeys {
    /// The index the peer writes into frames to us.
    pub our_index: u32,
    /// The index we write into frames to the peer.
    pub their_index: u32,
    /// Seals what we send.
    pub send: Key,
    /// Opens what we receive.
    pub recv: Key,
}

/// Keys of one FSP (session) epoch.
#[derive(Clone, Debug)]
pub struct SessionKeys {
    /// The epoch's number.
    pub id: EpochId,
    /// We began the handshake that made them.
    pub initiator: bool,
    /// Seals what we send.
    pub send: Key,
    /// Opens what we receive.
    pub recv: Key,
}

/// Keys for fast frames of one session epoch, in one lane.
#[derive(Clone, Debug)]
pub struct FastKeys {
    /// The number of the session epoch that they come from.
    pub id: EpochId,
    /// The index the peer writes into fast frames to us; it names the lane ([`lane_of`](crate::lane_of)).
    pub our_index: u32,
    /// The index we write into fast frames to the peer.
    pub their_index: u32,
    /// The largest fast frame that the peer takes, bytes of UDP payload.
    pub max_payload: u16,
    /// The peer reads frames of IPv4 packets and of others with all of their header.
    pub reads_full: bool,
    /// What both sides chose.
    pub suite: Suite,
    /// Both directions.
    pub secrets: LaneSecrets,
    /// Frames after which a key of ours moves on.
    pub phase_frames: u64,
}

/// How the fast frames of a session go through other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relay {
    /// The link to the next hop.
    pub link: LinkId,
    /// What the next hop knows the other end by.
    pub label: u32,
    /// The largest relayed frame that passes all the way, bytes of UDP payload.
    pub mtu: u16,
}

/// Where frames with a label go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carry {
    /// They are for us.
    Here,
    /// On, over this link and with this label.
    On {
        /// The link to the next hop.
        link: LinkId,
        /// What the next hop knows the destination by.
        label: u32,
    },
}

/// What the direct path to a node takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSize {
    /// UDP payload, bytes.
    pub payload: u16,
    /// More is not to be expected soon, so who sends more may be told.
    pub settled: bool,
}

/// How handshakes of a node are recognised before anything of them is authenticated.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The node.
    pub peer: NodeAddr,
    /// Where it may be.
    pub hosts: Vec<IpAddr>,
    /// The key of the tags on its messages, if it puts any on them.
    pub tag: Option<TagKey>,
}

/// What handshake messages of links may cost that prove nothing.
#[derive(Clone, Copy, Debug)]
pub struct HandshakeLimits {
    /// Diffie-Hellmans a second for first messages. Answers to messages of this node may cost half as many besides.
    pub per_second: u64,
    /// For hashes and lots that no sender can foresee. It needs to be kept for as long as the process runs, and protects nothing
    /// else.
    pub key: [u8; 16],
}

impl Default for HandshakeLimits {
    /// 400 a second, 2 % of a core where one takes 50 us, and a key that is not secret: for tests and simulations.
    fn default() -> Self {
        Self {
            per_second: 400,
            key: [0; 16],
        }
    }
}

/// From the core to the lanes that [`Command::audience`] says.
#[derive(Clone, Debug)]
pub enum Command {
    /// Reserves an index for a handshake in flight, so that frames which arrive under it before the answer does
    /// are noticed ([`Report::EarlyFrame`]).
    ArmIndex {
        /// The link the handshake is for.
        link: LinkId,
        /// Who is asked.
        peer: NodeAddr,
        /// Our index, as sent in msg1.
        index: u32,
    },
    /// Forgets an index that [`Command::ArmIndex`] reserved.
    DisarmIndex {
        /// The index.
        index: u32,
    },
    /// Makes a link known, or adds an epoch to it.
    InstallLink {
        /// The link.
        link: LinkId,
        /// Who is at its other end.
        peer: NodeAddr,
        /// Where the peer was when the handshake was made: where our answer to it goes, or its answer to us came from.
        path: SocketAddr,
        /// The handshake shows that the peer gets what is sent there, once the epoch is proven.
        proven: bool,
        /// The epoch's keys.
        keys: LinkKeys,
        /// What the keys may be used for.
        usage: EpochUse,
    },
    /// The peer has proven that it is at this address: frames of the link go there. Lanes that do not own the link learn
    /// of it by this.
    PlaceLink {
        /// The link.
        link: LinkId,
        /// Who is at its other end.
        peer: NodeAddr,
        /// Where to send from now on.
        path: SocketAddr,
        /// Where to send a copy of everything as well.
        left: Option<SocketAddr>,
    },
    /// The answer to the handshake of this candidate has gone to another address as well, so that its proof does not show
    /// where the peer is.
    DoubtPath {
        /// The link.
        link: LinkId,
        /// Our index of the epoch.
        index: u32,
    },
    /// Asks the peer whether it is at this address, in a link message of type [`PROBE`](weft_wire::link::PROBE). What goes
    /// to an unproven address is bounded by what [`Report::Roamed`] granted.
    ProbeLink {
        /// The link.
        link: LinkId,
        /// The address.
        to: SocketAddr,
        /// Returned with the answer; unpredictable.
        number: u64,
    },
    /// Ends an epoch of a link: its drain is over, or its candidate was never proven.
    RetireLinkEpoch {
        /// The link.
        link: LinkId,
        /// Our index of the epoch.
        index: u32,
    },
    /// Seals with this epoch from now on. A lane promotes by itself on proof; this settles which epoch it is when the
    /// core installed another one while the report of that proof was on its way.
    SelectLinkEpoch {
        /// The link.
        link: LinkId,
        /// Our index of the epoch.
        index: u32,
    },
    /// A candidate epoch lost a simultaneous open: it only opens from now on.
    Demote {
        /// The link.
        link: LinkId,
        /// Our index of the epoch.
        index: u32,
    },
    /// Ends a link; sessions bound to it keep their keys and queue.
    RemoveLink {
        /// The link.
        link: LinkId,
    },
    /// Adds an epoch to the session with a peer, and makes the session known if it is new.
    InstallSession {
        /// The other end.
        peer: NodeAddr,
        /// The epoch's keys.
        keys: SessionKeys,
        /// What the keys may be used for.
        usage: EpochUse,
    },
    /// The same as [`Command::SelectLinkEpoch`] for a session.
    SelectSessionEpoch {
        /// The other end.
        peer: NodeAddr,
        /// The epoch.
        id: EpochId,
    },
    /// Ends an epoch of a session.
    RetireSessionEpoch {
        /// The other end.
        peer: NodeAddr,
        /// The epoch.
        id: EpochId,
    },
    /// Opens fast frames under these keys from now on, and seals data in them once one has opened
    /// ([`Report::FastProven`]). They end with the session epoch of their number.
    InstallFast {
        /// The other end.
        peer: NodeAddr,
        /// The keys.
        keys: FastKeys,
    },
    /// Shows the other end in a fast frame that we hold these keys, and asks it to do the same.
    ConfirmFast {
        /// The other end.
        peer: NodeAddr,
        /// The keys.
        id: EpochId,
    },
    /// Opens the fast frames of a hop under these keys from now on, and seals such once one has opened
    /// ([`Report::HopProven`]). Their numbers count up within the link.
    InstallHop {
        /// The link.
        link: LinkId,
        /// The keys.
        keys: FastKeys,
    },
    /// Shows the neighbour in a fast frame that we hold these keys, and asks it to do the same.
    ConfirmHop {
        /// The link.
        link: LinkId,
        /// The keys.
        id: EpochId,
    },
    /// Ends the keys of a hop.
    RetireHop {
        /// The link.
        link: LinkId,
        /// The keys.
        id: EpochId,
    },
    /// Frames with this label, from the neighbour at the other end of this link, go there from now on.
    SetLabel {
        /// The link that they come over.
        link: LinkId,
        /// The neighbour's label.
        label: u32,
        /// Where they go.
        to: Carry,
    },
    /// They are not carried any more.
    RemoveLabel {
        /// The link that they come over.
        link: LinkId,
        /// The neighbour's label.
        label: u32,
    },
    /// How fast frames of this session go while it is bound to the link of that way; `None` if they do not.
    RelaySession {
        /// The other end.
        peer: NodeAddr,
        /// The way.
        relay: Option<Relay>,
    },
    /// Seals relayed frames whole for each hop from now on, ours and those of others, so that an observer of two hops does
    /// not see the same bytes on both.
    SealWhole,
    /// Seals nothing more under a session's keys, but opens what still comes. The next packet asks for new ones.
    SuspendSession {
        /// The other end.
        peer: NodeAddr,
    },
    /// Ends a session. Packets that wait for it stay queued for the next one.
    RemoveSession {
        /// The other end.
        peer: NodeAddr,
    },
    /// Sends the session's frames over this link from now on.
    BindSession {
        /// The other end.
        peer: NodeAddr,
        /// The link of the next hop.
        link: LinkId,
    },
    /// Datagrams of others to this node go over this link from now on.
    SetRoute {
        /// The destination.
        dest: NodeAddr,
        /// The link of the next hop.
        link: LinkId,
    },
    /// Whether datagrams of others that go over this link are marked as having experienced congestion.
    MarkCongestion {
        /// The link.
        link: LinkId,
        /// From now on.
        on: bool,
    },
    /// Frames of the session with this node may be no larger than this from now on.
    LimitSession {
        /// The other end.
        peer: NodeAddr,
        /// UDP payload, bytes.
        mtu: u16,
    },
    /// Sends the other end a probe of the path in a fast frame; its answer comes as [`Report::SessionMessage`]. Nothing goes
    /// while data does not go in fast frames.
    ProbePath {
        /// The other end.
        peer: NodeAddr,
        /// Returned with the answer.
        id: u16,
        /// The whole frame, bytes of UDP payload; made as small as can be if that is more.
        size: u16,
    },
    /// Fast frames to this node have this size at most from now on. Where the lane's settings leave that to probes, it is
    /// [`SURE_PAYLOAD`](weft_wire::fast::SURE_PAYLOAD) until then.
    SizePath {
        /// The other end.
        peer: NodeAddr,
        /// What is known.
        size: PathSize,
    },
    /// The core is asked again about datagrams to this node.
    RemoveRoute {
        /// The destination.
        dest: NodeAddr,
    },
    /// IP packets may pass between us and this node.
    AllowPeer {
        /// The node; its address in `fd00::/8` follows from it.
        peer: NodeAddr,
    },
    /// No longer.
    DenyPeer {
        /// The node.
        peer: NodeAddr,
    },
    /// Which networks lie behind nodes, our own and others, from now on: packets between them go in fast frames with all of
    /// their header. Nodes' own addresses need not be told.
    SetNetworks {
        /// Those that peers may send to, among them further addresses of our own.
        ours: Vec<Network>,
        /// Those that packets go to a peer for, and may come from it. The longest prefix counts.
        theirs: Vec<(Network, NodeAddr)>,
    },
    /// Data for this node goes in fast frames or not at all: it waits while there are none.
    RequireFast {
        /// The node.
        peer: NodeAddr,
    },
    /// From where and with which tags handshakes of a node are expected: a flood of others must not keep them out. Replaces what
    /// was told of the node.
    Expect(Expected),
    /// No handshakes of this node are expected any more.
    Unexpect {
        /// The node.
        peer: NodeAddr,
    },
    /// Drops packets that wait for a session which will not come, and tells their senders.
    DropQueue {
        /// The other end.
        peer: NodeAddr,
    },
    /// Seals one link message in order with the data.
    SendOnLink {
        /// The link.
        link: LinkId,
        /// Which epoch seals: our index, or the current one.
        epoch: Option<u32>,
        /// FMP message type.
        msg_type: u8,
        /// The body behind the inner header.
        body: Vec<u8>,
    },
    /// Seals one session message in order with the data.
    SendOnSession {
        /// The other end.
        peer: NodeAddr,
        /// Which epoch seals; the current one if `None`. A candidate may be named to prove our keys to the peer.
        epoch: Option<EpochId>,
        /// FSP message type.
        msg_type: u8,
        /// The body behind the inner header.
        body: Vec<u8>,
    },
    /// Tells a neighbour what was sent to it, or what came from it. Where nothing came, a heartbeat goes in its place.
    ReportOnLink {
        /// The link.
        link: LinkId,
        /// Which report.
        kind: ReportKind,
    },
    /// The same for the other end of a session; where there is nothing to tell, nothing goes.
    ReportOnSession {
        /// The other end.
        peer: NodeAddr,
        /// Which report.
        kind: ReportKind,
    },
    /// Sends a session's coordinates in the clear, for the nodes on the way, in front of an empty sealed message
    /// (FIPS wire-formats, "CoordsWarmup").
    Warm {
        /// The other end.
        peer: NodeAddr,
        /// Our coordinates, ourselves first.
        src: Vec<NodeAddr>,
        /// The other end's.
        dest: Vec<NodeAddr>,
    },
    /// Sends an ICMPv6 echo request to a peer, as if its packet had come from the TUN; the answer comes as
    /// [`Report::EchoReply`].
    Echo {
        /// The other end.
        peer: NodeAddr,
        /// Tells our echoes from those of other programs; the last one given counts.
        token: u64,
        /// Returned with the answer.
        seq: u16,
    },
    /// The answer to a [`Command::Echo`] with this token may come to any lane.
    ExpectEcho {
        /// As there.
        token: u64,
    },
    /// Sends bytes as they are: handshake messages.
    Transmit {
        /// Where to.
        to: SocketAddr,
        /// One datagram.
        datagram: Vec<u8>,
    },
}

impl Command {
    /// What a command takes, bytes, if it is a message that may be lost: it goes as a datagram, which may be lost on its way too,
    /// and changes no table.
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

/// From a lane to the core.
#[derive(Debug)]
pub enum Report {
    /// A handshake datagram (FMP phase 1 or 2). Nothing about it is authenticated.
    Handshake {
        /// Where it came from.
        from: SocketAddr,
        /// The whole datagram.
        datagram: Vec<u8>,
    },
    /// A frame came for an armed index: the peer has cut over to keys whose answer we never got. Not
    /// authenticated, so only a hint.
    EarlyFrame {
        /// The link the index was armed for.
        link: LinkId,
        /// The index.
        index: u32,
    },
    /// The first frame under a candidate link epoch was authenticated, and the lane now seals with it.
    LinkProven {
        /// The link.
        link: LinkId,
        /// Our index of the epoch.
        index: u32,
        /// Where the lane sends now.
        path: SocketAddr,
        /// The peer has shown that it is there; else no more goes there than [`Report::Roamed`] tells.
        proven: bool,
    },
    /// The first frame under a candidate session epoch was authenticated, and the lane now seals with it.
    SessionProven {
        /// The other end.
        peer: NodeAddr,
        /// The epoch.
        id: EpochId,
    },
    /// A fast frame under these keys opened that shows that ours open at the other end: the first one of all, or the
    /// first that no other node has carried. Data goes in fast frames now, directly only after the latter.
    FastProven {
        /// The other end.
        peer: NodeAddr,
        /// The keys.
        id: EpochId,
        /// No other node has carried it.
        direct: bool,
    },
    /// The same for the keys of a hop: relayed frames may go over it.
    HopProven {
        /// The link.
        link: LinkId,
        /// The keys.
        id: EpochId,
    },
    /// A neighbour sends relayed frames with a label that we do not have, or that lead to where they cannot go. Told
    /// seldom.
    LabelFailed {
        /// The link that they came over.
        link: LinkId,
        /// The neighbour's label.
        label: u32,
    },
    /// The first frame from the peer under an epoch that we already seal with: it has the keys too.
    SessionConfirmed {
        /// The other end.
        peer: NodeAddr,
        /// The epoch.
        id: EpochId,
    },
    /// An authenticated link message that is not data of an established session.
    LinkMessage {
        /// The link.
        link: LinkId,
        /// Our index of the epoch that opened it.
        index: u32,
        /// FMP message type.
        msg_type: u8,
        /// The body behind the inner header.
        body: Vec<u8>,
    },
    /// A session datagram between others that the lane has no route for, or that tells coordinates.
    Transit {
        /// The link it came over.
        link: LinkId,
        /// Its body, behind the inner header, as it came.
        body: Vec<u8>,
    },
    /// A session datagram between others that is too large for our links. Only its ends are told: the rest of it goes nowhere.
    TransitTooLarge {
        /// The link it came over.
        link: LinkId,
        /// Who claims to have sent it.
        src: NodeAddr,
        /// Where it was to go.
        dest: NodeAddr,
        /// Bytes of its body, behind the inner header.
        len: usize,
    },
    /// An authenticated session message that is not an IP packet.
    SessionMessage {
        /// The other end.
        peer: NodeAddr,
        /// The epoch that opened it.
        id: EpochId,
        /// FSP message type.
        msg_type: u8,
        /// The body behind the inner header.
        body: Vec<u8>,
    },
    /// The other side told what it received from us.
    Measured {
        /// Where.
        on: Layer,
        /// Our epoch (index or number) under which it told.
        epoch: u32,
        /// Frames that we have sealed under that epoch.
        sent: u64,
        /// Our clock in that epoch when the report came, ms: what its echo is compared with.
        clock: u32,
        /// The report.
        report: ReceiverReport,
    },
    /// An authenticated neighbour handed us an FSP frame that no session of ours opens.
    UnknownSession {
        /// The link it came over.
        link: LinkId,
        /// Who claims to have sent it.
        src: NodeAddr,
    },
    /// The newest frame of a session came over another link than those before: the other end has changed its way.
    /// Its keys prove it; who merely carries a session cannot.
    Arrives {
        /// The other end.
        peer: NodeAddr,
        /// The link it came over.
        link: LinkId,
    },
    /// A peer answered a [`Command::Echo`].
    EchoReply {
        /// Who.
        peer: NodeAddr,
        /// The number in the request.
        seq: u16,
    },
    /// An IP packet waits for a session with this peer.
    Wanted {
        /// The other end.
        peer: NodeAddr,
    },
    /// The newest frame of a link came from an address that its peer has not proven. The lane sends a little there, beside
    /// the proven one. Told at most each 100 ms, and of one address at most each 500 ms.
    Roamed {
        /// The link.
        link: LinkId,
        /// The new address.
        path: SocketAddr,
        /// What the core may send there until the next report, bytes.
        room: u32,
    },
    /// Activity of links and sessions since the last sample; only those that changed.
    Activity {
        /// Changed links.
        links: Vec<LinkActivity>,
        /// Changed sessions.
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

/// Which of the two reports of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportKind {
    /// What we sent.
    Sender,
    /// What we received.
    Receiver,
}

/// What arrived on a link or in a session, by the counters that its sender gave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The epoch (index or number) whose counters are followed.
    pub epoch: u32,
    /// The highest counter of that epoch.
    pub highest: u64,
    /// Frames counted, over all epochs.
    pub frames: u64,
    /// Those that came behind a later one.
    pub reordered: u64,
    /// Those marked as having experienced congestion.
    pub ce: u64,
    /// Interarrival jitter (RFC 3550), microseconds. The clocks behind it are in milliseconds.
    pub jitter_us: u32,
}

/// Running totals of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames sealed.
    pub tx_frames: u64,
    /// Frames opened.
    pub rx_frames: u64,
    /// UDP payload bytes sent (links) or IP bytes sent (sessions).
    pub tx_bytes: u64,
    /// The same, received.
    pub rx_bytes: u64,
    /// Frames opened that deserve an answer: not heartbeats, not reports.
    pub rx_payload: u64,
    /// When the last frame was sealed, ms.
    pub last_tx: u64,
    /// When the last frame of a session was sealed, ms: it deserves an answer.
    pub last_payload_tx: u64,
    /// When the last frame was opened, ms.
    pub last_rx: u64,
}

/// A link's activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkActivity {
    /// The link.
    pub link: LinkId,
    /// Its totals over all epochs.
    pub totals: Totals,
    /// What came, measured.
    pub received: Received,
}

/// A session's activity. `totals` counts every frame in frames, but bytes only of IP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionActivity {
    /// The other end.
    pub peer: NodeAddr,
    /// Its totals over all epochs.
    pub totals: Totals,
    /// What came, measured.
    pub received: Received,
    /// When an IP packet last passed in either direction, ms; 0 if never.
    pub last_data: u64,
    /// When an IP packet was last sent, ms; 0 if never.
    pub last_data_tx: u64,
    /// When a fast frame above [`SURE_PAYLOAD`](weft_wire::fast::SURE_PAYLOAD) was last sent, ms; 0 if never.
    pub last_large_tx: u64,
    /// The smallest link that the last frame met on its way to us, bytes of UDP payload, as nodes on the way say.
    pub path_mtu: Option<u16>,
}
