//! The settings, as values: one type for each section of the file, and their defaults.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use weft_core::ReportMode;
use weft_noise::PublicKey;
use weft_noise::fast::Suite;
use weft_packet::MAX_TRAIN_SEGMENTS;
use weft_perf::limits::Limits;
use weft_roster::rules::Rule;
use weft_wire::Subnet;
use weft_wire::subnet::{self, BadSubnet};

use super::{DEFAULT_DNS_PORT, DEFAULT_PAYLOAD, DEFAULT_PORT, LARGEST_PROBED};
use crate::host_name::PeerAddress;
use crate::log::{LogFilter, LogFormat};
use crate::peer::{NodeRef, PeerName};
use crate::relay::RelayUrl;

/// All settings, with defaults for those that are not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The file that it was read from; `None` for a configuration that is built in code.
    pub path: Option<PathBuf>,
    /// The secret key's file (`identity.key_file`), relative to the state directory unless
    /// absolute.
    pub key_file: PathBuf,
    /// Threads that move packets (`lanes`), 1 to 16; if `None`, [`Config::lanes`] decides.
    pub lanes: Option<u8>,
    /// Whether these threads take precedence over other programs while they move bulk data, if the
    /// system permits it (`prefer_lanes`).
    pub prefer_lanes: bool,
    /// `[udp]`
    pub udp: UdpConfig,
    /// `[tun]`
    pub tun: TunConfig,
    /// `[link]`
    pub link: LinkConfig,
    /// The age at which links and sessions are rekeyed (`rekey.interval_s`).
    pub rekey_interval: Duration,
    /// How long a session without data is kept (`session.idle_s`).
    pub session_idle: Duration,
    /// `[mesh]`
    pub mesh: MeshConfig,
    /// `[reach]`
    pub reach: ReachConfig,
    /// `[lan]`
    pub lan: LanConfig,
    /// Whether nvpn devices can be members of the networks of this node (`nvpn.enabled`).
    pub nvpn: bool,
    /// `[nostr]`
    pub nostr: NostrConfig,
    /// Rules for packets of peers to this node, before those of networks (`rules.local`).
    pub local_rules: Vec<Rule>,
    /// `[networks]`
    pub networks: NetworksConfig,
    /// `[dns]`
    pub dns: DnsConfig,
    /// `[fast]`
    pub fast: FastConfig,
    /// `[reports]`
    pub reports: ReportsConfig,
    /// `[perf]`
    pub perf: PerfConfig,
    /// `[control]`
    pub control: ControlConfig,
    /// `[log]`
    pub log: LogConfig,
    /// `[[peer]]`, in the order of the file; keys and names are unique.
    pub peers: Vec<PeerConfig>,
}

/// The sockets of the underlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// One socket per entry; an IPv6 socket serves IPv6 only. Port 0 selects a free port. Never
    /// empty.
    pub listen: Vec<SocketAddr>,
    /// The largest UDP payload sent, in bytes, if it is set: 1,200 to 9,000. FIPS's `mtu` means the
    /// same. If it is not set, see [`UdpConfig::payload`].
    pub mtu: Option<u16>,
    /// The time after a search until a direct path is searched again for a larger size (`raise_s`).
    pub raise: Duration,
    /// Maximum number of datagrams sent in one call: 1 to [`MAX_TRAIN_SEGMENTS`], the default. With
    /// 1, `UDP_SEGMENT` is not used. `docs/experiments/2026-11-21-gso-cap.md`.
    pub batch: usize,
    /// Whether the kernel may coalesce received datagrams (`UDP_GRO`); true by default.
    /// `docs/experiments/2026-11-21-gro.md`.
    pub gro: bool,
}

