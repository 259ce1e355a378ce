//! The uplinks of this host: the interfaces through which it reaches all other networks.
//!
//! An interface is an uplink for a version of IP if the main table has a default route through it. A
//! tunnel is none, whatever its routes, since its own packets leave by an uplink; and without a gateway
//! an interface is one only if it belongs to hardware (a mobile network has no gateway). Usually the
//! system sends by the uplink whose route has the lowest metric. A host whose other VPN leads the node's
//! datagrams into its tunnel, by rules or routes, has no uplinks: a socket that is bound to one would
//! bypass that VPN. docs/decisions/0053-uplinks.md.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weft_os::netlink::{Interface, InterfaceAddress, Netlink, NetlinkError, Route};
use weft_os::udp::MARK;

use crate::surroundings::Surroundings;

/// Uplinks for a version of IP. Those with the highest metrics are left out.
pub const MOST: usize = 4;

/// Virtual interfaces whose packets travel inside those of another interface (`ip link add type`).
const TUNNELS: [&str; 12] = [
    "tun",
    "wireguard",
    "ipip",
    "gre",
    "gretap",
    "sit",
    "ip6tnl",
    "ip6gre",
    "vti",
    "vti6",
    "xfrm",
    "vxlan",
];
/// Virtual interfaces to one other host, which needs no address as a gateway.
const POINT_TO_POINT: [&str; 3] = ["ppp", "wwan", "rmnet"];

/// An uplink for one version of IP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// The name of the interface.
    pub device: String,
    /// Whether it is one for IPv6, or else for IPv4.
    pub ipv6: bool,
    /// Whether it has a carrier, and an address that other networks can answer.
    pub usable: bool,
}

/// Addresses for documentation (RFC 5737, RFC 3849), to which no network has a route of its own: what
/// leads there is the default route.
const ELSEWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

/// The uplinks of the host, for IPv4 and IPv6: of each version first the
/// one that the system prefers, then the others in the order of their metrics. `own`: the index of the
/// node's interface, which is none.
///
/// # Errors
/// Only if the exchange with the kernel fails.
pub fn uplinks(surroundings: &Surroundings, own: u32) -> Result<Vec<Uplink>, NetlinkError> {
    let mut netlink = Netlink::open()?;
    let mut preferred = [None; 2];
    for (preferred, elsewhere) in preferred.iter_mut().zip(ELSEWHERE) {
        *preferred = netlink.interface_of_marked(elsewhere, MARK)?;
    }
    let Surroundings {
        interfaces,
        addresses,
        routes,
        ..
    } = surroundings;
    Ok(select((routes, preferred), interfaces, addresses, own))
}

/// The address of IPv6 that the system selects for what leaves to other networks through the interface
/// with this index, if it has a route there.
#[must_use]
pub fn ipv6_source(index: u32) -> Option<Ipv6Addr> {
    let source = Netlink::open().and_then(|mut netlink| netlink.source_through(ELSEWHERE[1], index));
    match source {
        Ok(Some(IpAddr::V6(source))) => Some(source),
        _ => None,
    }
}

/// The interfaces through which the system sends, asked one address after the other.
pub struct Devices {
    netlink: Netlink,
    interfaces: Vec<Interface>,
}

impl Devices {
    /// Looks at the interfaces of the calling thread's network namespace, without `own`, that of the
    /// node.
    ///
    /// # Errors
    /// Only if the exchange with the kernel fails.
    pub fn open(own: &str) -> Result<Self, NetlinkError> {
        let mut netlink = Netlink::open()?;
        let mut interfaces = netlink.interfaces()?;
        interfaces.retain(|interface| interface.name != own);
        Ok(Self { netlink, interfaces })
    }

    /// The name of the interface through which the system sends to an address, if it has a route.
    pub fn towards(&mut self, address: IpAddr) -> Option<String> {
        let index = self.netlink.interface_towards(address).ok().flatten()?;
        self.name(index)
    }

    /// The name of the interface with this index.
    #[must_use]
    pub fn name(&self, index: u32) -> Option<String> {
        let interface = self.interfaces.iter().find(|interface| interface.index == index)?;
        Some(interface.name.clone())
    }
}

