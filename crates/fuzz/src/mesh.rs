//! Up to eight whole nodes in a mesh, some of them hostile, on a network that the bytes control.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use weft_core::Config;
use weft_wire::NodeAddr;
use weft_wire::link::LinkMessageType;

use super::input::Input;
use weft_sim::{Conditions, Datagram, Fate, HostId, World};

use crate::forged;

/// Sizes of the mesh. Each node hears of all others, so the work grows with the square: most sizes
/// are small.
const NODES: [usize; 16] = [2, 2, 2, 3, 3, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 8];
const MAX_EVENTS: usize = 60;
/// One of this many turns of a host is followed by a check of its invariants; all are checked after
/// each event.
const CHECK_EVERY: u32 = 64;
/// Maximum number of datagrams kept for replay or corruption.
const MAX_HISTORY: usize = 64;
/// After the last event, all nodes that can reach each other do so within this time, ms.
const RECOVERY: u64 = 180_000;
/// Above the mesh state that eight nodes can make each other keep, bytes.
const MAX_STATE: usize = 4_000_000;

/// Runs a mesh of up to eight nodes. After every turn no invariant is broken; no datagram is
/// forwarded by more hosts than its TTL allows; each packet that a host received was sent by one of
/// its peers and received once; the state of a node is bounded. At the end the hostile nodes are
/// honest, the network is whole, and packets pass between all nodes that are connected.
pub fn mesh(data: &[u8]) {
    let mut input = Input::new(data);
    let mut net = Net::new(&mut input);
    for _ in 0..MAX_EVENTS {
        if input.is_empty() {
            break;
        }
        net.event(&mut input);
        net.check();
    }
    net.recover();
}

struct Net {
    world: World,
    nodes: usize,
    /// The hostile nodes, as bits.
    liars: u8,
    links: BTreeSet<(HostId, HostId)>,
    /// By number: sender, receiver, and length in bytes.
    sent: Vec<(HostId, HostId, usize)>,
    delivered: BTreeSet<u32>,
    history: Rc<RefCell<VecDeque<Datagram>>>,
    sequence: u64,
}

impl Net {
    fn new(input: &mut Input<'_>) -> Self {
        let nodes = NODES[input.below(NODES.len())];
        let (liars, chords) = (input.u8(), input.u32());
        let mut world = World::new(u64::from(input.u8()));
        world.check_every = CHECK_EVERY;
        for _ in 0..nodes {
            let config = Config {
                mesh: true,
                rekey: [120_000, 31_000][input.below(2)],
                ..Config::default()
            };
            world.add_host(config);
        }
        // A tree that the bytes choose, and chords.
        let mut links: BTreeSet<_> = (1..nodes).map(|b| (input.below(b), b)).collect();
        let pairs = (0..nodes).flat_map(|b| (0..b).map(move |a| (a, b)));
        links.extend(
            pairs
                .enumerate()
                .filter(|(bit, _)| chords >> bit & 1 != 0)
                .map(|(_, pair)| pair),
        );
        for (a, b) in &links {
            world.add_peer(*b, *a, true);
            world.add_peer(*a, *b, false);
        }
        let history = Rc::new(RefCell::new(VecDeque::new()));
        let tap = history.clone();
        world.set_rule(move |_, datagram| {
            let mut history = tap.borrow_mut();
            if history.len() == MAX_HISTORY {
                history.pop_front();
            }
            history.push_back(datagram.clone());
            Fate::Pass
        });
        Self {
            world,
            nodes,
            liars,
            links,
            sent: Vec::new(),
            delivered: BTreeSet::new(),
            history,
            sequence: 1 << 40,
        }
    }

    fn event(&mut self, input: &mut Input<'_>) {
        let (a, b) = (input.below(self.nodes), input.below(self.nodes));
        match input.below(16) {
            0..=2 => self.run([20, 300, 1_000, 5_000, 35_000][input.below(5)]),
            3 | 4 => self.send(a, b, 44 + input.below(12) * 100),
            // A node that knows the other's address would forget it.
            5 if a != b && !self.links.contains(&(a.min(b), a.max(b))) => {
                self.world.add_peer(a, b, false);
                self.world.add_peer(b, a, false);
            }
            6 => self.world.kill(a),
            7 => self.world.restart(a),
            8 => match self.world.host(a).running {
                true => self.world.suspend(a),
                false => self.world.resume(a),
            },
            9 => {
                let loss = [0, 1_000, 1_000, 300][input.below(4)];
                let conditions = Conditions {
                    loss,
                    ..self.world.conditions
                };
                self.world.set_link(a, b, Some(conditions));
            }
            10 => {
                self.world.conditions = Conditions {
                    delay: [10, 1, 200][input.below(3)],
                    jitter: [0, 50][input.below(2)],
                    loss: [0, 0, 200][input.below(3)],
                    reorder: 0,
                    duplicate: [0, 300][input.below(2)],
                    ..Conditions::default()
                };
            }
            11 => self.again(input),
            12..=15 if self.liars >> a & 1 != 0 => self.lie(a, b, input),
            _ => {}
        }
    }

    fn run(&mut self, ms: u64) {
        if let Err(broken) = self.world.try_run(ms) {
            panic!("{broken}");
        }
    }

    fn send(&mut self, from: HostId, to: HostId, len: usize) {
        if from != to && self.world.host(from).running {
            self.world.send(from, to, self.sent.len() as u32, len);
            self.sent.push((from, to, len));
        }
    }

