//! The last steps before the TUN have one order behind every door: a packet with several faults is
//! dropped for the first of them, and what the rules have judged does not change any more.

use weft_contract::{Command, SessionCommand, TableCommand};
use weft_packet::DropReason;
use weft_wire::checksum::{checksum_add, checksum_finish, pseudo_header_sum_v6};

use crate::forged;
use crate::line::{A, B, link};
use crate::packets::{Content, Probe, Shape, TCP, UDP};
use crate::policy::{self, Rules};
use crate::{Ends, Way};

/// The ECN bits of an outer IP header with CE (RFC 3168).
const CE: u8 = 3;
/// The ECN bits of a packet, in the second byte of IPv6 (RFC 3168 section 5).
const ECN_V6: u8 = 0x30;
const ECT_0_V6: u8 = 0x20;

/// The doors at a link with the peer itself, where an outer mark makes a loss of a packet that takes
/// none.
const DIRECT: [Way; 3] = [Way::Fast, Way::Pieces, Way::Fips];

fn between_nodes() -> Probe {
    Probe {
        from: A.to_ipv6().into(),
        to: B.to_ipv6().into(),
        content: Content::Ports(UDP, (1, 2)),
        shape: Shape::Plain,
    }
}

fn with_header(from: &str) -> Probe {
    Probe {
        from: from.parse().unwrap(),
        to: "10.7.0.2".parse().unwrap(),
        ..between_nodes()
    }
}

/// Denies everything at B.
fn deny(ends: &mut Ends) {
    policy::set(&mut ends.line.0[2], A, Rules::Nothing.for_a());
}

/// Takes the admission of A at B away, and leaves the keys.
fn expel(ends: &mut Ends) {
    let b = &mut ends.line.0[2];
    b.apply(Command::Table(TableCommand::DenyPeer { peer: A }));
    b.install_keys(A, link(A));
    b.install_fast(A);
}

/// Asserts that B drops one packet of A, with all these faults, for this reason alone.
fn assert_dropped(way: Way, probe: &Probe, faults: &[fn(&mut Ends)], reason: DropReason) {
    let mut ends = forged::ends(way);
    for fault in faults {
        fault(&mut ends);
    }
    let before = ends.line.0[2].lane.counters().drops;
    let arrived = ends.exchange(0, probe);
    let what = format!("{way:?} {probe:?} {reason:?}");
    assert_eq!(arrived.at_b.len(), 0, "{what}");
    let after = ends.line.0[2].lane.counters().drops;
    let counted = DropReason::ALL.iter().filter(|of| after[**of] != before[**of]);
    assert_eq!(counted.collect::<Vec<_>>(), [&reason], "{what}");
}

fn mark(ends: &mut Ends) {
    ends.line.0[2].lane.outer_ecn(CE);
}

#[test]
fn a_packet_is_dropped_for_its_first_fault() {
    for way in DIRECT {
        let probe = between_nodes();
        assert_dropped(way, &probe, &[deny], DropReason::Denied);
        assert_dropped(way, &probe, &[deny, mark], DropReason::Congestion);
        assert_dropped(way, &probe, &[deny, mark, expel], DropReason::NotAllowed);
    }
    for way in [Way::Fast, Way::Pieces] {
        let (own, foreign) = (with_header("10.7.0.1"), with_header("10.7.0.3"));
        assert_dropped(way, &own, &[deny], DropReason::Denied);
        assert_dropped(way, &own, &[deny, mark], DropReason::Congestion);
        assert_dropped(way, &foreign, &[deny, mark], DropReason::ForeignSource);
        assert_dropped(way, &foreign, &[deny, mark, expel], DropReason::NotAllowed);
    }
    for way in [Way::Relayed, Way::RelayedPieces] {
        assert_dropped(way, &with_header("10.7.0.3"), &[deny], DropReason::ForeignSource);
    }
}

/// Sends packets from A, and returns what goes to the TUN of B.
fn deliver(ends: &mut Ends, packet: &[u8]) -> Vec<Vec<u8>> {
    ends.line.0[0].send(packet);
    let (mut packets, _) = ends.line.run();
    let lane = &mut ends.line.0[2].lane;
    packets.extend(std::iter::from_fn(|| lane.poll_reply()));
    packets
}

