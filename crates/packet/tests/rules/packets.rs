//! Packets of one flow, in all the shapes that hide or show its ports. Checksums are missing, because
//! the packet path does not look at them here.

use std::net::IpAddr;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// The first packet of a flow, as one end sends it.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) content: Content,
    pub(crate) shape: Shape,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// A protocol, and the ports if it has some.
    Ports(u8, (u16, u16)),
    /// An echo request with this identifier.
    Ping(u16),
    /// The answer to it.
    Pong(u16),
    /// An ICMP error about this packet.
    About(Box<Probe>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Plain,
    /// A hop-by-hop header and destination options.
    Extensions,
    /// A routing header with this number of segments left.
    Routing(u8),
    /// A loose source route of IPv4.
    SourceRoute,
    /// A first fragment and a later one.
    Fragments,
    /// The same in the other order.
    Reversed,
    /// A later fragment alone.
    Later,
    /// A first fragment with two bytes of the ports.
    Tiny,
    /// A fragment that is the whole packet (RFC 6946).
    Atomic,
}

impl Probe {
    pub(crate) fn shaped(self, shape: Shape) -> Self {
        Self { shape, ..self }
    }

    /// The packet that answers, if one does.
    pub(crate) fn reply(&self) -> Option<Self> {
        let content = match self.content {
            Content::Ports(protocol, (source, dest)) => Content::Ports(protocol, (dest, source)),
            Content::Ping(ident) => Content::Pong(ident),
            Content::Pong(ident) => Content::Ping(ident),
            Content::About(_) => return None,
        };
        let (from, to, shape) = (self.to, self.from, self.shape);
        Some(Self {
            from,
            to,
            content,
            shape,
        })
    }

    /// The datagrams, of `len` bytes each, or as short as possible if that is 0.
    pub(crate) fn datagrams(&self, len: usize) -> Vec<Vec<u8>> {
        let first = |more| self.datagram(len, (0, more));
        let later = || self.datagram(len, (64, false));
        match self.shape {
            Shape::Fragments => vec![first(true), later()],
            Shape::Reversed => vec![later(), first(true)],
            Shape::Later => vec![later()],
            Shape::Tiny => vec![first(true)],
            _ => vec![first(false)],
        }
    }

    fn is_fragment(&self) -> bool {
        matches!(
            self.shape,
            Shape::Fragments | Shape::Reversed | Shape::Later | Shape::Tiny | Shape::Atomic
        )
    }

    /// One packet. `fragment`: its offset in units of 8 bytes, and whether others follow.
    fn datagram(&self, len: usize, (offset, more): (u16, bool)) -> Vec<u8> {
        let v4 = self.from.is_ipv4();
        let (protocol, mut transport) = self.content.bytes(v4);
        match self.shape {
            Shape::Tiny => transport.truncate(2),
            _ if offset > 0 => transport = vec![0xee; 24],
            _ => {}
        }
        let (next, between) = self.headers(protocol, offset, more);
        let header = if v4 { 20 } else { 40 };
        transport.resize(transport.len().max(len.saturating_sub(header + between.len())), 0xdd);
        let behind = [between, transport].concat();
        if v4 {
            return self.header_v4(protocol, behind, offset | u16::from(more) << 13);
        }
        let (IpAddr::V6(from), IpAddr::V6(to)) = (self.from, self.to) else {
            panic!("{self:?}")
        };
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, next, 64];
        packet[4..6].copy_from_slice(&(behind.len() as u16).to_be_bytes());
        packet.extend(from.octets());
        packet.extend(to.octets());
        packet.extend(behind);
        packet
    }

    /// The first next header of an IPv6 packet, and the bytes between the fixed header, of IPv4 too,
    /// and the transport.
    fn headers(&self, protocol: u8, offset: u16, more: bool) -> (u8, Vec<u8>) {
        let [high, low] = (offset << 3 | u16::from(more)).to_be_bytes();
        match self.shape {
            Shape::Extensions => {
                let first = [DESTINATION_OPTIONS, 0, 1, 4, 0, 0, 0, 0];
                (HOP_BY_HOP, [first, [protocol, 0, 1, 4, 0, 0, 0, 0]].concat())
            }
            Shape::Routing(left) => (ROUTING, [&[protocol, 2, 0, left, 0, 0, 0, 0][..], &[0xfd; 16]].concat()),
            Shape::SourceRoute => (protocol, vec![131, 7, 4, 10, 8, 0, 99, 0]),
            _ if self.is_fragment() && self.from.is_ipv6() => {
                (FRAGMENT, vec![protocol, 0, high, low, 0, 0, 0x12, 0x34])
            }
            _ => (protocol, Vec::new()),
        }
    }

    fn header_v4(&self, protocol: u8, behind: Vec<u8>, fragment: u16) -> Vec<u8> {
        let (IpAddr::V4(from), IpAddr::V4(to)) = (self.from, self.to) else {
            panic!("{self:?}")
        };
        let words = if self.shape == Shape::SourceRoute { 7 } else { 5 };
        let mut packet = vec![0x40 | words, 0, 0, 0, 0x12, 0x34, 0, 0, 64, protocol, 0, 0];
        packet[2..4].copy_from_slice(&(20 + behind.len() as u16).to_be_bytes());
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet.extend(from.octets());
        packet.extend(to.octets());
        packet.extend(behind);
        packet
    }
}

impl Content {
    /// The protocol, and what follows the IP header.
    fn bytes(&self, v4: bool) -> (u8, Vec<u8>) {
        let echo = |kind: [u8; 2], ident: u16| {
            let [a, b] = ident.to_be_bytes();
            let kind = if v4 { kind[0] } else { kind[1] };
            (if v4 { ICMP } else { ICMPV6 }, vec![kind, 0, 0, 0, a, b, 0, 1])
        };
        match self {
            Self::Ports(protocol, (source, dest)) => {
                let mut bytes = [source.to_be_bytes(), dest.to_be_bytes()].concat();
                // The data offset and ACK, if it is TCP.
                bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
                (*protocol, bytes)
            }
            Self::Ping(ident) => echo([8, 128], *ident),
            Self::Pong(ident) => echo([0, 129], *ident),
            Self::About(probe) => {
                // Unreachable, port: 3 and 3, or 1 and 4.
                let (protocol, kind) = if v4 { (ICMP, [3, 3]) } else { (ICMPV6, [1, 4]) };
                let quoted = probe.datagrams(0).remove(0);
                (protocol, [&kind[..], &[0; 6], &quoted].concat())
            }
        }
    }
}
