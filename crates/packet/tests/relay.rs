//! Relayed fast frames between lanes, without a network: A and B reach each other through R.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its ground is missing"
)]

#[path = "ends/line.rs"]
mod line;

use line::{A, B, FIRST, Host, Line, MTU, NOW, R, address, link};
use proptest::prelude::*;
use weft_contract::{
    Command, EpochId, Label, LabelRoute, LinkCommand, Relay, Report, SessionCommand, SessionReport, TableCommand,
};
use weft_packet::DropReason;
use weft_wire::fast;

/// Makes a packet from A to B, of a protocol for experiments (RFC 3692).
fn packet(payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 1, 2, 3, 0, 0, 253, 61];
    packet[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    packet.extend(A.to_ipv6().octets());
    packet.extend(B.to_ipv6().octets());
    packet.extend(payload);
    packet
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn relayed_packets_arrive_as_they_were_sent(payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..1_150), 1..20)) {
        let mut line = Line::new(1 << 20, MTU);
        let before = line.relayed();
        let packets: Vec<Vec<u8>> = payloads.iter().map(|p| packet(p)).collect();
        packets.iter().for_each(|p| line.0[0].send(p));
        prop_assert_eq!(&line.run().0, &packets);
        prop_assert_eq!(line.relayed() - before, packets.len() as u64);
        for host in &line.0 {
            prop_assert_eq!(host.lane.check_invariants(), Ok(()));
        }
    }

    /// Flips any bit of a frame: a relay drops what it cannot open, and forwards what only the peer
    /// of the session can verify.
    #[test]
    fn an_altered_frame_ends_where_it_is_noticed(whole: bool, flip: prop::sample::Index) {
        let mut line = Line::new(1 << 20, MTU);
        if whole {
            line.0[0].apply(Command::Table(TableCommand::SealWhole));
        }
        line.0[0].send(&packet(&[1; 100]));
        let mut frame = line.0[0].sent().remove(0).1;
        let bit = flip.index(frame.len() * 8);
        frame[bit / 8] ^= 1 << (bit % 8);
        let before = line.relayed();
        prop_assert_eq!(line.0[1].receive(A, &frame), None);
        prop_assert_eq!(line.run().0.len(), 0);
        let for_the_hop = whole || bit / 8 < fast::INNER_AT + fast::Header::LEN;
        prop_assert_eq!(line.relayed() - before, u64::from(!for_the_hop));
        let failed = line.0[2].lane.counters().drops[DropReason::FastTag];
        prop_assert_eq!(failed, u64::from(!for_the_hop));
    }
}

