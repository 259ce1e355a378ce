//! Time, and the network between hosts.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use weft_core::{Config, PeerConfig};
use weft_packet::Command;
use weft_wire::fsp::{FspPhase, FspPrefix};
use weft_wire::link::{LinkMessageType, SessionDatagram};

use crate::host::Host;
use crate::packet::probe;

/// How often lanes report their activity to the core, as in the daemon, ms.
const SAMPLE: u64 = 250;

/// A host's number.
pub type HostId = usize;

/// What a datagram carries, as its sender knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// IP packets.
    #[default]
    Data,
    /// FMP msg1.
    LinkMsg1,
    /// FMP msg2.
    LinkMsg2,
    /// FSP SessionSetup.
    Setup,
    /// FSP SessionAck.
    Ack,
    /// FSP SessionMsg3.
    Msg3,
    /// Any other session message.
    SessionControl,
    /// Any other link message.
    LinkControl,
}

impl Kind {
    pub(crate) fn of(command: &Command) -> Self {
        match command {
            Command::Transmit { datagram, .. } if datagram.first().is_some_and(|b| b & 0x0f == 1) => Self::LinkMsg1,
            Command::Transmit { .. } => Self::LinkMsg2,
            Command::SendOnSession { .. } => Self::SessionControl,
            Command::SendOnLink { msg_type, body, .. } if *msg_type == LinkMessageType::SessionDatagram.to_byte() => {
                let phase = SessionDatagram::parse(body)
                    .and_then(|d| FspPrefix::parse(d.payload))
                    .map(|p| p.phase);
                match phase.ok().and_then(FspPhase::from_nibble) {
                    Some(FspPhase::Setup) => Self::Setup,
                    Some(FspPhase::Ack) => Self::Ack,
                    Some(FspPhase::Msg3) => Self::Msg3,
                    _ => Self::SessionControl,
                }
            }
            Command::SendOnLink { .. } => Self::LinkControl,
            _ => Self::Data,
        }
    }
}

/// A datagram about to be put on the network.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// Who sends it.
    pub from: HostId,
    /// Source address.
    pub src: SocketAddr,
    /// Destination address.
    pub dst: SocketAddr,
    /// What it carries.
    pub kind: Kind,
    /// UDP payload.
    pub bytes: Vec<u8>,
}

/// What a rule does with a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// As the network's conditions have it.
    Pass,
    /// Never arrives.
    Drop,
}

/// How the network treats datagrams. Probabilities are per mille.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// One-way delay, ms.
    pub delay: u64,
    /// Further delay, drawn anew for each datagram from 0 to this, ms: reorders.
    pub jitter: u64,
    /// Lost.
    pub loss: u32,
    /// Delivered twice.
    pub duplicate: u32,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            delay: 10,
            jitter: 0,
            loss: 0,
            duplicate: 0,
        }
    }
}

type Rule = Box<dyn FnMut(u64, &Datagram) -> Fate>;

/// Hosts, network and time.
pub struct World {
    now: u64,
    rng: ChaCha20Rng,
    hosts: Vec<Host>,
    in_flight: BTreeMap<(u64, u64), Datagram>,
    next: u64,
    /// How the network treats datagrams from now on.
    pub conditions: Conditions,
    rule: Rule,
    next_sample: u64,
    /// FNV-1a over all that was delivered, and when.
    trace: u64,
}

impl World {
    /// An empty world.
    pub fn new(seed: u64) -> Self {
        Self {
            // Far from zero, as a machine's clock is: what was never set must not look recent.
            now: 1_000_000_000,
            rng: ChaCha20Rng::seed_from_u64(seed),
            hosts: Vec::new(),
            in_flight: BTreeMap::new(),
            next: 0,
            conditions: Conditions::default(),
            rule: Box::new(|_, _| Fate::Pass),
            next_sample: 1_000_000_000,
            trace: 0xcbf2_9ce4_8422_2325,
        }
    }

    /// Adds a host. Its key, and all that its node leaves to chance, follow from the world's seed.
    pub fn add_host(&mut self, config: Config) -> HostId {
        let id = self.hosts.len();
        let seed = self.rng.next_u64();
        let addr = SocketAddr::from(([192, 0, 2, id as u8 + 1], 2121));
        self.hosts.push(Host::new(seed, addr, config));
        id
    }

    /// Makes `peer` a configured peer of `host`, with its present address if `dial`.
    pub fn add_peer(&mut self, host: HostId, peer: HostId, dial: bool) {
        let addresses = if dial { vec![self.hosts[peer].addr] } else { Vec::new() };
        let config = PeerConfig {
            key: self.hosts[peer].key,
            addresses,
        };
        let now = self.now;
        self.hosts[host].add_peer(now, config);
        self.collect(host);
    }

