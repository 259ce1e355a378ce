//! What the checks look at, gathered from the system and from the daemon.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::geteuid;
use serde_json::Value;
use weft_config::{Config, ConfigError, ResolvConfSetting};
use weft_control::status::{
    ClonesStatus, DnsState, DnsStatus, NetcheckStatus, NetworkList, NetworkState, NetworkStatus, PathStatus,
    PeerStatus, PublicStatus, Status,
};
use weft_control::{ControlCommand, ControlError, NetworkCommand, Refusal, Visible};
use weft_host::exit::kept::Left;
use weft_host::faults::packet_filter::Ruleset;
use weft_host::faults::{Fault, Skipped};
use weft_os::clock::unix_s;
use weft_os::netlink::Netlink;
use weft_os::udp::{BindOptions, UdpSocket};
use weft_store::keyfile::{self, KeyFileError};
use weft_store::state::StatePaths;

use crate::configure::{self, NotTaken};
use crate::service;
use crate::strict;

/// How long the resolver of this host has for the name of this node.
const RESOLVES: Duration = Duration::from_secs(1);
/// The file of resolv.conf(5).
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The checks of which the daemon tells.
const HOST: &str = "firewall, forwarding, route, masquerade, exit, alarm, resolver, dns, rp_filter, flows, connections";

/// What the checks look at.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) daemon: Daemon,
    /// What keeps packets in for a strict exit whose daemon has ended.
    pub(super) left_closed: Option<Left>,
    /// `None` without systemd, or if the service is not installed.
    pub(super) service: Option<Service>,
    pub(super) key: Key,
    pub(super) tun: Tun,
    /// The name of the interface.
    pub(super) interface: String,
    /// The configuration names it, and not the daemon alone, which may be in other hands.
    pub(super) is_configured: bool,
    pub(super) ipv6: Ipv6,
    /// Where the reverse path filter is strict: for all interfaces, or for this one. The kernel takes the
    /// higher value.
    pub(super) strict: bool,
    /// The addresses of `udp.listen` that another program uses, if no daemon runs.
    pub(super) taken: Vec<SocketAddr>,
    /// The UDP ports of the configuration, if no daemon says what keeps packets from them.
    pub(super) ports: Vec<u16>,
    pub(super) ruleset: Ruleset,
    /// The sysctl that limits socket buffers, and the value that is needed.
    pub(super) buffers: Option<(&'static str, usize)>,
    pub(super) unix_s: u64,
    /// `None`: not looked at.
    pub(super) disk: Option<Disk>,
}

/// The daemon.
#[derive(Debug)]
pub(super) enum Daemon {
    Answers(Box<Running>),
    /// It does not answer, for this reason.
    Silent(String),
    /// It cannot start with its configuration.
    BadConfig(String),
}

/// What a running daemon says.
#[derive(Debug, Default)]
pub(super) struct Running {
    pub(super) dns: Option<DnsStatus>,
    /// Keys that run twice: the name of the peer, or `None` for the own key, and where.
    pub(super) clones: Vec<(Option<String>, String)>,
    /// What the interface lacks, and the alarm about it.
    pub(super) interface: (Vec<String>, Option<String>),
    /// What the resolver of this host answers to a query for the name of this node, if it is to send such
    /// queries to weft, and the address that it should have answered.
    pub(super) own_name: Option<(OwnName, Ipv6Addr)>,
    /// The exit by which packets do not pass, and why.
    pub(super) exit: Option<(String, String)>,
    /// What keeps packets from passing on this host.
    pub(super) faults: Vec<Fault>,
    /// Why nothing outside is reached, while no peer has a direct path.
    pub(super) udp: Option<String>,
    /// What is wrong with the configuration that the daemon would start with.
    pub(super) bad_config: Option<String>,
    /// Networks whose records are not saved or cannot be read: the name, and why.
    pub(super) unkept: Vec<(String, Unkept)>,
}

/// What the name of this node leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OwnName {
    /// These addresses.
    Found(Vec<IpAddr>),
    /// Nothing, for this reason.
    Missing(String),
    /// The resolver does not answer in time.
    Silent,
}

/// What is wrong with the file of a network.
#[derive(Debug)]
pub(super) enum Unkept {
    /// It is not what the network is now, for this reason.
    Unsaved(String),
    /// It cannot be read, and the records have not come back.
    Lost(String),
}

/// The file system with the state of the node.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) path: PathBuf,
    pub(super) read_only: bool,
    /// Bytes and files for which there is room.
    pub(super) room: (u64, u64),
}

