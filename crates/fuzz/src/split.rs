//! One TUN read: segmented, clamped, answered.

use weft_packet::flow::FlowHasher;
use weft_packet::icmp::{IcmpError, MAX_ERROR_PACKET};
use weft_packet::mss;
use weft_packet::split::{SplitError, Splitter};
use weft_wire::virtio::{GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, VirtioNetHdr};

use super::input::Input;
use super::model::{self, CWR, FIN, IPV4_HEADER, IPV6_HEADER, PSH, TCP, UDP};

/// Runs any virtio header before any bytes. The segments equal those of a sender without offloads,
/// each fits, and its headers and checksums are correct.
pub fn split(data: &[u8]) {
    let mut input = Input::new(data);
    let (hdr, max_packet, packet) = read(&mut input);
    let _ = FlowHasher::new(u64::from(hdr.hdr_len)).hash(&packet);
    answers(&packet, max_packet);
    let mut splitter = match Splitter::new(hdr, &packet, max_packet) {
        Ok(splitter) => splitter,
        Err(SplitError::TooBig { mtu }) => return assert_eq!(mtu as usize, max_packet),
        Err(_) => return,
    };
    let packet = &packet[..model::told_len(&packet)];
    let expected = match hdr.gso_kind() {
        GSO_NONE => vec![whole(hdr, packet)],
        _ => segments(hdr, packet),
    };
    assert_eq!(splitter.segment_count(), expected.len());
    let (room, mut out) = (splitter.segment_len(), vec![0xaa; splitter.segment_len()]);
    assert!(room <= max_packet, "a segment of {room} bytes where {max_packet} fit");
    assert_eq!(splitter.next_into(&mut []), None, "room for nothing");
    let mut parts = [splitter.clone(), splitter.clone()];
    parts[1].elide_checksums();
    for parts in parts {
        in_parts(parts);
    }
    for (i, expected) in expected.iter().enumerate() {
        let len = splitter.next_into(&mut out).unwrap();
        assert_eq!(out[..len], expected[..], "segment {i}");
        clamped(&out[..len], max_packet);
    }
    assert_eq!(splitter.next_into(&mut out), None);
}

/// Checks that the front of each packet, and the rest in its original buffer, together are the
/// packet.
fn in_parts(mut splitter: Splitter<'_>) {
    let mut wholes = splitter.clone();
    let (mut front, mut whole) = (vec![0xaa; splitter.segment_len()], vec![0x55; splitter.segment_len()]);
    while let Some(len) = wholes.next_into(&mut whole) {
        let (front_len, rest) = splitter.next_front(&mut front).unwrap();
        assert!(front[..front_len] == whole[..front_len] && *rest == whole[front_len..len]);
    }
    assert_eq!(splitter.next_front(&mut front), None);
}

/// The bytes decide how much they are adapted to a packet that is worth splitting.
fn read(input: &mut Input<'_>) -> (VirtioNetHdr, usize, Vec<u8>) {
    let (help, max_packet) = (input.u8(), usize::from(input.u16()));
    let mut hdr = VirtioNetHdr {
        flags: input.u8(),
        gso_type: input.u8(),
        hdr_len: input.u16(),
        gso_size: input.u16(),
        csum_start: input.u16(),
        csum_offset: input.u16(),
    };
    let repeats = if help & 4 != 0 { input.u8() } else { 0 };
    let mut packet = input.all().to_vec();
    // A TUN read is never longer; lengths that do not fit in 16 bits are tried, too.
    let tail = packet.get(IPV6_HEADER + 20..).unwrap_or_default().to_vec();
    for _ in 0..repeats {
        packet.extend(&tail[..tail.len().min(70_000 - packet.len().min(70_000))]);
    }
    let v4 = help & 0x30 == 0x30;
    if help & 1 != 0 && v4 {
        model::make_ipv4(&mut packet);
    } else if help & 1 != 0 {
        model::make_ipv6(&mut packet);
    }
    if help & 2 != 0 {
        let tcp = if v4 { GSO_TCPV4 } else { GSO_TCPV6 };
        hdr.gso_type = [tcp, GSO_UDP_L4, tcp | GSO_ECN, GSO_NONE][usize::from(hdr.gso_type) % 4];
        // Each segment costs a step; hundreds find nothing that ten do not.
        hdr.gso_size = hdr.gso_size.max((packet.len() / 200) as u16);
    }
    (hdr, max_packet, packet)
}

