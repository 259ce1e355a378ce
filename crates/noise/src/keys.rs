//! The result of a handshake, and symmetric keys.

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::{PublicKey, symmetric::hmac};

/// A symmetric key of 32 bytes, overwritten when dropped. It is on the heap, so that moving it
/// leaves no copy behind.
#[derive(Clone)]
pub struct Key(Box<[u8; 32]>);

impl Key {
    /// Takes over `bytes`. Wiping the caller's own copy is the caller's task.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self::written(|key| *key = bytes)
    }

    /// Returns the key that `write` writes into its final place.
    pub(crate) fn written(write: impl FnOnce(&mut [u8; 32])) -> Self {
        let mut key = Self(Box::new([0; 32]));
        write(&mut key.0);
        key
    }

    /// The key's bytes: for a cipher, never for a log.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for Key {}

/// Overwrites what computations with keys have left on the stack below the caller: shared secrets,
/// key schedules, hash states. The caller must be the function that called the computation, so that
/// the stack frames coincide.
#[inline(never)]
pub fn wipe_stack() {
    // With a sanitiser this would cost more than the computation before it, and no fuzz target
    // looks at the stack.
    if cfg!(fuzzing) {
        return;
    }
    let mut room = [0_u8; 16 << 10];
    room.zeroize();
    std::hint::black_box(&room);
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// A completed handshake, IK or XK, as one side sees it.
///
/// It holds the chaining key for [`exporter`](Self::exporter) and wipes it when dropped. A caller
/// exports what it needs, moves the keys out, and drops the rest.
pub struct Established {
    /// Key for frames that this side sends. Counters start at 0.
    pub send: Key,
    /// Key for frames that this side receives.
    pub recv: Key,
    /// The peer's identity: from the configuration for an initiator, proven for a responder.
    pub remote: PublicKey,
    /// The random number of the peer's start, by which a restart differs from a rekey.
    pub remote_epoch: [u8; 8],
    /// The transcript hash. The two sides' hashes can differ although their keys are equal, see the
    /// [crate's notes](crate#fips-is-not-standard-noise).
    pub handshake_hash: [u8; 32],
    pub(crate) chaining_key: Key,
}

impl Established {
    /// Derives a secret that is bound to the whole transcript: HMAC-SHA256(ck, `label` || h).
    ///
    /// Both sides get the same 32 bytes for the same label, unless an attacker altered the transcript in a way that
    /// FIPS's own keys do not notice. Fast frames use the label `weft fast 1`.
    #[must_use]
    pub fn exporter(&self, label: &[u8]) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(*self.exporter_key(label).as_bytes())
    }

    /// Like [`Self::exporter`], in a form that can be moved without a copy.
    pub(crate) fn exporter_key(&self, label: &[u8]) -> Key {
        hmac(&self.chaining_key, &[label, &self.handshake_hash])
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

    /// `==` on bytes ends at the first that differs, so its duration reveals how much of a guess is
    /// right. Types that hold secrets do not implement it; the libraries and weft-gcm compare tags
    /// in constant time.
    #[test]
    fn secrets_have_no_comparison() {
        struct Probe<T>(std::marker::PhantomData<T>);
        trait Fallback {
            fn is_comparable(&self) -> bool {
                false
            }
        }
        impl<T> Fallback for Probe<T> {}
        #[expect(clippy::unused_self, reason = "the trait's method has the same shape")]
        impl<T: PartialEq> Probe<T> {
            fn is_comparable(&self) -> bool {
                true
            }
        }
        assert!(
            Probe::<[u8; 32]>(std::marker::PhantomData).is_comparable(),
            "the probe works"
        );
        assert!(!Probe::<Key>(std::marker::PhantomData).is_comparable());
        assert!(!Probe::<crate::SecretKey>(std::marker::PhantomData).is_comparable());
        assert!(!Probe::<crate::Identity>(std::marker::PhantomData).is_comparable());
        assert!(!Probe::<Established>(std::marker::PhantomData).is_comparable());
    }
}
