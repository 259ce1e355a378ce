//! The TUN interface as the system sees it: name, MTU, the node's address, and the route to those
//! of other nodes.

use std::net::{IpAddr, Ipv6Addr};

use weft_os::netlink::{InterfaceAddress, Netlink, NetlinkError, Route};
use weft_os::sysctl::disable_router_advertisements;
use weft_os::tun::{Offloads, Tun, TunError, TunOptions};
use weft_packet::{MAX_TRAIN_BYTES, MAX_TRAIN_SEGMENTS};
use weft_wire::{FIPS_PREFIX, NodeAddr};

use super::routes::{self, RouteError, Withheld};
use crate::config::Config;

/// All mesh addresses: `fd00::/8`.
const MESH: Ipv6Addr = Ipv6Addr::new((FIPS_PREFIX as u16) << 8, 0, 0, 0, 0, 0, 0, 0);
const MESH_PREFIX_LEN: u8 = 8;

/// Why the interface could not be made.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// An interface of that name exists.
    #[error("the interface {name} exists already; stop what uses it, or set another tun.name in the configuration")]
    NameTaken {
        /// Its name.
        name: String,
    },
    /// The process may not make interfaces.
    #[error("{0}; run it with sudo, or as a service that gives it AmbientCapabilities=CAP_NET_ADMIN")]
    NotAllowed(#[source] TunError),
    /// The device file is closed to this user.
    #[error("{0}; run as root, or open it to users as most systems do: chmod 666 /dev/net/tun")]
    DeviceClosed(#[source] TunError),
    /// The system has no TUN, or refuses it for another reason.
    #[error("{0}")]
    Tun(#[source] TunError),
    /// The interface was made, but the system refused a route to a network behind a peer. It is gone again.
    #[error("cannot set up {name}: {source}")]
    Route {
        /// Its name.
        name: String,
        /// Which network, and what the system refused.
        source: RouteError,
    },
    /// The interface was made, but the system refused to set it up. It is gone again.
    #[error("cannot set up {name}: {source}")]
    SetUp {
        /// Its name.
        name: String,
        /// What the system refused.
        source: NetlinkError,
    },
}

/// The interface, up and with its address.
pub(super) struct Interface {
    tun: Tun,
    pub(super) mtu: u32,
    withheld: Withheld,
}

impl Interface {
    /// Makes the interface and sets it up. It exists as long as this value.
    pub(super) fn create(config: &Config, me: NodeAddr) -> Result<Self, InterfaceError> {
        let create = |multi_queue| {
            let options = TunOptions {
                offloads: config.tun.offload,
                multi_queue,
            };
            Tun::create(&config.tun.name, options)
        };
        let tun = match create(config.lanes() > 1) {
            // Adding a queue then says what was refused.
            Err(TunError::Io(_)) if config.lanes() > 1 => create(false),
            other => other,
        };
        let tun = tun.map_err(|error| match error {
            TunError::NameTaken(name) => InterfaceError::NameTaken { name },
            TunError::MissingCapability => InterfaceError::NotAllowed(error),
            TunError::DevicePermission => InterfaceError::DeviceClosed(error),
            other => InterfaceError::Tun(other),
        })?;
        let mtu = u32::from(config.tun_mtu());
        let failed = |source| InterfaceError::SetUp {
            name: tun.name().to_owned(),
            source,
        };
        let mut netlink = Netlink::open().map_err(failed)?;
        set_up(&mut netlink, &tun, mtu, me).map_err(failed)?;
        add_addresses(&mut netlink, tun.index(), config).map_err(failed)?;
        let withheld = routes::install(&mut netlink, tun.index(), config).map_err(|source| InterfaceError::Route {
            name: tun.name().to_owned(),
            source,
        })?;
        for (network, address) in &withheld {
            tracing::warn!(%network, peer = %address, "no route to the network: the peer's own address lies in it");
        }
        Ok(Self { tun, mtu, withheld })
    }

    /// Networks behind peers that have no route.
    pub(super) fn withheld(&self) -> &Withheld {
        &self.withheld
    }

    pub(super) fn name(&self) -> &str {
        self.tun.name()
    }

    /// Its number.
    pub(super) fn index(&self) -> u32 {
        self.tun.index()
    }

    pub(super) fn offloads(&self) -> Offloads {
        self.tun.offloads()
    }

    /// Lets the kernel hand over super-packets of no more segments than one train carries, so that each leaves in one
    /// call. A kernel that refuses costs speed alone.
    pub(super) fn limit_trains(&self, datagram: u16) {
        let segments = (MAX_TRAIN_BYTES / usize::from(datagram)).min(MAX_TRAIN_SEGMENTS) as u32;
        let limited = Netlink::open().and_then(|mut n| n.set_gso_max_segments(self.tun.index(), segments));
        if let Err(error) = limited {
            tracing::debug!(%error, "super-packets are not matched to trains");
        }
    }

    /// A further queue of it.
    pub(super) fn add_queue(&self) -> Result<Tun, TunError> {
        self.tun.add_queue()
    }

    pub(super) fn into_tun(self) -> Tun {
        self.tun
    }
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
    // Neither matters for our own traffic, so a read-only /proc/sys is no reason to stop.
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
    // The kernel drops packets to an address that it has been told of but not yet taken up.
    netlink.wait_until_local(IpAddr::V6(me.to_ipv6()))?;
    netlink.add_route(Route::to_interface(IpAddr::V6(MESH), MESH_PREFIX_LEN, index))
}
