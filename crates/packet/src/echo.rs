//! Echoes of this node: ICMPv6 echo requests (RFC 4443 section 4) that it sends through a session,
//! and whose answers it recognises. So `weft ping` needs neither a socket nor a privilege, and
//! proves that payload passes (L13).

use weft_wire::NodeAddr;
use weft_wire::checksum::{checksum_add, checksum_finish, pseudo_header_sum_v6};
use weft_wire::ip::PROTOCOL_ICMPV6;

const HEADER: usize = 40;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
/// ICMPv6 header, token, and padding to the size that ping(8) sends: 64 bytes behind the IPv6
/// header.
const ICMP_LEN: usize = 64;
const TOKEN_AT: usize = HEADER + 8;

/// Returns an echo request from `me` to `peer`. `token` distinguishes it from those of other
/// programs.
pub(crate) fn request(me: NodeAddr, peer: NodeAddr, token: u64, seq: u16) -> [u8; HEADER + ICMP_LEN] {
    let mut packet = [0; HEADER + ICMP_LEN];
    packet[0] = 0x60;
    packet[4..6].copy_from_slice(&(ICMP_LEN as u16).to_be_bytes());
    packet[6] = PROTOCOL_ICMPV6;
    packet[7] = 64;
    let (src, dst) = (me.to_ipv6(), peer.to_ipv6());
    packet[8..24].copy_from_slice(&src.octets());
    packet[24..40].copy_from_slice(&dst.octets());
    packet[HEADER] = ECHO_REQUEST;
    packet[HEADER + 4..HEADER + 6].copy_from_slice(&(token as u16).to_be_bytes());
    packet[HEADER + 6..HEADER + 8].copy_from_slice(&seq.to_be_bytes());
    packet[TOKEN_AT..TOKEN_AT + 8].copy_from_slice(&token.to_be_bytes());
    let sum = checksum_add(
        pseudo_header_sum_v6(src, dst, PROTOCOL_ICMPV6, ICMP_LEN as u32),
        &packet[HEADER..],
    );
    packet[HEADER + 2..HEADER + 4].copy_from_slice(&checksum_finish(sum).to_be_bytes());
    packet
}

/// Returns the sequence number if `packet` answers a request with this token.
pub(crate) fn reply(packet: &[u8], token: u64) -> Option<u16> {
    let is_reply = *packet.get(6)? == PROTOCOL_ICMPV6 && *packet.get(HEADER)? == ECHO_REPLY;
    let ours = packet.get(TOKEN_AT..TOKEN_AT + 8)? == token.to_be_bytes();
    let seq = packet.get(HEADER + 6..HEADER + 8)?;
    (is_reply && ours).then_some(u16::from_be_bytes(seq.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_to_our_own_request_is_recognised() {
        let (a, b) = (NodeAddr::new([1; 16]), NodeAddr::new([2; 16]));
        let mut packet = request(a, b, 0x1234_5678_9abc_def0, 7);
        assert_eq!(reply(&packet, 0x1234_5678_9abc_def0), None, "a request is no answer");
        packet[HEADER] = ECHO_REPLY;
        assert_eq!(reply(&packet, 0x1234_5678_9abc_def0), Some(7));
        assert_eq!(reply(&packet, 1), None);
        assert!((0..packet.len()).all(|n| n >= TOKEN_AT + 8 || reply(&packet[..n], 0x1234_5678_9abc_def0).is_none()));
    }

    #[test]
    fn the_checksum_is_right() {
        let (a, b) = (NodeAddr::new([1; 16]), NodeAddr::new([2; 16]));
        let packet = request(a, b, 99, 1);
        let pseudo = pseudo_header_sum_v6(a.to_ipv6(), b.to_ipv6(), PROTOCOL_ICMPV6, ICMP_LEN as u32);
        assert_eq!(checksum_finish(checksum_add(pseudo, &packet[HEADER..])), 0);
    }
}
