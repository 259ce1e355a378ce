//! Routes to the subnets behind peers, and the detection of those that would send the underlay's
//! datagrams into the tunnel.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use weft_config::Config;
use weft_os::netlink::{Netlink, NetlinkError, Route};
use weft_wire::Subnet;
use weft_wire::fast::FULL_OVERHEAD;

use crate::surroundings::Surroundings;

/// The minimum MTU of an IPv6 route, in bytes.
const LEAST_IPV6_MTU: u32 = 1280;

/// A subnet whose route could not be added or removed.
#[derive(Debug, thiserror::Error)]
#[error("the route to {subnet} cannot be made: {source}; `ip route show {subnet}` shows the present one")]
pub struct RouteError {
    /// The subnet.
    subnet: Subnet,
    /// The error of the system.
    source: NetlinkError,
}

/// The reason why a subnet has no route into the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The address of a peer lies in it, so datagrams to the peer would be routed through the peer
    /// itself.
    PeerInside(SocketAddr),
    /// The system has a route to the same subnet: usually this host is in a subnet with the same
    /// addresses.
    Taken,
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PeerInside(address) => write!(f, "{address}, where a peer is, lies in it"),
            Self::Taken => f.write_str(
                "this system has a route to the same subnet already; `ip route` names it, and one of the two subnets needs \
                 other addresses",
            ),
        }
    }
}

/// What routes there have to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedRoutes {
    /// The subnets behind peers, each with the address of this node that packets to it leave from, if one
    /// is set.
    pub subnets: BTreeMap<Subnet, Option<Ipv4Addr>>,
    /// The confirmed addresses of peers in the underlay, which no route may lead into the interface.
    pub peers: BTreeSet<SocketAddr>,
}

/// The routes of the interface to subnets behind peers. Those that this value has added are
/// removed by it, or with the interface.
#[derive(Debug)]
pub struct PeerRoutes {
    /// The index of the interface.
    index: u32,
    /// The MTU of routes in bytes, where it is smaller than that of the interface.
    mtu: Option<u32>,
    /// Each with the address that packets leave from, if one is set.
    installed: BTreeMap<Subnet, Option<Ipv4Addr>>,
    withheld: BTreeMap<Subnet, Obstacle>,
}

impl PeerRoutes {
    /// No routes of the interface with this index.
    pub fn new(index: u32, config: &Config) -> Self {
        // Packets of subnets have less room in a frame than those between nodes.
        let room = u32::from(config.udp.largest()).saturating_sub(FULL_OVERHEAD as u32);
        let interface = u32::from(config.tun_mtu());
        Self {
            index,
            mtu: (room < interface).then_some(room),
            installed: BTreeMap::new(),
            withheld: BTreeMap::new(),
        }
    }

    /// The index of the interface.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The subnets that have no route into the interface, each with the reason.
    pub fn withheld(&self) -> &BTreeMap<Subnet, Obstacle> {
        &self.withheld
    }

    /// Makes the routes those that are `wanted`.
    ///
    /// A subnet may contain the address of a peer. If the system has a more specific route there,
    /// nothing changes; otherwise this node's datagrams to that peer would enter the interface, and
    /// the subnet stays without a route.
    ///
    /// # Errors
    /// [`RouteError`]
    pub fn set(
        &mut self,
        netlink: &mut Netlink,
        wanted: &WantedRoutes,
        surroundings: &Surroundings,
    ) -> Result<(), RouteError> {
        let sources = &wanted.subnets;
        let stays = |(subnet, source): &(&Subnet, &Option<Ipv4Addr>)| sources.get(*subnet) == Some(*source);
        let gone: Vec<Subnet> = self
            .installed
            .iter()
            .filter(|route| !stays(route))
            .map(|(subnet, _)| *subnet)
            .collect();
        for subnet in &gone {
            self.remove(netlink, *subnet)?;
        }
        let before = std::mem::take(&mut self.withheld);
        for subnet in sources.keys() {
            if surroundings.is_attached(self.index, *subnet) {
                self.yield_to_system(netlink, *subnet, &before)?;
            }
        }
        let mut refused = None;
        for (&subnet, &source) in sources {
            if self.installed.contains_key(&subnet) || self.withheld.contains_key(&subnet) {
                continue;
            }
            // An address of the interface may have added the route. The surroundings still have those that
            // are gone since.
            let there = |route: &Route| self.leads(route, subnet);
            if surroundings.routes.iter().any(there) && !gone.contains(&subnet) {
                continue;
            }
            match netlink.add_route(self.route(subnet, source)) {
                // The conflict of one peer's subnet does not stop the node.
                Err(NetlinkError::Exists { .. }) => {
                    self.withhold(subnet, Obstacle::Taken, &before);
                }
                // One that is refused keeps no other from being set.
                Err(source) => drop(refused.get_or_insert(RouteError { subnet, source })),
                Ok(()) => {
                    self.installed.insert(subnet, source);
                }
            }
        }
        self.remove_astray(netlink, wanted, &before)?;
        refused.map_or(Ok(()), Err)
    }

    /// The routes that the interface has to have.
    pub fn wanted(&self) -> impl Iterator<Item = Route> {
        let installed = self.installed.iter();
        installed.map(|(subnet, source)| self.route(*subnet, *source))
    }

    /// Leaves a subnet to the route that another program has set in the place of this one's. Returns
    /// false if it is none of this value's.
    pub fn give_way(&mut self, route: &Route) -> bool {
        let Ok(subnet) = Subnet::new(route.destination, route.prefix_len) else {
            return false;
        };
        let given = self.installed.remove(&subnet).is_some();
        if given {
            self.withhold(subnet, Obstacle::Taken, &BTreeMap::new());
        }
        given
    }

