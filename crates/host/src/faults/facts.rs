//! What the kernel says about the ways of packets.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use weft_os::netlink::{Interface, InterfaceAddress, Netlink, NetlinkError};
use weft_wire::Subnet;

use super::masquerade::Forwarded;
use super::packet_filter::Ruleset;
use super::site::{self, Site};
use super::{Examined, Skipped, find};
use crate::interface::plain_name;
use crate::routes::TABLE;

/// Addresses to which the default route leads, two for each version of IP: those for documentation
/// (RFC 5737, RFC 3849, RFC 9637), and one of the lower half of IPv4. Nothing is sent there.
pub(super) const ELSEWHERE: [[IpAddr; 2]; 2] = [
    [
        IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)),
        IpAddr::V4(Ipv4Addr::new(96, 0, 113, 1)),
    ],
    [
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
        IpAddr::V6(Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 1)),
    ],
];

/// Paths of iptables(8) for nftables.
const IPTABLES: [&str; 2] = ["/usr/sbin/iptables-nft", "/sbin/iptables-nft"];

/// What a node expects of its host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The UDP ports at which other nodes reach it.
    pub ports: Vec<u16>,
    /// Whether it is an exit for IPv4, and for IPv6.
    pub exit: [bool; 2],
    /// Whether all its packets go by an exit, for IPv4 and for IPv6.
    pub by_exit: [bool; 2],
    /// The subnets behind this host that others send to.
    pub behind: Vec<Subnet>,
    /// Addresses that lead into the node's interface.
    pub inside: Vec<IpAddr>,
}

/// A way from the node's interface into another network, on which packets of others are forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// Where it leads: all addresses of a version if this host is an exit.
    pub to: Subnet,
    /// An address there.
    pub destination: IpAddr,
    /// The interface by which packets leave; `None` without a route.
    pub out: Option<String>,
    /// Settings of the kernel that keep packets from being forwarded.
    pub closed: Vec<String>,
}

impl Way {
    /// A way without an obstacle. `own`: the addresses of this host.
    pub(super) fn new(to: Subnet, own: &[InterfaceAddress]) -> Self {
        let is_own = |address: &IpAddr| own.iter().any(|own| own.address == *address);
        let destination = match (to.prefix_len(), to.address()) {
            (0, IpAddr::V4(_)) => ELSEWHERE[0][0],
            (0, IpAddr::V6(_)) => ELSEWHERE[1][0],
            (_, first) => {
                let mut hosts = (1..TRIED).map(|number| host(to, number));
                hosts.find(|address| !is_own(address)).unwrap_or(first)
            }
        };
        Self {
            to,
            destination,
            out: None,
            closed: Vec::new(),
        }
    }
}

/// Addresses of a subnet of which one is none of this host.
const TRIED: u32 = 6;

/// The address of a host in a subnet, by its number from 1: of one without room the first address.
#[must_use]
pub fn host(subnet: Subnet, number: u32) -> IpAddr {
    match subnet.address() {
        IpAddr::V4(first) if subnet.prefix_len() < 29 => IpAddr::V4(Ipv4Addr::from_bits(first.to_bits() | number)),
        IpAddr::V6(first) if subnet.prefix_len() < 125 => {
            IpAddr::V6(Ipv6Addr::from_bits(first.to_bits() | u128::from(number)))
        }
        first => first,
    }
}

/// What the kernel says.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The name of the node's interface.
    pub interface: String,
    /// [`Wanted::ports`]
    pub ports: Vec<u16>,
    /// The ways of packets of others.
    pub ways: Vec<Way>,
    /// Addresses whose packets do not go to the node's interface, and the interface by which they leave.
    pub astray: Vec<(IpAddr, Option<String>)>,
    /// The same for addresses of the Internet, to which the exit is to carry packets.
    pub past_exit: Vec<(IpAddr, Option<String>)>,
    /// What is forwarded into the node's interface.
    pub forwarded: Forwarded,
    /// Sites whose other subnets lead into the node's interface.
    pub sites: Vec<Site>,
    /// The reverse path filter of the node's interface: 1 is strict, 2 is loose.
    pub rp_filter: Option<u8>,
    /// The connections that the kernel tracks, and the most that it can.
    pub connections: Option<(u64, u64)>,
    /// The rules of nftables.
    pub ruleset: Ruleset,
    /// Whether iptables(8) is here that writes rules of nftables. It reads its chains no more if one of them
    /// has a condition that it has not written.
    pub iptables: bool,
}

