//! What peers that break every rule, and strangers, can make a node send and keep.
#![allow(clippy::unwrap_used, reason = "a test ends where its ground is missing")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use common::node::{ME, Node, VICTIM, at, begins, peer, token, told, victims, within};
use proptest::prelude::*;
use weft_reach::candidate::Refused;
use weft_reach::message::{BadMessage, Candidate, Kind};
use weft_reach::probe::{Probe, key};
use weft_reach::{End, Outcome, Source, Standing, Why, budget};
use weft_wire::NodeAddr;

#[test]
fn a_victim_in_all_places_gets_its_budget_and_no_more() {
    let mut node = Node::with_peer(1);
    node.answer(1, token(0), victims());
    node.run(20_000);
    let once = node.bytes_to(VICTIM.into());
    assert_eq!(within(&once, 20_000), 78 * 52, "whole probes in {}", budget::ATTEMPT);
    assert_eq!(node.reach.counts().over_budget, 32);
    let record = &node.reach.history(peer(1))[0];
    let over = record
        .tried
        .iter()
        .filter(|tried| matches!(tried.outcome, Outcome::OverBudget(_)));
    assert_eq!(over.count(), 32);
}

/// For two hours, three peers begin attempts as often as they are let, name one victim in all places,
/// and forge probes from it.
#[test]
fn peers_that_begin_again_and_again_waste_no_more() {
    let mut node = Node::new();
    (1..4).for_each(|n| node.reach.set_peer(0, peer(n), Standing::Relayed));
    node.collect();
    for step in 0..7_200u64 {
        node.run(step * 1_000);
        for n in 1..4u8 {
            node.message(n, &begins(token(step * 4 + u64::from(n)), victims()));
            let key = key(ME, node.own(n), peer(n), token(step * 4 + u64::from(n)));
            for sequence in 0..5 {
                let ack = false;
                node.datagram(SocketAddr::from((VICTIM, 7)), Probe { ack, sequence, key });
            }
        }
    }
    let sent = node.bytes_to(VICTIM.into());
    let hour = within(&sent, 3_600_000);
    assert!(hour <= budget::HOUR && hour > budget::HOUR / 2, "{hour}");
    assert!(node.found.is_empty());
    let counts = node.reach.counts();
    assert!(
        counts.hasty_attempts > 10_000 && counts.hasty_messages == 0,
        "{counts:?}"
    );
    // One attempt in ten seconds, of each peer and by this node itself, and six more.
    let begun = node.messages.len();
    assert!(begun <= 3 * 2 * (720 + 6) + 100, "{begun} messages");
}

#[test]
fn ipv6_is_counted_by_its_first_64_bits() {
    let mut node = Node::with_peer(1);
    let all: Vec<_> = (0..32).map(|n| told(at(&format!("[2001:db8::{n:x}:1]:53")))).collect();
    node.answer(1, token(0), all);
    node.run(20_000);
    assert_eq!(node.datagrams.len() as u32, budget::ATTEMPT / 72);
}

#[test]
fn no_second_has_more_than_150_probes() {
    let mut node = Node::new();
    for n in 1..20 {
        node.reach.set_peer(0, peer(n), Standing::Relayed);
    }
    node.collect();
    for n in 1..9 {
        let all = (0..32).map(|i| told(SocketAddr::from(([198, 51, n, i], 9))));
        node.answer(n, token(u64::from(n)), all.collect());
    }
    node.run(60_000);
    let times: Vec<u64> = node.datagrams.iter().map(|(at, ..)| *at).collect();
    assert!(times.windows(151).all(|window| window[150] - window[0] >= 1_000));
    assert!(times.len() > 1_400, "{}", times.len());
}

