//! The part of the status about each peer: its state, its link, its session.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_core::{HintSource, LinkStatus, Traffic};

use super::{PeerState, SizeSource, Standing, Trouble, Word};

/// One peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PeerStatus {
    /// Its public key.
    pub npub: String,
    /// Its configured name.
    pub name: Option<String>,
    /// Its IPv6 address in the mesh.
    pub address: Ipv6Addr,
    /// Its state.
    pub state: PeerState,
    /// The reason for the state, as text for the user: "handshake sent 3 times, no answer from
    /// 192.0.2.2:2121".
    pub why: String,
    /// Its host names in the configuration, if it has any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostStatus>,
    /// How long it has been in this state.
    pub since_s: u64,
    /// Seconds since something authentic of it was last received; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_s: Option<u64>,
    /// Seconds for which it has been asked whether it is there without an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered_s: Option<u64>,
    /// The state in fewer terms, for the user.
    #[serde(default)]
    pub standing: Standing,
    /// How long it has had this standing.
    #[serde(default)]
    pub standing_s: u64,
    /// How long it has been connected or active, without a sign of the contrary; `None` while it is neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub online_s: Option<u64>,
    /// The reason why packets do not pass although there is a link or a session; also `None` if
    /// nothing was sent.
    #[serde(default)]
    pub trouble: Option<TroubleStatus>,
    /// Two running nodes have the peer's key, if that was noticed within the last 10 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clones: Option<ClonesStatus>,
    /// The path of packets, if there is one.
    pub path: Option<PathStatus>,
    /// Where the address of a direct path came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<Word<HintSource>>,
    /// What is known of each path to it, the one that its link uses first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<KnownPathStatus>,
    /// The latest changes of the path, at most eight, the last one first.
    #[serde(default)]
    pub path_changes: Vec<PathChangeStatus>,
    /// The link to it, if it is a neighbour.
    pub link: Option<LinkStatus>,
    /// The end-to-end session with it.
    pub session: Option<SessionStatus>,
    /// The private networks that it and this node are members of, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub member_of: Vec<String>,
    /// The subnets behind it, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routes: Option<RoutesStatus>,
}

/// A host name of a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostStatus {
    /// The name and the port, as `home.example.org:2121`.
    pub name: String,
    /// The addresses that it has, in the order in which they are tried.
    pub addresses: Vec<IpAddr>,
    /// Why the last question failed; `addresses` are then those of the answer before.
    pub error: Option<String>,
    /// Seconds until it is asked for again; `None` while a question is open.
    pub next_s: Option<u64>,
}

/// Two or more running nodes have one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClonesStatus {
    /// Their addresses: both addresses of a peer, the one that sent last first; for this node, the
    /// address of the other host.
    pub seen: Vec<SocketAddr>,
    /// Seconds since that was last noticed.
    pub ago_s: u64,
    /// The peer that reported it, if it is about this node; `None` if the other host itself
    /// contacted this node.
    #[serde(default)]
    pub told_by: Option<String>,
}

/// The fault that keeps packets from passing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TroubleStatus {
    /// The direction.
    pub kind: Word<Trouble>,
    /// Seconds without evidence of the contrary.
    pub for_s: u64,
}

/// The subnets behind a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RoutesStatus {
    /// The subnets, as `10.1.0.0/16`, in the order of the configuration.
    pub list: Vec<String>,
    /// Whether packets pass now: data goes in fast frames, the peer reads those of subnets, and
    /// there is a route.
    pub pass: bool,
    /// The reason why they pass or not, as text for the user.
    pub why: String,
    /// The subnets of `list` without a route: this host is in a subnet that has their addresses, or has a route to the
    /// same one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unrouted: Vec<String>,
    /// The reason for each of these, in the same order, as text for the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub obstacles: Vec<String>,
}

/// A neighbour that is not configured: this node forwards for it, and no IP packet passes between
/// the two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StrangerStatus {
    /// Its public key.
    pub npub: String,
    /// Its IPv6 address in the mesh.
    pub address: Ipv6Addr,
    /// The path of the link.
    pub path: Option<PathStatus>,
    /// How long the link has been up.
    pub since_s: u64,
    /// Smoothed round-trip time in milliseconds, once measured.
    pub rtt_ms: Option<f64>,
    /// Received over the link, authenticated.
    pub rx: Traffic,
    /// Sent over the link.
    pub tx: Traffic,
}

