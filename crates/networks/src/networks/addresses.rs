//! IPv4 addresses of several networks. Their ranges overlap, so two nodes may have one address.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use weft_noise::PublicKey;
use weft_roster::network_id::NetworkId;

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
    /// The node that it leads to.
    pub leads_to: PublicKey,
}

/// The node that each address leads to, and in which network.
pub type Owners = BTreeMap<Ipv4Addr, (NetworkId, PublicKey)>;

impl Networks {
    /// The node that each address leads to. Of two, that of the network which this node came into
    /// first: a network that comes later changes nothing for those that are there.
    #[must_use]
    pub fn owners(&self) -> Owners {
        let mut owners = Owners::new();
        for network in self.in_order().filter(|network| network.is_member(&self.own)) {
            for (key, ipv4) in &network.state().addresses.of {
                owners.entry(*ipv4).or_insert((network.id(), *key));
            }
        }
        owners
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

    /// The addresses of members of a network that lead to nodes of other networks.
    #[must_use]
    pub fn shadowed(&self, network: &Network) -> Vec<Shadowed> {
        if !network.is_member(&self.own) {
            return Vec::new();
        }
        let owners = self.owners();
        let shadowed = |(member, ipv4): (&PublicKey, &Ipv4Addr)| {
            let (owner, leads_to) = *owners.get(ipv4)?;
            (leads_to != *member).then_some(Shadowed {
                ipv4: *ipv4,
                member: *member,
                network: owner,
                leads_to,
            })
        };
        network.state().addresses.of.iter().filter_map(shadowed).collect()
    }
}

/// The address of a member, if packets to it go to the member.
#[must_use]
pub fn used_ipv4(network: &Network, key: &PublicKey, owners: &Owners) -> Option<Ipv4Addr> {
    let leads_there = |ipv4: &Ipv4Addr| owners.get(ipv4).is_some_and(|(_, owner)| owner == key);
    network.ipv4(key).filter(leads_there)
}
