//! The table of the nodes that the core has as peers: those with which IP packets pass, and contacts. There
//! is one row for each, whatever brought it.
//!
//! The core, routes, names of peers and status use this table only, and know nothing of where a row came
//! from. Two things do not follow from it. Rules for packets are compiled from the networks and the
//! configuration; with rules, a peer outside of both is denied. Names below `.weft` are
//! those of the networks.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use weft_config::Config;
use weft_config::host_name::PeerAddress;
use weft_config::peer::{NodeRef, PeerName};
use weft_core::hint::{self, Hint, HintSource};
use weft_host::hosts::Hosts;
use weft_networks::{Networks, of_exit, used_ipv4};
use weft_noise::PublicKey;
use weft_roster::record::Exit;
use weft_wire::Subnet;

use crate::references::{InNetwork, NotFound};
use crate::routes::Origin;

/// A node with which IP packets pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name on this node: that of the configuration, or else the first that a network gives it.
    pub name: Option<PeerName>,
    /// What it is in the networks that it and this node are members of.
    pub(crate) networks: BTreeSet<InNetwork>,
    /// Whether the configuration has it and gives it its name.
    named_by_hand: bool,
    /// Its UDP addresses, in the order in which they are tried.
    pub addresses: Vec<Hint>,
    /// Whether data for it is sent in fast frames or not at all.
    pub require_fast: bool,
    /// Whether data for it goes through all uplinks at once.
    pub bond: bool,
    /// The subnets behind it.
    pub subnets: Vec<Subnet>,
    /// Those of them that the configuration has.
    by_hand: BTreeSet<Subnet>,
    /// Its address in each network, and those of the guests behind it, as subnets.
    own: BTreeSet<Subnet>,
    /// The address of this node that packets to a subnet leave from: that in the network which brings
    /// the subnet.
    pub sources: BTreeMap<Subnet, Ipv4Addr>,
    /// Whether IP packets pass. Without, it is a contact, by which this node joins a network.
    pub packets: bool,
}

/// All rows, by public key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    rows: BTreeMap<PublicKey, Member>,
    /// This node, which has no row, and what it is in its networks.
    pub(crate) own: Option<(PublicKey, BTreeSet<InNetwork>)>,
}

/// The rows that only one of two tables has.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Keys that only the new table has.
    pub added: Vec<PublicKey>,
    /// Keys that only the old table has.
    pub removed: Vec<PublicKey>,
}

impl Member {
    /// Adds a subnet that a network brings, unless it is `taken`.
    fn add_subnet(&mut self, subnet: Subnet, source: Option<Ipv4Addr>, taken: &BTreeSet<Subnet>) {
        if !taken.contains(&subnet) && !self.subnets.contains(&subnet) {
            self.subnets.push(subnet);
            let source = source.filter(|_| subnet.address().is_ipv4());
            self.sources.extend(source.map(|source| (subnet, source)));
        }
    }
}

impl Members {
    /// Derives the table: the peers of the configuration, at the addresses that `hosts` has for its names, and the nodes of
    /// the networks. What the configuration says of a node goes first.
    pub fn of(config: &Config, networks: &Networks, hosts: &Hosts) -> Self {
        let mut members = Self::configured(config, hosts);
        let configured: BTreeSet<Subnet> = members.subnets().map(|(subnet, _)| subnet).collect();
        for row in networks.rows() {
            let name: Option<PeerName> = row.name.and_then(|name| name.as_str().parse().ok());
            let member = members.rows.entry(row.key).or_insert_with(|| Member {
                name: None,
                networks: BTreeSet::new(),
                named_by_hand: false,
                addresses: Vec::new(),
                require_fast: config.fast.require,
                bond: false,
                subnets: Vec::new(),
                by_hand: BTreeSet::new(),
                own: BTreeSet::new(),
                sources: BTreeMap::new(),
                packets: false,
            });
            member.packets |= row.member;
            if member.name.is_none() {
                member.name = name;
            }
            for hint in row.addresses {
                hint::add(&mut member.addresses, hint.at, hint.source);
            }
            let ipv4 = row.ipv4.filter(|_| row.member).map(|ip| Subnet::host(IpAddr::V4(ip)));
            if let Some((subnet, source)) = ipv4.zip(row.source) {
                member.add_subnet(subnet, Some(source), &configured);
                member.own.insert(subnet);
            }
        }
        members.add_guests(networks, &configured);
        let joined = || networks.in_order().filter(|network| network.is_member(networks.own()));
        for network in joined() {
            for (key, row) in &mut members.rows {
                let member = network.is_member(key);
                row.networks.extend(member.then(|| InNetwork::of(network, key)));
            }
        }
        let own = joined().map(|network| InNetwork::of(network, networks.own()));
        members.own = Some((*networks.own(), own.collect()));
        for network in joined().filter(|_| config.networks.accept_routes) {
            members.add_routes(config, network.routes(), networks.own_ipv4_in(network));
        }
        if let Some((key, exit)) = members.exit(config, networks)
            && let Some(row) = members.rows.get_mut(&key)
        {
            row.subnets.extend(of_exit(exit));
        }
        members
    }

