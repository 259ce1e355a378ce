//! The place of routes to subnets behind peers: a table of their own.
//!
//! A rule leads all packets there but those of this node's own sockets, which have a mark: a peer may have an address in
//! a subnet behind it, and datagrams to it never enter the tunnel. A network of this host that is a part of a subnet
//! leads out of the table again. docs/decisions/0071-table-of-routes.md has the reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::thread::sleep;
use std::time::Duration;

use weft_config::Config;
use weft_os::netlink::{LookUp, MAIN, Netlink, NetlinkError, Route, Rule, Then};
use weft_os::udp::MARK;
use weft_wire::Subnet;
use weft_wire::fast::FULL_OVERHEAD;

use crate::tun::mesh_route;

/// The number of the table.
pub const TABLE: u32 = 30_564;
/// The numbers of the rules: in front of those of an exit, and far in front of the system's.
pub const PRIORITIES: RangeInclusive<u32> = FIRST..=PAST;
const FIRST: u32 = 5_190;
/// That of the last rule, to which packets go that do not use the table.
const PAST: u32 = 5_199;
/// The minimum MTU of an IPv6 route, in bytes.
const LEAST_IPV6_MTU: u32 = 1280;
/// How long, and how many times, the end of an interface is waited for whose daemon has ended.
const GONE: (Duration, u32) = (Duration::from_millis(50), 20);

/// What routes there have to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedRoutes {
    /// The subnets behind peers, each with the address of this node that packets to it leave from, if one is set.
    pub subnets: BTreeMap<Subnet, Option<Ipv4Addr>>,
    /// Networks that are a part of one of these and that this host reaches by itself.
    pub past: BTreeSet<Subnet>,
    /// The UDP ports of this node, if a peer has an IPv4 address in one of these. A host that checks sources strictly
    /// (rp_filter) accepts the datagrams of that peer only if an answer from the port would leave where they came in.
    pub ports: BTreeSet<u16>,
    /// The kernel has no rules for routes of IPv4, of IPv6: the routes are in the main table.
    pub in_main: [bool; 2],
}

impl WantedRoutes {
    /// The routes, through the interface with this index.
    #[must_use]
    pub fn routes(&self, interface: u32, config: &Config) -> Vec<Route> {
        // Packets of subnets have less room in a frame than those between nodes.
        let room = u32::from(config.udp.largest()).saturating_sub(FULL_OVERHEAD as u32);
        let room = Some(room).filter(|room| *room < u32::from(config.tun_mtu()));
        let past = self.past.iter().map(|network| Route {
            own: true,
            ..Route::throw(TABLE, network.address(), network.prefix_len())
        });
        let to_peers = self.subnets.iter().map(|(subnet, source)| Route {
            table: if self.is_in_main(subnet) { MAIN } else { TABLE },
            mtu: room.filter(|room| subnet.address().is_ipv4() || *room >= LEAST_IPV6_MTU),
            source: source.map(IpAddr::V4),
            own: true,
            ..Route::to_interface(subnet.address(), subnet.prefix_len(), interface)
        });
        past.chain(to_peers).collect()
    }

    /// The rules that lead packets to the table, in the order in which they are added: none for an IP version without
    /// subnets, and so none for a node that needs no table.
    #[must_use]
    pub fn rules(&self) -> Vec<Rule> {
        let versions = [false, true].into_iter();
        versions.flat_map(|ipv6| self.rules_of(ipv6)).collect()
    }

    fn rules_of(&self, ipv6: bool) -> Vec<Rule> {
        let mut of_version = self.subnets.keys().filter(|subnet| subnet.address().is_ipv6() == ipv6);
        if of_version.all(|subnet| self.is_in_main(subnet)) {
            return Vec::new();
        }
        let table = Then::LookUp(LookUp {
            table: TABLE,
            no_default: false,
            not_through: None,
        });
        // The kernel passes over a rule whose goal is missing, so that is the first one.
        let mut rules = vec![Rule::new(ipv6, PAST, Then::Nothing)];
        rules.push(Rule {
            marked: Some(MARK),
            ..Rule::new(ipv6, FIRST, Then::GoTo(PAST))
        });
        rules.extend(self.ports.iter().filter(|_| !ipv6).map(|port| Rule {
            from_port: Some(*port),
            ..Rule::new(ipv6, FIRST + 1, Then::GoTo(PAST))
        }));
        rules.push(Rule::new(ipv6, FIRST + 2, table));
        rules
    }

    fn is_in_main(&self, subnet: &Subnet) -> bool {
        self.in_main[usize::from(subnet.address().is_ipv6())]
    }
}

/// Removes the rules and the table, in which no interface that has gone has a route left.
///
/// # Errors
/// A [`NetlinkError`]
pub fn remove(netlink: &mut Netlink) -> Result<(), NetlinkError> {
    netlink.delete_rules(&PRIORITIES)?;
    netlink.delete_routes_of(TABLE)
}

/// Removes what a daemon has left that has ended, once its interface with this index is down or gone, unless another
/// daemon has begun meanwhile.
///
/// # Errors
/// A [`NetlinkError`]
pub fn remove_left(interface: u32) -> Result<(), NetlinkError> {
    let mut netlink = Netlink::open()?;
    for _ in 0..GONE.1 {
        match netlink.interface_at(interface) {
            Ok(found) if found.up => {}
            Ok(_) | Err(NetlinkError::NotFound { .. }) if has_node(&mut netlink)? => return Ok(()),
            Ok(_) | Err(NetlinkError::NotFound { .. }) => return remove(&mut netlink),
            Err(error) => return Err(error),
        }
        // The kernel takes an interface down some time after its process has ended.
        sleep(GONE.0);
    }
    Ok(())
}

/// Whether the interface of a node is there.
fn has_node(netlink: &mut Netlink) -> Result<bool, NetlinkError> {
    let mesh = mesh_route(0);
    let to = |route: &Route| (route.destination, route.prefix_len);
    let routes = netlink.routes_to(|route| route.own && to(route) == to(&mesh))?;
    Ok(!routes.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(subnets: &[&str]) -> WantedRoutes {
        WantedRoutes {
            subnets: subnets.iter().map(|text| (text.parse().unwrap(), None)).collect(),
            ..WantedRoutes::default()
        }
    }

    #[test]
    fn an_ip_version_without_subnets_has_no_rules() {
        assert_eq!(wanted(&[]).rules(), []);
        for (subnet, ipv6) in [("192.168.9.0/24", false), ("2001:db8::/48", true)] {
            let mut wanted = wanted(&[subnet]);
            wanted.ports = BTreeSet::from([2121]);
            let rules = wanted.rules();
            assert!(rules.iter().all(|rule| rule.ipv6 == ipv6), "{rules:?}");
            assert_eq!(rules.iter().any(|rule| rule.from_port == Some(2121)), !ipv6);
            wanted.in_main = [true; 2];
            assert_eq!(wanted.rules(), []);
        }
    }
}
