//! Routes to the networks behind peers, and the detection of those that would send the underlay's
//! datagrams into the tunnel.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use weft_os::netlink::{Netlink, NetlinkError, Route};
use weft_wire::Network;
use weft_wire::fast::FULL_OVERHEAD;

use super::members::Members;
use crate::config::Config;

/// The minimum MTU of an IPv6 route, in bytes.
const LEAST_IPV6_MTU: u32 = 1280;

/// A network whose route could not be added or removed.
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

/// The routes of the interface to networks behind peers. Those that this value has added are
/// removed by it, or with the interface.
#[derive(Debug)]
pub(super) struct PeerRoutes {
    /// The index of the interface.
    index: u32,
    /// The MTU of routes in bytes, where it is smaller than that of the interface.
    mtu: Option<u32>,
    installed: BTreeSet<Network>,
    withheld: BTreeMap<Network, Obstacle>,
}

impl PeerRoutes {
    /// No routes of the interface with this index.
    pub(super) fn new(index: u32, config: &Config) -> Self {
        // Packets of networks have less room in a frame than those between nodes.
        let room = u32::from(config.udp.largest()).saturating_sub(FULL_OVERHEAD as u32);
        let interface = u32::from(config.tun_mtu());
        Self {
            index,
            mtu: (room < interface).then_some(room),
            installed: BTreeSet::new(),
            withheld: BTreeMap::new(),
        }
    }

    /// The index of the interface.
    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// The networks that have no route into the interface, each with the reason.
    pub(super) fn withheld(&self) -> &BTreeMap<Network, Obstacle> {
        &self.withheld
    }

    /// Makes the routes those of these members.
    ///
    /// A network may contain the address of a peer. If the system has a more specific route there,
    /// nothing changes; otherwise this node's datagrams to that peer would enter the interface, and
    /// the network stays without a route.
    pub(super) fn set(&mut self, netlink: &mut Netlink, members: &Members) -> Result<(), RouteError> {
        let networks: BTreeSet<Network> = members.networks().map(|(network, _)| network).collect();
        let gone: Vec<Network> = self.installed.difference(&networks).copied().collect();
        for network in gone {
            self.remove(netlink, network)?;
        }
        let before = std::mem::take(&mut self.withheld);
        let Some(first) = networks.first() else {
            return Ok(());
        };
        let present = netlink.routes().map_err(fault(*first))?;
        let missing: Vec<Network> = networks.difference(&self.installed).copied().collect();
        for network in missing {
            // An address of the interface may have added the route.
            let there = |route: &Route| self.leads(route, network);
            if present.iter().any(there) {
                continue;
            }
            match netlink.add_route(self.route(network)) {
                // The conflict of one peer's network does not stop the node.
                Err(NetlinkError::Exists { .. }) => {
                    self.withhold(network, Obstacle::Taken, &before);
                }
                Err(source) => return Err(RouteError { network, source }),
                Ok(()) => {
                    self.installed.insert(network);
                }
            }
        }
        for address in members.addresses() {
            // Networks nest, so the removal of one route may leave another.
            while let Some(network) = self.astray(netlink, address.ip(), &networks).map_err(fault(*first))? {
                if self.withheld.contains_key(&network) {
                    break;
                }
                self.remove(netlink, network)?;
                self.withhold(network, Obstacle::PeerInside(address), &before);
            }
        }
        Ok(())
    }

    /// Records why a network has no route, and logs it if that is new.
    fn withhold(&mut self, network: Network, obstacle: Obstacle, before: &BTreeMap<Network, Obstacle>) {
        if before.get(&network) != Some(&obstacle) {
            tracing::warn!(%network, "the network gets no route: {obstacle}");
        }
        self.withheld.insert(network, obstacle);
    }

    fn remove(&mut self, netlink: &mut Netlink, network: Network) -> Result<(), RouteError> {
        self.installed.remove(&network);
        match netlink.delete_route(self.route(network)) {
            // The user has removed it.
            Err(NetlinkError::NotFound { .. }) => Ok(()),
            removed => removed.map_err(fault(network)),
        }
    }

    /// Whether this route of the system leads to exactly this network, through the interface.
    fn leads(&self, route: &Route, network: Network) -> bool {
        (route.destination, route.prefix_len) == (network.address(), network.prefix_len())
            && route.interface == Some(self.index)
    }

    /// The network whose route datagrams to `address` take, if it leads into the interface.
    fn astray(
        &self,
        netlink: &mut Netlink,
        address: IpAddr,
        networks: &BTreeSet<Network>,
    ) -> Result<Option<Network>, NetlinkError> {
        let around: Vec<&Network> = networks.iter().filter(|network| network.contains(address)).collect();
        if around.is_empty() || netlink.interface_towards(address)? != Some(self.index) {
            return Ok(None);
        }
        // The kernel uses the longest prefix of those that still have a route.
        let routes = netlink.routes()?;
        let has_route = |network: &Network| routes.iter().any(|route| self.leads(route, *network));
        let longest = around.into_iter().filter(|network| has_route(network));
        Ok(longest.max_by_key(|network| network.prefix_len()).copied())
    }

    fn route(&self, network: Network) -> Route {
        let fits = |mtu: &u32| network.address().is_ipv4() || *mtu >= LEAST_IPV6_MTU;
        Route {
            mtu: self.mtu.filter(fits),
            ..Route::to_interface(network.address(), network.prefix_len(), self.index)
        }
    }
}

fn fault(network: Network) -> impl FnOnce(NetlinkError) -> RouteError {
    move |source| RouteError { network, source }
}
