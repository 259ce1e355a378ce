//! Relayed fast frames: labels bound from the destination, used while the path works, abandoned
//! without a loss.

use std::cell::RefCell;
use std::rc::Rc;

use weft_core::{Config, Event, Frames, Path, Standing};
use weft_noise::fast::Suite;
use weft_packet::DropReason;
use weft_sim::{Conditions, Datagram, Fate, HostId, Kind, World};
use weft_wire::NodeAddr;
use weft_wire::fast::{self, Bind};
use weft_wire::link;

use crate::common::stream;

const RELAYED: Frames = Frames::Relayed(Suite::Aes256Gcm);
const DIRECT: Frames = Frames::Fast(Suite::Aes256Gcm);

fn meshed() -> Config {
    Config {
        mesh: true,
        ..Config::default()
    }
}

/// Hosts, and the pairs that dial. The first and the last are peers without addresses of each
/// other.
fn net(seed: u64, configs: &[Config], dials: &[(usize, usize)]) -> (World, Vec<HostId>) {
    let mut world = World::new(seed);
    let hosts: Vec<HostId> = configs.iter().map(|config| world.add_host(*config)).collect();
    for (from, to) in dials {
        world.add_peer(hosts[*from], hosts[*to], true);
    }
    let ends = (hosts[0], hosts[hosts.len() - 1]);
    world.add_peer(ends.0, ends.1, false);
    world.add_peer(ends.1, ends.0, false);
    (world, hosts)
}

/// A line: each dials the next one.
fn line(seed: u64, hosts: usize) -> (World, Vec<HostId>) {
    let dials: Vec<(usize, usize)> = (1..hosts).map(|at| (at - 1, at)).collect();
    net(seed, &vec![meshed(); hosts], &dials)
}

fn frames(world: &World, host: HostId, peer: HostId) -> Frames {
    let key = world.host(peer).key;
    let mut status = world.host(host).node.peer_status(world.now());
    status.find(|peer| peer.key == key).unwrap().frames
}

fn via(world: &World, from: HostId, to: HostId) -> Option<HostId> {
    let mut status = world.host(from).node.peer_status(world.now());
    match status.find(|p| p.key == world.host(to).key).unwrap().path? {
        Path::Direct(_) => None,
        Path::Relayed(via) => (0..).find(|id| world.host(*id).key == via),
    }
}

/// Packets that were sent in relayed frames.
fn relayed(world: &World, host: HostId) -> u64 {
    world.host(host).lane.counters().relayed_tx
}

fn carried(world: &World, host: HostId) -> u64 {
    world.host(host).lane.counters().relayed
}

fn check(world: &World, hosts: &[HostId]) {
    for host in hosts {
        assert_eq!(world.host(*host).node.check_invariants(), Ok(()));
        assert_eq!(world.host(*host).lane.check_invariants(), Ok(()));
    }
}

fn counters(world: &World, host: HostId, name: &str) -> u64 {
    let counters = world.host(host).node.counters();
    counters.named().find(|(n, _)| *n == name).unwrap().1
}

#[test]
fn data_moves_to_relayed_frames_within_seconds_and_stays() {
    for hosts in [3, 4, 6] {
        for seed in 0..5 {
            let (mut world, h) = line(seed, hosts);
            let (a, b) = (h[0], h[hosts - 1]);
            world.run(5_000);
            world.send(a, b, 0, 100);
            world.run(1_000);
            assert_eq!(stream(&mut world, a, b, 200), (200, 200), "{hosts} hosts, seed {seed}");
            assert_eq!(
                (frames(&world, a, b), frames(&world, b, a)),
                (RELAYED, RELAYED),
                "{hosts} hosts, seed {seed}"
            );
            let before = (relayed(&world, a), carried(&world, h[1]));
            assert_eq!(
                stream(&mut world, a, b, 5_000),
                (5_000, 5_000),
                "{hosts} hosts, seed {seed}"
            );
            assert_eq!(relayed(&world, a) - before.0, 5_000, "{hosts} hosts, seed {seed}");
            assert!(carried(&world, h[1]) - before.1 >= 10_000);
            check(&world, &h);
        }
    }
}

