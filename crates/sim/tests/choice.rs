//! Peers with two networks between them: which one a link uses, and what a change costs.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use weft_core::{Config, Event, HintSource, Path};
use weft_sim::{Fate, World};

use crate::common::two_networks::Net;

#[test]
fn both_ends_go_to_the_local_network_whichever_of_them_knows_it() {
    for seed in 0..20 {
        for knows in [[true, true], [true, false], [false, true]] {
            let mut net = Net::new(seed, [10, 1]);
            // The link comes up in the first network.
            net.passes[1].set(false);
            net.meet(knows);
            net.talk(3_000);
            assert_eq!(net.in_second(), Some(false), "{knows:?}");
            net.passes[1].set(true);
            net.world.run(1_000);
            let silence = net.talk(100_000);
            assert_eq!(net.in_second(), Some(true), "seed {seed}, {knows:?}: {:?}", net.paths());
            assert!(silence <= 40, "{silence} ms without a packet");
            assert_eq!(net.moves(), 2, "one move at each end");
        }
    }
}

#[test]
fn a_cut_network_is_left_within_1500_ms_and_returned_to() {
    for seed in 0..20 {
        let mut net = Net::new(seed, [15, 1]);
        net.meet([true, true]);
        net.talk(10_000);
        assert_eq!(net.in_second(), Some(true), "{:?}", net.paths());
        net.passes[1].set(false);
        let silence = net.talk(10_000);
        assert!(silence <= 1_500, "seed {seed}: {silence} ms");
        assert_eq!(net.in_second(), Some(false), "{:?}", net.paths());
        net.passes[1].set(true);
        let silence = net.talk(120_000);
        assert!(silence <= 60, "seed {seed}: {silence} ms on the way back");
        assert_eq!(net.in_second(), Some(true), "{:?}", net.paths());
        assert!(net.moves() <= 8, "{} moves", net.moves());
    }
}

/// The link was in the second network when the peer restarted, and both networks change places: nothing but
/// the table of paths knows the address that works now.
#[test]
fn a_peer_that_restarts_is_dialled_where_it_has_answered() {
    for seed in 0..20 {
        let mut net = Net::new(seed, [20, 1]);
        let [a, b] = net.hosts;
        net.world.add_peer_at(a, b, vec![net.first[b], net.second[b]]);
        net.world.add_peer_at(b, a, Vec::new());
        net.talk(10_000);
        let status = |net: &Net| {
            net.world
                .host(a)
                .node
                .status_of(net.world.now(), net.world.host(b).key.node_addr())
        };
        assert_eq!(status(&net).unwrap().path, Some(Path::Direct(net.second[b])));
        net.world.add_peer_at(a, b, Vec::new());
        net.passes[1].set(false);
        net.world.kill(b);
        net.world.restart(b);
        net.world.add_peer_at(b, a, Vec::new());
        net.world.run(60_000);
        let status = status(&net).unwrap();
        assert_eq!(
            status.path,
            Some(Path::Direct(net.first[b])),
            "seed {seed}: {:?}",
            status.known_paths
        );
    }
}

#[test]
fn a_path_that_is_used_again_has_the_size_of_before() {
    let mut net = Net::new(3, [10, 1]);
    net.meet([true, true]);
    net.talk(10_000);
    assert_eq!(net.in_second(), Some(true));
    for (cut, second) in [(1, false), (0, true), (1, false)] {
        net.passes[cut].set(false);
        net.passes[1 - cut].set(true);
        net.talk(5_000);
        assert_eq!(net.in_second(), Some(second));
    }
    for host in net.hosts {
        let sized = net.world.host(host).events.iter();
        let sized = sized.filter(|(_, event)| matches!(event, Event::PathSized { .. }));
        assert_eq!(sized.count(), 2, "one search for each path");
        let status = net.world.host(host).node.peer_status(net.world.now()).next().unwrap();
        let sizes: Vec<Option<u16>> = status.known_paths.iter().map(|path| path.payload).collect();
        assert_eq!(sizes, [Some(1_472), Some(1_472)]);
    }
}

