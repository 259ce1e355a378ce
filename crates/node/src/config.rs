//! The configuration: one TOML file, read once at start.
//!
//! Every key and value is checked when it is read; the values in [`Config`] need no further check.
//! Errors name the file, the line and the setting, and say what to write instead.

mod advice;
mod error;
mod fast;
mod lanes;
mod networks;
mod perf;
mod reader;
mod reports;
mod starter;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use weft_noise::PublicKey;
use weft_packet::MAX_TRAIN_SEGMENTS;
use weft_wire::{Network, fast as fast_frame};

pub use error::{ConfigError, Problem};
pub use fast::{FastConfig, Privacy};
pub use networks::InterfaceAddress;
use networks::Taken;
pub use perf::{PerfAllow, PerfConfig};
use reader::{Fault, Item, Section};
pub use reports::ReportsConfig;

use crate::keyfile::effective_uid;
use crate::logging::{LogFilter, LogFormat};
use crate::peer::PeerName;

/// The UDP port of FIPS.
pub const DEFAULT_PORT: u16 = 2121;

/// The port of the DNS responder, the same as in FIPS.
pub const DEFAULT_DNS_PORT: u16 = 5354;

/// The UDP payload that FIPS sends by default, in bytes.
pub const DEFAULT_PAYLOAD: u16 = 1280;

/// The largest UDP payload that probes search for, in bytes: an interface MTU of 1,500 bytes over
/// IPv4.
pub const LARGEST_PROBED: u16 = 1472;

/// The minimum MTU of an interface with IPv6, in bytes.
const LEAST_TUN_MTU: u16 = 1280;

/// The longest configuration file, in bytes.
pub const MAX_LEN: usize = 1 << 20;

/// One day: the upper bound of every timer of a node.
const DAY_S: u32 = 86_400;

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
    /// `[dns]`
    pub dns: DnsConfig,
    /// `[fast]`
    pub fast: FastConfig,
    /// `[reports]`
    pub reports: ReportsConfig,
    /// `[perf]`
    pub perf: PerfConfig,
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
    /// Networks behind this node to which peers may send. No network or address occurs twice.
    pub networks: Vec<Network>,
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

/// Names below `.fips`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsConfig {
    /// Whether queries for these names are answered.
    pub enabled: bool,
    /// Loopback addresses on which queries are answered, over UDP and TCP. Port 0 selects a free
    /// port. Never empty.
    pub listen: Vec<SocketAddr>,
    /// Whether the responder is registered with systemd-resolved, if that runs.
    pub register: bool,
}

/// Timers of links: heartbeats and the end of a dead link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// The interval of heartbeats on a silent link.
    pub heartbeat: Duration,
    /// A link is dead after this long without an authentic frame; longer than `heartbeat`.
    pub dead_after: Duration,
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
    /// Its UDP addresses, in the order in which they are tried. If empty, only the peer dials.
    pub addresses: Vec<SocketAddr>,
    /// Whether data for it is sent in fast frames or not at all (`require_fast`, by default
    /// `fast.require`).
    pub require_fast: bool,
    /// Networks behind it: packets to them go to the peer, and packets from them are accepted from
    /// it. The longest prefix decides.
    pub networks: Vec<Network>,
    /// The line of its `npub` in the file, from 1; 0 if it was not read from a file.
    pub line: usize,
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
                networks: Vec::new(),
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
            dns: DnsConfig {
                enabled: true,
                listen: vec![
                    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DEFAULT_DNS_PORT),
                    SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), DEFAULT_DNS_PORT),
                ],
                register: true,
            },
            fast: FastConfig::default(),
            reports: ReportsConfig::default(),
            perf: PerfConfig::default(),
            log: LogConfig::default(),
            peers: Vec::new(),
        }
    }
}

