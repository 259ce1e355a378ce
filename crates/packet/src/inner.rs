//! The layout of an inner packet: IPv6 extension headers or IPv4 options are walked once, and the
//! transport header is found.
//!
//! Shared by the modules that rewrite inner packets.

use core::ops::Range;
use std::net::IpAddr;

use weft_wire::WireError;
use weft_wire::checksum::{checksum_add, checksum_finish};
use weft_wire::ip::{Ipv4Header, Ipv6Header, PROTOCOL_TCP, PROTOCOL_UDP, version};
use weft_wire::transport::TcpHeader;

/// Both addresses, in the fixed header of IPv6.
pub(crate) const ADDRESSES: Range<usize> = Ipv6Header::SRC_AT..Ipv6Header::LEN;
/// Both addresses, in the fixed header of IPv4.
pub(crate) const ADDRESSES_V4: Range<usize> = Ipv4Header::SRC_AT..Ipv4Header::MIN_LEN;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// No stack sends more. Without a bound, a packet of empty options would cost thousands of steps.
const MAX_EXTENSIONS: usize = 8;

/// The reason for which an inner packet has no usable layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InnerError {
    /// The fixed header, or the length in it, is invalid.
    #[error(transparent)]
    Ip(#[from] WireError),
    /// An extension header reaches past the end of the packet.
    #[error("an extension header reaches past the end of the packet")]
    Truncated,
    /// More extension headers than any stack sends.
    #[error("more than {MAX_EXTENSIONS} extension headers")]
    TooManyExtensions,
}

/// The IP version of an inner packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V4,
    V6,
}

impl Version {
    /// Returns the length of the header without options or extensions, in bytes.
    pub(crate) const fn header_len(self) -> usize {
        match self {
            Self::V4 => Ipv4Header::MIN_LEN,
            Self::V6 => Ipv6Header::LEN,
        }
    }

    /// Returns the range of both addresses in it.
    pub(crate) const fn addresses(self) -> Range<usize> {
        match self {
            Self::V4 => ADDRESSES_V4,
            Self::V6 => ADDRESSES,
        }
    }
}

/// An IP packet whose headers were walked once. Nothing here panics afterwards.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inner<'a> {
    packet: &'a [u8],
    version: Version,
    transport: usize,
    protocol: u8,
    fragment: bool,
    later_fragment: bool,
    source_routed: bool,
    ident: u32,
}

impl<'a> Inner<'a> {
    /// Walks the headers. Bytes behind the length in the header (link padding) are cut off.
    pub(crate) fn parse(packet: &'a [u8]) -> Result<Self, InnerError> {
        let ip = match Ipv6Header::parse(packet) {
            Ok(ip) => ip,
            Err(_) if version(packet) == Some(4) => return Self::parse_v4(packet),
            Err(error) => return Err(error.into()),
        };
        Self::walk_v6(&packet[..Ipv6Header::LEN + ip.payload().len()], ip.next_header())
    }

    /// Walks the headers of a packet that an ICMP error quotes. The end of the packet may be
    /// missing, so its length is not checked.
    pub(crate) fn parse_quoted(packet: &'a [u8]) -> Option<Self> {
        match version(packet)? {
            6 if packet.len() >= Ipv6Header::LEN => Self::walk_v6(packet, packet[Ipv6Header::NEXT_HEADER_AT]).ok(),
            4 => {
                let header = packet.first_chunk::<{ Ipv4Header::MIN_LEN }>()?;
                let transport = usize::from(header[0] & 15) * 4;
                let options = packet.get(Ipv4Header::MIN_LEN..transport)?;
                let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
                Some(Self {
                    packet,
                    version: Version::V4,
                    transport,
                    protocol: header[Ipv4Header::PROTOCOL_AT],
                    fragment: fragment != 0,
                    later_fragment: fragment & 0x1fff != 0,
                    source_routed: has_source_route(options),
                    ident: u32::from(u16::from_be_bytes([header[4], header[5]])),
                })
            }
            _ => None,
        }
    }

    fn walk_v6(packet: &'a [u8], first: u8) -> Result<Self, InnerError> {
        let mut inner = Self {
            packet,
            version: Version::V6,
            transport: Ipv6Header::LEN,
            protocol: first,
            fragment: false,
            later_fragment: false,
            source_routed: false,
            ident: 0,
        };
        for _ in 0..MAX_EXTENSIONS {
            if !inner.step()? {
                return Ok(inner);
            }
        }
        Err(InnerError::TooManyExtensions)
    }

