//! The path MTU of direct paths between weft nodes: found by probes, and found again when it
//! changes.

use weft_core::{Config, SizeSource};
use weft_packet::DropReason;
use weft_sim::{Conditions, HostId, World};

use crate::common::sizes::{CEILING, SURE, black_holes, found, narrow, size, status, stream, until_one_arrives};

/// The IP packet that fits in the largest frame.
const LARGE: usize = 1_470;

/// Two nodes whose path has this MTU, with their session up.
fn pair(seed: u64, mtu: u16) -> (World, HostId, HostId) {
    let (mut world, a, b) = World::pair(seed, Config::default());
    world.conditions = narrow(mtu);
    world.send(a, b, 0, 100);
    world.run(8_000);
    (world, a, b)
}

#[test]
fn sizes_rise_by_themselves_to_what_the_path_takes() {
    for (mtu, payload) in [
        (u16::MAX, CEILING),
        (1_472, CEILING),
        (1_372, 1_372),
        (1_300, 1_292),
        (1_240, SURE),
    ] {
        let (mut world, a, b) = pair(1, mtu);
        assert_eq!(size(&world, a, b), found(payload), "{mtu}");
        assert_eq!(size(&world, b, a), found(payload), "{mtu}");
        let counters = world.host(a).lane.counters();
        let before = (counters.fast_tx, counters.fast_fragmented);
        let fits = usize::from(payload) - 2;
        assert_eq!(stream(&mut world, a, b, 50, fits), 50, "{mtu}");
        let counters = world.host(a).lane.counters();
        assert_eq!(
            (counters.fast_tx - before.0, counters.fast_fragmented),
            (50, before.1),
            "{mtu}: whole"
        );
        assert_eq!(black_holes(&world, a), 0);
    }
}

#[test]
fn a_session_that_wakes_up_has_the_size_of_before() {
    let (mut world, a, b) = pair(4, u16::MAX);
    let sleeps = |world: &mut World| {
        world.run(200_000);
        assert_eq!(status(world, a, b).session, None, "it is asleep");
    };
    sleeps(&mut world);
    let probes = |world: &World| [a, b].map(|host| world.host(host).node.counters().path_probes);
    let before = probes(&world);
    world.send(a, b, 0, 100);
    world.run(5_000);
    for (host, peer) in [(a, b), (b, a)] {
        assert_eq!(size(&world, host, peer), found(CEILING));
    }
    assert_eq!(probes(&world), before, "nothing is probed again");

    // The path takes less when it wakes up.
    sleeps(&mut world);
    world.conditions = narrow(1_372);
    let lost = until_one_arrives(&mut world, a, b, LARGE);
    assert!(lost < 3_000, "{lost} ms");
    assert_eq!((black_holes(&world, a), size(&world, a, b)), (1, found(1_372)));
}

#[test]
fn loss_does_not_look_like_a_smaller_path() {
    for seed in 0..5 {
        let (mut world, a, b) = pair(seed, u16::MAX);
        world.conditions.loss = 50;
        stream(&mut world, a, b, 6_000, LARGE);
        assert_eq!(black_holes(&world, a), 0, "seed {seed}");
        assert_eq!(size(&world, a, b).payload, CEILING, "seed {seed}");
    }
}

#[test]
fn packets_too_large_for_a_path_shrink_within_seconds() {
    let (mut world, a, b) = pair(3, u16::MAX);
    assert_eq!(stream(&mut world, a, b, 200, LARGE), 200);
    world.conditions = narrow(1_372);
    // Ten seconds of packets, of which those of at most two and a half were lost: later ones are
    // sent in pieces.
    let lost = until_one_arrives(&mut world, a, b, LARGE);
    assert!(lost < 3_000, "{lost} ms");
    assert_eq!(black_holes(&world, a), 1);
    assert_eq!(size(&world, a, b), found(1_372));
    let arrived = stream(&mut world, a, b, 100, 1_370);
    assert_eq!(arrived, 100);
    // A sender that continues with larger packets gets an error.
    let told = world.host(a).lane.counters().drops[DropReason::TooBig];
    stream(&mut world, a, b, 10, LARGE);
    assert_eq!(world.host(a).lane.counters().drops[DropReason::TooBig], told + 10);
}

