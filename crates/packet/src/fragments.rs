//! Fragments of IPv4 packets for frames that carry no pieces of packets (RFC 791, section 3.2).

use weft_wire::ip::Ipv4Header;

use crate::inner::{finish_header_v4, put_be16};
use crate::split::Splitter;

/// The bit "more fragments" of the first byte of flags.
const MORE: u8 = 0x20;
/// The unit of the offset of a fragment, in bytes.
const UNIT: usize = 8;

/// Cuts the splitter's packets into fragments of at most `longest` bytes, and calls `send` with each.
/// Returns false, without a call, for packets that may not be fragmented, or that have options in their
/// header, of which some belong into each fragment.
pub(crate) fn cut(mut splitter: Splitter<'_>, longest: usize, mut send: impl FnMut(&[u8])) -> bool {
    let each = longest.saturating_sub(Ipv4Header::MIN_LEN) / UNIT * UNIT;
    if splitter.is_ipv6() || !splitter.may_fragment() || splitter.has_ipv4_options() || each == 0 {
        return false;
    }
    let mut packet = vec![0; splitter.segment_len()];
    let mut fragment = vec![0; Ipv4Header::MIN_LEN + each];
    while let Some(len) = splitter.next_into(&mut packet) {
        let (header, payload) = packet[..len].split_at(Ipv4Header::MIN_LEN);
        let flags = u16::from_be_bytes([header[Ipv4Header::FLAGS_AT], header[Ipv4Header::FLAGS_AT + 1]]);
        let mut pieces = payload.chunks(each).zip((0_usize..).step_by(each / UNIT)).peekable();
        while let Some((piece, units)) = pieces.next() {
            let end = Ipv4Header::MIN_LEN + piece.len();
            let Some(out) = fragment.get_mut(..end) else {
                return true;
            };
            let (front, rest) = out.split_at_mut(Ipv4Header::MIN_LEN);
            front.copy_from_slice(header);
            rest.copy_from_slice(piece);
            put_be16(front, Ipv4Header::TOTAL_LEN_AT, end as u16);
            put_be16(front, Ipv4Header::FLAGS_AT, flags + units as u16);
            if pieces.peek().is_some() {
                front[Ipv4Header::FLAGS_AT] |= MORE;
            }
            finish_header_v4(front);
            send(out);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weft_wire::virtio::VirtioNetHdr;

    use super::*;

    fn packet(flags: [u8; 2], payload: &[u8]) -> Vec<u8> {
        let len = (Ipv4Header::MIN_LEN + payload.len()) as u16;
        let mut packet = vec![
            0x45, 0, 0, 0, 0x12, 0x34, flags[0], flags[1], 64, 17, 0, 0, 10, 44, 0, 1, 10, 44, 0, 2,
        ];
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        finish_header_v4(&mut packet);
        packet.extend_from_slice(payload);
        packet
    }

    fn fragments(packet: &[u8], longest: usize) -> Option<Vec<Vec<u8>>> {
        let splitter = Splitter::new(VirtioNetHdr::default(), packet, usize::MAX).unwrap();
        let mut all = Vec::new();
        cut(splitter, longest, |fragment| all.push(fragment.to_vec())).then_some(all)
    }

    proptest! {
        #[test]
        fn the_fragments_make_the_packet_again(
            payload in prop::collection::vec(any::<u8>(), 1..6_000), longest in 28_usize..1_500, first in 0_u16..100, more: bool,
        ) {
            // A fragment itself may be cut further.
            let flags = (first | if more { 0x2000 } else { 0 }).to_be_bytes();
            let payload = if more { &payload[..payload.len() / UNIT * UNIT] } else { &payload[..] };
            prop_assume!(!payload.is_empty());
            let all = fragments(&packet(flags, payload), longest).unwrap();
            let mut joined = vec![0; payload.len()];
            for (n, fragment) in all.iter().enumerate() {
                let header = Ipv4Header::parse(fragment).unwrap();
                prop_assert!(header.has_valid_checksum() && fragment.len() <= longest && header.id() == 0x1234);
                let field = u16::from_be_bytes([fragment[6], fragment[7]]);
                prop_assert_eq!(field & 0x2000 != 0, more || n + 1 < all.len());
                let at = usize::from((field & 0x1fff) - first) * UNIT;
                joined[at..at + header.payload().len()].copy_from_slice(header.payload());
            }
            prop_assert_eq!(joined, payload);
        }
    }

    #[test]
    fn packets_that_may_not_be_cut_stay_whole() {
        assert_eq!(fragments(&packet([0x40, 0], &[7; 2_000]), 1_150), None);
        let mut options = packet([0, 0], &[1; 2_000]);
        options[0] = 0x46;
        finish_header_v4(&mut options[..24]);
        assert_eq!(fragments(&options, 1_150), None);
        assert_eq!(fragments(&packet([0, 0], &[7; 2_000]), 27), None);
    }
}