/// What happens to a frame on its path to the relay.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Whole,
    /// A bit of this byte is flipped.
    Altered(usize),
    /// The frame before is repeated in its place.
    Repeated,
    /// The index of the hop is replaced by another.
    Astray,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Whole),
        1 => (0..usize::from(MTU)).prop_map(Fate::Altered),
        1 => Just(Fate::Repeated),
        1 => Just(Fate::Astray),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// A receive of many frames, processed at once, has the same outcome as its frames one by one,
    /// at the relay and at the peer.
    #[test]
    fn a_receive_at_once_is_its_frames_one_by_one(
        len in 1_usize..1_150,
        last in 1_usize..1_150,
        fates in prop::collection::vec(fate(), 1..60),
        phase_frames in prop_oneof![Just(1 << 20), 3_u64..40],
        congested: bool,
        whole: bool,
        short_relay: bool,
    ) {
        // Sometimes, frames of this many bytes are too long for the link behind the relay.
        let mtu = if short_relay { 900 } else { MTU };
        let mut lines = [(); 2].map(|()| Line::new(phase_frames, mtu));
        let mut receives = lines.each_mut().map(|line| {
            if whole {
                line.0[0].apply(Command::Table(TableCommand::SealWhole));
            }
            line.0[1].apply(Command::Link(link(B), LinkCommand::MarkCongestion { on: congested }));
            for n in 0..fates.len() {
                let len = if n + 1 == fates.len() { last.min(len) } else { len };
                line.0[0].send(&packet(&vec![n as u8; len]));
            }
            line.0[0].sent().into_iter().map(|(_, frame)| frame).collect::<Vec<_>>()
        });
        prop_assert_eq!(&receives[0], &receives[1]);
        for frames in &mut receives {
            for (n, fate) in fates.iter().enumerate().take(frames.len()) {
                let len = frames[n].len();
                match fate {
                    Fate::Whole => {}
                    Fate::Altered(at) => frames[n][at % len] ^= 1,
                    Fate::Repeated if n > 0 && frames[n - 1].len() == len => frames[n] = frames[n - 1].clone(),
                    Fate::Repeated => {}
                    Fate::Astray => frames[n][4] ^= 0x55,
                }
            }
        }
        let [at_once, one_by_one] = &mut lines;
        let mut came = [Vec::new(), Vec::new()];
        for (from, to) in [(0, 1), (1, 2)] {
            let peer = at_once.0[from].me;
            let host = &mut at_once.0[to];
            // Datagrams of different lengths arrive in receives of their own.
            let mut rest = &receives[0][..];
            while let Some(first) = rest.first() {
                let same = rest.iter().take_while(|f| f.len() == first.len()).count();
                let count = same + usize::from(rest.get(same).is_some_and(|f| f.len() < first.len()));
                let (receive, behind) = rest.split_at(count);
                let mut room = [&[0; fast::HEADROOM][..], &receive.concat()].concat();
                host.lane.inbound_train(NOW, address(peer), &mut room, first.len(), &mut host.train, |packet, _, _| {
                    came[0].push(packet.to_vec());
                });
                rest = behind;
            }
            let host = &mut one_by_one.0[to];
            for frame in &receives[1] {
                came[1].extend(host.receive(peer, frame));
            }
            let sent = [&mut at_once.0[to], &mut one_by_one.0[to]].map(Host::sent);
            prop_assert_eq!(&sent[0], &sent[1]);
            prop_assert_eq!(at_once.0[to].lane.counters(), one_by_one.0[to].lane.counters());
            let reports = [&mut at_once.0[to], &mut one_by_one.0[to]].map(|host| format!("{:?}", host.reports()));
            prop_assert_eq!(&reports[0], &reports[1]);
            let onwards = address(if to == 1 { B } else { A });
            receives = sent.map(|sent| sent.into_iter().filter(|(to, _)| *to == onwards).map(|(_, f)| f).collect());
        }
        prop_assert_eq!(&came[0], &came[1]);
    }
}

#[test]
fn a_relay_seals_the_header_alone_or_all() {
    for whole in [false, true] {
        let mut line = Line::new(1 << 20, MTU);
        if whole {
            line.0[0].apply(Command::Table(TableCommand::SealWhole));
        }
        line.0[0].send(&packet(&[5; 500]));
        let (out, passed) = line.run();
        assert_eq!(out, [packet(&[5; 500])]);
        let [first, second] = &passed[..] else {
            panic!("{}", passed.len())
        };
        assert_eq!(
            (first.len(), second.len()),
            (540 + fast::IPV6_RELAYED_OVERHEAD, first.len())
        );
        let payload = fast::INNER_AT + fast::Header::LEN;
        assert_ne!(first[..payload], second[..payload]);
        assert_eq!(first[payload..] == second[payload..], !whole);
        // The two frames share no bytes that show that they are the same, or which session they
        // belong to.
        let same = first[fast::HOP_TAG_AT..payload]
            .iter()
            .zip(&second[fast::HOP_TAG_AT..payload]);
        assert!(same.filter(|(a, b)| a == b).count() < 8);
    }
}

/// A mark of the underlay before or behind the relay becomes a mark of that hop.
#[test]
fn congestion_of_the_underlay_goes_on_as_a_mark_of_the_hop() {
    for hop in 0..2 {
        for capable in [true, false] {
            let mut line = Line::new(1 << 20, MTU);
            let mut sent = packet(&[5; 100]);
            sent[1] = sent[1] & 0xcf | if capable { 0x20 } else { 0 };
            line.0[0].send(&sent);
            let first = line.0[0].sent().remove(0).1;
            line.0[1].lane.outer_ecn(if hop == 0 { 3 } else { 0 });
            line.0[1].receive(A, &first);
            let second = line.0[1].sent().remove(0).1;
            line.0[2].lane.outer_ecn(if hop == 1 { 3 } else { 0 });
            let out = line.0[2].receive(R, &second);
            // A packet whose sender does not support ECN stays unchanged: FIPS nodes on the path do
            // the same.
            sent[1] |= if capable { 0x30 } else { 0 };
            assert_eq!(out, Some(sent), "hop {hop}, capable {capable}");
            assert_eq!(line.0[1].lane.counters().ce_forwarded, 1 - hop);
            assert_eq!(line.0[2].lane.counters().ce_delivered, u64::from(capable));
        }
    }
}

