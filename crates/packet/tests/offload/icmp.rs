use core::net::Ipv6Addr;

use proptest::prelude::*;
use weft_packet::icmp::{ErrorLimiter, IcmpError, MAX_ERROR_PACKET};

use crate::model::{self, ICMPV6, Packet};

const OURS: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0xffff);
const ALL: [(IcmpError, [u8; 2]); 5] = [
    (IcmpError::NoRoute, [1, 0]),
    (IcmpError::AdminProhibited, [1, 1]),
    (IcmpError::AddressUnreachable, [1, 3]),
    (IcmpError::PacketTooBig { mtu: 1203 }, [2, 0]),
    (IcmpError::TimeExceeded, [3, 0]),
];

fn build(error: IcmpError, offending: &[u8]) -> Option<Vec<u8>> {
    let mut out = [0xa5; MAX_ERROR_PACKET];
    let len = error.build(OURS, offending, &mut out)?;
    Some(out[..len].to_vec())
}

fn icmp(kind: u8) -> Vec<u8> {
    let mut bytes = Packet::udp([kind, 0, 0, 0], &[0; 8]).bytes();
    bytes[6] = ICMPV6;
    bytes
}

#[test]
fn tells_the_sender_and_quotes_the_packet() {
    for len in [0, 1, 1183, 1184, 1185, 5000] {
        let offending = Packet::udp([0, 1, 0, 2], &vec![9; len]).bytes();
        for (error, kind_and_code) in ALL {
            let answer = build(error, &offending).unwrap();
            assert_eq!(answer.len(), (48 + offending.len()).min(1280));
            assert_eq!(answer[..4], [0x60, 0, 0, 0]);
            assert_eq!(usize::from(answer[4]) << 8 | usize::from(answer[5]), answer.len() - 40);
            assert_eq!(answer[6..8], [ICMPV6, 64]);
            assert_eq!(answer[8..24], OURS.octets());
            assert_eq!(answer[24..40], offending[8..24]);
            assert_eq!(answer[40..42], kind_and_code);
            let mtu = if kind_and_code[0] == 2 { 1203u32 } else { 0 };
            assert_eq!(answer[44..48], mtu.to_be_bytes());
            assert_eq!(answer[48..], offending[..answer.len() - 48]);
            assert!(model::verifies(&answer, 40, ICMPV6));
        }
    }
}

#[test]
fn never_answers_an_error_or_a_redirect() {
    for (error, _) in ALL {
        for kind in [0, 1, 2, 3, 4, 127, 137] {
            assert_eq!(build(error, &icmp(kind)), None);
        }
        for kind in [128, 129, 135] {
            assert!(build(error, &icmp(kind)).is_some());
        }
        // Behind destination options; without a visible type; in a later fragment, whose first
        // octet has no meaning.
        let hidden = Packet {
            extensions: vec![(60, 1)],
            protocol: ICMPV6,
            ..Packet::udp([1, 0, 0, 0], &[])
        };
        assert_eq!(build(error, &hidden.bytes()), None);
        let mut bare = icmp(128)[..40].to_vec();
        bare[4..6].fill(0);
        assert_eq!(build(error, &bare), None);
        let later = Packet {
            extensions: vec![(44, 0)],
            protocol: ICMPV6,
            ..Packet::udp([200, 0, 0, 0], &[])
        };
        let mut later = later.bytes();
        later[43] = 8;
        assert_eq!(build(error, &later), None);
    }
}

#[test]
fn only_unicast_senders_are_answered() {
    let offending = Packet::udp([0, 1, 0, 2], &[0; 9]).bytes();
    for (error, kind_and_code) in ALL {
        let mut multicast_source = offending.clone();
        multicast_source[8] = 0xff;
        assert_eq!(build(error, &multicast_source), None);
        let mut unspecified = offending.clone();
        unspecified[8..24].fill(0);
        assert_eq!(build(error, &unspecified), None);
        let mut to_multicast = offending.clone();
        to_multicast[24] = 0xff;
        assert_eq!(build(error, &to_multicast).is_some(), kind_and_code[0] == 2);
    }
}

#[test]
fn limiter_allows_the_burst_and_then_the_rate() {
    let mut limiter = ErrorLimiter::new(3, 10, 1000);
    let allowed = |limiter: &mut ErrorLimiter, now: u64| (0..100).filter(|_| limiter.allow(now)).count();
    assert_eq!(allowed(&mut limiter, 1000), 3);
    assert_eq!(allowed(&mut limiter, 1099), 0);
    assert_eq!(allowed(&mut limiter, 1100), 1);
    assert_eq!(allowed(&mut limiter, 500), 0);
    assert_eq!(allowed(&mut limiter, 1199), 0);
    assert_eq!(allowed(&mut limiter, 1300), 2);
    assert_eq!(allowed(&mut limiter, u64::MAX), 3);
    assert_eq!(allowed(&mut ErrorLimiter::new(0, 10, 0), u64::MAX), 0);
}

