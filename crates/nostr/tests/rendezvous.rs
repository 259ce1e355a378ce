//! Nodes that find each other through relays.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its ground is missing"
)]

mod world;

use weft_nostr::advert::{Advert, Endpoint, REFRESH, Transport};
use weft_nostr::rendezvous::{Progress, State};
use weft_nostr::signal::Own;
use world::{World, keys, own};

fn advert(n: usize) -> Advert {
    Advert {
        endpoints: vec![Endpoint::At(Transport::Udp, own(n).reflexive.unwrap()), Endpoint::Nat],
        signal_relays: vec!["wss://0.example".into()],
        stun_servers: vec!["stun:s.example:3478".into()],
    }
}

/// Both punch with one key, to each other's outer address.
fn agreed(world: &World, one: usize, two: usize) {
    let (a, b) = (&world.nodes[one].punches, &world.nodes[two].punches);
    let common: Vec<_> = keys(a).intersection(&keys(b)).copied().collect();
    let key = common.first().unwrap_or_else(|| panic!("no common key: {a:?} {b:?}"));
    for (punches, peer) in [(a, two), (b, one)] {
        let punch = punches.iter().find(|punch| punch.key == *key).unwrap();
        assert_eq!(
            (punch.peer, &punch.targets),
            (world.key(peer), &vec![own(peer).reflexive.unwrap()])
        );
    }
}

#[test]
fn two_nodes_agree_at_once() {
    let mut world = World::new(2, 1);
    world.set_up(0, &[1]);
    world.set_up(1, &[0]);
    world.run(3_000);
    agreed(&world, 0, 1);
    for n in 0..2 {
        let node = &world.nodes[n];
        assert_eq!(node.state.progress(&world.key(1 - n)), Some(Progress::Agreed));
        // Neither punches in vain because both made an offer.
        assert_eq!(node.punches.len(), 1, "{:?}", node.punches);
        assert!(node.state.skew(&world.key(1 - n)).unwrap_or(0).abs() <= 1);
    }
}

#[test]
fn a_node_that_comes_later_is_heard_at_once() {
    let mut world = World::new(2, 2);
    world.set_up(0, &[1]);
    world.run(200_000);
    let before = world.published(0, 0).len();
    // Offers become rare: at 2, 12, 32 and 92 s.
    assert_eq!(before, 4);
    assert_eq!(world.nodes[0].state.progress(&world.key(1)), Some(Progress::Offered));
    let now = world.now;
    world.set_up(1, &[0]);
    world.run(3_000);
    agreed(&world, 0, 1);
    assert!(world.nodes[1].punches[0].at < now + 2_200);
}

#[test]
fn only_one_of_both_needs_to_want_a_link() {
    let mut world = World::new(2, 1);
    let now = world.time(1);
    world.nodes[1].state.set_own(now, own(1));
    let peers = [(world.key(0), false)].into();
    world.nodes[1].state.set_peers(now, &peers);
    world.run(3_000);
    world.set_up(0, &[1]);
    world.run(3_000);
    agreed(&world, 0, 1);
    assert_eq!(world.published(1, 0), [21_059], "an answer and no offer");
}

#[test]
fn no_offer_is_made_to_a_peer_that_is_direct() {
    let mut world = World::new(2, 1);
    world.set_up(0, &[1]);
    world.set_up(1, &[0]);
    world.run(3_000);
    for n in 0..2 {
        let (now, peers) = (world.time(n), [(world.key(1 - n), false)].into());
        world.nodes[n].state.set_peers(now, &peers);
        world.nodes[n].sent.clear();
    }
    world.run(400_000);
    for n in 0..2 {
        assert_eq!(world.published(n, 0), [0_u16; 0]);
        let requests: Vec<_> = world.nodes[n].sent.iter().map(|(_, text)| text.as_str()).collect();
        assert!(requests.contains(&"[\"CLOSE\",\"adverts\"]"), "{requests:?}");
    }
}

