//! The network of the demo: a public network, a home network behind a NAT box, and five machines.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::StepError;
use super::report::{Node, PathNow};
use crate::daemon::{Daemon, DaemonError, Identity};
use crate::host::Host;
use crate::nat::{NatBox, NatConfig, NatKind};
use crate::spec::{DEFAULT_PORT, NodeSpec};
use crate::traffic::{PingOptions, Pinger};
use crate::world::{Port, Switch, World};

/// The machines, in the order of their start. All but gamma are in the public network.
pub(super) const ALPHA: usize = 0;
pub(super) const BETA: usize = 1;
pub(super) const RELAY: usize = 2;
pub(super) const GAMMA: usize = 3;
pub(super) const DELTA: usize = 4;

/// Their names and addresses in the underlay.
pub(super) const CAST: [(&str, &str); 5] = [
    ("alpha", "203.0.113.1"),
    ("beta", "203.0.113.2"),
    ("relay", "203.0.113.9"),
    ("gamma", "10.0.0.2"),
    ("delta", "203.0.113.4"),
];

/// The NAT box's addresses, inner and outer.
pub(super) const NAT: [&str; 2] = ["10.0.0.1", "203.0.113.99"];

/// Time limits of a daemon's start, and of the first answer of a peer.
pub(super) const READY: Duration = Duration::from_secs(10);

/// Polling interval while waiting.
const POLL: Duration = Duration::from_millis(25);

/// The network of the demo.
pub(super) struct Stage {
    weft: PathBuf,
    hosts: Vec<Host>,
    pub(super) ports: Vec<Port>,
    identities: Vec<Identity>,
    pub(super) daemons: Vec<Daemon>,
    _nat: NatBox,
    _networks: [Switch; 2],
}

impl Stage {
    /// Builds the network and starts all daemons but the last.
    pub(super) fn set(world: &World, weft: &Path) -> Result<Self, StepError> {
        let (lan, wan) = (world.switch("home")?, world.switch("public")?);
        let [inner, outer] = NAT.map(|address| format!("{address}/24"));
        let config = NatConfig::new(NatKind::Symmetric);
        let nat = world.nat(config, (&lan, &inner), (&wan, &outer))?;
        let (mut hosts, mut ports, mut identities) = (Vec::new(), Vec::new(), Vec::new());
        for (n, (name, address)) in CAST.into_iter().enumerate() {
            let host = world.host(name)?;
            let network = if n == GAMMA { &lan } else { &wan };
            ports.push(network.connect(&host, &[&format!("{address}/24")])?);
            identities.push(Identity::create(weft, world.directory(), name)?);
            hosts.push(host);
        }
        hosts[GAMMA].add_default_route(nat.inner())?;
        let mut stage = Self {
            weft: weft.to_owned(),
            hosts,
            ports,
            identities,
            daemons: Vec::new(),
            _nat: nat,
            _networks: [lan, wan],
        };
        for n in [ALPHA, BETA, RELAY, GAMMA] {
            stage.enter(n)?;
        }
        Ok(stage)
    }

    /// Starts the next daemon and waits until it answers.
    pub(super) fn enter(&mut self, n: usize) -> Result<(), StepError> {
        let mut daemon = Daemon::start(&self.hosts[n], &self.weft, &self.identities[n], &self.spec(n))?;
        daemon.wait_ready(READY)?;
        self.daemons.push(daemon);
        Ok(())
    }

    /// All nodes but the relay have all others as peers, with the relay's address. Alpha and beta have each other's address
    /// too. The relay has no peers and admits every node.
    fn spec(&self, own: usize) -> NodeSpec {
        let mut spec = NodeSpec::default();
        if own == RELAY {
            spec.extra_toml = "\n[mesh]\nopen = true\n".to_owned();
        }
        for (n, (name, _)) in CAST.into_iter().enumerate() {
            let near = n == RELAY || n == ALPHA && own == BETA || n == BETA && own == ALPHA;
            let addresses = if near { vec![endpoint(n)] } else { Vec::new() };
            if own != RELAY && n != own {
                spec = spec.with_peer(&self.identities[n].npub, name, &addresses);
            }
        }
        spec
    }

    /// All machines, for the report.
    pub(super) fn nodes(&self) -> Vec<Node> {
        let node = |(n, daemon): (usize, &Daemon)| Node {
            name: daemon.identity().name.clone(),
            npub: daemon.identity().npub.clone(),
            address: daemon.identity().address,
            underlay: vec![endpoint(n).to_string()],
            pid: daemon.pid(),
            state: daemon.identity().state.clone(),
            log: daemon.log_path().to_owned(),
        };
        self.daemons.iter().enumerate().map(node).collect()
    }