#[test]
fn a_forwarder_between_both_ends_does_not_become_the_path() {
    for seed in 0..10 {
        let (mut world, a, b) = World::pair(seed, Config::default());
        world.run(1_000);
        let ends = [a, b].map(|host| world.host(host).addr);
        // It is in the local network of both, and what it forwards arrives first.
        let forwarder: SocketAddr = "192.168.1.99:2121".parse().unwrap();
        let (heard, asked) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(0)));
        let (tap, count) = (heard.clone(), asked.clone());
        world.set_rule(move |_, d| {
            let Some(from) = ends.iter().position(|end| *end == d.src).filter(|_| d.from < 2) else {
                return Fate::Pass;
            };
            count.set(count.get() + usize::from(d.dst == forwarder));
            tap.borrow_mut().push((d.src, d.dst, ends[1 - from], d.bytes.clone()));
            Fate::Drop
        });
        for step in 0..30_000_u32 {
            if step % 20 == 0 {
                world.send(a, b, step, 300);
                world.send(b, a, step, 300);
            }
            world.run(1);
            for (src, dst, to, bytes) in heard.take() {
                world.inject(forwarder, to, bytes.clone());
                if dst == to {
                    world.inject(src, to, bytes);
                }
            }
        }
        assert!(asked.get() > 3, "it is asked");
        for host in [a, b] {
            let status = world.host(host).node.peer_status(world.now()).next().unwrap();
            assert!(
                matches!(status.path, Some(Path::Direct(at)) if ends.contains(&at)),
                "{:?}",
                status.path
            );
        }
    }
}

/// A datagram of one of the two hosts on the wire: source, destination and content.
type Heard = (SocketAddr, SocketAddr, Vec<u8>);

/// A party on the path sends copies of all frames of both ends, probes and announcements among them, before they arrive
/// and again later: from its own address, and in the name of the address of the sender in the other network, which
/// does not work. It alters others.
#[test]
fn copies_and_replays_move_no_link_that_knows_two_addresses() {
    for seed in 0..10 {
        let mut net = Net::new(seed, [15, 1]);
        net.meet([true, true]);
        net.talk(10_000);
        assert_eq!(net.in_second(), Some(true), "{:?}", net.paths());
        let (first, second) = (net.first, net.second);
        let held: Rc<RefCell<Vec<Heard>>> = Rc::default();
        let tap = held.clone();
        net.world.set_rule(move |_, d| {
            // The first network is cut, and what is in the second one waits for its copies.
            if d.from < 2 && second.contains(&d.dst) {
                tap.borrow_mut().push((d.src, d.dst, d.bytes.clone()));
            }
            if d.from < 2 { Fate::Drop } else { Fate::Pass }
        });
        let other: SocketAddr = "203.0.113.9:9".parse().unwrap();
        let (moves, before) = (net.moves(), net.hosts.map(|host| net.world.host(host).received.len()));
        let mut old: Vec<Heard> = Vec::new();
        for ms in 0..20_000_usize {
            if ms % 20 == 0 {
                net.world.send(net.hosts[0], net.hosts[1], ms as u32, 300);
                net.world.send(net.hosts[1], net.hosts[0], ms as u32, 300);
            }
            if ms == 100 {
                let now = net.world.now();
                net.hosts
                    .iter()
                    .for_each(|host| net.world.host_mut(*host).node.handle_network_change(now));
            }
            net.world.run(1);
            // For 3 s an announcement counts from any address (docs/decisions/0022-path-validation.md).
            let active = ms > 4_000;
            for (src, dst, bytes) in held.take() {
                let sender = second.iter().position(|at| *at == src).unwrap();
                let mut altered = bytes.clone();
                altered[ms % bytes.len()] ^= 1 << (ms % 8);
                for copy in [bytes.clone(), altered].into_iter().filter(|_| active) {
                    net.world.inject(other, dst, copy.clone());
                    net.world.inject(first[sender], dst, copy);
                }
                net.world.inject(src, dst, bytes.clone());
                old.push((src, dst, bytes));
            }
            if active {
                let (src, dst, bytes) = old[ms * 7 % old.len()].clone();
                let sender = second.iter().position(|at| *at == src).unwrap();
                for src in [src, other, first[sender]] {
                    net.world.inject(src, dst, bytes.clone());
                }
            }
        }
        net.world.run(100);
        let received = [0, 1].map(|host| net.world.host(net.hosts[host]).received.len() - before[host]);
        assert!(
            received.iter().all(|received| *received >= 999),
            "seed {seed}: {received:?} of 1000"
        );
        assert_eq!(
            (net.moves(), net.in_second()),
            (moves, Some(true)),
            "seed {seed}: {:?}",
            net.paths()
        );
    }
}

