//! Floods of link handshake messages, forged, spoofed, copied and recorded, at ten times the rates
//! that once sufficed: nodes that know each other still link within a second, and a working link
//! stays and loses nothing.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use weft_core::{Config, Event};
use weft_noise::{Identity, SecretKey, ik, xk};
use weft_packet::DropReason;
use weft_sim::{Fate, HostId, Kind, World};
use weft_wire::fmp;

/// Maximum time from the start of a node until it is linked with a configured peer, ms.
const WITHIN: u64 = 1_000;
/// Duration of a flood before the start of what it must not delay, ms.
const BEFORE: u32 = 12_000;

fn elsewhere(n: u32) -> SocketAddr {
    let [a, b, ..] = n.to_le_bytes();
    ([198, 51, a, b], 4444).into()
}

/// A point of the curve, which costs as much as a genuine ephemeral key.
fn point(seed: u64) -> [u8; xk::MSG1_LEN] {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let remote = SecretKey::generate(&mut rng).public();
    xk::Initiator::start(remote, &mut rng).1
}

fn junk_msg1(point: &[u8; xk::MSG1_LEN], n: u32) -> Vec<u8> {
    let mut noise = [0; fmp::NOISE_MSG1_LEN];
    noise[..point.len()].copy_from_slice(point);
    noise[40..44].copy_from_slice(&n.to_le_bytes());
    let mut out = vec![0; fmp::Msg1::LEN];
    let sender_idx = n;
    fmp::Msg1 {
        sender_idx,
        noise: &noise,
    }
    .emit(&mut out)
    .unwrap();
    out
}

fn junk_msg2(point: &[u8; xk::MSG1_LEN], n: u32, receiver_idx: u32) -> Vec<u8> {
    let mut noise = [0; fmp::NOISE_MSG2_LEN];
    noise[..point.len()].copy_from_slice(point);
    noise[40..44].copy_from_slice(&n.to_le_bytes());
    let mut out = vec![0; fmp::Msg2::LEN];
    let sender_idx = n;
    fmp::Msg2 {
        sender_idx,
        receiver_idx,
        noise: &noise,
    }
    .emit(&mut out)
    .unwrap();
    out
}

fn links_since(world: &World, host: HostId, start: u64) -> bool {
    let ups = world.host(host).events.iter().filter(|(at, _)| *at >= start);
    ups.into_iter().any(|(_, e)| matches!(e, Event::LinkUp { .. }))
}

/// Runs with `attack` each ms until all of `hosts` have linked since now. Returns how long that
/// took for each, ms.
fn until_linked(world: &mut World, hosts: &[HostId], mut attack: impl FnMut(&mut World, u32)) -> Vec<Option<u64>> {
    let start = world.now();
    let mut took = vec![None; hosts.len()];
    for ms in 0..30_000 {
        attack(world, ms);
        world.run(1);
        for (took, host) in took.iter_mut().zip(hosts) {
            if took.is_none() && links_since(world, *host, start) {
                *took = Some(world.now() - start);
            }
        }
        if took.iter().all(Option::is_some) {
            break;
        }
    }
    took
}

fn in_time(took: &[Option<u64>]) -> bool {
    took.iter().all(|took| took.is_some_and(|took| took <= WITHIN))
}

/// A peer without a known address restarts while strangers flood the server with 2,000 msg1 a
/// second.
#[test]
fn a_peer_at_a_new_address_links_in_a_flood_of_strangers() {
    for spoofed in [false, true] {
        let mut world = World::new(9);
        let [a, b] = [0; 2].map(|_| world.add_host(Config::default()));
        world.add_peer(a, b, true);
        world.add_peer(b, a, false);
        world.kill(a);
        world.run(1_000);
        let (dst, point) = (world.host(b).addr, point(1));
        let flood = |world: &mut World, ms: u32| {
            for n in ms * 2..ms * 2 + 2 {
                let src = elsewhere(if spoofed { n } else { 7 });
                world.inject(src, dst, junk_msg1(&point, n));
            }
        };
        (0..BEFORE).for_each(|ms| {
            flood(&mut world, ms);
            world.run(1);
        });
        world.restart(a);
        let took = until_linked(&mut world, &[a], |world, ms| flood(world, BEFORE + ms));
        assert!(in_time(&took), "spoofed {spoofed}: {took:?}");
        assert!(world.host(b).lane.counters().drops[DropReason::Handshake] > 20_000);
    }
}

/// All configured peers restart while msg1 arrive in the name of one of them, 1,000 a second: that
/// peer is not delayed either.
#[test]
fn a_flood_in_the_name_of_a_known_address_delays_no_known_peer() {
    let mut world = World::new(95);
    let b = world.add_host(Config::default());
    let peers: Vec<HostId> = (0..4).map(|_| world.add_host(Config::default())).collect();
    for p in &peers {
        world.add_peer(*p, b, true);
        world.add_peer(b, *p, false);
    }
    world.run(5_000);
    let (dst, src, point) = (world.host(b).addr, world.host(peers[0]).addr, point(2));
    let flood = |world: &mut World, ms: u32| world.inject(src, dst, junk_msg1(&point, ms));
    (0..BEFORE).for_each(|ms| {
        flood(&mut world, ms);
        world.run(1);
    });
    peers.iter().for_each(|p| world.restart(*p));
    let took = until_linked(&mut world, &peers, |world, ms| flood(world, BEFORE + ms));
    assert!(in_time(&took), "{took:?}");
}

