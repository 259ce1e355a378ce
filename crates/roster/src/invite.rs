//! Invites: the code that a joiner gets, the key pair in it, and the proof that the joiner had it.
//!
//! Only the code has the seed of the key pair. The record of an invite has the public half, and the
//! proof names the joiner and the network, so it is worth nothing to another key.

use std::fmt;

use sha2::{Digest, Sha256};
use thiserror::Error;
use weft_noise::{Identity, PublicKey, SecretKey};
use zeroize::Zeroizing;

use crate::network_id::NetworkId;

mod code;

pub use code::{Code, CodeError, EntryPoint, MAX_ADDRESSES};

/// The domain of the hash that makes the secret key of an invite.
const KEY_DOMAIN: &[u8] = b"weft invite key 1";

/// The secret of an invite code: 16 random bytes. Overwritten when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Seed(Zeroizing<[u8; 16]>);

/// The proof that a member had an invite code.
#[derive(Clone, PartialEq, Eq)]
pub struct Proof {
    /// The public half of the invite key pair.
    pub invite: [u8; 32],
    /// BIP-340 over SHA-256 of `NPUB joins NETWORK`.
    pub signature: [u8; 64],
}

/// A proof that does not hold for this member and network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the proof is not for this member, network and invite")]
pub struct ProofError;

impl Seed {
    /// Takes 16 random bytes as a seed. The caller's copy is the caller's to wipe.
    #[must_use]
    pub fn new(bytes: [u8; 16]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Derives the invite key pair: SHA-256(`"weft invite key 1"` || seed || n) as secret key, n
    /// being the lowest byte, from 0, that gives one.
    #[must_use]
    pub fn key_pair(&self) -> Identity {
        let mut n = 0_u8;
        loop {
            let hash = Sha256::new().chain_update(KEY_DOMAIN).chain_update(*self.0);
            let bytes: Zeroizing<[u8; 32]> = Zeroizing::new(hash.chain_update([n]).finalize().into());
            // All but one in 2^128 hashes are in range.
            if let Ok(secret) = SecretKey::from_bytes(&bytes) {
                return Identity::new(secret);
            }
            n = n.wrapping_add(1);
        }
    }

    /// Proves that `member` has this seed and joins `network` with it.
    #[must_use]
    pub fn prove(&self, member: &PublicKey, network: NetworkId) -> Proof {
        let pair = self.key_pair();
        Proof {
            invite: *pair.public().as_bytes(),
            signature: pair.sign(statement(member, network).as_bytes()),
        }
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

impl Proof {
    /// Verifies that the joiner `member` had the code of the invite when it joined `network`.
    ///
    /// # Errors
    /// [`ProofError`].
    pub fn verify(&self, member: &PublicKey, network: NetworkId) -> Result<(), ProofError> {
        let key = PublicKey::from_bytes(&self.invite).map_err(|_| ProofError)?;
        key.verify(statement(member, network).as_bytes(), &self.signature)
            .map_err(|_| ProofError)
    }
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proof({})", data_encoding::HEXLOWER.encode(&self.invite))
    }
}

fn statement(member: &PublicKey, network: NetworkId) -> String {
    format!("{member} joins {network}")
}

#[cfg(test)]
mod tests;