    /// The daemons of two machines.
    pub(super) fn two(&self, a: usize, b: usize) -> (&Daemon, &Daemon) {
        (&self.daemons[a], &self.daemons[b])
    }

    /// The path from one node to another in its status: `direct` or `via` and the relay's name.
    pub(super) fn path(&self, from: usize, to: usize) -> Result<String, DaemonError> {
        let peer = self.daemons[from].peer(&self.identities[to].npub)?.unwrap_or_default();
        let path = &peer["path"];
        Ok(match (path["kind"].as_str(), path["name"].as_str()) {
            (Some("relayed"), name) => format!("via {}", name.unwrap_or("?")),
            (kind, _) => kind.unwrap_or("none").to_owned(),
        })
    }

    /// Waits until two nodes have this path to each other. Returns how long it took, in
    /// milliseconds.
    pub(super) fn wait_path(&self, a: usize, b: usize, path: &str, limit: Duration) -> Result<f64, StepError> {
        let start = Instant::now();
        loop {
            let now = [self.path(a, b)?, self.path(b, a)?];
            if now.iter().all(|now| now == path) {
                return Ok(start.elapsed().as_secs_f64() * 1e3);
            }
            if start.elapsed() >= limit {
                return Err(StepError::Path {
                    wanted: path.to_owned(),
                    found: now.join(" and "),
                });
            }
            std::thread::sleep(POLL);
        }
    }

    /// Sends pings until the first answer. Returns how long that took, in milliseconds.
    pub(super) fn first_answer(&self, from: usize, to: usize) -> Result<f64, StepError> {
        let options = PingOptions {
            count: Some(1),
            grace: Duration::from_millis(100),
            ..PingOptions::default()
        };
        let start = Instant::now();
        while start.elapsed() < READY {
            let pinger = Pinger::start(self.daemons[from].host(), self.identities[to].address, options)?;
            if pinger.join()?.received > 0 {
                return Ok(start.elapsed().as_secs_f64() * 1e3);
            }
        }
        Err(StepError::NoAnswer {
            from: CAST[from].0,
            to: CAST[to].0,
        })
    }

    /// Checks that every two nodes that are configured peers reach each other. Returns the number
    /// of pairs.
    pub(super) fn meet(&self) -> Result<usize, StepError> {
        let mut pairs = 0;
        for (from, to) in self.pairs() {
            self.first_answer(from, to)?;
            pairs += 1;
        }
        Ok(pairs / 2)
    }

    /// All pairs of nodes except the relay.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        let ends = [ALPHA, BETA, GAMMA, DELTA];
        let all = ends.into_iter().flat_map(move |from| ends.map(|to| (from, to)));
        all.filter(|(from, to)| from != to)
    }

    /// All paths between configured peers.
    pub(super) fn paths(&self) -> Result<Vec<PathNow>, DaemonError> {
        let path = |(from, to): (usize, usize)| {
            Ok(PathNow {
                from: CAST[from].0,
                to: CAST[to].0,
                path: self.path(from, to)?,
            })
        };
        self.pairs().map(path).collect()
    }

    /// The changes of alpha's path to beta and their reasons, in order.
    pub(super) fn changes(&self) -> Result<Vec<String>, DaemonError> {
        let peer = self.daemons[ALPHA]
            .peer(&self.identities[BETA].npub)?
            .unwrap_or_default();
        let changes = peer["path_changes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let change = |change: &serde_json::Value| {
            let path = &change["path"];
            let way = match (path["kind"].as_str(), path["addr"].as_str(), path["name"].as_str()) {
                (Some("direct"), Some(addr), _) => format!("direct {addr}"),
                (Some(_), _, name) => format!("via {}", name.unwrap_or("?")),
                _ => "none".to_owned(),
            };
            format!("{way}: {}", change["why"].as_str().unwrap_or("?"))
        };
        Ok(changes.iter().rev().map(change).collect())
    }
}

/// The UDP address of a machine's node.
pub(super) fn endpoint(n: usize) -> SocketAddr {
    let address = CAST[n].1.parse().unwrap_or(IpAddr::from([0, 0, 0, 0]));
    SocketAddr::new(address, DEFAULT_PORT)
}