/// An observer answers each msg1 itself before the peer can, from the peer's address, 40 times a
/// ms.
#[test]
fn forged_answers_do_not_keep_the_genuine_one_out() {
    let [quiet, flooded] = [false, true].map(linked_beside_forged_answers);
    assert!(flooded <= quiet + WITHIN, "{flooded} ms, {quiet} without a flood");
}

/// How long a peer takes to link that restarts while it is dialled, ms.
fn linked_beside_forged_answers(forged: bool) -> u64 {
    let mut world = World::new(11);
    let [a, b] = [0; 2].map(|_| world.add_host(Config::default()));
    world.add_peer(a, b, true);
    world.add_peer(b, a, false);
    world.kill(b);
    let seen: Rc<RefCell<Option<u32>>> = Rc::default();
    let tap = seen.clone();
    world.set_rule(move |_, d| {
        if d.kind == Kind::LinkMsg1 && d.from == a {
            *tap.borrow_mut() = fmp::Msg1::parse(&d.bytes).ok().map(|msg1| msg1.sender_idx);
        }
        Fate::Pass
    });
    world.run(2_000);
    let (src, point) = (world.host(b).addr, point(3));
    let flood = |world: &mut World, ms: u32| {
        let index = seen.borrow().filter(|_| forged);
        for n in 0..40 {
            if let Some(index) = index {
                world.inject_at(a, 0, src, &junk_msg2(&point, ms * 40 + n, index));
            }
        }
    };
    let refused = world.host(a).lane.counters().drops[DropReason::Handshake];
    (0..2_000).for_each(|ms| {
        flood(&mut world, ms);
        world.run(1);
    });
    if forged {
        let looked_at = 80_000 - (world.host(a).lane.counters().drops[DropReason::Handshake] - refused);
        assert!(looked_at < 100, "{looked_at} of 80,000");
    }
    world.restart(b);
    let took = until_linked(&mut world, &[a], |world, ms| flood(world, 2_000 + ms));
    took[0].unwrap()
}

/// Msg1 of 64 new identities, and 25 a second more, from possibly spoofed sources.
#[test]
fn strangers_that_prove_nothing_take_no_place() {
    let mut world = World::new(31);
    let open = Config {
        mesh: true,
        ..Config::default()
    };
    let [b, honest] = [0; 2].map(|_| world.add_host(open));
    let (dst, key_b) = (world.host(b).addr, world.host(b).key);
    world.run(1_000);
    let mut rng = ChaCha20Rng::seed_from_u64(5);
    let mut send = |world: &mut World, n: u32| {
        let me = Identity::new(SecretKey::generate(&mut rng));
        let (_, noise) = ik::Initiator::start(&me, key_b, [1; 8], &mut rng);
        let mut out = vec![0; fmp::Msg1::LEN];
        fmp::Msg1 {
            sender_idx: n,
            noise: &noise,
        }
        .emit(&mut out)
        .unwrap();
        world.inject(elsewhere(n), dst, out);
    };
    for n in 0..640 {
        send(&mut world, n);
        world.run(1);
    }
    world.add_peer(honest, b, true);
    let took = until_linked(&mut world, &[honest], |world, ms| {
        if ms.is_multiple_of(40) {
            send(world, 1_000 + ms);
        }
    });
    assert!(in_time(&took), "{took:?}");
}

/// All of a peer's msg1 from before its restart, 80 a second in turn, while it restarts.
#[test]
fn recorded_handshakes_do_not_delay_a_peer_that_restarts() {
    for seed in 0..4 {
        let mut world = World::new(161 + seed);
        let rekey = Config {
            rekey: 20_000,
            ..Config::default()
        };
        let [a, b] = [0; 2].map(|_| world.add_host(rekey));
        world.add_peer(a, b, true);
        world.add_peer(b, a, false);
        let recorded: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
        let tap = recorded.clone();
        world.set_rule(move |_, d| {
            if d.kind == Kind::LinkMsg1 && d.from == a && !tap.borrow().contains(&d.bytes) {
                tap.borrow_mut().push(d.bytes.clone());
            }
            Fate::Pass
        });
        for n in 0..60 {
            world.send(a, b, n, 200);
            world.send(b, a, n, 200);
            world.run(10_000);
        }
        let old = recorded.take();
        assert!(old.len() >= 8, "{}", old.len());
        world.kill(a);
        world.run(60_000);
        let (src, dst) = (world.host(a).addr, world.host(b).addr);
        let mut replay = |world: &mut World, ms: u32| {
            if ms.is_multiple_of(12) {
                world.inject(src, dst, old[ms as usize / 12 % old.len()].clone());
            }
        };
        (0..BEFORE).for_each(|ms| {
            replay(&mut world, ms);
            world.run(1);
        });
        world.restart(a);
        let took = until_linked(&mut world, &[a], &mut replay);
        assert!(in_time(&took), "seed {seed}: {took:?}");
        assert!(world.host(b).node.counters().handshakes_replayed > 100);
    }
}

