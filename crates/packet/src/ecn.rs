//! Marks of congestion: the CE flag of frames, and what becomes of it in the IP packet inside.
//!
//! Source: FIPS fips-mmp, "ECN Congestion Signaling"; RFC 3168 section 5.

use weft_wire::fmp;

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
    fn the_flag_is_that_of_the_frame() {
        assert!(is_marked(&[0, 0x02]) && is_marked(&[0, 0x07]));
        assert!(!is_marked(&[0, 0x05]) && !is_marked(&[2]));
    }
}
