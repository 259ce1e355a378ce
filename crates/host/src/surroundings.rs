//! The interfaces, addresses and routes of other programs that a node depends on.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weft_os::netlink::{Interface, InterfaceAddress, Netlink, NetlinkError, Route};
use weft_reach::nat::is_private;
use weft_wire::Subnet;

use crate::exit::around::is_within;
use crate::uplinks::{is_tunnel, leads_elsewhere};

/// Which hosts an interface leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leads {
    /// Those of other networks: a default route goes through it.
    Out,
    /// Those of the network that it is in.
    Beside,
    /// Containers and virtual machines of this host, or those behind the tunnel of another program.
    Within,
}

/// The metric that the kernel gives a route of IPv6.
const METRIC_IPV6: u32 = 1_024;

/// The subnets to which a node has routes, or would like to have them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subnets {
    all: BTreeSet<Subnet>,
    /// The lengths of their prefixes, with those of both IP versions together.
    lens: BTreeSet<u8>,
}

impl FromIterator<Subnet> for Subnets {
    fn from_iter<T: IntoIterator<Item = Subnet>>(subnets: T) -> Self {
        let all: BTreeSet<Subnet> = subnets.into_iter().collect();
        Self {
            lens: all.iter().map(Subnet::prefix_len).collect(),
            all,
        }
    }
}

impl Subnets {
    /// Whether a route of another interface matters for one of them: it leads to addresses in one, or to all of one, or
    /// by a router whose address is one.
    #[must_use]
    pub fn concern(&self, route: &Route) -> bool {
        let by_router = |subnets: &Self| {
            let router = route.gateway.map(Subnet::host);
            router.is_some_and(|router| subnets.all.contains(&router))
        };
        let Ok(to) = Subnet::new(route.destination, route.prefix_len) else {
            return false;
        };
        by_router(self) || to.prefix_len() > 0 && self.overlap(to)
    }

    /// Whether an address lies in one of them.
    #[must_use]
    pub fn contain(&self, address: IpAddr) -> bool {
        self.contain_all(Subnet::host(address))
    }

    fn overlap(&self, to: Subnet) -> bool {
        let within = |subnet: &Subnet| to.contains(subnet.address());
        self.all.range(to..).next().is_some_and(within) || self.contain_all(to)
    }

    /// Whether one of them contains all of another one.
    fn contain_all(&self, of: Subnet) -> bool {
        let mut lens = self.lens.range(..=of.prefix_len());
        lens.any(|len| Subnet::around(of.address(), *len).is_some_and(|around| self.all.contains(&around)))
    }
}

/// The part of the network namespace that a node depends on, read at one time. Of the table of routes it has what
/// concerns the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// All interfaces.
    pub interfaces: Vec<Interface>,
    /// The addresses of all interfaces.
    pub addresses: Vec<InterfaceAddress>,
    /// Those among them that go soon: deprecated and temporary ones.
    pub passing: BTreeSet<InterfaceAddress>,
    /// Default routes of the main table, and those that concern the subnets that were asked for.
    pub routes: Vec<Route>,
}

impl Surroundings {
    /// Reads them. `subnets`: those that a node has routes to.
    ///
    /// # Errors
    /// Only if the exchange with the kernel fails.
    pub fn read(netlink: &mut Netlink, subnets: &Subnets) -> Result<Self, NetlinkError> {
        let interfaces = netlink.interfaces()?;
        let (addresses, passing) = netlink.checked_addresses()?;
        Ok(Self {
            interfaces,
            addresses,
            passing,
            routes: netlink.routes_to(|route| route.prefix_len == 0 || subnets.concern(route))?,
        })
    }

    /// The default routes, but those through the interface `own`.
    pub fn defaults(&self, own: u32) -> impl Iterator<Item = &Route> {
        let others = self.routes.iter().filter(move |route| route.interface != Some(own));
        others.filter(|route| route.prefix_len == 0)
    }

