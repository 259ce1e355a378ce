//! Two nodes on one link: the losses that they must survive.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weft_core::{Config, Event, Path};
use weft_sim::{Conditions, Fate, HostId, Kind, World};

/// Sends `count` probes in each direction, one every `every` ms, and returns how many of each
/// direction arrived (a to b, b to a).
fn stream(world: &mut World, a: HostId, b: HostId, count: u32, every: u64) -> (usize, usize) {
    let (before_b, before_a) = (world.host(b).received.len(), world.host(a).received.len());
    for seq in 0..count {
        world.send(a, b, seq, 200);
        world.send(b, a, seq, 200);
        world.run(every);
    }
    world.run(1_000);
    (
        world.host(b).received.len() - before_b,
        world.host(a).received.len() - before_a,
    )
}

fn fast_rekey() -> Config {
    Config {
        rekey: 5_000,
        ..Config::default()
    }
}

fn rekeys(world: &World, host: HostId) -> (u64, u64) {
    let status = world.host(host).node.peer_status(world.now()).next().unwrap();
    (
        status.link.as_ref().unwrap().rekeys,
        status.session.as_ref().unwrap().rekeys,
    )
}

#[test]
fn the_first_packet_waits_for_the_session_and_arrives() {
    let (mut world, a, b) = World::pair(1, Config::default());
    world.send(a, b, 7, 100);
    world.run(500);
    assert_eq!(world.host(b).received.len(), 1);
    assert_eq!(world.host(b).garbled, 0);
}

#[test]
fn a_session_can_be_asked_for_without_a_packet() {
    let (mut world, a, b) = World::pair(1, Config::default());
    world.run(500);
    let up = |world: &World, host: HostId| {
        let status = world.host(host).node.peer_status(world.now()).next().unwrap();
        (status.session.is_some(), status.waiting)
    };
    assert_eq!(up(&world, a), (false, None));
    let (now, key) = (world.now(), world.host(b).key);
    world.host_mut(a).want_session(now, &key);
    world.run(500);
    for host in [a, b] {
        assert_eq!(up(&world, host), (true, None), "{host}");
    }
    // Once more changes nothing, and nothing waits.
    let now = world.now();
    world.host_mut(a).want_session(now, &key);
    assert_eq!(up(&world, a), (true, None));
    assert_eq!(world.host(b).received.len(), 0);
}

#[test]
fn a_slow_core_costs_no_packet() {
    // The packet behind msg3 arrives before the core has derived its keys.
    for seed in 0..10 {
        let (mut world, a, b) = World::pair(seed, fast_rekey());
        for id in [a, b] {
            world.host_mut(id).core_delay = 40;
        }
        world.run(500);
        assert_eq!(stream(&mut world, a, b, 1_000, 20), (1_000, 1_000), "seed {seed}");
        let ups = world
            .host(a)
            .events
            .iter()
            .filter(|(_, e)| matches!(e, Event::SessionUp { .. }))
            .count();
        assert_eq!(ups, 1, "seed {seed}");
        assert!(rekeys(&world, a).1 >= 2, "seed {seed}");
    }
}

#[test]
fn either_side_alone_can_dial() {
    for dialler in 0..2 {
        let mut world = World::new(2);
        let hosts = [world.add_host(Config::default()), world.add_host(Config::default())];
        world.add_peer(hosts[0], hosts[1], dialler == 0);
        world.add_peer(hosts[1], hosts[0], dialler == 1);
        assert_eq!(
            stream(&mut world, hosts[0], hosts[1], 10, 100),
            (10, 10),
            "dialler {dialler}"
        );
    }
}

#[test]
fn simultaneous_opens_leave_one_link_that_lasts() {
    for seed in 0..30 {
        let (mut world, a, b) = World::pair(seed, Config::default());
        assert_eq!(stream(&mut world, a, b, 300, 200), (300, 300), "seed {seed}");
        let ups = world
            .host(a)
            .events
            .iter()
            .filter(|(_, e)| matches!(e, Event::LinkUp { .. }))
            .count();
        assert_eq!(ups, 1, "seed {seed}: {:?}", world.host(a).events);
    }
}

