//! Time, and the order in which hosts act.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use weft_contract::SocketId;
use weft_core::{Config, PeerConfig, Uplink};
use weft_wire::link::LinkMessageType;

use crate::datagram::{Datagram, Fate, Kind};
use crate::host::Host;
use crate::nat::NatKind;
use crate::network::{Conditions, Network, SECOND_DEVICE};
use crate::packet::probe;
use crate::schedule::Schedule;
use crate::trace::Trace;

/// A host that acts this often in one millisecond has a timer that stays due.
const MAX_TURNS: u32 = 100_000;
/// Hosts of the first network; more get addresses of another.
const SMALL: usize = 200;
/// Outer addresses of NAT boxes follow this one. They are public, so that they count as such.
const OUTER: [u8; 4] = [11, 0, 0, 0];

/// A host's number.
pub type HostId = usize;

/// A promise that a node broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The host of the node.
    pub host: HostId,
    /// The time, ms of the virtual clock.
    pub at: u64,
    /// A description.
    pub what: String,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "host {} at {} ms: {}", self.host, self.at, self.what)
    }
}

impl std::error::Error for Broken {}

/// The traffic of the network so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Datagrams sent.
    pub datagrams: u64,
    /// Their UDP payload, bytes.
    pub bytes: u64,
    /// Hosts' turns: received datagrams and timers.
    pub steps: u64,
    /// Session datagrams that arrived at a host that had forwarded them before.
    pub loops: u64,
}

/// Hosts, network and time.
pub struct World {
    now: u64,
    rng: ChaCha20Rng,
    hosts: Vec<Host>,
    network: Network,
    schedule: Schedule,
    /// Hosts that a caller may have changed: their outputs are taken before time advances.
    touched: Vec<HostId>,
    /// The general conditions of the network.
    pub conditions: Conditions,
    /// One of this many turns of a host is followed by a check of its invariants.
    pub check_every: u32,
    traffic: Traffic,
    by_kind: BTreeMap<Kind, (u64, u64)>,
    trace: Trace,
}

