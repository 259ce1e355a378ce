//! The TUN interface in the system: its name, its MTU, the node's address, and the route to the
//! addresses of other nodes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weft_config::Config;
use weft_os::netlink::{InterfaceAddress, Netlink, NetlinkError, Route};
use weft_os::sysctl::{SysctlError, disable_router_advertisements, enable_ipv6};
use weft_os::tun::{Offloads, Tun, TunError, TunOptions};
use weft_wire::{FIPS_PREFIX, NodeAddr};

use crate::interface::Wanted;
use crate::routes::{self, WantedRoutes};
use crate::surroundings::{Subnets, Surroundings};

/// All mesh addresses: `fd00::/8`.
const MESH: Ipv6Addr = Ipv6Addr::new((FIPS_PREFIX as u16) << 8, 0, 0, 0, 0, 0, 0, 0);
const MESH_PREFIX_LEN: u8 = 8;

/// The reason why the interface could not be created.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// An interface of this name exists.
    #[error("the interface {0} exists already; stop what uses it, or set another tun.name in the configuration")]
    NameTaken(String),
    /// The process has no right to create interfaces.
    #[error("{0}; run it with sudo, or as a service that gives it AmbientCapabilities=CAP_NET_ADMIN")]
    NotAllowed(#[source] TunError),
    /// This user cannot open the device file.
    #[error("{0}; run as root, or open it to users as most systems do: chmod 666 /dev/net/tun")]
    DeviceClosed(#[source] TunError),
    /// The system has no TUN support, or refuses it for another reason.
    #[error("{0}")]
    Tun(#[source] TunError),
    /// IPv6 is disabled in this system and cannot be enabled for the interface alone.
    #[error(
        "{name} gets no IPv6 address, because IPv6 is off here ({source}); sysctl -w net.ipv6.conf.default.disable_ipv6=0, or \
         start the kernel without ipv6.disable=1"
    )]
    NoIpv6 {
        /// Its name.
        name: String,
        /// The error of the system.
        source: SysctlError,
    },
    /// Another interface has the route to all nodes, usually that of another weft in this system.
    #[error(
        "cannot set up {0}: another interface has the route to fd00::/8, perhaps another weft's; `ip -6 route show \
         fd00::/8` names it, and two nodes of one system each need a network namespace"
    )]
    SecondNode(String),
    /// The interface was created, but the system refused to configure it. The interface is removed
    /// again.
    #[error("cannot set up {name}: {source}")]
    SetUp {
        /// Its name.
        name: String,
        /// The error of the system.
        source: NetlinkError,
    },
}

/// The interface, up and with its address.
pub struct Interface {
    tun: Tun,
    /// Its MTU, in bytes.
    pub mtu: u32,
    surroundings: Surroundings,
    rules: [bool; 2],
    kept: Kept,
}

/// What stays in the system when the interface goes: it is removed once this value is dropped.
pub struct Kept {
    /// The interface itself, if it was there before.
    _borrowed: Option<Borrowed>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Err(error) = Netlink::open().and_then(|mut netlink| routes::remove(&mut netlink)) {
            tracing::warn!(%error, "the rules that led packets to members stay; `ip rule` lists them");
        }
    }
}

/// An interface that existed before the daemon (`ip tuntap add`), so it does not disappear with it.
/// It is down and without addresses once this value is dropped, so that no route leads to it.
struct Borrowed {
    index: u32,
}

impl Borrowed {
    /// Takes the interface over, without what a daemon has left that was killed.
    fn take(index: u32) -> Result<Self, NetlinkError> {
        let borrowed = Self { index };
        borrowed.clear()?;
        Ok(borrowed)
    }

    fn clear(&self) -> Result<(), NetlinkError> {
        let mut netlink = Netlink::open()?;
        netlink.flush_addresses(self.index)?;
        netlink.set_down(self.index)
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Err(error) = self.clear() {
            tracing::warn!(%error, "the interface keeps its addresses");
        }
    }
}

impl Interface {
    /// Creates the interface, unless it exists, and configures it. It exists as long as this value.
    pub fn create(config: &Config, me: NodeAddr) -> Result<Self, InterfaceError> {
        let existed = Netlink::open().is_ok_and(|mut netlink| netlink.interface(&config.tun.name).is_ok());
        let tun = attach(config)?;
        let mtu = u32::from(config.tun_mtu());
        let failed = |source| InterfaceError::SetUp {
            name: tun.name().to_owned(),
            source,
        };
        let borrowed = existed
            .then(|| Borrowed::take(tun.index()))
            .transpose()
            .map_err(failed)?;
        enable_ipv6(tun.name()).map_err(|source| InterfaceError::NoIpv6 {
            name: tun.name().to_owned(),
            source,
        })?;
        let mut netlink = Netlink::open().map_err(failed)?;
        set_up(&mut netlink, &tun, mtu, me).map_err(failed)?;
        add_mesh_route(&mut netlink, &tun)?;
        // A second node would have failed with the route above, so a daemon that was killed has left these.
        routes::remove(&mut netlink).map_err(failed)?;
        add_addresses(&mut netlink, tun.index(), config).map_err(failed)?;
        let surroundings = Surroundings::read(&mut netlink, &Subnets::default()).map_err(failed)?;
        let rules = has_rules(&mut netlink).map_err(failed)?;
        Ok(Self {
            tun,
            mtu,
            surroundings,
            rules,
            kept: Kept { _borrowed: borrowed },
        })
    }

