//! Subnets behind nodes, between two cores: which nodes are sent such packets, and which are not.

use weft_core::{Config, Frames, PeerStatus};
use weft_packet::DropReason;
use weft_sim::{HostId, World};
use weft_wire::Subnet;

/// An IPv4 datagram without checksum, from behind one host to behind another.
pub(crate) fn datagram(from: HostId, to: HostId) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 36, 0, 1, 0x40, 0, 64, 17, 0, 0];
    packet.extend([10, from as u8, 0, 1, 10, to as u8, 0, 1]);
    packet.extend([0, 9, 0, 9, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    packet
}

pub(crate) fn subnet(of: HostId) -> Subnet {
    format!("10.{of}.0.0/16").parse().unwrap()
}

/// Configures a host's own subnet, and those of its peers.
fn tell(world: &mut World, own: HostId, peers: &[HostId]) {
    let theirs = peers
        .iter()
        .map(|peer| (subnet(*peer), world.host(*peer).key.node_addr()));
    let theirs = theirs.collect();
    world.host_mut(own).node.set_subnets(vec![subnet(own)], theirs);
}

fn status(world: &World, of: HostId, peer: HostId) -> PeerStatus {
    let key = world.host(peer).key;
    let mut all = world.host(of).node.peer_status(world.now());
    all.find(|p| p.key == key).unwrap()
}

/// Sends `count` datagrams and returns how many arrived.
fn send(world: &mut World, a: HostId, b: HostId, count: u64) -> u64 {
    let before = world.host(b).lane.counters().full_rx;
    for _ in 0..count {
        world.send_ip(a, &datagram(a, b));
        world.run(500);
    }
    world.host(b).lane.counters().full_rx - before
}

#[test]
fn they_pass_over_many_epochs() {
    let config = Config {
        rekey: 5_000,
        ..Config::default()
    };
    let (mut world, a, b) = World::pair(1, config);
    tell(&mut world, a, &[b]);
    tell(&mut world, b, &[a]);
    world.run(2_000);
    // The first waits for session and fast frames.
    for (from, to) in [(a, b), (b, a)] {
        assert_eq!(send(&mut world, from, to, 60), 60);
        assert!(status(&world, from, to).reads_full);
    }
    assert!(status(&world, a, b).session.unwrap().rekeys > 5);
    assert_eq!(world.host(a).lane.counters().drops[DropReason::NoFullFrames], 0);
}

#[test]
fn an_older_node_gets_none_and_the_sender_gets_an_error() {
    let mut world = World::new(2);
    let a = world.add_host(Config::default());
    let old = Config {
        reads_full: false,
        ..Config::default()
    };
    let b = world.add_host(old);
    world.add_peer(a, b, true);
    world.add_peer(b, a, true);
    tell(&mut world, a, &[b]);
    tell(&mut world, b, &[a]);
    world.run(2_000);
    world.send(a, b, 0, 500);
    world.run(5_000);
    assert!(matches!(status(&world, a, b).frames, Frames::Fast(_)));
    assert!(!status(&world, a, b).reads_full && status(&world, b, a).reads_full);
    assert_eq!(send(&mut world, a, b, 5), 0);
    let counters = *world.host(a).lane.counters();
    assert_eq!(
        (
            counters.drops[DropReason::NoFullFrames],
            counters.icmp_sent,
            counters.full_tx
        ),
        (5, 5, 0)
    );
    assert_eq!(world.host(b).lane.counters().drops[DropReason::Malformed], 0);
    // Other packets to it arrive, and its own are read.
    let before = world.host(b).received.len();
    world.send(a, b, 1, 500);
    assert_eq!(send(&mut world, b, a, 5), 5);
    assert_eq!(world.host(b).received.len(), before + 1);
}

#[test]
fn they_pass_through_others_as_soon_as_fast_frames_do() {
    let mut world = World::new(3);
    let host = |world: &mut World| {
        world.add_host(Config {
            mesh: true,
            ..Config::default()
        })
    };
    let (a, b, c) = (host(&mut world), host(&mut world), host(&mut world));
    for end in [a, b] {
        world.add_peer(end, c, true);
    }
    world.add_peer(a, b, false);
    world.add_peer(b, a, false);
    tell(&mut world, a, &[b]);
    tell(&mut world, b, &[a]);
    world.run(20_000);
    world.send(a, b, 0, 500);
    world.run(10_000);
    assert!(matches!(status(&world, a, b).frames, Frames::Relayed(_)));
    assert_eq!(send(&mut world, a, b, 10), 10);
    assert_eq!(send(&mut world, b, a, 10), 10);
    assert_eq!(world.host(c).lane.counters().full_rx, 0);
    assert!(world.host(c).lane.counters().relayed >= 20);
}
