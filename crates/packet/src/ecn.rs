//! Congestion marks: the ECN field of the underlay and the CE flag of frames, and their effect on
//! the IP packet inside.
//!
//! Source: RFC 6040 section 4.2; FIPS fips-mmp, "ECN Congestion Signaling"; RFC 3168 section 5.
//! docs/decisions/0023-ecn.md.

use weft_wire::checksum::checksum_replace;
use weft_wire::fmp;
use weft_wire::ip::{Ipv4Header, version};

use crate::counters::{Counters, DropReason};

/// The shift of the two ECN bits in the second byte of an IPv6 header.
const IPV6_SHIFT: u32 = 4;

/// Returns whether an established frame is marked as having experienced congestion.
pub(crate) fn is_marked(frame: &[u8]) -> bool {
    frame.get(1).is_some_and(|flags| flags & fmp::FLAG_CE != 0)
}

/// What the path of a frame reports to the packet in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Nothing: the outer IP header has Not-ECT or ECT(0).
    #[default]
    Nothing,
    /// The outer IP header has ECT(1).
    Ect1,
    /// The outer IP header has CE.
    Ce,
    /// A node on the path has marked the frame as having experienced congestion.
    Marked,
}

/// The outcome for the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is unchanged, or became ECT(1).
    Kept,
    /// It has CE now.
    Ce,
    /// Its sender does not support ECN, so the mark becomes a loss.
    Drop,
}

const NOT_ECT: u8 = 0;
const ECT_1: u8 = 1;
const ECT_0: u8 = 2;
const CE: u8 = 3;

impl Seen {
    /// Returns what the ECN bits of an outer IP header report.
    pub(crate) fn outer(bits: u8) -> Self {
        match bits & 3 {
            ECT_1 => Self::Ect1,
            CE => Self::Ce,
            _ => Self::Nothing,
        }
    }

    /// Returns what the CE flag of a node on the path reports.
    pub(crate) fn marked(marked: bool) -> Self {
        if marked { Self::Marked } else { Self::Nothing }
    }

    /// Returns whether it reports congestion.
    pub(crate) fn is_ce(self) -> bool {
        matches!(self, Self::Ce | Self::Marked)
    }

    /// Returns the ECN bits for a packet whose own are `inner`, or `None` if the packet is dropped
    /// (RFC 6040 section 4.2). A mark by a node on the path is ignored if the packet cannot have
    /// it, as in FIPS; the packet is not dropped.
    fn decapsulate(self, inner: u8) -> Option<u8> {
        match (self, inner) {
            (Self::Ce, NOT_ECT) => None,
            (Self::Ce | Self::Marked, ECT_0 | ECT_1) => Some(CE),
            (Self::Ect1, ECT_0) => Some(ECT_1),
            _ => Some(inner),
        }
    }

    /// Applies the mark to an IP packet of either version.
    #[inline]
    pub(crate) fn apply_to(self, packet: &mut [u8]) -> Verdict {
        if self == Self::Nothing {
            return Verdict::Kept;
        }
        self.apply_to_packet(packet).unwrap_or(Verdict::Kept)
    }

    #[cold]
    fn apply_to_packet(self, packet: &mut [u8]) -> Option<Verdict> {
        let v4 = version(packet) == Some(4);
        let [first, before] = *packet.first_chunk::<2>()?;
        let inner = if v4 { before } else { before >> IPV6_SHIFT } & 3;
        let Some(outcome) = self.decapsulate(inner) else {
            return Some(Verdict::Drop);
        };
        let changed = if v4 {
            inner ^ outcome
        } else {
            (inner ^ outcome) << IPV6_SHIFT
        };
        if changed == 0 {
            return Some(Verdict::Kept);
        }
        let after = before ^ changed;
        if v4 {
            // The checksum of an IPv4 header covers these bits; in IPv6 no checksum does.
            let place = packet.get_mut(Ipv4Header::CHECKSUM_AT..)?.first_chunk_mut::<2>()?;
            let word = |class: u8| u16::from_be_bytes([first, class]);
            let sum = checksum_replace(u16::from_be_bytes(*place), word(before), word(after));
            *place = sum.to_be_bytes();
        }
        *packet.get_mut(1)? = after;
        Some(if outcome == CE { Verdict::Ce } else { Verdict::Kept })
    }
}

