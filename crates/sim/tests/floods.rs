//! Floods of one neighbour other than handshakes: frames without keys, error signals, filters,
//! forged coordinates, and messages that would loop. Their effect on others is bounded, and working
//! traffic continues.

use std::cell::Cell;
use std::rc::Rc;

use weft_core::{Config, Event};
use weft_fuzz::forged;
use weft_packet::DropReason;
use weft_sim::{Fate, HostId, Kind, World};
use weft_wire::NodeAddr;
use weft_wire::link::{LinkMessageType, SessionDatagram};

const DATAGRAM: LinkMessageType = LinkMessageType::SessionDatagram;

fn meshed() -> Config {
    Config {
        mesh: true,
        ..Config::default()
    }
}

fn addr(world: &World, host: HostId) -> NodeAddr {
    world.host(host).node_addr()
}

/// A node address without a node.
fn absent_node(n: u32) -> NodeAddr {
    let mut bytes = [0x90; 16];
    bytes[1..5].copy_from_slice(&n.to_be_bytes());
    NodeAddr::new(bytes)
}

/// Counts datagrams and bytes that `from` sends from now on, if they are of this kind and for `to`.
fn count(world: &mut World, from: HostId, to: HostId, kind: Option<Kind>) -> Rc<Cell<(usize, usize)>> {
    let sent: Rc<Cell<(usize, usize)>> = Rc::default();
    let (tap, dst) = (sent.clone(), world.host(to).addr);
    world.set_rule(move |_, datagram| {
        if datagram.from == from && datagram.dst == dst && kind.is_none_or(|kind| datagram.kind == kind) {
            let (number, bytes) = tap.get();
            tap.set((number + 1, bytes + datagram.bytes.len()));
        }
        Fate::Pass
    });
    sent
}

fn rekeys(world: &World, host: HostId) -> usize {
    let events = world.host(host).events.iter();
    events
        .filter(|(_, e)| matches!(e, Event::SessionRekeyed { .. }))
        .count()
}

/// A sealed message that no key opens.
fn junk(n: u32) -> Vec<u8> {
    let mut junk = vec![0; 34];
    junk[2] = 6;
    junk[4..8].copy_from_slice(&n.to_le_bytes());
    junk
}

/// A and B are neighbours, or neighbours of R alone; M is a neighbour of R.
fn pair_and_liar(seed: u64, direct: bool) -> (World, [HostId; 4]) {
    let mut world = World::new(seed);
    world.check_every = 100;
    let [a, b, r, m] = [0; 4].map(|_| world.add_host(meshed()));
    world.add_peer(a, b, direct);
    world.add_peer(b, a, direct);
    world.add_peer(a, r, true);
    world.add_peer(b, r, true);
    world.add_peer(m, r, true);
    world.run(10_000);
    world.send(a, b, 1, 200);
    world.run(8_000);
    (world, [a, b, r, m])
}

/// Fifty frames a second in each direction that no key opens, with other traffic and without.
#[test]
fn keyless_frames_cause_no_rekey_while_a_session_is_heard() {
    for (seed, direct, delay) in [(1, true, 20), (2, true, 300), (3, false, 20)] {
        let (mut world, [a, b, r, m]) = pair_and_liar(seed, direct);
        world.conditions.delay = delay;
        let ends = [addr(&world, a), addr(&world, b)];
        for seq in 0..60 {
            world.send(a, b, 100_000 + seq, 200);
            world.run(50);
        }
        world.run(delay);
        let (before, received) = (rekeys(&world, b) + rekeys(&world, a), world.host(b).received.len());
        let mut sent = 0;
        for ms in 0..30_000 {
            if ms % 20 == 0 {
                for (src, dest) in [(ends[0], ends[1]), (ends[1], ends[0])] {
                    world.say(m, r, DATAGRAM, forged::datagram(src, dest, 64, &junk(ms)));
                }
            }
            if ms % 50 == 0 {
                world.send(a, b, ms, 200);
                sent += 1;
            }
            world.run(1);
        }
        world.run(2_000);
        assert_eq!(world.host(b).received.len() - received, sent, "direct {direct}");
        assert_eq!(rekeys(&world, b) + rekeys(&world, a), before, "direct {direct}");
    }
}

#[test]
fn keyless_frames_make_idle_pairs_shake_hands_ever_more_seldom() {
    let (mut world, [a, b, r, m]) = pair_and_liar(4, true);
    let ends = [addr(&world, a), addr(&world, b)];
    let before = rekeys(&world, b);
    for ms in 0..60_000 {
        if ms % 20 == 0 {
            for (src, dest) in [(ends[0], ends[1]), (ends[1], ends[0])] {
                world.say(m, r, DATAGRAM, forged::datagram(src, dest, 64, &junk(ms)));
            }
        }
        world.run(1);
    }
    // Each end may after 0, 1, 3, 7, 15, 31 s, and only if nothing was received for 3 s.
    let made = rekeys(&world, b) - before;
    assert!(made <= 12, "{made}");
}