#[test]
fn a_frame_passes_a_hop_once() {
    let mut line = Line::new(1 << 20, MTU);
    line.0[0].send(&packet(&[1; 100]));
    let frame = line.0[0].sent().remove(0).1;
    let before = line.relayed();
    for _ in 0..3 {
        line.0[1].receive(A, &frame);
    }
    assert_eq!(line.run().0.len(), 1);
    assert_eq!(line.relayed() - before, 1);
    assert_eq!(line.0[1].lane.counters().drops[DropReason::FastReplay], 2);
    // The frame does not pass from the other neighbour either, nor at the node that sent it.
    line.0[1].receive(B, &frame);
    line.0[0].receive(R, &frame);
    assert_eq!(line.0[0].lane.counters().drops[DropReason::FastUnknown], 1);
    assert_eq!(line.relayed() - before, 1);
}

#[test]
fn a_circle_ends() {
    let mut line = Line::new(1 << 20, MTU);
    line.0[1].apply(Command::Link(
        link(A),
        LinkCommand::SetLabel {
            label: Label(FIRST),
            to: LabelRoute::On {
                link: link(A),
                label: Label(20),
            },
        },
    ));
    line.0[0].apply(Command::Link(
        link(R),
        LinkCommand::SetLabel {
            label: Label(20),
            to: LabelRoute::On {
                link: link(R),
                label: Label(FIRST),
            },
        },
    ));
    let before = line.relayed();
    line.0[0].send(&packet(&[1; 100]));
    assert_eq!(line.run().0.len(), 0);
    let relayed = line.relayed() - before + line.0[0].lane.counters().relayed;
    assert_eq!(relayed, u64::from(fast::MAX_HOPS) - 1);
    let expired = [0, 1].map(|at| line.0[at].lane.counters().drops[DropReason::RelayTtl]);
    assert_eq!(expired.iter().sum::<u64>(), 1);
}

#[test]
fn packets_that_cannot_be_relayed_are_dropped_and_told_seldom() {
    // The label does not exist.
    let mut line = Line::new(1 << 20, MTU);
    line.0[1].apply(Command::Link(link(A), LinkCommand::RemoveLabel { label: Label(FIRST) }));
    for _ in 0..50 {
        line.0[0].send(&packet(&[1; 100]));
    }
    let (out, passed) = line.run();
    assert_eq!((out.len(), passed.len()), (0, 50));
    assert_eq!(line.0[1].lane.counters().drops[DropReason::LabelUnknown], 50);
    assert_eq!(line.0[1].failed_labels(), [(link(A), FIRST)]);

    // The frame is larger than the datagrams of the next link.
    let mut line = Line::new(1 << 20, 1_200);
    line.0[0].send(&packet(&[1; 1_150]));
    assert_eq!(line.run().0.len(), 0);
    assert_eq!(line.0[1].lane.counters().drops[DropReason::RelayFailed], 1);
    assert_eq!(line.0[1].failed_labels(), [(link(A), FIRST)]);

    // The next link is gone, or its keys are.
    for gone in [
        Command::Link(link(B), LinkCommand::Remove),
        Command::Link(link(B), LinkCommand::RetireHop { id: EpochId(0) }),
    ] {
        let mut line = Line::new(1 << 20, MTU);
        line.0[1].apply(gone);
        line.0[0].send(&packet(&[1; 100]));
        assert_eq!(line.run().0.len(), 0);
        assert_eq!(line.0[1].lane.counters().drops[DropReason::RelayFailed], 1);
        assert_eq!(line.0[1].failed_labels(), [(link(A), FIRST)]);
        assert_eq!(line.0[1].lane.check_invariants(), Ok(()));
    }
}

#[test]
fn keys_of_hops_move_on_and_are_replaced_without_a_loss() {
    let mut line = Line::new(20, MTU);
    for id in 1..4 {
        for seq in 0..200u8 {
            line.0[0].send(&packet(&[seq; 30]));
            assert_eq!(line.run().0, [packet(&[seq; 30])]);
        }
        line.agree_on_hops(id, 20);
        for peer in [A, B] {
            let (link, id) = (link(peer), EpochId(id - 1));
            line.0[1].apply(Command::Link(link, LinkCommand::RetireHop { id }));
        }
    }
    for host in &line.0 {
        assert_eq!(
            (
                host.lane.counters().drops[DropReason::FastTag],
                host.lane.counters().drops[DropReason::EpochSpent]
            ),
            (0, 0)
        );
        assert_eq!(host.lane.check_invariants(), Ok(()));
    }
}

