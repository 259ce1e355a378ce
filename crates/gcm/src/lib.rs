//! AES-256-GCM (NIST SP 800-38D) for packets, where the processor has AES and carry-less multiplication in vectors of 512
//! bits (x86-64 with AVX-512, VAES and VPCLMULQDQ: Ice Lake, Zen 4 and later).
//!
//! Libraries are made for records of 16 KiB; a tunnel seals 1,400 bytes at a time, and there half of their time goes into
//! what each message costs however short it is. Here it is a quarter, and the two halves of the work, encryption and
//! authentication, run beside each other from the first byte on
//! (docs/experiments/2026-11-21-gcm.md, docs/decisions/0014-own-gcm.md).
//!
//! There are no look-ups and no branches that depend on keys or data: only on lengths, and on whether a tag was right.
//! Everything is compared with aws-lc in `tests/`, on every length that a datagram can have.
//!
//! - `vaes`: a message from start to end, encryption in groups of vectors with authentication in between
//! - `vaes::aes`: key schedule, one block
//! - `vaes::ghash`: sums of products in GF(2^128), and their reduction
//! - `vaes::memory`: vectors from and to slices

#[cfg(target_arch = "x86_64")]
mod vaes;

/// Length of a key in bytes.
pub const KEY_LEN: usize = 32;
/// Length of a nonce in bytes.
pub const NONCE_LEN: usize = 12;
/// Length of a tag in bytes.
pub const TAG_LEN: usize = 16;
/// The longest message in bytes: 2^32 - 2 blocks (SP 800-38D, section 5.2.1.1).
pub const MAX_LEN: u64 = ((1 << 32) - 2) * 16;

/// The tag is not the one of this data under this key, nonce and associated data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the data does not authenticate")]
pub struct Forged;

/// AES-256-GCM under one key. It takes 896 bytes, which are overwritten when it is dropped.
///
/// Nonces are the caller's: one that is used twice under a key gives the key away.
pub struct Aes256Gcm {
    #[cfg(target_arch = "x86_64")]
    key: vaes::Key,
    #[cfg(not(target_arch = "x86_64"))]
    key: std::convert::Infallible,
}

impl Aes256Gcm {
    /// Prepares a key; `None` where the processor lacks the instructions.
    #[must_use]
    pub fn new(key: &[u8; KEY_LEN]) -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        return vaes::Key::new(key).map(|key| Self { key });
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = key;
            None
        }
    }

    /// Encrypts `data` where it lies and returns the tag over it and `aad`.
    ///
    /// # Panics
    /// On more than [`MAX_LEN`] bytes.
    #[must_use = "without the tag the data cannot be opened"]
    pub fn seal(&self, nonce: &[u8; NONCE_LEN], aad: &[u8], data: &mut [u8]) -> [u8; TAG_LEN] {
        self.seal_from(nonce, aad, data, &[])
    }

    /// The same for a message whose last bytes lie in `rest`, and are not copied: `data` has room for all of it, and
    /// before that room what comes first. A header written in front of a payload that stays where it was read is sealed
    /// so.
    ///
    /// # Panics
    /// If `rest` is longer than `data`, or `data` than [`MAX_LEN`] bytes.
    #[must_use = "without the tag the data cannot be opened"]
    pub fn seal_from(&self, nonce: &[u8; NONCE_LEN], aad: &[u8], data: &mut [u8], rest: &[u8]) -> [u8; TAG_LEN] {
        assert!(data.len() as u64 <= MAX_LEN, "a message beyond the limit of the cipher");
        assert!(rest.len() <= data.len(), "a part longer than the whole");
        self.key.seal(nonce, aad, data, rest)
    }

    /// Decrypts `data` where it lies, if `tag` is the one over it and `aad`.
    ///
    /// # Errors
    /// [`Forged`] if it is not, or the data is longer than [`MAX_LEN`]; then `data` is all zeros.
    pub fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), Forged> {
        if data.len() as u64 <= MAX_LEN && self.key.open(nonce, aad, data, tag) {
            return Ok(());
        }
        data.fill(0);
        Err(Forged)
    }
}

impl std::fmt::Debug for Aes256Gcm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Aes256Gcm(..)")
    }
}
