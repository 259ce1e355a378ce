//! Fast frames through a relay, in two configurations: required, or sealed whole at each hop.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weft_lab::cable::EmulatedLink;
use weft_lab::daemon::Daemon;
use weft_lab::emulator::{Cable, End, Impairments, Witness};
use weft_lab::spec::{DEFAULT_PORT, NodeSpec};
use weft_lab::traffic::{PingOptions, Pinger};
use weft_lab::world::World;

use crate::common::{PATIENCE, WEFT, assert_transfer, beside, identity, reached_within, wait_until};
use weft_os::assert_strict;

/// Ethernet, IPv4 and UDP headers in front of a datagram.
const DATAGRAM_AT: usize = 14 + 20 + 8;
/// The first byte of a relayed frame, and the flag of one that is sealed whole
/// (docs/protocol/fast.md, "Frame").
const RELAYED: u8 = 0xa2;
const FLAG_WHOLE: u8 = 1 << 2;
/// The tag at the end of a frame.
const TAG_LEN: usize = 16;

/// An observer at a cable that keeps the relayed frames of packets that it sees.
#[derive(Debug, Default)]
struct Watcher(Mutex<Vec<Vec<u8>>>);

impl Witness for Watcher {
    fn frame(&self, end: End, frame: &[u8]) {
        let datagram = frame.get(DATAGRAM_AT..).unwrap_or_default();
        if end == End::A && datagram.first() == Some(&RELAYED) && datagram.len() > 500 {
            self.0.lock().unwrap().push(datagram.to_vec());
        }
    }
}

impl Watcher {
    fn frames(&self) -> Vec<Vec<u8>> {
        self.0.lock().unwrap().clone()
    }

    /// The ends of the sealed contents, by which a frame is recognised if its content was not
    /// changed.
    fn contents(&self) -> HashSet<Vec<u8>> {
        let content = |frame: Vec<u8>| frame[frame.len() - TAG_LEN - 64..frame.len() - TAG_LEN].to_vec();
        self.frames().into_iter().map(content).collect()
    }
}

/// A and B, each with a cable to C and none to each other; both cables are observed.
struct Chain {
    /// A, B, C.
    nodes: [Daemon; 3],
    watchers: [Arc<Watcher>; 2],
    _cables: [EmulatedLink; 2],
}

impl Chain {
    /// `fast` is the content of `[fast]` in the configuration of each.
    fn start(world: &World, fast: [&str; 3]) -> Self {
        let hosts = ["a", "b", "c"].map(|name| world.host(name).unwrap());
        let cable = || Cable::both(Impairments::default());
        let cables = [
            ((&hosts[0], "192.0.2.1/25"), "192.0.2.2/25"),
            ((&hosts[1], "192.0.2.129/25"), "192.0.2.130/25"),
        ]
        .map(|((end, at), middle)| {
            world
                .emulated_link((end, &[at]), (&hosts[2], &[middle]), cable())
                .unwrap()
        });
        let watchers = [(); 2].map(|()| Arc::new(Watcher::default()));
        for (cable, watcher) in cables.iter().zip(&watchers) {
            let witness: Arc<dyn Witness> = watcher.clone();
            cable.watch(&witness);
        }
        let ids = ["a", "b", "c"].map(|name| identity(world, name));
        let at = |address: &str| SocketAddr::new(address.parse().unwrap(), DEFAULT_PORT);
        let spec = |n: usize, more: &str| NodeSpec {
            extra_toml: format!("{more}\n[fast]\n{}\n", fast[n]),
            ..NodeSpec::default()
        };
        let specs = [
            spec(0, "")
                .with_peer(&ids[2].npub, "c", &[at("192.0.2.2")])
                .with_peer(&ids[1].npub, "b", &[]),
            spec(1, "")
                .with_peer(&ids[2].npub, "c", &[at("192.0.2.130")])
                .with_peer(&ids[0].npub, "a", &[]),
            spec(2, "\n[mesh]\nopen = true\n"),
        ];
        let [c, a, b] = [2, 0, 1].map(|n| {
            let mut node = Daemon::start(&hosts[n], Path::new(WEFT), &ids[n], &specs[n]).unwrap();
            node.wait_ready(PATIENCE).unwrap();
            node
        });
        Self {
            nodes: [a, b, c],
            watchers,
            _cables: cables,
        }
    }

