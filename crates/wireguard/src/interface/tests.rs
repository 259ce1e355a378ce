use std::cell::RefCell;
use std::rc::Rc;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng as _, SeedableRng as _};

use super::*;

mod attacks;
mod net;

use net::Net;

const MINUTE: u64 = 60_000;

#[test]
fn a_packet_that_waits_begins_a_handshake() {
    let mut net = Net::pair(1);
    net.say(0, 1, 5);
    net.run(100);
    assert_eq!(net.ends[1].received, [5]);
    assert_eq!(net.sent, [0, 1, 1, 0, 2], "a keepalive confirms the keys");
    net.say(1, 0, 6);
    net.run(100);
    assert_eq!(net.ends[0].received, [6]);
}

/// A peer whose address is not known cannot be reached until it comes.
#[test]
fn the_responder_learns_where_the_peer_is() {
    let mut net = Net::pair(2);
    net.say(1, 0, 1);
    net.run(100);
    assert_eq!((net.ends[1].unreachable, net.sent[1]), (1, 0));
    net.say(0, 1, 2);
    net.run(100);
    net.say(1, 0, 3);
    net.run(100);
    assert_eq!(net.ends[0].received, [3]);
}

#[test]
fn traffic_passes_renewals_of_keys_without_loss() {
    let mut net = Net::pair(3);
    let came = net.talk([0, 1], 0, (6_100, 100));
    net.run(1_000);
    assert!(came[0] >= 6_098 && net.ends[1].received.len() == 6_100, "{came:?}");
    assert_eq!(net.sent[1..4], [6, 6, 0], "one handshake each 120 s");
    assert_eq!(net.ends.iter().map(|end| end.installed).sum::<u64>(), 12);
}

#[test]
fn one_direction_renews_keys_before_they_end() {
    for (from, to) in [(0, 1), (1, 0)] {
        let mut net = Net::pair(4);
        net.say(0, 1, 0);
        net.run(1_000);
        for number in 1..6_000 {
            net.say(from, to, number);
            net.run(100);
        }
        let came = net.ends[to].received.len();
        assert!(came >= 5_999, "{came} from {from}");
    }
}

/// Both know the address of the other, and go on to renew the keys.
#[test]
fn both_begin_at_once_and_lose_nothing() {
    for seed in 0..20 {
        let mut net = Net::pair(seed);
        net.acquaint(1, 0, PeerSetup::default());
        net.talk([0, 1], 0, (2_000, 200));
        net.run(1_000);
        let came = [0, 1].map(|end| net.ends[end].received.len());
        assert_eq!(came, [2_000; 2], "seed {seed}");
        assert!(net.sent[1] <= 8, "seed {seed}: {:?}", net.sent);
    }
}

#[test]
fn loss_of_every_third_datagram_delays_and_ends_nothing() {
    for seed in 0..20 {
        let mut net = Net::pair(seed);
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        net.rule = Box::new(move |_| rng.next_u32() % 3 != 0);
        net.talk([0, 1], 0, (6_000, 100));
        net.rule = Box::new(|_| true);
        net.run(20_000);
        let came = net.talk([0, 1], 10_000, (50, 100));
        assert!(came.iter().all(|came| *came >= 49), "seed {seed}: {came:?}");
        for end in &net.ends {
            let share = end.received.len() as f64 / 6_050.0;
            assert!((0.6..0.72).contains(&share), "seed {seed}: {share}");
        }
    }
}

/// The end that knows the address notices by silence; the other one cannot begin.
#[test]
fn a_restarted_peer_is_found_by_its_silence() {
    for restarted in [0, 1] {
        let mut net = Net::pair(6);
        net.talk([0, 1], 0, (50, 100));
        net.restart(restarted);
        net.acquaint(0, 1, PeerSetup::default());
        net.run(5_000);
        net.talk([0, 1], 100, (250, 100));
        let came = net.talk([0, 1], 1_000, (50, 100));
        assert!(came.iter().all(|came| *came >= 49), "restarted {restarted}: {came:?}");
    }
}

#[test]
fn silence_after_a_packet_begins_a_handshake_after_15_s() {
    let mut net = Net::pair(7);
    net.talk([0, 1], 0, (10, 100));
    net.run(60_000);
    net.rule = Box::new(|datagram| datagram.kind() != 4);
    let before = net.sent[1];
    net.say(0, 1, 100);
    net.run(KEEPALIVE + REKEY_TIMEOUT - 1);
    assert_eq!(net.sent[1], before);
    net.run(JITTER + 1);
    assert_eq!(net.sent[1], before + 1);
}

