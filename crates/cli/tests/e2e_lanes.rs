//! Several lanes: who carries what, in which order, and with peers that have another number of them.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::time::{Duration, Instant};

use common::{MINUTE, Pair, Underlay, address, wait_until};
use serde_json::Value;
use weft_lab::daemon::Daemon;
use weft_lab::spec::NodeSpec;
use weft_lab::traffic::{Limit, TcpFlow, UdpFlow, UdpOptions};
use weft_os::test_support::in_namespaces;

/// A bound for what should take a second or two.
const LIMIT: Duration = Duration::from_secs(30);
/// Bytes of each TCP flow.
const BULK: u64 = 8 << 20;
/// Frames that a lane must have moved to count as one that carries.
const CARRIES: u64 = 1_000;

/// Two nodes with these numbers of lanes.
fn pair(underlay: Underlay, lanes: [u8; 2], more: impl Fn(&mut NodeSpec)) -> Pair {
    Pair::start(underlay, |spec| {
        let own = usize::from(spec.peers[0].name == "a");
        spec.settings.push(("lanes".to_owned(), i64::from(lanes[own]).into()));
        more(spec);
    })
}

fn frames(of: &Daemon, peer: &Daemon) -> Value {
    of.peer(&peer.identity().npub).unwrap().unwrap()["session"]["frames"]["kind"].clone()
}

fn wait_fast(pair: &Pair) {
    wait_until(LIMIT, "fast frames both ways", || {
        frames(&pair.a, &pair.b) == "fast" && frames(&pair.b, &pair.a) == "fast"
    });
}

/// A counter of each lane.
fn each(of: &Daemon, name: &str) -> Vec<u64> {
    let status = of.status().unwrap();
    let lanes = status["node"]["lanes"]["each"].as_array().unwrap().clone();
    lanes.iter().map(|lane| lane[name].as_u64().unwrap()).collect()
}

fn counter(of: &Daemon, name: &str) -> u64 {
    of.status().unwrap()["counters"][name].as_u64().unwrap()
}

/// TCP and UDP from one node to the other and back at the same time: all arrives, and every flow in its order.
fn mixed_load(a: &Daemon, b: &Daemon) {
    let ways = [(a, b), (b, a)];
    let paced = UdpOptions {
        interval: Duration::from_micros(500),
        payload: 900,
        ..UdpOptions::default()
    };
    let (mut udp, mut tcp) = (Vec::new(), Vec::new());
    for (from, to) in ways {
        let hosts = (from.host(), to.host());
        for seed in 0..4 {
            udp.push(UdpFlow::start(hosts, address(to), paced).unwrap());
            tcp.push(TcpFlow::start(hosts, address(to), Limit::Bytes(BULK), seed, MINUTE).unwrap());
        }
    }
    for flow in tcp {
        let report = flow.join().unwrap();
        assert_eq!((report.bytes, report.hash_ok), (BULK, true));
    }
    for flow in udp {
        let report = flow.stop().unwrap();
        assert!(report.received > 0, "{report:?}");
        assert_eq!((report.reordered, report.duplicates), (0, 0), "{report:?}");
    }
}

/// Loads both until every one of the first `lanes` lanes of each has carried both ways. Flows choose their lane by a hash,
/// so how many it takes is left to chance.
fn assert_all_carry(pair: &Pair, lanes: usize) {
    let ends = [&pair.a, &pair.b];
    let names = ["fast_tx", "fast_rx"];
    let count = || ends.map(|end| names.map(|name| each(end, name)));
    let (before, end) = (count(), Instant::now() + MINUTE);
    loop {
        mixed_load(&pair.a, &pair.b);
        let now = count();
        let idle = (0..2).flat_map(|end| (0..2).flat_map(move |name| (0..lanes).map(move |lane| (end, name, lane))));
        let idle: Vec<_> = idle
            .filter(|&(end, name, lane)| now[end][name][lane] - before[end][name][lane] < CARRIES)
            .collect();
        if idle.is_empty() {
            return;
        }
        assert!(
            Instant::now() < end,
            "end, direction and lane: {idle:?}, {before:?}, {now:?}"
        );
    }
}

#[test]
fn all_lanes_carry_fast_frames_in_order() {
    in_namespaces(|| {
        for (underlay, lanes) in [(Underlay::V4, 2), (Underlay::V6, 4)] {
            let pair = pair(underlay, [lanes; 2], |_| {});
            wait_fast(&pair);
            assert_all_carry(&pair, lanes.into());
            for end in [&pair.a, &pair.b] {
                assert_eq!(each(end, "fast_tx").len(), usize::from(lanes));
                // A question may come before the keys that it is under, in each lane, and data never does.
                assert!(counter(end, "fast_unknown") <= 5 * u64::from(lanes));
                for name in ["fast_open_failed", "fast_replays", "handed_dropped", "lanes_refused"] {
                    assert_eq!(counter(end, name), 0, "{name}");
                }
            }
            pair.finish();
        }
    });
}
