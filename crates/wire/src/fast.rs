//! Fast frames: one seal for a packet, end to end, and the messages that agree on them.
//!
//! Specified in docs/protocol/fast.md. A fast frame is a UDP payload whose first nibble is 0xA. A
//! node sends none before the peer has proven, inside the FSP session, that it reads them.
//!
//! ```text
//!  0        1        2                 4                 8                16
//!  +--------+--------+--------+--------+-----------------+----------------+------------------+-----+
//!  | A,kind | flags  | length          | receiver index  | counter        | sealed content   | tag |
//!  +--------+--------+--------+--------+-----------------+----------------+------------------+-----+
//! ```
//!
//! All 16 bytes of the header are associated data. The sealed content begins with the sender's
//! clock, as FIPS's inner headers do: [`TIMESTAMP_LEN`] bytes, milliseconds since its keys began.

use core::net::Ipv6Addr;

use crate::WireError;
use crate::cursor::{Reader, len_u16};
use crate::ip::Ipv6Header;

mod capabilities;
mod fragment;
mod label;
mod relayed;

pub use capabilities::{CAPABILITIES_VERSION, Capabilities, MAX_LISTED, MAX_VERSION, READS_FULL};
pub use fragment::Fragment;
pub use label::{Bind, Bound, Refusal, Unbind, UnbindBy};
pub use relayed::{
    FLAG_CE, HOP_TAG_AT, INNER_AT, IPV6_RELAYED_OVERHEAD, LABEL_AT, MAX_HOPS, RELAYED_OVERHEAD, RelayHeader,
    SEALED_HEADER,
};

/// The first nibble of a fast frame. FMP uses 0 and reserves 1; STUN, FIPS's punch packets and QUIC
/// use the other values that occur on such ports.
pub const VERSION: u8 = 0xa;
/// Length of the authentication tag behind the sealed content.
pub const TAG_LEN: usize = 16;
/// Length of the clock at the start of the sealed content.
pub const TIMESTAMP_LEN: usize = 4;
/// The bytes of an IPv6 header that a frame keeps: its first four bytes, next header and hop limit.
/// Both ends know the addresses, and the length follows from the frame's.
pub const IPV6_REST: usize = 6;
/// Offset of the packet in a frame of [`Kind::Full`].
pub const FULL_AT: usize = Header::LEN + TIMESTAMP_LEN;
/// Bytes that a frame of [`Kind::Full`] adds to its packet.
pub const FULL_OVERHEAD: usize = FULL_AT + TAG_LEN;
/// Offset of the upper layer of a packet in a frame of [`Kind::Ipv6`].
pub const UPPER_AT: usize = Header::LEN + TIMESTAMP_LEN + IPV6_REST;
/// Bytes that a frame of [`Kind::Ipv6`] adds to its packet: 2.
pub const IPV6_OVERHEAD: usize = UPPER_AT + TAG_LEN - Ipv6Header::LEN;
/// Bytes that a frame of [`Kind::Message`] adds to the body of the message.
pub const MESSAGE_OVERHEAD: usize = Header::LEN + TIMESTAMP_LEN + 1 + TAG_LEN;

/// The UDP payload in bytes that every path of IPv6 takes: the minimum MTU of 1,280 (RFC 8200
/// section 5) less 48 for the headers of IPv6 and UDP. Frames are no larger until probes show that
/// the path takes more.
pub const SURE_PAYLOAD: u16 = 1_232;

/// The largest frame that counts as small, in bytes of UDP payload: every host of IPv4 takes packets of 576
/// bytes (RFC 791), less 28 for the headers of IPv4 and UDP.
pub const SMALL_PAYLOAD: u16 = 548;

/// The largest frame that probes search for, in bytes of UDP payload: an interface MTU of 1,500 bytes
/// over IPv4. A node whose size is not set forwards relayed frames up to this size.
pub const LARGEST_PROBED: u16 = 1_472;

/// The smallest frame size that a node may impose on others, bytes of UDP payload: the minimum of
/// `[udp] mtu`. A node refuses a smaller announced size: no path that IPv6 hosts can use is that
/// small, and every packet would become many frames (docs/decisions/0021-told-sizes-and-queues.md).
pub const LEAST_PAYLOAD: u16 = 1_200;