#[test]
fn one_relay_in_common_is_enough_and_its_loss_is_survived() {
    let mut world = World::new(2, 2);
    world.relays[0].up = false;
    world.set_up(0, &[1]);
    world.set_up(1, &[0]);
    world.run(3_000);
    agreed(&world, 0, 1);
    world.disconnect(1);
    world.relays[0].up = true;
    world.nodes.iter_mut().for_each(|node| node.punches.clear());
    world.run(120_000);
    agreed(&world, 0, 1);
    let relays: Vec<_> = world.nodes[0].state.relays().collect();
    let states = [relays[0].state, relays[1].state];
    assert!(matches!(states, [State::Open, State::Waiting { .. }]), "{relays:?}");
    assert!(relays[1].trouble.is_some(), "{relays:?}");
}

#[test]
fn other_relays_take_the_place_of_those_until_then() {
    let mut world = World::new(2, 1);
    world.set_up(0, &[1]);
    world.set_up(1, &[0]);
    for n in 0..2 {
        let now = world.time(n);
        world.nodes[n].state.set_relays(now, &[]);
        world.drain(n);
        world.nodes[n].sent.clear();
    }
    world.run(60_000);
    assert!(
        world
            .nodes
            .iter()
            .all(|node| node.sent.is_empty() && node.punches.is_empty())
    );
    let now = world.time(0);
    world.nodes[0].state.set_advert(now, Some(advert(0)));
    for n in 0..2 {
        let now = world.time(n);
        world.nodes[n].state.set_relays(now, &["wss://0.example".into()]);
        world.drain(n);
    }
    world.run(3_000);
    agreed(&world, 0, 1);
    let kinds = world.published(0, 0);
    assert!(kinds.contains(&37_195) && kinds.contains(&10_050), "{kinds:?}");
}

#[test]
fn a_relay_that_is_away_is_not_asked_all_the_time() {
    let mut world = World::new(1, 1);
    world.relays[0].up = false;
    world.run(600_000);
    // At 0, 2, 6, 14, 30 and 62 s, and then every 60 s.
    assert_eq!(world.nodes[0].connects, 6 + 8);
    let now = world.time(0);
    world.nodes[0].state.handle_network_change(now);
    world.drain(0);
    assert_eq!(world.nodes[0].connects, 15);
}

#[test]
fn a_node_without_an_address_refuses_and_offers_nothing() {
    let mut world = World::new(2, 1);
    let (now, peers) = (world.time(1), [(world.key(0), true)].into());
    world.nodes[1].state.set_peers(now, &peers);
    world.run(3_000);
    world.set_up(0, &[1]);
    world.run(3_000);
    assert_eq!(world.published(1, 0), [21_059], "an answer and no offer");
    assert_eq!(world.nodes[0].state.progress(&world.key(1)), Some(Progress::Refused));
    assert!(world.nodes.iter().all(|node| node.punches.is_empty()));
    let now = world.time(1);
    world.nodes[1].state.set_own(now, own(1));
    world.run(3_000);
    agreed(&world, 0, 1);
}

#[test]
fn clocks_may_differ_by_a_minute_and_the_difference_is_known() {
    for (skew, works) in [(50_000, true), (70_000, false)] {
        let mut world = World::new(2, 1);
        world.nodes[1].skew = skew;
        let (now, peers) = (world.time(1), [(world.key(0), false)].into());
        world.nodes[1].state.set_own(now, own(1));
        world.nodes[1].state.set_peers(now, &peers);
        world.run(3_000);
        world.set_up(0, &[1]);
        world.run(3_000);
        assert_eq!(!world.nodes[0].punches.is_empty(), works);
        if works {
            let known = world.nodes[0].state.skew(&world.key(1)).unwrap();
            assert!((known - 50_000).abs() <= 10, "{known}");
        }
    }
}

