//! When attempts begin, what they send, and how they end.
#![allow(clippy::unwrap_used, reason = "a test ends where its ground is missing")]

mod common;

use std::net::SocketAddr;

use common::node::{Node, at, peer, token, told};
use weft_reach::message::Candidate;
use weft_reach::nat::Mapping;
use weft_reach::probe::Probe;
use weft_reach::stun::{Client, Message, Output as StunOutput};
use weft_reach::{End, Observer, Outcome, Source, Standing, Why};

const TARGET: &str = "203.0.113.5:2121";

fn target() -> Vec<Candidate> {
    vec![told(at(TARGET))]
}

fn message_times(node: &Node) -> Vec<u64> {
    node.messages.iter().map(|(at, ..)| *at).collect()
}

#[test]
fn candidates_are_sent_again_while_nothing_answers() {
    let mut node = Node::with_peer(1);
    node.run(62_999);
    assert_eq!(message_times(&node), [0, 1_000, 3_000, 7_000, 15_000, 31_000]);
    assert!(node.messages.iter().all(|(.., message)| *message == node.messages[0].2));
    node.run(63_000);
    let record = node.reach.history(peer(1)).pop().unwrap();
    assert_eq!(record.end, Some((63_000, End::NoReply)));
    // The next attempt has another token.
    node.run(63_000 + 30_000);
    assert_ne!(node.own(1), node.messages[0].2.token);
}

/// A message with this node's token, a probe and an ack each show that the peer has the token.
#[test]
fn an_answer_ends_that() {
    let ways: [fn(&mut Node); 2] = [
        |node| {
            node.answer(1, token(0), Vec::new());
        },
        |node| {
            // The message of the peer crossed this node's, so it has no echo.
            node.message(1, &common::node::begins(token(0), Vec::new()));
            let key = weft_reach::probe::key(common::node::ME, node.own(1), peer(1), token(0));
            node.datagram(
                at(TARGET),
                Probe {
                    ack: false,
                    sequence: 1,
                    key,
                },
            );
        },
    ];
    for way in ways {
        let mut node = Node::with_peer(1);
        way(&mut node);
        assert_eq!(
            node.messages.last().unwrap().2.echo,
            Some(token(0)),
            "the peer learns that its token came"
        );
        let count = node.messages.len();
        node.run(9_000);
        assert_eq!(node.messages.len(), count);
    }
}

#[test]
fn a_target_is_probed_often_and_then_less() {
    let mut node = Node::with_peer(1);
    node.answer(1, token(0), target());
    node.run(29_000);
    let times: Vec<u64> = node.datagrams.iter().map(|(at, ..)| *at).collect();
    let fast = (0..=10).map(|n| n * 200);
    let slow = (5..20).map(|n| n * 500);
    assert_eq!(times, fast.chain(slow).collect::<Vec<_>>());
    let record = node.reach.history(peer(1)).pop().unwrap();
    assert_eq!(record.end, Some((10_000, End::NoAnswer)));
    assert_eq!((record.tried[0].outcome, record.tried[0].probes), (Outcome::Silent, 26));
}

#[test]
fn failed_attempts_come_again_with_growing_pauses() {
    let mut node = Node::with_peer(1);
    let mut begun = vec![0];
    while begun.len() < 6 {
        let before = node.messages.len();
        node.answer(1, token(begun.len() as u64), target());
        // The answer brings one message; the next one begins an attempt.
        while node.messages.len() < before + 2 {
            let (at, _) = node.reach.poll_timeout().unwrap();
            node.run(at);
        }
        begun.push(node.now);
    }
    let pauses: Vec<u64> = begun.windows(2).map(|pair| pair[1] - pair[0] - 10_000).collect();
    assert_eq!(pauses, [30_000, 120_000, 600_000, 600_000, 600_000]);
    assert_eq!(node.reach.history(peer(1)).pop().unwrap().why, Why::Again);
}

/// If no link follows on what was found, another attempt does; if one does, none.
#[test]
fn a_found_address_ends_attempts_only_with_a_link() {
    for linked in [false, true] {
        let mut node = Node::with_peer(1);
        let key = node.answer(1, token(0), target());
        let sent = node.datagrams[0].2;
        node.datagram(at(TARGET), Probe { ack: true, ..sent });
        assert_eq!(node.found.len(), 1);
        let (probes, messages) = (node.datagrams.len(), node.messages.len());
        if linked {
            node.reach.set_peer(0, peer(1), Standing::Direct(at(TARGET)));
        }
        // The peer may still need answers.
        node.run(9_999);
        node.datagram(
            at(TARGET),
            Probe {
                ack: false,
                sequence: 9,
                key,
            },
        );
        assert_eq!(node.datagrams.len(), probes + 1);
        assert!(node.datagrams[probes].2.ack);
        node.run(10_000);
        assert!(node.listens.is_empty());
        node.run(3_600_000);
        assert_eq!(node.messages.len() > messages, !linked);
    }
}

#[test]
fn a_link_ends_the_attempt_and_its_loss_begins_another_at_once() {
    let mut node = Node::with_peer(1);
    node.answer(1, token(0), target());
    node.run(1_000);
    node.reach
        .set_peer(1_000, peer(1), Standing::Direct(at("203.0.113.9:2121")));
    node.collect();
    let (probes, messages) = (node.datagrams.len(), node.messages.len());
    node.run(3_600_000);
    assert_eq!((node.datagrams.len(), node.messages.len()), (probes, messages));
    assert_eq!(
        node.reach.history(peer(1)).pop().unwrap().end,
        Some((1_000, End::Direct))
    );
    node.reach.set_peer(node.now, peer(1), Standing::Relayed);
    node.collect();
    assert_eq!(node.messages.len(), messages + 1);
    // Once more is no news.
    node.reach.set_peer(node.now, peer(1), Standing::Relayed);
    node.collect();
    assert_eq!(node.messages.len(), messages + 1);
}

