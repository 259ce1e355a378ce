//! A mesh of weft nodes and reference daemons, each linked only with the nodes to which it has a
//! cable.
#![allow(unreachable_pub)]

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use weft_lab::daemon::{Daemon, Identity};
use weft_lab::fips::FipsDaemon;
use weft_lab::host::Host;
use weft_lab::spec::{DEFAULT_PORT, NodeSpec};
use weft_lab::traffic::{PingOptions, Pinger, ProbeReport, TcpReport, transfer};
use weft_lab::world::{Link, World};

use crate::common::{MINUTE, PATIENCE, WEFT, identity, shared_turn, turn};
use crate::mixed::{FULL_QUEUE, Side};
use weft_os::assert_strict;

/// Time limit until two nodes of a mesh that has just started reach each other.
pub const CONVERGED: Duration = Duration::from_secs(30);

/// Two daemons with a session must first end it, after 90 s: a daemon that loses its peer's
/// coordinates neither looks them up nor reports the loss to another node.
pub const DAEMONS_HEALED: Duration = Duration::from_secs(180);

const MESH: &str = "\n[mesh]\nopen = true\n";

/// The nodes, and the cables between them.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The nodes, by number.
    pub nodes: Vec<Side>,
    /// The two ends of each cable. Each end has the other's address, and both dial.
    pub cables: Vec<(usize, usize)>,
    /// The node with the smallest node address, which is the root of the tree.
    pub root: usize,
    pub weft_rekey_s: u32,
    pub fips_rekey_s: u32,
    /// Whether it uses all CPU time, so that no other mesh may run beside it.
    pub busy: bool,
}

impl Plan {
    /// One cable from each node to the next, and the defaults of both programs.
    pub fn chain(nodes: &[Side], root: usize) -> Self {
        Self::new(nodes, (1..nodes.len()).map(|end| (end - 1, end)).collect(), root)
    }

    pub fn new(nodes: &[Side], cables: Vec<(usize, usize)>, root: usize) -> Self {
        Self {
            nodes: nodes.to_vec(),
            cables,
            root,
            weft_rekey_s: 120,
            fips_rekey_s: 120,
            busy: false,
        }
    }

    /// The plan in one word: kinds in their order, the root in capitals.
    pub fn name(&self) -> String {
        let name = |(number, side): (usize, &Side)| {
            let name = format!("{side:?}");
            if number == self.root {
                name.to_uppercase()
            } else {
                name.to_lowercase()
            }
        };
        let names: Vec<String> = self.nodes.iter().enumerate().map(name).collect();
        names.join("-")
    }

    /// The address of a node at its end of a cable.
    fn address(cable: usize, first: bool) -> Ipv6Addr {
        let [cable, end] = [cable, usize::from(first)].map(|number| u16::try_from(number).unwrap());
        Ipv6Addr::new(0x2001, 0xdb8, 0, cable, 0, 0, 0, 1 + end)
    }

    /// The configuration of one node: it lists every other node, with addresses of those at its
    /// cables.
    fn spec(&self, number: usize, ids: &[Identity]) -> NodeSpec {
        let mut spec = NodeSpec {
            listen: vec![SocketAddr::from(([0_u16; 8], DEFAULT_PORT))],
            rekey_s: match self.nodes[number] {
                Side::Weft => self.weft_rekey_s,
                Side::Fips => self.fips_rekey_s,
            },
            extra_toml: MESH.to_owned(),
            ..NodeSpec::default()
        };
        spec.fips.dns = true;
        // Rekeys by age only.
        spec.fips.rekey_after_messages = 1 << 40;
        if let Ok(level) = std::env::var("WEFT_FIPS_LOG") {
            spec.fips.log_level = level;
        }
        for (other, id) in ids.iter().enumerate().filter(|(other, _)| *other != number) {
            let cables = self.cables.iter().enumerate();
            let towards = cables.filter_map(|(cable, ends)| match *ends {
                (a, b) if (a, b) == (number, other) => Some(Self::address(cable, false)),
                (a, b) if (a, b) == (other, number) => Some(Self::address(cable, true)),
                _ => None,
            });
            let at: Vec<SocketAddr> = towards.map(|ip| SocketAddr::from((ip, DEFAULT_PORT))).collect();
            spec = spec.with_peer(&id.npub, &id.name, &at);
        }
        spec
    }
}

