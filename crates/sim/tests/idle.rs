//! Links without payload: what they send, and how they notice a peer that is gone.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weft_core::{Config, Event, KeepaliveIntervals, LinkDown};
use weft_sim::{Fate, HostId, World};

use crate::common::sizes::status;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// Nothing is sent by the host itself without payload.
const NEVER: KeepaliveIntervals = KeepaliveIntervals::all(0);

/// The times at which datagrams of each host were sent.
type Sent = Rc<RefCell<Vec<(u64, HostId)>>>;

/// Two nodes that have exchanged payload and are idle now.
fn idle(seed: u64, config: Config, intervals: [KeepaliveIntervals; 2]) -> (World, HostId, HostId, Sent) {
    let (mut world, a, b) = World::pair(seed, config);
    for (host, intervals) in [a, b].into_iter().zip(intervals) {
        world.host_mut(host).node.set_keepalive(intervals);
    }
    world.run(SECOND);
    world.send(a, b, 1, 100);
    world.send(b, a, 1, 100);
    world.run(SECOND);
    let sent = Sent::default();
    let (log, hosts) = (Rc::clone(&sent), [world.host(a).addr, world.host(b).addr]);
    world.set_rule(move |now, datagram| {
        let host = if datagram.src == hosts[0] { a } else { b };
        log.borrow_mut().push((now, host));
        Fate::Pass
    });
    (world, a, b, sent)
}

fn config() -> Config {
    Config {
        mesh: true,
        ..Config::default()
    }
}

/// The number of datagrams of a host within a time, in ms.
fn count(sent: &Sent, host: HostId, from: u64, to: u64) -> usize {
    let sent = sent.borrow();
    sent.iter()
        .filter(|(at, of)| *of == host && (from..to).contains(at))
        .count()
}

fn downs(world: &World, host: HostId) -> Vec<(u64, LinkDown)> {
    let events = world.host(host).events.iter();
    let down = |(at, event): &(u64, Event)| match event {
        Event::LinkDown { reason, .. } => Some((*at, *reason)),
        _ => None,
    };
    events.filter_map(down).collect()
}

fn overdue(world: &World, host: HostId) -> usize {
    let events = world.host(host).events.iter();
    events
        .filter(|(_, event)| matches!(event, Event::KeysOverdue { .. }))
        .count()
}

#[test]
fn an_idle_link_stays_up_with_one_datagram_in_20_s() {
    for seed in 0..5 {
        let (mut world, a, b, sent) = idle(seed, config(), [KeepaliveIntervals::default(); 2]);
        let begun = world.now();
        world.run(4 * HOUR);
        for host in [a, b] {
            let all = count(&sent, host, begun, world.now());
            assert!(all < 4 * 180, "seed {seed}: {all} datagrams in 4 h");
            assert!(all >= 4 * 144, "seed {seed}: {all} datagrams in 4 h");
            assert_eq!((downs(&world, host), overdue(&world, host)), (vec![], 0), "seed {seed}");
        }
    }
}

#[test]
fn an_idle_link_takes_less_than_a_megabyte_a_day() {
    /// Bytes of the headers of IPv4 and UDP.
    const HEADERS: usize = 28;
    for seed in 0..5 {
        let (mut world, a, b, _) = idle(seed, config(), [KeepaliveIntervals::default(); 2]);
        world.run(HOUR);
        let bytes = Rc::new(Cell::new(0));
        let sum = bytes.clone();
        world.set_rule(move |_, datagram| {
            sum.set(sum.get() + datagram.bytes.len() + HEADERS);
            Fate::Pass
        });
        // A message in an hour, as members of a network exchange it.
        for hour in 0..24 {
            world.send(a, b, hour, 300);
            world.send(b, a, hour, 300);
            world.run(HOUR);
        }
        for (host, peer) in [(a, b), (b, a)] {
            assert_eq!(downs(&world, host), [], "seed {seed}");
            let peer = status(&world, host, peer);
            assert_eq!(
                (
                    peer.link.unwrap().keys_end_s,
                    peer.session.and_then(|session| session.keys_end_s)
                ),
                (None, None),
                "no key is overdue"
            );
        }
        assert!(
            bytes.get() < 1_000_000,
            "seed {seed}: {} bytes in both directions",
            bytes.get()
        );
        eprintln!("seed {seed}: {} bytes in a day, both directions", bytes.get());
    }
}

#[test]
fn nothing_is_sent_where_neither_end_needs_it() {
    let (mut world, a, b, sent) = idle(1, config(), [NEVER; 2]);
    world.run(2 * HOUR);
    // What the mesh has announced is repeated less and less often, and new keys are exchanged before the
    // old ones end: 4 times an hour, with the agreement behind it.
    let quiet = world.now();
    world.run(4 * HOUR);
    for host in [a, b] {
        let all = count(&sent, host, quiet, world.now());
        assert!(all <= 4 * 30, "{all} datagrams in 4 h: {:?}", sent.borrow());
        assert_eq!((downs(&world, host), overdue(&world, host)), (vec![], 0));
    }
    // It works at once.
    world.send(a, b, 2, 100);
    world.run(200);
    assert_eq!(world.host(b).received.len(), 2);
}

