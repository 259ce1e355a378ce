//! The documents in the form for all users of the host: names, states and counters.
//!
//! They are types of their own, so that a new field of a document for owners is in none of them
//! until it is added here as well. They have no endpoint, no reason (its text names endpoints), no
//! path of a file, and no key of a node that is not configured.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Document, FramesKind, MemberRouteStatus, MemberStatus, NetworkList, NetworkState, NetworkStatus, NodeStatus,
    PathStatus, PeerState, PeerStatus, Peers, Pong, Standing, Status, Traffic, Version,
};

/// Whether `schema` is that of a document in the form for all users only.
#[must_use]
pub fn is_public(schema: &str) -> bool {
    schema.starts_with("weft.public-")
}

/// The answer to `status` for all users.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublicStatus {
    /// [`Document::SCHEMA`]
    pub schema: String,
    /// The node itself.
    pub node: PublicNode,
    /// Every configured peer, in the order of the configuration.
    pub peers: Vec<PublicPeer>,
    /// As in `weft.status/1`.
    pub counters: BTreeMap<String, u64>,
}

/// The answer to `peers` for all users.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublicPeers {
    /// [`Document::SCHEMA`]
    pub schema: String,
    /// All configured peers, or the requested one.
    pub peers: Vec<PublicPeer>,
}

/// The node itself, for all users.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublicNode {
    /// Its public key.
    pub npub: String,
    /// Its IPv6 address in the mesh, in `fd00::/8`.
    pub address: Ipv6Addr,
    /// Version of the running program.
    pub version: String,
    /// The commit it was built from, or `unknown`.
    pub commit: String,
    /// When it started: seconds since 1970 (UTC).
    pub started_unix: u64,
    /// Seconds since it started, suspended time included.
    pub uptime_s: u64,
    /// The name of its interface.
    pub interface: String,
    /// The MTU of its interface in bytes.
    pub mtu: u32,
    /// Nodes with a link; `None` if `[mesh] enabled` is off.
    pub neighbours: Option<usize>,
    /// Memory in use (resident set), in bytes.
    pub rss_bytes: u64,
    /// CPU time used, user and system, in seconds.
    pub cpu_s: f64,
}

/// One peer, for all users.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublicPeer {
    /// Its public key.
    pub npub: String,
    /// Its configured name.
    pub name: Option<String>,
    /// Its IPv6 address in the mesh.
    pub address: Ipv6Addr,
    /// Its state.
    pub state: PeerState,
    /// How long it has been in this state.
    pub since_s: u64,
    /// The state in fewer terms, for the user.
    pub standing: Standing,
    /// How long it has had this standing.
    pub standing_s: u64,
    /// How long it has been connected or active, without a sign of the contrary; `None` while it is neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub online_s: Option<u64>,
    /// The kind of the path of packets, if there is one.
    pub path: Option<PublicPath>,
    /// The frames that carry data, if there is a session.
    pub frames: Option<FramesKind>,
    /// Smoothed round-trip time in milliseconds, of the link or else of the session.
    pub rtt_ms: Option<f64>,
    /// Received, authenticated: over the link or else in the session.
    pub rx: Option<Traffic>,
    /// Sent, of the same.
    pub tx: Option<Traffic>,
}

/// The kind of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PublicPath {
    /// A link to the peer.
    Direct,
    /// Through other nodes.
    Relayed,
}

impl PublicPath {
    /// The word for it, the same as in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Relayed => "relayed",
        }
    }
}

impl From<&PathStatus> for PublicPath {
    fn from(path: &PathStatus) -> Self {
        match path {
            PathStatus::Direct { .. } => Self::Direct,
            PathStatus::Relayed { .. } => Self::Relayed,
        }
    }
}

impl From<&Status> for PublicStatus {
    fn from(status: &Status) -> Self {
        Self {
            schema: Self::SCHEMA.to_owned(),
            node: PublicNode::from(&status.node),
            peers: status.peers.iter().map(PublicPeer::from).collect(),
            counters: status.counters.clone(),
        }
    }
}

impl From<&Peers> for PublicPeers {
    fn from(peers: &Peers) -> Self {
        Self {
            schema: Self::SCHEMA.to_owned(),
            peers: peers.peers.iter().map(PublicPeer::from).collect(),
        }
    }
}

