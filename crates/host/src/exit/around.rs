//! The interfaces and networks of this host that the rules of an exit's user name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use weft_os::netlink::{Interface, InterfaceAddress, Netlink, NetlinkError, Route};
use weft_wire::Subnet;

use super::saved::is_plain;
use crate::routes::TABLE;

/// The maximum number of networks of each kind that rules name.
const MOST: usize = 65_536;

/// What surrounds the interface of weft.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Around {
    /// The name of that interface, if it is there.
    pub tun: Option<String>,
    /// The bridges within this host, and their networks: containers and virtual machines are at them.
    pub bridges: BTreeMap<String, Bridge>,
    /// The other interfaces with a default route.
    pub uplinks: BTreeSet<String>,
    /// The networks behind the interface of weft.
    pub mesh: BTreeSet<Subnet>,
    /// The addresses of that interface.
    pub own: BTreeSet<IpAddr>,
    /// The networks of other interfaces that are a part of a larger one behind the interface of weft, as a home
    /// network with unique local addresses (RFC 4193) is one of fd00::/8.
    pub beside: BTreeSet<Subnet>,
}

/// A bridge within this host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bridge {
    /// Its index.
    pub index: u32,
    /// The networks of its addresses.
    pub networks: BTreeSet<Subnet>,
}

impl Around {
    /// Reads it. `tun`: the index of the interface of weft, if there is one.
    ///
    /// # Errors
    /// Only if the exchange with the kernel fails.
    pub fn read(netlink: &mut Netlink, tun: Option<u32>) -> Result<Self, NetlinkError> {
        let interfaces = netlink.interfaces()?;
        let mut routes = netlink.routes_to(|route| route.prefix_len == 0)?;
        if let Some(tun) = tun {
            routes.extend(netlink.routes_through(tun)?);
            routes.extend(netlink.own_routes(TABLE)?);
        }
        let addresses = netlink.all_addresses()?;
        Ok(Self::of(&interfaces, &routes, &addresses, tun))
    }

    fn of(interfaces: &[Interface], routes: &[Route], addresses: &[InterfaceAddress], tun: Option<u32>) -> Self {
        let mut around = Self {
            tun: interfaces
                .iter()
                .find(|one| Some(one.index) == tun)
                .map(|one| one.name.clone()),
            ..Self::default()
        };
        for interface in interfaces
            .iter()
            .filter(|one| Some(one.index) != tun && is_plain(&one.name))
        {
            let is_default = |route: &Route| route.prefix_len == 0 && route.interface == Some(interface.index);
            if routes.iter().any(is_default) {
                around.uplinks.insert(interface.name.clone());
            } else if is_within(interface, interfaces) && around.bridges.len() < MOST {
                let of_it = addresses.iter().filter(|address| address.index == interface.index);
                let networks = of_it.filter_map(|of| network(of.address, of.prefix_len));
                let bridge = Bridge {
                    index: interface.index,
                    networks: networks.collect(),
                };
                around.bridges.insert(interface.name.clone(), bridge);
            }
        }
        let own = addresses.iter().filter(|of| Some(of.index) == tun);
        around.own = own
            .filter(|of| network(of.address, of.prefix_len).is_some())
            .map(|of| of.address)
            .collect();
        let behind = routes.iter().filter(|route| tun.is_some() && route.interface == tun);
        let networks = behind.filter_map(|route| network(route.destination, route.prefix_len));
        around.mesh = networks.filter(|network| network.prefix_len() > 0).take(MOST).collect();
        let others = addresses.iter().filter(|of| Some(of.index) != tun);
        let others = others.filter_map(|of| network(of.address, of.prefix_len));
        let is_part = |other: &Subnet| around.mesh.iter().any(|network| is_part(other, network));
        around.beside = others.filter(is_part).take(MOST).collect();
        around
    }

    /// The networks of bridges of one IP version.
    pub(super) fn contained(&self, ipv6: bool) -> BTreeSet<Subnet> {
        let all = self.contained_at().map(|(network, _)| network);
        all.filter(|network| network.address().is_ipv6() == ipv6).collect()
    }

    /// The networks of bridges, each with the index of its bridge.
    pub(super) fn contained_at(&self) -> impl Iterator<Item = (Subnet, u32)> {
        let of_bridge =
            |bridge: &'_ Bridge| -> Vec<_> { bridge.networks.iter().map(|of| (*of, bridge.index)).collect() };
        self.bridges.values().flat_map(of_bridge)
    }

    /// The networks behind the interface of weft of one IP version.
    pub(super) fn mesh(&self, ipv6: bool) -> impl Iterator<Item = Subnet> {
        let all = self.mesh.iter().copied();
        all.filter(move |network| network.address().is_ipv6() == ipv6)
    }
}

fn is_part(of: &Subnet, network: &Subnet) -> bool {
    network.contains(of.address()) && network.prefix_len() < of.prefix_len()
}