/// The interface for IP packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunConfig {
    /// Its name: 1 to 15 bytes that Linux accepts.
    pub name: String,
    /// Its MTU in bytes, if it is set; at least 1,280, below which Linux disables IPv6. If it is
    /// not set, see [`Config::tun_mtu`].
    pub mtu: Option<u16>,
    /// Whether super-packets cross it unsplit and without checksums, if the kernel supports that;
    /// true by default. `docs/experiments/2026-11-21-tun-offload.md`.
    pub offload: bool,
    /// Further addresses of the interface, besides the address that follows from the key.
    pub addresses: Vec<InterfaceAddress>,
    /// Subnets behind this node to which peers may send (`tun.routes`). No subnet or address occurs twice.
    pub routes: Vec<Subnet>,
    /// Whether this node offers its networks to be an exit: to forward to all other addresses.
    pub advertise_exit: bool,
    /// The member by which packets to all other addresses go (`tun.exit`).
    pub exit: Option<NodeRef>,
    /// Whether packets that cannot go by the exit are dropped (`tun.exit_strict`).
    pub exit_strict: bool,
    /// Whether hosts of the subnets that this host is in are reached directly (`tun.exit_lan`).
    pub exit_lan: bool,
    /// Whether connections that other hosts open to this one by another interface are answered there, although
    /// the exit is strict (`tun.exit_inbound`).
    pub exit_inbound: bool,
}

/// An address of the node's interface, and the prefix length of its subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Prefix length in bits.
    pub prefix_len: u8,
}

/// The node's part in the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshConfig {
    /// Whether the node takes part in the mesh: it reaches peers through neighbours, and neighbours
    /// reach nodes through it.
    pub enabled: bool,
    /// Whether the node forwards traffic of other nodes, sealed end to end, from one neighbour to
    /// another.
    pub transit: bool,
    /// Whether nodes that are not configured may link with this node. IP packets pass between
    /// configured peers only.
    pub open: bool,
    /// Nodes that may link without being configured even if `open` is off.
    pub allow: BTreeSet<PublicKey>,
    /// Nodes that may not link without being configured even if `open` is on.
    pub deny: BTreeSet<PublicKey>,
}

/// How peers are reached that are behind NATs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachConfig {
    /// Whether the node looks for direct paths to weft nodes that it reaches through others: it tells
    /// them its addresses, and sends probes to theirs. Otherwise members learn no address at which others see
    /// the node.
    pub punch: bool,
    /// Addresses outside of NATs at which this node's socket is seen or reached, as its owner knows
    /// (`reach.external`).
    pub external: Vec<SocketAddr>,
    /// The servers that are asked under which address they see this node, at most
    /// [`MAX_STUN_SERVERS`](super::MAX_STUN_SERVERS).
    pub stun: Vec<PeerAddress>,
    /// Whether the gateway of the host's network is asked to map a port to this node.
    pub port_mapping: bool,
    /// What the further uplinks of the host are used for (`reach.uplinks`).
    pub uplinks: UplinkUse,
}

/// What further uplinks of the host are used for, beside that which the system prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UplinkUse {
    /// A link goes through one while the preferred one does not work.
    Spare,
    /// A link goes through the one with the shortest round trip.
    Fastest,
    /// Nothing.
    Off,
}

/// The relays of Nostr through which nodes without a common neighbour find each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NostrConfig {
    /// The relays, at most [`MAX_RELAYS`](weft_nostr::rendezvous::MAX_RELAYS); without any, nothing is
    /// sent (`nostr.relays`).
    pub relays: Vec<RelayUrl>,
    /// Whether the public addresses of this node are published there for all to read
    /// (`nostr.advertise`).
    pub advertise: bool,
}

/// What this node announces in its LAN, and looks for there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LanConfig {
    /// `lan.announce`
    pub announce: Announce,
}

/// Which nodes find this one in a LAN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Announce {
    /// Members of its networks. Other nodes cannot tell which node it is.
    #[default]
    Members,
    /// All nodes, also those of FIPS and nvpn: it announces its npub.
    Everyone,
    /// None. Nothing is announced, and nothing is asked.
    Off,
}