/// Msg1 that a peer sent while this node was off are unknown to it. Each is repeated under all
/// indices that have its tag, 1,000 a second in all, while the peer, which this node cannot dial,
/// restarts.
#[test]
fn recordings_that_are_news_keep_no_place_for_good() {
    for seed in 0..3 {
        let mut world = World::new(181 + seed);
        let [a, b] = [0; 2].map(|_| world.add_host(Config::default()));
        world.add_peer(a, b, true);
        world.add_peer(b, a, false);
        world.run(1_000);
        world.kill(b);
        let recorded: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
        let tap = recorded.clone();
        world.set_rule(move |_, d| {
            if d.kind == Kind::LinkMsg1 && d.from == a && !tap.borrow().contains(&d.bytes) {
                tap.borrow_mut().push(d.bytes.clone());
            }
            Fate::Pass
        });
        world.run(150_000);
        let old = recorded.take();
        assert!(old.len() >= 8, "{}", old.len());
        world.kill(a);
        world.restart(b);
        let dst = world.host(b).addr;
        let mut replay = |world: &mut World, ms: u32| {
            let mut copy = old[ms as usize % old.len()].clone();
            copy[4] = copy[4] & 0xf0 | (ms / 16 % 16) as u8;
            world.inject(elsewhere(3), dst, copy);
        };
        (0..BEFORE).for_each(|ms| {
            replay(&mut world, ms);
            world.run(1);
        });
        world.restart(a);
        let took = until_linked(&mut world, &[a], &mut replay);
        assert!(in_time(&took), "seed {seed}: {took:?}");
    }
}

/// Forged frames under the index of each rekey, with 500 forged msg1 a second in the other's name
/// at both ends, so that rekeys may fail; copies of each handshake message arrive from other
/// addresses.
#[test]
fn forged_frames_under_the_index_of_a_rekey_end_no_link() {
    for (flood, seed) in [(false, 111), (true, 112), (true, 113)] {
        let mut world = World::new(seed);
        let rekey = Config {
            rekey: 30_000,
            ..Config::default()
        };
        let [a, b] = [0; 2].map(|_| world.add_host(rekey));
        world.add_peer(a, b, true);
        world.add_peer(b, a, false);
        world.run(3_000);
        let hosts = [a, b].map(|h| world.host(h).addr);
        let seen: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
        let tap = seen.clone();
        world.set_rule(move |_, d| {
            if d.kind == Kind::LinkMsg1 && (d.from == a || d.from == b) {
                tap.borrow_mut().push(d.bytes.clone());
            }
            Fate::Pass
        });
        let point = point(4);
        let (mut sent, mut forged) = (0, 0);
        for ms in 0..120_000u32 {
            if flood && ms.is_multiple_of(2) {
                let junk = junk_msg1(&point, ms);
                world.inject(hosts[0], hosts[1], junk.clone());
                world.inject(hosts[1], hosts[0], junk);
            }
            if ms.is_multiple_of(20) {
                world.send(a, b, ms, 200);
                world.send(b, a, ms, 200);
                sent += 2;
            }
            world.run(1);
            for msg1 in seen.take() {
                let mut frame = vec![0; 48];
                frame[2] = 16;
                frame[4..8].copy_from_slice(&msg1[4..8]);
                for to in hosts {
                    world.inject(elsewhere(5), to, frame.clone());
                    world.inject(elsewhere(6), to, msg1.clone());
                }
                forged += 1;
            }
        }
        world.run(1_000);
        let ends = [world.host(a), world.host(b)];
        let downs = ends.iter().flat_map(|host| &host.events);
        let downs = downs.filter(|(_, e)| matches!(e, Event::LinkDown { .. })).count();
        let arrived = world.host(a).received.len() + world.host(b).received.len();
        assert!(forged >= 4, "{forged}");
        assert_eq!((downs, arrived), (0, sent), "flood {flood}");
    }
}

/// Three hundred peers start at once, as after a power cut: each has its own budget, so none waits
/// for the others.
#[test]
fn peers_that_start_at_once_do_not_wait_for_each_other() {
    let mut world = World::new(171);
    world.check_every = u32::MAX;
    let hub = world.add_host(Config::default());
    let peers: Vec<HostId> = (0..300).map(|_| world.add_host(Config::default())).collect();
    for p in &peers {
        world.add_peer(*p, hub, true);
        world.add_peer(hub, *p, false);
    }
    world.run(1_000);
    peers.iter().for_each(|p| world.kill(*p));
    world.run(60_000);
    world.restart(hub);
    world.run(1_000);
    peers.iter().for_each(|p| world.restart(*p));
    let took = until_linked(&mut world, &peers, |_, _| {});
    let slowest = took.iter().map(|took| took.unwrap_or(u64::MAX)).max().unwrap();
    println!("the slowest of 300 peers is linked {slowest} ms after the start");
    assert!(in_time(&took), "{slowest}");
}