/// The search for a direct path needs no fast frames, and begins before they pass.
#[test]
fn a_weft_node_is_known_as_one_before_fast_frames_pass() {
    let (mut world, h) = line(8, 3);
    let key = world.host(h[2]).key;
    world.run(5_000);
    world.send(h[0], h[2], 0, 100);
    while world.host(h[0]).node.weft_path(&key).is_none() {
        assert!(world.now() < 1_000_010_000, "no path within 5 s");
        world.run(1);
    }
    assert_eq!(frames(&world, h[0], h[2]), Frames::Fips);
    let announced = |(_, event): &(u64, Event)| *event == Event::Announced { peer: key };
    assert!(world.host(h[0]).events.iter().any(announced));
    assert_eq!(
        world.host(h[0]).node.weft_path(&key),
        Some(Path::Relayed(world.host(h[1]).key))
    );
}

/// Packets from before the session that then had to wait for its fast frames are counted once.
#[test]
fn packets_that_wait_for_relayed_fast_frames_are_counted_once() {
    let (mut world, h) = line(9, 3);
    let key = world.host(h[2]).key;
    world.host_mut(h[0]).node.require_fast(&key, true);
    world.run(5_000);
    for seq in 0..10 {
        world.send(h[0], h[2], seq, 200);
    }
    world.run(10_000);
    assert_eq!(world.host(h[2]).received.len(), 10);
    assert_eq!(frames(&world, h[0], h[2]), RELAYED);
    let counters = world.host(h[0]).lane.counters();
    assert_eq!((counters.relayed_tx, counters.fast_waited), (10, 10));
    assert_eq!((counters.queued, counters.drops[DropReason::Queue]), (10, 0));
}

/// Keys of hops and of the session are replaced all the time, and advance in between.
#[test]
fn keys_change_without_a_loss() {
    for seed in 0..5 {
        let often = Config {
            rekey: 6_000,
            phase_frames: 50,
            ..meshed()
        };
        let (mut world, h) = net(seed, &[often; 3], &[(0, 1), (2, 1)]);
        world.conditions.delay = 20;
        world.conditions.jitter = 15;
        world.run(5_000);
        world.send(h[0], h[2], 0, 100);
        world.run(5_000);
        let before = relayed(&world, h[0]);
        assert_eq!(stream(&mut world, h[0], h[2], 2_500), (2_500, 2_500), "seed {seed}");
        assert!(
            relayed(&world, h[0]) - before > 2_400,
            "seed {seed}: {}",
            relayed(&world, h[0]) - before
        );
        for host in &h {
            assert_eq!(world.host(*host).lane.counters().drops[DropReason::FastTag], 0);
        }
        check(&world, &h);
    }
}

#[test]
fn through_a_node_without_fast_frames_data_stays_in_fips_frames() {
    let old = Config {
        fast: false,
        ..meshed()
    };
    for at in [1, 2] {
        let mut configs = [meshed(); 4];
        configs[at] = old;
        let (mut world, h) = net(1, &configs, &[(0, 1), (1, 2), (2, 3)]);
        world.run(5_000);
        world.send(h[0], h[3], 0, 100);
        world.run(1_000);
        assert_eq!(stream(&mut world, h[0], h[3], 1_500), (1_500, 1_500), "at {at}");
        assert_eq!((relayed(&world, h[0]), relayed(&world, h[3])), (0, 0));
        assert!(!matches!(
            frames(&world, h[0], h[3]),
            Frames::Relayed(_) | Frames::Unproven(_)
        ));
        check(&world, &h);
    }
}

/// A and B reach each other through C or D, and the one in use is killed.
#[test]
fn a_relay_that_dies_is_replaced_as_ever() {
    for seed in 0..10 {
        let (mut world, h) = net(seed, &[meshed(); 4], &[(0, 1), (0, 2), (3, 1), (3, 2)]);
        let (a, b) = (h[0], h[3]);
        world.run(5_000);
        world.send(a, b, 0, 100);
        world.run(1_000);
        stream(&mut world, a, b, 200);
        assert_eq!(frames(&world, a, b), RELAYED, "seed {seed}");
        let dead = via(&world, a, b).unwrap();
        world.kill(dead);
        let (there, back) = stream(&mut world, a, b, 500);
        assert!(there > 400 && back > 400, "seed {seed}: {there}, {back}");
        assert_eq!(stream(&mut world, a, b, 1_000), (1_000, 1_000), "seed {seed}");
        assert_ne!(via(&world, a, b), Some(dead));
        assert_eq!(
            (frames(&world, a, b), frames(&world, b, a)),
            (RELAYED, RELAYED),
            "seed {seed}"
        );
        world.restart(dead);
        assert_eq!(stream(&mut world, a, b, 1_000), (1_000, 1_000), "seed {seed}");
        check(&world, &h);
    }
}

