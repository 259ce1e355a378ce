//! Where the parts of an inner packet are: the IPv6 extension headers walked once, the transport
//! header found.
//!
//! Shared by the modules that rewrite inner packets. An IPv4 layout would be a second constructor
//! here.

use core::net::Ipv6Addr;
use core::ops::Range;

use weft_wire::WireError;
use weft_wire::checksum::{checksum_add, checksum_finish, pseudo_header_sum_v6};
use weft_wire::ip::{Ipv6Header, PROTOCOL_TCP, PROTOCOL_UDP};
use weft_wire::transport::TcpHeader;

/// Both addresses, in the fixed header.
pub(crate) const ADDRESSES: Range<usize> = Ipv6Header::SRC_AT..Ipv6Header::LEN;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// No stack sends more; without a bound, a packet of empty options would cost thousands of steps.
const MAX_EXTENSIONS: usize = 8;

/// Why an inner packet has no usable layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InnerError {
    /// The fixed header, or the length it announces.
    #[error(transparent)]
    Ip(#[from] WireError),
    /// An extension header reaches past the end of the packet.
    #[error("an extension header reaches past the end of the packet")]
    Truncated,
    /// More extension headers than any stack sends.
    #[error("more than {MAX_EXTENSIONS} extension headers")]
    TooManyExtensions,
}

/// An IPv6 packet whose headers were walked once. Nothing here panics afterwards.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inner<'a> {
    ip: Ipv6Header<'a>,
    packet: &'a [u8],
    transport: usize,
    protocol: u8,
    fragment: bool,
    later_fragment: bool,
    source_routed: bool,
}

impl<'a> Inner<'a> {
    /// Walks the headers. What follows the announced payload length (link padding) is cut off.
    pub(crate) fn parse(packet: &'a [u8]) -> Result<Self, InnerError> {
        let ip = Ipv6Header::parse(packet)?;
        let mut inner = Self {
            ip,
            packet: &packet[..Ipv6Header::LEN + ip.payload().len()],
            transport: Ipv6Header::LEN,
            protocol: ip.next_header(),
            fragment: false,
            later_fragment: false,
            source_routed: false,
        };
        for _ in 0..MAX_EXTENSIONS {
            if !inner.step()? {
                return Ok(inner);
            }
        }
        Err(InnerError::TooManyExtensions)
    }

    /// Steps over one extension header; false when the present header is none, or hides the rest.
    fn step(&mut self) -> Result<bool, InnerError> {
        if self.later_fragment || !matches!(self.protocol, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS) {
            return Ok(false);
        }
        let rest = &self.packet[self.transport..];
        let header = rest.first_chunk::<8>().ok_or(InnerError::Truncated)?;
        let length = match self.protocol {
            FRAGMENT => {
                self.fragment = true;
                self.later_fragment = u16::from_be_bytes([header[2], header[3]]) >> 3 != 0;
                8
            }
            ROUTING => {
                self.source_routed |= header[3] != 0;
                8 + 8 * usize::from(header[1])
            }
            _ => 8 + 8 * usize::from(header[1]),
        };
        if length > rest.len() {
            return Err(InnerError::Truncated);
        }
        self.protocol = header[0];
        self.transport += length;
        Ok(true)
    }

    /// The packet, without link padding.
    pub(crate) fn packet(&self) -> &'a [u8] {
        self.packet
    }

    /// Offset of what follows the extension headers; at most the packet's length.
    pub(crate) fn transport_start(&self) -> usize {
        self.transport
    }

    /// What follows the extension headers.
    pub(crate) fn transport(&self) -> &'a [u8] {
        &self.packet[self.transport..]
    }

    /// Next-header value of [`Self::transport`].
    pub(crate) fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Whether there is a fragment header.
    pub(crate) fn is_fragment(&self) -> bool {
        self.fragment
    }

    /// Whether this is a fragment that does not hold the transport header.
    pub(crate) fn is_later_fragment(&self) -> bool {
        self.later_fragment
    }

    /// Whether a routing header has segments left: the pseudo-header's destination is then not the
    /// IPv6 header's.
    pub(crate) fn is_source_routed(&self) -> bool {
        self.source_routed
    }

    /// Source address.
    pub(crate) fn source(&self) -> Ipv6Addr {
        self.ip.src()
    }

    /// Destination address of the fixed header.
    pub(crate) fn destination(&self) -> Ipv6Addr {
        self.ip.dst()
    }

    /// The TCP header, if this is TCP and all of it is here.
    pub(crate) fn tcp(&self) -> Option<TcpHeader<'a>> {
        let here = self.protocol == PROTOCOL_TCP && !self.later_fragment;
        here.then(|| TcpHeader::parse(self.transport()).ok()).flatten()
    }

    /// Sum of the pseudo-header without the transport length.
    pub(crate) fn pseudo_sum(&self) -> u64 {
        pseudo_header_sum_v6(self.source(), self.destination(), self.protocol, 0)
    }

    /// The checksum for `transport`, sent between this packet's addresses, with zero in its
    /// checksum field; over a transport that holds its checksum, zero if that is right.
    pub(crate) fn checksum_of(&self, transport: &[u8]) -> u16 {
        checksum_finish(checksum_add(self.pseudo_sum() + transport.len() as u64, transport))
    }

    /// Source and destination port as on the wire, if this is TCP or UDP and they are here.
    pub(crate) fn ports(&self) -> Option<[u8; 4]> {
        if self.later_fragment || !matches!(self.protocol, PROTOCOL_TCP | PROTOCOL_UDP) {
            return None;
        }
        self.transport().first_chunk::<4>().copied()
    }
}

/// Writes a big-endian `u16`; the caller has checked the bound.
pub(crate) fn put_be16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
