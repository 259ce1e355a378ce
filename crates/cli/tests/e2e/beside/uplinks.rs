//! A node with two uplinks, and one peer in the internet: the link goes through the uplink that the
//! system prefers while that works, and TCP goes on when it fails and when it is back.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use weft_lab::cable::Direction;
use weft_lab::daemon::Daemon;
use weft_lab::emulator::{Cable, Impairments};
use weft_lab::host::Host;
use weft_lab::spec::{DEFAULT_PORT, NodeSpec};
use weft_lab::traffic::{Limit, Pinger, TcpFlow};
use weft_lab::world::{EmulatedLink, Link, Port, Switch, World};

use crate::common::net::DENSE;
use crate::common::{MINUTE, PATIENCE, WEFT, address, beside, identity, reached_within, wait_until};
use weft_os::assert_strict;
use weft_os::test_support::stood_still_since;

/// How long pings may be missing when the uplink in use fails silently, in ms.
const SILENCE_MS: f64 = 1_500.0;

/// The time until a new link has compared its paths.
const SETTLED: Duration = Duration::from_secs(4);

/// The uplinks of the first node, the one first that its system prefers.
const UPLINKS: [&str; 2] = ["11.1.0", "11.2.0"];

struct Net {
    nodes: [Daemon; 2],
    /// The ports of the first node.
    ports: [Port; 2],
    /// The ports of the providers' routers towards it.
    routers: [Port; 2],
    _hosts: Vec<Host>,
    _switches: Vec<Switch>,
    _world: World,
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

impl Net {
    /// Nodes that know each other. `settings`: further lines in the first one's configuration.
    /// `works`: whether the preferred uplink does at the start.
    fn start(settings: &str, works: bool) -> Self {
        let world = World::new().unwrap();
        let [laptop, server] = ["laptop", "server"].map(|name| world.host(name).unwrap());
        let internet = world.switch("internet").unwrap();
        internet.connect(&server, &["11.0.0.7/24"]).unwrap();
        let (mut ports, mut routers) = (Vec::new(), Vec::new());
        let (mut hosts, mut switches) = (Vec::new(), Vec::new());
        for (n, net) in UPLINKS.iter().enumerate() {
            let switch = world.switch("provider").unwrap();
            let router = world.host("router").unwrap();
            routers.push(switch.connect(&router, &[&format!("{net}.1/24")]).unwrap());
            internet.connect(&router, &[&format!("11.0.0.{}/24", n + 1)]).unwrap();
            router.forward().unwrap();
            let port = switch.connect(&laptop, &[&format!("{net}.7/24")]).unwrap();
            server
                .add_route(ip(&format!("{net}.0")), 24, ip(&format!("11.0.0.{}", n + 1)))
                .unwrap();
            ports.push(port);
            hosts.push(router);
            switches.push(switch);
        }
        for (n, port) in ports.iter().enumerate() {
            prefer(&laptop, port, n);
        }
        let identities = ["laptop", "server"].map(|name| identity(&world, name));
        let at = SocketAddr::new(ip("11.0.0.7"), DEFAULT_PORT);
        let of_laptop = NodeSpec {
            extra_toml: settings.to_owned(),
            ..NodeSpec::default()
        };
        let ports: [Port; 2] = ports.try_into().unwrap();
        let routers: [Port; 2] = routers.try_into().unwrap();
        [&ports[0], &routers[0]]
            .iter()
            .for_each(|port| port.isolate(!works).unwrap());
        let specs = [
            of_laptop.with_peer(&identities[1].npub, "server", &[at]),
            NodeSpec::default().with_peer(&identities[0].npub, "laptop", &[]),
        ];
        let mut nodes = [(&laptop, 0), (&server, 1)]
            .map(|(host, n)| Daemon::start(host, Path::new(WEFT), &identities[n], &specs[n]).unwrap());
        nodes.iter_mut().for_each(|node| node.wait_ready(PATIENCE).unwrap());
        reached_within(PATIENCE, &nodes[0], &nodes[1]);
        hosts.push(server);
        switches.push(internet);
        Self {
            nodes,
            ports,
            routers,
            _hosts: hosts,
            _switches: switches,
            _world: world,
        }
    }

