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

use super::homes::{kind_of_path, why};
use crate::common::{
    MINUTE, PATIENCE, WEFT, assert_pings, assert_transfer, beside, identity, reached_within, wait_until,
};

const MESH: &str = "\n[mesh]\nopen = true\n";
const PUBLIC: &str = "203.0.113.7";

const WITNESS: &str = "203.0.113.8";

/// A and B, each behind a NAT of its own, and P outside. A and B know P's address and each other's
/// key; P knows their keys.
struct Net {
    a: Daemon,
    b: Daemon,
    p: Daemon,
    /// A second node outside, if there is one: with two, A and B know what their NATs are like.
    q: Option<Daemon>,
    boxes: [NatBox; 2],
    _world: World,
}

impl Net {
    fn start(kinds: [NatKind; 2]) -> Self {
        Self::start_among(kinds, false)
    }

    fn start_among(kinds: [NatKind; 2], second: bool) -> Self {
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
        let other = second.then(|| world.host("q").unwrap());
        if let Some(other) = &other {
            wan.connect(other, &[&format!("{WITNESS}/24")]).unwrap();
        }
        let [a, b, p, q] = ["a", "b", "p", "q"].map(|name| identity(&world, name));
        let [at, second_at] = [PUBLIC, WITNESS].map(|ip| SocketAddr::new(ip.parse().unwrap(), DEFAULT_PORT));
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
            let mut mesh = mesh.clone().with_peer(&p.npub, "p", &[at]);
            if second {
                mesh = mesh.with_peer(&q.npub, "q", &[second_at]);
            }
            mesh.with_peer(&peer.npub, &peer.name, &[])
        };
        let public_spec = mesh.clone().with_peer(&a.npub, "a", &[]).with_peer(&b.npub, "b", &[]);
        Self {
            q: other.map(|other| start(&other, &q, public_spec.clone())),
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
        for node in [&mut self.a, &mut self.b, &mut self.p].into_iter().chain(&mut self.q) {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
        }
    }
}

/// Every pair reaches each other, in both directions: 1,000 bytes five times a second for five
/// seconds without a loss, and TCP. The path between A and B is `expected` then.
fn behind(kinds: [NatKind; 2], expected: &str) -> Net {
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
        count: Some(25),
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
        assert_eq!(kind_of_path(from, to), expected);
    }
    net
}

/// Fifty pings of 1,000 bytes each way, five a second, of which none is lost.
fn assert_all_arrive(ways: [(&Daemon, &Daemon); 2]) {
    let options = PingOptions {
        payload: 1000,
        interval: Duration::from_millis(200),
        count: Some(50),
        ..PingOptions::default()
    };
    let pingers = ways.map(|(from, to)| Pinger::start(from.host(), to.identity().address, options).unwrap());
    for pinger in pingers {
        let report = pinger.join().unwrap();
        assert!(report.lost.is_empty(), "{report:?}");
    }
}

/// How many files a node has open.
fn descriptors(node: &Daemon) -> usize {
    let open = std::fs::read_dir(format!("/proc/{}/fd", node.pid())).unwrap();
    open.count()
}

/// The third node brings two together that no other node can dial, and is needed no longer then.
#[test]
fn two_nodes_behind_cones_become_direct_and_outlast_the_third() {
    beside(|| {
        let mut net = behind([NatKind::PortRestricted, NatKind::PortRestricted], "direct");
        let why = why(&net.a, &net.b);
        assert!(why["why"].as_str().unwrap().contains("direct"), "{why}");
        let outer = format!("{}:{DEFAULT_PORT}", net.boxes[1].outer());
        let attempts = why["attempts"].as_array().unwrap();
        let probed = |attempt: &serde_json::Value| {
            let tried = attempt["tried"].as_array().unwrap();
            tried
                .iter()
                .any(|tried| tried["address"] == outer && tried["probes"].as_u64() > Some(0))
        };
        assert!(attempts.iter().any(probed), "{why}");
        assert_eq!(net.p.stop().unwrap().code(), Some(0));
        let (a, b) = (&net.a, &net.b);
        let ways = [(a, b), (b, a)];
        assert_all_arrive(ways);
        assert_transfer(a, b, 3_000_000);
        for (from, to) in ways {
            assert_eq!(kind_of_path(from, to), "direct");
        }
    });
}

/// One NAT gives random ports, the other lets only those in that were sent to: a search of ports. The
/// two neighbours outside say what the NATs are like, and that each is where it says; without them
/// the path stays.
#[test]
fn a_search_of_ports_makes_a_direct_path_that_lasts() {
    beside(|| {
        let kinds = [NatKind::SymmetricRandom, NatKind::PortRestricted];
        let mut net = Net::start_among(kinds, true);
        net.wait_payload();
        wait_until(MINUTE, "a search finds a port", || {
            let ways = [(&net.a, &net.b), (&net.b, &net.a)];
            ways.iter().all(|(from, to)| kind_of_path(from, to) == "direct")
        });
        // The search has closed its 256 sockets but for one.
        for node in [&net.a, &net.b] {
            wait_until(PATIENCE, "sockets are closed", || descriptors(node) < 128);
        }
        // One port in 257 belongs to the ordinary socket of `a`. For `a`, an address that `b` has named
        // answers then, and the search is one of `b` alone.
        let whys = [why(&net.a, &net.b), why(&net.b, &net.a)];
        let names_search = |why: &serde_json::Value| why["why"].as_str().unwrap().contains("a search of ports");
        assert!(whys.iter().any(names_search), "{whys:?}");
        let searched = |attempt: &serde_json::Value| {
            let tried = attempt["tried"].as_array().unwrap();
            let found = |tried: &serde_json::Value| tried["source"] == "search" && tried["outcome"] == "answers";
            tried.iter().any(found)
        };
        let has_searched = |why: &serde_json::Value| why["attempts"].as_array().unwrap().iter().any(searched);
        assert!(whys.iter().any(has_searched), "{whys:?}");
        for node in [&mut net.p].into_iter().chain(&mut net.q) {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
        }
        let (a, b) = (&net.a, &net.b);
        let ways = [(a, b), (b, a)];
        assert_all_arrive(ways);
        assert_transfer(a, b, 3_000_000);
        assert_transfer(b, a, 3_000_000);
        for (from, to) in ways {
            assert_eq!(kind_of_path(from, to), "direct");
        }
        let peers = ways.map(|(from, to)| from.peer(&to.identity().npub).unwrap().unwrap());
        assert!(peers.iter().any(|peer| peer["hint"] == "search"), "{peers:?}");
        for node in [&mut net.a, &mut net.b] {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
        }
    });
}

#[test]
fn two_nodes_behind_symmetric_nats_use_a_public_relay() {
    beside(|| {
        let net = behind([NatKind::Symmetric, NatKind::Symmetric], "relayed");
        wait_until(MINUTE, "the first attempt is over", || {
            let why = why(&net.a, &net.b);
            why["why"].as_str().unwrap().contains("found no address that answers")
        });
        let why = why(&net.a, &net.b);
        assert!(
            why["advice"].as_str().unwrap().contains("forward UDP port 2121"),
            "{why}"
        );
        net.finish();
    });
}

/// No packets are sent for longer than a mapping lasts; the node inside is still reached from
/// outside. Then its NAT loses all mappings, as at a restart: the node is reached again, by another
/// port.
#[test]
fn an_idle_node_behind_a_nat_stays_reachable_over_nat_restarts() {
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
