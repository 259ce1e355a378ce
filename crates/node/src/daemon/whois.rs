//! The nodes that an address, a name or a key belongs to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use weft_config::Config;
use weft_config::peer::NodeRef;
use weft_control::Refusal;
use weft_control::status::{Document as _, Whois, WhoisNetwork, WhoisNode};
use weft_desired::members::Members;
use weft_networks::{Network, Networks};
use weft_noise::PublicKey;
use weft_wire::Subnet;

use super::run::Daemon;

impl Daemon {
    /// Finds the nodes that `query` belongs to.
    ///
    /// # Errors
    /// The [`Refusal`] to answer with: it belongs to none.
    pub(super) fn whois(&self, query: &NodeRef) -> Result<Whois, Refusal> {
        let known = Known {
            config: &self.configuration.config,
            members: &self.desired.members,
            networks: &self.networks,
        };
        let nodes = known.find(query);
        match nodes.is_empty() {
            false => Ok(Whois {
                schema: Whois::SCHEMA.to_owned(),
                query: query.to_string(),
                nodes,
            }),
            true => Err(match self.find(query) {
                Err(refusal) => refusal,
                Ok(_) => Refusal::unknown_peer(query),
            }),
        }
    }
}

/// What this node knows of nodes.
struct Known<'a> {
    config: &'a Config,
    members: &'a Members,
    networks: &'a Networks,
}

