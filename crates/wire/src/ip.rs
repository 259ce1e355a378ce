//! Checked views of IP headers, with the fields that offloads need.
//!
//! Source: RFC 8200 section 3, RFC 791 section 3.1. All fields are in network byte order. A view
//! borrows the packet; the `_AT` constants are the offsets of fields that are rewritten.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::WireError;
use crate::checksum::{checksum_add, checksum_finish, pseudo_header_sum_v4, pseudo_header_sum_v6};

/// Protocol number of TCP.
pub const PROTOCOL_TCP: u8 = 6;
/// Protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;
/// Protocol number of ICMPv6.
pub const PROTOCOL_ICMPV6: u8 = 58;
/// Protocol number of ICMP for IPv4.
pub const PROTOCOL_ICMP: u8 = 1;

/// The version nibble of an IP packet, or `None` for an empty slice.
#[must_use]
pub fn version(packet: &[u8]) -> Option<u8> {
    packet.first().map(|first| first >> 4)
}

/// An IPv6 header and the payload behind it. Extension headers are not parsed.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6Header<'a> {
    header: &'a [u8; 40],
    payload: &'a [u8],
}

impl<'a> Ipv6Header<'a> {
    /// Bytes of the header.
    pub const LEN: usize = 40;
    /// Offset of the payload length: 2 bytes.
    pub const PAYLOAD_LEN_AT: usize = 4;
    /// Offset of the next header: 1 byte.
    pub const NEXT_HEADER_AT: usize = 6;
    /// Offset of the hop limit: 1 byte.
    pub const HOP_LIMIT_AT: usize = 7;
    /// Offset of the source address: 16 bytes.
    pub const SRC_AT: usize = 8;
    /// Offset of the destination address: 16 bytes.
    pub const DST_AT: usize = 24;

    /// Checks a packet. The view excludes bytes behind its payload.
    ///
    /// # Errors
    /// [`WireError::TooShort`] if header or payload is incomplete, [`WireError::WrongIpVersion`].
    pub fn parse(packet: &'a [u8]) -> Result<Self, WireError> {
        let short = |needed| WireError::TooShort {
            needed,
            got: packet.len(),
        };
        let (header, rest) = packet.split_first_chunk().ok_or_else(|| short(Self::LEN))?;
        let mut view = Self { header, payload: rest };
        if header[0] >> 4 != 6 {
            return Err(WireError::WrongIpVersion(header[0] >> 4));
        }
        let len = usize::from(view.payload_len());
        view.payload = rest.get(..len).ok_or_else(|| short(Self::LEN + len))?;
        Ok(view)
    }

    /// Differentiated services and ECN.
    #[must_use]
    pub const fn traffic_class(&self) -> u8 {
        self.header[0] << 4 | self.header[1] >> 4
    }

    /// The 20 bits of the flow label.
    #[must_use]
    pub const fn flow_label(&self) -> u32 {
        u32::from_be_bytes([0, self.header[1] & 0x0f, self.header[2], self.header[3]])
    }

    /// Bytes behind the header, from the header's field.
    #[must_use]
    pub const fn payload_len(&self) -> u16 {
        u16::from_be_bytes([self.header[4], self.header[5]])
    }

    /// Protocol of the payload, or of its first extension header.
    #[must_use]
    pub const fn next_header(&self) -> u8 {
        self.header[6]
    }

    /// Hops left.
    #[must_use]
    pub const fn hop_limit(&self) -> u8 {
        self.header[7]
    }

    /// Source address.
    #[must_use]
    pub fn src(&self) -> Ipv6Addr {
        let [_, _, _, _, _, _, _, _, addrs @ ..] = self.header;
        Ipv6Addr::from(addrs.first_chunk().copied().unwrap_or_default())
    }

    /// Destination address.
    #[must_use]
    pub fn dst(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.header.last_chunk().copied().unwrap_or_default())
    }

    /// The bytes that the payload length covers.
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The sum of the pseudo-header for an upper layer of `upper_len` bytes that follows this
    /// header directly.
    #[must_use]
    pub fn pseudo_header_sum(&self, upper_len: u32) -> u64 {
        pseudo_header_sum_v6(self.src(), self.dst(), self.next_header(), upper_len)
    }
}

