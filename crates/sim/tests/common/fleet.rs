//! Hosts that share a private network in a simulated world: records travel as documents inside real sessions, and
//! links, members and rules follow them as in the daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use weft_contract::rules::PeerRules;
use weft_core::{Admit, Config, Event, Path, PeerConfig, SessionDown};
use weft_networks::rules::compile::{ByHand, compile};
use weft_networks::{MemberChange, Network, NetworkError, Networks, NewInvite, RuleChange};
use weft_noise::PublicKey;
use weft_roster::invite::{Code, Seed};
use weft_roster::names::Name;
use weft_sim::{HostId, World};
use weft_stream::{Documents, Limits, Output, PORT};
use weft_wire::NodeAddr;
use weft_wire::session::DataPorts;

const PORTS: DataPorts = DataPorts { src: PORT, dst: PORT };
/// The time in s since 1970 at which the clock of the world reads zero.
const UNIX_AT_ZERO: u64 = 1_700_000_000;
/// The interval between two looks at the documents of a node, in ms, unless a test has another one.
const STEP: u64 = 10;
/// The interval between two counts of the nodes that can be reached, in ms, as in the daemon.
const COUNT_EVERY: u64 = 1_000;

/// A world whose hosts have networks.
pub(crate) struct Fleet {
    pub(crate) world: World,
    seed: u64,
    nodes: Vec<Node>,
    rng: ChaCha20Rng,
    /// The interval between two looks at the documents of a node, in ms.
    pub(crate) step: u64,
}

/// The networks of a host, and what its core was told of them.
struct Node {
    host: HostId,
    networks: Networks,
    documents: Documents<PublicKey>,
    rows: BTreeMap<PublicKey, Reach>,
    rules: Option<BTreeMap<NodeAddr, PeerRules>>,
    count_at: u64,
    /// Documents that were ignored.
    ignored: usize,
    /// The addresses that it says it has, instead of its own.
    says: Option<Vec<SocketAddr>>,
}

/// What a core is told of another node.
#[derive(Clone, PartialEq, Eq)]
struct Reach {
    config: PeerConfig,
    /// Whether IP packets pass.
    member: bool,
}

/// The name of a member.
pub(crate) fn name(text: &str) -> Name {
    Name::host(text).unwrap()
}

impl Fleet {
    /// Hosts in no network yet.
    pub(crate) fn new(seed: u64, hosts: usize) -> Self {
        let mut fleet = Self {
            world: World::new(seed),
            seed,
            nodes: Vec::new(),
            rng: ChaCha20Rng::seed_from_u64(seed),
            step: STEP,
        };
        for _ in 0..hosts {
            fleet.add();
        }
        fleet
    }

    /// Adds a host in no network, and returns its number.
    pub(crate) fn add(&mut self) -> usize {
        let config = Config {
            mesh: true,
            admit: Admit::Configured,
            unix_at_zero: UNIX_AT_ZERO,
            ..Config::default()
        };
        let host = self.world.add_host(config);
        let now = self.world.now();
        self.world.host_mut(host).listen(now, &[PORT]);
        let identity = Arc::new(self.world.host(host).identity());
        let secrets = ChaCha20Rng::from_rng(&mut self.rng);
        let mut stream = [0; 16];
        self.rng.fill_bytes(&mut stream);
        self.nodes.push(Node {
            host,
            networks: Networks::new(identity, Vec::new(), Box::new(secrets)),
            documents: Documents::new(PORT, Limits::default(), stream),
            rows: BTreeMap::new(),
            rules: None,
            count_at: 0,
            ignored: 0,
            says: None,
        });
        self.nodes.len() - 1
    }

