//! Routes to the networks behind peers, and which of them would lead our own datagrams astray.

use std::net::{IpAddr, SocketAddr};

use weft_os::netlink::{Netlink, NetlinkError, Route};
use weft_wire::Network;
use weft_wire::fast::FULL_OVERHEAD;

use crate::config::Config;

/// The least MTU of an IPv6 route, in bytes.
const LEAST_IPV6_MTU: u32 = 1280;

/// A network that could not be given its route.
#[derive(Debug, thiserror::Error)]
#[error("the route to {network} cannot be made: {source}; `ip route show {network}` tells what is there")]
pub struct RouteError {
    /// Which.
    network: Network,
    /// What the system refused.
    source: NetlinkError,
}

/// Why a network has no route into the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// The address of a peer lies in it, and the peer would be looked for behind itself.
    PeerInside(SocketAddr),
    /// The system has a route to the same network: as a rule this machine is in a network with the
    /// same addresses.
    Taken,
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PeerInside(address) => write!(f, "{address}, where a peer is, lies in it"),
            Self::Taken => f.write_str(
                "this system has a route to the same network already; `ip route` names it, and one of the two networks needs \
                 other addresses",
            ),
        }
    }
}

/// Networks without a route.
pub(super) type Withheld = Vec<(Network, Obstacle)>;

/// Makes a route to each network behind a peer. They go with the interface.
///
/// A network may have the address of a peer in it. If the system knows a better route there, all is well; otherwise our
/// datagrams to that peer would go into the interface, and the network stays without a route.
pub(super) fn install(netlink: &mut Netlink, index: u32, config: &Config) -> Result<Withheld, RouteError> {
    let fault = |network: &Network| {
        let network = *network;
        move |source| RouteError { network, source }
    };
    let networks: Vec<Network> = config.peers.iter().flat_map(|peer| peer.networks.clone()).collect();
    let Some(first) = networks.first() else {
        return Ok(Vec::new());
    };
    let present = netlink.routes().map_err(fault(first))?;
    let mut withheld = Vec::new();
    for network in &networks {
        // An address of the interface may have brought it.
        let there = |route: &Route| {
            (route.destination, route.prefix_len) == (network.address(), network.prefix_len())
                && route.interface == Some(index)
        };
        if !present.iter().any(there) {
            match netlink.add_route(route(*network, index, config)) {
                // One peer's network does not keep the node down.
                Err(NetlinkError::Exists { .. }) => withheld.push((*network, Obstacle::Taken)),
                added => added.map_err(fault(network))?,
            }
        }
    }
    for address in config.peers.iter().flat_map(|peer| &peer.addresses) {
        // Networks nest, so one route taken back may leave another.
        while let Some(network) = astray(netlink, index, address.ip(), &networks).map_err(fault(first))? {
            if withheld.iter().any(|(known, _)| *known == network) {
                break;
            }
            netlink
                .delete_route(route(network, index, config))
                .map_err(fault(&network))?;
            withheld.push((network, Obstacle::PeerInside(*address)));
        }
    }
    Ok(withheld)
}

/// The network whose route datagrams to `address` take, if that leads into the interface.
fn astray(
    netlink: &mut Netlink,
    index: u32,
    address: IpAddr,
    networks: &[Network],
) -> Result<Option<Network>, NetlinkError> {
    let around: Vec<&Network> = networks.iter().filter(|network| network.contains(address)).collect();
    if around.is_empty() || netlink.interface_towards(address)? != Some(index) {
        return Ok(None);
    }
    // The kernel takes the longest of those that have a route still.
    let routes = netlink.routes()?;
    let has_route = |network: &Network| {
        routes.iter().any(|route| {
            route.interface == Some(index)
                && (route.destination, route.prefix_len) == (network.address(), network.prefix_len())
        })
    };
    let longest = around.into_iter().filter(|network| has_route(network));
    Ok(longest.max_by_key(|network| network.prefix_len()).copied())
}

/// Packets of networks have less room in a frame than those between nodes, so hosts are to make them smaller.
fn route(network: Network, index: u32, config: &Config) -> Route {
    let room = u32::from(config.udp.largest()).saturating_sub(FULL_OVERHEAD as u32);
    let mtu = room.min(u32::from(config.tun_mtu()));
    let fits = mtu < u32::from(config.tun_mtu()) && (network.address().is_ipv4() || mtu >= LEAST_IPV6_MTU);
    Route {
        mtu: fits.then_some(mtu),
        ..Route::to_interface(network.address(), network.prefix_len(), index)
    }
}
