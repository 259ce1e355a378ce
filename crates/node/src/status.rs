//! What the daemon tells about itself: the documents behind `--json`, and behind every control answer.
//!
//! Each begins with `schema`, a name and a number. Within one number fields are added, never changed
//! or removed; whoever reads a document ignores fields that it does not know. Times are seconds,
//! sizes bytes, unless the name says otherwise. Ages and totals count from the start of what they
//! describe and are whole numbers.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A document with a schema.
pub trait Document: Serialize + DeserializeOwned {
    /// Its `schema` field, such as `weft.status/1`.
    const SCHEMA: &'static str;
}

macro_rules! documents {
    ($($document:ty => $schema:literal),* $(,)?) => {
        $(impl Document for $document {
            const SCHEMA: &'static str = $schema;
        })*
    };
}

documents! {
    Status => "weft.status/1",
    Peers => "weft.peers/1",
    Pong => "weft.ping/1",
    Version => "weft.version/1",
    Stopping => "weft.down/1",
    crate::trace::TraceDocument => "weft.trace/1",
}

/// The answer to `status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// [`Document::SCHEMA`]
    pub schema: String,
    /// The node itself.
    pub node: NodeStatus,
    /// Every configured peer, in the order of the configuration.
    pub peers: Vec<PeerStatus>,
    /// Totals since the start, by name: what was dropped and why, back-pressure, offloads in use and
    /// fallen back from.
    pub counters: BTreeMap<String, u64>,
}

/// The answer to `peers`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peers {
    /// [`Document::SCHEMA`]
    pub schema: String,
    /// All configured peers, or the one asked for.
    pub peers: Vec<PeerStatus>,
}

/// The node itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its public key.
    pub npub: String,
    /// Its node address: 32 hexadecimal digits.
    pub node_addr: String,
    /// Its IPv6 address in the mesh, in `fd00::/8`.
    pub address: Ipv6Addr,
    /// Version of the running program.
    pub version: String,
    /// The commit it was built from, or `unknown`.
    pub commit: String,
    /// Its process.
    #[serde(default)]
    pub pid: Option<u32>,
    /// When it started: seconds since 1970 (UTC).
    pub started_unix: u64,
    /// Seconds since it started, time asleep included.
    pub uptime_s: u64,
    /// The interface for IP packets.
    pub tun: TunStatus,
    /// What the kernel does in the daemon's place; none from a daemon that cannot be told to do without.
    #[serde(default)]
    pub offload: Option<OffloadStatus>,
    /// The threads that move packets; none from a daemon that has one.
    #[serde(default)]
    pub lanes: Option<LanesStatus>,
    /// The addresses in use for UDP, with the ports that the system chose.
    pub listen: Vec<SocketAddr>,
    /// Its part in the mesh; none where `[mesh] enabled` is off.
    #[serde(default)]
    pub mesh: Option<MeshStatus>,
    /// How names below `.fips` are answered; none from a daemon that has no names.
    pub dns: Option<DnsStatus>,
    /// Whether others may run tests with it; none from a daemon that knows no tests.
    #[serde(default)]
    pub perf: Option<PerfStatus>,
    /// The stages of the packet path are being measured (`weft trace`), which takes time.
    #[serde(default)]
    pub traced: bool,
    /// Memory in use (resident set), in bytes.
    pub rss_bytes: u64,
    /// Processor time used, user and system, in seconds.
    pub cpu_s: f64,
}

/// The threads that move packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanesStatus {
    /// How many are wanted: as configured, or by the number of processors.
    pub wanted: u8,
    /// They are not configured.
    pub auto: bool,
    /// While they move bulk they go before other programs (`prefer_lanes`): `refused` where one may not, or somebody gave it
    /// another nice value; none from a daemon whose threads never do.
    #[serde(default)]
    pub preferred: Option<Offload>,
    /// Why one moves all packets although more are wanted.
    pub refused: Option<String>,
    /// What each did since the start, the first one first; as many as run. `counters` has the sums.
    pub each: Vec<BTreeMap<String, u64>>,
}

/// The interface for IP packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunStatus {
    /// Its name.
    pub name: String,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// The offloads that the kernel accepted, such as `tso4`; empty: one packet per read and write.
    pub offloads: Vec<String>,
    /// Its further addresses, as `10.1.0.1/24` (`[tun] addresses`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Networks behind this node, as `10.1.0.0/16` (`[tun] networks`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<String>,
}