impl Config {
    /// Reads the file `path`.
    ///
    /// # Errors
    /// [`ConfigError`], one line with the place and the problem.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let bytes = read_bounded(path)?;
        match std::str::from_utf8(&bytes) {
            Ok(text) => Self::parse(text, path),
            Err(error) => Err(ConfigError::NotText {
                path: path.to_owned(),
                line: line_of(&bytes, error.valid_up_to()),
            }),
        }
    }

    /// Reads `text`; `path` is only for messages and [`Config::path`].
    ///
    /// # Errors
    /// [`ConfigError`], as [`Config::load`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let mut config = Self {
            path: Some(path.to_owned()),
            ..Self::default()
        };
        match config.read(text) {
            Ok(()) => Ok(config),
            Err(fault) => Err(fault.into_error(text, path)),
        }
    }

    /// The MTU of the interface, in bytes: the configured value, or the largest packet that the
    /// largest frame holds. A smaller path MTU does not lower it: a packet that does not fit the
    /// path is split, or answered with an error.
    #[must_use]
    pub fn tun_mtu(&self) -> u16 {
        let fits = self.udp.largest().saturating_sub(fast_frame::IPV6_OVERHEAD as u16);
        self.tun.mtu.unwrap_or(fits.max(LEAST_TUN_MTU))
    }

    /// Refuses a peer that is the node itself. Separate from reading, because the key is known
    /// later.
    ///
    /// # Errors
    /// [`Problem::OwnKey`], or [`Problem::MeshAddress`] with this node's own address, at the peer's
    /// line.
    pub fn refuse_self(&self, own: &PublicKey, key_file: &Path) -> Result<(), ConfigError> {
        let fault = |line, key: &str, problem| {
            Err(ConfigError::Setting {
                path: self.path.clone().unwrap_or_default(),
                line,
                key: key.to_owned(),
                problem,
            })
        };
        let address = IpAddr::V6(own.node_addr().to_ipv6());
        for peer in &self.peers {
            if peer.key == *own {
                let key_file = key_file.to_owned();
                return fault(peer.line, "peer.npub", Problem::OwnKey { key_file });
            }
            if let Some(inside) = peer.addresses.iter().find(|known| known.ip() == address) {
                let found = inside.to_string();
                return fault(peer.line, "peer.addresses", Problem::MeshAddress { found });
            }
        }
        Ok(())
    }

    /// Refuses to create a new key if the file `missing` should already hold one: the configuration
    /// names the file, or has peers, which know the node by its key. Separate from reading, because
    /// the file is looked up later.
    ///
    /// # Errors
    /// [`ConfigError::KeyMissing`]
    pub fn refuse_new_key(&self, missing: &Path) -> Result<(), ConfigError> {
        if self.key_file == Self::default().key_file && self.peers.is_empty() {
            return Ok(());
        }
        Err(ConfigError::KeyMissing {
            path: self.path.clone().unwrap_or_default(),
            key_file: missing.to_owned(),
        })
    }

    /// Writes [`starter_text`](Self::starter_text) to the new file `path` and syncs it to the disk.
    ///
    /// # Errors
    /// [`ConfigError::Unwritable`], also if `path` exists; the existing file stays unchanged.
    pub fn write_starter(path: &Path) -> Result<(), ConfigError> {
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(Self::starter_text().as_bytes())
                .and_then(|()| file.sync_all())
                .inspect_err(|_| drop(fs::remove_file(path)))
        };
        write().map_err(|source| ConfigError::Unwritable {
            path: path.to_owned(),
            source,
        })
    }

    /// The text of the file at first use: every setting with its default, commented out.
    #[must_use]
    pub fn starter_text() -> &'static str {
        starter::TEXT
    }

    fn read(&mut self, text: &str) -> Result<(), Fault> {
        let mut root = Section::parse(text)?;
        self.read_lanes(&mut root)?;
        let mut taken = Taken::default();
        self.read_identity(root.section("identity")?)?;
        self.read_udp(root.section("udp")?)?;
        self.read_tun(root.section("tun")?, &mut taken, text)?;
        self.read_link(root.section("link")?)?;
        self.rekey_interval = seconds(root.section("rekey")?, "interval_s", self.rekey_interval)?;
        self.session_idle = seconds(root.section("session")?, "idle_s", self.session_idle)?;
        self.read_mesh(root.section("mesh")?)?;
        self.read_dns(root.section("dns")?)?;
        self.read_fast(root.section("fast")?)?;
        self.read_reports(root.section("reports")?)?;
        self.read_perf(root.section("perf")?)?;
        self.read_log(root.section("log")?)?;
        self.read_peers(root.sections("peer")?, &mut taken, text)?;
        root.finish()
    }

    fn read_identity(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        if let Some(item) = section.string("key_file")? {
            self.key_file = item.map(|path| match path.as_str() {
                "" => Err(Problem::EmptyPath),
                path => Ok(PathBuf::from(path)),
            })?;
        }
        section.finish()
    }

    fn read_udp(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        if let Some(list) = section.strings("listen")? {
            self.udp.listen = list.value.iter().map(address).collect::<Result<_, _>>()?;
            if list.value.is_empty() {
                return Err(list.fault(Problem::EmptyList {
                    to_do: "write one address at least, as \"0.0.0.0:2121\"",
                }));
            }
        }
        self.udp.mtu = bytes_or_auto(&mut section, "mtu", fast_frame::LEAST_PAYLOAD, 9000)?;
        if let Some(item) = section.integer("raise_s", 1..=DAY_S, "seconds")? {
            self.udp.raise = Duration::from_secs(item.value.into());
        }
        if let Some(item) = section.integer("batch", 1..=MAX_TRAIN_SEGMENTS as u32, "datagrams")? {
            self.udp.batch = item.value as usize;
        }
        if let Some(item) = section.boolean("gro")? {
            self.udp.gro = item.value;
        }
        section.finish()
    }

    fn read_tun(&mut self, mut section: Section<'_>, taken: &mut Taken, text: &str) -> Result<(), Fault> {
        if let Some(item) = section.string("name")? {
            self.tun.name = item.map(|name| interface_name(name))?;
        }
        self.tun.mtu = bytes_or_auto(&mut section, "mtu", LEAST_TUN_MTU, 65_535)?;
        if let Some(item) = section.boolean("offload")? {
            self.tun.offload = item.value;
        }
        self.read_own_networks(&mut section, taken, text)?;
        section.finish()
    }

    fn read_link(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        let heartbeat = section.integer("heartbeat_s", 1..=DAY_S, "seconds")?;
        let dead_after = section.integer("dead_after_s", 1..=DAY_S, "seconds")?;
        if let Some(item) = &heartbeat {
            self.link.heartbeat = Duration::from_secs(item.value.into());
        }
        if let Some(item) = &dead_after {
            self.link.dead_after = Duration::from_secs(item.value.into());
        }
        if self.link.dead_after <= self.link.heartbeat {
            let problem = Problem::NotLonger {
                found: self.link.dead_after.as_secs(),
                other: "link.heartbeat_s",
                other_s: self.link.heartbeat.as_secs(),
            };
            return Err(match dead_after.or(heartbeat) {
                Some(item) => Fault {
                    key: "link.dead_after_s".to_owned(),
                    ..item.fault(problem)
                },
                None => section.missing("dead_after_s", "set it"),
            });
        }
        section.finish()
    }

    fn read_mesh(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        if let Some(item) = section.boolean("enabled")? {
            self.mesh.enabled = item.value;
        }
        if let Some(item) = section.boolean("transit")? {
            self.mesh.transit = item.value;
        }
        if let Some(item) = section.boolean("open")? {
            self.mesh.open = item.value;
        }
        self.mesh.allow = keys(&mut section, "allow")?;
        self.mesh.deny = keys(&mut section, "deny")?;
        section.finish()
    }

    fn read_dns(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        if let Some(item) = section.boolean("enabled")? {
            self.dns.enabled = item.value;
        }
        if let Some(list) = section.strings("listen")? {
            self.dns.listen = list.value.iter().map(loopback).collect::<Result<_, _>>()?;
            if list.value.is_empty() {
                return Err(list.fault(Problem::EmptyList {
                    to_do: "write one address at least, as \"127.0.0.1:5354\", or enabled = false",
                }));
            }
        }
        if let Some(item) = section.boolean("register")? {
            self.dns.register = item.value;
        }
        section.finish()
    }

    fn read_log(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        if let Some(item) = section.string("level")? {
            self.log.filter = item.map(|text| text.parse().map_err(Problem::BadFilter))?;
        }
        if let Some(item) = section.string("format")? {
            self.log.format = item.map(|text| match text.as_str() {
                "text" => Ok(LogFormat::Text),
                "json" => Ok(LogFormat::Json),
                _ => Err(Problem::NotOneOf {
                    found: reader::printable(text),
                    allowed: "\"text\" or \"json\"",
                }),
            })?;
        }
        section.finish()
    }

    fn read_peers(&mut self, sections: Vec<Section<'_>>, taken: &mut Taken, text: &str) -> Result<(), Fault> {
        let mut keys = BTreeMap::new();
        let mut names = BTreeMap::new();
        let mut dialled = Vec::new();
        for mut section in sections {
            let line = |at| line_of(text.as_bytes(), at);
            let Some(npub) = section.string("npub")? else {
                return Err(section.missing("npub", "write npub = \"npub1...\" under [[peer]]"));
            };
            let key = npub.map(|text| text.parse().map_err(Problem::BadKey))?;
            if let Some(line) = keys.insert(key, line(npub.at())) {
                return Err(npub.fault(Problem::Duplicate { line }));
            }
            let mut name = None;
            if let Some(item) = section.string("name")? {
                let checked = item.map(|text| peer_name(text))?;
                if let Some(line) = names.insert(checked.clone(), line(item.at())) {
                    return Err(item.fault(Problem::Duplicate { line }));
                }
                name = Some(checked);
            }
            let addresses = match section.strings("addresses")? {
                Some(list) => {
                    let addresses: Vec<_> = list.value.iter().map(peer_address).collect::<Result<_, _>>()?;
                    dialled.extend(addresses.iter().map(SocketAddr::ip).zip(list.value));
                    addresses
                }
                None => Vec::new(),
            };
            let require_fast = match section.boolean("require_fast")? {
                Some(item) => self.requirable(&item)?,
                None => self.fast.require,
            };
            let networks = self.read_peer_networks(&mut section, taken, text)?;
            section.finish()?;
            self.peers.push(PeerConfig {
                key,
                name,
                addresses,
                require_fast,
                networks,
                line: line(npub.at()),
            });
        }
        let inside = |ip: &IpAddr| keys.keys().any(|key| IpAddr::V6(key.node_addr().to_ipv6()) == *ip);
        match dialled.iter().find(|(ip, _)| inside(ip)) {
            Some((_, item)) => Err(item.fault(Problem::MeshAddress {
                found: reader::printable(&item.value),
            })),
            None => Ok(()),
        }
    }
}

