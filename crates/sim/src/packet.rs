//! Numbered IP packets, by which tests recognise what arrived.

use weft_wire::NodeAddr;

const HEADER: usize = 40;
/// "No next header" (RFC 8200 section 4.7): no host interprets the payload.
const NO_NEXT_HEADER: u8 = 59;

/// An IP packet from one simulated host to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Probe {
    /// The sender.
    pub from: NodeAddr,
    /// Its number.
    pub seq: u32,
    /// Length in bytes, including the IPv6 header.
    pub len: usize,
    /// Links that it crossed. 1 if unknown: it waited for its keys, or for a slow core.
    pub hops: u32,
}

/// Builds the IPv6 packet number `seq` of `len` bytes (at least 44), filled with a pattern that depends on `seq`.
pub fn probe(from: NodeAddr, to: NodeAddr, seq: u32, len: usize) -> Vec<u8> {
    let len = len.max(HEADER + 4);
    let mut packet = vec![0; len];
    packet[0] = 0x60;
    packet[4..6].copy_from_slice(&((len - HEADER) as u16).to_be_bytes());
    packet[6] = NO_NEXT_HEADER;
    packet[7] = 64;
    packet[8..24].copy_from_slice(&from.to_ipv6().octets());
    packet[24..40].copy_from_slice(&to.to_ipv6().octets());
    packet[40..44].copy_from_slice(&seq.to_be_bytes());
    for (i, byte) in packet[44..].iter_mut().enumerate() {
        *byte = (seq as usize + i) as u8;
    }
    packet
}

impl Probe {
    /// The number of a packet that [`probe`] built for these two, if it is intact.
    pub(crate) fn verify(from: NodeAddr, to: NodeAddr, packet: &[u8]) -> Option<Self> {
        let seq = u32::from_be_bytes(packet.get(40..44)?.try_into().ok()?);
        (packet == probe(from, to, seq, packet.len())).then_some(Self {
            from,
            seq,
            len: packet.len(),
            hops: 1,
        })
    }
}
