//! The state of a peer in the status agrees with what happens to packets.

use std::cell::RefCell;
use std::rc::Rc;

use weft_core::{Config, Event, LinkDown, PeerState, PeerStatus, SessionDown, Standing, Trouble};
use weft_fuzz::forged;
use weft_packet::DropReason;
use weft_sim::{Fate, HostId, Kind, World};

fn status(world: &World, of: HostId, peer: HostId) -> PeerStatus {
    let key = world.host(peer).key;
    let mut all = world.host(of).node.peer_status(world.now());
    all.find(|p| p.key == key).unwrap()
}

/// Sends packets in both directions, one every `every` ms.
fn stream(world: &mut World, a: HostId, b: HostId, (ms, every): (u64, u64)) {
    for seq in 0..(ms / every) as u32 {
        world.send(a, b, seq, 200);
        world.send(b, a, seq, 200);
        world.run(every);
    }
}

fn cut(world: &mut World, from: HostId) {
    world.set_rule(move |_, datagram| match datagram.from == from {
        true => Fate::Drop,
        false => Fate::Pass,
    });
}

fn configs() -> Vec<Config> {
    let all = [(false, false), (false, true), (true, false), (true, true)];
    let config = |(mesh, fast)| Config {
        mesh,
        fast,
        ..Config::default()
    };
    all.map(config).to_vec()
}

#[test]
fn payload_is_packets_in_both_directions_lately() {
    for (seed, config) in (1..).zip(configs()) {
        let (mut world, a, b) = World::pair(seed, config);
        world.run(2_000);
        assert_eq!(status(&world, a, b).state, PeerState::Linked);
        stream(&mut world, a, b, (5_000, 100));
        for (of, peer) in [(a, b), (b, a)] {
            let seen = status(&world, of, peer);
            assert_eq!((seen.state, seen.trouble), (PeerState::Payload, None));
            assert!((4_000..5_100).contains(&seen.since), "{} ms in the state", seen.since);
        }
        // Nothing more is sent: the state ends, and nothing is wrong.
        world.run(9_500);
        for (of, peer) in [(a, b), (b, a)] {
            let seen = status(&world, of, peer);
            assert_eq!((seen.state, seen.trouble), (PeerState::Session, None));
            assert!(seen.since < 1_000, "{} ms in the state", seen.since);
        }
        // One direction alone does not suffice, and is not a fault: the peer reports what it
        // receives.
        for seq in 0..300 {
            world.send(a, b, seq, 200);
            world.run(100);
            for (of, peer) in [(a, b), (b, a)] {
                let seen = status(&world, of, peer);
                assert_eq!((seen.state, seen.trouble), (PeerState::Session, None), "packet {seq}");
            }
        }
        assert!(
            status(&world, a, b)
                .session
                .unwrap()
                .packet_in_s
                .is_some_and(|ago| ago >= 30)
        );
        assert!(status(&world, a, b).session.unwrap().told_s.is_some_and(|ago| ago < 2));
    }
}

/// From the first handshake to a peer that is gone: the words that people see, and the time in
/// each.
#[test]
fn the_standing_of_a_peer_and_its_time_follow_events() {
    for (seed, config) in (1..).zip(configs()) {
        let (mut world, a, b) = World::pair(seed, config);
        let seen = |world: &World| {
            let seen = status(world, a, b);
            (seen.standing, seen.standing_since)
        };
        world.run(2_000);
        assert_eq!(
            seen(&world).0,
            Standing::Connected,
            "a link without traffic is no fault"
        );
        stream(&mut world, a, b, (5_000, 100));
        let (standing, since) = seen(&world);
        assert_eq!(standing, Standing::Active);
        assert!((4_000..5_100).contains(&since), "{since} ms");
        world.run(9_500);
        let (standing, since) = seen(&world);
        assert_eq!(standing, Standing::Connected);
        assert!(since < 1_000, "{since} ms");
        stream(&mut world, a, b, (5_000, 100));
        cut(&mut world, b);
        stream(&mut world, a, b, (8_000, 100));
        assert_eq!(seen(&world).0, Standing::Connecting, "it is silent");
        let mut offline = None;
        for ms in 0..80_000_u64 {
            world.run(1);
            let (standing, since) = seen(&world);
            assert_ne!(standing, Standing::Active);
            if standing == Standing::Offline {
                let began = *offline.get_or_insert(ms - since);
                assert!((ms - since).abs_diff(began) < 50, "{since} ms at {ms}, from {began}");
            }
        }
        assert!(offline.is_some(), "a whole attempt went without an answer");
        world.set_rule(|_, _| Fate::Pass);
        stream(&mut world, a, b, (15_000, 100));
        assert_eq!(seen(&world).0, Standing::Active);
    }
}

