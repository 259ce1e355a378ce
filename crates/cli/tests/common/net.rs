//! A network of weft nodes that take part in the mesh, on a switch that can isolate chosen nodes
//! from each other.
// Each test binary uses some of them.
#![allow(dead_code, unreachable_pub)]

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use weft_lab::daemon::{Daemon, Identity};
use weft_lab::host::Host;
use weft_lab::spec::{DEFAULT_PORT, NodeSpec};
use weft_lab::traffic::{PingOptions, Pinger, ProbeReport};
use weft_lab::world::{Port, Switch, World};

use super::{PATIENCE, WEFT, identity};

/// L12's pings: 1000 bytes, never fragmented, five a second.
pub const PINGS: PingOptions = PingOptions {
    source: None,
    interval: Duration::from_millis(200),
    payload: 1000,
    count: None,
    grace: Duration::from_secs(1),
};

/// Twenty a second, to see when payload passes again.
pub const DENSE: PingOptions = PingOptions {
    source: None,
    interval: Duration::from_millis(50),
    payload: 1000,
    count: None,
    grace: Duration::from_secs(1),
};

/// One host of the network, with its node after that is started.
pub struct Place {
    name: &'static str,
    host: Host,
    identity: Identity,
    port: Port,
    daemon: Option<Daemon>,
}

/// Hosts by name, all on one switch.
pub struct Net {
    places: Vec<Place>,
    pub switch: Switch,
    pub world: World,
}

impl Net {
    /// Hosts with keys, 192.0.2.1 and so on, without running nodes.
    pub fn new(names: &[&'static str]) -> Self {
        let world = World::new().unwrap();
        let switch = world.switch("switch").unwrap();
        let place = |(n, name): (usize, &&'static str)| {
            let host = world.host(name).unwrap();
            let port = switch.connect(&host, &[&format!("{}/24", underlay(n))]).unwrap();
            Place {
                name,
                host,
                identity: identity(&world, name),
                port,
                daemon: None,
            }
        };
        let places = names.iter().enumerate().map(place).collect();
        Self { places, switch, world }
    }

    fn at(&self, name: &str) -> usize {
        self.places.iter().position(|place| place.name == name).unwrap()
    }

    /// The configuration of a node that has no peers and admits every node; `more` are further
    /// lines of its `[mesh]`.
    pub fn spec(&self, more: &str) -> NodeSpec {
        self.choosy(&format!("open = true\n{more}"))
    }

    /// The same, but `mesh` are all lines of its `[mesh]`.
    pub fn choosy(&self, mesh: &str) -> NodeSpec {
        NodeSpec {
            // All are on one switch: without this, no path through others would stay.
            extra_toml: format!("\n[reach]\npunch = false\n\n[mesh]\n{mesh}"),
            ..NodeSpec::default()
        }
    }

    /// The configuration of a node that dials some peers and only lists others.
    pub fn knowing(&self, dials: &[&str], knows: &[&str]) -> NodeSpec {
        let mut spec = self.spec("");
        for name in dials {
            let at = SocketAddr::new(underlay(self.at(name)).parse().unwrap(), DEFAULT_PORT);
            spec = spec.with_peer(&self.npub(name), name, &[at]);
        }
        for name in knows {
            spec = spec.with_peer(&self.npub(name), name, &[]);
        }
        spec
    }

    /// Starts a node and waits until it answers.
    pub fn start(&mut self, name: &str, spec: &NodeSpec) {
        let at = self.at(name);
        let place = &mut self.places[at];
        let mut daemon = Daemon::start(&place.host, Path::new(WEFT), &place.identity, spec).unwrap();
        daemon.wait_ready(PATIENCE).unwrap();
        place.daemon = Some(daemon);
    }

    pub fn npub(&self, name: &str) -> String {
        self.places[self.at(name)].identity.npub.clone()
    }

    pub fn host(&self, name: &str) -> &Host {
        &self.places[self.at(name)].host
    }

    pub fn node(&self, name: &str) -> &Daemon {
        self.places[self.at(name)].daemon.as_ref().unwrap()
    }

    pub fn node_mut(&mut self, name: &str) -> &mut Daemon {
        let at = self.at(name);
        self.places[at].daemon.as_mut().unwrap()
    }

    /// Isolated hosts exchange nothing with each other, and everything with the others.
    pub fn keep_apart(&self, names: &[&str], apart: bool) {
        for name in names {
            self.places[self.at(name)].port.isolate(apart).unwrap();
        }
    }

    /// Starts to ping from one node to another.
    pub fn ping(&self, from: &str, to: &str, options: PingOptions) -> Pinger {
        let to = self.places[self.at(to)].identity.address;
        Pinger::start(self.host(from), to, options).unwrap()
    }

    /// Pings in both directions for a time, and returns the reports.
    pub fn ping_both(&self, [a, b]: [&str; 2], options: PingOptions, time: Duration) -> [ProbeReport; 2] {
        let pingers = [(a, b), (b, a)].map(|(from, to)| self.ping(from, to, options));
        std::thread::sleep(time);
        pingers.map(|pinger| pinger.stop().unwrap())
    }

    /// The status that one node has of another.
    pub fn peer(&self, from: &str, to: &str) -> Value {
        self.node(from).peer(&self.npub(to)).unwrap().unwrap()
    }

    /// The relay through which one node reaches another; `None` if the path is direct or there is
    /// none.
    pub fn via(&self, from: &str, to: &str) -> Option<&'static str> {
        let path = &self.peer(from, to)["path"];
        let via = path["via"].as_str()?;
        let relay = self.places.iter().find(|place| place.identity.npub == via);
        Some(relay.unwrap().name)
    }

    pub fn is_direct(&self, from: &str, to: &str) -> bool {
        self.peer(from, to)["path"]["kind"] == "direct"
    }

    /// Waits until both reach each other directly.
    pub fn wait_direct(&self, [a, b]: [&str; 2], limit: Duration) {
        let end = Instant::now() + limit;
        loop {
            let late = Instant::now() >= end;
            if self.is_direct(a, b) && self.is_direct(b, a) {
                return;
            }
            let status = [self.peer(a, b), self.peer(b, a)];
            assert!(!late, "not direct after {limit:?}: {status:#?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Pings until an answer arrives, which must be within `limit`.
    pub fn reached_within(&self, limit: Duration, from: &str, to: &str) {
        super::reached_within(limit, self.node(from), self.node(to));
    }

    /// Asserts that no log has a warning, and that all nodes stop cleanly.
    pub fn finish(mut self) {
        for daemon in self.places.iter_mut().filter_map(|place| place.daemon.as_mut()) {
            let name = daemon.identity().name.clone();
            assert_eq!(daemon.stop().unwrap().code(), Some(0), "{name}");
            let warnings = daemon.warnings().unwrap();
            assert!(warnings.is_empty(), "{name}: {warnings:#?}");
        }
    }
}

/// The address of the n-th host, from 0.
fn underlay(n: usize) -> String {
    format!("192.0.2.{}", n + 1)
}
