//! Secret and public key.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    str::FromStr,
};

use rand_core::CryptoRng;
use secp256k1::{Keypair, Parity, PublicKey as Point, XOnlyPublicKey, ecdh::shared_secret_point};
use sha2::{Digest, Sha256};
use zeroize::{Zeroize, Zeroizing};

use crate::keys::{Key, wipe_stack};
use crate::memo::recalled;

use super::{
    SECP,
    text::{KeyError, npub_chars, nsec_chars, parse_public, parse_secret},
};

/// A secp256k1 secret key: a node's own, or a handshake's ephemeral one. Overwritten when dropped.
/// It is on the heap, so that moving it leaves no copy behind.
pub struct SecretKey(Box<Secrets>);

struct Secrets {
    scalar: secp256k1::SecretKey,
    pair: Keypair,
}

impl SecretKey {
    /// Takes 32 bytes, big-endian, as a secret key.
    ///
    /// # Errors
    ///
    /// [`KeyError::OutOfRange`] for zero and for numbers not below the curve's order.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, KeyError> {
        let key = Self::computed(bytes);
        wipe_stack();
        key
    }

    #[inline(never)]
    fn computed(bytes: &[u8; 32]) -> Result<Self, KeyError> {
        let mut scalar = secp256k1::SecretKey::from_byte_array(*bytes).map_err(|_| KeyError::OutOfRange)?;
        let mut pair = recalled!(*bytes, [u8; 32] => Keypair, Keypair::from_secret_key(&SECP, &scalar));
        let key = Self(Box::new(Secrets { scalar, pair }));
        scalar.non_secure_erase();
        pair.non_secure_erase();
        Ok(key)
    }

    /// Draws a new key from `rng`.
    #[must_use]
    pub fn generate(rng: &mut (impl CryptoRng + ?Sized)) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        loop {
            rng.fill_bytes(&mut *bytes);
            // All but one in 2^128 random numbers are in range.
            if let Ok(key) = Self::from_bytes(&bytes) {
                return key;
            }
        }
    }

    /// The 32 bytes, big-endian, in a buffer that wipes itself.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.scalar.secret_bytes())
    }

    /// The text form `nsec1...` (NIP-19), in a string that wipes itself.
    #[must_use]
    pub fn to_nsec(&self) -> Zeroizing<String> {
        // Room for all 63 characters: a string that grows leaves parts of the secret behind.
        let mut text = Zeroizing::new(String::with_capacity(64));
        text.extend(nsec_chars(&self.to_bytes()));
        text
    }

    /// The public key of this secret key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey::from_x_only(self.0.pair.x_only_public_key().0)
    }

    /// The public key in the form of messages: compressed, with its own parity.
    pub(crate) fn public_point(&self) -> [u8; 33] {
        self.0.pair.public_key().serialize()
    }

    /// FIPS's Diffie-Hellman: SHA-256 of the shared point's x coordinate, which is the same for a key and its
    /// negative.
    pub(crate) fn dh(&self, other: &Point) -> Key {
        let point = Zeroizing::new(recalled!(
            (self.0.scalar.secret_bytes(), other.serialize()),
            ([u8; 32], [u8; 33]) => [u8; 64],
            shared_secret_point(other, &self.0.scalar)
        ));
        let mut hash = Sha256::digest(&point[..32]);
        let shared = Key::written(|shared| shared.copy_from_slice(&hash));
        hash.as_mut_slice().zeroize();
        shared
    }

    /// The x coordinate of the point shared with `other`, big-endian and unhashed, in a buffer that
    /// wipes itself: what the encryption of Nostr starts from (NIP-44, "Encryption", step 1).
    #[must_use]
    pub fn shared_x(&self, other: &PublicKey) -> Zeroizing<[u8; 32]> {
        let shared = self.computed_x(other);
        wipe_stack();
        shared
    }

    #[inline(never)]
    fn computed_x(&self, other: &PublicKey) -> Zeroizing<[u8; 32]> {
        let point = Zeroizing::new(shared_secret_point(&other.point(), &self.0.scalar));
        let mut shared = Zeroizing::new([0; 32]);
        shared.copy_from_slice(&point[..32]);
        shared
    }

    pub(super) fn pair(&self) -> &Keypair {
        &self.0.pair
    }
}

impl Zeroize for SecretKey {
    /// Overwrites the key with a valid but worthless one.
    fn zeroize(&mut self) {
        self.0.scalar.non_secure_erase();
        self.0.pair.non_secure_erase();
    }
}

