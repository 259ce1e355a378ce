//! One node among peers that the test plays, and all that it sent.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use weft_reach::message::{Candidate, Candidates, Kind, Token};
use weft_reach::nat::Mappings;
use weft_reach::probe::{Key, Probe, key};
use weft_reach::{Config, Output, Reach, Source, Standing};
use weft_wire::NodeAddr;

pub(crate) const ME: NodeAddr = NodeAddr::new([0x50; 16]);
pub(crate) const VICTIM: [u8; 4] = [198, 51, 100, 66];

pub(crate) fn peer(n: u8) -> NodeAddr {
    NodeAddr::new([n; 16])
}

pub(crate) fn token(n: u64) -> Token {
    Token::new((n + 1).to_be_bytes()).unwrap()
}

pub(crate) fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub(crate) fn told(at: SocketAddr) -> Candidate {
    let kind = Kind::Observed;
    Candidate { kind, at }
}

/// A node, and all that it sent.
pub(crate) struct Node {
    pub(crate) reach: Reach,
    pub(crate) now: u64,
    pub(crate) messages: Vec<(u64, NodeAddr, Candidates)>,
    /// When, to which address, and what.
    pub(crate) datagrams: Vec<(u64, SocketAddr, Probe)>,
    pub(crate) found: Vec<(NodeAddr, SocketAddr, Source)>,
    /// The sockets of a search that are open, and when they were asked for.
    pub(crate) sockets: u16,
    pub(crate) asked: Vec<(u64, SocketAddr)>,
    pub(crate) searches: Vec<u64>,
    /// The last probe from a socket of a search.
    pub(crate) shot: Option<(u16, Probe)>,
    pub(crate) listens: BTreeSet<Key>,
}

impl Node {
    pub(crate) fn new() -> Self {
        let rng = Box::new(ChaCha8Rng::seed_from_u64(9));
        let mut reach = Reach::new(ME, Config::default(), rng);
        reach.set_host(0, vec![at("192.168.1.2:2121")]);
        Self {
            reach,
            now: 0,
            messages: Vec::new(),
            datagrams: Vec::new(),
            found: Vec::new(),
            sockets: 0,
            asked: Vec::new(),
            searches: Vec::new(),
            shot: None,
            listens: BTreeSet::new(),
        }
    }

    /// A node with a relayed peer.
    pub(crate) fn with_peer(n: u8) -> Self {
        let mut node = Self::new();
        node.reach.set_peer(0, peer(n), Standing::Relayed);
        node.collect();
        node
    }

    pub(crate) fn collect(&mut self) {
        while let Some(output) = self.reach.poll_output() {
            match output {
                Output::Message { peer, body } => {
                    assert!(body.len() <= 627);
                    self.messages.push((self.now, peer, Candidates::parse(&body).unwrap()));
                }
                Output::Probe { to, datagram, .. } => {
                    self.datagrams.push((self.now, to, Probe::parse(&datagram).unwrap()));
                }
                Output::Listen { token } => assert!(self.listens.insert(token)),
                Output::Ignore { token } => assert!(self.listens.remove(&token)),
                Output::Ask { at, .. } => self.asked.push((self.now, at)),
                Output::OpenSockets { count, .. } => {
                    assert_eq!(self.sockets, 0, "two searches at once");
                    self.sockets = count;
                    self.searches.push(self.now);
                    self.reach.handle_sockets(self.now, count);
                }
                Output::ProbeFrom {
                    socket, to, datagram, ..
                } => {
                    assert!(socket < self.sockets);
                    let probe = Probe::parse(&datagram).unwrap();
                    self.shot = Some((socket, probe)).filter(|_| !probe.ack).or(self.shot);
                    self.datagrams.push((self.now, to, Probe::parse(&datagram).unwrap()));
                }
                Output::Adopt { peer, at, .. } => self.found.push((peer, at, Source::Searched)),
                Output::CloseSockets => self.sockets = 0,
                Output::Found { peer, at, source } => self.found.push((peer, at, source)),
            }
        }
    }

    pub(crate) fn run(&mut self, until: u64) {
        while let Some((at, _)) = self.reach.poll_timeout().filter(|(at, _)| *at <= until) {
            self.now = self.now.max(at);
            self.reach.handle_timeout(self.now);
            self.collect();
            assert!(
                self.reach.poll_timeout().is_none_or(|(at, _)| at > self.now),
                "stays due"
            );
        }
        self.now = until;
    }

    pub(crate) fn message(&mut self, n: u8, message: &Candidates) {
        self.reach.handle_message(self.now, peer(n), &message.emit()).unwrap();
        self.collect();
    }

    pub(crate) fn datagram(&mut self, from: SocketAddr, probe: Probe) {
        self.reach.handle_datagram(self.now, from, &probe.emit());
        self.collect();
    }

    /// The token of this node's attempt with a peer.
    pub(crate) fn own(&self, n: u8) -> Token {
        let mut messages = self.messages.iter().rev();
        messages.find(|(_, to, _)| *to == peer(n)).unwrap().2.token
    }

    /// The peer answers with these candidates. Returns the key of the probes.
    pub(crate) fn answer(&mut self, n: u8, theirs: Token, candidates: Vec<Candidate>) -> Key {
        let own = self.own(n);
        let echo = Some(own);
        let mappings = Mappings::default();
        self.message(
            n,
            &Candidates {
                token: theirs,
                echo,
                mappings,
                candidates,
            },
        );
        key(ME, self.own(n), peer(n), theirs)
    }

    /// Bytes to an address with IP and UDP headers, by the time they were sent.
    pub(crate) fn bytes_to(&self, ip: IpAddr) -> Vec<(u64, u32)> {
        let cost = if ip.is_ipv4() { 52 } else { 72 };
        let to = self.datagrams.iter().filter(|(_, to, _)| to.ip() == ip);
        to.map(|(at, ..)| (*at, cost)).collect()
    }
}

pub(crate) fn within(all: &[(u64, u32)], span: u64) -> u32 {
    let most = all.iter().map(|(end, _)| {
        let lately = all.iter().filter(|(at, _)| at <= end && at + span > *end);
        lately.map(|(_, bytes)| bytes).sum()
    });
    most.max().unwrap_or(0)
}

pub(crate) fn begins(theirs: Token, candidates: Vec<Candidate>) -> Candidates {
    let mappings = Mappings::default();
    Candidates {
        token: theirs,
        echo: None,
        mappings,
        candidates,
    }
}

pub(crate) fn victims() -> Vec<Candidate> {
    (0..32).map(|n| told(SocketAddr::from((VICTIM, 1_000 + n)))).collect()
}