/// The second relay of a chain restarts, which only the first can see.
#[test]
fn a_hop_that_forgets_is_bound_again() {
    for seed in 0..5 {
        let (mut world, h) = line(seed, 4);
        let (a, b) = (h[0], h[3]);
        world.run(5_000);
        world.send(a, b, 0, 100);
        world.run(1_000);
        stream(&mut world, a, b, 200);
        assert_eq!(frames(&world, a, b), RELAYED);
        world.kill(h[2]);
        world.run(500);
        world.restart(h[2]);
        stream(&mut world, a, b, 1_500);
        assert_eq!(stream(&mut world, a, b, 500), (500, 500), "seed {seed}");
        assert_eq!(
            (frames(&world, a, b), frames(&world, b, a)),
            (RELAYED, RELAYED),
            "seed {seed}"
        );
        check(&world, &h);
    }
}

/// Half of the messages of neighbours about keys and labels are lost.
#[test]
fn lost_messages_delay_and_cost_nothing() {
    /// Lengths of FIPS frames around an Unbind, a Bound, an acknowledgement, a Bind, and
    /// capabilities.
    const KINDS: [usize; 5] = [42, 44, 53, 57, 73];
    let lost = Rc::new(RefCell::new([0; KINDS.len()]));
    for seed in 0..5 {
        let (mut world, h) = line(seed, 4);
        let (a, b) = (h[0], h[3]);
        world.run(5_000);
        world.send(a, b, 0, 100);
        world.run(1_000);
        let (mut n, count) = (seed, lost.clone());
        world.set_rule(move |_, datagram: &Datagram| {
            n = n
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let kind = KINDS.iter().position(|len| *len == datagram.bytes.len());
            match kind.filter(|_| datagram.kind == Kind::LinkControl && n >> 63 == 1) {
                Some(kind) => {
                    count.borrow_mut()[kind] += 1;
                    Fate::Drop
                }
                None => Fate::Pass,
            }
        });
        assert_eq!(stream(&mut world, a, b, 3_000), (3_000, 3_000), "seed {seed}");
        assert!(relayed(&world, a) > 1_500, "seed {seed}: {}", relayed(&world, a));
        check(&world, &h);
    }
    // A length that is no longer that of its message would lose nothing. The others are said at the
    // start of a link, at its rekey, and at the end of a label.
    let lost = lost.borrow();
    let [_, bound, _, bind, _] = *lost;
    assert!(bound > 0 && bind > 0, "lost {lost:?} of {KINDS:?}");
}

/// A direct link comes up, goes down, and comes up again under a stream: only packets in flight
/// when it goes down are lost.
#[test]
fn a_change_between_direct_and_relayed_loses_only_in_flight() {
    for seed in 0..5 {
        let (mut world, h) = net(seed, &[meshed(); 3], &[(0, 1), (2, 1)]);
        let (a, b) = (h[0], h[2]);
        world.add_peer(a, b, true);
        world.add_peer(b, a, true);
        world.run(5_000);
        assert_eq!(stream(&mut world, a, b, 200), (200, 200));
        assert_eq!(frames(&world, a, b), DIRECT);
        let gone = Conditions {
            loss: 1_000,
            ..Conditions::default()
        };
        world.set_link(a, b, Some(gone));
        let (there, back) = stream(&mut world, a, b, 500);
        // L12: two seconds of a cut without a signal of it.
        assert!(there >= 400 && back >= 400, "seed {seed}: {there}, {back}");
        assert_eq!(stream(&mut world, a, b, 500), (500, 500), "seed {seed}");
        assert_eq!(
            (frames(&world, a, b), frames(&world, b, a)),
            (RELAYED, RELAYED),
            "seed {seed}"
        );
        world.set_link(a, b, None);
        assert_eq!(stream(&mut world, a, b, 3_000), (3_000, 3_000), "seed {seed}: back");
        assert_eq!(
            (frames(&world, a, b), frames(&world, b, a)),
            (DIRECT, DIRECT),
            "seed {seed}"
        );
        check(&world, &h);
    }
}

