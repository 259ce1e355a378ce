//! What a peer, and a neighbour that lies for it, can make a search cost.
#![allow(clippy::unwrap_used, reason = "a test ends where its ground is missing")]

mod common;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use common::node::{ME, Node, VICTIM, at, peer, token, told};
use weft_reach::message::{Candidates, Token};
use weft_reach::nat::{Mapping, Mappings};
use weft_reach::probe::{Key, Probe, key};
use weft_reach::{Source, Standing};

/// The neighbour that says what the peers want.
const LIAR: u8 = 0xee;

/// A node behind a NAT with such mappings of IPv4, and two relayed peers.
fn node(mapping: Mapping) -> Node {
    let mut node = Node::new();
    let other = if mapping == Mapping::EndpointIndependent {
        7_000
    } else {
        9_999
    };
    for (n, port) in [(0xf0, 7_000), (0xf1, other)] {
        node.reach
            .handle_observed(0, peer(n), SocketAddr::from(([192, 0, 2, 99], port)));
    }
    (1..3).for_each(|n| node.reach.set_peer(0, peer(n), Standing::Relayed));
    node.collect();
    node
}

/// A peer says that its own mapping is the other one, that it is the victim, and so does the liar.
fn claim(node: &mut Node, n: u8, theirs: Token, mapping: Mapping) -> Key {
    let victim = SocketAddr::from((VICTIM, 53));
    node.reach.handle_seen(node.now, peer(n), peer(LIAR), victim);
    let v6 = Mapping::Unknown;
    let echo = Some(node.own(n));
    let mappings = Mappings {
        v4: mapping,
        v6,
        ..Mappings::default()
    };
    let candidates = vec![told(victim)];
    node.message(
        n,
        &Candidates {
            token: theirs,
            echo,
            mappings,
            candidates,
        },
    );
    key(ME, node.own(n), peer(n), theirs)
}

/// Both kinds of search, for two hours in which two peers begin attempts all the time.
#[test]
fn a_victim_gets_one_search_in_ten_minutes_from_all_peers() {
    for (own, theirs) in [
        (Mapping::EndpointIndependent, Mapping::EndpointDependent),
        (Mapping::EndpointDependent, Mapping::EndpointIndependent),
    ] {
        let mut node = node(own);
        for step in 0..240u64 {
            node.run(step * 30_000);
            for n in 1..3 {
                claim(&mut node, n, token(step * 2 + u64::from(n)), theirs);
            }
        }
        let sent: Vec<u64> = node.bytes_to(VICTIM.into()).iter().map(|(at, _)| *at).collect();
        let most = |span: u64| {
            let count = |end: &u64| sent.iter().filter(|at| *at <= end && *at + span > *end).count();
            sent.iter().map(count).max().unwrap_or(0)
        };
        // A search, and what ordinary attempts may send.
        let (ten, hour) = (most(600_000), most(3_600_000));
        assert!(ten > 500 && ten <= 2_048 + 315, "{ten} in ten minutes");
        assert!(hour <= 7 * 2_048 + 315, "{hour} in an hour");
        assert!(node.found.is_empty());
    }
}

#[test]
fn the_word_of_the_peer_alone_is_not_enough() {
    let dependent = Mapping::EndpointDependent;
    // Its own word; another address than it names; a private one; one of this node's own NAT.
    for (by, seen) in [
        (1, SocketAddr::from((VICTIM, 53))),
        (LIAR, at("198.51.100.67:53")),
        (LIAR, at("10.1.2.3:53")),
        (LIAR, at("192.0.2.99:53")),
        (LIAR, at("[2001:db8::1]:53")),
    ] {
        let mut node = node(Mapping::EndpointIndependent);
        node.reach.handle_seen(0, peer(1), peer(by), seen);
        let mappings = Mappings {
            v4: dependent,
            ..Mappings::default()
        };
        let (token, echo) = (token(1), Some(node.own(1)));
        let candidates = [SocketAddr::from((VICTIM, 53)), at("10.1.2.3:53"), at("192.0.2.99:53")];
        let candidates = candidates.into_iter().map(told).collect();
        node.message(
            1,
            &Candidates {
                token,
                echo,
                mappings,
                candidates,
            },
        );
        node.run(30_000);
        assert!(node.datagrams.len() < 200, "{seen} by {by}: {}", node.datagrams.len());
    }
}

/// What was seen an hour ago is no longer true.
#[test]
fn the_word_of_others_is_old_after_an_hour() {
    for (age, searches) in [(3_500_000, true), (3_700_000, false)] {
        let mut node = node(Mapping::EndpointIndependent);
        node.reach
            .handle_seen(0, peer(1), peer(LIAR), SocketAddr::from((VICTIM, 53)));
        node.run(age);
        node.reach.handle_network_change(node.now);
        node.collect();
        let mappings = Mappings {
            v4: Mapping::EndpointDependent,
            ..Mappings::default()
        };
        let (token, echo) = (token(1), Some(node.own(1)));
        let candidates = vec![told(SocketAddr::from((VICTIM, 53)))];
        node.message(
            1,
            &Candidates {
                token,
                echo,
                mappings,
                candidates,
            },
        );
        node.run(age + 30_000);
        assert_eq!(node.datagrams.len() > 1_000, searches, "{}", node.datagrams.len());
    }
}

