//! The table of the nodes with which IP packets pass: one row for each, whatever brought it.
//!
//! The packet path, names and status use this table only, and know nothing of where a row came
//! from.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use weft_core::{Node, PeerConfig};
use weft_noise::PublicKey;
use weft_wire::Network;

use crate::config::Config;
use crate::networks::Networks;
use crate::peer::PeerName;

/// A node with which IP packets pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// Its name on this node.
    pub(super) name: Option<PeerName>,
    /// Its UDP addresses, in the order in which they are tried.
    pub(super) addresses: Vec<SocketAddr>,
    /// Whether data for it is sent in fast frames or not at all.
    pub(super) require_fast: bool,
    /// The networks behind it.
    pub(super) networks: Vec<Network>,
    /// Whether IP packets pass. Without, it is a contact, by which this node joins a network.
    pub(super) packets: bool,
}

/// All rows, by public key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Members(BTreeMap<PublicKey, Member>);

/// The rows that differ between two tables.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    /// Keys that only the new table has.
    pub(super) added: Vec<PublicKey>,
    /// Keys that only the old table has.
    pub(super) removed: Vec<PublicKey>,
}

impl Members {
    /// The peers of the configuration, and the nodes of the networks. What the configuration says of
    /// a node goes first.
    pub(super) fn of(config: &Config, networks: &Networks) -> Self {
        let mut members = Self::configured(config);
        for row in networks.rows() {
            let name = row.name.and_then(|name| name.as_str().parse().ok());
            let member = members.0.entry(row.key).or_insert_with(|| Member {
                name: None,
                addresses: Vec::new(),
                require_fast: config.fast.require,
                networks: Vec::new(),
                packets: false,
            });
            member.packets |= row.member;
            if member.name.is_none() {
                member.name = name;
            }
            for address in row.addresses {
                if !member.addresses.contains(&address) {
                    member.addresses.push(address);
                }
            }
            let ipv4 = row.ipv4.filter(|_| row.member).map(|ip| Network::host(IpAddr::V4(ip)));
            member.networks.extend(ipv4);
        }
        members
    }

    fn configured(config: &Config) -> Self {
        let rows = config.peers.iter().map(|peer| {
            let row = Member {
                name: peer.name.clone(),
                addresses: peer.addresses.clone(),
                require_fast: peer.require_fast,
                networks: peer.networks.clone(),
                packets: true,
            };
            (peer.key, row)
        });
        Self(rows.collect())
    }

    /// Iterates in the order of the keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&PublicKey, &Member)> {
        self.0.iter()
    }

    /// Whether there is a row for this key.
    pub(super) fn contains(&self, key: &PublicKey) -> bool {
        self.0.contains_key(key)
    }

    /// The names of the nodes that have one.
    pub(super) fn names(&self) -> BTreeMap<PublicKey, PeerName> {
        let named = self.iter().filter_map(|(key, row)| Some((*key, row.name.clone()?)));
        named.collect()
    }

    /// The networks behind nodes, each with its node.
    pub(super) fn networks(&self) -> impl Iterator<Item = (Network, PublicKey)> {
        self.iter()
            .flat_map(|(key, row)| row.networks.iter().map(|network| (*network, *key)))
    }

    /// The addresses of all nodes in the underlay.
    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.iter().flat_map(|(_, row)| row.addresses.iter().copied())
    }

    /// Makes the core's peers those of this table; `before` is the table that it has.
    pub(super) fn apply(&self, before: &Self, node: &mut Node, now: u64) -> Difference {
        let only = |one: &Self, other: &Self| {
            let keys = one.0.keys().filter(|key| !other.contains(key));
            keys.copied().collect::<Vec<_>>()
        };
        let difference = Difference {
            added: only(self, before),
            removed: only(before, self),
        };
        for key in &difference.removed {
            node.remove_peer(now, key);
        }
        for (key, row) in self.iter().filter(|(key, row)| before.0.get(key) != Some(row)) {
            let peer = PeerConfig {
                key: *key,
                addresses: row.addresses.clone(),
            };
            if row.packets {
                node.add_peer(now, peer);
            } else {
                // A member that was removed, or a contact.
                if before.0.get(key).is_some_and(|before| before.packets) {
                    node.remove_peer(now, key);
                }
                node.add_contact(now, peer);
            }
            node.require_fast(key, row.require_fast);
        }
        difference
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weft_noise::{Identity, SecretKey};
    use weft_os::random::SystemRng;

    use super::*;

    fn identity(byte: u8) -> Identity {
        Identity::new(SecretKey::from_bytes(&[byte; 32]).unwrap())
    }

    fn members(text: &str) -> Members {
        Members::configured(&Config::parse(text, Path::new("weft.toml")).unwrap())
    }

    fn peer(byte: u8, rest: &str) -> String {
        format!("[[peer]]\nnpub = \"{}\"\n{rest}\n", identity(byte).public())
    }

    #[test]
    fn the_core_has_the_peers_of_the_table() {
        let mut node = Node::new(weft_core::Config::default(), identity(9), Box::new(SystemRng));
        let tables = [
            members(""),
            members(&(peer(1, "") + &peer(2, "require_fast = true"))),
            members(&(peer(2, "addresses = [\"192.0.2.2:2121\"]") + &peer(3, ""))),
            members(""),
        ];
        let [one, two, three] = [1, 2, 3].map(|byte| identity(byte).public());
        let expected = [
            (vec![one, two], vec![]),
            (vec![three], vec![one]),
            (vec![], vec![two, three]),
        ];
        for (tables, (mut added, mut removed)) in tables.windows(2).zip(expected) {
            let difference = tables[1].apply(&tables[0], &mut node, 0);
            added.sort_unstable();
            removed.sort_unstable();
            assert_eq!(difference, Difference { added, removed });
            let have = node
                .peer_status(0)
                .map(|peer| (peer.key, peer.targets, peer.require_fast));
            let want = tables[1]
                .iter()
                .map(|(key, row)| (*key, row.addresses.clone(), row.require_fast));
            let (mut have, mut want): (Vec<_>, Vec<_>) = (have.collect(), want.collect());
            have.sort_unstable();
            want.sort_unstable();
            assert_eq!(have, want);
            assert_eq!(node.check_invariants(), Ok(()));
            while node.poll_output().is_some() {}
        }
    }
}
