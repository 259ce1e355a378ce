//! The nodes of relayed paths: what each says about itself, and what those that ask can cause.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use weft_core::{Config, Event, Frames, HopSaid, Onward};
use weft_sim::{Conditions, HostId, World};
use weft_wire::NodeAddr;
use weft_wire::hops::{Hop, HopsRequest, MAX_DISTANCE};
use weft_wire::link::{HOP, HOPS_REQUEST, OBSERVED};

use crate::common::stream;

/// One-way delay of the link behind the host of this number, in ms.
const DELAYS: [u64; 4] = [5, 20, 40, 10];

/// Five hosts in a row, between the first and last of which packets pass.
fn line(seed: u64, config: Config) -> (World, Vec<HostId>) {
    let mut world = World::new(seed);
    let hosts: Vec<HostId> = (0..=DELAYS.len()).map(|_| world.add_host(config)).collect();
    for (pair, delay) in hosts.windows(2).zip(DELAYS) {
        world.add_peer(pair[0], pair[1], true);
        let conditions = Conditions {
            delay,
            ..Conditions::default()
        };
        world.set_link(pair[0], pair[1], Some(conditions));
    }
    let (a, b) = (hosts[0], hosts[DELAYS.len()]);
    world.add_peer(a, b, false);
    world.add_peer(b, a, false);
    (world, hosts)
}

/// The line after packets have passed for some time.
fn running(seed: u64, config: Config) -> (World, Vec<HostId>) {
    let (mut world, hosts) = line(seed, config);
    start(&mut world, &hosts);
    (world, hosts)
}

fn start(world: &mut World, hosts: &[HostId]) {
    let (a, b) = (hosts[0], hosts[DELAYS.len()]);
    world.run(5_000);
    world.send(a, b, 0, 100);
    world.run(2_000);
    assert_eq!(stream(world, a, b, 1_000), (1_000, 1_000));
}

fn meshed() -> Config {
    Config {
        mesh: true,
        ..Config::default()
    }
}

/// What nodes have said to a host, by distance, and when.
fn said(world: &World, host: HostId, asked: u32) -> BTreeMap<u8, (u64, HopSaid)> {
    let events = world.host(host).events.iter();
    let said = events.filter_map(|(at, event)| match event {
        Event::Hop { id, said } if *id == asked => Some((said.distance, (*at, *said))),
        _ => None,
    });
    said.collect()
}

/// Asks for the nodes of the path, and returns what they say within a second.
fn ask(world: &mut World, hosts: &[HostId]) -> BTreeMap<u8, (u64, HopSaid)> {
    let (now, key) = (world.now(), world.host(hosts[DELAYS.len()]).key);
    let id = world.host_mut(hosts[0]).ask_hops(now, &key).unwrap();
    world.run(1_000);
    let mut said = said(world, hosts[0], id);
    said.values_mut().for_each(|(at, _)| *at -= now);
    said
}

fn refused(world: &World, host: HostId) -> u64 {
    let counters = world.host(host).node.counters();
    counters.named().find(|(name, _)| *name == "hops_refused").unwrap().1
}

/// The numbers of requests and answers that a host sends from now on, with the bytes of their bodies.
fn tap(world: &mut World, host: HostId) -> Rc<RefCell<BTreeMap<u8, (u64, u64)>>> {
    let sent: Rc<RefCell<BTreeMap<u8, (u64, u64)>>> = Rc::default();
    let tap = sent.clone();
    world.host_mut(host).set_hand(move |msg_type, body| {
        if [HOPS_REQUEST, HOP].contains(&msg_type) {
            let mut sent = tap.borrow_mut();
            let (count, bytes) = sent.entry(msg_type).or_default();
            (*count, *bytes) = (*count + 1, *bytes + body.len() as u64);
        }
    });
    sent
}

