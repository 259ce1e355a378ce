//! The node: its peers, and the dispatch of each event to the peer that it belongs to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand_core::CryptoRng;
use weft_contract::{Endpoint, Expected, LinkId, TableCommand};
use weft_noise::Identity;
use weft_wire::NodeAddr;
use weft_wire::link::DisconnectReason;

pub use self::counters::NodeCounters;
use self::forwarding::Held;
use self::hops::Hops;
pub use self::hops::{HopSaid, Onward};
pub(crate) use self::peer::Peer;
use self::peers::Peers;
use self::relays::RelayChoices;
use self::routes::Routes;
pub use self::services::ServiceError;
pub(crate) use self::sightings::REQUESTS;
use self::sightings::Sightings;
use self::signals::Signals;
pub use self::traversal::{MAX_TRAVERSAL, TRAVERSALS, TraversalError};
pub use self::twin::Twin;
use crate::Config;
use crate::context::{Context, Output};
use crate::labels::Labels;
use crate::lanes::Lanes;
use crate::link::Effect;
use crate::mesh::Mesh;
use crate::rounds::Rounds;
use crate::status::PeerStatus;
use crate::turned_away::{TurnedAway, TurnedAwayNodes};

mod check;
mod configure;
mod counters;
mod doubt;
mod forwarding;
mod guests;
mod hops;
mod labels;
mod mesh;
mod messages;
mod outside;
mod peer;
mod peers;
mod progress;
mod relays;
mod reports;
mod route;
mod routes;
mod services;
mod sightings;
mod signals;
mod traversal;
mod twin;

/// Time after which a packet that waits without any link is answered with "unreachable", in ms.
const PATIENCE: u64 = 5_000;

/// What a timeout changed at a peer.
struct Timeout {
    addr: NodeAddr,
    link: LinkId,
    /// The address of its link changed.
    moved: bool,
    /// Its link can take no relayed frames any more.
    keyless: bool,
    /// Its link has ended.
    lost: bool,
}

/// The node as a state machine: events in, [`Output`]s out, no clock and no sockets. `now` is in
/// milliseconds on any clock that never runs backwards.
pub struct Node {
    ctx: Context,
    peers: Peers,
    by_link: BTreeMap<LinkId, NodeAddr>,
    next_link: u32,
    /// Nodes that are not configured and may link nevertheless.
    allowed: BTreeSet<NodeAddr>,
    /// Nodes that may not link unless they are configured.
    denied: BTreeSet<NodeAddr>,
    /// Nodes that are not configured may come as guests.
    guests_welcome: bool,
    mesh: Mesh,
    /// Routes for messages of other nodes, as the lanes have them.
    routes: Routes,
    /// When the paths of all sessions are chosen again, because routes may have changed; `u64::MAX`
    /// if they have not.
    reroute_at: u64,
    /// Routes that have to prove that they work.
    held: BTreeMap<NodeAddr, Held>,
    /// The budgets of error signals.
    signals: Signals,
    /// Labels for relayed fast frames.
    labels: Labels,
    /// The latest reports of each lane, if there are several lanes.
    lanes: Lanes,
    /// Another running node with the key of this one.
    twin: Option<Twin>,
    /// Nodes that asked to link and are not configured.
    turned_away: TurnedAwayNodes,
    /// Requests for sightings that wait for an answer.
    sightings: Sightings,
    /// Requests for the nodes of a path whose answers are awaited.
    hops: Hops,
    /// The comparison of the relays of each session in use.
    relays: RelayChoices,
    /// Whether there are rules for IP packets.
    has_rules: bool,
    /// The number of policies that the lanes have been given.
    policies: u64,
    counters: NodeCounters,
}