impl Facts {
    /// Looks at the host of a node. `interface`: the index of its interface.
    ///
    /// # Errors
    /// If the exchange with the kernel fails, or the interface has gone.
    pub fn read(wanted: &Wanted, interface: u32, ruleset: Ruleset) -> Result<Self, NetlinkError> {
        let mut netlink = Netlink::open()?;
        let name = plain_name(interface)?.unwrap_or_default();
        let (interfaces, addresses) = (netlink.interfaces()?, netlink.all_addresses()?);
        let mut look = Look {
            name: &name,
            interface,
            interfaces: &interfaces,
            addresses: &addresses,
            netlink: &mut netlink,
        };
        let number = |setting: &str| setting_of(setting)?.parse::<u64>().ok();
        let strict = |of: &str| number(&setting(4, of, "rp_filter"));
        Ok(Self {
            ports: wanted.ports.clone(),
            ways: look.ways(wanted)?,
            astray: look.astray(wanted.inside.iter().copied())?,
            past_exit: look.past_exit(wanted)?,
            forwarded: look.forwarded()?,
            sites: look.sites()?,
            // The kernel takes the higher of the two.
            rp_filter: strict("all")
                .max(strict(&name))
                .and_then(|value| u8::try_from(value).ok()),
            connections: number("net.netfilter.nf_conntrack_count").zip(number("net.netfilter.nf_conntrack_max")),
            ruleset,
            iptables: IPTABLES.iter().any(|path| Path::new(path).exists()),
            interface: name,
        })
    }
}

/// Looks at the host of a node, and says what is wrong. `rules`: those of nftables, or the reason why
/// they are not known.
#[must_use]
pub fn examine(wanted: &Wanted, interface: u32, rules: Result<Ruleset, String>) -> Examined {
    let mut skipped = Vec::new();
    let mut skip = |check: &str, why: String| {
        skipped.push(Skipped {
            check: check.to_owned(),
            why,
        });
    };
    let ruleset = rules.unwrap_or_else(|why| {
        skip("firewall", why);
        Ruleset::default()
    });
    if has_older_rules() {
        skip(
            "firewall",
            "the rules of the older iptables are not followed; `iptables-legacy -S` lists them".to_owned(),
        );
    }
    let faults = match Facts::read(wanted, interface, ruleset) {
        Ok(facts) => find(&facts),
        Err(error) => {
            skip("route", error.to_string());
            Vec::new()
        }
    };
    Examined { faults, skipped }
}

/// Whether the kernel has rules that nft does not show.
fn has_older_rules() -> bool {
    let names = ["ip", "ip6"].map(|family| fs::read_to_string(format!("/proc/net/{family}_tables_names")));
    let mut names = names.into_iter().flatten();
    names.any(|names| names.lines().any(|name| name == "filter"))
}

struct Look<'a> {
    name: &'a str,
    interface: u32,
    interfaces: &'a [Interface],
    addresses: &'a [InterfaceAddress],
    netlink: &'a mut Netlink,
}

impl Look<'_> {
    fn name_of(&self, index: u32) -> Option<String> {
        let interface = self.interfaces.iter().find(|interface| interface.index == index)?;
        Some(interface.name.clone())
    }

    fn ways(&mut self, wanted: &Wanted) -> Result<Vec<Way>, NetlinkError> {
        let mut ways = Vec::new();
        for (ipv6, _) in [false, true].into_iter().zip(wanted.exit).filter(|(_, exit)| *exit) {
            let all = match ipv6 {
                false => Subnet::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
                true => Subnet::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
            };
            let Ok(all) = all else { continue };
            let out = self.default_route(ipv6)?;
            ways.push(self.way(Way::new(all, self.addresses), out));
        }
        for subnet in &wanted.behind {
            let way = Way::new(*subnet, self.addresses);
            let out = self.netlink.interface_towards(way.destination)?;
            // A subnet that is an address of this host needs no way.
            if out.is_none_or(|out| self.name_of(out).as_deref() != Some("lo")) {
                ways.push(self.way(way, out));
            }
        }
        Ok(ways)
    }

    fn way(&self, mut way: Way, out: Option<u32>) -> Way {
        let out = out.filter(|out| *out != self.interface);
        way.out = out.and_then(|index| self.name_of(index));
        if let Some(out) = &way.out {
            let settings = Forwarding { read: &setting_of };
            way.closed = settings.closed(way.to.address().is_ipv6(), self.name, out);
        }
        way
    }

    /// The interface of the default route with the lowest metric, the node's own left out.
    fn default_route(&mut self, ipv6: bool) -> Result<Option<u32>, NetlinkError> {
        let routes = self
            .netlink
            .routes_to(|route| route.prefix_len == 0 && route.destination.is_ipv6() == ipv6)?;
        let others = routes.into_iter().filter(|route| {
            route.prefix_len == 0 && route.destination.is_ipv6() == ipv6 && route.interface != Some(self.interface)
        });
        let best = others.min_by_key(|route| route.metric.unwrap_or(0));
        Ok(best.and_then(|route| route.interface))
    }

    /// Those of the addresses whose packets do not go to the node's interface. Addresses of this host are
    /// left out.
    fn astray(
        &mut self,
        addresses: impl Iterator<Item = IpAddr>,
    ) -> Result<Vec<(IpAddr, Option<String>)>, NetlinkError> {
        let mut astray = Vec::new();
        for address in addresses {
            let mut own = self.addresses.iter();
            // A host without addresses of this version sends none.
            if own.all(|own| own.address.is_ipv4() != address.is_ipv4())
                || self.addresses.iter().any(|own| own.address == address)
            {
                continue;
            }
            let by = match self.netlink.interface_towards(address) {
                // A route that forbids or drops packets.
                Err(NetlinkError::Refused { .. }) => None,
                by => by?,
            };
            if by != Some(self.interface) {
                astray.push((address, by.and_then(|index| self.name_of(index))));
            }
        }
        Ok(astray)
    }

    /// The same for addresses of the Internet. Subnets that this host is in are left out.
    fn past_exit(&mut self, wanted: &Wanted) -> Result<Vec<(IpAddr, Option<String>)>, NetlinkError> {
        let own = self.addresses;
        let attached = |address: &IpAddr| {
            let subnets = own.iter().filter_map(|own| Subnet::around(own.address, own.prefix_len));
            subnets.into_iter().any(|subnet| subnet.contains(*address))
        };
        let carried = ELSEWHERE
            .into_iter()
            .zip(wanted.by_exit)
            .filter(|(_, by_exit)| *by_exit);
        let addresses = carried.flat_map(|(addresses, _)| addresses);
        let addresses: Vec<IpAddr> = addresses.filter(|address| !attached(address)).collect();
        self.astray(addresses.into_iter())
    }
}

