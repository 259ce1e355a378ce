//! The identifier of a network, which proves who founded it.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use thiserror::Error;
use weft_noise::PublicKey;
use weft_nostr::hex;

/// The domain of the hash that makes a [`NetworkId`].
const DOMAIN: &[u8] = b"weft network 1";

/// The domain of the hash that makes the [`NetworkId`] of a network that was founded with nvpn.
const FOREIGN_DOMAIN: &[u8] = b"weft network of nvpn 1\0";

/// The random bytes that a founder adds, so that one key may found many networks.
pub type Nonce = [u8; 16];

/// The identifier of a network: the first 16 bytes of SHA-256(`"weft network 1"` || founder's key
/// || nonce).
///
/// Founder and nonce are in the founder's `network` record, so every node can verify which key
/// founded the network, whatever node the record came from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkId([u8; 16]);

/// A text is not a [`NetworkId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a network id has 32 hexadecimal digits in lower case")]
pub struct NetworkIdError;

impl NetworkId {
    /// Computes the identifier of the network that `founder` founds with `nonce`.
    #[must_use]
    pub fn new(founder: &PublicKey, nonce: &Nonce) -> Self {
        Self::of_bytes(founder.as_bytes(), nonce)
    }

    /// Computes the identifier, as [`new`](Self::new), from bytes that need not be a key.
    pub(crate) fn of_bytes(founder: &[u8; 32], nonce: &Nonce) -> Self {
        let hash = Sha256::new()
            .chain_update(DOMAIN)
            .chain_update(founder)
            .chain_update(nonce)
            .finalize();
        let mut id = [0; 16];
        id.copy_from_slice(&hash[..16]);
        Self(id)
    }

    /// Computes the identifier, on weft nodes, of a network that was founded with nvpn and that nvpn calls `text`:
    /// the first 16 bytes of SHA-256(`"weft network of nvpn 1"` || zero byte || text). No record of weft founds a
    /// network of this identifier.
    #[must_use]
    pub fn of_nvpn(text: &str) -> Self {
        let hash = Sha256::new().chain_update(FOREIGN_DOMAIN).chain_update(text).finalize();
        let mut id = [0; 16];
        id.copy_from_slice(&hash[..16]);
        Self(id)
    }

    /// Takes 16 bytes as an identifier.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the 16 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for NetworkId {
    /// Writes 32 hexadecimal digits in lower case.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for NetworkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NetworkId({self})")
    }
}

impl FromStr for NetworkId {
    type Err = NetworkIdError;

    fn from_str(text: &str) -> Result<Self, NetworkIdError> {
        hex::decode(text).map(Self).ok_or(NetworkIdError)
    }
}

#[cfg(test)]
mod tests {
    use weft_noise::SecretKey;

    use super::*;

    #[test]
    fn the_identifier_is_that_of_the_document() {
        let founder = SecretKey::from_bytes(&[1; 32]).unwrap().public();
        let id = NetworkId::new(&founder, &[2; 16]);
        assert_eq!(id.to_string(), "200d735c8c85b371d035c5db419dfa2c");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_ne!(NetworkId::new(&founder, &[3; 16]), id);
    }

    #[test]
    fn a_network_of_nvpn_has_an_identifier_of_its_own() {
        let id = NetworkId::of_nvpn("ab12cd34");
        assert_eq!(id.to_string(), "0a795bd1e34cbdfcdc07aeed7bcf2a5b");
        assert_ne!(NetworkId::of_nvpn("ab12cd35"), id);
        assert_ne!(NetworkId::of_nvpn(&id.to_string()), id);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "0",
            "0123456789abcdef0123456789ABCDEF",
            "0123456789abcdef0123456789abcde",
            "0123456789abcdef0123456789abcdef0",
            " 123456789abcdef0123456789abcdef",
        ] {
            assert_eq!(text.parse::<NetworkId>(), Err(NetworkIdError), "{text}");
        }
    }
}
