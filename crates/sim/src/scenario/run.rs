//! Runs a scenario.

use std::collections::{BTreeMap, BTreeSet};

use weft_core::Config;

use super::{Action, Figures, Latency, Scenario};
use crate::topology::Topology;
use crate::{Broken, Conditions, Host, HostId, World};

/// Interval of the check whether all hosts agree on one tree, ms.
const LOOK: u64 = 250;
/// One of this many probes must arrive: packets in flight while the tree changes may be lost.
const CHANCES: usize = 3;
/// Length of a probe, bytes.
const PROBE: usize = 200;

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A node broke a promise.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// Expected probes have not arrived.
    #[error("at {at} ms none of the latest probes from host {from} to host {to} had arrived")]
    Missing {
        /// When they were expected, ms from the start.
        at: u64,
        /// The sender.
        from: HostId,
        /// The receiver.
        to: HostId,
    },
    /// A host received an IP packet that no host sent.
    #[error("host {0} received a packet that no host sent")]
    Garbled(HostId),
}

impl Failure {
    /// Whether it is a failure of the same kind, whichever hosts it concerns.
    pub fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The figures, up to the failure if there was one.
    pub figures: Figures,
    /// The first failure.
    pub failure: Option<Failure>,
}

/// A probe in flight or arrived.
struct Sent {
    from: HostId,
    to: HostId,
    at: u64,
    /// When it arrived, and over how many links.
    arrived: Option<(u64, u32)>,
}

struct Run<'a> {
    scenario: &'a Scenario,
    topology: Topology,
    world: World,
    begun: u64,
    probes: Vec<Sent>,
    /// The numbers of the probes between two hosts.
    sent_between: BTreeMap<(HostId, HostId), Vec<usize>>,
    /// Pairs that may exchange packets, the lower number first.
    acquainted: BTreeSet<(HostId, HostId)>,
    /// How many of each host's arrivals are in `probes`.
    counted: Vec<usize>,
    converged: Option<u64>,
    settled: Option<u64>,
    disturbed: u64,
}

impl Scenario {
    /// Runs it to its end or to its first failure.
    pub fn run(&self) -> Outcome {
        let mut run = Run::new(self);
        let failure = run.go().err();
        let figures = run.figures();
        Outcome { figures, failure }
    }