/// What the kernel does in the daemon's place, a few calls for many packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffloadStatus {
    /// Packets cross the interface unsplit and without checksums (`[tun] offload`); which kinds is in
    /// [`TunStatus::offloads`].
    pub tun: Offload,
    /// Datagrams leave in one call (`[udp] batch`, `UDP_SEGMENT`).
    pub gso: Offload,
    /// Datagrams that arrive are joined (`[udp] gro`, `UDP_GRO`).
    pub gro: Offload,
    /// Sockets that receive have others beside them to send by.
    #[serde(default)]
    pub senders: Option<Offload>,
    /// Datagrams that leave in one call at most.
    pub batch: usize,
}

/// Whether the kernel does something for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Offload {
    /// It is.
    On,
    /// Switched off in the configuration.
    Off,
    /// The kernel, or a device, refuses.
    Refused,
    /// Something that this version does not know.
    #[serde(other)]
    Other,
}

impl Offload {
    /// What becomes of a wish.
    #[must_use]
    pub fn new(wanted: bool, granted: bool) -> Self {
        match (wanted, granted) {
            (false, _) => Self::Off,
            (true, false) => Self::Refused,
            (true, true) => Self::On,
        }
    }
}

/// A node's part in the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshStatus {
    /// Node address of the tree's root: 32 hexadecimal digits.
    pub root: String,
    /// The neighbour that leads there, `npub1...`; none: this node is the root.
    pub parent: Option<String>,
    /// Hops to the root.
    pub depth: usize,
    /// Nodes with a link.
    pub neighbours: usize,
    /// Of these, nodes that are not configured.
    pub strangers: usize,
    /// Whether it carries for others.
    pub transit: bool,
    /// Nodes whose place in the tree is known.
    pub known: usize,
    /// Look-ups that were answered.
    pub lookups_found: u64,
    /// Look-ups that were not.
    pub lookups_failed: u64,
    /// Memory for what others told about the mesh, in bytes.
    pub state_bytes: usize,
}

/// Names: `NAME.fips` for configured peers, `npub1....fips` for everybody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsStatus {
    /// How far they reach.
    pub state: DnsState,
    /// The reason, for people: "answered on 127.0.0.1:5354; set up in systemd-resolved".
    pub why: String,
    /// The addresses that answer, for UDP and TCP.
    pub listen: Vec<SocketAddr>,
}

/// How far names reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DnsState {
    /// Turned off.
    Off,
    /// No address could be bound.
    Failed,
    /// Whoever asks one of our addresses is answered; the system's programs do not.
    Local,
    /// The system's resolver asks us, so names work in every program.
    System,
    /// Something that this version does not know.
    #[serde(other)]
    Other,
}

/// Tests that others may run with this node (`weft perf`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerfStatus {
    /// Whether they may.
    pub state: PerfState,
    /// From whom they are taken, or why not, for people.
    pub why: String,
    /// Where they are taken.
    pub listen: Option<SocketAddr>,
}

/// Whether others may run tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PerfState {
    /// Turned off.
    Off,
    /// It was to listen, and cannot.
    Failed,
    /// Tests are taken.
    Listening,
    /// Something that this version does not know.
    #[serde(other)]
    Other,
}

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
    /// The session is up, no payload has come in the last 30 s.
    Session,
    /// Authenticated payload came in the last 30 s.
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
    /// How well it does, end to end.
    #[serde(default)]
    pub quality: QualityStatus,
    /// Received, authenticated.
    pub rx: Traffic,
    /// Sent.
    pub tx: Traffic,
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

/// The answer to `ping`: one echo.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pong {
    /// [`Document::SCHEMA`]
    pub schema: String,
    /// The peer's public key.
    pub npub: String,
    /// The peer's configured name.
    pub name: Option<String>,
    /// The peer's IPv6 address in the mesh.
    pub address: Ipv6Addr,
    /// Round-trip time in milliseconds; none: no answer came in time.
    pub rtt_ms: Option<f64>,
    /// The way that the echo took.
    pub path: Option<PathStatus>,
    /// Why no answer came, for people.
    pub why: Option<String>,
}

/// The answer to `version`, from the daemon or from the command itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// [`Document::SCHEMA`]
    pub schema: String,
    /// Version of the package.
    pub version: String,
    /// The commit it was built from, or `unknown`.
    pub commit: String,
    /// `linux`, and so on.
    pub os: String,
    /// `x86_64`, and so on.
    pub arch: String,
}

impl Version {
    /// This build.
    #[must_use]
    pub fn of_this_build() -> Self {
        Self {
            schema: Self::SCHEMA.to_owned(),
            version: crate::VERSION.to_owned(),
            commit: crate::COMMIT.to_owned(),
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
        }
    }
}

/// The answer to `down`: the daemon has begun to stop. The connection closes when it is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopping {
    /// [`Document::SCHEMA`]
    pub schema: String,
    /// The daemon's process.
    pub pid: u32,
}

