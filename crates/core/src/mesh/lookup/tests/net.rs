//! Many nodes with links, a tree and filters, and messages with a delay.

use std::collections::VecDeque;

use rand_core::Rng;

use super::*;

/// The content of the neighbours' filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filters {
    /// The content after convergence.
    Perfect,
    /// Nothing.
    Empty,
    /// Each bit is set at random, with this probability in 256.
    Random(u8),
}

/// A message that was sent.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) at: u64,
    pub(super) from: usize,
    pub(super) to: usize,
    msg_type: u8,
    body: Vec<u8>,
}

impl Message {
    pub(super) fn request(&self) -> Option<Asked> {
        (self.msg_type == LinkMessageType::LookupRequest.to_byte()).then(|| Asked::parse(&self.body))
    }
}

/// One node of many.
pub(super) struct Member {
    identity: Identity,
    pub(super) around: Around,
    pub(super) lookups: Lookups,
    /// Receives everything and does nothing.
    pub(super) silent: bool,
    /// Its outputs other than messages.
    pub(super) said: Vec<LookupOutput>,
}

pub(super) struct Net {
    pub(super) now: u64,
    rng: ChaCha20Rng,
    pub(super) members: Vec<Member>,
    names: BTreeMap<NodeAddr, usize>,
    keys: BTreeMap<NodeAddr, PublicKey>,
    /// Every node knows every key, not only the origin.
    pub(super) transit_knows_keys: bool,
    /// The share of lost messages, in 256.
    pub(super) loss: u8,
    on_the_way: BTreeMap<(u64, usize), Message>,
    /// All messages that were ever sent.
    pub(super) log: Vec<Message>,
}

impl Net {
    pub(super) fn new(seed: u64, size: usize, links: &[(usize, usize)], filters: Filters) -> Self {
        let mut rng = rng(seed);
        let members: Vec<_> = (0..size)
            .map(|_| {
                let identity = Identity::new(SecretKey::generate(&mut rng));
                Member {
                    around: Around::new(identity.node_addr()),
                    identity,
                    lookups: Lookups::new(Limits::default()),
                    silent: false,
                    said: Vec::new(),
                }
            })
            .collect();
        let keys = members.iter().map(|m| (m.identity.node_addr(), m.identity.public()));
        let names = members.iter().enumerate().map(|(i, m)| (m.identity.node_addr(), i));
        let mut net = Self {
            now: 1_000,
            keys: keys.collect(),
            names: names.collect(),
            rng,
            members,
            transit_knows_keys: false,
            loss: 0,
            on_the_way: BTreeMap::new(),
            log: Vec::new(),
        };
        net.connect(links);
        net.grow_tree();
        net.fill_filters(filters);
        net
    }

    fn connect(&mut self, links: &[(usize, usize)]) {
        for (a, b) in links.iter().filter(|(a, b)| a != b) {
            let mtu = 1_280 + (self.rng.next_u32() % 200) as u16;
            for (me, peer) in [(*a, *b), (*b, *a)] {
                let peer = self.name(peer);
                let around = &mut self.members[me].around;
                *around = around.clone().link(peer, false, &[]).mtu(peer, mtu);
            }
        }
    }

    /// Builds the trees: the smallest address of each part is its root, and every node is as near
    /// to it as possible.
    fn grow_tree(&mut self) {
        let mut rooted = BTreeSet::new();
        for root in self.names.values().copied().collect::<Vec<_>>() {
            if !rooted.insert(root) {
                continue;
            }
            let mut queue = VecDeque::from([root]);
            while let Some(parent) = queue.pop_front() {
                for child in self.neighbours(parent) {
                    if rooted.insert(child) {
                        let (parent_name, child_name) = (self.name(parent), self.name(child));
                        let above = self.members[parent].around.coords.clone();
                        self.members[child].around.coords.extend(above);
                        self.members[parent]
                            .around
                            .neighbours
                            .get_mut(&child_name)
                            .unwrap()
                            .tree = true;
                        self.members[child]
                            .around
                            .neighbours
                            .get_mut(&parent_name)
                            .unwrap()
                            .tree = true;
                        queue.push_back(child);
                    }
                }
            }
        }
    }

    fn fill_filters(&mut self, filters: Filters) {
        for me in 0..self.members.len() {
            for peer in self.neighbours(me) {
                let reaches: BTreeSet<_> = match filters {
                    Filters::Empty => BTreeSet::new(),
                    Filters::Perfect => self.behind(me, peer).into_iter().map(|i| self.name(i)).collect(),
                    Filters::Random(share) => {
                        let names = self.names.keys().copied();
                        names.filter(|_| self.rng.next_u32() as u8 <= share).collect()
                    }
                };
                let peer = self.name(peer);
                self.members[me].around.neighbours.get_mut(&peer).unwrap().reaches = reaches;
            }
        }
    }

    /// Returns the nodes that `peer` reaches over the tree without `me`.
    fn behind(&self, me: usize, peer: usize) -> BTreeSet<usize> {
        let mut seen = BTreeSet::from([peer]);
        let mut queue = vec![peer];
        while let Some(node) = queue.pop() {
            for (name, neighbour) in &self.members[node].around.neighbours {
                let next = self.names[name];
                if neighbour.tree && next != me && seen.insert(next) {
                    queue.push(next);
                }
            }
        }
        seen
    }

    pub(super) fn name(&self, member: usize) -> NodeAddr {
        self.members[member].around.me
    }

    pub(super) fn neighbours(&self, member: usize) -> Vec<usize> {
        let names = self.members[member].around.neighbours.keys();
        names.map(|name| self.names[name]).collect()
    }

    pub(super) fn mtu(&self, a: usize, b: usize) -> u16 {
        self.members[a].around.neighbours[&self.name(b)].mtu
    }

