//! The network of a node behind a NAT box changes, or the node sleeps, while packets pass: how long
//! the other end, behind a box of its own, hears nothing of it.

use weft_core::Config;
use weft_sim::{Conditions, HostId, NatKind, World};

use crate::common::reaching::Net;

const SEEDS: u64 = 20;
const PAIR: (HostId, HostId) = (0, 1);
const RELAY: HostId = 2;
/// Between two packets of each end, ms.
const PACE: u64 = 50;
/// The longest silence, ms.
const MOST: u64 = 2_000;
/// Until a change is over, ms.
const AFTER: u64 = 15_000;
const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;

/// Two nodes behind boxes that filter by port, with a direct path, and a public neighbour of both.
fn direct(seed: u64) -> Net {
    let mut world = World::new(seed);
    world.check_every = 500;
    world.conditions = Conditions {
        delay: 5 + 2 * seed,
        ..Conditions::default()
    };
    let config = Config {
        mesh: true,
        ..Config::default()
    };
    for _ in 0..3 {
        world.add_host(config);
    }
    for end in [PAIR.0, PAIR.1] {
        world.put_behind(end, NatKind::PortRestricted);
        world.add_peer(end, RELAY, true);
        world.add_peer(RELAY, end, false);
    }
    world.add_peer(PAIR.0, PAIR.1, false);
    world.add_peer(PAIR.1, PAIR.0, false);
    let mut net = Net::new(seed, world);
    net.run(5 * SECOND);
    talk(&mut net, 10 * SECOND);
    assert!(net.is_direct(PAIR), "seed {seed}");
    net
}

/// Lets packets pass in both directions. Returns the longest time in which an end received nothing.
fn talk(net: &mut Net, ms: u64) -> u64 {
    let start = net.world.now();
    let heard = [PAIR.0, PAIR.1].map(|id| net.world.host(id).received.len());
    for seq in 0..(ms / PACE) as u32 {
        net.world.send(PAIR.0, PAIR.1, seq, 200);
        net.world.send(PAIR.1, PAIR.0, seq, 200);
        net.run(PACE);
    }
    let end = net.world.now();
    let silence = |(id, before): (HostId, usize)| {
        let times = net.world.host(id).received[before..].iter().map(|(at, _)| *at);
        let all: Vec<u64> = [start].into_iter().chain(times).chain([end]).collect();
        all.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(ms)
    };
    silence((PAIR.0, heard[0])).max(silence((PAIR.1, heard[1])))
}

/// The node learns from its system that its network has changed.
fn told(net: &mut Net) {
    let now = net.world.now();
    let addr = net.world.host(PAIR.0).addr;
    net.world.host_mut(PAIR.0).node.handle_network_change(now);
    net.searches[PAIR.0].reach.set_host(now, vec![addr]);
    net.searches[PAIR.0].reach.handle_network_change(now);
}

/// Checks that a change costs no more than the longest silence, and that the path is direct in the end.
fn costs_little(what: &str, change: impl Fn(&mut Net)) {
    let mut silences: Vec<u64> = (0..SEEDS)
        .map(|seed| {
            let mut net = direct(seed);
            change(&mut net);
            let silence = talk(&mut net, AFTER);
            assert!(net.is_direct(PAIR), "{what}, seed {seed}");
            silence
        })
        .collect();
    silences.sort_unstable();
    let (median, worst) = (silences[silences.len() / 2], silences[silences.len() - 1]);
    println!("{what}: silence {median} ms in the median, {worst} ms at worst");
    assert!(worst <= MOST, "{what}: {silences:?}");
}

#[test]
fn another_address_costs_at_most_two_seconds() {
    costs_little("another address", |net| {
        net.world.move_host(PAIR.0, "192.168.7.7:2121".parse().unwrap());
        told(net);
    });
}

#[test]
fn another_gateway_costs_at_most_two_seconds() {
    costs_little("another gateway", |net| {
        net.world.reboot_boxes(PAIR.0, true);
        told(net);
    });
}

/// The node is not told.
#[test]
fn a_nat_box_that_restarts_costs_at_most_two_seconds() {
    costs_little("a box that forgets", |net| net.world.reboot_boxes(PAIR.0, false));
    costs_little("a box with another address", |net| {
        net.world.reboot_boxes(PAIR.0, true);
    });
}

/// The silence begins when the node runs again.
#[test]
fn a_node_that_sleeps_is_back_within_two_seconds() {
    for slept in [45 * SECOND, HOUR] {
        costs_little(&format!("{} s of sleep", slept / SECOND), |net| {
            net.world.suspend(PAIR.0);
            net.run(slept);
            net.world.resume(PAIR.0);
            let now = net.world.now();
            net.world.host_mut(PAIR.0).node.handle_resumed(now);
            told(net);
        });
    }
}