#[test]
fn networks_that_are_alike_are_not_changed() {
    for seed in 0..20 {
        let mut net = Net::new(seed, [10, 10]);
        net.world.conditions.jitter = 4;
        net.meet([true, true]);
        net.talk(3_000);
        let (before, moves) = (net.paths(), net.moves());
        net.talk(120_000);
        // One of the two networks is local by its addresses, so that one change may come.
        assert!(net.moves() - moves <= 2, "{before:?} {:?}", net.paths());
        assert!(net.in_second().is_some());
    }
}

/// An observer sends copies of what is as long as a probe, of one end, in the network in use, from elsewhere, and
/// wins the race. Nothing is lost or altered.
#[test]
fn copies_of_probes_alone_move_no_link() {
    for (seed, ports) in [(0, 1), (1, 1), (2, 1), (3, 50)] {
        let mut net = Net::new(seed, [15, 1]);
        net.meet([true, true]);
        net.talk(10_000);
        assert_eq!(net.in_second(), Some(true), "{:?}", net.paths());
        let second = net.second;
        let held: Rc<RefCell<Vec<Heard>>> = Rc::default();
        let tap = held.clone();
        net.world.set_rule(move |_, d| {
            if d.from == 0 && second.contains(&d.dst) && d.bytes.len() == weft_contract::PATH_PROBE_LEN {
                tap.borrow_mut().push((d.src, d.dst, d.bytes.clone()));
                return Fate::Drop;
            }
            Fate::Pass
        });
        let (mut copies, mut port) = (0, 0);
        for ms in 0..120_000_usize {
            if ms % 20 == 0 {
                net.world.send(net.hosts[0], net.hosts[1], ms as u32, 300);
                net.world.send(net.hosts[1], net.hosts[0], ms as u32, 300);
            }
            net.world.run(1);
            assert_eq!(net.in_second(), Some(true), "seed {seed}: after {copies} copies");
            for (src, dst, bytes) in held.take() {
                copies += 1;
                port = (port + 1) % ports;
                net.world
                    .inject(SocketAddr::from(([203, 0, 113, 9], 9 + port)), dst, bytes.clone());
                net.world.inject(src, dst, bytes);
            }
        }
        assert!(copies > 10, "{copies}");
    }
}

/// Any host of a LAN can repeat the announcement of another one with its own address, and forward.
#[test]
fn a_forwarder_in_the_lan_takes_no_path_of_equal_length() {
    for (seed, delays, taken) in [(31, [5, 5], false), (32, [5, 6], false), (33, [9, 2], true)] {
        let mut net = Net::new(seed, delays);
        net.meet([false, false]);
        net.world.run(1_000);
        for [host, peer] in [[0, 1], [1, 0]] {
            let (now, key, at) = (net.world.now(), net.world.host(peer).key, net.second[peer]);
            net.world.host_mut(host).node.dial(now, &key, at, HintSource::Lan);
        }
        net.talk(30_000);
        let expected = if taken { net.second } else { net.first };
        for [host, peer] in [[0, 1], [1, 0]] {
            let mut status = net.world.host(host).node.peer_status(net.world.now());
            let path = status.next().unwrap().path;
            assert_eq!(path, Some(Path::Direct(expected[peer])), "{delays:?}");
        }
    }
}
