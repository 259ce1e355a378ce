//! NAT boxes of the kernel: a host with two interfaces whose nftables masquerade, as the router of
//! many a home does.
//!
//! The kernel decides about mappings. What it does is not documented in the terms of RFC 4787;
//! `tests/nat_kernel.rs` shows how it looks from outside. The firewall is that of such routers: from
//! outside only answers enter, and echo requests to the router itself.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weft_os::netlink::flush_connections;
use weft_os::sysctl::{self, SysctlError};

use crate::cable::{Cidr, Port};
use crate::child::ChildError;
use crate::host::{Host, HostCommandError};
use crate::world::{Switch, World, WorldError};

/// Time limit of nft.
const NFT_LIMIT: Duration = Duration::from_secs(10);

/// The choice of outer ports by `masquerade` (nft(8), NAT statements).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Masquerade {
    /// The inner port, if the pair of endpoints is not in use.
    Plain,
    /// `random`.
    Random,
    /// `fully-random`.
    FullyRandom,
}

impl Masquerade {
    fn flag(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Random => "random",
            Self::FullyRandom => "fully-random",
        }
    }
}

/// What a NAT box of the kernel is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelNatConfig {
    /// The choice of outer ports.
    pub ports: Masquerade,
    /// How long a UDP mapping lasts without packets, rounded up to seconds; `None`: the kernel's
    /// values, of one for flows in one direction and of another for flows with answers.
    pub lifetime: Option<Duration>,
    /// The router outside, for packets to other networks.
    pub gateway: Option<Ipv4Addr>,
}

/// A NAT box of the kernel. It ends when it is dropped.
#[derive(Debug)]
pub struct KernelNat {
    host: Host,
    inside: Port,
    outside: Port,
    inner: IpAddr,
    outer: Mutex<Cidr>,
    gateway: Option<Ipv4Addr>,
}

impl KernelNat {
    /// Starts a NAT box between two switches, with its address on each (`11.0.0.9/8`).
    ///
    /// # Errors
    /// [`KernelNatError`]; without nft, [`KernelNatError::Command`].
    pub fn start(
        world: &World,
        config: KernelNatConfig,
        (inside, inner): (&Switch, &str),
        (outside, outer): (&Switch, &str),
    ) -> Result<Self, KernelNatError> {
        let addresses: [Cidr; 2] = [inner.parse()?, outer.parse()?];
        let host = world.host("nat")?;
        let nat = Self {
            inside: inside.connect(&host, &[inner])?,
            outside: outside.connect(&host, &[outer])?,
            host,
            inner: addresses[0].address,
            outer: Mutex::new(addresses[1]),
            gateway: config.gateway,
        };
        let rules = rules(nat.outside.name(), config.ports);
        nft(&nat.host, &rules)?;
        // The settings of connections exist once there are rules about them.
        let set = || {
            sysctl::set_ipv4_forwarding(true)?;
            config.lifetime.map_or(Ok(()), set_lifetime)
        };
        nat.host.run(set)?.map_err(WorldError::Setting)?;
        nat.route()?;
        Ok(nat)
    }

    /// Its address inside: the gateway of the hosts there.
    #[must_use]
    pub fn inner(&self) -> IpAddr {
        self.inner
    }

    /// Its address outside.
    #[must_use]
    pub fn outer(&self) -> IpAddr {
        self.address().address
    }

    /// The names of its interfaces inside and outside.
    #[must_use]
    pub fn interfaces(&self) -> [&str; 2] {
        [self.inside.name(), self.outside.name()]
    }

    /// The host that it is.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The number of connections that the kernel tracks, mapped or not.
    ///
    /// # Errors
    /// If the host is not usable.
    pub fn mappings(&self) -> Result<usize, KernelNatError> {
        let read = || std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count");
        let text = self.host.run(read)?.map_err(KernelNatError::Count)?;
        let count = text.trim().parse();
        count.map_err(|_| KernelNatError::Count(io::ErrorKind::InvalidData.into()))
    }