    /// Waits until the link goes through the preferred uplink, and has a path through the other one.
    fn wait_settled(&self) {
        self.wait_through(0);
        wait_until(MINUTE, "a path through the other uplink", || self.works_through(1));
        // The rounds of the beginning notice a failure sooner than those of a link at rest.
        std::thread::sleep(SETTLED);
    }

    /// Cuts an uplink without a sign for the first node, or ends that.
    fn isolate(&self, uplink: usize, apart: bool) {
        for port in [&self.ports[uplink], &self.routers[uplink]] {
            port.isolate(apart).unwrap();
        }
    }

    fn paths(&self) -> Vec<serde_json::Value> {
        let status = self.nodes[0].peer(&self.nodes[1].identity().npub).unwrap().unwrap();
        status["paths"].as_array().cloned().unwrap_or_default()
    }

    /// Whether the link has a path through this uplink that answers.
    fn works_through(&self, uplink: usize) -> bool {
        let name = self.ports[uplink].name();
        let mut paths = self.paths().into_iter();
        paths.any(|path| path["device"] == name && path["works"] == true)
    }

    /// The uplink that both ends use.
    fn used(&self) -> Option<usize> {
        let there = self.nodes[1].peer(&self.nodes[0].identity().npub).unwrap().unwrap();
        let there = there["path"]["addr"].as_str()?;
        let uplink = UPLINKS.iter().position(|net| there.starts_with(net))?;
        // A node that has one uplink left names none.
        let here = self.paths().into_iter().find(|path| path["used"] == true);
        let device = here.and_then(|path| path["device"].as_str().map(str::to_owned));
        let agrees = device.is_none_or(|device| device == self.ports[uplink].name());
        agrees.then_some(uplink)
    }

    fn wait_through(&self, uplink: usize) {
        wait_until(2 * MINUTE, "the expected uplink", || self.used() == Some(uplink));
    }

    /// Pings in both directions while `change` happens and until the link goes through `uplink`: no
    /// direction is silent for longer than `most` ms, unless the machine stood still meanwhile. Prints the
    /// silences with `what` happened.
    fn silent_at_most(&self, most: f64, what: &str, change: impl FnOnce(&Self), uplink: usize) {
        let start = Instant::now();
        let pingers = [(0, 1), (1, 0)].map(|(from, to)| {
            let to = self.nodes[to].identity().address;
            Pinger::start(self.nodes[from].host(), to, DENSE).unwrap()
        });
        change(self);
        self.wait_through(uplink);
        let silences = pingers.map(|pinger| pinger.stop().unwrap().longest_gap_ms);
        eprintln!("silence {what}: {silences:.0?} ms");
        let held = silences.iter().all(|ms| *ms <= most);
        assert!(held || stood_still_since(start), "{what}: {silences:?}");
    }