    /// Finds the node that the configuration names as exit.
    ///
    /// # Errors
    /// [`NotFound`], also for a contact and for this node itself.
    pub fn named_exit(&self, wanted: &NodeRef) -> Result<PublicKey, NotFound> {
        let key = self.find_other(wanted)?;
        let packets = self.rows.get(&key).is_some_and(|row| row.packets);
        packets.then_some(key).ok_or_else(|| self.unknown(wanted))
    }

    /// Returns the exit of this node, if it is approved in a common network.
    pub fn exit(&self, config: &Config, networks: &Networks) -> Option<(PublicKey, Exit)> {
        let key = self.named_exit(config.tun.exit.as_ref()?).ok()?;
        Some((key, networks.exits().remove(&key)?))
    }

    /// Adds the addresses of the guests behind other members, as subnets. A subnet that is `taken` goes first.
    fn add_guests(&mut self, networks: &Networks, taken: &BTreeSet<Subnet>) {
        let owners = networks.owners();
        for guest in networks.used_guests() {
            let source = used_ipv4(guest.network, networks.own(), &owners);
            if let Some(row) = self.rows.get_mut(&guest.host).filter(|_| source.is_some()) {
                let subnet = Subnet::host(IpAddr::V4(guest.ipv4));
                row.add_subnet(subnet, source, taken);
                row.own.insert(subnet);
            }
        }
    }