#[test]
fn a_fragment_that_waits_keeps_its_mark() {
    for way in DIRECT {
        let mut ends = Ends::new(way, Some(Rules::Some));
        let probe = Probe {
            content: Content::Ports(UDP, (1, 5_000)),
            shape: Shape::Fragments,
            ..between_nodes()
        };
        let mut fragments = ends.datagrams(&probe);
        fragments.iter_mut().for_each(|packet| packet[1] |= ECT_0_V6);
        let (first, later) = (&fragments[0], &fragments[fragments.len() - 1]);
        ends.line.0[2].lane.outer_ecn(CE);
        assert_eq!(deliver(&mut ends, later), Vec::<Vec<u8>>::new(), "{way:?}");
        ends.line.0[2].lane.outer_ecn(0);
        let arrived = deliver(&mut ends, first);
        let marks: Vec<u8> = arrived.iter().map(|packet| packet[1] & ECN_V6).collect();
        assert_eq!(marks, [ECT_0_V6, ECN_V6], "{way:?}");
    }
}

/// Makes the first packet of a TCP connection from A to B, with an MSS that no path here takes.
fn syn(len: usize) -> Vec<u8> {
    let mut packet = vec![0; len];
    let payload = (len - 40) as u16;
    packet[0] = 0x60;
    packet[1] = ECT_0_V6;
    packet[4..6].copy_from_slice(&payload.to_be_bytes());
    packet[6..8].copy_from_slice(&[TCP, 64]);
    packet[8..24].copy_from_slice(&A.to_ipv6().octets());
    packet[24..40].copy_from_slice(&B.to_ipv6().octets());
    packet[42..44].copy_from_slice(&22_u16.to_be_bytes());
    packet[52..54].copy_from_slice(&[0x60, 2]);
    packet[60..64].copy_from_slice(&[2, 4, 0xff, 0xff]);
    let sum = sum(&packet);
    packet[56..58].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Returns the checksum of the TCP segment, which is 0 where it has the right one.
fn sum(packet: &[u8]) -> u16 {
    let tcp = &packet[40..];
    let pseudo = pseudo_header_sum_v6(A.to_ipv6(), B.to_ipv6(), TCP, tcp.len() as u32);
    checksum_finish(checksum_add(pseudo, tcp))
}

#[test]
fn marks_and_sizes_reach_packets_behind_every_door() {
    for way in DIRECT {
        let len = if way == Way::Pieces { 1_280 } else { 64 };
        let sizes = [1_280_u16, 1_100].map(|mtu| {
            let mut ends = Ends::new(way, None);
            ends.line.0[2].apply(Command::Session(A, SessionCommand::Limit { mtu }));
            ends.line.0[2].lane.outer_ecn(CE);
            let arrived = deliver(&mut ends, &syn(len));
            assert_eq!(arrived.len(), 1, "{way:?}");
            assert_eq!(arrived[0][1] & ECN_V6, ECN_V6, "{way:?}");
            assert_eq!(sum(&arrived[0]), 0, "{way:?}");
            u16::from_be_bytes([arrived[0][62], arrived[0][63]])
        });
        // Below the sure payload of 1,232 bytes the limit counts.
        assert_eq!(sizes[0] - sizes[1], 1_232 - 1_100, "{way:?}");
    }
}

#[test]
fn an_answer_to_an_echo_is_reported_behind_every_door() {
    for way in [Way::Fast, Way::Relayed, Way::Fips] {
        let mut ends = Ends::new(way, None);
        ends.line.0[0].apply(Command::Send(weft_contract::SendCommand::Echo {
            peer: B,
            token: 7,
            seq: 9,
        }));
        let (requests, _) = ends.line.run();
        let mut reply = requests[0].clone();
        // The types of request and reply differ by one, in the high byte of a word that the sum covers.
        reply[8..24].copy_from_slice(&B.to_ipv6().octets());
        reply[24..40].copy_from_slice(&A.to_ipv6().octets());
        reply[40] = 129;
        ends.line.0[2].send(&reply);
        ends.line.run();
        let reports = ends.line.0[0].reports();
        let answers = reports.iter().filter(|report| {
            matches!(
                report,
                weft_contract::Report::Session(peer, weft_contract::SessionReport::EchoReply { seq: 9 }) if *peer == B
            )
        });
        assert_eq!(answers.count(), 1, "{way:?}");
    }
}