/// An IPv4 header and the payload behind it.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4Header<'a> {
    fixed: &'a [u8; 20],
    header: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Ipv4Header<'a> {
    /// Bytes of a header without options.
    pub const MIN_LEN: usize = 20;
    /// Offset of the total length: 2 bytes.
    pub const TOTAL_LEN_AT: usize = 2;
    /// Offset of the identification: 2 bytes.
    pub const ID_AT: usize = 4;
    /// Offset of flags and fragment offset: 2 bytes.
    pub const FLAGS_AT: usize = 6;
    /// Offset of the time to live: 1 byte.
    pub const TTL_AT: usize = 8;
    /// Offset of the protocol of the payload: 1 byte.
    pub const PROTOCOL_AT: usize = 9;
    /// Offset of the header checksum: 2 bytes.
    pub const CHECKSUM_AT: usize = 10;
    /// Offset of the source address: 4 bytes. The destination follows.
    pub const SRC_AT: usize = 12;

    /// Checks a packet. The view excludes bytes behind its total length. The header checksum is not
    /// verified: see [`Ipv4Header::has_valid_checksum`].
    ///
    /// # Errors
    /// [`WireError::TooShort`] if header or payload is incomplete, [`WireError::WrongIpVersion`],
    /// [`WireError::HeaderTooSmall`] for a header length below 20, [`WireError::LengthMismatch`]
    /// for a total length below the header length.
    pub fn parse(packet: &'a [u8]) -> Result<Self, WireError> {
        let short = |needed| WireError::TooShort {
            needed,
            got: packet.len(),
        };
        let fixed: &[u8; 20] = packet.first_chunk().ok_or_else(|| short(Self::MIN_LEN))?;
        if fixed[0] >> 4 != 4 {
            return Err(WireError::WrongIpVersion(fixed[0] >> 4));
        }
        let header_len = usize::from(fixed[0] & 0x0f) * 4;
        if header_len < Self::MIN_LEN {
            return Err(WireError::HeaderTooSmall(header_len));
        }
        let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        if total < header_len {
            return Err(WireError::LengthMismatch {
                declared: total,
                actual: header_len,
            });
        }
        let whole = packet.get(..total).ok_or_else(|| short(total))?;
        let (header, payload) = whole.split_at_checked(header_len).ok_or_else(|| short(total))?;
        Ok(Self { fixed, header, payload })
    }

    /// Bytes of the header, options included.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        self.header.len()
    }

    /// The options, padding included.
    #[must_use]
    pub fn options_bytes(&self) -> &'a [u8] {
        self.header.get(Self::MIN_LEN..).unwrap_or_default()
    }

    /// Differentiated services and ECN.
    #[must_use]
    pub const fn traffic_class(&self) -> u8 {
        self.fixed[1]
    }

    /// Bytes of header and payload.
    #[must_use]
    pub const fn total_len(&self) -> u16 {
        u16::from_be_bytes([self.fixed[2], self.fixed[3]])
    }

    /// Identification.
    #[must_use]
    pub const fn id(&self) -> u16 {
        u16::from_be_bytes([self.fixed[4], self.fixed[5]])
    }

    /// Whether the packet must not be fragmented.
    #[must_use]
    pub const fn dont_fragment(&self) -> bool {
        self.fixed[6] & 0x40 != 0
    }

    /// Whether the packet is a fragment: the first, the last or one in between.
    #[must_use]
    pub const fn is_fragment(&self) -> bool {
        u16::from_be_bytes([self.fixed[6], self.fixed[7]]) & 0x3fff != 0
    }

    /// Whether the packet is a fragment without the start of the payload.
    #[must_use]
    pub const fn is_later_fragment(&self) -> bool {
        u16::from_be_bytes([self.fixed[6], self.fixed[7]]) & 0x1fff != 0
    }

    /// Hops left.
    #[must_use]
    pub const fn ttl(&self) -> u8 {
        self.fixed[8]
    }

    /// Protocol of the payload.
    #[must_use]
    pub const fn protocol(&self) -> u8 {
        self.fixed[9]
    }

    /// The header checksum in the packet.
    #[must_use]
    pub const fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.fixed[10], self.fixed[11]])
    }

    /// Whether the header checksum is correct.
    #[must_use]
    pub fn has_valid_checksum(&self) -> bool {
        checksum_finish(checksum_add(0, self.header)) == 0
    }

    /// Source address.
    #[must_use]
    pub const fn src(&self) -> Ipv4Addr {
        let [_, _, _, _, _, _, _, _, _, _, _, _, a, b, c, d, ..] = *self.fixed;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Destination address.
    #[must_use]
    pub const fn dst(&self) -> Ipv4Addr {
        let [.., a, b, c, d] = *self.fixed;
        Ipv4Addr::new(a, b, c, d)
    }

    /// The bytes behind the header that the total length covers.
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The sum of the pseudo-header for an upper layer of `upper_len` bytes.
    #[must_use]
    pub fn pseudo_header_sum(&self, upper_len: u32) -> u64 {
        pseudo_header_sum_v4(self.src(), self.dst(), self.protocol(), upper_len)
    }
}