impl World {
    /// An empty world.
    pub fn new(seed: u64) -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let network = Network::new(ChaCha20Rng::from_rng(&mut rng));
        Self {
            // Far from zero, like a machine's clock: a time that was never set must not look
            // recent.
            now: 1_000_000_000,
            rng,
            hosts: Vec::new(),
            network,
            schedule: Schedule::default(),
            touched: Vec::new(),
            conditions: Conditions::default(),
            check_every: 1,
            traffic: Traffic::default(),
            by_kind: BTreeMap::new(),
            trace: Trace::default(),
        }
    }

    /// Adds a host. Its key, and all random choices of its node, follow from the world's seed.
    pub fn add_host(&mut self, config: Config) -> HostId {
        let id = self.hosts.len();
        let seed = self.rng.next_u64();
        let addr = home(id);
        self.network.attach(addr);
        self.hosts.push(Host::new(seed, addr, config));
        self.touched.push(id);
        id
    }

    /// Adds a host with the key of another one, like a copied state directory. It has no peers yet.
    pub fn add_copy(&mut self, of: HostId, config: Config) -> HostId {
        let id = self.hosts.len();
        let addr = home(id);
        self.network.attach(addr);
        self.hosts.push(self.hosts[of].copy(addr, config));
        self.touched.push(id);
        id
    }

    /// Makes `peer` a configured peer of `host`, with its present address if `dial`.
    pub fn add_peer(&mut self, host: HostId, peer: HostId, dial: bool) {
        let addresses = if dial { vec![self.hosts[peer].addr] } else { Vec::new() };
        self.add_peer_at(host, peer, addresses);
    }

    /// Connects a host to a second network, besides the first one, and returns its address there.
    pub fn connect_second(&mut self, host: HostId) -> SocketAddr {
        let addr = SocketAddr::from(([192, 168, (host >> 8) as u8, host as u8 + 1], 2121));
        self.network.attach_second(host, addr);
        addr
    }

    /// Gives a host a further address in the first network. What is sent from there arrives from it.
    pub fn add_alias(&mut self, host: HostId) -> SocketAddr {
        let addr = SocketAddr::from(([198, 51, 100, host as u8 + 1], 2121));
        self.network.add_alias(host, addr);
        addr
    }

    /// Takes that address from it. What is sent from there leaves from its first address.
    pub fn remove_alias(&mut self, host: HostId, addr: SocketAddr) {
        self.network.remove_alias(host, addr);
    }

    /// Gives a host a second uplink, which it uses while its first one does not work. Returns its
    /// addresses there: that of the ordinary socket, and that of the socket that leads through it.
    pub fn add_uplink(&mut self, host: HostId) -> [SocketAddr; 2] {
        let ordinary = self.add_alias(host);
        let further = SocketAddr::new(ordinary.ip(), 40_000);
        let socket = SocketId::ORDINARY.following();
        self.network.add_socket(host, socket, further);
        let uplink = Uplink {
            socket,
            device: SECOND_DEVICE,
            ipv6: false,
            spare: true,
        };
        let now = self.now();
        self.host_mut(host).node.set_uplinks(now, vec![uplink]);
        [ordinary, further]
    }

    /// Sets the conditions of the second network.
    pub fn set_second(&mut self, conditions: Conditions) {
        self.network.second = conditions;
    }

    /// Makes `peer` a configured peer of `host` with these addresses.
    pub fn add_peer_at(&mut self, host: HostId, peer: HostId, addresses: Vec<SocketAddr>) {
        let config = PeerConfig {
            key: self.hosts[peer].key,
            addresses: addresses.into_iter().map(Into::into).collect(),
        };
        let now = self.now;
        self.hosts[host].add_peer(now, config);
        self.after(host);
    }

    /// Creates two hosts with each other as configured peers, both of which dial.
    pub fn pair(seed: u64, config: Config) -> (Self, HostId, HostId) {
        let mut world = Self::new(seed);
        let (a, b) = (world.add_host(config), world.add_host(config));
        world.add_peer(a, b, true);
        world.add_peer(b, a, true);
        (world, a, b)
    }

    /// Milliseconds of the virtual clock.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// A host.
    pub fn host(&self, id: HostId) -> &Host {
        &self.hosts[id]
    }

    /// A host.
    pub fn host_mut(&mut self, id: HostId) -> &mut Host {
        self.touched.push(id);
        &mut self.hosts[id]
    }

    /// All hosts, in the order of their numbers.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Sets a rule that decides about every datagram before it is sent.
    pub fn set_rule(&mut self, rule: impl FnMut(u64, &Datagram) -> Fate + 'static) {
        self.network.set_rule(Box::new(rule));
    }

    /// Sets the conditions between two hosts, in both directions; `None`: the general ones.
    pub fn set_link(&mut self, a: HostId, b: HostId, conditions: Option<Conditions>) {
        self.network.set_link(a, b, conditions);
    }

    /// Whether datagrams pass between two hosts at all.
    pub fn together(&self, a: HostId, b: HostId) -> bool {
        self.network.together(a, b)
    }

    /// Resets all links to the general conditions.
    pub fn mend_all(&mut self) {
        self.network.mend_all();
    }

    /// Puts a host behind a NAT box, and that behind a further one if called again. The address that
    /// others have of the host becomes useless.
    pub fn put_behind(&mut self, id: HostId, kind: NatKind) {
        let outer = (u32::from_be_bytes(OUTER) + id as u32 + 1).to_be_bytes();
        self.network.put_behind(id, kind, IpAddr::from(outer));
    }

    /// Restarts the NAT boxes of a host, which lose their mappings, and get another address outside if
    /// `moved`.
    pub fn reboot_boxes(&mut self, id: HostId, moved: bool) {
        let [first, ..] = OUTER;
        let first = if moved { first + 1 } else { first };
        let outer = (u32::from_be_bytes([first, 0, 0, 0]) + id as u32 + 1).to_be_bytes();
        self.network.reboot(id, IpAddr::from(outer));
    }

    /// Lets the NAT box of a host map a port to it, as a gateway does on request. Returns the outer
    /// address; `None` unless the host is behind exactly one box.
    pub fn map_port(&mut self, id: HostId) -> Option<SocketAddr> {
        self.network.grant(id)
    }

    /// Opens so many sockets of a host beside its ordinary one, in the place of those that are open.
    /// Datagrams to them come to [`Host::raw`].
    pub fn open_raw(&mut self, id: HostId, count: u16) {
        self.network.open_raw(id, count);
    }

    /// Closes these sockets.
    pub fn close_raw(&mut self, id: HostId) {
        self.network.close_raw(id);
    }

    /// Sends a datagram from one of them.
    pub fn send_raw(&mut self, id: HostId, number: u16, dst: SocketAddr, bytes: Vec<u8>) {
        if let Some(src) = self.network.raw(id, number) {
            self.put(Datagram {
                from: id,
                src,
                dst,
                kind: Kind::Data,
                bytes,
                trail: Vec::new(),
            });
        }
    }

    /// Gives one of them to the lanes of the host under this name, and closes the others.
    pub fn adopt_raw(&mut self, id: HostId, number: u16, socket: SocketId) {
        self.network.adopt_raw(id, number, socket);
    }

    /// Moves a host to a side of a partition; initially all are on side 0. Sides do not reach each
    /// other.
    pub fn set_side(&mut self, id: HostId, side: u32) {
        self.network.set_side(id, side);
    }

    /// Sends probe `seq` of `len` bytes from one host to another.
    pub fn send(&mut self, from: HostId, to: HostId, seq: u32, len: usize) {
        let packet = probe(self.hosts[from].node_addr(), self.hosts[to].node_addr(), seq, len);
        let now = self.now;
        self.hosts[from].send_ip(now, &packet);
        self.after(from);
    }

    /// A host's system passes this IP packet to its node.
    pub fn send_ip(&mut self, from: HostId, packet: &[u8]) {
        let now = self.now;
        self.hosts[from].send_ip(now, packet);
        self.after(from);
    }

    /// Sends a message of a host to a neighbour that its node would not send, under the keys of
    /// their link. No effect without a link.
    pub fn say(&mut self, from: HostId, to: HostId, message: LinkMessageType, body: Vec<u8>) {
        let to = self.hosts[to].node_addr();
        let now = self.now;
        self.hosts[from].say(now, &to, message, body);
        self.after(from);
    }

    /// Like [`Self::say`], with a message of any type.
    pub fn say_type(&mut self, from: HostId, to: HostId, msg_type: u8, body: Vec<u8>) {
        let to = self.hosts[to].node_addr();
        let now = self.now;
        self.hosts[from].say_type(now, &to, msg_type, body);
        self.after(from);
    }

    /// Puts any bytes on the network, as sent by no host.
    pub fn inject(&mut self, src: SocketAddr, dst: SocketAddr, bytes: Vec<u8>) {
        let datagram = Datagram {
            from: Datagram::NOBODY,
            src,
            dst,
            kind: Kind::Data,
            bytes,
            trail: Vec::new(),
        };
        self.put(datagram);
    }

    /// Passes these bytes to a host now, by the socket of one of its lanes, whichever lane owns
    /// them.
    pub fn inject_at(&mut self, host: HostId, socket: u8, src: SocketAddr, bytes: &[u8]) {
        let now = self.now;
        self.hosts[host].receive_at(now, socket, src.into(), bytes);
        self.after(host);
    }

    /// Moves a host to another address; its node is not notified.
    pub fn move_host(&mut self, id: HostId, addr: SocketAddr) {
        self.network.move_to(id, addr);
        self.hosts[id].addr = addr;
    }

    /// Kills the process, which sends nothing more.
    pub fn kill(&mut self, id: HostId) {
        self.hosts[id].running = false;
        self.after(id);
    }

    /// Restarts the process with the same key and configuration.
    pub fn restart(&mut self, id: HostId) {
        let now = self.now;
        self.hosts[id].restart(now);
        self.after(id);
    }

    /// Suspends the machine: it receives nothing, does nothing, and its clock continues.
    pub fn suspend(&mut self, id: HostId) {
        self.kill(id);
    }

    /// Wakes the machine up with its state unchanged and its timers overdue.
    pub fn resume(&mut self, id: HostId) {
        self.hosts[id].running = true;
        self.after(id);
    }

    /// Lets `ms` pass.
    ///
    /// # Panics
    ///
    /// If a node breaks one of its invariants.
    #[expect(clippy::panic, reason = "a broken invariant ends the run")]
    pub fn run(&mut self, ms: u64) {
        if let Err(broken) = self.try_run(ms) {
            panic!("{broken}");
        }
    }

    /// Lets `ms` pass.
    ///
    /// # Errors
    ///
    /// If a node breaks one of its invariants; time stops at that point.
    pub fn try_run(&mut self, ms: u64) -> Result<(), Broken> {
        for id in std::mem::take(&mut self.touched) {
            if self.hosts[id].running {
                self.hosts[id].settle(self.now);
            }
            self.after(id);
        }
        let end = self.now + ms;
        let mut turns = 0;
        while let Some(at) = self.next_event().filter(|at| *at <= end) {
            turns = if at > self.now { 0 } else { turns + 1 };
            self.now = at.max(self.now);
            let host = self.step()?;
            if turns > MAX_TURNS {
                return Err(self.broken(host, "a timer stays due".into()));
            }
        }
        self.now = end;
        Ok(())
    }

    /// Checks every host, whenever it last acted.
    ///
    /// # Errors
    ///
    /// The first broken promise.
    pub fn check_all(&self) -> Result<(), Broken> {
        (0..self.hosts.len()).try_for_each(|id| self.check(id))
    }

    /// A hash over everything delivered so far: equal runs have equal hashes.
    pub fn trace_hash(&self) -> u64 {
        self.trace.hash()
    }

    /// The traffic of the network so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Datagrams and bytes sent so far, by kind.
    pub fn by_kind(&self) -> &BTreeMap<Kind, (u64, u64)> {
        &self.by_kind
    }

    fn next_event(&self) -> Option<u64> {
        self.network
            .next_arrival()
            .into_iter()
            .chain(self.schedule.next())
            .min()
    }

    /// One host's turn: a datagram, or else its timers.
    fn step(&mut self) -> Result<HostId, Broken> {
        let now = self.now;
        if let Some((to, datagram)) = self.network.pop_arrived(now) {
            return self.arrive(to, datagram);
        }
        let Some(id) = self.schedule.pop_due(now) else {
            return Ok(Datagram::NOBODY);
        };
        let host = &mut self.hosts[id];
        if host.sample_due(now) || host.node.poll_timeout().is_some_and(|(at, _)| at <= now) {
            host.timeout(now);
        } else {
            host.settle(now);
        }
        self.moved(id)
    }

    fn arrive(&mut self, to: Option<HostId>, mut datagram: Datagram) -> Result<HostId, Broken> {
        self.trace.mix(self.now, &datagram.bytes);
        let Some(id) = to.filter(|to| self.hosts[*to].running) else {
            return Ok(Datagram::NOBODY);
        };
        if let Some(number) = self.network.raw_at(id, datagram.dst) {
            self.hosts[id].raw.push((number, datagram.src, datagram.bytes));
            return self.moved(id);
        }
        self.traffic.loops += u64::from(datagram.trail.contains(&id));
        let from = self.network.came(id, &datagram, home(id).ip());
        self.hosts[id].receive_on_trail(self.now, id, from, &mut datagram);
        self.moved(id)
    }

    /// Completes a host's turn.
    fn moved(&mut self, id: HostId) -> Result<HostId, Broken> {
        self.traffic.steps += 1;
        self.after(id);
        let host = &mut self.hosts[id];
        host.turns = host.turns.wrapping_add(1);
        if let Some(what) = host.complaint.take() {
            return Err(self.broken(id, what));
        }
        if host.turns.is_multiple_of(self.check_every.max(1)) {
            self.check(id)?;
        }
        Ok(id)
    }

    fn check(&self, id: HostId) -> Result<(), Broken> {
        let host = &self.hosts[id];
        let held = host.node.check_invariants().and_then(|()| host.check_lanes());
        held.map_err(|what| self.broken(id, what))
    }

    fn broken(&self, host: HostId, what: String) -> Broken {
        Broken {
            host,
            at: self.now,
            what,
        }
    }

    /// Sends the output of a host, and records when the host acts next.
    fn after(&mut self, id: HostId) {
        let host = &mut self.hosts[id];
        let src = host.addr;
        for sent in host.take_sent() {
            let further = self.network.source(id, sent.to);
            self.put(Datagram {
                from: id,
                src: further.unwrap_or(src),
                dst: sent.to.remote(),
                kind: sent.kind,
                bytes: sent.bytes,
                trail: sent.trail,
            });
        }
        let next = self.hosts[id].next_turn();
        self.schedule.set(id, next);
    }

    fn put(&mut self, datagram: Datagram) {
        self.traffic.datagrams += 1;
        self.traffic.bytes += datagram.bytes.len() as u64;
        let kind = self.by_kind.entry(datagram.kind).or_default();
        *kind = (kind.0 + 1, kind.1 + datagram.bytes.len() as u64);
        self.network.conditions = self.conditions;
        self.network.send(self.now, datagram);
    }
}

/// The initial address of a host.
fn home(id: HostId) -> SocketAddr {
    let number = (id + 1) as u32;
    let ip = match id < SMALL {
        true => [192, 0, 2, number as u8],
        false => (u32::from_be_bytes([10, 0, 0, 0]) + number).to_be_bytes(),
    };
    SocketAddr::from((ip, 2121))
}