#[test]
fn a_path_that_grows_is_noticed_while_it_is_used() {
    let (mut world, a, b) = pair(4, 1_372);
    world.conditions = narrow(u16::MAX);
    stream(&mut world, a, b, 31_000, 500);
    assert_eq!(size(&world, a, b), found(CEILING));
}

#[test]
fn packets_of_1280_bytes_always_pass() {
    let (mut world, a, b) = pair(5, SURE);
    assert_eq!(size(&world, a, b), found(SURE));
    for len in [1_230, 1_231, 1_279, 1_280] {
        assert_eq!(stream(&mut world, a, b, 40, len), 40, "{len}");
    }
    let (here, there) = (world.host(a).lane.counters(), world.host(b).lane.counters());
    assert_eq!((here.fast_fragmented, there.fast_reassembled), (120, 120));
    assert_eq!(stream(&mut world, a, b, 5, 1_281), 0);
    assert_eq!(world.host(a).lane.counters().drops[DropReason::TooBig], 5);
    // Packets that lose some of their pieces do no harm, in any order.
    world.conditions = Conditions {
        loss: 200,
        jitter: 60,
        duplicate: 100,
        ..narrow(SURE)
    };
    let arrived = stream(&mut world, a, b, 500, 1_280);
    assert!((250..400).contains(&arrived), "{arrived}");
}

#[test]
fn nothing_is_too_big_before_that_is_known() {
    let (mut world, a, b) = World::pair(6, Config::default());
    world.conditions = narrow(1_300);
    world.send(a, b, 0, 100);
    world.run(300);
    // These coincide with the search, which takes about a second on this path.
    assert!(size(&world, a, b).searching);
    let (mut sent, before) = (0, world.host(b).received.len());
    while size(&world, a, b).searching {
        world.send(a, b, sent, LARGE);
        world.run(20);
        sent += 1;
    }
    world.run(100);
    assert_eq!(world.host(b).received.len() - before, sent as usize);
    let counters = world.host(a).lane.counters();
    assert_eq!(
        (counters.drops[DropReason::TooBig], counters.fast_fragmented),
        (0, sent.into())
    );
    assert!(sent > 10, "{sent}");
    // After a pause, sessions begin in FIPS frames. Packets that fit in none wait until fast frames
    // are available, which have the size of before.
    world.run(120_000);
    assert_eq!(status(&world, a, b).path_size, None);
    let before = world.host(a).lane.counters().queued;
    assert_eq!(stream(&mut world, a, b, 10, 1_290), 10);
    assert_eq!(world.host(a).lane.counters().drops[DropReason::TooBig], 0);
    assert!(world.host(a).lane.counters().queued > before);
    assert_eq!(stream(&mut world, a, b, 10, LARGE), 0);
    assert_eq!(
        world.host(a).lane.counters().drops[DropReason::TooBig],
        10,
        "known since then"
    );
}

#[test]
fn another_path_is_another_size() {
    let (mut world, a, b) = pair(7, 1_472);
    assert_eq!(size(&world, a, b), found(CEILING));
    world.conditions = narrow(1_332);
    world.move_host(b, "198.51.100.9:2121".parse().unwrap());
    // The peer shows that it is at its new address, and the old one is silent. Frames to the new
    // one are no larger than the minimum.
    world.send(b, a, 0, 100);
    world.run(100);
    assert_eq!(size(&world, a, b).payload, SURE);
    assert_eq!(stream(&mut world, a, b, 50, 1_230), 50);
    world.run(5_000);
    assert_eq!(size(&world, a, b), found(1_332));
    assert_eq!(black_holes(&world, a), 0);
}

#[test]
fn a_set_size_stays_and_is_not_probed() {
    let set = Config {
        mtu: 1_400,
        probe: false,
        ..Config::default()
    };
    let (mut world, a, b) = World::pair(8, set);
    assert_eq!(stream(&mut world, a, b, 100, 1_200), 100);
    let size = size(&world, a, b);
    assert_eq!((size.payload, size.source), (1_400, SizeSource::Set));
    assert_eq!(world.host(a).node.counters().path_probes, 0);
}
