//! What idle links cost: as often as the NAT needs it, which a node measures with the help of a
//! neighbour, and nothing where no NAT or firewall needs it.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use weft_lab::daemon::{Daemon, Identity};
use weft_lab::host::Host;
use weft_lab::nat::{MappingLife, NatBox, NatConfig, NatKind};
use weft_lab::spec::{DEFAULT_PORT, NodeSpec};
use weft_lab::world::{Switch, World};

use super::join::{Net, code, done};
use crate::common::{MINUTE, PATIENCE, WEFT, beside, identity, reached_within, wait_until};

/// No datagrams but those of links.
const QUIET: &str = "\n[lan]\nannounce = \"off\"\n\n[reach]\nport_mapping = false\n";
/// For how long datagrams are counted: longer than the interval without a measurement.
const WINDOW: Duration = Duration::from_secs(40);
/// Windows until links are idle and everything is settled, at most.
const WINDOWS: u32 = 8;

/// Starts a node with these peers and their addresses, of which it may have none.
fn start(host: &Host, own: &Identity, peers: &[(&Identity, Option<&str>)]) -> Daemon {
    let spec = NodeSpec {
        extra_toml: QUIET.to_owned(),
        ..NodeSpec::default()
    };
    let spec = peers.iter().fold(spec, |spec, (peer, at)| {
        let at = at.map(|at| SocketAddr::new(at.parse().unwrap(), DEFAULT_PORT));
        spec.with_peer(&peer.npub, &peer.name, &at.into_iter().collect::<Vec<_>>())
    });
    let mut node = Daemon::start(host, Path::new(WEFT), own, &spec).unwrap();
    node.wait_ready(PATIENCE).unwrap();
    node
}

/// What a node says about its keepalives to addresses of IPv4: the interval in seconds, and why.
fn keepalive(node: &Daemon) -> (u64, String) {
    keepalive_in("ipv4", node)
}

fn keepalive_in(scope: &str, node: &Daemon) -> (u64, String) {
    let found: Value = serde_json::from_str(&done(node, &["netcheck", "--json"])).unwrap();
    let all = found["keepalives"].as_array().unwrap();
    let found = all.iter().find(|each| each["scope"] == scope).unwrap();
    let because = found["because"].as_str().unwrap().to_owned();
    (found["interval_s"].as_u64().unwrap(), because)
}

/// The UDP datagrams that a host has sent.
fn sent(host: &Host) -> u64 {
    let mut command = Command::new("cat");
    command.arg("/proc/net/snmp");
    let output = host.command(command, PATIENCE).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("Udp:"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let column = rows[0].iter().position(|name| *name == "OutDatagrams").unwrap();
    rows[1][column].parse().unwrap()
}

/// Waits for a window in which `count` grows by no more than this, and returns by how much it grew.
fn quiet_window(what: &str, most: u64, count: impl Fn() -> u64) -> u64 {
    let mut grown = u64::MAX;
    for _ in 0..WINDOWS {
        let before = count();
        sleep(WINDOW);
        grown = count() - before;
        eprintln!("{what}: {grown} datagrams in {} s", WINDOW.as_secs());
        if grown <= most {
            return grown;
        }
    }
    panic!("{what}: {grown} datagrams in {} s, {most} expected", WINDOW.as_secs());
}

fn finish(nodes: Vec<Daemon>) {
    for mut node in nodes {
        assert_eq!(node.stop().unwrap().code(), Some(0));
        assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
    }
}

/// A home behind a NAT box that forgets a mapping after `seconds`.
fn home(world: &World, wan: &Switch, seconds: u64) -> (Host, NatBox) {
    let lan = world.switch("lan").unwrap();
    let mut config = NatConfig::new(NatKind::PortRestricted);
    config.behaviour.life = MappingLife {
        udp_ms: seconds * 1_000,
        ..MappingLife::default()
    };
    let nat = world
        .nat(config, (&lan, "192.168.1.1/24"), (wan, "11.0.0.101/8"))
        .unwrap();
    let host = world.host("home").unwrap();
    lan.connect(&host, &["192.168.1.2/24"]).unwrap();
    host.add_default_route([192, 168, 1, 1].into()).unwrap();
    (host, nat)
}

/// Two nodes that reach each other from any port, once they know it.
fn two_public() -> (World, [Host; 2], Vec<Daemon>) {
    let world = World::new().unwrap();
    let wan = world.switch("wan").unwrap();
    let hosts = ["a", "b"].map(|name| world.host(name).unwrap());
    for (host, at) in hosts.iter().zip(["11.0.0.1/8", "11.0.0.2/8"]) {
        wan.connect(host, &[at]).unwrap();
    }
    let [a, b] = ["a", "b"].map(|name| identity(&world, name));
    let nodes = vec![
        start(&hosts[0], &a, &[(&b, Some("11.0.0.2"))]),
        start(&hosts[1], &b, &[(&a, Some("11.0.0.1"))]),
    ];
    for node in &nodes {
        wait_until(MINUTE, "strangers are known to reach the node", || {
            keepalive(node).0 == 0
        });
    }
    let why = keepalive(&nodes[0]).1;
    assert_eq!(why, "what b sends from any port arrives");
    (world, hosts, nodes)
}

/// That they send nothing then is a bound of the simulator (crates/sim/tests/idle.rs).
#[test]
fn two_public_nodes_know_that_they_need_no_keepalives() {
    beside(|| {
        let (_world, _, nodes) = two_public();
        reached_within(PATIENCE, &nodes[0], &nodes[1]);
        finish(nodes);
    });
}

/// They become members while their link is up.
#[test]
fn members_that_join_find_how_rarely_they_may_send() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [a, b] = &net.nodes[..] else { panic!() };
        done(a, &["create", "home"]);
        done(b, &["join", &code(a, &[])]);
        for node in [a, b] {
            wait_until(MINUTE, "the node asks the other member", || keepalive(node).0 == 0);
        }
        net.finish();
    });
}

