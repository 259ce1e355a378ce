//! Packets that are larger than a link's MTU: detection, and the ICMP error.
//!
//! The cable has no address of its own, so the source of the error is the packet's destination
//! address. Senders match it by the quoted packet.

use weft_os::tap::ETHERNET_HEADER_LEN;

use crate::nat::packet::checksum;

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const IPV4_HEADER_LEN: usize = 20;
const IPV6_HEADER_LEN: usize = 40;
const ICMP_HEADER_LEN: usize = 8;
/// Maximum length of the quotation: RFC 1812, section 4.3.2.3 (an error of 576 bytes at most), and
/// RFC 4443, section 2.4 (1,280).
const QUOTE_V4: usize = 576 - IPV4_HEADER_LEN - ICMP_HEADER_LEN;
const QUOTE_V6: usize = 1280 - IPV6_HEADER_LEN - ICMP_HEADER_LEN;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Whether a frame of `len` bytes with this beginning contains an IP packet of more than `mtu`
/// bytes.
pub(super) fn is_too_big(frame: &[u8], len: usize, mtu: u16) -> bool {
    let is_ip = frame.get(12..14).is_some_and(|kind| kind == IPV4 || kind == IPV6);
    is_ip && len > ETHERNET_HEADER_LEN + usize::from(mtu)
}

/// The frame with the error for the sender of `frame`; `None` if no error may be sent (RFC 1122,
/// section 3.2.2: no errors about errors, about fragments other than the first, to or from
/// addresses that are not those of single hosts).
pub(super) fn answer(frame: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let (header, packet) = frame.split_at_checked(ETHERNET_HEADER_LEN)?;
    let (to, from, kind) = (header.get(..6)?, header.get(6..12)?, header.get(12..14)?);
    // A multicast address.
    if to.first()? & 1 != 0 {
        return None;
    }
    let error = if kind == IPV4 {
        answer_v4(packet, mtu)?
    } else {
        answer_v6(packet, mtu)?
    };
    Some([from, to, kind, &error].concat())
}

fn answer_v4(packet: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let header = packet.first_chunk::<IPV4_HEADER_LEN>()?;
    let offset = u16::from_be_bytes([header[6], header[7]]) & 0x1fff;
    let transport = usize::from(header[0] & 0x0f) * 4;
    let is_error = header[9] == ICMP && !matches!(packet.get(transport)?, 0 | 8);
    if offset != 0 || is_error {
        return None;
    }
    let [mtu_high, mtu_low] = mtu.to_be_bytes();
    let mut icmp = vec![3, 4, 0, 0, 0, 0, mtu_high, mtu_low];
    icmp.extend(packet.iter().take(QUOTE_V4));
    let sum = checksum(&icmp);
    icmp.get_mut(2..4)?.copy_from_slice(&sum.to_be_bytes());
    let len = u16::try_from(IPV4_HEADER_LEN + icmp.len()).ok()?;
    let mut error = vec![0x45, 0];
    error.extend_from_slice(&len.to_be_bytes());
    error.extend_from_slice(&[0, 0, 0, 0, 64, ICMP, 0, 0]);
    error.extend_from_slice(header.get(16..20)?);
    error.extend_from_slice(header.get(12..16)?);
    let sum = checksum(&error);
    error.get_mut(10..12)?.copy_from_slice(&sum.to_be_bytes());
    error.extend_from_slice(&icmp);
    Some(error)
}

