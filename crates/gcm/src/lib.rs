//! AES-256-GCM (NIST SP 800-38D) for packets, on processors that have AES and carry-less
//! multiplication in vectors of 512 bits (x86-64 with AVX-512, VAES and VPCLMULQDQ: Ice Lake, Zen 4
//! and later).
//!
//! Common libraries are tuned for records of 16 KiB. A tunnel seals 1,400 bytes at a time, and at
//! that length half of their time is the fixed cost of a message. Here the fixed cost is a quarter,
//! and encryption and authentication run in parallel from the first byte on
//! (docs/experiments/2026-11-21-gcm.md, docs/decisions/0014-own-gcm.md).
//!
//! No table look-up and no branch depends on keys or data: branches depend only on lengths and on
//! whether a tag was right. `tests/` compares everything with aws-lc, at every length that a
//! datagram can have.
//!
//! - `vaes`: a whole message, encrypted in groups of vectors and authenticated at the same time
//! - `vaes::aes`: key schedule, one block
//! - `vaes::ghash`: sums of products in GF(2^128), and their reduction
//! - `vaes::memory`: loads and stores of vectors from and to slices

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

/// The tag does not belong to this data under this key, nonce and associated data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the data does not authenticate")]
pub struct Forged;

/// AES-256-GCM under one key. It occupies 896 bytes, which are overwritten when it is dropped.
///
/// The caller chooses the nonces: a nonce that is used twice under one key reveals the key.
pub struct Aes256Gcm {
    #[cfg(target_arch = "x86_64")]
    key: vaes::Key,
    #[cfg(not(target_arch = "x86_64"))]
    key: std::convert::Infallible,
}

impl Aes256Gcm {
    /// Prepares a key. Returns `None` on a processor that lacks the instructions.
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

    /// Encrypts `data` in place and returns the tag over it and `aad`.
    ///
    /// # Panics
    /// On more than [`MAX_LEN`] bytes.
    #[must_use = "without the tag the data cannot be opened"]
    pub fn seal(&self, nonce: &[u8; NONCE_LEN], aad: &[u8], data: &mut [u8]) -> [u8; TAG_LEN] {
        self.seal_from(nonce, aad, data, &[])
    }

    /// Like [`Self::seal`], for a message whose last bytes are read from `rest` instead of being
    /// copied beforehand: `data` has room for the whole message and holds its first part before
    /// that room. It seals a header together with a payload that stays in the buffer it was read
    /// into.
    ///
    /// # Panics
    /// If `rest` is longer than `data`, or `data` than [`MAX_LEN`] bytes.
    #[must_use = "without the tag the data cannot be opened"]
    pub fn seal_from(&self, nonce: &[u8; NONCE_LEN], aad: &[u8], data: &mut [u8], rest: &[u8]) -> [u8; TAG_LEN] {
        assert!(data.len() as u64 <= MAX_LEN, "a message beyond the limit of the cipher");
        assert!(rest.len() <= data.len(), "a part longer than the whole");
        self.key.seal(nonce, aad, data, rest)
    }

    /// Decrypts `data` in place, if `tag` is the one over it and `aad`.
    ///
    /// # Errors
    /// [`Forged`] if the tag is wrong, or the data is longer than [`MAX_LEN`]; then `data` is all
    /// zeros.
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
