use proptest::prelude::*;
use weft_packet::split::{InnerError, SplitError, Splitter};
use weft_wire::WireError;
use weft_wire::virtio::{GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, NEEDS_CSUM, VirtioNetHdr};

use crate::model::{self, ACK, CWR, FIN, ICMPV6, PSH, Packet, TCP, UDP};

const ANY_SIZE: usize = 65_575;

pub(crate) fn gso(packet: &Packet, size: u16) -> VirtioNetHdr {
    VirtioNetHdr {
        flags: NEEDS_CSUM,
        gso_type: match (packet.protocol, &packet.v4) {
            (TCP, None) => GSO_TCPV6,
            (TCP, Some(_)) => GSO_TCPV4,
            _ => GSO_UDP_L4,
        },
        // A wrong value: header lengths come from the packet.
        hdr_len: 3,
        gso_size: size,
        csum_start: packet.transport_start() as u16,
        csum_offset: packet.checksum_offset() as u16,
    }
}

pub(crate) fn split(hdr: VirtioNetHdr, packet: &[u8]) -> Result<Vec<Vec<u8>>, SplitError> {
    let mut splitter = Splitter::new(hdr, packet, ANY_SIZE)?;
    let (count, len) = (splitter.segment_count(), splitter.segment_len());
    let mut out = vec![0xa5; len];
    let mut segments = Vec::new();
    same_in_parts(splitter.clone(), packet);
    let mut elided = splitter.clone();
    elided.elide_checksums();
    same_in_parts(elided, packet);
    while let Some(written) = splitter.next_into(&mut out) {
        segments.push(out[..written].to_vec());
    }
    assert_eq!(segments.len(), count);
    assert!(segments.iter().rev().skip(1).all(|segment| segment.len() == len));
    assert!(segments.last().is_some_and(|segment| segment.len() <= len));
    Ok(segments)
}

/// Checks that the written front of a packet and the rest in the buffer of the read make up the
/// packet.
fn same_in_parts(mut splitter: Splitter<'_>, packet: &[u8]) {
    let mut wholes = splitter.clone();
    let (mut front, mut whole) = (vec![0xa5; splitter.segment_len()], vec![0x5a; splitter.segment_len()]);
    while let Some(len) = wholes.next_into(&mut whole) {
        let (front_len, rest) = splitter.next_front(&mut front).unwrap();
        assert_eq!([&front[..front_len], rest].concat(), whole[..len]);
        let range = packet.as_ptr_range();
        assert!(rest.is_empty() || range.contains(&rest.as_ptr()), "a copy");
    }
    assert_eq!(splitter.next_front(&mut front), None);
}

/// The payload of a packet is not copied unless it has to be summed.
#[test]
fn payloads_stay_where_they_are() {
    let tcp = Packet::tcp([0, 1, 0, 2], 7, &[7; 30]);
    let udp = Packet {
        protocol: UDP,
        ..tcp.clone()
    };
    let headers = |packet: &Packet| packet.bytes().len() - packet.payload.len();
    for packet in [&tcp, &udp] {
        let (bytes, headers, mut out) = (packet.bytes_partial(), headers(packet), [0; 100]);
        let mut splitter = Splitter::new(gso(packet, 10), &bytes, ANY_SIZE).unwrap();
        let summed = splitter
            .clone()
            .next_front(&mut out)
            .map(|(front, rest)| (front, rest.len()));
        assert_eq!(summed, Some((headers + 10, 0)));
        splitter.elide_checksums();
        for n in 0..3 {
            let (front, rest) = splitter.next_front(&mut out).unwrap();
            assert_eq!((front, rest.as_ptr()), (headers, bytes[headers + 10 * n..].as_ptr()));
        }
    }
    // Of a single packet, everything stays in place but the headers without options.
    let bytes = tcp.bytes();
    let mut single = Splitter::new(VirtioNetHdr::default(), &bytes, ANY_SIZE).unwrap();
    let parts = single
        .next_front(&mut [0; 100])
        .map(|(front, rest)| (front, rest.len()));
    assert_eq!(parts, Some((60, bytes.len() - 60)));
}