    /// Adds `target` to the filter of `peer`, as `me` has it.
    pub(super) fn lie(&mut self, me: usize, peer: usize, target: usize) {
        let (peer, target) = (self.name(peer), self.name(target));
        let neighbour = self.members[me].around.neighbours.get_mut(&peer).unwrap();
        neighbour.reaches.insert(target);
    }

    pub(super) fn want(&mut self, member: usize, target: usize) {
        let target = self.name(target);
        let m = &mut self.members[member];
        m.lookups.want(self.now, target, &m.around, &mut self.rng);
        self.collect(member);
    }

    /// Sends a request that `from` has forged.
    pub(super) fn inject(&mut self, from: usize, to: usize, asked: &Asked) {
        let request = LookupRequest {
            request_id: asked.id,
            target: asked.target,
            origin: asked.origin,
            ttl: asked.ttl,
            min_mtu: asked.min_mtu,
            origin_coords: Coords::new(&asked.origin_coords),
        };
        let mut body = vec![0; request.wire_len()];
        request.emit(&mut body).unwrap();
        self.post(from, to, LinkMessageType::LookupRequest.to_byte(), body);
    }

    /// Runs until nothing is in flight or due, or until `end`.
    pub(super) fn run_until(&mut self, end: u64) {
        loop {
            let deadlines = self.members.iter().enumerate().filter(|(_, m)| !m.silent);
            let (wake, sleeper) = deadlines
                .map(|(i, m)| (m.lookups.deadline().0, i))
                .min()
                .unwrap_or((u64::MAX, 0));
            let arrival = self.on_the_way.keys().next().map_or(u64::MAX, |(at, _)| *at);
            let next = wake.min(arrival);
            if next > end || next == u64::MAX {
                self.now = end.max(self.now).min(next);
                return;
            }
            self.now = next;
            if arrival <= wake {
                let (_, message) = self.on_the_way.pop_first().unwrap();
                self.deliver(&message);
            } else {
                let m = &mut self.members[sleeper];
                m.lookups.handle_timeout(self.now, &m.around, &mut self.rng);
                assert!(m.lookups.deadline().0 > self.now, "a timeout that is never done");
                self.collect(sleeper);
            }
        }
    }

    fn deliver(&mut self, message: &Message) {
        let from = self.name(message.from);
        let m = &mut self.members[message.to];
        if m.silent {
            return;
        }
        if message.msg_type == LinkMessageType::LookupRequest.to_byte() {
            let request = LookupRequest::parse(&message.body).unwrap();
            m.lookups
                .handle_request(self.now, from, &request, &m.around, &m.identity);
        } else {
            let response = LookupResponse::parse(&message.body).unwrap();
            let (keys, all) = (&self.keys, self.transit_knows_keys);
            let wanted = m.lookups.is_pending(&response.target);
            let key = |target: &NodeAddr| keys.get(target).copied().filter(|_| wanted || all);
            m.lookups.handle_response(self.now, from, &response, &m.around, key);
        }
        self.collect(message.to);
    }

    fn collect(&mut self, member: usize) {
        self.members[member].lookups.check_invariants().unwrap();
        while let Some(output) = self.members[member].lookups.poll() {
            match output {
                LookupOutput::Send { to, msg_type, body } => {
                    assert!(self.members[member].around.is_neighbour(&to), "to a stranger");
                    self.post(member, self.names[&to], msg_type, body);
                }
                other => self.members[member].said.push(other),
            }
        }
    }

    fn post(&mut self, from: usize, to: usize, msg_type: u8, body: Vec<u8>) {
        let message = Message {
            at: self.now,
            from,
            to,
            msg_type,
            body,
        };
        self.log.push(message.clone());
        if self.rng.next_u32() as u8 >= self.loss {
            let at = self.now + 5 + u64::from(self.rng.next_u32() % 40);
            self.on_the_way.insert((at, self.log.len()), message);
        }
    }

    /// Returns the result of a look-up: the neighbour that forwarded the answer, and the path MTU.
    pub(super) fn found(&self, member: usize, target: usize) -> Option<(usize, u16)> {
        let sought = self.name(target);
        self.members[member].said.iter().find_map(|said| match said {
            LookupOutput::Found {
                target,
                via,
                path_mtu,
                coords,
            } if *target == sought => {
                assert_eq!(*coords, self.members[self.names[target]].around.coords);
                Some((self.names[via], *path_mtu))
            }
            _ => None,
        })
    }

    /// Returns the neighbour that a node has learned as the route to another.
    pub(super) fn learned(&self, member: usize, dest: usize) -> Option<usize> {
        let sought = self.name(dest);
        self.members[member].said.iter().find_map(|said| match said {
            LookupOutput::Learned { dest, via, .. } | LookupOutput::Found { target: dest, via, .. }
                if *dest == sought =>
            {
                Some(self.names[via])
            }
            _ => None,
        })
    }
}

pub(super) fn line(size: usize) -> Vec<(usize, usize)> {
    (1..size).map(|i| (i - 1, i)).collect()
}

pub(super) fn ring(size: usize) -> Vec<(usize, usize)> {
    (0..size).map(|i| (i, (i + 1) % size)).collect()
}

pub(super) fn star(size: usize) -> Vec<(usize, usize)> {
    (1..size).map(|i| (0, i)).collect()
}

/// Returns the links of a random tree, and as many more.
pub(super) fn random(seed: u64, size: usize) -> Vec<(usize, usize)> {
    let mut rng = rng(seed);
    let mut below = |n: usize| rng.next_u64() as usize % n;
    let mut links: Vec<_> = (1..size).map(|i| (below(i), i)).collect();
    links.extend((0..size).map(|_| (below(size), below(size))));
    links
}
