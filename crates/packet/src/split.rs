//! Super-packets from the TUN, cut into packets that the session can carry.
//!
//! With `IFF_VNET_HDR` and offloads on, one TUN read returns up to 64 KiB: a TCP stream (TSO) or a
//! UDP burst (USO) under one header, or a single packet whose checksum the kernel left to the
//! device. FIPS frames carry complete packets, so every segment leaves with a complete transport
//! checksum.
//!
//! Both IP versions are supported. Each IPv4 segment has an identification of its own, counted up
//! from that of the super-packet, since the sender has reserved as many.
//!
//! Sources: virtio 1.2 section 5.1.6 (the header), RFC 9293 and RFC 3168 (which flags belong to
//! which segment), RFC 8200 section 8.1 and RFC 768 (pseudo-header), RFC 6864 (identification).

use weft_wire::checksum::{checksum_add, checksum_finish};
use weft_wire::ip::{Ipv4Header, Ipv6Header, PROTOCOL_TCP, PROTOCOL_UDP};
use weft_wire::transport::{TcpHeader, TcpOption, UdpHeader};
use weft_wire::virtio::{GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, VirtioNetHdr};

use crate::checksum::elidable;
use crate::inner::{Inner, Version, finish_header_v4, put_be16};

pub use crate::inner::InnerError;

/// The reason for which a TUN read could not be split. Nothing of it was sent. The caller counts
/// it, and answers [`TooBig`](Self::TooBig).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// The packet itself is malformed.
    #[error("malformed packet: {0}")]
    Packet(#[from] InnerError),
    /// A GSO type that was never enabled on the TUN (UFO, or unknown).
    #[error("GSO type {0:#04x} is not supported")]
    UnsupportedGso(u8),
    /// The GSO type is that of TCP over the other IP version.
    #[error("GSO type {0:#04x} does not fit the IP version")]
    Version(u8),
    /// A GSO packet with a segment size of zero.
    #[error("GSO packet without a segment size")]
    ZeroSegment,
    /// The GSO type is that of TCP or UDP and the packet is of another protocol.
    #[error("GSO packet of protocol {protocol}, expected {expected}")]
    Protocol {
        /// The next-header value after the extension headers.
        protocol: u8,
        /// The next-header value that the GSO type implies.
        expected: u8,
    },
    /// The TCP or UDP header of a GSO packet is truncated or its length field is impossible.
    #[error("GSO packet with a malformed transport header")]
    TransportHeader,
    /// A GSO packet with a fragment header, or one of several fragments.
    #[error("GSO packet is a fragment")]
    Fragment,
    /// A GSO packet whose routing header has segments left, or with a source route, so that its
    /// checksums cover another destination.
    #[error("GSO packet with a source route")]
    SourceRouted,
    /// The checksum to complete starts before the IP payload, or does not fit in the packet.
    #[error("checksum start {start} offset {offset} is outside the packet")]
    ChecksumRange {
        /// `csum_start` of the virtio header.
        start: u16,
        /// `csum_offset` of the virtio header.
        offset: u16,
    },
    /// A segment would be larger than the session takes. The answer is an ICMP Packet Too Big.
    #[error("segment exceeds {mtu} octets")]
    TooBig {
        /// The largest inner packet in octets, IP header included.
        mtu: u32,
    },
}

/// The least data in a TCP segment that is cut smaller, in octets, except for the last one: the
/// least MSS that hosts must expect (536, RFC 9293 section 3.7.1) less options. It bounds the
/// segments of one TUN read to 132.
pub(crate) const LEAST_SEGMENT: usize = 500;

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Unchanged.
    Whole,
    /// Unchanged, but for the checksum, which is summed from `start` on and stored `offset` octets
    /// further.
    Complete {
        start: usize,
        offset: usize,
    },
    Tcp,
    Udp,
}

/// Cuts one TUN read into IP packets, in order, without allocating.
#[derive(Debug, Clone)]
pub struct Splitter<'a> {
    inner: Inner<'a>,
    kind: Kind,
    /// Octets repeated in front of every segment: IP, extension and transport header.
    headers: usize,
    /// Payload octets of every segment but the last.
    payload_each: usize,
    count: usize,
    next: usize,
    /// The offset in each packet of a checksum that is left out.
    elided: Option<usize>,
}