/// Whether an interface is a bridge that leads to containers and virtual machines of this host alone: each of
/// its ports is a TAP device or a veth, and no veth pair connects it to another bridge of this host.
pub(crate) fn is_within(interface: &Interface, all: &[Interface]) -> bool {
    let is_port = |port: &&Interface| port.controller == Some(interface.index);
    let leads_on = |peer: u32| {
        let of_peer = all.iter().find(|other| other.index == peer);
        of_peer.is_some_and(|other| other.controller.is_some_and(|of| of != interface.index))
    };
    let is_virtual = |port: &Interface| match port.kind.as_deref() {
        Some("tun") => true,
        Some("veth") => !port.peer.is_some_and(leads_on),
        _ => false,
    };
    interface.up && interface.kind.as_deref() == Some("bridge") && all.iter().filter(is_port).all(is_virtual)
}

/// The network of an address; none of a link-local one, which each interface has.
fn network(address: IpAddr, prefix_len: u8) -> Option<Subnet> {
    let link_local = match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.is_multicast(),
    };
    Subnet::around(address, prefix_len).filter(|_| !link_local)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(index: u32, name: &str, kind: Option<&str>, controller: Option<u32>) -> Interface {
        Interface {
            index,
            name: name.to_owned(),
            mtu: 1_500,
            up: true,
            usable: true,
            controller,
            kind: kind.map(str::to_owned),
            ..Interface::default()
        }
    }

    fn address(index: u32, address: &str, prefix_len: u8) -> InterfaceAddress {
        InterfaceAddress {
            index,
            address: address.parse().unwrap(),
            prefix_len,
        }
    }

    fn route(destination: &str, prefix_len: u8, interface: u32) -> Route {
        Route::to_interface(destination.parse().unwrap(), prefix_len, interface)
    }

    fn texts(networks: impl IntoIterator<Item = Subnet>) -> Vec<String> {
        networks.into_iter().map(|network| network.to_string()).collect()
    }

    #[test]
    fn a_bridge_of_containers_is_within_and_one_of_a_lan_is_not() {
        let interfaces = [
            interface(1, "weft0", Some("tun"), None),
            interface(2, "eth0", None, None),
            interface(3, "docker0", Some("bridge"), None),
            interface(4, "veth1", Some("veth"), Some(3)),
            interface(5, "tap0", Some("tun"), Some(3)),
            // One port is a cable, and the other one a tunnel to another host.
            interface(6, "br-lan", Some("bridge"), None),
            interface(7, "eth1", None, Some(6)),
            interface(8, "br-far", Some("bridge"), None),
            interface(9, "vxlan0", Some("vxlan"), Some(8)),
            // A veth pair leads from one bridge to another, which has a cable.
            interface(13, "br-pair", Some("bridge"), None),
            Interface {
                peer: Some(15),
                ..interface(14, "vpair0", Some("veth"), Some(13))
            },
            interface(15, "vpair1", Some("veth"), Some(6)),
            // A bridge with a default route, one with a name that nft does not take, and one that is down.
            interface(10, "br-wan", Some("bridge"), None),
            interface(11, "br\"; drop", Some("bridge"), None),
            Interface {
                up: false,
                ..interface(12, "br-down", Some("bridge"), None)
            },
        ];
        let routes = [
            route("0.0.0.0", 0, 2),
            route("::", 0, 10),
            route("10.44.0.9", 32, 1),
            route("fd00::", 8, 1),
            route("192.168.1.0", 24, 2),
        ];
        let addresses = [
            address(1, "10.44.0.7", 32),
            address(3, "172.17.0.1", 16),
            address(3, "fd12::1", 64),
            address(3, "fe80::1", 64),
            address(6, "192.168.7.1", 24),
            address(2, "fd13::1", 64),
        ];
        let around = Around::of(&interfaces, &routes, &addresses, Some(1));
        assert_eq!(around.bridges.keys().collect::<Vec<_>>(), ["docker0"]);
        assert_eq!(texts(around.contained(false)), ["172.17.0.0/16"]);
        assert_eq!(texts(around.contained(true)), ["fd12::/64"]);
        assert_eq!(
            around.contained_at().map(|(_, index)| index).collect::<Vec<_>>(),
            [3, 3]
        );
        assert_eq!(around.uplinks.iter().collect::<Vec<_>>(), ["br-wan", "eth0"]);
        assert_eq!(texts(around.mesh(false)), ["10.44.0.9/32"]);
        assert_eq!(texts(around.mesh(true)), ["fd00::/8"]);
        assert_eq!(around.own, ["10.44.0.7".parse().unwrap()].into());
        assert_eq!(texts(around.beside), ["fd12::/64", "fd13::/64"]);
        let without = Around::of(&interfaces, &routes, &addresses, None);
        assert!(without.mesh.is_empty());
    }
}
