//! Routes to the networks behind peers, and the detection of those that would send the underlay's
//! datagrams into the tunnel.

use std::net::{IpAddr, SocketAddr};

use weft_os::netlink::{Netlink, NetlinkError, Route};
use weft_wire::Network;
use weft_wire::fast::FULL_OVERHEAD;

use crate::config::Config;

/// The minimum MTU of an IPv6 route, in bytes.
const LEAST_IPV6_MTU: u32 = 1280;

/// A network whose route could not be added.
#[derive(Debug, thiserror::Error)]
#[error("the route to {network} cannot be made: {source}; `ip route show {network}` shows the present one")]
pub struct RouteError {
    /// The network.
    network: Network,
    /// The error of the system.
    source: NetlinkError,
}

/// The reason why a network has no route into the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// The address of a peer lies in it, so datagrams to the peer would be routed through the peer
    /// itself.
    PeerInside(SocketAddr),
    /// The system has a route to the same network: usually this host is in a network with the same
    /// addresses.
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

/// Adds a route to each network behind a peer. The routes are removed with the interface.
///
/// A network may contain the address of a peer. If the system has a more specific route there,
/// nothing changes; otherwise this node's datagrams to that peer would enter the interface, and the
/// network stays without a route.
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
        // An address of the interface may have added the route.
        let there = |route: &Route| {
            (route.destination, route.prefix_len) == (network.address(), network.prefix_len())
                && route.interface == Some(index)
        };
        if !present.iter().any(there) {
            match netlink.add_route(route(*network, index, config)) {
                // The conflict of one peer's network does not stop the node.
                Err(NetlinkError::Exists { .. }) => withheld.push((*network, Obstacle::Taken)),
                added => added.map_err(fault(network))?,
            }
        }
    }
    for address in config.peers.iter().flat_map(|peer| &peer.addresses) {
        // Networks nest, so the removal of one route may leave another.
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

/// The network whose route datagrams to `address` take, if it leads into the interface.
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
    // The kernel uses the longest prefix of those that still have a route.
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

/// Packets of networks have less room in a frame than those between nodes, so their route has a
/// smaller MTU.
fn route(network: Network, index: u32, config: &Config) -> Route {
    let room = u32::from(config.udp.largest()).saturating_sub(FULL_OVERHEAD as u32);
    let mtu = room.min(u32::from(config.tun_mtu()));
    let fits = mtu < u32::from(config.tun_mtu()) && (network.address().is_ipv4() || mtu >= LEAST_IPV6_MTU);
    Route {
        mtu: fits.then_some(mtu),
        ..Route::to_interface(network.address(), network.prefix_len(), index)
    }
}
