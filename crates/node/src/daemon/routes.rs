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
#[error("no route to {network}: {source}; `ip route show {network}` tells what is there")]
pub struct RouteError {
    /// Which.
    network: Network,
    /// What the system refused.
    source: NetlinkError,
}

/// Networks without a route, each with the address of a peer in it that would be looked for behind itself.
pub(super) type Withheld = Vec<(Network, SocketAddr)>;

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
    for network in &networks {
        // An address of the interface may have brought it.
        let there = |route: &Route| {
            (route.destination, route.prefix_len) == (network.address(), network.prefix_len())
                && route.interface == Some(index)
        };
        if !present.iter().any(there) {
            netlink
                .add_route(route(*network, index, config))
                .map_err(fault(network))?;
        }
    }
    let mut withheld = Vec::new();
    for address in config.peers.iter().flat_map(|peer| &peer.addresses) {
        // Networks nest, so one route taken back may leave another.
        while let Some(network) = astray(netlink, index, address.ip(), &networks).map_err(fault(first))? {
            if withheld.iter().any(|(known, _)| *known == network) {
                break;
            }
            netlink
                .delete_route(route(network, index, config))
                .map_err(fault(&network))?;
            withheld.push((network, *address));
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