/// B has lost its keys, and an attacker tries to hide that from it by forged last messages of
/// handshakes.
#[test]
fn lost_keys_are_replaced_despite_forged_last_messages() {
    let took = [false, true].map(|forged| {
        let (mut world, [a, b, r, m]) = pair_and_liar(5, false);
        for seq in 0..20 {
            world.send(a, b, seq, 200);
            world.run(50);
        }
        let ends = [addr(&world, a), addr(&world, b)];
        world.restart(b);
        let (start, before) = (world.now(), world.host(b).received.len());
        for ms in 0..30_000 {
            if forged && ms % 20 == 0 {
                let mut msg3 = vec![3, 0, 76, 0, 0, 73, 0];
                msg3.extend([9; 73]);
                world.say(m, r, DATAGRAM, forged::datagram(ends[0], ends[1], 64, &msg3));
            }
            if ms % 20 == 0 {
                world.send(a, b, ms, 200);
            }
            world.run(1);
            if world.host(b).received.len() > before {
                return world.now() - start;
            }
        }
        u64::MAX
    });
    assert!(took[1] <= took[0].saturating_add(1_000), "{took:?}");
}

/// A neighbour announces coordinates of made-up nodes, and sends messages to them in a victim's
/// name.
#[test]
fn error_signals_amplify_nothing() {
    let mut world = World::new(101);
    world.check_every = 1_000;
    let [r, v, m] = [0; 3].map(|_| world.add_host(meshed()));
    world.add_peer(v, r, true);
    world.add_peer(m, r, true);
    world.run(20_000);
    let (at_r, victim) = (world.host(r).node.coords().to_vec(), addr(&world, v));
    for n in 0..500 {
        let mut path = vec![absent_node(n)];
        path.extend((0..50).map(|k| absent_node(1_000_000 + n * 64 + k)));
        path.extend(&at_r);
        let planted = forged::setup(&path, &at_r);
        world.say(m, r, DATAGRAM, forged::datagram(absent_node(n), at_r[0], 64, &planted));
    }
    world.run(500);
    let sent = count(&mut world, r, v, None);
    let mut bytes = 0;
    for ms in 0..2_000_u32 {
        for n in 0..50 {
            let body = forged::datagram(victim, absent_node((ms * 50 + n) % 500), 64, &[0; 40]);
            bytes += body.len() + 37;
            world.say(m, r, DATAGRAM, body);
        }
        world.run(1);
    }
    let (signals, told) = sent.get();
    assert!((1..=64 + 2 * 32 + 20).contains(&signals), "{signals} in 2 s");
    // None is longer than its cause, which is 113 bytes with the frame around it.
    assert!(told <= signals * 113 && told * 100 < bytes, "{told} bytes for {bytes}");
    assert!(world.host(r).node.counters().signals_refused > 1_000);
}

#[test]
fn error_signals_bring_coordinates_once_a_second() {
    let mut world = World::new(121);
    world.check_every = 1_000;
    let [b, r, a, m] = [0; 4].map(|_| world.add_host(meshed()));
    world.add_peer(b, r, true);
    world.add_peer(a, r, true);
    world.add_peer(a, b, false);
    world.add_peer(b, a, false);
    world.add_peer(m, b, true);
    world.run(10_000);
    for seq in 0..20 {
        world.send(b, a, seq, 200);
        world.run(50);
    }
    world.run(5_000);
    let sent = count(&mut world, b, r, Some(Kind::SessionControl));
    let liar = addr(&world, m);
    let signal = forged::datagram(liar, addr(&world, b), 64, &forged::signal(liar, addr(&world, a), &[]));
    for _ in 0..5_000 {
        world.say(m, b, DATAGRAM, signal.clone());
        world.say(m, b, DATAGRAM, signal.clone());
        world.run(1);
    }
    // Beside reports and the messages of idle ends.
    let (messages, _) = sent.get();
    assert!((5..=20).contains(&messages), "{messages} in 5 s");
    assert!(world.host(b).lane.counters().drops[DropReason::Clear] > 5_000);
}

#[test]
fn a_repeated_setup_is_answered_ten_times_a_second_at_most() {
    let (mut world, [a, b, r, m]) = pair_and_liar(6, true);
    let acks = count(&mut world, b, r, Some(Kind::Ack));
    let body = forged::datagram(
        addr(&world, a),
        addr(&world, b),
        64,
        &forged::setup(&[addr(&world, a)], &[addr(&world, b)]),
    );
    for _ in 0..2_000 {
        for _ in 0..5 {
            world.say(m, r, DATAGRAM, body.clone());
        }
        world.run(1);
    }
    assert!(acks.get().0 <= 21, "{:?}", acks.get());
}

