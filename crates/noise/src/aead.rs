//! Authenticated encryption in place, with a counter as nonce.
//!
//! The nonce is four zero bytes followed by the counter in little-endian order (Noise,
//! "ChaChaPoly"; FIPS uses the same for frames). This module keeps no state: the caller that seals
//! owns the counter and never repeats it under one key, the caller that opens asks a
//! [`ReplayWindow`](crate::replay::ReplayWindow).

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use thiserror::Error;
use weft_gcm::Aes256Gcm;

use crate::Key;
use crate::keys::wipe_stack;

/// Length of the authentication tag in bytes.
pub const TAG_LEN: usize = 16;

/// The bytes do not authenticate: altered, truncated, or sealed under another key, counter or
/// header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the data does not authenticate under this key, counter and header")]
pub struct OpenError;

/// ChaCha20-Poly1305 (RFC 8439) under one key, with the key schedule done once.
///
/// Sealing and opening take `&self` and allocate nothing, so one direction of a link can be shared by reference.
pub struct Cipher(Aead);

impl Cipher {
    /// Prepares `key` for use.
    #[must_use]
    pub fn new(key: &Key) -> Self {
        let cipher = Self::computed(key);
        wipe_stack();
        cipher
    }

    #[inline(never)]
    fn computed(key: &Key) -> Self {
        Self(Aead::new(&CHACHA20_POLY1305, key.as_bytes()))
    }

    /// Encrypts `buf` in place and returns the tag over it and `aad`.
    ///
    /// `counter` must never be used twice under one key.
    ///
    /// # Panics
    ///
    /// On a buffer of more than 256 GiB, the limit of the cipher.
    #[must_use = "without the tag the other side cannot open the data"]
    pub fn seal_in_place(&self, counter: u64, aad: &[u8], buf: &mut [u8]) -> [u8; TAG_LEN] {
        self.0.seal(nonce(counter), aad, buf, &[])
    }

    /// Verifies and decrypts `ciphertext_and_tag` in place and returns its plaintext part.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if the tag does not match or the input is shorter than a tag. The buffer's
    /// contents are then unspecified.
    pub fn open_in_place<'a>(
        &self,
        counter: u64,
        aad: &[u8],
        ciphertext_and_tag: &'a mut [u8],
    ) -> Result<&'a mut [u8], OpenError> {
        self.0.open(nonce(counter), aad, ciphertext_and_tag)
    }
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cipher(ChaCha20-Poly1305)")
    }
}

fn nonce(counter: u64) -> [u8; NONCE_LEN] {
    let mut bytes = [0; NONCE_LEN];
    bytes[4..].copy_from_slice(&counter.to_le_bytes());
    bytes
}

/// Any of the ciphers under one key: the only code that calls cipher libraries.
pub(crate) enum Aead {
    /// AES-256-GCM on processors with wide vector instructions for it; boxed, as it is six times
    /// the other's size.
    Wide(Box<Aes256Gcm>),
    Library(LessSafeKey),
}

impl Aead {
    /// # Panics
    /// If the length of `key` is not that of `algorithm`.
    #[expect(clippy::expect_used, reason = "the callers' types give the length")]
    pub(crate) fn new(algorithm: &'static Algorithm, key: &[u8]) -> Self {
        if *algorithm == AES_256_GCM
            && let Some(wide) = key.as_array().and_then(Aes256Gcm::new)
        {
            return Self::Wide(Box::new(wide));
        }
        let unbound = UnboundKey::new(algorithm, key).expect("a key as long as the algorithm says");
        Self::Library(LessSafeKey::new(unbound))
    }

