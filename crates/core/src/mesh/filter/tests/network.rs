//! The filters of many nodes on one virtual clock, with delay, reordering and loss, under given
//! trees.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::*;

/// Longest delay of an announcement, in ms. Above the shortest pause, so that announcements
/// overtake each other.
const MAX_DELAY: u64 = 700;

struct Network {
    now: u64,
    rng: ChaCha8Rng,
    /// Loss per mille.
    loss: u64,
    nodes: Vec<Filters>,
    /// The nodes for which each node announces besides itself.
    extra: Vec<Vec<u32>>,
    links: BTreeSet<(u32, u32)>,
    /// Tree neighbours of each node.
    tree: Vec<BTreeSet<u32>>,
    under_way: BTreeMap<(u64, u64), (u32, u32, Vec<u8>)>,
    sent: u64,
}

impl Network {
    /// A tree in which node `i` is a child of node `parents[i - 1] % i`.
    fn tree(seed: u64, loss: u64, parents: &[u32]) -> Self {
        let count = parents.len() as u32 + 1;
        let mut network = Self {
            now: 0,
            rng: ChaCha8Rng::seed_from_u64(seed),
            loss,
            nodes: (0..count).map(|node| Filters::new(addr(node))).collect(),
            extra: vec![Vec::new(); count as usize],
            links: BTreeSet::new(),
            tree: vec![BTreeSet::new(); count as usize],
            under_way: BTreeMap::new(),
            sent: 0,
        };
        for (node, parent) in (1..count).zip(parents) {
            network.link(node, parent % node);
        }
        network
    }