/// Applies the mark of a frame to its packet for the TUN, and counts it.
#[inline]
pub(crate) fn apply(counters: &mut Counters, seen: Seen, packet: &mut [u8]) -> Result<(), DropReason> {
    match seen.apply_to(packet) {
        Verdict::Kept => Ok(()),
        Verdict::Ce => {
            counters.ce_delivered += 1;
            Ok(())
        }
        Verdict::Drop => Err(DropReason::Congestion),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6040 section 4.2, figure 4: a row for each inner field, with the results of outer
    /// Not-ECT, ECT(0), ECT(1), CE.
    const TABLE: [(u8, [Option<u8>; 4]); 4] = [
        (NOT_ECT, [Some(NOT_ECT), Some(NOT_ECT), Some(NOT_ECT), None]),
        (ECT_0, [Some(ECT_0), Some(ECT_0), Some(ECT_1), Some(CE)]),
        (ECT_1, [Some(ECT_1), Some(ECT_1), Some(ECT_1), Some(CE)]),
        (CE, [Some(CE), Some(CE), Some(CE), Some(CE)]),
    ];

    fn v4(class: u8) -> [u8; 20] {
        let mut packet = [0x45, class, 0, 20, 7, 7, 0x40, 0, 64, 6, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1];
        crate::inner::finish_header_v4(&mut packet);
        packet
    }

    #[test]
    fn each_pair_of_marks_has_the_result_of_rfc_6040() {
        for (inner, row) in TABLE {
            for (outer, outcome) in [NOT_ECT, ECT_0, ECT_1, CE].into_iter().zip(row) {
                let seen = Seen::outer(outer);
                // DSCP and flow label stay unchanged.
                for dscp in [0, 0xb8, 0xfc] {
                    let mut packet = v4(dscp | inner);
                    let verdict = seen.apply_to(&mut packet);
                    assert_eq!(verdict == Verdict::Drop, outcome.is_none(), "{inner} {outer}");
                    assert_eq!(packet[1], dscp | outcome.unwrap_or(inner), "{inner} {outer}");
                    assert!(Ipv4Header::parse(&packet).unwrap().has_valid_checksum());
                    let mut packet = [0x60 | dscp >> 4, dscp << 4 | inner << 4 | 0x0f, 0xaa];
                    let expected = dscp << 4 | outcome.unwrap_or(inner) << 4 | 0x0f;
                    assert_eq!(seen.apply_to(&mut packet), verdict);
                    assert_eq!(packet, [0x60 | dscp >> 4, expected, 0xaa], "{inner} {outer}");
                }
            }
        }
    }

    #[test]
    fn a_mark_of_a_node_on_the_way_drops_nothing() {
        for (inner, marked) in [(NOT_ECT, NOT_ECT), (ECT_0, CE), (ECT_1, CE), (CE, CE)] {
            let mut packet = v4(inner);
            assert_ne!(Seen::Marked.apply_to(&mut packet), Verdict::Drop);
            assert_eq!(packet[1], marked);
        }
        assert_eq!(Seen::marked(true), Seen::Marked);
        assert_eq!(Seen::Marked.apply_to(&mut [0x60]), Verdict::Kept);
    }

    #[test]
    fn the_flag_is_that_of_the_frame() {
        assert!(is_marked(&[0, 0x02]) && is_marked(&[0, 0x07]));
        assert!(!is_marked(&[0, 0x05]) && !is_marked(&[2]));
    }
}