    /// Encrypts `buf`, whose last bytes are read from `rest` if that is not empty: as many as
    /// `rest` has. Libraries need the message in one buffer, so for them it is copied.
    ///
    /// # Panics
    /// On a buffer longer than the cipher's limit, at least 64 GiB, or shorter than `rest`.
    #[expect(
        clippy::expect_used,
        reason = "fails only past the limit of the cipher, far above any buffer"
    )]
    pub(crate) fn seal(&self, nonce: [u8; NONCE_LEN], aad: &[u8], buf: &mut [u8], rest: &[u8]) -> [u8; TAG_LEN] {
        let key = match self {
            Self::Wide(key) => return key.seal_from(&nonce, aad, buf, rest),
            Self::Library(key) => key,
        };
        let front = buf.len() - rest.len();
        buf[front..].copy_from_slice(rest);
        let tag = key
            .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(aad), buf)
            .expect("a buffer below the cipher's limit");
        let mut bytes = [0; TAG_LEN];
        bytes.copy_from_slice(tag.as_ref());
        bytes
    }

    pub(crate) fn open<'a>(
        &self,
        nonce: [u8; NONCE_LEN],
        aad: &[u8],
        ciphertext_and_tag: &'a mut [u8],
    ) -> Result<&'a mut [u8], OpenError> {
        match self {
            Self::Wide(key) => {
                let (data, tag) = ciphertext_and_tag.split_last_chunk_mut().ok_or(OpenError)?;
                key.open(&nonce, aad, data, tag).map_err(|_| OpenError)?;
                Ok(data)
            }
            Self::Library(key) => key
                .open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(aad), ciphertext_and_tag)
                .map_err(|_| OpenError),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Counters are `u64` on every platform, and all of their bits are in the nonce.
    #[test]
    fn a_nonce_has_all_64_bits_of_its_counter() {
        let _: fn(&Cipher, u64, &[u8], &mut [u8]) -> [u8; TAG_LEN] = Cipher::seal_in_place;
        let counters = std::iter::once(0).chain((0..64).map(|bit| 1 << bit)).chain([u64::MAX]);
        let nonces: std::collections::BTreeSet<_> = counters.clone().map(nonce).collect();
        assert_eq!(nonces.len(), counters.count());
        // The nonce that a 32-bit counter would give.
        let cipher = Cipher::new(&Key::from_bytes([7; 32]));
        assert_ne!(
            cipher.seal_in_place(1 << 32, &[], &mut []),
            cipher.seal_in_place(0, &[], &mut [])
        );
    }

    /// A known result for the all-zero key, counter 0 and no data.
    #[test]
    fn empty_message_under_zero_key() {
        let tag = Cipher::new(&Key::from_bytes([0; 32])).seal_in_place(0, &[], &mut []);
        assert_eq!(hex::encode(tag), "4eb972c9a8fb3a1b382bb4d36f5ffad1");
    }

    #[test]
    fn counter_is_little_endian_after_four_zero_bytes() {
        let key = Key::from_bytes([7; 32]);
        let counter = 0x0102_0304_0506_0708;
        let mut ours = *b"hello";
        let tag = Cipher::new(&key).seal_in_place(counter, b"header", &mut ours);

        let raw = Aead::new(&CHACHA20_POLY1305, key.as_bytes());
        let mut theirs = *b"hello";
        let expected = raw.seal([0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1], b"header", &mut theirs, &[]);
        assert_eq!((ours, tag), (theirs, expected));
    }

    #[test]
    fn buffers_without_room_for_a_tag() {
        let cipher = Cipher::new(&Key::from_bytes([1; 32]));
        for len in 0..TAG_LEN {
            assert_eq!(cipher.open_in_place(0, &[], &mut vec![0; len]), Err(OpenError));
        }
    }

    proptest! {
        #[test]
        fn opens_what_it_sealed_and_nothing_else(
            key: [u8; 32],
            counter: u64,
            aad in prop::collection::vec(any::<u8>(), 0..40),
            plain in prop::collection::vec(any::<u8>(), 0..200),
            flip: prop::sample::Index,
        ) {
            let cipher = Cipher::new(&Key::from_bytes(key));
            let mut sealed = plain.clone();
            let tag = cipher.seal_in_place(counter, &aad, &mut sealed);
            sealed.extend_from_slice(&tag);

            let mut copy = sealed.clone();
            prop_assert_eq!(cipher.open_in_place(counter, &aad, &mut copy).unwrap(), &plain[..]);
            prop_assert!(cipher.open_in_place(counter ^ 1, &aad, &mut sealed.clone()).is_err());
            let mut longer = aad.clone();
            longer.push(0);
            prop_assert!(cipher.open_in_place(counter, &longer, &mut sealed.clone()).is_err());

            let bit = flip.index(sealed.len() * 8);
            sealed[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(cipher.open_in_place(counter, &aad, &mut sealed).is_err());
        }
    }
}