/// Of two attempts, the one with 32 targets leaves the other one the pace that it has alone.
#[test]
fn many_targets_of_one_peer_delay_no_other_peer() {
    let mut node = Node::new();
    (1..9).for_each(|n| node.reach.set_peer(0, peer(n), Standing::Relayed));
    node.collect();
    for n in 1..8 {
        let all = (0..32).map(|i| told(SocketAddr::from(([198, 51, n, i], 9))));
        node.answer(n, token(u64::from(n)), all.collect());
    }
    let quiet = at("203.0.113.77:2121");
    node.answer(8, token(99), vec![told(quiet)]);
    node.run(2_000);
    let times: Vec<u64> = node
        .datagrams
        .iter()
        .filter(|(_, to, _)| *to == quiet)
        .map(|(at, ..)| *at)
        .collect();
    assert!(times.len() >= 10, "{times:?}");
    node.run(10_000);
    let all = node.datagrams.iter().filter(|(_, to, _)| *to == quiet).count();
    assert!(all >= 24, "{all} of 26 probes");
}

#[test]
fn forbidden_addresses_are_not_probed() {
    let mut node = Node::with_peer(1);
    let texts = [
        ("[fd12::1]:2121", Refused::Mesh),
        ("192.168.1.2:53", Refused::Own),
        ("0.0.0.0:2121", Refused::Unspecified),
        ("127.0.0.1:2121", Refused::Loopback),
        ("255.255.255.255:2121", Refused::Broadcast),
        ("224.0.0.1:2121", Refused::Multicast),
        ("203.0.113.1:0", Refused::PortZero),
        ("169.254.1.1:2121", Refused::LinkLocal),
        ("[fe80::1]:2121", Refused::LinkLocal),
    ];
    let mut all: Vec<_> = texts.iter().map(|(text, _)| told(at(text))).collect();
    all.push(Candidate {
        kind: Kind::Unknown(77),
        at: at("203.0.113.9:1"),
    });
    let key = node.answer(1, token(0), all);
    // The source of a probe is no better than the word of a peer.
    for (text, _) in texts {
        node.datagram(
            at(text),
            Probe {
                ack: false,
                sequence: 3,
                key,
            },
        );
    }
    node.datagram(
        at("[::ffff:203.0.113.1]:2121"),
        Probe {
            ack: false,
            sequence: 3,
            key,
        },
    );
    node.run(20_000);
    assert!(node.datagrams.is_empty(), "{:?}", node.datagrams);
    let refused = &node.reach.counts().refused;
    let expected = [
        (Refused::PortZero, 2),
        (Refused::Mesh, 2),
        (Refused::Own, 2),
        (Refused::Unspecified, 2),
        (Refused::Loopback, 2),
        (Refused::Broadcast, 2),
        (Refused::Multicast, 2),
        (Refused::LinkLocal, 4),
        (Refused::Mapped, 1),
        (Refused::UnknownKind, 1),
    ];
    assert_eq!(*refused, BTreeMap::from(expected));
    let record = &node.reach.history(peer(1))[0];
    assert!(
        record
            .tried
            .iter()
            .all(|tried| matches!(tried.outcome, Outcome::Refused(_)))
    );
    assert_eq!(record.tried.len(), 10);
}

#[test]
fn a_probe_without_a_valid_token_gets_no_answer() {
    let mut node = Node::with_peer(1);
    let target = at("203.0.113.5:2121");
    let key = node.answer(1, token(0), vec![told(target)]);
    node.run(100);
    let before = node.datagrams.len();
    let mut other = key;
    other[15] ^= 1;
    node.datagram(
        target,
        Probe {
            ack: false,
            sequence: 1,
            key: other,
        },
    );
    node.datagram(
        target,
        Probe {
            ack: true,
            sequence: 1,
            key: other,
        },
    );
    for len in 0..60 {
        let mut bytes = Probe {
            ack: false,
            sequence: 1,
            key,
        }
        .emit()
        .to_vec();
        bytes.resize(len, 0);
        if len != Probe::LEN {
            node.reach.handle_datagram(100, target, &bytes);
        }
    }
    node.collect();
    assert_eq!(node.datagrams.len(), before);
    assert_eq!(node.reach.counts().unknown_datagrams, 61);
    // When the answers are over, the key is worth nothing.
    node.run(21_000);
    assert!(node.listens.is_empty());
    let before = node.datagrams.len();
    node.datagram(
        target,
        Probe {
            ack: false,
            sequence: 1,
            key,
        },
    );
    assert_eq!(node.datagrams.len(), before);
}