    /// Two hosts that know each other and both dial.
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
        &mut self.hosts[id]
    }

    /// Sees every datagram before it is put on the network.
    pub fn set_rule(&mut self, rule: impl FnMut(u64, &Datagram) -> Fate + 'static) {
        self.rule = Box::new(rule);
    }

    /// Sends probe `seq` of `len` bytes between two hosts.
    pub fn send(&mut self, from: HostId, to: HostId, seq: u32, len: usize) {
        let packet = probe(self.hosts[from].node_addr(), self.hosts[to].node_addr(), seq, len);
        let now = self.now;
        self.hosts[from].send_ip(now, &packet);
        self.collect(from);
    }

    /// Puts bytes of anybody's making on the network.
    pub fn inject(&mut self, src: SocketAddr, dst: SocketAddr, bytes: Vec<u8>) {
        let datagram = Datagram {
            from: usize::MAX,
            src,
            dst,
            kind: Kind::Data,
            bytes,
        };
        self.put(&datagram);
    }

    /// Moves a host to another address; nothing tells its node.
    pub fn move_host(&mut self, id: HostId, addr: SocketAddr) {
        self.hosts[id].addr = addr;
    }

    /// The process dies at once, and says nothing.
    pub fn kill(&mut self, id: HostId) {
        self.hosts[id].running = false;
    }

    /// The process starts anew with the same key and configuration.
    pub fn restart(&mut self, id: HostId) {
        let now = self.now;
        self.hosts[id].restart(now);
        self.collect(id);
    }

    /// Lets `ms` pass.
    ///
    /// # Panics
    ///
    /// When a node breaks one of its invariants.
    #[expect(clippy::panic, reason = "a broken invariant ends the run")]
    pub fn run(&mut self, ms: u64) {
        let end = self.now + ms;
        while let Some(at) = self.next_event().filter(|at| *at <= end) {
            self.now = at.max(self.now);
            self.step();
            for (id, host) in self.hosts.iter().enumerate() {
                if let Err(broken) = host.node.check_invariants() {
                    panic!("host {id} at {} ms: {broken}", self.now);
                }
            }
        }
        self.now = end;
    }

    /// A hash over everything delivered so far: equal runs have equal hashes.
    pub fn trace_hash(&self) -> u64 {
        self.trace
    }

    fn next_event(&self) -> Option<u64> {
        let arrival = self.in_flight.keys().next().map(|(at, _)| *at);
        let timers = self
            .hosts
            .iter()
            .filter(|h| h.running)
            .filter_map(|h| h.node.poll_timeout().map(|(at, _)| at));
        let reports = self.hosts.iter().filter(|h| h.running).filter_map(Host::next_report);
        timers.chain(reports).chain(arrival).chain([self.next_sample]).min()
    }

    fn step(&mut self) {
        let now = self.now;
        while let Some(entry) = self.in_flight.first_entry().filter(|e| e.key().0 <= now) {
            let datagram = entry.remove();
            self.arrive(datagram);
        }
        let sample = now >= self.next_sample;
        if sample {
            self.next_sample = now + SAMPLE;
        }
        for id in 0..self.hosts.len() {
            let host = &mut self.hosts[id];
            let due = host.node.poll_timeout().is_some_and(|(at, _)| at <= now);
            if host.running && (due || sample) {
                host.timeout(now);
                self.collect(id);
            } else if host.running && host.next_report().is_some_and(|at| at <= now) {
                host.settle(now);
                self.collect(id);
            }
        }
    }

    fn arrive(&mut self, mut datagram: Datagram) {
        self.mix(&self.now.to_be_bytes());
        self.mix(&datagram.bytes);
        let now = self.now;
        let Some(id) = self.hosts.iter().position(|h| h.addr == datagram.dst && h.running) else {
            return;
        };
        self.hosts[id].receive(now, datagram.src, &mut datagram.bytes);
        self.collect(id);
    }

    /// Takes what a host has sent and puts it on the network.
    fn collect(&mut self, from: HostId) {
        let host = &mut self.hosts[from];
        let src = host.addr;
        for (dst, bytes, kind) in std::mem::take(&mut host.train.out_mut().sent) {
            self.put(&Datagram {
                from,
                src,
                dst,
                kind,
                bytes,
            });
        }
    }

    fn put(&mut self, datagram: &Datagram) {
        if (self.rule)(self.now, datagram) == Fate::Drop || self.chance(self.conditions.loss) {
            return;
        }
        let copies = 1 + u32::from(self.chance(self.conditions.duplicate));
        for _ in 0..copies {
            let jitter = u64::from(self.rng.next_u32()) % (self.conditions.jitter + 1);
            let key = (self.now + self.conditions.delay + jitter, self.next);
            self.next += 1;
            self.in_flight.insert(key, datagram.clone());
        }
    }

    fn chance(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.rng.next_u32() % 1000 < per_mille
    }

    fn mix(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.trace = (self.trace ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
