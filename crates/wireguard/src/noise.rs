//! What a handshake computes with: hashes, MACs and derived keys of BLAKE2s (paper, section 5.4).

use blake2::digest::{Digest as _, FixedOutput as _, KeyInit as _, Update as _, consts::U16};
use blake2::{Blake2s256, Blake2sMac};
use hkdf::SimpleHkdf;
use weft_noise::Key;
use weft_noise::aead::Cipher;
use zeroize::Zeroizing;

use crate::keys::{KEY_LEN, PublicKey};
use crate::message::{MAC_LEN, TAG_LEN};

const CONSTRUCTION: &[u8] = b"Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";
const IDENTIFIER: &[u8] = b"WireGuard v1 zx2c4 Jason@zx2c4.com";

/// Returns the hash of the parts, one after the other.
pub(crate) fn hash(parts: &[&[u8]]) -> [u8; KEY_LEN] {
    let mut state = Blake2s256::new();
    for part in parts {
        blake2::digest::Update::update(&mut state, part);
    }
    state.finalize().into()
}

/// Returns the MAC of the parts, one after the other, under a key of 16 or 32 bytes.
#[expect(clippy::expect_used, reason = "the callers' keys have at most 32 bytes")]
pub(crate) fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; MAC_LEN] {
    let mut state = Blake2sMac::<U16>::new_from_slice(key).expect("a key of at most 32 bytes");
    for part in parts {
        state.update(part);
    }
    state.finalize_fixed().into()
}

/// Derives `N` keys from a chaining key and an input.
#[expect(clippy::expect_used, reason = "three keys are below the limit of the derivation")]
fn derive<const N: usize>(chain: &Key, input: &[u8]) -> [Key; N] {
    let mut bytes = Zeroizing::new([0; 3 * KEY_LEN]);
    let derived = SimpleHkdf::<Blake2s256>::new(Some(chain.as_bytes()), input);
    derived
        .expand(&[], &mut bytes[..N * KEY_LEN])
        .expect("at most 96 bytes");
    std::array::from_fn(|number| {
        let mut key = Zeroizing::new([0; KEY_LEN]);
        key.copy_from_slice(&bytes[number * KEY_LEN..(number + 1) * KEY_LEN]);
        Key::from_bytes(*key)
    })
}

/// The chaining key and the hash of what was said so far.
#[derive(Clone)]
pub(crate) struct Transcript {
    chain: Key,
    hash: [u8; KEY_LEN],
}

impl Transcript {
    /// Starts a handshake with the owner of `responder`.
    pub(crate) fn new(responder: &PublicKey) -> Self {
        let chain = hash(&[CONSTRUCTION]);
        let start = hash(&[&chain, IDENTIFIER]);
        Self {
            chain: Key::from_bytes(chain),
            hash: hash(&[&start, responder.as_bytes()]),
        }
    }

    /// Adds an ephemeral public key.
    pub(crate) fn mix_ephemeral(&mut self, ephemeral: &[u8; KEY_LEN]) {
        self.mix(ephemeral);
        self.mix_hash(ephemeral);
    }

    /// Adds a secret to the chaining key alone.
    pub(crate) fn mix(&mut self, secret: &[u8]) {
        let [chain] = derive(&self.chain, secret);
        self.chain = chain;
    }

    /// Adds a secret, and returns the cipher that follows from it.
    pub(crate) fn mix_for_cipher(&mut self, secret: &[u8]) -> Cipher {
        let [chain, key] = derive(&self.chain, secret);
        self.chain = chain;
        Cipher::new(&key)
    }

    /// Adds a preshared key, and returns the cipher that follows from it.
    pub(crate) fn mix_preshared(&mut self, preshared: &[u8; KEY_LEN]) -> Cipher {
        let [chain, salt, key] = derive(&self.chain, preshared);
        self.chain = chain;
        self.mix_hash(salt.as_bytes());
        Cipher::new(&key)
    }

    /// Adds public bytes.
    pub(crate) fn mix_hash(&mut self, bytes: &[u8]) {
        self.hash = hash(&[&self.hash, bytes]);
    }

    /// Seals `N` bytes into `M`, which are `N` and the tag, and adds the result.
    pub(crate) fn seal<const N: usize, const M: usize>(&mut self, cipher: &Cipher, bytes: [u8; N]) -> [u8; M] {
        let mut sealed = [0; M];
        sealed[..N].copy_from_slice(&bytes);
        let tag = cipher.seal_in_place(0, &self.hash, &mut sealed[..N]);
        sealed[N..N + TAG_LEN].copy_from_slice(&tag);
        self.mix_hash(&sealed);
        sealed
    }

    /// Opens `M` bytes into `N`, and adds them if they are authentic.
    pub(crate) fn open<const M: usize, const N: usize>(&mut self, cipher: &Cipher, sealed: [u8; M]) -> Option<[u8; N]> {
        let mut room = sealed;
        let opened = cipher.open_in_place(0, &self.hash, &mut room).ok()?;
        let bytes = <[u8; N]>::try_from(&*opened).ok()?;
        self.mix_hash(&sealed);
        Some(bytes)
    }

    /// Returns the keys of the initiator for sending and for receiving.
    pub(crate) fn split(&self) -> [Key; 2] {
        derive(&self.chain, &[])
    }
}