    /// Adds the approved routes of other members of a network, each at one of them: that of the lowest
    /// node address. A subnet that the configuration or an earlier network has goes first. `source`:
    /// the address of this node in the network.
    fn add_routes<'a>(
        &mut self,
        config: &Config,
        routes: impl Iterator<Item = (&'a Subnet, &'a BTreeSet<PublicKey>)>,
        source: Option<Ipv4Addr>,
    ) {
        let mut taken: BTreeSet<Subnet> = config.own_subnets().into_iter().collect();
        taken.extend(&config.networks.advertise_routes);
        taken.extend(self.subnets().map(|(subnet, _)| subnet));
        for (subnet, members) in routes {
            let mut members: Vec<&PublicKey> = members.iter().collect();
            members.sort_by_key(|key| key.node_addr());
            let first = members
                .iter()
                .find(|key| self.rows.get(**key).is_some_and(|row| row.packets));
            if let Some(row) = first.and_then(|key| self.rows.get_mut(*key)) {
                row.add_subnet(*subnet, source, &taken);
            }
        }
    }

    /// Returns the peers of the configuration alone.
    pub fn configured(config: &Config, hosts: &Hosts) -> Self {
        let rows = config.peers.iter().map(|peer| {
            let row = Member {
                name: peer.name.clone(),
                networks: BTreeSet::new(),
                named_by_hand: peer.name.is_some(),
                addresses: dialled(&peer.addresses, hosts),
                require_fast: peer.require_fast,
                bond: peer.bond,
                subnets: peer.routes.clone(),
                by_hand: peer.routes.iter().copied().collect(),
                own: BTreeSet::new(),
                sources: BTreeMap::new(),
                packets: true,
            };
            (peer.key, row)
        });
        Self {
            rows: rows.collect(),
            own: None,
        }
    }

    /// Iterates in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&PublicKey, &Member)> {
        self.rows.iter()
    }

    /// Returns the row of this key.
    #[must_use]
    pub fn get(&self, key: &PublicKey) -> Option<&Member> {
        self.rows.get(key)
    }

    /// Returns whether there is a row for this key.
    pub fn contains(&self, key: &PublicKey) -> bool {
        self.rows.contains_key(key)
    }

    /// Returns the names of the nodes that have one.
    pub fn names(&self) -> BTreeMap<PublicKey, PeerName> {
        let named = self.iter().filter_map(|(key, row)| Some((*key, row.name.clone()?)));
        named.collect()
    }

    /// Takes subnets as those that a network brings.
    #[cfg(test)]
    pub(crate) fn forget_by_hand(&mut self, subnets: &BTreeSet<Subnet>) {
        for row in self.rows.values_mut() {
            row.by_hand.retain(|subnet| !subnets.contains(subnet));
        }
    }

    /// Iterates over the names that the configuration gives, each with its node.
    pub fn names_by_hand(&self) -> impl Iterator<Item = (&PeerName, PublicKey)> {
        let rows = self.iter().filter(|(_, row)| row.named_by_hand);
        rows.filter_map(|(key, row)| Some((row.name.as_ref()?, *key)))
    }

    /// Iterates over the subnets behind nodes, each with its node.
    pub fn subnets(&self) -> impl Iterator<Item = (Subnet, PublicKey)> {
        self.iter()
            .flat_map(|(key, row)| row.subnets.iter().map(|subnet| (*subnet, *key)))
    }

    /// Iterates over the subnets behind nodes that need a route of their own, which are all but those of an exit, each
    /// with where it comes from.
    pub fn origins(&self) -> impl Iterator<Item = (Subnet, Origin)> {
        let of_row = |row: &'_ Member| {
            let subnets = row.subnets.iter().filter(|subnet| subnet.prefix_len() > 0);
            let origin = |subnet: &Subnet| Origin {
                by_hand: row.by_hand.contains(subnet),
                source: row.sources.get(subnet).copied(),
                address: row.own.contains(subnet),
            };
            let pairs = subnets.map(|subnet| (*subnet, origin(subnet)));
            pairs.collect::<Vec<_>>()
        };
        self.rows.values().flat_map(of_row)
    }

    /// Adds addresses of nodes of the table. Other nodes are passed over.
    pub fn add_hints<'a>(
        &mut self,
        of: impl IntoIterator<Item = (&'a PublicKey, &'a Vec<SocketAddr>)>,
        source: HintSource,
    ) {
        for (key, addresses) in of {
            if let Some(row) = self.rows.get_mut(key) {
                addresses
                    .iter()
                    .for_each(|at| hint::add(&mut row.addresses, *at, source));
            }
        }
    }

    /// Returns the addresses of all nodes in the underlay that are confirmed. Those that nodes say of themselves
    /// keep no subnet from a route: a member in front of a subnet has an address in it, and says so.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let hints = self.iter().flat_map(|(_, row)| &row.addresses);
        hints.filter(|hint| !hint.source.is_unconfirmed()).map(|hint| hint.at)
    }

    /// Returns the rows that only this table or only the table `before` has.
    #[must_use]
    pub fn difference(&self, before: &Self) -> Difference {
        let only = |one: &Self, other: &Self| {
            let keys = one.rows.keys().filter(|key| !other.contains(key));
            keys.copied().collect::<Vec<_>>()
        };
        Difference {
            added: only(self, before),
            removed: only(before, self),
        }
    }
}

