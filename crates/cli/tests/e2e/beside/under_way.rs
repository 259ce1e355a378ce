//! A stream of 100 MB passes while the network below it changes: another address, another gateway, a
//! NAT box that loses its mappings, a host that sleeps. No connection is lost. Each test prints how
//! long nothing arrived.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use weft_lab::daemon::Daemon;
use weft_lab::nat::{NatBox, NatConfig, NatKind};
use weft_lab::spec::{DEFAULT_PORT, NodeSpec};
use weft_lab::traffic::{Limit, Pinger, TcpFlow};
use weft_lab::world::{Port, Switch, World};

use crate::common::net::DENSE;
use crate::common::{MINUTE, PATIENCE, WEFT, address, beside, identity, reached_within, wait_until};
use weft_os::assert_strict;

/// Bytes of the stream.
const WHOLE: u64 = 100_000_000;
/// Of these, bytes that have arrived when the network changes.
const BEFORE: u64 = 10_000_000;
/// How long a host sleeps.
const SLEEP: Duration = Duration::from_secs(45);
const LAPTOP: &str = "192.168.1.7/24";

/// A laptop in a home with two routers, of which the first is its gateway, and a node outside.
struct Home {
    laptop: Daemon,
    cloud: Daemon,
    port: Port,
    routers: [NatBox; 2],
    _switches: [Switch; 2],
    _world: World,
}

impl Home {
    /// `kind`: that of both routers.
    fn start(kind: NatKind) -> Self {
        let world = World::new().unwrap();
        let [home, internet] = ["home", "internet"].map(|name| world.switch(name).unwrap());
        let routers = [1, 2].map(|n: u8| {
            let [inner, outer] = [format!("192.168.1.{n}/24"), format!("11.0.0.{n}/8")];
            let config = NatConfig::new(kind);
            world.nat(config, (&home, &inner), (&internet, &outer)).unwrap()
        });
        let [laptop, cloud] = ["laptop", "cloud"].map(|name| world.host(name).unwrap());
        let port = home.connect(&laptop, &[LAPTOP]).unwrap();
        laptop.add_default_route(routers[0].inner()).unwrap();
        internet.connect(&cloud, &["11.0.0.7/8"]).unwrap();
        let [own, outside] = ["laptop", "cloud"].map(|name| identity(&world, name));
        let at = SocketAddr::new(IpAddr::from([11, 0, 0, 7]), DEFAULT_PORT);
        let start = |host, identity, spec| {
            let mut node = Daemon::start(host, Path::new(WEFT), identity, &spec).unwrap();
            node.wait_ready(PATIENCE).unwrap();
            node
        };
        let home_net = Self {
            cloud: start(
                &cloud,
                &outside,
                NodeSpec::default().with_peer(&own.npub, "laptop", &[]),
            ),
            laptop: start(
                &laptop,
                &own,
                NodeSpec::default().with_peer(&outside.npub, "cloud", &[at]),
            ),
            port,
            routers,
            _switches: [home, internet],
            _world: world,
        };
        reached_within(PATIENCE, &home_net.laptop, &home_net.cloud);
        reached_within(PATIENCE, &home_net.cloud, &home_net.laptop);
        home_net
    }

    /// The stream, of which the first bytes have arrived: to the laptop, or from it.
    fn stream(&self, upload: bool) -> TcpFlow {
        let (from, to) = match upload {
            true => (&self.laptop, &self.cloud),
            false => (&self.cloud, &self.laptop),
        };
        let hosts = (from.host(), to.host());
        let flow = TcpFlow::start(hosts, address(to), Limit::Bytes(WHOLE), 1, 5 * MINUTE).unwrap();
        wait_until(MINUTE, "the stream", || flow.received() > BEFORE);
        flow
    }

    /// Echoes from both ends.
    fn pings(&self) -> [Pinger; 2] {
        let ways = [(&self.laptop, &self.cloud), (&self.cloud, &self.laptop)];
        ways.map(|(from, to)| Pinger::start(from.host(), to.identity().address, DENSE).unwrap())
    }

