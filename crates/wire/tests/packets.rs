//! Views of IP packets and their upper layers.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;
use weft_wire::WireError;
use weft_wire::checksum::{checksum_add, checksum_finish};
use weft_wire::ip::{self, Ipv4Header, Ipv6Header};
use weft_wire::transport::{TcpHeader, UdpHeader};

/// A SYN of Linux over IPv6: MSS 1440, SACK permitted, timestamps, window scale; the checksum is
/// correct.
const SYN: &str = "
    6abcdef0 0028 06 40
    fd000000000000000000000000000001 fd000000000000000000000000000002
    c350 1f90 01020304 00000000 a0 02 fd20 0000 0000
    020405a0 0402 080a0000000100000000 01 030307";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[test]
fn reads_a_syn() {
    let packet = hex(SYN);
    let ip = Ipv6Header::parse(&packet).unwrap();
    assert_eq!((ip.traffic_class(), ip.flow_label()), (0xab, 0xcdef0));
    assert_eq!(
        (ip.payload_len(), ip.next_header(), ip.hop_limit()),
        (40, ip::PROTOCOL_TCP, 64)
    );
    assert_eq!(ip.src(), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
    assert_eq!(ip.dst(), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));
    assert_eq!(ip::version(&packet), Some(6));

    let tcp = TcpHeader::parse(ip.payload()).unwrap();
    assert_eq!((tcp.src_port(), tcp.dst_port()), (50_000, 8080));
    assert_eq!((tcp.seq(), tcp.ack(), tcp.window()), (0x0102_0304, 0, 0xfd20));
    assert_eq!(
        (tcp.flags(), tcp.header_len(), tcp.payload().len()),
        (TcpHeader::SYN, 40, 0)
    );
    let options: Vec<_> = tcp.options().map(|o| (o.kind, o.at, o.data.len())).collect();
    assert_eq!(options, [(2, 20, 2), (4, 24, 0), (8, 26, 8), (3, 37, 1)]);
    assert_eq!(tcp.mss(), Some((1440, 22)));
}

#[test]
fn the_checksum_covers_pseudo_header_and_segment() {
    let mut packet = hex(SYN);
    let ip = Ipv6Header::parse(&packet).unwrap();
    let checksum = checksum_finish(checksum_add(ip.pseudo_header_sum(40), ip.payload()));
    let at = Ipv6Header::LEN + TcpHeader::CHECKSUM_AT;
    packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    let ip = Ipv6Header::parse(&packet).unwrap();
    assert_eq!(checksum_finish(checksum_add(ip.pseudo_header_sum(40), ip.payload())), 0);
    assert_eq!(TcpHeader::parse(ip.payload()).unwrap().checksum(), checksum);
}

#[test]
fn reads_an_ipv4_header_with_options() {
    // One option word of four no-operations, DSCP 46, don't fragment.
    let mut packet = hex("46 b8 0021 1234 4000 40 11 0000 c0000201 c6336402 01010101");
    packet.extend(hex("0035 0007 0009 beef 5a 00"));
    let at = Ipv4Header::CHECKSUM_AT;
    let checksum = checksum_finish(checksum_add(0, &packet[..24]));
    packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    let ip = Ipv4Header::parse(&packet).unwrap();
    assert!(ip.has_valid_checksum() && ip.dont_fragment() && !ip.is_fragment());
    assert_eq!((ip.header_len(), ip.total_len(), ip.id()), (24, 33, 0x1234));
    assert_eq!(
        (ip.traffic_class(), ip.ttl(), ip.protocol()),
        (0xb8, 64, ip::PROTOCOL_UDP)
    );
    assert_eq!((ip.src(), ip.checksum()), (Ipv4Addr::new(192, 0, 2, 1), checksum));
    assert_eq!(ip.dst(), Ipv4Addr::new(198, 51, 100, 2));
    let udp = UdpHeader::parse(ip.payload()).unwrap();
    assert_eq!((udp.src_port(), udp.dst_port(), udp.length()), (53, 7, 9));
    assert_eq!((udp.checksum(), udp.payload()), (0xbeef, &[0x5a][..]));
    packet[20] ^= 1;
    assert!(!Ipv4Header::parse(&packet).unwrap().has_valid_checksum());
}

#[test]
fn fragments_are_known() {
    let fragment = |word: &str| {
        let packet = hex(&format!("45 00 0014 0000 {word} 40 06 0000 00000000 00000000"));
        Ipv4Header::parse(&packet).unwrap().is_fragment()
    };
    assert!(!fragment("0000") && !fragment("4000"));
    assert!(fragment("2000") && fragment("0001") && fragment("3fff"));
}

