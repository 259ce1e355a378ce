//! IPv4 addresses of members: derived from their keys, or fixed by an administrator.
//!
//! The derivation is that of nvpn, so that a network has the same addresses on its devices
//! (`derive_mesh_tunnel_ip` of nostr-vpn-core).

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use weft_noise::PublicKey;

/// Candidates for a free address. With 2,000 members and 1,024 guests in 64,516 addresses, each is taken with a
/// probability of 5 %.
const TRIES: u32 = 64;

/// Returns SHA-256(network id as text || line feed || key as 64 hexadecimal digits).
fn digest(network: &str, key: &[u8; 32]) -> [u8; 32] {
    let hash = Sha256::new()
        .chain_update(network)
        .chain_update("\n")
        .chain_update(HEXLOWER.encode(key));
    hash.finalize().into()
}

fn address(digest: &[u8; 32]) -> Ipv4Addr {
    Ipv4Addr::new(10, 44, digest[0] % 254 + 1, digest[1] % 254 + 1)
}

/// Derives the address that a key has in a network, in 10.44.0.0/16: the first two bytes of a hash
/// of both, each modulo 254, plus 1.
#[must_use]
pub fn derived(network: &str, key: &PublicKey) -> Ipv4Addr {
    address(&digest(network, key.as_bytes()))
}

/// Returns true if an administrator may fix this address: it is in one of the ranges for private use (RFC 1918) or in
/// the range for carriers (RFC 6598). With one of the Internet, an administrator would have members send there what
/// is meant for another host.
#[must_use]
pub const fn may_be_fixed(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    address.is_private() || first == 100 && second & 0xc0 == 64
}

/// Returns true if an address is that of a host in 10.44.0.0/16, in which all networks have theirs:
/// not one whose last byte is 0 or 255, as those of networks and of broadcasts are.
#[must_use]
pub const fn is_of_networks(address: Ipv4Addr) -> bool {
    matches!(address.octets(), [10, 44, _, 1..=254])
}

/// Two members with one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collision {
    /// The address.
    pub address: Ipv4Addr,
    /// The member that has it.
    pub keeps: PublicKey,
    /// The members that have none until an administrator fixes another one.
    pub without: BTreeSet<PublicKey>,
}

/// The addresses of all members.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Addresses {
    /// The address of each member that has one.
    pub of: BTreeMap<PublicKey, Ipv4Addr>,
    /// Addresses that several members should have, in their order.
    pub collisions: Vec<Collision>,
}

/// Gives each member an address: the fixed one, or the derived one.
///
/// Of members with one address, one with a fixed address takes precedence over those with a
/// derived one, then the lower hash does. No member gets an address that none of its records and not its key
/// gives, so a collision moves no member to an address that a third one may hold.
#[must_use]
pub fn settle<'a>(network: &str, members: impl IntoIterator<Item = (&'a PublicKey, Option<Ipv4Addr>)>) -> Addresses {
    let mut wanted: BTreeMap<Ipv4Addr, BTreeMap<(bool, [u8; 32]), PublicKey>> = BTreeMap::new();
    for (key, fixed) in members {
        let digest = digest(network, key.as_bytes());
        let address = fixed.unwrap_or_else(|| address(&digest));
        wanted
            .entry(address)
            .or_default()
            .insert((fixed.is_none(), digest), *key);
    }
    let mut addresses = Addresses::default();
    for (address, keys) in wanted {
        let mut keys = keys.into_values();
        let Some(keeps) = keys.next() else { continue };
        addresses.of.insert(keeps, address);
        let without: BTreeSet<PublicKey> = keys.collect();
        if !without.is_empty() {
            addresses.collisions.push(Collision {
                address,
                keeps,
                without,
            });
        }
    }
    addresses
}

