//! How a peer stands, told apart as L13 asks: known, handshake, linked, session, payload.

use std::net::SocketAddr;

use weft_noise::PublicKey;
use weft_noise::fast::Suite;
use weft_packet::Totals;
use weft_wire::NodeAddr;

use crate::node::Peer;
use crate::progress::{Look, Trouble};
use crate::{Config, LinkDown, Path, PathChange, Quality, SessionDown};

/// How far we got with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerState {
    /// Configured, but no handshake is under way: there is no address to dial.
    Known,
    /// A link handshake is under way.
    Linking,
    /// The link is up.
    Linked,
    /// End-to-end keys are agreed. Lately no IP packet passed, or in one direction only; [`PeerStatus::trouble`] tells whether
    /// something is wrong.
    Session,
    /// IP packets passed within the last 10 s, in both directions, and nothing speaks against their passing now.
    Payload,
}

/// The same in fewer words, for people: whether the peer can be reached, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// No address is known, or a whole dial attempt (12 s) went without an answer.
    Offline,
    /// Handshakes are under way, or packets do not pass at present and the node is at work on it.
    Connecting,
    /// Packets can pass; lately none did, or in one direction only.
    Connected,
    /// IP packets passed within the last 10 s, in both directions.
    Active,
}

/// What data between both ends of a session goes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// FIPS frames: the other end has not told of others, or we do not offer any.
    Fips,
    /// Fast frames of this suite, straight to the other end.
    Fast(Suite),
    /// Fast frames of this suite, through other nodes.
    Relayed(Suite),
    /// FIPS frames, although both ends have agreed on this suite: fast ones do not go by the present way. The nodes on it do
    /// not carry them, or are being asked.
    NoWay(Suite),
    /// FIPS frames, although both ends have agreed on this suite: no fast frame of the other end has opened. Something
    /// in between swallows them, or has meddled with the handshake.
    Unproven(Suite),
    /// FIPS frames: both ends have fast ones, but no suite in common.
    NoCommonSuite,
}

/// What fast frames to a peer are bounded by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownSize {
    /// UDP payload, bytes.
    pub payload: u16,
    /// How that is known.
    pub source: SizeSource,
    /// Larger sizes are being tried right now.
    pub searching: bool,
}

/// How the size of a path is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeSource {
    /// It is what every path under IPv6 takes; probes have not shown more.
    Assumed,
    /// Probes have shown that it passes, and nothing larger.
    Probed,
    /// [`Config::mtu`] says so.
    Set,
}

/// Our part in the mesh at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshStatus {
    /// The root of the tree: the smallest address of all that can be reached.
    pub root: NodeAddr,
    /// The neighbour that leads there; `None` if the root is ours.
    pub parent: Option<PublicKey>,
    /// Hops to the root.
    pub depth: usize,
    /// Neighbours: nodes with a link.
    pub neighbours: usize,
    /// Of these, nodes that are not configured.
    pub strangers: usize,
    /// Whether we carry for others.
    pub transit: bool,
    /// Nodes whose place in the tree is known.
    pub known: usize,
    /// Look-ups of ours that were answered.
    pub found: u64,
    /// Look-ups of ours that were not.
    pub not_found: u64,
    /// Memory for what others told about the mesh, bytes, about.
    pub bytes: usize,
}

/// A neighbour that is not configured, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// Its key.
    pub key: PublicKey,
    /// Where the link goes.
    pub path: Option<SocketAddr>,
    /// How long the link has been up, ms.
    pub up: u64,
    /// What passed over the link.
    pub totals: Totals,
    /// How well the link does.
    pub quality: Quality,
}

