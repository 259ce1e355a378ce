//! Keys of fast frames, which both ends derive after they have exchanged their capabilities.
//!
//! Specified in docs/protocol/fast.md, "Keys". An FSP session's exporter and both `Capabilities`
//! give a secret for each direction of each lane; a secret gives the key and IV of one phase, and
//! the secret of the next. The secret of a phase does not reveal earlier ones, so earlier phases
//! stay confidential once their secret is wiped.

use std::fmt;

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Algorithm, CHACHA20_POLY1305, NONCE_LEN};
use hkdf::Hkdf;
use sha2::{Digest, Sha256};
use zeroize::{ZeroizeOnDrop, Zeroizing};

use crate::aead::{Aead, OpenError, TAG_LEN};
use crate::keys::wipe_stack;
use crate::symmetric::hmac;
use crate::{Established, Key, Role};

/// The exporter label of fast frames; see [`Established::exporter`].
pub const EXPORTER_LABEL: &[u8] = b"weft fast 1";
/// The exporter label of the keys of a hop.
pub const HOP_EXPORTER_LABEL: &[u8] = b"weft hop 1";

/// An authenticated cipher of fast frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Suite {
    /// AES-256-GCM (NIST SP 800-38D): the fastest on a CPU with instructions for it.
    Aes256Gcm = 1,
    /// AES-128-GCM.
    Aes128Gcm = 2,
    /// ChaCha20-Poly1305 (RFC 8439): the fastest on a CPU without.
    ChaCha20Poly1305 = 3,
}

impl Suite {
    /// All suites.
    pub const ALL: [Self; 3] = [Self::Aes256Gcm, Self::Aes128Gcm, Self::ChaCha20Poly1305];