    fn count(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Returns the number of announcements that were not repeats.
    fn news(&self) -> u64 {
        self.nodes.iter().map(|node| node.counters().sent).sum()
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.rng.next_u64() % limit
    }

    fn link(&mut self, a: u32, b: u32) {
        if a != b && self.links.insert((a.min(b), a.max(b))) {
            self.greet(a, b);
            self.grow();
        }
    }

    fn cut(&mut self, a: u32, b: u32) {
        if self.links.remove(&(a.min(b), a.max(b))) {
            self.nodes[a as usize].peer_down(self.now, &addr(b));
            self.nodes[b as usize].peer_down(self.now, &addr(a));
            self.forget(a, b);
            self.grow();
        }
    }

    fn restart(&mut self, node: u32) {
        self.nodes[node as usize] = Filters::new(addr(node));
        self.extra[node as usize].clear();
        self.tree[node as usize].clear();
        for other in self.neighbours(node) {
            self.forget(node, other);
            self.greet(node, other);
        }
        self.grow();
    }

    fn speak_for(&mut self, node: u32, extra: &[u32]) {
        self.extra[node as usize] = extra.to_vec();
        self.nodes[node as usize].set_local(self.now, extra.iter().copied().map(addr));
    }

    fn greet(&mut self, a: u32, b: u32) {
        self.nodes[a as usize].peer_up(self.now, addr(b));
        self.nodes[b as usize].peer_up(self.now, addr(a));
    }

    /// Drops what is in flight between two nodes, because its keys have ended.
    fn forget(&mut self, a: u32, b: u32) {
        let between = |from, to| (from, to) == (a, b) || (from, to) == (b, a);
        self.under_way.retain(|_, (from, to, _)| !between(*from, *to));
    }

    fn neighbours(&self, node: u32) -> Vec<u32> {
        let ends = self.links.iter().filter(|(a, b)| *a == node || *b == node);
        ends.map(|(a, b)| if *a == node { *b } else { *a }).collect()
    }

    /// Builds the tree of each part of the network again, breadth first from its lowest node.
    fn grow(&mut self) {
        let mut tree = vec![BTreeSet::new(); self.nodes.len()];
        let mut seen = BTreeSet::new();
        for root in 0..self.count() {
            let mut next = VecDeque::from_iter(seen.insert(root).then_some(root));
            while let Some(node) = next.pop_front() {
                for child in self.neighbours(node) {
                    if seen.insert(child) {
                        tree[node as usize].insert(child);
                        tree[child as usize].insert(node);
                        next.push_back(child);
                    }
                }
            }
        }
        for (node, peers) in self.nodes.iter_mut().zip(&tree) {
            node.set_tree_peers(self.now, peers.iter().copied().map(addr));
        }
        self.tree = tree;
    }

    fn run(&mut self, duration: u64) {
        let end = self.now + duration;
        loop {
            let arrival = self.under_way.first_key_value().map_or(u64::MAX, |((at, _), _)| *at);
            let due = self.nodes.iter().map(Filters::deadline).min().unwrap().max(self.now);
            if arrival.min(due) > end {
                self.now = end;
                return;
            }
            self.now = arrival.min(due);
            if arrival <= due {
                self.deliver();
            } else {
                self.send();
            }
        }
    }

    fn deliver(&mut self) {
        let (_, (from, to, body)) = self.under_way.pop_first().unwrap();
        let announce = FilterAnnounce::parse(&body).unwrap();
        let node = &mut self.nodes[to as usize];
        match node.handle_announce(self.now, &addr(from), &announce) {
            Ok(_) | Err(FilterError::Stale { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        node.check_invariants().unwrap();
    }

    fn send(&mut self) {
        for from in 0..self.count() {
            while let Some((to, body)) = self.nodes[from as usize].poll_announce(self.now) {
                self.sent += 1;
                if self.below(1_000) >= self.loss {
                    let at = self.now + 1 + self.below(MAX_DELAY);
                    let to = (0..self.count()).find(|node| addr(*node) == to).unwrap();
                    self.under_way.insert((at, self.sent), (from, to, body));
                }
            }
        }
    }

    /// Returns the nodes behind a tree edge, as `from` sees it, or all in `to`'s tree if there is
    /// no such edge.
    fn behind(&self, from: u32, to: u32) -> Vec<u32> {
        let edge = self.tree[from as usize].contains(&to);
        let mut seen = BTreeSet::from_iter([to]);
        let mut next = vec![to];
        while let Some(node) = next.pop() {
            for peer in &self.tree[node as usize] {
                if !(edge && (node, *peer) == (to, from)) && seen.insert(*peer) {
                    next.push(*peer);
                }
            }
        }
        let speakers = seen.iter().copied();
        speakers
            .flat_map(|node| self.extra[node as usize].iter().copied().chain([node]))
            .collect()
    }

    /// Every node knows for every neighbour exactly the nodes behind it.
    fn check(&self) {
        for node in 0..self.count() {
            for peer in self.neighbours(node) {
                let known = self.nodes[node as usize].filter_of(&addr(peer));
                let known = known.unwrap_or_else(|| panic!("{node} heard nothing from {peer}"));
                assert!(*known == filter(self.behind(node, peer)), "{node} of {peer}");
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Change {
    Link(u32, u32),
    Cut(usize),
    Restart(u32),
    SpeakFor(u32, Vec<u32>),
}

fn change() -> impl Strategy<Value = Change> {
    let number = any::<u32>;
    prop_oneof![
        (number(), number()).prop_map(|(a, b)| Change::Link(a, b)),
        any::<usize>().prop_map(Change::Cut),
        number().prop_map(Change::Restart),
        (number(), prop::collection::vec(1_000_u32..2_000, 0..4)).prop_map(|(a, b)| Change::SpeakFor(a, b)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_network_comes_to_know_itself(
        seed in any::<u64>(),
        loss in 0_u64..350,
        parents in prop::collection::vec(any::<u32>(), 1..14),
        changes in prop::collection::vec((change(), 0_u64..3_000), 0..20),
    ) {
        let mut network = Network::tree(seed, loss, &parents);
        let count = network.count();
        for (change, pause) in changes {
            match change {
                Change::Link(a, b) => network.link(a % count, b % count),
                Change::Cut(which) => {
                    let link = network.links.iter().nth(which % (network.links.len() + 1)).copied();
                    link.into_iter().for_each(|(a, b)| network.cut(a, b));
                }
                Change::Restart(node) => network.restart(node % count),
                Change::SpeakFor(node, extra) => network.speak_for(node % count, &extra),
            }
            network.run(pause);
        }
        network.run(3_600_000);
        network.check();
    }

    #[test]
    fn a_change_reaches_every_node_of_a_tree(
        seed in any::<u64>(),
        parents in prop::collection::vec(any::<u32>(), 1..40),
        place in any::<u32>(),
    ) {
        let mut network = Network::tree(seed, 0, &parents);
        network.run(120_000);
        network.check();
        let (count, before) = (network.count(), network.news());
        let node = place % count;
        network.speak_for(node, &[5_000]);
        // Without loss the change crosses each edge in one direction, without a pause.
        network.run(MAX_DELAY * u64::from(count));
        for other in (0..count).filter(|other| *other != node) {
            let knows = network.nodes[other as usize].peers_that_may_reach(&addr(5_000));
            prop_assert_eq!(knows.count(), 1, "node {}", other);
        }
        network.check();
        prop_assert_eq!(network.news() - before, u64::from(count) - 1);
    }
}

#[test]
fn a_line_of_thirty_with_a_third_lost_heals() {
    let mut network = Network::tree(3, 333, &(0..29).collect::<Vec<_>>());
    network.run(300_000);
    network.check();
    network.cut(14, 15);
    network.run(300_000);
    network.check();
    assert!(!network.nodes[0].may_reach(&addr(1), &addr(15)));
    network.link(0, 29);
    network.run(300_000);
    network.check();
    assert!(network.nodes[14].may_reach(&addr(13), &addr(15)));
}

#[test]
fn a_quiet_network_is_quiet() {
    let mut network = Network::tree(5, 0, &(0..49).map(|node| node / 2).collect::<Vec<_>>());
    network.link(48, 49);
    network.run(3_600_000);
    let before = network.sent;
    network.run(3_600_000);
    // 50 links, both directions, one repeat in 5 minutes.
    assert_eq!(network.sent - before, 50 * 2 * 12);
}
