//! The status of a peer, in the stages that L13 distinguishes: known, handshake, linked, session,
//! payload.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_noise::PublicKey;
use weft_noise::fast::Suite;
use weft_packet::{Endpoint, Totals};
use weft_wire::NodeAddr;

use crate::node::Peer;
use crate::progress::{Look, Trouble};
use crate::{Config, HintSource, LinkDown, Path, PathChange, Quality, SessionDown};

/// The stage that the connection with a peer has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PeerState {
    /// The peer is configured. No handshake is in progress, because no address of it is known.
    Known,
    /// A link handshake is in progress.
    Linking,
    /// The link is up.
    Linked,
    /// The ends have agreed on end-to-end keys. Lately no IP packet passed, or packets passed in
    /// one direction only. [`PeerStatus::trouble`] shows whether something is wrong.
    Session,
    /// IP packets passed in both directions within the last 10 s, and no trouble is known.
    Payload,
}

/// A summary of [`PeerState`] for users: whether the peer can be reached, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// No address is known, or a whole dial attempt (12 s) received no answer.
    #[default]
    Offline,
    /// Handshakes are in progress, or packets do not pass at present and the node tries to restore
    /// the connection.
    Connecting,
    /// Packets can pass. Lately none passed, or only in one direction.
    Connected,
    /// IP packets passed in both directions within the last 10 s.
    Active,
}

impl PeerState {
    /// The name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::Linking => "linking",
            Self::Linked => "linked",
            Self::Session => "session",
            Self::Payload => "payload",
        }
    }
}

impl Standing {
    /// The name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Offline => "offline",
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Active => "active",
        }
    }
}

/// The frames that data of a session goes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// FIPS frames: the peer has announced no others, or this node offers none.
    Fips,
    /// Fast frames of this suite, directly to the peer.
    Fast(Suite),
    /// Fast frames of this suite, through other nodes.
    Relayed(Suite),
    /// FIPS frames, although both ends have agreed on this suite: the present path does not take
    /// fast frames. Its nodes do not forward them, or have not answered yet.
    NoWay(Suite),
    /// FIPS frames, although both ends have agreed on this suite: no fast frame of the peer has
    /// opened. Something on the path drops them, or has altered the handshake.
    Unproven(Suite),
    /// FIPS frames: both ends support fast frames, but have no suite in common.
    NoCommonSuite,
}

/// The size limit of fast frames to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownSize {
    /// UDP payload, bytes.
    pub payload: u16,
    /// The source of that limit.
    pub source: SizeSource,
    /// Larger sizes are being probed at present.
    pub searching: bool,
}

/// The source of a path's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SizeSource {
    /// It is the size that every path takes under IPv6; probes have not shown more.
    Assumed,
    /// Probes have shown that this size passes, and no larger one.
    Probed,
    /// It is set by [`Config::mtu`].
    Set,
}

/// The node's part in the mesh at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshStatus {
    /// The root of the tree: the smallest address among all reachable nodes.
    pub root: NodeAddr,
    /// The parent in the tree, which leads to the root; `None` if this node is the root.
    pub parent: Option<PublicKey>,
    /// Hops to the root.
    pub depth: usize,
    /// Nodes with a link to this one.
    pub neighbours: usize,
    /// Neighbours that are not configured.
    pub strangers: usize,
    /// Whether this node forwards for others.
    pub transit: bool,
    /// Nodes whose coordinates are known.
    pub known: usize,
    /// Look-ups of this node that were answered.
    pub found: u64,
    /// Look-ups of this node that were not answered.
    pub not_found: u64,
    /// Memory for what other nodes have announced about the mesh, in bytes, approximately.
    pub bytes: usize,
}

/// A neighbour that is not configured, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// The node's public key.
    pub key: PublicKey,
    /// The address of the link.
    pub path: Option<SocketAddr>,
    /// How long the link has been up, ms.
    pub up: u64,
    /// What passed over the link.
    pub totals: Totals,
    /// The quality of the link.
    pub quality: Quality,
}

