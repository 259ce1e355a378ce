//! IPv4 addresses of several networks. Their ranges overlap, so two nodes may have one address. One that an
//! administrator has fixed may also be that of another host, which this one means by it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use weft_noise::PublicKey;
use weft_roster::addresses::is_of_networks;
use weft_roster::network_id::NetworkId;
use weft_roster::record::Guest;
use weft_wire::Subnet;

use super::Networks;
use crate::Network;

/// An address of a member that leads to another node from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shadowed {
    /// The address.
    pub ipv4: Ipv4Addr,
    /// The member.
    pub member: PublicKey,
    /// The network in which the address leads to a node, which this node came into earlier.
    pub network: NetworkId,
    /// The node that it leads to, or the host of the guest.
    pub leads_to: PublicKey,
}

/// What this host uses addresses for. It decides which of those that administrators fix are used here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostUse {
    /// Its user accepts what administrators lead into the network besides 10.44.0.0/16.
    pub accepts: bool,
    /// Its addresses, but those of networks.
    pub own: BTreeSet<Ipv4Addr>,
    /// The routers by which it reaches other hosts.
    pub routers: BTreeSet<IpAddr>,
    /// The name servers that it asks; `None` until they are known.
    pub resolvers: Option<BTreeSet<IpAddr>>,
    /// The subnets that it is in, each with the name of its interface.
    pub links: BTreeMap<Subnet, String>,
}

/// Why an address of a member is not used on this host. Its text is half a line, with what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unused {
    /// The host has it itself.
    Own,
    /// It is that of a router.
    Router,
    /// It is that of a name server.
    Resolver,
    /// It is in a subnet that this host is in, by this interface.
    Link(Subnet, String),
    /// It is outside of 10.44.0.0/16, and the user has not agreed to that.
    NotAccepted,
    /// It is outside of 10.44.0.0/16, and it is not known yet which name servers the host asks.
    NotKnown,
}

impl fmt::Display for Unused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const FIX: &str = "an administrator can fix another one: `weft member address`";
        match self {
            Self::Own => write!(f, "another interface of this host has it; {FIX}"),
            Self::Router => write!(f, "a router of this host has it; {FIX}"),
            Self::Resolver => write!(f, "a name server of this host has it; {FIX}"),
            Self::Link(subnet, interface) => {
                write!(
                    f,
                    "it is in {subnet}, which this host is in by {}; {FIX}",
                    interface.escape_debug()
                )
            }
            Self::NotAccepted => write!(
                f,
                "it is outside of 10.44.0.0/16; `weft set accept-routes true` uses it, or {FIX}"
            ),
            Self::NotKnown => f.write_str("it is not known yet which name servers this host asks; wait a moment"),
        }
    }
}

impl HostUse {
    /// Why an address is not used, if that is so.
    #[must_use]
    pub fn unused(&self, address: Ipv4Addr) -> Option<Unused> {
        let ip = IpAddr::V4(address);
        let asks = self.resolvers.as_ref();
        if self.own.contains(&address) {
            return Some(Unused::Own);
        }
        if self.routers.contains(&ip) {
            return Some(Unused::Router);
        }
        if asks.is_some_and(|resolvers| resolvers.contains(&ip)) {
            return Some(Unused::Resolver);
        }
        // The derived addresses of members are there, whatever subnet a host is in.
        if is_of_networks(address) {
            return None;
        }
        let mut links = self.links.iter();
        match links.find(|(subnet, _)| subnet.contains(ip)) {
            Some((subnet, interface)) => Some(Unused::Link(*subnet, interface.clone())),
            None if !self.accepts => Some(Unused::NotAccepted),
            None => asks.is_none().then_some(Unused::NotKnown),
        }
    }
}

/// What an address leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The network that has the address.
    pub network: NetworkId,
    /// The node: the member with the address, or the host of the guest with it.
    pub node: PublicKey,
    /// The WireGuard key of the guest, if a guest has the address.
    pub guest: Option<[u8; 32]>,
}

/// What each address leads to.
pub type Owners = BTreeMap<Ipv4Addr, Owner>;

/// A guest of a network that has an address and a member as its host.
#[derive(Debug, Clone, Copy)]
pub struct UsedGuest<'a> {
    /// The network.
    pub network: &'a Network,
    /// Its WireGuard key.
    pub key: &'a [u8; 32],
    /// What its record says.
    pub guest: &'a Guest,
    /// Its address.
    pub ipv4: Ipv4Addr,
    /// The member that it is behind.
    pub host: PublicKey,
}

