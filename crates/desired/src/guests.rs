//! Guests: devices with WireGuard behind this node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use weft_config::Config;
use weft_networks::{Networks, used_ipv4};
use weft_roster::guest::node_addr;
use weft_roster::names::Name;
use weft_roster::network_id::NetworkId;
use weft_wire::{NodeAddr, Subnet};

use crate::routes::Origin;

/// A guest behind this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosted {
    /// The network that it is a guest of.
    pub network: NetworkId,
    /// Its WireGuard key.
    pub key: [u8; 32],
    /// Its name in the network.
    pub name: Option<Name>,
    /// Its address, its only one.
    pub ipv4: Ipv4Addr,
    /// The address of this node that packets to it leave from: that in its network.
    pub source: Option<Ipv4Addr>,
}

impl Hosted {
    /// Returns its address as a subnet.
    #[must_use]
    pub const fn subnet(&self) -> Subnet {
        Subnet::host(IpAddr::V4(self.ipv4))
    }

    /// Returns its address as a subnet that needs a route, and where that comes from.
    pub(crate) const fn origin(&self) -> (Subnet, Origin) {
        let origin = Origin {
            by_hand: false,
            source: self.source,
            address: true,
        };
        (self.subnet(), origin)
    }
}

/// Returns the guests behind this node, under the addresses that stand for them. One whose address the configuration
/// uses for something else is left out, as is one whose address leads elsewhere.
#[must_use]
pub fn hosted(config: &Config, networks: &Networks) -> BTreeMap<NodeAddr, Hosted> {
    let behind_peers = config.peers.iter().flat_map(|peer| peer.routes.iter().copied());
    let taken: BTreeSet<Subnet> = config.own_subnets().into_iter().chain(behind_peers).collect();
    let owners = networks.owners();
    let here = networks.used_guests().into_iter();
    let here = here.filter(|guest| guest.host == *networks.own());
    let hosted = here.map(|guest| {
        let hosted = Hosted {
            network: guest.network.id(),
            key: *guest.key,
            name: guest.network.state().guest_names.get(guest.key).cloned(),
            ipv4: guest.ipv4,
            source: used_ipv4(guest.network, networks.own(), &owners),
        };
        (node_addr(guest.key), hosted)
    });
    hosted.filter(|(_, guest)| !taken.contains(&guest.subnet())).collect()
}

#[cfg(test)]
mod tests;