/// The status of one peer at one moment. Times are ms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The peer's public key.
    pub key: PublicKey,
    /// The stage that the connection has reached.
    pub state: PeerState,
    /// Time since this state was entered.
    pub since: u64,
    /// The summary for users.
    pub standing: Standing,
    /// Time since the summary last changed.
    pub standing_since: u64,
    /// Time for which it has been connected or active, without a sign of the contrary; `None` while it is neither.
    pub online: Option<u64>,
    /// What keeps packets from passing although there is a link or a session, and the time since
    /// the last sign that they pass.
    pub trouble: Option<(Trouble, u64)>,
    /// Time since something authentic of the peer was last received, over its link or in its session.
    pub heard: Option<u64>,
    /// Time since the last IP packet of the session was received.
    pub packet_in: Option<u64>,
    /// Time since the last IP packet of the session was sent.
    pub packet_out: Option<u64>,
    /// Time since the peer last reported that it received something new of the session.
    pub told: Option<u64>,
    /// The direct path takes less than weft needs: probes of the smallest size of full frames are
    /// not answered.
    pub narrow: bool,
    /// The path of packets, if there is one.
    pub path: Option<Path>,
    /// The latest changes of the path, the last one first.
    pub path_changes: Vec<PathChange>,
    /// Known addresses of the peer.
    pub targets: Vec<SocketAddr>,
    /// The source of the address of the link.
    pub source: Option<HintSource>,
    /// What is known of each path, the one in use first.
    pub known_paths: Vec<KnownPath>,
    /// The number of first handshake messages sent without an answer, and the time since the first
    /// of them.
    pub dialing: Option<(u32, u64)>,
    /// Dial attempts (of several messages each) that failed since the peer last answered.
    pub failures: u32,
    /// The time since the link last went down, and the reason.
    pub last_down: Option<(u64, LinkDown)>,
    /// Age of the link's keys.
    pub link_age: Option<u64>,
    /// Time until the link's keys end, if they are overdue because the ends could not agree on new
    /// ones.
    pub link_keys_end: Option<u64>,
    /// The same for the session's keys.
    pub session_keys_end: Option<u64>,
    /// Time since the session ended because its keys were too old.
    pub keys_ended: Option<u64>,
    /// Two running nodes have the peer's key: the address of the one that sent last, the address of
    /// the other, and the time since.
    pub twins: Option<([SocketAddr; 2], u64)>,
    /// Number of rekeys of the link.
    pub link_rekeys: u64,
    /// Time since the link last received a frame.
    pub link_idle: Option<u64>,
    /// What passed over the link.
    pub link_totals: Totals,
    /// Age of the session's keys.
    pub session_age: Option<u64>,
    /// Time since the session came up, over all its keys.
    pub session_up: Option<u64>,
    /// Number of rekeys of the session.
    pub session_rekeys: u64,
    /// What passed in the session.
    pub session_totals: Totals,
    /// The frames that data of the session goes in, while the session is up.
    pub frames: Frames,
    /// Data goes in fast frames or not at all.
    pub require_fast: bool,
    /// The peer reads fast frames of packets that keep their whole header: those of subnets.
    pub reads_full: bool,
    /// The version that the peer claims in its capabilities.
    pub version: Option<Box<str>>,
    /// Data goes in fast frames at present.
    pub fast: bool,
    /// Packets wait for the session; the value is for how long.
    pub waiting: Option<u64>,
    /// The quality of the link, while it is up. Data in fast frames is measured in the session
    /// only, so this includes the session's measurements while its data goes directly over the
    /// link.
    pub link_quality: Quality,
    /// The size of fast frames, while data goes in them.
    pub path_size: Option<KnownSize>,
    /// The largest UDP payload of the session's FIPS frames, if the peer or a relay ever reported
    /// on its path.
    pub path_mtu_out: Option<u16>,
    /// The smallest link on the path to this node, in bytes of UDP payload, as the session's last
    /// frame reported.
    pub path_mtu_in: Option<u16>,
    /// The quality of the session, while it is up.
    pub session_quality: Quality,
}