/// One node of the mesh.
pub enum Node {
    Weft(Daemon),
    Fips(FipsDaemon),
}

impl Node {
    fn start(side: Side, host: &Host, fips: &Path, id: &Identity, spec: &NodeSpec) -> Self {
        match side {
            Side::Weft => Self::Weft(Daemon::start(host, Path::new(WEFT), id, spec).unwrap()),
            Side::Fips => Self::Fips(FipsDaemon::start(host, fips, id, spec).unwrap()),
        }
    }

    fn wait_ready(&mut self) {
        match self {
            Self::Weft(node) => node.wait_ready(PATIENCE).unwrap(),
            Self::Fips(node) => node.wait_ready(PATIENCE).unwrap(),
        }
    }

    pub fn identity(&self) -> &Identity {
        match self {
            Self::Weft(node) => node.identity(),
            Self::Fips(node) => node.identity(),
        }
    }

    pub fn host(&self) -> &Host {
        match self {
            Self::Weft(node) => node.host(),
            Self::Fips(node) => node.host(),
        }
    }

    /// The node, which must be a reference daemon.
    pub fn fips(&self) -> &FipsDaemon {
        match self {
            Self::Fips(node) => node,
            Self::Weft(_) => panic!("{} is a weft node", self.identity().name),
        }
    }

    pub fn weft(&self) -> &Daemon {
        match self {
            Self::Weft(node) => node,
            Self::Fips(_) => panic!("{} is a fips node", self.identity().name),
        }
    }

    /// Its warnings, except those expected of a daemon.
    fn warnings(&self, expected: &[&str]) -> Vec<String> {
        match self {
            Self::Weft(node) => node.warnings().unwrap(),
            Self::Fips(node) => {
                let mut warnings = node.warnings().unwrap();
                warnings.retain(|line| !expected.iter().any(|text| line.contains(text)));
                warnings
            }
        }
    }
}

/// A running mesh. If a test fails, its directory remains and is named.
pub struct Net {
    pub nodes: Vec<Node>,
    _cables: Vec<Link>,
    pub name: String,
    _world: World,
    _turn: std::fs::File,
}

impl Net {
    /// Starts all nodes at once and waits until they answer, not until they reach each other.
    pub fn start(fips: &Path, plan: &Plan) -> Self {
        let turn = if plan.busy { turn() } else { shared_turn() };
        let world = World::new().unwrap();
        let names: Vec<String> = plan
            .nodes
            .iter()
            .zip(0..)
            .map(|(side, number)| format!("{side:?}{number}"))
            .collect();
        let names: Vec<String> = names.iter().map(|name| name.to_lowercase()).collect();
        let hosts: Vec<Host> = names.iter().map(|name| world.host(name).unwrap()).collect();
        let lay = |(cable, (a, b)): (usize, &(usize, usize))| {
            // The first end gets the second's address, which is the one that `first` names; see
            // `Plan::spec`.
            let [at_b, at_a] = [false, true].map(|first| format!("{}/64", Plan::address(cable, first)));
            world.link((&hosts[*a], &[&at_a]), (&hosts[*b], &[&at_b])).unwrap()
        };
        let cables = plan.cables.iter().enumerate().map(lay).collect();
        let mut keys: Vec<Identity> = names.iter().map(|name| identity(&world, name)).collect();
        // Addresses of the mesh are truncated node addresses, so they have the same order.
        let smallest = (0..keys.len()).min_by_key(|key| keys[*key].address).unwrap();
        // Names in logs follow the nodes' numbers.
        keys.swap(smallest, plan.root);
        for (key, name) in keys.iter_mut().zip(&names) {
            key.name.clone_from(name);
        }
        let start = |number: usize| {
            let spec = plan.spec(number, &keys);
            Node::start(plan.nodes[number], &hosts[number], fips, &keys[number], &spec)
        };
        let nodes = (0..names.len()).map(start).collect();
        let mut net = Self {
            nodes,
            _cables: cables,
            name: plan.name(),
            _world: world,
            _turn: turn,
        };
        for number in 0..names.len() {
            net.nodes[number].wait_ready();
            net.introduce(number);
        }
        net
    }