    /// Hosts of which the first has founded a network by the name `home`, and the others have joined it one by one.
    /// Each has the name of its number, `node-1` and so on; the founder is `founder`.
    pub(crate) fn joined(seed: u64, hosts: usize) -> Self {
        let mut fleet = Self::new(seed, hosts);
        let (_, unix) = fleet.times();
        let home = Name::network("home").unwrap();
        fleet.nodes[0]
            .networks
            .create(home, Some(name("founder")), [7; 16], unix)
            .unwrap();
        for at in 1..hosts {
            let code = fleet.invite(0, 1, None).unwrap();
            fleet.join(at, &code, &format!("node-{at}"));
            fleet.run_until(60_000, |fleet| fleet.is_member(at, at));
        }
        fleet
    }

    pub(crate) fn key(&self, at: usize) -> PublicKey {
        self.world.host(self.nodes[at].host).key
    }

    /// The present in ms, and in s since 1970.
    pub(crate) fn times(&self) -> (u64, u64) {
        times(&self.world)
    }

    /// The network, as a node knows it.
    pub(crate) fn network(&self, at: usize) -> &Network {
        self.nodes[at].networks.iter().next().unwrap()
    }

    /// Whether `of` is a member, as the node `at` knows.
    pub(crate) fn is_member(&self, at: usize, of: usize) -> bool {
        self.network(at).is_member(&self.key(of))
    }

    /// Whether `of` is an administrator, as the node `at` knows.
    pub(crate) fn is_admin(&self, at: usize, of: usize) -> bool {
        self.network(at).is_admin(&self.key(of))
    }

    /// The name of `of`, as the node `at` knows it.
    pub(crate) fn name_of(&self, at: usize, of: usize) -> Option<&str> {
        self.network(at).state().names.get(&self.key(of)).map(Name::as_str)
    }

    /// An invite of this node for so many nodes.
    pub(crate) fn invite(&mut self, at: usize, uses: u32, wanted: Option<Name>) -> Result<Code, NetworkError> {
        let times = self.times();
        let mut seed = [0; 16];
        self.rng.fill_bytes(&mut seed);
        let invite = NewInvite {
            name: wanted,
            tags: BTreeSet::new(),
            uses,
            expires: times.1 + 86_400,
            addresses: vec![self.world.host(self.nodes[at].host).addr],
            entry: None,
        };
        self.nodes[at].networks.invite(None, &invite, Seed::new(seed), times)
    }

    /// The node begins to join, by the name `host`.
    pub(crate) fn join(&mut self, at: usize, code: &Code, host: &str) {
        let (now, unix) = self.times();
        self.nodes[at].networks.join(code, Some(name(host)), now, unix).unwrap();
    }

    /// The administrator `at` changes `of`.
    pub(crate) fn change(&mut self, at: usize, of: usize, change: MemberChange) -> Result<(), NetworkError> {
        let (of, times) = (self.key(of).to_string(), self.times());
        let changed = self.nodes[at].networks.change_member(None, &of, (change, None), times);
        changed.map(drop)
    }

    /// The administrator `at` changes the rules.
    pub(crate) fn change_rules(&mut self, at: usize, change: RuleChange) {
        let times = self.times();
        self.nodes[at].networks.change_rules(None, change, times).unwrap();
    }

    /// The number of documents that a node has ignored.
    pub(crate) fn ignored(&self, at: usize) -> usize {
        self.nodes[at].ignored
    }

    /// Returns how long a session of a node with another one has lasted, in whole seconds.
    pub(crate) fn session_age_s(&self, at: usize, other: usize) -> Option<u64> {
        let (now, other) = (self.world.now(), self.key(other));
        let mut peers = self.world.host(self.nodes[at].host).node.peer_status(now);
        Some(peers.find(|peer| peer.key == other)?.session?.age_s)
    }

    /// Puts these nodes on the other side of a partition, and all others on the first side.
    pub(crate) fn part(&mut self, others: &[usize]) {
        for (at, node) in self.nodes.iter().enumerate() {
            self.world.set_side(node.host, u32::from(others.contains(&at)));
        }
    }

