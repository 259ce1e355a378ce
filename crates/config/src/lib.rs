//! The configuration of a node: one TOML file, read at start and when it has changed.
//!
//! Every key and value is checked when it is read; the values in [`Config`] need no further check.
//! Errors name the file, the line and the setting, and say what to write instead.
//!
//! | module | what it is |
//! |---|---|
//! | [`edit`] | changes of the text that keep comments and order |
//! | [`peer`] | names of peers, and how a command refers to one |
//! | [`host_name`] | host names and addresses of peers |
//! | [`relay`] | addresses of Nostr relays |
//! | [`log`] | levels and formats of the log |
//!
//! To add a setting: docs/where-things-go.md.
//!
//! Never here: the running node (weft-node), facts of the host (weft-host).

mod advice;
mod changes;
pub mod edit;
mod error;
mod file;
pub mod host_name;
mod lanes;
pub mod log;
mod model;
pub mod peer;
mod pending;
mod reader;
pub mod relay;
mod settings;
mod starter;
mod values;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use weft_networks::rules::compile::ByHand;
use weft_noise::PublicKey;
use weft_os::process::user_id;
use weft_wire::Subnet;
use weft_wire::fast::IPV6_OVERHEAD;

pub use advice::nearest;
pub use changes::Changes;
pub use error::{ConfigError, Problem};
use file::Links;
pub use model::{
    Announce, Config, ControlConfig, DnsConfig, FastConfig, InterfaceAddress, LanConfig, LinkConfig, LogConfig,
    MeshConfig, NetworksConfig, NostrConfig, Operator, PeerConfig, PerfAllow, PerfConfig, Privacy, ReachConfig,
    ReportsConfig, ResolvConfSetting, TunConfig, UdpConfig, UplinkUse,
};
pub use pending::Pending;
use reader::{Fault, Lines};

use crate::host_name::{HostName, PeerAddress};

/// The UDP port of FIPS.
pub const DEFAULT_PORT: u16 = 2121;

/// The port of the DNS responder, the same as in FIPS.
pub const DEFAULT_DNS_PORT: u16 = 5354;

/// The UDP payload that FIPS sends by default, in bytes.
pub const DEFAULT_PAYLOAD: u16 = 1280;

pub use weft_wire::fast::LARGEST_PROBED;

/// The minimum MTU of an interface with IPv6, in bytes.
const LEAST_TUN_MTU: u16 = 1280;

/// The UDP port of STUN (RFC 8489, section 18.6).
pub const STUN_PORT: u16 = 3478;

/// Maximum number of STUN servers.
pub const MAX_STUN_SERVERS: usize = 8;

/// The longest configuration file, in bytes. Ten thousand peers, each with one address, take 1.3 MB.
pub const MAX_LEN: usize = 8 << 20;

/// Reads the text of the file `path`, which only this user and root may write.
///
/// # Errors
/// [`ConfigError`], one line with the place and the problem.
pub fn read_text(path: &Path) -> Result<String, ConfigError> {
    text_of(file::read(path, Links::Trusted)?, path)
}

/// Reads the text of an open file, which only this user and root may write. `path` is only for messages.
///
/// # Errors
/// [`ConfigError`], one line with the place and the problem.
pub fn read_open(file: &File, path: &Path) -> Result<String, ConfigError> {
    text_of(file::read_open(file, path)?, path)
}

/// The tables of a configuration that is valid, for a document; `None` if it is not TOML.
#[must_use]
pub fn tables(text: &str) -> Option<impl serde::Serialize> {
    text.parse::<toml::Table>().ok()
}

fn text_of(bytes: Vec<u8>, path: &Path) -> Result<String, ConfigError> {
    String::from_utf8(bytes).map_err(|error| ConfigError::NotText {
        path: path.to_owned(),
        line: Lines::of(error.as_bytes()).line(error.utf8_error().valid_up_to()),
    })
}

/// Replaces the file `path` as a whole or not at all, and syncs it to the disk. The text must be a
/// valid configuration.
///
/// # Errors
/// [`ConfigError`]; the file is unchanged then.
pub fn write_text(path: &Path, text: &str) -> Result<Config, ConfigError> {
    let config = Config::parse(text, path)?;
    file::replace(path, text, Links::Trusted)?;
    Ok(config)
}

