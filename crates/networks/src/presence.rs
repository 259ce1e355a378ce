//! Where a member is at present, as it says itself: a signed statement that members pass on.
//!
//! ```text
//! presence: member (32), version (8), age (4), number of addresses (1), addresses (18 each), signature (64)
//! address: IPv6, or IPv4 in the form of IPv6 (16), port (2)
//! ```
//!
//! Numbers are big-endian. The signature (BIP-340) is that of the member, for SHA-256 of
//! `weft presence 1`, the network and all fields but the age and itself. The age is what the node
//! that passes the statement on says: seconds since the member sent it.

use std::net::SocketAddr;

use sha2::{Digest as _, Sha256};
use weft_noise::{Identity, PublicKey};
use weft_reach::message::{ADDRESS, address_bytes, read_address};
use weft_roster::network_id::NetworkId;

use crate::document::DocumentError;

/// Maximum number of addresses of a member.
pub const MAX_ADDRESSES: usize = 8;
/// Maximum number of presences in a document.
pub(crate) const MAX_IN_DOCUMENT: usize = 64;
/// The highest version, 2^53 - 1 ms since 1970.
pub(crate) const MAX_VERSION: u64 = (1 << 53) - 1;

const DOMAIN: &[u8] = b"weft presence 1";

/// Where a member says that it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// The member.
    pub member: PublicKey,
    /// The time of the statement in ms since 1970, or more than that of the statement before. The
    /// higher one counts.
    pub version: u64,
    /// The addresses, at most `MAX_ADDRESSES`.
    pub addresses: Vec<SocketAddr>,
    signature: [u8; 64],
}

impl Presence {
    /// Signs a statement of this node. Further addresses than `MAX_ADDRESSES` are left out.
    #[must_use]
    pub fn sign(identity: &Identity, network: &NetworkId, version: u64, addresses: &[SocketAddr]) -> Self {
        let mut presence = Self {
            member: identity.public(),
            version,
            addresses: addresses.iter().take(MAX_ADDRESSES).copied().collect(),
            signature: [0; 64],
        };
        presence.signature = identity.sign_digest(&presence.digest(network));
        presence
    }

    /// Whether the member has signed it for this network.
    #[must_use]
    pub fn is_genuine(&self, network: &NetworkId) -> bool {
        self.member
            .verify_digest(&self.digest(network), &self.signature)
            .is_ok()
    }

    /// Whether it counts rather than `other` of the same member. Of two with one version, which a
    /// member does not make, the one whose addresses are later in order does.
    #[must_use]
    pub fn is_newer(&self, other: &Self) -> bool {
        (self.version, &self.addresses) > (other.version, &other.addresses)
    }

    /// Appends it, with its age in seconds.
    pub fn emit(&self, age: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(self.member.as_bytes());
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&age.to_be_bytes());
        self.emit_addresses(out);
        out.extend_from_slice(&self.signature);
    }

    /// Reads one with its age, and returns what is behind it. The signature is not verified.
    ///
    /// # Errors
    /// [`DocumentError`]
    pub fn read(bytes: &[u8]) -> Result<((Self, u32), &[u8]), DocumentError> {
        let short = DocumentError::Length;
        let (member, rest) = bytes.split_first_chunk::<32>().ok_or(short)?;
        let (version, rest) = rest.split_first_chunk().ok_or(short)?;
        let (age, rest) = rest.split_first_chunk().ok_or(short)?;
        let (&count, rest) = rest.split_first().ok_or(short)?;
        if usize::from(count) > MAX_ADDRESSES {
            return Err(DocumentError::Field("number of addresses"));
        }
        let (addresses, rest) = rest.split_at_checked(usize::from(count) * ADDRESS).ok_or(short)?;
        let (signature, rest) = rest.split_first_chunk().ok_or(short)?;
        let version = u64::from_be_bytes(*version);
        if version > MAX_VERSION {
            return Err(DocumentError::Field("version"));
        }
        let presence = Self {
            member: PublicKey::from_bytes(member).map_err(|_| DocumentError::Field("key"))?,
            version,
            addresses: addresses.as_chunks().0.iter().map(read_address).collect(),
            signature: *signature,
        };
        Ok(((presence, u32::from_be_bytes(*age)), rest))
    }

    fn digest(&self, network: &NetworkId) -> [u8; 32] {
        let mut signed = DOMAIN.to_vec();
        signed.extend_from_slice(network.as_bytes());
        signed.extend_from_slice(self.member.as_bytes());
        signed.extend_from_slice(&self.version.to_be_bytes());
        self.emit_addresses(&mut signed);
        Sha256::digest(signed).into()
    }

    fn emit_addresses(&self, out: &mut Vec<u8>) {
        out.push(self.addresses.len() as u8);
        for at in &self.addresses {
            out.extend_from_slice(&address_bytes(*at));
        }
    }
}
