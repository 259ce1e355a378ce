//! Packets between the two nodes whose meaning is known.

use std::net::IpAddr;

use super::addresses;
use crate::input::Input;
use crate::model::{TCP, UDP};

const GRE: u8 = 47;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// The longest packet that frames of all kinds carry, in bytes.
const LONG: usize = 1_280;

/// A packet of one of the hosts.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    pub(super) content: Content,
    pub(super) shape: Shape,
    /// Its length at least, in bytes.
    len: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    Ports(u8, (u16, u16)),
    Ping(u16),
    Pong(u16),
    /// An ICMP error about this packet.
    About(Box<Probe>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Plain,
    Extensions,
    /// A source route or a routing header.
    Routed,
    /// The first fragment of the packet with this identification.
    First(u16),
    /// A later one.
    Later(u16),
}

/// A flow: addresses, protocol and ports, those of the first node in front.
pub(super) type Flow = ((IpAddr, u16), (IpAddr, u16), u8);

impl Probe {
    /// A packet from node `from`. Without `full`, its addresses are those of the nodes.
    pub(super) fn from(input: &mut Input<'_>, from: usize, full: bool) -> Self {
        let mut probe = Self::plain(input, from, full);
        if input.below(6) == 5 {
            let mut quoted = Self::plain(input, 1 - from, full);
            (quoted.from, quoted.to) = (probe.to, probe.from);
            quoted.len = 0;
            quoted.shape = Self::shape(input);
            probe.content = Content::About(Box::new(quoted));
        }
        probe.shape = Self::shape(input);
        probe
    }

    fn plain(input: &mut Input<'_>, from: usize, full: bool) -> Self {
        let choice = input.u8();
        let pick = |choice: u8| if full { usize::from(choice) % 5 } else { 0 };
        let source = addresses(from)[pick(choice & 15)];
        let dest = addresses(1 - from)[pick(choice >> 4)];
        let dest = match (source.is_ipv4(), dest.is_ipv4()) {
            (true, false) => addresses(1 - from)[1],
            (false, true) => addresses(1 - from)[0],
            _ => dest,
        };
        let kinds = input.u8();
        let ports = (u16::from(kinds >> 3 & 3), u16::from(kinds >> 5));
        let content = match kinds & 7 {
            0..=2 => Content::Ports(TCP, ports),
            3 | 4 => Content::Ports(UDP, ports),
            5 => Content::Ping(ports.0),
            6 => Content::Pong(ports.0),
            _ => Content::Ports(GRE, (0, 0)),
        };
        Self {
            from: source,
            to: dest,
            content,
            shape: Shape::Plain,
            len: if input.below(4) == 3 { LONG } else { 0 },
        }
    }

    fn shape(input: &mut Input<'_>) -> Shape {
        let choice = input.u8();
        let ident = u16::from(choice >> 4);
        match choice & 15 {
            8 | 9 => Shape::Extensions,
            10 => Shape::Routed,
            11 | 12 => Shape::First(ident),
            13..=15 => Shape::Later(ident),
            _ => Shape::Plain,
        }
    }

    /// The flow, unless this is an error or a later fragment.
    pub(super) fn flow(&self) -> Option<Flow> {
        let (ports, protocol) = match self.content {
            _ if matches!(self.shape, Shape::Later(_)) => return None,
            Content::Ports(protocol, ports) => (ports, protocol),
            Content::Ping(ident) => ((ident, 0), self.icmp()),
            Content::Pong(ident) => ((0, ident), self.icmp()),
            Content::About(_) => return None,
        };
        let (source, dest) = ((self.from, ports.0), (self.to, ports.1));
        let of_first = addresses(0).contains(&self.from);
        let (first, second) = if of_first { (source, dest) } else { (dest, source) };
        Some((first, second, protocol))
    }

    fn icmp(&self) -> u8 {
        if self.from.is_ipv4() { ICMP } else { ICMPV6 }
    }

    /// The protocol that a rule sees.
    pub(super) fn protocol(&self) -> u8 {
        match self.content {
            Content::Ports(protocol, _) => protocol,
            _ => self.icmp(),
        }
    }

    /// The destination port that a rule sees.
    pub(super) fn port(&self) -> Option<u16> {
        match self.content {
            Content::Ports(TCP | UDP, (_, port)) if !matches!(self.shape, Shape::Later(_)) => Some(port),
            _ => None,
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let v4 = self.from.is_ipv4();
        let protocol = self.protocol();
        let (fragment, ident) = match self.shape {
            Shape::First(ident) => (1 << 13, ident),
            Shape::Later(ident) => (8, ident),
            _ => (0, 0),
        };
        let mut next = protocol;
        let between = match self.shape {
            Shape::Plain => Vec::new(),
            Shape::Routed if v4 => vec![131, 7, 4, 10, 8, 0, 99, 0],
            Shape::Extensions if v4 => vec![1; 4],
            Shape::First(_) | Shape::Later(_) if v4 => Vec::new(),
            Shape::Routed => {
                next = 43;
                [&[protocol, 2, 0, 1, 0, 0, 0, 0][..], &[0xfd; 16]].concat()
            }
            Shape::Extensions => {
                next = 0;
                vec![60, 0, 1, 4, 0, 0, 0, 0, protocol, 0, 1, 4, 0, 0, 0, 0]
            }
            Shape::First(ident) | Shape::Later(ident) => {
                next = 44;
                let [high, low] = if fragment == 8 { [0, 64] } else { [0, 1] };
                let [a, b] = ident.to_be_bytes();
                vec![protocol, 0, high, low, 0, 0, a, b]
            }
        };
        let mut behind = [between.clone(), self.transport()].concat();
        let header = if v4 { 20 } else { 40 };
        behind.resize(behind.len().max(self.len.saturating_sub(header)), 0xdd);
        let mut packet = match (self.from, self.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let words = 5 + between.len() as u8 / 4;
                let mut packet = vec![0x40 | words, 0];
                packet.extend((20 + behind.len() as u16).to_be_bytes());
                packet.extend(ident.to_be_bytes());
                packet.extend(u16::to_be_bytes(fragment));
                packet.extend([64, protocol, 0, 0]);
                packet.extend(from.octets());
                packet.extend(to.octets());
                packet
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let mut packet = vec![0x60, 0, 0, 0];
                packet.extend((behind.len() as u16).to_be_bytes());
                packet.extend([next, 64]);
                packet.extend(from.octets());
                packet.extend(to.octets());
                packet
            }
            _ => panic!("{self:?}"),
        };
        packet.extend(behind);
        packet
    }

    fn transport(&self) -> Vec<u8> {
        let v4 = self.from.is_ipv4();
        let echo = |kind, ident: u16| {
            let [a, b] = ident.to_be_bytes();
            vec![kind, 0, 0, 0, a, b, 0, 1]
        };
        match &self.content {
            Content::Ports(_, (source, dest)) => {
                let mut bytes = [source.to_be_bytes(), dest.to_be_bytes()].concat();
                bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
                bytes
            }
            Content::Ping(ident) => echo(if v4 { 8 } else { 128 }, *ident),
            Content::Pong(ident) => echo(if v4 { 0 } else { 129 }, *ident),
            Content::About(quoted) => {
                let kind = if v4 { 3 } else { 1 };
                [&[kind, 1, 0, 0, 0, 0, 0, 0], &quoted.bytes()[..]].concat()
            }
        }
    }
}