    /// Handles a change of the system's own routes: a subnet that another interface is in now loses its route into
    /// the interface, and one that none is in any longer gets it. If `paths` to peers have changed, the
    /// subnets in which a peer is are judged again. Returns whether there was one.
    ///
    /// # Errors
    /// [`RouteError`]
    pub fn handle_system_change(
        &mut self,
        netlink: &mut Netlink,
        wanted: &WantedRoutes,
        surroundings: &Surroundings,
        paths: bool,
    ) -> Result<bool, RouteError> {
        let sources = &wanted.subnets;
        let index = self.index;
        let is_attached = |subnet: &Subnet| surroundings.is_attached(index, *subnet);
        let before = self.withheld.clone();
        let taken = self.installed.keys().filter(|subnet| is_attached(subnet));
        let taken: Vec<Subnet> = taken.copied().collect();
        for subnet in &taken {
            self.yield_to_system(netlink, *subnet, &before)?;
        }
        let free = |(subnet, obstacle): &(&Subnet, &Obstacle)| {
            let may_go = paths || **obstacle == Obstacle::Taken;
            may_go && sources.contains_key(subnet) && !is_attached(subnet)
        };
        let free: Vec<Subnet> = self.withheld.iter().filter(free).map(|(subnet, _)| *subnet).collect();
        let mut added = false;
        for subnet in free {
            let source = sources.get(&subnet).copied().flatten();
            match netlink.add_route(self.route(subnet, source)) {
                Err(NetlinkError::Exists { .. }) => {}
                Err(source) => return Err(RouteError { subnet, source }),
                Ok(()) => {
                    self.withheld.remove(&subnet);
                    added |= self.installed.insert(subnet, source).is_none();
                }
            }
        }
        if added || paths {
            self.remove_astray(netlink, wanted, &before)?;
        }
        Ok(!taken.is_empty() || self.withheld != before)
    }

    /// Leaves a subnet to another interface.
    fn yield_to_system(
        &mut self,
        netlink: &mut Netlink,
        subnet: Subnet,
        before: &BTreeMap<Subnet, Obstacle>,
    ) -> Result<(), RouteError> {
        if self.installed.contains_key(&subnet) {
            self.remove(netlink, subnet)?;
        }
        self.withhold(subnet, Obstacle::Taken, before);
        Ok(())
    }

    /// Removes the routes by which datagrams to a peer would enter the interface.
    fn remove_astray(
        &mut self,
        netlink: &mut Netlink,
        wanted: &WantedRoutes,
        before: &BTreeMap<Subnet, Obstacle>,
    ) -> Result<(), RouteError> {
        let Some(first) = wanted.subnets.keys().next() else {
            return Ok(());
        };
        for address in wanted.peers.iter().copied() {
            // Subnets nest, so the removal of one route may leave another.
            while let Some(subnet) = self.astray(netlink, address.ip(), wanted).map_err(fault(*first))? {
                if self.withheld.contains_key(&subnet) {
                    break;
                }
                self.remove(netlink, subnet)?;
                self.withhold(subnet, Obstacle::PeerInside(address), before);
            }
        }
        Ok(())
    }

    /// Records why a subnet has no route, and logs it if that is new.
    fn withhold(&mut self, subnet: Subnet, obstacle: Obstacle, before: &BTreeMap<Subnet, Obstacle>) {
        if before.get(&subnet) != Some(&obstacle) {
            tracing::warn!(%subnet, "the subnet gets no route: {obstacle}");
        }
        self.withheld.insert(subnet, obstacle);
    }

    fn remove(&mut self, netlink: &mut Netlink, subnet: Subnet) -> Result<(), RouteError> {
        self.installed.remove(&subnet);
        match netlink.delete_route(self.route(subnet, None)) {
            // The user has removed it.
            Err(NetlinkError::NotFound { .. }) => Ok(()),
            removed => removed.map_err(fault(subnet)),
        }
    }

    /// Whether this route of the system leads to exactly this subnet, through the interface.
    fn leads(&self, route: &Route, subnet: Subnet) -> bool {
        (route.destination, route.prefix_len) == (subnet.address(), subnet.prefix_len())
            && route.interface == Some(self.index)
    }

    /// The subnet whose route datagrams to `address` take, if it leads into the interface.
    fn astray(
        &self,
        netlink: &mut Netlink,
        address: IpAddr,
        wanted: &WantedRoutes,
    ) -> Result<Option<Subnet>, NetlinkError> {
        let around: Vec<&Subnet> = wanted
            .subnets
            .keys()
            .filter(|subnet| subnet.contains(address))
            .collect();
        if around.is_empty() || netlink.interface_towards(address)? != Some(self.index) {
            return Ok(None);
        }
        // The kernel uses the longest prefix of those that still have a route.
        let routes = netlink.routes_through(self.index)?;
        let has_route = |subnet: &Subnet| routes.iter().any(|route| self.leads(route, *subnet));
        let longest = around.into_iter().filter(|subnet| has_route(subnet));
        Ok(longest.max_by_key(|subnet| subnet.prefix_len()).copied())
    }

    fn route(&self, subnet: Subnet, source: Option<Ipv4Addr>) -> Route {
        let fits = |mtu: &u32| subnet.address().is_ipv4() || *mtu >= LEAST_IPV6_MTU;
        Route {
            mtu: self.mtu.filter(fits),
            source: source.map(IpAddr::V4),
            own: true,
            ..Route::to_interface(subnet.address(), subnet.prefix_len(), self.index)
        }
    }
}

fn fault(subnet: Subnet) -> impl FnOnce(NetlinkError) -> RouteError {
    move |source| RouteError { subnet, source }
}
