use proptest::prelude::*;
use weft_packet::checksum::Checksum;
use weft_packet::coalesce::{BatchFull, Coalescer, MAX_SEGMENTS, MAX_SUPER_PACKET, OPEN_GROUPS};
use weft_wire::virtio::{GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, NEEDS_CSUM, VirtioNetHdr};

use crate::model::{self, ACK, CWR, ECE, FIN, PSH, Packet, RST, SYN, TCP, UDP, URG};
use crate::split::{gso, split};

/// One write of the caller: virtio header, octets after it, number of packets inside.
type Write = (VirtioNetHdr, Vec<u8>, usize);

fn coalesce(packets: &[Vec<u8>], udp: bool) -> Vec<Write> {
    let mut coalescer = Coalescer::new(packets.len(), udp);
    for (id, packet) in packets.iter().enumerate() {
        coalescer.push(id as u32, packet, Checksum::Full).unwrap();
    }
    assert_eq!(coalescer.push(0, &[], Checksum::Full), Err(BatchFull));
    let writes = coalescer.groups().map(|group| {
        let mut bytes = group.header().to_vec();
        for piece in group.pieces() {
            bytes.extend(&packets[piece.packet as usize][piece.range]);
        }
        (group.virtio(), bytes, group.packet_count())
    });
    writes.collect()
}

fn counts(packets: &[Packet], udp: bool) -> Vec<usize> {
    let bytes: Vec<_> = packets.iter().map(Packet::bytes).collect();
    coalesce(&bytes, udp).iter().map(|write| write.2).collect()
}

fn stream(ports: [u8; 4], count: usize) -> Vec<Packet> {
    (0..count)
        .map(|i| Packet::tcp(ports, (i * 100) as u32, &[i as u8; 100]))
        .collect()
}

/// Returns the packets that a receiver of these writes sees, in order. A malformed packet passes
/// unchanged.
fn received(writes: &[Write]) -> Vec<Vec<u8>> {
    let unpack = |(hdr, bytes, count): &Write| {
        if *count == 1 {
            return vec![bytes.clone()];
        }
        let segments = split(*hdr, bytes).unwrap();
        assert_eq!(segments.len(), *count);
        segments
    };
    writes.iter().flat_map(unpack).collect()
}

type Flow<'a> = (&'a [u8], Option<(u8, &'a [u8])>);

/// Returns the addresses, and protocol and ports if the packet shows them. Two packets must stay in
/// order if the addresses are equal and either has no ports or both have the same.
fn flow(packet: &[u8]) -> Option<Flow<'_>> {
    if packet.first()? >> 4 == 4 {
        let addresses = packet.get(12..20)?;
        // A packet has ports at this offset if its header has no options and it is not a fragment.
        let ports = packet
            .get(20..24)
            .filter(|_| packet[0] == 0x45 && matches!(packet[9], TCP | UDP));
        let ports = ports.filter(|_| packet[6] & 0x3f == 0 && packet[7] == 0);
        return Some((addresses, ports.map(|ports| (packet[9], ports))));
    }
    let addresses = packet.get(8..40)?;
    let ports = packet.get(40..44).filter(|_| matches!(packet[6], TCP | UDP));
    Some((addresses, ports.map(|ports| (packet[6], ports))))
}

/// Clears identifications: they have no meaning if the packet may not be fragmented, and a group
/// may have changed them.
fn without_id(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut packets = packets.to_vec();
    for packet in packets
        .iter_mut()
        .filter(|packet| packet.len() >= 20 && packet[0] == 0x45)
    {
        if packet[6] & 0x40 != 0 && model::header_verifies(packet) {
            packet[4..6].fill(0);
            packet[10..12].fill(0);
        }
    }
    packets
}

fn assert_order_kept(before: &[Vec<u8>], after: &[Vec<u8>]) {
    let (before, after) = (&without_id(before), &without_id(after));
    let mut sorted = [before.to_vec(), after.to_vec()];
    sorted.iter_mut().for_each(|packets| packets.sort());
    assert_eq!(sorted[0], sorted[1]);
    for key in before.iter().filter_map(|packet| flow(packet)) {
        let bound = |packet: &&Vec<u8>| {
            flow(packet).is_some_and(|(addresses, ports)| addresses == key.0 && (ports.is_none() || ports == key.1))
        };
        let [a, b] = [before, after].map(|packets| packets.iter().filter(bound).collect::<Vec<_>>());
        assert_eq!(a, b);
    }
}