impl Owner {
    fn is_member(&self, key: &PublicKey) -> bool {
        self.guest.is_none() && self.node == *key
    }
}

impl UsedGuest<'_> {
    fn owner(&self) -> Owner {
        Owner {
            network: self.network.id(),
            node: self.host,
            guest: Some(*self.key),
        }
    }
}

impl Networks {
    /// Sets what this host uses addresses for.
    pub fn set_host_use(&mut self, host: HostUse) {
        if self.host != host {
            self.host = host;
            self.generation += 1;
        }
    }

    /// The addresses of members of a network that are not used on this host, whichever network they are in.
    #[must_use]
    pub fn unused(&self, network: &Network) -> Vec<(PublicKey, Ipv4Addr, Unused)> {
        if !network.is_member(&self.own) {
            return Vec::new();
        }
        let all = network.state().addresses.of.iter();
        all.filter_map(|(key, ipv4)| Some((*key, *ipv4, self.host.unused(*ipv4)?)))
            .collect()
    }

    /// What each address leads to, of those that are used on this host. Of two, that of the network which
    /// this node came into first: a network that comes later changes nothing for those that are there.
    #[must_use]
    pub fn owners(&self) -> Owners {
        let mut owners = Owners::new();
        for network in self.in_order().filter(|network| network.is_member(&self.own)) {
            let member = |(node, ipv4): (&PublicKey, &Ipv4Addr)| {
                let owner = Owner {
                    network: network.id(),
                    node: *node,
                    guest: None,
                };
                (*ipv4, owner)
            };
            let members = network.state().addresses.of.iter().map(member);
            let all = members.chain(guests(network).map(|guest| (guest.ipv4, guest.owner())));
            for (ipv4, owner) in all.filter(|(ipv4, _)| self.host.unused(*ipv4).is_none()) {
                owners.entry(ipv4).or_insert(owner);
            }
        }
        owners
    }

    /// The guests whose address leads to them from this host, in the order of the networks and of their keys. One
    /// that is behind this node in several networks counts in the first alone: it has one session here.
    #[must_use]
    pub fn used_guests(&self) -> Vec<UsedGuest<'_>> {
        let owners = self.owners();
        let mut here = BTreeSet::new();
        let joined = self.in_order().filter(|network| network.is_member(&self.own));
        joined
            .flat_map(guests)
            .filter(|guest| owners.get(&guest.ipv4) == Some(&guest.owner()))
            .filter(|guest| guest.host != self.own || here.insert(guest.key))
            .collect()
    }

    /// The addresses of this node, one of each network that it is a member of.
    pub fn own_ipv4(&self) -> impl Iterator<Item = Ipv4Addr> {
        let owners = self.owners();
        let used = move |network: &Network| used_ipv4(network, &self.own, &owners);
        self.all.values().filter_map(used)
    }

    /// The address of this node in a network that it is a member of, if packets to it arrive here.
    #[must_use]
    pub fn own_ipv4_in(&self, network: &Network) -> Option<Ipv4Addr> {
        used_ipv4(network, &self.own, &self.owners())
    }

    /// The addresses of members of a network that lead to nodes or guests of other networks.
    #[must_use]
    pub fn shadowed(&self, network: &Network) -> Vec<Shadowed> {
        if !network.is_member(&self.own) {
            return Vec::new();
        }
        let owners = self.owners();
        let shadowed = |(member, ipv4): (&PublicKey, &Ipv4Addr)| {
            let owner = owners.get(ipv4)?;
            (!owner.is_member(member)).then_some(Shadowed {
                ipv4: *ipv4,
                member: *member,
                network: owner.network,
                leads_to: owner.node,
            })
        };
        network.state().addresses.of.iter().filter_map(shadowed).collect()
    }
}

/// The address of a member, if packets to it go to the member.
#[must_use]
pub fn used_ipv4(network: &Network, key: &PublicKey, owners: &Owners) -> Option<Ipv4Addr> {
    let leads_there = |ipv4: &Ipv4Addr| owners.get(ipv4).is_some_and(|owner| owner.is_member(key));
    network.ipv4(key).filter(leads_there)
}

/// The guests of a network that have an address and a member as their host.
fn guests(network: &Network) -> impl Iterator<Item = UsedGuest<'_>> {
    network.state().guests.iter().filter_map(move |(key, guest)| {
        Some(UsedGuest {
            network,
            key,
            guest,
            ipv4: guest.ipv4?,
            host: guest.host.filter(|host| network.is_member(host))?,
        })
    })
}