    /// The initial links.
    pub fn topology(&self) -> Topology {
        let mut topology = Topology::new(self.shape, self.nodes, self.seed);
        let missing = |host: &HostId| self.without.contains(host);
        topology.links.retain(|(a, b)| !missing(a) && !missing(b));
        topology
    }
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let topology = scenario.topology();
        let mut world = World::new(scenario.seed);
        world.conditions = scenario.conditions;
        world.check_every = scenario.check_every;
        let config = Config {
            mesh: true,
            ..Config::default()
        };
        for id in 0..scenario.nodes {
            world.add_host(config);
            if scenario.without.contains(&id) {
                world.kill(id);
            }
        }
        for (host, kind) in &scenario.nats {
            world.put_behind(*host, *kind);
        }
        for (a, b) in &topology.links {
            // A host behind a NAT box has to dial, as no host can reach it first.
            let hidden = |host: &HostId| scenario.nats.iter().any(|(nat, _)| nat == host);
            world.add_peer(*b, *a, true);
            world.add_peer(*a, *b, hidden(a) || hidden(b));
        }
        let acquainted = topology.links.iter().copied().collect();
        Self {
            begun: world.now(),
            scenario,
            topology,
            world,
            probes: Vec::new(),
            sent_between: BTreeMap::new(),
            acquainted,
            counted: vec![0; scenario.nodes],
            converged: None,
            settled: None,
            disturbed: 0,
        }
    }

    fn now(&self) -> u64 {
        self.world.now() - self.begun
    }

    fn go(&mut self) -> Result<(), Failure> {
        for step in &self.scenario.steps {
            self.run_to(step.at.min(self.scenario.duration))?;
            if step.action.hosts().all(|host| !self.scenario.without.contains(&host)) {
                self.act(step.action)?;
            }
        }
        self.run_to(self.scenario.duration)?;
        self.world.check_all()?;
        match self.world.hosts().iter().position(|host| host.garbled > 0) {
            Some(host) => Err(Failure::Garbled(host)),
            None => Ok(()),
        }
    }

    /// Advances time, and checks for agreement at intervals while there is none.
    fn run_to(&mut self, end: u64) -> Result<(), Failure> {
        while self.now() < end {
            let left = end - self.now();
            if self.settled.is_some() {
                self.world.try_run(left)?;
                continue;
            }
            self.world.try_run(left.min(LOOK - self.now() % LOOK))?;
            if self.now().is_multiple_of(LOOK) && self.agree() {
                self.converged.get_or_insert(self.now());
                self.settled = Some(self.now() - self.disturbed);
            }
        }
        Ok(())
    }

    fn act(&mut self, action: Action) -> Result<(), Failure> {
        let world = &mut self.world;
        match action {
            Action::Know(a, b) => {
                // A node that knows the other's address would forget it.
                if self.acquainted.insert((a.min(b), a.max(b))) {
                    world.add_peer(a, b, false);
                    world.add_peer(b, a, false);
                }
                return Ok(());
            }
            Action::Send(a, b) => {
                self.send(a, b);
                return Ok(());
            }
            Action::Expect(a, b) => return self.expect(a, b),
            Action::Kill(a) => world.kill(a),
            Action::Restart(a) => world.restart(a),
            Action::Suspend(a) => world.suspend(a),
            Action::Resume(a) => world.resume(a),
            Action::Cut(a, b) => {
                let loss = 1_000;
                let cut = Conditions {
                    loss,
                    ..world.conditions
                };
                world.set_link(a, b, Some(cut));
            }
            Action::Mend(a, b) => world.set_link(a, b, None),
            Action::Partition(sides) => {
                (0..self.scenario.nodes).for_each(|id| world.set_side(id, id as u32 % sides.max(1)));
            }
            Action::Heal => {
                (0..self.scenario.nodes).for_each(|id| world.set_side(id, 0));
                world.mend_all();
            }
            Action::Loss(loss) => world.conditions.loss = loss,
            Action::Delay(delay) => world.conditions.delay = delay,
        }
        (self.settled, self.disturbed) = (None, self.now());
        Ok(())
    }

    fn send(&mut self, from: HostId, to: HostId) {
        let (number, at) = (self.probes.len(), self.now());
        self.sent_between.entry((from, to)).or_default().push(number);
        let arrived = None;
        self.probes.push(Sent { from, to, at, arrived });
        if self.world.host(from).running {
            self.world.send(from, to, number as u32, PROBE);
        }
    }

    fn expect(&mut self, from: HostId, to: HostId) -> Result<(), Failure> {
        self.count_arrivals(to);
        let latest = self.sent_between.get(&(from, to)).map_or(&[][..], Vec::as_slice);
        let latest = latest.iter().rev().take(CHANCES);
        let mut latest = latest.filter_map(|number| self.probes.get(*number)).peekable();
        let missing = latest.peek().is_some() && latest.all(|sent| sent.arrived.is_none());
        if missing && self.acquainted.contains(&(from.min(to), from.max(to))) && self.connected(from, to) {
            let at = self.now();
            return Err(Failure::Missing { at, from, to });
        }
        Ok(())
    }

    /// Whether a path exists between two hosts over running hosts and links that are not cut.
    fn connected(&self, from: HostId, to: HostId) -> bool {
        let runs = |host: HostId| self.world.host(host).running;
        let links = self.topology.links.iter().copied();
        let links = links.filter(|(a, b)| runs(*a) && runs(*b) && self.world.together(*a, *b));
        let present = Topology {
            nodes: self.topology.nodes,
            links: links.collect(),
        };
        present.distances(from)[to].is_some()
    }

    fn count_arrivals(&mut self, host: HostId) {
        let received = &self.world.host(host).received;
        for (at, probe) in received.get(self.counted[host]..).unwrap_or_default() {
            if let Some(sent) = self.probes.get_mut(probe.seq as usize).filter(|sent| sent.to == host) {
                sent.arrived.get_or_insert((at - self.begun, probe.hops));
            }
        }
        self.counted[host] = received.len();
    }

    /// Whether all running hosts have one root, and the coordinates of each follow from its
    /// parent's.
    fn agree(&self) -> bool {
        let running = || self.world.hosts().iter().filter(|host| host.running);
        let root = running().map(Host::node_addr).min();
        let places: BTreeMap<_, _> = running().map(|host| (host.node_addr(), host.node.coords())).collect();
        places.values().all(|place| {
            let above = place.get(1).and_then(|parent| places.get(parent));
            place.last() == root.as_ref() && above.is_none_or(|above| place.get(1..) == Some(above))
        })
    }

    fn figures(&mut self) -> Figures {
        (0..self.scenario.nodes).for_each(|host| self.count_arrivals(host));
        let (traffic, now) = (self.world.traffic(), self.now());
        let nodes = self.scenario.nodes - self.scenario.without.len();
        let share = |count: u64| count as f64 / nodes.max(1) as f64 / (now.max(1) as f64 / 1_000.0);
        let running: Vec<_> = self.world.hosts().iter().filter(|host| host.running).collect();
        let state: Vec<usize> = running.iter().map(|host| host.node.mesh_bytes()).collect();
        let mut lookups = BTreeMap::new();
        for (name, count) in running.iter().flat_map(|host| host.node.mesh_counters()) {
            let Some(name) = name.strip_prefix("lookups_") else {
                continue;
            };
            *lookups.entry(name).or_default() += count;
        }
        let arrived = || self.probes.iter().filter_map(|sent| Some((sent, sent.arrived?)));
        let reached = arrived().count() as u64;
        let (hops, shortest) = self.ways();
        Figures {
            nodes,
            links: self.topology.links.len(),
            duration: now,
            converged: self.converged,
            settled: self.settled,
            depth: running
                .iter()
                .map(|host| host.node.coords().len() - 1)
                .max()
                .unwrap_or_default(),
            sent: self.probes.len() as u64,
            reached,
            pairs: self.sent_between.len() as u64,
            pairs_reached: arrived()
                .map(|(sent, _)| (sent.from, sent.to))
                .collect::<BTreeSet<_>>()
                .len() as u64,
            latency: Latency::of(arrived().map(|(sent, (at, _))| at - sent.at).collect()),
            hops: hops as f64 / reached.max(1) as f64,
            shortest: shortest as f64 / reached.max(1) as f64,
            by_kind: self.world.by_kind().clone(),
            datagrams_per_node_second: share(traffic.datagrams),
            bytes_per_node_second: share(traffic.bytes),
            state_mean: state.iter().sum::<usize>() / state.len().max(1),
            state_max: state.iter().max().copied().unwrap_or_default(),
            lookups,
            loops: traffic.loops,
            steps: traffic.steps,
            trace: self.world.trace_hash(),
        }
    }

    /// Links that arrived probes crossed, and links on the shortest paths, in all.
    fn ways(&self) -> (u64, u64) {
        let mut by_source: BTreeMap<HostId, Vec<&Sent>> = BTreeMap::new();
        for sent in self.probes.iter().filter(|sent| sent.arrived.is_some()) {
            by_source.entry(sent.from).or_default().push(sent);
        }
        let neighbours = self.topology.neighbours();
        let (mut hops, mut shortest) = (0, 0);
        for (from, probes) in by_source {
            let distances = Topology::distances_over(&neighbours, from);
            for sent in probes {
                hops += sent.arrived.map_or(0, |(_, hops)| u64::from(hops));
                shortest += distances[sent.to].map_or(0, u64::from);
            }
        }
        (hops, shortest)
    }
}
