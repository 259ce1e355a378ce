//! Exits: what the system has to do for the exit of this node, and for this node as exit.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use weft_config::Config;
use weft_host::exit::{Ends, ServeExit, UseExit};
use weft_host::surroundings::Surroundings;
use weft_networks::{Networks, of_exit, used_ipv4};
use weft_noise::PublicKey;
use weft_roster::record::Exit;
use weft_wire::Subnet;
use weft_wire::internet::is_of_internet;

use crate::System;

/// The orders to the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// How packets of this node go by an exit, if they do.
    pub used: Option<UseExit>,
    /// What this node forwards as exit.
    pub served: Option<ServeExit>,
    /// Connections by the exit end when it is used no longer: this node has none any more. One whose node ends may come
    /// back with it.
    pub ends: bool,
}

/// Returns how the system sends to the exit: if strict, from the start and whatever the exit does;
/// otherwise directly unless `pass` says that packets pass. `exit`: the exit of this node, if it is approved.
#[must_use]
pub fn used(
    config: &Config,
    networks: &Networks,
    exit: Option<(PublicKey, Exit)>,
    pass: impl FnOnce(&PublicKey) -> bool,
) -> Option<UseExit> {
    config.tun.exit.as_ref()?;
    let strict = config.tun.exit_strict;
    let direct = !strict && !exit.is_some_and(|(key, _)| pass(&key));
    let carried = exit.map(|(_, exit)| exit).filter(|_| !direct);
    let mesh = |key: &PublicKey| key.node_addr().to_ipv6();
    Some(UseExit {
        ipv4: carried.is_some_and(|exit| exit.ipv4),
        ipv6: carried.is_some_and(|exit| exit.ipv6),
        strict,
        direct,
        lan: config.tun.exit_lan,
        inbound: config.tun.exit_inbound,
        ends: exit.and_then(|(key, _)| ends(networks, &key)),
        ends6: exit.map(|(key, _)| Ends {
            own: mesh(networks.own()),
            exit: mesh(&key),
        }),
    })
}

/// Returns what this node forwards for members, as soon as they may send it. `host`: what [`host`] returns
/// for an exit; those of the Internet are reached as the rules for the node say.
#[must_use]
pub fn served(config: &Config, networks: &Networks, host: &[IpAddr]) -> Option<ServeExit> {
    let exit = networks.own_exit()?;
    let mut lans = vec![Subnet::host(IpAddr::V6(networks.own().node_addr().to_ipv6()))];
    lans.extend(own_subnets(config, networks));
    lans.extend(
        host.iter()
            .filter(|ip| is_of_internet(**ip))
            .map(|ip| Subnet::host(*ip)),
    );
    Some(ServeExit {
        ipv4: exit.ipv4,
        ipv6: exit.ipv6,
        lans,
    })
}

/// Returns the addresses of this node at which members ask an exit for names.
#[must_use]
pub fn names_at(networks: &Networks) -> BTreeSet<IpAddr> {
    let mesh = IpAddr::V6(networks.own().node_addr().to_ipv6());
    networks.own_ipv4().map(IpAddr::V4).chain([mesh]).collect()
}

/// Returns the addresses of this host that peers may ask for, ascending: those in subnets behind it (`ours`),
/// and as an exit (`serves`) those of the Internet. With each of IPv4 goes that of the broadcast in its subnet.
#[must_use]
pub fn host(config: &Config, system: &System, ours: &[Subnet], serves: bool) -> Vec<IpAddr> {
    let others = system.surroundings.addresses.iter();
    let others = others.filter(|address| address.index != system.interface);
    let others = others.map(|of| (of.address, of.prefix_len));
    let own = config.tun.addresses.iter().map(|of| (of.address, of.prefix_len));
    let mut host: Vec<IpAddr> = others
        .chain(own)
        .flat_map(|(address, prefix_len)| [Some(address), broadcast(address, prefix_len)])
        .flatten()
        .filter(|ip| ours.iter().any(|subnet| subnet.contains(*ip)) || serves && is_of_internet(*ip))
        .collect();
    host.sort_unstable();
    host.dedup();
    host
}