/// Setup, answer and last message of both handshakes cross in any order. Replaced keys open frames
/// for 10 s more, so ends that disagree would lose everything after that.
#[test]
fn sessions_begun_at_both_ends_at_once_settle_on_the_same_keys() {
    for seed in 0..60 {
        let (mut world, a, b) = World::pair(seed, Config::default());
        world.conditions.jitter = [5, 15, 40][seed as usize % 3];
        world.send(a, b, 0, 100);
        world.send(b, a, 0, 100);
        world.run(1_000);
        assert_eq!(stream(&mut world, a, b, 130, 100), (130, 130), "seed {seed}");
    }
}

#[test]
fn rekeys_of_both_layers_under_load_lose_nothing() {
    for seed in 0..10 {
        let (mut world, a, b) = World::pair(seed, fast_rekey());
        assert_eq!(stream(&mut world, a, b, 3_000, 20), (3_000, 3_000), "seed {seed}");
        let (link, session) = rekeys(&world, a);
        assert!(
            link >= 8 && session >= 8,
            "seed {seed}: {link} link and {session} session rekeys"
        );
    }
}

#[test]
fn rekeys_cross_on_a_slow_reordering_path() {
    for seed in 0..20 {
        let (mut world, a, b) = World::pair(seed, fast_rekey());
        world.conditions = Conditions {
            delay: 300,
            jitter: 200,
            loss: 0,
            duplicate: 100,
            ..Conditions::default()
        };
        // Sixteen packets may wait for the session, fewer than arrive during this path's handshake.
        world.send(a, b, 0, 100);
        world.run(5_000);
        // Duplicates must not be delivered twice.
        assert_eq!(stream(&mut world, a, b, 1_500, 40), (1_500, 1_500), "seed {seed}");
    }
}

/// Drops the first `n` datagrams of a kind that any host sends after `after` ms. Returns how many
/// of them are still to come.
fn drop_first(world: &mut World, kind: Kind, after: u64, n: u32) -> Rc<Cell<u32>> {
    let left = Rc::new(Cell::new(n));
    let rule = left.clone();
    world.set_rule(move |now, datagram| {
        if now >= after && datagram.kind == kind && rule.get() > 0 {
            rule.set(rule.get() - 1);
            return Fate::Drop;
        }
        Fate::Pass
    });
    left
}

#[test]
fn the_first_handshake_survives_the_loss_of_each_message() {
    for kind in [
        Kind::LinkMsg1,
        Kind::LinkMsg2,
        Kind::LinkControl,
        Kind::Setup,
        Kind::Ack,
        Kind::Msg3,
        Kind::SessionControl,
    ] {
        for seed in 0..6 {
            let (mut world, a, b) = World::pair(seed, Config::default());
            let left = drop_first(&mut world, kind, 0, 2);
            world.send(a, b, 0, 100);
            world.run(6_000);
            // A packet behind a msg3 that is lost twice does not wait for so long.
            let arrived = world.host(b).received.len();
            assert!(arrived == 1 || kind == Kind::Msg3, "{kind:?} seed {seed}: {arrived}");
            assert_eq!(stream(&mut world, a, b, 20, 100), (20, 20), "{kind:?} seed {seed}");
            assert!(left.get() < 2, "{kind:?} seed {seed}: none was lost");
        }
    }
}

#[test]
fn packets_that_overtake_msg3_wait_for_their_keys() {
    for seed in 0..6 {
        let (mut world, a, b) = World::pair(seed, Config::default());
        let held = Rc::new(RefCell::new(None));
        let tap = held.clone();
        // Repeats of the message are lost.
        world.set_rule(move |_, datagram| match datagram.kind {
            Kind::Msg3 => {
                tap.borrow_mut().get_or_insert_with(|| datagram.clone());
                Fate::Drop
            }
            _ => Fate::Pass,
        });
        (0..8).for_each(|seq| world.send(a, b, seq, 1_000));
        while held.borrow().is_none() {
            world.run(1);
        }
        world.run(50);
        assert_eq!(world.host(b).received.len(), 0, "seed {seed}");
        assert!(world.host(b).lane.inspect().early().count >= 8, "seed {seed}");
        let msg3 = held.take().unwrap();
        world.inject(msg3.src, msg3.dst, msg3.bytes);
        world.run(50);
        assert_eq!(world.host(b).received.len(), 8, "seed {seed}");
        assert_eq!(world.host(b).lane.inspect().early().count, 0, "seed {seed}");
    }
}