    fn finish(mut self) {
        for node in &mut self.nodes {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
        }
    }
}

/// Adds the default route of uplink `n`.
fn prefer(laptop: &Host, port: &Port, n: usize) {
    let gateway = ip(&format!("{}.1", UPLINKS[n]));
    let metric = Some(100 * (n as u32 + 1));
    laptop.add_default_route_on(port.index(), gateway, metric).unwrap();
}

#[test]
fn tcp_outlives_the_uplink_in_use_and_returns_to_it() {
    beside(|| {
        let net = Net::start("", true);
        net.wait_settled();
        let hosts = (net.nodes[0].host(), net.nodes[1].host());
        let flow = TcpFlow::start(hosts, address(&net.nodes[1]), Limit::Stopped, 1, 5 * MINUTE).unwrap();
        let passes = |what: &str| {
            let before = flow.received();
            wait_until(MINUTE, what, || flow.received() > before + 1_000_000);
        };
        passes("TCP through the first uplink");

        net.silent_at_most(SILENCE_MS, "after a cut without a sign", |net| net.isolate(0, true), 1);
        passes("TCP through the second uplink");

        net.silent_at_most(500.0, "on the way back", |net| net.isolate(0, false), 0);
        passes("TCP through the first uplink again");

        // The system takes the interface down, and with it the route.
        net.silent_at_most(
            1_000.0,
            "after the interface went down",
            |net| net.ports[0].cut().unwrap(),
            1,
        );
        passes("TCP through the second uplink again");

        net.ports[0].heal().unwrap();
        let laptop = net.nodes[0].host();
        net.silent_at_most(
            500.0,
            "after it came back up",
            |net| prefer(laptop, &net.ports[0], 0),
            0,
        );
        passes("TCP through the first uplink at last");
        assert_strict!(flow.stop().unwrap().hash_ok, "the content of a flow changed");
        net.finish();
    });
}

#[test]
fn an_uplink_without_a_carrier_is_left_at_once() {
    beside(|| {
        let net = Net::start("", true);
        net.wait_settled();
        net.silent_at_most(
            1_000.0,
            "after the carrier was lost",
            |net| net.ports[0].set_carrier(false).unwrap(),
            1,
        );
        net.silent_at_most(
            500.0,
            "after it was back",
            |net| net.ports[0].set_carrier(true).unwrap(),
            0,
        );
        // The other one has no part in what passes, so that its end changes nothing.
        net.silent_at_most(
            500.0,
            "after the spare uplink lost its carrier",
            |net| net.ports[1].set_carrier(false).unwrap(),
            0,
        );
        net.finish();
    });
}

#[test]
fn a_peer_is_reached_through_the_uplink_that_works_at_the_start() {
    beside(|| {
        let net = Net::start("", false);
        assert_eq!(net.used(), Some(1));
        net.silent_at_most(
            500.0,
            "on the way to the preferred uplink",
            |net| net.isolate(0, false),
            0,
        );
        net.finish();
    });
}

#[test]
fn further_uplinks_are_left_alone_if_they_are_off() {
    beside(|| {
        let net = Net::start("\n[reach]\nuplinks = \"off\"\n", true);
        net.wait_through(0);
        std::thread::sleep(SETTLED);
        assert_eq!(net.paths().len(), 1, "{:?}", net.paths());
        net.finish();
    });
}

/// The rate of each uplink, in bits a second, and the one-way delays.
const RATE: u64 = 40_000_000;
const DELAYS_MS: [u64; 2] = [5, 15];
/// The flows that share both uplinks.
const FLOWS: u64 = 8;

/// A node with two emulated uplinks, and one peer; both want to use them at once.
struct Bonded {
    nodes: [Daemon; 2],
    uplinks: [EmulatedLink; 2],
    _ports: Vec<Link>,
    _hosts: Vec<Host>,
    _internet: Switch,
    _world: World,
}

fn impairments(n: usize) -> Impairments {
    Impairments {
        delay: Duration::from_millis(DELAYS_MS[n]),
        rate: Some(RATE),
        // The product of the rate and the longer round trip.
        queue: (RATE / 8 * 2 * DELAYS_MS[1] / 1_000) as usize,
        ..Impairments::default()
    }
}

impl Bonded {
    fn start() -> Self {
        let world = World::new().unwrap();
        let [laptop, server] = ["laptop", "server"].map(|name| world.host(name).unwrap());
        let internet = world.switch("internet").unwrap();
        internet.connect(&server, &["11.0.0.7/24"]).unwrap();
        let (mut hosts, mut ports) = (Vec::new(), Vec::new());
        let uplinks = [0, 1].map(|n| {
            // The emulated cable is behind a modem: on the host itself it would be a tunnel.
            let net = UPLINKS[n];
            let [modem, router] = ["modem", "router"].map(|name| world.host(name).unwrap());
            let port = [format!("{net}.7/24"), format!("{net}.1/24")];
            let port = world.link((&laptop, &[&port[0]]), (&modem, &[&port[1]])).unwrap();
            let far = format!("11.{}.1", 1 + n);
            let [inner, outer] = [format!("{far}.1"), format!("{far}.2")];
            let ends = [&inner, &outer].map(|ip| format!("{ip}/24"));
            let cable = Cable::both(impairments(n));
            let link = world
                .emulated_link((&modem, &[&ends[0]]), (&router, &[&ends[1]]), cable)
                .unwrap();
            let public = format!("11.0.0.{}", n + 1);
            internet.connect(&router, &[&format!("{public}/24")]).unwrap();
            for host in [&modem, &router] {
                host.forward().unwrap();
            }
            modem.add_default_route(ip(&outer)).unwrap();
            let of_laptop = ip(&format!("{net}.0"));
            router.add_route(of_laptop, 24, ip(&inner)).unwrap();
            server.add_route(of_laptop, 24, ip(&public)).unwrap();
            prefer(&laptop, port.a(), n);
            hosts.extend([modem, router]);
            ports.push(port);
            link
        });
        let identities = ["laptop", "server"].map(|name| identity(&world, name));
        let at = SocketAddr::new(ip("11.0.0.7"), DEFAULT_PORT);
        let specs = [
            ("server", &identities[1], vec![at.to_string()]),
            ("laptop", &identities[0], Vec::new()),
        ];
        let specs = specs.map(|(name, peer, addresses)| NodeSpec {
            // Here the peer has a setting that the lab does not know.
            extra_toml: format!(
                "[[peer]]\nnpub = \"{}\"\nname = \"{name}\"\naddresses = {addresses:?}\nbond = true\n",
                peer.npub
            ),
            ..NodeSpec::default()
        });
        let mut nodes = [(&laptop, 0), (&server, 1)]
            .map(|(host, n)| Daemon::start(host, Path::new(WEFT), &identities[n], &specs[n]).unwrap());
        nodes.iter_mut().for_each(|node| node.wait_ready(PATIENCE).unwrap());
        reached_within(PATIENCE, &nodes[0], &nodes[1]);
        hosts.push(server);
        Self {
            nodes,
            uplinks,
            _ports: ports,
            _hosts: hosts,
            _internet: internet,
            _world: world,
        }
    }