#[test]
fn each_end_has_an_interval_of_its_own() {
    let needs = KeepaliveIntervals::all(100);
    let (mut world, a, b, sent) = idle(2, config(), [needs, NEVER]);
    world.run(2 * MINUTE);
    let quiet = world.now();
    world.run(14 * MINUTE);
    // And at most 3 repeats of announcements of the mesh.
    let [of_a, of_b] = [a, b].map(|host| count(&sent, host, quiet, world.now()));
    assert!(of_b <= 3 && (8..=12).contains(&of_a), "{of_a} and {of_b} in 14 minutes");

    // The need changes, and the peer learns of it first.
    world.host_mut(a).node.set_keepalive(KeepaliveIntervals::all(25));
    world.run(3 * MINUTE);
    let later = world.now();
    world.run(5 * MINUTE);
    let of_a = count(&sent, a, later, world.now());
    assert!(of_a >= 11, "{of_a} in 5 minutes");
    assert_eq!(downs(&world, b), []);
}

#[test]
fn a_lost_peer_is_noticed_after_its_interval_or_by_payload() {
    let (mut world, a, b, _) = idle(3, config(), [KeepaliveIntervals::default(); 2]);
    world.run(5 * MINUTE);
    world.kill(b);
    let gone = world.now();
    world.run(2 * MINUTE);
    let (at, reason) = downs(&world, a)[0];
    assert_eq!(reason, LinkDown::Silent);
    assert!((8 * SECOND..=33 * SECOND).contains(&(at - gone)), "{} ms", at - gone);

    let (mut world, a, b, _) = idle(3, config(), [NEVER; 2]);
    world.run(5 * MINUTE);
    world.kill(b);
    let gone = world.now();
    world.run(5 * MINUTE);
    assert_eq!(downs(&world, a), [], "nothing was expected of it");
    world.send(a, b, 2, 100);
    let asked = world.now();
    world.run(MINUTE);
    let silent = |(at, event): &&(u64, Event)| *at > gone && matches!(event, Event::LinkSilent { .. });
    let doubted = world.host(a).events.iter().find(silent).unwrap().0;
    assert!(doubted - asked <= 2 * SECOND, "{} ms", doubted - asked);
    let (at, _) = downs(&world, a)[0];
    assert!(at - asked <= 31 * SECOND, "{} ms", at - asked);
}

#[test]
fn no_single_lost_datagram_ends_a_link() {
    // Each datagram of the agreement is lost once, whichever it is; and one payload that only one end
    // has seen.
    for nth in 0..12 {
        for payload in [false, true] {
            let (mut world, a, b, _) = idle(nth, config(), [NEVER, KeepaliveIntervals::all(300)]);
            let mut seen = 0;
            let begun = world.now();
            world.set_rule(move |now, _| {
                let counts = now >= begun + 55 * SECOND;
                seen += u64::from(counts);
                if counts && seen == nth + 1 {
                    Fate::Drop
                } else {
                    Fate::Pass
                }
            });
            world.run(5 * MINUTE);
            if payload {
                let mut lost = false;
                world.set_rule(move |_, _| {
                    if std::mem::replace(&mut lost, true) {
                        Fate::Pass
                    } else {
                        Fate::Drop
                    }
                });
                world.send(a, b, 2, 100);
            }
            world.run(2 * HOUR);
            for host in [a, b] {
                assert_eq!(downs(&world, host), [], "{nth} {payload}");
            }
        }
    }
}

#[test]
fn a_node_that_is_not_configured_has_no_long_silence() {
    let mut world = World::new(4);
    let (a, b) = (world.add_host(config()), world.add_host(config()));
    world.add_peer(b, a, true);
    world.run(10 * SECOND);
    assert!(world.together(a, b));
    world.host_mut(b).node.set_keepalive(NEVER);
    world.run(5 * MINUTE);
    world.kill(b);
    let gone = world.now();
    world.run(2 * MINUTE);
    let (at, _) = downs(&world, a)[0];
    assert!(at - gone <= 31 * SECOND, "{} ms", at - gone);
}

#[test]
fn a_clock_that_jumps_replaces_the_keys_of_an_idle_link_at_once() {
    let (mut world, a, b, _) = idle(5, config(), [NEVER; 2]);
    world.run(5 * MINUTE);
    let rekeys = |world: &World| status(world, a, b).link.unwrap().rekeys;
    let before = rekeys(&world);
    let now = world.now();
    world.host_mut(a).node.handle_resumed(now);
    world.host_mut(a).settle(now);
    world.run(2 * SECOND);
    assert_eq!(rekeys(&world), before + 1);
    assert_eq!(downs(&world, b), []);
}