/// Bit of [`Header::flags`]: the phase of the key, modulo 2.
pub const FLAG_PHASE: u8 = 0x01;
/// Bit of [`Header::flags`]: the TCP or UDP header right behind the IP header has no checksum; its
/// field is zero. The tag covers the packet, and the receiving kernel completes the sum if it needs
/// one.
pub const FLAG_PARTIAL: u8 = 0x02;
/// Bit of [`Header::flags`], only in [`Kind::Relayed`]: the hop's seal covers the whole frame
/// behind the hop's tag.
pub const FLAG_WHOLE: u8 = 0x04;

/// What a fast frame contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// An IPv6 packet between the addresses of the two nodes, which are left out.
    Ipv6 = 0,
    /// A message of the session or of the hop: its type and body.
    Message = 1,
    /// A frame of another kind that other nodes relay; see [`RelayHeader`].
    Relayed = 2,
    /// An IP packet with its whole header, whose first nibble is the version: IPv4, or IPv6 between
    /// other addresses than those of the two nodes.
    Full = 3,
    /// A piece of a packet that does not fit in one frame: [`Fragment`].
    Fragment = 4,
}

impl Kind {
    /// The kind of a nibble, or `None` if the nibble is not in use.
    #[must_use]
    pub const fn from_nibble(nibble: u8) -> Option<Self> {
        Some(match nibble {
            0 => Self::Ipv6,
            1 => Self::Message,
            2 => Self::Relayed,
            3 => Self::Full,
            4 => Self::Fragment,
            _ => return None,
        })
    }

    /// The flags that a frame of this kind may have.
    const fn flags(self) -> u8 {
        match self {
            Self::Ipv6 | Self::Full => FLAG_PHASE | FLAG_PARTIAL,
            Self::Message | Self::Fragment => FLAG_PHASE,
            Self::Relayed => FLAG_PHASE | FLAG_WHOLE,
        }
    }

    /// The shortest frame of this kind, bytes.
    const fn min_len(self) -> usize {
        match self {
            Self::Ipv6 | Self::Message | Self::Full | Self::Fragment => Header::LEN + TIMESTAMP_LEN + TAG_LEN,
            Self::Relayed => INNER_AT + Self::Ipv6.min_len(),
        }
    }
}

/// The 16 bytes in front of the sealed content; they are its associated data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of content.
    pub kind: Kind,
    /// [`FLAG_PHASE`], [`FLAG_PARTIAL`], [`FLAG_WHOLE`].
    pub flags: u8,
    /// Bytes behind the header, including the tag.
    pub length: u16,
    /// Selects the receiver's keys, lane and session.
    pub receiver_index: u32,
    /// The number of this frame under its keys; counts from 0 over all phases.
    pub counter: u64,
}

impl Header {
    /// Bytes on the wire.
    pub const LEN: usize = 16;
    /// Offset of the receiver index.
    pub const INDEX_AT: usize = 4;

    /// Reads the header of a datagram, which is one whole frame.
    ///
    /// # Errors
    /// [`WireError::TooShort`], [`WireError::UnsupportedVersion`], [`WireError::WrongMessageType`] for a kind,
    /// [`WireError::NonZeroFlags`] for a flag that is not in use, [`WireError::LengthMismatch`].
    pub fn parse(datagram: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(datagram);
        let first = r.u8()?;
        if first >> 4 != VERSION {
            return Err(WireError::UnsupportedVersion(first >> 4));
        }
        let kind = Kind::from_nibble(first & 0x0f).ok_or(WireError::WrongMessageType(first))?;
        let flags = r.u8()?;
        let header = Self {
            kind,
            flags,
            length: r.u16()?,
            receiver_index: r.u32()?,
            counter: r.u64()?,
        };
        if flags & !kind.flags() != 0 {
            return Err(WireError::NonZeroFlags(flags));
        }
        let rest = r.rest().len();
        if rest != usize::from(header.length) {
            return Err(WireError::LengthMismatch {
                declared: usize::from(header.length),
                actual: rest,
            });
        }
        if datagram.len() < kind.min_len() {
            return Err(WireError::TooShort {
                needed: kind.min_len(),
                got: datagram.len(),
            });
        }
        Ok(header)
    }

