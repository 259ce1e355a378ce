//! Two nodes that cannot reach each other, and a third that both can reach.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use weft_lab::daemon::Daemon;
use weft_lab::spec::{DEFAULT_PORT, NodeSpec};
use weft_lab::traffic::{PingOptions, Pinger};
use weft_lab::world::World;

use crate::common::{PATIENCE, WEFT, assert_transfer, beside, identity, reached_within, wait_until};

/// A and B have a cable to C each, and none to each other. They know each other's key, and C's
/// address.
#[test]
fn two_nodes_reach_each_other_through_a_third() {
    beside(|| {
        let world = World::new().unwrap();
        let hosts = ["a", "b", "c"].map(|name| world.host(name).unwrap());
        let _left = world
            .link((&hosts[0], &["192.0.2.1/25"]), (&hosts[2], &["192.0.2.2/25"]))
            .unwrap();
        let _right = world
            .link((&hosts[1], &["192.0.2.129/25"]), (&hosts[2], &["192.0.2.130/25"]))
            .unwrap();
        let ids = ["a", "b", "c"].map(|name| identity(&world, name));
        let at = |addr: &str| SocketAddr::new(addr.parse().unwrap(), DEFAULT_PORT);
        let mesh = NodeSpec::default();
        let open = NodeSpec {
            extra_toml: "\n[mesh]\nopen = true\n".to_owned(),
            ..NodeSpec::default()
        };
        let specs = [
            mesh.clone()
                .with_peer(&ids[2].npub, "c", &[at("192.0.2.2")])
                .with_peer(&ids[1].npub, "b", &[]),
            mesh.clone()
                .with_peer(&ids[2].npub, "c", &[at("192.0.2.130")])
                .with_peer(&ids[0].npub, "a", &[]),
            // C lists no peers: it relays for every node that links with it, and exchanges IP
            // packets with none of them.
            open,
        ];
        let mut nodes: Vec<Daemon> = Vec::new();
        for i in [2, 0, 1] {
            let mut node = Daemon::start(&hosts[i], Path::new(WEFT), &ids[i], &specs[i]).unwrap();
            node.wait_ready(PATIENCE).unwrap();
            nodes.push(node);
        }
        let (a, b) = (&nodes[1], &nodes[2]);
        reached_within(Duration::from_secs(30), a, b);
        reached_within(PATIENCE, b, a);
        let options = PingOptions {
            payload: 1000,
            interval: Duration::from_millis(200),
            count: Some(50),
            ..PingOptions::default()
        };
        let pingers =
            [(a, b), (b, a)].map(|(from, to)| Pinger::start(from.host(), to.identity().address, options).unwrap());
        for pinger in pingers {
            let report = pinger.join().unwrap();
            assert!(report.lost.is_empty(), "{report:?}");
        }
        assert_transfer(a, b, 5_000_000);
        assert_transfer(b, a, 5_000_000);
        for (from, to) in [(a, b), (b, a)] {
            wait_until(PATIENCE, "packets pass in relayed frames", || {
                // A report of the other end says what arrives there.
                reached_within(PATIENCE, from, to);
                let status = from.peer(&to.identity().npub).unwrap().unwrap();
                let frames = &status["session"]["frames"]["kind"];
                status["state"] == "payload" && status["path"]["kind"] == "relayed" && *frames == "relayed"
            });
        }
        // C has forwarded them without opening them. A frame holds 1,414 bytes at most.
        wait_until(PATIENCE, "ten megabytes in relayed frames", || {
            let status = nodes[0].status().unwrap();
            status["counters"]["relayed"].as_u64() > Some(7_000)
        });
        for node in &mut nodes {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
        }
    });
}