#[test]
fn status_says_that_nothing_comes_back_within_10_s_until_mended() {
    for (seed, config) in (1..).zip(configs()) {
        let (mut world, a, b) = World::pair(seed, config);
        world.run(2_000);
        stream(&mut world, a, b, (20_000, 100));
        cut(&mut world, b);
        let mut left = None;
        for ms in 0..20_000 {
            if ms % 100 == 0 {
                world.send(a, b, ms, 200);
                world.send(b, a, ms, 200);
            }
            world.run(1);
            let seen = status(&world, a, b);
            let silent = matches!(seen.trouble, Some((Trouble::NothingComes, _)));
            if left.is_none() && silent {
                left = Some(ms);
            }
            if left.is_some() {
                assert!(seen.state != PeerState::Payload && silent, "{ms}: {seen:?}");
            }
            if world
                .host(a)
                .events
                .iter()
                .any(|(_, event)| matches!(event, Event::LinkSilent { .. }))
            {
                assert_ne!(seen.state, PeerState::Payload, "it is logged as silent");
            }
        }
        assert!(left.unwrap() < 4_000, "left after {left:?} ms");
        let ago = status(&world, a, b).trouble.unwrap().1;
        assert!((19_000..20_500).contains(&ago), "the last frame came {ago} ms ago");
        world.set_rule(|_, _| Fate::Pass);
        stream(&mut world, a, b, (6_000, 100));
        assert_eq!(status(&world, a, b).state, PeerState::Payload);
    }
}

#[test]
fn status_says_within_10_s_that_sent_packets_do_not_arrive() {
    for (seed, config) in (1..).zip(configs()) {
        let (mut world, a, b) = World::pair(seed, config);
        world.run(2_000);
        stream(&mut world, a, b, (20_000, 100));
        cut(&mut world, b);
        stream(&mut world, a, b, (9_900, 100));
        let seen = status(&world, b, a);
        assert_eq!(seen.state, PeerState::Session);
        let (trouble, ago) = seen.trouble.unwrap();
        assert_eq!(trouble, Trouble::NothingArrives);
        assert!((9_000..11_500).contains(&ago), "it told {ago} ms ago");
        world.set_rule(|_, _| Fate::Pass);
        stream(&mut world, a, b, (6_000, 100));
        assert_eq!(status(&world, b, a).state, PeerState::Payload);
    }
}

/// An nvpn daemon agrees on keys and reports, and forwards no packet.
#[test]
fn a_peer_that_forwards_nothing_is_never_shown_as_passing() {
    for (seed, fast) in [(1, false), (2, true)] {
        let config = Config {
            fast,
            ..Config::default()
        };
        let (mut world, a, b) = World::pair(seed, config);
        world.run(2_000);
        for seq in 0..600 {
            world.send(a, b, seq, 200);
            world.run(100);
            assert_ne!(status(&world, a, b).state, PeerState::Payload);
        }
        let seen = status(&world, a, b);
        let session = seen.session.unwrap();
        let states = (seen.state, session.packet_in_s, seen.trouble);
        assert_eq!(states, (PeerState::Session, None, None));
        assert!(session.told_s.is_some_and(|ago| ago < 2), "its reports come");
    }
}

#[test]
fn neither_loss_nor_new_keys_look_like_a_dead_direction() {
    for (seed, mut config) in (1..).zip(configs()) {
        config.rekey = 20_000;
        let (mut world, a, b) = World::pair(seed, config);
        world.conditions.delay = 40;
        world.conditions.loss = 50;
        world.run(5_000);
        for seq in 0..1_200 {
            world.send(a, b, seq, 200);
            world.send(b, a, seq, 200);
            world.run(100);
            for (of, peer) in [(a, b), (b, a)] {
                let seen = status(&world, of, peer);
                assert!(seq < 30 || seen.state == PeerState::Payload, "{seq}: {seen:?}");
            }
        }
    }
}

#[test]
fn a_path_that_takes_less_than_weft_needs_is_named() {
    let (mut world, a, b) = World::pair(1, Config::default());
    world.set_rule(|_, datagram| match datagram.bytes.len() > 972 {
        true => Fate::Drop,
        false => Fate::Pass,
    });
    world.run(2_000);
    stream(&mut world, a, b, (10_000, 100));
    for (of, peer) in [(a, b), (b, a)] {
        let seen = status(&world, of, peer);
        assert!(seen.narrow && seen.state == PeerState::Payload, "{seen:?}");
        assert_eq!(seen.path_size.unwrap().source, weft_core::SizeSource::Assumed);
        let told = |(_, event): &&(u64, Event)| matches!(event, Event::PathNarrow { narrow: true, .. });
        assert_eq!(world.host(of).events.iter().filter(told).count(), 1);
    }
}

