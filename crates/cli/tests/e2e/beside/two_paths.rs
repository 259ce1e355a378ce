//! Two networks between two nodes, a local one and another one: the better is used while it works, and
//! what is under way goes on when it ends and when it is back.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use weft_lab::daemon::Daemon;
use weft_lab::spec::{DEFAULT_PORT, NodeSpec};
use weft_lab::traffic::{Limit, Pinger, TcpFlow};
use weft_lab::world::{Port, Switch, World};

use crate::common::net::DENSE;
use crate::common::{MINUTE, PATIENCE, WEFT, address, beside, identity, reached_within, wait_until};
use weft_os::assert_strict;
use weft_os::test_support::stood_still_since;

/// How long pings may be missing when a network is cut silently, in ms. Without another path
/// that is known to work, a handshake comes no earlier than after 3 s.
const SILENCE_MS: f64 = 2_500.0;

/// Nodes with an address in each network.
struct Net {
    nodes: [Daemon; 2],
    /// The ports of the local network.
    lan: [Port; 2],
    _switches: [Switch; 2],
    _world: World,
}

impl Net {
    /// `lan`: whether the local network works when the nodes meet.
    fn start(lan: bool) -> Self {
        let world = World::new().unwrap();
        let [wan_switch, lan_switch] = ["wan", "lan"].map(|name| world.switch(name).unwrap());
        let names = ["a", "b"];
        let hosts = names.map(|name| world.host(name).unwrap());
        let mut ports = Vec::new();
        for (n, host) in hosts.iter().enumerate() {
            wan_switch.connect(host, &[&format!("203.0.113.{}/24", n + 1)]).unwrap();
            ports.push(lan_switch.connect(host, &[&format!("192.168.7.{}/24", n + 1)]).unwrap());
        }
        let ports: [Port; 2] = ports.try_into().unwrap();
        ports.iter().for_each(|port| port.isolate(!lan).unwrap());
        let identities = names.map(|name| identity(&world, name));
        let mut nodes = [0, 1].map(|n| {
            let other = 1 - n;
            let addresses = ["203.0.113", "192.168.7"].map(|net| {
                let ip = format!("{net}.{}", other + 1).parse().unwrap();
                SocketAddr::new(ip, DEFAULT_PORT)
            });
            let spec = NodeSpec::default().with_peer(&identities[other].npub, names[other], &addresses);
            Daemon::start(&hosts[n], Path::new(WEFT), &identities[n], &spec).unwrap()
        });
        nodes.iter_mut().for_each(|node| node.wait_ready(PATIENCE).unwrap());
        reached_within(PATIENCE, &nodes[0], &nodes[1]);
        Self {
            nodes,
            lan: ports,
            _switches: [wan_switch, lan_switch],
            _world: world,
        }
    }

    fn isolate(&self, apart: bool) {
        self.lan.iter().for_each(|port| port.isolate(apart).unwrap());
    }

    /// Whether both ends send in the local network, or none does.
    fn in_lan(&self) -> Option<bool> {
        let [a, b] = [(0, 1), (1, 0)].map(|(from, to)| {
            let status = self.nodes[from].peer(&self.nodes[to].identity().npub).unwrap().unwrap();
            status["path"]["addr"]
                .as_str()
                .unwrap_or_default()
                .contains("192.168.7.")
        });
        (a == b).then_some(a)
    }

    fn wait_lan(&self, lan: bool) {
        wait_until(2 * MINUTE, "the expected network", || self.in_lan() == Some(lan));
    }

    fn finish(mut self) {
        for node in &mut self.nodes {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
        }
    }
}

#[test]
fn the_local_network_is_used_and_left_while_it_is_cut() {
    beside(|| {
        let net = Net::start(true);
        net.wait_lan(true);
        let hosts = [net.nodes[0].host(), net.nodes[1].host()];
        let flow = TcpFlow::start(
            (hosts[0], hosts[1]),
            address(&net.nodes[1]),
            Limit::Stopped,
            1,
            5 * MINUTE,
        )
        .unwrap();
        wait_until(MINUTE, "TCP in the local network", || flow.received() > 1_000_000);
        let pings = || {
            [(0, 1), (1, 0)]
                .map(|(from, to)| Pinger::start(hosts[from], net.nodes[to].identity().address, DENSE).unwrap())
        };
        let silences = |pingers: [Pinger; 2]| pingers.map(|pinger| pinger.stop().unwrap().longest_gap_ms);

        let (start, pingers) = (Instant::now(), pings());
        net.isolate(true);
        net.wait_lan(false);
        let received = flow.received();
        wait_until(MINUTE, "TCP in the other network", || {
            flow.received() > received + 1_000_000
        });
        let cut = silences(pingers);
        eprintln!("silence after the cut: {cut:.0?} ms");
        assert!(
            stood_still_since(start) || cut.iter().all(|ms| *ms <= SILENCE_MS),
            "{cut:?}"
        );

        let (start, pingers) = (Instant::now(), pings());
        net.isolate(false);
        net.wait_lan(true);
        let back = silences(pingers);
        eprintln!("silence on the way back: {back:.0?} ms");
        assert!(
            stood_still_since(start) || back.iter().all(|ms| *ms <= 1_000.0),
            "{back:?}"
        );
        assert_strict!(flow.stop().unwrap().hash_ok, "the content of a flow changed");
        net.finish();
    });
}

#[test]
fn a_link_goes_to_the_local_network_that_comes_later() {
    beside(|| {
        let net = Net::start(false);
        assert_eq!(net.in_lan(), Some(false));
        let start = Instant::now();
        let pinger = Pinger::start(net.nodes[0].host(), net.nodes[1].identity().address, DENSE).unwrap();
        net.isolate(false);
        net.wait_lan(true);
        let report = pinger.stop().unwrap();
        assert!(
            stood_still_since(start) || report.longest_gap_ms <= 1_000.0,
            "{report:?}"
        );
        net.finish();
    });
}