#[derive(Debug, Clone)]
struct Event {
    flow: usize,
    kind: u8,
    seed: u8,
}

/// Makes packets of several flows, most of them in sequence, with everything that disturbs them.
fn packets_of(events: &[Event]) -> Vec<Vec<u8>> {
    let mut sequences = [0xffff_f000u32; 12];
    let mut ids = [0xfff0u16; 12];
    let mut packets: Vec<Vec<u8>> = Vec::new();
    for &Event { flow, kind, seed } in events {
        let len = if kind == 1 { usize::from(seed) % 100 + 1 } else { 100 };
        let payload = vec![seed; len];
        let ports = [0, flow as u8 / 2, 0, 80];
        let mut packet = if flow % 3 == 2 {
            Packet::udp(ports, &payload)
        } else {
            Packet::tcp(ports, sequences[flow], &payload)
        };
        packet.hosts = [1, flow as u8 % 2];
        if flow % 4 >= 2 {
            packet = packet.over_v4(ids[flow]);
            // One of the flows has the same identification in all packets, as a host without a
            // connection may.
            ids[flow] = ids[flow].wrapping_add(u16::from(flow != 6));
        }
        sequences[flow] = sequences[flow].wrapping_add(len as u32);
        match kind {
            2 => packet.flags |= PSH,
            3 => packet.flags = seed,
            4 => packet.payload.clear(),
            5 => sequences[flow] = sequences[flow].wrapping_add(100),
            6 => packet.extensions = vec![([0, 43, 44, 60][usize::from(seed) % 4], 0)],
            7 => packet.traffic_class = seed & 3,
            8 => packet.options = vec![1; usize::from(seed % 4) * 4],
            14 => ids[flow] = ids[flow].wrapping_add(seed.into()),
            _ => {}
        }
        if let Some(v4) = packet.v4.as_mut().filter(|_| kind == 15) {
            v4.dont_fragment = seed & 1 != 0;
            v4.options = vec![1; usize::from(seed >> 1 & 1) * 4];
        }
        let mut bytes = packet.bytes();
        match kind {
            9 => {
                let at = if packet.v4.is_some() { 0 } else { 40 } + usize::from(seed) % 60;
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 0x55;
                }
            }
            10 => bytes.truncate(usize::from(seed)),
            11 => bytes.push(0),
            _ => {}
        }
        packets.push(bytes);
        let count = packets.len();
        match kind {
            12 => packets.push(packets[count - 1].clone()),
            13 if count > 1 => packets.swap(count - 2, count - 1),
            _ => {}
        }
    }
    packets
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let kind = prop_oneof![20 => Just(0u8), 14 => 1u8..16];
    prop::collection::vec((0usize..12, kind, any::<u8>()), 1..150).prop_map(|events| {
        events
            .into_iter()
            .map(|(flow, kind, seed)| Event { flow, kind, seed })
            .collect()
    })
}

proptest! {
    #[test]
    fn split_undoes_it_and_no_flow_is_reordered(events in events(), udp in any::<bool>()) {
        let packets = packets_of(&events);
        let writes = coalesce(&packets, udp);
        assert_order_kept(&packets, &received(&writes));
        for (hdr, bytes, count) in &writes {
            if *count == 1 {
                prop_assert_eq!(*hdr, VirtioNetHdr::default());
                continue;
            }
            prop_assert!(bytes.len() <= MAX_SUPER_PACKET && *count <= MAX_SEGMENTS);
            let v4 = bytes[0] >> 4 == 4;
            let (start, length, protocol, gso_tcp) = if v4 {
                (20, bytes.len(), bytes[9], GSO_TCPV4)
            } else {
                (40, bytes.len() - 40, bytes[6], GSO_TCPV6)
            };
            let field = if v4 { &bytes[2..4] } else { &bytes[4..6] };
            prop_assert_eq!(usize::from(field[0]) << 8 | usize::from(field[1]), length);
            prop_assert!(model::header_verifies(bytes));
            prop_assert_eq!((hdr.flags, hdr.csum_start), (NEEDS_CSUM, start as u16));
            prop_assert_eq!(hdr.gso_type, if protocol == TCP { gso_tcp } else { GSO_UDP_L4 });
            prop_assert!(udp || protocol == TCP);
            let at = start + usize::from(hdr.csum_offset);
            let partial = model::sum(&[&model::pseudo_header(bytes, bytes.len() - start, protocol)]);
            prop_assert_eq!(&bytes[at..at + 2], partial.to_be_bytes());
        }
    }

    #[test]
    fn it_undoes_split((packet, size) in model::super_packet(), push in any::<bool>()) {
        let mut packet = Packet { extensions: Vec::new(), ..packet };
        if let Some(v4) = &mut packet.v4 {
            v4.options.clear();
        }
        packet.flags = if push { ACK | PSH } else { ACK };
        packet.payload.extend([1, 2]);
        let len = packet.payload.len();
        let size = usize::from(size).clamp(len.div_ceil(MAX_SEGMENTS), len - 1) as u16;
        let segments = split(gso(&packet, size), &packet.bytes_partial()).unwrap();
        let writes = coalesce(&segments, true);
        prop_assert_eq!(writes.len(), 1);
        prop_assert_eq!(&writes[0].1, &packet.bytes_partial());
        let headers = packet.bytes().len() - packet.payload.len();
        let hdr = VirtioNetHdr { hdr_len: headers as u16, ..gso(&packet, size) };
        prop_assert_eq!(writes[0].0, hdr);
    }

    #[test]
    fn any_bytes(mut packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 1..20)) {
        for packet in packets.iter_mut().filter(|packet| packet.len() >= 40) {
            packet[0] = 0x60;
            packet[4] = 0;
            packet[5] = packet.len() as u8 - 40;
        }
        let writes = coalesce(&packets, true);
        assert_order_kept(&packets, &received(&writes));
    }
}

