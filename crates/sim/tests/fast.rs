//! Fast frames between nodes: agreed on if both support them, proven before they carry data,
//! abandoned if they fail.

use std::cell::RefCell;
use std::rc::Rc;

use weft_core::{Config, Event, Frames, Path, PeerState, SuiteCosts};
use weft_noise::fast::Suite;
use weft_packet::DropReason;
use weft_sim::{Conditions, Datagram, Fate, HostId, Kind, World};
use weft_wire::fast;

use crate::common::stream;

const AES: Frames = Frames::Fast(Suite::Aes256Gcm);

fn is_fast(datagram: &Datagram) -> bool {
    fast::is_fast(&datagram.bytes)
}

fn frames(world: &World, host: HostId) -> Frames {
    world.host(host).node.peer_status(world.now()).next().unwrap().frames
}

/// Packets that a host has sealed in fast frames so far.
fn sealed(world: &World, host: HostId) -> u64 {
    world.host(host).lane.counters().fast_tx
}

fn config(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = Config::default();
    change(&mut config);
    config
}

#[test]
fn two_nodes_agree_within_a_second_and_data_moves_over() {
    for seed in 0..10 {
        let (mut world, a, b) = World::pair(seed, Config::default());
        world.send(a, b, 0, 100);
        world.run(1_000);
        assert_eq!((frames(&world, a), frames(&world, b)), (AES, AES), "seed {seed}");
        let before = (sealed(&world, a), sealed(&world, b));
        assert_eq!(stream(&mut world, a, b, 200), (200, 200), "seed {seed}");
        assert_eq!((sealed(&world, a) - before.0, sealed(&world, b) - before.1), (200, 200));
    }
}

#[test]
fn keys_move_on_and_epochs_change_without_a_loss() {
    for seed in 0..5 {
        let often = config(|c| {
            c.rekey = 5_000;
            c.phase_frames = 40;
        });
        let (mut world, a, b) = World::pair(seed, often);
        world.conditions = Conditions {
            delay: 30,
            jitter: 25,
            loss: 0,
            duplicate: 50,
            ..Conditions::default()
        };
        // Sixteen packets may wait for the session, fewer than arrive during this path's handshake.
        world.send(a, b, 0, 100);
        world.run(1_000);
        assert_eq!(stream(&mut world, a, b, 1_500), (1_500, 1_500), "seed {seed}");
        let status = world.host(a).node.peer_status(world.now()).next().unwrap();
        assert!(
            status.session.as_ref().unwrap().rekeys >= 4,
            "seed {seed}: {}",
            status.session.as_ref().unwrap().rekeys
        );
        assert!(sealed(&world, a) > 1_300, "seed {seed}: {}", sealed(&world, a));
        assert_eq!(
            world.host(a).lane.counters().drops[DropReason::FastTag],
            0,
            "seed {seed}"
        );
        // Once agreed, the next epochs change nothing that has to be reported.
        let changes = |host: HostId| {
            let events = world.host(host).events.iter();
            events.filter(|(_, e)| matches!(e, Event::FramesChanged { .. })).count()
        };
        assert_eq!((changes(a), changes(b)), (1, 1), "seed {seed}");
    }
}

#[test]
fn loss_delays_the_agreement_and_nothing_else() {
    let mut fast = 0;
    for seed in 0..20 {
        let (mut world, a, b) = World::pair(seed, Config::default());
        world.send(a, b, 0, 100);
        world.run(3_000);
        world.conditions.loss = 300;
        world.run(20_000);
        world.conditions.loss = 0;
        // Nothing waits for it: without an agreement packets use FIPS frames.
        assert_eq!(stream(&mut world, a, b, 50), (50, 50), "seed {seed}");
        fast += usize::from(frames(&world, a) == AES && frames(&world, b) == AES);
    }
    assert!(fast >= 18, "{fast} of 20");
}

#[test]
fn a_node_that_does_not_offer_them_gets_fips_frames() {
    let mut world = World::new(3);
    let (a, b) = (
        world.add_host(Config::default()),
        world.add_host(config(|c| c.fast = false)),
    );
    world.add_peer(a, b, true);
    world.add_peer(b, a, false);
    world.set_rule(|_, datagram| {
        assert!(!is_fast(datagram));
        Fate::Pass
    });
    assert_eq!(stream(&mut world, a, b, 500), (500, 500));
    assert_eq!((frames(&world, a), frames(&world, b)), (Frames::Fips, Frames::Fips));
}

#[test]
fn without_a_common_cipher_there_are_none() {
    let mut world = World::new(4);
    let only = |suite: Suite| config(|c| c.suites = SuiteCosts::new([(suite, 1)]));
    let (a, b) = (
        world.add_host(only(Suite::Aes256Gcm)),
        world.add_host(only(Suite::ChaCha20Poly1305)),
    );
    world.add_peer(a, b, true);
    world.add_peer(b, a, false);
    assert_eq!(stream(&mut world, a, b, 100), (100, 100));
    let none = Frames::NoCommonSuite;
    assert_eq!((frames(&world, a), frames(&world, b)), (none, none));
}

