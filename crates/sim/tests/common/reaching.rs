//! The search for direct paths of nodes on one virtual clock, as the daemon drives it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use weft_contract::SocketId;
use weft_core::{Event, HintSource, Path};
use weft_noise::PublicKey;
use weft_reach::probe::Probe;
use weft_reach::{Output, Reach, Standing};
use weft_sim::{HostId, World};
use weft_wire::NodeAddr;
use weft_wire::session::DataPorts;

/// Between two looks at what nodes have to do with the search, ms.
const STEP: u64 = 10;
const MINUTE: u64 = 60_000;
/// Neighbours that are asked whether they see a peer at an address, at most.
const WITNESSES: usize = 4;

const PORTS: DataPorts = DataPorts {
    src: weft_reach::PORT,
    dst: weft_reach::PORT,
};

/// The search of one node.
pub(crate) struct Search {
    pub(crate) reach: Reach,
    /// Events of the node that were handled.
    handled: usize,
    /// Probes and answers sent, by minute.
    pub(crate) sent: BTreeMap<u64, u64>,
    /// The sockets that the lanes took over from searches: the number there, while it means that
    /// search, and the peer.
    further: BTreeMap<SocketId, (Option<u16>, NodeAddr)>,
    /// The name of the last one.
    last: SocketId,
}

/// Nodes with their searches.
pub(crate) struct Net {
    pub(crate) world: World,
    pub(crate) searches: Vec<Search>,
    ids: BTreeMap<NodeAddr, HostId>,
}

impl Net {
    /// Gives a search to each host of a world.
    pub(crate) fn new(seed: u64, mut world: World) -> Self {
        let (now, hosts) = (world.now(), world.hosts().len());
        let ids = (0..hosts).map(|id| (world.host(id).node_addr(), id)).collect();
        let mut search = |id: HostId| {
            let rng = ChaCha20Rng::seed_from_u64(seed ^ (id as u64) << 32);
            let mut reach = Reach::new(world.host(id).node_addr(), weft_reach::Config::default(), Box::new(rng));
            reach.set_host(now, vec![world.host(id).addr]);
            world.host_mut(id).listen(now, &[weft_reach::PORT]);
            Search {
                reach,
                handled: 0,
                sent: BTreeMap::new(),
                further: BTreeMap::new(),
                last: SocketId::ORDINARY,
            }
        };
        let searches = (0..hosts).map(&mut search).collect();
        Self { world, searches, ids }
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
        let arrived = !host.services.is_empty() || !host.outside.is_empty() || !host.raw.is_empty();
        if !due && !arrived && host.events.len() <= search.handled {
            return;
        }
        let mut changed = BTreeSet::new();
        for (_, event) in &host.events[search.handled..] {
            let aside = match event {
                Event::Observed { by: peer, .. } | Event::LinkUp { peer, .. } | Event::Roamed { peer, .. } => {
                    host.node.goes_aside(peer) || search.further.values().any(|(_, of)| *of == peer.node_addr())
                }
                _ => false,
            };
            search.note(now, event, aside, &mut changed);
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
        if arrived {
            search.receive(now, self.world.host_mut(id));
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
                Output::Probe { to, datagram, counts } => {
                    if !counts || self.may_probe(id, now, to, datagram.len()) {
                        self.count(id, now, &datagram);
                        self.world.host_mut(id).send_outside(now, to, datagram.to_vec());
                    }
                }
                Output::Listen { token } => self.world.host_mut(id).await_token(now, token),
                Output::Ignore { token } => self.world.host_mut(id).node.forget_token(token),
                Output::Found { peer, at, .. } => {
                    let key = self.world.host(self.ids[&peer]).key;
                    self.world.host_mut(id).node.dial(now, &key, at, HintSource::Probe);
                }
                Output::OpenSockets { count, .. } => {
                    let further = self.searches[id].further.values_mut();
                    further.for_each(|(number, _)| *number = None);
                    self.world.open_raw(id, count);
                    self.searches[id].reach.handle_sockets(now, count);
                }
                Output::ProbeFrom {
                    socket,
                    to,
                    datagram,
                    counts,
                } => {
                    if !counts || self.may_probe(id, now, to, datagram.len()) {
                        self.count(id, now, &datagram);
                        self.probe_from(id, now, socket, to, datagram.to_vec());
                    }
                }
                Output::Adopt { peer, socket, at } => self.adopt(id, now, peer, socket, at),
                Output::CloseSockets => self.world.close_raw(id),
                Output::Ask { peer, at } => self.ask_neighbours(id, peer, at),
            }
        }
    }

