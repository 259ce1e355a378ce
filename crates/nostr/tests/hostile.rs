//! What strangers and relays can make a node do, and what they cannot.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its ground is missing"
)]

mod world;

use proptest::prelude::*;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use weft_nostr::advert::{Advert, Endpoint};
use weft_nostr::event::Event;
use weft_nostr::message::publish;
use weft_nostr::rendezvous::{MESSAGES, Progress};
use weft_nostr::signal::{Offer, Signal, session_id};
use weft_nostr::wrap::wrap;
use world::{START, World, identity, own};

fn passed_on(event: &Event) -> String {
    publish(event).replacen("[\"EVENT\",", "[\"EVENT\",\"messages\",", 1)
}

/// An offer of the node of `sender` for the first node, wrapped by `by`.
fn offer(world: &World, by: u8, sender: u8, session: u64) -> Event {
    let (ms, mut rng) = (START + world.now, ChaCha20Rng::seed_from_u64(session));
    let (from, to) = (identity(sender).public(), world.key(0));
    let offer = Signal::Offer(Offer::new(session_id(ms, session), &from, &to, &own(1), ms));
    wrap(
        &identity(by),
        &to,
        &offer.to_json(),
        ms / 1_000,
        ms / 1_000 + 120,
        &mut rng,
    )
    .unwrap()
}

/// A node with two relays and one peer, which it does not want.
fn victim() -> World {
    let mut world = World::new(1, 2);
    let now = world.time(0);
    world.nodes[0].state.set_own(now, own(0));
    let peers = [(identity(2).public(), false)].into();
    world.nodes[0].state.set_peers(now, &peers);
    world.run(100);
    world
}

/// How many messages have cost a Diffie-Hellman.
fn decrypted(world: &World) -> u64 {
    let counts = world.nodes[0].state.counts();
    counts.strangers + counts.bad_messages
}

#[test]
fn ten_thousand_offers_a_second_cost_bounded_decryptions() {
    let mut world = victim();
    // Distinct events are costly to make: the node has forgotten the first when they come again.
    let events: Vec<String> = (0..2_000).map(|n| passed_on(&offer(&world, 9, 9, n))).collect();
    let seconds = 10;
    for tenth in 0..seconds * 10 {
        for n in 0..1_000 {
            let relay = n % 2;
            world.inject(0, relay, &events[(tenth * 1_000 + n) % events.len()]);
        }
        world.run(100);
    }
    let most = MESSAGES.0 + seconds as u64 * 1_000 / MESSAGES.1;
    assert!(
        decrypted(&world) > 0 && decrypted(&world) <= most,
        "{} of {most}",
        decrypted(&world)
    );
    let counts = world.nodes[0].state.counts();
    assert!(counts.hasty_texts > 90_000, "{counts:?}");
    assert!(world.nodes[0].punches.is_empty() && world.published(0, 0).is_empty());
    // When the flood is over, the peer is heard.
    world.run(10_000);
    let genuine = passed_on(&offer(&world, 2, 2, 5_000));
    world.inject(0, 0, &genuine);
    assert_eq!(world.nodes[0].punches.len(), 1);
}

#[test]
fn a_flood_through_one_relay_leaves_the_other_one_its_share() {
    let mut world = victim();
    let events: Vec<String> = (0..400).map(|n| passed_on(&offer(&world, 9, 9, n))).collect();
    for (n, event) in events.iter().enumerate() {
        world.inject(0, 0, event);
        if n % 10 == 0 {
            world.run(100);
        }
    }
    assert!(world.nodes[0].state.counts().hasty_messages > 0);
    let genuine = passed_on(&offer(&world, 2, 2, 5_000));
    world.inject(0, 1, &genuine);
    assert_eq!(world.nodes[0].punches.len(), 1);
}

#[test]
fn an_offer_is_answered_once() {
    let mut world = victim();
    let text = passed_on(&offer(&world, 2, 2, 1));
    world.inject(0, 0, &text);
    world.inject(0, 1, &text);
    world.inject(0, 0, &text);
    assert_eq!(world.nodes[0].punches.len(), 1);
    assert_eq!(world.published(0, 0).len(), 1);
    assert_eq!(world.nodes[0].state.counts().repeated_events, 2);
    // The same offer in another event: the peer itself repeats it.
    let (ms, key) = (START + world.now, world.key(0));
    let again = Signal::Offer(Offer::new(
        session_id(START + 100, 1),
        &identity(2).public(),
        &key,
        &own(1),
        ms,
    ));
    let mut rng = ChaCha20Rng::seed_from_u64(99);
    let again = wrap(&identity(2), &key, &again.to_json(), ms / 1_000, ms / 1_000, &mut rng).unwrap();
    world.inject(0, 0, &passed_on(&again));
    assert_eq!(
        (
            world.nodes[0].punches.len(),
            world.nodes[0].state.counts().replayed_signals
        ),
        (1, 1)
    );
}