#[test]
fn each_refusal_has_its_reason() {
    let short = |needed, got| Some(WireError::TooShort { needed, got });
    let syn = hex(SYN);
    assert_eq!(Ipv6Header::parse(&syn[..39]).err(), short(40, 39));
    assert_eq!(Ipv6Header::parse(&syn[..79]).err(), short(80, 79));
    assert_eq!(Ipv6Header::parse(&[0x45; 60]).err(), Some(WireError::WrongIpVersion(4)));
    assert_eq!(Ipv4Header::parse(&[0x45; 19]).err(), short(20, 19));
    assert_eq!(Ipv4Header::parse(&[0x65; 20]).err(), Some(WireError::WrongIpVersion(6)));
    assert_eq!(
        Ipv4Header::parse(&[0x44; 20]).err(),
        Some(WireError::HeaderTooSmall(16))
    );
    let mut v4 = hex("46 00 0017 0000 0000 40 06 0000 00000000 00000000 00000000");
    let total = Some(WireError::LengthMismatch {
        declared: 23,
        actual: 24,
    });
    assert_eq!(Ipv4Header::parse(&v4).err(), total);
    v4[3] = 25;
    assert_eq!(Ipv4Header::parse(&v4).err(), short(25, 24));
    assert_eq!(TcpHeader::parse(&syn[40..59]).err(), short(20, 19));
    assert_eq!(TcpHeader::parse(&syn[40..79]).err(), short(40, 39));
    assert_eq!(TcpHeader::parse(&[0; 20]).err(), Some(WireError::HeaderTooSmall(0)));
    assert_eq!(UdpHeader::parse(&[0; 7]).err(), short(8, 7));
    assert_eq!(UdpHeader::parse(&[0; 8]).err(), Some(WireError::HeaderTooSmall(0)));
    assert_eq!(UdpHeader::parse(&hex("0000 0000 0009 0000")).err(), short(9, 8));
}

#[test]
fn malformed_options_end_the_list() {
    let kinds = |options: &str| {
        let segment = hex(&format!("00000000 0000000000000000 60 00 0000 0000 0000 {options}"));
        TcpHeader::parse(&segment)
            .unwrap()
            .options()
            .map(|o| o.kind)
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds("01010402"), [4]);
    assert_eq!(kinds("00000402"), []);
    assert_eq!(kinds("04020401"), [4]);
    assert_eq!(kinds("04020400"), [4]);
    assert_eq!(kinds("04020403"), [4]);
    assert_eq!(kinds("04020104"), [4]);
}

proptest! {
    #[test]
    fn no_view_panics_and_none_reaches_outside(
        mut bytes in vec(any::<u8>(), 0..120),
        first in prop_oneof![Just(0x45u8), Just(0x60), Just(0x4f), any::<u8>()],
        len in prop_oneof![0..130u16, any::<u16>()],
    ) {
        if bytes.len() > 20 {
            bytes[0] = first;
            bytes[2..4].copy_from_slice(&len.to_be_bytes());
            bytes[4..6].copy_from_slice(&len.to_be_bytes());
        }
        if let Ok(ip) = Ipv6Header::parse(&bytes) {
            let end = 40 + usize::from(ip.payload_len());
            prop_assert_eq!(ip.payload(), &bytes[40..end]);
            _ = (ip.src(), ip.dst(), ip.pseudo_header_sum(u32::MAX), format!("{ip:?}"));
        }
        if let Ok(ip) = Ipv4Header::parse(&bytes) {
            let (start, end) = (ip.header_len(), usize::from(ip.total_len()));
            prop_assert_eq!(ip.payload(), &bytes[start..end]);
            _ = (ip.has_valid_checksum(), ip.src(), ip.dst(), ip.is_fragment());
        }
        if let Ok(tcp) = TcpHeader::parse(&bytes) {
            prop_assert_eq!(tcp.payload(), &bytes[tcp.header_len()..]);
            prop_assert_eq!(tcp.options_bytes(), &bytes[20..tcp.header_len()]);
            for option in tcp.options() {
                prop_assert_eq!(option.kind, bytes[option.at]);
                let data = option.at + 2;
                prop_assert!(data + option.data.len() <= tcp.header_len());
                prop_assert_eq!(option.data, &bytes[data..data + option.data.len()]);
            }
            if let Some((mss, at)) = tcp.mss() {
                prop_assert_eq!(&mss.to_be_bytes(), &bytes[at..at + 2]);
            }
        }
        if let Ok(udp) = UdpHeader::parse(&bytes) {
            prop_assert_eq!(udp.payload(), &bytes[8..usize::from(udp.length())]);
        }
    }
}