impl Stopping {
    /// This process.
    #[must_use]
    pub fn this_process() -> Self {
        Self {
            schema: Self::SCHEMA.to_owned(),
            pid: std::process::id(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn quality() -> serde_json::Value {
        json!({
            "rtt_ms": 0.4, "rtt_variation_ms": 0.2, "loss_out": 0.01, "loss_in": 0.0, "jitter_out_ms": 0.3,
            "jitter_in_ms": null, "burst_out": 2, "delay_trend_out_us_s": -5, "reordered_out": 1,
            "reordered_in": 0, "ce_out": 0, "ce_in": 3, "etx": 1.01, "cost": 1.015, "report_age_s": 1
        })
    }

    fn bob() -> serde_json::Value {
        json!({
            "npub": "npub1x", "name": "bob", "address": "fd00::1", "state": "payload",
            "why": "payload 2 s ago", "since_s": 7,
            "path": {"kind": "direct", "addr": "192.0.2.2:2121"},
            "path_changes": [
                {"ago_s": 3, "path": {"kind": "direct", "addr": "192.0.2.2:2121"}, "why": "the link came up"},
                {"ago_s": 5, "path": {"kind": "relayed", "via": "npub1z", "name": null}, "why": "a way was found"}
            ],
            "link": {
                "epoch_age_s": 1, "rekeys": 2, "rtt_ms": 0.4, "quality": quality(),
                "rx": {"packets": 1, "bytes": 2}, "tx": {"packets": 3, "bytes": 4}, "last_rx_s": 0
            },
            "session": {
                "age_s": 9, "rekeys": 1, "quality": quality(), "rx": {"packets": 1, "bytes": 2},
                "tx": {"packets": 3, "bytes": 4}, "queued": 0, "max_inner": 1203,
                "frames": {"kind": "fast", "suite": "AES-256-GCM", "why": "both ends agreed",
                    "required": false, "downgraded_unix": null},
                "path_size": {"bytes": 1472, "known": "probed", "searching": false},
                "path_mtu_out": 1280, "path_mtu_in": null
            },
        })
    }

    /// The names and forms in the JSON are a promise to scripts: this fails when one changes.
    #[test]
    fn status_as_documented() {
        let document = json!({
            "schema": "weft.status/1",
            "node": {
                "npub": "npub1x", "node_addr": "00", "address": "fd00::2", "version": "0.1.0",
                "commit": "abc", "pid": 7, "started_unix": 1, "uptime_s": 2,
                "tun": {"name": "weft0", "mtu": 1280, "offloads": ["tso4"]},
                "offload": {"tun": "on", "gso": "refused", "gro": "off", "senders": "on", "batch": 64},
                "mesh": {
                    "root": "00", "parent": "npub1z", "depth": 2, "neighbours": 3, "strangers": 1,
                    "transit": true, "known": 5, "lookups_found": 7, "lookups_failed": 1, "state_bytes": 9000
                },
                "lanes": {
                    "wanted": 2, "auto": true, "preferred": "on", "refused": null,
                    "each": [{"fast_tx": 5, "handed_in": 0}, {"fast_tx": 6, "handed_in": 0}]
                },
                "listen": ["[::]:2121"],
                "dns": {"state": "local", "why": "answered on [::1]:5354", "listen": ["[::1]:5354"]},
                "perf": {"state": "listening", "why": "taken from configured peers", "listen": "[fd00::2]:2125"},
                "traced": false, "rss_bytes": 3, "cpu_s": 0.5
            },
            "peers": [
                bob(),
                {
                    "npub": "npub1y", "name": null, "address": "fd00::3", "state": "known",
                    "why": "no address known; waiting for it to dial", "since_s": 7,
                    "path": null, "path_changes": [], "link": null, "session": null
                }
            ],
            "counters": {"rx_unknown": 5}
        });
        let status: Status = serde_json::from_value(document.clone()).unwrap();
        assert_eq!(serde_json::to_value(&status).unwrap(), document);
    }

    #[test]
    fn readers_ignore_fields_of_later_versions() {
        let mut later = bob();
        later["colour"] = json!("red");
        assert!(serde_json::from_value::<PeerStatus>(later).is_ok());
    }

    #[test]
    fn what_earlier_daemons_do_not_say_is_not_measured() {
        let mut earlier = bob();
        earlier["link"].as_object_mut().unwrap().remove("quality");
        let peer: PeerStatus = serde_json::from_value(earlier).unwrap();
        assert_eq!(peer.link.unwrap().quality, QualityStatus::default());
    }

    #[test]
    fn states_are_spelled_one_way() {
        for state in [
            PeerState::Known,
            PeerState::Linking,
            PeerState::Linked,
            PeerState::Session,
            PeerState::Payload,
        ] {
            assert_eq!(serde_json::to_value(state).unwrap(), json!(state.as_str()));
        }
    }
}