#[test]
fn an_advert_is_published_refreshed_and_withdrawn() {
    let mut world = World::new(1, 1);
    let now = world.time(0);
    world.nodes[0].state.set_advert(now, Some(advert(0)));
    world.run(10_000);
    assert_eq!(world.published(0, 0), [37_195, 10_050]);
    // The same advert is not published again; another one waits a little.
    let now = world.time(0);
    world.nodes[0].state.set_advert(now, Some(advert(0)));
    world.run(REFRESH * 1_000);
    assert_eq!(world.published(0, 0), [37_195, 10_050, 37_195]);
    for n in 1..4 {
        let now = world.time(0);
        world.nodes[0].state.set_advert(now, Some(advert(n)));
        world.run(100);
    }
    world.run(10_000);
    assert_eq!(
        world.published(0, 0)[3..],
        [37_195; 2],
        "the first, and the last of those that follow"
    );
    let stored = world.relays[0]
        .stored
        .values()
        .map(|event| event["content"].to_string());
    assert!(stored.into_iter().any(|content| content.contains("11.0.0.4:4003")));
    let now = world.time(0);
    world.nodes[0].state.set_advert(now, None);
    world.run(10_000);
    assert_eq!(world.published(0, 0).last(), Some(&5));
    assert!(world.relays[0].stored.keys().all(|(_, kind, _)| *kind != 37_195));
}

#[test]
fn a_relay_that_comes_back_gets_the_advert_again() {
    let mut world = World::new(1, 1);
    let now = world.time(0);
    world.nodes[0].state.set_advert(now, Some(advert(0)));
    world.run(10_000);
    world.disconnect(0);
    world.relays[0].up = true;
    world.relays[0].stored.clear();
    world.run(5_000);
    assert!(world.relays[0].stored.keys().any(|(_, kind, _)| *kind == 37_195));
}

#[test]
fn nothing_is_published_unless_it_is_wanted() {
    let mut world = World::new(2, 1);
    world.set_up(0, &[]);
    world.set_up(1, &[]);
    world.run(4_000_000);
    for n in 0..2 {
        assert_eq!(world.published(n, 0), [0_u16; 0]);
    }
}

#[test]
fn the_addresses_of_an_advert_are_hints_and_the_newest_counts() {
    let mut world = World::new(2, 1);
    let now = world.time(1);
    world.nodes[1].state.set_advert(now, Some(advert(1)));
    world.run(10_000);
    world.set_up(0, &[1]);
    world.run(10_000);
    let key = world.key(1);
    assert_eq!(world.nodes[0].advertised, [(key, vec![own(1).reflexive.unwrap()])]);
    let now = world.time(1);
    world.nodes[1].state.set_advert(now, Some(advert(5)));
    world.run(10_000);
    let last = world.nodes[0].advertised.last().unwrap();
    assert_eq!(last, &(key, vec![own(5).reflexive.unwrap()]));
    // The relay gives both again, after it was away.
    let before = world.nodes[0].advertised.len();
    world.disconnect(0);
    world.relays[0].up = true;
    world.run(10_000);
    assert_eq!(world.nodes[0].advertised.len(), before);
}

#[test]
fn many_peers_get_their_offers_one_a_second() {
    let mut world = World::new(1, 1);
    let (now, me) = (world.time(0), own(0));
    world.nodes[0].state.set_own(now, me);
    let peers = (10..60).map(|n| (world::identity(n).public(), true)).collect();
    world.nodes[0].state.set_peers(now, &peers);
    world.run(11_000);
    let after = world.published(0, 0).len();
    assert!((16..=18).contains(&after), "{after}");
    world.run(60_000);
    assert!(world.published(0, 0).len() >= 50);
}

#[test]
fn a_change_of_the_network_brings_an_offer_at_once() {
    let mut world = World::new(2, 1);
    world.set_up(0, &[1]);
    world.run(400_000);
    let before = world.published(0, 0).len();
    let now = world.time(0);
    world.nodes[0].state.set_own(
        now,
        Own {
            local: Vec::new(),
            ..own(7)
        },
    );
    world.nodes[0].state.handle_network_change(now);
    world.run(100);
    assert_eq!(world.published(0, 0).len(), before + 1);
}