fn answer_v6(packet: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let header = packet.first_chunk::<IPV6_HEADER_LEN>()?;
    // Types below 128 are errors.
    if header[6] == ICMPV6 && *packet.get(IPV6_HEADER_LEN)? < 128 {
        return None;
    }
    let (source, destination) = (header.get(8..24)?, header.get(24..40)?);
    let [mtu_high, mtu_low] = mtu.to_be_bytes();
    let mut icmp = vec![2, 0, 0, 0, 0, 0, mtu_high, mtu_low];
    icmp.extend(packet.iter().take(QUOTE_V6));
    let len = u16::try_from(icmp.len()).ok()?;
    // RFC 8200, section 8.1.
    let pseudo = [
        destination,
        source,
        &u32::from(len).to_be_bytes(),
        &[0, 0, 0, ICMPV6],
        &icmp,
    ]
    .concat();
    let sum = checksum(&pseudo);
    icmp.get_mut(2..4)?.copy_from_slice(&sum.to_be_bytes());
    let mut error = vec![0x60, 0, 0, 0];
    error.extend_from_slice(&len.to_be_bytes());
    error.extend_from_slice(&[ICMPV6, 64]);
    error.extend_from_slice(destination);
    error.extend_from_slice(source);
    error.extend_from_slice(&icmp);
    Some(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: [u8; 2], packet: &[u8]) -> Vec<u8> {
        [&[2, 0, 0, 0, 0, 9][..], &[2, 0, 0, 0, 0, 7], &kind, packet].concat()
    }

    fn v4(len: usize) -> Vec<u8> {
        let mut packet = vec![0; len];
        packet[..20].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet
    }

    #[test]
    fn only_ip_packets_have_a_size_limit() {
        let is_too_big = |frame: &[u8], mtu| is_too_big(frame, frame.len(), mtu);
        assert!(is_too_big(&frame(IPV4, &v4(1281)), 1280));
        assert!(!is_too_big(&frame(IPV4, &v4(1280)), 1280));
        assert!(is_too_big(&frame(IPV6, &[0; 1281]), 1280));
        assert!(!is_too_big(&frame([0x08, 0x06], &[0; 1400]), 1280));
        assert!(!is_too_big(&[], 0));
    }

    #[test]
    fn the_sender_of_an_ipv4_packet_learns_the_mtu() {
        let error = answer(&frame(IPV4, &v4(1400)), 1280).unwrap();
        assert_eq!(error[..14], [2, 0, 0, 0, 0, 7, 2, 0, 0, 0, 0, 9, 8, 0]);
        let packet = &error[14..];
        assert_eq!(packet.len(), 576);
        assert_eq!(
            (packet[12..16].to_vec(), packet[16..20].to_vec()),
            (vec![10, 0, 0, 2], vec![10, 0, 0, 1])
        );
        assert_eq!((checksum(&packet[..20]), checksum(&packet[20..])), (0, 0));
        assert_eq!(packet[20..22], [3, 4]);
        assert_eq!(packet[26..28], 1280_u16.to_be_bytes());
        assert_eq!(packet[28..], v4(1400)[..548]);
    }

    #[test]
    fn the_sender_of_an_ipv6_packet_learns_the_mtu() {
        let mut packet = vec![0x60, 0, 0, 0, 5, 80, 17, 64];
        packet.extend((0..32).map(|i| if i < 16 { 1 } else { 2 }));
        packet.resize(1400, 0xaa);
        let error = answer(&frame(IPV6, &packet), 1280).unwrap();
        let answered = &error[14..];
        assert_eq!(answered.len(), 1280);
        assert_eq!((answered[8], answered[24]), (2, 1));
        assert_eq!(answered[40..48][..2], [2, 0]);
        assert_eq!(answered[44..48], 1280_u32.to_be_bytes());
        let pseudo = [
            &answered[8..40],
            &1240_u32.to_be_bytes(),
            &[0, 0, 0, 58],
            &answered[40..],
        ]
        .concat();
        assert_eq!(checksum(&pseudo), 0);
    }

    #[test]
    fn no_error_is_sent_about_packets_that_permit_none() {
        let mut to_all = frame(IPV4, &v4(1400));
        to_all[0] = 1;
        let mut fragment = v4(1400);
        fragment[7] = 1;
        let mut error = v4(1400);
        error[9] = ICMP;
        error[20] = 3;
        let mut echo = error.clone();
        echo[20] = 8;
        for silent in [to_all, frame(IPV4, &fragment), frame(IPV4, &error)] {
            assert_eq!(answer(&silent, 1280), None);
        }
        assert!(answer(&frame(IPV4, &echo), 1280).is_some());
    }
}