/// Frames that arrive through relays prove nothing about the direct path, which is probed by
/// itself.
#[test]
fn a_black_hole_of_direct_fast_frames_loses_no_data() {
    let (mut world, h) = net(1, &[meshed(); 3], &[(0, 1), (2, 1)]);
    let (a, b) = (h[0], h[2]);
    world.run(5_000);
    world.send(a, b, 0, 100);
    world.run(1_000);
    stream(&mut world, a, b, 200);
    assert_eq!(frames(&world, a, b), RELAYED);
    let blocked = Rc::new(RefCell::new(true));
    let (rule, ends) = (blocked.clone(), [world.host(a).addr, world.host(b).addr]);
    world.set_rule(move |_, d: &Datagram| {
        let direct = ends.contains(&d.src) && ends.contains(&d.dst);
        if *rule.borrow() && direct && fast::is_fast(&d.bytes) {
            Fate::Drop
        } else {
            Fate::Pass
        }
    });
    world.add_peer(a, b, true);
    assert_eq!(stream(&mut world, a, b, 1_000), (1_000, 1_000));
    assert_eq!(via(&world, a, b), None);
    assert_eq!(frames(&world, a, b), Frames::Unproven(Suite::Aes256Gcm));
    check(&world, &h);
}

#[test]
fn unused_labels_expire() {
    let (mut world, h) = line(3, 3);
    let (a, b) = (h[0], h[2]);
    world.run(5_000);
    world.send(a, b, 0, 100);
    world.run(1_000);
    stream(&mut world, a, b, 200);
    assert_eq!(frames(&world, a, b), RELAYED);
    assert!(world.host(h[1]).lane.inspect().labels() >= 2);
    world.run(200_000);
    assert_eq!([0, 1, 2].map(|at| world.host(h[at]).lane.inspect().labels()), [0, 0, 0]);
    // And they work again.
    world.send(a, b, 0, 100);
    world.run(1_000);
    assert_eq!(stream(&mut world, a, b, 500), (500, 500));
    assert_eq!(frames(&world, a, b), RELAYED);
}

/// A neighbour binds labels by the thousand, to existing and made-up nodes, and forgets them.
#[test]
fn a_neighbour_gets_no_more_labels_than_its_share() {
    let (mut world, h) = line(4, 3);
    let (a, relay, b) = (h[0], h[1], h[2]);
    world.run(5_000);
    world.send(a, b, 0, 100);
    world.run(1_000);
    stream(&mut world, a, b, 200);
    assert_eq!(frames(&world, a, b), RELAYED);
    let ends = [b, relay].map(|host| world.host(host).node_addr());
    for label in 0..5_000u32 {
        let dest = match label % 3 {
            0 => ends[0],
            1 => ends[1],
            _ => NodeAddr::new([label as u8; 16]),
        };
        let mut body = vec![0; Bind::LEN];
        let label = 0x8000_0000 | label;
        Bind { label, dest }.emit(&mut body).unwrap();
        world.say_type(a, relay, link::BIND, body);
        if label % 100 == 0 {
            world.run(10);
        }
    }
    world.run(1_000);
    check(&world, &h);
    assert!(
        world.host(relay).lane.inspect().labels() <= 257,
        "{}",
        world.host(relay).lane.inspect().labels()
    );
    assert!(counters(&world, relay, "labels_refused") > 4_000);
    // The others' data continues, and labels that are not bound again expire.
    assert_eq!(stream(&mut world, a, b, 3_000), (3_000, 3_000));
    assert!(
        world.host(relay).lane.inspect().labels() <= 4,
        "{}",
        world.host(relay).lane.inspect().labels()
    );
    assert!(counters(&world, relay, "labels_expired") > 200);
}

