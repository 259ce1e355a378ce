//! Sites with addresses of fd00::/8 of their own, as RFC 4193 has them: the mesh has all of that range, and
//! only the subnet that a host is in has a more specific route.

use std::net::{IpAddr, Ipv6Addr};

use weft_os::netlink::{InterfaceAddress, Netlink, NetlinkError, Route};
use weft_os::udp::MARK;
use weft_wire::Subnet;

use super::Fault;
use super::facts::ELSEWHERE;

/// The bits of the prefix of the mesh, of a site, and of a subnet in it (RFC 4193 section 3.1).
const MESH_LEN: u8 = 8;
const SITE_LEN: u8 = 48;
const SUBNET_LEN: u8 = 64;

/// A site whose other subnets lead into the node's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// All its addresses.
    pub site: Subnet,
    /// The interface by which this host is in it, which is that of the default route.
    pub interface: String,
    /// The router of the default route, if that has one.
    pub gateway: Option<IpAddr>,
}

/// The sites of the interface of the default route whose other subnets lead into the node's interface.
/// `addresses`: those of this host; `name`: the name of an interface.
pub(super) fn read(
    netlink: &mut Netlink,
    own: u32,
    addresses: &[InterfaceAddress],
    name: impl Fn(u32) -> Option<String>,
) -> Result<Vec<Site>, NetlinkError> {
    // Packets of the node itself go by the main table, whether there is an exit or not.
    let out = match netlink.interface_of_marked(ELSEWHERE[1][0], MARK) {
        Err(NetlinkError::Refused { .. }) => None,
        out => out?,
    };
    let Some((out, interface)) = out.filter(|out| *out != own).and_then(|out| Some((out, name(out)?))) else {
        return Ok(Vec::new());
    };
    let in_mesh = |address: &IpAddr| matches!(address, IpAddr::V6(ip) if ip.octets()[0] == 0xfd);
    let of_out = addresses.iter().filter(|own| own.index == out && in_mesh(&own.address));
    let of_out: Vec<(IpAddr, u8)> = of_out.map(|own| (own.address, own.prefix_len)).collect();
    let routes = netlink.routes_through(out)?;
    let mut sites = Vec::new();
    for (site, gateway) in uncovered(&of_out, &routes) {
        let mut leads_away = false;
        for address in siblings(site.1) {
            leads_away |= netlink.interface_towards(address)? == Some(own);
        }
        let site = Site {
            site: site.0,
            interface: interface.clone(),
            gateway,
        };
        if leads_away && !sites.contains(&site) {
            sites.push(site);
        }
    }
    Ok(sites)
}

/// The sites of these addresses and of the subnets without a router of which no route covers more than
/// the subnet, each with an address in it, and the router of the default route.
fn uncovered(addresses: &[(IpAddr, u8)], routes: &[Route]) -> Vec<((Subnet, Ipv6Addr), Option<IpAddr>)> {
    let is_default = |route: &&Route| route.destination.is_ipv6() && route.prefix_len == 0;
    let default = routes
        .iter()
        .filter(is_default)
        .min_by_key(|route| route.metric.unwrap_or(0));
    let Some(gateway) = default.map(|route| route.gateway) else {
        return Vec::new();
    };
    let on_link = routes.iter().filter(|route| route.gateway.is_none());
    let on_link = on_link.map(|route| (route.destination, route.prefix_len));
    let all = addresses.iter().copied().chain(on_link);
    let all = all.filter_map(|(address, len)| match address {
        IpAddr::V6(ip) if ip.octets()[0] == 0xfd && len > SITE_LEN => Some(ip),
        _ => None,
    });
    let is_covered = |ip: &Ipv6Addr| {
        routes.iter().any(|route| {
            let covers = Subnet::new(route.destination, route.prefix_len);
            (MESH_LEN + 1..SUBNET_LEN).contains(&route.prefix_len)
                && covers.is_ok_and(|subnet| subnet.contains(IpAddr::V6(*ip)))
        })
    };
    let open = all.filter(|ip| !is_covered(ip));
    open.filter_map(|ip| Some(((Subnet::around(IpAddr::V6(ip), SITE_LEN)?, ip), gateway)))
        .collect()
}