    /// The address at which the node outside sees the laptop.
    fn seen(&self) -> String {
        let peer = self.cloud.peer(&self.laptop.identity().npub).unwrap().unwrap();
        peer["path"]["addr"].as_str().unwrap_or_default().to_owned()
    }

    /// Lets the stream pass while the network changes, and prints the silence.
    fn passes(self, what: &str, upload: bool, change: impl FnOnce(&Self)) {
        let (seen, pings) = (self.seen(), self.pings());
        let flow = self.stream(upload);
        change(&self);
        assert!(flow.received() < WHOLE, "the stream ended before the network changed");
        self.finish(what, flow, pings, Some(&seen));
    }

    /// `seen`: the address of the laptop before the network changed, if it is to be another one now.
    fn finish(mut self, what: &str, flow: TcpFlow, pings: [Pinger; 2], seen: Option<&str>) {
        let report = flow.join().unwrap();
        if let Some(seen) = seen {
            wait_until(PATIENCE, "another address", || {
                !["", seen].contains(&self.seen().as_str())
            });
        }
        let silences = pings.map(|pinger| pinger.stop().unwrap().longest_gap_ms);
        eprintln!(
            "{what}: no echo for {:.0} and {:.0} ms from the laptop and to it, no byte for {:.0} ms, {:.0} Mbit/s",
            silences[0], silences[1], report.longest_stall_ms, report.mbit_s
        );
        assert_strict!(report.hash_ok, "{report:?}");
        assert_eq!(report.bytes, WHOLE);
        let most = PATIENCE.as_secs_f64() * 1e3;
        assert!(silences.iter().all(|silence| *silence <= most), "{what}: {silences:?}");
        for node in [&mut self.laptop, &mut self.cloud] {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
        }
    }
}

#[test]
fn a_stream_survives_another_address() {
    beside(|| {
        Home::start(NatKind::Symmetric).passes("another address", false, |home| {
            home.port.change_address(LAPTOP, "192.168.1.77/24").unwrap();
            let host = home.laptop.host();
            host.add_default_route(home.routers[0].inner()).unwrap();
        });
    });
}

#[test]
fn a_stream_survives_another_gateway() {
    beside(|| {
        Home::start(NatKind::Symmetric).passes("another gateway", true, |home| {
            let (host, index) = (home.laptop.host(), home.port.index());
            host.delete_default_routes_on(index, false).unwrap();
            let gateway = home.routers[1].inner();
            host.add_default_route_on(index, gateway, None).unwrap();
        });
    });
}

/// The box restarts with another address, so that the node outside has no address that is still right.
#[test]
fn a_stream_survives_a_nat_box_that_restarts() {
    beside(|| {
        Home::start(NatKind::Symmetric).passes("a NAT box that restarts", false, |home| {
            home.routers[0].reboot(Some(([11, 0, 0, 77].into(), 8)));
        });
    });
}

/// The box keeps its address, forgets its mappings, and maps the laptop to another port.
#[test]
fn a_stream_survives_a_nat_box_that_forgets() {
    beside(|| {
        Home::start(NatKind::Symmetric).passes("a NAT box that forgets", true, |home| {
            home.routers[0].reboot(None);
        });
    });
}

/// None of the daemon's threads runs for longer than links live in silence. The silence is counted
/// from the moment when they run again. Their clocks go on meanwhile, and show no suspension: this is
/// harder than what a host does that sleeps, as the node is not told that it slept.
#[test]
fn a_stream_survives_a_host_that_sleeps() {
    beside(|| {
        let mut home = Home::start(NatKind::Symmetric);
        let flow = home.stream(false);
        home.laptop.suspend().unwrap();
        let stood = flow.received();
        std::thread::sleep(SLEEP);
        assert!(
            flow.received() < WHOLE && stood < WHOLE,
            "the stream ended before the host slept"
        );
        home.laptop.resume().unwrap();
        let pings = home.pings();
        home.finish("a host that sleeps", flow, pings, None);
    });
}
