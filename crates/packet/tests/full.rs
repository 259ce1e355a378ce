//! Packets with their whole header between two lanes: IPv4, and IPv6 of subnets behind nodes. A
//! packet that is allowed arrives as its sender without offloads would have sent it. Any other is
//! counted under a reason of its own.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    reason = "a test ends where its ground is missing, and the model has more than is needed here"
)]

#[path = "offload/model.rs"]
mod model;
#[path = "ends/pair.rs"]
mod pair;

use std::net::Ipv6Addr;

use model::{Packet, V4};
use pair::*;
use proptest::prelude::*;
use weft_contract::{Command, EpochId, SessionCommand, TableCommand, bounds};
use weft_noise::fast::{Secret, Suite};
use weft_packet::DropReason;
use weft_packet::checksum::Checksum;
use weft_wire::fast::FULL_OVERHEAD;
use weft_wire::{NodeAddr, fast};

proptest! {
    #[test]
    fn super_packets_arrive_as_without_offloads((packet, size) in model::super_packet()) {
        // No packet opens a connection, since its MSS would be changed.
        let packet = Packet { flags: packet.flags & !model::SYN, ..packet };
        let (mut a, mut b) = pair(9_000);
        let frames = a.send(gso(&packet, size), &packet.bytes_partial());
        let expected = packet.segments(usize::from(size));
        for (frame, segment) in frames.iter().zip(&expected) {
            prop_assert_eq!((frame[0], frame.len()), (0xa3, segment.len() + FULL_OVERHEAD));
        }
        prop_assert_eq!(b.receive(&frames), expected.clone());
        let count = expected.len() as u64;
        prop_assert_eq!((a.counters().full_tx, b.counters().full_rx), (count, count));
        // A checksum is partial only if both ends can locate it: no options, no extensions.
        let plain = packet.transport_start() == if packet.v4.is_some() { 20 } else { 40 };
        let partial = frames.iter().filter(|frame| frame[1] & fast::FLAG_PARTIAL != 0).count();
        prop_assert_eq!(partial, if plain { frames.len() } else { 0 });
    }

    #[test]
    fn an_authenticated_peer_can_send_anything(
        mut content in prop::collection::vec(any::<u8>(), 0..120), partial: bool, v4: bool, own in 0_u8..4,
        next in prop_oneof![Just(6_u8), Just(17), Just(1), Just(44), any::<u8>()],
    ) {
        let (_, mut b) = pair(1_280);
        let len = content.len();
        if v4 && len >= 24 {
            content[..4].copy_from_slice(&[0x45, 0, 0, len as u8]);
            content[9] = next;
            if own > 0 {
                content[12..20].copy_from_slice(&[10, 7, 0, 1, 10, 8, 0, own]);
            }
        } else if len >= 40 {
            content[..6].copy_from_slice(&[0x60, 0, 0, 0, 0, len as u8 - 40]);
            content[6] = next;
            if own > 0 {
                content[8..24].copy_from_slice(&A.to_ipv6().octets());
                content[24..40].copy_from_slice(&B.to_ipv6().octets());
            }
        }
        let before = b.counters();
        let got = b.receive(&[hand_made(fast::Kind::Full, partial, 1_000, &content)]);
        prop_assert_eq!(got.is_empty(), b.counters().full_rx == 0);
        for packet in got {
            prop_assert_eq!(packet.len(), len);
            prop_assert!(own > 0, "from or to anywhere");
        }
        prop_assert!(b.counters() != before);
    }

    #[test]
    fn one_receive_is_as_many_of_one_frame(
        frames in prop::collection::vec((0_usize..8, any::<bool>(), 0_u8..8), 1..40),
    ) {
        const LEN: usize = 90;
        let frames: Vec<Vec<u8>> = (1_000..).zip(frames).map(|(counter, (ends, partial, fate))| {
            let packet = match ends {
                // A node's own address is not in its subnets. Subnets may be IPv6 too.
                0 => ipv6(A.to_ipv6(), B.to_ipv6(), LEN),
                1 => ipv6("fdab::1".parse().unwrap(), "fdab::2".parse().unwrap(), LEN),
                2 => ipv6("fdab::2".parse().unwrap(), "fdab::2".parse().unwrap(), LEN),
                3 => udp([10, 9, 0, 1], [10, 8, 1, 1], LEN - 28, true),
                4 => udp([10, 7, 0, 1], [10, 7, 1, 1], LEN - 28, true),
                _ => udp([10, 7, 0, ends as u8], [10, 8, 1, 1], LEN - 28, true),
            };
            let counter = if fate == 1 { 1_000 } else { counter };
            let mut frame = hand_made(fast::Kind::Full, partial, counter, &packet);
            if fate == 2 {
                frame[40] ^= 1;
            }
            frame
        }).collect();
        let ((_, mut one_by_one), (_, mut together)) = (pair(1_280), pair(1_280));
        let expected = one_by_one.receive(&frames);
        let mut room = [&[0; fast::HEADROOM][..], &frames.concat()].concat();
        let mut got = Vec::new();
        together.lane.inbound_train(
            together.now,
            address(A),
            &mut room,
            frames[0].len(),
            &mut together.train,
            |packet, _, checksum| {
                let mut packet = packet.to_vec();
                if checksum == Checksum::Partial {
                    weft_packet::checksum::complete(&mut packet);
                }
                got.push(packet);
            },
        );
        prop_assert_eq!(got, expected);
        prop_assert_eq!(together.counters(), one_by_one.counters());
    }
}