    /// Creates the interface and removes it again, to check that this process has the right.
    pub fn check(config: &Config) -> Result<(), InterfaceError> {
        attach(config).map(drop)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.tun.name()
    }

    /// Its index.
    pub fn index(&self) -> u32 {
        self.tun.index()
    }

    /// What the kernel leaves to this node.
    #[must_use]
    pub fn offloads(&self) -> Offloads {
        self.tun.offloads()
    }

    /// Limits the super-packets of the kernel to `segments`, the number of one train, so that each is sent
    /// in one call. A refusal of the kernel costs only speed.
    pub fn limit_trains(&self, segments: u32) {
        let limited = Netlink::open().and_then(|mut n| n.set_gso_max_segments(self.tun.index(), segments));
        if let Err(error) = limited {
            tracing::debug!(%error, "super-packets are not matched to trains");
        }
    }

    /// Opens a further queue of the interface.
    pub fn add_queue(&self) -> Result<Tun, TunError> {
        self.tun.add_queue()
    }

    /// The interfaces, addresses and routes of others.
    pub const fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    /// Whether the kernel has rules for routes of IPv4, of IPv6.
    #[must_use]
    pub const fn rules(&self) -> [bool; 2] {
        self.rules
    }

    /// Separates the queue for packets, and what ends with the daemon.
    #[must_use]
    pub fn into_parts(self) -> (Tun, Kept) {
        (self.tun, self.kept)
    }
}

/// Creates the interface, or attaches to the persistent one of that name.
fn attach(config: &Config) -> Result<Tun, InterfaceError> {
    let create = |multi_queue| {
        let options = TunOptions {
            offloads: config.tun.offload,
            multi_queue,
        };
        Tun::create(&config.tun.name, options)
    };
    let tun = match create(config.lanes() > 1) {
        // The attempt to add a queue then returns the cause.
        Err(TunError::Io(_)) if config.lanes() > 1 => create(false),
        other => other,
    };
    tun.map_err(|error| match error {
        TunError::NameTaken(name) => InterfaceError::NameTaken(name),
        TunError::MissingCapability => InterfaceError::NotAllowed(error),
        TunError::DevicePermission => InterfaceError::DeviceClosed(error),
        other => InterfaceError::Tun(other),
    })
}

/// All that the interface with this index has to have. `ipv4`: the addresses of this node in its networks; `routes`:
/// those to subnets behind peers.
#[must_use]
pub fn wanted(config: &Config, me: NodeAddr, ipv4: &[Ipv4Addr], (index, routes): (u32, &WantedRoutes)) -> Wanted {
    let own = (IpAddr::V6(me.to_ipv6()), 128);
    let of_config = config.tun.addresses.iter().map(|own| (own.address, own.prefix_len));
    let of_networks = ipv4.iter().map(|address| (IpAddr::V4(*address), 32));
    Wanted {
        mtu: config.tun_mtu().into(),
        addresses: std::iter::once(own).chain(of_config).chain(of_networks).collect(),
        routes: std::iter::once(mesh_route(index))
            .chain(routes.routes(index, config))
            .collect(),
        rules: routes.rules(),
    }
}

fn has_rules(netlink: &mut Netlink) -> Result<[bool; 2], NetlinkError> {
    Ok([netlink.has_rules(false)?, netlink.has_rules(true)?])
}

/// The addresses that the configuration names.
fn add_addresses(netlink: &mut Netlink, index: u32, config: &Config) -> Result<(), NetlinkError> {
    for own in &config.tun.addresses {
        netlink.add_address(InterfaceAddress {
            index,
            address: own.address,
            prefix_len: own.prefix_len,
        })?;
        netlink.wait_until_local(own.address)?;
    }
    Ok(())
}

fn set_up(netlink: &mut Netlink, tun: &Tun, mtu: u32, me: NodeAddr) -> Result<(), NetlinkError> {
    let index = tun.index();
    // Neither setting matters for the node's own traffic, so a read-only /proc/sys does not stop
    // the daemon.
    if let Err(error) = disable_router_advertisements(tun.name()) {
        tracing::debug!(%error, "router advertisements stay on");
    }
    if let Err(error) = netlink.disable_link_local(index) {
        tracing::debug!(%error, "the interface keeps its link-local address");
    }
    netlink.set_mtu(index, mtu)?;
    netlink.add_address(InterfaceAddress {
        index,
        address: IpAddr::V6(me.to_ipv6()),
        prefix_len: 128,
    })?;
    netlink.set_up(index)?;
    // The kernel drops packets to an address that it has accepted but not yet activated.
    netlink.wait_until_local(IpAddr::V6(me.to_ipv6()))
}

/// The route to all nodes.
fn add_mesh_route(netlink: &mut Netlink, tun: &Tun) -> Result<(), InterfaceError> {
    let name = || tun.name().to_owned();
    netlink
        .add_route(mesh_route(tun.index()))
        .map_err(|source| match source {
            NetlinkError::Exists { .. } => InterfaceError::SecondNode(name()),
            source => InterfaceError::SetUp { name: name(), source },
        })
}

/// Returns the route to all nodes through the interface.
#[must_use]
pub fn mesh_route(interface: u32) -> Route {
    Route {
        own: true,
        ..Route::to_interface(IpAddr::V6(MESH), MESH_PREFIX_LEN, interface)
    }
}
