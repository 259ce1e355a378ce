//! Many trees on a virtual clock, over links that delay, lose, reorder, break and recover.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::*;

/// A message in flight.
struct Flight {
    from: usize,
    to: usize,
    /// The life of the link in which it was sent.
    life: u64,
    body: Vec<u8>,
}

enum Event {
    Arrive(Flight),
    /// An end detects the loss of a link.
    Miss {
        node: usize,
        peer: usize,
        life: u64,
    },
}

pub(super) struct Net {
    pub(super) nodes: Vec<Identity>,
    pub(super) trees: Vec<Tree>,
    pub(super) index: BTreeMap<NodeAddr, usize>,
    /// Links that are up, smaller index first, with the number of their present life.
    pub(super) links: BTreeMap<(usize, usize), u64>,
    lives: u64,
    events: BTreeMap<(u64, u64), Event>,
    alarms: BTreeSet<(u64, usize)>,
    armed: Vec<u64>,
    rng: ChaCha8Rng,
    loss_percent: u64,
    pub(super) now: u64,
    pub(super) scheduled: u64,
    /// Number of announcements sent by each node to each other.
    pub(super) sent: BTreeMap<(usize, usize), u64>,
    pub(super) switches: u64,
}

impl Net {
    /// Nodes without links; the smallest address is node 0.
    pub(super) fn new(count: u32, seed: u64, loss_percent: u64) -> Self {
        let nodes = fleet(count);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let tree = |node: &Identity| Tree::new(node.node_addr(), 0, rng.next_u64(), MTU);
        let trees: Vec<_> = nodes.iter().map(tree).collect();
        Self {
            index: nodes.iter().map(Identity::node_addr).zip(0..).collect(),
            links: BTreeMap::new(),
            lives: 0,
            events: BTreeMap::new(),
            alarms: BTreeSet::new(),
            armed: vec![u64::MAX; trees.len()],
            nodes,
            trees,
            rng,
            loss_percent,
            now: 0,
            scheduled: 0,
            sent: BTreeMap::new(),
            switches: 0,
        }
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound
    }

    pub(super) fn addr(&self, node: usize) -> NodeAddr {
        self.nodes[node].node_addr()
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.scheduled += 1;
        self.events.insert((at, self.scheduled), event);
    }

    pub(super) fn link(&mut self, a: usize, b: usize) {
        if a == b || self.links.contains_key(&(a.min(b), a.max(b))) {
            return;
        }
        self.lives += 1;
        self.links.insert((a.min(b), a.max(b)), self.lives);
        for (node, peer) in [(a, b), (b, a)] {
            let peer = self.addr(peer);
            self.trees[node].peer_up(self.now, peer);
            self.settle(node, Change::default());
        }
    }

    /// Cuts a link. Each end detects it within three seconds.
    pub(super) fn cut(&mut self, a: usize, b: usize) {
        let Some(life) = self.links.remove(&(a.min(b), a.max(b))) else {
            return;
        };
        for (node, peer) in [(a, b), (b, a)] {
            let at = self.now + self.below(3_000);
            self.schedule(at, Event::Miss { node, peer, life });
        }
    }

    pub(super) fn cut_all(&mut self, node: usize) {
        for peer in 0..self.nodes.len() {
            self.cut(node, peer);
        }
    }

    /// Lets a node send what is due, and sets its alarm.
    pub(super) fn settle(&mut self, node: usize, change: Change) {
        self.switches += u64::from(change.parent_changed);
        let (now, unix) = (self.now, UNIX + self.now / 1_000);
        while let Some((to, body)) = self.trees[node].poll_announce(now, unix, &self.nodes[node]) {
            self.send(node, self.index[&to], body);
        }
        self.trees[node].check_invariants().unwrap();
        let deadline = self.trees[node].deadline();
        self.alarms.remove(&(self.armed[node], node));
        self.alarms.insert((deadline, node));
        self.armed[node] = deadline;
    }

    pub(super) fn send(&mut self, from: usize, to: usize, body: Vec<u8>) {
        *self.sent.entry((from, to)).or_default() += 1;
        let Some(&life) = self.links.get(&(from.min(to), from.max(to))) else {
            return;
        };
        if self.below(100) >= self.loss_percent {
            let at = self.now + 1 + self.below(150);
            self.schedule(at, Event::Arrive(Flight { from, to, life, body }));
        }
    }