    /// Sends an earlier datagram again, unchanged or with a bit flipped.
    fn again(&mut self, input: &mut Input<'_>) {
        let at = input.within(0..self.history.borrow().len());
        let Some(mut old) = self.history.borrow().iter().rev().nth(at).cloned() else {
            return;
        };
        if input.flag() {
            let at = input.within(0..old.bytes.len());
            if let Some(byte) = old.bytes.get_mut(at) {
                *byte ^= 1 << (input.u8() & 7);
            }
        }
        self.world.inject(old.src, old.dst, old.bytes);
    }

    /// Sends a forged message, to a neighbour if `to` is one.
    fn lie(&mut self, liar: HostId, to: HostId, input: &mut Input<'_>) {
        let identity = self.world.host(liar).identity();
        let unix = Config::default().unix_at_zero + self.world.now() / 1_000;
        self.sequence += 1;
        let (message, body) = match input.below(8) {
            0 | 1 => {
                let above = self.path(input);
                (
                    LinkMessageType::TreeAnnounce,
                    forged::tree(&identity, self.sequence, unix, &above),
                )
            }
            2 => {
                let ones = [0, 100, 5_937, 5_938, 8_192][input.below(5)];
                (LinkMessageType::FilterAnnounce, forged::filter(self.sequence, ones))
            }
            3 => {
                let (origin, target) = (self.path(input), self.any_addr(input));
                let id = u64::from(input.u8());
                (LinkMessageType::LookupRequest, forged::request(id, &origin, target))
            }
            4 => {
                let target = self.path(input);
                (
                    LinkMessageType::LookupResponse,
                    forged::response(u64::from(input.u8()), &target),
                )
            }
            5 => {
                let (src, dest, ttl) = (self.any_addr(input), self.any_addr(input), input.u8());
                let payload = input.bytes();
                (
                    LinkMessageType::SessionDatagram,
                    forged::datagram(src, dest, ttl, payload),
                )
            }
            6 => {
                let (src, dest, about) = (self.any_addr(input), self.any_addr(input), self.any_addr(input));
                let coords = if input.flag() { self.path(input) } else { Vec::new() };
                let payload = forged::signal(src, about, &coords);
                (
                    LinkMessageType::SessionDatagram,
                    forged::datagram(src, dest, 64, &payload),
                )
            }
            _ => {
                let known = LinkMessageType::from_byte(input.u8());
                (known.unwrap_or(LinkMessageType::Heartbeat), input.bytes().to_vec())
            }
        };
        for _ in 0..=input.below(4) {
            self.world.say(liar, to, message, body.clone());
        }
    }

    /// A node of the mesh, or one that does not exist.
    fn any_addr(&self, input: &mut Input<'_>) -> NodeAddr {
        match input.below(self.nodes + 3) {
            host if host < self.nodes => self.world.host(host).node_addr(),
            0..=8 => NodeAddr::new([0; 16]),
            _ => NodeAddr::new([input.u8(); 16]),
        }
    }

    fn path(&self, input: &mut Input<'_>) -> Vec<NodeAddr> {
        (0..1 + input.below(6)).map(|_| self.any_addr(input)).collect()
    }

    fn check(&mut self) {
        if let Err(broken) = self.world.check_all() {
            panic!("{broken}");
        }
        for id in 0..self.nodes {
            let host = self.world.host_mut(id);
            let me = host.node_addr();
            let state = host.node.mesh_bytes();
            assert!(state < MAX_STATE, "host {id} keeps {state} bytes");
            assert_eq!(host.garbled, 0, "host {id} received a packet that no host sent");
            host.events.clear();
            for (_, got) in std::mem::take(&mut host.received) {
                let Some((from, to, len)) = self.sent.get(got.seq as usize).copied() else {
                    panic!("{got:?} was never sent");
                };
                assert_eq!((to, len), (id, got.len), "{got:?} was sent to another, or cut");
                assert_eq!(self.world.host(from).node_addr(), got.from, "{got:?} at {me}");
                assert!(self.delivered.insert(got.seq), "{got:?} is delivered twice");
            }
        }
    }

    /// Makes every node honest and the network whole, and checks that every node reaches every
    /// other.
    fn recover(&mut self) {
        self.world.conditions = Conditions::default();
        self.world.mend_all();
        for id in 0..self.nodes {
            let lied = self.liars >> id & 1 != 0;
            if lied {
                self.world.restart(id);
            } else if !self.world.host(id).running {
                self.world.resume(id);
            }
        }
        for (a, b) in (0..self.nodes).flat_map(|b| (0..b).map(move |a| (a, b))) {
            if !self.links.contains(&(a, b)) {
                self.world.add_peer(a, b, false);
                self.world.add_peer(b, a, false);
            }
        }
        let first = self.sent.len();
        let nodes = self.nodes;
        let pairs = (0..nodes).flat_map(|a| (0..nodes).map(move |b| (a, b)));
        let mut missing: BTreeSet<_> = pairs.filter(|(a, b)| a != b).collect();
        let end = self.world.now() + RECOVERY;
        while !missing.is_empty() {
            assert!(
                self.world.now() < end,
                "nothing passes after {RECOVERY} ms: {missing:?}"
            );
            for (a, b) in &missing {
                self.send(*a, *b, 100);
            }
            self.run(1_000);
            self.check();
            for seq in self.delivered.range(first as u32..) {
                let (from, to, _) = self.sent[*seq as usize];
                missing.remove(&(from, to));
            }
        }
    }
}