/// Dropping fast frames, including a withheld confirm, costs no packet: none has carried data yet.
#[test]
fn blocked_fast_frames_are_a_downgrade_that_is_reported() {
    for (seed, from) in [(1, None), (2, Some(0)), (3, Some(1))] {
        let quick = config(|c| c.rekey = 30_000);
        let (mut world, a, b) = World::pair(seed, quick);
        let blocked = Rc::new(RefCell::new(true));
        let rule = blocked.clone();
        world.set_rule(move |_, datagram| {
            let theirs = from.is_none_or(|at: usize| datagram.from == [a, b][at]);
            if *rule.borrow() && theirs && is_fast(datagram) {
                return Fate::Drop;
            }
            Fate::Pass
        });
        assert_eq!(stream(&mut world, a, b, 1_000), (1_000, 1_000), "from {from:?}");
        let down = Frames::Unproven(Suite::Aes256Gcm);
        // A node that receives the peer's confirm knows that the keys agree, but not that its own
        // frames arrive.
        assert_eq!((frames(&world, a), frames(&world, b)), (down, down), "from {from:?}");
        *blocked.borrow_mut() = false;
        world.run(10_000);
        assert_eq!(stream(&mut world, a, b, 2_500), (2_500, 2_500), "from {from:?}");
        assert_eq!((frames(&world, a), frames(&world, b)), (AES, AES), "from {from:?}");
    }
}

#[test]
fn old_frames_are_worth_nothing() {
    let often = config(|c| {
        c.rekey = 8_000;
        c.phase_frames = 60;
    });
    let (mut world, a, b) = World::pair(6, often);
    let seen: Rc<RefCell<Vec<Datagram>>> = Rc::default();
    let tap = seen.clone();
    world.set_rule(move |_, datagram| {
        if datagram.from != Datagram::NOBODY && is_fast(datagram) {
            tap.borrow_mut().push(datagram.clone());
        }
        Fate::Pass
    });
    assert_eq!(stream(&mut world, a, b, 1_000), (1_000, 1_000));
    let seen = seen.borrow().clone();
    assert!(seen.len() > 1_500, "{}", seen.len());
    let received = (world.host(a).received.len(), world.host(b).received.len());
    let opened = [a, b].map(|host| world.host(host).lane.counters().fast_rx);
    for datagram in seen.iter() {
        // Unchanged, and reflected to its sender.
        world.inject(datagram.src, datagram.dst, datagram.bytes.clone());
        world.inject(datagram.dst, datagram.src, datagram.bytes.clone());
        let mut altered = datagram.bytes.clone();
        altered[1] ^= fast::FLAG_PHASE;
        world.inject(datagram.src, datagram.dst, altered);
        world.run(1);
    }
    world.run(1_000);
    assert_eq!((world.host(a).received.len(), world.host(b).received.len()), received);
    // The reports of the two daemons continue meanwhile, so a few genuine ones arrive.
    for (host, before) in [a, b].into_iter().zip(opened) {
        let counters = world.host(host).lane.counters();
        assert!(counters.fast_rx - before < 50, "{}", counters.fast_rx - before);
        assert!(
            counters.drops[DropReason::FastReplay] > 100,
            "{}",
            counters.drops[DropReason::FastReplay]
        );
    }
    assert_eq!(stream(&mut world, a, b, 100), (100, 100));
}

#[test]
fn through_others_they_are_relayed_and_come_back() {
    let mut world = World::new(7);
    let mesh = config(|c| {
        c.mesh = true;
        c.heartbeat = 1_000;
        c.link_dead = 3_000;
    });
    let hosts: Vec<HostId> = (0..3).map(|_| world.add_host(mesh)).collect();
    let [a, b, relay] = hosts[..] else { unreachable!() };
    for (x, y) in [(a, b), (a, relay), (b, relay)] {
        world.add_peer(x, y, true);
        world.add_peer(y, x, false);
    }
    world.run(5_000);
    assert_eq!(stream(&mut world, a, b, 100), (100, 100));
    let status = |world: &World| {
        let key = world.host(b).identity().public();
        let now = world.now();
        world
            .host(a)
            .node
            .peer_status(now)
            .find(|peer| peer.key == key)
            .unwrap()
    };
    assert!(matches!(status(&world).path, Some(Path::Direct(_))));
    assert_eq!(status(&world).frames, AES);

    world.set_link(
        a,
        b,
        Some(Conditions {
            loss: 1_000,
            ..Conditions::default()
        }),
    );
    world.run(10_000);
    let direct = |world: &World| sealed(world, a) - world.host(a).lane.counters().relayed_tx;
    let before = (direct(&world), sealed(&world, a));
    assert_eq!(stream(&mut world, a, b, 300), (300, 300));
    assert!(matches!(status(&world).path, Some(Path::Relayed(_))));
    assert_eq!((direct(&world), sealed(&world, a)), (before.0, before.1 + 300));
    assert_eq!(status(&world).frames, Frames::Relayed(Suite::Aes256Gcm));

    world.set_link(a, b, None);
    world.run(60_000);
    let before = direct(&world);
    assert_eq!(stream(&mut world, a, b, 300), (300, 300));
    assert!(matches!(status(&world).path, Some(Path::Direct(_))));
    assert!(direct(&world) - before > 250);
}