/// A node that is not configured, that tried to link, and that got no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnedAwayStatus {
    /// Its public key.
    pub npub: String,
    /// The source of its last handshake message.
    pub from: SocketAddr,
    /// Seconds since then.
    pub ago_s: u64,
    /// Number of its handshake messages.
    pub times: u64,
}

/// A path to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum PathStatus {
    /// A link to a UDP address of the peer.
    Direct {
        /// The peer's address and port.
        addr: SocketAddr,
    },
    /// Other nodes forward the packets. This node has no link with the peer.
    Relayed {
        /// The public key of the first node on the path, `npub1...`.
        via: String,
        /// The name of that node on this node.
        #[serde(default)]
        name: Option<String>,
    },
}

/// A change of the path to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathChangeStatus {
    /// Seconds since the change.
    pub ago_s: u64,
    /// Milliseconds since the change; 0 from a daemon that does not say.
    #[serde(default)]
    pub ago_ms: u64,
    /// The path from then on; `None` if there was none.
    pub path: Option<PathStatus>,
    /// The reason, as text for the user: "the link came up".
    pub why: String,
}

impl std::fmt::Display for PathStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Direct { addr } => write!(f, "direct {addr}"),
            // A prefix of the key that is long enough to distinguish neighbours.
            Self::Relayed { name: Some(name), .. } => write!(f, "relayed by {name}"),
            Self::Relayed { via, name: None } => write!(f, "relayed by {}...", via.get(..16).unwrap_or(via)),
        }
    }
}

/// What is known of a path to a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KnownPathStatus {
    /// The peer's address and port.
    pub addr: SocketAddr,
    /// The address of this host that it leads from, if the peer has asked one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<IpAddr>,
    /// The interface of this host that it leads through, if this host has several uplinks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The source of the address.
    pub source: Word<HintSource>,
    /// Seconds since that source named it.
    pub named_s: u64,
    /// Seconds since the peer last answered there, or sent something on the path in use; `None`: never in
    /// this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proven_s: Option<u64>,
    /// Whether the link uses it.
    pub used: bool,
    /// Whether the peer answered there when it was last probed. Of the path in use: whether the peer is not
    /// silent.
    pub works: bool,
    /// The shortest round trip when it was last probed, in milliseconds.
    pub rtt_ms: Option<u64>,
    /// The share of probes without an answer when it last answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// The largest UDP payload of fast frames that was proven to pass there, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<u16>,
}

/// The frames that carry the data of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FramesStatus {
    /// The kind of frames.
    pub kind: FramesKind,
    /// The cipher of fast frames, if both ends agreed on one: `AES-256-GCM`, `ChaCha20-Poly1305`.
    pub suite: Option<String>,
    /// The reason for this kind, as text for the user.
    pub why: String,
    /// Data is sent in fast frames or not at all (`fast.require`, or the peer's `require_fast`):
    /// while `kind` is another, it waits and is finally dropped.
    #[serde(default)]
    pub required: bool,
    /// Since when the peer does not use fast frames although it did before, in this run of the
    /// daemon or an earlier one: seconds since 1970 (UTC).
    #[serde(default)]
    pub downgraded_unix: Option<u64>,
}

/// The kind of frames that carry data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FramesKind {
    /// Fast frames, directly to the peer.
    Fast,
    /// Fast frames, relayed by other nodes.
    Relayed,
    /// FIPS frames.
    Fips,
    /// FIPS frames, although both ends agreed on fast frames or used them before.
    Downgraded,
}

/// The path MTU of the direct path to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathSizeStatus {
    /// The largest UDP payload sent.
    pub bytes: u16,
    /// The source of the value.
    pub known: Word<SizeSource>,
    /// Whether larger sizes are being probed now.
    pub searching: bool,
    /// Not even this size passes: the path MTU is below the 1,280 bytes that weft needs.
    #[serde(default)]
    pub narrow: bool,
}

/// A session: keys shared end to end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionStatus {
    /// Its age, its traffic and its quality.
    #[serde(flatten)]
    pub core: weft_core::SessionStatus,
    /// The version of weft that the peer claims, if it announces one. FIPS nodes announce none, nor
    /// is one known while `fast.enabled` is off at an end.
    #[serde(default)]
    pub version: Option<String>,
    /// The frames that carry its data.
    #[serde(default)]
    pub frames: Option<FramesStatus>,
    /// The largest IP packet that is sent in one frame, in bytes.
    pub max_inner: u32,
    /// The bound of fast frames to the peer; `None` while data is sent in FIPS frames, for which
    /// `path_mtu_out` is the bound.
    #[serde(default)]
    pub path_size: Option<PathSizeStatus>,
}