    /// Passes the keys of all other nodes to a daemon. The daemon does not reveal them to other
    /// nodes before there is a packet for them.
    fn introduce(&self, number: usize) {
        let Node::Fips(daemon) = &self.nodes[number] else {
            return;
        };
        for other in &self.nodes {
            if other.identity().npub != daemon.identity().npub {
                daemon.resolve(&other.identity().npub).unwrap();
            }
        }
    }

    pub fn host(&self, number: usize) -> &Host {
        self.nodes[number].host()
    }

    pub fn address(&self, number: usize) -> Ipv6Addr {
        self.nodes[number].identity().address
    }

    pub fn npub(&self, number: usize) -> &str {
        &self.nodes[number].identity().npub
    }

    pub fn kill(&mut self, number: usize) {
        match &mut self.nodes[number] {
            Node::Weft(node) => node.kill().unwrap(),
            Node::Fips(node) => node.kill().unwrap(),
        }
    }

    /// Starts a node again and waits until it answers.
    pub fn restart(&mut self, number: usize) {
        match &mut self.nodes[number] {
            Node::Weft(node) => node.restart().unwrap(),
            Node::Fips(node) => node.restart().unwrap(),
        }
        self.nodes[number].wait_ready();
        self.introduce(number);
    }

    /// A weft node's status of another node.
    pub fn peer(&self, number: usize, of: usize) -> Value {
        self.nodes[number].weft().peer(self.npub(of)).unwrap().unwrap()
    }

    /// Pings in the background.
    pub fn pinger(&self, from: usize, to: usize, options: PingOptions) -> Pinger {
        Pinger::start(self.host(from), self.address(to), options).unwrap()
    }

    /// Pings until an answer arrives; returns the time since `since`, or `None` if it exceeds
    /// `limit`.
    pub fn first_answer(&self, from: usize, to: usize, since: Instant, limit: Duration) -> Option<Duration> {
        let options = PingOptions {
            count: Some(1),
            interval: Duration::from_millis(20),
            grace: Duration::from_millis(200),
            ..PingOptions::default()
        };
        loop {
            if self.pinger(from, to, options).join().unwrap().received == 1 {
                return Some(since.elapsed());
            }
            if since.elapsed() >= limit {
                return None;
            }
        }
    }

    /// Waits until a ping is answered and returns the time that it took.
    pub fn reach(&self, from: usize, to: usize, limit: Duration) -> Duration {
        let time = self.first_answer(from, to, Instant::now(), limit);
        time.unwrap_or_else(|| panic!("{}: no answer to a ping of {from} for {to} in {limit:?}", self.name))
    }

    /// Pings of 1,000 bytes in both directions at once, five a second.
    pub fn pings(&self, ends: [usize; 2], time: Duration) -> [ProbeReport; 2] {
        let [a, b] = ends;
        let pingers = [(a, b), (b, a)].map(|(from, to)| self.pinger(from, to, kilobyte_pings()));
        std::thread::sleep(time);
        pingers.map(|pinger| pinger.stop().unwrap())
    }

    /// The same; none may be lost.
    pub fn assert_pings(&self, ends: [usize; 2], time: Duration) -> [ProbeReport; 2] {
        let reports = self.pings(ends, time);
        assert!(reports.iter().all(|r| r.lost.is_empty()), "{}: {reports:?}", self.name);
        reports
    }

    /// A TCP transfer from one node to another, complete and unchanged.
    pub fn assert_transfer(&self, from: usize, to: usize, bytes: u64) -> TcpReport {
        let hosts = (self.host(from), self.host(to));
        let report = transfer(hosts, IpAddr::V6(self.address(to)), bytes, bytes, 3 * MINUTE).unwrap();
        assert_eq!(report.bytes, bytes, "{}: from {from}", self.name);
        assert_strict!(report.hash_ok, "{}: from {from}", self.name);
        report
    }

