//! The shim within a buffer, against a model that copies.

use std::net::Ipv6Addr;

use proptest::collection::vec;
use proptest::prelude::*;
use weft_wire::WireError;
use weft_wire::shim::{self, ShimHeader, compress_in_place, expand_in_place};

/// Format byte, first four bytes, next header, hop limit, upper layer.
fn compress_model(packet: &[u8]) -> Vec<u8> {
    [&[0], &packet[..4], &packet[6..8], &packet[40..]].concat()
}

fn expand_model(payload: &[u8], src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
    let upper = &payload[7..];
    let len = (upper.len() as u16).to_be_bytes();
    let first = [0x60 | payload[1] & 0x0f];
    [
        &first,
        &payload[2..5],
        &len,
        &payload[5..7],
        &src.octets(),
        &dst.octets(),
        upper,
    ]
    .concat()
}

fn packet() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 40..200).prop_map(|mut packet| {
        packet[0] = 0x60 | packet[0] & 0x0f;
        packet
    })
}

fn addr() -> impl Strategy<Value = Ipv6Addr> {
    any::<[u8; 16]>().prop_map(Ipv6Addr::from)
}

proptest! {
    #[test]
    fn compresses_like_the_model(packet in packet(), headroom in 0..80usize) {
        let mut buf = [vec![0xee; headroom], packet.clone()].concat();
        let at = compress_in_place(&mut buf, headroom).unwrap();
        prop_assert_eq!(at, headroom + shim::SAVED);
        prop_assert_eq!(&buf[at..], compress_model(&packet));
        prop_assert!(buf[..headroom].iter().all(|byte| *byte == 0xee));

        let (header, upper) = ShimHeader::parse(&buf[at..]).unwrap();
        prop_assert_eq!(upper, &packet[40..]);
        let first = u32::from_be_bytes([packet[0], packet[1], packet[2], packet[3]]);
        prop_assert_eq!(u32::from(header.traffic_class), first >> 20 & 0xff);
        prop_assert_eq!(header.flow_label, first & 0xf_ffff);
        prop_assert_eq!(&header.to_bytes(), &buf[at..at + 7]);
    }

    #[test]
    fn expands_like_the_model(
        mut payload in vec(any::<u8>(), 7..200),
        headroom in 33..80usize,
        (src, dst) in (addr(), addr()),
    ) {
        payload[0] = 0;
        let mut buf = [vec![0xee; headroom], payload.clone()].concat();
        let at = expand_in_place(&mut buf, headroom, src, dst).unwrap();
        prop_assert_eq!(at, headroom - shim::SAVED);
        prop_assert_eq!(&buf[at..], expand_model(&payload, src, dst));
        prop_assert!(buf[..at].iter().all(|byte| *byte == 0xee));
    }

    #[test]
    fn expanding_undoes_compressing(mut packet in packet(), (src, dst) in (addr(), addr())) {
        let len = (packet.len() as u16 - 40).to_be_bytes();
        packet[4..6].copy_from_slice(&len);
        packet[8..24].copy_from_slice(&src.octets());
        packet[24..40].copy_from_slice(&dst.octets());
        let mut buf = packet.clone();
        let at = compress_in_place(&mut buf, 0).unwrap();
        buf[..at].fill(0xee);
        prop_assert_eq!(expand_in_place(&mut buf, at, src, dst), Ok(0));
        prop_assert_eq!(buf, packet);
    }

    #[test]
    fn a_refused_buffer_stays_unchanged(
        bytes in vec(any::<u8>(), 0..100),
        at in 0..120usize,
        (src, dst) in (addr(), addr()),
    ) {
        let mut buf = bytes.clone();
        if compress_in_place(&mut buf, at).is_err() {
            prop_assert_eq!(&buf, &bytes);
        }
        let mut buf = bytes.clone();
        if expand_in_place(&mut buf, at, src, dst).is_err() {
            prop_assert_eq!(buf, bytes);
        }
    }
}

#[test]
fn each_refusal_has_its_reason() {
    let any = Ipv6Addr::UNSPECIFIED;
    let short = |needed, got| Err(WireError::TooShort { needed, got });
    assert_eq!(compress_in_place(&mut [0x60; 39], 0), short(40, 39));
    assert_eq!(compress_in_place(&mut [0x60; 50], 11), short(40, 39));
    assert_eq!(compress_in_place(&mut [0x60; 50], usize::MAX), short(40, 0));
    assert_eq!(compress_in_place(&mut [0x40; 40], 0), Err(WireError::WrongIpVersion(4)));
    assert_eq!(expand_in_place(&mut [0; 39], 33, any, any), short(7, 6));
    assert_eq!(expand_in_place(&mut [0; 39], usize::MAX, any, any), short(7, 0));
    let headroom = Err(WireError::NoHeadroom { needed: 33, got: 32 });
    assert_eq!(expand_in_place(&mut [0; 39], 32, any, any), headroom);
    assert_eq!(
        expand_in_place(&mut [1; 40], 33, any, any),
        Err(WireError::UnknownShimFormat(1))
    );
    let mut jumbo = vec![0; 33 + 7 + 65_536];
    let too_long = Err(WireError::TooLong {
        max: 65_535,
        got: 65_536,
    });
    assert_eq!(expand_in_place(&mut jumbo, 33, any, any), too_long);
    assert_eq!(expand_in_place(&mut jumbo[1..], 33, any, any), Ok(0));
}

#[test]
fn overheads_are_those_of_fips() {
    assert_eq!((shim::SESSION_OVERHEAD, shim::IPV6_OVERHEAD), (106, 77));
}