impl Known<'_> {
    fn find(&self, query: &NodeRef) -> Vec<WhoisNode> {
        let mut found: BTreeMap<PublicKey, Option<Subnet>> = BTreeMap::new();
        match query {
            NodeRef::Address(address) => {
                let own = self.keys().into_iter().filter(|key| self.has(key, *address));
                found.extend(own.map(|key| (key, None)));
                if found.is_empty() {
                    found.extend(self.behind(*address));
                }
            }
            other => {
                let named = self.keys().into_iter().filter(|key| self.is_named(key, other));
                found.extend(named.map(|key| (key, None)));
            }
        }
        let nodes = found.into_iter();
        nodes.map(|(key, subnet)| self.describe(&key, subnet)).collect()
    }

    /// Returns the keys of all known nodes.
    fn keys(&self) -> BTreeSet<PublicKey> {
        let members = self.members.iter().map(|(key, _)| *key);
        let networks = self.networks.iter().flat_map(|network| network.state().members.keys());
        members.chain(networks.copied()).chain([*self.networks.own()]).collect()
    }

    /// Returns true if `address` is one of the node's own addresses.
    fn has(&self, key: &PublicKey, address: IpAddr) -> bool {
        let mut networks = self.networks.iter();
        let own = || self.config.tun.addresses.iter().any(|own| own.address == address);
        address == IpAddr::V6(key.node_addr().to_ipv6())
            || networks.any(|network| network.ipv4(key).map(IpAddr::V4) == Some(address))
            || key == self.networks.own() && own()
    }

    /// Finds the node behind which the subnet with `address` is: the longest prefix of all.
    fn behind(&self, address: IpAddr) -> Option<(PublicKey, Option<Subnet>)> {
        let own = self
            .config
            .tun
            .routes
            .iter()
            .map(|subnet| (*subnet, *self.networks.own()));
        let all = self.members.subnets().chain(own);
        let longest = all
            .filter(|(subnet, _)| subnet.contains(address))
            .max_by_key(|(subnet, _)| subnet.prefix_len());
        longest.map(|(subnet, key)| (key, Some(subnet)))
    }

    fn is_named(&self, key: &PublicKey, query: &NodeRef) -> bool {
        let host = |wanted: &str, of: Option<&str>| {
            self.networks.iter().any(|network| {
                let name = network.state().names.get(key).map(weft_roster::names::Name::as_str);
                name == Some(wanted) && of.is_none_or(|of| network.label().is_some_and(|label| label.as_str() == of))
            })
        };
        match query {
            NodeRef::Address(_) => false,
            NodeRef::Key(_) => query.matches(key, None),
            NodeRef::Name(name) => self.name(key).as_deref() == Some(name.as_str()) || host(name.as_str(), None),
            NodeRef::Member { name, network } => host(name.as_str(), Some(network.as_str())),
        }
    }

    /// Returns the name of a node on this one.
    fn name(&self, key: &PublicKey) -> Option<String> {
        let (_, row) = self.members.iter().find(|(known, _)| *known == key)?;
        row.name.as_ref().map(ToString::to_string)
    }

    fn describe(&self, key: &PublicKey, subnet: Option<Subnet>) -> WhoisNode {
        // A network that this node has left tells no more.
        let is_common = |network: &&Network| network.is_member(key) && network.is_member(self.networks.own());
        let networks = self.networks.iter().filter(is_common);
        let networks: Vec<_> = networks
            .map(|network| WhoisNetwork {
                id: network.id().to_string(),
                network: network.label().map(ToString::to_string),
                name: network.state().names.get(key).map(ToString::to_string),
                ipv4: network.ipv4(key),
                admin: network.shows_admin(key),
                tags: network
                    .state()
                    .members
                    .get(key)
                    .map(|member| member.tags.iter().map(ToString::to_string).collect())
                    .unwrap_or_default(),
            })
            .collect();
        let of_network = || networks.iter().find_map(|network| network.name.clone());
        WhoisNode {
            npub: key.to_string(),
            name: self.name(key).or_else(of_network),
            address: key.node_addr().to_ipv6(),
            own: key == self.networks.own(),
            configured: self.config.peers.iter().any(|peer| peer.key == *key),
            subnet: subnet.map(|subnet| subnet.to_string()),
            networks,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use weft_noise::{Identity, SecretKey};
    use weft_roster::names::Name;

    use weft_os::random::SystemRng;

    use super::*;

    fn identity(byte: u8) -> Identity {
        Identity::new(SecretKey::from_bytes(&[byte; 32]).unwrap())
    }

    #[test]
    fn each_form_leads_to_its_node() {
        let (own, bob, carol) = (identity(1).public(), identity(2).public(), identity(3).public());
        let text = format!(
            "[tun]\naddresses = [\"10.99.0.1/24\"]\nroutes = [\"10.7.0.0/16\"]\n\
             [[peer]]\nname = \"bob\"\nnpub = \"{bob}\"\nroutes = [\"10.0.0.0/8\", \"10.8.7.0/24\"]\n\
             [[peer]]\nnpub = \"{carol}\"\nroutes = [\"10.8.0.0/16\"]\n"
        );
        let config = Config::parse(&text, Path::new("weft.toml")).unwrap();
        let mut networks = Networks::new(Arc::new(identity(1)), Vec::new(), Box::new(SystemRng));
        let host = Some(Name::host("desk").unwrap());
        networks
            .create(Name::network("home").unwrap(), host, [7; 16], 1_000)
            .unwrap();
        let members = Members::of(&config, &networks, &weft_host::hosts::Hosts::default());
        let ipv4 = networks.own_ipv4().next().unwrap();
        let known = Known {
            config: &config,
            members: &members,
            networks: &networks,
        };
        for (query, key, subnet) in [
            ("bob".to_owned(), bob, None),
            ("BOB.fips".to_owned(), bob, None),
            (bob.to_string(), bob, None),
            (bob.node_addr().to_ipv6().to_string(), bob, None),
            (carol.to_string(), carol, None),
            ("10.8.7.5".to_owned(), bob, Some("10.8.7.0/24")),
            ("10.8.8.5".to_owned(), carol, Some("10.8.0.0/16")),
            ("10.200.0.1".to_owned(), bob, Some("10.0.0.0/8")),
            ("10.7.1.1".to_owned(), own, Some("10.7.0.0/16")),
            ("10.99.0.1".to_owned(), own, None),
            ("desk".to_owned(), own, None),
            ("desk.home.weft".to_owned(), own, None),
            (ipv4.to_string(), own, None),
            (own.to_string(), own, None),
        ] {
            let found = known.find(&query.parse().unwrap());
            assert_eq!(found.len(), 1, "{query}: {found:?}");
            assert_eq!(found[0].npub, key.to_string(), "{query}");
            assert_eq!(found[0].subnet.as_deref(), subnet, "{query}");
            assert_eq!((found[0].own, found[0].configured), (key == own, key != own), "{query}");
        }
        for query in [
            "dave",
            "desk.work.weft",
            "192.0.2.1",
            "fd00::1",
            &identity(4).public().to_string(),
        ] {
            assert!(known.find(&query.parse().unwrap()).is_empty(), "{query}");
        }
        let desk = &known.find(&"desk".parse().unwrap())[0].networks[0];
        assert_eq!(
            (desk.network.as_deref(), desk.admin, desk.ipv4),
            (Some("home"), true, Some(ipv4))
        );
    }
}