/// Addresses of two other subnets of the site of an address.
fn siblings(of: Ipv6Addr) -> [IpAddr; 2] {
    let subnet = of.to_bits() >> 64 << 64;
    [64, 79].map(|bit| IpAddr::V6(Ipv6Addr::from_bits((subnet ^ 1 << bit) | 1)))
}

/// Names a site that is reached in part.
pub(super) fn fault(site: &Site, own: &str) -> Fault {
    let Site {
        site,
        interface,
        gateway,
    } = site;
    let what = format!(
        "packets to other subnets of {site}, the site that {interface} is in, go into {own}: fd00::/8 of the mesh is more \
         specific than the default route"
    );
    let via = gateway.map_or_else(String::new, |gateway| format!(" via {gateway}"));
    let fix = format!("sudo ip -6 route add {site}{via} dev {interface}");
    Fault::new(
        "route",
        what,
        "hosts in these subnets, if the site has any, are not reached",
        fix,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(to: &str, gateway: Option<&str>) -> Route {
        let to: Subnet = to.parse().unwrap();
        Route {
            gateway: gateway.map(|ip| ip.parse().unwrap()),
            ..Route::to_interface(to.address(), to.prefix_len(), 2)
        }
    }

    fn sites(addresses: &[(&str, u8)], routes: &[Route]) -> Vec<String> {
        let addresses: Vec<_> = addresses.iter().map(|(ip, len)| (ip.parse().unwrap(), *len)).collect();
        let found = uncovered(&addresses, routes).into_iter();
        found.map(|((site, _), _)| site.to_string()).collect()
    }

    #[test]
    fn only_a_site_behind_the_default_route_is_uncovered() {
        let default = route("::/0", Some("fe80::1"));
        let own = [("fd12:3456:789a:1::7", 64)];
        let site = ["fd12:3456:789a::/48"];
        let only = std::slice::from_ref(&default);
        assert_eq!(sites(&own, only), site);
        // Of DHCPv6, and of a router that gives no addresses.
        assert_eq!(sites(&[("fd12:3456:789a:1::7", 128)], only), site);
        assert_eq!(sites(&[], &[default, route("fd12:3456:789a:1::/64", None)]), site);
        assert_eq!(sites(&own, &[]), [""; 0]);
        for addresses in [("fd12:3456:789a:1::7", 48), ("2001:db8::7", 64), ("fc00::7", 64)] {
            assert_eq!(sites(&[addresses], only), [""; 0], "{addresses:?}");
        }
        for (covers, expected) in [
            ("fd12:3456:789a::/48", &[][..]),
            ("fd12:3456:789a::/60", &[]),
            ("fd12::/16", &[]),
            ("fd00::/8", &site),
            ("fd12:3456:789a:2::/64", &site),
            ("fd12:3456:789b::/48", &site),
        ] {
            let routes = [default, route(covers, Some("fe80::1"))];
            assert_eq!(sites(&own, &routes), expected, "{covers}");
        }
    }

    #[test]
    fn other_subnets_of_a_site_differ_in_their_number_alone() {
        let of = siblings("fd12:3456:789a:1::7".parse().unwrap());
        assert_eq!(
            of.map(|ip| ip.to_string()),
            ["fd12:3456:789a::1", "fd12:3456:789a:8001::1"]
        );
    }

    #[test]
    fn the_command_names_the_router_if_there_is_one() {
        let mut site = Site {
            site: "fd12:3456:789a::/48".parse().unwrap(),
            interface: "eth0".to_owned(),
            gateway: Some("fe80::1".parse().unwrap()),
        };
        let fix = |site: &Site| fault(site, "weft0").fix.unwrap();
        assert_eq!(
            fix(&site),
            "sudo ip -6 route add fd12:3456:789a::/48 via fe80::1 dev eth0"
        );
        site.gateway = None;
        assert_eq!(fix(&site), "sudo ip -6 route add fd12:3456:789a::/48 dev eth0");
    }
}