    /// Which hosts the interface of an address leads to; `None` if no packets pass there.
    #[must_use]
    pub fn leads(&self, of: &InterfaceAddress) -> Option<Leads> {
        let interface = self.interfaces.iter().find(|link| link.index == of.index)?;
        let default = |route: &Route| route.interface == Some(of.index) && route.prefix_len == 0;
        let has_default = self.routes.iter().any(default);
        // Private addresses in a tunnel are of a network behind it; a public one is routed through it.
        let is_inner = is_tunnel(interface) && is_private(of.address);
        // Without a default route, a veth is the end of a container's cable.
        let is_veth = interface.kind.as_deref() == Some("veth");
        interface.usable.then_some(match has_default {
            true if !is_inner => Leads::Out,
            false if !is_tunnel(interface) && !is_veth && !is_within(interface, &self.interfaces) => Leads::Beside,
            _ => Leads::Within,
        })
    }

    /// The networks that interfaces other than `own` are in, each with the index of its interface: those of their
    /// addresses, and those to which a route leads without a router. Of an interface to one other host, as a tunnel is,
    /// only the first: its routes lead to networks elsewhere.
    pub fn links(&self, own: u32) -> impl Iterator<Item = (Subnet, u32)> {
        let is_link = move |index: u32| {
            let mut all = self.interfaces.iter();
            let of = all.find(|interface| interface.index == index);
            index != own && of.is_none_or(|of| of.up && !of.loopback)
        };
        let of_addresses = self.addresses.iter().filter(move |of| is_link(of.index));
        let of_addresses = of_addresses.filter_map(|of| Some((Subnet::around(of.address, of.prefix_len)?, of.index)));
        let of_routes = self.others(own).filter(|route| route.gateway.is_none());
        let of_routes = of_routes.filter(move |route| {
            route
                .interface
                .is_some_and(|index| is_link(index) && !self.is_to_one_host(index))
        });
        let of_routes = of_routes.filter_map(|route| Some((to(route)?, route.interface?)));
        of_addresses
            .chain(of_routes)
            .filter(|(network, _)| is_link_of_hosts(network))
    }

    /// Returns the routes through interfaces other than `own`, without default routes.
    pub fn others(&self, own: u32) -> impl Iterator<Item = &Route> {
        let others = self.routes.iter().filter(move |route| route.interface != Some(own));
        others.filter(|route| route.prefix_len > 0)
    }

    /// The routers of the routes, but those through the interface `own`.
    pub fn routers(&self, own: u32) -> impl Iterator<Item = IpAddr> {
        let others = self.routes.iter().filter(move |route| route.interface != Some(own));
        others.filter_map(|route| route.gateway)
    }

    /// The name of an interface.
    #[must_use]
    pub fn name(&self, index: u32) -> Option<&str> {
        let found = self.interfaces.iter().find(|interface| interface.index == index);
        found.map(|interface| &*interface.name)
    }

    fn is_to_one_host(&self, index: u32) -> bool {
        let found = self.interfaces.iter().find(|interface| interface.index == index);
        found.and_then(|of| of.kind.as_deref()).is_some_and(leads_elsewhere)
    }

    /// Returns true if other hosts are reached as at another time: by the same default routes, from
    /// the same addresses.
    #[must_use]
    pub fn leads_as(&self, other: &Self, own: u32) -> bool {
        let addresses = |of: &Self| -> BTreeSet<InterfaceAddress> {
            let others = of.addresses.iter().filter(|address| address.index != own);
            others.copied().collect()
        };
        let usable = |of: &Self| -> BTreeSet<u32> {
            let usable = of.interfaces.iter().filter(|link| link.usable && link.index != own);
            usable.map(|link| link.index).collect()
        };
        self.defaults(own).eq(other.defaults(own))
            && addresses(self) == addresses(other)
            && usable(self) == usable(other)
    }
}