    #[cold]
    fn parse_v4(packet: &'a [u8]) -> Result<Self, InnerError> {
        let ip = Ipv4Header::parse(packet)?;
        let transport = ip.header_len();
        Ok(Self {
            packet: &packet[..transport + ip.payload().len()],
            version: Version::V4,
            transport,
            protocol: ip.protocol(),
            fragment: ip.is_fragment(),
            later_fragment: ip.is_later_fragment(),
            source_routed: has_source_route(ip.options_bytes()),
            ident: u32::from(u16::from_be_bytes([packet[4], packet[5]])),
        })
    }

    /// Steps over one extension header. Returns false if the present header is not one, or hides
    /// the rest.
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
                self.ident = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
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

    /// Returns the packet, without link padding.
    pub(crate) fn packet(&self) -> &'a [u8] {
        self.packet
    }

    /// Returns the IP version.
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// Returns the offset of the transport, behind the IP header with its options or extensions. It
    /// is at most the length of the packet.
    pub(crate) fn transport_start(&self) -> usize {
        self.transport
    }

    /// Returns the bytes behind the IP header with its options or extensions.
    pub(crate) fn transport(&self) -> &'a [u8] {
        &self.packet[self.transport..]
    }

    /// Returns the protocol of [`Self::transport`].
    pub(crate) fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Returns whether the transport follows a header without options or extensions.
    pub(crate) fn is_plain(&self) -> bool {
        self.transport == self.version.header_len()
    }

    /// Returns whether this is a fragment. An IPv6 packet with a fragment header counts as one,
    /// even if it is whole.
    pub(crate) fn is_fragment(&self) -> bool {
        self.fragment
    }

    /// Returns whether this is a fragment without the transport header.
    pub(crate) fn is_later_fragment(&self) -> bool {
        self.later_fragment
    }

    /// Returns the identification that all fragments of a packet share. IPv6 packets that are not
    /// fragments have none, which is 0 here.
    pub(crate) fn fragment_ident(&self) -> u32 {
        self.ident
    }

    /// Returns whether no router may fragment the packet, which holds for all of IPv6.
    pub(crate) fn dont_fragment(&self) -> bool {
        match self.version {
            Version::V4 => self.packet[Ipv4Header::FLAGS_AT] & 0x40 != 0,
            Version::V6 => true,
        }
    }

    /// Returns whether a routing header has segments left, or an IPv4 option is a source route. The
    /// destination of the pseudo-header is then not that of the IP header.
    pub(crate) fn is_source_routed(&self) -> bool {
        self.source_routed
    }

    /// Returns source and destination of the fixed header, one behind the other.
    pub(crate) fn addresses(&self) -> &'a [u8] {
        match self.version {
            Version::V4 => &self.packet[ADDRESSES_V4],
            Version::V6 => &self.packet[ADDRESSES],
        }
    }

    /// Returns the TCP header, if this is TCP and the header is complete.
    #[inline]
    pub(crate) fn tcp(&self) -> Option<TcpHeader<'a>> {
        let here = self.protocol == PROTOCOL_TCP && !self.later_fragment;
        here.then(|| TcpHeader::parse(self.transport()).ok()).flatten()
    }

    /// Returns the checksum for `transport`, sent between this packet's addresses, with zero in its
    /// checksum field. For a transport with a correct checksum the result is zero.
    pub(crate) fn checksum_of(&self, transport: &[u8]) -> u16 {
        let pseudo = checksum_add(0, self.addresses()) + u64::from(self.protocol);
        checksum_finish(checksum_add(pseudo + transport.len() as u64, transport))
    }

    /// Returns source and destination port in wire order, if this is TCP or UDP and has them.
    pub(crate) fn ports(&self) -> Option<[u8; 4]> {
        if self.later_fragment || !matches!(self.protocol, PROTOCOL_TCP | PROTOCOL_UDP) {
            return None;
        }
        self.transport().first_chunk::<4>().copied()
    }
}

/// Returns whether IPv4 options include a loose or strict source route (RFC 791 section 3.1).
fn has_source_route(mut options: &[u8]) -> bool {
    const END: u8 = 0;
    const NOTHING: u8 = 1;
    const LOOSE: u8 = 131;
    const STRICT: u8 = 137;
    loop {
        let len = match options {
            [] | [END, ..] => return false,
            [LOOSE | STRICT, ..] => return true,
            [NOTHING, ..] => 1,
            [_, len, ..] if *len >= 2 => usize::from(*len),
            _ => return false,
        };
        options = options.get(len..).unwrap_or_default();
    }
}