#[test]
fn a_probe_gets_one_answer_of_its_length_and_all_are_bounded() {
    let mut node = Node::with_peer(1);
    let key = node.answer(1, token(0), Vec::new());
    let from = SocketAddr::from((VICTIM, 5));
    node.datagram(
        from,
        Probe {
            ack: false,
            sequence: 0xabcd,
            key,
        },
    );
    let acks: Vec<_> = node.datagrams.iter().filter(|(.., probe)| probe.ack).collect();
    assert_eq!(
        acks,
        [&(
            0,
            from,
            Probe {
                ack: true,
                sequence: 0xabcd,
                key
            }
        )]
    );
    assert_eq!(
        node.datagrams.len(),
        2,
        "the answer, and a probe to the new target at once"
    );
    for n in 0..100_000u32 {
        // The sequences are none that this node uses.
        let sequence = node.datagrams[1].2.sequence.wrapping_sub(1 + n);
        node.datagram(
            from,
            Probe {
                ack: false,
                sequence,
                key,
            },
        );
    }
    node.run(20_000);
    assert!(node.bytes_to(VICTIM.into()).len() as u32 <= budget::ATTEMPT / 52);
    // From many addresses: few targets, and no more answers than their rate.
    let before = node.datagrams.len();
    let source = |n: u32| SocketAddr::from(([100, 70, (n >> 8) as u8, n as u8], 9));
    node.reach.handle_network_change(30_000);
    node.now = 30_000;
    node.collect();
    let key = node.answer(1, token(1), Vec::new());
    for n in 0..10_000 {
        node.datagram(
            source(n),
            Probe {
                ack: false,
                sequence: n,
                key,
            },
        );
    }
    let sent = &node.datagrams[before..];
    let acks = sent.iter().filter(|(.., probe)| probe.ack).count();
    assert_eq!((acks, sent.len() - acks), (15, 8));
}

#[test]
fn only_an_answer_to_a_probe_from_where_it_went_counts() {
    let mut node = Node::with_peer(1);
    let target = at("203.0.113.5:2121");
    let key = node.answer(1, token(0), vec![told(target), told(at("203.0.113.6:2121"))]);
    node.run(0);
    let sent = node.datagrams.iter().find(|(_, to, _)| *to == target).unwrap().2;
    let ack = |sequence| Probe {
        ack: true,
        sequence,
        key,
    };
    for (from, sequence) in [
        (target, sent.sequence.wrapping_add(1)),
        (target, sent.sequence.wrapping_sub(1)),
        (at("203.0.113.5:2122"), sent.sequence),
        (at("203.0.113.6:2121"), sent.sequence),
        (at("203.0.113.7:2121"), sent.sequence),
    ] {
        node.datagram(from, ack(sequence));
        assert!(node.found.is_empty(), "{from} {sequence}");
    }
    assert_eq!(node.reach.counts().unknown_acks, 5);
    node.datagram(target, ack(sent.sequence));
    node.datagram(target, ack(sent.sequence));
    assert_eq!(node.found, [(peer(1), target, Source::Told(Kind::Observed))]);
    let end = node.reach.history(peer(1)).pop().unwrap().end;
    assert_eq!(end, Some((0, End::Found(target))));
}

/// An address that returns all it receives, as the echo service of RFC 862 does, is no peer.
#[test]
fn an_echo_is_not_found() {
    let mut node = Node::with_peer(1);
    let echo = at("203.0.113.7:7");
    node.answer(1, token(0), vec![told(echo)]);
    let mut returned = 0;
    for now in 0..200 {
        node.run(now * 100);
        while let Some((_, to, probe)) = node.datagrams.get(returned).copied() {
            returned += 1;
            node.datagram(to, probe);
        }
    }
    assert!(node.found.is_empty());
    assert_eq!(node.reach.counts().reflected as usize, returned);
    assert!(returned > 20);
}

