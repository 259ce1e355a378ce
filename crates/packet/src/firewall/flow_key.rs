//! The flow that a packet belongs to.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use weft_wire::ip::{Ipv4Header, Ipv6Header, PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP};

use crate::flow::FlowHasher;
use crate::inner::addresses;
use crate::inner::{Inner, Version};

/// The offset of the flags in a TCP header, in bytes (RFC 9293 section 3.1).
const FLAGS_AT: usize = 13;
/// The flags of a packet that ends its connection: FIN and RST.
pub(super) const ENDS: u8 = 5;
/// The flags of the first packet of a connection: SYN without ACK.
const SYN: u8 = 2;
const SYN_AND_ACK: u8 = 18;

const ECHO_REQUEST_V6: u8 = 128;
const ECHO_REPLY_V6: u8 = 129;
const ECHO_REQUEST_V4: u8 = 8;
const ECHO_REPLY_V4: u8 = 0;
/// ICMP header and the identifier of an echo in it.
const ICMP_LEN: usize = 8;

/// The way of a packet, as this node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From this host to a peer.
    Out = 0,
    /// From a peer.
    In = 1,
}

/// What a packet is to the firewall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packet {
    /// A packet of this flow.
    OfFlow(FlowKey),
    /// A fragment without the transport header, with the key of all fragments of its packet.
    Later(FlowKey),
    /// An ICMP error.
    Error(About),
}

/// The packet that an ICMP error is about, as far as the error quotes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct About {
    /// Its destination.
    pub(super) dest: Option<IpAddr>,
    /// Its flow.
    pub(super) flow: Option<FlowKey>,
}

/// A flow: both ends, the same whatever the direction of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FlowKey {
    /// Ports in host byte order. An echo has its identifier at the end that sends requests, and 0 at
    /// the other.
    remote_port: u16,
    local_port: u16,
    /// The address in IPv6, or an IPv4-mapped one.
    remote: u128,
    local: u128,
    protocol: u8,
    /// The key is that of the fragments of one packet, and the ports are its identification.
    fragments: bool,
}

impl FlowKey {
    /// A key that no packet has.
    pub(super) const NONE: Self = Self {
        remote_port: 0,
        local_port: 0,
        remote: 0,
        local: 0,
        protocol: 255,
        fragments: true,
    };

    /// The flow of a packet of the usual shape: a whole TCP or UDP packet without IP options or
    /// extension headers, that does not end its connection. `None` says nothing about a packet: a
    /// walk over its headers finds what it is.
    #[inline]
    pub(super) fn of_usual(packet: &[u8], direction: Direction) -> Option<Self> {
        match packet.first()? {
            0x60..=0x6f => {
                let (header, transport) = packet.split_first_chunk::<{ Ipv6Header::LEN }>()?;
                let (source, rest) = header[Ipv6Header::SRC_AT..].split_first_chunk()?;
                let ends = (u128::from_be_bytes(*source), u128::from_be_bytes(*rest.first_chunk()?));
                let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
                let protocol = header[Ipv6Header::NEXT_HEADER_AT];
                let ports = usual_ports(protocol, transport)?;
                (len == transport.len()).then(|| Self::between(ends, direction, ports, protocol))
            }
            0x45 => {
                let (header, transport) = packet.split_first_chunk::<{ Ipv4Header::MIN_LEN }>()?;
                let (source, rest) = header[Ipv4Header::SRC_AT..].split_first_chunk::<4>()?;
                let ends = (bits_v4(*source), bits_v4(*rest.first_chunk()?));
                let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
                let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
                let protocol = header[Ipv4Header::PROTOCOL_AT];
                let ports = usual_ports(protocol, transport)?;
                (len == packet.len() && !is_fragment).then(|| Self::between(ends, direction, ports, protocol))
            }
            _ => None,
        }
    }

    /// The key of all fragments of a packet, if this is its first one and others follow.
    pub(super) fn of_fragments(inner: &Inner<'_>, direction: Direction) -> Option<Self> {
        if !inner.is_fragment() || inner.is_later_fragment() {
            return None;
        }
        Some(Self::fragments(inner, direction))
    }

    fn fragments(inner: &Inner<'_>, direction: Direction) -> Self {
        let ident = inner.fragment_ident();
        Self {
            protocol: 0,
            fragments: true,
            ..Self::between(ends(inner), direction, ((ident >> 16) as u16, ident as u16), 0)
        }
    }

    /// The flow with these ends.
    pub(super) fn of_ends(protocol: u8, local: SocketAddr, remote: SocketAddr) -> Self {
        let bits = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        let ends = (bits(local.ip()), bits(remote.ip()));
        Self::between(ends, Direction::Out, (local.port(), remote.port()), protocol)
    }

    /// `ports`: those of source and destination.
    fn between((source, dest): (u128, u128), direction: Direction, ports: (u16, u16), protocol: u8) -> Self {
        let (local, remote, local_port, remote_port) = match direction {
            Direction::Out => (source, dest, ports.0, ports.1),
            Direction::In => (dest, source, ports.1, ports.0),
        };
        Self {
            remote_port,
            local_port,
            remote,
            local,
            protocol,
            fragments: false,
        }
    }

    /// A hash. Without the key its collisions cannot be found.
    #[inline]
    pub(super) fn hash(&self, key: u64) -> u64 {
        let ports = u64::from(self.remote_port) << 32 | u64::from(self.local_port) << 16;
        let rest = ports | u64::from(self.protocol) << 8 | u64::from(self.fragments);
        let words = [
            (self.remote >> 64) as u64,
            self.remote as u64,
            (self.local >> 64) as u64,
            self.local as u64,
            rest,
        ];
        FlowHasher::new(key).hash_words(words)
    }