/// New addresses of this node: the present attempt is told, and without one an attempt begins.
#[test]
fn new_candidates_are_told_at_once() {
    let mut node = Node::with_peer(1);
    node.answer(1, token(0), target());
    let own = node.own(1);
    node.run(1_000);
    node.reach.set_mapped(1_000, vec![at("203.0.113.1:7")]);
    node.collect();
    let (when, _, message) = node.messages.last().unwrap();
    assert_eq!((*when, message.token, message.candidates.len()), (1_000, own, 2));
    // The same again is no news.
    let count = node.messages.len();
    node.reach.set_mapped(1_000, vec![at("203.0.113.1:7")]);
    node.collect();
    assert_eq!(node.messages.len(), count);
    for now in [11_000, 100_000] {
        node.run(now);
        node.reach
            .handle_observed(now, peer(9), SocketAddr::from(([203, 0, 113, 1], (now / 1_000) as u16)));
        node.collect();
        assert_eq!(node.messages.last().unwrap().0, now);
        assert_ne!(node.messages.last().unwrap().2.token, own);
        assert_eq!(node.reach.history(peer(1)).pop().unwrap().why, Why::Candidates);
    }
}

/// A changed network begins all attempts again, also those that run, as often as the bucket lets.
#[test]
fn a_changed_network_begins_again_at_once() {
    let mut node = Node::new();
    (1..9).for_each(|n| node.reach.set_peer(0, peer(n), Standing::Relayed));
    node.collect();
    for n in 1..9 {
        node.answer(n, token(u64::from(n)), target());
    }
    let before: Vec<_> = (1..9).map(|n| node.own(n)).collect();
    node.run(3_000);
    node.reach.handle_network_change(3_000);
    node.collect();
    assert!(
        (1..9).all(|n| node.own(n) != before[n as usize - 1]),
        "all eight places are taken over"
    );
    let count = node.messages.len();
    for now in 3_001..4_000 {
        node.reach.handle_network_change(now);
    }
    node.collect();
    assert_eq!(
        node.messages.len(),
        count + 8 * 4,
        "six at once, of which two are spent"
    );
}

#[test]
fn a_peer_without_a_wish_for_a_path_answers() {
    let mut node = Node::new();
    node.reach
        .set_peer(0, peer(1), Standing::Direct(at("203.0.113.9:2121")));
    node.collect();
    assert!(node.messages.is_empty());
    node.message(1, &common::node::begins(token(0), target()));
    assert_eq!((node.messages.len(), node.datagrams.len()), (1, 1));
    assert_eq!(node.reach.history(peer(1)).pop().unwrap().why, Why::Peer);
    node.run(3_600_000);
    assert_eq!(
        node.messages.iter().filter(|(at, ..)| *at > 62_000).count(),
        0,
        "and does not come again"
    );
}

/// A STUN server is an observer like a neighbour.
#[test]
fn servers_and_neighbours_together_show_the_mapping() {
    let mut node = Node::with_peer(1);
    let server = at("192.0.2.7:3478");
    let mut client = Client::default();
    let mut rng = <rand_chacha::ChaCha8Rng as rand_chacha::rand_core::SeedableRng>::seed_from_u64(1);
    let id = client.ask(0, server, &mut rng).unwrap();
    assert!(matches!(client.poll_output(), Some(StunOutput::Send { to, .. }) if to == server));
    assert!(client.handle_datagram(server, &Message::success(id, at("203.0.113.1:40000"))));
    let Some(StunOutput::Seen { by, at: seen }) = client.poll_output() else {
        panic!("no address");
    };
    node.reach.handle_observed(0, Observer::Server(by), seen);
    assert_eq!(node.reach.nat(false).mapping, Mapping::Unknown);
    node.reach.handle_observed(0, peer(9), at("203.0.113.1:40001"));
    let nat = node.reach.nat(false);
    assert_eq!((nat.mapping, nat.deltas), (Mapping::EndpointDependent, vec![1]));
    node.reach.forget_observer(0, peer(9));
    assert_eq!(node.reach.nat(false).mapping, Mapping::Unknown);
    node.reach.handle_observed(0, peer(8), at("203.0.113.1:40000"));
    assert_eq!(node.reach.nat(false).mapping, Mapping::EndpointIndependent);
    assert_eq!(node.reach.nat(true).mapping, Mapping::Unknown);
    assert_eq!(node.reach.candidates().len(), 2);
}

#[test]
fn the_source_of_a_probe_is_probed_at_once() {
    let mut node = Node::with_peer(1);
    let key = node.answer(1, token(0), Vec::new());
    node.run(5_000);
    assert!(node.datagrams.is_empty());
    let from = at("203.0.113.77:9");
    node.datagram(
        from,
        Probe {
            ack: false,
            sequence: 3,
            key,
        },
    );
    let [(_, to, ack), (when, also, probe)] = node.datagrams[..] else {
        panic!("{:?}", node.datagrams);
    };
    assert_eq!((to, also, when), (from, from, 5_000));
    assert!(ack.ack && ack.sequence == 3 && !probe.ack);
    node.datagram(from, Probe { ack: true, ..probe });
    assert_eq!(node.found, [(peer(1), from, Source::Heard)]);
}
