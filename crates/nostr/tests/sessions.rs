//! Nodes that agree in their session, through other nodes and without a relay.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its ground is missing"
)]

mod world;

use weft_nostr::rendezvous::Progress;
use weft_nostr::signal::{MAX_IN_SESSION, Offer, Own, Signal};
use world::{START, World, own};

/// Both nodes want a link, and have no relay.
fn two() -> World {
    let mut world = World::new(2, 0);
    world.set_up(0, &[1]);
    world.set_up(1, &[0]);
    world
}

fn offer(world: &World, id: &str, own: &Own) -> String {
    let offer = Offer::new(id.to_owned(), &world.key(0), &world.key(1), own, START + world.now);
    Signal::Offer(offer).to_json()
}

#[test]
fn two_nodes_agree_in_their_session() {
    let mut world = two();
    world.run(60_000);
    assert!(world.arrived.is_empty() && world.nodes.iter().all(|node| node.sent.is_empty()));
    assert_eq!(world.nodes[0].state.poll_timeout(), None, "nothing carries an offer");
    world.set_session(0, 1, true);
    world.run(1_000);
    let keys = |n: usize| world::keys(&world.nodes[n].punches);
    assert_eq!(keys(0).intersection(&keys(1)).count(), 1);
    for n in 0..2 {
        assert_eq!(world.nodes[n].state.progress(&world.key(1 - n)), Some(Progress::Agreed));
        assert_eq!(world.nodes[n].punches[0].targets, [own(1 - n).reflexive.unwrap()]);
    }
}

#[test]
fn no_offer_goes_in_a_session_that_has_ended() {
    let mut world = two();
    world.set_session(0, 1, true);
    world.set_session(0, 1, false);
    world.run(60_000);
    assert!(world.arrived.is_empty(), "{:?}", world.arrived);
}

/// Nodes of nvpn repeat an offer until its answer comes.
#[test]
fn a_repeated_offer_gets_the_same_answer_and_no_second_punch() {
    let mut world = two();
    world.run(5_000);
    let (now, key) = (world.time(1), world.key(0));
    let text = offer(&world, "once", &own(0));
    world.losses = 1;
    for _ in 0..2 {
        world.nodes[1]
            .state
            .handle_session_signal(now, &key, true, text.as_bytes());
        world.drain(1);
    }
    assert_eq!(world.nodes[1].punches.len(), 1);
    world.run(100);
    // The first answer is lost.
    assert!(matches!(world.arrived[..], [(1, false, _)]), "{:?}", world.arrived);
    assert_eq!(world.nodes[1].state.counts().replayed_signals, 1);
}

#[test]
fn a_long_list_of_addresses_is_cut_to_what_fits() {
    let mut world = two();
    for n in 0..2 {
        let now = world.time(n);
        let local = (0..16).map(|last| {
            format!("[2600:1234:5678:9abc:{n:x}:1111:2222:{last:x}]:65535")
                .parse()
                .unwrap()
        });
        let many = Own {
            local: local.collect(),
            ..own(n)
        };
        world.nodes[n].state.set_own(now, many);
    }
    world.set_session(0, 1, true);
    world.run(5_000);
    assert!(world.arrived.len() >= 2);
    for (_, _, bytes) in &world.arrived {
        assert!((MAX_IN_SESSION - 100..=MAX_IN_SESSION).contains(bytes), "{bytes}");
    }
    let targets = |n: usize| world.nodes[n].punches[0].targets.len();
    assert!(targets(0) > 4 && targets(1) > 4);
}

#[test]
fn bytes_that_are_no_document_are_counted_and_ignored() {
    let mut world = two();
    let (now, key) = (world.time(1), world.key(0));
    let good = offer(&world, "good", &own(0));
    let state = &mut world.nodes[1].state;
    // An offer that claims to be an answer.
    state.handle_session_signal(now, &key, false, good.as_bytes());
    for text in [&b""[..], b"{}", b"\xff\xfe", &good.as_bytes()[..100], &[b'['; 4_000]] {
        state.handle_session_signal(now, &key, true, text);
    }
    assert_eq!(state.counts().bad_signals, 6);
    let stranger = world::identity(9).public();
    state.handle_session_signal(now, &stranger, true, good.as_bytes());
    assert_eq!(state.counts().strangers, 1);
    // A document of one peer in the session with another one.
    state.handle_session_signal(
        now,
        &key,
        true,
        good.replace(&key.to_string(), &stranger.to_string()).as_bytes(),
    );
    assert_eq!(state.counts().bad_signals, 7);
    assert_eq!(state.poll_output(), None);
}

/// A peer that sends offers as fast as it may gets four answers, and then one in 15 s.
#[test]
fn a_flood_of_offers_gets_few_answers() {
    let mut world = two();
    let key = world.key(0);
    for n in 0..1_000 {
        world.now += 10;
        let (now, text) = (world.time(1), offer(&world, &format!("id{n}"), &own(0)));
        world.nodes[1]
            .state
            .handle_session_signal(now, &key, true, text.as_bytes());
        world.drain(1);
    }
    assert_eq!(world.nodes[1].punches.len(), 4);
    assert_eq!(world.nodes[1].state.counts().hasty_offers, 996);
}
