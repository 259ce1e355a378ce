//! What the daemon tells about each peer: how far it has come, its link, its session.

use std::net::{Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};
/// One peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its public key.
    pub npub: String,
    /// Its configured name.
    pub name: Option<String>,
    /// Its IPv6 address in the mesh.
    pub address: Ipv6Addr,
    /// How far it has come.
    pub state: PeerState,
    /// The reason for the state, for people: "handshake sent 3 times, no answer from 192.0.2.2:2121".
    pub why: String,
    /// How long it has been in this state.
    pub since_s: u64,
    /// The same in fewer words, for people.
    #[serde(default)]
    pub standing: Standing,
    /// How long that has been so.
    #[serde(default)]
    pub standing_s: u64,
    /// What keeps packets from passing although there is a link or a session; none also where nothing was sent.
    #[serde(default)]
    pub trouble: Option<TroubleStatus>,
    /// Two running nodes have the peer's key, if that was noticed within the last 10 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clones: Option<ClonesStatus>,
    /// The way that packets take, if there is one.
    pub path: Option<PathStatus>,
    /// How it came to that path: the latest changes, at most eight, the last one first.
    #[serde(default)]
    pub path_changes: Vec<PathChangeStatus>,
    /// The link to it, if it is a neighbour.
    pub link: Option<LinkStatus>,
    /// The end-to-end session with it.
    pub session: Option<SessionStatus>,
    /// The networks behind it, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub networks: Option<NetworksStatus>,
}

/// Several running nodes have one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClonesStatus {
    /// Where: of a peer both, the one that spoke last first; of this node the other one.
    pub seen: Vec<SocketAddr>,
    /// Seconds since that was last noticed.
    pub ago_s: u64,
    /// The peer that says so, where it is about this node; none if the other machine itself came to this one.
    #[serde(default)]
    pub told_by: Option<String>,
}

/// Why packets do not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TroubleStatus {
    /// In which direction.
    pub kind: TroubleKind,
    /// For how long there has been no sign to the contrary.
    pub for_s: u64,
}

/// In which direction packets do not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TroubleKind {
    /// We send, and nothing authentic comes back.
    NothingComes,
    /// We send, frames of the peer come, and it reports that nothing of ours arrives.
    NothingArrives,
    /// Something that this version does not know.
    #[serde(other)]
    Other,
}

/// The networks behind a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworksStatus {
    /// Which, as `10.1.0.0/16`, in the order of the configuration.
    pub list: Vec<String>,
    /// Packets pass now: data goes in fast frames, the peer reads those of networks, and there is a route.
    pub pass: bool,
    /// Why they pass or not, for a person.
    pub why: String,
    /// Of those, the ones without a route, because datagrams to a peer would take it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unrouted: Vec<String>,
}

/// How far a peer has come. Each state includes the ones before it, but for `payload`: a peer is
/// reachable only while payload passes, whatever else is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerState {
    /// Configured, and nothing is under way.
    Known,
    /// A handshake is under way.
    Linking,
    /// The link is up, the session is not.
    Linked,
    /// The session is up. Within the last 10 s no IP packet passed, or in one direction only; `trouble` says whether
    /// something is wrong, `why` what is known.
    Session,
    /// IP packets passed within the last 10 s in both directions, and nothing speaks against their passing now.
    Payload,
}

impl PeerState {
    /// As in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::Linking => "linking",
            Self::Linked => "linked",
            Self::Session => "session",
            Self::Payload => "payload",
        }
    }
}

/// Whether a peer can be reached, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// No address is known, or a whole dial attempt (12 s) went without an answer.
    #[default]
    Offline,
    /// Handshakes are under way, or packets do not pass at present and the node is at work on it.
    Connecting,
    /// Packets can pass; lately none did, or in one direction only.
    Connected,
    /// IP packets passed within the last 10 s, in both directions.
    Active,
}

impl Standing {
    /// As in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Offline => "offline",
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Active => "active",
        }
    }
}

/// A neighbour that is not configured: it is carried for, and no IP packet passes between it and
/// this node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StrangerStatus {
    /// Its public key.
    pub npub: String,
    /// Its IPv6 address in the mesh.
    pub address: Ipv6Addr,
    /// Where the link goes.
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

/// A node that asked to link, is not configured and got no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnedAwayStatus {
    /// Its public key.
    pub npub: String,
    /// Where its last handshake message came from.
    pub from: SocketAddr,
    /// Seconds since then.
    pub ago_s: u64,
    /// Handshake messages of it.
    pub times: u64,
}

/// One way to reach a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum PathStatus {
    /// Straight to a UDP address.
    Direct {
        /// The peer's address and port.
        addr: SocketAddr,
    },
    /// Through other nodes: there is no link to the peer.
    Relayed {
        /// The first of them, `npub1...`.
        via: String,
        /// Its configured name.
        #[serde(default)]
        name: Option<String>,
    },
}

/// A change of the way to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathChangeStatus {
    /// How long ago.
    pub ago_s: u64,
    /// The way from then on; none: there was none.
    pub path: Option<PathStatus>,
    /// Why, for people: "the link came up".
    pub why: String,
}

impl std::fmt::Display for PathStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Direct { addr } => write!(f, "direct {addr}"),
            // Enough of a key to tell neighbours apart.
            Self::Relayed { name: Some(name), .. } => write!(f, "relayed by {name}"),
            Self::Relayed { via, name: None } => write!(f, "relayed by {}...", via.get(..16).unwrap_or(via)),
        }
    }
}

/// Packets and bytes one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes, of frames for a link and of IP packets for a session.
    pub bytes: u64,
}