#[test]
fn full_privacy_shows_no_two_hops_the_same() {
    for (at, whole) in [(0, true), (1, true), (3, false)] {
        let mut configs = [meshed(); 4];
        configs[at.min(2)].seal_whole = whole;
        let (mut world, h) = net(5, &configs, &[(0, 1), (1, 2), (2, 3)]);
        world.run(5_000);
        world.send(h[0], h[3], 0, 100);
        world.run(1_000);
        stream(&mut world, h[0], h[3], 300);
        let seen: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
        let tap = seen.clone();
        world.set_rule(move |_, d: &Datagram| {
            if fast::is_fast(&d.bytes) && d.bytes.len() > 250 {
                tap.borrow_mut().push(d.bytes.clone());
            }
            Fate::Pass
        });
        world.send(h[0], h[3], 1, 250);
        world.run(100);
        let seen = seen.borrow();
        let ciphers: Vec<&[u8]> = seen.iter().map(|frame| &frame[frame.len() - 100..]).collect();
        assert_eq!(ciphers.len(), 3, "at {at}");
        assert_eq!(ciphers[1] == ciphers[2], !whole, "at {at}");
        assert_eq!(ciphers[0] == ciphers[1], !whole, "at {at}");
    }
}

/// Counts the datagrams and bytes that `from` sends to `to` while ten packets of 1,200 bytes go
/// from `a` to `c`, and how many arrive.
fn ten_packets(world: &mut World, a: HostId, r: HostId, c: HostId) -> (usize, usize, usize) {
    let out: Rc<RefCell<(usize, usize)>> = Rc::default();
    let (tap, dst) = (out.clone(), world.host(r).addr);
    world.set_rule(move |_, d| {
        if d.from == a && d.dst == dst {
            let mut out = tap.borrow_mut();
            *out = (out.0 + 1, out.1 + d.bytes.len());
        }
        Fate::Pass
    });
    let before = world.host(c).received.len();
    for seq in 0..10 {
        world.send(a, c, 10_000 + seq, 1_200);
        world.run(1);
    }
    world.run(500);
    let (count, bytes) = *out.borrow();
    (count, bytes, world.host(c).received.len() - before)
}

#[test]
fn a_size_that_no_way_has_is_refused_and_packets_still_pass() {
    for told in [0, 1, 83, 84, 100, 110, 160, 256, 576, 1_199] {
        let (mut world, h) = net(31, &[meshed(); 3], &[(0, 1), (2, 1)]);
        let (a, r, c) = (h[0], h[1], h[2]);
        world.host_mut(r).set_hand(move |msg_type, body| {
            if msg_type == link::BOUND && body[4] == 0 {
                body[5..7].copy_from_slice(&u16::to_le_bytes(told));
            }
        });
        world.run(10_000);
        for seq in 0..200 {
            world.send(a, c, seq, 200);
            world.send(c, a, seq, 200);
            world.run(50);
        }
        assert_ne!(frames(&world, a, c), RELAYED, "{told}");
        assert!(counters(&world, a, "sizes_refused") >= 1, "{told}");
        let said = |(_, event): &&(u64, Event)| matches!(event, Event::SizeRefused { told: t, .. } if *t == told);
        let said = world.host(a).events.iter().filter(said).count();
        assert!((1..=3).contains(&said), "{told}: told {said} times in 20 s");
        let (count, bytes, arrived) = ten_packets(&mut world, a, r, c);
        assert_eq!(arrived, 10, "{told}");
        // A datagram for each packet, five messages of the node itself, and a repeated bind.
        assert!(
            count <= 16 && bytes < 15_000,
            "{told}: {count} datagrams of {bytes} bytes"
        );
        check(&world, &h);
    }
}

#[test]
fn the_least_size_of_a_way_carries_what_ipv6_promises() {
    let (mut world, h) = net(32, &[meshed(); 3], &[(0, 1), (2, 1)]);
    let (a, r, c) = (h[0], h[1], h[2]);
    world.host_mut(r).set_hand(move |msg_type, body| {
        if msg_type == link::BOUND && body[4] == 0 {
            body[5..7].copy_from_slice(&fast::LEAST_PAYLOAD.to_le_bytes());
        }
    });
    world.run(10_000);
    stream(&mut world, a, c, 200);
    assert_eq!(frames(&world, a, c), RELAYED);
    let (count, _, arrived) = ten_packets(&mut world, a, r, c);
    assert_eq!(arrived, 10);
    assert!(count <= 25, "{count} datagrams for ten packets");
    let before = world.host(c).received.len();
    for seq in 0..10 {
        world.send(a, c, 20_000 + seq, 1_280);
    }
    world.run(500);
    assert_eq!(world.host(c).received.len() - before, 10);
    assert_eq!(world.host(a).lane.counters().drops[DropReason::TooBig], 0);
}

