//! What neighbours say about each other's addresses, and datagrams outside of links.

use std::net::SocketAddr;

use weft_core::{Config, Event};
use weft_packet::DropReason;
use weft_sim::{HostId, NatKind, World};
use weft_wire::NodeAddr;
use weft_wire::link::{OBSERVED, SIGHTING, SIGHTING_REQUEST};
use weft_wire::sighting::Sighting;

/// The addresses at which neighbours have said that they see a host, in order.
fn observed(world: &World, host: HostId) -> Vec<SocketAddr> {
    let events = world.host(host).events.iter();
    let observed = events.filter_map(|(_, event)| match event {
        Event::Observed { at, .. } => Some(*at),
        _ => None,
    });
    observed.collect()
}

/// Where a host sees its only neighbour.
fn path(world: &World, host: HostId) -> SocketAddr {
    let mut events = world.host(host).events.iter().rev();
    let path = events.find_map(|(_, event)| match event {
        Event::LinkUp { path, .. } | Event::Roamed { path, .. } => Some(*path),
        _ => None,
    });
    path.unwrap()
}

#[test]
fn a_node_behind_a_nat_learns_its_outer_address() {
    let mut world = World::new(1);
    let (inside, outside) = (world.add_host(Config::default()), world.add_host(Config::default()));
    world.put_behind(inside, NatKind::PortRestricted);
    world.add_peer(inside, outside, true);
    world.add_peer(outside, inside, false);
    world.run(3_000);
    let outer = path(&world, outside);
    assert_ne!(outer, world.host(inside).addr);
    assert_eq!(observed(&world, inside), [outer]);
    assert_eq!(observed(&world, outside), [world.host(outside).addr]);

    // It moves, and learns the address that its neighbour sees then.
    let moved: SocketAddr = "198.51.100.77:4000".parse().unwrap();
    world.move_host(inside, moved);
    world.run(20_000);
    assert_eq!(observed(&world, inside).last(), Some(&path(&world, outside)));
}

/// Who searches for direct paths forgets what a neighbour has said when the link with it ends.
#[test]
fn an_outer_address_is_learned_anew_with_each_link() {
    let mut world = World::new(1);
    let (inside, outside) = (world.add_host(Config::default()), world.add_host(Config::default()));
    world.put_behind(inside, NatKind::SymmetricPreserving);
    world.add_peer(inside, outside, true);
    world.add_peer(outside, inside, false);
    world.run(8_000);
    world.kill(outside);
    world.run(60_000);
    world.restart(outside);
    world.run(20_000);
    let outer = path(&world, outside);
    assert_eq!(observed(&world, inside), [outer, outer]);
}

#[test]
fn an_outer_address_is_told_again_in_case_it_was_lost() {
    for (lost, told) in [(0, true), (1, true), (2, true), (3, false)] {
        let mut world = World::new(1);
        let (inside, outside) = (world.add_host(Config::default()), world.add_host(Config::default()));
        world.put_behind(inside, NatKind::PortRestricted);
        world.add_peer(inside, outside, true);
        world.add_peer(outside, inside, false);
        let mut left = lost;
        world.host_mut(outside).set_hand(move |message, body| {
            if message == OBSERVED && left > 0 {
                left -= 1;
                body.clear();
            }
        });
        world.run(8_000);
        assert_eq!(observed(&world, inside).len(), usize::from(told), "{lost} are lost");
    }
}

#[test]
fn a_neighbour_that_changes_its_mind_is_heard_once_a_second() {
    let (mut world, a, b) = World::pair(2, Config::default());
    // Its own word comes no more.
    world.run(8_000);
    let before = observed(&world, b).len();
    for port in 0..2_000_u16 {
        let mut body = [0; 18];
        body[15] = 1;
        body[16..].copy_from_slice(&port.to_le_bytes());
        world.say_type(a, b, OBSERVED, body.to_vec());
        world.run(1);
    }
    let heard = observed(&world, b).len() - before;
    assert!((1..=3).contains(&heard), "{heard}");
    for len in [0, 17, 19, 1_000] {
        world.say_type(a, b, OBSERVED, vec![9; len]);
    }
    world.run(2_000);
    assert_eq!(observed(&world, b).len() - before, heard, "of another length");
}

