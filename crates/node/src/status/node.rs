//! What the daemon tells about the node itself.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{ClonesStatus, RightsStatus};

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
    /// The configuration file; none from a daemon that does not tell.
    #[serde(default)]
    pub config: Option<PathBuf>,
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
    /// What the daemon may do to the system; none from a daemon that does not tell.
    #[serde(default)]
    pub rights: Option<RightsStatus>,
    /// Another machine that runs with this node's key, if one was noticed within the last 10 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clones: Option<ClonesStatus>,
    /// The stages of the packet path are being measured (`weft trace`), which takes time.
    #[serde(default)]
    pub traced: bool,
    /// Memory in use (resident set), in bytes.
    pub rss_bytes: u64,
    /// CPU time used, user and system, in seconds.
    pub cpu_s: f64,
}

/// The threads that move packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanesStatus {
    /// How many are wanted: as configured, or by the number of processors.
    pub wanted: u8,
    /// They are not configured.
    pub auto: bool,
    /// While they move bulk they go before other programs (`prefer_lanes`): `refused` if one may not, or was given another
    /// nice value; none from a daemon whose threads never do.
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

/// Names: `NAME.fips` for configured peers, `npub1....fips` for every node.
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
    /// Requests to our addresses are answered; the system's programs do not ask there.
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
