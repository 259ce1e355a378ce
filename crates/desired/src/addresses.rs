//! The addresses of this host that others are told, and in which order. Presences, candidates, offers by
//! Nostr, invites and `weft identity` use this order, and no other one.

use std::net::{IpAddr, SocketAddr};

use weft_host::surroundings::{Leads, Surroundings};
use weft_networks::reserved::of_mesh;
use weft_reach::nat::is_private;
use weft_roster::invite::MAX_ADDRESSES;
use weft_wire::Subnet;

/// Addresses of IPv6 in an invite, at most: with three of IPv4 its QR code fits a terminal of 80 columns and
/// 24 rows.
const INVITE_IPV6: usize = 2;

/// The addresses at which the node listens, those of loopback and of a link alone left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostAddresses {
    /// All of them, in the order of the system.
    pub all: Vec<SocketAddr>,
    /// Those that others are told, the ones that most hosts reach first. Interfaces through which no
    /// packets pass and addresses that go soon have no part in it.
    pub told: Vec<SocketAddr>,
    /// How many at the beginning of `told` are not those of containers, virtual machines and tunnels.
    outward: usize,
}

impl HostAddresses {
    /// The addresses of all interfaces but that with the index `own`, with the port of the socket of
    /// `listen` that serves them.
    #[must_use]
    pub fn of(surroundings: &Surroundings, own: u32, listen: &[SocketAddr]) -> Self {
        let others = surroundings.addresses.iter().filter(|address| address.index != own);
        let (mut all, mut ranked) = (Vec::new(), Vec::new());
        for address in others.filter(|address| is_usable(address.address)) {
            let Some(at) = served(address.address, listen) else {
                continue;
            };
            all.push(at);
            let leads = surroundings.leads(address);
            if let Some(leads) = leads.filter(|_| !surroundings.passing.contains(address)) {
                ranked.push(((leads, is_private(at.ip())), at));
            }
        }
        ranked.sort_by_key(|(rank, _)| *rank);
        Self {
            all,
            outward: ranked.iter().filter(|((leads, _), _)| *leads < Leads::Within).count(),
            told: ranked.into_iter().map(|(_, at)| at).collect(),
        }
    }

    /// Those that others are not told.
    pub fn untold(&self) -> impl Iterator<Item = SocketAddr> {
        self.all.iter().copied().filter(|at| !self.told.contains(at))
    }

    /// Returns the addresses that lead to other hosts than containers, virtual machines and tunnels of this
    /// one. A host without such addresses has those of its containers, virtual machines and tunnels.
    #[must_use]
    pub fn best(&self) -> &[SocketAddr] {
        match self.outward {
            0 => &self.told,
            some => self.told.get(..some).unwrap_or_default(),
        }
    }

    /// The addresses of an invite: of each version of IP the best one of this host, then one of `outer`,
    /// at which others see this node, then further ones of this host.
    #[must_use]
    pub fn of_invite(&self, outer: &[SocketAddr]) -> Vec<SocketAddr> {
        let outer: Vec<SocketAddr> = outer.iter().copied().filter(|at| !self.all.contains(at)).collect();
        let of_version = |ipv6: bool, most: usize| {
            let [mut host, mut outer] =
                [self.best(), &outer].map(|all| all.iter().copied().filter(move |at| at.is_ipv6() == ipv6));
            let first: Vec<SocketAddr> = host.next().into_iter().chain(outer.next()).collect();
            first.into_iter().chain(host).take(most).collect::<Vec<_>>()
        };
        [of_version(false, MAX_ADDRESSES), of_version(true, INVITE_IPV6)].concat()
    }
}

/// Returns true if an address is inside the mesh, where only connected nodes reach it: one of the interface `own`, or
/// one in the ranges of nodes and members. Other networks may use these ranges, too: addresses that another interface
/// has a subnet or a route for are not inside. `surroundings` have the routes to the [ranges](of_mesh).
#[must_use]
pub fn is_inside(address: IpAddr, surroundings: &Surroundings, own: u32) -> bool {
    let address = address.to_canonical();
    let mut addresses = surroundings.addresses.iter();
    if addresses.any(|known| known.index == own && known.address == address) {
        return true;
    }
    let others = surroundings.addresses.iter().filter(|known| known.index != own);
    let subnets = others.filter_map(|known| Subnet::around(known.address, known.prefix_len));
    let routes = surroundings.routes.iter();
    let routes = routes.filter(|route| !route.own && route.interface != Some(own) && route.prefix_len > 0);
    let routes = routes.filter_map(|route| Subnet::around(route.destination, route.prefix_len));
    of_mesh().any(|range| range.contains(address)) && !subnets.chain(routes).any(|subnet| subnet.contains(address))
}

fn is_usable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    }
}

/// The address with the port of the socket that serves it.
fn served(ip: IpAddr, listen: &[SocketAddr]) -> Option<SocketAddr> {
    let serves = |own: &&SocketAddr| own.ip() == ip || own.ip().is_unspecified() && own.is_ipv4() == ip.is_ipv4();
    let at = listen.iter().find(serves)?;
    Some(SocketAddr::new(ip, at.port()))
}

#[cfg(test)]
mod tests;