/// The network to which a route leads.
#[must_use]
pub fn to(route: &Route) -> Option<Subnet> {
    Subnet::new(route.destination, route.prefix_len).ok()
}

/// Whether a route was there before any other to its network, or is one to a link: not one that its program has given a
/// higher metric, which is to be used only without another one.
#[must_use]
pub fn goes_first(route: &Route) -> bool {
    let least = if route.destination.is_ipv4() { 0 } else { METRIC_IPV6 };
    route.gateway.is_none() || route.metric.is_none_or(|metric| metric <= least)
}

/// Whether hosts of a link have addresses in a network: not all addresses, and no link-local ones or groups, which each
/// link has.
fn is_link_of_hosts(network: &Subnet) -> bool {
    let everywhere = match network.address() {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_multicast() || ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.is_multicast() || ip.is_loopback(),
    };
    network.prefix_len() > 0 && !everywhere
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(destination: &str) -> Route {
        let to: Subnet = destination.parse().unwrap();
        Route::to_interface(to.address(), to.prefix_len(), 2)
    }

    proptest::proptest! {
        #[test]
        fn the_routes_that_overlap_a_subnet_concern_it(
            subnets in proptest::collection::vec((proptest::num::u32::ANY, 1_u8..=32), 0..6),
            (near, bit, len) in (0_usize..6, 0_u32..32, 1_u8..=32),
        ) {
            let around = |(address, len): (u32, u8)| Subnet::around(IpAddr::V4(address.into()), len).unwrap();
            // Addresses that differ in one bit from those of a subnet test more than random ones.
            let address = subnets.get(near).map_or(7, |(address, _)| address ^ (1 << bit));
            let to = around((address, len));
            let wanted: Subnets = subnets.iter().copied().map(around).collect();
            let expected = subnets.iter().copied().map(around).any(|subnet| subnet.overlaps(&to));
            proptest::prop_assert_eq!(wanted.concern(&route(&to.to_string())), expected);
        }
    }

    #[test]
    fn a_default_route_concerns_a_subnet_by_its_router_alone() {
        let wanted: Subnets = ["10.44.0.9/32".parse().unwrap()].into_iter().collect();
        assert!(!wanted.concern(&route("0.0.0.0/0")));
        for (gateway, expected) in [("10.44.0.9", true), ("10.44.0.8", false)] {
            let by_router = Route {
                gateway: Some(gateway.parse().unwrap()),
                ..route("198.51.100.0/24")
            };
            assert_eq!(wanted.concern(&by_router), expected);
        }
    }

    #[test]
    fn a_tunnel_is_in_the_network_of_its_address_alone() {
        let interface = |index, kind: &str| Interface {
            index,
            up: true,
            kind: (!kind.is_empty()).then(|| kind.to_owned()),
            ..Interface::default()
        };
        let address = |index, address: &str, prefix_len| InterfaceAddress {
            index,
            address: address.parse().unwrap(),
            prefix_len,
        };
        let through = |interface, destination: &str| Route {
            interface: Some(interface),
            ..route(destination)
        };
        let surroundings = Surroundings {
            interfaces: vec![interface(2, ""), interface(3, "wireguard"), interface(7, "tun")],
            addresses: vec![
                address(2, "192.168.1.7", 24),
                address(2, "fe80::7", 64),
                address(3, "10.8.0.7", 24),
                address(7, "10.44.0.7", 32),
            ],
            routes: vec![
                through(2, "192.168.2.0/24"),
                Route::via([10, 5, 0, 0].into(), 16, [192, 168, 1, 1].into()),
                through(3, "10.0.0.0/8"),
                through(7, "10.9.0.0/16"),
            ],
            ..Surroundings::default()
        };
        let links: Vec<String> = surroundings.links(7).map(|(network, _)| network.to_string()).collect();
        assert_eq!(links, ["192.168.1.0/24", "10.8.0.0/24", "192.168.2.0/24"]);
    }
}