/// The service, in the words of systemd.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) enabled: String,
    pub(super) active: String,
}

/// The key file.
#[derive(Debug)]
pub(super) enum Key {
    Usable,
    Open {
        path: PathBuf,
        mode: u32,
        /// Whether it is in the state directory, whose files a repair may change.
        own: bool,
    },
    Unusable(String),
    /// Not looked at.
    Unknown,
}

/// The device for the interface.
#[derive(Debug)]
pub(super) enum Tun {
    Usable,
    Missing,
    Refused(String),
}

/// IPv6 of the interface, or of the system if there is no interface.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ipv6 {
    On,
    Off,
    Missing,
    /// The interface is without this address, the node's own.
    NoAddress(Ipv6Addr),
}

impl Ipv6 {
    /// Whether IPv6 is on, and the interface is without the node's address.
    pub(super) const fn is_lacking(self) -> bool {
        matches!(self, Self::NoAddress(_))
    }
}

impl Facts {
    /// Looks at this host, and says what it could not look at.
    pub(super) fn gather(paths: &StatePaths) -> (Self, Vec<Skipped>) {
        let mut skipped = Vec::new();
        let mut skip = |check: &str, why: &str| {
            skipped.push(Skipped {
                check: check.to_owned(),
                why: why.to_owned(),
            });
        };
        let root = geteuid().is_root();
        let status = weft_control::call_visible(&paths.control(), &ControlCommand::Status {});
        let named = match &status {
            Ok(Visible::Full::<Status, PublicStatus>(status)) => status.node.config.as_deref(),
            _ => None,
        };
        let place = configure::place(paths, None, named);
        let other_config = place.is_err();
        let config = match &place {
            // A daemon in other hands may name any file.
            Err(NotTaken { named, why }) => {
                let named = named.display();
                skip(
                    "key",
                    &format!("the daemon runs with {named}, which {why}; this command does not look at it"),
                );
                Ok(Config::default())
            }
            Ok(place) => place.text().and_then(|text| Config::parse(&text, place.path())),
        };
        let mut facts = Self {
            daemon: daemon(paths, &status, &config),
            left_closed: strict::left(),
            service: service::states().map(|(enabled, active)| Service { enabled, active }),
            key: Key::Unknown,
            tun: tun(),
            interface: Config::default().tun.name,
            is_configured: false,
            ipv6: Ipv6::On,
            strict: false,
            taken: Vec::new(),
            ports: Vec::new(),
            ruleset: Ruleset::default(),
            buffers: None,
            unix_s: unix_s(),
            disk: disk(paths.directory()),
        };
        if let Ok(config) = &config {
            facts.interface.clone_from(&config.tun.name);
        }
        let mut own = None;
        match &status {
            Ok(Visible::Full(status)) => {
                facts.interface.clone_from(&status.node.tun.name);
                own = Some(status.node.address);
                match &status.node.faults {
                    Some(faults) => faults.skipped.iter().for_each(|one| skip(&one.check, &one.why)),
                    None => skip(HOST, "the daemon does not say what keeps packets from passing"),
                }
            }
            Ok(Visible::Public(status)) => {
                facts.interface.clone_from(&status.node.interface);
                own = Some(status.node.address);
                skip(HOST, "the daemon tells its owners alone; use sudo");
            }
            Err(_) => {
                let config = config
                    .as_ref()
                    .ok()
                    .map_or_else(|| Config::default().udp.listen, |config| config.udp.listen.clone());
                facts.ports = config.iter().map(SocketAddr::port).collect();
                if matches!(status, Err(ControlError::NotRunning(_))) {
                    facts.taken = config.into_iter().filter(is_taken).collect();
                }
            }
        }
        facts.is_configured = !other_config
            && match &config {
                Ok(config) => config.tun.name == facts.interface,
                Err(_) => Config::default().tun.name == facts.interface,
            };
        facts.ports.sort_unstable();
        facts.ports.dedup();
        facts.look_at_interface(own);
        // Root's daemon and its key are root's.
        match root || paths.control_directory().is_none() {
            true => {
                facts.key = match &config {
                    Ok(_) if other_config => Key::Unknown,
                    Ok(config) => key(paths, &paths.key(config)),
                    Err(ConfigError::NotFound(_)) => key(paths, &paths.key(&Config::default())),
                    Err(_) => Key::Unknown,
                };
                facts.buffers = buffers();
            }
            false => skip("key, buffers", "they are those of root's daemon; use sudo"),
        }
        if status.is_err() {
            match (root, rules()) {
                (false, _) => skip("firewall", "only root may read its rules; use sudo"),
                (true, Ok(ruleset)) => facts.ruleset = ruleset,
                (true, Err(why)) => skip("firewall", &why),
            }
        }
        (facts, skipped)
    }

