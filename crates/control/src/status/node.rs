//! The part of the status about the node itself.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_core::MeshStatus;
use weft_host::dns::DnsStatus;
use weft_host::faults::{Fault, Skipped};

use super::{ClonesStatus, MappingStatus, NostrRelayStatus, RightsStatus, StunStatus};

/// The node itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// Its process ID.
    #[serde(default)]
    pub pid: Option<u32>,
    /// When it started: seconds since 1970 (UTC).
    pub started_unix: u64,
    /// Seconds since it started, suspended time included.
    pub uptime_s: u64,
    /// The interface for IP packets.
    pub tun: TunStatus,
    /// The offloads to the kernel; `None` from a daemon that cannot disable them.
    #[serde(default)]
    pub offload: Option<OffloadStatus>,
    /// The threads that move packets; `None` from a daemon that has one.
    #[serde(default)]
    pub lanes: Option<LanesStatus>,
    /// The configuration file; `None` from a daemon that does not report it.
    #[serde(default)]
    pub config: Option<PathBuf>,
    /// Settings of that file that take effect when the daemon starts again, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_start: Vec<String>,
    /// Seconds until the last change of that file is taken back unless it is confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_s: Option<u64>,
    /// The addresses in use for UDP, with the ports that the system chose.
    pub listen: Vec<SocketAddr>,
    /// Its part in the mesh; `None` if `[mesh] enabled` is off.
    #[serde(default)]
    pub mesh: Option<MeshStatus>,
    /// How names below `.fips` are answered; `None` from a daemon without names.
    pub dns: Option<DnsStatus>,
    /// Whether other nodes may run tests with it; `None` from a daemon without tests.
    #[serde(default)]
    pub perf: Option<PerfStatus>,
    /// The rights of the daemon; `None` from a daemon that does not report them.
    #[serde(default)]
    pub rights: Option<RightsStatus>,
    /// The exit of this node; `None` if none is set (`tun.exit`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ExitStatus>,
    /// This node as exit of others; `None` unless it offers that (`tun.advertise_exit`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serves: Option<ServesStatus>,
    /// What keeps packets from passing on this host; `None` if that was not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<FaultsStatus>,
    /// What the STUN servers of the configuration say (`reach.stun`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stun: Vec<StunStatus>,
    /// The Nostr relays of the configuration (`nostr.relays`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nostr_relays: Vec<NostrRelayStatus>,
    /// The port that the gateway maps; `None` from a daemon that does not ask for one.
    #[serde(default)]
    pub port_mapping: Option<MappingStatus>,
    /// Another host that runs with this node's key, if one was noticed within the last 10 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clones: Option<ClonesStatus>,
    /// Whether the stages of the packet path are being measured (`weft trace`), which takes time.
    #[serde(default)]
    pub traced: bool,
    /// Memory in use (resident set), in bytes.
    pub rss_bytes: u64,
    /// CPU time used, user and system, in seconds.
    pub cpu_s: f64,
}

/// The member by which this node sends packets to all addresses that no member and no approved route
/// has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExitStatus {
    /// The member as the configuration names it: its name, npub or address.
    pub exit: String,
    /// Its public key; `None` if no member is named like this.
    pub npub: Option<String>,
    /// Whether packets that cannot go by the exit are dropped.
    pub strict: bool,
    /// Whether the subnets that this host is in are reached without the exit.
    pub lan: bool,
    /// Whether connections that come in by another interface are answered there.
    pub inbound: bool,
    /// Whether it forwards IPv4.
    pub ipv4: bool,
    /// Whether it forwards IPv6.
    pub ipv6: bool,
    /// Whether the system leads packets to the exit. If not, they leave as they do without weft.
    pub used: bool,
    /// Whether packets pass by the exit now, as far as this node knows.
    pub pass: bool,
    /// The reason, as text for the user.
    pub why: String,
    /// Milliseconds since the exit has looked whether it forwards, if it has said so within a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_ms: Option<u64>,
}

/// What keeps packets from passing on this host, although weft has set up all that is its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FaultsStatus {
    /// Milliseconds since the look.
    pub age_ms: u64,
    /// Each fault.
    pub found: Vec<Fault>,
    /// What was not looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
}

/// A node as exit of others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServesStatus {
    /// Whether it forwards IPv4.
    pub ipv4: bool,
    /// Whether it forwards IPv6.
    pub ipv6: bool,
    /// The reason, as text for the user.
    pub why: String,
}

/// The threads that move packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LanesStatus {
    /// Their wanted number: as configured, or by the number of processors.
    pub wanted: u8,
    /// True if the number is not configured.
    pub auto: bool,
    /// While they move bulk data they take precedence over other programs (`prefer_lanes`):
    /// `refused` if one may not, or was given another nice value; `None` from a daemon whose
    /// threads never do.
    #[serde(default)]
    pub preferred: Option<Offload>,
    /// The reason why one lane moves all packets although more are wanted.
    pub refused: Option<String>,
    /// The counters of each lane since the start, the first one first; only lanes that run.
    /// `counters` has the sums.
    pub each: Vec<BTreeMap<String, u64>>,
}

/// The interface for IP packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TunStatus {
    /// Its name.
    pub name: String,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// The offloads that the kernel accepted, such as `tso4`; if empty, each read or write moves
    /// one packet.
    pub offloads: Vec<String>,
    /// Its further addresses, as `10.1.0.1/24` (`[tun] addresses`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Subnets behind this node, as `10.1.0.0/16` (`[tun] routes`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<String>,
    /// What the interface lacks at this moment, as `the route to fd00::/8`: read back from the kernel
    /// for this document.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
    /// Why that is so, or has been so again and again within the last minute: another program removes
    /// it, or the system refuses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alarm: Option<String>,
}

/// The offloads to the kernel: many packets in few calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OffloadStatus {
    /// Super-packets cross the interface unsplit and without checksums (`[tun] offload`);
    /// [`TunStatus::offloads`] has the kinds.
    pub tun: Offload,
    /// Several datagrams are sent in one call (`[udp] batch`, `UDP_SEGMENT`).
    pub gso: Offload,
    /// Received datagrams are coalesced (`[udp] gro`, `UDP_GRO`).
    pub gro: Offload,
    /// Each receiving socket has another one beside it that sends.
    #[serde(default)]
    pub senders: Option<Offload>,
    /// Maximum number of datagrams sent in one call.
    pub batch: usize,
}

/// The state of an offload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OffloadState")]
#[serde(rename_all = "lowercase")]
pub enum Offload {
    /// In use.
    On,
    /// Disabled in the configuration.
    Off,
    /// Refused by the kernel or a device.
    Refused,
    /// A state that this version does not know.
    #[serde(other)]
    Other,
}

impl Offload {
    /// The state of an offload from the configuration and the answer of the system.
    #[must_use]
    pub fn new(wanted: bool, granted: bool) -> Self {
        match (wanted, granted) {
            (false, _) => Self::Off,
            (true, false) => Self::Refused,
            (true, true) => Self::On,
        }
    }
}

/// Tests that other nodes may run with this node (`weft perf`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PerfStatus {
    /// Whether they are accepted.
    pub state: PerfState,
    /// The nodes from which they are accepted, or the reason why not, as text for the user.
    pub why: String,
    /// The address on which they are accepted.
    pub listen: Option<SocketAddr>,
}

/// Whether other nodes may run tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PerfState {
    /// Disabled.
    Off,
    /// The socket cannot listen although tests are enabled.
    Failed,
    /// Tests are accepted.
    Listening,
    /// A state that this version does not know.
    #[serde(other)]
    Other,
}
