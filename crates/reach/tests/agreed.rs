//! Attempts that both nodes agreed on outside of a session.
#![allow(clippy::unwrap_used, reason = "a test ends where its ground is missing")]

mod common;

use common::node::{Node, VICTIM, at, peer};
use weft_reach::probe::Probe;
use weft_reach::{End, Source, Standing, Why};

const TARGET: &str = "203.0.113.5:2121";
const KEY: [u8; 16] = [7; 16];

fn probe(ack: bool, sequence: u32) -> Probe {
    let key = KEY;
    Probe { ack, sequence, key }
}

#[test]
fn a_node_that_is_no_peer_is_probed_at_once_and_found() {
    let mut node = Node::new();
    assert!(node.reach.punch(0, peer(1), KEY, &[at(TARGET)]));
    node.collect();
    node.run(1_000);
    let probes: Vec<_> = node
        .datagrams
        .iter()
        .map(|(at, to, probe)| (*at, *to, probe.key))
        .collect();
    let expected = (0..=5).map(|n| (200 * n, at(TARGET), KEY));
    assert_eq!(probes, expected.collect::<Vec<_>>());
    assert!(node.messages.is_empty());
    // Another sequence is no answer; the right one is.
    let sequence = node.datagrams[0].2.sequence;
    node.datagram(at(TARGET), probe(true, sequence.wrapping_sub(1)));
    assert!(node.found.is_empty());
    node.datagram(at(TARGET), probe(true, sequence));
    assert_eq!(
        node.found,
        [(peer(1), at(TARGET), Source::Told(weft_reach::message::Kind::Observed))]
    );
    // A probe of the peer is answered for a while.
    let before = node.datagrams.len();
    node.datagram(at(TARGET), probe(false, 9));
    assert_eq!(node.datagrams[before].2, probe(true, 9));
    node.run(20_000);
    assert!(node.listens.is_empty());
    let record = node.reach.history(peer(1)).pop().unwrap();
    assert_eq!(
        (record.why, record.end),
        (Why::Agreed, Some((1_000, End::Found(at(TARGET)))))
    );
}

#[test]
fn an_attempt_that_fails_ends_and_no_other_follows() {
    let mut node = Node::new();
    assert!(node.reach.punch(0, peer(1), KEY, &[at(TARGET)]));
    node.run(600_000);
    let last = node.datagrams.last().unwrap().0;
    assert!(last < 10_000, "{last}");
    assert!(node.listens.is_empty() && node.messages.is_empty());
}

#[test]
fn a_link_ends_it() {
    let mut node = Node::new();
    assert!(node.reach.punch(0, peer(1), KEY, &[at(TARGET)]));
    node.run(100);
    node.reach.set_peer(node.now, peer(1), Standing::Gone);
    node.collect();
    node.run(5_000);
    assert_eq!(node.datagrams.len(), 1);
    assert!(node.listens.is_empty());
}

#[test]
fn refused_targets_of_a_punch_are_not_probed() {
    let mut node = Node::new();
    let own = at("192.168.1.2:2121");
    let targets = [own, at("127.0.0.1:1"), at("[fd00::1]:1"), at("203.0.113.5:0")];
    assert!(node.reach.punch(0, peer(1), KEY, &targets));
    node.collect();
    node.run(30_000);
    assert!(node.datagrams.is_empty());
    assert_eq!(node.reach.counts().refused.values().sum::<u64>(), 4);
}

#[test]
fn agreements_have_the_rates_places_and_budgets_of_peers() {
    let mut node = Node::new();
    let punch = |node: &mut Node, n: u8, key: u8| {
        let done = node.reach.punch(node.now, peer(n), [key; 16], &[(VICTIM, 9).into()]);
        node.collect();
        done
    };
    // One key is one attempt, and six places are all that there are.
    assert!(punch(&mut node, 1, 1) && !punch(&mut node, 2, 1));
    assert!((2..=6).all(|n| punch(&mut node, n, n)) && !punch(&mut node, 7, 7));
    // A peer begins six at once, and one in ten seconds.
    assert!((10..15).all(|key| punch(&mut node, 1, key)) && !punch(&mut node, 1, 99));
    for round in 0..360_u64 {
        node.run(round * 10_000 + 10_000);
        for n in 1..=6 {
            punch(&mut node, n, 100 + (round % 50) as u8 + n);
        }
    }
    let bytes = node.datagrams.len() * (24 + 28);
    // Half of the budget of an hour for one peer, what is left for others: 16 KiB in all.
    assert!(bytes <= 2 * (16 << 10), "{bytes} in an hour, and the hour before");
}
