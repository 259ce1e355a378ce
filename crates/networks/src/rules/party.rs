//! Those that rules are about: nodes, and the guests behind them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use weft_noise::PublicKey;
use weft_roster::guest::node_addr;
use weft_roster::names::Name;
use weft_wire::{NodeAddr, Subnet};

use crate::{Network, Networks, UsedGuest};

/// A node or a guest.
#[derive(Clone, Copy)]
pub(super) enum Party<'a> {
    /// The node with this key.
    Node(&'a PublicKey),
    /// The guest with this WireGuard key.
    Guest(&'a [u8; 32]),
}

impl Party<'_> {
    /// Whether it is the node with this key.
    pub(super) fn is_node(self, key: &PublicKey) -> bool {
        matches!(self, Self::Node(node) if node == key)
    }

    /// The tags that it has in a network, if it is of that.
    pub(super) fn tags(self, network: &Network) -> Option<&BTreeSet<Name>> {
        let state = network.state();
        match self {
            Self::Node(key) => state.members.get(key).map(|member| &member.tags),
            Self::Guest(key) => state.guests.get(key).map(|guest| &guest.tags),
        }
    }
}

/// Guests, as one node sees them.
pub(super) struct Guests<'a> {
    all: Vec<UsedGuest<'a>>,
    /// The addresses of those behind the node, each with the origin of its network.
    pub(super) here: Arc<BTreeMap<Ipv4Addr, u16>>,
    behind: BTreeMap<PublicKey, Arc<BTreeMap<Ipv4Addr, NodeAddr>>>,
    none: Arc<BTreeMap<Ipv4Addr, NodeAddr>>,
}

impl<'a> Guests<'a> {
    /// Those of the networks `joined` of the node `own`, which has the addresses and subnets `subnets` by its
    /// configuration: a guest with one of these addresses is none of its guests.
    pub(super) fn new(own: &PublicKey, networks: &'a Networks, joined: &[&Network], subnets: &[Subnet]) -> Self {
        let is_own = |guest: &UsedGuest<'_>| subnets.contains(&Subnet::host(IpAddr::V4(guest.ipv4)));
        let mut all = networks.used_guests();
        all.retain(|guest| guest.host != *own || !is_own(guest));
        let mut here = BTreeMap::new();
        let mut behind: BTreeMap<PublicKey, BTreeMap<Ipv4Addr, NodeAddr>> = BTreeMap::new();
        for (origin, network) in (0..).zip(joined) {
            for guest in all.iter().filter(|guest| guest.network.id() == network.id()) {
                match guest.host == *own {
                    true => drop(here.insert(guest.ipv4, origin)),
                    false => {
                        let of_host = behind.entry(guest.host).or_default();
                        of_host.insert(guest.ipv4, node_addr(guest.key));
                    }
                }
            }
        }
        Self {
            all,
            here: Arc::new(here),
            behind: behind.into_iter().map(|(host, of)| (host, Arc::new(of))).collect(),
            none: Arc::default(),
        }
    }

    /// The keys of all.
    pub(super) fn keys(&self) -> BTreeSet<&'a [u8; 32]> {
        self.all.iter().map(|guest| guest.key).collect()
    }

    /// Those of a network, by key.
    pub(super) fn of(&self, network: &Network) -> BTreeMap<&'a [u8; 32], UsedGuest<'a>> {
        let of = self.all.iter().filter(|guest| guest.network.id() == network.id());
        of.map(|guest| (guest.key, *guest)).collect()
    }

    /// Those behind a party, each with the address that its rules are under.
    pub(super) fn behind(&self, party: Party<'_>) -> Arc<BTreeMap<Ipv4Addr, NodeAddr>> {
        let behind = match party {
            Party::Node(key) => self.behind.get(key),
            Party::Guest(_) => None,
        };
        Arc::clone(behind.unwrap_or(&self.none))
    }

    /// The addresses of those behind the node that a selector holds for, ascending.
    pub(super) fn here(&self, mut holds: impl FnMut(&UsedGuest<'a>) -> bool) -> Vec<Ipv4Addr> {
        let here = self.all.iter().filter(|guest| self.here.contains_key(&guest.ipv4));
        let mut found: Vec<Ipv4Addr> = here.filter(|guest| holds(guest)).map(|guest| guest.ipv4).collect();
        found.sort_unstable();
        found
    }
}