impl<'a> Splitter<'a> {
    /// Checks `packet`, read from the TUN behind `hdr`, and plans its segments of at most
    /// `max_packet` octets each.
    ///
    /// Header lengths come from the packet. `hdr_len`, and for GSO also `csum_start`, are ignored.
    /// Octets beyond the length in the IP header are dropped.
    ///
    /// # Errors
    /// [`SplitError`] with a variant for each cause.
    pub fn new(hdr: VirtioNetHdr, packet: &'a [u8], max_packet: usize) -> Result<Self, SplitError> {
        let inner = Inner::parse(packet)?;
        let splitter = match hdr.gso_kind() {
            GSO_NONE => Self::whole(hdr, inner)?,
            gso @ (GSO_TCPV6 | GSO_TCPV4) if (gso == GSO_TCPV4) != (inner.version() == Version::V4) => {
                return Err(SplitError::Version(gso));
            }
            GSO_TCPV6 | GSO_TCPV4 => Self::gso(hdr, inner, Kind::Tcp)?,
            GSO_UDP_L4 => Self::gso(hdr, inner, Kind::Udp)?,
            other => return Err(SplitError::UnsupportedGso(other)),
        };
        if splitter.segment_len() > max_packet {
            return Err(SplitError::TooBig {
                mtu: u32::try_from(max_packet).unwrap_or(u32::MAX),
            });
        }
        Ok(splitter)
    }

    /// Like [`Splitter::new`] for TCP whose segments are too large: they are cut smaller than the
    /// hosts agreed on, and for the hosts it is as if the sender had done so.
    ///
    /// Returns `None` for a packet other than TCP, and for segments that may not be cut: those that
    /// open or reset a connection, urgent data, segments that an option authenticates (RFC 2385,
    /// RFC 5925), a packet with a wrong checksum, and one that routers may fragment, since not
    /// enough identifications are reserved for it. Also returns `None` if segments would have less
    /// than [`LEAST_SEGMENT`] octets of data.
    pub(crate) fn recut(hdr: VirtioNetHdr, packet: &'a [u8], max_packet: usize) -> Option<Self> {
        let mut splitter = Self::new(hdr, packet, usize::MAX).ok()?;
        let inner = splitter.inner;
        let tcp = inner.tcp().filter(|tcp| inner.dont_fragment() && may_be_cut(tcp))?;
        let headers = inner.transport_start() + tcp.header_len();
        let each = max_packet.checked_sub(headers).filter(|each| *each >= LEAST_SEGMENT)?;
        match splitter.kind {
            Kind::Tcp => {}
            _ if inner.is_fragment() || inner.is_source_routed() => return None,
            // A new sum must not hide that the old one was wrong.
            Kind::Whole if inner.checksum_of(inner.transport()) == 0 => {}
            Kind::Complete { start, offset }
                if start == inner.transport_start() && offset == TcpHeader::CHECKSUM_AT => {}
            _ => return None,
        }
        splitter.kind = Kind::Tcp;
        splitter.headers = headers;
        splitter.payload_each = match splitter.payload_each {
            0 => each,
            old => old.min(each),
        };
        let payload = inner.packet().len() - headers;
        splitter.count = payload.div_ceil(splitter.payload_each).max(1);
        Some(splitter)
    }

    fn whole(hdr: VirtioNetHdr, inner: Inner<'a>) -> Result<Self, SplitError> {
        let len = inner.packet().len();
        let kind = if !hdr.needs_csum() {
            Kind::Whole
        } else {
            let (start, offset) = (usize::from(hdr.csum_start), usize::from(hdr.csum_offset));
            let least = match inner.version() {
                Version::V4 => inner.transport_start(),
                Version::V6 => Ipv6Header::LEN,
            };
            if start < least || start + offset + 2 > len {
                return Err(SplitError::ChecksumRange {
                    start: hdr.csum_start,
                    offset: hdr.csum_offset,
                });
            }
            Kind::Complete { start, offset }
        };
        Ok(Self {
            inner,
            kind,
            headers: len,
            payload_each: 0,
            count: 1,
            next: 0,
            elided: None,
        })
    }

    fn gso(hdr: VirtioNetHdr, inner: Inner<'a>, kind: Kind) -> Result<Self, SplitError> {
        let payload_each = usize::from(hdr.gso_size);
        if payload_each == 0 {
            return Err(SplitError::ZeroSegment);
        }
        if inner.is_fragment() {
            return Err(SplitError::Fragment);
        }
        if inner.is_source_routed() {
            return Err(SplitError::SourceRouted);
        }
        let expected = if matches!(kind, Kind::Tcp) {
            PROTOCOL_TCP
        } else {
            PROTOCOL_UDP
        };
        let protocol = inner.protocol();
        if protocol != expected {
            return Err(SplitError::Protocol { protocol, expected });
        }
        let transport_header = match kind {
            Kind::Tcp => inner.tcp().map(|tcp| tcp.header_len()),
            _ => (inner.transport().len() >= UdpHeader::LEN).then_some(UdpHeader::LEN),
        };
        let headers = inner.transport_start() + transport_header.ok_or(SplitError::TransportHeader)?;
        let payload = inner.packet().len() - headers;
        let count = payload.div_ceil(payload_each).max(1);
        Ok(Self {
            inner,
            kind,
            headers,
            payload_each,
            count,
            next: 0,
            elided: None,
        })
    }

