//! Tags: a node recognises a handshake message of a node that it knows by them, at the cost of a
//! hash.
//!
//! The sender of a link handshake message is known only after a Diffie-Hellman, and a flood of
//! forged messages requires more of these than a node can compute. Two nodes that know each other's
//! public keys share a secret, their static Diffie-Hellman, which each computes once. The sender
//! index of a message contains 28 bits that are a function of this secret and of the message. A
//! node handles messages with a right tag first. A tag proves little: a recorded message keeps its
//! tag.
//!
//! Computation: `docs/protocol/noise.md`, "Tags".

use std::fmt;

use sha2::{Digest as _, Sha256};
use siphasher::sip::SipHasher24;
use zeroize::Zeroizing;

use crate::keys::wipe_stack;
use crate::{Identity, PublicKey, symmetric::hmac};

/// The bits of an index that are its tag: all but the lowest four, which distinguish indices of
/// equal tags.
pub const TAG_MASK: u32 = 0xffff_fff0;

const LABEL: &[u8] = b"weft tag 1";

/// The digest of a message from which all its tags are computed: the first 16 bytes of the SHA-256
/// of what the tag covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest([u8; 16]);

impl Digest {
    /// The digest of the Noise part of a msg1.
    #[must_use]
    pub fn of_msg1(noise: &[u8]) -> Self {
        Self::new(&[b"1", noise])
    }

    /// The digest of the Noise part of a msg2 that answers the msg1 with this sender index.
    #[must_use]
    pub fn of_msg2(noise: &[u8], answers: u32) -> Self {
        Self::new(&[b"2", &answers.to_le_bytes(), noise])
    }

    /// Its first four bytes: enough to recognise one of some thousand digests.
    #[must_use]
    pub fn start(self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_le_bytes([a, b, c, d])
    }

    fn new(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part);
        }
        let hash: [u8; 32] = hash.finalize().into();
        let mut first = [0; 16];
        first.copy_from_slice(&hash[..16]);
        Self(first)
    }
}

/// The key of the tags that one node puts on its messages to one other. It decrypts nothing.
#[derive(Clone)]
pub struct TagKey(Zeroizing<[u8; 16]>);

impl TagKey {
    /// The tag of a message, in the bits of [`TAG_MASK`].
    #[must_use]
    pub fn tag(&self, digest: Digest) -> u32 {
        (SipHasher24::new_with_key(&self.0).hash(&digest.0) as u32) & TAG_MASK
    }
}

impl fmt::Debug for TagKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TagKey(..)")
    }
}

/// The keys of the tags that two nodes put on their messages to each other.
#[derive(Clone, Debug)]
pub struct TagKeys {
    /// For messages that this node sends.
    pub ours: TagKey,
    /// For messages that the peer sends.
    pub theirs: TagKey,
}

impl TagKeys {
    /// Computes the keys of `identity` and `remote`. Costs a Diffie-Hellman.
    #[must_use]
    pub fn new(identity: &Identity, remote: &PublicKey) -> Self {
        let keys = Self::computed(identity, remote);
        wipe_stack();
        keys
    }

    #[inline(never)]
    fn computed(identity: &Identity, remote: &PublicKey) -> Self {
        let shared = identity.secret().dh(&remote.point());
        let of = |sender: &PublicKey| {
            let mut key = Zeroizing::new([0; 16]);
            key.copy_from_slice(&hmac(&shared, &[LABEL, sender.as_bytes()]).as_bytes()[..16]);
            TagKey(key)
        };
        Self {
            ours: of(&identity.public()),
            theirs: of(remote),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SecretKey;

    fn identity(number: u8) -> Identity {
        let mut bytes = [0; 32];
        bytes[31] = number;
        Identity::new(SecretKey::from_bytes(&bytes).unwrap())
    }

    #[test]
    fn both_ends_compute_the_same_tag_for_each_direction() {
        let (a, b) = (identity(1), identity(2));
        let (at_a, at_b) = (TagKeys::new(&a, &b.public()), TagKeys::new(&b, &a.public()));
        let digest = Digest::of_msg1(&[7; 106]);
        assert_eq!(at_a.ours.tag(digest), at_b.theirs.tag(digest));
        assert_eq!(at_b.ours.tag(digest), at_a.theirs.tag(digest));
        assert_ne!(at_a.ours.tag(digest), at_a.theirs.tag(digest));
    }

    #[test]
    fn a_tag_covers_the_message_and_what_it_answers() {
        let key = TagKeys::new(&identity(1), &identity(2).public()).ours;
        let mut tags = vec![
            key.tag(Digest::of_msg1(&[7; 57])),
            key.tag(Digest::of_msg1(&[8; 57])),
            key.tag(Digest::of_msg2(&[7; 57], 1)),
            key.tag(Digest::of_msg2(&[7; 57], 2)),
            key.tag(Digest::of_msg2(&[8; 57], 1)),
        ];
        assert!(tags.iter().all(|tag| tag & !TAG_MASK == 0));
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), 5);
    }

    /// Computed from the text of noise.md with Python's hashlib and hmac, and a SipHash-2-4 written
    /// for it.
    #[test]
    fn the_vector_of_the_documentation() {
        let keys = TagKeys::new(&identity(1), &identity(2).public());
        assert_eq!(keys.ours.tag(Digest::of_msg1(&[0x11; 106])), MSG1_TAG);
        assert_eq!(keys.theirs.tag(Digest::of_msg2(&[0x22; 57], 0x0102_0304)), MSG2_TAG);
    }

    const MSG1_TAG: u32 = 0x12c6_4c40;
    const MSG2_TAG: u32 = 0x4ebc_8cf0;
}