/// Makes a frame of A with this content, sealed without a lane under the first key.
fn hand_made(kind: fast::Kind, partial: bool, counter: u64, content: &[u8]) -> Vec<u8> {
    let mut sealed = [&[0; 4], content].concat();
    let header = fast::Header {
        kind,
        flags: if partial { fast::FLAG_PARTIAL } else { 0 },
        length: (sealed.len() + 16) as u16,
        receiver_index: fast_index(B, 0).0,
        counter,
    };
    let header = header.to_bytes();
    let cipher = Secret::from_key(&key(3, A, 0)).cipher(Suite::Aes256Gcm);
    let tag = cipher.seal_in_place(counter, &header, &mut sealed);
    [&header[..], &sealed, &tag].concat()
}

/// Makes an IPv4 UDP packet between these hosts.
fn udp(source: [u8; 4], dest: [u8; 4], len: usize, dont_fragment: bool) -> Vec<u8> {
    let mut packet = Packet::udp([0, 9, 0, 9], &vec![7; len]).over_v4(77);
    packet.v4 = Some(V4 {
        dont_fragment,
        ..packet.v4.unwrap()
    });
    let mut bytes = packet.bytes();
    bytes[12..16].copy_from_slice(&source);
    bytes[16..20].copy_from_slice(&dest);
    bytes[10..12].fill(0);
    let sum = !model::sum(&[&bytes[..20]]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    // UDP has no checksum here, since these tests do not examine it.
    bytes[26..28].fill(0);
    bytes
}

fn ipv6(source: Ipv6Addr, dest: Ipv6Addr, len: usize) -> Vec<u8> {
    let mut bytes = Packet::udp([0, 9, 0, 9], &vec![7; len - 48]).bytes();
    bytes[8..24].copy_from_slice(&source.octets());
    bytes[24..40].copy_from_slice(&dest.octets());
    bytes
}

#[test]
fn a_peer_sends_from_its_subnets_to_ours_alone() {
    let cases = [
        ([10, 7, 1, 1], [10, 8, 1, 1], ""),
        ([10, 1, 0, 1], [10, 8, 255, 255], ""),
        ([10, 9, 0, 1], [10, 8, 1, 1], "foreign_source"),
        // A source behind B itself, and a destination behind A.
        ([10, 8, 0, 1], [10, 8, 1, 1], "foreign_source"),
        ([10, 7, 1, 1], [10, 7, 1, 2], "foreign_destination"),
        ([10, 7, 1, 1], [192, 0, 2, 2], "foreign_destination"),
    ];
    for (source, dest, reason) in cases {
        let (_, mut b) = pair(1_280);
        let packet = udp(source, dest, 10, true);
        let got = b.receive(&[hand_made(fast::Kind::Full, false, 1_000, &packet)]);
        assert_eq!(got.is_empty(), !reason.is_empty(), "{source:?} {dest:?}");
        let counters = b.counters();
        let moved: Vec<&str> = counters
            .named()
            .filter(|(name, n)| *n > 0 && name.starts_with("foreign"))
            .map(|(name, _)| name)
            .collect();
        let expected: Vec<&str> = Some(reason).filter(|reason| !reason.is_empty()).into_iter().collect();
        assert_eq!(moved, expected);
    }
}

#[test]
fn lengths_have_to_be_those_of_the_frame() {
    let packet = udp([10, 7, 1, 1], [10, 8, 1, 1], 10, true);
    for content in [
        &packet[..packet.len() - 1],
        &[&packet[..], &[0]].concat(),
        &packet[..19],
        &[],
    ] {
        let (_, mut b) = pair(1_280);
        assert!(
            b.receive(&[hand_made(fast::Kind::Full, false, 1_000, content)])
                .is_empty()
        );
        assert_eq!(b.counters().drops[DropReason::Malformed], 1);
    }
    // A checksum can be left out only in packets that allow it.
    let (_, mut b) = pair(1_280);
    let mut fragment = packet;
    fragment[6] = 0x20;
    assert!(
        b.receive(&[hand_made(fast::Kind::Full, true, 1_000, &fragment)])
            .is_empty()
    );
    assert_eq!(b.counters().drops[DropReason::Malformed], 1);
}

#[test]
fn nothing_leaves_that_is_not_from_here_or_has_nowhere_to_go() {
    let (mut a, _) = pair(1_280);
    assert!(a.send(WHOLE, &udp([10, 9, 0, 1], [10, 8, 0, 1], 10, true)).is_empty());
    assert_eq!(
        (a.counters().drops[DropReason::WrongSource], a.counters().icmp_sent),
        (1, 0)
    );
    assert!(a.send(WHOLE, &udp([10, 7, 0, 1], [10, 9, 0, 1], 10, true)).is_empty());
    assert_eq!(
        (a.counters().drops[DropReason::NoRoute], a.counters().icmp_sent),
        (1, 1)
    );
    let told = a.lane.poll_reply().unwrap();
    assert_eq!(
        (told[9], &told[12..20], &told[20..22]),
        (1, &[10, 9, 0, 1, 10, 7, 0, 1][..], &[3, 0][..])
    );
    // Without subnets, IPv4 is not accepted either.
    a.apply(Command::Table(TableCommand::SetSubnets {
        ours: Vec::new(),
        theirs: Vec::new(),
    }));
    assert!(a.send(WHOLE, &udp([10, 7, 0, 1], [10, 8, 0, 1], 10, true)).is_empty());
    assert_eq!((a.counters().drops[DropReason::NotIp], a.counters().icmp_sent), (1, 1));
}

#[test]
fn subnets_and_nodes_reach_each_other() {
    let (mut a, mut b) = pair(1_280);
    let (host_a, host_b): (Ipv6Addr, Ipv6Addr) = ("fdab::1".parse().unwrap(), "fdab::2".parse().unwrap());
    let (node_a, node_b) = (A.to_ipv6(), B.to_ipv6());
    for (source, dest, kind) in [
        (host_a, host_b, 0xa3),
        (host_a, node_b, 0xa3),
        (node_a, host_b, 0xa3),
        (node_a, node_b, 0xa0),
    ] {
        let packet = ipv6(source, dest, 100);
        let frames = a.send(WHOLE, &packet);
        assert_eq!(frames[0][0], kind);
        assert_eq!(b.receive(&frames), [packet]);
    }
}

#[test]
fn the_longest_prefix_decides_whose_it_is() {
    let (mut a, mut b) = pair(1_280);
    let theirs = subnets(&["10.8.0.0/16", "10.8.9.0/24"]);
    let other = NodeAddr::new([3; 16]);
    a.apply(Command::Table(TableCommand::SetSubnets {
        ours: subnets(&BEHIND_A),
        theirs: vec![(theirs[0], B), (theirs[1], other)],
    }));
    // The longer prefix belongs to a node that is not a peer.
    assert!(a.send(WHOLE, &udp([10, 7, 0, 1], [10, 8, 9, 1], 10, true)).is_empty());
    assert_eq!(a.counters().drops[DropReason::NoRoute], 1);
    assert!(a.lane.poll_reply().is_some());
    assert_eq!(a.send(WHOLE, &udp([10, 7, 0, 1], [10, 8, 8, 1], 10, true)).len(), 1);
    // The peer with the shorter prefix may not send from that address either.
    let frames = b.send(WHOLE, &udp([10, 8, 9, 1], [10, 7, 0, 1], 10, true));
    assert!(a.receive(&frames).is_empty());
    assert_eq!(a.counters().drops[DropReason::ForeignSource], 1);
}

#[test]
fn a_packet_that_does_not_fit_is_cut_or_answered() {
    // Frames of 1,280 bytes have room for 1,244.
    let (host_a, host_b): (Ipv6Addr, Ipv6Addr) = ("fdab::1".parse().unwrap(), "fdab::2".parse().unwrap());
    let v4 = |len: usize, dont_fragment| udp([10, 7, 0, 1], [10, 8, 0, 1], len - 28, dont_fragment);
    let cases = [
        (v4(1_244, true), Ok(1)),
        (v4(1_245, true), Err((1, 1_244))),
        (v4(1_245, false), Ok(2)),
        (v4(4_000, false), Ok(4)),
        (v4(9_216, false), Ok(8)),
        (v4(9_217, false), Err((1, 9_216))),
        (ipv6(host_a, host_b, 1_244), Ok(1)),
        (ipv6(host_a, host_b, 1_280), Ok(2)),
        (ipv6(host_a, host_b, 1_281), Err((58, 1_280))),
    ];
    for (packet, expected) in cases {
        let (mut a, mut b) = pair(1_280);
        let frames = a.send(WHOLE, &packet);
        assert!(frames.iter().all(|frame| frame.len() <= 1_280));
        match expected {
            Ok(count) => {
                assert_eq!(frames.len(), count, "{}", packet.len());
                assert_eq!(b.receive(&frames), [packet]);
            }
            Err((protocol, mtu)) => {
                assert!(frames.is_empty(), "{}", packet.len());
                let told = a.lane.poll_reply().unwrap();
                let (at, field) = if protocol == 1 { (20, told[9]) } else { (40, told[6]) };
                assert_eq!(
                    (field, told[at + 6..at + 8].to_vec()),
                    (protocol, u16::to_be_bytes(mtu).to_vec())
                );
                assert_eq!(a.counters().drops[DropReason::TooBig], 1);
            }
        }
    }
}

/// The keys are spent until the peer acknowledges their phase, which no answer does here.
#[test]
fn pieces_that_use_up_the_keys_are_noticed() {
    let (mut a, mut b) = pair(1_280);
    for end in [&mut a, &mut b] {
        end.install_fast_of(true, 1);
    }
    let asks = Command::Session(A, SessionCommand::ConfirmFast { id: EpochId(0) });
    b.apply(asks);
    let frames = b.take_sent();
    a.receive(&frames);
    let answers = a.take_sent();
    b.receive(&answers);
    let frames = b.send(WHOLE, &udp([10, 8, 0, 1], [10, 7, 0, 1], 10, true));
    assert_eq!(a.receive(&frames).len(), 1, "they are proven");
    let mut sent = 0;
    for _ in 0..3 {
        sent += a.send(WHOLE, &udp([10, 7, 0, 1], [10, 8, 0, 1], 5_000, false)).len();
        assert_eq!(a.lane.check_invariants(), Ok(()));
    }
    assert!((6..15).contains(&sent), "{sent} of 15 pieces");
    assert_eq!(a.counters().drops[DropReason::EpochSpent], 1);
}

#[test]
fn pieces_obey_the_same_policy() {
    let (mut a, mut b) = pair(1_280);
    b.apply(Command::Table(TableCommand::SetSubnets {
        ours: subnets(&BEHIND_B),
        theirs: Vec::new(),
    }));
    let frames = a.send(WHOLE, &udp([10, 7, 0, 1], [10, 8, 0, 1], 3_000, false));
    assert!(frames.len() > 1 && b.receive(&frames).is_empty());
    assert_eq!(
        (
            b.counters().drops[DropReason::ForeignSource],
            b.counters().fast_reassembled
        ),
        (1, 0)
    );
}

#[test]
fn the_mss_follows_what_frames_with_the_header_take() {
    for (packet, mss) in [
        (Packet::tcp([0, 1, 0, 2], 1, &[]), 1_232 - 36 - 60),
        (Packet::tcp([0, 1, 0, 2], 1, &[]).over_v4(5), 1_232 - 36 - 40),
    ] {
        let syn = Packet {
            flags: model::SYN,
            options: vec![2, 4, 0x05, 0xb4],
            ..packet
        };
        let (mut a, mut b) = pair(1_280);
        let frames = a.send(WHOLE, &syn.bytes());
        let expected = Packet {
            options: [&[2, 4][..], &u16::to_be_bytes(mss)].concat(),
            ..syn
        };
        assert_eq!(b.receive(&frames), [expected.bytes()]);
    }
}

#[test]
fn a_peer_that_reads_none_gets_none_and_the_sender_is_told() {
    let (mut a, mut b) = (End::new(A, B, 1_280), End::new(B, A, 1_280));
    agree(&mut a, &mut b, false);
    assert!(a.send(WHOLE, &udp([10, 7, 0, 1], [10, 8, 0, 1], 10, true)).is_empty());
    assert_eq!(
        (a.counters().drops[DropReason::NoFullFrames], a.counters().icmp_sent),
        (1, 1)
    );
    assert_eq!(a.lane.poll_reply().unwrap()[20..22], [3, 1]);
    // A packet between the nodes' own addresses passes.
    let plain = ipv6(A.to_ipv6(), B.to_ipv6(), 100);
    let frames = a.send(WHOLE, &plain);
    assert_eq!(b.receive(&frames), [plain]);
}

#[test]
fn packets_wait_for_fast_frames_as_long_as_those_may_come() {
    let (mut a, mut b) = (End::new(A, B, 1_280), End::new(B, A, 1_280));
    let packet = udp([10, 7, 0, 1], [10, 8, 0, 1], 10, true);
    assert!(a.send(WHOLE, &packet).is_empty());
    assert_eq!(
        (
            a.lane.inspect().queued(&B),
            a.counters().drops[DropReason::NoFullFrames]
        ),
        (1, 0)
    );
    agree(&mut a, &mut b, true);
    assert_eq!((a.lane.inspect().queued(&B), b.counters().full_rx), (0, 1));

    let mut a = End::new(A, B, 1_280);
    assert!(a.send(WHOLE, &packet).is_empty());
    a.now += 3_000;
    assert!(a.send(WHOLE, &packet).is_empty());
    // Both senders receive an error.
    assert_eq!(
        (
            a.lane.inspect().queued(&B),
            a.counters().drops[DropReason::NoFullFrames]
        ),
        (0, 2)
    );
    assert_eq!(a.counters().icmp_sent, 2);
}

#[test]
fn datagrams_of_our_own_do_not_come_back_again() {
    let (mut a, _) = pair(1_280);
    a.apply(Command::Table(TableCommand::SetSubnets {
        ours: subnets(&["192.0.2.1/32"]),
        theirs: vec![(subnets(&["192.0.2.0/24"])[0], B)],
    }));
    let mut looped = udp([192, 0, 2, 1], [192, 0, 2, 2], 10, true);
    assert_eq!(a.send(WHOLE, &looped).len(), 1, "of somebody else's");
    looped[22..24].copy_from_slice(&2121_u16.to_be_bytes());
    assert!(a.send(WHOLE, &looped).is_empty());
    assert_eq!(a.counters().drops[DropReason::UnderlayLoop], 1);
    looped[7] = 1;
    assert!(a.send(WHOLE, &looped).is_empty(), "nor a later fragment of one");
}

#[test]
fn datagrams_of_our_own_to_any_address_stay_out_of_the_tunnel() {
    let (mut a, _) = pair(1_280);
    a.apply(Command::Table(TableCommand::SetSubnets {
        ours: subnets(&["10.7.0.1/32", "10.7.1.0/24"]),
        theirs: vec![(subnets(&["192.168.7.0/24"])[0], B)],
    }));
    a.apply(Command::Table(TableCommand::SetUnderlayPorts {
        ports: vec![2121, 999],
    }));
    let from = |source: [u8; 4], port: u16| {
        let mut packet = udp(source, [192, 168, 7, 1], 10, true);
        packet[20..22].copy_from_slice(&port.to_be_bytes());
        packet
    };
    // The address is not the peer's path: it may be one that the node tries.
    for port in [2121, 999] {
        assert!(a.send(WHOLE, &from([10, 7, 0, 1], port)).is_empty());
    }
    assert_eq!(a.counters().drops[DropReason::UnderlayLoop], 2);
    assert_eq!(a.send(WHOLE, &from([10, 7, 0, 1], 2122)).len(), 1, "of another program");
    assert_eq!(
        a.send(WHOLE, &from([10, 7, 1, 1], 2121)).len(),
        1,
        "of a host behind this one"
    );
}

#[test]
fn packets_that_wait_for_the_interface_are_bounded_in_bytes() {
    let (mut a, mut b) = pair(1_280);
    for _ in 0..600 {
        let from = address(A);
        for frame in a.send(WHOLE, &udp([10, 7, 0, 1], [10, 8, 0, 1], 8_972, false)) {
            b.lane.inbound_alone(b.now, from, &frame, &mut b.train);
        }
        assert_eq!(b.lane.check_invariants(), Ok(()));
    }
    let bytes: usize = std::iter::from_fn(|| b.lane.poll_reply())
        .map(|packet| packet.len())
        .sum();
    assert!(
        bytes <= bounds::REPLIES.bytes && bytes > bounds::REPLIES.bytes * 9 / 10,
        "{bytes}"
    );
    assert!(b.counters().drops[DropReason::Reply] > 300);
}

/// A host sends to many peers without a session: the packets that wait are bounded, and each of the
/// peers has its share.
#[test]
fn packets_that_wait_for_keys_are_bounded_over_all_sessions() {
    let mut a = End::new(A, B, 1_280);
    let peers: Vec<NodeAddr> = (10..22).map(|n| NodeAddr::new([n; 16])).collect();
    for peer in &peers {
        a.apply(Command::Table(TableCommand::AllowPeer { peer: *peer }));
    }
    for peer in &peers {
        for _ in 0..20 {
            a.send(WHOLE, &ipv6(A.to_ipv6(), peer.to_ipv6(), 60_000));
        }
    }
    let queued: Vec<usize> = peers.iter().map(|peer| a.lane.inspect().queued(peer)).collect();
    assert!(
        queued.iter().sum::<usize>() * 60_000 <= bounds::QUEUED.bytes,
        "{queued:?}"
    );
    assert!(
        queued
            .iter()
            .all(|count| (1..=bounds::QUEUED_OF_SESSION).contains(count)),
        "{queued:?}"
    );
    assert_eq!(a.lane.check_invariants(), Ok(()));
    assert_eq!(
        a.counters().drops[DropReason::Queue],
        240 - queued.iter().sum::<usize>() as u64
    );
}
