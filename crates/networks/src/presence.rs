//! Where a member is at present, as it says itself: a signed statement that members pass on.
//!
//! ```text
//! presence: member (32), version (8), age (4), length of the places (2), places, signature (64)
//! ```
//!
//! Numbers are big-endian; [`place`](crate::place) has the places. The signature (BIP-340) is that of
//! the member, for SHA-256 of `weft presence 2`, the network and all fields but the age and itself. The
//! age is what the node that passes the statement on says: seconds since the member sent it.

use sha2::{Digest as _, Sha256};
use weft_noise::{Identity, PublicKey};
use weft_roster::network_id::NetworkId;

use crate::document::DocumentError;
use crate::place::{MAX_BYTES, Places};

/// Maximum number of presences in a document.
pub(crate) const MAX_IN_DOCUMENT: usize = 64;
/// The highest version, 2^53 - 1 ms since 1970.
pub(crate) const MAX_VERSION: u64 = (1 << 53) - 1;

/// Bytes in front of the places, of which the last two are their length.
const HEAD: usize = 46;
const SIGNATURE: usize = 64;
const DOMAIN: &[u8] = b"weft presence 2";

/// Where a member says that it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// The member.
    pub member: PublicKey,
    /// The time of the statement in ms since 1970, or more than that of the statement before. The
    /// higher one counts.
    pub version: u64,
    /// Where it is.
    pub places: Places,
    signature: [u8; SIGNATURE],
}

impl Presence {
    /// Signs a statement of this node.
    #[must_use]
    pub fn sign(identity: &Identity, network: &NetworkId, version: u64, places: Places) -> Self {
        let mut presence = Self {
            member: identity.public(),
            version,
            places,
            signature: [0; SIGNATURE],
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
    /// member does not make, the one whose places are later in the order of their bytes does.
    #[must_use]
    pub fn is_newer(&self, other: &Self) -> bool {
        (self.version, &self.places) > (other.version, &other.places)
    }

    /// Appends it, with its age in seconds.
    pub fn emit(&self, age: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(self.member.as_bytes());
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&age.to_be_bytes());
        self.emit_places(out);
        out.extend_from_slice(&self.signature);
    }

    /// Returns the bytes of the first one, and what is behind them. They may be malformed.
    ///
    /// # Errors
    /// [`DocumentError`]: no end is found.
    pub fn split(bytes: &[u8]) -> Result<(&[u8], &[u8]), DocumentError> {
        let head = bytes.first_chunk::<HEAD>().ok_or(DocumentError::Length)?;
        let [.., high, low] = *head;
        let places = usize::from(u16::from_be_bytes([high, low]));
        if places > MAX_BYTES {
            return Err(DocumentError::Field("length of places"));
        }
        let both = bytes.split_at_checked(HEAD + places + SIGNATURE);
        both.ok_or(DocumentError::Length)
    }

    /// Reads one, which is all of `bytes`, with its age. The signature is not verified.
    ///
    /// # Errors
    /// [`DocumentError`]
    pub fn read(bytes: &[u8]) -> Result<(Self, u32), DocumentError> {
        let short = DocumentError::Length;
        let (member, rest) = bytes.split_first_chunk::<32>().ok_or(short)?;
        let (version, rest) = rest.split_first_chunk().ok_or(short)?;
        let (age, rest) = rest.split_first_chunk().ok_or(short)?;
        let (length, rest) = rest.split_first_chunk().ok_or(short)?;
        let length = u16::from_be_bytes(*length).into();
        let (places, signature) = rest.split_at_checked(length).ok_or(short)?;
        let version = u64::from_be_bytes(*version);
        if version > MAX_VERSION {
            return Err(DocumentError::Field("version"));
        }
        let presence = Self {
            member: PublicKey::from_bytes(member).map_err(|_| DocumentError::Field("key"))?,
            version,
            places: Places::read(places)?,
            signature: signature.try_into().map_err(|_| short)?,
        };
        Ok((presence, u32::from_be_bytes(*age)))
    }

    fn digest(&self, network: &NetworkId) -> [u8; 32] {
        let mut signed = DOMAIN.to_vec();
        signed.extend_from_slice(network.as_bytes());
        signed.extend_from_slice(self.member.as_bytes());
        signed.extend_from_slice(&self.version.to_be_bytes());
        self.emit_places(&mut signed);
        Sha256::digest(signed).into()
    }

    fn emit_places(&self, out: &mut Vec<u8>) {
        let places = self.places.as_bytes();
        out.extend_from_slice(&(places.len() as u16).to_be_bytes());
        out.extend_from_slice(places);
    }
}

#[cfg(test)]
mod tests;