/// Ten times the age at which keys are replaced.
const KEY_LIFE: u64 = 1_200_000;

fn count(world: &World, of: HostId, wanted: impl Fn(&Event) -> bool) -> usize {
    world.host(of).events.iter().filter(|(_, event)| wanted(event)).count()
}

/// Sends in both directions, rarely enough for a fast test and often enough for no session to be
/// idle.
fn trickle(world: &mut World, a: HostId, b: HostId, seconds: u64) {
    for seq in 0..seconds / 2 {
        world.send(a, b, seq as u32, 200);
        world.send(b, a, seq as u32, 200);
        world.run(2_000);
    }
}

#[test]
fn status_warns_before_unreplaced_link_keys_end() {
    for (seed, config) in (1..).zip(configs()) {
        let (mut world, a, b) = World::pair(seed, config);
        world.run(2_000);
        trickle(&mut world, a, b, 10);
        world.set_rule(|_, datagram| match datagram.kind {
            Kind::LinkMsg1 | Kind::LinkMsg2 => Fate::Drop,
            _ => Fate::Pass,
        });
        trickle(&mut world, a, b, KEY_LIFE / 2_000);
        let overdue = |event: &Event| matches!(event, Event::KeysOverdue { session: false, .. });
        for (of, peer) in [(a, b), (b, a)] {
            let seen = status(&world, of, peer);
            assert_eq!(seen.state, PeerState::Payload, "they still serve");
            let ends = seen.link.unwrap().keys_end_s.expect("they are overdue");
            assert!((580..620).contains(&ends), "they end in {ends} s");
            assert_eq!(count(&world, of, overdue), 1, "told once");
        }
        trickle(&mut world, a, b, KEY_LIFE / 2_000 + 30);
        let ended = |event: &Event| {
            matches!(
                event,
                Event::LinkDown {
                    reason: LinkDown::KeysTooOld | LinkDown::Disconnected(1),
                    ..
                }
            )
        };
        for (of, peer) in [(a, b), (b, a)] {
            assert_eq!(count(&world, of, ended), 1);
            let seen = status(&world, of, peer);
            assert_eq!(seen.state, PeerState::Linking);
            assert!(seen.failures > 3, "a handshake goes on being tried: {seen:?}");
        }
        world.set_rule(|_, _| Fate::Pass);
        trickle(&mut world, a, b, 20);
        assert_eq!(status(&world, a, b).state, PeerState::Payload);
        assert_eq!(status(&world, a, b).link.unwrap().keys_end_s, None);
    }
}

#[test]
fn status_warns_before_unreplaced_session_keys_end() {
    for (seed, config) in (1..).zip(configs()) {
        let (mut world, a, b) = World::pair(seed, config);
        world.run(2_000);
        trickle(&mut world, a, b, 10);
        world.set_rule(|_, datagram| match datagram.kind {
            Kind::Setup | Kind::Ack | Kind::Msg3 => Fate::Drop,
            _ => Fate::Pass,
        });
        trickle(&mut world, a, b, KEY_LIFE / 2_000);
        let seen = status(&world, a, b);
        assert_eq!(seen.state, PeerState::Payload, "they still serve");
        let ends = seen.session.unwrap().keys_end_s.expect("they are overdue");
        assert!((580..620).contains(&ends), "they end in {ends} s");
        trickle(&mut world, a, b, KEY_LIFE / 2_000 + 30);
        let ended = |event: &Event| {
            let reason = SessionDown::KeysTooOld;
            matches!(event, Event::SessionDown { reason: why, .. } if *why == reason)
        };
        let overdue = |event: &Event| matches!(event, Event::KeysOverdue { session: true, .. });
        for (of, peer) in [(a, b), (b, a)] {
            assert_eq!((count(&world, of, overdue), count(&world, of, ended)), (1, 1));
            let seen = status(&world, of, peer);
            assert_eq!(seen.state, PeerState::Linked);
            assert!(seen.keys_ended.is_some_and(|ago| ago < 60_000), "{seen:?}");
        }
        // Nothing passes under expired keys, and the first handshake that succeeds ends it.
        let before = world.host(b).received.len();
        trickle(&mut world, a, b, 60);
        assert_eq!(world.host(b).received.len(), before);
        world.set_rule(|_, _| Fate::Pass);
        trickle(&mut world, a, b, 20);
        assert_eq!(status(&world, a, b).state, PeerState::Payload);
    }
}