    /// `own`: the address of the node, if a daemon runs.
    fn look_at_interface(&mut self, own: Option<Ipv6Addr>) {
        let number = |path: String| fs::read_to_string(path).ok()?.trim().parse::<u8>().ok();
        let name = &self.interface;
        self.ipv6 = match number(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6")) {
            _ if !Path::new("/proc/sys/net/ipv6").exists() => Ipv6::Missing,
            Some(1) => Ipv6::Off,
            _ if own.is_some_and(|own| is_lacking(name, own)) => Ipv6::NoAddress(own.unwrap_or(Ipv6Addr::UNSPECIFIED)),
            // Without the interface: the daemon switches IPv6 on for its own.
            _ => Ipv6::On,
        };
        let filter = |of: &str| number(format!("/proc/sys/net/ipv4/conf/{of}/rp_filter"));
        self.strict = filter("all").max(filter(name)) == Some(1);
    }
}

/// Whether an interface is without an address. What the system does not say is not lacking.
fn is_lacking(interface: &str, own: Ipv6Addr) -> bool {
    let mut netlink = match Netlink::open() {
        Ok(netlink) => netlink,
        Err(_) => return false,
    };
    let index = netlink.interface(interface).map(|interface| interface.index);
    let addresses = index.and_then(|index| netlink.addresses(index));
    addresses.is_ok_and(|all| all.iter().all(|known| known.address != IpAddr::V6(own)))
}

/// Whether another program receives datagrams at an address.
fn is_taken(at: &SocketAddr) -> bool {
    let bound = std::net::UdpSocket::bind(at);
    bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

/// What the file system of a directory has; `None` if the directory cannot be looked at.
fn disk(directory: &Path) -> Option<Disk> {
    let found = rustix::fs::statvfs(directory).ok()?;
    Some(Disk {
        path: directory.to_owned(),
        read_only: found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY),
        // Some file systems have no limit of files, and say 0 of 0.
        room: (
            found.f_bavail.saturating_mul(found.f_frsize),
            if found.f_files == 0 { u64::MAX } else { found.f_favail },
        ),
    })
}

fn daemon(
    paths: &StatePaths,
    status: &Result<Visible<Status, PublicStatus>, ControlError>,
    config: &Result<Config, ConfigError>,
) -> Daemon {
    match (status, config) {
        (Ok(Visible::Full(status)), _) => Daemon::Answers(Box::new(running(paths, status, config))),
        // It answers, though with less, or refuses this user.
        (Ok(Visible::Public(_)) | Err(ControlError::Refused(Refusal { .. })), _) => Daemon::Answers(Box::default()),
        (Err(ControlError::NotRunning(_)), Err(error)) if !is_absent(error) => Daemon::BadConfig(error.to_string()),
        (Err(error), _) => Daemon::Silent(error.to_string()),
    }
}

/// Whether the file does not exist, or is not for this user.
fn is_absent(error: &ConfigError) -> bool {
    matches!(error, ConfigError::NotFound { .. } | ConfigError::Unreadable { .. })
}

fn running(paths: &StatePaths, status: &Status, config: &Result<Config, ConfigError>) -> Running {
    let seen = |clones: &ClonesStatus| {
        let seen: BTreeSet<_> = clones.seen.iter().map(ToString::to_string).collect();
        Vec::from_iter(seen).join(" and at ")
    };
    let own = status.node.clones.iter().map(|clones| (None, seen(clones)));
    let peers = status.peers.iter().filter_map(|peer| {
        let name = peer.name.clone().unwrap_or_else(|| peer.npub.clone());
        Some((Some(name), seen(peer.clones.as_ref()?)))
    });
    Running {
        dns: status.node.dns.clone(),
        clones: own.chain(peers).collect(),
        interface: (status.node.tun.lacks.clone(), status.node.tun.alarm.clone()),
        own_name: own_name(status, config),
        exit: status
            .node
            .exit
            .iter()
            .find(|exit| !exit.pass)
            .map(|exit| (exit.exit.clone(), exit.why.clone())),
        faults: status
            .node
            .faults
            .iter()
            .flat_map(|faults| faults.found.clone())
            .collect(),
        bad_config: (config.as_ref().err())
            .filter(|error| !is_absent(error))
            .map(ToString::to_string),
        udp: udp(paths, status),
        unkept: unkept(paths),
    }
}