/// The node's part in private networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworksConfig {
    /// Subnets behind this node that it offers to its networks; at most
    /// [`MAX_OFFERED`](weft_networks::MAX_OFFERED).
    pub advertise_routes: BTreeSet<Subnet>,
    /// Whether approved routes of other members are used, and fixed addresses outside of 10.44.0.0/16.
    pub accept_routes: bool,
}

/// Names below `.fips`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsConfig {
    /// Whether queries for these names are answered.
    pub enabled: bool,
    /// Loopback addresses on which queries are answered, over UDP and TCP. Port 0 selects a free
    /// port. Never empty.
    pub listen: Vec<SocketAddr>,
    /// Whether the system's resolver is set up to ask the responder: systemd-resolved if that runs,
    /// or else the file of `resolv_conf`.
    pub register: bool,
    /// The file that is replaced on a system without systemd-resolved.
    pub resolv_conf: ResolvConfSetting,
}

/// The file in the form of resolv.conf(5) that the daemon may replace while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolvConfSetting {
    /// `/etc/resolv.conf`, in the network namespace of process 1 only: other namespaces often share
    /// the file with it.
    Auto,
    /// None.
    Off,
    /// This one, in any namespace; an absolute path.
    At(PathBuf),
}

/// Fast frames with other weft nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastConfig {
    /// Whether fast frames are offered and accepted (`fast.enabled`). If not, data is sent in FIPS
    /// frames.
    pub enabled: bool,
    /// Whether data for other nodes is sent in fast frames or not at all (`fast.require`); a peer's
    /// own `require_fast` takes precedence.
    pub require: bool,
    /// The only cipher to offer (`fast.suite`); with `None` all are offered, and the one that costs
    /// both ends least is used.
    pub suite: Option<Suite>,
    /// Number of frames after which a key's next phase begins (`fast.phase_frames`), 1,000 to 2^23.
    pub phase_frames: u32,
    /// What relayed frames reveal to an observer of several hops (`fast.privacy`).
    pub privacy: Privacy,
}

/// What fast frames through other nodes reveal to an observer of several hops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Privacy {
    /// The sealed content is the same on each hop, so that a relay does not process it.
    #[default]
    Standard,
    /// Each hop seals the whole frame again.
    Full,
}

/// Which reports are sent. FIPS: `node.mmp.mode` and `node.session_mmp.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportsConfig {
    /// To neighbours, about the link (`reports.link`).
    pub link: ReportMode,
    /// To peers with a session, about the session (`reports.session`).
    pub session: ReportMode,
}

/// `[perf]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerfConfig {
    /// Which nodes may run a test with this node (`allow`).
    pub allow: PerfAllow,
    /// Limits of one test (`raw`, `max_s`, `max_streams`, `max_mbit_s`).
    pub limits: Limits,
    /// Seconds of tests that one peer may run within an hour (`hourly_s`): 1 to 3,600.
    pub hourly: u32,
}

/// Which nodes may run a test with this node (`weft perf` at the client).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PerfAllow {
    /// The configured peers (`"peers"`).
    #[default]
    Peers,
    /// Every node whose packets arrive here (`"open"`).
    Open,
    /// No node; no socket listens (`"off"`).
    Off,
}

/// Timers of links: heartbeats and the end of a dead link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// The interval of heartbeats on a silent link.
    pub heartbeat: Duration,
    /// A link is dead after this long without an authentic frame; longer than `heartbeat`.
    pub dead_after: Duration,
}

/// The control socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlConfig {
    /// The user who owns the daemon beside root (`operator`).
    pub operator: Option<Operator>,
}

/// A user of this host who may request everything of root's daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// As the configuration names the user.
    pub name: String,
    /// The user's number when the configuration was read.
    pub uid: u32,
}

/// Settings of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogConfig {
    /// `log.level`
    pub filter: LogFilter,
    /// `log.format`
    pub format: LogFormat,
}

