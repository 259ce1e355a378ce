//! TCP MSS clamping: both ends of a connection learn what the path takes (RFC 9293 section 3.7.1).
//!
//! It applies to SYN and SYN-ACK in both directions, after [`split`](crate::split) has completed
//! the checksum: the incremental update (RFC 1624) needs a full one.

use weft_wire::checksum::checksum_replace;
use weft_wire::ip::{Ipv4Header, Ipv6Header, PROTOCOL_TCP, PROTOCOL_UDP, version};
use weft_wire::transport::{TcpHeader, TcpOption};

use crate::inner::{Inner, put_be16};

/// The default UDP payload of FIPS, which has not been measured on the path, in bytes.
const UNMEASURED: u16 = 1280;

/// The UDP payload that every IPv6 path takes: its least MTU of 1,280 (RFC 8200 section 5) less 48
/// for the headers of IPv6 and UDP.
const SURE: u16 = 1232;

/// Returns the largest UDP payload that TCP shall fill if the setting is `mtu`, in bytes.
///
/// On a path that drops datagrams above the sure size without an error, a connection would open and
/// then stall. Until probes show more, only a setting above the default counts as knowledge of the
/// path.
pub fn cautious_payload(mtu: u16) -> u16 {
    if mtu > UNMEASURED { mtu } else { mtu.min(SURE) }
}

/// Returns whether a packet may be a TCP SYN: a cheap check that excludes most others. Any packet
/// with extension headers may be one.
pub(crate) fn opens_connection(packet: &[u8]) -> bool {
    match packet.get(Ipv6Header::NEXT_HEADER_AT) {
        Some(&PROTOCOL_TCP) => {
            let flags = packet.get(Ipv6Header::LEN + TcpHeader::FLAGS_AT);
            flags.is_some_and(|flags| flags & TcpHeader::SYN != 0)
        }
        Some(&PROTOCOL_UDP) | None => false,
        Some(_) => true,
    }
}

/// Like [`opens_connection`], for a packet of either IP version.
pub(crate) fn opens_connection_full(packet: &[u8]) -> bool {
    if version(packet) != Some(4) {
        return opens_connection(packet);
    }
    packet.get(Ipv4Header::PROTOCOL_AT) == Some(&PROTOCOL_TCP)
        && match packet.first() {
            Some(0x45) => {
                let flags = packet.get(Ipv4Header::MIN_LEN + TcpHeader::FLAGS_AT);
                flags.is_some_and(|flags| flags & TcpHeader::SYN != 0)
            }
            _ => true,
        }
}

/// Lowers the MSS option of a TCP SYN in the IP packet to what a packet of `max_packet` octets has
/// room for: 60 less, for the headers of IPv6 and TCP, or 40 less in IPv4. Returns whether the
/// packet was changed.
///
/// Every MSS option is lowered, because stacks differ in which of several they use. Everything else
/// stays as it is: other packets, a smaller MSS, malformed headers or options, and any packet if
/// `max_packet` leaves no room.
pub fn clamp(packet: &mut [u8], max_packet: usize) -> bool {
    let ip = match version(packet) {
        Some(4) => Ipv4Header::MIN_LEN,
        _ => Ipv6Header::LEN,
    };
    let room = max_packet.saturating_sub(ip + TcpHeader::MIN_LEN);
    let mss = u16::try_from(room).unwrap_or(u16::MAX);
    if mss == 0 {
        return false;
    }
    let mut changed = false;
    while let Some((start, at, old)) = larger(packet, mss) {
        lower(&mut packet[start..], at, old, mss);
        changed = true;
    }
    changed
}

/// Finds an MSS option above `mss` in a SYN. Returns the offset of the TCP header, the offset of
/// the value in that header, and the value.
fn larger(packet: &[u8], mss: u16) -> Option<(usize, usize, u16)> {
    let inner = Inner::parse(packet).ok()?;
    let tcp = inner.tcp().filter(|tcp| tcp.flags() & TcpHeader::SYN != 0)?;
    tcp.options().find_map(|option| match (option.kind, option.data) {
        (TcpOption::MSS, &[high, low]) => {
            let value = u16::from_be_bytes([high, low]);
            (value > mss).then_some((inner.transport_start(), option.at + 2, value))
        }
        _ => None,
    })
}