#[test]
fn datagrams_outside_of_links_come_by_their_token_alone() {
    let (mut world, a, b) = World::pair(3, Config::default());
    world.run(3_000);
    let (from, to) = (world.host(a).addr, world.host(b).addr);
    let probe = |token: u8| [&b"NPTC\0\0\0\x01"[..], &[token; 16]].concat();
    let stun = [&[1, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], &[5; 12]].concat();
    let now = world.now();
    world.host_mut(b).await_token(now, [1; 16]);
    world.host_mut(b).await_token(now, stun[4..].try_into().unwrap());
    for datagram in [probe(1), probe(2), stun.clone(), [&stun[..8], &[6; 12]].concat()] {
        let now = world.now();
        world.host_mut(a).send_outside(now, to, datagram);
        world.run(100);
    }
    let outside = world.host(b).outside.iter();
    let outside: Vec<_> = outside.map(|(at, datagram)| (at.remote(), datagram.clone())).collect();
    assert_eq!(outside, [(from, probe(1)), (from, stun)]);
    assert_eq!(world.host(b).lane.counters().drops[DropReason::Unawaited], 1);
}

/// What neighbours have said about where they see other nodes, in order.
fn sightings(world: &World, host: HostId) -> Vec<(NodeAddr, SocketAddr)> {
    let events = world.host(host).events.iter();
    let sighted = events.filter_map(|(_, event)| match event {
        Event::Sighted { of, at, .. } => Some((*of, *at)),
        _ => None,
    });
    sighted.collect()
}

/// A and B, and R that both are linked with; B is behind a NAT.
fn around_a_relay(seed: u64) -> (World, [HostId; 3]) {
    let mut world = World::new(seed);
    let [a, b, r] = [0; 3].map(|_| world.add_host(Config::default()));
    world.put_behind(b, NatKind::PortRestricted);
    for end in [a, b] {
        world.add_peer(end, r, true);
        world.add_peer(r, end, false);
    }
    world.run(3_000);
    (world, [a, b, r])
}

fn ask(world: &mut World, from: HostId, to: HostId, of: HostId, at: SocketAddr) -> bool {
    let (now, key, of) = (world.now(), world.host(to).key, world.host(of).node_addr());
    let asked = world.host_mut(from).ask_sighting(now, &key, of, at);
    world.run(500);
    asked
}

#[test]
fn sightings_of_a_node_go_to_those_that_know_the_host() {
    let (mut world, [a, b, r]) = around_a_relay(4);
    let outer = observed(&world, b)[0];
    // Another port of the same host is as good.
    let guess = SocketAddr::new(outer.ip(), 9);
    assert!(ask(&mut world, a, r, b, guess));
    let expected = [(world.host(b).node_addr(), outer)];
    assert_eq!(sightings(&world, a), expected);
    assert!(ask(&mut world, a, r, b, "198.51.100.99:2121".parse().unwrap()));
    let own = world.host(a).addr;
    assert!(ask(&mut world, a, r, a, own), "about the one that asks");
    assert!(!ask(&mut world, a, b, r, outer), "there is no link with it");
    assert_eq!(sightings(&world, a), expected);
}

#[test]
fn unrequested_sightings_are_ignored_and_requests_have_a_rate() {
    let (mut world, [a, b, r]) = around_a_relay(5);
    let victim = Sighting {
        of: world.host(b).node_addr(),
        at: "198.51.100.99:2121".parse().unwrap(),
    };
    for _ in 0..1_000 {
        world.say_type(r, a, SIGHTING, victim.to_bytes().to_vec());
        world.say_type(a, r, SIGHTING_REQUEST, victim.to_bytes().to_vec());
        world.run(1);
    }
    world.run(200);
    assert_eq!(sightings(&world, a), []);
    let refused = |host| {
        let counters = world.host(host).node.counters();
        let found = counters.named().find(|(name, _)| *name == "sightings_refused");
        found.unwrap().1
    };
    assert_eq!(refused(a), 1_000);
    assert!((1_000 - 18..=1_000 - 16).contains(&refused(r)), "{}", refused(r));
    for len in [0, 33, 35, 1_000] {
        world.say_type(r, a, SIGHTING, vec![9; len]);
        world.say_type(a, r, SIGHTING_REQUEST, vec![9; len]);
    }
    world.run(500);
    assert_eq!(sightings(&world, a), []);
}
