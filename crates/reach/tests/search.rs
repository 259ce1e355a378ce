//! NATs whose mappings depend on the endpoint: ports that are predicted, and ports that are searched
//! for, by nodes that a third one has seen.
#![allow(clippy::unwrap_used, reason = "a test ends where its ground is missing")]

mod common;

use std::net::SocketAddr;

use common::{Faults, Filtering, Mapping, Nat, OBSERVERS, World};
use proptest::prelude::*;
use weft_reach::nat::Mapping as NatMapping;
use weft_reach::{Config, Outcome, Source};
use weft_wire::NodeAddr;

const STRICT: Filtering = Filtering::AddressAndPortDependent;

fn hard(number: u8) -> Nat {
    Nat::new(number, Mapping::AddressAndPortDependent, STRICT)
}

fn easy(number: u8) -> Nat {
    Nat::new(number, Mapping::EndpointIndependent, STRICT)
}

const FAULTS: Faults = Faults {
    delay: 40,
    jitter: 20,
    loss: 5,
    lost_messages: 0,
};

/// A node behind an easy NAT, and one behind a hard one. Returns when each found the other, after
/// `time` ms.
fn meet(seed: u64, nats: [Nat; 2], seen: bool, time: u64) -> (World, [Option<u64>; 2]) {
    let mut world = World::new(seed, FAULTS, Vec::from(nats));
    let (a, b) = (world.host(0), world.host(1));
    world.join(a, b);
    if seen {
        world.tell_seen(a, b);
    }
    let start = world.now;
    world.run(start + time);
    let found = [(a, b), (b, a)].map(|(host, other)| {
        let found = world.hosts[host].found.first().copied();
        // The other node may have found another of its sockets first, and closed this one. The link
        // comes from that node's handshake then.
        if let Some((_, _, at)) = found.filter(|_| world.hosts[other].adopted.is_none()) {
            assert!(world.leads(host, at, other), "{at} leads elsewhere");
        }
        found.map(|(at, ..)| at - start)
    });
    (world, found)
}

/// Probes that a host sent, acks left out.
fn probes(world: &World, host: usize, from: u64) -> usize {
    let probes = world.hosts[host].probes.iter();
    probes.filter(|(at, _, ack)| !ack && *at >= from).count()
}

#[test]
fn ports_in_equal_steps_are_predicted() {
    for step in [1, 2, 7] {
        let (_, found) = meet(1, [easy(1), hard(2).in_steps(step)], false, 5_000);
        assert!(found.iter().all(Option::is_some), "step {step}: {found:?}");
        let (_, found) = meet(1, [hard(1).in_steps(step), easy(2)], false, 5_000);
        assert!(found.iter().all(Option::is_some), "step {step}: {found:?}");
    }
}

/// 2,048 of 64,512 ports, of which 256 are open: one run in 3,000 finds none, and none of these.
#[test]
fn random_ports_are_searched_for() {
    let mut times = Vec::new();
    for seed in 0..40 {
        let nats = match seed % 4 {
            0 => [easy(1), hard(2).seeded(seed)],
            1 => [hard(1).seeded(seed), easy(2)],
            2 => [Nat::new(1, Mapping::None, STRICT), hard(2).seeded(seed)],
            _ => [hard(1).seeded(seed), Nat::new(2, Mapping::None, STRICT)],
        };
        let (world, found) = meet(seed, nats, true, 30_000);
        assert!(found.iter().all(Option::is_some), "seed {seed}: {found:?}");
        for host in 0..2 {
            assert!(probes(&world, host, 0) <= 2_048 + 200);
            assert_eq!(world.hosts[host].sockets, 0, "closed but for one");
        }
        times.extend(found.into_iter().flatten());
    }
    times.sort_unstable();
    assert!(times[0] >= 600, "ordinary probes go first");
    assert!(times[times.len() / 2] < 4_000, "{times:?}");
}

#[test]
fn without_the_word_of_another_node_nothing_is_searched_for() {
    let (world, found) = meet(1, [easy(1), hard(2)], false, 40_000);
    assert_eq!(found, [None; 2]);
    for host in 0..2 {
        assert!(world.hosts[host].searches.is_empty());
        assert!(probes(&world, host, 0) < 200);
    }
}

/// What a node asks others for comes before the search, or starts it when it comes late.
#[test]
fn the_word_of_another_node_is_asked_for_when_a_search_needs_it() {
    let mut found = 0;
    for (seed, delay) in [(1, 40), (2, 40), (3, 1_500), (4, 1_500)] {
        let mut world = World::new(seed, Faults { delay, ..FAULTS }, vec![easy(1), hard(2).seeded(seed)]);
        world.answers = true;
        let (a, b) = (world.host(0), world.host(1));
        let outer = [0, 1].map(|nat| world.nats[nat].outer());
        world.join(a, b);
        world.run(world.now + 40_000);
        for (host, of) in [(a, outer[1]), (b, outer[0])] {
            let asked = &world.hosts[host].asked;
            assert!(!asked.is_empty() && asked.len() <= 4, "{asked:?}");
            assert!(asked.iter().all(|(_, at)| at.ip() == of), "{asked:?}");
        }
        assert_eq!(world.hosts[b].searches.len(), 1);
        found += usize::from(!world.hosts[b].found.is_empty());
    }
    assert!(found >= 3, "{found} of 4");
}

