//! The memory cost of idle peers: the heap of one node with many peers, its packet path and its
//! core together.
//!
//! In a binary of its own, with one test, because it measures the heap of the whole process.

#![allow(clippy::unwrap_used, reason = "a test ends where its ground is missing")]

use std::mem;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use weft_contract::LaneConfig;
use weft_core::{Config, Frames, Node};
use weft_os::process::heap_in_use;
use weft_os::test_support::skip;
use weft_packet::Lane;
use weft_sim::{HostId, World};

/// Maximum memory of an idle peer with one lane, bytes.
const BUDGET: u64 = 16 * 1_024;
/// Maximum additional memory of each further lane, with its keys, paths and counters, bytes.
const BUDGET_OF_A_LANE: u64 = 5 * 1_024;
/// The node in the middle; the others are linked with it alone.
const HUB: HostId = 0;
const LANES: [u8; 4] = [1, 2, 4, 8];
/// Two sizes, so that the fixed cost of a node cancels out. Chunks that the allocator keeps for the next
/// request count as in use: the difference is large enough that they hardly do.
const PEERS: [usize; 2] = [100, 400];

/// The state in which peers are idle.
#[derive(Clone, Copy, Debug)]
enum Idle {
    /// They have just exchanged packets: a session with fast keys, and the path MTU is known.
    InSession,
    /// They exchange packets once a minute, and keys of links and sessions have just been replaced:
    /// many of the old ones still drain.
    Rekeyed,
    /// They have exchanged no packets for minutes, and only the link exists, under its second keys.
    Linked,
}

/// A hub with linked peers in this state; all have this many lanes.
fn star(peers: usize, lanes: u8, idle: Idle) -> World {
    let config = Config {
        mesh: true,
        lanes,
        ..Config::default()
    };
    let mut world = World::new(7);
    world.check_every = 1_000;
    world.add_host(config);
    for _ in 0..peers {
        let peer = world.add_host(config);
        world.add_peer(peer, HUB, false);
        world.add_peer(HUB, peer, true);
    }
    world.run(3_000);
    speak(&mut world, peers);
    match idle {
        Idle::InSession => world.run(5_000),
        Idle::Rekeyed => {
            for _ in 0..2 {
                world.run(60_000);
                speak(&mut world, peers);
            }
            world.run(5_000);
        }
        Idle::Linked => world.run(240_000),
    }
    world
}

fn speak(world: &mut World, peers: usize) {
    for peer in 1..=peers {
        world.send(HUB, peer, 0, 200);
    }
}

/// The heap of the hub's lanes and of its core in bytes.
fn weigh(mut world: World) -> [u64; 2] {
    let heap = || heap_in_use().unwrap();
    let hub = world.host_mut(HUB);
    let lane = Lane::new(LaneConfig {
        me: hub.node_addr(),
        mtu: 1_280,
        probe: true,
        transit: true,
        handshakes: weft_contract::HandshakeLimits::default(),
    });
    let node = Node::new(
        Config::default(),
        hub.identity(),
        Box::new(ChaCha20Rng::seed_from_u64(0)),
    );
    let before = heap();
    drop(mem::replace(&mut hub.lane, lane));
    drop(mem::take(&mut hub.others));
    let between = heap();
    drop(mem::replace(&mut hub.node, node));
    [before - between, between - heap()]
}

fn check_state(world: &World, peers: usize, idle: Idle) {
    let now = world.now();
    let status: Vec<_> = world.host(HUB).node.peer_status(now).collect();
    assert!(status.iter().all(|peer| peer.link.is_some()), "{idle:?}");
    let fast = status.iter().filter(|peer| matches!(peer.frames, Frames::Fast(_)));
    let expected = if matches!(idle, Idle::Linked) { 0 } else { peers };
    assert_eq!(fast.count(), expected, "{idle:?}");
    let sized = status
        .iter()
        .filter(|peer| peer.path_size.is_some_and(|size| !size.searching));
    assert!(sized.count() >= expected, "{idle:?}");
}

#[test]
fn an_idle_peer_stays_within_its_budget() {
    if heap_in_use().is_none() {
        // No other interface here reports what C code has allocated, which includes the ciphers.
        return skip("the C library does not report what is in use of its heap");
    }
    let states = [Idle::InSession, Idle::Rekeyed, Idle::Linked];
    for (lanes, idle) in LANES.into_iter().flat_map(|lanes| states.map(|idle| (lanes, idle))) {
        let [few, many] = PEERS.map(|peers| {
            let world = star(peers, lanes, idle);
            check_state(&world, peers, idle);
            weigh(world)
        });
        let more = (PEERS[1] - PEERS[0]) as u64;
        let [lane, core] = [0, 1].map(|part| (many[part] - few[part]) / more);
        println!("{lanes} lanes, {idle:?}: {lane} bytes in the lanes, {core} in the core");
        let budget = BUDGET + u64::from(lanes - 1) * BUDGET_OF_A_LANE;
        assert!(
            lane + core <= budget,
            "{lanes} lanes, {idle:?}: {lane} + {core} bytes for a peer"
        );
        // Less than the size of the keys alone would mean that nothing was measured.
        let least = 1_000 * u64::from(lanes) + 500;
        assert!(lane > least && core > 1_500, "{lanes} lanes, {idle:?}: {lane} + {core}");
    }
}
