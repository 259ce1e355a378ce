//! A relayed fast frame: its own header sealed for the hop, its content as it left the source.
//!
//! ```text
//!  0            16           32          36    37      38                54
//!  +------------+------------+-----------+-----+-------+-----------------+------------------+---------+
//!  | hop header | hop's tag  | label     | TTL | marks | end-to-end      | sealed content   | its tag |
//!  |            |            |           |     |       | header          |                  |         |
//!  +------------+------------+-----------+-----+-------+-----------------+------------------+---------+
//!                            |<------- sealed for the hop ------------->|
//! ```
//!
//! The hop's tag comes first, so that the bytes from [`INNER_AT`] on are the frame that a direct
//! path would take.

use super::{Header, IPV6_OVERHEAD, TAG_LEN};
use crate::WireError;

/// Offset of the hop's tag.
pub const HOP_TAG_AT: usize = Header::LEN;
/// Offset of the part that is sealed for the hop.
pub const LABEL_AT: usize = HOP_TAG_AT + TAG_LEN;
/// Offset of the end-to-end frame, with its header.
pub const INNER_AT: usize = LABEL_AT + RelayHeader::LEN;
/// Bytes that are sealed for the hop, unless the whole frame is.
pub const SEALED_HEADER: usize = RelayHeader::LEN + Header::LEN;
/// Bytes that a relayed frame adds to the frame in it.
pub const RELAYED_OVERHEAD: usize = INNER_AT;
/// Bytes that a relayed frame adds to the IPv6 packet in it.
pub const IPV6_RELAYED_OVERHEAD: usize = RELAYED_OVERHEAD + IPV6_OVERHEAD;

/// The TTL at the source, as in FIPS's session datagrams.
pub const MAX_HOPS: u8 = 64;
/// Bit of [`RelayHeader::marks`]: the frame has experienced congestion. A hint: any relay can set
/// it.
pub const FLAG_CE: u8 = 0x01;

/// The header that the next hop reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayHeader {
    /// The label of the destination, from a [`Bind`](super::Bind) of the sender of this hop.
    pub label: u32,
    /// Hops left, including this one.
    pub ttl: u8,
    /// [`FLAG_CE`]; other bits are sent as 0 and ignored.
    pub marks: u8,
}

impl RelayHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 6;

    /// Reads the header from the opened part of a relayed frame.
    ///
    /// # Errors
    /// [`WireError::TooShort`].
    pub fn parse(opened: &[u8]) -> Result<Self, WireError> {
        let [a, b, c, d, ttl, marks] = *opened.first_chunk::<{ Self::LEN }>().ok_or(WireError::TooShort {
            needed: Self::LEN,
            got: opened.len(),
        })?;
        Ok(Self {
            label: u32::from_le_bytes([a, b, c, d]),
            ttl,
            marks,
        })
    }

    /// Returns the header in wire format, before it is sealed.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; Self::LEN] {
        let [a, b, c, d] = self.label.to_le_bytes();
        [a, b, c, d, self.ttl, self.marks]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn round_trip(label: u32, ttl: u8, marks: u8) {
            let header = RelayHeader { label, ttl, marks };
            prop_assert_eq!(RelayHeader::parse(&header.to_bytes()), Ok(header));
        }
    }

    #[test]
    fn the_layout() {
        assert_eq!(
            (HOP_TAG_AT, LABEL_AT, INNER_AT, IPV6_RELAYED_OVERHEAD),
            (16, 32, 38, 40)
        );
        let header = RelayHeader {
            label: 0x0403_0201,
            ttl: 5,
            marks: 6,
        };
        assert_eq!(header.to_bytes(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(
            RelayHeader::parse(&[0; 5]),
            Err(WireError::TooShort { needed: 6, got: 5 })
        );
    }
}