    /// Asserts that no node has counted a message of another as malformed, unknown or forged.
    pub fn assert_understood(&self) {
        for node in &self.nodes {
            let (counters, forbidden) = match node {
                Node::Weft(node) => (node.status().unwrap()["counters"].take(), WEFT_FORBIDS),
                Node::Fips(node) => (node.query("show_metrics").unwrap(), FIPS_FORBIDS),
            };
            let mut found = Vec::new();
            not_zero("", &counters, &mut found);
            let name = &node.identity().name;
            let bad = found
                .iter()
                .filter(|(key, _)| forbidden.iter().any(|word| key.contains(word)));
            let bad: Vec<_> = bad.collect();
            assert!(bad.is_empty(), "{}: {name} counts {bad:?}", self.name);
        }
    }

    /// A counter of a daemon, such as `lookup.resp_accepted`.
    pub fn metric(&self, number: usize, name: &str) -> u64 {
        let metrics = self.nodes[number].fips().query("show_metrics").unwrap();
        let value = name.split('.').fold(&metrics, |value, key| &value[key]);
        value.as_u64().unwrap_or_else(|| panic!("no {name} in {metrics}"))
    }

    /// Asserts that all nodes stop cleanly and that no log has a warning, except [`FULL_QUEUE`].
    pub fn finish(self) {
        self.finish_but(&[FULL_QUEUE]);
    }

    /// Asserts that all nodes stop cleanly, that weft's logs have no warning, and those of daemons
    /// only the expected ones.
    pub fn finish_but(mut self, expected: &[&str]) {
        for node in &mut self.nodes {
            match node {
                Node::Weft(node) => assert_eq!(node.stop().unwrap().code(), Some(0)),
                Node::Fips(node) => drop(node.stop().unwrap()),
            }
        }
        for node in &self.nodes {
            let warnings = node.warnings(expected);
            assert!(warnings.is_empty(), "{}: {warnings:#?}", node.identity().name);
        }
    }
}

/// Headers of IPv6 and ICMPv6.
const PING_HEADERS: usize = 48;

/// Packets of 1,000 bytes, five a second.
pub fn kilobyte_pings() -> PingOptions {
    PingOptions {
        payload: 1000 - PING_HEADERS,
        interval: Duration::from_millis(200),
        grace: Duration::from_secs(5),
        ..PingOptions::default()
    }
}

/// Weft's counters of messages that it cannot parse or refuses.
const WEFT_FORBIDS: &[&str] = &["messages_unknown", "messages_malformed", "announcements_refused"];

/// The same of the daemon. It counts a repeated announcement as stale, and weft repeats its own.
const FIPS_FORBIDS: &[&str] = &[
    "decode_error",
    "malformed",
    "invalid",
    "addr_mismatch",
    "sig_failed",
    "proof_failed",
    "identity_miss",
    "fill_exceeded",
    "bloom.stale",
    "forged",
    "below_floor",
];

/// All numbers in a tree of objects except zeros, by their path.
fn not_zero(path: &str, value: &Value, found: &mut Vec<(String, u64)>) {
    if let Some(object) = value.as_object() {
        for (key, value) in object {
            not_zero(&format!("{path}.{key}"), value, found);
        }
    }
    if let Some(number) = value.as_u64().filter(|number| *number > 0) {
        found.push((path.to_owned(), number));
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for node in &self.nodes {
            match node {
                Node::Weft(daemon) => match daemon.status() {
                    Ok(status) => eprintln!("{}: {status}", daemon.identity().name),
                    Err(error) => eprintln!("{}: {error}", daemon.identity().name),
                },
                Node::Fips(daemon) => {
                    let mut found = Vec::new();
                    not_zero("", &daemon.query("show_metrics").unwrap_or_default(), &mut found);
                    eprintln!("{}: {found:?}", daemon.identity().name);
                }
            }
        }
    }
}