    /// Returns the header in wire format.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; Self::LEN] {
        let [l0, l1] = self.length.to_le_bytes();
        let [i0, i1, i2, i3] = self.receiver_index.to_le_bytes();
        let [c0, c1, c2, c3, c4, c5, c6, c7] = self.counter.to_le_bytes();
        [
            VERSION << 4 | self.kind as u8,
            self.flags,
            l0,
            l1,
            i0,
            i1,
            i2,
            i3,
            c0,
            c1,
            c2,
            c3,
            c4,
            c5,
            c6,
            c7,
        ]
    }
}

/// Whether a datagram has the first nibble of a fast frame.
#[must_use]
pub fn is_fast(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first >> 4 == VERSION)
}

/// The receiver index of a datagram with the first nibble of a fast frame; `None` for any other.
#[must_use]
pub fn index_of(datagram: &[u8]) -> Option<u32> {
    let [first, _, _, _, index @ ..] = *datagram.first_chunk::<8>()?;
    (first >> 4 == VERSION).then_some(u32::from_le_bytes(index))
}

/// Returns the bytes of an IPv6 header that a frame keeps, or `None` if the packet has no IPv6
/// header.
#[must_use]
pub fn compress(packet: &[u8]) -> Option<[u8; IPV6_REST]> {
    let [a, b, c, d, _, _, next_header, hop_limit] = *packet.first_chunk::<8>()?;
    (packet.len() >= Ipv6Header::LEN && a >> 4 == 6).then_some([a, b, c, d, next_header, hop_limit])
}

/// Bytes before a frame that [`expand_in_place`] overwrites: a packet begins that many bytes before
/// its frame. If frames are stored one behind the other, these bytes are part of the tag before,
/// which is no longer needed.
pub const HEADROOM: usize = Ipv6Header::LEN - UPPER_AT;

/// Rebuilds the IPv6 header of an opened frame of [`Kind::Ipv6`] in front of its upper layer, which
/// stays in place: it starts at `buf[upper_at]` and runs to the end of `buf` (the tag is cut off).
/// Returns the offset of the packet, 40 bytes before. The version nibble on the wire is not read.
///
/// # Errors
/// [`WireError::TooShort`] if `buf` ends before `upper_at`, [`WireError::NoHeadroom`] if that is
/// below 40, [`WireError::TooLong`] for an upper layer above 65,535 bytes. The buffer is then
/// unchanged.
pub fn expand_in_place(buf: &mut [u8], upper_at: usize, src: Ipv6Addr, dst: Ipv6Addr) -> Result<usize, WireError> {
    let got = buf.len();
    let upper = buf
        .get(upper_at..)
        .ok_or(WireError::TooShort { needed: upper_at, got })?;
    let [high, low] = len_u16(upper.len())?.to_be_bytes();
    let no_headroom = WireError::NoHeadroom {
        needed: Ipv6Header::LEN,
        got: upper_at,
    };
    let start = upper_at.checked_sub(Ipv6Header::LEN).ok_or(no_headroom)?;
    let header = buf
        .get_mut(start..)
        .and_then(|packet| packet.first_chunk_mut::<{ Ipv6Header::LEN }>())
        .ok_or(no_headroom)?;
    let [.., a, b, c, d, next_header, hop_limit] = *header;
    header[..8].copy_from_slice(&[0x60 | a & 0x0f, b, c, d, high, low, next_header, hop_limit]);
    header[8..24].copy_from_slice(&src.octets());
    header[24..].copy_from_slice(&dst.octets());
    Ok(start)
}

/// Session message type of [`Capabilities`].
pub const CAPABILITIES: u8 = 0xf0;
/// Session message type of the answer to [`CAPABILITIES`]: the first [`DIGEST_LEN`] bytes of the
/// SHA-256 of the received body.
pub const CAPABILITIES_ACK: u8 = 0xf2;
/// Session message type of a confirm, only in fast frames: a body of one byte, [`CONFIRM_ASKS`] or
/// [`CONFIRM_ANSWERS`].
pub const CONFIRM: u8 = 0xf3;
/// Session message type, only in fast frames: the phase that the sender opens with, u32. The peer
/// may then advance to the next one.
pub const PHASE: u8 = 0xf4;

/// Session message type of a probe of the path, only in fast frames: the body is its number, u16,
/// and zeros up to the size that is probed.
pub const PROBE: u8 = 0xf5;
/// Session message type of the answer to a [`PROBE`], only in fast frames: its number, u16.
pub const PROBE_ANSWER: u8 = 0xf6;