#[test]
#[ignore = "takes minutes: .ci/long idle"]
fn two_public_nodes_send_nothing_while_they_are_idle() {
    beside(|| {
        let (_world, hosts, nodes) = two_public();
        let both = || hosts.iter().map(sent).sum();
        assert_eq!(quiet_window("two public nodes", 0, both), 0);
        // They are there at once.
        reached_within(PATIENCE, &nodes[0], &nodes[1]);
        finish(nodes);
    });
}

/// A node behind a NAT that forgets after 60 s and one outside, as soon as the former knows how often
/// it has to send.
fn behind_a_nat() -> (World, NatBox, [Daemon; 2]) {
    let world = World::new().unwrap();
    let wan = world.switch("wan").unwrap();
    let (host, nat) = home(&world, &wan, 60);
    let outside = world.host("b").unwrap();
    wan.connect(&outside, &["11.0.0.2/8"]).unwrap();
    let [a, b] = ["a", "b"].map(|name| identity(&world, name));
    let b_node = start(&outside, &b, &[(&a, None)]);
    let a_node = start(&host, &a, &[(&b, Some("11.0.0.2"))]);
    wait_until(3 * MINUTE, "the lifetime of mappings is known", || {
        keepalive(&a_node).0 == 35
    });
    assert_eq!(keepalive(&a_node).1, "an answer of b arrived after 45 s of silence");
    (world, nat, [a_node, b_node])
}

#[test]
fn a_node_behind_a_nat_finds_how_rarely_it_may_send() {
    beside(|| {
        let (_world, _nat, [a, b]) = behind_a_nat();
        // The node outside is the one that sends first.
        reached_within(PATIENCE, &b, &a);
        finish(vec![a, b]);
    });
}

#[test]
#[ignore = "takes minutes: .ci/long idle"]
fn a_node_behind_a_nat_sends_as_rarely_as_the_nat_allows() {
    beside(|| {
        let (_world, nat, [a, b]) = behind_a_nat();
        // One in 35 s, where there are two in 25 s each without a measurement.
        quiet_window("behind a NAT that forgets after 60 s", 2, || nat.counts().out);
        // The mapping is there all the time.
        reached_within(PATIENCE, &b, &a);
        finish(vec![a, b]);
    });
}

/// The NAT box forgets after 30 s, so that no longer interval is found.
#[test]
#[ignore = "takes minutes: .ci/long idle"]
fn each_of_ten_idle_peers_costs_a_nat_one_datagram_in_20_s() {
    const PEERS: u8 = 10;
    beside(|| {
        let world = World::new().unwrap();
        let wan = world.switch("wan").unwrap();
        let (host, nat) = home(&world, &wan, 30);
        let own = identity(&world, "home");
        let peers: Vec<Identity> = (0..PEERS).map(|n| identity(&world, &format!("p{n}"))).collect();
        let addresses: Vec<String> = (0..PEERS).map(|n| format!("11.0.0.{}", 10 + n)).collect();
        let mut nodes: Vec<Daemon> = peers
            .iter()
            .zip(&addresses)
            .map(|(peer, at)| {
                let outside = world.host(&peer.name).unwrap();
                wan.connect(&outside, &[&format!("{at}/8")]).unwrap();
                start(&outside, peer, &[(&own, None)])
            })
            .collect();
        let all: Vec<_> = peers.iter().zip(addresses.iter().map(|at| Some(at.as_str()))).collect();
        let node = start(&host, &own, &all);
        for peer in &nodes {
            reached_within(PATIENCE, &node, peer);
        }
        let most = u64::from(PEERS) * WINDOW.as_secs() / 20;
        quiet_window("ten peers", most, || nat.counts().out);
        assert_eq!(keepalive(&node).0, 25, "{:?}", keepalive(&node));
        for peer in &nodes {
            reached_within(PATIENCE, peer, &node);
        }
        nodes.push(node);
        finish(nodes);
    });
}
