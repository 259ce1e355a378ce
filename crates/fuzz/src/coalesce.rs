//! A batch of packets, coalesced for the TUN and segmented again.

use weft_packet::checksum::Checksum;
use weft_packet::coalesce::{BatchFull, Coalescer, MAX_SEGMENTS, MAX_SUPER_PACKET};
use weft_packet::split::Splitter;
use weft_wire::virtio::VirtioNetHdr;

use super::input::Input;
use super::model::{self, ACK, IPV4_HEADER, IPV6_HEADER, PSH, TCP, UDP};

const MAX_PACKETS: usize = 192;
const FLOWS: usize = 6;

/// Runs packets, most of them of a few flows and in sequence. Segmenting the coalesced packets
/// gives the same packets, each flow in order.
pub fn coalesce(data: &[u8]) {
    let mut input = Input::new(data);
    let udp = input.flag();
    let packets = packets(&mut input);
    let mut coalescer = Coalescer::new(packets.len(), udp);
    // An earlier batch leaves no state behind.
    for (id, packet) in packets.iter().take(usize::from(packets.len() > 3)).enumerate() {
        coalescer.push(id as u32, packet, Checksum::Full).unwrap();
    }
    coalescer.clear();
    assert!(coalescer.is_empty());
    for (id, packet) in packets.iter().enumerate() {
        coalescer.push(id as u32, packet, Checksum::Full).unwrap();
    }
    assert_eq!(coalescer.push(0, &[], Checksum::Full), Err(BatchFull));
    assert_eq!(coalescer.len(), packets.len());

    let mut received = Vec::new();
    for group in coalescer.groups() {
        let mut bytes = group.header().to_vec();
        for piece in group.pieces() {
            bytes.extend(&packets[piece.packet as usize][piece.range]);
        }
        assert!(group.packet_count() <= MAX_SEGMENTS);
        if group.packet_count() == 1 {
            assert_eq!(group.virtio(), VirtioNetHdr::default());
            received.push(bytes);
        } else {
            assert!(bytes.len() <= MAX_SUPER_PACKET && (udp || plain_transport(&bytes).1 == TCP));
            received.extend(cut(group.virtio(), &bytes, group.packet_count()));
        }
    }
    assert_order(&packets, &received);
}

/// Coalesces packets with complete or partial checksums, and checks that segmenting restores them
/// with all checksums complete. A complete one may be wrong.
pub(super) fn joins_and_cuts(packets: &[(&[u8], Checksum)]) {
    let mut coalescer = Coalescer::new(packets.len(), true);
    for (id, (packet, checksum)) in packets.iter().enumerate() {
        coalescer.push(id as u32, packet, *checksum).unwrap();
    }
    let finish = |packet: &[u8], begun: bool| {
        let mut packet = packet.to_vec();
        if begun {
            let (start, protocol) = plain_transport(&packet);
            model::complete(&mut packet, start, protocol);
        }
        normal(&packet)
    };
    let mut received = Vec::new();
    for group in coalescer.groups() {
        let mut bytes = group.header().to_vec();
        for piece in group.pieces() {
            bytes.extend(&packets[piece.packet as usize].0[piece.range]);
        }
        if group.packet_count() == 1 {
            received.push(finish(&bytes, group.virtio().needs_csum()));
        } else {
            let parts = cut(group.virtio(), &bytes, group.packet_count());
            received.extend(parts.iter().map(|part| normal(part)));
        }
    }
    let mut sent: Vec<_> = packets
        .iter()
        .map(|(packet, checksum)| finish(packet, *checksum == Checksum::Partial))
        .collect();
    sent.sort();
    received.sort();
    assert!(sent == received, "the packets are not the same");
}

fn cut(hdr: VirtioNetHdr, bytes: &[u8], count: usize) -> Vec<Vec<u8>> {
    // The checks of the kernel before it trusts the header.
    let (start, protocol) = plain_transport(bytes);
    assert_eq!(usize::from(hdr.csum_start), start);
    assert_eq!(usize::from(hdr.csum_offset), model::checksum_at(protocol));
    if model::is_v4(bytes) {
        assert_eq!(model::sum(&[&bytes[..IPV4_HEADER]]), 0xffff);
    }
    let mut splitter = Splitter::new(hdr, bytes, usize::MAX).unwrap();
    assert_eq!(splitter.segment_count(), count);
    let mut out = vec![0; splitter.segment_len()];
    let mut parts = Vec::new();
    while let Some(len) = splitter.next_into(&mut out) {
        parts.push(out[..len].to_vec());
    }
    parts
}