/// Packets one way are answered by one keepalive each 10 s at most, and an idle pair says nothing at all.
#[test]
fn an_idle_pair_is_silent() {
    let mut net = Net::pair(8);
    net.talk([0, 1], 0, (10, 100));
    net.run(30_000);
    let before = net.sent;
    net.run(60 * MINUTE);
    assert_eq!(net.sent, before);
    net.say(0, 1, 50);
    net.run(1_000);
    assert_eq!(net.ends[1].received.last(), Some(&50));
    net.run(KEEPALIVE);
    assert_eq!(
        net.sent[4],
        before[4] + 3,
        "a packet, its keepalive for the keys, and the answer"
    );
}

/// One end alone has a persistent keepalive, whichever end made the keys.
#[test]
fn a_persistent_keepalive_keeps_keys_for_hours() {
    for keeper in [0, 1] {
        let mut net = Net::pair(9);
        let setup = PeerSetup {
            keepalive: Some(25),
            endpoint: Some(net.ends[1 - keeper].addr),
            ..PeerSetup::default()
        };
        let (at, peer) = (net.at(), net.key(1 - keeper));
        net.ends[keeper].interface.set_peer(at, peer, setup).unwrap();
        net.settle();
        net.run(1_000);
        assert_eq!(net.sent[1], 1, "it needs no packet");
        let before = net.sent[4];
        for _ in 0..3_600 {
            net.run(1_000);
            for end in [0, 1] {
                let peer = &net.ends[end].interface.peers[&net.key(1 - end)];
                assert!(peer.usable(net.now).is_some(), "end {end} at {}", net.now);
            }
        }
        let sent = net.sent[4] - before;
        assert!(
            (144..=180).contains(&sent),
            "{sent} in an hour, those that confirm keys included"
        );
        assert!(net.sent[1] <= 31, "{:?}", net.sent);
    }
}

#[test]
fn a_peer_that_never_answers_is_tried_for_90_s() {
    let mut net = Net::pair(10);
    net.rule = Box::new(|_| false);
    net.say(0, 1, 1);
    net.run(ATTEMPTS - 1);
    assert_eq!(net.ends[0].unreachable, 0);
    assert!((16..=18).contains(&net.sent[1]), "{}", net.sent[1]);
    net.run(60 * MINUTE);
    assert_eq!(net.ends[0].unreachable, 1);
    assert!(net.sent[1] <= 18);
    net.rule = Box::new(|_| true);
    net.say(0, 1, 2);
    net.run(100);
    assert_eq!(net.ends[1].received, [2], "packets of the first try were dropped");
}

#[test]
fn a_peer_is_where_its_last_message_came_from() {
    let mut net = Net::pair(11);
    net.talk([0, 1], 0, (10, 100));
    let moved: SocketAddr = "198.51.100.7:4000".parse().unwrap();
    net.ends[0].addr = moved;
    net.say(0, 1, 100);
    net.run(100);
    assert_eq!(net.ends[1].interface.endpoint(&net.key(0)), Some(moved));
    net.say(1, 0, 101);
    net.run(100);
    assert_eq!(net.ends[0].received.last(), Some(&101));
}

#[test]
fn another_preshared_key_ends_the_keys() {
    let mut net = Net::pair(12);
    net.talk([0, 1], 0, (10, 100));
    let setup = PeerSetup {
        preshared: Some(PresharedKey::from_bytes([4; 32])),
        ..PeerSetup::default()
    };
    let (at, peer) = (net.at(), net.key(0));
    net.ends[1].interface.set_peer(at, peer, setup.clone()).unwrap();
    net.settle();
    assert!(net.ends[1].interface.indices.is_empty());
    assert_eq!(net.ends[1].interface.endpoint(&peer), Some(net.ends[0].addr));
    let came = net.talk([0, 1], 100, (300, 100));
    assert_eq!(came, [0, 0]);
    let forged = net.ends.iter().map(|end| end.interface.counters().forged);
    assert!(forged.sum::<u64>() > 0);
    net.acquaint(0, 1, setup);
    net.run(6_000);
    let came = net.talk([0, 1], 1_000, (50, 100));
    assert!(came.iter().all(|came| *came >= 49), "{came:?}");
}

