//! - `lessons`: each rule of L9 to L11. `branches`: each rule of FIPS's "Discovery Protocol".
//! - `hostile`: what a hostile neighbour can do to a node, and what it costs.
//! - `mesh`: many nodes that know only their neighbours, on the network of `net`.

mod branches;
mod hostile;
mod lessons;
mod mesh;
mod net;

use std::collections::{BTreeMap, BTreeSet};

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use weft_noise::{Identity, PublicKey, SecretKey};
use weft_wire::link::LinkMessageType;
use weft_wire::lookup::{LookupRequest, LookupResponse};
use weft_wire::{Coords, NodeAddr};

use super::super::provenance::Provenance;
use super::message::prove;
use super::{Limits, LookupOutput, Lookups, View};

/// A neighbour as the tests set it up.
#[derive(Clone, Debug)]
struct Neighbour {
    tree: bool,
    /// The nodes in its filter.
    reaches: BTreeSet<NodeAddr>,
    mtu: u16,
}

/// The surroundings of a node.
#[derive(Clone, Debug)]
struct Around {
    me: NodeAddr,
    coords: Vec<NodeAddr>,
    neighbours: BTreeMap<NodeAddr, Neighbour>,
    transit: bool,
    next_hops: BTreeMap<NodeAddr, NodeAddr>,
}

impl Around {
    fn new(me: NodeAddr) -> Self {
        Self {
            me,
            coords: vec![me],
            neighbours: BTreeMap::new(),
            transit: true,
            next_hops: BTreeMap::new(),
        }
    }

    fn link(mut self, peer: NodeAddr, tree: bool, reaches: &[NodeAddr]) -> Self {
        let neighbour = Neighbour {
            tree,
            reaches: reaches.iter().copied().collect(),
            mtu: 1_280,
        };
        self.neighbours.insert(peer, neighbour);
        self
    }

    fn mtu(mut self, peer: NodeAddr, mtu: u16) -> Self {
        self.neighbours.get_mut(&peer).unwrap().mtu = mtu;
        self
    }
}

impl View for Around {
    fn me(&self) -> NodeAddr {
        self.me
    }

    fn my_coords(&self) -> &[NodeAddr] {
        &self.coords
    }

    fn is_neighbour(&self, addr: &NodeAddr) -> bool {
        self.neighbours.contains_key(addr)
    }

    fn neighbours(&self) -> impl Iterator<Item = NodeAddr> {
        self.neighbours.keys().copied()
    }

    fn is_tree_peer(&self, addr: &NodeAddr) -> bool {
        self.neighbours.get(addr).is_some_and(|n| n.tree)
    }

    fn may_reach(&self, peer: &NodeAddr, dest: &NodeAddr) -> bool {
        self.neighbours.get(peer).is_some_and(|n| n.reaches.contains(dest))
    }

    fn link_mtu(&self, peer: &NodeAddr) -> u16 {
        self.neighbours.get(peer).map_or(u16::MAX, |n| n.mtu)
    }

    fn transit(&self) -> bool {
        self.transit
    }

    fn next_hop(&self, dest: &NodeAddr) -> Option<NodeAddr> {
        self.next_hops.get(dest).copied()
    }
}

fn addr(n: u8) -> NodeAddr {
    NodeAddr::new([n; 16])
}

fn rng(seed: u64) -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(seed)
}

fn identity(seed: u64) -> Identity {
    Identity::new(SecretKey::generate(&mut rng(seed)))
}

/// A single node whose neighbours are simulated by the test.
struct Host {
    identity: Identity,
    around: Around,
    lookups: Lookups,
    rng: ChaCha20Rng,
    keys: BTreeMap<NodeAddr, PublicKey>,
    now: u64,
}

impl Host {
    fn new(around: impl FnOnce(Around) -> Around) -> Self {
        let identity = identity(1);
        Self {
            around: around(Around::new(identity.node_addr())),
            identity,
            lookups: Lookups::new(Limits::default()),
            rng: rng(2),
            keys: BTreeMap::new(),
            now: 50_000,
        }
    }

    fn knows(mut self, key: PublicKey) -> Self {
        self.keys.insert(key.node_addr(), key);
        self
    }

    fn want(&mut self, target: NodeAddr) -> Vec<LookupOutput> {
        self.lookups.want(self.now, target, &self.around, &mut self.rng);
        self.drain()
    }