#[test]
fn a_stream_becomes_one_write_and_two_interleaved_become_two() {
    let (a, b) = (stream([0, 1, 0, 2], 40), stream([0, 3, 0, 4], 40));
    assert_eq!(counts(&a, false), [40]);
    let mixed: Vec<_> = a.into_iter().zip(b).flat_map(|(a, b)| [a, b]).collect();
    assert_eq!(counts(&mixed, false), [40, 40]);
}

#[test]
fn any_difference_but_sequence_and_payload_starts_a_new_write() {
    let changes: [fn(&mut Packet); 13] = [
        |p| p.sequence += 1,
        |p| p.sequence -= 100,
        |p| p.acknowledgement += 1,
        |p| p.window += 1,
        |p| p.options[7] += 1,
        |p| p.options.truncate(8),
        |p| p.hop_limit -= 1,
        |p| p.traffic_class = 3,
        |p| p.flow_label = 1,
        |p| p.ports[3] += 1,
        |p| p.hosts[0] += 1,
        |p| p.payload.push(0),
        |p| p.extensions.push((60, 0)),
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut packets = stream([0, 1, 0, 2], 4);
        packets[2..].iter_mut().for_each(change);
        assert_eq!(counts(&packets, false)[0], 2, "change {i}");
    }
}

#[test]
fn only_ack_and_push_join() {
    for flags in [FIN, SYN, RST, URG, ECE, CWR] {
        let mut packets = stream([0, 1, 0, 2], 5);
        packets[2].flags |= flags;
        assert_eq!(counts(&packets, false), [2, 1, 2], "flags {flags:#x}");
    }
    let mut packets = stream([0, 1, 0, 2], 5);
    packets[2].flags |= PSH;
    assert_eq!(counts(&packets, false), [3, 2]);
    packets[0].flags |= PSH;
    assert_eq!(counts(&packets, false), [1, 2, 2]);
    packets[3].flags = 0;
    assert_eq!(counts(&packets, false), [1, 2, 1, 1]);
}

#[test]
fn reserved_bits_do_not_join() {
    let mut packets: Vec<_> = stream([0, 1, 0, 2], 3).iter().map(Packet::bytes).collect();
    for packet in &mut packets {
        // The checksum decreases by what the octet of the data offset gains.
        packet[52] |= 1;
        let checksum = u16::from_be_bytes([packet[56], packet[57]]);
        let (less, borrow) = checksum.overflowing_sub(0x100);
        packet[56..58].copy_from_slice(&(less - u16::from(borrow)).to_be_bytes());
        assert!(model::verifies(packet, 40, TCP));
    }
    assert!(coalesce(&packets, false).iter().all(|write| write.2 == 1));
}

#[test]
fn a_late_segment_does_not_overtake_its_successor() {
    let mut packets = stream([0, 1, 0, 2], 3);
    packets.swap(1, 2);
    assert_eq!(counts(&packets, false), [1, 1, 1]);
    packets[1].flags |= PSH;
    assert_eq!(counts(&packets, false), [1, 1, 1]);
}