/// An ack counts at the socket that sent its probe, from where that went.
#[test]
fn forged_acks_adopt_nothing() {
    let mut node = node(Mapping::EndpointDependent);
    let key = claim(&mut node, 1, token(1), Mapping::EndpointIndependent);
    node.run(8_000);
    assert_eq!((node.sockets, node.searches.len()), (256, 1));
    let victim = SocketAddr::from((VICTIM, 53));
    let (sender, sent) = node.shot.unwrap();
    let ack = |sequence| Probe {
        ack: true,
        sequence,
        key,
    };
    let mut give = |socket, from, probe: Probe| {
        node.reach.handle_socket_datagram(8_000, socket, from, &probe.emit());
        node.collect();
    };
    give(sender, victim, ack(sent.sequence.wrapping_add(1)));
    give(sender ^ 1, victim, ack(sent.sequence));
    give(300, victim, ack(sent.sequence));
    give(u16::MAX, victim, ack(sent.sequence));
    give(sender, at("198.51.100.66:54"), ack(sent.sequence));
    // Probes at sockets that are not open, and from elsewhere, bring answers and no more.
    for socket in [0, 255, 256, u16::MAX] {
        give(
            socket,
            at("198.51.100.80:1"),
            Probe {
                ack: false,
                sequence: 7,
                key,
            },
        );
    }
    assert!(node.found.is_empty());
    node.datagram(victim, ack(sent.sequence));
    assert!(node.found.is_empty(), "the ordinary socket did not send it");
    node.reach
        .handle_socket_datagram(8_000, sender, victim, &ack(sent.sequence).emit());
    node.collect();
    assert_eq!(node.found, [(peer(1), victim, Source::Searched)]);
    assert_eq!(node.sockets, 0);
}

/// One search at a time: sockets of one peer are never those of another.
#[test]
fn one_search_at_a_time() {
    let mut node = node(Mapping::EndpointDependent);
    let mut searches = BTreeMap::new();
    for n in 1..3 {
        let seen = SocketAddr::from(([198, 51, 100, n], 53));
        node.reach.handle_seen(0, peer(n), peer(LIAR), seen);
        let mappings = Mappings {
            v4: Mapping::EndpointIndependent,
            ..Mappings::default()
        };
        let (token, echo, candidates) = (token(u64::from(n)), Some(node.own(n)), vec![told(seen)]);
        node.message(
            n,
            &Candidates {
                token,
                echo,
                mappings,
                candidates,
            },
        );
        searches.insert(seen.ip(), n);
    }
    node.run(24_000);
    assert_eq!(node.searches.len(), 1);
    let many = searches.keys().filter(|ip| node.bytes_to(**ip).len() > 300).count();
    assert_eq!(many, 1);
    // A count that was not asked for opens nothing.
    node.run(60_000);
    let before = node.datagrams.len();
    node.reach.handle_sockets(60_000, 256);
    node.collect();
    assert_eq!(node.datagrams.len(), before);
}

/// A peer that names another address each time.
#[test]
fn a_peer_gets_one_search_in_ten_minutes() {
    let mut node = node(Mapping::EndpointIndependent);
    for step in 0..60u8 {
        node.run(u64::from(step) * 30_000);
        let seen = SocketAddr::from(([198, 51, 100, step], 53));
        node.reach.handle_seen(node.now, peer(1), peer(LIAR), seen);
        let (v4, v6) = (Mapping::EndpointDependent, Mapping::Unknown);
        let message = Candidates {
            token: token(u64::from(step)),
            echo: Some(node.own(1)),
            mappings: Mappings {
                v4,
                v6,
                ..Mappings::default()
            },
            candidates: vec![told(seen)],
        };
        node.message(1, &message);
    }
    node.run(1_830_000);
    let many = (0..60u8).filter(|n| node.bytes_to([198, 51, 100, *n].into()).len() > 300);
    assert_eq!(many.count(), 3, "in half an hour");
}

/// A peer that begins attempts all the time, each with 32 other addresses, without any other node
/// that confirms one: few questions, and no search.
#[test]
fn a_peer_without_a_witness_causes_few_questions_and_no_search() {
    let mut node = node(Mapping::EndpointDependent);
    for step in 0..120u64 {
        node.run(step * 30_000);
        let victims = (0..32).map(|n| told(SocketAddr::from(([203, 0, (step % 100) as u8, n], 53))));
        let mappings = Mappings {
            v4: Mapping::EndpointIndependent,
            ..Mappings::default()
        };
        node.message(
            1,
            &Candidates {
                token: token(step + 1),
                echo: Some(node.own(1)),
                mappings,
                candidates: victims.collect(),
            },
        );
    }
    assert!(node.searches.is_empty());
    let most = node.asked.windows(5).all(|five| five[4].0 - five[0].0 >= 10_000);
    assert!(most && node.asked.len() > 100, "{:?}", node.asked.len());
}