    /// Whether a node knows an address of another one, so that it finds it without a third.
    pub(crate) fn finds(&self, at: usize, other: usize) -> bool {
        let mut rows = self.nodes[at].networks.rows();
        rows.any(|row| row.key == self.key(other) && !row.addresses.is_empty())
    }

    /// The host of a node.
    pub(crate) fn host(&self, at: usize) -> HostId {
        self.nodes[at].host
    }

    /// The path of one node to another.
    pub(crate) fn path(&self, from: usize, to: usize) -> Option<Path> {
        let mut peers = self
            .world
            .host(self.nodes[from].host)
            .node
            .peer_status(self.world.now());
        peers.find(|peer| peer.key == self.key(to))?.path
    }

    /// Whether two nodes send to each other directly, each to the address that the other has.
    pub(crate) fn are_direct(&self, one: usize, other: usize) -> bool {
        let direct = |from: usize, to: usize| {
            let at = self.world.host(self.nodes[to].host).addr;
            self.path(from, to) == Some(Path::Direct(at))
        };
        direct(one, other) && direct(other, one)
    }

    /// Sends packet `seq` from one node to another.
    pub(crate) fn send(&mut self, from: usize, to: usize, seq: u32) {
        let (from, to) = (self.nodes[from].host, self.nodes[to].host);
        self.world.send(from, to, seq, 200);
    }

    /// From now on a node says that it has these addresses.
    pub(crate) fn say(&mut self, at: usize, addresses: Vec<SocketAddr>) {
        self.nodes[at].says = Some(addresses);
    }

    /// Sends a document of a node to another one that its networks would not send. Returns whether there was room.
    pub(crate) fn send_document(&mut self, from: usize, to: usize, document: Vec<u8>) -> bool {
        let (now, to) = (self.world.now(), self.key(to));
        self.nodes[from].documents.send(now, to, document).is_ok()
    }

    /// Ends the partition.
    pub(crate) fn heal(&mut self) {
        self.part(&[]);
    }

    /// Whether these nodes know the same network.
    pub(crate) fn agree(&self, nodes: &[usize]) -> bool {
        let mut states = nodes.iter().map(|at| self.network(*at).state());
        let first = states.next();
        states.all(|state| Some(state) == first)
    }

    /// Whether an IP packet passes from one node to another within 2 s.
    pub(crate) fn passes(&mut self, from: usize, to: usize) -> bool {
        let (sender, receiver) = (self.nodes[from].host, self.nodes[to].host);
        let before = self.world.host(receiver).received.len();
        for seq in 0..10 {
            self.world.send(sender, receiver, seq, 100);
            self.run(200);
        }
        self.world.host(receiver).received.len() > before
    }

    /// Lets time pass until `done`, and fails after `limit` ms.
    #[track_caller]
    pub(crate) fn run_until(&mut self, limit: u64, done: impl Fn(&Self) -> bool) {
        let end = self.world.now() + limit;
        while !done(self) {
            assert!(self.world.now() < end, "seed {}: not done within {limit} ms", self.seed);
            self.run(100);
        }
    }

    /// Lets `ms` pass.
    pub(crate) fn run(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(self.step) {
            for node in &mut self.nodes {
                node.drive(&mut self.world);
            }
            self.world.run(self.step);
        }
    }
}

impl Node {
    /// Moves documents between networks and sessions, and follows changes of members.
    fn drive(&mut self, world: &mut World) {
        let (now, unix) = times(world);
        self.note_restarts(world);
        let host = world.host_mut(self.host);
        for (peer, ports, bytes) in std::mem::take(&mut host.services) {
            assert_eq!(ports, PORTS);
            self.documents.handle_segment(now, peer, &bytes);
        }
        if self.count_at <= now {
            self.count(world);
        }
        self.documents.handle_timeout(now);
        self.drain(world);
        self.networks.act_as_admin((now, unix));
        self.networks.handle_timeout(now);
        for (to, document) in self.networks.take_documents() {
            // A document that finds no room is sent again.
            let _ = self.documents.send(now, to, document);
        }
        self.drain(world);
        if self.networks.take_change() {
            self.follow(world);
        }
    }