    /// Flows from one node to the other.
    fn flows(&self, from: usize) -> Vec<TcpFlow> {
        let hosts = (self.nodes[from].host(), self.nodes[1 - from].host());
        let to = address(&self.nodes[1 - from]);
        let start = |seed| TcpFlow::start(hosts, to, Limit::Stopped, seed, 5 * MINUTE).unwrap();
        (1..=FLOWS).map(start).collect()
    }

    /// The frames that each uplink delivered to the laptop and from it.
    fn frames(&self) -> [u64; 2] {
        let of = |link: &EmulatedLink| link.counts(Direction::AToB).given + link.counts(Direction::BToA).given;
        [of(&self.uplinks[0]), of(&self.uplinks[1])]
    }
}

fn received(flows: &[TcpFlow]) -> u64 {
    flows.iter().map(TcpFlow::received).sum()
}

#[test]
fn eight_flows_share_two_uplinks_and_outlive_one() {
    beside(|| {
        let net = Bonded::start();
        for from in [0, 1] {
            let flows = net.flows(from);
            wait_until(MINUTE, "TCP through both uplinks", || {
                let before = net.frames();
                std::thread::sleep(Duration::from_secs(1));
                let after = net.frames();
                let passed = [0, 1].map(|n| after[n] - before[n]);
                passed.iter().all(|frames| *frames > 200)
            });
            let (before, seconds) = (received(&flows), 5);
            std::thread::sleep(Duration::from_secs(seconds));
            let share = (received(&flows) - before) as f64 * 8.0 / (seconds * 2 * RATE) as f64;
            eprintln!("{FLOWS} flows got {:.1} % of the rates of both uplinks", 100.0 * share);

            // The uplink of the path that the link has, and the other one.
            let cut = from;
            net.uplinks[cut].set_both(Impairments {
                loss: 1.0,
                ..impairments(cut)
            });
            let before: Vec<u64> = flows.iter().map(TcpFlow::received).collect();
            wait_until(MINUTE, "each flow to go on", || {
                let now = flows.iter().map(TcpFlow::received);
                now.zip(&before).all(|(now, before)| now > before + 1_000_000)
            });
            net.uplinks[cut].set_both(impairments(cut));
            for flow in flows {
                assert_strict!(flow.stop().unwrap().hash_ok, "the content of a flow changed");
            }
        }
        let mut net = net;
        for node in &mut net.nodes {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
        }
    });
}