#[test]
fn a_responder_without_msg3_repeats_its_ack() {
    // L2 and L3: the initiator continues to send, the responder retransmits, and the session is up
    // within a second.
    let (mut world, a, b) = World::pair(3, Config::default());
    let left = drop_first(&mut world, Kind::Msg3, 0, 1);
    world.send(a, b, 0, 100);
    world.run(300);
    for seq in 1..20 {
        world.send(a, b, seq, 100);
        world.run(50);
    }
    assert_eq!(world.host(b).received.len(), 20, "{:?}", world.host(b).received);
    assert_eq!(left.get(), 0);
}

#[test]
fn a_lost_rekey_message_of_any_kind_loses_no_data() {
    for kind in [
        Kind::LinkMsg1,
        Kind::LinkMsg2,
        Kind::LinkControl,
        Kind::Setup,
        Kind::Ack,
        Kind::Msg3,
        Kind::SessionControl,
    ] {
        for n in [1, 3] {
            for seed in 0..6 {
                let (mut world, a, b) = World::pair(seed, fast_rekey());
                let after = world.now() + 3_000;
                let left = drop_first(&mut world, kind, after, n);
                world.run(500);
                assert_eq!(
                    stream(&mut world, a, b, 1_000, 20),
                    (1_000, 1_000),
                    "{kind:?} x{n} seed {seed}"
                );
                let (link, session) = rekeys(&world, a);
                assert!(
                    link >= 2 && session >= 2,
                    "{kind:?} x{n} seed {seed}: {link}, {session}"
                );
                // Without a mesh, neighbours may have no message of that kind for each other.
                assert!(
                    left.get() < n || kind == Kind::LinkControl,
                    "{kind:?} x{n} seed {seed}: none was lost"
                );
            }
        }
    }
}

#[test]
fn a_link_whose_first_open_crossed_reopens_from_one_side() {
    // Only the node with the larger address can dial, and its present keys are from the handshake
    // that it lost.
    for seed in 0..12 {
        let (mut world, a, b) = World::pair(seed, fast_rekey());
        stream(&mut world, a, b, 20, 50);
        let (small, large) = if world.host(a).node_addr() < world.host(b).node_addr() {
            (a, b)
        } else {
            (b, a)
        };
        let old = (world.host(small).addr, world.host(large).addr);
        // Both roam at once and stay unreachable until each has given up the other's address; then
        // the one with the smaller node address is back at the address that the other dials.
        world.move_host(small, "198.51.100.1:9".parse().unwrap());
        world.move_host(large, "198.51.100.2:9".parse().unwrap());
        for _ in 0..40 {
            world.send(large, small, 1, 100);
            world.run(1_000);
        }
        world.move_host(small, old.0);
        world.run(20_000);
        assert_eq!(stream(&mut world, a, b, 50, 50), (50, 50), "seed {seed}");
    }
}

#[test]
fn an_address_change_is_followed_within_two_seconds() {
    let (mut world, a, b) = World::pair(5, Config::default());
    assert_eq!(stream(&mut world, a, b, 50, 20), (50, 50));
    world.move_host(b, "198.51.100.7:4000".parse().unwrap());
    let moved = world.now();
    stream(&mut world, a, b, 300, 20);
    let back = world
        .host(b)
        .received
        .iter()
        .find(|(at, _)| *at > moved)
        .map(|(at, _)| at - moved);
    assert!(back.is_some_and(|ms| ms <= 2_000), "{back:?}");
}

#[test]
fn a_node_that_moves_and_only_listens_is_found_again() {
    let (mut world, a, b) = World::pair(6, Config::default());
    assert_eq!(stream(&mut world, a, b, 50, 20), (50, 50));
    world.move_host(b, "198.51.100.7:4000".parse().unwrap());
    let (moved, before) = (world.now(), world.host(b).received.len());
    world.host_mut(b).node.handle_network_change(moved);
    for seq in 0..100 {
        world.send(a, b, 100 + seq, 100);
        world.run(20);
    }
    let back = world.host(b).received.get(before).map(|(at, _)| at - moved);
    assert!(back.is_some_and(|ms| ms <= 500), "{back:?}");
}

