//! Guests: devices with WireGuard that a member exchanges packets for.
//!
//! Their records say a key, an address and the host. Which of them count follows from the members, their addresses
//! and the keys of the guests, so that all nodes with the same records have the same guests.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};
use sha2::{Digest, Sha256};
use weft_noise::PublicKey;
use weft_wire::NodeAddr;

use crate::addresses::{self, Addresses};
use crate::names::Name;
use crate::record::{Guest, Member};

/// Guests of a network, at most.
pub const MAX_GUESTS: usize = 1_024;

/// What is hashed in front of the key of a guest.
const ADDRESS: &[u8] = b"weft/guest/1\0";

/// Returns the address that stands for a guest in tables of nodes: the first 16 bytes of a hash of its WireGuard key.
/// No node has it, since those of nodes are hashes of other keys.
#[must_use]
pub fn node_addr(key: &[u8; 32]) -> NodeAddr {
    let digest: [u8; 32] = Sha256::new().chain_update(ADDRESS).chain_update(key).finalize().into();
    NodeAddr::new(std::array::from_fn(|at| digest[at]))
}

/// Writes the key of a guest as WireGuard does: base64 with padding (RFC 4648, section 4), 44 characters.
#[must_use]
pub fn key_text(key: &[u8; 32]) -> String {
    BASE64.encode(key)
}

/// Reads the key of a guest: 44 characters of base64 as [`key_text`] writes them, or 64 hexadecimal digits in either
/// case. Returns `None` for any other text.
#[must_use]
pub fn read_key(text: &str) -> Option<[u8; 32]> {
    let bytes = match text.len() {
        44 => BASE64.decode(text.as_bytes()),
        64 => HEXLOWER_PERMISSIVE.decode(text.as_bytes()),
        _ => return None,
    };
    bytes.ok()?.try_into().ok()
}

/// The guests that count.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    /// The record of each.
    pub(crate) of: BTreeMap<[u8; 32], Guest>,
    /// The names by which they are found.
    pub(crate) names: BTreeMap<[u8; 32], Name>,
    /// How many are beyond [`MAX_GUESTS`].
    pub(crate) refused: usize,
}

/// Selects the guests that count among those with a record in force.
///
/// A guest counts if its key is not zero, its host is a member, and it has an address that an administrator may fix
/// and that no member has. Of two with one address the lower key has it. Beyond [`MAX_GUESTS`] those with the highest
/// keys are refused.
pub(crate) fn settle<'a>(
    records: BTreeMap<&'a [u8; 32], &'a Guest>,
    members: &BTreeMap<PublicKey, Member>,
    (member_addresses, member_names): (&Addresses, &BTreeMap<PublicKey, Name>),
) -> Guests {
    let mut taken: BTreeSet<Ipv4Addr> = member_addresses.of.values().copied().collect();
    let mut named: BTreeSet<&Name> = member_names.values().collect();
    let mut guests = Guests::default();
    for (key, guest) in records {
        let is_hosted = guest.host.is_some_and(|host| members.contains_key(&host));
        let address = guest.ipv4.filter(|address| addresses::may_be_fixed(*address));
        if *key == [0; 32] || !is_hosted || !address.is_some_and(|address| taken.insert(address)) {
            continue;
        }
        if guests.of.len() == MAX_GUESTS {
            guests.refused += 1;
            continue;
        }
        guests.of.insert(*key, guest.clone());
        if let Some(name) = guest.name.as_ref().filter(|name| named.insert(name)) {
            guests.names.insert(*key, name.clone());
        }
    }
    guests
}