#[test]
fn three_relays_in_a_row_say_what_they_are() {
    let fips = Config {
        fast: false,
        ..meshed()
    };
    for (config, fast) in [(meshed(), true), (fips, false)] {
        let (mut world, hosts) = running(1, config);
        let mut status = world.host(hosts[0]).node.peer_status(world.now());
        let key = world.host(hosts[4]).key;
        let frames = status.find(|peer| peer.key == key).unwrap().frames;
        assert_eq!(matches!(frames, Frames::Relayed(_)), fast, "{frames:?}");
        drop(status);
        let said = ask(&mut world, &hosts);
        assert_eq!(said.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
        let mut to_it = 0;
        for (distance, (took, said)) in said {
            let number = usize::from(distance);
            to_it += 2 * DELAYS[number - 1];
            assert_eq!(said.key, world.host(hosts[number]).key);
            assert!(
                (to_it..to_it + 10).contains(&took),
                "{distance}: {took} ms instead of {to_it}"
            );
            let link = u64::from(said.rtt_us.unwrap()) / 1_000;
            let expected = 2 * DELAYS[number];
            assert!(
                (expected..expected + 10).contains(&link),
                "{distance}: {link} ms instead of {expected}"
            );
            let last = if distance == 3 {
                Onward::Destination
            } else {
                Onward::Passed
            };
            assert_eq!(said.onward, last);
        }
        assert_eq!(hosts.iter().map(|host| refused(&world, *host)).sum::<u64>(), 0);
    }
}

#[test]
fn a_relay_that_does_not_say_hides_itself_alone() {
    let (mut world, hosts) = running(2, meshed());
    world.host_mut(hosts[2]).set_hand(|msg_type, body| {
        if msg_type == HOP && body.get(4) == Some(&2) {
            body.clear();
        }
    });
    let said = ask(&mut world, &hosts);
    assert_eq!(said.keys().copied().collect::<Vec<_>>(), [1, 3]);
    assert_eq!(said[&3].1.onward, Onward::Destination);
}

#[test]
fn a_relay_that_is_not_known_as_a_weft_node_is_not_asked() {
    let (mut world, hosts) = line(3, meshed());
    world.host_mut(hosts[2]).set_hand(|msg_type, body| {
        if msg_type == OBSERVED {
            body.clear();
        }
    });
    start(&mut world, &hosts);
    let said = ask(&mut world, &hosts);
    assert_eq!(said.keys().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(said[&1].1.onward, Onward::Foreign);
}

#[test]
fn nothing_is_asked_about_a_direct_path_or_a_strange_node() {
    let (mut world, a, b) = World::pair(4, meshed());
    world.run(3_000);
    assert_eq!(stream(&mut world, a, b, 100), (100, 100));
    let (now, key) = (world.now(), world.host(b).key);
    assert_eq!(world.host_mut(a).ask_hops(now, &key), None);
    let own = world.host(a).key;
    assert_eq!(world.host_mut(a).ask_hops(now, &own), None);
}

/// A neighbour asks as often as it can. The relay reads a few requests, each of which costs one
/// answer and one request; the rest costs a look at a budget. Another neighbour has its own.
#[test]
fn a_flood_of_requests_costs_a_bounded_number_of_messages() {
    let (mut world, hosts) = running(5, meshed());
    let (a, relay) = (hosts[0], hosts[1]);
    let sent = tap(&mut world, relay);
    let before = refused(&world, relay);
    let dest = world.host(hosts[4]).node_addr();
    for id in 0..10_000 {
        let request = HopsRequest { id, distance: 1, dest };
        world.say_type(a, relay, HOPS_REQUEST, request.to_bytes().to_vec());
        if id % 10 == 0 {
            world.run(1);
        }
    }
    world.run(2_000);
    let sent = sent.borrow().clone();
    let (requests, request_bytes) = sent[&HOPS_REQUEST];
    // 16 at once, and two a second.
    assert!((16..=20).contains(&requests), "{sent:?}");
    assert_eq!(request_bytes, requests * 21);
    let (answers, answer_bytes) = sent[&HOP];
    // The own one, and those of both relays behind it.
    assert!((requests..=3 * requests).contains(&answers), "{sent:?}");
    assert_eq!(answer_bytes, answers * 42);
    let refused_now = refused(&world, relay) - before;
    assert!(refused_now >= 9_000, "{refused_now}");
    for host in &hosts {
        assert_eq!(world.host(*host).node.check_invariants(), Ok(()));
    }
    // B asks through the same relays, and is heard.
    let (now, key) = (world.now(), world.host(a).key);
    let id = world.host_mut(hosts[4]).ask_hops(now, &key).unwrap();
    world.run(1_000);
    let keys: Vec<_> = said(&world, hosts[4], id).into_keys().collect();
    assert_eq!(keys, [1, 2, 3]);
}

#[test]
fn a_request_about_an_unused_path_has_no_answer_and_no_route() {
    let (mut world, hosts) = running(6, meshed());
    let (a, relay) = (hosts[0], hosts[1]);
    let sent = tap(&mut world, relay);
    let before = refused(&world, relay);
    let known = world.host(relay).node.mesh_status().map(|mesh| mesh.known);
    let own = world.host(relay).node_addr();
    let asks = world.host(a).node_addr();
    for dest in [NodeAddr::new([7; 16]), own, asks] {
        let request = HopsRequest {
            id: 1,
            distance: 1,
            dest,
        };
        world.say_type(a, relay, HOPS_REQUEST, request.to_bytes().to_vec());
        world.run(500);
    }
    assert_eq!((refused(&world, relay) - before, sent.borrow().len()), (3, 0));
    let known_now = world.host(relay).node.mesh_status().map(|mesh| mesh.known);
    assert_eq!(known_now, known);
}

#[test]
fn a_request_ends_at_the_largest_distance() {
    let (mut world, hosts) = running(7, meshed());
    let sent = tap(&mut world, hosts[1]);
    let dest = world.host(hosts[4]).node_addr();
    let request = HopsRequest {
        id: 1,
        distance: MAX_DISTANCE,
        dest,
    };
    world.say_type(hosts[0], hosts[1], HOPS_REQUEST, request.to_bytes().to_vec());
    world.run(500);
    assert_eq!(*sent.borrow(), BTreeMap::from([(HOP, (1, 42))]));
}

/// Relays and neighbours say what was not asked for: nothing of it reaches a user or another node.
#[test]
fn answers_that_were_not_asked_for_count_for_nothing() {
    let (mut world, hosts) = running(8, meshed());
    let (a, relay) = (hosts[0], hosts[1]);
    let sent = tap(&mut world, relay);
    let forged = |id: u32, distance: u8| Hop {
        id,
        distance,
        onward: Onward::Destination,
        rtt_us: 1,
        key: [9; 32],
    };
    for id in 0..100 {
        for distance in [1, 2, MAX_DISTANCE] {
            world.say_type(relay, a, HOP, forged(id, distance).to_bytes().to_vec());
            world.say_type(hosts[2], relay, HOP, forged(id, distance).to_bytes().to_vec());
        }
        world.run(10);
    }
    for len in [0, 20, 22, 41, 43, 1_000] {
        world.say_type(relay, a, HOP, vec![1; len]);
        world.say_type(a, relay, HOPS_REQUEST, vec![1; len]);
        world.run(10);
    }
    let heard = world.host(a).events.iter();
    assert_eq!(heard.filter(|(_, event)| matches!(event, Event::Hop { .. })).count(), 0);
    assert!(refused(&world, a) >= 300 && refused(&world, relay) >= 300);
    assert_eq!(*sent.borrow(), BTreeMap::new(), "the relay has passed something on");
    assert_eq!(ask(&mut world, &hosts).len(), 3);
}