/// Checks that all packets arrive once, and that no two packets of possibly one flow are reordered:
/// those with the same addresses, unless both have ports and the ports or protocols differ.
fn assert_order(before: &[Vec<u8>], after: &[Vec<u8>]) {
    let mut sorted = [before, after].map(|packets| packets.iter().map(|packet| normal(packet)).collect::<Vec<_>>());
    sorted.iter_mut().for_each(|packets| packets.sort());
    assert!(sorted[0] == sorted[1], "the packets are not the same");
    let mut keys: Vec<_> = before.iter().filter_map(|packet| flow(packet)).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let bound = |packet: &&Vec<u8>| {
            flow(packet).is_some_and(|(addresses, ports)| addresses == key.0 && (ports.is_none() || ports == key.1))
        };
        let [a, b] = [before, after].map(|packets| {
            packets
                .iter()
                .filter(bound)
                .map(|packet| normal(packet))
                .collect::<Vec<_>>()
        });
        assert!(a == b, "a flow is out of order");
    }
}

/// Normalises what coalescing need not keep: TCP's checksum has two zeros, of which no stack sends
/// one; and the identification of an IPv4 packet that may not be fragmented has no meaning, if the
/// header is one that may be rewritten.
pub(super) fn normal(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let atomic = packet.len() >= IPV4_HEADER && packet[0] == 0x45 && packet[6] & 0x40 != 0;
    if atomic && model::sum(&[&packet[..IPV4_HEADER]]) == 0xffff {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    }
    let (start, protocol) = plain_transport(&packet);
    let at = start + model::checksum_at(TCP);
    if packet.len() >= at + 2 && protocol == TCP && packet[at..at + 2] == [0xff, 0xff] {
        packet[at..at + 2].fill(0);
    }
    packet
}

/// Offset of the transport header of a packet without options or extensions, and its protocol; 0 if
/// the packet is too short to have one.
pub(super) fn plain_transport(packet: &[u8]) -> (usize, u8) {
    let (start, at) = if model::is_v4(packet) {
        (IPV4_HEADER, 9)
    } else {
        (IPV6_HEADER, 6)
    };
    (start, packet.get(at).copied().unwrap_or_default())
}

type Flow<'a> = (&'a [u8], Option<(u8, &'a [u8])>);

fn flow(packet: &[u8]) -> Option<Flow<'_>> {
    if model::is_v4(packet) {
        let addresses = packet.get(12..20)?;
        let first = packet[0] == 0x45 && packet[6] & 0x3f == 0 && packet[7] == 0;
        let ports = packet.get(20..24).filter(|_| first && matches!(packet[9], TCP | UDP));
        return Some((addresses, ports.map(|ports| (packet[9], ports))));
    }
    let addresses = packet.get(8..40)?;
    let ports = packet.get(40..44).filter(|_| matches!(packet[6], TCP | UDP));
    Some((addresses, ports.map(|ports| (packet[6], ports))))
}

