//! IPv4 packets as a translator sees them: their endpoints, and changing them in place.
//!
//! Checksums are not verified but updated (RFC 1624, equation 3), so a wrong one stays wrong and
//! the receiver detects it.

use std::net::{Ipv4Addr, SocketAddrV4};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;

const ICMP_ECHO_REPLY: u8 = 0;
const ICMP_UNREACHABLE: u8 = 3;
const ICMP_ECHO_REQUEST: u8 = 8;
const ICMP_TIME_EXCEEDED: u8 = 11;
const ICMP_PARAMETER_PROBLEM: u8 = 12;
/// Type, code, checksum and four bytes that depend on the type.
const ICMP_HEADER_LEN: usize = 8;

const TTL: usize = 8;
const CHECKSUM: usize = 10;
const SOURCE: usize = 12;
const DESTINATION: usize = 16;

/// The protocols that a translator distinguishes, each with ports of its own. Echo is ICMP's, with
/// its identifier as the port of the inner end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// ICMP echo request and reply.
    Echo,
}

/// An end of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The source.
    Source,
    /// The destination.
    Destination,
}

/// Why a packet cannot be translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// Not a whole IPv4 packet with a whole transport header.
    Malformed,
    /// A fragment: only the first has ports, and fragments are not reassembled.
    Fragment,
    /// A protocol without ports, or an ICMP message that is neither echo nor an error.
    Unsupported,
}

/// A checked IPv4 packet: its lengths are valid and it is not a fragment.
#[derive(Debug)]
pub struct Packet<'a> {
    bytes: &'a mut [u8],
    header_len: usize,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Flow(Protocol),
    /// An ICMP error, which quotes the start of a packet of this protocol.
    Error(Protocol),
}

impl<'a> Packet<'a> {
    /// Checks the headers. The view excludes bytes behind the packet (the padding of a short
    /// Ethernet frame).
    ///
    /// # Errors
    /// [`Unfit`].
    pub fn new(bytes: &'a mut [u8]) -> Result<Self, Unfit> {
        let len = usize::from(word(bytes, 2).ok_or(Unfit::Malformed)?);
        let bytes = bytes.get_mut(..len).ok_or(Unfit::Malformed)?;
        let (header_len, protocol) = header(bytes)?;
        let payload = bytes.get(header_len..).ok_or(Unfit::Malformed)?;
        let kind = match (protocol, payload.first()) {
            (ICMP, Some(&ICMP_UNREACHABLE | &ICMP_TIME_EXCEEDED | &ICMP_PARAMETER_PROBLEM)) => {
                let quoted = payload.get(ICMP_HEADER_LEN..).ok_or(Unfit::Malformed)?;
                let (quoted_len, protocol) = header(quoted)?;
                let start = quoted.get(quoted_len..).ok_or(Unfit::Malformed)?;
                Kind::Error(flow_protocol(protocol, start, 8)?)
            }
            _ => Kind::Flow(flow_protocol(protocol, payload, minimum(protocol))?),
        };
        Ok(Self {
            bytes,
            header_len,
            kind,
        })
    }