    fn may_probe(&mut self, id: HostId, now: u64, to: SocketAddr, len: usize) -> bool {
        let may = self.world.host_mut(id).node.may_send(now, to, len);
        if !may {
            self.searches[id].reach.handle_unsent(to);
        }
        may
    }

    fn count(&mut self, id: HostId, now: u64, datagram: &[u8]) {
        assert!(Probe::parse(datagram).is_ok());
        *self.searches[id].sent.entry(now / MINUTE).or_default() += 1;
    }

    fn probe_from(&mut self, id: HostId, now: u64, number: u16, to: SocketAddr, datagram: Vec<u8>) {
        let mut further = self.searches[id].further.iter();
        let adopted = further.find(|(_, (of_search, _))| *of_search == Some(number));
        match adopted {
            Some((socket, _)) => self.world.host_mut(id).send_outside(now, socket.path(to), datagram),
            None => self.world.send_raw(id, number, to, datagram),
        }
    }

    /// Lets the lanes take over a socket of a search, and dials the peer through it.
    fn adopt(&mut self, id: HostId, now: u64, peer: NodeAddr, number: u16, at: SocketAddr) {
        let search = &mut self.searches[id];
        search.last = search.last.following();
        search.further.insert(search.last, (Some(number), peer));
        let (socket, key) = (search.last, self.world.host(self.ids[&peer]).key);
        self.world.adopt_raw(id, number, socket);
        let host = self.world.host_mut(id);
        host.node.dial(now, &key, socket.path(at), HintSource::Search);
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
}

impl Search {
    /// What the search learns from the core of its node. `aside`: the link that it is about goes
    /// through a socket of a search.
    fn note(&mut self, now: u64, event: &Event, aside: bool, changed: &mut BTreeSet<PublicKey>) {
        match event {
            Event::Observed { .. } if aside => {}
            Event::Observed { by, at } => self.reach.handle_observed(now, by.node_addr(), *at),
            Event::Sighted { by, of, at } => self.reach.handle_seen(now, *of, by.node_addr(), *at),
            Event::LinkDown { peer, .. } => {
                self.reach.forget_observer(now, peer.node_addr());
                changed.insert(*peer);
            }
            Event::LinkUp { peer, .. } | Event::Roamed { peer, .. } if aside => {
                self.reach.forget_observer(now, peer.node_addr());
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

    /// Handles what came from peers and from the network.
    fn receive(&mut self, now: u64, host: &mut weft_sim::Host) {
        for (peer, _, bytes) in std::mem::take(&mut host.services) {
            // What comes before the node knows that it has a session is sent again.
            let _ = self.reach.handle_message(now, peer.node_addr(), &bytes);
        }
        for (from, datagram) in std::mem::take(&mut host.outside) {
            match self.further.get(&from.socket()) {
                Some((Some(number), _)) => {
                    self.reach
                        .handle_socket_datagram(now, *number, from.remote(), &datagram);
                }
                Some((None, _)) => {}
                None => self.reach.handle_datagram(now, from.remote(), &datagram),
            }
        }
        for (number, from, datagram) in std::mem::take(&mut host.raw) {
            self.reach.handle_socket_datagram(now, number, from, &datagram);
        }
    }
}