    /// The suite of a number on the wire, or `None` for an unknown one.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| suite.number() == number)
    }

    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The suite's name for display.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes256Gcm => "AES-256-GCM",
            Self::Aes128Gcm => "AES-128-GCM",
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        }
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Self::Aes256Gcm => &AES_256_GCM,
            Self::Aes128Gcm => &AES_128_GCM,
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }

    /// Returns the suite that both sides choose from both offers: the lowest sum of costs, and of
    /// equal sums the lowest number. An offer is a suite's number and its cost. Unknown numbers are
    /// skipped, and of a repeated number the first counts.
    #[must_use]
    pub fn choose(ours: &[(u8, u32)], theirs: &[(u8, u32)]) -> Option<Self> {
        let cost = |offers: &[(u8, u32)], suite: Self| {
            let offer = offers.iter().find(|(number, _)| *number == suite.number());
            offer.map(|(_, cost)| u64::from(*cost))
        };
        let both = Self::ALL
            .into_iter()
            .filter_map(|suite| Some((cost(ours, suite)? + cost(theirs, suite)?, suite)));
        both.min().map(|(_, suite)| suite)
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The secret of one direction on one lane, of one phase and those after it; overwritten when
/// dropped.
#[derive(Clone)]
pub struct Secret(Key);

impl ZeroizeOnDrop for Secret {}

/// Both directions of a lane in their first phase.
#[derive(Clone)]
pub struct LaneSecrets {
    /// For frames that this side sends.
    pub send: Secret,
    /// For frames that this side receives.
    pub recv: Secret,
}

/// The secret from the handshake of a session epoch from which the keys of fast frames are derived;
/// wiped when dropped.
pub struct Seed {
    exporter: Key,
    role: Role,
}

impl Seed {
    /// The seed of a completed handshake in which this node had `role`.
    #[must_use]
    pub fn new(established: &Established, role: Role) -> Self {
        Self {
            exporter: established.exporter_key(EXPORTER_LABEL),
            role,
        }
    }

    /// The seed for the hop over a link, from the handshake of one of its epochs, in which this
    /// node had `role`.
    #[must_use]
    pub fn hop(established: &Established, role: Role) -> Self {
        Self {
            exporter: established.exporter_key(HOP_EXPORTER_LABEL),
            role,
        }
    }

    /// Derives the secrets of `lane` from the bodies of both sides' `Capabilities`. The peer
    /// derives the same two, in swapped roles, if it has the same bodies and the same transcript of
    /// the handshake.
    #[must_use]
    pub fn secrets(&self, ours: &[u8], theirs: &[u8], suite: Suite, lane: u8) -> LaneSecrets {
        let secrets = self.computed_secrets(ours, theirs, suite, lane);
        wipe_stack();
        secrets
    }

    #[inline(never)]
    fn computed_secrets(&self, ours: &[u8], theirs: &[u8], suite: Suite, lane: u8) -> LaneSecrets {
        let (of_initiator, of_responder) = match self.role {
            Role::Initiator => (ours, theirs),
            Role::Responder => (theirs, ours),
        };
        let salt = Sha256::new().chain_update(of_initiator).chain_update(of_responder);
        let prk = hmac(&Key::from_bytes(salt.finalize().into()), &[self.exporter.as_bytes()]);
        let prk = Secret(prk);
        let direction = |number: u8| {
            let info: [&[u8]; 2] = [b"weft fast 1 lane", &[suite.number(), number, lane]];
            Secret(Key::written(|secret| prk.expand(&info, secret)))
        };
        let (from_initiator, from_responder) = (direction(0), direction(1));
        match self.role {
            Role::Initiator => LaneSecrets {
                send: from_initiator,
                recv: from_responder,
            },
            Role::Responder => LaneSecrets {
                send: from_responder,
                recv: from_initiator,
            },
        }
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

impl Secret {
    /// A secret that is not from a handshake: for measurements of ciphers, and for tests.
    #[must_use]
    pub fn from_key(key: &Key) -> Self {
        Self(key.clone())
    }

    /// Its bytes, for a search of the memory.
    #[cfg(test)]
    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// The cipher of this phase.
    #[must_use]
    pub fn cipher(&self, suite: Suite) -> FastCipher {
        let cipher = self.computed_cipher(suite);
        wipe_stack();
        cipher
    }

    #[inline(never)]
    fn computed_cipher(&self, suite: Suite) -> FastCipher {
        let algorithm = suite.algorithm();
        let mut key = Zeroizing::new([0; 32]);
        let key = &mut key[..algorithm.key_len()];
        self.expand(&[b"weft fast 1 key"], key);
        let mut iv = [0; NONCE_LEN];
        self.expand(&[b"weft fast 1 iv"], &mut iv);
        FastCipher {
            aead: Aead::new(algorithm, key),
            iv,
        }
    }

    /// The secret of the next phase. The derivation is one-way.
    #[must_use]
    pub fn next(&self) -> Self {
        let next = Self(self.computed_next());
        wipe_stack();
        next
    }

    #[inline(never)]
    fn computed_next(&self) -> Key {
        Key::written(|next| self.expand(&[b"weft fast 1 next"], next))
    }

    #[expect(
        clippy::expect_used,
        reason = "fails only for more than 255 hashes, and a secret is one"
    )]
    fn expand(&self, info: &[&[u8]], out: &mut [u8]) {
        let prk = Hkdf::<Sha256>::from_prk(self.0.as_bytes()).expect("a hash is long enough");
        prk.expand_multi_info(info, out).expect("a few dozen bytes");
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl fmt::Debug for LaneSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LaneSecrets(..)")
    }
}

/// A cipher under one key and IV, with the key schedule done once. The nonce of a frame is the IV
/// with its last eight bytes XORed with the counter in network byte order (as in RFC 8446, section
/// 5.3).
///
/// This type does not count: the caller never seals twice with one counter under one key.
pub struct FastCipher {
    aead: Aead,
    iv: [u8; NONCE_LEN],
}

impl FastCipher {
    /// Encrypts `buf` in place and returns the tag over it and `aad`.
    ///
    /// # Panics
    /// On a buffer beyond the limit of the cipher, 64 GiB.
    #[must_use = "without the tag the other side cannot open the data"]
    pub fn seal_in_place(&self, counter: u64, aad: &[u8], buf: &mut [u8]) -> [u8; TAG_LEN] {
        self.seal_from(counter, aad, buf, &[])
    }

    /// Like [`FastCipher::seal_in_place`], for a message whose last bytes are in `rest`: `buf` has
    /// room for the whole message and holds its first part before that room. With [`weft_gcm`] the
    /// bytes of `rest` are not copied beforehand.
    ///
    /// # Panics
    /// If `rest` is longer than `buf`, or for the reason of [`FastCipher::seal_in_place`].
    #[must_use = "without the tag the other side cannot open the data"]
    pub fn seal_from(&self, counter: u64, aad: &[u8], buf: &mut [u8], rest: &[u8]) -> [u8; TAG_LEN] {
        self.aead.seal(self.nonce(counter), aad, buf, rest)
    }

    /// Verifies and decrypts `ciphertext_and_tag` in place and returns its plaintext part.
    ///
    /// # Errors
    /// [`OpenError`] if the tag does not match or the input is shorter than a tag. The buffer's
    /// contents are then unspecified.
    pub fn open_in_place<'a>(
        &self,
        counter: u64,
        aad: &[u8],
        ciphertext_and_tag: &'a mut [u8],
    ) -> Result<&'a mut [u8], OpenError> {
        self.aead.open(self.nonce(counter), aad, ciphertext_and_tag)
    }

    fn nonce(&self, counter: u64) -> [u8; NONCE_LEN] {
        let mut nonce = self.iv;
        for (byte, counter) in nonce[NONCE_LEN - 8..].iter_mut().zip(counter.to_be_bytes()) {
            *byte ^= counter;
        }
        nonce
    }
}