    /// Leaves the checksum out of every packet from now on, if that is allowed: its field is zero,
    /// and the packet has to be described as
    /// [`Checksum::Partial`](crate::checksum::Checksum::Partial). A sum that is already complete
    /// stays.
    pub fn elide_checksums(&mut self) {
        let field = elidable(&self.inner);
        self.elided = match self.kind {
            Kind::Whole => None,
            Kind::Complete { start, offset } => {
                field.filter(|at| start == self.inner.transport_start() && *at == start + offset)
            }
            Kind::Tcp | Kind::Udp => field,
        };
    }

    /// Clears the checksum field of a packet or of its front after a change, if checksums are left
    /// out, and returns whether they are.
    pub(crate) fn leave_checksum(&self, packet: &mut [u8]) -> bool {
        if let Some(at) = self.elided {
            put_be16(packet, at, 0);
        }
        self.elided.is_some()
    }

    /// Returns the number of packets of this read; at least one.
    pub fn segment_count(&self) -> usize {
        self.count
    }

    /// Returns the length in octets, IP header included, of every packet but the last, which is no
    /// longer than that.
    pub fn segment_len(&self) -> usize {
        self.inner.packet().len().min(self.headers + self.payload_each)
    }

    /// Writes the next packet to the front of `out` and returns its length in octets.
    ///
    /// Returns `None` after the last packet, and, without progress, if `out` is shorter than the
    /// packet. An `out` of [`segment_len`](Self::segment_len) octets always suffices.
    pub fn next_into(&mut self, out: &mut [u8]) -> Option<usize> {
        let (headers, payload) = self.next_parts(self.headers)?;
        let len = headers.len() + payload.len();
        let out = out.get_mut(..len)?;
        let (front, rest) = out.split_at_mut(headers.len());
        front.copy_from_slice(headers);
        rest.copy_from_slice(payload);
        self.finish_headers(out, len);
        if self.elided.is_none() {
            self.finish_checksum(out);
        }
        self.next += 1;
        Some(len)
    }

    /// Writes to the front of `out` the part of the next packet that differs from the super-packet,
    /// which includes its headers. Returns the length of that part in octets, and the rest of the
    /// packet, in the buffer of the read. The rest is empty if a checksum has to be computed, see
    /// [`elide_checksums`](Self::elide_checksums).
    ///
    /// Returns `None` after the last packet, and, without progress, if `out` is too short.
    pub fn next_front(&mut self, out: &mut [u8]) -> Option<(usize, &'a [u8])> {
        let front = match self.kind {
            Kind::Whole => self.inner.transport_start() + TcpHeader::MIN_LEN,
            _ if self.elided.is_none() => return Some((self.next_into(out)?, &[])),
            Kind::Complete { .. } => self.inner.transport_start() + TcpHeader::MIN_LEN,
            Kind::Tcp | Kind::Udp => self.headers,
        };
        let (headers, payload) = self.next_parts(front)?;
        let front = out.get_mut(..headers.len())?;
        front.copy_from_slice(headers);
        self.finish_headers(front, headers.len() + payload.len());
        self.next += 1;
        Some((headers.len(), payload))
    }

    /// Returns the headers and the payload of the next packet, as they were read. The headers have
    /// `front` octets, if the packet is as long.
    #[inline]
    fn next_parts(&self, front: usize) -> Option<(&'a [u8], &'a [u8])> {
        if self.next == self.count {
            return None;
        }
        let packet = self.inner.packet();
        let headers = &packet[..front.min(packet.len())];
        if matches!(self.kind, Kind::Whole | Kind::Complete { .. }) {
            return Some((headers, &packet[headers.len()..]));
        }
        let from = (self.headers + self.next * self.payload_each).min(packet.len());
        Some((headers, &packet[from..packet.len().min(from + self.payload_each)]))
    }

