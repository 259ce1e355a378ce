//! Bloom-filter gossip: which nodes are reachable through a neighbour.
//!
//! Source: FIPS wire-formats, "FilterAnnounce", and `proto/bloom/wire.rs`. The hash functions are
//! not part of this module.

use crate::WireError;
use crate::cursor::{Reader, Writer};

/// Bytes of a filter of the one size class in use.
pub const FILTER_LEN: usize = 1024;

/// A neighbour's filter (FIPS wire-formats, "FilterAnnounce").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FilterAnnounce<'a> {
    /// Grows with each announcement.
    pub sequence: u64,
    /// Hash functions of the filter, never zero; FIPS daemons send 5.
    pub hash_count: u8,
    /// The bits, in the order of the wire.
    pub bits: &'a [u8; FILTER_LEN],
}

impl<'a> FilterAnnounce<'a> {
    /// The size class in use: filters of `512 << 1` bytes.
    pub const SIZE_CLASS: u8 = 1;
    /// Bytes of the body.
    pub const LEN: usize = HEADER_LEN + FILTER_LEN;

    /// Reads a body. Bytes behind the filter are refused, as the FIPS daemon does.
    ///
    /// # Errors
    /// [`WireError::TooShort`] for less than the fields before the filter,
    /// [`WireError::UnsupportedSizeClass`] for any class but [`FilterAnnounce::SIZE_CLASS`],
    /// [`WireError::WrongLength`], [`WireError::ZeroHashCount`].
    pub fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(body);
        let (sequence, hash_count, size_class) = (r.u64()?, r.u8()?, r.u8()?);
        if size_class != Self::SIZE_CLASS {
            return Err(WireError::UnsupportedSizeClass(size_class));
        }
        let bits = r.rest().try_into();
        let bits = bits.map_err(|_| WireError::WrongLength {
            expected: Self::LEN,
            got: body.len(),
        })?;
        if hash_count == 0 {
            return Err(WireError::ZeroHashCount);
        }
        Ok(Self {
            sequence,
            hash_count,
            bits,
        })
    }

    /// Writes the body and returns [`FilterAnnounce::LEN`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`], [`WireError::ZeroHashCount`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        if self.hash_count == 0 {
            return Err(WireError::ZeroHashCount);
        }
        let mut w = Writer::new(out);
        w.u64(self.sequence)
            .u8(self.hash_count)
            .u8(Self::SIZE_CLASS)
            .bytes(self.bits)
            .finish()
    }
}

const HEADER_LEN: usize = 8 + 1 + 1;