/// `preferred`: the interface by which the system sends to other networks, for IPv4 and IPv6.
fn select(
    (routes, preferred): (&[Route], [Option<u32>; 2]),
    interfaces: &[Interface],
    addresses: &[InterfaceAddress],
    own: u32,
) -> Vec<Uplink> {
    let of_version = |ipv6: bool| {
        let defaults = routes
            .iter()
            .filter(move |route| route.prefix_len == 0 && route.destination.is_ipv6() == ipv6);
        let mut found: Vec<(u32, &Interface)> = defaults
            .filter_map(|route| {
                let interface = interfaces
                    .iter()
                    .find(|interface| Some(interface.index) == route.interface)?;
                let counts = interface.index != own && is_uplink(interface, route);
                counts.then_some((route.metric.unwrap_or(0), interface))
            })
            .collect();
        let [v4, v6] = preferred;
        let preferred = if ipv6 { v6 } else { v4 };
        let is_preferred = |interface: &Interface| Some(interface.index) == preferred;
        if preferred.is_some() && !found.iter().any(|(_, interface)| is_preferred(interface)) {
            return Vec::new();
        }
        found.sort_by_key(|(metric, interface)| (!is_preferred(interface), *metric));
        let mut uplinks: Vec<Uplink> = Vec::new();
        for (_, interface) in found {
            if uplinks.len() < MOST && uplinks.iter().all(|known| known.device != interface.name) {
                let mut own = addresses.iter().filter(|address| address.index == interface.index);
                uplinks.push(Uplink {
                    device: interface.name.clone(),
                    ipv6,
                    usable: interface.usable && own.any(|own| is_answered(own, ipv6)),
                });
            }
        }
        uplinks
    };
    [false, true].into_iter().flat_map(of_version).collect()
}

/// Whether packets of the interface travel inside those of another one.
pub(crate) fn is_tunnel(interface: &Interface) -> bool {
    interface.kind.as_deref().is_some_and(|kind| TUNNELS.contains(&kind))
}

/// Whether an interface of this kind leads to one other host, or into a tunnel.
#[must_use]
pub fn leads_elsewhere(kind: &str) -> bool {
    TUNNELS.contains(&kind) || POINT_TO_POINT.contains(&kind)
}

fn is_uplink(interface: &Interface, route: &Route) -> bool {
    let kind = interface.kind.as_deref();
    let is_of = |kinds: &[&str]| kind.is_some_and(|kind| kinds.contains(&kind));
    !interface.loopback
        && !is_tunnel(interface)
        && (route.gateway.is_some() || kind.is_none() || is_of(&POINT_TO_POINT))
}