    fn timeout(&mut self) -> Vec<LookupOutput> {
        self.now = self.lookups.deadline().0;
        self.lookups.handle_timeout(self.now, &self.around, &mut self.rng);
        self.drain()
    }

    fn request(&mut self, from: NodeAddr, request: &Asked) -> Vec<LookupOutput> {
        let coords = Coords::new(&request.origin_coords);
        let request = LookupRequest {
            request_id: request.id,
            target: request.target,
            origin: request.origin,
            ttl: request.ttl,
            min_mtu: request.min_mtu,
            origin_coords: coords,
        };
        let (view, identity) = (&self.around, &self.identity);
        self.lookups.handle_request(self.now, from, &request, view, identity);
        self.drain()
    }

    fn response(&mut self, from: NodeAddr, answer: &Answer) -> Vec<LookupOutput> {
        let response = LookupResponse {
            request_id: answer.id,
            target: answer.target,
            path_mtu: answer.path_mtu,
            target_coords: Coords::new(&answer.coords),
            proof: &answer.proof,
        };
        let keys = &self.keys;
        self.lookups
            .handle_response(self.now, from, &response, &self.around, |target| {
                keys.get(target).copied()
            });
        self.drain()
    }

    fn drain(&mut self) -> Vec<LookupOutput> {
        self.lookups.check_invariants().unwrap();
        std::iter::from_fn(|| self.lookups.poll()).collect()
    }
}

/// A request as a neighbour sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    id: u64,
    target: NodeAddr,
    origin: NodeAddr,
    ttl: u8,
    min_mtu: u16,
    origin_coords: Vec<NodeAddr>,
}

impl Asked {
    fn new(id: u64, origin: NodeAddr, target: NodeAddr) -> Self {
        Self {
            id,
            target,
            origin,
            ttl: 64,
            min_mtu: 0,
            origin_coords: vec![origin, addr(0)],
        }
    }

    fn parse(body: &[u8]) -> Self {
        let request = LookupRequest::parse(body).unwrap();
        Self {
            id: request.request_id,
            target: request.target,
            origin: request.origin,
            ttl: request.ttl,
            min_mtu: request.min_mtu,
            origin_coords: request.origin_coords.iter().collect(),
        }
    }
}

/// A response as a neighbour sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    id: u64,
    target: NodeAddr,
    path_mtu: u16,
    coords: Vec<NodeAddr>,
    proof: [u8; 64],
}

impl Answer {
    fn new(id: u64, target: &Identity) -> Self {
        let coords = vec![target.node_addr(), addr(7), addr(0)];
        Self {
            id,
            target: target.node_addr(),
            path_mtu: u16::MAX,
            proof: prove(target, id, target.node_addr(), Coords::new(&coords)).unwrap(),
            coords,
        }
    }

    /// Returns a response of a node that is not the target.
    fn forged(id: u64, target: NodeAddr) -> Self {
        Self {
            target,
            coords: vec![target, addr(0)],
            ..Self::new(id, &identity(666))
        }
    }

    fn parse(body: &[u8]) -> Self {
        let response = LookupResponse::parse(body).unwrap();
        Self {
            id: response.request_id,
            target: response.target,
            path_mtu: response.path_mtu,
            coords: response.target_coords.iter().collect(),
            proof: *response.proof,
        }
    }
}

/// Returns the requests among some outputs, and their destinations.
fn requests(outputs: &[LookupOutput]) -> Vec<(NodeAddr, Asked)> {
    sent(outputs, LinkMessageType::LookupRequest, Asked::parse)
}

/// Returns the responses among some outputs, and their destinations.
fn responses(outputs: &[LookupOutput]) -> Vec<(NodeAddr, Answer)> {
    sent(outputs, LinkMessageType::LookupResponse, Answer::parse)
}

fn sent<T>(outputs: &[LookupOutput], wanted: LinkMessageType, parse: impl Fn(&[u8]) -> T) -> Vec<(NodeAddr, T)> {
    let sends = outputs.iter().filter_map(|output| match output {
        LookupOutput::Send { to, msg_type, body } if *msg_type == wanted.to_byte() => Some((*to, parse(body))),
        _ => None,
    });
    sends.collect()
}

/// Returns the destinations of the requests among some outputs.
fn asked(outputs: &[LookupOutput]) -> Vec<NodeAddr> {
    requests(outputs).into_iter().map(|(to, _)| to).collect()
}
