//! Paths that drop large frames while small ones pass, beside others that work or do not. The session's
//! handshakes and all probes but the large ones are small.

use weft_core::{Event, PathReason};

use crate::common::two_networks::Net;

/// The longest time without a packet when a path in use begins to drop large ones, ms.
const SOON: u64 = 3_000;
/// The longest time until a path is used again that takes large packets again after some minutes, ms.
const BACK: u64 = 300_000;
const ALL: usize = usize::MAX;

impl Net {
    /// Two hosts that have talked in the second network, which is the better one.
    fn settled(seed: u64) -> Self {
        let mut net = Self::new(seed, [20, 1]);
        net.meet([true, true]);
        net.talk(10_000);
        assert_eq!(net.in_second(), Some(true));
        net
    }

    /// The reasons for the changes of the path at each host.
    fn reasons(&self) -> [Vec<PathReason>; 2] {
        self.hosts.map(|host| {
            let events = self.world.host(host).events.iter();
            let reasons = events.filter_map(|(_, event)| match event {
                Event::PathChanged { reason, .. } => Some(*reason),
                _ => None,
            });
            reasons.collect()
        })
    }
}

#[test]
fn packets_leave_a_path_that_drops_large_frames() {
    for (seed, most, len) in [(0, 600, 1_230), (1, 600, 1_280), (2, 1_000, 1_230), (3, 1_000, 1_280)] {
        for takes in [[most; 2], [most, ALL], [ALL, most]] {
            let mut net = Net::settled(seed);
            let before = net.moves();
            net.takes[1].set(takes);
            let silence = net.talk_in(6_000, [len; 2]);
            assert!(silence <= SOON, "{takes:?}: {silence} ms");
            assert_eq!(net.in_second(), Some(false), "{takes:?}");
            let silence = net.talk_in(120_000, [len; 2]);
            assert!(silence <= 40, "{takes:?}: {silence} ms on the other path");
            assert_eq!((net.in_second(), net.moves() - before), (Some(false), 2), "{takes:?}");
            assert!(net.reasons().iter().all(|all| all.last() == Some(&PathReason::Narrow)));
            // The path takes them again.
            net.takes[1].set([ALL; 2]);
            let silence = net.talk_in(BACK, [len; 2]);
            assert!(silence <= 60, "{takes:?}: {silence} ms on the way back");
            assert_eq!((net.in_second(), net.moves() - before), (Some(true), 4), "{takes:?}");
        }
    }
}

#[test]
fn a_link_that_comes_up_on_such_a_path_leaves_it() {
    for seed in 0..5 {
        for most in [600, 1_000] {
            let mut net = Net::new(seed, [20, 1]);
            net.takes[1].set([most; 2]);
            net.meet([true, true]);
            let silence = net.talk_in(20_000, [1_230; 2]);
            assert!(silence <= SOON, "seed {seed}, {most}: {silence} ms");
            assert_eq!(net.in_second(), Some(false), "seed {seed}, {most}");
        }
    }
}

#[test]
fn such_a_path_is_used_while_no_other_works() {
    for takes in [[600; 2], [600, ALL], [ALL, 600]] {
        let mut net = Net::settled(1);
        net.passes[0].set(false);
        net.takes[1].set(takes);
        net.talk_in(10_000, [1_230; 2]);
        let silence = net.talk(60_000);
        assert!(silence <= 40, "{takes:?}: {silence} ms without a small packet");
        assert_eq!(net.in_second(), Some(true), "{takes:?}");
        // Large ones pass as soon as the other path works, which is probed each 30 s.
        net.passes[0].set(true);
        net.talk_in(45_000, [1_230; 2]);
        let silence = net.talk_in(30_000, [1_230; 2]);
        assert_eq!((net.in_second(), silence <= 40), (Some(false), true), "{takes:?}");
        // The other path ends.
        net.passes[0].set(false);
        let silence = net.talk(10_000);
        assert!(
            silence <= 1_500,
            "{takes:?}: {silence} ms until the narrow path is used"
        );
        assert_eq!(net.in_second(), Some(true), "{takes:?}");
    }
}

#[test]
fn two_such_paths_do_not_take_turns() {
    let mut net = Net::settled(1);
    net.takes.iter().for_each(|takes| takes.set([600; 2]));
    net.talk_in(20_000, [1_230; 2]);
    let before = net.moves();
    let silence = net.talk(300_000);
    assert!(silence <= 40, "{silence} ms without a small packet");
    assert!(net.moves() - before <= 2, "{} moves", net.moves() - before);
}

#[test]
fn a_path_that_comes_and_goes_is_used_less_and_less() {
    let mut net = Net::settled(1);
    let before = net.moves();
    for _ in 0..30 {
        for most in [600, ALL] {
            net.takes[1].set([most; 2]);
            let silence = net.talk_in(30_000, [1_230; 2]);
            assert!(silence <= SOON, "{silence} ms");
        }
    }
    // Half an hour, in which the path changed sixty times.
    assert!(net.moves() - before <= 12, "{} moves", net.moves() - before);
}
