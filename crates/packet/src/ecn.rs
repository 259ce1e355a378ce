//! Marks of congestion: the CE flag of frames, and what becomes of it in the IP packet inside.
//!
//! Source: FIPS fips-mmp, "ECN Congestion Signaling"; RFC 3168 section 5.

use weft_wire::checksum::checksum_replace;
use weft_wire::fmp;
use weft_wire::ip::{Ipv4Header, version};

/// Where the two ECN bits are in the second byte of an IPv6 header.
const ECN_BITS: u8 = 0x30;

/// Whether an established frame says that congestion was experienced.
pub(crate) fn is_marked(frame: &[u8]) -> bool {
    frame.get(1).is_some_and(|flags| flags & fmp::FLAG_CE != 0)
}

/// Marks an IPv6 packet and tells whether that changed it. One whose sender does not know ECN stays as it is, as TCP
/// would take the mark for nothing. No checksum covers these bits.
pub(crate) fn mark(packet: &mut [u8]) -> bool {
    let Some(byte) = packet.get_mut(1) else { return false };
    let capable = matches!(*byte & ECN_BITS, 0x10 | 0x20);
    if capable {
        *byte |= ECN_BITS;
    }
    capable
}

/// The same for a packet of either IP version. The checksum of an IPv4 header covers them.
pub(crate) fn mark_full(packet: &mut [u8]) -> bool {
    if version(packet) != Some(4) {
        return mark(packet);
    }
    const ECN: u8 = 0x03;
    let (Some([first, before]), Some(sum)) = (
        packet.first_chunk::<2>().copied(),
        packet.get(Ipv4Header::CHECKSUM_AT..).and_then(<[u8]>::first_chunk::<2>),
    ) else {
        return false;
    };
    if !matches!(before & ECN, 1 | 2) {
        return false;
    }
    let word = |class: u8| u16::from_be_bytes([first, class]);
    let sum = checksum_replace(u16::from_be_bytes(*sum), word(before), word(before | ECN));
    packet[1] = before | ECN;
    packet[Ipv4Header::CHECKSUM_AT..][..2].copy_from_slice(&sum.to_be_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packets_that_can_be_marked_are() {
        for (before, after) in [(0x4f, 0x4f), (0x5f, 0x7f), (0x6f, 0x7f), (0x7f, 0x7f)] {
            let mut packet = [0x60, before, 0xaa];
            assert_eq!(mark(&mut packet), before != after);
            assert_eq!(packet, [0x60, after, 0xaa]);
        }
        assert!(!mark(&mut [0x60]));
    }

    #[test]
    fn an_ipv4_header_keeps_its_checksum_right() {
        for class in 0..=u8::MAX {
            let mut packet = [0x45, class, 0, 20, 7, 7, 0x40, 0, 64, 6, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1];
            crate::inner::finish_header_v4(&mut packet);
            let marked = mark_full(&mut packet);
            assert_eq!(marked, matches!(class & 3, 1 | 2));
            assert_eq!(packet[1], if marked { class | 3 } else { class });
            assert!(Ipv4Header::parse(&packet).unwrap().has_valid_checksum());
        }
        assert!(!mark_full(&mut [0x45, 1]) && mark_full(&mut [0x60, 0x10]));
    }

    #[test]
    fn the_flag_is_that_of_the_frame() {
        assert!(is_marked(&[0, 0x02]) && is_marked(&[0, 0x07]));
        assert!(!is_marked(&[0, 0x05]) && !is_marked(&[2]));
    }
}
