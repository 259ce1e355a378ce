//! The flow that a frame belongs to, read from its headers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use weft_os::tap::ETHERNET_HEADER_LEN;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

const HOP_BY_HOP: u8 = 0;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const ICMPV6: u8 = 58;
const DESTINATION_OPTIONS: u8 = 60;

/// Type, code, checksum and four bytes that depend on the type.
const ICMP_HEADER_LEN: usize = 8;
/// Extension headers that are read; a packet with more has no flow.
const MAX_EXTENSIONS: usize = 8;

/// What a frame contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// No IP, or a message by which IPv6 neighbours find each other.
    Other,
    /// An IP packet.
    Packet {
        ipv6: bool,
        /// `None` if the headers are not whole.
        transport: Option<Transport>,
        /// `None` if it shows no flow: a later fragment, an unknown message, cut headers.
        flow: Option<Flow>,
    },
}

/// The protocols that a firewall distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Transport {
    Udp,
    Tcp,
    /// ICMP echo of both IP versions: the identifier is the port of both ends.
    Echo,
    /// Another one, without ports: 0 at both ends.
    Other(u8),
}

/// The flow of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flow {
    pub(super) transport: Transport,
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    /// Whether the packet may begin a flow, and whether it may be an answer: an echo is one or the
    /// other.
    pub(super) opens: bool,
    pub(super) answers: bool,
    /// Whether it is an ICMP error. The flow is that of the quoted packet.
    pub(super) is_error: bool,
}

/// An IP header, as far as it matters here, and what is behind it.
struct Header<'a> {
    ipv6: bool,
    protocol: u8,
    source: IpAddr,
    destination: IpAddr,
    /// Whether it is a fragment other than the first.
    is_later_fragment: bool,
    payload: &'a [u8],
}

/// Reads a frame, of which only the headers have to be there.
pub(super) fn read(frame: &[u8]) -> Content {
    let Some((ethernet, packet)) = frame.split_at_checked(ETHERNET_HEADER_LEN) else {
        return Content::Other;
    };
    let ipv6 = match word(ethernet, 12) {
        Some(IPV4) => false,
        Some(IPV6) => true,
        _ => return Content::Other,
    };
    let Some(header) = header(packet).filter(|header| header.ipv6 == ipv6) else {
        return Content::Packet {
            ipv6,
            transport: None,
            flow: None,
        };
    };
    if header.protocol == ICMPV6 && is_neighbour_message(&header) {
        return Content::Other;
    }
    Content::Packet {
        ipv6,
        transport: Some(transport(&header)),
        flow: flow(&header),
    }
}

fn header(packet: &[u8]) -> Option<Header<'_>> {
    match packet.first()? >> 4 {
        4 => header_v4(packet),
        6 => header_v6(packet),
        _ => None,
    }
}

fn header_v4(packet: &[u8]) -> Option<Header<'_>> {
    let len = usize::from(packet.first()? & 0x0f) * 4;
    let address = |at: usize| Some(IpAddr::V4(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?)));
    Some(Header {
        ipv6: false,
        protocol: *packet.get(9)?,
        source: address(12)?,
        destination: address(16)?,
        is_later_fragment: word(packet, 6)? & 0x1fff != 0,
        payload: packet.get(len.max(20)..)?,
    })
}

fn header_v6(packet: &[u8]) -> Option<Header<'_>> {
    let address = |at: usize| Some(IpAddr::V6(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?)));
    let mut header = Header {
        ipv6: true,
        protocol: *packet.get(6)?,
        source: address(8)?,
        destination: address(24)?,
        is_later_fragment: false,
        payload: packet.get(40..)?,
    };
    for _ in 0..MAX_EXTENSIONS {
        let len = match header.protocol {
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => 8 * (usize::from(*header.payload.get(1)?) + 1),
            FRAGMENT => {
                header.is_later_fragment = word(header.payload, 2)? & 0xfff8 != 0;
                8
            }
            _ => return Some(header),
        };
        header.protocol = *header.payload.first()?;
        header.payload = header.payload.get(len..)?;
        if header.is_later_fragment {
            return Some(header);
        }
    }
    None
}

fn transport(header: &Header<'_>) -> Transport {
    match (header.protocol, header.ipv6) {
        (UDP, _) => Transport::Udp,
        (TCP, _) => Transport::Tcp,
        (ICMP, false) | (ICMPV6, true) => Transport::Echo,
        (other, _) => Transport::Other(other),
    }
}

/// Router and neighbour discovery with redirects (RFC 4861, section 4), and multicast listeners
/// (RFC 2710, RFC 3810).
fn is_neighbour_message(header: &Header<'_>) -> bool {
    matches!(header.payload.first(), Some(130..=137 | 143))
}

fn flow(header: &Header<'_>) -> Option<Flow> {
    match quoted(header) {
        Some(quoted) => Some(Flow {
            is_error: true,
            ..plain(&self::header(quoted)?)?
        }),
        None => plain(header),
    }
}

/// The start of the packet that an ICMP error is about.
fn quoted<'a>(header: &Header<'a>) -> Option<&'a [u8]> {
    let is_error = match (transport(header), header.ipv6, header.payload.first()?) {
        // RFC 792: unreachable, time exceeded, parameter problem.
        (Transport::Echo, false, kind) => matches!(kind, 3 | 11 | 12),
        // RFC 4443, section 2.1.
        (Transport::Echo, true, kind) => *kind < 128,
        _ => false,
    };
    let quoted = header.payload.get(ICMP_HEADER_LEN..)?;
    (is_error && !header.is_later_fragment).then_some(quoted)
}

/// The flow of a packet other than an ICMP error.
fn plain(header: &Header<'_>) -> Option<Flow> {
    if header.is_later_fragment {
        return None;
    }
    let transport = transport(header);
    let (ports, [opens, answers]) = match transport {
        Transport::Udp | Transport::Tcp => ([word(header.payload, 0)?, word(header.payload, 2)?], [true, true]),
        Transport::Other(_) => ([0, 0], [true, true]),
        Transport::Echo => {
            let identifier = word(header.payload, 4)?;
            let roles = match (header.ipv6, header.payload.first()?) {
                (false, 8) | (true, 128) => [true, false],
                (false, 0) | (true, 129) => [false, true],
                _ => return None,
            };
            ([identifier; 2], roles)
        }
    };
    Some(Flow {
        transport,
        source: SocketAddr::new(header.source, ports[0]),
        destination: SocketAddr::new(header.destination, ports[1]),
        opens,
        answers,
        is_error: false,
    })
}

/// The 16 bits at `at`, big endian.
fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}