/// A driver whose loop comes late finds several things due at once.
#[test]
fn a_late_loop_has_nothing_left_that_is_due() {
    for late in [REJECT_AFTER - 1, REJECT_AFTER, REJECT_AFTER + 15_000, 3_600_000] {
        let mut net = Net::pair(16);
        let setup = PeerSetup {
            keepalive: Some(25),
            endpoint: Some(net.ends[1].addr),
            ..PeerSetup::default()
        };
        net.acquaint(0, 1, setup);
        net.talk([0, 1], 0, (10, 100));
        net.now += late;
        let at = net.at();
        for end in &mut net.ends {
            end.interface.handle_timeout(at);
            assert!(
                end.interface.poll_timeout().is_none_or(|due| due > at.now),
                "late by {late}"
            );
        }
    }
}

/// Keys end although a message under them comes before the loop has ended them.
#[test]
fn a_message_under_ended_keys_brings_nothing_back() {
    let mut net = Net::pair(17);
    net.rule = Box::new(|datagram| datagram.kind() != 4);
    net.say(0, 1, 1);
    net.run(100);
    let interface = &mut net.ends[1].interface;
    let local = *interface.indices.keys().next().unwrap();
    let at = At {
        now: net.now + REJECT_AFTER,
        unix: Duration::ZERO,
    };
    let traffic = Traffic {
        received: 1,
        ..Traffic::default()
    };
    interface.note_traffic(at, local, traffic);
    assert!(interface.poll_output().is_none());
    interface.handle_timeout(at);
    assert!(matches!(interface.poll_output(), Some(Output::Retire { .. })));
}

#[test]
fn a_removed_peer_is_a_stranger() {
    let mut net = Net::pair(13);
    net.talk([0, 1], 0, (10, 100));
    let key = net.key(0);
    net.ends[1].interface.remove_peer(&key);
    net.settle();
    assert!(net.ends[1].interface.indices.is_empty());
    let came = net.talk([0, 1], 100, (250, 100));
    assert_eq!(came, [0, 0]);
    assert!(net.ends[1].interface.counters().strangers > 0);
    assert_eq!(net.ends[1].interface.endpoint(&key), None);
}

/// Each pair of an end with 500 peers has keys, and what the end keeps follows the number of peers.
#[test]
fn five_hundred_peers_have_keys_of_their_own() {
    let mut rng = ChaCha20Rng::seed_from_u64(14);
    let mut node = Interface::new(PrivateKey::generate(&mut rng), Box::new(ChaCha20Rng::seed_from_u64(15)));
    let at = |now| At {
        now,
        unix: Duration::from_millis(1_700_000_000_000 + now),
    };
    let here: SocketAddr = "192.0.2.1:51820".parse().unwrap();
    let mut clients = Vec::new();
    for number in 0..500_u16 {
        let mut client = Interface::new(PrivateKey::generate(&mut rng), Box::new(ChaCha20Rng::seed_from_u64(99)));
        let setup = PeerSetup {
            endpoint: Some(here),
            ..PeerSetup::default()
        };
        client.set_peer(at(0), *node.public(), setup).unwrap();
        node.set_peer(at(0), *client.public(), PeerSetup::default()).unwrap();
        clients.push((
            SocketAddr::from(([10, 0, (number >> 8) as u8, number as u8], 9)),
            client,
        ));
    }
    // All begin at once: those beyond the burst get a cookie, and come again with it.
    for now in [0, 6_000, 12_000] {
        let mut answers = HashMap::new();
        for (addr, client) in &mut clients {
            client.want(at(now), node.public());
            client.handle_timeout(at(now));
            while let Some(output) = client.poll_output() {
                if let Output::Send { bytes, .. } = output {
                    node.handle_datagram(at(now), *addr, &bytes);
                }
            }
        }
        while let Some(output) = node.poll_output() {
            if let Output::Send { to, bytes } = output {
                answers.insert(to, bytes);
            }
        }
        for (addr, client) in &mut clients {
            if let Some(bytes) = answers.remove(addr) {
                client.handle_datagram(at(now), here, &bytes);
            }
        }
    }
    let with_keys = clients
        .iter()
        .filter(|(_, client)| client.peers[node.public()].usable(12_000).is_some());
    assert_eq!(with_keys.count(), 500);
    assert!(node.counters().cookies > 0);
    assert_eq!(node.indices.len(), 500);
}