/// How well a link or a session does. `out` is what we send, as the other side reports it; `in` is
/// what we receive. What has not been measured yet is none: nothing is measured without traffic but
/// a link that has just come up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QualityStatus {
    /// Smoothed round-trip time in milliseconds. Behind it are clocks of whole milliseconds.
    pub rtt_ms: Option<f64>,
    /// Its mean variation in milliseconds.
    pub rtt_variation_ms: Option<f64>,
    /// Share of the frames that were lost lately, 0 to 1.
    pub loss_out: Option<f64>,
    /// The same, of those to us.
    pub loss_in: Option<f64>,
    /// Interarrival jitter (RFC 3550) in milliseconds.
    pub jitter_out_ms: Option<f64>,
    /// The same, of those to us.
    pub jitter_in_ms: Option<f64>,
    /// The longest run of lost frames in the last report.
    pub burst_out: Option<u32>,
    /// How the one-way delay changed during the last report, in microseconds a second: above zero, a
    /// queue fills.
    pub delay_trend_out_us_s: Option<i32>,
    /// Frames, of all, that came behind a later one.
    pub reordered_out: Option<u64>,
    /// The same, of those to us.
    pub reordered_in: u64,
    /// Frames, of all, that were marked as having experienced congestion.
    pub ce_out: Option<u64>,
    /// The same, of those to us.
    pub ce_in: u64,
    /// Expected transmissions: 1 over the product of what arrives each way.
    pub etx: Option<f64>,
    /// What the link costs in the choice of ways: ETX times (1 + round trip / 100 ms).
    pub cost: Option<f64>,
    /// Seconds since the last report of the other side.
    pub report_age_s: Option<u64>,
}

/// A link: keys shared with a neighbour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Age of the keys in use.
    pub epoch_age_s: u64,
    /// How often the keys were renewed.
    pub rekeys: u64,
    /// The keys are overdue, as no handshake for new ones succeeds: they end in so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_end_s: Option<u64>,
    /// Smoothed round-trip time in milliseconds, once measured: `quality.rtt_ms`.
    pub rtt_ms: Option<f64>,
    /// How well it does.
    #[serde(default)]
    pub quality: QualityStatus,
    /// Received, authenticated.
    pub rx: Traffic,
    /// Sent.
    pub tx: Traffic,
    /// Seconds since the last authentic frame.
    pub last_rx_s: Option<u64>,
}

/// What the data of a session goes in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FramesStatus {
    /// Which frames.
    pub kind: FramesKind,
    /// The cipher of fast frames, if both ends agreed on one: `AES-256-GCM`, `ChaCha20-Poly1305`.
    pub suite: Option<String>,
    /// Why these and no others, for a person.
    pub why: String,
    /// Data goes in fast frames or not at all (`fast.require`, or the peer's `require_fast`): while `kind` is another, it
    /// waits and is dropped in the end.
    #[serde(default)]
    pub required: bool,
    /// The peer has been fast, in this run of the daemon or one before, and is not since then: seconds since 1970 (UTC).
    #[serde(default)]
    pub downgraded_unix: Option<u64>,
}

/// Which frames data goes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FramesKind {
    /// Fast frames, straight to the peer.
    Fast,
    /// Fast frames, through other nodes.
    Relayed,
    /// FIPS frames.
    Fips,
    /// FIPS frames, although both ends agreed on fast ones or have used them before.
    Downgraded,
}

/// What the direct path to a peer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathSizeStatus {
    /// The largest UDP payload sent.
    pub bytes: u16,
    /// How that is known.
    pub known: SizeKnown,
    /// Whether larger ones are being tried right now.
    pub searching: bool,
    /// Not even this passes: the path takes less than 1,280 bytes, which weft needs.
    #[serde(default)]
    pub narrow: bool,
}

/// How the size of a path is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SizeKnown {
    /// Every path takes it, and probes have not shown more.
    Assumed,
    /// Probes have shown that it passes, and nothing larger.
    Probed,
    /// `[udp] mtu` says so.
    Set,
    /// Something that this version does not know.
    #[serde(other)]
    Other,
}

/// A session: keys shared end to end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Age of the session, over all its keys.
    pub age_s: u64,
    /// How often the keys were renewed.
    pub rekeys: u64,
    /// The keys are overdue, as no handshake for new ones succeeds: they end in so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_end_s: Option<u64>,
    /// How well it does, end to end.
    #[serde(default)]
    pub quality: QualityStatus,
    /// Received, authenticated.
    pub rx: Traffic,
    /// Sent.
    pub tx: Traffic,
    /// Seconds since an IP packet last came.
    #[serde(default)]
    pub packet_in_s: Option<u64>,
    /// Seconds since one was last sent.
    #[serde(default)]
    pub packet_out_s: Option<u64>,
    /// Seconds since the peer last reported that something new of the session arrived.
    #[serde(default)]
    pub told_s: Option<u64>,
    /// What its data goes in.
    #[serde(default)]
    pub frames: Option<FramesStatus>,
    /// Packets that wait for the session.
    pub queued: u64,
    /// Largest IP packet that passes whole, in one frame, in bytes.
    pub max_inner: u32,
    /// What fast frames to the peer are bounded by; none while data goes in FIPS frames, which have `path_mtu_out`.
    #[serde(default)]
    pub path_size: Option<PathSizeStatus>,
    /// Largest UDP payload that the path to the peer takes, in bytes, as far as it was told.
    #[serde(default)]
    pub path_mtu_out: Option<u16>,
    /// The same, of the path to us.
    #[serde(default)]
    pub path_mtu_in: Option<u16>,
}
