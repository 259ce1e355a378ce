//! Nodes behind NATs, on one virtual clock. Messages and probes are delayed, lost and reordered.
#![allow(dead_code, unused_imports, reason = "each test program uses a part")]

pub(crate) mod nat;
pub(crate) mod node;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use weft_reach::probe::{Key, Probe};
use weft_reach::{Config, Output, Reach, Standing};
use weft_wire::NodeAddr;

pub(crate) use nat::{Filtering, Mapping, Nat};

/// The UDP port of each host.
pub(crate) const PORT: u16 = 2121;
/// The port of the first socket of a search.
const FIRST_SOCKET: u16 = 3_000;
/// The servers that see the outer addresses of hosts.
pub(crate) const OBSERVERS: [([u8; 4], u16); 2] = [([192, 0, 2, 1], 2121), ([192, 0, 2, 2], 2121)];

/// What happens on the way, probabilities in per cent and times in ms.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) delay: u64,
    /// A random time is added to each delay, up to this.
    pub(crate) jitter: u64,
    /// Of probes.
    pub(crate) loss: u32,
    /// The first messages of each node that are lost.
    pub(crate) lost_messages: usize,
}

pub(crate) struct Host {
    pub(crate) addr: NodeAddr,
    pub(crate) at: SocketAddr,
    /// Which NAT it is behind.
    pub(crate) nat: usize,
    pub(crate) reach: Reach,
    pub(crate) listens: BTreeSet<Key>,
    /// When, which peer, and where.
    pub(crate) found: Vec<(u64, NodeAddr, SocketAddr)>,
    /// The sockets of a search that are open, and one that was adopted.
    pub(crate) sockets: u16,
    pub(crate) adopted: Option<u16>,
    pub(crate) searches: Vec<u64>,
    /// When, and about which address, other nodes were asked.
    pub(crate) asked: Vec<(u64, SocketAddr)>,
    pub(crate) messages: usize,
    pub(crate) probes: Vec<(u64, SocketAddr, bool)>,
}

pub(crate) enum Event {
    /// The answer of a neighbour that was asked whether it sees a node at this address.
    Sighting {
        to: usize,
        of: NodeAddr,
        at: SocketAddr,
    },
    Message {
        to: usize,
        from: NodeAddr,
        body: Vec<u8>,
    },
    /// At the outer side of the receiver's NAT, or at a host of the sender's subnet.
    Datagram {
        from: SocketAddr,
        to: SocketAddr,
        lan: usize,
        bytes: [u8; 24],
    },
}

pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) faults: Faults,
    pub(crate) hosts: Vec<Host>,
    pub(crate) nats: Vec<Nat>,
    /// A neighbour of all hosts answers where it sees them.
    pub(crate) answers: bool,
    /// Sockets that a host can open.
    pub(crate) sockets: u16,
    on_way: BTreeMap<(u64, u64), Event>,
    events: u64,
    rng: ChaCha8Rng,
}

