//! Several lanes of two nodes, with their cores: the traffic of each, and an attacker on the path
//! that has captured it and delivers it to other lanes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weft_contract::lane_of;
use weft_core::{Config, Frames};
use weft_noise::fast::Suite;
use weft_sim::{Datagram, Fate, HostId, World};
use weft_wire::fast;

use crate::common::stream;

const FAST: Frames = Frames::Fast(Suite::Aes256Gcm);
/// The counters of a frame that is not opened.
const REFUSED: [&str; 3] = ["fast_replays", "fast_open_failed", "fast_unknown"];

fn pair(seed: u64, lanes: [u8; 2], change: impl Fn(&mut Config)) -> (World, [HostId; 2]) {
    let mut world = World::new(seed);
    let hosts = lanes.map(|lanes| {
        let mut config = Config {
            lanes,
            ..Config::default()
        };
        change(&mut config);
        world.add_host(config)
    });
    let [a, b] = hosts;
    world.add_peer(a, b, true);
    world.add_peer(b, a, true);
    (world, hosts)
}

fn frames(world: &World, host: HostId) -> Frames {
    world.host(host).node.peer_status(world.now()).next().unwrap().frames
}

fn sum(world: &World, host: HostId, name: &str) -> u64 {
    world.host(host).counter_of_each(name).iter().sum()
}

fn often(config: &mut Config) {
    config.rekey = 10_000;
    config.phase_frames = 50;
}

/// Keys of every lane are replaced, and advance in between.
#[test]
fn every_lane_carries_and_changes_its_keys_without_a_loss() {
    for (seed, lanes) in [(1, [2, 2]), (2, [4, 4]), (3, [8, 3]), (4, [1, 4])] {
        let (mut world, ends) = pair(seed, lanes, often);
        assert_eq!(stream(&mut world, ends[0], ends[1], 3_000), (3_000, 3_000), "{lanes:?}");
        let shared = usize::from(lanes[0].min(lanes[1]));
        for end in ends {
            assert_eq!(frames(&world, end), FAST, "{lanes:?}");
            let sealed = world.host(end).counter_of_each("fast_tx");
            let (carry, idle) = sealed.split_at(shared);
            assert!(carry.iter().all(|frames| *frames > 300), "{lanes:?}: {sealed:?}");
            assert!(idle.iter().all(|frames| *frames == 0), "{lanes:?}: {sealed:?}");
            // Confirms may arrive before the keys that they are sealed under.
            assert_eq!(sum(&world, end, "fast_open_failed"), 0);
            assert_eq!(sum(&world, end, "fast_replays"), 0);
        }
        assert_eq!(world.check_all(), Ok(()));
    }
}

#[test]
fn a_packet_from_the_tun_counts_once_whichever_lane_sends_it() {
    // B has one lane, so A's other lanes hand everything that they read to the first.
    let (mut world, [a, b]) = pair(5, [4, 1], |_| {});
    assert_eq!(stream(&mut world, a, b, 400), (400, 400));
    assert_eq!(sum(&world, a, "handed_out"), 300);
    assert_eq!(sum(&world, a, "tun_rx"), 400);
}

/// An observer that keeps the fast frames of two nodes.
#[derive(Clone, Default)]
struct Tap {
    kept: Rc<RefCell<Vec<Datagram>>>,
    /// Whether it withholds them.
    holds: Rc<Cell<bool>>,
}

impl Tap {
    fn on(world: &mut World) -> Self {
        let tap = Self::default();
        let own = tap.clone();
        world.set_rule(move |_, datagram| {
            if datagram.from == Datagram::NOBODY || !fast::is_fast(&datagram.bytes) {
                return Fate::Pass;
            }
            own.kept.borrow_mut().push(datagram.clone());
            if own.holds.get() { Fate::Drop } else { Fate::Pass }
        });
        tap
    }
}

/// The frame with another lane in its index.
fn moved(frame: &[u8], lane: u8) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[4] = frame[4] & 0xf0 | lane;
    frame
}

fn lane_in(frame: &[u8]) -> u8 {
    lane_of(fast::index_of(frame).unwrap())
}

/// The actions of a host that an attacker would like to cause: packets to its TUN, datagrams on the
/// network, events.
fn doings(world: &World, host: HostId) -> (usize, u64, usize, u64) {
    let of = world.host(host);
    (
        of.received.len(),
        world.traffic().datagrams,
        of.events.len(),
        of.garbled,
    )
}

/// Passes a host a frame by the socket of a lane: its only effect is one increment of a counter.
fn refused(world: &mut World, host: HostId, socket: u8, datagram: &Datagram, frame: &[u8]) -> &'static str {
    let counts = |world: &World| REFUSED.map(|name| sum(world, host, name));
    let (before, doings_before) = (counts(world), doings(world, host));
    world.inject_at(host, socket, datagram.src, frame);
    assert_eq!(
        doings(world, host),
        doings_before,
        "socket {socket}, lane {}",
        lane_in(frame)
    );
    let moved: Vec<usize> = (0..REFUSED.len())
        .filter(|at| counts(world)[*at] > before[*at])
        .collect();
    assert_eq!(counts(world).iter().sum::<u64>(), before.iter().sum::<u64>() + 1);
    REFUSED[moved[0]]
}