impl fmt::Debug for FastCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FastCipher(..)")
    }
}

/// The first bytes of the SHA-256 of a `Capabilities` body, with which the peer acknowledges it.
#[must_use]
pub fn digest<const N: usize>(body: &[u8]) -> [u8; N] {
    let hash = Sha256::digest(body);
    core::array::from_fn(|at| hash.get(at).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seed(role: Role) -> Seed {
        Seed {
            exporter: Key::from_bytes([7; 32]),
            role,
        }
    }

    /// From an implementation of docs/protocol/fast.md in Python (hmac, hashlib; AESGCM of its
    /// cryptography package).
    #[test]
    fn known_answers() {
        let [ours, theirs] = [&b"initiator"[..], b"responder"];
        let secrets = seed(Role::Initiator).secrets(ours, theirs, Suite::Aes256Gcm, 0);
        assert_eq!(hex::encode(secrets.send.0.as_bytes()), VECTORS[0]);
        assert_eq!(hex::encode(secrets.recv.0.as_bytes()), VECTORS[1]);
        assert_eq!(hex::encode(secrets.send.next().0.as_bytes()), VECTORS[2]);
        for (suite, sealed) in Suite::ALL.into_iter().zip(&VECTORS[3..]) {
            let mut buf = *b"content";
            let tag = secrets
                .send
                .cipher(suite)
                .seal_in_place(0x0102_0304, b"header", &mut buf);
            assert_eq!(hex::encode([&buf[..], &tag].concat()), *sealed, "{suite}");
        }
    }

    #[test]
    fn both_sides_share_what_they_have_in_common() {
        let [a, b] = [&b"a"[..], b"b"];
        let pair = |ours, theirs, suite, lane| {
            let secrets = seed(Role::Initiator).secrets(ours, theirs, suite, lane);
            (*secrets.send.0.as_bytes(), *secrets.recv.0.as_bytes())
        };
        let first = pair(a, b, Suite::Aes256Gcm, 0);
        let other = seed(Role::Responder).secrets(b, a, Suite::Aes256Gcm, 0);
        assert_eq!(first, (*other.recv.0.as_bytes(), *other.send.0.as_bytes()));
        for different in [
            pair(b, a, Suite::Aes256Gcm, 0),
            pair(a, b"B", Suite::Aes256Gcm, 0),
            pair(a, b, Suite::Aes128Gcm, 0),
            pair(a, b, Suite::Aes256Gcm, 1),
        ] {
            assert!(first.0 != different.0 && first.1 != different.1);
        }
        assert_ne!(first.0, first.1);
    }

    #[test]
    fn the_cheapest_common_suite_wins() {
        let (aes, small, chacha) = (1, 2, 3);
        let choose = |ours: &[(u8, u32)], theirs: &[(u8, u32)]| {
            let chosen = Suite::choose(ours, theirs);
            assert_eq!(chosen, Suite::choose(theirs, ours));
            chosen
        };
        let fast = [(aes, 300), (chacha, 1_100)];
        assert_eq!(choose(&fast, &fast), Some(Suite::Aes256Gcm));
        assert_eq!(
            choose(&fast, &[(aes, 9_000), (chacha, 4_000)]),
            Some(Suite::ChaCha20Poly1305)
        );
        assert_eq!(
            choose(&fast, &[(200, 1), (chacha, u32::MAX)]),
            Some(Suite::ChaCha20Poly1305)
        );
        assert_eq!(choose(&fast, &[(small, 1)]), None);
        // Number 0, which older nodes announce for what they do not offer, is not a suite, even if
        // both sides announce it.
        assert_eq!(choose(&[(0, 1), (aes, 9)], &[(0, 1), (aes, 9)]), Some(Suite::Aes256Gcm));
        assert_eq!(choose(&[(0, 1), (aes, 9)], &[(0, 1), (chacha, 9)]), None);
        assert_eq!(
            choose(&[(small, 5), (aes, 5)], &[(aes, 5), (small, 5)]),
            Some(Suite::Aes256Gcm)
        );
    }

    proptest! {
        #[test]
        fn opens_what_it_sealed_and_nothing_else(
            key: [u8; 32], suite in 0usize..3, counter: u64, aad in prop::collection::vec(any::<u8>(), 0..20),
            plain in prop::collection::vec(any::<u8>(), 0..100), flip: prop::sample::Index,
        ) {
            let cipher = Secret(Key::from_bytes(key)).cipher(Suite::ALL[suite]);
            let mut sealed = plain.clone();
            let tag = cipher.seal_in_place(counter, &aad, &mut sealed);
            let (front, rest) = plain.split_at(flip.index(plain.len() + 1));
            let mut apart = [front, &vec![0; rest.len()]].concat();
            prop_assert_eq!(cipher.seal_from(counter, &aad, &mut apart, rest), tag);
            prop_assert_eq!(&apart, &sealed);
            sealed.extend_from_slice(&tag);
            let mut copy = sealed.clone();
            prop_assert_eq!(cipher.open_in_place(counter, &aad, &mut copy).unwrap(), &plain[..]);
            prop_assert!(cipher.open_in_place(counter ^ 1, &aad, &mut sealed.clone()).is_err());
            let bit = flip.index(sealed.len() * 8);
            sealed[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(cipher.open_in_place(counter, &aad, &mut sealed).is_err());
        }
    }

    const VECTORS: [&str; 6] = [
        "9c8bc71e79e7f4222c1d8672dc4d1c706327bf578a8137a813f32a2994313a97",
        "33f50adf485eaaf1f57b919100c9d6d434eda400857105a805822ad6264ddb45",
        "5f275406a363982492fe98cfcd45afb74e73430f47d131e9203f300cb101800a",
        "333d2162ea83923b46d3998bc01aec3d771a2bf601aa4d",
        "ceffc5af9c00ed01ea7972c5e95ed4f02fa5669667a118",
        "cc550e7fb851600baf9afca47053f999b476095aa19dc4",
    ];
}