impl Fault {
    fn into_error(self, text: &str, path: &Path) -> ConfigError {
        let path = path.to_owned();
        let line = line_of(text.as_bytes(), self.at);
        match self.problem {
            Problem::Syntax(message) => ConfigError::Syntax {
                path,
                line,
                message: advice::syntax(text, self.at, &message),
            },
            problem => ConfigError::Setting {
                path,
                line,
                key: self.key,
                problem,
            },
        }
    }
}

/// A section whose only key is a time.
fn seconds(mut section: Section<'_>, key: &'static str, default: Duration) -> Result<Duration, Fault> {
    let item = section.integer(key, 1..=DAY_S, "seconds")?;
    section.finish()?;
    Ok(item.map_or(default, |item| Duration::from_secs(item.value.into())))
}

/// A list of public keys.
fn keys(section: &mut Section<'_>, key: &'static str) -> Result<BTreeSet<PublicKey>, Fault> {
    let list = section.strings(key)?.map_or_else(Vec::new, |item| item.value);
    let parse = |item: &Item<String>| item.map(|text| text.parse().map_err(Problem::BadKey));
    list.iter().map(parse).collect()
}

/// A size in bytes; `None` if it is `"auto"` or absent.
fn bytes_or_auto(section: &mut Section<'_>, key: &'static str, min: u16, max: u16) -> Result<Option<u16>, Fault> {
    if section.is_auto(key) {
        return Ok(None);
    }
    let item = section.integer(key, min.into()..=max.into(), "bytes")?;
    // The range is that of the type, so the conversion succeeds.
    Ok(item.and_then(|item| u16::try_from(item.value).ok()))
}