#[test]
fn messages_of_strangers_and_rubbish_change_nothing() {
    let mut node = Node::with_peer(1);
    let good = begins(token(5), victims()).emit();
    let before = node.messages.len();
    assert_eq!(node.reach.handle_message(0, peer(2), &good), Err(BadMessage::NoPeer));
    for n in 0..30u64 {
        let result = node.reach.handle_message(n * 1_000, peer(1), &good[..20 + n as usize]);
        assert!(result.is_err());
    }
    node.collect();
    assert_eq!(node.reach.counts().bad_messages, 31);
    assert_eq!(node.messages.len(), before);
    assert!(node.datagrams.is_empty() && node.listens.is_empty());
    // Faster than they are read, they are not even looked at.
    let mut looked = 0;
    for _ in 0..1_000 {
        looked += usize::from(node.reach.handle_message(30_000, peer(1), &good[..20]).is_err());
    }
    assert_eq!(looked, 16);
    node.reach.set_peer(30_000, peer(1), Standing::Gone);
    assert_eq!(
        node.reach.handle_message(30_000, peer(1), &good),
        Err(BadMessage::NoPeer)
    );
    assert!(node.reach.poll_timeout().is_none());
}

/// New candidates and new sources of probes make an attempt longer, up to a bound.
#[test]
fn new_targets_do_not_keep_an_attempt_going() {
    let mut node = Node::with_peer(1);
    let key = node.answer(1, token(0), Vec::new());
    // Answers to probes go on for 10 s after the end, and a message begins nothing meanwhile.
    for second in 0..29u8 {
        node.run(u64::from(second) * 1_000);
        node.answer(1, token(0), vec![told(SocketAddr::from(([198, 51, 100, second], 1)))]);
        let from = SocketAddr::from(([198, 51, 101, second], 1));
        node.datagram(
            from,
            Probe {
                ack: false,
                sequence: 1,
                key,
            },
        );
    }
    let record = &node.reach.history(peer(1))[0];
    assert!(
        record.end.is_some_and(|(at, end)| at <= 20_000 && end == End::NoAnswer),
        "{record:?}"
    );
    assert!(record.end.is_some_and(|(at, _)| at >= 19_000));
}

/// Messages that were delayed, of attempts that the peer has replaced, bring nothing back.
#[test]
fn a_replaced_token_stays_replaced() {
    let mut node = Node::with_peer(1);
    node.answer(1, token(0), vec![told(at("203.0.113.1:1"))]);
    let key = node.answer(1, token(1), vec![told(at("203.0.113.2:1"))]);
    assert_eq!(node.listens, BTreeSet::from([key]));
    node.answer(1, token(0), vec![told(at("203.0.113.1:1"))]);
    assert_eq!(node.reach.counts().stale_messages, 1);
    assert_eq!(node.listens, BTreeSet::from([key]));
}

/// Peers that begin attempts all the time leave places for those of this node.
#[test]
fn attempts_of_this_node_find_places() {
    let mut node = Node::new();
    for n in 1..60 {
        node.reach.set_peer(0, peer(n), Standing::Direct(at("203.0.113.1:1")));
    }
    for step in 0..60 {
        node.run(step * 1_000);
        for n in 1..60 {
            let theirs = token(step * 100 + u64::from(n));
            node.message(n, &begins(theirs, vec![told(SocketAddr::from(([198, 51, 100, n], 1)))]));
        }
    }
    assert!(node.reach.counts().busy > 1_000);
    node.reach.set_peer(60_000, peer(200), Standing::Relayed);
    node.collect();
    assert_eq!(node.messages.last().unwrap().1, peer(200), "begins at once");
    let target = at("203.0.113.200:2121");
    node.answer(200, token(7), vec![told(target)]);
    assert!(node.datagrams.iter().any(|(_, to, _)| *to == target));
}