impl From<&NodeStatus> for PublicNode {
    fn from(node: &NodeStatus) -> Self {
        Self {
            npub: node.npub.clone(),
            address: node.address,
            version: node.version.clone(),
            commit: node.commit.clone(),
            started_unix: node.started_unix,
            uptime_s: node.uptime_s,
            interface: node.tun.name.clone(),
            mtu: node.tun.mtu,
            neighbours: node.mesh.as_ref().map(|mesh| mesh.neighbours),
            rss_bytes: node.rss_bytes,
            cpu_s: node.cpu_s,
        }
    }
}

impl From<&PeerStatus> for PublicPeer {
    fn from(peer: &PeerStatus) -> Self {
        let (link, session) = (peer.link.as_ref(), peer.session.as_ref());
        let session_core = session.map(|session| &session.core);
        let traffic = link
            .map(|link| (link.rx, link.tx))
            .or(session_core.map(|core| (core.rx, core.tx)));
        // The end-to-end round trip if other nodes are in between.
        let rtt_us = link
            .and_then(|link| link.rtt_us)
            .or(session_core.and_then(|core| core.quality.rtt_us));
        Self {
            npub: peer.npub.clone(),
            name: peer.name.clone(),
            address: peer.address,
            state: peer.state,
            since_s: peer.since_s,
            standing: peer.standing,
            standing_s: peer.standing_s,
            online_s: peer.online_s,
            path: peer.path.as_ref().map(PublicPath::from),
            frames: session.and_then(|session| Some(session.frames.as_ref()?.kind)),
            rtt_ms: rtt_us.map(|us| f64::from(us) / 1e3),
            rx: traffic.map(|(rx, _)| rx),
            tx: traffic.map(|(_, tx)| tx),
        }
    }
}

/// An echo in the form for all users: the path and the reason have endpoints.
pub(super) fn pong(pong: &Pong) -> Pong {
    Pong {
        schema: pong.schema.clone(),
        npub: pong.npub.clone(),
        name: pong.name.clone(),
        address: pong.address,
        rtt_ms: pong.rtt_ms,
        path: None,
        why: None,
        seq: None,
    }
}

/// The networks in the form for all users: names, addresses in the mesh, rules. What is said of an address outside it,
/// of a file, of an invite or of a request is for owners.
pub(super) fn networks(list: &NetworkList) -> NetworkList {
    NetworkList {
        schema: list.schema.clone(),
        networks: list.networks.iter().map(network).collect(),
        asked: Vec::new(),
        signed_again: Vec::new(),
        resigned: None,
        nvpn_request: None,
    }
}

fn network(network: &NetworkStatus) -> NetworkStatus {
    NetworkStatus {
        id: network.id.clone(),
        name: network.name.clone(),
        label: network.label.clone(),
        founded_with: network.founded_with.clone(),
        state: network.state,
        why: match network.state {
            NetworkState::Member | NetworkState::Removed | NetworkState::Leaving => network.why.clone(),
            NetworkState::Joining | NetworkState::Lost | NetworkState::Other => String::new(),
        },
        refused: network.refused,
        ipv4: network.ipv4,
        members: network.members.iter().map(member).collect(),
        invites: Vec::new(),
        rules: network.rules.clone(),
        default: network.default.clone(),
        routes: network.routes.iter().map(route).collect(),
        shadowed: network.shadowed.clone(),
        admins_outside: network.admins_outside.clone(),
        unsaved: None,
        writing: network.writing,
        asked_at: Vec::new(),
        numbered: network.numbered.clone(),
    }
}

fn member(member: &MemberStatus) -> MemberStatus {
    MemberStatus {
        npub: member.npub.clone(),
        name: member.name.clone(),
        address: member.address,
        ipv4: member.ipv4,
        unused: member.unused.clone(),
        admin: member.admin,
        successor: member.successor,
        own: member.own,
        tags: member.tags.clone(),
        standing: member.standing,
        heard_s: member.heard_s,
        nvpn: member.nvpn,
        sought: None,
    }
}

fn route(route: &MemberRouteStatus) -> MemberRouteStatus {
    MemberRouteStatus {
        subnet: route.subnet.clone(),
        exit: route.exit,
        npub: route.npub.clone(),
        name: route.name.clone(),
        own: route.own,
        offered: route.offered,
        approved: route.approved,
        used: route.used,
        why: String::new(),
    }
}

/// A version in the form for all users: all of it.
pub(super) fn version(version: &Version) -> Version {
    Version {
        schema: version.schema.clone(),
        version: version.version.clone(),
        commit: version.commit.clone(),
        os: version.os.clone(),
        arch: version.arch.clone(),
    }
}