fn address(item: &Item<String>) -> Result<SocketAddr, Fault> {
    item.map(|text| {
        if let Ok(address) = text.parse() {
            return Ok(address);
        }
        let found = reader::printable(text);
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        Err(match bare.parse::<IpAddr>() {
            Ok(ip) => Problem::NoPort {
                found,
                instead: SocketAddr::new(ip, DEFAULT_PORT).to_string(),
            },
            Err(_) if is_host_name(text) => Problem::HostName { found },
            Err(_) => Problem::NotAnAddress { found },
        })
    })
}

/// A host name, with or without a port.
fn is_host_name(text: &str) -> bool {
    let (name, port) = text.rsplit_once(':').unwrap_or((text, "1"));
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    let is_name = name.bytes().all(allowed) && name.bytes().any(|b| b.is_ascii_alphabetic());
    is_name && port.parse::<u16>().is_ok()
}

/// An address to dial: one host, one port.
fn peer_address(item: &Item<String>) -> Result<SocketAddr, Fault> {
    let address = address(item)?;
    let ip = address.ip();
    let broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    if address.port() == 0 || ip.is_unspecified() || ip.is_multicast() || broadcast {
        return Err(item.fault(Problem::NotDialable {
            found: reader::printable(&item.value),
        }));
    }
    Ok(address)
}