    /// Makes the headers in `front` those of the next packet, of `len` octets. A checksum that is
    /// computed here is then zero.
    #[inline]
    fn finish_headers(&self, front: &mut [u8], len: usize) {
        match self.kind {
            Kind::Whole | Kind::Complete { .. } => {}
            Kind::Tcp => self.finish_tcp(self.finish_ip(front, len)),
            Kind::Udp => {
                let udp = self.finish_ip(front, len);
                put_be16(udp, UdpHeader::LENGTH_AT, (len - self.inner.transport_start()) as u16);
                put_be16(udp, UdpHeader::CHECKSUM_AT, 0);
            }
        }
    }

    fn finish_tcp(&self, tcp: &mut [u8]) {
        let skipped = (self.next * self.payload_each) as u32;
        if let Some(field) = tcp[TcpHeader::SEQ_AT..].first_chunk_mut::<4>() {
            *field = u32::from_be_bytes(*field).wrapping_add(skipped).to_be_bytes();
        }
        if self.next > 0 {
            tcp[TcpHeader::FLAGS_AT] &= !TcpHeader::CWR;
        }
        if self.next + 1 < self.count {
            tcp[TcpHeader::FLAGS_AT] &= !(TcpHeader::PSH | TcpHeader::FIN);
        }
        put_be16(tcp, TcpHeader::CHECKSUM_AT, 0);
    }

    /// Rewrites the IP header of a packet of `len` octets, and returns the transport header and
    /// what follows.
    #[inline]
    fn finish_ip<'o>(&self, front: &'o mut [u8], len: usize) -> &'o mut [u8] {
        // Lengths are at most the super-packet's own, which comes from a 16-bit field.
        let (header, transport) = front.split_at_mut(self.inner.transport_start());
        if self.inner.version() == Version::V6 {
            put_be16(header, Ipv6Header::PAYLOAD_LEN_AT, (len - Ipv6Header::LEN) as u16);
            return transport;
        }
        put_be16(header, Ipv4Header::TOTAL_LEN_AT, len as u16);
        if let Some(field) = header[Ipv4Header::ID_AT..].first_chunk_mut::<2>() {
            *field = u16::from_be_bytes(*field).wrapping_add(self.next as u16).to_be_bytes();
        }
        finish_header_v4(header);
        transport
    }

    /// Computes the checksum of a packet that is otherwise complete.
    #[inline]
    fn finish_checksum(&self, packet: &mut [u8]) {
        let transport = self.inner.transport_start();
        match self.kind {
            Kind::Whole => {}
            Kind::Complete { start, offset } => complete(&mut packet[start..], offset),
            Kind::Tcp => {
                let tcp = &mut packet[transport..];
                put_be16(tcp, TcpHeader::CHECKSUM_AT, self.inner.checksum_of(tcp));
            }
            Kind::Udp => {
                let udp = &mut packet[transport..];
                put_be16(udp, UdpHeader::CHECKSUM_AT, never_zero(self.inner.checksum_of(udp)));
            }
        }
    }

    /// Returns whether the packets are IPv6.
    pub(crate) fn is_ipv6(&self) -> bool {
        self.inner.version() == Version::V6
    }

    /// Returns whether the packets are IPv4 with options.
    pub(crate) fn has_ipv4_options(&self) -> bool {
        !self.is_ipv6() && self.inner.packet().first().is_some_and(|first| first & 0x0f > 5)
    }

    /// Returns whether the sender allows routers to fragment the packets.
    pub(crate) fn may_fragment(&self) -> bool {
        !self.inner.dont_fragment()
    }
}

/// Returns whether the data of this segment may go in several segments.
fn may_be_cut(tcp: &TcpHeader<'_>) -> bool {
    const MD5_SIGNATURE: u8 = 19;
    const AUTHENTICATION: u8 = 29;
    let sealed = |option: TcpOption<'_>| matches!(option.kind, MD5_SIGNATURE | AUTHENTICATION);
    tcp.flags() & (TcpHeader::SYN | TcpHeader::RST | TcpHeader::URG) == 0 && !tcp.options().any(sealed)
}

/// The field at `offset` holds the sum of the pseudo-header, so the complement of the sum over
/// everything is the checksum.
fn complete(covered: &mut [u8], offset: usize) {
    let checksum = checksum_finish(checksum_add(0, covered));
    put_be16(covered, offset, never_zero(checksum));
}

/// Zero means "no checksum" in UDP and is forbidden there over IPv6 (RFC 8200 section 8.1). For all
/// other protocols both forms verify alike.
fn never_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

#[cfg(test)]
mod tests;