/// Returns the addresses of a peer of the configuration, with those that its names have at present.
fn dialled(addresses: &[PeerAddress], hosts: &Hosts) -> Vec<Hint> {
    let mut dialled = Vec::new();
    for address in addresses {
        match address {
            PeerAddress::At(at) => hint::add(&mut dialled, *at, HintSource::Configured),
            PeerAddress::Named { host, port } => {
                for ip in hosts.addresses(host) {
                    hint::add(&mut dialled, SocketAddr::new(ip, *port), HintSource::HostName);
                }
            }
        }
    }
    dialled
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weft_noise::{Identity, SecretKey};

    use super::*;

    fn identity(byte: u8) -> Identity {
        Identity::new(SecretKey::from_bytes(&[byte; 32]).unwrap())
    }

    fn members(text: &str) -> Members {
        Members::configured(&Config::parse(text, Path::new("weft.toml")).unwrap(), &Hosts::default())
    }

    fn peer(byte: u8, rest: &str) -> String {
        format!("[[peer]]\nnpub = \"{}\"\n{rest}\n", identity(byte).public())
    }

    #[test]
    fn the_configuration_wins_and_a_shared_route_has_one_member() {
        let own = "[tun]\nroutes = [\"10.1.0.0/16\"]\n[networks]\nadvertise_routes = [\"10.2.0.0/16\"]\n";
        let peers = peer(1, "routes = [\"10.3.0.0/16\"]") + &peer(2, "");
        let config = Config::parse(&(own.to_owned() + &peers), Path::new("weft.toml")).unwrap();
        let [one, two, absent] = [1, 2, 3].map(|byte| identity(byte).public());
        let all = BTreeSet::from([one, two, absent]);
        let routes = ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16"];
        let routes: BTreeMap<Subnet, BTreeSet<PublicKey>> =
            routes.map(|text| (text.parse().unwrap(), all.clone())).into();
        let mut members = Members::configured(&config, &Hosts::default());
        members.add_routes(&config, routes.iter(), None);
        let first = *[&one, &two].into_iter().min_by_key(|key| key.node_addr()).unwrap();
        let mut have: Vec<(String, PublicKey)> = members
            .subnets()
            .map(|(subnet, key)| (subnet.to_string(), key))
            .collect();
        have.sort();
        let expected = [("10.3.0.0/16", one), ("10.4.0.0/16", first)];
        assert_eq!(have, expected.map(|(subnet, key)| (subnet.to_owned(), key)));
        // A network that this node came into later takes nothing from it.
        let other = if first == one { two } else { one };
        let [known, new]: [Subnet; 2] = ["10.4.0.0/16", "10.5.0.0/16"].map(|text| text.parse().unwrap());
        let source = Ipv4Addr::new(10, 44, 1, 1);
        let routes = BTreeMap::from([known, new].map(|subnet| (subnet, BTreeSet::from([other]))));
        members.add_routes(&config, routes.iter(), Some(source));
        let owner = |subnet| {
            members
                .subnets()
                .find(|(known, _)| *known == subnet)
                .map(|(_, key)| key)
        };
        assert_eq!((owner(known), owner(new)), (Some(first), Some(other)));
        let origins: BTreeMap<Subnet, Origin> = members.origins().collect();
        assert_eq!((origins[&known].source, origins[&new].source), (None, Some(source)));
    }

    #[test]
    fn a_configured_name_wins_and_one_of_two_members_names_none() {
        let [one, two, three] = [1, 2, 3].map(|byte| identity(byte).public());
        let mut all = members(&(peer(1, "name = \"nas\"") + &peer(2, "") + &peer(3, "")));
        let nas: PeerName = "nas".parse().unwrap();
        let desk: PeerName = "desk".parse().unwrap();
        let find = |all: &Members, text: &str| all.find(&text.parse().unwrap()).map_err(|error| error.to_string());
        let unknown = |text: &str| {
            Err(format!(
                "no node named {text}; `weft peers` and `weft members` list them"
            ))
        };
        let home: PeerName = "home".parse().unwrap();
        let give = |all: &mut Members, key: &PublicKey, name: &PeerName| {
            all.rows.get_mut(key).unwrap().networks.insert(InNetwork {
                network: Some(home.clone()),
                name: Some(name.clone()),
                ipv4: None,
            });
        };
        give(&mut all, &two, &nas);
        assert_eq!(find(&all, "nas"), Ok(one));
        assert_eq!(find(&all, "desk"), unknown("desk"));
        // Also one that the configuration gives another name.
        give(&mut all, &one, &desk);
        assert_eq!(find(&all, "desk.fips"), Ok(one));
        give(&mut all, &three, &desk);
        let several = find(&all, "desk").unwrap_err();
        assert!(
            several.starts_with("several nodes are named desk, in different networks"),
            "{several}"
        );
        // An address that members of two networks have is named with what tells them apart.
        for (key, network) in [(&one, "home"), (&two, "work")] {
            all.rows.get_mut(key).unwrap().networks.insert(InNetwork {
                network: Some(network.parse().unwrap()),
                name: Some("box".parse().unwrap()),
                ipv4: Some(Ipv4Addr::new(10, 44, 1, 2)),
            });
        }
        let several = find(&all, "10.44.1.2").unwrap_err();
        assert!(
            several.contains("box.home.weft") && several.contains("box.work.weft"),
            "{several}"
        );
        assert_eq!(find(&all, "box.work.weft"), Ok(two));
        assert_eq!(find(&all, "NAS.home.weft."), Ok(two), "past that of the configuration");
        assert_eq!(find(&all, "nas.work.weft"), unknown("nas.work.weft"));
        assert_eq!(find(&all, &three.to_string()), Ok(three));
        assert_eq!(find(&all, &three.node_addr().to_ipv6().to_string()), Ok(three));
        let absent = identity(4).public().to_string();
        assert_eq!(find(&all, &absent), unknown(&absent));
    }
}