/// A thousand peers at once take turns.
#[test]
fn a_thousand_relayed_peers_have_their_turn() {
    let mut node = Node::new();
    let addr = |n: u16| NodeAddr::new([(n >> 8) as u8 + 1, n as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for n in 0..1_000 {
        node.reach.set_peer(0, addr(n), Standing::Relayed);
    }
    node.collect();
    assert_eq!(node.messages.len(), 8);
    node.run(1_000_000);
    let asked: BTreeSet<_> = node.messages.iter().map(|(_, to, _)| *to).collect();
    assert_eq!(asked.len(), 1_000);
    let why = node.reach.history(addr(999)).pop().unwrap().why;
    assert!(matches!(why, Why::Relayed | Why::Again));
}

/// A neighbour that says something else each time does not make this node talk.
#[test]
fn a_neighbour_that_changes_its_mind_is_not_followed() {
    let mut node = Node::with_peer(1);
    for n in 0..10_000u64 {
        node.run(n * 10);
        node.reach
            .handle_observed(node.now, peer(9), SocketAddr::from(([203, 0, 113, 1], n as u16 + 1)));
        node.collect();
    }
    assert!(node.messages.len() < 20, "{}", node.messages.len());
    assert!(node.reach.counts().refused_observations > 9_000);
}

proptest! {
    /// Any events in any order: bounds hold, timers advance, and what is listened for is ignored in
    /// the end.
    #[test]
    fn any_events(events in proptest::collection::vec((0u8..9, 0u8..4, any::<u64>(), 0u64..3_000), 1..200)) {
        let mut node = Node::new();
        for (what, n, random, pause) in events {
            node.run(node.now + pause);
            let (now, n) = (node.now, n + 1);
            let address = SocketAddr::from(([198, 51, 100, random as u8 % 8], (random >> 8) as u16));
            match what {
                0 => node.reach.set_peer(now, peer(n), Standing::Relayed),
                1 => node.reach.set_peer(now, peer(n), Standing::Direct(address)),
                2 if random % 4 == 0 => node.reach.set_peer(now, peer(n), Standing::Gone),
                3 => node.reach.handle_network_change(now),
                4 => node.reach.handle_observed(now, peer(n), address),
                5 => node.reach.forget_observer(now, peer(n)),
                6 | 2 => {
                    let own = node.messages.iter().rev().find(|(_, to, _)| *to == peer(n));
                    let echo = own.map(|(.., message)| message.token).filter(|_| random % 3 > 0);
                    let theirs = token(random % 3);
                    let mut message = begins(theirs, vec![told(address); 1 + random as usize % 3]);
                    message.echo = echo;
                    let _ = node.reach.handle_message(now, peer(n), &message.emit());
                }
                7 => {
                    let key = node.listens.iter().nth(random as usize % 4).copied().unwrap_or_default();
                    let (ack, sequence) = (random & 1 == 1, (random >> 32) as u32);
                    node.datagram(address, Probe { ack, sequence, key });
                }
                _ => {
                    if let Some((_, to, probe)) = node.datagrams.last().copied().filter(|(.., probe)| !probe.ack) {
                        node.datagram(to, Probe { ack: true, ..probe });
                    }
                }
            }
            node.collect();
            prop_assert!(node.listens.len() <= 4);
        }
        for n in 1..5 {
            node.reach.set_peer(node.now, peer(n), Standing::Direct(at("203.0.113.1:1")));
        }
        node.run(node.now + 100_000);
        prop_assert!(node.listens.is_empty());
        prop_assert_eq!(node.reach.poll_timeout(), None);
        for ip in 0..8 {
            let sent = node.bytes_to(IpAddr::from([198, 51, 100, ip]));
            let free = node.found.iter().any(|(_, at, _)| at.ip() == IpAddr::from([198, 51, 100, ip]));
            prop_assert!(free || within(&sent, 3_600_000) <= budget::HOUR);
        }
    }
}