/// As [`write_text`], for a path that another program has named: no link is followed there.
///
/// # Errors
/// [`ConfigError`]; the file is unchanged then.
pub fn write_plain(path: &Path, text: &str) -> Result<Config, ConfigError> {
    let config = Config::parse(text, path)?;
    file::replace(path, text, Links::None)?;
    Ok(config)
}

/// The users of this host, as [`user_id`] has them.
pub type Users<'a> = &'a dyn Fn(&str) -> io::Result<Option<u32>>;

impl Config {
    /// Whether all packets are kept in that do not go by the exit.
    #[must_use]
    pub const fn is_strict(&self) -> bool {
        self.tun.exit.is_some() && self.tun.exit_strict
    }

    /// Reads the file `path`.
    ///
    /// # Errors
    /// [`ConfigError`], one line with the place and the problem.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(&read_text(path)?, path)
    }

    /// Reads `text`; `path` is only for messages and [`Config::path`].
    ///
    /// # Errors
    /// [`ConfigError`], as [`Config::load`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        Self::parse_with(text, path, &user_id)
    }

    /// [`parse`](Self::parse), where `users` has the number of each user of this host: that of a name, or `None`.
    ///
    /// # Errors
    /// [`ConfigError`], as [`Config::load`].
    pub fn parse_with(text: &str, path: &Path, users: Users<'_>) -> Result<Self, ConfigError> {
        let mut config = Self {
            path: Some(path.to_owned()),
            ..Self::default()
        };
        match config.read(text, users) {
            Ok(()) => Ok(config),
            Err(Fault { line, key, problem }) => Err(ConfigError::Setting {
                path: path.to_owned(),
                line,
                key,
                problem,
            }),
        }
    }

    /// The MTU of the interface, in bytes: the configured value, or the largest packet that the
    /// largest frame holds. A smaller path MTU does not lower it: a packet that does not fit the
    /// path is split, or answered with an error.
    #[must_use]
    pub fn tun_mtu(&self) -> u16 {
        let fits = self.udp.largest().saturating_sub(IPV6_OVERHEAD as u16);
        self.tun.mtu.unwrap_or(fits.max(LEAST_TUN_MTU))
    }

    /// The host names of peers and of STUN servers.
    #[must_use]
    pub fn host_names(&self) -> BTreeSet<HostName> {
        let addresses = self.peers.iter().flat_map(|peer| &peer.addresses);
        let addresses = addresses.chain(&self.reach.stun);
        let name = |address: &PeerAddress| match address {
            PeerAddress::Named { host, .. } => Some(host.clone()),
            PeerAddress::At(_) => None,
        };
        addresses.filter_map(name).collect()
    }

    /// All addresses and subnets to which peers may send: the node's further addresses, and the
    /// subnets behind it.
    #[must_use]
    pub fn own_subnets(&self) -> Vec<Subnet> {
        let addresses = self.tun.addresses.iter().map(|own| Subnet::host(own.address));
        addresses.chain(self.tun.routes.iter().copied()).collect()
    }

    /// Returns its peers and own subnets, as rules see them.
    #[must_use]
    pub fn by_hand(&self) -> ByHand {
        ByHand {
            peers: self.peers.iter().map(|peer| peer.key).collect(),
            subnets: self.own_subnets(),
            serves: None,
            host: Vec::new(),
            exit: None,
        }
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
        let is_own = |known: &PeerAddress| matches!(known, PeerAddress::At(at) if at.ip() == address);
        for peer in &self.peers {
            if peer.key == *own {
                return fault(peer.line, "peer.npub", Problem::OwnKey(key_file.to_owned()));
            }
            if let Some(inside) = peer.addresses.iter().find(|known| is_own(known)) {
                let problem = Problem::MeshAddress(inside.to_string());
                return fault(peer.line, "peer.addresses", problem);
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
        file::write_starter(path).map_err(|source| ConfigError::Unwritable {
            path: path.to_owned(),
            source,
        })
    }

    /// The text of the file at first use: every setting with its default, commented out.
    #[must_use]
    pub fn starter_text() -> &'static str {
        starter::TEXT
    }
}
