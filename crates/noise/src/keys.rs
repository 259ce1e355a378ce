//! What a handshake leaves behind.

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::{PublicKey, symmetric::hmac};

/// A symmetric key of 32 bytes, overwritten when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Key([u8; 32]);

impl Key {
    /// Takes over `bytes`. The caller's own copy stays the caller's to wipe.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key itself: for a cipher, never for a log.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// A completed handshake, IK or XK, as one side sees it.
///
/// It holds the chaining key for [`exporter`](Self::exporter) and wipes it when dropped: export what is needed, move
/// the keys out, and let the rest go.
pub struct Established {
    /// Key for what this side sends. Counters start at 0.
    pub send: Key,
    /// Key for what this side receives.
    pub recv: Key,
    /// The peer's identity: as configured for an initiator, as proven for a responder.
    pub remote: PublicKey,
    /// The random number that the peer drew at its start; a new one tells a restart from a rekey.
    pub remote_epoch: [u8; 8],
    /// The transcript hash. The two sides' hashes can differ although their keys are equal, see the
    /// [crate's notes](crate#fips-is-not-standard-noise).
    pub handshake_hash: [u8; 32],
    pub(crate) chaining_key: Key,
}

impl Established {
    /// Derives a secret that is bound to the whole transcript: HMAC-SHA256(ck, `label` || h).
    ///
    /// Both sides get the same 32 bytes for the same label, unless somebody altered the transcript in a way that
    /// FIPS's own keys do not notice. Fast frames use the label `weft fast 1`.
    #[must_use]
    pub fn exporter(&self, label: &[u8]) -> Zeroizing<[u8; 32]> {
        let secret = hmac(&self.chaining_key, &[label, &self.handshake_hash]);
        Zeroizing::new(*secret.as_bytes())
    }
}

impl fmt::Debug for Established {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Established")
            .field("remote", &self.remote)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_key() {
        let text = format!("{:?}", Key::from_bytes([0xAB; 32]));
        assert_eq!(text, "Key(..)");
    }

    #[test]
    fn keys_are_wiped_on_drop() {
        fn wiped<T: ZeroizeOnDrop>() {}
        wiped::<Key>();
    }
}