fn packets(input: &mut Input<'_>) -> Vec<Vec<u8>> {
    let mut sequences = [0xffff_ff00_u32; FLOWS];
    let mut ids = [0xfff8_u16; FLOWS];
    let mut packets: Vec<Vec<u8>> = Vec::new();
    while !input.is_empty() && packets.len() < MAX_PACKETS {
        let choice = input.u8();
        let (flow, kind) = (usize::from(choice) % 8 % FLOWS, choice >> 3);
        let protocol = if flow % 3 == 2 { UDP } else { TCP };
        let len = match kind {
            0..16 => 100,
            16 => usize::from(input.u16()) % 4096,
            _ => input.below(128),
        };
        let header = Header {
            protocol,
            sequence: sequences[flow],
            flags: match kind {
                17 => ACK | PSH,
                18 => input.u8(),
                _ => ACK,
            },
            class: if kind == 19 { input.u8() } else { 0 },
            options: if kind == 20 { input.bytes() } else { &[] },
            extension: (kind == 21).then(|| input.u8()),
        };
        let mut packet = header.packet(flow as u8, len);
        // Over IPv4: two of the eight choices of a flow, and half of the plain packets.
        let v4 = choice & 6 == 6 || (8..16).contains(&kind);
        if v4 {
            packet = over_v4(&packet, protocol, ids[flow]);
            ids[flow] = ids[flow].wrapping_add(u16::from(kind != 15));
        }
        sequences[flow] = sequences[flow].wrapping_add(len as u32);
        match kind {
            22 => sequences[flow] = sequences[flow].wrapping_add(input.u32()),
            23 => {
                let at = input.within(0..packet.len());
                packet[at] ^= input.u8();
            }
            24 => packet.truncate(input.within(0..packet.len() + 1)),
            25 => packet.extend(input.bytes()),
            26 => packet = input.bytes().to_vec(),
            27 => {
                packet = input.bytes().to_vec();
                model::make_ipv6(&mut packet);
            }
            28 => {
                if let Some(again) = input.latest(&packets) {
                    packet.clone_from(again);
                }
            }
            29 | 30 if v4 => {
                // Changes class, identification, flags, hops or an address, with both checksums
                // correct.
                let at = [1, 5, 6, 8, 19][input.below(5)];
                packet[at] ^= input.u8();
                model::finish_ipv4(&mut packet);
                model::complete(&mut packet, IPV4_HEADER, protocol);
            }
            29 => {
                // Changes the hop limit, a port, an acknowledgement or a window, with a correct
                // checksum.
                let at = [7, 41, 51, 55][input.below(4)];
                let at = at.min(packet.len() - 1);
                packet[at] ^= input.u8();
                model::complete(&mut packet, IPV6_HEADER, protocol);
            }
            _ => {}
        }
        packets.push(packet);
    }
    packets
}

/// Converts the packet to IPv4, without extensions; it may not be fragmented.
fn over_v4(packet: &[u8], protocol: u8, id: u16) -> Vec<u8> {
    let (start, _) = model::transport(packet);
    let [high, low] = id.to_be_bytes();
    let class = packet[0] << 4 | packet[1] >> 4;
    let mut over = vec![0x45, class, 0, 0, high, low, 0x40, 0, packet[7], protocol, 0, 0];
    over.extend([10, 1, 0, packet[23], 10, 1, 0, packet[39]]);
    over.extend(&packet[start..]);
    model::make_ipv4(&mut over);
    model::complete(&mut over, IPV4_HEADER, protocol);
    over
}

/// The fields that differ between the headers of a flow.
struct Header<'a> {
    protocol: u8,
    sequence: u32,
    flags: u8,
    class: u8,
    options: &'a [u8],
    extension: Option<u8>,
}

impl Header<'_> {
    fn packet(&self, flow: u8, len: usize) -> Vec<u8> {
        let mut packet = vec![0x60 | self.class >> 4, self.class << 4, 0, 0, 0, 0, self.protocol, 64];
        for host in [1, flow % 2] {
            packet.extend([0xfd, 0xab, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
        if let Some(kind) = self.extension {
            let kind = [0, 43, 44, 60][usize::from(kind) % 4];
            packet[6] = kind;
            packet.extend([self.protocol, 0, 0, 0, 0, 0, 0, 0]);
        }
        let start = packet.len();
        packet.extend([0, flow, 0, 80]);
        if self.protocol == TCP {
            let options = &self.options[..self.options.len().min(40) / 4 * 4];
            packet.extend(self.sequence.to_be_bytes());
            packet.extend([
                0,
                0,
                0,
                7,
                ((20 + options.len()) as u8 / 4) << 4,
                self.flags,
                2,
                0,
                0,
                0,
                0,
                0,
            ]);
            packet.extend(options);
        } else {
            packet.extend(((8 + len) as u16).to_be_bytes());
            packet.extend([0, 0]);
        }
        packet.extend((0..len).map(|i| i as u8 ^ self.sequence as u8));
        model::make_ipv6(&mut packet);
        model::complete(&mut packet, start, self.protocol);
        packet
    }
}