#[test]
fn a_killed_peer_is_back_within_five_seconds_of_its_return() {
    for (seed, down) in (0..12).zip([50, 500, 2_000, 5_000, 20_000, 40_000].into_iter().cycle()) {
        for killed_dials in [true, false] {
            let mut world = World::new(seed);
            let (a, b) = (world.add_host(Config::default()), world.add_host(Config::default()));
            world.add_peer(a, b, true);
            world.add_peer(b, a, killed_dials);
            stream(&mut world, a, b, 50, 20);
            world.kill(b);
            for seq in 0..down / 50 {
                world.send(a, b, 1_000 + seq as u32, 100);
                world.run(50);
            }
            world.restart(b);
            let back = world.now();
            let heard = (world.host(a).received.len(), world.host(b).received.len());
            for seq in 0..120 {
                world.send(a, b, 5_000 + seq, 100);
                world.send(b, a, 5_000 + seq, 100);
                world.run(50);
            }
            let first_a = world.host(a).received.get(heard.0).map(|(at, _)| at - back);
            let first_b = world.host(b).received.get(heard.1).map(|(at, _)| at - back);
            assert!(
                first_a.is_some_and(|ms| ms < 5_000) && first_b.is_some_and(|ms| ms < 5_000),
                "seed {seed} down {down} ms, dials {killed_dials}: {first_a:?} {first_b:?}"
            );
        }
    }
}

#[test]
fn a_peer_that_stopped_in_order_is_reached_after_its_restart() {
    let (mut world, a, b) = World::pair(13, Config::default());
    stream(&mut world, a, b, 5, 100);
    world.host_mut(b).node.shut_down();
    world.run(300);
    world.kill(b);
    world.run(1_000);
    world.restart(b);
    world.run(1_000);
    assert_eq!(stream(&mut world, a, b, 50, 100), (50, 50));
    let downs = |id| {
        world
            .host(id)
            .events
            .iter()
            .filter(|(_, e)| matches!(e, Event::SessionDown { .. }))
            .count()
    };
    assert_eq!((downs(a), downs(b)), (1, 0));
}

#[test]
fn a_peer_long_gone_is_dialled_seldom_until_packets_wait() {
    let (mut world, a, b) = World::pair(14, Config::default());
    stream(&mut world, a, b, 5, 100);
    world.kill(b);
    let dials = Rc::new(Cell::new(0));
    let counter = dials.clone();
    world.set_rule(move |_, datagram| {
        counter.set(counter.get() + u32::from(datagram.kind == Kind::LinkMsg1));
        Fate::Pass
    });
    let minute = |world: &mut World| {
        dials.set(0);
        world.run(60_000);
        dials.get()
    };
    let early = minute(&mut world);
    world.run(900_000);
    let late = minute(&mut world);
    assert!(
        (15..60).contains(&early) && (1..20).contains(&late),
        "{early} and {late} dials a minute"
    );
    world.send(a, b, 0, 100);
    let wanted = minute(&mut world);
    assert!(
        wanted > 2 * late,
        "{wanted} dials in the minute when a packet waits, {late} before"
    );
    world.restart(b);
    world.run(5_000);
    assert_eq!(stream(&mut world, a, b, 20, 100), (20, 20));
}

#[test]
fn heavy_loss_delays_but_never_wedges() {
    for seed in 0..10 {
        let (mut world, a, b) = World::pair(seed, fast_rekey());
        world.conditions = Conditions {
            delay: 30,
            jitter: 20,
            loss: 300,
            duplicate: 50,
            ..Conditions::default()
        };
        stream(&mut world, a, b, 2_000, 50);
        world.conditions = Conditions::default();
        world.run(5_000);
        assert_eq!(stream(&mut world, a, b, 50, 20), (50, 50), "seed {seed}");
    }
}

#[test]
fn replayed_handshakes_change_nothing() {
    let (mut world, a, b) = World::pair(9, fast_rekey());
    let log = Rc::new(RefCell::new(Vec::new()));
    let tap = log.clone();
    world.set_rule(move |_, datagram| {
        if datagram.from != usize::MAX {
            tap.borrow_mut().push(datagram.clone());
        }
        Fate::Pass
    });
    stream(&mut world, a, b, 1_000, 20);
    let ups = |world: &World| {
        world
            .host(b)
            .events
            .iter()
            .filter(|(_, e)| matches!(e, Event::LinkUp { .. }))
            .count()
    };
    let (before, recorded) = (ups(&world), log.borrow().clone());
    for datagram in recorded {
        world.inject("203.0.113.5:9".parse().unwrap(), datagram.dst, datagram.bytes);
        world.run(1);
    }
    assert_eq!(stream(&mut world, a, b, 500, 20), (500, 500));
    assert_eq!(ups(&world), before);
    let path = world.host(b).node.peer_status(world.now()).next().unwrap().path;
    assert_eq!(
        path,
        Some(Path::Direct(world.host(a).addr)),
        "a replay must not move the path"
    );
}