/// Writes the checksum of the IPv4 header that fills `header`.
pub(crate) fn finish_header_v4(header: &mut [u8]) {
    put_be16(header, Ipv4Header::CHECKSUM_AT, 0);
    let sum = checksum_finish(checksum_add(0, header));
    put_be16(header, Ipv4Header::CHECKSUM_AT, sum);
}

/// Writes a big-endian `u16`; the caller has checked the bound.
pub(crate) fn put_be16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Returns source and destination of an IP packet of either version, or `None` if the packet has
/// none. Its length fields are not checked.
pub(crate) fn addresses(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match version(packet)? {
        4 => {
            let [a, b] = *packet.get(Ipv4Header::SRC_AT..)?.as_chunks::<4>().0.first_chunk()?;
            Some((a.into(), b.into()))
        }
        6 => {
            let [a, b] = *packet.get(Ipv6Header::SRC_AT..)?.as_chunks::<16>().0.first_chunk()?;
            Some((a.into(), b.into()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Makes an IPv6 packet whose first header behind the fixed one is `next_header`.
    fn packet(next_header: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; Ipv6Header::LEN];
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&u16::try_from(rest.len()).unwrap().to_be_bytes());
        packet[6] = next_header;
        packet.extend(rest);
        packet
    }

    /// Makes an extension header whose length field, in units of 8 bytes beyond the first 8, is
    /// `length`.
    fn extension(next_header: u8, length: u8) -> Vec<u8> {
        let mut header = vec![0; 8 + 8 * usize::from(length)];
        header[..2].copy_from_slice(&[next_header, length]);
        header
    }

    #[test]
    fn the_longest_extension_header_does_not_wrap() {
        for kind in [HOP_BY_HOP, ROUTING, DESTINATION_OPTIONS] {
            let whole = packet(kind, &[extension(PROTOCOL_UDP, 255), vec![1; 8]].concat());
            let inner = Inner::parse(&whole).unwrap();
            assert_eq!(
                inner.transport_start(),
                Ipv6Header::LEN + 2048,
                "8 + 8 * 255, in more than 8 bits"
            );
            assert_eq!(inner.ports(), Some([1; 4]));
            let short = packet(kind, &extension(PROTOCOL_UDP, 255)[..2047]);
            assert_eq!(Inner::parse(&short).unwrap_err(), InnerError::Truncated);
        }
    }

    #[test]
    fn an_unknown_next_header_ends_the_walk() {
        let known = [HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION_OPTIONS];
        for next_header in (0..=255).filter(|n| !known.contains(n)) {
            for front in [Vec::new(), extension(next_header, 0)] {
                let first = if front.is_empty() { next_header } else { HOP_BY_HOP };
                // Bytes that would be a length past the end if they were read as one.
                let whole = packet(first, &[front.clone(), vec![255; 8]].concat());
                let inner = Inner::parse(&whole).unwrap();
                assert_eq!(inner.protocol(), next_header);
                assert_eq!(inner.transport(), [255; 8]);
                let has_ports = matches!(next_header, PROTOCOL_TCP | PROTOCOL_UDP);
                assert_eq!(inner.ports().is_some(), has_ports, "{next_header}");
            }
        }
    }

    #[test]
    fn a_chain_of_extension_headers_is_bounded() {
        let chain = |count: usize| {
            let mut rest = extension(HOP_BY_HOP, 0).repeat(count - 1);
            rest.extend(extension(PROTOCOL_UDP, 0));
            packet(HOP_BY_HOP, &[rest, vec![0; 8]].concat())
        };
        assert!(Inner::parse(&chain(MAX_EXTENSIONS - 1)).is_ok());
        assert_eq!(
            Inner::parse(&chain(MAX_EXTENSIONS)).unwrap_err(),
            InnerError::TooManyExtensions
        );
    }

    #[test]
    fn addresses_are_where_the_header_has_them() {
        let mut packet = vec![0x45; 40];
        packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        let expected = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        assert_eq!(addresses(&packet), Some(expected));
        packet[0] = 0x60;
        packet[8..24].copy_from_slice(&[1; 16]);
        packet[24..40].copy_from_slice(&[2; 16]);
        assert_eq!(addresses(&packet), Some(([1_u8; 16].into(), [2_u8; 16].into())));
    }

    proptest! {
        #[test]
        fn any_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..60), first in prop::sample::select(vec![0x45_u8, 0x60, 0x50])) {
            if let Some(byte) = bytes.first_mut() {
                *byte = first;
            }
            let needed = match first { 0x45 => 20, 0x60 => 40, _ => usize::MAX };
            prop_assert_eq!(addresses(&bytes).is_some(), bytes.len() >= needed);
        }
    }
}
