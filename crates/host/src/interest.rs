//! Which changes of the network matter to a node. Pure.
//!
//! A host may see thousands of changes a second: routes of a full table, interfaces of containers. A
//! change that does not concern the node costs no more than its reading.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::ops::BitOrAssign;

use weft_os::netlink::{Change, InterfaceAddress, MAIN, Route};

use crate::routes::TABLE;
use crate::surroundings::{Subnets, Surroundings, to};
use crate::watch::Listener;

/// What a change may have changed for a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Concern {
    /// Addresses, MTU or routes of the node's own interface, or the rules that lead packets to its routes.
    pub interface: bool,
    /// Where the host leads addresses of subnets behind peers.
    pub subnets: bool,
    /// The addresses of the host, its default routes, or its route to a peer.
    pub paths: bool,
    /// Notifications were lost, so all of these have to be read again.
    pub lost: bool,
}

impl Concern {
    /// Returns true if nothing has changed.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl BitOrAssign for Concern {
    fn bitor_assign(&mut self, other: Self) {
        self.interface |= other.interface;
        self.subnets |= other.subnets;
        self.paths |= other.paths;
        self.lost |= other.lost;
    }
}

/// What a node depends on.
#[derive(Debug, Clone, Default)]
pub struct Interest {
    own: u32,
    /// Interfaces with addresses or routes that count: whether packets pass, and the MTU.
    links: BTreeMap<u32, (bool, u32)>,
    /// Addresses that count, and whether each is passing.
    addresses: BTreeMap<InterfaceAddress, bool>,
    subnets: Subnets,
    /// The addresses of peers.
    peers: BTreeSet<IpAddr>,
}

impl Interest {
    /// The interest of a node with this interface.
    #[must_use]
    pub fn new(own: u32) -> Self {
        Self { own, ..Self::default() }
    }

    /// Sets the subnets to which the node has routes, or would like to have them.
    pub fn set_subnets(&mut self, subnets: Subnets) {
        self.subnets = subnets;
    }

    /// Sets the addresses that the node sends to.
    pub fn set_peers(&mut self, peers: BTreeSet<IpAddr>) {
        self.peers = peers;
    }

    /// Takes over what was read of the host.
    pub fn set_surroundings(&mut self, surroundings: &Surroundings) {
        let counted = surroundings.addresses.iter().filter(|address| self.counts(address));
        let passing = |address| surroundings.passing.contains(address);
        self.addresses = counted.map(|address| (*address, passing(address))).collect();
        let of_routes = surroundings.routes.iter().filter_map(|route| route.interface);
        let indexes: BTreeSet<u32> = self.addresses.keys().map(|own| own.index).chain(of_routes).collect();
        let links = surroundings
            .interfaces
            .iter()
            .filter(|link| indexes.contains(&link.index));
        self.links = links.map(|link| (link.index, (link.usable, link.mtu))).collect();
    }

    /// Returns what a change may have changed, and notes it.
    pub fn note(&mut self, change: &Change) -> Concern {
        match change {
            Change::Lost => Concern {
                lost: true,
                ..Concern::default()
            },
            Change::Link { index, .. } if *index == self.own => of_interface(),
            Change::Link { index, usable, mtu } => match self.links.get_mut(index) {
                Some(known) if *known != (*usable, *mtu) => {
                    *known = (*usable, *mtu);
                    // The kernel removes the IPv4 routes of an interface and does not tell of it.
                    Concern {
                        subnets: true,
                        paths: true,
                        ..Concern::default()
                    }
                }
                _ => Concern::default(),
            },
            Change::Address { address, .. } if address.index == self.own => of_interface(),
            Change::Address {
                address,
                present,
                passing,
            } => self.note_address(address, present.then_some(*passing)),
            Change::Route { route, table, present } => self.note_route(route, *table, *present),
            Change::Rule => of_interface(),
            Change::Setting { .. } | Change::Table { .. } | Change::Generation { .. } => Concern::default(),
        }
    }