#[test]
fn an_altered_copy_does_not_keep_the_genuine_message_out() {
    let mut world = victim();
    let genuine = offer(&world, 2, 2, 1);
    let other = offer(&world, 9, 9, 2);
    let content = |event: &Event| serde_json::to_string(&event.body().content).unwrap();
    let forged = passed_on(&genuine).replace(&content(&genuine), &content(&other));
    world.inject(0, 0, &forged);
    assert_eq!(world.nodes[0].state.counts().bad_messages, 1);
    world.inject(0, 0, &passed_on(&genuine));
    assert_eq!(world.nodes[0].punches.len(), 1);
}

#[test]
fn an_offer_in_the_name_of_a_peer_is_not_answered() {
    let mut world = victim();
    // A stranger signs the seal and names the peer inside.
    world.inject(0, 0, &passed_on(&offer(&world, 9, 2, 1)));
    // A peer names another node inside.
    world.inject(0, 0, &passed_on(&offer(&world, 2, 9, 2)));
    assert!(world.nodes[0].punches.is_empty() && world.published(0, 0).is_empty());
    let counts = world.nodes[0].state.counts();
    assert_eq!((counts.strangers, counts.bad_signals), (1, 1));
}

#[test]
fn a_peer_gets_a_bounded_number_of_answers() {
    let mut world = victim();
    for n in 0..60 {
        let text = passed_on(&offer(&world, 2, 2, n));
        world.inject(0, 0, &text);
        world.run(1_000);
    }
    // Four at once, and one in 15 s.
    assert_eq!(world.nodes[0].punches.len(), 4 + 60_usize.div_ceil(15) - 1);
    assert_eq!(world.published(0, 0).len(), world.nodes[0].punches.len());
}

#[test]
fn old_events_and_those_for_others_cost_nothing() {
    let mut world = victim();
    let old = passed_on(&offer(&world, 2, 2, 1));
    world.run(200_000);
    world.inject(0, 0, &old);
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let seconds = (START + world.now) / 1_000;
    let other = wrap(&identity(2), &identity(3).public(), "x", seconds, seconds, &mut rng).unwrap();
    world.inject(0, 0, &passed_on(&other));
    let future = wrap(&identity(2), &world.key(0), "x", seconds + 100, seconds, &mut rng).unwrap();
    world.inject(0, 0, &passed_on(&future));
    assert_eq!(
        (world.nodes[0].state.counts().useless_events, decrypted(&world)),
        (3, 0)
    );
}

#[test]
fn a_forged_answer_ends_no_offer() {
    let mut world = World::new(2, 1);
    world.set_up(0, &[1]);
    world.run(2_100);
    // The peer answers to something else; then the genuine answer comes.
    let (ms, key) = (START + world.now, world.key(0));
    let other = Offer::new(session_id(ms, 77), &key, &identity(2).public(), &own(0), ms);
    let answer = Signal::Answer(other.answer("n".into(), &own(1), ms, ms));
    let mut rng = ChaCha20Rng::seed_from_u64(7);
    let event = wrap(&identity(2), &key, &answer.to_json(), ms / 1_000, ms / 1_000, &mut rng).unwrap();
    world.inject(0, 0, &passed_on(&event));
    assert!(world.nodes[0].punches.is_empty());
    assert!(matches!(
        world.nodes[0].state.progress(&identity(2).public()),
        Some(Progress::Faulty(_))
    ));
    let now = world.time(1);
    world.nodes[1].state.set_own(now, own(1));
    let peers = [(key, false)].into();
    world.nodes[1].state.set_peers(now, &peers);
    world.run(12_000);
    assert_eq!(world.nodes[0].punches.len(), 1);
}

#[test]
fn forged_adverts_cost_bounded_checks_and_give_no_address() {
    let mut world = World::new(1, 2);
    world.set_up(0, &[]);
    let (now, peers) = (world.time(0), [(identity(2).public(), true)].into());
    world.nodes[0].state.set_peers(now, &peers);
    world.run(2_100);
    let advert = Advert {
        endpoints: vec![Endpoint::Nat],
        signal_relays: vec!["wss://x".into()],
        stun_servers: vec!["stun:x:1".into()],
    };
    let genuine = advert.sign(&identity(2), START / 1_000).unwrap();
    let forged = passed_on(&genuine).replace("wss://x", "wss://y");
    for _ in 0..1_000 {
        world.inject(0, 0, &forged);
    }
    let stranger = advert.sign(&identity(9), START / 1_000).unwrap();
    world.inject(0, 1, &passed_on(&stranger));
    let counts = world.nodes[0].state.counts();
    assert!(counts.bad_adverts <= 128 && counts.useless_events == 1, "{counts:?}");
    let offers = world.published(0, 0).len();
    world.run(5_000);
    world.inject(0, 1, &passed_on(&genuine));
    world.run(100);
    assert_eq!(
        world.published(0, 0).len(),
        offers + 1,
        "a peer that publishes gets an offer"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_texts(texts in prop::collection::vec((0..3_usize, ".{0,80}"), 0..40)) {
        let mut world = victim();
        for (relay, text) in texts {
            world.inject(0, relay, &text);
            world.run(10);
        }
        prop_assert!(world.nodes[0].punches.is_empty() && world.published(0, 0).is_empty());
    }
}
