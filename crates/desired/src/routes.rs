//! Where packets to subnets behind peers go: to the peers, or to hosts that this one reaches by itself.
//!
//! What a user has written in the configuration goes first. A network brings the rest, and nothing that it brings takes
//! away what lies on a link of this host: a member that offers one address of the LAN would otherwise get what is meant
//! for the neighbour there. The addresses of members themselves are apart from that (`weft_networks::HostUse`).

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use weft_config::Config;
use weft_host::routes::WantedRoutes;
use weft_host::surroundings::{Subnets, Surroundings, goes_first, to};
use weft_networks::HostUse;
use weft_wire::{NodeAddr, Subnet};

use crate::System;
use crate::guests::Hosted;
use crate::members::Members;

/// The reason why a subnet behind a peer has no route to it. Its text is half a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The host is in a subnet that has all its addresses, by this interface.
    Link(Subnet, String),
    /// The system has a route to the same subnet.
    Taken,
    /// The address of a peer lies in it, and the kernel has no rules for routes, by which datagrams to the peer would
    /// take another way.
    PeerInside(SocketAddr),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(link, interface) => write!(
                f,
                "this host is in {link} by {}, and reaches the hosts there by itself; if those behind the peer are \
                 others, one of the two subnets needs other addresses",
                interface.escape_debug()
            ),
            Self::Taken => f.write_str(
                "this system has a route to the same subnet already; `ip route` names it, and one of the two subnets needs \
                 other addresses",
            ),
            Self::PeerInside(address) => write!(
                f,
                "{address}, where a peer is, lies in it, and this kernel has no rules for routes \
                 (CONFIG_IP_MULTIPLE_TABLES); use a kernel that has them, or smaller subnets"
            ),
        }
    }
}

/// Where a subnet behind a peer comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The configuration has it.
    pub by_hand: bool,
    /// The address of this node that packets to it leave from, if one is set.
    pub source: Option<Ipv4Addr>,
    /// It is the address of a member or of a guest.
    pub address: bool,
}

/// The routes to subnets behind peers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    /// Those that the system gets.
    pub wanted: WantedRoutes,
    /// The subnets without one, each with the reason.
    pub withheld: BTreeMap<Subnet, Obstacle>,
}

impl Routes {
    /// Derives them, with those to the guests behind this node.
    #[must_use]
    pub fn of(members: &Members, hosted: &BTreeMap<NodeAddr, Hosted>, system: &System) -> Self {
        let host = Host::of(system);
        let has_table = |network: &Subnet| system.rules[usize::from(network.address().is_ipv6())];
        let mut routes = Self::default();
        routes.wanted.in_main = system.rules.map(|has| !has);
        let peers: Vec<SocketAddr> = members.addresses().collect();
        for (subnet, origin) in members.origins().chain(hosted.values().map(Hosted::origin)) {
            let is_astray = |peer: &&SocketAddr| subnet.contains(peer.ip()) && !host.reaches_within(subnet, peer.ip());
            let inside = || match has_table(&subnet) {
                true => None,
                false => peers.iter().find(is_astray).copied().map(Obstacle::PeerInside),
            };
            match host.obstacle(subnet, origin).or_else(inside) {
                Some(obstacle) => drop(routes.withheld.insert(subnet, obstacle)),
                None => drop(routes.wanted.subnets.insert(subnet, origin.source)),
            }
        }
        let subnets = &routes.wanted.subnets;
        let is_part = |network: &Subnet| {
            let mut around = subnets.keys().filter(|subnet| subnet.contains(network.address()));
            around.any(|subnet| subnet.prefix_len() < network.prefix_len())
        };
        let past = host.networks().filter(has_table);
        let past = past.filter(|network| !subnets.contains_key(network) && is_part(network));
        routes.wanted.past = past.collect();
        // There may be thousands of both.
        let all: Subnets = subnets.keys().copied().collect();
        let is_behind = |peer: &SocketAddr| peer.is_ipv4() && all.contain(peer.ip());
        if peers.iter().any(is_behind) {
            routes.wanted.ports = system.listen.iter().map(SocketAddr::port).collect();
        }
        routes
    }
}

/// The networks that this host reaches by itself.
struct Host<'a> {
    surroundings: &'a Surroundings,
    own: u32,
    links: Vec<(Subnet, u32)>,
}

impl<'a> Host<'a> {
    fn of(system: &'a System) -> Self {
        let own = system.interface;
        Self {
            surroundings: &system.surroundings,
            own,
            links: system.surroundings.links(own).collect(),
        }
    }

    fn networks(&self) -> impl Iterator<Item = Subnet> {
        let links = self.links.iter().map(|(network, _)| *network);
        links.chain(self.surroundings.others(self.own).filter_map(to))
    }

    /// Whether the host has a route of its own to an address within a subnet.
    fn reaches_within(&self, subnet: Subnet, address: IpAddr) -> bool {
        let mut networks = self.networks();
        networks.any(|network| network.contains(address) && network.prefix_len() > subnet.prefix_len())
    }

    fn obstacle(&self, subnet: Subnet, origin: Origin) -> Option<Obstacle> {
        if origin.address {
            return None;
        }
        let is_around = |link: &Subnet| match origin.by_hand {
            true => *link == subnet,
            false => link.contains(subnet.address()) && link.prefix_len() <= subnet.prefix_len(),
        };
        if let Some((link, index)) = self.links.iter().find(|(link, _)| is_around(link)) {
            let name = self.surroundings.name(*index).unwrap_or_default();
            return Some(Obstacle::Link(*link, name.to_owned()));
        }
        let mut others = self.surroundings.others(self.own);
        others
            .any(|route| to(route) == Some(subnet) && goes_first(route))
            .then_some(Obstacle::Taken)
    }
}

/// What decides which addresses of members are used on this host.
#[must_use]
pub fn host_use(config: &Config, system: &System) -> HostUse {
    let (surroundings, own) = (&system.surroundings, system.interface);
    let others = surroundings.addresses.iter().filter(|of| of.index != own);
    let others = others.filter_map(|of| match of.address {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    });
    let named = |(network, index): (Subnet, u32)| {
        let name = surroundings.name(index).unwrap_or_default();
        (network, name.to_owned())
    };
    HostUse {
        accepts: config.networks.accept_routes,
        own: others.collect(),
        routers: surroundings.routers(own).collect(),
        resolvers: system.resolvers.clone(),
        links: surroundings.links(own).map(named).collect(),
    }
}

/// The subnets of which it matters how the host reaches addresses in them: those behind peers, and the addresses of
/// members and guests, also those that are not used.
#[must_use]
pub fn of_interest(members: &Members, networks: &weft_networks::Networks) -> Subnets {
    let joined = networks.iter().filter(|network| network.is_member(networks.own()));
    let addresses = joined.flat_map(|network| {
        let state = network.state();
        let guests = state.guests.values().filter_map(|guest| guest.ipv4);
        state.addresses.of.values().copied().chain(guests)
    });
    let addresses = addresses.map(|address| Subnet::host(IpAddr::V4(address)));
    members.origins().map(|(subnet, _)| subnet).chain(addresses).collect()
}

#[cfg(test)]
mod tests;