/// Finds an address in 10.44.0.0/16 for the 32 bytes of a key, of a member or of a guest: the derived one, or a
/// further hash, the first that `taken` does not hold. Returns `None` if all that it tries are taken.
#[must_use]
pub fn free(network: &str, key: &[u8; 32], taken: impl Fn(Ipv4Addr) -> bool) -> Option<Ipv4Addr> {
    let mut digest = digest(network, key);
    for _ in 0..TRIES {
        let candidate = address(&digest);
        if !taken(candidate) {
            return Some(candidate);
        }
        digest = Sha256::digest(digest).into();
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weft_noise::SecretKey;

    use super::*;

    fn key(n: u8) -> PublicKey {
        SecretKey::from_bytes(&[n; 32]).unwrap().public()
    }

    #[test]
    fn derived_addresses_are_those_of_the_document() {
        for (network, n, expected) in [
            ("0123456789abcdef0123456789abcdef", 1, "10.44.23.234"),
            ("0123456789abcdef0123456789abcdef", 2, "10.44.189.100"),
            ("0123456789abcdef", 1, "10.44.116.74"),
        ] {
            assert_eq!(derived(network, &key(n)).to_string(), expected, "{network} {n}");
        }
    }

    #[test]
    fn a_collision_is_named_and_one_member_keeps_the_address() {
        let fixed = Some(derived("n", &key(2)));
        let keys = [key(1), key(2), key(3)];
        let members = [(&keys[0], fixed), (&keys[1], None), (&keys[2], None)];
        let addresses = settle("n", members);
        assert_eq!(addresses.of.get(&keys[0]).copied(), fixed);
        assert_eq!(addresses.of.get(&keys[1]), None);
        assert_eq!(addresses.of.get(&keys[2]).copied(), Some(derived("n", &keys[2])));
        let [collision] = &addresses.collisions[..] else {
            panic!("{addresses:?}")
        };
        assert_eq!(
            (collision.keeps, &collision.without),
            (keys[0], &BTreeSet::from([keys[1]]))
        );
        let mut backwards = members;
        backwards.reverse();
        assert_eq!(settle("n", backwards), addresses);

        let free = free("n", keys[1].as_bytes(), |address| {
            addresses.of.values().any(|a| *a == address)
        })
        .unwrap();
        assert_ne!(Some(free), fixed);
    }

    #[test]
    fn hosts_of_the_range_of_networks() {
        for address in ["10.44.0.1", "10.44.3.4", "10.44.255.254"] {
            assert!(is_of_networks(address.parse().unwrap()), "{address}");
        }
        for address in [
            "10.44.0.0",
            "10.44.3.0",
            "10.44.3.255",
            "10.44.255.255",
            "10.45.3.4",
            "192.168.1.1",
        ] {
            assert!(!is_of_networks(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn private_addresses_may_be_fixed() {
        for address in ["10.44.3.4", "192.168.1.1", "172.31.0.1", "100.64.0.1", "100.127.0.1"] {
            assert!(may_be_fixed(address.parse().unwrap()), "{address}");
        }
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "169.254.1.1",
            "240.0.0.1",
            "8.8.8.8",
            "100.63.0.1",
            "100.128.0.1",
            "172.32.0.1",
        ] {
            assert!(!may_be_fixed(address.parse().unwrap()), "{address}");
        }
    }

    proptest! {
        #[test]
        fn no_address_belongs_to_two(members in prop::collection::btree_map(1..60_u8, prop::option::of(0..6_u8), 0..40)) {
            let members: Vec<(PublicKey, Option<Ipv4Addr>)> = members
                .iter()
                .map(|(n, fixed)| (key(*n), fixed.map(|last| Ipv4Addr::new(10, 44, 1, last + 1))))
                .collect();
            let addresses = settle("n", members.iter().map(|(key, fixed)| (key, *fixed)));
            let distinct: BTreeSet<&Ipv4Addr> = addresses.of.values().collect();
            prop_assert_eq!(distinct.len(), addresses.of.len());
            let without: usize = addresses.collisions.iter().map(|c| c.without.len()).sum();
            prop_assert_eq!(addresses.of.len() + without, members.len());
        }
    }
}
