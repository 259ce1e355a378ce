//! Peers that roam, or seem to: where packets go until a new address has answered, and what is lost
//! meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

use weft_contract::PATH_PROBE_LEN;
use weft_core::{Config, Event, Path};
use weft_sim::{Fate, HostId, World};
use weft_wire::fmp;

/// One-way delay, ms.
const DELAY: u64 = 10;

/// Two nodes whose session is up, and that have been idle for a while.
fn settled(seed: u64) -> (World, HostId, HostId) {
    let (mut world, a, b) = World::pair(seed, Config::default());
    world.run(1_000);
    for seq in 0..20 {
        world.send(a, b, seq, 200);
        world.run(20);
    }
    world.run(3_000);
    (world, a, b)
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The path of `host` to its peer.
fn path(world: &World, host: HostId) -> Option<Path> {
    world.host(host).node.peer_status(world.now()).next().unwrap().path
}

fn moves(world: &World, host: HostId) -> usize {
    let events = &world.host(host).events;
    events.iter().filter(|(_, e)| matches!(e, Event::Roamed { .. })).count()
}

/// The datagrams that were taken off the network, unchanged.
type Tap = Rc<RefCell<Vec<(SocketAddr, SocketAddr, Vec<u8>)>>>;

#[test]
fn a_peer_aims_at_a_victim_three_times_its_own_bytes_at_most() {
    let (mut world, a, b) = settled(181);
    let (dst, victim) = (world.host(b).addr, addr("203.0.113.77:53"));
    let (hit, held): (Rc<Cell<usize>>, Tap) = Default::default();
    let (tap, keep) = (hit.clone(), held.clone());
    world.set_rule(move |_, d| {
        if d.dst == victim {
            tap.set(tap.get() + d.bytes.len());
            return Fate::Drop;
        }
        if d.from == a && d.dst == dst {
            keep.borrow_mut().push((d.src, d.dst, d.bytes.clone()));
            return Fate::Drop;
        }
        Fate::Pass
    });
    // The victim's address is the source of all of the peer's datagrams, and a stream goes to it.
    let (mut aimed, before) = (0, world.host(a).received.len());
    for ms in 0..60_000_u32 {
        if ms % 200 == 0 {
            world.send(a, b, 50_000 + ms, 60);
        }
        for (_, dst, bytes) in held.take() {
            aimed += bytes.len();
            world.inject(victim, dst, bytes);
        }
        world.send(b, a, ms, 1_000);
        world.run(1);
    }
    assert!(
        aimed > 10_000 && hit.get() > 0 && hit.get() <= 3 * aimed,
        "{} bytes for {aimed}",
        hit.get()
    );
    assert_eq!(moves(&world, b), 0);
    world.run(DELAY);
    assert_eq!(
        world.host(a).received.len() - before,
        60_000,
        "the stream goes where it went"
    );
}

#[test]
fn frames_from_many_ports_are_no_moves_and_few_questions() {
    let (mut world, a, b) = settled(21);
    let (dst, home) = (world.host(b).addr, world.host(a).addr);
    let (asked, held): (Rc<Cell<u32>>, Tap) = Default::default();
    let (tap, keep) = (asked.clone(), held.clone());
    world.set_rule(move |_, d| {
        if d.from == a && d.dst == dst {
            keep.borrow_mut().push((d.src, d.dst, d.bytes.clone()));
            return Fate::Drop;
        }
        if d.from == b && d.dst != home && d.bytes.len() == PATH_PROBE_LEN {
            tap.set(tap.get() + 1);
        }
        Fate::Pass
    });
    let mut port = 1_024;
    for seq in 0..10_000 {
        world.send(a, b, seq, 200);
        for (_, dst, bytes) in held.take() {
            port = if port == u16::MAX { 1_024 } else { port + 1 };
            world.inject(SocketAddr::from(([203, 0, 113, 5], port)), dst, bytes);
        }
        if seq % 10 == 9 {
            world.run(1);
        }
    }
    world.run(100);
    assert_eq!((moves(&world, b), path(&world, b)), (0, Some(Path::Direct(home))));
    // Ten addresses a second, each three times.
    assert!((1..=33).contains(&asked.get()), "{} questions in a second", asked.get());
}

/// Both send 1,000 packets a second while `from` gets another address. Returns the packets lost
/// towards it, and from it.
fn rebind(mut world: World, (a, b): (HostId, HostId), fips: bool) -> (World, usize, usize) {
    let swallowed = Rc::new(Cell::new(0));
    if fips {
        let count = swallowed.clone();
        world.set_rule(move |_, d| {
            if d.bytes.len() == PATH_PROBE_LEN {
                count.set(count.get() + 1);
                Fate::Drop
            } else {
                Fate::Pass
            }
        });
    }
    let before = [a, b].map(|host| world.host(host).received.len());
    for ms in 0..4_000 {
        if ms == 500 {
            world.move_host(a, addr("198.51.100.7:4000"));
        }
        world.send(a, b, ms, 300);
        world.send(b, a, ms, 300);
        world.run(1);
    }
    world.run(1_000);
    let [at_a, at_b] = [(a, before[0]), (b, before[1])].map(|(host, before)| {
        let got = world.host(host).received.len() - before;
        4_000 - got
    });
    assert_eq!(swallowed.get() > 0, fips, "{} probes were swallowed", swallowed.get());
    (world, at_a, at_b)
}

#[test]
fn a_move_under_load_costs_only_the_packets_in_flight() {
    for seed in 0..5 {
        let (world, a, b) = settled(seed);
        let (world, towards, from) = rebind(world, (a, b), false);
        // Packets in flight to the old address when it went away, and those sent until the first
        // frame from the new one arrived.
        assert!(
            towards as u64 <= 2 * DELAY + 2 && from == 0,
            "seed {seed}: {towards} {from}"
        );
        assert_eq!(path(&world, b), Some(Path::Direct(addr("198.51.100.7:4000"))));
        assert_eq!(moves(&world, b), 1, "seed {seed}");
    }
}

#[test]
fn a_download_resumes_a_round_trip_after_its_receiver_moves() {
    // One small packet up for two large ones down, as TCP does.
    let (mut world, a, b) = settled(3);
    let before = world.host(a).received.len();
    for ms in 0..2_000 {
        if ms == 500 {
            world.move_host(a, addr("198.51.100.7:4000"));
        }
        if ms % 2 == 0 {
            world.send(a, b, ms, 60);
        }
        world.send(b, a, ms, 1_200);
        world.run(1);
    }
    world.run(1_000);
    let lost = 2_000 - (world.host(a).received.len() - before);
    // Packets to the old address until a frame from the new one has arrived and a probe has made
    // its round trip.
    assert!(lost as u64 <= 4 * DELAY + 5, "{lost}");
}

#[test]
fn both_ends_may_move_within_a_round_trip() {
    for gap in [0, 3, DELAY + 2, DELAY + 5, 2 * DELAY, 4 * DELAY] {
        let (mut world, a, b) = settled(5 + gap);
        let old = [a, b].map(|host| world.host(host).addr);
        let new = [addr("198.51.100.7:4000"), addr("198.51.100.8:4000")];
        for ms in 0..3_000 {
            if ms == 500 {
                world.move_host(a, new[0]);
            }
            if u64::from(ms) == 500 + gap {
                world.move_host(b, new[1]);
            }
            world.send(a, b, ms, 300);
            world.send(b, a, ms, 300);
            world.run(1);
        }
        if gap < DELAY {
            // No frame has announced a new address to either, until one of them is back.
            world.move_host(a, old[0]);
            world.run(20_000);
        }
        world.run(100);
        let before = world.host(a).received.len();
        for ms in 0..100 {
            world.send(b, a, ms, 300);
            world.run(1);
        }
        world.run(100);
        assert_eq!(world.host(a).received.len() - before, 100, "gap {gap}");
        assert_eq!(path(&world, a), Some(Path::Direct(new[1])), "gap {gap}");
    }
}

/// A bystander sends each frame of one end from another address before it arrives, and, if it
/// `relays`, forwards what it receives.
fn raced(relays: bool) {
    let (mut world, a, b) = settled(31);
    let (at_a, at_b, at_x) = (world.host(a).addr, world.host(b).addr, addr("203.0.113.9:9"));
    let (frames, came): (Tap, Tap) = Default::default();
    let (keep, catch) = (frames.clone(), came.clone());
    world.set_rule(move |_, d| {
        if d.from == a && d.dst == at_b {
            keep.borrow_mut().push((d.src, d.dst, d.bytes.clone()));
            return Fate::Drop;
        }
        if d.dst == at_x {
            catch.borrow_mut().push((d.src, d.dst, d.bytes.clone()));
            return Fate::Drop;
        }
        Fate::Pass
    });
    let before = [a, b].map(|host| world.host(host).received.len());
    let mut passed_on = 0;
    for ms in 0..20_000 {
        world.send(a, b, ms, 300);
        world.send(b, a, ms, 300);
        let genuine = frames.take();
        for (_, dst, bytes) in &genuine {
            world.inject(at_x, *dst, bytes.clone());
        }
        for (_, _, bytes) in came.take() {
            // It forwards path probes, but no traffic.
            if relays && bytes.len() == PATH_PROBE_LEN {
                passed_on += 1;
                world.inject(at_b, at_a, bytes);
            }
        }
        world.run(1);
        for (src, dst, bytes) in genuine {
            world.inject(src, dst, bytes);
        }
    }
    world.run(100);
    let got = [(a, before[0]), (b, before[1])].map(|(host, before)| world.host(host).received.len() - before);
    assert!(got.iter().all(|got| *got >= 19_999), "{got:?}");
    assert_eq!(passed_on > 0, relays, "{passed_on} questions were passed on");
    assert_eq!(path(&world, b), Some(Path::Direct(at_a)));
    assert_eq!(moves(&world, b), 0);
}

#[test]
fn copies_of_frames_from_elsewhere_cost_no_packet() {
    raced(false);
}

#[test]
fn copies_of_frames_and_a_passed_on_question_cost_no_packet() {
    raced(true);
}

#[test]
fn a_new_address_that_nothing_reaches_is_not_used() {
    let (mut world, a, b) = settled(41);
    let (at_a, at_b, lost) = (world.host(a).addr, world.host(b).addr, addr("198.51.100.99:7"));
    let frames: Tap = Rc::default();
    let keep = frames.clone();
    world.set_rule(move |_, d| {
        if d.from == a && d.dst == at_b {
            keep.borrow_mut().push((d.src, d.dst, d.bytes.clone()));
            return Fate::Drop;
        }
        if d.dst == lost { Fate::Drop } else { Fate::Pass }
    });
    let before = world.host(a).received.len();
    for ms in 0..10_000 {
        world.send(a, b, ms, 100);
        world.send(b, a, ms, 300);
        // Its packets leave from another address for five seconds.
        let src = if (1_000..6_000).contains(&ms) { lost } else { at_a };
        for (_, dst, bytes) in frames.take() {
            world.inject(src, dst, bytes);
        }
        world.run(1);
    }
    world.run(100);
    assert_eq!(world.host(a).received.len() - before, 10_000);
    assert_eq!((path(&world, b), moves(&world, b)), (Some(Path::Direct(at_a)), 0));
}

#[test]
fn a_peer_that_answers_no_probes_is_followed_by_a_handshake() {
    for seed in 0..5 {
        let (world, a, b) = settled(51 + seed);
        // As much is received as is to be sent, so all of it may be sent.
        let (mut world, towards, from) = rebind(world, (a, b), true);
        assert!(
            towards as u64 <= 2 * DELAY + 2 && from == 0,
            "seed {seed}: {towards} {from}"
        );
        assert_eq!(moves(&world, b), 0);
        for ms in 0..40_000 {
            if ms % 10 == 0 {
                world.send(a, b, ms, 100);
            }
            world.run(1);
        }
        assert_eq!(
            path(&world, b),
            Some(Path::Direct(addr("198.51.100.7:4000"))),
            "seed {seed}"
        );
    }
}

#[test]
fn an_announced_move_is_followed_while_the_old_address_works() {
    let (mut world, a, b) = settled(61);
    let (old, at_b, new) = (world.host(a).addr, world.host(b).addr, addr("198.51.100.7:4000"));
    let (out, back): (Tap, Tap) = Default::default();
    let (keep, catch) = (out.clone(), back.clone());
    world.set_rule(move |_, d| {
        if d.from == a && d.dst == at_b {
            keep.borrow_mut().push((d.src, d.dst, d.bytes.clone()));
            return Fate::Drop;
        }
        if d.dst == new {
            catch.borrow_mut().push((d.src, d.dst, d.bytes.clone()));
            return Fate::Drop;
        }
        Fate::Pass
    });
    let before = [a, b].map(|host| world.host(host).received.len());
    for ms in 0..2_000 {
        world.send(a, b, ms, 100);
        world.send(b, a, ms, 300);
        if ms == 500 {
            let now = world.now();
            world.host_mut(a).node.handle_network_change(now);
        }
        for (_, dst, bytes) in out.take() {
            world.inject(if ms >= 500 { new } else { old }, dst, bytes);
        }
        for (src, _, bytes) in back.take() {
            world.inject(src, old, bytes);
        }
        world.run(1);
    }
    world.run(100);
    let got = [(a, before[0]), (b, before[1])].map(|(host, before)| world.host(host).received.len() - before);
    assert!(got.iter().all(|got| *got >= 1_999), "{got:?}");
    assert_eq!(path(&world, b), Some(Path::Direct(new)));
}

/// A member opens its link in the name of victims: its handshake is answered at two addresses, and its first frame
/// comes from a third. Then it is gone.
#[test]
fn victims_of_a_copied_handshake_are_not_dialled() {
    /// The answers to the handshake, the frame and the repeats, with headers, in bytes.
    const ANSWERS: usize = 512;
    let mut world = World::new(5);
    let [a, b] = [0; 2].map(|_| world.add_host(Config::default()));
    let (home, dst) = (world.host(a).addr, world.host(b).addr);
    world.add_peer_at(b, a, Vec::new());
    world.add_peer_at(a, b, vec![dst]);
    let victims: Vec<SocketAddr> = (1..=6).map(|n| SocketAddr::from(([203, 0, 113, n], 53))).collect();
    let hits: Rc<RefCell<BTreeMap<SocketAddr, usize>>> = Rc::default();
    let held: Tap = Rc::default();
    let (tap, keep) = (hits.clone(), held.clone());
    world.set_rule(move |_, d| {
        if d.from == b && d.dst != home {
            *tap.borrow_mut().entry(d.dst).or_default() += d.bytes.len() + 28;
            return Fate::Drop;
        }
        if d.from == a && d.dst == dst {
            keep.borrow_mut().push((d.src, d.dst, d.bytes.clone()));
            return Fate::Drop;
        }
        Fate::Pass
    });
    for victim in &victims {
        for _ in 0..1_500 {
            world.run(1);
            for (_, _, bytes) in held.take() {
                let sources = match bytes.len() {
                    fmp::Msg1::LEN => vec![addr("198.51.100.200:1"), home],
                    _ => vec![*victim],
                };
                sources
                    .into_iter()
                    .for_each(|from| world.inject(from, dst, bytes.clone()));
            }
        }
        let status = world.host(b).node.peer_status(world.now()).next().unwrap();
        let proven = status
            .known_paths
            .iter()
            .filter(|path| victims.contains(&path.at.remote()) && path.proven.is_some());
        assert_eq!(proven.count(), 0, "{:?}", status.known_paths);
        world.restart(a);
        world.add_peer_at(a, b, vec![dst]);
    }
    world.kill(a);
    world.run(3_600_000);
    let hits = hits.borrow();
    assert!(
        victims.iter().all(|victim| (1..=ANSWERS).contains(&hits[victim])),
        "{hits:?}"
    );
}
