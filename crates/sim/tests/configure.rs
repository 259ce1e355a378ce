//! Peers that are added and removed while the node runs.

use weft_core::{Admit, Config, Event, LinkDown, PeerConfig, SessionDown};
use weft_noise::PublicKey;
use weft_sim::{HostId, World};

use crate::common::stream;

fn key(world: &World, host: HostId) -> PublicKey {
    world.host(host).identity().public()
}

fn remove(world: &mut World, at: HostId, peer: HostId) -> bool {
    let (now, key) = (world.now(), key(world, peer));
    let removed = world.host_mut(at).node.remove_peer(now, &key);
    world.host_mut(at).settle(now);
    removed
}

fn add(world: &mut World, at: HostId, peer: HostId) {
    let (now, key) = (world.now(), key(world, peer));
    let addresses = vec![world.host(peer).addr.into()];
    world.host_mut(at).add_peer(now, PeerConfig { key, addresses });
    world.host_mut(at).settle(now);
}

fn linked(world: &World, at: HostId) -> bool {
    let mut peers = world.host(at).node.peer_status(world.now());
    peers.any(|peer| peer.link.is_some())
}

#[test]
fn no_packet_passes_between_the_removal_and_return_of_a_peer() {
    for seed in 0..10 {
        let (mut world, a, b) = World::pair(seed, Config::default());
        world.send(a, b, 0, 100);
        world.run(1_000);
        assert_eq!(stream(&mut world, a, b, 100), (100, 100), "seed {seed}");
        assert!(remove(&mut world, a, b), "seed {seed}");
        assert!(!remove(&mut world, a, b), "seed {seed}: it is gone");
        world.run(1_000);
        assert_eq!(world.host(a).node.peer_status(world.now()).count(), 0);
        assert!(!linked(&world, b), "seed {seed}: the other end learns it");
        assert_eq!(stream(&mut world, a, b, 100), (0, 0), "seed {seed}");
        let told = |host: HostId, event: &Event| world.host(host).events.iter().any(|(_, told)| told == event);
        let (at_a, at_b) = (key(&world, a), key(&world, b));
        let reason = LinkDown::Removed;
        assert!(told(a, &Event::LinkDown { peer: at_b, reason }), "seed {seed}");
        let reason = SessionDown::Removed;
        assert!(told(a, &Event::SessionDown { peer: at_b, reason }), "seed {seed}");
        let reason = LinkDown::Disconnected(6);
        assert!(told(b, &Event::LinkDown { peer: at_a, reason }), "seed {seed}");
        add(&mut world, a, b);
        world.run(3_000);
        assert_eq!(stream(&mut world, a, b, 100), (100, 100), "seed {seed}");
    }
}

#[test]
fn an_added_peer_is_dialled_within_a_second() {
    let mut world = World::new(1);
    let (a, b) = (world.add_host(Config::default()), world.add_host(Config::default()));
    world.run(5_000);
    add(&mut world, b, a);
    add(&mut world, a, b);
    world.run(1_000);
    assert!(linked(&world, a) && linked(&world, b));
    assert_eq!(stream(&mut world, a, b, 100), (100, 100));
}

/// A neighbour of the mesh becomes a peer: its link stays, and packets pass over it.
#[test]
fn a_stranger_that_is_added_keeps_its_link() {
    let open = Config {
        mesh: true,
        admit: Admit::Everyone,
        ..Config::default()
    };
    let mut world = World::new(2);
    let (a, b) = (world.add_host(open), world.add_host(open));
    world.add_peer(b, a, true);
    world.run(3_000);
    assert_eq!(world.host(a).node.stranger_status(world.now()).count(), 1);
    assert_eq!(stream(&mut world, a, b, 20), (0, 0));
    add(&mut world, a, b);
    let ups = |world: &World| {
        let events = world.host(a).events.iter();
        events
            .filter(|(_, event)| matches!(event, Event::LinkUp { .. }))
            .count()
    };
    let before = ups(&world);
    world.run(3_000);
    assert_eq!(stream(&mut world, a, b, 100), (100, 100));
    assert_eq!(ups(&world), before, "one link all the time");
    assert_eq!(world.host(a).node.stranger_status(world.now()).count(), 0);
    // Removed, it comes back as a stranger, because the mesh is open.
    assert!(remove(&mut world, a, b));
    world.run(5_000);
    assert_eq!(world.host(a).node.stranger_status(world.now()).count(), 1);
    assert_eq!(stream(&mut world, a, b, 20), (0, 0));
}

/// The path of a session leads through a third node. A removal ends the session there as well.
#[test]
fn a_removal_ends_a_relayed_session() {
    let mesh = Config {
        mesh: true,
        ..Config::default()
    };
    let mut world = World::new(3);
    let hosts = [mesh; 3].map(|config| world.add_host(config));
    let [a, relay, b] = hosts;
    for end in [a, b] {
        world.add_peer(end, relay, true);
        world.add_peer(relay, end, false);
    }
    world.add_peer(a, b, false);
    world.add_peer(b, a, false);
    world.run(10_000);
    world.send(a, b, 0, 100);
    world.run(3_000);
    assert_eq!(stream(&mut world, a, b, 100), (100, 100));
    assert!(remove(&mut world, a, b));
    world.run(2_000);
    assert_eq!(stream(&mut world, a, b, 100), (0, 0));
    let (now, key) = (world.now(), key(&world, b));
    let addresses = Vec::new();
    world.host_mut(a).add_peer(now, PeerConfig { key, addresses });
    world.host_mut(a).settle(now);
    world.send(a, b, 0, 100);
    world.run(10_000);
    assert_eq!(stream(&mut world, a, b, 100), (100, 100));
}