    pub(super) fn run(&mut self, time: u64) {
        let until = self.now + time;
        loop {
            let event = self.events.first_key_value().map_or(u64::MAX, |((at, _), _)| *at);
            let alarm = self.alarms.first().map_or(u64::MAX, |(at, _)| *at);
            if event.min(alarm) > until {
                break;
            }
            self.now = self.now.max(event.min(alarm));
            if event <= alarm {
                let (_, event) = self.events.pop_first().unwrap();
                self.happen(event);
            } else {
                let (_, node) = *self.alarms.first().unwrap();
                let change = self.trees[node].handle_timeout(self.now);
                self.settle(node, change);
                assert!(
                    self.armed[node] > self.now,
                    "an alarm that was served rings again at once"
                );
            }
        }
        self.now = until;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(Flight { from, to, life, body }) => {
                let key = (from.min(to), from.max(to));
                if self.links.get(&key) == Some(&life) {
                    let (from, key) = (self.addr(from), self.nodes[from].public());
                    let announce = TreeAnnounce::parse(&body).unwrap();
                    let heard = self.trees[to].handle_announce(self.now, from, &key, &announce);
                    self.settle(to, heard.unwrap_or_default());
                }
            }
            Event::Miss { node, peer, life } => {
                // A link that is up again by then was only interrupted.
                let back = self.links.get(&(node.min(peer), node.max(peer)));
                if back.is_none_or(|now| *now <= life) {
                    let peer = self.addr(peer);
                    let change = self.trees[node].peer_down(self.now, peer);
                    self.settle(node, change);
                }
            }
        }
    }

    pub(super) fn neighbours(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        let ends = self.links.keys().filter(move |(a, b)| *a == node || *b == node);
        ends.map(move |(a, b)| if *a == node { *b } else { *a })
    }

    /// Returns for each node the smallest node that it is connected with.
    pub(super) fn parts(&self) -> Vec<usize> {
        let mut part: Vec<_> = (0..self.nodes.len()).collect();
        for first in 0..part.len() {
            let mut queue = VecDeque::from([first]);
            while part[first] == first
                && let Some(node) = queue.pop_front()
            {
                for next in self.neighbours(node) {
                    if part[next] > first {
                        part[next] = first;
                        queue.push_back(next);
                    }
                }
            }
        }
        part
    }

    /// Asserts one tree in each part, with the same knowledge at both ends of every link.
    pub(super) fn assert_settled(&self) {
        let parts = self.parts();
        for (node, tree) in self.trees.iter().enumerate() {
            assert_eq!(tree.root(), self.addr(parts[node]), "root of node {node}");
            for step in tree.coords().windows(2) {
                let (a, b) = (self.index[&step[0]], self.index[&step[1]]);
                assert!(
                    self.links.contains_key(&(a.min(b), a.max(b))),
                    "node {node} stands on a link that is not there"
                );
            }
            for peer in self.neighbours(node) {
                let other = &self.trees[peer];
                assert_eq!(tree.peer_coords(self.addr(peer)), Some(other.coords()));
                let child = other.parent() == Some(self.addr(node));
                assert_eq!(tree.children().any(|child| child == self.addr(peer)), child);
                assert_eq!(
                    tree.is_tree_peer(self.addr(peer)),
                    child || tree.parent() == Some(self.addr(peer))
                );
            }
        }
        self.assert_distances();
    }

    /// Asserts that no node waits for a change to a better parent.
    pub(super) fn assert_at_rest(&mut self) {
        for tree in &mut self.trees {
            assert_eq!(tree.choose(u64::MAX), tree.parent());
        }
    }

    /// Asserts that distances by coordinates are those found by walking along the tree, from a few
    /// nodes to all.
    fn assert_distances(&self) {
        for from in (0..self.nodes.len()).step_by(1 + self.nodes.len() / 8) {
            let mut hops = BTreeMap::from([(from, 0)]);
            let mut queue = VecDeque::from([from]);
            while let Some(node) = queue.pop_front() {
                for next in self.neighbours(node) {
                    let edge = self.trees[node].is_tree_peer(self.addr(next));
                    if edge && !hops.contains_key(&next) {
                        hops.insert(next, hops[&node] + 1);
                        queue.push_back(next);
                    }
                }
            }
            for (to, tree) in self.trees.iter().enumerate() {
                let walked = hops.get(&to).copied();
                assert_eq!(
                    distance(self.trees[from].coords(), tree.coords()),
                    walked,
                    "{from} to {to}"
                );
            }
        }
    }

    pub(super) fn total_sent(&self) -> u64 {
        self.sent.values().sum()
    }

    /// Returns a random tree with additional chords.
    pub(super) fn random(count: u32, chords: u32, seed: u64, loss_percent: u64) -> Self {
        let mut net = Self::new(count, seed, loss_percent);
        for node in 1..count as usize {
            let other = net.below(node as u64) as usize;
            net.link(node, other);
        }
        for _ in 0..chords {
            let (a, b) = (net.below(u64::from(count)), net.below(u64::from(count)));
            net.link(a as usize, b as usize);
        }
        net
    }

    /// Returns a line whose order is independent of the addresses.
    pub(super) fn line(count: u32, seed: u64, loss_percent: u64) -> (Self, Vec<usize>) {
        let mut net = Self::new(count, seed, loss_percent);
        let mut order: Vec<_> = (0..count as usize).collect();
        for at in (1..order.len()).rev() {
            let other = net.below(at as u64 + 1) as usize;
            order.swap(at, other);
        }
        order.windows(2).for_each(|pair| net.link(pair[0], pair[1]));
        (net, order)
    }
}
