//! A node's Nostr key pair, and the addresses and signatures that follow from it.
//!
//! FIPS uses the identities of Nostr: a secp256k1 key, written as `nsec` and `npub` (NIP-19), with
//! BIP-340 signatures. The node address is the start of the public key's SHA-256 hash (FIPS
//! `src/identity/`).

use std::{fmt, sync::LazyLock};

use secp256k1::{All, Secp256k1, schnorr::Signature};
use sha2::{Digest, Sha256};
use thiserror::Error;
use weft_wire::NodeAddr;

use crate::memo::recalled;

mod key;
mod text;

pub use key::{PublicKey, SecretKey};
pub use text::{KeyError, parse_public, parse_secret};

/// Tables for signing and verifying, shared by all.
///
/// It stays unblinded: blinding needs randomness, which this crate does not have, and protects
/// against side channels of the hardware only; the library's secret operations take constant time
/// without it.
static SECP: LazyLock<Secp256k1<All>> = LazyLock::new(Secp256k1::new);

/// The signature does not belong to this key and message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the signature was not made by this key for this message")]
pub struct SignatureError;

/// This node's identity: its secret key, its public key and its address.
pub struct Identity {
    secret: SecretKey,
    public: PublicKey,
    node_addr: NodeAddr,
}

impl Identity {
    /// The identity of `secret`.
    #[must_use]
    pub fn new(secret: SecretKey) -> Self {
        let public = secret.public();
        Self {
            secret,
            public,
            node_addr: public.node_addr(),
        }
    }

    /// The secret key.
    #[must_use]
    pub const fn secret(&self) -> &SecretKey {
        &self.secret
    }

    /// The public key; displayed as `npub`.
    #[must_use]
    pub const fn public(&self) -> PublicKey {
        self.public
    }

    /// The address by which others route to this node.
    #[must_use]
    pub const fn node_addr(&self) -> NodeAddr {
        self.node_addr
    }

    /// Signs `message` as FIPS does for tree announcements and look-up proofs: BIP-340 over its SHA-256 hash.
    ///
    /// The signature uses no auxiliary randomness, so the same message gets the same signature.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.sign_digest(&Sha256::digest(message).into())
    }

    /// Signs 32 bytes unhashed, for formats that define their own hash (such as Nostr events).
    #[must_use]
    pub fn sign_digest(&self, digest: &[u8; 32]) -> [u8; 64] {
        recalled!(
            (*self.public.as_bytes(), *digest),
            ([u8; 32], [u8; 32]) => [u8; 64],
            SECP.sign_schnorr_no_aux_rand(digest, self.secret.pair()).to_byte_array()
        )
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("public", &self.public)
            .finish_non_exhaustive()
    }
}

impl PublicKey {
    /// The node address: the first 16 bytes of SHA-256 over the x-only key.
    #[must_use]
    pub fn node_addr(&self) -> NodeAddr {
        let hash: [u8; 32] = Sha256::digest(self.as_bytes()).into();
        let mut addr = [0; 16];
        addr.copy_from_slice(&hash[..16]);
        NodeAddr::new(addr)
    }

    /// Verifies a signature of [`Identity::sign`].
    ///
    /// # Errors
    ///
    /// [`SignatureError`] if the signature does not belong to this key and message.
    pub fn verify(&self, message: &[u8], signature: &[u8; 64]) -> Result<(), SignatureError> {
        self.verify_digest(&Sha256::digest(message).into(), signature)
    }

    /// Verifies a signature of [`Identity::sign_digest`].
    ///
    /// # Errors
    ///
    /// [`SignatureError`] if the signature does not belong to this key and these 32 bytes.
    pub fn verify_digest(&self, digest: &[u8; 32], signature: &[u8; 64]) -> Result<(), SignatureError> {
        recalled!(
            (*self.as_bytes(), *digest, *signature),
            ([u8; 32], [u8; 32], [u8; 64]) => Result<(), SignatureError>,
            SECP.verify_schnorr(&Signature::from_byte_array(*signature), digest, &self.x_only())
                .map_err(|_| SignatureError)
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        hex::decode(hex).unwrap().try_into().unwrap()
    }

    #[test]
    fn bip_340_vector_0() {
        let identity = Identity::new(SecretKey::from_bytes(&bytes(&format!("{:064x}", 3))).unwrap());
        assert_eq!(
            hex::encode_upper(identity.public().as_bytes()),
            "F9308A019258C31049344F85F89D5229B531C845836F99B08601F113BCE036F9"
        );
        assert_eq!(
            hex::encode_upper(identity.sign_digest(&[0; 32])),
            "E907831F80848D1069A5371B402410364BDF1C5F8307B0084C55F1CE2DCA8215\
             25F66A4A85EA8B71E482A74F382D2CE5EBEEE8FDB2172F477DF4900D310536C0"
        );
    }

    #[test]
    fn bip_340_vector_4() {
        let key = PublicKey::from_bytes(&bytes(
            "D69C3509BB99E412E68B0FE8544E72837DFA30746D8BE2AA65975F29D22DC7B9",
        ))
        .unwrap();
        let digest = bytes("4DF3C3F68FCC83B27E9D42C90431A72499F17875C81A599B566C9889B9696703");
        let mut signature = bytes(
            "00000000000000000000003B78CE563F89A0ED9414F5AA28AD0D96D6795F9C63\
             76AFB1548AF603B3EB45C9F8207DEE1060CB71C04E80F593060B07D28308D7F4",
        );
        assert_eq!(key.verify_digest(&digest, &signature), Ok(()));
        signature[63] ^= 1;
        assert_eq!(key.verify_digest(&digest, &signature), Err(SignatureError));
    }

    #[test]
    fn debug_shows_the_npub_and_no_secret() {
        let identity = Identity::new(SecretKey::from_bytes(&[0x11; 32]).unwrap());
        let text = format!("{identity:?} {:?}", identity.secret());
        assert!(text.contains(&identity.public().to_string()));
        assert!(!text.contains("1111"), "{text}");
        assert!(!text.contains(&"17, ".repeat(4)), "{text}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn signatures_hold_for_one_key_and_message(secret in 1..=u8::MAX, message: Vec<u8>, flip in 0..512_usize) {
            let identity = Identity::new(SecretKey::from_bytes(&[secret; 32]).unwrap_or_else(|_| {
                SecretKey::from_bytes(&[1; 32]).unwrap()
            }));
            let signature = identity.sign(&message);
            prop_assert_eq!(identity.public().verify(&message, &signature), Ok(()));

            let mut other = message.clone();
            other.push(0);
            prop_assert_eq!(identity.public().verify(&other, &signature), Err(SignatureError));
            let mut altered = signature;
            altered[flip / 8] ^= 1 << (flip % 8);
            prop_assert_eq!(identity.public().verify(&message, &altered), Err(SignatureError));
            let stranger = SecretKey::from_bytes(&[0x55; 32]).unwrap().public();
            prop_assert!(stranger == identity.public() || stranger.verify(&message, &signature).is_err());
        }
    }
}