#[test]
fn a_shorter_segment_ends_the_write() {
    let mut packets = stream([0, 1, 0, 2], 4);
    packets[1].payload.pop();
    packets[2].sequence -= 1;
    packets[3].sequence -= 1;
    assert_eq!(counts(&packets, false), [2, 2]);
}

#[test]
fn a_pure_ack_keeps_its_place() {
    let mut packets = stream([0, 1, 0, 2], 4);
    packets[1].payload.clear();
    packets[2].sequence -= 100;
    packets[3].sequence -= 100;
    assert_eq!(counts(&packets, false), [1, 1, 2]);
}

#[test]
fn a_bad_checksum_is_neither_joined_nor_repaired() {
    let mut packets: Vec<_> = stream([0, 1, 0, 2], 5).iter().map(Packet::bytes).collect();
    packets[2][90] ^= 1;
    let writes = coalesce(&packets, false);
    assert_eq!(writes.iter().map(|write| write.2).collect::<Vec<_>>(), [2, 1, 2]);
    assert_eq!(writes[1].1, packets[2]);
}

#[test]
fn udp_joins_only_where_the_tun_takes_it() {
    let mut packets = vec![Packet::udp([0, 1, 0, 2], &[5; 100]); 6];
    assert_eq!(counts(&packets, false), [1; 6]);
    assert_eq!(counts(&packets, true), [6]);
    packets[3].payload.truncate(7);
    assert_eq!(counts(&packets, true), [4, 2]);
    packets[0].payload.clear();
    assert_eq!(counts(&packets, true), [1, 3, 2]);
    let mut bytes: Vec<_> = packets.iter().map(Packet::bytes).collect();
    bytes[2][46..48].fill(0);
    let writes = coalesce(&bytes, true);
    assert_eq!(writes.iter().map(|write| write.2).collect::<Vec<_>>(), [1, 1, 1, 1, 2]);
}

#[test]
fn udp_without_a_checksum_is_not_given_one() {
    let mut packet = Packet::udp([0, 1, 0, 2], &[0, 0]);
    packet.payload = packet.bytes()[46..48].to_vec();
    let mut bytes = packet.bytes();
    assert_eq!(counts(&[packet.clone(), packet], true), [2]);
    bytes[46..48].fill(0);
    assert!(model::verifies(&bytes, 40, UDP));
    assert_eq!(coalesce(&[bytes.clone(), bytes], true).len(), 2);
}

#[test]
fn writes_end_at_64_packets_and_at_65535_octets() {
    assert_eq!(counts(&stream([0, 1, 0, 2], 130), false), [64, 64, 2]);
    let big = |i: u32| Packet::tcp([0, 1, 0, 2], i * 10_000, &[1; 10_000]);
    assert_eq!(counts(&(0..8).map(big).collect::<Vec<_>>(), false), [6, 2]);
    // 72 octets of headers and 65,463 of payload are allowed, one more is not.
    let fits = [
        Packet::tcp([0, 1, 0, 2], 0, &[1; 32_732]),
        Packet::tcp([0, 1, 0, 2], 32_732, &[1; 32_731]),
    ];
    assert_eq!(counts(&fits, false), [2]);
    let over = [
        Packet::tcp([0, 1, 0, 2], 0, &[1; 32_732]),
        Packet::tcp([0, 1, 0, 2], 32_732, &[1; 32_732]),
    ];
    assert_eq!(counts(&over, false), [1, 1]);
}

#[test]
fn the_flow_that_opened_first_makes_room_for_a_ninth() {
    let flows: Vec<_> = (0..=OPEN_GROUPS as u8).map(|port| stream([0, port, 0, 2], 2)).collect();
    let mut packets: Vec<_> = flows.iter().map(|flow| flow[0].clone()).collect();
    packets.extend(flows[1..].iter().map(|flow| flow[1].clone()));
    packets.push(flows[0][1].clone());
    assert_eq!(counts(&packets, false), [1, 2, 2, 2, 2, 2, 2, 2, 2, 1]);
}