/// Whether hosts of other networks can answer to this address.
fn is_answered(own: &InterfaceAddress, ipv6: bool) -> bool {
    match own.address {
        IpAddr::V4(ip) => !ipv6 && !ip.is_link_local(),
        IpAddr::V6(ip) => ipv6 && !ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(index: u32, kind: Option<&str>) -> Interface {
        Interface {
            index,
            name: format!("if{index}"),
            mtu: 1_500,
            up: true,
            usable: true,
            kind: kind.map(str::to_owned),
            ..Interface::default()
        }
    }

    fn default(index: u32, gateway: Option<&str>, metric: u32) -> Route {
        let gateway: Option<IpAddr> = gateway.map(|gateway| gateway.parse().unwrap());
        let any = match gateway {
            Some(IpAddr::V6(_)) => [0_u16; 8].into(),
            _ => [0; 4].into(),
        };
        Route {
            gateway,
            metric: Some(metric),
            ..Route::to_interface(any, 0, index)
        }
    }

    fn address(index: u32, address: &str) -> InterfaceAddress {
        InterfaceAddress {
            index,
            address: address.parse().unwrap(),
            prefix_len: 24,
        }
    }

    /// The devices of the uplinks of each version, with a mark for one that is not usable.
    fn devices(routes: &[Route], interfaces: &[Interface], addresses: &[InterfaceAddress]) -> [Vec<String>; 2] {
        devices_by([None; 2], routes, interfaces, addresses)
    }

    fn devices_by(
        preferred: [Option<u32>; 2],
        routes: &[Route],
        interfaces: &[Interface],
        addresses: &[InterfaceAddress],
    ) -> [Vec<String>; 2] {
        let uplinks = select((routes, preferred), interfaces, addresses, 9);
        [false, true].map(|ipv6| {
            let of = uplinks.iter().filter(|uplink| uplink.ipv6 == ipv6);
            of.map(|uplink| format!("{}{}", uplink.device, if uplink.usable { "" } else { "!" }))
                .collect()
        })
    }

    const NONE: [String; 0] = [];

    #[test]
    fn uplinks_are_in_the_order_of_their_metrics_and_by_version() {
        let interfaces = [1, 2, 3].map(|index| interface(index, None));
        let addresses = [
            address(1, "192.168.1.7"),
            address(2, "100.64.0.7"),
            address(2, "2001:db8::7"),
            address(2, "fe80::7"),
            address(3, "10.0.0.7"),
        ];
        let routes = [
            default(2, Some("100.64.0.1"), 600),
            default(1, Some("192.168.1.1"), 100),
            default(1, Some("192.168.1.2"), 300),
            default(2, Some("fe80::1"), 1_024),
            Route::via([10, 1, 0, 0].into(), 16, [10, 0, 0, 1].into()),
        ];
        assert_eq!(
            devices(&routes, &interfaces, &addresses),
            [vec!["if1", "if2"], vec!["if2"]]
        );
    }

    #[test]
    fn tunnels_and_bridges_are_none_and_a_modem_needs_no_gateway() {
        let kinds = [None, Some("wireguard"), Some("bridge"), Some("ppp"), Some("bridge")];
        let interfaces: Vec<Interface> = (1..).zip(kinds).map(|(index, kind)| interface(index, kind)).collect();
        let addresses: Vec<InterfaceAddress> = (1..6).map(|index| address(index, "10.0.0.7")).collect();
        let routes = [
            default(1, None, 5),
            default(2, Some("10.0.0.1"), 1),
            default(3, None, 2),
            default(4, None, 4),
            default(5, Some("10.0.0.1"), 3),
        ];
        let expected = ["if5", "if4", "if1"];
        assert_eq!(devices(&routes, &interfaces, &addresses)[0], expected);
        // Nor is the node's own interface.
        let own = interface(9, None);
        assert_eq!(
            devices(&[default(9, None, 0)], &[own], &[address(9, "10.0.0.7")])[0],
            NONE
        );
    }

    #[test]
    fn the_preferred_uplink_is_first_and_a_vpn_hides_all() {
        let interfaces = [interface(1, None), interface(2, None), interface(3, Some("wireguard"))];
        let addresses = [1, 2, 3].map(|index| address(index, "10.0.0.7"));
        let routes = [1, 2].map(|index| default(index, Some("10.0.0.1"), index));
        let devices = |preferred| devices_by([preferred, None], &routes, &interfaces, &addresses)[0].clone();
        assert_eq!(devices(None), ["if1", "if2"]);
        assert_eq!(devices(Some(1)), ["if1", "if2"]);
        assert_eq!(devices(Some(2)), ["if2", "if1"], "the first one has no carrier, say");
        assert_eq!(devices(Some(3)), NONE);
    }

    #[test]
    fn one_without_a_carrier_or_an_address_is_not_usable() {
        let mut interfaces = [1, 2, 3].map(|index| interface(index, None));
        interfaces[0].usable = false;
        let routes = [1, 2, 3].map(|index| default(index, Some("10.0.0.1"), index));
        let addresses = [
            address(1, "10.0.0.7"),
            address(2, "169.254.3.3"),
            address(3, "10.0.0.8"),
            address(2, "2001:db8::7"),
        ];
        assert_eq!(devices(&routes, &interfaces, &addresses)[0], ["if1!", "if2!", "if3"]);
    }

    #[test]
    fn their_number_is_bounded() {
        let interfaces: Vec<Interface> = (10..30).map(|index| interface(index, None)).collect();
        let routes: Vec<Route> = (10..30).map(|n| default(n, Some("10.0.0.1"), 100 - n)).collect();
        let devices = devices(&routes, &interfaces, &[]);
        assert_eq!(devices[0], ["if29!", "if28!", "if27!", "if26!"]);
    }
}
