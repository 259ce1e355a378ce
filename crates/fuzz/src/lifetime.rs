//! The fuzz target of measurements of NATs: the message on any bytes, and a node whose neighbours
//! follow no rule.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use weft_reach::lifetime::request::{MOST, Request};
use weft_reach::lifetime::{DELAYS, Lifetime, Lifetimes, Output, SOCKETS, Scope};
use weft_reach::probe::{Key, Probe};
use weft_wire::NodeAddr;

use crate::input::Input;

const PEERS: u8 = 4;
/// Late answers, and probes from other sockets, that a request causes at most.
const UNASKED: usize = 2 * MOST + 9;

/// Reads the bytes behind the first one as what that one says.
///
/// # Panics
/// If a request is written differently from the bytes that it was read from, or if a node sends more than
/// it was asked for, sends to a host without a link, finds a lifetime without a datagram, or leaves a
/// socket, a token or a timer behind.
pub fn lifetime(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    if kind % 2 == 0 {
        if let Ok(request) = Request::parse(rest) {
            assert_eq!(request.emit(), rest);
        }
        return;
    }
    World::default().run(rest);
}

/// One node, and what it did.
struct World {
    node: Lifetimes,
    now: u64,
    listens: BTreeSet<Key>,
    sockets: bool,
    /// Probes of the node's own measurements, with their sockets.
    probes: Vec<(u16, SocketAddr, Probe)>,
    /// Requests that were taken, and what was sent because of them.
    requests: usize,
    heard: usize,
    acks: usize,
    unasked: usize,
}

impl Default for World {
    fn default() -> Self {
        Self {
            node: Lifetimes::new(Box::new(ChaCha8Rng::seed_from_u64(1))),
            now: 0,
            listens: BTreeSet::new(),
            sockets: false,
            probes: Vec::new(),
            requests: 0,
            heard: 0,
            acks: 0,
            unasked: 0,
        }
    }
}

/// The addresses of a peer's host.
fn address(n: u8, port: u8) -> SocketAddr {
    let ip = if n.is_multiple_of(2) {
        [192, 168, 1, n]
    } else {
        [203, 0, 113, n]
    };
    SocketAddr::from((ip, u16::from(port)))
}

impl World {
    fn run(&mut self, bytes: &[u8]) {
        let mut input = Input::new(bytes);
        while !input.is_empty() {
            self.step(&mut input);
            self.collect();
        }
        self.node.handle_network_change(self.now);
        for n in 0..PEERS {
            self.node.set_peer(self.now, NodeAddr::new([n; 16]), None);
        }
        self.collect();
        self.pass(1_000_000);
        assert!(self.listens.is_empty() && !self.sockets, "tokens or sockets are left");
        assert_eq!(self.node.poll_timeout(), None, "a timer is left");
        assert!(self.acks <= self.heard, "{} acks of {} probes", self.acks, self.heard);
        let most = UNASKED * self.requests;
        assert!(self.unasked <= most, "{} of {} requests", self.unasked, self.requests);
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let (now, n) = (self.now, input.below(usize::from(PEERS)) as u8);
        let peer = NodeAddr::new([n; 16]);
        match input.below(9) {
            0 => self.node.set_peer(now, peer, Some(address(n, input.u8() % 4))),
            1 => self.node.set_peer(now, peer, None),
            2 => self.node.handle_moved(now, peer),
            3 if input.u8() == 0 => self.node.handle_network_change(now),
            4 => {
                let delays = (0..=input.below(MOST)).map(|_| 1 + input.u16() % 600).collect();
                let (key, silent) = ([input.u8(); 16], u16::from(input.u8()));
                let body = Request { key, silent, delays }.emit();
                self.node.handle_message(now, peer, &body).unwrap();
            }
            5 => drop(self.node.handle_message(now, peer, input.bytes())),
            6 => self.pass(100 * u64::from(input.u16())),
            7 => {
                // An answer to one of its probes, perhaps from elsewhere.
                if let Some((socket, to, probe)) = input.latest(&self.probes).copied() {
                    let from = if input.flag() { to } else { address(n, input.u8()) };
                    let socket = Some(socket).filter(|_| input.below(4) > 0);
                    let sequence = if input.below(4) == 0 { u32::MAX } else { probe.sequence };
                    let ack = input.flag();
                    let answer = Probe { ack, sequence, ..probe };
                    self.node.handle_datagram(now, socket, from, &answer.emit());
                }
            }
            _ => {
                let key = self.listens.iter().nth(input.below(8)).copied().unwrap_or_default();
                let (ack, sequence) = (input.flag(), u32::from(input.u16()));
                let from = address(n, input.u8());
                self.heard += 1;
                let datagram = Probe { ack, sequence, key }.emit();
                self.node.handle_datagram(now, None, from, &datagram);
            }
        }
    }

    fn pass(&mut self, time: u64) {
        let until = self.now + time;
        while let Some(at) = self.node.poll_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.node.handle_timeout(self.now);
            self.collect();
            let due = self.node.poll_timeout();
            assert!(due.is_none_or(|at| at > self.now), "a timer stays due");
        }
        self.now = until;
    }

    fn collect(&mut self) {
        while let Some(output) = self.node.poll_output() {
            match output {
                Output::OpenSockets { .. } => {
                    assert!(!self.sockets, "two measurements at once");
                    self.sockets = true;
                    self.node.handle_sockets(Some(9));
                }
                Output::CloseSockets => self.sockets = false,
                Output::Message { body, .. } => assert_eq!(Request::parse(&body).unwrap().delays, DELAYS),
                Output::Listen { token } => {
                    assert!(self.listens.insert(token));
                    // Own measurements count as well: the bound is not exact.
                    self.requests += 1;
                }
                Output::Ignore { token } => assert!(self.listens.remove(&token)),
                Output::Send { to, datagram } | Output::SendAside { to, datagram } => {
                    assert!((0..PEERS).any(|n| address(n, 0).ip() == to.ip()), "{to} has no link");
                    let ack = Probe::parse(&datagram).unwrap().ack;
                    self.acks += usize::from(ack);
                    self.unasked += usize::from(!ack);
                }
                Output::SendFrom { socket, to, datagram } => {
                    assert!(self.sockets && socket + 1 < SOCKETS);
                    self.probes.push((socket, to, Probe::parse(&datagram).unwrap()));
                }
            }
        }
        let known = Scope::ALL.iter().filter_map(|scope| self.node.finding(*scope));
        let lengths = known.filter(|finding| finding.lifetime != Lifetime::Short);
        assert!(
            lengths.count() == 0 || !self.probes.is_empty(),
            "a finding from nothing"
        );
    }
}