impl Node {
    /// Creates a node without peers. `rng` is the source of all randomness: with the same seed and
    /// events a node behaves the same.
    pub fn new(config: Config, identity: impl Into<Arc<Identity>>, rng: Box<dyn CryptoRng + Send>) -> Self {
        let mut ctx = Context::new(config, identity, rng);
        if config.seal_whole {
            ctx.lane(TableCommand::SealWhole);
        }
        Self {
            mesh: Mesh::new(&mut ctx, 0),
            ctx,
            peers: Peers::default(),
            by_link: BTreeMap::new(),
            next_link: 1,
            allowed: BTreeSet::new(),
            denied: BTreeSet::new(),
            guests_welcome: false,
            routes: Routes::default(),
            reroute_at: u64::MAX,
            held: BTreeMap::new(),
            signals: Signals::default(),
            labels: Labels::default(),
            lanes: Lanes::default(),
            twin: None,
            turned_away: TurnedAwayNodes::default(),
            sightings: Sightings::default(),
            hops: Hops::default(),
            relays: RelayChoices::default(),
            has_rules: false,
            policies: 0,
            counters: NodeCounters::default(),
        }
    }

    /// Returns the address of this node.
    pub fn addr(&self) -> NodeAddr {
        self.ctx.me
    }

    /// Returns the nodes that asked to link lately and are not configured, the last one first.
    /// Their number is bounded.
    pub fn turned_away(&self, now: u64) -> impl Iterator<Item = TurnedAway> {
        self.turned_away.list(now)
    }

    /// Handles a change of this node's own addresses or routes: peers have to learn its new
    /// address.
    pub fn handle_network_change(&mut self, now: u64) {
        for peer in self.peers.values_mut() {
            peer.link.handle_network_change(&mut self.ctx, now);
            peer.session.doubt_size();
        }
    }

    /// Performs what is due at `now`.
    pub fn handle_timeout(&mut self, now: u64) {
        let due = self.peers.due(&self.ctx, now);
        let ends: Vec<Timeout> = due.iter().filter_map(|addr| self.drive_peer(now, *addr)).collect();
        for end in ends.iter().filter(|end| end.moved) {
            self.follow_move(now, end.link);
        }
        for end in ends.iter().filter(|end| end.keyless) {
            self.lose_next_hop(now, end.link);
        }
        for end in ends.iter().filter(|end| end.lost) {
            self.neighbour_down(now, end.addr);
        }
        self.drive_labels(now);
        self.drive_relays(now);
        for Timeout { addr, .. } in ends {
            self.follow_health(now, addr);
            self.follow_size(now, addr);
            self.follow_other_end(now, addr);
            self.handle_silent_session(now, addr);
            self.note_progress(now, addr);
            self.drive_warm(now, addr);
        }
        self.drive_progress(now);
        self.forget_strangers();
        if self.reroute_at <= now {
            self.reroute(now);
            self.run_mesh(now);
        }
        if self.ctx.config.mesh && self.mesh.deadline().0 <= now {
            let unix = self.unix(now);
            self.mesh.handle_timeout(now, unix, &mut self.ctx);
            self.run_mesh(now);
        }
    }

    /// Performs what is due at `now` for the link and the session of one peer. Returns `None` if
    /// nothing is due.
    fn drive_peer(&mut self, now: u64, addr: NodeAddr) -> Option<Timeout> {
        let peer = self.peers.get_mut(&addr)?;
        let (link, session) = (&mut peer.link, &mut peer.session);
        let link_due = link.deadline(&self.ctx).0 <= now;
        let stays = peer.guest.is_none_or(|guest| guest.until > now);
        if stays && !link_due && session.deadline(&self.ctx).0 > now {
            return None;
        }
        let mut end = Timeout {
            addr,
            link: link.id,
            moved: false,
            keyless: false,
            lost: false,
        };
        if link_due {
            let (was_up, carried, path) = (link.is_up(), link.carries_relayed(), link.proven_path());
            link.handle_timeout(&mut self.ctx, now);
            end.moved = link.is_up() && link.proven_path() != path;
            end.keyless = carried && !link.carries_relayed();
            end.lost = was_up && !link.is_up();
        }
        if session.deadline(&self.ctx).0 <= now {
            session.handle_timeout(&mut self.ctx, now);
        }
        end.lost |= self.end_stay(now, addr);
        Some(end)
    }

