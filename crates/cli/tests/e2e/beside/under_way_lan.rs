//! A stream of 100 MB passes between two nodes of one LAN, one of which leaves it for another home and
//! returns. No connection is lost. The test prints how long nothing arrived.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use weft_lab::daemon::Daemon;
use weft_lab::nat::{NatBox, NatConfig, NatKind};
use weft_lab::spec::{DEFAULT_PORT, NodeSpec};
use weft_lab::traffic::{Limit, Pinger, TcpFlow};
use weft_lab::world::{Port, Switch, World};
use weft_os::assert_strict;

use crate::common::net::DENSE;
use crate::common::{MINUTE, PATIENCE, WEFT, address, beside, identity, reached_within, wait_until};

/// Bytes of the stream, at least.
const WHOLE: u64 = 100_000_000;
/// Bytes that pass in each network.
const EACH: u64 = 20_000_000;
/// Bytes of the stream in a second, at most: it outlasts both moves.
const PACE: u64 = 20_000_000;
/// The homes of the laptop.
const LAN: usize = 0;
const AWAY: usize = 1;

/// A laptop and a nas in one home, another home, and a public node that both know.
struct Homes {
    laptop: Daemon,
    nas: Daemon,
    cloud: Daemon,
    /// Those of the laptop in both homes.
    ports: [Port; 2],
    routers: [NatBox; 2],
    _switches: Vec<Switch>,
    _world: World,
}

impl Homes {
    fn start() -> Self {
        let world = World::new().unwrap();
        let internet = world.switch("internet").unwrap();
        let homes = ["home", "other"].map(|name| world.switch(name).unwrap());
        let routers = [(1, &homes[LAN]), (2, &homes[AWAY])].map(|(n, home)| {
            let [inner, outer] = [format!("192.168.{n}.1/24"), format!("11.0.0.{n}/8")];
            let config = NatConfig::new(NatKind::PortRestricted);
            world.nat(config, (home, &inner), (&internet, &outer)).unwrap()
        });
        let hosts = ["laptop", "nas", "cloud"].map(|name| world.host(name).unwrap());
        let [laptop, nas, cloud] = &hosts;
        let ports = [(1, &homes[LAN]), (2, &homes[AWAY])]
            .map(|(n, home)| home.connect(laptop, &[&format!("192.168.{n}.7/24")]).unwrap());
        ports[AWAY].cut().unwrap();
        homes[LAN].connect(nas, &["192.168.1.8/24"]).unwrap();
        for host in [laptop, nas] {
            host.add_default_route(routers[LAN].inner()).unwrap();
        }
        internet.connect(cloud, &["11.0.0.7/8"]).unwrap();
        let own = ["laptop", "nas", "cloud"].map(|name| identity(&world, name));
        let at = SocketAddr::new(IpAddr::from([11, 0, 0, 7]), DEFAULT_PORT);
        let start = |n: usize, others: [(usize, &[SocketAddr]); 2]| {
            let spec = others.iter().fold(NodeSpec::default(), |spec, (other, at)| {
                spec.with_peer(&own[*other].npub, &own[*other].name, at)
            });
            let mut node = Daemon::start(&hosts[n], Path::new(WEFT), &own[n], &spec).unwrap();
            node.wait_ready(PATIENCE).unwrap();
            node
        };
        Self {
            cloud: start(2, [(0, &[]), (1, &[])]),
            laptop: start(0, [(1, &[]), (2, &[at])]),
            nas: start(1, [(0, &[]), (2, &[at])]),
            ports,
            routers,
            _switches: homes.into_iter().chain([internet]).collect(),
            _world: world,
        }
    }

    /// Takes the laptop to a home from the other one.
    fn move_to(&self, home: usize) {
        let host = self.laptop.host();
        self.ports[1 - home].cut().unwrap();
        self.ports[home].heal().unwrap();
        let (index, gateway) = (self.ports[home].index(), self.routers[home].inner());
        host.add_default_route_on(index, gateway, None).unwrap();
    }

    /// Waits until both paths are direct at addresses that belong to the laptop in this home.
    fn wait_path(&self, home: usize) {
        let [nas, laptop] = [["192.168.1.8:", "192.168.1.7:"], ["11.0.0.1:", "11.0.0.2:"]][home];
        let at = |from: &Daemon, to: &Daemon, wanted: &str| {
            let path = from.peer(&to.identity().npub).unwrap().unwrap()["path"].clone();
            path["kind"] == "direct" && path["addr"].as_str().unwrap_or_default().starts_with(wanted)
        };
        wait_until(PATIENCE, "the path is direct in this network", || {
            at(&self.laptop, &self.nas, nas) && at(&self.nas, &self.laptop, laptop)
        });
    }

    /// Takes the laptop to a home while a stream passes, and prints the silence.
    fn changes(&self, what: &str, home: usize, flow: &TcpFlow) {
        let ways = [(&self.laptop, &self.nas), (&self.nas, &self.laptop)];
        let pings = ways.map(|(from, to)| Pinger::start(from.host(), to.identity().address, DENSE).unwrap());
        let before = flow.received();
        wait_until(MINUTE, "the stream", || flow.received() > before + EACH);
        self.move_to(home);
        self.wait_path(home);
        let moved = flow.received();
        wait_until(MINUTE, "the stream goes on", || flow.received() > moved + EACH);
        let silences = pings.map(|pinger| pinger.stop().unwrap().longest_gap_ms);
        eprintln!(
            "{what}: no echo for {:.0} and {:.0} ms from the laptop and to it",
            silences[0], silences[1]
        );
        let most = PATIENCE.as_secs_f64() * 1e3;
        assert!(silences.iter().all(|silence| *silence <= most), "{what}: {silences:?}");
    }
}

/// Lets the stream pass to the laptop, or from it.
fn leaves_and_returns(upload: bool) {
    let mut homes = Homes::start();
    reached_within(PATIENCE, &homes.laptop, &homes.nas);
    homes.wait_path(LAN);
    let (from, to) = match upload {
        true => (&homes.laptop, &homes.nas),
        false => (&homes.nas, &homes.laptop),
    };
    let hosts = (from.host(), to.host());
    let flow = TcpFlow::start(hosts, address(to), Limit::Paced(PACE), 1, 5 * MINUTE).unwrap();
    homes.changes("from the LAN to another home", AWAY, &flow);
    homes.changes("back to the LAN", LAN, &flow);
    wait_until(MINUTE, "the whole stream", || flow.received() >= WHOLE);
    let report = flow.stop().unwrap();
    eprintln!("no byte for {:.0} ms", report.longest_stall_ms);
    assert_strict!(report.hash_ok, "{report:?}");
    for node in [&mut homes.laptop, &mut homes.nas, &mut homes.cloud] {
        assert_eq!(node.stop().unwrap().code(), Some(0));
        assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
    }
}

#[test]
fn a_stream_survives_leaving_the_lan_and_returning() {
    beside(|| leaves_and_returns(false));
}

#[test]
fn a_stream_to_the_lan_survives_leaving_it_and_returning() {
    beside(|| leaves_and_returns(true));
}