/// Asks the daemon why nothing outside is reached, if there are peers and none of them has a direct path.
fn udp(paths: &StatePaths, status: &Status) -> Option<String> {
    let is_direct = |peer: &PeerStatus| matches!(peer.path, Some(PathStatus::Direct { .. }));
    if status.peers.is_empty() || status.peers.iter().any(is_direct) {
        return None;
    }
    let found: NetcheckStatus = weft_control::call(&paths.control(), &ControlCommand::Netcheck {}).ok()?;
    let is_known = matches!(
        found.udp.state.as_str(),
        "blocked" | "probably-blocked" | "no-network" | "no-route"
    );
    is_known.then_some(found.udp.because)
}

/// Asks the resolver of this host for the name of the node, as programs do. `None` if that is not set up,
/// or in another file than that of this host.
fn own_name(status: &Status, config: &Result<Config, ConfigError>) -> Option<(OwnName, Ipv6Addr)> {
    let setup = &config.as_ref().ok()?.dns.resolv_conf;
    let elsewhere = matches!(setup, ResolvConfSetting::At(path) if path != Path::new(RESOLV_CONF));
    let state = status.node.dns.as_ref()?.state;
    if state != DnsState::System || elsewhere {
        return None;
    }
    let name = format!("{}.fips", status.node.npub);
    let (done, found) = mpsc::channel();
    // A resolver that does not answer keeps the thread, which ends with this process.
    thread::spawn(move || {
        let found = (name.as_str(), 0).to_socket_addrs();
        let found = found.map(|all| all.map(|address| address.ip()).collect());
        let _ = done.send(found.map_err(|error| error.to_string()));
    });
    let own = match found.recv_timeout(RESOLVES) {
        Ok(Ok(found)) => OwnName::Found(found),
        Ok(Err(why)) => OwnName::Missing(why),
        Err(_) => OwnName::Silent,
    };
    Some((own, status.node.address))
}

fn unkept(paths: &StatePaths) -> Vec<(String, Unkept)> {
    let command = ControlCommand::Network(NetworkCommand::List {});
    let list: Result<NetworkList, _> = weft_control::call(&paths.control(), &command);
    let wrong = |network: NetworkStatus| {
        let name = network.label.unwrap_or(network.id);
        let lost = (network.state == NetworkState::Lost).then_some(Unkept::Lost(network.why));
        Some((name, network.unsaved.map(Unkept::Unsaved).or(lost)?))
    };
    let networks = list.map(|list| list.networks).unwrap_or_default();
    networks.into_iter().filter_map(wrong).collect()
}

fn key(paths: &StatePaths, path: &Path) -> Key {
    match keyfile::load(path) {
        Ok(_) => Key::Usable,
        Err(KeyFileError::Mode { path, mode }) => Key::Open {
            own: path.parent() == Some(paths.directory()),
            path,
            mode,
        },
        // The daemon makes it at its first start.
        Err(KeyFileError::Missing(_)) => Key::Unknown,
        Err(error) => Key::Unusable(error.to_string()),
    }
}

fn tun() -> Tun {
    match File::options().read(true).write(true).open("/dev/net/tun") {
        Ok(_) => Tun::Usable,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Tun::Missing,
        // Where all users may not open it, root's daemon still may.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !geteuid().is_root() => Tun::Usable,
        Err(error) => Tun::Refused(error.to_string()),
    }
}

/// What is missing of the buffers that a socket of this user asks for.
fn buffers() -> Option<(&'static str, usize)> {
    let socket = UdpSocket::bind(([127, 0, 0, 1], 0).into(), BindOptions::default()).ok()?;
    let buffers = socket.buffers();
    buffers.receive_shortfall().or(buffers.send_shortfall())
}

/// The rules of nftables, those that iptables writes among them. An older iptables has its own, which
/// nft does not show.
fn rules() -> Result<Ruleset, String> {
    let mut command = Command::new("nft");
    let output = command.args(["-j", "list", "ruleset"]).stdin(Stdio::null()).output();
    let output = match output {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err("nft is not installed".to_owned()),
        output => output.map_err(|error| format!("nft cannot be run: {error}"))?,
    };
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("nft: {}", text.lines().next().unwrap_or("no reason")));
    }
    let document: Value = serde_json::from_slice(&output.stdout).map_err(|error| format!("nft: {error}"))?;
    Ok(Ruleset::parse(&document, ""))
}