/// An address that only this host can reach.
fn loopback(item: &Item<String>) -> Result<SocketAddr, Fault> {
    item.map(|text| {
        let address = text
            .parse()
            .ok()
            .filter(|address: &SocketAddr| address.ip().is_loopback());
        address.ok_or_else(|| Problem::NotLoopback {
            found: reader::printable(text),
        })
    })
}

fn peer_name(text: &str) -> Result<PeerName, Problem> {
    text.parse().map_err(|why| Problem::BadName {
        found: reader::printable(text),
        why,
        instead: name_like(text),
    })
}

/// A valid name that resembles `text`.
fn name_like(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let bare = lower.strip_suffix(".fips").unwrap_or(&lower);
    let letters = bare.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    let name: String = letters.take(PeerName::MAX_LEN).collect();
    let name = name.trim_matches('-');
    match name.parse::<PeerName>() {
        Ok(name) => name.to_string(),
        Err(_) => "my-laptop".to_owned(),
    }
}

/// Checks a name by the rules of Linux. With `%` in it the kernel would number the interface by
/// itself.
fn interface_name(name: &str) -> Result<String, Problem> {
    let forbidden = |b: u8| !b.is_ascii_graphic() || matches!(b, b'/' | b':' | b'%');
    if (1..=15).contains(&name.len()) && name != "." && name != ".." && !name.bytes().any(forbidden) {
        return Ok(name.to_owned());
    }
    Err(Problem::BadInterface {
        found: reader::printable(name),
    })
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let unreadable = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ConfigError::NotFound { path: path.to_owned() },
        _ => ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        },
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    check_owner(path, &file.metadata().map_err(unreadable)?)?;
    file.take(MAX_LEN as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() > MAX_LEN {
        return Err(ConfigError::TooLong { path: path.to_owned() });
    }
    Ok(bytes)
}

/// Refuses a file that another user could have written, because the file decides which nodes may
/// send packets, and where to.
fn check_owner(path: &Path, metadata: &fs::Metadata) -> Result<(), ConfigError> {
    let own = effective_uid().map_err(|source| ConfigError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    let owner = metadata.uid();
    if owner != own && owner != 0 {
        return Err(ConfigError::Owner {
            path: path.to_owned(),
            owner,
            own,
        });
    }
    let mode = metadata.mode() & 0o7777;
    // A pipe or a device has no content of its own.
    if metadata.is_file() && mode & 0o022 != 0 {
        return Err(ConfigError::Mode {
            path: path.to_owned(),
            mode,
        });
    }
    Ok(())
}

/// The line, from 1, of the byte `at`.
fn line_of(text: &[u8], at: usize) -> usize {
    let before = text.get(..at).unwrap_or(text);
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}