proptest! {
    #[test]
    fn equals_a_sender_without_offloads((packet, size) in model::super_packet()) {
        let segments = split(gso(&packet, size), &packet.bytes_partial()).unwrap();
        prop_assert_eq!(&segments, &packet.segments(usize::from(size)));
        let headers = packet.bytes().len() - packet.payload.len();
        let payload: Vec<u8> = segments.iter().flat_map(|segment| segment[headers..].to_vec()).collect();
        prop_assert_eq!(payload, packet.payload.clone());
        for segment in &segments {
            prop_assert!(model::verifies(segment, packet.transport_start(), packet.protocol));
            prop_assert!(model::header_verifies(segment));
        }
    }

    #[test]
    fn completes_the_checksum_of_a_single_packet((packet, _) in model::super_packet()) {
        let hdr = VirtioNetHdr { gso_type: GSO_NONE, gso_size: 0, ..gso(&packet, 0) };
        let sent = split(hdr, &packet.bytes_partial()).unwrap();
        prop_assert_eq!(sent.len(), 1);
        prop_assert!(model::verifies(&sent[0], packet.transport_start(), packet.protocol));
    }

    #[test]
    fn a_full_packet_passes_unchanged((packet, _) in model::super_packet(), padding in 0usize..9) {
        let bytes = packet.bytes();
        let mut padded = bytes.clone();
        padded.extend(vec![0; padding]);
        prop_assert_eq!(split(VirtioNetHdr::default(), &padded).unwrap(), vec![bytes]);
    }

    #[test]
    fn any_bytes(
        fields in any::<[u16; 4]>(), flags in 0u8..4,
        gso_type in prop_oneof![Just(0u8), Just(1), Just(4), Just(5), Just(0x84), any::<u8>()],
        next in prop_oneof![Just(0u8), Just(6), Just(17), Just(43), Just(44), Just(60), any::<u8>()],
        mut bytes in prop::collection::vec(any::<u8>(), 0..300), honest in any::<bool>(), v4 in any::<bool>(),
        max in 0usize..400,
    ) {
        if honest && v4 && bytes.len() >= 20 {
            bytes[0] = 0x45 + u8::from(bytes[0] == 0);
            let total = bytes.len() as u16;
            bytes[2..4].copy_from_slice(&total.to_be_bytes());
            bytes[6] &= 0xc0;
            bytes[9] = next;
        } else if honest && bytes.len() >= 40 {
            bytes[0] = 0x60;
            let payload_len = (bytes.len() - 40) as u16;
            bytes[4..6].copy_from_slice(&payload_len.to_be_bytes());
            bytes[6] = next;
        }
        let [hdr_len, gso_size, csum_start, csum_offset] = fields.map(|field| field % 320);
        let hdr = VirtioNetHdr { flags, gso_type, hdr_len, gso_size, csum_start, csum_offset };
        if let Ok(mut splitter) = Splitter::new(hdr, &bytes, max) {
            prop_assert!(splitter.segment_len() <= max);
            let mut out = [0; 400];
            for _ in 0..splitter.segment_count() {
                prop_assert!(splitter.next_into(&mut out).is_some_and(|len| len <= splitter.segment_len()));
            }
            prop_assert_eq!(splitter.next_into(&mut out), None);
        }
    }
}