#[test]
fn no_message_is_carried_further_than_64_hops() {
    let mut world = World::new(103);
    let hosts: Vec<HostId> = (0..3).map(|_| world.add_host(meshed())).collect();
    world.add_peer(hosts[0], hosts[1], true);
    world.add_peer(hosts[1], hosts[2], true);
    world.run(20_000);
    let ttls: Rc<Cell<u8>> = Rc::default();
    let tap = ttls.clone();
    // All messages of the core pass this function, including those that the core forwards.
    world.host_mut(hosts[1]).set_hand(move |msg_type, body| {
        if msg_type == DATAGRAM.to_byte() {
            tap.set(
                tap.get()
                    .max(SessionDatagram::parse(body).map_or(0, |datagram| datagram.ttl)),
            );
        }
    });
    let body = forged::datagram(addr(&world, hosts[0]), addr(&world, hosts[2]), 255, &junk(1));
    world.say(hosts[0], hosts[1], DATAGRAM, body);
    world.run(100);
    assert_eq!(ttls.get(), SessionDatagram::DEFAULT_TTL - 1);
}

/// A node has the signed coordinates of another node; a neighbour forges thousands of others.
#[test]
fn made_up_places_do_not_replace_a_proven_one() {
    let mut world = World::new(91);
    world.check_every = 1_000;
    let hosts: Vec<HostId> = (0..5).map(|_| world.add_host(meshed())).collect();
    for pair in hosts.windows(2) {
        world.add_peer(pair[0], pair[1], true);
        world.add_peer(pair[1], pair[0], false);
    }
    let (near, far) = (hosts[0], hosts[4]);
    world.add_peer(near, far, false);
    world.add_peer(far, near, false);
    let m = world.add_host(meshed());
    world.add_peer(m, near, true);
    world.run(20_000);
    world.send(near, far, 1, 200);
    world.run(2_000);
    let [at_far, liar, at_near] = [far, m, near].map(|host| addr(&world, host));
    let root = *world.host(near).node.coords().last().unwrap();
    let true_place = world.host(far).node.coords().to_vec();
    let known = |world: &World| {
        let place = world.host(near).node.coords_of(world.now(), at_far);
        place.map(<[NodeAddr]>::to_vec)
    };
    assert_eq!(known(&world).as_ref(), Some(&true_place));
    // At a rate at which the node still processes each of them: 250 a second.
    for n in 0..5_000 {
        let payload = forged::setup(&[absent_node(n), liar, at_near, root], &[at_near, root]);
        // To a different node each time, as the rate limit applies to each destination.
        let mut dest = [7; 16];
        dest[0] = n as u8;
        world.say(
            m,
            near,
            DATAGRAM,
            forged::datagram(absent_node(n), NodeAddr::new(dest), 64, &payload),
        );
        let lie = forged::setup(&[at_far, liar, at_near, root], &[at_near, root]);
        world.say(m, near, DATAGRAM, forged::datagram(at_far, liar, 64, &lie));
        world.run(4);
    }
    assert_eq!(known(&world).as_ref(), Some(&true_place));
}

/// Five thousand different filters a second.
#[test]
fn filters_without_a_pause_take_no_way_from_the_lane() {
    let mut world = World::new(151);
    world.check_every = 1_000;
    let relay = Config {
        fast: false,
        ..meshed()
    };
    let [a, r, c, m] = [0; 4].map(|_| world.add_host(relay));
    for host in [a, c, m] {
        world.add_peer(host, r, true);
    }
    world.add_peer(a, c, false);
    world.add_peer(c, a, false);
    world.run(10_000);
    for seq in 0..40 {
        world.send(a, c, seq, 200);
        world.run(50);
    }
    let carried = |world: &World| world.host(r).lane.counters().forwarded;
    let (before, received) = (carried(&world), world.host(c).received.len());
    for ms in 0..5_000_u32 {
        for n in 0..5 {
            let number = u64::from(ms) * 5 + n;
            let filter = forged::filter(1_000_000 + number, 8 + (number as usize % 900));
            world.say(m, r, LinkMessageType::FilterAnnounce, filter);
        }
        world.send(a, c, ms, 200);
        world.run(1);
    }
    world.run(1_000);
    assert_eq!(world.host(c).received.len() - received, 5_000);
    let by_lane = carried(&world) - before;
    assert!(by_lane >= 4_900, "{by_lane} of 5000 by the lane");
    assert!(world.host(r).node.counters().announcements_refused > 20_000);
}
