//! What the checks look at, gathered from the system and from the daemon.

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::geteuid;
use serde_json::Value;
use weft_node::config::{Config, ConfigError};
use weft_node::control::{self, ControlCommand, ControlError, NetworkCommand, Refusal, Visible};
use weft_node::keyfile::{self, KeyFileError};
use weft_node::state::StatePaths;
use weft_node::status::{ClonesStatus, DnsState, NetworkList, NetworkState, NetworkStatus, PublicStatus, Status};
use weft_os::clock::unix_s;
use weft_os::netlink::Netlink;
use weft_os::udp::{BindOptions, UdpSocket};

use super::Skipped;
use super::firewall::Ruleset;
use crate::service;

/// What the checks look at.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) daemon: Daemon,
    /// `None` without systemd, or if the service is not installed.
    pub(super) service: Option<Service>,
    pub(super) key: Key,
    pub(super) tun: Tun,
    /// The name of the interface.
    pub(super) interface: String,
    pub(super) ipv6: Ipv6,
    /// Whether IPv4 packets pass inside.
    pub(super) ipv4_inside: bool,
    /// The reverse path filter of all interfaces, and of this one.
    pub(super) rp_filter: Option<(u8, u8)>,
    /// The UDP ports of the daemon.
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
    Answers(Running),
    /// It does not answer, for this reason.
    Silent(String),
    /// It cannot start with its configuration.
    BadConfig(String),
}

/// What a running daemon says.
#[derive(Debug, Default)]
pub(super) struct Running {
    pub(super) dns: Option<(DnsState, String)>,
    /// Keys that run twice: the name of the peer, or `None` for the own key, and where.
    pub(super) clones: Vec<(Option<String>, String)>,
    /// What the interface lacks, and the alarm about it.
    pub(super) interface: (Vec<String>, Option<String>),
    /// Networks whose records are not saved or cannot be read: the name, and why.
    pub(super) unkept: Vec<(String, Unkept)>,
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
        let mut skip = |check, why: &str| {
            skipped.push(Skipped {
                check,
                why: why.to_owned(),
            });
        };
        let root = geteuid().is_root();
        let status = control::call_visible(&paths.control(), &ControlCommand::Status {});
        let config = Config::load(
            &match &status {
                Ok(Visible::Full::<Status, PublicStatus>(status)) => status.node.config.clone(),
                _ => None,
            }
            .unwrap_or_else(|| paths.config()),
        );
        let mut facts = Self {
            daemon: daemon(paths, &status, &config),
            service: service::states().map(|(enabled, active)| Service { enabled, active }),
            key: Key::Unknown,
            tun: tun(),
            interface: Config::default().tun.name,
            ipv6: Ipv6::On,
            ipv4_inside: false,
            rp_filter: None,
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
                facts.note(status);
                own = Some(status.node.address);
            }
            Ok(Visible::Public(status)) => {
                facts.interface.clone_from(&status.node.interface);
                own = Some(status.node.address);
            }
            Err(_) => {
                let config = config
                    .as_ref()
                    .ok()
                    .map_or_else(|| Config::default().udp.listen, |config| config.udp.listen.clone());
                facts.ports = config.iter().map(std::net::SocketAddr::port).collect();
            }
        }
        facts.ports.sort_unstable();
        facts.ports.dedup();
        facts.look_at_interface(own);
        // Root's daemon and its key are root's.
        match root || paths.control_directory().is_none() {
            true => {
                facts.key = match &config {
                    Ok(config) => key(&paths.key(config)),
                    Err(ConfigError::NotFound(_)) => key(&paths.key(&Config::default())),
                    Err(_) => Key::Unknown,
                };
                facts.buffers = buffers();
            }
            false => skip("key, buffers", "they are those of root's daemon; use sudo"),
        }
        match (root, rules()) {
            (false, _) => skip("firewall", "only root may read its rules; use sudo"),
            (true, Ok(ruleset)) => facts.ruleset = ruleset,
            (true, Err(why)) => skip("firewall", &why),
        }
        (facts, skipped)
    }

    /// Notes what the daemon says of itself.
    fn note(&mut self, status: &Status) {
        let node = &status.node;
        self.interface.clone_from(&node.tun.name);
        self.ports = node.listen.iter().map(std::net::SocketAddr::port).collect();
        let is_ipv4 = |list: &[String]| list.iter().any(|network| !network.contains(':'));
        let behind =
            |peer: &weft_node::status::PeerStatus| peer.routes.as_ref().is_some_and(|routes| is_ipv4(&routes.list));
        self.ipv4_inside = is_ipv4(&node.tun.addresses) || is_ipv4(&node.tun.routes) || status.peers.iter().any(behind);
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
        self.rp_filter = filter("all").zip(filter(name));
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
        (Ok(Visible::Full(status)), _) => Daemon::Answers(running(paths, status)),
        // It answers, though with less, or refuses this user.
        (Ok(Visible::Public(_)) | Err(ControlError::Refused(Refusal { .. })), _) => Daemon::Answers(Running::default()),
        (Err(ControlError::NotRunning(_)), Err(error)) if !is_absent(error) => Daemon::BadConfig(error.to_string()),
        (Err(error), _) => Daemon::Silent(error.to_string()),
    }
}

/// Whether the file does not exist, or is not for this user.
fn is_absent(error: &ConfigError) -> bool {
    matches!(error, ConfigError::NotFound { .. } | ConfigError::Unreadable { .. })
}

fn running(paths: &StatePaths, status: &Status) -> Running {
    let seen = |clones: &ClonesStatus| {
        let seen: Vec<_> = clones.seen.iter().map(ToString::to_string).collect();
        seen.join(" and at ")
    };
    let own = status.node.clones.iter().map(|clones| (None, seen(clones)));
    let peers = status.peers.iter().filter_map(|peer| {
        let name = peer.name.clone().unwrap_or_else(|| peer.npub.clone());
        Some((Some(name), seen(peer.clones.as_ref()?)))
    });
    Running {
        dns: status.node.dns.as_ref().map(|dns| (dns.state, dns.why.clone())),
        clones: own.chain(peers).collect(),
        interface: (status.node.tun.lacks.clone(), status.node.tun.alarm.clone()),
        unkept: unkept(paths),
    }
}

fn unkept(paths: &StatePaths) -> Vec<(String, Unkept)> {
    let command = ControlCommand::Network(NetworkCommand::List {});
    let list: Result<NetworkList, _> = control::call(&paths.control(), &command);
    let wrong = |network: NetworkStatus| {
        let name = network.label.unwrap_or(network.id);
        let lost = (network.state == NetworkState::Lost).then_some(Unkept::Lost(network.why));
        Some((name, network.unsaved.map(Unkept::Unsaved).or(lost)?))
    };
    let networks = list.map(|list| list.networks).unwrap_or_default();
    networks.into_iter().filter_map(wrong).collect()
}

fn key(path: &Path) -> Key {
    match keyfile::load(path) {
        Ok(_) => Key::Usable,
        Err(KeyFileError::Mode { path, mode }) => Key::Open { path, mode },
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
    Ok(Ruleset::parse(&document))
}