#[test]
fn a_cleared_coalescer_starts_anew() {
    let packets: Vec<_> = stream([0, 1, 0, 2], 3).iter().map(Packet::bytes).collect();
    let mut coalescer = Coalescer::new(3, false);
    coalescer.push(0, &packets[0], Checksum::Full).unwrap();
    assert_eq!((coalescer.len(), coalescer.groups().len()), (1, 1));
    coalescer.clear();
    assert!(coalescer.is_empty());
    coalescer.push(8, &packets[1], Checksum::Full).unwrap();
    coalescer.push(9, &packets[2], Checksum::Full).unwrap();
    let ids: Vec<_> = coalescer
        .groups()
        .flat_map(|group| group.pieces().map(|piece| piece.packet))
        .collect();
    assert_eq!(ids, [8, 9]);
}

fn stream_v4(count: u16) -> Vec<Packet> {
    let over_v4 = |(i, packet): (u16, Packet)| packet.over_v4(i);
    (0..count)
        .zip(stream([0, 1, 0, 2], count.into()))
        .map(over_v4)
        .collect()
}

fn v4(packet: &mut Packet) -> &mut model::V4 {
    packet.v4.as_mut().unwrap()
}

#[test]
fn ipv4_joins_by_the_rules_of_the_kernel() {
    assert_eq!(counts(&stream_v4(40), false), [40]);
    let changes: [fn(&mut Packet); 7] = [
        |p| v4(p).id += 1,
        |p| v4(p).id -= 1,
        |p| v4(p).dont_fragment = false,
        |p| v4(p).options = vec![1; 4],
        |p| p.hop_limit -= 1,
        |p| p.traffic_class = 1,
        |p| p.hosts[1] += 1,
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut packets = stream_v4(4);
        packets[2..].iter_mut().for_each(change);
        assert_eq!(counts(&packets, false)[0], 2, "change {i}");
    }
}

#[test]
fn one_identification_for_all_joins_where_it_means_nothing() {
    let mut packets = stream_v4(5);
    packets.iter_mut().for_each(|packet| v4(packet).id = 9);
    assert_eq!(counts(&packets, false), [5]);
    // The identification is constant or counts up, but not both.
    v4(&mut packets[2]).id = 11;
    assert_eq!(counts(&packets, false), [2, 1, 2]);
    packets.iter_mut().for_each(|packet| v4(packet).id = 9);
    packets.iter_mut().for_each(|packet| v4(packet).dont_fragment = false);
    assert_eq!(counts(&packets, false), [1; 5]);
}

#[test]
fn a_bad_ipv4_header_is_neither_joined_nor_repaired() {
    for (at, bit) in [(10, 1), (8, 1), (6, 0x80)] {
        let mut packets: Vec<_> = stream_v4(5).iter().map(Packet::bytes).collect();
        packets[2][at] ^= bit;
        if at == 6 {
            // The reserved flag, with a correct sum.
            packets[2][10..12].fill(0);
            let sum = !model::sum(&[&packets[2][..20]]);
            packets[2][10..12].copy_from_slice(&sum.to_be_bytes());
            assert!(model::header_verifies(&packets[2]));
        }
        let writes = coalesce(&packets, false);
        assert_eq!(
            writes.iter().map(|write| write.2).collect::<Vec<_>>(),
            [2, 1, 2],
            "{at}"
        );
        assert_eq!(writes[1].1, packets[2]);
    }
}

#[test]
fn ipv4_datagrams_without_a_checksum_pass_alone() {
    let datagrams = |i: u16| Packet::udp([0, 1, 0, 2], &[5; 100]).over_v4(i).bytes();
    let mut bytes: Vec<_> = (0..4).map(datagrams).collect();
    let count = |bytes: &[Vec<u8>]| coalesce(bytes, true).iter().map(|write| write.2).collect::<Vec<_>>();
    assert_eq!(count(&bytes), [4]);
    bytes.iter_mut().for_each(|datagram| datagram[26..28].fill(0));
    assert_eq!(count(&bytes), [1; 4]);
}

#[test]
fn versions_do_not_mix() {
    let (a, b) = (stream([0, 1, 0, 2], 10), stream_v4(10));
    let mixed: Vec<_> = a.into_iter().zip(b).flat_map(|(a, b)| [a, b]).collect();
    assert_eq!(counts(&mixed, false), [10, 10]);
}

#[test]
fn a_fragment_keeps_its_place_among_all_between_its_addresses() {
    let mut packets: Vec<_> = stream_v4(4).iter().map(Packet::bytes).collect();
    packets[1][6] = 0x20;
    let writes = coalesce(&packets, false);
    assert_eq!(writes.iter().map(|write| write.2).collect::<Vec<_>>(), [1, 1, 2]);
}