/// The packet unchanged, except for the checksum that the sender left open.
fn whole(hdr: VirtioNetHdr, packet: &[u8]) -> Vec<u8> {
    let mut out = packet.to_vec();
    if hdr.needs_csum() {
        let start = usize::from(hdr.csum_start);
        let at = start + usize::from(hdr.csum_offset);
        let checksum = match !model::sum(&[&packet[start..]]) {
            0 => 0xffff,
            checksum => checksum,
        };
        out[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
    out
}

/// The packets that a sender without offloads makes of the same bytes.
fn segments(hdr: VirtioNetHdr, packet: &[u8]) -> Vec<Vec<u8>> {
    let (start, protocol) = model::transport(packet);
    assert_eq!(protocol, if hdr.gso_kind() == GSO_UDP_L4 { UDP } else { TCP });
    let headers = start
        + if protocol == TCP {
            4 * usize::from(packet[start + 12] >> 4)
        } else {
            8
        };
    let (head, payload) = packet.split_at(headers);
    let mut parts: Vec<&[u8]> = payload.chunks(usize::from(hdr.gso_size)).collect();
    if parts.is_empty() {
        parts.push(&[]);
    }
    let last = parts.len() - 1;
    let segment = |(i, part): (usize, &&[u8])| {
        let mut out = [head, part].concat();
        if model::is_v4(&out) {
            let id = u16::from_be_bytes([out[4], out[5]]).wrapping_add(i as u16);
            out[4..6].copy_from_slice(&id.to_be_bytes());
            model::make_ipv4(&mut out);
        } else {
            model::make_ipv6(&mut out);
        }
        if protocol == TCP {
            let sequence = u32::from_be_bytes(*out[start + 4..].first_chunk().unwrap());
            let sequence = sequence.wrapping_add((i * usize::from(hdr.gso_size)) as u32);
            out[start + 4..start + 8].copy_from_slice(&sequence.to_be_bytes());
            let first = if i == 0 { 0 } else { CWR };
            let open = if i == last { 0 } else { PSH | FIN };
            out[start + 13] &= !(first | open);
        } else {
            let len = ((8 + part.len()) as u16).to_be_bytes();
            out[start + 4..start + 6].copy_from_slice(&len);
        }
        model::complete(&mut out, start, protocol);
        out
    };
    parts.iter().enumerate().map(segment).collect()
}

/// Checks that clamping an MSS changes no length, keeps a correct checksum correct, and is
/// idempotent.
fn clamped(packet: &[u8], max_packet: usize) {
    let mut out = packet.to_vec();
    let changed = mss::clamp(&mut out, max_packet);
    assert_eq!(changed, out != packet);
    if changed {
        let (start, protocol) = (tcp_start(packet), TCP);
        assert_eq!(
            model::verifies(packet, start, protocol),
            model::verifies(&out, start, protocol)
        );
        assert!(!mss::clamp(&mut out, max_packet));
    }
}

/// Like [`model::transport`], also behind a fragment header: the first fragment of a SYN is clamped
/// like a whole one.
fn tcp_start(packet: &[u8]) -> usize {
    if model::is_v4(packet) {
        return model::ipv4_header(packet);
    }
    let (mut at, mut protocol) = (IPV6_HEADER, packet[6]);
    while protocol != TCP {
        let more = if protocol == 44 { 0 } else { usize::from(packet[at + 1]) };
        protocol = packet[at];
        at += 8 + 8 * more;
    }
    at
}

/// Checks that errors about any bytes are whole ICMP packets, never too long.
fn answers(packet: &[u8], mtu: usize) {
    let mut out = [0; MAX_ERROR_PACKET];
    let me = std::net::Ipv6Addr::LOCALHOST;
    for error in [
        IcmpError::NoRoute,
        IcmpError::AdminProhibited,
        IcmpError::AddressUnreachable,
        IcmpError::PacketTooBig { mtu: mtu as u32 },
        IcmpError::TimeExceeded,
    ] {
        if let Some(len) = error.build(me, packet, &mut out) {
            let answer = &out[..len];
            if model::is_v4(packet) {
                assert!(len <= 576 && model::told_len(answer) == len);
                assert_eq!(model::sum(&[&answer[..IPV4_HEADER]]), 0xffff);
                assert_eq!(model::sum(&[&answer[IPV4_HEADER..]]), 0xffff);
                assert_eq!((&answer[12..16], &answer[16..20]), (&packet[16..20], &packet[12..16]));
                assert_eq!(answer[28..], packet[..len - 28]);
            } else {
                assert!(model::verifies(answer, IPV6_HEADER, 58));
                assert_eq!(answer[24..40], packet[8..24]);
                assert_eq!(answer[48..], packet[..len - 48]);
            }
            assert_eq!(
                error.build(me, answer, &mut [0; MAX_ERROR_PACKET]),
                None,
                "an error about an error"
            );
        }
    }
}