impl Drop for SecretKey {
    fn drop(&mut self) {
        self.zeroize();
    }
}

impl zeroize::ZeroizeOnDrop for SecretKey {}

impl FromStr for SecretKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        parse_secret(text)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

/// A node's public key: the x coordinate of a point on the curve, 32 bytes big-endian (BIP-340).
///
/// Displayed as `npub1...`; ordered by its bytes.
#[derive(Clone, Copy)]
pub struct PublicKey {
    bytes: [u8; 32],
    /// The same key in the library's form, so that using it cannot fail.
    x_only: XOnlyPublicKey,
}

impl PublicKey {
    /// Takes 32 bytes as a public key.
    ///
    /// # Errors
    ///
    /// [`KeyError::NotOnCurve`] if no point has this x coordinate, which is the case for half of
    /// all numbers.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, KeyError> {
        let x_only = recalled!(
            *bytes,
            [u8; 32] => Option<XOnlyPublicKey>,
            XOnlyPublicKey::from_byte_array(*bytes).ok()
        );
        x_only.map(Self::from_x_only).ok_or(KeyError::NotOnCurve)
    }

    /// The x coordinate, big-endian.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    pub(crate) fn from_point(point: &Point) -> Self {
        Self::from_x_only(point.x_only_public_key().0)
    }

    /// The point with this x and even y; for [`SecretKey::dh`] equivalent to the one with odd y.
    pub(crate) fn point(&self) -> Point {
        self.x_only.public_key(Parity::Even)
    }

    /// [`point`](Self::point), compressed.
    pub(crate) fn even_point(&self) -> [u8; 33] {
        let mut bytes = [0x02; 33];
        bytes[1..].copy_from_slice(&self.bytes);
        bytes
    }

    pub(super) const fn x_only(&self) -> XOnlyPublicKey {
        self.x_only
    }

    fn from_x_only(x_only: XOnlyPublicKey) -> Self {
        Self {
            bytes: x_only.serialize(),
            x_only,
        }
    }
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for PublicKey {}

impl PartialOrd for PublicKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PublicKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.bytes.cmp(&other.bytes)
    }
}

impl Hash for PublicKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        parse_public(text)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        npub_chars(&self.bytes).try_for_each(|c| f.write_char(c))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::{ChaCha20Rng, rand_core::SeedableRng};

    use super::*;

    #[test]
    fn secrets_are_in_range() {
        let order: [u8; 32] = hex::decode("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141")
            .unwrap()
            .try_into()
            .unwrap();
        let mut last = order;
        last[31] -= 1;
        assert!(SecretKey::from_bytes(&last).is_ok());
        for bytes in [[0; 32], order, [0xff; 32]] {
            assert_eq!(SecretKey::from_bytes(&bytes).err(), Some(KeyError::OutOfRange));
        }
    }

    #[test]
    fn generated_keys_follow_the_seed() {
        let key = |seed| {
            let mut rng = ChaCha20Rng::seed_from_u64(seed);
            let dynamic: &mut dyn CryptoRng = &mut rng;
            SecretKey::generate(dynamic).public()
        };
        assert_eq!(key(1), key(1));
        assert_ne!(key(1), key(2));
    }

    #[test]
    fn dh_agrees_and_ignores_parity() {
        let mut rng = ChaCha20Rng::seed_from_u64(3);
        let (a, b) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
        let even = a.dh(&b.public().point());
        let odd = a.dh(&b.public().x_only().public_key(Parity::Odd));
        assert_eq!(even.as_bytes(), odd.as_bytes());
        assert_eq!(even.as_bytes(), b.dh(&a.public().point()).as_bytes());
        let point = Point::from_byte_array_compressed(b.public_point()).unwrap();
        assert_eq!(PublicKey::from_point(&point), b.public());
        assert_eq!(b.public().point().serialize(), b.public().even_point());
        let x = a.shared_x(&b.public());
        assert_eq!(x, b.shared_x(&a.public()));
        assert_eq!(Sha256::digest(*x).as_slice(), even.as_bytes());
    }

    #[test]
    fn wiping_leaves_nothing_of_the_key() {
        let mut key = SecretKey::from_bytes(&[0x42; 32]).unwrap();
        let public = key.public();
        key.zeroize();
        assert_ne!(*key.to_bytes(), [0x42; 32]);
        assert_ne!(key.pair().secret_bytes(), [0x42; 32]);
        assert_ne!(key.public(), public);
    }
}