    /// `present`: whether the address is passing; `None` if it has gone.
    fn note_address(&mut self, address: &InterfaceAddress, present: Option<bool>) -> Concern {
        let differs = self.counts(address)
            && match present {
                Some(passing) => self.addresses.insert(*address, passing) != Some(passing),
                None => self.addresses.remove(address).is_some(),
            };
        if differs && present.is_some() {
            // Its properties are read with the rest.
            self.links.entry(address.index).or_default();
        }
        Concern {
            paths: differs,
            ..Concern::default()
        }
    }

    fn note_route(&self, route: &Route, table: u32, present: bool) -> Concern {
        // Its own additions are not news, and others' routes stay, unless they replace one.
        let may_lack = route.own != present;
        if table == TABLE && may_lack {
            return of_interface();
        }
        if table != MAIN {
            return Concern::default();
        }
        let through_own = route.interface == Some(self.own);
        Concern {
            interface: through_own && may_lack,
            subnets: !through_own && self.subnets.concern(route),
            paths: !through_own && (route.prefix_len == 0 || self.leads_to_peer(route)),
            lost: false,
        }
    }

    /// Whether packets to a peer may take this route.
    fn leads_to_peer(&self, route: &Route) -> bool {
        let Some(subnet) = to(route) else {
            return false;
        };
        let mut from = self.peers.range(route.destination..);
        from.next().is_some_and(|peer| subnet.contains(*peer))
    }

    /// Whether other hosts can reach this one at the address.
    fn counts(&self, address: &InterfaceAddress) -> bool {
        let link_local = match address.address {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => Ipv6Addr::is_unicast_link_local(&ip),
        };
        address.index != self.own && !link_local && !address.address.is_loopback()
    }
}

impl Listener for Interest {
    type Due = Concern;

    fn note(&mut self, change: &Change, due: &mut Concern) -> bool {
        let concern = Self::note(self, change);
        *due |= concern;
        !concern.is_none()
    }
}

