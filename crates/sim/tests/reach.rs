//! Direct paths in a large mesh: nodes, half of them behind NAT boxes, each of which dials
//! two of ten public nodes and has traffic with two others. All of these pairs that may be direct are,
//! and no node sends more than a bounded number of probes a minute.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use weft_core::{Config, Event, HintSource, Path};
use weft_noise::PublicKey;
use weft_reach::probe::Probe;
use weft_reach::{Output, Reach, Standing};
use weft_sim::{HostId, NatKind, World};
use weft_wire::NodeAddr;
use weft_wire::session::DataPorts;

pub(crate) const PUBLIC: usize = 10;
/// Every second of the others is behind a NAT box.
const KINDS: [NatKind; 4] = [
    NatKind::FullCone,
    NatKind::Restricted,
    NatKind::PortRestricted,
    NatKind::Symmetric,
];
/// Between two looks at what nodes have to do with the search, ms.
const STEP: u64 = 10;
/// Until all nodes have their links, ms.
pub(crate) const CALM: u64 = 20_000;
/// For which the pairs have traffic, ms: until the attempts of all pairs are over.
pub(crate) const TRAFFIC: u64 = 60_000;
/// Between two packets of a pair, ms.
pub(crate) const PACE: u64 = 500;
const MINUTE: u64 = 60_000;
/// Neighbours that are asked whether they see a peer at an address, at most.
const WITNESSES: usize = 4;
/// Probes and answers to probes of a node in a minute, at most.
const MOST: u64 = 400;

const PORTS: DataPorts = DataPorts {
    src: weft_reach::PORT,
    dst: weft_reach::PORT,
};

/// The search of one node, as the daemon drives it.
pub(crate) struct Search {
    pub(crate) reach: Reach,
    /// Events of the node that were handled.
    handled: usize,
    /// Probes and answers sent, by minute.
    sent: BTreeMap<u64, u64>,
}

/// All nodes.
pub(crate) struct Net {
    pub(crate) world: World,
    pub(crate) searches: Vec<Search>,
    ids: BTreeMap<NodeAddr, HostId>,
    kinds: Vec<Option<NatKind>>,
}

impl Net {
    pub(crate) fn new(seed: u64, nodes: usize) -> Self {
        let mut world = World::new(seed);
        world.check_every = 500;
        let config = Config {
            mesh: true,
            ..Config::default()
        };
        let kind = |n: usize| (n >= PUBLIC && n.is_multiple_of(2)).then(|| KINDS[n / 2 % KINDS.len()]);
        let kinds: Vec<_> = (0..nodes).map(kind).collect();
        let mut searches = Vec::new();
        for (n, kind) in kinds.iter().enumerate() {
            let id = world.add_host(config);
            if let Some(kind) = kind {
                world.put_behind(id, *kind);
            }
            let rng = ChaCha20Rng::seed_from_u64(seed ^ (n as u64) << 32);
            let mut reach = Reach::new(world.host(id).node_addr(), weft_reach::Config::default(), Box::new(rng));
            reach.set_host(world.now(), vec![world.host(id).addr]);
            let now = world.now();
            world.host_mut(id).listen(now, &[weft_reach::PORT]);
            searches.push(Search {
                reach,
                handled: 0,
                sent: BTreeMap::new(),
            });
        }
        for n in PUBLIC..nodes {
            for public in [n % PUBLIC, (n + 3) % PUBLIC] {
                world.add_peer(n, public, true);
                world.add_peer(public, n, false);
            }
        }
        let ids = (0..nodes).map(|id| (world.host(id).node_addr(), id)).collect();
        Self {
            world,
            searches,
            ids,
            kinds,
        }
    }