/// One configured peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// Its public key.
    pub key: PublicKey,
    /// Its name on this node.
    pub name: Option<PeerName>,
    /// Where it listens, in the order in which it is tried. If empty, only the peer dials.
    pub addresses: Vec<PeerAddress>,
    /// Whether data for it is sent in fast frames or not at all (`require_fast`, by default
    /// `fast.require`).
    pub require_fast: bool,
    /// Whether data for it goes through all uplinks at once (`bond`); the peer has to want that, too.
    pub bond: bool,
    /// Subnets behind it (`peer.routes`): packets to them go to the peer, and packets from them are accepted from
    /// it. The longest prefix decides.
    pub routes: Vec<Subnet>,
    /// The line of its `npub` in the file, from 1; 0 if it was not read from a file.
    pub line: usize,
}

impl FromStr for InterfaceAddress {
    type Err = BadSubnet;

    fn from_str(text: &str) -> Result<Self, BadSubnet> {
        let (address, prefix_len) = subnet::split(text)?;
        Ok(Self { address, prefix_len })
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

impl UdpConfig {
    /// The largest UDP payload of FIPS frames, in bytes: the configured value, or FIPS's default.
    /// The bound of fast frames is the same if it is configured, and otherwise the path MTU.
    #[must_use]
    pub fn payload(&self) -> u16 {
        self.mtu.unwrap_or(DEFAULT_PAYLOAD)
    }

    /// The largest UDP payload that any frame can have, in bytes.
    #[must_use]
    pub fn largest(&self) -> u16 {
        self.mtu.unwrap_or(LARGEST_PROBED)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            path: None,
            key_file: PathBuf::from("identity.key"),
            lanes: None,
            prefer_lanes: true,
            udp: UdpConfig {
                listen: vec![
                    SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), DEFAULT_PORT),
                    SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), DEFAULT_PORT),
                ],
                mtu: None,
                raise: Duration::from_secs(600),
                batch: MAX_TRAIN_SEGMENTS,
                gro: true,
            },
            tun: TunConfig {
                name: "weft0".to_owned(),
                mtu: None,
                offload: true,
                addresses: Vec::new(),
                routes: Vec::new(),
                advertise_exit: false,
                exit: None,
                exit_strict: false,
                exit_lan: false,
                exit_inbound: false,
            },
            link: LinkConfig {
                heartbeat: Duration::from_secs(10),
                dead_after: Duration::from_secs(30),
            },
            rekey_interval: Duration::from_secs(120),
            session_idle: Duration::from_secs(80),
            mesh: MeshConfig {
                enabled: true,
                transit: true,
                open: false,
                allow: BTreeSet::new(),
                deny: BTreeSet::new(),
            },
            reach: ReachConfig {
                punch: true,
                external: Vec::new(),
                stun: Vec::new(),
                port_mapping: true,
                uplinks: UplinkUse::Spare,
            },
            lan: LanConfig::default(),
            nvpn: true,
            nostr: NostrConfig::default(),
            local_rules: Vec::new(),
            networks: NetworksConfig::default(),
            dns: DnsConfig {
                enabled: true,
                listen: vec![
                    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DEFAULT_DNS_PORT),
                    SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), DEFAULT_DNS_PORT),
                ],
                register: true,
                resolv_conf: ResolvConfSetting::Auto,
            },
            // 2^23 frames are some 12 GB.
            fast: FastConfig {
                enabled: true,
                require: false,
                suite: None,
                phase_frames: 1 << 23,
                privacy: Privacy::Standard,
            },
            reports: ReportsConfig {
                link: ReportMode::Full,
                session: ReportMode::Full,
            },
            perf: PerfConfig {
                allow: PerfAllow::Peers,
                limits: Limits::default(),
                hourly: 600,
            },
            control: ControlConfig::default(),
            log: LogConfig::default(),
            peers: Vec::new(),
        }
    }
}