    /// Returns the next effect. The caller drains the effects after each event.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.ctx.next_output()
    }

    /// Returns when [`Node::handle_timeout`] should be called, and for what, if nothing else
    /// happens before.
    pub fn poll_timeout(&mut self) -> Option<(u64, &'static str)> {
        let rounds = Rounds::of_timers(self.peers.len());
        let peers = self.peers.next(&self.ctx).map(|(at, what)| (rounds.next(at), what));
        let mesh = self.ctx.config.mesh.then(|| self.mesh.deadline());
        let labels = Some((self.labels.deadline(), "labels"));
        let relays = Some((self.relays_deadline(), "relays"));
        let routes = Some((self.reroute_at, "routes"));
        [peers, mesh, labels, relays, routes]
            .into_iter()
            .flatten()
            .filter(|(at, _)| *at != u64::MAX)
            .min_by_key(|(at, _)| *at)
    }

    /// Sends a disconnect to every linked peer, for an orderly stop.
    pub fn shut_down(&mut self) {
        for peer in self.peers.values_mut() {
            peer.link.disconnect(&mut self.ctx, DisconnectReason::Shutdown);
        }
    }

    /// Returns the status of each configured peer, in the order of their addresses.
    pub fn peer_status(&self, now: u64) -> impl Iterator<Item = PeerStatus> + '_ {
        let configured = self.peers.values().filter(|peer| peer.configured);
        configured.map(move |peer| PeerStatus::of(peer, &self.ctx.config, now))
    }

    /// Returns the status of one configured peer.
    #[must_use]
    pub fn status_of(&self, now: u64, peer: NodeAddr) -> Option<PeerStatus> {
        let peer = self.peers.get(&peer).filter(|peer| peer.configured)?;
        Some(PeerStatus::of(peer, &self.ctx.config, now))
    }

    /// Returns the memory for state about the mesh that other nodes have caused, in bytes,
    /// approximately.
    pub fn mesh_bytes(&self) -> usize {
        self.mesh.bytes()
    }

    /// Returns the node's coordinates in the tree: its own address first, the root last.
    pub fn coords(&self) -> &[NodeAddr] {
        self.mesh.my_coords()
    }

    /// Returns the counters of gossip and look-ups, by name.
    pub fn mesh_counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.mesh.counters()
    }

    /// Returns the counters of received messages that had no effect, and of path probes.
    pub fn counters(&self) -> NodeCounters {
        let paths = self.ctx.path_counters;
        NodeCounters {
            path_probes: paths.probes,
            path_raises: paths.raises,
            path_black_holes: paths.black_holes,
            sizes_refused: paths.refused,
            unproven_refused: self.ctx.unproven.refused(),
            ..self.counters
        }
    }

    /// Handles a link that came up: first its session, then the mesh.
    fn apply(&mut self, now: u64, addr: NodeAddr, effect: Effect) {
        if let Effect::Up { restarted } = effect {
            if self.turn_away_stranger(now, addr) {
                return;
            }
            if let Some(link) = self.peers.get(&addr).map(|peer| peer.link.id) {
                self.forget_labels(now, link);
            }
            self.welcome_guest(now, addr);
            if let Some(peer) = self.peers.get_mut(&addr).filter(|peer| peer.speaks()) {
                peer.session.handle_link_up(&mut self.ctx, now, peer.link.id, restarted);
            }
            self.note_path(now, addr);
            self.neighbour_up(now, addr);
            self.note_progress(now, addr);
        }
        // A handshake may have proven another address of the peer.
        self.note_path(now, addr);
        self.expect(addr);
    }

    /// Sends the lane how to recognise handshakes of a known node, if that has changed. Known nodes
    /// are configured peers and proven neighbours. Nothing is sent about other nodes.
    fn expect(&mut self, addr: NodeAddr) {
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        if !peer.configured && !peer.link.is_up() {
            return;
        }
        let hosts = peer.hosts();
        if peer.expected.as_ref() == Some(&hosts) {
            return;
        }
        peer.link.know(&self.ctx);
        let tag = peer.link.tags.as_ref().map(|tags| tags.theirs.clone());
        peer.expected = Some(hosts.clone());
        let expected = Expected { peer: addr, hosts, tag };
        self.ctx.lane(TableCommand::Expect(expected));
    }

    fn proven_path_of(&self, link: LinkId) -> Option<Endpoint> {
        self.peers.get(self.by_link.get(&link)?)?.link.proven_path()
    }

    /// Handles a peer that has proven another address.
    fn follow_move(&mut self, now: u64, link: LinkId) {
        if let Some(addr) = self.by_link.get(&link).copied() {
            self.note_path(now, addr);
            self.expect(addr);
        }
    }

    fn follow_health_of(&mut self, now: u64, link: LinkId) {
        if let Some(addr) = self.by_link.get(&link).copied() {
            self.follow_health(now, addr);
        }
    }

    fn with_peer(&mut self, addr: NodeAddr, f: impl FnOnce(&mut Context, &mut Peer)) {
        if let Some(peer) = self.peers.get_mut(&addr) {
            f(&mut self.ctx, peer);
        }
    }

    fn with_link(&mut self, link: LinkId, f: impl FnOnce(&mut Context, &mut Peer)) {
        if let Some(addr) = self.by_link.get(&link).copied() {
            self.with_peer(addr, f);
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng as _;
    use std::net::SocketAddr;

    use weft_contract::{Command, KnownFlows};
    use weft_noise::{PublicKey, SecretKey};

    use super::*;
    use crate::PeerConfig;

    /// Returns the number of commands about expected handshakes since the last call, and of the
    /// hosts in them.
    fn expectations(node: &mut Node) -> (usize, usize) {
        let outputs = std::iter::from_fn(|| node.poll_output());
        let hosts = outputs.filter_map(|output| match output {
            Output::Lane(Command::Table(TableCommand::Expect(expected))) => Some(expected.hosts.len()),
            _ => None,
        });
        hosts.fold((0, 0), |(count, sum), hosts| (count + 1, sum + hosts))
    }

    #[test]
    fn only_changed_hosts_of_a_peer_are_sent_and_once() {
        const PEERS: u16 = 1_000;
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let mut identity = || Identity::new(SecretKey::generate(&mut rng));
        let keys: Vec<PublicKey> = (0..PEERS).map(|_| identity().public()).collect();
        let mut node = Node::new(Config::default(), identity(), Box::new(rng));
        let address = |n: u16, net: u8| SocketAddr::from(([net, 0, n.to_be_bytes()[0], n.to_be_bytes()[1]], 2_121));
        let add = |node: &mut Node| {
            for (n, key) in (0..PEERS).zip(&keys) {
                let addresses = vec![address(n, 10).into()];
                node.add_peer(0, &PeerConfig { key: *key, addresses });
            }
        };
        let peers = usize::from(PEERS);
        add(&mut node);
        assert_eq!(expectations(&mut node), (peers, peers));
        add(&mut node);
        assert_eq!(expectations(&mut node), (0, 0), "nothing has changed");
        for (n, key) in (0..PEERS).zip(&keys) {
            node.hint(0, key, address(n, 11).into());
        }
        assert_eq!(expectations(&mut node), (peers, 2 * peers));
        assert_eq!(node.check_invariants(), Ok(()));
    }

    #[test]
    fn flows_begin_with_the_first_rules_after_a_time_without() {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let identity = Identity::new(SecretKey::generate(&mut rng));
        let mut node = Node::new(Config::default(), identity, Box::new(rng));
        let mut generations = Vec::new();
        for (rules, begins) in [(true, true), (true, false), (false, false), (true, true)] {
            node.set_rules(rules.then(BTreeMap::new), KnownFlows::default());
            assert_eq!(node.has_rules(), rules);
            let set = std::iter::from_fn(|| node.poll_output()).find_map(|output| match output {
                Output::Lane(Command::Table(TableCommand::SetPolicy { policy, first })) => Some((policy, first)),
                _ => None,
            });
            let (policy, first) = set.unwrap();
            assert_eq!((policy.is_some(), first.is_some()), (rules, begins));
            generations.extend(policy.map(|policy| policy.generation()));
        }
        assert!(generations.is_sorted_by(|one, next| one < next), "{generations:?}");
    }
}