/// Replaces the value at `at` and updates the checksum.
fn lower(tcp: &mut [u8], at: usize, old: u16, mss: u16) {
    let field = TcpHeader::CHECKSUM_AT;
    let checksum = u16::from_be_bytes([tcp[field], tcp[field + 1]]);
    // At an odd offset the value straddles two checksum words; its octets then count with the other
    // weight.
    let (from, to) = if at.is_multiple_of(2) {
        (old, mss)
    } else {
        (old.swap_bytes(), mss.swap_bytes())
    };
    put_be16(tcp, at, mss);
    put_be16(tcp, field, checksum_replace(checksum, from, to));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weft_wire::checksum::{checksum_add, checksum_finish, pseudo_header_sum_v6};

    use super::*;

    fn syn(flags: u8, options: &[u8]) -> Vec<u8> {
        let mut options = options.to_vec();
        options.resize(options.len().next_multiple_of(4), 0);
        let tcp_len = TcpHeader::MIN_LEN + options.len();
        let mut packet = vec![0; Ipv6Header::LEN];
        packet[0] = 0x60;
        packet[5] = tcp_len as u8;
        packet[6] = PROTOCOL_TCP;
        packet[7] = 64;
        packet[8..40].copy_from_slice(&core::array::from_fn::<u8, 32, _>(|i| 0xfd ^ i as u8));
        packet.extend([
            0xc0,
            0,
            0,
            22,
            1,
            2,
            3,
            4,
            0,
            0,
            0,
            0,
            (tcp_len as u8 / 4) << 4,
            flags,
            0xff,
            0xff,
            0,
            0,
            0,
            0,
        ]);
        packet.extend(options);
        let checksum = checksum(&packet);
        put_be16(&mut packet, 40 + TcpHeader::CHECKSUM_AT, checksum);
        packet
    }

    fn checksum(packet: &[u8]) -> u16 {
        let ip = Ipv6Header::parse(packet).unwrap();
        let pseudo = pseudo_header_sum_v6(ip.src(), ip.dst(), PROTOCOL_TCP, ip.payload().len() as u32);
        checksum_finish(checksum_add(pseudo, ip.payload()))
    }

    fn be16(packet: &[u8], at: usize) -> u16 {
        u16::from_be_bytes([packet[at], packet[at + 1]])
    }

    fn valid(packet: &[u8]) -> bool {
        checksum(packet) == 0
    }

    #[test]
    fn tcp_is_cautious_unless_a_larger_mtu_is_set() {
        let cases = [
            (1200, 1200),
            (1232, 1232),
            (1233, 1232),
            (1280, 1232),
            (1281, 1281),
            (9000, 9000),
        ];
        assert!(cases.iter().all(|(mtu, payload)| cautious_payload(*mtu) == *payload));
    }

    #[test]
    fn lowers_to_the_room_of_the_path() {
        let mut packet = syn(TcpHeader::SYN, &[2, 4, 0x05, 0xa0]);
        assert!(clamp(&mut packet, 1203));
        assert_eq!(be16(&packet, 62), 1143);
        assert!(valid(&packet));
    }

    #[test]
    fn syn_ack_is_clamped_and_data_is_not() {
        assert!(clamp(&mut syn(TcpHeader::SYN | 0x10, &[2, 4, 0x05, 0xa0]), 1203));
        let mut data = syn(0x10, &[2, 4, 0x05, 0xa0]);
        assert!(!clamp(&mut data, 1203));
        assert_eq!(data, syn(0x10, &[2, 4, 0x05, 0xa0]));
    }

    #[test]
    fn odd_offsets_and_repeated_options_keep_the_checksum_right() {
        let mut packet = syn(TcpHeader::SYN, &[1, 2, 4, 0x05, 0xa0, 4, 2, 2, 4, 0xff, 0xff]);
        assert!(clamp(&mut packet, 1203));
        assert_eq!(be16(&packet, 63), 1143);
        assert_eq!(be16(&packet, 69), 1143);
        assert!(valid(&packet));
    }

    #[test]
    fn leaves_alone_what_needs_no_clamp_or_makes_no_sense() {
        for options in [
            &[2, 4, 0x04, 0x00][..],
            &[0, 2, 4, 0xff, 0xff],
            &[2, 3, 0xff, 0xff],
            &[5, 0, 2, 4, 0xff, 0xff],
            &[3, 99, 2, 4, 0xff, 0xff],
            &[],
        ] {
            let mut packet = syn(TcpHeader::SYN, options);
            assert!(!clamp(&mut packet, 1203), "{options:?}");
            assert_eq!(packet, syn(TcpHeader::SYN, options));
        }
    }

    #[test]
    fn never_writes_an_mss_of_zero() {
        for max_packet in [0, 59, 60] {
            assert!(!clamp(&mut syn(TcpHeader::SYN, &[2, 4, 0x05, 0xa0]), max_packet));
        }
    }

    proptest! {
        #[test]
        fn checksum_stays_right_and_only_mss_changes(
            options in proptest::collection::vec(0u8..8, 0..40), max_packet in 0usize..2_000,
        ) {
            let before = syn(TcpHeader::SYN, &options);
            let mut after = before.clone();
            prop_assert!(opens_connection(&before));
            let changed = clamp(&mut after, max_packet);
            prop_assert_eq!(changed, before != after);
            prop_assert!(valid(&after));
            prop_assert_eq!(&before[..40 + TcpHeader::CHECKSUM_AT], &after[..40 + TcpHeader::CHECKSUM_AT]);
            prop_assert!(!clamp(&mut after, max_packet));
        }

        #[test]
        fn any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), max_packet in 0usize..70_000) {
            if let Some(first) = bytes.first_mut() {
                *first = 0x60;
            }
            let len = bytes.len();
            clamp(&mut bytes, max_packet);
            prop_assert_eq!(bytes.len(), len);
        }
    }
}