impl World {
    pub(crate) fn new(seed: u64, faults: Faults, nats: Vec<Nat>) -> Self {
        Self {
            now: 1_000,
            faults,
            hosts: Vec::new(),
            nats,
            answers: false,
            sockets: u16::MAX,
            on_way: BTreeMap::new(),
            events: 0,
            rng: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// Adds a host behind a NAT, whose outer addresses are known to it as observers see them.
    pub(crate) fn host(&mut self, nat: usize) -> usize {
        let n = self.hosts.len();
        let mut bytes = [0; 16];
        self.rng.fill_bytes(&mut bytes);
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        let addr = NodeAddr::new(bytes);
        let at = self.nats[nat].inner(n as u8);
        let mut reach = Reach::new(addr, Config::default(), Box::new(ChaCha8Rng::from_seed(seed)));
        reach.set_host(self.now, vec![at]);
        for (by, observer) in OBSERVERS.into_iter().enumerate() {
            let seen = self.nats[nat].outbound(self.now, at, SocketAddr::from(observer));
            reach.handle_observed(self.now, NodeAddr::new([0xf0 + by as u8; 16]), seen);
        }
        self.hosts.push(Host {
            addr,
            at,
            nat,
            reach,
            listens: BTreeSet::new(),
            found: Vec::new(),
            sockets: 0,
            adopted: None,
            searches: Vec::new(),
            asked: Vec::new(),
            messages: 0,
            probes: Vec::new(),
        });
        n
    }

    /// A neighbour of both hosts tells each where it sees the other one.
    pub(crate) fn tell_seen(&mut self, one: usize, other: usize) {
        for (here, there) in [(one, other), (other, one)] {
            let (now, nat, inner) = (self.now, self.hosts[there].nat, self.hosts[there].at);
            let at = self.nats[nat].outbound(now, inner, SocketAddr::from(OBSERVERS[0]));
            let peer = self.hosts[there].addr;
            let reach = &mut self.hosts[here].reach;
            reach.handle_seen(now, peer, NodeAddr::new([0xf0; 16]), at);
        }
    }

    /// A neighbour tells a host where it sees another one, if that is at the same IP address.
    fn see(&mut self, here: usize, of: NodeAddr, asked: SocketAddr) {
        let Some(there) = self.hosts.iter().position(|host| host.addr == of) else {
            return;
        };
        let (now, nat, inner) = (self.now, self.hosts[there].nat, self.hosts[there].at);
        let at = self.nats[nat].outbound(now, inner, SocketAddr::from(OBSERVERS[0]));
        if at.ip() == asked.ip() {
            self.hosts[here]
                .reach
                .handle_seen(now, of, NodeAddr::new([0xf0; 16]), at);
        }
    }

    /// Makes two hosts peers that reach each other through relays.
    pub(crate) fn join(&mut self, one: usize, other: usize) {
        for (here, there) in [(one, other), (other, one)] {
            let (now, peer) = (self.now, self.hosts[there].addr);
            self.hosts[here].reach.set_peer(now, peer, Standing::Relayed);
        }
        self.collect();
    }

    fn percent(&mut self, percent: u32) -> bool {
        self.rng.next_u32() % 100 < percent
    }

    fn put(&mut self, event: Event) {
        let jitter = u64::from(self.rng.next_u32()) % (self.faults.jitter + 1);
        self.events += 1;
        let at = self.now + self.faults.delay + jitter;
        self.on_way.insert((at, self.events), event);
    }

    /// Which host of the network has this address, seen from a subnet, and which of its sockets.
    fn neighbour(&self, nat: usize, at: SocketAddr) -> Option<(usize, Option<u16>)> {
        let n = self
            .hosts
            .iter()
            .position(|host| host.nat == nat && host.at.ip() == at.ip())?;
        let host = &self.hosts[n];
        let socket = at.port().wrapping_sub(FIRST_SOCKET);
        let open = socket < host.sockets || host.adopted == Some(socket);
        match at.port() {
            PORT => Some((n, None)),
            _ => open.then_some((n, Some(socket))),
        }
    }

    /// Sends a datagram of a host through its NAT.
    pub(crate) fn send(&mut self, host: usize, socket: Option<u16>, to: SocketAddr, bytes: [u8; 24]) {
        let (nat, now) = (self.hosts[host].nat, self.now);
        let inner = self.inner(host, socket);
        let within = self.neighbour(nat, to).is_some();
        let from = if within {
            inner
        } else {
            self.nats[nat].outbound(now, inner, to)
        };
        let private = |ip: IpAddr| weft_reach::nat::is_private(ip);
        // Private addresses of other subnets lead nowhere, and no NAT here turns datagrams back.
        let lost = !within && (private(to.ip()) || self.nats[nat].outer() == to.ip());
        if lost || self.percent(self.faults.loss) {
            return;
        }
        let lan = if within { nat } else { usize::MAX };
        self.put(Event::Datagram { from, to, lan, bytes });
    }

    fn inner(&self, host: usize, socket: Option<u16>) -> SocketAddr {
        let host = &self.hosts[host];
        assert!(socket.is_none_or(|socket| socket < host.sockets || host.adopted == Some(socket)));
        let port = socket.map_or(host.at.port(), |socket| FIRST_SOCKET + socket);
        SocketAddr::new(host.at.ip(), port)
    }

    /// Which host a datagram reaches, and which of its sockets.
    fn receiver(&self, now: u64, from: SocketAddr, to: SocketAddr, lan: usize) -> Option<(usize, Option<u16>)> {
        if lan != usize::MAX {
            return self.neighbour(lan, to);
        }
        let nat = self.nats.iter().position(|nat| nat.outer() == to.ip())?;
        let inner = self.nats[nat].inbound(now, from, to.port())?;
        self.neighbour(nat, inner)
    }

    /// Whether a datagram of one host to this address reaches the other one.
    pub(crate) fn leads(&mut self, host: usize, to: SocketAddr, other: usize) -> bool {
        let (nat, now) = (self.hosts[host].nat, self.now);
        let reached = if self.neighbour(nat, to).is_some() {
            self.neighbour(nat, to)
        } else {
            let inner = self.inner(host, self.hosts[host].adopted);
            let from = self.nats[nat].outbound(now, inner, to);
            self.receiver(now, from, to, usize::MAX)
        };
        reached == Some((other, self.hosts[other].adopted))
    }

    pub(crate) fn collect(&mut self) {
        for n in 0..self.hosts.len() {
            while let Some(output) = self.hosts[n].reach.poll_output() {
                self.perform(n, output);
            }
        }
    }

    fn perform(&mut self, n: usize, output: Output) {
        let (now, from) = (self.now, self.hosts[n].addr);
        match output {
            Output::Message { peer, body } => {
                self.hosts[n].messages += 1;
                let lost = self.hosts[n].messages <= self.faults.lost_messages;
                let to = self.hosts.iter().position(|host| host.addr == peer);
                if let Some(to) = to.filter(|_| !lost) {
                    self.put(Event::Message { to, from, body });
                }
            }
            Output::Probe { to, datagram, .. } => {
                let ack = Probe::parse(&datagram).unwrap().ack;
                self.hosts[n].probes.push((now, to, ack));
                self.send(n, None, to, datagram);
            }
            Output::Ask { peer, at } => {
                self.hosts[n].asked.push((now, at));
                if self.answers && self.hosts.iter().any(|host| host.addr == peer) {
                    self.put(Event::Sighting { to: n, of: peer, at });
                }
            }
            Output::OpenSockets { count, .. } => {
                let count = count.min(self.sockets);
                self.hosts[n].searches.push(now);
                (self.hosts[n].sockets, self.hosts[n].adopted) = (count, None);
                self.hosts[n].reach.handle_sockets(now, count);
            }
            Output::ProbeFrom {
                socket, to, datagram, ..
            } => {
                let ack = Probe::parse(&datagram).unwrap().ack;
                self.hosts[n].probes.push((now, to, ack));
                self.send(n, Some(socket), to, datagram);
            }
            Output::Adopt { peer, socket, at } => {
                assert!(socket < self.hosts[n].sockets);
                self.hosts[n].adopted = Some(socket);
                self.hosts[n].found.push((now, peer, at));
            }
            Output::CloseSockets => self.hosts[n].sockets = 0,
            Output::Listen { token } => assert!(self.hosts[n].listens.insert(token), "listens twice"),
            Output::Ignore { token } => assert!(self.hosts[n].listens.remove(&token), "never listened"),
            Output::Found { peer, at, .. } => self.hosts[n].found.push((now, peer, at)),
        }
    }

    fn arrive(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Message { to, from, body } => {
                self.hosts[to].reach.handle_message(now, from, &body).unwrap();
            }
            Event::Sighting { to, of, at } => self.see(to, of, at),
            Event::Datagram { from, to, lan, bytes } => {
                let Some((host, socket)) = self.receiver(now, from, to, lan) else {
                    return;
                };
                let host = &mut self.hosts[host];
                let listens = host.listens.iter().any(|token| bytes[8..] == token[..]);
                match socket.filter(|_| listens) {
                    Some(socket) => host.reach.handle_socket_datagram(now, socket, from, &bytes),
                    None if listens => host.reach.handle_datagram(now, from, &bytes),
                    None => {}
                }
            }
        }
    }

    /// Runs until `until`.
    pub(crate) fn run(&mut self, until: u64) {
        loop {
            self.collect();
            let arrival = self.on_way.keys().next().map(|(at, _)| *at);
            let timeouts = self.hosts.iter().filter_map(|host| host.reach.poll_timeout());
            let timeout = timeouts.map(|(at, _)| at).min();
            let next = arrival.into_iter().chain(timeout).min().unwrap_or(u64::MAX);
            if next > until {
                self.now = until;
                return;
            }
            self.now = self.now.max(next);
            let now = self.now;
            while let Some(entry) = self.on_way.first_entry().filter(|entry| entry.key().0 <= now) {
                let event = entry.remove();
                self.arrive(event);
                self.collect();
            }
            for host in &mut self.hosts {
                host.reach.handle_timeout(now);
                let due = host.reach.poll_timeout();
                assert!(due.is_none_or(|(at, _)| at > now), "a timer stays due: {due:?}");
            }
        }
    }
}