#[test]
fn a_clock_jump_brings_new_keys_and_costs_no_packet() {
    for (seed, config) in (1..).zip(configs()) {
        for delay in [0, 20] {
            let (mut world, a, b) = World::pair(seed, config);
            world.conditions.delay = delay;
            world.run(2_000);
            stream(&mut world, a, b, (5_000, 20));
            let before = status(&world, a, b);
            let came = [a, b].map(|host| world.host(host).received.len());
            let now = world.now();
            world.host_mut(a).node.handle_resumed(now);
            stream(&mut world, a, b, (3_000, 20));
            world.run(500);
            let after = status(&world, a, b);
            assert!(
                after.link.as_ref().unwrap().rekeys > before.link.as_ref().unwrap().rekeys,
                "seed {seed}"
            );
            assert!(
                after.session.as_ref().unwrap().rekeys > before.session.as_ref().unwrap().rekeys,
                "seed {seed}"
            );
            assert_eq!((after.state, after.last_down), (PeerState::Payload, None));
            let come = [a, b].map(|host| world.host(host).received.len());
            assert_eq!([come[0] - came[0], come[1] - came[1]], [150, 150]);
        }
    }
}

#[test]
fn two_nodes_with_one_key_are_named_by_others_and_themselves() {
    for (seed, config) in (1..).zip(configs()) {
        let (mut world, a, b) = World::pair(seed, config);
        world.run(2_000);
        stream(&mut world, a, b, (5_000, 100));
        let copy = world.add_copy(a, config);
        world.add_peer(copy, b, true);
        for seq in 0..600 {
            world.send(a, b, seq, 200);
            world.send(copy, b, seq, 200);
            world.run(100);
        }
        let (seen, ago) = status(&world, b, a).twins.expect("the peer of both notices");
        let mut seen = seen.map(|addr| addr.ip());
        seen.sort();
        let mut both = [a, copy].map(|host| world.host(host).addr.ip());
        both.sort();
        assert_eq!(seen, both);
        assert!(ago < 60_000);
        assert_eq!(
            count(&world, b, |event| matches!(event, Event::KeyInTwo { .. })),
            1,
            "told once"
        );
        for (host, other) in [(a, copy), (copy, a)] {
            let twin = world.host(host).node.twin(world.now()).expect("it is told");
            assert_eq!(twin.seen.ip(), world.host(other).addr.ip());
        }
    }
}

#[test]
fn a_peer_that_restarts_often_is_no_second_node() {
    let (mut world, a, b) = World::pair(5, Config::default());
    world.run(2_000);
    for _ in 0..12 {
        stream(&mut world, a, b, (3_000, 100));
        world.kill(a);
        world.run(700);
        world.restart(a);
    }
    stream(&mut world, a, b, (3_000, 100));
    assert_eq!(status(&world, b, a).twins, None);
    assert!(world.host(a).node.twin(world.now()).is_none());
}