#[test]
fn capabilities_that_are_lost_are_told_again() {
    // The whole negotiation, or only the capabilities while their acknowledgements pass.
    const CAPABILITIES: usize = 142;
    for (lost, alone) in [(1, false), (2, false), (3, false), (1, true), (2, true), (3, true)] {
        let (mut world, a, b) = World::pair(8, Config::default());
        let left = Rc::new(RefCell::new(lost));
        let rule = left.clone();
        world.set_rule(move |_, datagram| {
            let meant = !alone || datagram.bytes.len() == CAPABILITIES;
            let mut left = rule.borrow_mut();
            if datagram.kind == Kind::SessionControl && datagram.from == a && meant && *left > 0 {
                *left -= 1;
                return Fate::Drop;
            }
            Fate::Pass
        });
        world.send(a, b, 0, 100);
        world.run(8_000);
        assert_eq!(
            (frames(&world, a), frames(&world, b)),
            (AES, AES),
            "{lost} lost, {alone}"
        );
        assert_eq!(*left.borrow(), 0, "{lost} were to be lost, {alone}");
    }
}

/// `a` sends data to `b` only in fast frames.
fn require_fast(world: &mut World, a: HostId, b: HostId) {
    let key = world.host(b).identity().public();
    world.host_mut(a).node.require_fast(&key, true);
}

#[test]
fn a_node_that_requires_them_and_has_them_is_not_affected() {
    let often = config(|c| {
        c.rekey = 5_000;
        c.phase_frames = 40;
    });
    let (mut world, a, b) = World::pair(9, often);
    require_fast(&mut world, a, b);
    require_fast(&mut world, b, a);
    assert_eq!(stream(&mut world, a, b, 600), (600, 600));
    let fips_data = |host: HostId| {
        let counters = world.host(host).lane.counters();
        counters.tun_rx - counters.fast_tx
    };
    assert_eq!((fips_data(a), fips_data(b)), (0, 0));
}

#[test]
fn a_node_that_requires_fast_frames_sends_nothing_else() {
    let mut world = World::new(10);
    let (a, b) = (
        world.add_host(Config::default()),
        world.add_host(config(|c| c.fast = false)),
    );
    world.add_peer(a, b, true);
    world.add_peer(b, a, false);
    require_fast(&mut world, a, b);
    // The peer requires nothing, and its packets pass.
    assert_eq!(stream(&mut world, a, b, 500), (0, 500));
    let status = world.host(a).node.peer_status(world.now()).next().unwrap();
    assert!(status.held_back() && status.state == PeerState::Session, "{status:?}");
    assert_eq!(status.frames, Frames::Fips);
    let counters = world.host(a).lane.counters();
    // Packets from before the session also waited for fast frames.
    assert_eq!(counters.fast_waited, 500);
    assert!(counters.drops[DropReason::Queue] > 450, "{counters:?}");
}

/// Data waits while fast frames are dropped, and is then sent in them, with the newest of the
/// packets that waited.
#[test]
fn packets_that_wait_for_fast_frames_are_sent_in_them() {
    let quick = config(|c| c.rekey = 30_000);
    let (mut world, a, b) = World::pair(11, quick);
    require_fast(&mut world, a, b);
    let blocked = Rc::new(RefCell::new(true));
    let rule = blocked.clone();
    world.set_rule(move |_, datagram| {
        if *rule.borrow() && is_fast(datagram) {
            return Fate::Drop;
        }
        Fate::Pass
    });
    assert_eq!(stream(&mut world, a, b, 1_000).0, 0);
    *blocked.borrow_mut() = false;
    world.run(25_000);
    assert_eq!(frames(&world, a), AES);
    let waited = world.host(b).received.len();
    assert!((1..=16).contains(&waited), "{waited}");
    assert_eq!(stream(&mut world, a, b, 200), (200, 200));
    assert_eq!(sealed(&world, a) as usize, waited + 200);
}

#[test]
fn a_downgrade_is_told_across_restarts_and_the_usual_is_not() {
    for remembered in [false, true] {
        let mut world = World::new(12);
        let (a, b) = (
            world.add_host(Config::default()),
            world.add_host(config(|c| c.fast = false)),
        );
        world.add_peer(a, b, true);
        world.add_peer(b, a, false);
        if remembered {
            let key = world.host(b).identity().public();
            world.host_mut(a).node.remember_fast(&key);
        }
        stream(&mut world, a, b, 500);
        let events = world.host(a).events.iter();
        let told = events.filter(|(_, e)| {
            matches!(
                e,
                Event::FramesChanged {
                    frames: Frames::Fips,
                    ..
                }
            )
        });
        assert_eq!(told.count(), usize::from(remembered));
    }
}