/// One peer's standing at one moment. Times are ms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Who.
    pub key: PublicKey,
    /// How far we got.
    pub state: PeerState,
    /// How long it has been in this state.
    pub since: u64,
    /// The same in fewer words.
    pub standing: Standing,
    /// How long that has been so.
    pub standing_since: u64,
    /// What keeps packets from passing although there is a link or a session, and for how long there has been no sign to the
    /// contrary.
    pub trouble: Option<(Trouble, u64)>,
    /// How long ago an IP packet of the session last came.
    pub packet_in: Option<u64>,
    /// How long ago one last went.
    pub packet_out: Option<u64>,
    /// How long ago the other end last told that something new of the session came to it.
    pub told: Option<u64>,
    /// The direct path takes less than weft needs: probes of the smallest size of full frames do not arrive.
    pub narrow: bool,
    /// The way that packets take, if there is one.
    pub path: Option<Path>,
    /// How it came to that: the latest changes, the last one first.
    pub path_changes: Vec<PathChange>,
    /// Addresses we know of.
    pub targets: Vec<SocketAddr>,
    /// First handshake messages sent without answer, and for how long.
    pub dialing: Option<(u32, u64)>,
    /// Dial attempts (of several messages each) that failed since the peer last answered.
    pub failures: u32,
    /// Why the link last went down, and how long ago.
    pub last_down: Option<(u64, LinkDown)>,
    /// Age of the link's keys.
    pub link_age: Option<u64>,
    /// The link's keys are overdue, as new ones could not be agreed on: they end in so many ms.
    pub link_keys_end: Option<u64>,
    /// The same of the session's.
    pub session_keys_end: Option<u64>,
    /// The session ended so long ago, ms, because its keys were too old.
    pub keys_ended: Option<u64>,
    /// Two running nodes have the peer's key: where the one that spoke last and the other one were seen, and how long ago.
    pub twins: Option<([SocketAddr; 2], u64)>,
    /// How often the link's keys were replaced.
    pub link_rekeys: u64,
    /// How long ago the link last brought a frame.
    pub link_idle: Option<u64>,
    /// What passed over the link.
    pub link_totals: Totals,
    /// Age of the session's keys.
    pub session_age: Option<u64>,
    /// How long the session has been up, over all its keys.
    pub session_up: Option<u64>,
    /// How often the session's keys were replaced.
    pub session_rekeys: u64,
    /// What passed in the session.
    pub session_totals: Totals,
    /// What data of the session goes in, while it is up.
    pub frames: Frames,
    /// Data goes in fast frames or not at all.
    pub require_fast: bool,
    /// The peer reads packets with all of their header in fast frames: those of networks.
    pub reads_full: bool,
    /// It does go in fast frames now.
    pub fast: bool,
    /// Packets wait for the session, and for how long.
    pub waiting: Option<u64>,
    /// How well the link does, while it is up. Data in fast frames is measured in the session alone, and that is shown
    /// here too as long as it goes straight over the link.
    pub link_quality: Quality,
    /// The size of fast frames, while data goes in them.
    pub path_size: Option<KnownSize>,
    /// The largest UDP payload that the session sends in FIPS frames, if its path was ever heard of.
    pub path_mtu_out: Option<u16>,
    /// The smallest link on the way to us, UDP payload, as the session's last frame told.
    pub path_mtu_in: Option<u16>,
    /// How well the session does, while it is up.
    pub session_quality: Quality,
}

/// When keys of this age end, if they are overdue.
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
        let targets = link.targets();
        let path = peer.paths.path();
        let look = Look::at(peer, config, now);
        Self {
            key: peer.key,
            state: look.state,
            since: now.saturating_sub(peer.progress.since(now, &look)),
            standing: look.standing,
            standing_since: now.saturating_sub(peer.progress.standing_since(now, &look)),
            trouble: look
                .trouble
                .map(|(trouble, since)| (trouble, now.saturating_sub(since))),
            packet_in: session.passing.came().map(|at| now.saturating_sub(at)),
            packet_out: session.passing.went().map(|at| now.saturating_sub(at)),
            told: (session.passing.told() > 0).then(|| now.saturating_sub(session.passing.told())),
            narrow: session.is_narrow(),
            path,
            path_changes: peer.paths.changes(now),
            targets,
            dialing: link.dialing(now),
            failures: link.failures,
            last_down: link.last_down.map(|(at, why)| (now.saturating_sub(at), why)),
            link_age: link.age(now),
            link_keys_end: keys_end(link.age(now), config),
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
