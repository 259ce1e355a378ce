//! Keys of Curve25519, preshared keys, and their text: base64 of 32 bytes with padding (wg(8)).

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::agreement::{self, UnparsedPublicKey, X25519};
use data_encoding::BASE64;
use rand_core::CryptoRng;
use thiserror::Error;
use weft_noise::Key;
use zeroize::Zeroizing;

/// Length of each kind of key in bytes.
pub const KEY_LEN: usize = 32;
/// Length of the text of a key in bytes.
pub const KEY_TEXT_LEN: usize = 44;

/// The text is no key: 44 characters of base64, which end with `=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a key is 44 characters of base64, the last of which is =")]
pub struct KeyError;

/// The public key has no use: the result of a Diffie-Hellman with it is zero, whatever the other key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the public key is one of those with which each secret is zero")]
pub struct WeakKey;

/// Reads the text of a key. The result is overwritten when dropped.
fn parse(text: &str) -> Result<Zeroizing<[u8; KEY_LEN]>, KeyError> {
    let mut room = Zeroizing::new([0; KEY_LEN + 1]);
    if text.len() != KEY_TEXT_LEN {
        return Err(KeyError);
    }
    let length = BASE64.decode_mut(text.as_bytes(), &mut *room).map_err(|_| KeyError)?;
    let bytes: &[u8; KEY_LEN] = room[..length].try_into().map_err(|_| KeyError)?;
    Ok(Zeroizing::new(*bytes))
}

/// A public key: what a peer is known by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY_LEN]);

impl PublicKey {
    /// Takes 32 bytes, the u-coordinate in little-endian order (RFC 7748, section 5).
    #[must_use]
    pub const fn from_bytes(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        parse(text).map(|bytes| Self(*bytes))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64.encode(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A private key, overwritten when dropped.
#[derive(Clone)]
pub struct PrivateKey(Key);

impl PrivateKey {
    /// Takes 32 bytes. They are clamped where they are used (RFC 7748, section 5).
    #[must_use]
    pub fn from_bytes(bytes: [u8; KEY_LEN]) -> Self {
        Self(Key::from_bytes(bytes))
    }

    /// Generates a private key.
    pub fn generate(rng: &mut (impl CryptoRng + ?Sized)) -> Self {
        let mut bytes = Zeroizing::new([0; KEY_LEN]);
        rng.fill_bytes(&mut *bytes);
        // As `wg genkey` does, so that other programs show the same text.
        bytes[0] &= 248;
        bytes[31] = bytes[31] & 127 | 64;
        Self::from_bytes(*bytes)
    }

    /// Returns the public key.
    #[must_use]
    #[expect(clippy::expect_used, reason = "any 32 bytes are a private key")]
    pub fn public(&self) -> PublicKey {
        let public = self.expanded().compute_public_key().expect("X25519 has a public key");
        let mut bytes = [0; KEY_LEN];
        bytes.copy_from_slice(public.as_ref());
        PublicKey(bytes)
    }

    /// Returns the result of the Diffie-Hellman with `public` (RFC 7748, section 6.1).
    ///
    /// # Errors
    /// [`WeakKey`]: the result is zero.
    pub fn agree(&self, public: &PublicKey) -> Result<Key, WeakKey> {
        let public = UnparsedPublicKey::new(&X25519, &public.0);
        agreement::agree(&self.expanded(), public, WeakKey, |secret| {
            let mut bytes = Zeroizing::new([0; KEY_LEN]);
            bytes.copy_from_slice(secret);
            Ok(Key::from_bytes(*bytes))
        })
    }

    /// Returns the text: for a file that its owner alone reads.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(BASE64.encode(self.0.as_bytes()))
    }

    #[expect(clippy::expect_used, reason = "any 32 bytes are a private key")]
    fn expanded(&self) -> agreement::PrivateKey {
        agreement::PrivateKey::from_private_key(&X25519, self.0.as_bytes()).expect("32 bytes are a private key")
    }
}

impl FromStr for PrivateKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        parse(text).map(|bytes| Self::from_bytes(*bytes))
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(..)")
    }
}

/// A preshared key, overwritten when dropped. All zeros mean that there is none (paper, section 5.2).
#[derive(Clone)]
pub struct PresharedKey(Key);

impl PresharedKey {
    /// Takes 32 bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; KEY_LEN]) -> Self {
        Self(Key::from_bytes(bytes))
    }

    /// Returns the key of peers that have none.
    #[must_use]
    pub fn none() -> Self {
        Self::from_bytes([0; KEY_LEN])
    }

    /// Generates a preshared key.
    pub fn generate(rng: &mut (impl CryptoRng + ?Sized)) -> Self {
        let mut bytes = Zeroizing::new([0; KEY_LEN]);
        rng.fill_bytes(&mut *bytes);
        Self::from_bytes(*bytes)
    }

    /// Returns the text: for a file that its owner alone reads.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(BASE64.encode(self.0.as_bytes()))
    }

    pub(crate) fn as_bytes(&self) -> &[u8; KEY_LEN] {
        self.0.as_bytes()
    }
}

impl FromStr for PresharedKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        parse(text).map(|bytes| Self::from_bytes(*bytes))
    }
}

impl fmt::Debug for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresharedKey(..)")
    }
}

#[cfg(test)]
mod tests;