const fn of_interface() -> Concern {
    Concern {
        interface: true,
        subnets: false,
        paths: false,
        lost: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u32 = 7;

    fn address(index: u32, address: &str) -> InterfaceAddress {
        InterfaceAddress {
            index,
            address: address.parse().unwrap(),
            prefix_len: 24,
        }
    }

    fn interest() -> Interest {
        let mut interest = Interest::new(OWN);
        interest.set_subnets(["192.168.9.0/24".parse().unwrap()].into_iter().collect());
        let peers = ["203.0.113.10", "2001:db8::10", "198.51.100.1"];
        interest.set_peers(peers.map(|peer| peer.parse().unwrap()).into());
        let link = |index, name: &str| weft_os::netlink::Interface {
            index,
            name: name.to_owned(),
            mtu: 1_500,
            up: true,
            usable: true,
            ..weft_os::netlink::Interface::default()
        };
        interest.set_surroundings(&Surroundings {
            interfaces: vec![link(2, "eth0"), link(3, "veth1"), link(OWN, "weft0")],
            addresses: vec![
                address(2, "192.168.1.10"),
                address(2, "fe80::1"),
                address(OWN, "10.44.0.1"),
            ],
            passing: BTreeSet::new(),
            routes: vec![Route {
                interface: Some(2),
                ..Route::via([0; 4].into(), 0, [192, 168, 1, 1].into())
            }],
        });
        interest
    }

    /// The concern of a change as letters: interface, subnets, paths.
    fn concern(interest: &mut Interest, change: &Change) -> String {
        let concern = interest.note(change);
        let letters = [(concern.interface, 'i'), (concern.subnets, 's'), (concern.paths, 'p')];
        letters
            .into_iter()
            .filter(|(on, _)| *on)
            .map(|(_, letter)| letter)
            .collect()
    }

    fn route(destination: &str, prefix_len: u8, interface: u32) -> Change {
        Change::Route {
            route: Route::to_interface(destination.parse().unwrap(), prefix_len, interface),
            table: MAIN,
            present: true,
        }
    }

    #[test]
    fn routes_count_by_where_they_lead() {
        for (change, expected) in [
            (route("12.0.0.1", 32, 2), ""),
            (route("12.0.0.0", 8, 2), ""),
            (route("0.0.0.0", 0, 2), "p"),
            (route("::", 0, 2), "p"),
            (route("203.0.113.10", 32, 2), "p"),
            (route("203.0.113.0", 24, 2), "p"),
            (route("203.0.113.11", 32, 2), ""),
            (route("2001:db8::", 32, 2), "p"),
            (route("2001:db8::11", 128, 2), ""),
            (route("192.168.9.0", 24, 2), "s"),
            (route("192.168.9.0", 25, 2), "s"),
            (route("192.168.8.0", 22, 2), "s"),
            (route("192.168.10.0", 24, 2), ""),
            // Another program's through the own interface may have replaced one.
            (route("192.168.9.0", 24, OWN), "i"),
        ] {
            assert_eq!(concern(&mut interest(), &change), expected, "{change:?}");
        }
    }

    #[test]
    fn own_routes_count_when_they_go() {
        for (present, table, expected) in [
            (true, MAIN, ""),
            (false, MAIN, "i"),
            (true, TABLE, ""),
            (false, TABLE, "i"),
            (false, 255, ""),
        ] {
            let route = Route {
                own: true,
                ..Route::to_interface([192, 168, 9, 0].into(), 24, OWN)
            };
            let change = Change::Route { route, table, present };
            assert_eq!(concern(&mut interest(), &change), expected);
        }
    }

    #[test]
    fn addresses_and_links_count_once() {
        let mut interest = interest();
        let mut of = |address: InterfaceAddress, present| {
            let change = Change::Address {
                address,
                present,
                passing: false,
            };
            concern(&mut interest, &change)
        };
        assert_eq!(
            of(address(2, "192.168.1.10"), true),
            "",
            "a router has announced it again"
        );
        assert_eq!(of(address(3, "fe80::2"), true), "");
        assert_eq!(of(address(3, "172.17.0.1"), true), "p");
        assert_eq!(of(address(3, "172.17.0.1"), true), "");
        assert_eq!(of(address(3, "172.17.0.1"), false), "p");
        assert_eq!(of(address(3, "172.17.0.1"), false), "");
        assert_eq!(of(address(OWN, "10.44.0.1"), false), "i");
        let mut passes = |passing| {
            let change = Change::Address {
                address: address(2, "192.168.1.10"),
                present: true,
                passing,
            };
            concern(&mut interest, &change)
        };
        assert_eq!([true, true, false].map(&mut passes), ["p", "", "p"]);
        let mut of = |index, usable, mtu| concern(&mut interest, &Change::Link { index, usable, mtu });
        assert_eq!(of(2, true, 1_500), "");
        assert_eq!(of(2, false, 1_500), "sp");
        assert_eq!(of(2, false, 1_500), "");
        assert_eq!(of(2, true, 1_500), "sp");
        assert_eq!(of(2, true, 1_400), "sp", "a path takes less");
        assert_eq!(of(99, true, 1_500), "", "of a container");
        assert_eq!(of(OWN, true, 1_500), "i");
    }

    #[test]
    fn other_kinds_are_of_no_concern() {
        let mut interest = interest();
        let table = Change::Table {
            name: "filter".to_owned(),
        };
        for change in [Change::Setting { interface: None }, table] {
            assert!(interest.note(&change).is_none());
        }
        assert_eq!(concern(&mut interest, &Change::Rule), "i");
        assert!(interest.note(&Change::Lost).lost);
    }

    proptest::proptest! {
        #[test]
        fn each_route_to_a_peer_is_seen(peer in proptest::num::u32::ANY, others in proptest::collection::vec(proptest::num::u32::ANY, 0..20), len in 0_u8..=32) {
            let mut interest = Interest::new(OWN);
            let all = others.iter().chain([&peer]).map(|peer| IpAddr::V4((*peer).into()));
            interest.set_peers(all.collect());
            let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            let network = IpAddr::V4((peer & mask).into());
            let change = Change::Route { route: Route::to_interface(network, len, 2), table: MAIN, present: true };
            proptest::prop_assert!(interest.note(&change).paths);
        }
    }
}