/// The last address of a subnet of IPv4, unless it is that of a host (RFC 3021).
fn broadcast(address: IpAddr, prefix_len: u8) -> Option<IpAddr> {
    match address {
        IpAddr::V4(ip) if prefix_len < 31 => {
            let hosts = u32::MAX >> prefix_len;
            Some(IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() | hosts)))
        }
        _ => None,
    }
}

/// Returns the IPv4 addresses of this node and of an exit, in a network in which it is one.
fn ends(networks: &Networks, exit: &PublicKey) -> Option<Ends<Ipv4Addr>> {
    let mut common = networks
        .iter()
        .filter(|network| network.is_member(networks.own()) && network.state().exits.contains_key(exit));
    // Another address would lead to another node: all names would be asked there.
    let owners = networks.owners();
    common.find_map(|network| {
        Some(Ends {
            own: used_ipv4(network, networks.own(), &owners)?,
            exit: used_ipv4(network, exit, &owners)?,
        })
    })
}

/// Returns the addresses of this node and the subnets behind it, to which no exit leads.
#[must_use]
pub fn own_subnets(config: &Config, networks: &Networks) -> Vec<Subnet> {
    let mut ours = config.own_subnets();
    ours.extend(networks.own_ipv4().map(|address| Subnet::host(IpAddr::V4(address))));
    ours.extend(networks.own_routes());
    ours
}

/// Returns what this node offers to its networks: subnets, and all addresses if it would like to be an
/// exit. `interface`: the index of its own interface.
#[must_use]
pub fn offer(config: &Config, surroundings: &Surroundings, interface: u32) -> BTreeSet<Subnet> {
    let mut offer = config.networks.advertise_routes.clone();
    if config.tun.advertise_exit {
        offer.extend(offered(surroundings, interface));
    }
    offer
}

/// Returns all addresses of each IP version for which this host has a default route that is not its own
/// interface.
#[must_use]
pub fn offered(surroundings: &Surroundings, interface: u32) -> Vec<Subnet> {
    let has = |ipv4| {
        let mut defaults = surroundings.defaults(interface);
        defaults.any(|route| route.destination.is_ipv4() == ipv4)
    };
    let exit = Exit {
        ipv4: has(true),
        ipv6: has(false),
    };
    of_exit(exit).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weft_networks::{Document, HostUse, RouteChange};

    use super::*;
    use crate::tests::fixture::{self, UNIX, identity};

    /// The networks of node 1: one that it has founded, in which node 2 is an exit.
    fn networks() -> Networks {
        let nas = identity(2).public();
        let mut networks = fixture::networks(nas, "nas");
        let all: Subnet = "0.0.0.0/0".parse().unwrap();
        let offer = Document::Offer {
            network: networks.iter().next().unwrap().id(),
            subnets: BTreeSet::from([all]),
        };
        networks.handle_document(nas, &offer.encode(), 0, UNIX).unwrap();
        let approve = RouteChange::Approve;
        networks.change_exit(None, "nas", approve, (0, UNIX)).unwrap();
        networks
    }

    #[test]
    fn names_are_asked_at_no_address_that_leads_to_another_node() {
        let mut networks = networks();
        let config = Config::parse("[tun]\nexit = \"nas\"\n", Path::new("weft.toml")).unwrap();
        let nas = identity(2).public();
        let exit = networks.exits().remove(&nas).map(|exit| (nas, exit));
        let ends = |networks: &Networks| used(&config, networks, exit, |_| true).unwrap().ends;
        let there = ends(&networks).unwrap();
        networks.set_host_use(HostUse {
            routers: BTreeSet::from([there.exit.into()]),
            ..HostUse::default()
        });
        assert_eq!(ends(&networks), None);
    }
}