/// A node that learns only in the course of an attempt that its NAT maps every destination anew.
#[test]
fn a_search_begins_once_the_nats_are_known() {
    let mut world = World::new(1, FAULTS, vec![easy(1), hard(2)]);
    world.answers = true;
    let (a, b) = (world.host(0), world.host(1));
    let observer = |by: u8| NodeAddr::new([by; 16]);
    let now = world.now;
    let all = [(0xf0, OBSERVERS[0]), (0xf1, OBSERVERS[1])];
    for (by, _) in all {
        world.hosts[b].reach.forget_observer(now, observer(by));
    }
    world.join(a, b);
    world.run(now + 3_000);
    assert!(world.hosts.iter().all(|host| host.asked.is_empty()));
    let (inner, now) = (world.hosts[b].at, world.now);
    for (by, at) in all {
        let seen = world.nats[1].outbound(now, inner, SocketAddr::from(at));
        world.hosts[b].reach.handle_observed(now, observer(by), seen);
    }
    world.run(now + 1_000);
    assert_eq!(world.hosts[b].searches.len(), 1);
    for host in [a, b] {
        assert!((1..=4).contains(&world.hosts[host].asked.len()));
        assert!(probes(&world, host, now) > 50, "host {host}");
    }
}

/// One observer sees a node at another port than its own: its NAT probably draws ports.
#[test]
fn one_observer_is_enough_for_a_search() {
    for seed in 0..8 {
        let firewall = Nat::new(1, Mapping::None, STRICT);
        let mut world = World::new(seed, FAULTS, vec![firewall, hard(2).seeded(seed)]);
        world.answers = true;
        let (a, b) = (world.host(0), world.host(1));
        for host in [a, b] {
            let now = world.now;
            world.hosts[host].reach.forget_observer(now, NodeAddr::new([0xf1; 16]));
            let v4 = world.hosts[host].reach.mappings().v4;
            assert_eq!(v4 == NatMapping::Unknown, host == b);
        }
        world.join(a, b);
        world.run(world.now + 30_000);
        assert!(
            [a, b].iter().all(|host| !world.hosts[*host].found.is_empty()),
            "seed {seed}"
        );
    }
}

/// The kind of NAT becomes known after the attempt has failed: another one begins at once.
#[test]
fn a_failed_attempt_is_repeated_once_the_nats_are_known() {
    let mut world = World::new(1, FAULTS, vec![easy(1), hard(2)]);
    world.answers = true;
    let (a, b) = (world.host(0), world.host(1));
    let now = world.now;
    world.hosts[b].reach.forget_observer(now, NodeAddr::new([0xf0; 16]));
    world.hosts[b].reach.forget_observer(now, NodeAddr::new([0xf1; 16]));
    world.join(a, b);
    world.run(now + 15_000);
    let at = world.hosts[b].reach.history(world.hosts[a].addr).last().cloned();
    assert!(at.is_some_and(|record| record.end.is_some()), "it has failed");
    let (inner, now) = (world.hosts[b].at, world.now);
    for (by, at) in [(0xf0, OBSERVERS[0]), (0xf1, OBSERVERS[1])] {
        let seen = world.nats[1].outbound(now, inner, SocketAddr::from(at));
        world.hosts[b].reach.handle_observed(now, NodeAddr::new([by; 16]), seen);
    }
    world.run(now + 2_000);
    assert_eq!(world.hosts[b].searches.len(), 1);
}

#[test]
fn where_nothing_is_to_be_searched_for_no_node_is_asked() {
    for nats in [[hard(1), hard(2)], [easy(1), easy(2)]] {
        let mut world = World::new(1, FAULTS, Vec::from(nats));
        world.answers = true;
        let (a, b) = (world.host(0), world.host(1));
        world.join(a, b);
        world.run(world.now + 40_000);
        assert!(world.hosts.iter().all(|host| host.asked.is_empty()));
    }
}

#[test]
fn two_hard_nats_and_two_easy_ones_have_nothing_to_search_for() {
    let (world, found) = meet(1, [hard(1), hard(2)], true, 40_000);
    assert_eq!(found, [None; 2]);
    assert!((0..2).all(|host| world.hosts[host].searches.is_empty() && probes(&world, host, 0) < 200));
    let (_, found) = meet(1, [easy(1), easy(2)], true, 5_000);
    assert!(found.iter().all(Option::is_some));
}

/// A host that can open few sockets searches with these; with none, the search ends.
#[test]
fn fewer_sockets_find_less() {
    for (sockets, least) in [(64, 1), (1, 0), (0, 0)] {
        let mut found = 0;
        for seed in 0..8 {
            let mut world = World::new(seed, FAULTS, vec![easy(1), hard(2).seeded(seed)]);
            world.sockets = sockets;
            let (a, b) = (world.host(0), world.host(1));
            world.join(a, b);
            world.tell_seen(a, b);
            world.run(world.now + 40_000);
            found += world.hosts[b].found.len();
            assert_eq!(world.hosts[b].sockets, 0);
            assert_eq!(world.hosts[b].searches.len(), 1);
        }
        assert!(found >= least, "{found} of 8 with {sockets}");
    }
}