    /// Each node with two others, in an order by chance; each knows the other's key alone.
    pub(crate) fn pairs(&mut self, seed: u64) -> Vec<(HostId, HostId)> {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let mut order: Vec<HostId> = (PUBLIC..self.searches.len()).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, rng.next_u32() as usize % (last + 1));
        }
        let pairs: Vec<_> = order
            .iter()
            .copied()
            .zip(order.iter().copied().cycle().skip(1))
            .collect();
        for (a, b) in &pairs {
            self.world.add_peer(*a, *b, false);
            self.world.add_peer(*b, *a, false);
        }
        pairs
    }

    pub(crate) fn run(&mut self, ms: u64) {
        for _ in 0..ms / STEP {
            self.world.run(STEP);
            (0..self.searches.len()).for_each(|id| self.drive(id));
        }
    }

    /// What the daemon does for the search of a node.
    fn drive(&mut self, id: HostId) {
        let now = self.world.now();
        let host = self.world.host(id);
        let search = &mut self.searches[id];
        let due = search.reach.poll_timeout().is_some_and(|(at, _)| at <= now);
        let news = host.events.len() > search.handled || !host.services.is_empty() || !host.outside.is_empty();
        if !due && !news {
            return;
        }
        let mut changed = BTreeSet::new();
        for (_, event) in &host.events[search.handled..] {
            note(&mut search.reach, now, event, &mut changed);
        }
        search.handled = host.events.len();
        for peer in changed {
            let standing = match host.node.weft_path(&peer) {
                Some(Path::Relayed(_)) => Standing::Relayed,
                Some(Path::Direct(at)) => Standing::Direct(at),
                None => Standing::Gone,
            };
            search.reach.set_peer(now, peer.node_addr(), standing);
        }
        if news {
            let host = self.world.host_mut(id);
            for (peer, _, bytes) in std::mem::take(&mut host.services) {
                // What comes before the node knows that it has a session is sent again.
                let _ = search.reach.handle_message(now, peer.node_addr(), &bytes);
            }
            for (from, datagram) in std::mem::take(&mut host.outside) {
                search.reach.handle_datagram(now, from, &datagram);
            }
        }
        search.reach.handle_timeout(now);
        self.perform(id, now);
    }

    fn perform(&mut self, id: HostId, now: u64) {
        while let Some(output) = self.searches[id].reach.poll_output() {
            match output {
                Output::Message { peer, body } => {
                    let key = self.world.host(self.ids[&peer]).key;
                    let _ = self.world.host_mut(id).send_service(now, &key, PORTS, &body);
                }
                Output::Probe { to, datagram } => {
                    assert!(Probe::parse(&datagram).is_ok());
                    *self.searches[id].sent.entry(now / MINUTE).or_default() += 1;
                    self.world.host_mut(id).send_outside(now, to, datagram.to_vec());
                }
                Output::Listen { token } => self.world.host_mut(id).await_token(now, token),
                Output::Ignore { token } => self.world.host_mut(id).node.forget_token(token),
                Output::Found { peer, at, .. } => {
                    let key = self.world.host(self.ids[&peer]).key;
                    self.world.host_mut(id).node.dial(now, &key, at, HintSource::Probe);
                }
                // A search of ports has tests of its own (crates/reach/tests/search.rs).
                Output::OpenSockets { .. } => self.searches[id].reach.handle_sockets(now, 0),
                Output::Ask { peer, at } => self.ask_neighbours(id, peer, at),
                Output::ProbeFrom { .. } | Output::Adopt { .. } | Output::CloseSockets => {}
            }
        }
    }

    /// Asks neighbours whether they see a peer at an address.
    fn ask_neighbours(&mut self, id: HostId, peer: NodeAddr, at: SocketAddr) {
        let peers = self.world.host(id).node.peer_status(self.world.now());
        let linked: Vec<PublicKey> = peers.filter(|peer| peer.link.is_some()).map(|peer| peer.key).collect();
        for neighbour in linked.iter().take(WITNESSES) {
            let now = self.world.now();
            self.world.host_mut(id).ask_sighting(now, neighbour, peer, at);
        }
    }

    /// Whether both ends send to each other directly.
    pub(crate) fn is_direct(&self, (a, b): (HostId, HostId)) -> bool {
        let path = |from: HostId, to: HostId| self.world.host(from).node.weft_path(&self.world.host(to).key);
        [path(a, b), path(b, a)]
            .iter()
            .all(|path| matches!(path, Some(Path::Direct(_))))
    }

    /// Whether each end can be told where the other one will be seen, as far as it is let in.
    fn may_be_direct(&self, (a, b): (HostId, HostId)) -> bool {
        use NatKind::{PortRestricted, Symmetric};
        !matches!(
            (self.kinds[a], self.kinds[b]),
            (Some(Symmetric), Some(Symmetric | PortRestricted)) | (Some(PortRestricted), Some(Symmetric))
        )
    }
}

/// What the search of a node learns from its core.
fn note(reach: &mut Reach, now: u64, event: &Event, changed: &mut BTreeSet<PublicKey>) {
    match event {
        Event::Observed { by, at } => reach.handle_observed(now, by.node_addr(), *at),
        Event::Sighted { by, of, at } => reach.handle_seen(now, *of, by.node_addr(), *at),
        Event::LinkDown { peer, .. } => {
            reach.forget_observer(now, peer.node_addr());
            changed.insert(*peer);
        }
        Event::LinkUp { peer, .. }
        | Event::Roamed { peer, .. }
        | Event::PathChanged { peer, .. }
        | Event::SessionUp { peer }
        | Event::SessionDown { peer, .. }
        | Event::Announced { peer }
        | Event::FramesChanged { peer, .. } => drop(changed.insert(*peer)),
        _ => {}
    }
}

#[test]
fn all_pairs_with_traffic_that_may_be_direct_are() {
    pairs_with_traffic(200);
}

#[test]
#[ignore = "takes a minute: .ci/long sim"]
fn all_pairs_of_a_thousand_nodes_become_direct_if_they_may() {
    pairs_with_traffic(1_000);
}

fn pairs_with_traffic(nodes: usize) {
    let mut net = Net::new(19, nodes);
    net.run(CALM);
    let pairs = net.pairs(7);
    for seq in 0..(TRAFFIC / PACE) as u32 {
        for (a, b) in &pairs {
            net.world.send(*a, *b, seq, 200);
            net.world.send(*b, *a, seq, 200);
        }
        net.run(PACE);
    }
    let (may, others): (Vec<_>, Vec<_>) = pairs.iter().copied().partition(|pair| net.may_be_direct(*pair));
    let relayed: Vec<_> = may.iter().filter(|pair| !net.is_direct(**pair)).collect();
    let direct = others.iter().filter(|pair| net.is_direct(**pair)).count();
    let most = net.searches.iter().flat_map(|search| search.sent.values()).max();
    let all: u64 = net.searches.iter().flat_map(|search| search.sent.values()).sum();
    println!(
        "of {} pairs that may be direct {} are, of {} others {direct}; probes and answers: {all}, and at most {} of a \
         node in a minute",
        may.len(),
        may.len() - relayed.len(),
        others.len(),
        most.unwrap(),
    );
    assert!(
        may.len() > nodes * 8 / 10 && others.len() > nodes / 50,
        "the sample has both kinds"
    );
    assert_eq!(relayed, Vec::<&(HostId, HostId)>::new());
    assert!(most.unwrap() <= &MOST, "{most:?}");
}
