use proptest::prelude::*;

use super::*;

/// Makes a TCP packet with these flags, options and data, and a complete checksum.
fn tcp(flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header_len = TcpHeader::MIN_LEN + options.len();
    let mut packet = vec![0; Ipv6Header::LEN + header_len];
    packet[0] = 0x60;
    packet[6] = PROTOCOL_TCP;
    packet[7] = 64;
    packet[8..40].copy_from_slice(&core::array::from_fn::<u8, 32, _>(|i| 0xfd ^ i as u8));
    let transport = &mut packet[Ipv6Header::LEN..];
    transport[..2].copy_from_slice(&[0xc0, 1]);
    transport[TcpHeader::SEQ_AT..TcpHeader::SEQ_AT + 4].copy_from_slice(&0xffff_ff00_u32.to_be_bytes());
    transport[12] = (header_len as u8 / 4) << 4;
    transport[TcpHeader::FLAGS_AT] = flags;
    transport[TcpHeader::MIN_LEN..].copy_from_slice(options);
    packet.extend(payload);
    let length = (packet.len() - Ipv6Header::LEN) as u16;
    put_be16(&mut packet, Ipv6Header::PAYLOAD_LEN_AT, length);
    let sum = Inner::parse(&packet).unwrap().checksum_of(&packet[Ipv6Header::LEN..]);
    put_be16(&mut packet, Ipv6Header::LEN + TcpHeader::CHECKSUM_AT, sum);
    packet
}

fn all(mut splitter: Splitter<'_>) -> Vec<Vec<u8>> {
    let mut out = vec![0; splitter.segment_len()];
    let mut packets = Vec::new();
    while let Some(len) = splitter.next_into(&mut out) {
        packets.push(out[..len].to_vec());
    }
    packets
}

fn super_packet(size: u16) -> VirtioNetHdr {
    VirtioNetHdr {
        flags: weft_wire::virtio::NEEDS_CSUM,
        gso_type: GSO_TCPV6,
        gso_size: size,
        csum_start: Ipv6Header::LEN as u16,
        csum_offset: TcpHeader::CHECKSUM_AT as u16,
        ..VirtioNetHdr::default()
    }
}

proptest! {
    /// A packet or super-packet that is cut smaller gives the packets of a sender with a smaller
    /// segment size.
    #[test]
    fn recut_is_as_if_the_sender_had_done_so(
        payload in prop::collection::vec(any::<u8>(), 1..4_000), size in 1_u16..1_500, max_packet in 540_usize..1_400,
        flags in prop::sample::select(vec![0x10_u8, 0x18, 0x11, 0x19, 0x90, 0x50]), timestamps: bool, whole: bool,
    ) {
        let options: &[u8] = if timestamps { &[1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 8] } else { &[] };
        let packet = tcp(flags, options, &payload);
        let headers = packet.len() - payload.len();
        let hdr = if whole { VirtioNetHdr::default() } else { super_packet(size) };
        let recut = Splitter::recut(hdr, &packet, max_packet);
        if max_packet < headers + LEAST_SEGMENT {
            prop_assert!(recut.is_none());
            return Ok(());
        }
        let each = if whole { max_packet - headers } else { usize::from(size).min(max_packet - headers) };
        let packets = all(recut.unwrap());
        prop_assert_eq!(&packets, &all(Splitter::new(super_packet(each as u16), &packet, max_packet).unwrap()));
        let mut joined = Vec::new();
        for packet in &packets {
            prop_assert!(packet.len() <= max_packet);
            let inner = Inner::parse(packet).unwrap();
            prop_assert_eq!(inner.checksum_of(inner.transport()), 0);
            let seq = inner.tcp().unwrap().seq();
            prop_assert_eq!(seq, 0xffff_ff00_u32.wrapping_add(joined.len() as u32));
            joined.extend_from_slice(&packet[headers..]);
        }
        prop_assert_eq!(joined, payload);
    }

    #[test]
    fn any_bytes_are_recut_or_not(
        fields in any::<[u16; 4]>(), flags in 0_u8..4, gso in prop::sample::select(vec![0_u8, 4, 5]),
        mut bytes in prop::collection::vec(any::<u8>(), 40..300), max in 0_usize..800, next in prop::sample::select(vec![0_u8, 6, 43, 44]),
    ) {
        bytes[0] = 0x60;
        bytes[6] = next;
        let length = (bytes.len() - Ipv6Header::LEN) as u16;
        put_be16(&mut bytes, Ipv6Header::PAYLOAD_LEN_AT, length);
        let [hdr_len, gso_size, csum_start, csum_offset] = fields.map(|field| field % 320);
        let hdr = VirtioNetHdr { flags, gso_type: gso, hdr_len, gso_size, csum_start, csum_offset };
        if let Some(splitter) = Splitter::recut(hdr, &bytes, max) {
            prop_assert!(splitter.segment_len() <= max);
            let count = splitter.segment_count();
            prop_assert_eq!(all(splitter).len(), count);
        }
    }
}

#[test]
fn packets_that_must_stay_whole_are_not_cut() {
    let recut = |packet: &[u8]| Splitter::recut(VirtioNetHdr::default(), packet, 600).is_some();
    let data = [7; 1_000];
    assert!(recut(&tcp(TcpHeader::ACK, &[], &data)));
    for flag in [TcpHeader::SYN, TcpHeader::RST, TcpHeader::URG] {
        assert!(!recut(&tcp(TcpHeader::ACK | flag, &[], &data)));
    }
    // A signature (RFC 2385) and an authentication option (RFC 5925), both padded.
    let mut signed = vec![19, 18];
    signed.resize(20, 1);
    assert!(!recut(&tcp(TcpHeader::ACK, &signed, &data)));
    assert!(!recut(&tcp(TcpHeader::ACK, &[29, 4, 1, 1], &data)));
    let mut wrong = tcp(TcpHeader::ACK, &[], &data);
    wrong[100] ^= 1;
    assert!(!recut(&wrong));
}

/// However small a size others announce, one TUN read gives a bounded number of segments.
#[test]
fn one_read_is_cut_in_a_bounded_number_of_segments() {
    let packet = tcp(TcpHeader::ACK, &[], &vec![7; 65_000]);
    let headers = Ipv6Header::LEN + TcpHeader::MIN_LEN;
    let mut largest = 0;
    for max_packet in 0..2_000 {
        match Splitter::recut(super_packet(1_400), &packet, max_packet) {
            Some(splitter) => largest = largest.max(splitter.segment_count()),
            None => assert!(max_packet < headers + LEAST_SEGMENT, "{max_packet}"),
        }
    }
    assert_eq!(largest, 65_000_usize.div_ceil(LEAST_SEGMENT));
}