/// The peer sees nothing but silence: one search in ten minutes, of at most 2,048 probes each.
#[test]
fn a_search_has_a_budget_and_comes_once_in_ten_minutes() {
    for hard_first in [true, false] {
        let nats = if hard_first {
            vec![hard(1), easy(2)]
        } else {
            vec![easy(1), hard(2)]
        };
        let mut world = World::new(1, FAULTS, nats);
        let (a, b) = (world.host(0), world.host(1));
        // All probes of both are lost.
        world.faults.loss = 100;
        world.join(a, b);
        for minute in 0..40 {
            world.tell_seen(a, b);
            world.run(world.now + 60_000);
            // Its own peer begins attempts as often as it may.
            let now = world.now;
            world.hosts[b].reach.handle_network_change(now);
            if minute == 20 {
                world.hosts[a].reach.handle_network_change(now);
            }
        }
        let sent = &world.hosts[a].probes;
        let outer = world.nats[1].outer();
        let mut by_minute = vec![0; 42];
        for (at, to, _) in sent.iter().filter(|(_, to, _)| to.ip() == outer) {
            assert_eq!(to.ip(), outer);
            by_minute[(*at / 60_000) as usize] += 1;
        }
        // Ordinary attempts have 78 probes to an address at most, and 8 KiB in an hour.
        let searches = by_minute.iter().filter(|probes| **probes > 200).count();
        assert!((1..=5).contains(&searches), "{by_minute:?}");
        assert!(
            by_minute.iter().all(|probes| *probes <= 2_048 + 6 * 78),
            "{by_minute:?}"
        );
        let lately = |from: usize| by_minute[from..from + 10].iter().sum::<usize>();
        assert!((0..30).all(|from| lately(from) <= 2 * (2_048 + 160)), "{by_minute:?}");
    }
}

/// While ports are searched for, another attempt has the pace that it has alone.
#[test]
fn a_search_disturbs_no_other_peer() {
    let mut world = World::new(1, FAULTS, vec![easy(1), hard(2), easy(3)]);
    let [a, b, c] = [0, 1, 2].map(|nat| world.host(nat));
    world.join(a, b);
    world.tell_seen(a, b);
    world.run(world.now + 700);
    world.faults.loss = 0;
    let start = world.now;
    world.join(a, c);
    world.run(start + 1_000);
    let peer = world.hosts[c].addr;
    let found = world.hosts[a].found.iter().find(|found| found.1 == peer);
    assert!(found.is_some_and(|found| found.0 - start <= 400), "{found:?}");
}

/// A peer that becomes direct in another way ends the search, and a node does without if it is told.
#[test]
fn a_search_ends_with_its_attempt() {
    let mut world = World::new(1, FAULTS, vec![easy(1), hard(2)]);
    let (a, b) = (world.host(0), world.host(1));
    world.faults.loss = 100;
    world.join(a, b);
    world.tell_seen(a, b);
    world.run(world.now + 1_600);
    assert!(world.hosts[b].sockets == 256 && probes(&world, b, 1_600) > 50);
    let (now, peer) = (world.now, world.hosts[a].addr);
    let at = world.hosts[a].at;
    let tried = world.hosts[b].reach.history(peer).pop().unwrap().tried;
    let searched = tried.iter().find(|tried| tried.source == Source::Searched).unwrap();
    assert_eq!(searched.outcome, Outcome::Probing);
    world.hosts[b]
        .reach
        .set_peer(now, peer, weft_reach::Standing::Direct(at));
    world.collect();
    assert_eq!(world.hosts[b].sockets, 0);
    let before = probes(&world, b, 0);
    world.run(world.now + 5_000);
    assert_eq!(probes(&world, b, 0), before);
    assert!(Config::default().search && Config::default().sockets == 256);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    /// Whatever is lost or late: what is found leads to the peer, sockets are closed, and no second
    /// has more than 150 probes.
    #[test]
    fn any_faults(seed: u64, loss in 0u32..60, delay in 0u64..300, jitter in 0u64..300, hard_first: bool) {
        let mut nats = [easy(1), hard(2).seeded(seed)];
        if hard_first {
            nats.swap(0, 1);
        }
        let mut world = World::new(seed, Faults { delay, jitter, loss, lost_messages: 0 }, Vec::from(nats));
        let (a, b) = (world.host(0), world.host(1));
        world.join(a, b);
        world.tell_seen(a, b);
        world.run(world.now + 60_000);
        for host in [a, b] {
            prop_assert_eq!(world.hosts[host].sockets, 0);
            let times: Vec<u64> = world.hosts[host].probes.iter().filter(|probe| !probe.2).map(|probe| probe.0).collect();
            prop_assert!(times.windows(151).all(|window| window[150] - window[0] >= 1_000));
        }
    }
}
