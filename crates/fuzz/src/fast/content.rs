//! Packets in frames, as a hostile peer builds them, and their permitted results.

use weft_wire::NodeAddr;
use weft_wire::fast;
use weft_wire::virtio::VirtioNetHdr;

use super::super::coalesce::{normal, plain_transport};
use super::{HOSTILE, Input, ME, model};

/// Whether the hostile peer may send this packet with its whole header, judged by its addresses and
/// lengths.
pub(super) fn may_enter(packet: &[u8]) -> bool {
    if model::is_v4(packet) {
        let whole = packet.len() >= 20 && (20..=packet.len()).contains(&model::ipv4_header(packet));
        return whole
            && model::told_len(packet) == packet.len()
            && packet[12..14] == [10, HOSTILE.as_bytes()[0]]
            && packet[16..18] == [10, ME.as_bytes()[0]];
    }
    packet.len() >= 40
        && packet[0] >> 4 == 6
        && model::told_len(packet) == packet.len()
        && packet[8..24] == HOSTILE.to_ipv6().octets()
        && packet[24..40] == ME.to_ipv6().octets()
}

/// A packet with its whole header: mostly IPv4 between the subnets of two nodes.
pub(super) fn full_content(input: &mut Input<'_>, (from, to): (NodeAddr, NodeAddr)) -> Vec<u8> {
    let shape = input.u8();
    let mut upper = packet_content(input);
    let protocol = upper[4];
    upper.drain(..6);
    if shape & 7 == 7 {
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
        packet.extend(from.to_ipv6().octets());
        packet.extend(to.to_ipv6().octets());
        packet.extend(upper);
        model::make_ipv6(&mut packet);
        return packet;
    }
    let flags = [0x40, 0x40, 0, 0x20, 0x80, 0x40, 0][usize::from(shape & 7)];
    let mut packet = vec![0x45, shape, 0, 0, 0, shape, flags, 0, 64, protocol, 0, 0];
    packet.extend([10, from.as_bytes()[0], 0, shape & 1, 10, to.as_bytes()[0], 0, 1]);
    if shape & 0x38 == 0x38 {
        packet.extend([1; 4]);
        packet[0] = 0x46;
    }
    packet.extend(upper);
    model::make_ipv4(&mut packet);
    match shape & 0xe0 {
        // Foreign addresses, wrong lengths, and arbitrary bytes.
        0xe0 => packet[13] ^= 1,
        0xc0 => packet[17] ^= 1,
        0xa0 => packet[3] ^= shape,
        0x80 => packet[0] = shape,
        _ => {}
    }
    packet
}

/// The packet of a frame's content, as the document defines it.
pub(super) fn expanded(content: &[u8]) -> Vec<u8> {
    let mut packet = content[..4].to_vec();
    packet.extend([0, 0]);
    packet.extend(&content[4..6]);
    packet.extend(HOSTILE.to_ipv6().octets());
    packet.extend(ME.to_ipv6().octets());
    packet.extend(&content[fast::IPV6_REST..]);
    model::make_ipv6(&mut packet);
    packet
}

/// Content of a frame with a packet: mostly TCP or UDP, with a header that may be truncated or
/// wrong.
pub(super) fn packet_content(input: &mut Input<'_>) -> Vec<u8> {
    let shape = input.u8();
    let protocol = [model::TCP, model::UDP, 58, 44, 0, 43, 60, shape][usize::from(shape & 7)];
    let mut content = vec![0x60, shape & 0x30, 0, 0, protocol, 64];
    let mut upper = input.bytes().to_vec();
    if shape & 8 == 0 {
        let room = upper.len() + if protocol == model::TCP { 20 } else { 8 };
        upper.resize(room, shape);
        match protocol {
            model::TCP => upper[12] = 5 << 4 | upper[12] & 0x0f,
            model::UDP => upper[4..6].copy_from_slice(&(room as u16).to_be_bytes()),
            _ => {}
        }
    }
    content.extend(upper);
    content
}

/// Checks that `got` equals `expected`, except for a smaller MSS, and for a checksum that was left
/// out: it is partial, or correct.
pub(super) fn assert_packet(got: &[u8], expected: &[u8], left_out: bool) {
    let [mut a, mut b] = [got, expected].map(|packet| {
        let mut packet = packet.to_vec();
        weft_packet::mss::clamp(&mut packet, model::IPV6_HEADER + 21);
        packet
    });
    if left_out {
        let (start, protocol) = plain_transport(got);
        let at = start + model::checksum_at(protocol);
        let field = u16::from_be_bytes([got[at], got[at + 1]]);
        let mut begun = got.to_vec();
        begun[at..at + 2].fill(0);
        let pseudo = model::pseudo_sum(&begun, start, protocol);
        let right = model::verifies(got, start, protocol);
        assert!(right || field == pseudo, "the checksum is neither begun nor complete");
        a[at..at + 2].fill(0);
        b[at..at + 2].fill(0);
    }
    assert!(normal(&a) == normal(&b), "another packet arrives:\n{a:02x?}\n{b:02x?}");
}

/// Whether a packet is sent without the checksum that its virtio header asks for, so that the
/// field's value does not matter: TCP or UDP with a whole header right behind that of IP. Segments
/// have a correct one either way.
pub(super) fn left_out(hdr: VirtioNetHdr, packet: &[u8]) -> bool {
    let (behind, protocol) = plain_transport(packet);
    if model::is_v4(packet) && (packet[0] != 0x45 || packet[6] & 0x3f != 0 || packet[7] != 0) {
        return false;
    }
    let upper = &packet[behind..];
    let whole = match protocol {
        model::TCP => upper.len() >= 20 && (20..=upper.len()).contains(&(usize::from(upper[12] >> 4) * 4)),
        model::UDP => upper.len() >= 8,
        _ => false,
    };
    let (start, offset) = (usize::from(hdr.csum_start), usize::from(hdr.csum_offset));
    let there = start == behind && offset == model::checksum_at(protocol);
    hdr.gso_kind() == 0 && hdr.needs_csum() && whole && there
}