    /// Deletes all mappings.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn forget(&self) -> Result<(), KernelNatError> {
        let flushed = self.host.run(flush_connections)?;
        Ok(flushed.map_err(WorldError::Netlink)?)
    }

    /// Restarts the NAT box: its interfaces go down, and come up without any mapping. `outer` is its
    /// new address outside, with the prefix length; without it, it keeps the old one.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn reboot(&self, outer: Option<&str>) -> Result<(), KernelNatError> {
        let outer: Option<Cidr> = outer.map(str::parse).transpose()?;
        for port in [&self.inside, &self.outside] {
            port.cut()?;
        }
        self.forget()?;
        if let Some(outer) = outer {
            let mut own = self.address();
            self.outside.prepare_address(*own, outer)?;
            *own = outer;
        }
        for port in [&self.inside, &self.outside] {
            port.heal()?;
        }
        self.route()
    }

    /// Adds the default route, which the interface loses when it goes down.
    fn route(&self) -> Result<(), KernelNatError> {
        match self.gateway {
            Some(gateway) => Ok(self.host.add_default_route(gateway.into())?),
            None => Ok(()),
        }
    }

    fn address(&self) -> MutexGuard<'_, Cidr> {
        self.outer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a program can be run.
#[must_use]
pub fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--help").output().is_ok()
}

/// Adds rules to a host.
pub(super) fn nft(host: &Host, rules: &str) -> Result<(), KernelNatError> {
    let mut command = Command::new("nft");
    command.arg(rules);
    let output = host.command(command, NFT_LIMIT)?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let complaint = String::from_utf8_lossy(&output.stderr);
            Err(KernelNatError::Rules(complaint.trim().escape_debug().to_string()))
        }
    }
}

/// The rules of a router whose outer interface is `outside`.
fn rules(outside: &str, ports: Masquerade) -> String {
    let flag = ports.flag();
    format!(
        "table ip nat_box {{
            chain leave {{
                type nat hook postrouting priority srcnat; policy accept;
                oifname {outside} masquerade {flag}
            }}
            chain pass {{
                type filter hook forward priority filter; policy accept;
                iifname {outside} ct state {{ established, related }} accept
                iifname {outside} drop
            }}
            chain enter {{
                type filter hook input priority filter; policy accept;
                iifname {outside} ct state {{ established, related }} accept
                iifname {outside} icmp type echo-request accept
                iifname {outside} drop
            }}
        }}"
    )
}

fn set_lifetime(lifetime: Duration) -> Result<(), SysctlError> {
    let seconds = lifetime.as_secs() + u64::from(lifetime.subsec_nanos() > 0);
    for setting in ["udp_timeout", "udp_timeout_stream"] {
        let path = format!("/proc/sys/net/netfilter/nf_conntrack_{setting}");
        let value = seconds.to_string();
        std::fs::write(&path, &value).map_err(|source| SysctlError::Refused { path, value, source })?;
    }
    Ok(())
}

/// Why a NAT box of the kernel, or a NAT64 box, could not be started or changed.
#[derive(Debug, thiserror::Error)]
pub enum KernelNatError {
    /// An interface, an address or a setting was refused.
    #[error(transparent)]
    World(#[from] WorldError),
    /// nft could not be run.
    #[error(transparent)]
    Command(#[from] HostCommandError),
    /// nft refused the rules.
    #[error("nft refused the rules of a NAT box: {0}")]
    Rules(String),
    /// tayga could not be run.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// tayga has no interface; the last line of its log.
    #[error("tayga does not start: {0}")]
    Tayga(String),
    /// miniupnpd does not listen; the last line of its log.
    #[error("miniupnpd does not start: {0}")]
    Miniupnpd(String),
    /// A file could not be written.
    #[error("{} cannot be written", .path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The number of connections could not be read.
    #[error("the connections of a NAT box cannot be counted")]
    Count(#[source] io::Error),
}
