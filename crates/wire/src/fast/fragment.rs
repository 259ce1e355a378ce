//! The position of a piece in a packet that does not fit in one frame.

use crate::WireError;
use crate::cursor::Reader;

use super::{Header, Kind, TAG_LEN, TIMESTAMP_LEN};

/// The 9 bytes before a piece, behind the clock of a frame of [`Kind::Fragment`].
///
/// The pieces together are the content that the frame would have had otherwise, behind its clock.
/// Each piece is sealed by itself, under the same keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The number of the packet, counted under these keys.
    pub packet: u32,
    /// The kind of the frame that was cut: [`Kind::Ipv6`] or [`Kind::Full`].
    pub kind: Kind,
    /// Offset of the piece in the content that was cut, bytes.
    pub offset: u16,
    /// Length of the content that was cut, bytes: at most [`Fragment::MAX_TOTAL`].
    pub total: u16,
}

impl Fragment {
    /// Bytes on the wire.
    pub const LEN: usize = 9;
    /// Bytes that a frame of a piece adds to the piece.
    pub const OVERHEAD: usize = Header::LEN + TIMESTAMP_LEN + Self::LEN + TAG_LEN;
    /// The longest content that may be cut.
    pub const MAX_TOTAL: usize = 9_216;
    /// Maximum number of pieces of one packet, at both ends: enough for the longest content in the
    /// smallest direct frames. A sender cuts a packet into no more, and a receiver drops a packet
    /// that arrives in more.
    pub const MAX_PIECES: usize = 8;

    /// Splits content behind the clock into this header and the piece.
    ///
    /// # Errors
    /// [`WireError::TooShort`] also for an empty piece, [`WireError::WrongMessageType`] for a kind that is not cut,
    /// [`WireError::TooLong`] for a total above the bound, [`WireError::LengthMismatch`] for a piece that reaches past the
    /// total.
    pub fn parse(content: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let mut r = Reader::new(content);
        let packet = r.u32()?;
        let number = r.u8()?;
        let kind = Kind::from_nibble(number).filter(|kind| matches!(kind, Kind::Ipv6 | Kind::Full));
        let fragment = Self {
            packet,
            kind: kind.ok_or(WireError::WrongMessageType(number))?,
            offset: r.u16()?,
            total: r.u16()?,
        };
        let piece = r.rest();
        if piece.is_empty() {
            return Err(WireError::TooShort {
                needed: Self::LEN + 1,
                got: content.len(),
            });
        }
        let total = usize::from(fragment.total);
        if total > Self::MAX_TOTAL {
            return Err(WireError::TooLong {
                max: Self::MAX_TOTAL,
                got: total,
            });
        }
        let end = usize::from(fragment.offset) + piece.len();
        if end > total {
            return Err(WireError::LengthMismatch {
                declared: total,
                actual: end,
            });
        }
        Ok((fragment, piece))
    }

    /// Returns the header in wire format.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; Self::LEN] {
        let [p0, p1, p2, p3] = self.packet.to_le_bytes();
        let [o0, o1] = self.offset.to_le_bytes();
        let [t0, t1] = self.total.to_le_bytes();
        [p0, p1, p2, p3, self.kind as u8, o0, o1, t0, t1]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::vec::Vec;

    use super::*;

    proptest! {
        #[test]
        fn pieces_round_trip(
            packet: u32, full: bool, offset in 0_u16..9_000, piece in prop::collection::vec(any::<u8>(), 1..200),
        ) {
            let total = offset + piece.len() as u16;
            let kind = if full { Kind::Full } else { Kind::Ipv6 };
            let fragment = Fragment { packet, kind, offset, total };
            let mut content = Vec::from(fragment.to_bytes());
            content.extend(&piece);
            prop_assert_eq!(Fragment::parse(&content), Ok((fragment, &piece[..])));
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok((fragment, piece)) = Fragment::parse(&bytes) {
                prop_assert_eq!(&fragment.to_bytes()[..], &bytes[..Fragment::LEN]);
                prop_assert!(usize::from(fragment.offset) + piece.len() <= usize::from(fragment.total));
                prop_assert!(usize::from(fragment.total) <= Fragment::MAX_TOTAL);
            }
        }
    }

    #[test]
    fn malformed_pieces_are_refused() {
        let parse = |bytes: &[u8]| Fragment::parse(bytes).map(|_| ());
        assert_eq!(parse(&[0; 9]), Err(WireError::TooShort { needed: 10, got: 9 }), "empty");
        let of = |kind: u8, offset: u16, total: u16| {
            let mut bytes = [0; 12];
            bytes[4] = kind;
            bytes[5..7].copy_from_slice(&offset.to_le_bytes());
            bytes[7..9].copy_from_slice(&total.to_le_bytes());
            parse(&bytes)
        };
        assert_eq!(of(0, 5, 8), Ok(()));
        assert_eq!(of(3, 5, 8), Ok(()));
        for kind in [1, 2, 4, 0xa0] {
            assert_eq!(of(kind, 5, 8), Err(WireError::WrongMessageType(kind)));
        }
        let long = WireError::TooLong { max: 9_216, got: 9_217 };
        assert_eq!(of(0, 0, 9_217), Err(long));
        let past = WireError::LengthMismatch { declared: 7, actual: 8 };
        assert_eq!(of(0, 5, 7), Err(past));
    }
}