/// A good peer beside an authenticated hostile one: what the good one achieves.
fn beside(seed: u64, config: Config, bad: bool) -> (usize, [u64; 4], Option<u32>, Vec<Event>) {
    let mut world = World::new(seed);
    let [node, good, villain] = [0; 3].map(|_| world.add_host(config));
    for peer in [good, villain] {
        world.add_peer(peer, node, true);
        world.add_peer(node, peer, false);
    }
    world.conditions.delay = 10;
    world.run(3_000);
    let frames: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
    let keep = frames.clone();
    world.set_rule(move |_, datagram| {
        if datagram.from == villain && keep.borrow().len() < 64 {
            keep.borrow_mut().push(datagram.bytes.clone());
        }
        // Its sessions stay half open.
        match datagram.from == villain && datagram.kind == Kind::Msg3 {
            true => Fate::Drop,
            false => Fate::Pass,
        }
    });
    stream(&mut world, good, node, (3_000, 20));
    let came = world
        .host(node)
        .received
        .iter()
        .filter(|(_, probe)| probe.seq >= 1_000_000)
        .count();
    assert_eq!(came, 0);
    let (from, to) = (world.host(villain).addr, world.host(node).addr);
    let (own, other) = (world.host(villain).node_addr(), world.host(node).node_addr());
    for ms in 0..60_000_u32 {
        if ms % 20 == 0 {
            world.send(good, node, 1_000_000 + ms, 200);
            world.send(node, good, 1_000_000 + ms, 200);
        }
        if bad {
            // Authentic frames that ask for an answer, or are malformed.
            world.say_type(villain, node, 0xf1, vec![7; 4]);
            world.say_type(villain, node, 0x00, forged::datagram(own, other, 64, &[3; 90]));
            if ms % 50 == 0 {
                world.send(villain, node, ms, 200);
            }
            // Frames that do not open, and forged handshakes.
            let frame = frames.borrow().get(ms as usize % 64).cloned();
            if let Some(mut frame) = frame {
                let last = frame.len() - 1;
                frame[last] ^= 1;
                world.inject(from, to, frame);
            }
            if ms % 10 == 0 {
                let mut msg1 = vec![0x5a; 114];
                msg1[..4].copy_from_slice(&[0x01, 0, 110, 0]);
                world.inject(from, to, msg1);
            }
        }
        world.run(1);
    }
    world.run(500);
    let unopened = world.host(node).lane.counters().drops[DropReason::LinkTag];
    assert_eq!(unopened > 0, bad, "{unopened} frames did not open");
    let come = |host: HostId| {
        world
            .host(host)
            .received
            .iter()
            .filter(|(_, probe)| probe.seq >= 1_000_000 && probe.len == 200)
    };
    let arrived = come(node).count() + come(good).count();
    let seen = status(&world, good, node);
    let events = world
        .host(good)
        .events
        .iter()
        .map(|(_, event)| event.clone())
        .filter(|event| {
            matches!(
                event,
                Event::LinkDown { .. } | Event::SessionDown { .. } | Event::LinkSilent { .. } | Event::Troubled { .. }
            )
        });
    let rekeys = [
        seen.link.as_ref().unwrap().rekeys,
        seen.session.as_ref().unwrap().rekeys,
        status(&world, node, good).link.unwrap().rekeys,
        status(&world, node, good).session.unwrap().rekeys,
    ];
    (
        arrived,
        rekeys,
        seen.session.as_ref().unwrap().quality.rtt_us,
        events.collect(),
    )
}

#[test]
fn a_bad_authenticated_peer_does_not_affect_a_good_one() {
    for (seed, mut config) in (1..).zip(configs()) {
        config.rekey = 20_000;
        let (alone, rekeys, rtt, events) = beside(seed, config, false);
        assert_eq!((alone, &events), (6_000, &vec![]));
        let (arrived, with, rtt_with, events) = beside(seed, config, true);
        assert_eq!((arrived, &events), (6_000, &vec![]), "seed {seed}");
        assert!(
            with.iter().zip(rekeys).all(|(with, alone)| with.abs_diff(alone) <= 1),
            "{with:?}, alone {rekeys:?}"
        );
        assert_eq!(rtt_with, rtt);
    }
}

/// What people read as "since when": neither a pause of the traffic nor the end of an idle session through other nodes
/// begins it anew, and a time without an answer ends it.
#[test]
fn a_peer_is_online_since_it_could_be_reached() {
    let meshed = Config {
        mesh: true,
        ..Config::default()
    };
    for seed in 1..5 {
        let mut world = World::new(seed);
        let [a, b, relay] = [0; 3].map(|_| world.add_host(meshed));
        for end in [a, b] {
            world.add_peer(end, relay, true);
        }
        world.add_peer(a, b, false);
        world.add_peer(b, a, false);
        assert_eq!(status(&world, a, b).online, None);
        world.run(20_000);
        stream(&mut world, a, b, (5_000, 100));
        let began = world.now() - status(&world, a, b).online.unwrap();
        let began_relay = world.now() - status(&world, a, relay).online.unwrap();
        let mut rested = false;
        for _ in 0..300 {
            world.run(1_000);
            let seen = status(&world, a, b);
            rested |= seen.state == PeerState::Linked;
            assert!(seen.online.is_none_or(|online| world.now() - online == began));
        }
        assert!(rested, "the session ends when nothing uses it");
        stream(&mut world, a, b, (5_000, 100));
        for (peer, began) in [(b, began), (relay, began_relay)] {
            let seen = status(&world, a, peer);
            assert_eq!(world.now() - seen.online.unwrap(), began);
        }
        let seen = status(&world, a, b);
        assert!(seen.online > Some(seen.standing_since), "the summary has changed since");
        cut(&mut world, b);
        stream(&mut world, a, b, (20_000, 100));
        assert_eq!(status(&world, a, b).online, None, "it is silent");
        world.set_rule(|_, _| Fate::Pass);
        stream(&mut world, a, b, (30_000, 100));
        assert!(status(&world, a, b).online < Some(30_000), "a new time");
    }
}