#[test]
fn an_idle_pair_costs_little_and_stays_linked() {
    let (mut world, a, b) = World::pair(11, Config::default());
    stream(&mut world, a, b, 5, 100);
    let frames = |world: &World| {
        world
            .host(a)
            .node
            .peer_status(world.now())
            .next()
            .unwrap()
            .link
            .unwrap()
            .tx
            .packets
    };
    let before = frames(&world);
    world.run(600_000);
    let sent = frames(&world) - before;
    assert!(sent < 200, "{sent} frames in ten idle minutes");
    let downs = world
        .host(a)
        .events
        .iter()
        .filter(|(_, e)| matches!(e, Event::LinkDown { .. }))
        .count();
    assert_eq!(downs, 0);
    assert_eq!(stream(&mut world, a, b, 10, 100), (10, 10));
}

#[test]
fn an_idle_session_is_not_reopened_by_reports_of_the_other_end() {
    // The peer keeps its session longer, as a FIPS daemon does, and sends in it.
    let mut world = World::new(15);
    let a = world.add_host(Config::default());
    let patient = Config {
        session_idle: 90_000,
        ..Config::default()
    };
    let b = world.add_host(patient);
    world.add_peer(a, b, true);
    world.add_peer(b, a, true);
    stream(&mut world, a, b, 5, 100);
    let ups = |world: &World| {
        let events = &world.host(a).events;
        events
            .iter()
            .filter(|(_, e)| matches!(e, Event::SessionUp { .. }))
            .count()
    };
    world.run(81_000);
    assert!(
        world
            .host(a)
            .node
            .peer_status(world.now())
            .next()
            .unwrap()
            .session
            .is_none()
    );
    // Its packets are received, and start no handshake.
    world.send(b, a, 77, 100);
    world.run(200);
    assert_eq!(world.host(a).received.last().map(|(_, probe)| probe.seq), Some(77));
    assert_eq!(ups(&world), 1);
    // This node's packets do.
    assert_eq!(stream(&mut world, a, b, 5, 100), (5, 5));
    assert_eq!(ups(&world), 2);
}

#[test]
fn a_pair_recovers_when_one_machine_wakes_up() {
    // Short, longer than a dead link, longer than a rekey, a night.
    for (seed, slept) in [(1, 5_000), (2, 60_000), (3, 600_000), (4, 8 * 3_600_000)] {
        let (mut world, a, b) = World::pair(seed, Config::default());
        world.run(1_000);
        assert_eq!(stream(&mut world, a, b, 50, 20), (50, 50));
        world.suspend(a);
        world.run(slept);
        world.resume(a);
        world.run(5_000);
        assert_eq!(stream(&mut world, a, b, 50, 20), (50, 50), "after {slept} ms");
    }
}

#[test]
fn an_orderly_stop_is_noticed_at_once() {
    let (mut world, a, b) = World::pair(12, Config::default());
    stream(&mut world, a, b, 5, 100);
    let now = world.now();
    world.host_mut(b).node.shut_down();
    world.run(1);
    // The Disconnect is an output like any other; the next timer of the host flushes it.
    world.run(300);
    world.kill(b);
    world.run(200);
    let down = world
        .host(a)
        .events
        .iter()
        .find(|(at, e)| *at >= now && matches!(e, Event::LinkDown { .. }));
    assert!(down.is_some(), "{:?}", world.host(a).events);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let (mut world, a, b) = World::pair(seed, fast_rekey());
        world.conditions = Conditions {
            delay: 20,
            jitter: 30,
            loss: 50,
            duplicate: 20,
            ..Conditions::default()
        };
        stream(&mut world, a, b, 500, 20);
        world.trace_hash()
    };
    assert_eq!(run(4), run(4));
    assert_ne!(run(4), run(5));
}
