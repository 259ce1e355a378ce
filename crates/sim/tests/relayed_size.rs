//! The path MTU of relayed paths: the ends find what each link takes, also links that no relay
//! says anything about.

use weft_core::{Config, Frames, KnownSize};
use weft_packet::DropReason;
use weft_sim::{HostId, World};
use weft_wire::fast::IPV6_RELAYED_OVERHEAD;

use crate::common::sizes::{CEILING, SURE, black_holes, found, narrow, size, status, stream, until_one_arrives};

/// The difference between a relayed frame and the IP packet in it.
const OVERHEAD: usize = IPV6_RELAYED_OVERHEAD;
/// The IP packet that fits in the largest frame.
const LARGE: usize = CEILING as usize - OVERHEAD;

fn meshed() -> Config {
    Config {
        mesh: true,
        ..Config::default()
    }
}

/// A chain of hosts. The first and the last one know each other and have a session through the
/// others.
fn chain(seed: u64, hosts: usize) -> (World, Vec<HostId>) {
    let mut world = World::new(seed);
    let hosts: Vec<HostId> = (0..hosts).map(|_| world.add_host(meshed())).collect();
    for pair in hosts.windows(2) {
        world.add_peer(pair[0], pair[1], true);
    }
    let (a, b) = (hosts[0], hosts[hosts.len() - 1]);
    world.add_peer(a, b, false);
    world.add_peer(b, a, false);
    world.run(20_000);
    (world, hosts)
}

/// The size of relayed frames.
fn relayed_size(world: &World, of: HostId, peer: HostId) -> KnownSize {
    let frames = status(world, of, peer).frames;
    assert!(matches!(frames, Frames::Relayed(_)), "{frames:?}");
    size(world, of, peer)
}

/// The second of three links takes less than the first, and no relay says so: the relay does not know.
#[test]
fn the_ends_find_what_the_links_behind_the_first_relay_take() {
    for (mtu, payload) in [(u16::MAX, CEILING), (1_400, 1_392), (1_300, 1_292), (1_240, SURE)] {
        let (mut world, hosts) = chain(1, 4);
        let (a, b) = (hosts[0], hosts[3]);
        world.set_link(hosts[1], hosts[2], Some(narrow(mtu)));
        stream(&mut world, a, b, 200, 100);
        assert_eq!(relayed_size(&world, a, b), found(payload), "{mtu}");
        assert_eq!(relayed_size(&world, b, a), found(payload), "{mtu}");
        let before = world.host(a).lane.counters().fast_fragmented;
        assert_eq!(
            stream(&mut world, a, b, 50, usize::from(payload) - OVERHEAD),
            50,
            "{mtu}"
        );
        assert_eq!(world.host(a).lane.counters().fast_fragmented, before, "{mtu}: whole");
        assert_eq!(black_holes(&world, a), 0);
    }
}

#[test]
fn packets_too_large_behind_the_relay_shrink_within_seconds() {
    let (mut world, hosts) = chain(2, 4);
    let (a, b) = (hosts[0], hosts[3]);
    stream(&mut world, a, b, 200, 100);
    assert_eq!(stream(&mut world, a, b, 200, LARGE), 200);
    world.set_link(hosts[2], b, Some(narrow(1_372)));
    let lost = until_one_arrives(&mut world, a, b, LARGE);
    assert!(lost < 3_000, "{lost} ms");
    assert_eq!(black_holes(&world, a), 1);
    assert_eq!(relayed_size(&world, a, b), found(1_372));
    assert_eq!(stream(&mut world, a, b, 100, 1_372 - OVERHEAD), 100);
    // A sender that continues with larger packets gets an error.
    let told = world.host(a).lane.counters().drops[DropReason::TooBig];
    stream(&mut world, a, b, 10, LARGE);
    assert_eq!(world.host(a).lane.counters().drops[DropReason::TooBig], told + 10);
}

#[test]
fn a_relayed_path_that_grows_is_noticed_while_it_is_used() {
    let (mut world, hosts) = chain(3, 3);
    let (a, b) = (hosts[0], hosts[2]);
    world.set_link(hosts[1], b, Some(narrow(1_372)));
    stream(&mut world, a, b, 200, 100);
    assert_eq!(relayed_size(&world, a, b), found(1_372));
    world.set_link(hosts[1], b, Some(narrow(u16::MAX)));
    stream(&mut world, a, b, 31_000, 500);
    assert_eq!(relayed_size(&world, a, b), found(CEILING));
}

#[test]
fn loss_behind_a_relay_does_not_look_like_a_smaller_path() {
    for seed in 0..3 {
        let (mut world, hosts) = chain(seed, 4);
        let (a, b) = (hosts[0], hosts[3]);
        stream(&mut world, a, b, 200, 100);
        world.conditions.loss = 20;
        stream(&mut world, a, b, 6_000, LARGE);
        assert_eq!(black_holes(&world, a), 0, "seed {seed}");
        assert_eq!(relayed_size(&world, a, b).payload, CEILING, "seed {seed}");
    }
}

/// A relay whose size is set forwards no larger frames, and says so.
#[test]
fn a_set_size_of_a_relay_bounds_the_search() {
    let mut world = World::new(4);
    let set = Config {
        mtu: 1_300,
        probe: false,
        ..meshed()
    };
    let hosts: Vec<HostId> = [meshed(), set, meshed()]
        .into_iter()
        .map(|config| world.add_host(config))
        .collect();
    let (a, b) = (hosts[0], hosts[2]);
    world.add_peer(a, hosts[1], true);
    world.add_peer(b, hosts[1], true);
    world.add_peer(a, b, false);
    world.add_peer(b, a, false);
    world.run(20_000);
    stream(&mut world, a, b, 200, 100);
    assert_eq!(relayed_size(&world, a, b), found(1_300));
    assert_eq!(stream(&mut world, a, b, 50, 1_300 - OVERHEAD), 50);
}