/// Replays all frames of two epochs and several phases: in their own lane, by the sockets of
/// others, which hand them over to the owner, and under the indices of others.
#[test]
fn a_frame_opens_once_and_only_in_its_own_lane() {
    const LANES: u8 = 4;
    let (mut world, ends) = pair(6, [LANES; 2], often);
    let tap = Tap::on(&mut world);
    assert_eq!(stream(&mut world, ends[0], ends[1], 1_000), (1_000, 1_000));
    let kept = tap.kept.take();
    let mut outcomes = std::collections::BTreeMap::<_, u32>::new();
    let mut lanes_seen = [0; LANES as usize];
    for datagram in kept.iter().rev().step_by(3).take(500) {
        let (from, to) = (datagram.from, ends[usize::from(datagram.from == ends[0])]);
        let (frame, own) = (&datagram.bytes, lane_in(&datagram.bytes));
        lanes_seen[usize::from(own)] += 1;
        let mut note = |what: &'static str, outcome| *outcomes.entry((what, outcome)).or_default() += 1;
        for socket in 0..LANES {
            let foreign = sum(&world, to, "foreign");
            let what = if socket == own { "its own lane" } else { "handed over" };
            for _ in 0..2 {
                note(what, refused(&mut world, to, socket, datagram, frame));
            }
            let handed = 2 * u64::from(socket != own);
            assert_eq!(sum(&world, to, "foreign"), foreign + handed, "handed over and counted");
        }
        for lane in (0..LANES).filter(|lane| *lane != own) {
            let moved = moved(frame, lane);
            // At the socket that the kernel selects, and handed over by the addressed lane.
            for socket in [lane, own] {
                note("another lane", refused(&mut world, to, socket, datagram, &moved));
            }
        }
        // Reflected to the sender, in every lane.
        for lane in 0..LANES {
            note(
                "reflected",
                refused(&mut world, from, lane, datagram, &moved(frame, lane)),
            );
        }
    }
    assert!(lanes_seen.iter().all(|frames| *frames > 50), "{lanes_seen:?}");
    // Both reasons occur: the counter was seen before, or, if it was not, other keys do not open
    // the frame.
    for (what, outcome, at_least) in [
        ("its own lane", "fast_replays", 500),
        ("handed over", "fast_replays", 1_500),
        ("another lane", "fast_open_failed", 1),
        ("another lane", "fast_replays", 500),
    ] {
        let times = outcomes.get(&(what, outcome)).copied().unwrap_or(0);
        assert!(times >= at_least, "{what}, {outcome}: {times}; {outcomes:?}");
    }
    for never in ["its own lane", "handed over"] {
        assert_eq!(outcomes.get(&(never, "fast_open_failed")), None, "{outcomes:?}");
    }
    assert_eq!(stream(&mut world, ends[0], ends[1], 400), (400, 400));
    assert_eq!(ends.map(|end| frames(&world, end)), [FAST; 2]);
}

/// Withheld frames arrive at other lanes first, and then at a socket that is not theirs: each opens
/// once.
#[test]
fn delayed_frames_open_once_in_whatever_lane_they_arrive_first() {
    const LANES: u8 = 4;
    let (mut world, [a, b]) = pair(7, [LANES; 2], |_| {});
    assert_eq!(stream(&mut world, a, b, 100), (100, 100));
    let tap = Tap::on(&mut world);
    tap.holds.set(true);
    for seq in 0..40 {
        world.send(a, b, seq, 200);
    }
    let kept: Vec<Datagram> = tap.kept.take();
    assert_eq!(kept.len(), 40);
    let other = |datagram: &Datagram, by: u8| (lane_in(&datagram.bytes) + by) % LANES;
    // Most of these counters are new to the other lanes too, so that only their keys refuse them.
    let mut unopened = 0;
    for (datagram, by) in kept
        .iter()
        .flat_map(|datagram| (1..LANES).map(move |by| (datagram, by)))
    {
        let moved = moved(&datagram.bytes, other(datagram, by));
        let outcome = refused(&mut world, b, other(datagram, by), datagram, &moved);
        unopened += u32::from(outcome == "fast_open_failed");
    }
    assert!(unopened > 60, "{unopened} of 120");
    for (seq, datagram) in (0..).zip(&kept) {
        let (before, foreign) = (world.host(b).received.len(), sum(&world, b, "foreign"));
        world.inject_at(b, other(datagram, 1), datagram.src, &datagram.bytes);
        assert_eq!(world.host(b).received.len(), before + 1);
        assert_eq!(world.host(b).received[before].1.seq, seq);
        assert_eq!(sum(&world, b, "foreign"), foreign + 1);
        for by in [2, 1, 0] {
            let outcome = refused(&mut world, b, other(datagram, by), datagram, &datagram.bytes);
            assert_eq!(outcome, "fast_replays");
        }
    }
    tap.holds.set(false);
    assert_eq!(stream(&mut world, a, b, 100), (100, 100));
}
