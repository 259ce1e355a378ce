//! Tree coordinates: a node's path to the root, as addresses only.

use core::fmt;

use crate::cursor::{Reader, Writer, len_u16};
use crate::{NodeAddr, WireError};

/// A node's position in the tree: its address, its parent's, and so on to the root.
///
/// On the wire a 2-byte little-endian count and 16 bytes for each address (FIPS wire-formats,
/// "Encoding Rules"). Borrowed from a received message or from a slice of addresses; two are equal
/// if their addresses are.
#[derive(Clone, Copy)]
pub struct Coords<'a>(Repr<'a>);

#[derive(Clone, Copy)]
enum Repr<'a> {
    Wire(&'a [[u8; NodeAddr::LEN]]),
    Addrs(&'a [NodeAddr]),
}

impl<'a> Coords<'a> {
    /// Coordinates without an entry: on the wire a count of zero, "not known".
    pub const EMPTY: Self = Self(Repr::Addrs(&[]));

    /// Coordinates from addresses in order from the node itself to the root.
    #[must_use]
    pub const fn new(path: &'a [NodeAddr]) -> Self {
        Self(Repr::Addrs(path))
    }

    /// Number of addresses: the node's depth plus one, or zero if empty.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Repr::Wire(addrs) => addrs.len(),
            Repr::Addrs(addrs) => addrs.len(),
        }
    }

    /// Whether the list of addresses is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address at a distance from the node: 0 is the node itself.
    #[must_use]
    pub fn at(&self, index: usize) -> Option<NodeAddr> {
        match self.0 {
            Repr::Wire(addrs) => addrs.get(index).copied().map(NodeAddr::new),
            Repr::Addrs(addrs) => addrs.get(index).copied(),
        }
    }

    /// The address of the tree's root, or `None` if empty.
    #[must_use]
    pub fn root(&self) -> Option<NodeAddr> {
        self.at(self.len().checked_sub(1)?)
    }

    /// The addresses from the node to the root.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = NodeAddr> + use<'a> {
        let coords = *self;
        (0..coords.len()).filter_map(move |i| coords.at(i))
    }

    /// Bytes on the wire: `2 + 16 * len`.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        2 + NodeAddr::LEN * self.len()
    }

    /// Reads coordinates, possibly empty ones, at the start of `bytes`, and returns the rest.
    ///
    /// # Errors
    /// [`WireError::TooShort`].
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        let mut r = Reader::new(bytes);
        let coords = Self::read(&mut r)?;
        Ok((coords, r.rest()))
    }

    /// Writes count and addresses and returns [`Coords::wire_len`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`], [`WireError::TooLong`] above 65,535 entries.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        let mut w = Writer::new(out);
        self.write(&mut w)?;
        w.finish()
    }

    pub(crate) fn read(r: &mut Reader<'a>) -> Result<Self, WireError> {
        let count = usize::from(r.u16()?);
        let (addrs, _) = r.take(count * NodeAddr::LEN)?.as_chunks();
        Ok(Self(Repr::Wire(addrs)))
    }

    pub(crate) fn read_some(r: &mut Reader<'a>) -> Result<Self, WireError> {
        Self::read(r)?.some()
    }

    pub(crate) fn some(self) -> Result<Self, WireError> {
        if self.is_empty() {
            Err(WireError::EmptyCoords)
        } else {
            Ok(self)
        }
    }

    pub(crate) fn write(&self, w: &mut Writer<'_>) -> Result<(), WireError> {
        w.u16(len_u16(self.len())?);
        match self.0 {
            Repr::Wire(addrs) => _ = w.bytes(addrs.as_flattened()),
            Repr::Addrs(addrs) => addrs.iter().for_each(|addr| _ = w.addr(addr)),
        }
        Ok(())
    }
}

impl<'a> From<&'a [NodeAddr]> for Coords<'a> {
    fn from(path: &'a [NodeAddr]) -> Self {
        Self::new(path)
    }
}

impl PartialEq for Coords<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Coords<'_> {}

impl fmt::Debug for Coords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The coordinates of both ends, in the clear in the message that carries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoordsPair<'a> {
    /// The sender's.
    pub src: Coords<'a>,
    /// The receiver's, as far as the sender knows.
    pub dest: Coords<'a>,
}

impl<'a> CoordsPair<'a> {
    /// Makes the pair of both coordinates, each with its own node first.
    #[must_use]
    pub const fn of(src: &'a [NodeAddr], dest: &'a [NodeAddr]) -> Self {
        Self {
            src: Coords::new(src),
            dest: Coords::new(dest),
        }
    }

    /// Bytes on the wire.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        self.src.wire_len() + self.dest.wire_len()
    }

    /// Reads both at the start of `bytes`, either of them possibly empty, and returns the rest.
    ///
    /// # Errors
    /// [`WireError::TooShort`].
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        let mut r = Reader::new(bytes);
        let pair = Self {
            src: Coords::read(&mut r)?,
            dest: Coords::read(&mut r)?,
        };
        Ok((pair, r.rest()))
    }

    /// Writes both and returns [`CoordsPair::wire_len`].
    ///
    /// # Errors
    /// Like [`Coords::emit`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        let mut w = Writer::new(out);
        self.write(&mut w)?;
        w.finish()
    }

    pub(crate) fn write(&self, w: &mut Writer<'_>) -> Result<(), WireError> {
        self.src.write(w)?;
        self.dest.write(w)
    }
}
