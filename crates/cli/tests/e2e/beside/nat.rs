//! Nodes behind NAT boxes, and one that every node can dial.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use weft_lab::daemon::{Daemon, PeerState};
use weft_lab::host::Host;
use weft_lab::nat::{NatBox, NatConfig, NatKind};
use weft_lab::spec::{DEFAULT_PORT, NodeSpec};
use weft_lab::traffic::{PingOptions, Pinger};
use weft_lab::world::World;

use crate::common::{
    MINUTE, PATIENCE, WEFT, assert_pings, assert_transfer, beside, identity, reached_within, wait_until,
};

const MESH: &str = "\n[mesh]\nopen = true\n";
const PUBLIC: &str = "203.0.113.7";

/// A and B, each behind a NAT of its own, and P outside. A and B know P's address and each other's
/// key; P knows their keys.
struct Net {
    a: Daemon,
    b: Daemon,
    p: Daemon,
    boxes: [NatBox; 2],
    _world: World,
}

impl Net {
    fn start(kinds: [NatKind; 2]) -> Self {
        let world = World::new().unwrap();
        let wan = world.switch("wan").unwrap();
        let public = world.host("p").unwrap();
        wan.connect(&public, &[&format!("{PUBLIC}/24")]).unwrap();
        let behind = |number: usize, kind| -> (Host, NatBox) {
            let lan = world.switch("lan").unwrap();
            let outer = format!("203.0.113.{}/24", 101 + number);
            let config = NatConfig::new(kind);
            let nat = world.nat(config, (&lan, "192.168.1.1/24"), (&wan, &outer)).unwrap();
            let host = world.host("behind").unwrap();
            lan.connect(&host, &["192.168.1.2/24"]).unwrap();
            host.add_default_route(nat.inner()).unwrap();
            (host, nat)
        };
        let [(a_host, a_box), (b_host, b_box)] = [behind(0, kinds[0]), behind(1, kinds[1])];
        let [a, b, p] = ["a", "b", "p"].map(|name| identity(&world, name));
        let at = SocketAddr::new(PUBLIC.parse().unwrap(), DEFAULT_PORT);
        let mesh = NodeSpec {
            extra_toml: MESH.to_owned(),
            ..NodeSpec::default()
        };
        let start = |host: &Host, own, spec: NodeSpec| {
            let mut node = Daemon::start(host, Path::new(WEFT), own, &spec).unwrap();
            node.wait_ready(PATIENCE).unwrap();
            node
        };
        let spec = |peer: &weft_lab::daemon::Identity| {
            let mesh = mesh.clone().with_peer(&p.npub, "p", &[at]);
            mesh.with_peer(&peer.npub, &peer.name, &[])
        };
        let public_spec = mesh.clone().with_peer(&a.npub, "a", &[]).with_peer(&b.npub, "b", &[]);
        Self {
            p: start(&public, &p, public_spec),
            a: start(&a_host, &a, spec(&b)),
            b: start(&b_host, &b, spec(&a)),
            boxes: [a_box, b_box],
            _world: world,
        }
    }

    /// Waits for payload in both directions between each two of the three.
    fn wait_payload(&mut self) {
        for (from, to) in [
            (&self.a, &self.p),
            (&self.b, &self.p),
            (&self.a, &self.b),
            (&self.b, &self.a),
        ] {
            reached_within(Duration::from_secs(30), from, to);
        }
        let [a, b] = [&self.a, &self.b].map(|node| node.identity().npub.clone());
        self.p.wait_peer(&a, PeerState::Payload, PATIENCE).unwrap();
        self.p.wait_peer(&b, PeerState::Payload, PATIENCE).unwrap();
    }

    /// The address to which P sends packets for `node`.
    fn seen_at(&self, node: &Daemon) -> SocketAddr {
        let status = self.p.peer(&node.identity().npub).unwrap().unwrap();
        let path = status["path"]["addr"].as_str().unwrap();
        path.trim_start_matches("udp:").parse().unwrap()
    }

    fn finish(mut self) {
        for node in [&mut self.a, &mut self.b, &mut self.p] {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
        }
    }
}

/// Every pair reaches each other, in both directions: 1,000 bytes five times a second for twenty
/// seconds without a loss, and TCP.
fn behind(kinds: [NatKind; 2]) {
    let mut net = Net::start(kinds);
    net.wait_payload();
    for (node, (nat, kind)) in [&net.a, &net.b].into_iter().zip(net.boxes.iter().zip(kinds)) {
        let seen = net.seen_at(node);
        assert_eq!(seen.ip(), nat.outer());
        assert_eq!(
            seen.port() == DEFAULT_PORT,
            kind != NatKind::Symmetric,
            "{seen} {kind:?}"
        );
        assert!(nat.counts().out > 0 && nat.counts().r#in > 0);
    }
    let options = PingOptions {
        payload: 1000,
        interval: Duration::from_millis(200),
        count: Some(100),
        ..PingOptions::default()
    };
    let (a, b, p) = (&net.a, &net.b, &net.p);
    let ways = [(a, b), (b, a), (a, p), (p, a), (b, p), (p, b)];
    let pingers = ways.map(|(from, to)| Pinger::start(from.host(), to.identity().address, options).unwrap());
    for (pinger, (from, to)) in pingers.into_iter().zip(ways) {
        let report = pinger.join().unwrap();
        let names = (&from.identity().name, &to.identity().name);
        assert!(report.lost.is_empty(), "{names:?} {report:?}");
    }
    assert_transfer(a, b, 3_000_000);
    assert_transfer(b, a, 3_000_000);
    for (from, to) in [(a, b), (b, a)] {
        let status = from.peer(&to.identity().npub).unwrap().unwrap();
        assert_eq!(status["path"]["kind"], "relayed", "{status}");
    }
    net.finish();
}

#[test]
fn two_nodes_behind_cones_reach_each_other_through_a_public_third() {
    beside(|| behind([NatKind::PortRestricted, NatKind::PortRestricted]));
}

#[test]
fn two_nodes_behind_symmetric_boxes_reach_each_other_through_a_public_third() {
    beside(|| behind([NatKind::Symmetric, NatKind::Symmetric]));
}

/// No packets are sent for longer than a mapping lasts; the node inside is still reached from
/// outside. Then its NAT loses all mappings, as at a restart: the node is reached again, by another
/// port.
#[test]
fn an_idle_node_behind_a_box_stays_reachable_and_a_box_may_restart() {
    beside(|| {
        let mut net = Net::start([NatKind::Symmetric, NatKind::FullCone]);
        net.wait_payload();
        std::thread::sleep(Duration::from_secs(40));
        assert_pings(&net.p, &net.a);
        assert_pings(&net.p, &net.b);

        let before = net.seen_at(&net.a);
        net.boxes[0].forget();
        // P cannot know the new port before A has sent something, which A does by itself.
        reached_within(MINUTE, &net.p, &net.a);
        wait_until(PATIENCE, "P sends to the new port", || net.seen_at(&net.a) != before);
        assert_pings(&net.p, &net.a);
        assert_pings(&net.a, &net.b);
        net.finish();
    });
}