    /// The protocol that the ports belong to; for an ICMP error that of the quoted packet.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        match self.kind {
            Kind::Flow(protocol) | Kind::Error(protocol) => protocol,
        }
    }

    /// Whether the packet is an ICMP error. Its endpoints are those of the quoted packet.
    #[must_use]
    pub fn is_error(&self) -> bool {
        matches!(self.kind, Kind::Error(_))
    }

    /// The source or destination endpoint. `inside` names the end that is inside: an echo has its
    /// identifier as the port of that end, and the port 0 at the other.
    #[must_use]
    pub fn end(&self, end: End, inside: End) -> SocketAddrV4 {
        let flow = self.flow_at();
        let bytes = self.bytes.get(flow..).unwrap_or_default();
        let port = match self.port_at(end, inside) {
            Some(at) => word(self.bytes, at).unwrap_or(0),
            None => 0,
        };
        SocketAddrV4::new(address(bytes, end), port)
    }

    /// Replaces the address and port of an end, in the packet or in the quoted one, and updates the
    /// checksums.
    pub fn set_end(&mut self, end: End, inside: End, to: SocketAddrV4) {
        let flow = self.flow_at();
        let (old, new) = (
            address(self.bytes.get(flow..).unwrap_or_default(), end).octets(),
            to.ip().octets(),
        );
        let sum = self.transport_checksum_at();
        let field = flow + address_at(end);
        for (at, (old, new)) in [(0, (&old[..2], &new[..2])), (2, (&old[2..], &new[2..]))] {
            let (old, new) = (word(old, 0).unwrap_or(0), word(new, 0).unwrap_or(0));
            put(self.bytes, field + at, new);
            update(self.bytes, flow + CHECKSUM, old, new);
            // The checksums of TCP and UDP include the addresses, that of ICMP does not.
            if let Some(sum) = sum.filter(|_| self.protocol() != Protocol::Echo) {
                self.update_transport(sum, old, new);
            }
        }
        if let Some(at) = self.port_at(end, inside) {
            let old = word(self.bytes, at).unwrap_or(0);
            put(self.bytes, at, to.port());
            if let Some(sum) = sum {
                self.update_transport(sum, old, to.port());
            }
        }
        self.finish_error();
    }

    /// Replaces the address of an end of the packet itself, which must be an ICMP error: no other
    /// checksum includes its header.
    pub fn set_error_address(&mut self, end: End, to: Ipv4Addr) {
        let old = address(self.bytes, end).octets();
        let new = to.octets();
        for at in [0, 2] {
            let (old, new) = (word(&old, at).unwrap_or(0), word(&new, at).unwrap_or(0));
            put(self.bytes, address_at(end) + at, new);
            update(self.bytes, CHECKSUM, old, new);
        }
    }

    /// The addresses in the packet's own header.
    #[must_use]
    pub fn address(&self, end: End) -> Ipv4Addr {
        address(self.bytes, end)
    }

    /// Decrements the time to live, as a router does; false if it has expired.
    pub fn hop(&mut self) -> bool {
        let old = word(self.bytes, TTL).unwrap_or(0);
        if old >> 8 <= 1 {
            return false;
        }
        put(self.bytes, TTL, old - 0x100);
        update(self.bytes, CHECKSUM, old, old - 0x100);
        true
    }

    /// The packet.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// Offset of the header whose ends count: the packet's own, or the quoted one.
    fn flow_at(&self) -> usize {
        match self.kind {
            Kind::Flow(_) => 0,
            Kind::Error(_) => self.header_len + ICMP_HEADER_LEN,
        }
    }

    fn transport_at(&self) -> usize {
        let flow = self.flow_at();
        flow + usize::from(self.bytes.get(flow).map_or(0, |first| first & 0x0f)) * 4
    }

    fn port_at(&self, end: End, inside: End) -> Option<usize> {
        let transport = self.transport_at();
        match (self.protocol(), end) {
            (Protocol::Echo, end) => (end == inside).then_some(transport + 4),
            (_, End::Source) => Some(transport),
            (_, End::Destination) => Some(transport + 2),
        }
    }

    /// Returns `None` if the packet, or the quoted part of it, has no checksum.
    fn transport_checksum_at(&self) -> Option<usize> {
        let offset = match self.protocol() {
            Protocol::Tcp => 16,
            Protocol::Udp => 6,
            Protocol::Echo => 2,
        };
        let at = self.transport_at() + offset;
        let sum = word(self.bytes, at)?;
        // RFC 768: the sender computed none.
        (self.protocol() != Protocol::Udp || sum != 0).then_some(at)
    }

    fn update_transport(&mut self, at: usize, old: u16, new: u16) {
        update(self.bytes, at, old, new);
        if self.protocol() == Protocol::Udp && word(self.bytes, at) == Some(0) {
            put(self.bytes, at, 0xffff);
        }
    }

    /// The checksum of an ICMP error includes everything that it quotes.
    fn finish_error(&mut self) {
        if self.is_error() {
            let at = self.header_len + 2;
            put(self.bytes, at, 0);
            let sum = checksum(self.bytes.get(self.header_len..).unwrap_or_default());
            put(self.bytes, at, sum);
        }
    }
}

/// The Internet checksum (RFC 1071) of `bytes`, in which its own field must be 0.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2);
    let words = words.map(|pair| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0)));
    !fold(words.sum())
}

/// Header length and protocol of an IPv4 packet that is not a fragment, and that may be incomplete.
fn header(bytes: &[u8]) -> Result<(usize, u8), Unfit> {
    let first = *bytes.first().ok_or(Unfit::Malformed)?;
    let header_len = usize::from(first & 0x0f) * 4;
    if first >> 4 != 4 || header_len < 20 || bytes.len() < header_len {
        return Err(Unfit::Malformed);
    }
    // More fragments, or an offset.
    if word(bytes, 6).unwrap_or(0) & 0x3fff != 0 {
        return Err(Unfit::Fragment);
    }
    Ok((header_len, bytes.get(9).copied().unwrap_or(0)))
}

fn minimum(protocol: u8) -> usize {
    if protocol == TCP { 20 } else { 8 }
}

fn flow_protocol(protocol: u8, payload: &[u8], minimum: usize) -> Result<Protocol, Unfit> {
    let found = match (protocol, payload.first()) {
        (UDP, _) => Protocol::Udp,
        (TCP, _) => Protocol::Tcp,
        (ICMP, None) => return Err(Unfit::Malformed),
        (ICMP, Some(&ICMP_ECHO_REQUEST | &ICMP_ECHO_REPLY)) => Protocol::Echo,
        _ => return Err(Unfit::Unsupported),
    };
    (payload.len() >= minimum).then_some(found).ok_or(Unfit::Malformed)
}

fn address_at(end: End) -> usize {
    match end {
        End::Source => SOURCE,
        End::Destination => DESTINATION,
    }
}

fn address(header: &[u8], end: End) -> Ipv4Addr {
    let at = address_at(end);
    let bytes = header.get(at..).and_then(|rest| rest.first_chunk::<4>());
    bytes.map_or(Ipv4Addr::UNSPECIFIED, |&octets| octets.into())
}

/// The 16 bits at `at`, big endian.
fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let rest = bytes.get(at..)?;
    rest.first_chunk::<2>().map(|&pair| u16::from_be_bytes(pair))
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(slot) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        *slot = value.to_be_bytes();
    }
}

/// Updates the checksum at `at` after one word of its data changed from `old` to `new`.
fn update(bytes: &mut [u8], at: usize, old: u16, new: u16) {
    if let Some(sum) = word(bytes, at) {
        put(bytes, at, !fold(u64::from(!sum) + u64::from(!old) + u64::from(new)));
    }
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
