//! Spanning-tree announcements: a node's parent, and its path to the root.
//!
//! Source: FIPS wire-formats, "TreeAnnounce", `proto/stp/wire.rs` and `proto/stp/declaration.rs`.
//! This module does not verify an announcement (signature, order of the ancestry, root the smallest
//! address).

use core::fmt;

use crate::cursor::{Reader, Writer, len_u16, put};
use crate::{NodeAddr, WireError};

/// Bytes of a BIP-340 Schnorr signature.
pub const SIGNATURE_LEN: usize = 64;

/// One node on the path to the root (FIPS wire-formats, "AncestryEntry").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AncestryEntry {
    /// The node.
    pub addr: NodeAddr,
    /// The sequence of its declaration.
    pub sequence: u64,
    /// The time of its declaration, in Unix seconds.
    pub timestamp: u64,
}

impl AncestryEntry {
    /// Bytes on the wire.
    pub const LEN: usize = 32;

    /// Reads an entry at the start of `bytes`; bytes behind it are ignored.
    ///
    /// # Errors
    /// [`WireError::TooShort`].
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(bytes);
        Ok(Self {
            addr: r.addr()?,
            sequence: r.u64()?,
            timestamp: r.u64()?,
        })
    }

    /// Returns the entry in wire format.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..16].copy_from_slice(self.addr.as_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..].copy_from_slice(&self.timestamp.to_le_bytes());
        bytes
    }

    /// Writes the entry and returns [`AncestryEntry::LEN`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        put(out, &self.to_bytes())
    }
}

/// The path from the announcing node to the root, borrowed from a received message or from a slice
/// of entries; two are equal if their entries are.
#[derive(Clone, Copy)]
pub struct Ancestry<'a>(Repr<'a>);

#[derive(Clone, Copy)]
enum Repr<'a> {
    Wire(&'a [[u8; AncestryEntry::LEN]]),
    Entries(&'a [AncestryEntry]),
}

impl<'a> Ancestry<'a> {
    /// A path in order from the announcing node itself to the root.
    #[must_use]
    pub const fn new(path: &'a [AncestryEntry]) -> Self {
        Self(Repr::Entries(path))
    }

    /// Number of entries: the node's depth plus one.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Repr::Wire(entries) => entries.len(),
            Repr::Entries(entries) => entries.len(),
        }
    }

    /// Whether there are no entries, which is true of no message.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry at a distance from the node: 0 is the node itself.
    #[must_use]
    pub fn at(&self, index: usize) -> Option<AncestryEntry> {
        match self.0 {
            Repr::Wire(entries) => AncestryEntry::parse(entries.get(index)?).ok(),
            Repr::Entries(entries) => entries.get(index).copied(),
        }
    }

    /// The entry of the root.
    #[must_use]
    pub fn root(&self) -> Option<AncestryEntry> {
        self.at(self.len().checked_sub(1)?)
    }

    /// The entries from the node to the root.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = AncestryEntry> + use<'a> {
        let ancestry = *self;
        (0..ancestry.len()).filter_map(move |i| ancestry.at(i))
    }
}

impl PartialEq for Ancestry<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Ancestry<'_> {}

impl fmt::Debug for Ancestry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A node's signed choice of a parent, and its path to the root (FIPS wire-formats,
/// "TreeAnnounce").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeAnnounce<'a> {
    /// Grows with each change of parent.
    pub sequence: u64,
    /// Time of the declaration, in Unix seconds.
    pub timestamp: u64,
    /// The chosen parent; the node itself if it is a root.
    pub parent: NodeAddr,
    /// The path to the root, never empty; its first entry is the announcing node.
    pub ancestry: Ancestry<'a>,
    /// Signature of the announcing node over [`TreeAnnounce::signed_bytes`].
    pub signature: &'a [u8; SIGNATURE_LEN],
}

impl<'a> TreeAnnounce<'a> {
    /// The version byte in use.
    pub const VERSION: u8 = 1;
    /// Bytes of the body without ancestry.
    pub const MIN_LEN: usize = 1 + 8 + 8 + NodeAddr::LEN + 2 + SIGNATURE_LEN;

    /// Reads a body; bytes behind the signature are ignored, as the FIPS daemon does.
    ///
    /// # Errors
    /// [`WireError::TooShort`], [`WireError::UnsupportedVersion`], [`WireError::EmptyAncestry`].
    pub fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        if body.len() < Self::MIN_LEN {
            return Err(WireError::TooShort {
                needed: Self::MIN_LEN,
                got: body.len(),
            });
        }
        let mut r = Reader::new(body);
        let version = r.u8()?;
        if version != Self::VERSION {
            return Err(WireError::UnsupportedVersion(version));
        }
        let (sequence, timestamp, parent) = (r.u64()?, r.u64()?, r.addr()?);
        let count = usize::from(r.u16()?);
        let (entries, _) = r.take(count * AncestryEntry::LEN)?.as_chunks();
        let ancestry = Ancestry(Repr::Wire(entries));
        if ancestry.is_empty() {
            return Err(WireError::EmptyAncestry);
        }
        Ok(Self {
            sequence,
            timestamp,
            parent,
            ancestry,
            signature: r.array_ref()?,
        })
    }

    /// Bytes of the body.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        Self::MIN_LEN + AncestryEntry::LEN * self.ancestry.len()
    }

    /// Writes the body and returns [`TreeAnnounce::wire_len`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`], [`WireError::EmptyAncestry`], [`WireError::TooLong`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        if self.ancestry.is_empty() {
            return Err(WireError::EmptyAncestry);
        }
        let mut w = Writer::new(out);
        w.u8(Self::VERSION)
            .u64(self.sequence)
            .u64(self.timestamp)
            .addr(&self.parent);
        w.u16(len_u16(self.ancestry.len())?);
        for entry in self.ancestry.iter() {
            w.bytes(&entry.to_bytes());
        }
        w.bytes(self.signature).finish()
    }

    /// The announcing node: the first entry of the ancestry.
    ///
    /// # Errors
    /// [`WireError::EmptyAncestry`], which a parsed announcement never has.
    pub fn node(&self) -> Result<NodeAddr, WireError> {
        Ok(self.ancestry.at(0).ok_or(WireError::EmptyAncestry)?.addr)
    }

    /// The signed bytes: node, parent, sequence, timestamp.
    ///
    /// FIPS's text says that the whole message is signed. The FIPS daemon signs these 48 bytes, so
    /// the entries of a node's ancestors are unproven claims of the announcing node.
    ///
    /// # Errors
    /// Like [`TreeAnnounce::node`].
    pub fn signed_bytes(&self) -> Result<[u8; 48], WireError> {
        Ok(declaration_bytes(
            self.node()?,
            self.parent,
            self.sequence,
            self.timestamp,
        ))
    }
}

/// The bytes that a node signs to declare its parent; see [`TreeAnnounce::signed_bytes`].
#[must_use]
pub fn declaration_bytes(node: NodeAddr, parent: NodeAddr, sequence: u64, timestamp: u64) -> [u8; 48] {
    let mut bytes = [0; 48];
    bytes[..16].copy_from_slice(node.as_bytes());
    bytes[16..32].copy_from_slice(parent.as_bytes());
    bytes[32..40].copy_from_slice(&sequence.to_le_bytes());
    bytes[40..].copy_from_slice(&timestamp.to_le_bytes());
    bytes
}