    fn note_restarts(&mut self, world: &mut World) {
        for (_, event) in std::mem::take(&mut world.host_mut(self.host).events) {
            let restarted = match event {
                Event::LinkUp {
                    peer, restarted: true, ..
                } => peer,
                Event::SessionDown {
                    peer,
                    reason: SessionDown::PeerRestarted,
                } => peer,
                _ => continue,
            };
            self.networks.handle_restart(&restarted);
        }
    }

    fn drain(&mut self, world: &mut World) {
        let (now, unix) = times(world);
        let host = world.host_mut(self.host);
        while let Some(output) = self.documents.poll_output() {
            match output {
                Output::Segment { peer, bytes } => {
                    // A segment that is not taken is sent again.
                    let _ = host.send_service(now, &peer, PORTS, &bytes);
                }
                Output::Received { peer, document } => {
                    let handled = self.networks.handle_document(peer, &document, now, unix);
                    self.ignored += usize::from(handled.is_err());
                    self.networks.settle_enrolment(true);
                }
                Output::Failed { peer, .. } => self.networks.handle_lost(&peer, now),
                Output::Sent { .. } | Output::Incomplete { .. } => {}
            }
        }
    }

    fn count(&mut self, world: &mut World) {
        let (now, unix) = times(world);
        self.count_at = now + COUNT_EVERY;
        let host = world.host_mut(self.host);
        host.node.set_guests(self.networks.welcomes_guests(now, unix));
        host.settle(now);
        let peers = host.node.peer_status(now);
        let up = peers.filter(|peer| peer.link.is_some() || peer.session.is_some());
        let strangers = host.node.stranger_status(now).map(|stranger| stranger.key);
        let reachable: BTreeSet<PublicKey> = up.map(|peer| peer.key).chain(strangers).collect();
        let own = self.says.clone().unwrap_or_else(|| vec![host.addr]);
        self.networks.set_own_addresses(&own, now, unix * 1_000);
        self.networks.set_reachable(reachable, now);
    }

    /// Makes rules, peers and contacts of the core those of the networks. Rules go first: the packets of a new member
    /// pass only once it has some.
    fn follow(&mut self, world: &mut World) {
        let (now, unix) = times(world);
        self.count_at = now;
        let host = world.host_mut(self.host);
        let compiled = compile(&host.key, &self.networks, &ByHand::default(), &[], unix);
        if compiled.peers != self.rules {
            host.node
                .set_rules(compiled.peers.clone(), weft_contract::KnownFlows::default());
            self.rules = compiled.peers;
        }
        let rows = reaches(&self.networks);
        for key in self.rows.keys().filter(|key| !rows.contains_key(*key)) {
            host.node.remove_peer(now, key);
            self.documents.remove_peer(*key);
        }
        for (key, reach) in &rows {
            let before = self.rows.get(key);
            if before == Some(reach) {
                continue;
            }
            if reach.member {
                host.add_peer(now, reach.config.clone());
                continue;
            }
            if before.is_some_and(|before| before.member) {
                host.node.remove_peer(now, key);
            }
            host.node.add_contact(now, &reach.config);
        }
        host.settle(now);
        self.rows = rows;
    }
}

/// The nodes of all networks, each once.
fn reaches(networks: &Networks) -> BTreeMap<PublicKey, Reach> {
    let mut reaches: BTreeMap<PublicKey, Reach> = BTreeMap::new();
    for row in networks.rows() {
        let reach = reaches.entry(row.key).or_insert_with(|| Reach {
            config: PeerConfig {
                key: row.key,
                addresses: Vec::new(),
            },
            member: false,
        });
        reach.member |= row.member;
        reach.config.addresses.extend(row.addresses);
    }
    reaches
}

fn times(world: &World) -> (u64, u64) {
    (world.now(), UNIX_AT_ZERO + world.now() / 1_000)
}