/// The end that did not restart has fast keys that the other one lost. Its answers use frames that
/// the other one opens.
#[test]
fn a_restarted_end_behind_others_loses_no_answer() {
    for seed in 0..40 {
        for delay in [0, 1, 10] {
            let config = Config {
                mesh: true,
                ..Config::default()
            };
            let mut world = World::new(seed);
            world.conditions.delay = delay;
            let [relay, server, laptop] = [0; 3].map(|_| world.add_host(config));
            for (from, to, dial) in [
                (server, relay, true),
                (laptop, relay, true),
                (server, laptop, false),
                (laptop, server, false),
            ] {
                world.add_peer(from, to, dial);
            }
            world.run(6_000);
            for seq in 0..40 {
                world.send(laptop, server, seq, 84);
                world.send(server, laptop, seq, 84);
                world.run(100);
            }
            world.kill(laptop);
            world.run(200 + seed * 7 % 1_000);
            world.restart(laptop);
            world.run(1_000 + seed * 13 % 100);
            let (mut come, answered) = (world.host(server).received.len(), world.host(laptop).received.len());
            for ms in 0..4_500 {
                if ms % 100 == 0 && ms < 2_500 {
                    world.send(laptop, server, 100_000 + ms, 84);
                }
                world.run(1);
                let asked: Vec<u32> = world.host(server).received[come..]
                    .iter()
                    .map(|(_, probe)| probe.seq)
                    .collect();
                come += asked.len();
                asked.into_iter().for_each(|seq| world.send(server, laptop, seq, 84));
            }
            let answers = world.host(laptop).received.len() - answered;
            assert_eq!(answers, 25, "seed {seed}, delay {delay}");
        }
    }
}

/// The packets behind the last message of the handshake arrive before the core has derived its
/// keys, while those from before the restart are still there. The network delivers half of the
/// datagrams twice.
#[test]
fn an_end_that_restarts_loses_no_packet_behind_its_handshake() {
    for seed in 0..10 {
        let (mut world, h) = net(seed, &[meshed(); 3], &[(0, 1), (2, 1)]);
        let (a, c) = (h[0], h[2]);
        for id in &h {
            world.host_mut(*id).core_delay = 20;
        }
        world.conditions.duplicate = 500;
        world.run(5_000);
        world.send(c, a, 0, 100);
        world.run(1_000);
        stream(&mut world, a, c, 200);
        assert_eq!(frames(&world, a, c), RELAYED, "seed {seed}");
        world.kill(c);
        world.run(200);
        world.restart(c);
        let before = world.host(a).received.len();
        for seq in 0..50 {
            world.send(c, a, seq, 100);
            world.run(100);
        }
        world.run(1_000);
        assert_eq!(world.host(a).received.len() - before, 50, "seed {seed}");
        assert_eq!(frames(&world, c, a), RELAYED, "seed {seed}");
        check(&world, &h);
    }
}

/// A peer behind a relay dies while nothing but messages of services goes to it. The session does not
/// stay up because of messages that no one answers, and the peer does not stay "connected".
#[test]
fn messages_that_no_one_answers_do_not_keep_a_session() {
    let (mut world, hosts) = line(11, 3);
    let (a, c) = (hosts[0], hosts[2]);
    world.run(5_000);
    stream(&mut world, a, c, 100);
    let ports = weft_wire::session::DataPorts { src: 7_371, dst: 7_371 };
    let key = world.host(c).key;
    let standing = |world: &World| {
        let mut status = world.host(a).node.peer_status(world.now());
        status.find(|peer| peer.key == key).unwrap().standing
    };
    let say = |world: &mut World| {
        let now = world.now();
        let _ = world.host_mut(a).send_service(now, &key, ports, b"a digest");
        world.run(10_000);
    };
    world.run(15_000);
    assert_eq!(standing(&world), Standing::Connected);
    world.kill(c);
    for _ in 0..12 {
        say(&mut world);
    }
    assert_ne!(standing(&world), Standing::Connected);
    let mut ended = world.host(a).events.iter();
    assert!(ended.any(|(_, event)| matches!(event, Event::SessionDown { peer, .. } if *peer == key)));
}
