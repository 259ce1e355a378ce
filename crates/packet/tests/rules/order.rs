//! The last steps before the TUN have one order behind every door: a packet with several faults is
//! dropped for the first of them, and what the rules have judged does not change any more.

use std::net::Ipv6Addr;

use weft_contract::{Command, Report, SendCommand, SessionCommand, SessionReport, TableCommand};
use weft_packet::{DropReason, HEADROOM};
use weft_wire::checksum::{checksum_add, checksum_finish, pseudo_header_sum_v6};
use weft_wire::fast;

use crate::forged;
use crate::line::{A, B, address, link};
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
        assert_eq!(ends.line.0[2].lane.counters().tun_tx, 0, "{way:?}");
        ends.line.0[2].lane.outer_ecn(0);
        let arrived = deliver(&mut ends, first);
        let marks: Vec<u8> = arrived.iter().map(|packet| packet[1] & ECN_V6).collect();
        assert_eq!(marks, [ECT_0_V6, ECN_V6], "{way:?}");
        let b = &mut ends.line.0[2];
        assert_eq!(b.lane.counters().tun_tx, 2, "{way:?}");
        b.lane.sample(b.now);
        let totals = b.reports().into_iter().find_map(|report| match report {
            Report::Activity { sessions, .. } => Some(sessions[0].totals),
            _ => None,
        });
        let bytes: usize = fragments.iter().map(Vec::len).sum();
        let arrived = totals.map(|totals| (totals.rx_payload, totals.rx_bytes));
        assert_eq!(arrived, Some((2, bytes as u64)), "{way:?}");
    }
}

/// Makes the first packet of a TCP connection of two IPv6 addresses, with an MSS that no path here takes.
fn syn(len: usize, ends: [Ipv6Addr; 2]) -> Vec<u8> {
    let mut packet = vec![0; len];
    let payload = (len - 40) as u16;
    packet[0] = 0x60;
    packet[1] = ECT_0_V6;
    packet[4..6].copy_from_slice(&payload.to_be_bytes());
    packet[6..8].copy_from_slice(&[TCP, 64]);
    packet[8..24].copy_from_slice(&ends[0].octets());
    packet[24..40].copy_from_slice(&ends[1].octets());
    packet[42..44].copy_from_slice(&22_u16.to_be_bytes());
    packet[52..54].copy_from_slice(&[0x60, 2]);
    packet[60..64].copy_from_slice(&[2, 4, 0xff, 0xff]);
    let sum = sum(&packet, ends);
    packet[56..58].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Returns the checksum of the TCP segment, which is 0 where it has the right one.
fn sum(packet: &[u8], [from, to]: [Ipv6Addr; 2]) -> u16 {
    let tcp = &packet[40..];
    let pseudo = pseudo_header_sum_v6(from, to, TCP, tcp.len() as u32);
    checksum_finish(checksum_add(pseudo, tcp))
}

#[test]
fn marks_and_sizes_reach_packets_behind_every_door() {
    /// The largest UDP payload to the peer, below what is sure on every path.
    const LIMIT: u16 = 1_100;
    let between = [A.to_ipv6(), B.to_ipv6()];
    let behind = ["fdab:1::1", "fdab:2::1"].map(|address| address.parse().unwrap());
    for (way, ends, overhead) in [
        (Way::Fast, between, fast::IPV6_OVERHEAD),
        (Way::Fast, behind, fast::FULL_OVERHEAD),
        (Way::Pieces, between, fast::IPV6_OVERHEAD),
        (Way::Pieces, behind, fast::FULL_OVERHEAD),
        (Way::Fips, between, weft_packet::IPV6_OVERHEAD),
    ] {
        let packet = syn(if way == Way::Pieces { 1_280 } else { 64 }, ends);
        let mut both = forged::ends(way);
        let b = &mut both.line.0[2];
        b.apply(Command::Session(A, SessionCommand::Limit { mtu: LIMIT }));
        b.lane.outer_ecn(CE);
        let arrived = deliver(&mut both, &packet);
        assert_eq!(arrived.len(), 1, "{way:?} {ends:?}");
        assert_eq!(arrived[0][1] & ECN_V6, ECN_V6, "{way:?} {ends:?}");
        assert_eq!(sum(&arrived[0], ends), 0, "{way:?} {ends:?}");
        let mss = u16::from_be_bytes([arrived[0][62], arrived[0][63]]);
        assert_eq!(usize::from(mss), usize::from(LIMIT) - overhead - 60, "{way:?} {ends:?}");
    }
}

/// The ends of the last packet are remembered for those behind it in one receive.
#[test]
fn each_packet_of_a_receive_has_its_ends_checked() {
    for (ends, reason) in [
        (
            [("10.7.0.1", "10.7.0.2"), ("10.7.0.1", "10.7.0.9")],
            DropReason::ForeignDestination,
        ),
        (
            [("10.7.0.1", "10.7.0.2"), ("10.7.0.3", "10.7.0.2")],
            DropReason::ForeignSource,
        ),
    ] {
        let mut both = forged::ends(Way::Fast);
        let mut frames = Vec::new();
        for (from, to) in ends {
            let probe = Probe {
                to: to.parse().unwrap(),
                ..with_header(from)
            };
            both.line.0[0].send(&both.datagrams(&probe)[0]);
            frames.extend(both.line.0[0].sent().into_iter().map(|(_, frame)| frame));
        }
        let step = frames[0].len();
        let mut room = [&[0; HEADROOM], &frames.concat()[..]].concat();
        let b = &mut both.line.0[2];
        let mut arrived = 0;
        let from = address(A);
        b.lane
            .inbound_train(b.now, from, &mut room, step, &mut b.train, |_, _, _| arrived += 1);
        assert_eq!((arrived, b.lane.counters().drops[reason]), (1, 1), "{ends:?}");
    }
}

#[test]
fn an_answer_to_an_echo_is_reported_behind_every_door() {
    let ways = [Way::Fast, Way::Relayed, Way::Fips];
    for (way, passes) in ways
        .map(|way| (way, true))
        .into_iter()
        .chain(ways.map(|way| (way, false)))
    {
        let mut ends = Ends::new(way, None);
        ends.line.0[0].apply(Command::Send(SendCommand::Echo {
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
        if !passes {
            // With rules after a time without, no flow is known that A has begun.
            let a = &mut ends.line.0[0];
            a.apply(Command::Table(TableCommand::SetPolicy {
                policy: None,
                first: None,
            }));
            policy::set(a, B, Rules::Nothing.for_a());
        }
        ends.line.0[2].send(&reply);
        ends.line.run();
        let reports = ends.line.0[0].reports();
        let answers = reports.iter().filter(|report| {
            matches!(
                report,
                Report::Session(peer, SessionReport::EchoReply { seq: 9 }) if *peer == B
            )
        });
        assert_eq!(answers.count(), usize::from(passes), "{way:?}");
    }
}