/// Type, code, and the last 16 bits of the header for an MTU of 1,203.
const ALL_V4: [(IcmpError, [u8; 2], u16); 5] = [
    (IcmpError::NoRoute, [3, 0], 0),
    (IcmpError::AdminProhibited, [3, 13], 0),
    (IcmpError::AddressUnreachable, [3, 1], 0),
    (IcmpError::PacketTooBig { mtu: 1203 }, [3, 4], 1203),
    (IcmpError::TimeExceeded, [11, 0], 0),
];

#[test]
fn tells_the_sender_of_an_ipv4_packet() {
    for len in [0, 1, 519, 520, 521, 5000] {
        let offending = Packet::udp([0, 1, 0, 2], &vec![9; len]).over_v4(5).bytes();
        for (error, kind_and_code, mtu) in ALL_V4 {
            let answer = build(error, &offending).unwrap();
            assert_eq!(answer.len(), (28 + offending.len()).min(576));
            assert_eq!(usize::from(answer[2]) << 8 | usize::from(answer[3]), answer.len());
            assert!(answer[0] == 0x45 && model::header_verifies(&answer));
            assert_eq!(answer[9], 1);
            // From the destination of the packet to its source.
            assert_eq!(
                (&answer[12..16], &answer[16..20]),
                (&offending[16..20], &offending[12..16])
            );
            assert_eq!(answer[20..22], kind_and_code);
            assert_eq!(answer[24..28], [[0, 0], mtu.to_be_bytes()].concat());
            assert_eq!(answer[28..], offending[..answer.len() - 28]);
            assert_eq!(model::sum(&[&answer[20..]]), 0xffff);
        }
    }
}

#[test]
fn some_ipv4_packets_never_get_an_error() {
    let answered = |edits: &[(usize, u8)]| {
        let mut bytes = Packet::udp([8, 0, 0, 0], &[0; 8]).over_v4(5).bytes();
        edits.iter().for_each(|(at, value)| bytes[*at] = *value);
        ALL_V4
            .iter()
            .filter(|(error, ..)| build(*error, &bytes).is_some())
            .count()
    };
    assert_eq!(answered(&[]), 5);
    // ICMP: a request and an answer, then errors, a redirect and an unknown type.
    for (kind, times) in [(8, 5), (0, 5), (3, 0), (4, 0), (5, 0), (11, 0), (12, 0), (99, 0)] {
        assert_eq!(answered(&[(9, 1), (20, kind)]), times, "type {kind}");
    }
    // From addresses that belong to no host, to a group, and a later fragment.
    for edit in [(12, 0), (12, 127), (12, 224), (12, 255), (16, 224), (7, 1)] {
        assert_eq!(answered(&[edit]), 0, "{edit:?}");
    }
    assert_eq!(answered(&[(16, 255), (17, 255), (18, 255), (19, 255)]), 0);
    assert_eq!(answered(&[(6, 0x20)]), 5, "the first fragment tells enough");
}

proptest! {
    #[test]
    fn limiter_never_exceeds_its_budget(steps in prop::collection::vec(0u64..300, 1..200), burst in 0u32..5, rate in 0u32..20) {
        let mut limiter = ErrorLimiter::new(burst, rate, 0);
        let (mut now, mut sent) = (0, 0);
        for step in steps {
            now += step;
            sent += u64::from(limiter.allow(now));
            prop_assert!(sent * 1000 <= u64::from(burst) * 1000 + now * u64::from(rate));
        }
    }

    #[test]
    fn any_bytes(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200), room in 0usize..300, which in 0usize..5, v4: bool,
    ) {
        if v4 && bytes.len() >= 20 {
            bytes[0] = 0x45;
            bytes[2] = 0;
            bytes[3] = bytes.len() as u8;
            let mut out = vec![0; room];
            if let Some(len) = ALL[which].0.build(OURS, &bytes, &mut out) {
                prop_assert_eq!(len, 28 + bytes.len());
                prop_assert!(model::header_verifies(&out[..20]) && model::sum(&[&out[20..len]]) == 0xffff);
            }
            return Ok(());
        }
        if bytes.len() >= 40 {
            bytes[0] = 0x60;
            let payload_len = (bytes.len() - 40) as u16;
            bytes[4..6].copy_from_slice(&payload_len.to_be_bytes());
        }
        let mut out = vec![0; room];
        if let Some(len) = ALL[which].0.build(OURS, &bytes, &mut out) {
            prop_assert_eq!(len, 48 + bytes.len());
            prop_assert!(model::verifies(&out[..len], 40, ICMPV6));
        }
    }
}
