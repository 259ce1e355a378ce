//! Noise's SymmetricState with FIPS's deviations: the running hash, the chaining key and the payload key.

use hkdf::HkdfExtract;
use sha2::{Digest, Sha256};
use zeroize::Zeroize;

use crate::{
    Established, Key, PublicKey,
    aead::{Cipher, TAG_LEN},
};

/// Length of a compressed curve point in a message: parity byte, then x in big-endian order.
pub(crate) const POINT_LEN: usize = 33;
/// Length of a start-up epoch.
pub(crate) const EPOCH_LEN: usize = 8;
pub(crate) const SEALED_POINT_LEN: usize = POINT_LEN + TAG_LEN;
pub(crate) const SEALED_EPOCH_LEN: usize = EPOCH_LEN + TAG_LEN;

pub(crate) type SealedPoint = [u8; SEALED_POINT_LEN];
pub(crate) type SealedEpoch = [u8; SEALED_EPOCH_LEN];

/// The role of this node in a handshake; decides which of the two keys sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// This node sent the first message.
    Initiator,
    /// The peer sent the first message.
    Responder,
}

/// The state that both sides compute from the same inputs.
///
/// Readers work on a clone, so a forged message leaves the pending original unchanged.
#[derive(Clone)]
pub(crate) struct Symmetric {
    chaining_key: Key,
    hash: [u8; 32],
    /// Set by the first [`mix_key`](Self::mix_key), which in both patterns precedes the first payload.
    payload_key: Key,
    payload_counter: u64,
}

impl Symmetric {
    /// Starts a transcript between any initiator and `responder`, whose static key both sides know beforehand.
    ///
    /// `protocol` is longer than a hash, so it enters hashed. The key enters with even parity,
    /// because an initiator knows it only from an `npub`.
    pub(crate) fn start(protocol: &[u8], responder: &PublicKey) -> Self {
        let hash: [u8; 32] = Sha256::digest(protocol).into();
        let mut state = Self {
            chaining_key: Key::from_bytes(hash),
            hash,
            payload_key: Key::from_bytes([0; 32]),
            payload_counter: 0,
        };
        state.mix_hash(&responder.even_point());
        state
    }

    pub(crate) fn mix_hash(&mut self, data: &[u8]) {
        self.hash = Sha256::new()
            .chain_update(self.hash)
            .chain_update(data)
            .finalize()
            .into();
    }

    /// Mixes a Diffie-Hellman result in; the payload counter starts over.
    pub(crate) fn mix_key(&mut self, shared: &Key) {
        (self.chaining_key, self.payload_key) = derive_two(&self.chaining_key, shared.as_bytes());
        self.payload_counter = 0;
    }

    /// Seals a payload with empty associated data, and mixes the ciphertext into the hash.
    pub(crate) fn encrypt<const N: usize, const M: usize>(&mut self, plaintext: &[u8; N]) -> [u8; M] {
        const { assert!(N + TAG_LEN == M) };
        let mut sealed = [0; M];
        let (body, tag) = sealed.split_at_mut(N);
        body.copy_from_slice(plaintext);
        tag.copy_from_slice(&Cipher::new(&self.payload_key).seal_in_place(self.payload_counter, &[], body));
        self.payload_counter += 1;
        self.mix_hash(&sealed);
        sealed
    }

    /// Opens a payload. Returns `None` if it does not authenticate; the state is then unusable.
    pub(crate) fn decrypt<const M: usize, const N: usize>(&mut self, sealed: &[u8; M]) -> Option<[u8; N]> {
        const { assert!(N + TAG_LEN == M) };
        let mut buf = *sealed;
        let plaintext = Cipher::new(&self.payload_key)
            .open_in_place(self.payload_counter, &[], &mut buf)
            .ok()?;
        self.payload_counter += 1;
        self.mix_hash(sealed);
        plaintext.first_chunk().copied()
    }

    /// Ends the handshake: the initiator sends with the first key.
    pub(crate) fn split(self, role: Role, remote: PublicKey, remote_epoch: [u8; EPOCH_LEN]) -> Established {
        let (from_initiator, from_responder) = derive_two(&self.chaining_key, &[]);
        let (send, recv) = match role {
            Role::Initiator => (from_initiator, from_responder),
            Role::Responder => (from_responder, from_initiator),
        };
        Established {
            send,
            recv,
            remote,
            remote_epoch,
            handshake_hash: self.hash,
            chaining_key: self.chaining_key,
        }
    }
}

/// Noise's HKDF with two outputs, which is RFC 5869's with empty `info`.
fn derive_two(chaining_key: &Key, input: &[u8]) -> (Key, Key) {
    let extracted = hmac(chaining_key, &[input]);
    let first = hmac(&extracted, &[&[1]]);
    let second = hmac(&extracted, &[first.as_bytes(), &[2]]);
    (first, second)
}

/// HMAC-SHA256 over the concatenation of `parts`.
pub(crate) fn hmac(key: &Key, parts: &[&[u8]]) -> Key {
    // HKDF-Extract is HMAC keyed with its salt; unlike the hmac crate's constructor it cannot fail.
    let mut mac = HkdfExtract::<Sha256>::new(Some(key.as_bytes()));
    for part in parts {
        mac.input_ikm(part);
    }
    let (mut output, _) = mac.finalize();
    let key = Key::written(|key| key.copy_from_slice(&output));
    output.as_mut_slice().zeroize();
    key
}

#[cfg(test)]
mod tests {
    use hkdf::Hkdf;

    use super::*;

    /// RFC 4231, test case 2 (its key is zero-padded here, which HMAC does itself).
    #[test]
    fn hmac_of_rfc_4231() {
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let mac = hmac(&Key::from_bytes(key), &[b"what do ya want ", b"for nothing?"]);
        assert_eq!(
            hex::encode(mac.as_bytes()),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn two_outputs_are_hkdf_with_empty_info() {
        for input in [&b""[..], b"shared secret"] {
            let (first, second) = derive_two(&Key::from_bytes([3; 32]), input);
            let mut expected = [0; 64];
            Hkdf::<Sha256>::new(Some(&[3; 32]), input)
                .expand(&[], &mut expected)
                .unwrap();
            assert_eq!([*first.as_bytes(), *second.as_bytes()].concat(), expected);
        }
    }
}