/// Body of a [`CONFIRM`] that asks for an answer.
pub const CONFIRM_ASKS: u8 = 0;
/// Body of a [`CONFIRM`] that answers one.
pub const CONFIRM_ANSWERS: u8 = 1;
/// Bytes of the digest in a [`CAPABILITIES_ACK`].
pub const DIGEST_LEN: usize = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::vec::Vec;

    use super::*;

    fn header() -> Header {
        Header {
            kind: Kind::Ipv6,
            flags: FLAG_PHASE | FLAG_PARTIAL,
            length: 24,
            receiver_index: 0x0403_0201,
            counter: 0x0c0b_0a09_0807_0605,
        }
    }

    #[test]
    fn the_header_is_little_endian() {
        let bytes = header().to_bytes();
        assert_eq!(bytes, [0xa0, 3, 24, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    }

    #[test]
    fn malformed_headers_are_refused() {
        let frame = |at: usize, value: u8| {
            let mut frame = header().to_bytes().to_vec();
            frame.resize(40, 0);
            frame[at] = value;
            Header::parse(&frame)
        };
        assert_eq!(frame(1, 3), Ok(header()));
        assert_eq!(frame(0, 0x00), Err(WireError::UnsupportedVersion(0)));
        assert_eq!(frame(0, 0xa5), Err(WireError::WrongMessageType(0xa5)));
        assert_eq!(frame(0, 0xa1), Err(WireError::NonZeroFlags(3)));
        assert_eq!(frame(0, 0xa2), Err(WireError::NonZeroFlags(3)));
        assert_eq!(frame(1, 4), Err(WireError::NonZeroFlags(4)));
        let mismatch = WireError::LengthMismatch {
            declared: 25,
            actual: 24,
        };
        assert_eq!(frame(2, 25), Err(mismatch));
        let mut short = header();
        short.length = 19;
        let mut short = short.to_bytes().to_vec();
        short.resize(35, 0);
        assert_eq!(Header::parse(&short), Err(WireError::TooShort { needed: 36, got: 35 }));
    }

    proptest! {
        #[test]
        fn headers_round_trip(
            kind in 0u8..5, flags in 0u8..8, length in 58u16..200, receiver_index: u32, counter: u64,
        ) {
            let kind = Kind::from_nibble(kind).unwrap();
            let flags = flags & kind.flags();
            let header = Header { kind, flags, length, receiver_index, counter };
            let mut frame = header.to_bytes().to_vec();
            frame.resize(Header::LEN + usize::from(length), 0);
            prop_assert!(is_fast(&frame));
            prop_assert_eq!(Header::parse(&frame), Ok(header));
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(header) = Header::parse(&bytes) {
                prop_assert_eq!(&header.to_bytes()[..], &bytes[..Header::LEN]);
            }
        }

        #[test]
        fn a_packet_comes_back(
            first in any::<[u8; 4]>(), next_header: u8, hop_limit: u8, src: [u8; 16], dst: [u8; 16],
            upper in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let (src, dst) = (Ipv6Addr::from(src), Ipv6Addr::from(dst));
            let mut packet = Vec::from([0x60 | first[0] & 0x0f, first[1], first[2], first[3]]);
            packet.extend([0, upper.len() as u8, next_header, hop_limit]);
            packet.extend(src.octets());
            packet.extend(dst.octets());
            packet.extend(&upper);
            let rest = compress(&packet).unwrap();
            let mut buf = [0xee; 40].to_vec();
            buf[34..].copy_from_slice(&rest);
            buf.extend(&upper);
            prop_assert_eq!(expand_in_place(&mut buf, 40, src, dst), Ok(0));
            prop_assert_eq!(buf, packet);
        }
    }

    #[test]
    fn other_packets_than_ipv6_are_not_compressed() {
        assert_eq!(compress(&[0x60; 39]), None);
        assert_eq!(compress(&[0x45; 60]), None);
    }

    #[test]
    fn there_has_to_be_room_for_the_header() {
        let (a, b) = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
        let mut buf = [0; 60];
        let needed = WireError::NoHeadroom { needed: 40, got: 39 };
        assert_eq!(expand_in_place(&mut buf, 39, a, b), Err(needed));
        assert_eq!(
            expand_in_place(&mut buf, 61, a, b),
            Err(WireError::TooShort { needed: 61, got: 60 })
        );
        assert_eq!(expand_in_place(&mut buf, 60, a, b), Ok(20));
    }
}