/// A path to a peer. Times are ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownPath {
    /// The peer's address and the underlay socket that it is reached through
    /// ([`Endpoint::socket`]), and the address of this host if the peer has asked one.
    pub at: Endpoint,
    /// The source of the address.
    pub source: HintSource,
    /// Time since it was named.
    pub named: u64,
    /// Time since the peer last answered there.
    pub proven: Option<u64>,
    /// The link uses it.
    pub used: bool,
    /// The peer answered there when it was last probed.
    pub works: bool,
    /// The shortest round trip when it was last probed.
    pub rtt: Option<u64>,
    /// The share of probes without an answer when it last answered, in thousandths.
    pub loss: Option<u16>,
    /// The largest UDP payload of fast frames that was proven to pass there, in bytes.
    pub payload: Option<u16>,
}

/// Returns the time until keys of this age end, if they are overdue.
fn keys_end(age: Option<u64>, config: &Config) -> Option<u64> {
    let age = age.filter(|age| *age >= config.key_overdue())?;
    Some(config.key_life().saturating_sub(age))
}

impl PeerStatus {
    /// Data waits for fast frames.
    pub fn held_back(&self) -> bool {
        self.require_fast && !self.fast
    }

    pub(crate) fn of(peer: &Peer, config: &Config, now: u64) -> Self {
        let (link, session) = (&peer.link, &peer.session);
        let targets = link.targets(now).into_iter().map(Endpoint::remote).collect();
        let path = peer.paths.path();
        let look = Look::at(peer, config, now);
        Self {
            key: peer.key(),
            state: look.state,
            since: now.saturating_sub(peer.progress.since(now, &look)),
            standing: look.standing,
            standing_since: now.saturating_sub(peer.progress.standing_since(now, &look)),
            online: (peer.progress.online_since(now, &look)).map(|at| now.saturating_sub(at)),
            trouble: look
                .trouble
                .map(|(trouble, since)| (trouble, now.saturating_sub(since))),
            heard: peer.last_heard().map(|at| now.saturating_sub(at)),
            packet_in: session.passing.came().map(|at| now.saturating_sub(at)),
            packet_out: session.passing.went().map(|at| now.saturating_sub(at)),
            told: (session.passing.told() > 0).then(|| now.saturating_sub(session.passing.told())),
            narrow: session.is_narrow(),
            path,
            path_changes: peer.paths.changes(now),
            targets,
            source: link.source(),
            known_paths: link.known_paths(now, |at| session.proven_size(at)),
            dialing: link.dialing(now),
            failures: link.failures,
            last_down: link.last_down.map(|(at, why)| (now.saturating_sub(at), why)),
            link_age: link.age(now),
            link_keys_end: link.overdue_keys_end(config, now),
            session_keys_end: keys_end(session.age(now), config),
            keys_ended: match session.last_down {
                Some((at, SessionDown::KeysTooOld)) => Some(now.saturating_sub(at)),
                _ => None,
            },
            twins: link.twins.seen(now),
            link_rekeys: link.rekeys,
            link_idle: (link.liveness.totals().last_rx > 0).then(|| now.saturating_sub(link.liveness.totals().last_rx)),
            link_totals: *link.liveness.totals(),
            session_age: session.age(now),
            session_up: session.up_since.map(|at| now.saturating_sub(at)),
            session_rekeys: session.rekeys,
            session_totals: *session.liveness.totals(),
            frames: session.frames(),
            require_fast: session.requires_fast(),
            reads_full: session.reads_full(),
            version: session.version().map(Box::from),
            fast: session.is_fast_any(),
            waiting: session.wanted.map(|at| now.saturating_sub(at)),
            link_quality: peer.hop_quality(now),
            path_size: session.known_size(config),
            path_mtu_out: session.path_mtu_out(),
            path_mtu_in: session.path_mtu_in(),
            session_quality: session.metrics.quality(now),
        }
    }
}
