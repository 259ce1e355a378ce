//! The status of a peer, in the stages that L13 distinguishes: known, handshake, linked, session,
//! payload.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_contract::{Endpoint, Totals};
use weft_noise::PublicKey;
use weft_noise::fast::Suite;

use crate::node::Peer;
use crate::progress::{Look, Trouble};
use crate::{Config, HintSource, LinkDown, Path, PathChange, Quality, SessionDown, thousandths};

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

/// A node's part in the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MeshStatus {
    /// Node address of the tree's root: 32 hexadecimal digits.
    pub root: String,
    /// The next hop to the root, `npub1...`; `None` if this node is the root.
    pub parent: Option<String>,
    /// Hops to the root.
    pub depth: usize,
    /// Nodes with a link.
    pub neighbours: usize,
    /// Of these, nodes that are not configured.
    pub strangers: usize,
    /// Whether it forwards for other nodes.
    pub transit: bool,
    /// Number of nodes whose coordinates are known.
    pub known: usize,
    /// Look-ups that were answered.
    pub lookups_found: u64,
    /// Look-ups without an answer.
    pub lookups_failed: u64,
    /// Memory for what other nodes announced about the mesh, in bytes.
    pub state_bytes: usize,
}

/// Packets and bytes in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes: of frames for a link, of IP packets for a session.
    pub bytes: u64,
}

/// A link: keys shared with a neighbour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkStatus {
    /// Age of the keys in use.
    pub epoch_age_s: u64,
    /// Number of rekeys.
    pub rekeys: u64,
    /// The keys are overdue, because no rekey succeeds: they end in this many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_end_s: Option<u64>,
    /// Smoothed round-trip time, once measured: that of `quality`.
    #[serde(default, rename = "rtt_ms", with = "thousandths")]
    #[schemars(with = "Option<f64>")]
    pub rtt_us: Option<u32>,
    /// The quality of the link. Data in fast frames is measured in the session only, so this includes the measurements
    /// of the session while its data goes directly over the link.
    #[serde(default)]
    pub quality: Quality,
    /// Received, authenticated.
    pub rx: Traffic,
    /// Sent.
    pub tx: Traffic,
    /// Seconds since the last authentic frame.
    pub last_rx_s: Option<u64>,
}

/// A session: keys shared end to end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionStatus {
    /// Age of the session, over all its keys.
    pub age_s: u64,
    /// Number of rekeys.
    pub rekeys: u64,
    /// The keys are overdue, because no rekey succeeds: they end in this many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_end_s: Option<u64>,
    /// The quality of the session, end to end.
    #[serde(default)]
    pub quality: Quality,
    /// Received, authenticated.
    pub rx: Traffic,
    /// Sent.
    pub tx: Traffic,
    /// Seconds since an IP packet was last received.
    #[serde(default)]
    pub packet_in_s: Option<u64>,
    /// Seconds since an IP packet was last sent.
    #[serde(default)]
    pub packet_out_s: Option<u64>,
    /// Seconds since the peer last reported that something new of the session arrived.
    #[serde(default)]
    pub told_s: Option<u64>,
    /// Packets that wait for the session.
    pub queued: u64,
    /// The largest UDP payload of FIPS frames to the peer in bytes, if it or a relay ever reported on the path.
    #[serde(default)]
    pub path_mtu_out: Option<u16>,
    /// The same for the path from the peer: the smallest link on it, as its last frame reported.
    #[serde(default)]
    pub path_mtu_in: Option<u16>,
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
    /// Smoothed round-trip time, once measured.
    pub rtt_us: Option<u32>,
    /// Received over the link, authenticated.
    pub rx: Traffic,
    /// Sent over the link.
    pub tx: Traffic,
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
    /// Time since the session ended because its keys were too old.
    pub keys_ended: Option<u64>,
    /// Two running nodes have the peer's key: the address of the one that sent last, the address of
    /// the other, and the time since.
    pub twins: Option<([SocketAddr; 2], u64)>,
    /// The link, while it is up.
    pub link: Option<LinkStatus>,
    /// The session, while it is up.
    pub session: Option<SessionStatus>,
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
    /// The size of fast frames, while data goes in them.
    pub path_size: Option<KnownSize>,
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

/// Returns what was received and sent.
fn traffic(totals: &Totals) -> (Traffic, Traffic) {
    let of = |packets, bytes| Traffic { packets, bytes };
    (
        of(totals.rx_frames, totals.rx_bytes),
        of(totals.tx_frames, totals.tx_bytes),
    )
}

fn link_status(peer: &Peer, config: &Config, now: u64) -> Option<LinkStatus> {
    let link = &peer.link;
    let (totals, quality) = (link.liveness.totals(), peer.hop_quality(now));
    let (rx, tx) = traffic(totals);
    Some(LinkStatus {
        epoch_age_s: link.age(now)? / 1_000,
        rekeys: link.rekeys,
        keys_end_s: link.overdue_keys_end(config, now).map(|ms| ms / 1_000),
        rtt_us: quality.rtt_us,
        quality: Quality {
            cost: quality.link_cost(),
            ..quality
        },
        rx,
        tx,
        last_rx_s: (totals.last_rx > 0).then(|| now.saturating_sub(totals.last_rx) / 1_000),
    })
}

fn session_status(peer: &Peer, config: &Config, now: u64) -> Option<SessionStatus> {
    let session = &peer.session;
    let ago_s = |at: u64| now.saturating_sub(at) / 1_000;
    let (rx, tx) = traffic(session.liveness.totals());
    Some(SessionStatus {
        age_s: ago_s(session.up_since?),
        rekeys: session.rekeys,
        keys_end_s: keys_end(session.age(now), config).map(|ms| ms / 1_000),
        quality: Quality {
            cost: None,
            ..session.metrics.quality(now)
        },
        rx,
        tx,
        packet_in_s: session.passing.came().map(ago_s),
        packet_out_s: session.passing.went().map(ago_s),
        told_s: Some(session.passing.told()).filter(|at| *at > 0).map(ago_s),
        queued: session.wanted.is_some().into(),
        path_mtu_out: session.path_mtu_out(),
        path_mtu_in: session.path_mtu_in(),
    })
}

impl Stranger {
    pub(crate) fn of(peer: &Peer, now: u64) -> Self {
        let (rx, tx) = traffic(peer.link.liveness.totals());
        Self {
            key: peer.key(),
            path: peer.link.path().map(Endpoint::remote),
            up: peer.link.up_since.map_or(0, |at| now.saturating_sub(at)),
            rtt_us: peer.link.metrics.quality(now).rtt_us,
            rx,
            tx,
        }
    }
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
            narrow: session.is_narrow(),
            path,
            path_changes: peer.paths.changes(now),
            targets,
            source: link.source(),
            known_paths: link.known_paths(now, |at| session.proven_size(at)),
            dialing: link.dialing(now),
            failures: link.failures,
            last_down: link.last_down.map(|(at, why)| (now.saturating_sub(at), why)),
            keys_ended: match session.last_down {
                Some((at, SessionDown::KeysTooOld)) => Some(now.saturating_sub(at)),
                _ => None,
            },
            twins: link.twins.seen(now),
            link: link_status(peer, config, now),
            session: session_status(peer, config, now),
            frames: session.frames(),
            require_fast: session.requires_fast(),
            reads_full: session.reads_full(),
            version: session.version().map(Box::from),
            fast: session.is_fast_any(),
            waiting: session.wanted.map(|at| now.saturating_sub(at)),
            path_size: session.known_size(config),
        }
    }
}