    /// A hash of what differs between most flows.
    #[inline]
    pub(super) fn short_hash(&self, key: u64) -> u64 {
        let ports = u64::from(self.remote_port) << 16 | u64::from(self.local_port);
        FlowHasher::new(key).hash_words([self.remote as u64, self.local as u64 ^ ports << 32])
    }

    /// The protocol, for the time that a flow is kept.
    pub(super) const fn protocol(&self) -> u8 {
        self.protocol
    }
}

impl Packet {
    /// What a packet is, on its way in this direction.
    #[inline]
    pub(super) fn of(inner: &Inner<'_>, direction: Direction) -> Self {
        if inner.is_later_fragment() {
            return Self::Later(FlowKey::fragments(inner, direction));
        }
        let protocol = inner.protocol();
        let ports = match protocol {
            PROTOCOL_ICMP | PROTOCOL_ICMPV6 => match icmp(protocol, inner.transport()) {
                Icmp::Ports(ports) => ports,
                Icmp::Error(quoted) => return Self::Error(About::read(quoted, direction)),
            },
            _ => inner.ports().map_or((0, 0), ports),
        };
        Self::OfFlow(FlowKey::between(ends(inner), direction, ports, protocol))
    }
}

/// An ICMP message.
enum Icmp<'a> {
    /// One that has a flow, with what stands for ports.
    Ports((u16, u16)),
    /// An error about this packet.
    Error(&'a [u8]),
}

fn icmp(protocol: u8, message: &[u8]) -> Icmp<'_> {
    let Some((header, rest)) = message.split_first_chunk::<ICMP_LEN>() else {
        return Icmp::Ports((0, 0));
    };
    let ident = u16::from_be_bytes([header[4], header[5]]);
    match (protocol, header[0]) {
        (PROTOCOL_ICMPV6, ECHO_REQUEST_V6) | (PROTOCOL_ICMP, ECHO_REQUEST_V4) => Icmp::Ports((ident, 0)),
        (PROTOCOL_ICMPV6, ECHO_REPLY_V6) | (PROTOCOL_ICMP, ECHO_REPLY_V4) => Icmp::Ports((0, ident)),
        // RFC 4443 section 2.1; RFC 792: unreachable, source quench, time exceeded, bad parameter.
        (PROTOCOL_ICMPV6, 0..ECHO_REQUEST_V6) | (PROTOCOL_ICMP, 3 | 4 | 11 | 12) => Icmp::Error(rest),
        (_, kind) => Icmp::Ports((u16::from(kind), u16::from(kind))),
    }
}

impl About {
    /// Reads what an error quotes: its receiver sent that packet.
    fn read(quoted: &[u8], direction: Direction) -> Self {
        let sent = match direction {
            Direction::In => Direction::Out,
            Direction::Out => Direction::In,
        };
        let inner = Inner::parse_quoted(quoted);
        Self {
            dest: inner.and_then(|inner| Some(addresses(inner.packet())?.1)),
            flow: inner.and_then(|inner| flow_of_quoted(&inner, sent)),
        }
    }
}

fn flow_of_quoted(inner: &Inner<'_>, direction: Direction) -> Option<FlowKey> {
    if inner.is_later_fragment() {
        return None;
    }
    let protocol = inner.protocol();
    let ports = match protocol {
        PROTOCOL_TCP | PROTOCOL_UDP => inner.ports().map_or((0, 0), ports),
        PROTOCOL_ICMP | PROTOCOL_ICMPV6 => match icmp(protocol, inner.transport()) {
            Icmp::Ports(ports) => ports,
            Icmp::Error(_) => return None,
        },
        _ => (0, 0),
    };
    Some(FlowKey::between(ends(inner), direction, ports, protocol))
}

fn ports(bytes: [u8; 4]) -> (u16, u16) {
    let [a, b, c, d] = bytes;
    (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
}

/// The ports of a TCP or UDP packet that does not end its connection.
#[inline]
fn usual_ports(protocol: u8, transport: &[u8]) -> Option<(u16, u16)> {
    let header = transport.first_chunk::<{ FLAGS_AT + 1 }>()?;
    let goes_on = match protocol {
        PROTOCOL_TCP => header[FLAGS_AT] & ENDS == 0,
        PROTOCOL_UDP => true,
        _ => false,
    };
    goes_on.then(|| ports([header[0], header[1], header[2], header[3]]))
}

/// The IPv4-mapped address.
#[inline]
fn bits_v4(address: [u8; 4]) -> u128 {
    Ipv4Addr::from(address).to_ipv6_mapped().to_bits()
}

/// Source and destination.
#[inline]
fn ends(inner: &Inner<'_>) -> (u128, u128) {
    let addresses = inner.addresses();
    match inner.version() {
        Version::V6 => match addresses.as_chunks::<16>().0 {
            [source, dest, ..] => (u128::from_be_bytes(*source), u128::from_be_bytes(*dest)),
            _ => (0, 0),
        },
        Version::V4 => match addresses.as_chunks::<4>().0 {
            [source, dest, ..] => (bits_v4(*source), bits_v4(*dest)),
            _ => (0, 0),
        },
    }
}

/// Whether a packet ends its TCP connection.
#[inline]
pub(super) fn ends_connection(inner: &Inner<'_>) -> bool {
    let flags = inner.transport().get(FLAGS_AT);
    inner.protocol() == PROTOCOL_TCP && !inner.is_later_fragment() && flags.is_some_and(|flags| flags & ENDS != 0)
}

/// Whether a packet can be the first one of its flow.
pub(super) fn begins_flow(inner: &Inner<'_>) -> bool {
    let flags = inner.transport().get(FLAGS_AT);
    inner.protocol() != PROTOCOL_TCP || flags.is_some_and(|flags| flags & SYN_AND_ACK == SYN)
}