    fn frames(&self, from: usize, to: usize) -> serde_json::Value {
        let status = self.nodes[from].peer(&self.nodes[to].identity().npub).unwrap();
        status.unwrap()["session"]["frames"].clone()
    }

    /// Waits until A and B reach each other in relayed frames, and sends data in both directions.
    fn exchange(&self) {
        let [a, b, _] = &self.nodes;
        reached_within(PATIENCE, a, b);
        reached_within(PATIENCE, b, a);
        for (from, to) in [(0, 1), (1, 0)] {
            wait_until(PATIENCE, "relayed frames", || {
                self.frames(from, to)["kind"] == "relayed"
            });
        }
        assert_transfer(a, b, 1_000_000);
        assert_transfer(b, a, 1_000_000);
    }

    fn stop(mut self) {
        for node in &mut self.nodes {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
        }
    }
}

#[test]
fn an_observer_of_two_hops_matches_no_frames_under_full_privacy() {
    beside(|| {
        for (setting, whole) in [("", false), ("privacy = \"full\"", true)] {
            let world = World::new().unwrap();
            let chain = Chain::start(&world, [setting, setting, ""]);
            chain.exchange();
            let [left, right] = chain.watchers.each_ref().map(|watcher| watcher.contents());
            let common = left.intersection(&right).count();
            for frame in chain.watchers.iter().flat_map(|watcher| watcher.frames()) {
                assert_strict!(
                    (frame[1] & FLAG_WHOLE != 0) == whole,
                    "a frame of the other kind: {frame:02x?}"
                );
            }
            assert!(
                left.len() > 500 && right.len() > 500,
                "{} and {}",
                left.len(),
                right.len()
            );
            if whole {
                assert_strict!(common == 0, "{common} frames are known again");
            } else {
                assert!(common > 500, "{common} of {} and {}", left.len(), right.len());
            }
            chain.stop();
        }
    });
}

#[test]
fn required_fast_frames_go_through_others_or_nothing_does() {
    beside(|| {
        let world = World::new().unwrap();
        let chain = Chain::start(&world, ["require = true", "require = true", ""]);
        chain.exchange();
        assert_eq!(chain.frames(0, 1)["required"], true);
        wait_until(PATIENCE, "two megabytes in relayed frames", || {
            chain.nodes[2].status().unwrap()["counters"]["relayed"].as_u64() > Some(500)
        });
        chain.stop();

        // C has no fast frames: A and B have a session through it, and no packet passes.
        let world = World::new().unwrap();
        let chain = Chain::start(&world, ["require = true", "require = true", "enabled = false"]);
        let [a, b, _] = &chain.nodes;
        let to_b = b.identity().npub.clone();
        let one = PingOptions {
            count: Some(1),
            grace: Duration::from_millis(300),
            ..PingOptions::default()
        };
        wait_until(PATIENCE, "a session that waits for fast frames", || {
            Pinger::start(a.host(), b.identity().address, one)
                .unwrap()
                .join()
                .unwrap();
            let status = a.peer(&to_b).unwrap().unwrap();
            let why = status["why"].as_str().unwrap_or_default();
            status["state"] == "session" && why.starts_with("fast frames are required")
        });
        let frames = chain.frames(0, 1);
        assert_eq!(frames["required"], true);
        assert_ne!(frames["kind"], "relayed");
        let report = Pinger::start(a.host(), b.identity().address, one)
            .unwrap()
            .join()
            .unwrap();
        assert_strict!(report.received == 0, "a packet passes without fast frames");
        let counters = &b.status().unwrap()["counters"];
        assert_strict!(counters["tun_tx"] == 0, "a packet has come through: {counters}");
        chain.stop();
    });
}