#[test]
fn flags_go_to_the_segments_they_belong_to() {
    let packet = Packet {
        flags: ACK | PSH | FIN | CWR,
        ..Packet::tcp([0, 1, 0, 2], u32::MAX - 5, &[7; 30])
    };
    let hdr = VirtioNetHdr {
        gso_type: GSO_TCPV6 | GSO_ECN,
        ..gso(&packet, 10)
    };
    let segments = split(hdr, &packet.bytes_partial()).unwrap();
    let flags: Vec<u8> = segments.iter().map(|segment| segment[53]).collect();
    assert_eq!(flags, [ACK | CWR, ACK, ACK | PSH | FIN]);
    let sequences: Vec<&[u8]> = segments.iter().map(|segment| &segment[44..48]).collect();
    assert_eq!(
        sequences,
        [&[0xff, 0xff, 0xff, 0xfa][..], &[0, 0, 0, 4], &[0, 0, 0, 14]]
    );
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_all_ones() {
    let mut packet = Packet::udp([0, 1, 0, 2], &[0, 0]);
    // With the checksum of the packet without payload as its payload, the sum is all ones.
    packet.payload = packet.bytes()[46..48].to_vec();
    assert_eq!(packet.bytes()[46..48], [0xff, 0xff]);
    let single = VirtioNetHdr {
        gso_type: GSO_NONE,
        ..gso(&packet, 0)
    };
    for hdr in [single, gso(&packet, 100)] {
        assert_eq!(split(hdr, &packet.bytes_partial()).unwrap(), vec![packet.bytes()]);
    }
}

#[test]
fn too_big_names_the_mtu_and_the_exact_size_fits() {
    let packet = Packet::tcp([0, 1, 0, 2], 1, &[0; 5000]);
    let (hdr, bytes) = (gso(&packet, 1131), packet.bytes_partial());
    assert_eq!(
        Splitter::new(hdr, &bytes, 1202).unwrap_err(),
        SplitError::TooBig { mtu: 1202 }
    );
    assert_eq!(Splitter::new(hdr, &bytes, 1203).unwrap().segment_len(), 1203);
    let whole = VirtioNetHdr::default();
    assert_eq!(
        Splitter::new(whole, &bytes, 1203).unwrap_err(),
        SplitError::TooBig { mtu: 1203 }
    );
}

#[test]
fn a_short_buffer_consumes_nothing() {
    let packet = Packet::udp([0, 1, 0, 2], &[3; 25]);
    let bytes = packet.bytes_partial();
    let mut splitter = Splitter::new(gso(&packet, 10), &bytes, ANY_SIZE).unwrap();
    let mut out = [0; 58];
    assert_eq!(splitter.next_into(&mut out[..57]), None);
    let lens: Vec<_> = core::iter::from_fn(|| splitter.next_into(&mut out)).collect();
    assert_eq!(lens, [58, 58, 53]);
}

#[test]
fn every_error_has_its_cause() {
    let tcp = Packet::tcp([0, 1, 0, 2], 1, &[0; 100]);
    let (hdr, bytes) = (gso(&tcp, 50), tcp.bytes_partial());
    let err = |hdr, bytes: &[u8]| split(hdr, bytes).unwrap_err();
    let edited = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        bytes
    };

    assert_eq!(
        err(hdr, &bytes[..39]),
        SplitError::Packet(InnerError::Ip(WireError::TooShort { needed: 40, got: 39 }))
    );
    assert_eq!(
        err(hdr, &edited(0, 0x55)),
        SplitError::Packet(InnerError::Ip(WireError::WrongIpVersion(5)))
    );
    let v4 = Packet::tcp([0, 1, 0, 2], 1, &[0; 100]).over_v4(7).bytes_partial();
    assert_eq!(err(hdr, &v4), SplitError::Version(GSO_TCPV6));
    assert_eq!(
        err(
            VirtioNetHdr {
                gso_type: GSO_TCPV4,
                ..hdr
            },
            &bytes
        ),
        SplitError::Version(GSO_TCPV4)
    );
    let needed = bytes.len();
    let short = WireError::TooShort { needed, got: 100 };
    assert_eq!(err(hdr, &bytes[..100]), SplitError::Packet(InnerError::Ip(short)));
    let cut = Packet {
        extensions: vec![(60, 0)],
        ..Packet::udp([0, 1, 0, 2], &[])
    };
    let mut cut = cut.bytes();
    cut[41] = 2;
    assert_eq!(err(hdr, &cut), SplitError::Packet(InnerError::Truncated));
    let many = Packet {
        extensions: vec![(60, 0); 8],
        ..tcp.clone()
    };
    assert_eq!(
        err(gso(&many, 50), &many.bytes()),
        SplitError::Packet(InnerError::TooManyExtensions)
    );
    for gso_type in [3, 77] {
        assert_eq!(
            err(VirtioNetHdr { gso_type, ..hdr }, &bytes),
            SplitError::UnsupportedGso(gso_type)
        );
    }
    assert_eq!(
        err(VirtioNetHdr { gso_size: 0, ..hdr }, &bytes),
        SplitError::ZeroSegment
    );
    let wrong = SplitError::Protocol {
        protocol: UDP,
        expected: TCP,
    };
    assert_eq!(err(hdr, &edited(6, UDP)), wrong);
    // A data offset of four words, then one beyond the packet.
    assert_eq!(err(hdr, &edited(52, 0x40)), SplitError::TransportHeader);
    let short = Packet {
        payload: Vec::new(),
        ..tcp.clone()
    };
    let mut bytes_of_short = short.bytes();
    bytes_of_short[52] = 0xf0;
    assert_eq!(err(hdr, &bytes_of_short), SplitError::TransportHeader);
    let fragment = Packet {
        extensions: vec![(44, 0)],
        ..tcp.clone()
    };
    assert_eq!(err(gso(&fragment, 50), &fragment.bytes()), SplitError::Fragment);
    let routed = Packet {
        extensions: vec![(43, 0)],
        ..tcp.clone()
    };
    let mut routed = routed.bytes();
    routed[43] = 1;
    assert_eq!(err(hdr, &routed), SplitError::SourceRouted);
    for (start, offset) in [(39, 16), (40, 131), (0, 16), (u16::MAX, u16::MAX)] {
        let hdr = VirtioNetHdr {
            gso_type: GSO_NONE,
            csum_start: start,
            csum_offset: offset,
            ..hdr
        };
        assert_eq!(err(hdr, &bytes), SplitError::ChecksumRange { start, offset });
    }
}