/// Frames that arrived through R prove nothing about the direct path.
#[test]
fn the_direct_way_has_to_be_proven_by_itself() {
    let mut line = Line::new(1 << 20, MTU);
    for (host, peer) in [(0, B), (2, A)] {
        line.0[host].install_link(peer);
        line.0[host].apply(Command::Session(peer, SessionCommand::Bind { link: link(peer) }));
    }
    let sealed = line.0[0].lane.counters().fast_tx;
    line.0[0].send(&packet(&[1; 100]));
    assert_eq!(line.run().0.len(), 1);
    assert_eq!(line.0[0].lane.counters().fast_tx, sealed, "in a FIPS frame");
    line.0[0].apply(Command::Session(B, SessionCommand::ConfirmFast { id: EpochId(0) }));
    line.run();
    let direct = |r: &Report| matches!(r, Report::Session(_, SessionReport::FastProven { direct: true, .. }));
    assert!(line.0[0].reports().iter().any(direct));
    line.0[0].send(&packet(&[1; 100]));
    let (out, passed) = line.run();
    assert_eq!((out.len(), line.0[0].lane.counters().fast_tx), (1, sealed + 1));
    assert_eq!(passed[0].len(), 140 + fast::IPV6_OVERHEAD);
    assert_eq!(line.0[0].lane.counters().relayed, 0);
}

#[test]
fn without_a_label_or_keys_of_the_hop_data_goes_in_fips_frames() {
    for take in [
        Command::Session(B, SessionCommand::Relay { relay: None }),
        Command::Link(link(R), LinkCommand::RetireHop { id: EpochId(0) }),
    ] {
        let mut line = Line::new(1 << 20, MTU);
        line.0[1].apply(Command::Table(TableCommand::SetRoute { dest: B, link: link(B) }));
        line.0[0].apply(take);
        line.0[0].send(&packet(&[1; 100]));
        let (out, passed) = line.run();
        assert_eq!(out, [packet(&[1; 100])]);
        assert!(passed.iter().all(|frame| !fast::is_fast(frame)));
    }
}

#[test]
fn only_the_ends_put_packets_into_a_hop() {
    let mut line = Line::new(1 << 20, MTU);
    // A frame of the session under the index of the hop, and a frame of the hop under the index of
    // the session.
    line.0[0].send(&packet(&[1; 100]));
    let relayed = line.0[0].sent().remove(0).1;
    for kind in [fast::Kind::Ipv6, fast::Kind::Message] {
        let mut frame = relayed.clone();
        frame[0] = fast::VERSION << 4 | kind as u8;
        assert_eq!(line.0[1].receive(A, &frame), None);
    }
    let counters = *line.0[1].lane.counters();
    assert_eq!(
        (
            counters.drops[DropReason::Malformed],
            counters.drops[DropReason::FastTag]
        ),
        (1, 1)
    );
    assert_eq!(line.run().0.len(), 0);
}

/// The receiver joins at most [`fast::Fragment::MAX_PIECES`] pieces, so the sender cuts a packet
/// into no more, whatever size the nodes on the path announce.
#[test]
fn no_packet_becomes_more_datagrams_than_the_other_end_joins() {
    for mtu in (0..=MTU).step_by(9) {
        let mut line = Line::new(1 << 20, MTU);
        let relay = Relay {
            link: link(R),
            label: Label(FIRST),
            mtu,
        };
        line.0[0].apply(Command::Session(B, SessionCommand::Relay { relay: Some(relay) }));
        for len in [41, 100, 500, 1_000, 1_200, 1_280] {
            let sent = packet(&vec![5; len - 40]);
            line.0[0].send(&sent);
            line.0[0].train.flush();
            let datagrams = line.0[0].train.out_mut().0.len();
            assert!(
                datagrams <= fast::Fragment::MAX_PIECES,
                "{mtu}, {len}: {datagrams} datagrams"
            );
            let (mut at_b, _) = line.run();
            at_b.extend(line.0[2].lane.poll_reply());
            let expected = if datagrams == 0 { vec![] } else { vec![sent] };
            assert_eq!(at_b, expected, "{mtu}, {len}");
            if mtu >= fast::LEAST_PAYLOAD {
                assert!(datagrams > 0, "{mtu}, {len}");
            }
        }
    }
}