impl Look<'_> {
    fn sites(&mut self) -> Result<Vec<Site>, NetlinkError> {
        let interfaces = self.interfaces;
        let name = |index| {
            let found = interfaces.iter().find(|interface| interface.index == index);
            found.map(|interface| interface.name.clone())
        };
        site::read(self.netlink, self.interface, self.addresses, name)
    }

    /// What is forwarded into the node's interface, if that has several addresses of IPv4.
    fn forwarded(&mut self) -> Result<Forwarded, NetlinkError> {
        let ipv4 = self.addresses.iter().filter_map(|own| match own.address {
            IpAddr::V4(ip) => Some((own.index, ip, own.prefix_len)),
            IpAddr::V6(_) => None,
        });
        let (own, others): (Vec<_>, Vec<_>) = ipv4.partition(|(index, ..)| *index == self.interface);
        let own: Vec<_> = own.into_iter().map(|(_, ip, len)| (ip, len)).collect();
        if own.len() < 2 {
            return Ok(Forwarded::default());
        }
        let settings = Forwarding { read: &setting_of };
        let from = others.into_iter().filter_map(|(index, ip, len)| {
            let name = self.name_of(index).filter(|name| name != "lo")?;
            let subnet = Subnet::around(IpAddr::V4(ip), len)?;
            let host = Way::new(subnet, self.addresses).destination;
            let is_open = settings.is(&setting(4, &name, "forwarding"), "1");
            is_open.then_some((name, subnet, host))
        });
        let from = from.collect();
        let mut routes = self.netlink.routes_through(self.interface)?;
        routes.extend(self.netlink.own_routes(TABLE)?);
        let sources = routes.into_iter().filter(|route| route.own).filter_map(|route| {
            let Some(IpAddr::V4(source)) = route.source else {
                return None;
            };
            Some((Subnet::new(route.destination, route.prefix_len).ok()?, source))
        });
        Ok(Forwarded {
            own,
            sources: sources.collect(),
            from,
        })
    }
}

/// Settings about forwarding. `read`: the value of one, by its name in the form of sysctl(8).
pub(super) struct Forwarding<'a> {
    pub(super) read: &'a dyn Fn(&str) -> Option<String>,
}

impl Forwarding<'_> {
    fn is(&self, setting: &str, value: &str) -> bool {
        (self.read)(setting).is_some_and(|now| now == value)
    }

    /// The settings that keep packets of a version from being forwarded between two interfaces. The
    /// kernel looks at that of the interface by which a packet comes in, and for IPv6 at one for all.
    pub(super) fn closed(&self, ipv6: bool, one: &str, other: &str) -> Vec<String> {
        if ipv6 {
            let all = "net.ipv6.conf.all.forwarding";
            let forced = |name: &str| self.is(&setting(6, name, "force_forwarding"), "1");
            let closed = self.is(all, "0") && !(forced(one) && forced(other));
            return closed.then(|| all.to_owned()).into_iter().collect();
        }
        let settings = [one, other].map(|name| setting(4, name, "forwarding"));
        let closed: Vec<String> = settings.into_iter().filter(|name| self.is(name, "0")).collect();
        match closed.len() {
            2 => vec!["net.ipv4.ip_forward".to_owned()],
            _ => closed,
        }
    }
}

/// The name of a setting of an interface, in the form of sysctl(8): a dot in the name of the interface
/// is a slash there.
pub(super) fn setting(version: u8, interface: &str, name: &str) -> String {
    format!("net.ipv{version}.conf.{}.{name}", interface.replace('.', "/"))
}

/// The value of a setting of the kernel, by its name in the form of sysctl(8).
fn setting_of(name: &str) -> Option<String> {
    let swapped = name.chars().map(|c| match c {
        '.' => '/',
        '/' => '.',
        c => c,
    });
    let path: String = swapped.collect();
    let text = fs::read_to_string(format!("/proc/sys/{path}")).ok()?;
    Some(text.trim().to_owned())
}