#[test]
fn completes_icmpv6_too() {
    let mut bytes = Packet::udp([128, 0, 0, 0], &[1, 2, 3]).bytes();
    bytes[6] = ICMPV6;
    let partial = model::sum(&[&model::pseudo_header(&bytes, bytes.len() - 40, ICMPV6)]);
    bytes[42..44].copy_from_slice(&partial.to_be_bytes());
    let hdr = VirtioNetHdr {
        flags: NEEDS_CSUM,
        csum_start: 40,
        csum_offset: 2,
        ..VirtioNetHdr::default()
    };
    assert!(model::verifies(&split(hdr, &bytes).unwrap()[0], 40, ICMPV6));
}

#[test]
fn malformed_ipv4_packets_are_not_cut() {
    let tcp = Packet::tcp([0, 1, 0, 2], 1, &[0; 100]).over_v4(7);
    let (hdr, bytes) = (gso(&tcp, 50), tcp.bytes_partial());
    let err = |edits: &[(usize, u8)]| {
        let mut bytes = bytes.clone();
        edits.iter().for_each(|(at, value)| bytes[*at] = *value);
        split(hdr, &bytes).unwrap_err()
    };
    // The header has five words at least, and no more than the packet.
    let small = WireError::HeaderTooSmall(16);
    assert_eq!(err(&[(0, 0x44)]), SplitError::Packet(InnerError::Ip(small)));
    let total = WireError::LengthMismatch {
        declared: 19,
        actual: 20,
    };
    assert_eq!(err(&[(2, 0), (3, 19)]), SplitError::Packet(InnerError::Ip(total)));
    let short = WireError::TooShort {
        needed: 0xff98,
        got: 152,
    };
    assert_eq!(err(&[(2, 0xff)]), SplitError::Packet(InnerError::Ip(short)));
    // The first fragment, and a later one.
    assert_eq!(err(&[(6, 0x20)]), SplitError::Fragment);
    assert_eq!(err(&[(7, 1)]), SplitError::Fragment);
    for kind in [131, 137] {
        let mut routed = tcp.clone();
        if let Some(v4) = &mut routed.v4 {
            v4.options = vec![1, 7, 3, 0, kind, 3, 4, 0];
        }
        let hdr = gso(&routed, 50);
        assert_eq!(split(hdr, &routed.bytes()).unwrap_err(), SplitError::SourceRouted);
    }
    // A checksum that starts among the options.
    let mut long = tcp.clone();
    if let Some(v4) = &mut long.v4 {
        v4.options = vec![1; 8];
    }
    for (start, fits) in [(27, false), (28, true)] {
        let hdr = VirtioNetHdr {
            gso_type: GSO_NONE,
            csum_start: start,
            ..gso(&long, 0)
        };
        assert_eq!(split(hdr, &long.bytes_partial()).is_ok(), fits);
    }
}

#[test]
fn identifications_count_up_and_wrap() {
    let packet = Packet::udp([0, 1, 0, 2], &[9; 30]).over_v4(0xffff);
    let segments = split(gso(&packet, 10), &packet.bytes_partial()).unwrap();
    let ids: Vec<&[u8]> = segments.iter().map(|segment| &segment[4..6]).collect();
    assert_eq!(ids, [[0xff, 0xff], [0, 0], [0, 1]]);
    assert!(segments.iter().all(|segment| segment[6] == 0x40));
}

#[test]
fn an_ipv4_datagram_without_a_checksum_is_not_given_one() {
    let mut bytes = Packet::udp([0, 1, 0, 2], &[7; 9]).over_v4(1).bytes();
    bytes[26..28].fill(0);
    assert_eq!(split(VirtioNetHdr::default(), &bytes).unwrap(), vec![bytes]);
}
