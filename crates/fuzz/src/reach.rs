//! The fuzz target of weft-reach: its parsers on any bytes, and a node among peers that follow no
//! rule.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use weft_reach::message::{Candidate, Candidates, Kind, Token};
use weft_reach::nat::{Mapping, Mappings};
use weft_reach::probe::{Key, Probe, key};
use weft_reach::stun::{Client, Message};
use weft_reach::{Config, Output, Reach, Standing, budget, candidate};
use weft_wire::NodeAddr;

use crate::input::Input;

const ME: NodeAddr = NodeAddr::new([0x50; 16]);
const PEERS: u8 = 3;
/// Milliseconds in which the budget of an hour counts.
const HOUR: u64 = 3_600_000;
/// Bytes of a search.
const SEARCH: u32 = 2_048 * 52;

/// Reads the bytes behind the first one as what that one says.
///
/// # Panics
/// If a message is written differently from the bytes that it was read from, or if a node among
/// hostile peers sends more than its budgets, probes what must not be probed, finds an address that
/// answered nothing, or leaves a timer or a token behind.
pub fn reach(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    match kind % 4 {
        0 => message(rest),
        1 => probe(rest),
        2 => stun(rest),
        _ => World::default().run(rest),
    }
}

fn message(bytes: &[u8]) {
    let Ok(message) = Candidates::parse(bytes) else { return };
    let mut expected = bytes.to_vec();
    // Reserved bits are not kept.
    expected[17] &= 0x3f;
    assert_eq!(message.emit(), expected);
}

fn probe(bytes: &[u8]) {
    if let Ok(probe) = Probe::parse(bytes) {
        assert_eq!(probe.emit()[..], *bytes);
    }
}

/// A server that answers what it likes ends the transaction at most once.
fn stun(bytes: &[u8]) {
    let server = SocketAddr::from(([192, 0, 2, 1], 3478));
    let mut client = Client::default();
    let id = client.ask(0, server, &mut ChaCha8Rng::seed_from_u64(0)).unwrap();
    let mut answer = bytes.to_vec();
    if let Some(there) = answer.get_mut(8..20) {
        there.copy_from_slice(&id.0);
    }
    let known = Message::parse(&answer);
    let taken = client.handle_datagram(server, &answer);
    assert!(!taken || known.is_ok());
    assert!(!client.handle_datagram(server, &answer), "taken twice");
    let mut outputs = 0;
    while client.poll_output().is_some() {
        outputs += 1;
    }
    assert_eq!(outputs, 1 + u32::from(taken));
    if let Ok(Message {
        id, mapped: Some(at), ..
    }) = known
    {
        assert_eq!(Message::parse(&Message::success(id, at)).unwrap().mapped, Some(at));
    }
}

fn peer(n: u8) -> NodeAddr {
    NodeAddr::new([n; 16])
}

/// One node, and what it sent.
struct World {
    reach: Reach,
    now: u64,
    /// The token of the node in its last message to each peer.
    own: BTreeMap<NodeAddr, Token>,
    /// Probes and acks: when and where to.
    sent: Vec<(u64, SocketAddr, Probe)>,
    /// Acks that are given to probes that were sent: only these find an address.
    answered: BTreeSet<SocketAddr>,
    listens: BTreeSet<Key>,
    /// Addresses under which others have seen peers: these may be searched.
    seen: BTreeSet<IpAddr>,
    /// The sockets of a search that are open.
    sockets: u16,
}

impl Default for World {
    fn default() -> Self {
        let rng = Box::new(ChaCha8Rng::seed_from_u64(1));
        let mut reach = Reach::new(ME, Config::default(), rng);
        reach.set_host(0, vec![SocketAddr::from(([10, 0, 0, 1], 2121))]);
        Self {
            reach,
            now: 0,
            own: BTreeMap::new(),
            sent: Vec::new(),
            answered: BTreeSet::new(),
            listens: BTreeSet::new(),
            seen: BTreeSet::new(),
            sockets: 0,
        }
    }
}

impl World {
    fn run(&mut self, bytes: &[u8]) {
        let mut input = Input::new(bytes);
        while !input.is_empty() {
            self.step(&mut input);
            self.collect();
        }
        for n in 0..PEERS {
            self.reach.set_peer(
                self.now,
                peer(n),
                Standing::Direct(SocketAddr::from(([192, 0, 2, 1], 1))),
            );
            self.collect();
        }
        self.pass(100_000);
        assert!(self.listens.is_empty(), "tokens are left");
        assert_eq!(self.sockets, 0, "sockets are left");
        assert_eq!(self.reach.poll_timeout(), None, "a timer is left");
        self.check_budgets();
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let (now, n) = (self.now, input.below(usize::from(PEERS)) as u8);
        match input.below(16) {
            0 => self.reach.set_peer(now, peer(n), Standing::Relayed),
            1 => {
                let at = address(input);
                self.seen.insert(at.ip());
                self.reach.set_peer(now, peer(n), Standing::Direct(at));
            }
            2 => self.reach.set_peer(now, peer(n), Standing::Gone),
            3 => self.reach.handle_network_change(now),
            4 => {
                let at = address(input);
                self.reach.handle_observed(now, peer(input.u8()), at);
            }
            5 => self
                .reach
                .set_mapped(now, (0..input.below(6)).map(|_| address(input)).collect()),
            6 => {
                let _ = self.reach.handle_message(now, peer(n), input.bytes());
            }
            7 | 8 => {
                let message = self.candidates(n, input);
                let _ = self.reach.handle_message(now, peer(n), &message.emit());
            }
            9 => self.forge(n, input),
            10 => self.pass(u64::from(input.u16())),
            12 => {
                let at = address(input);
                self.seen.insert(at.ip());
                self.reach.handle_seen(now, peer(n), peer(input.u8()), at);
            }
            13 => self.reach.handle_sockets(now, input.u16()),
            14 => {
                let (socket, from) = (input.u16(), address(input));
                let key = self.listens.first().copied().unwrap_or_default();
                let (ack, sequence) = (input.flag(), input.u32());
                let probe = Probe { ack, sequence, key };
                if self.sent.iter().all(|(_, _, sent)| sent.sequence != sequence) {
                    self.reach.handle_socket_datagram(now, socket, from, &probe.emit());
                }
            }
            _ => {
                if let Some((_, to, probe)) = input.latest(&self.sent).copied() {
                    // An answer from elsewhere is none.
                    let from = if input.below(4) == 3 { address(input) } else { to };
                    if from == to {
                        self.answered.insert(to);
                    }
                    let ack = Probe { ack: true, ..probe };
                    match input.below(4) {
                        3 => self.reach.handle_socket_datagram(now, input.u16(), from, &ack.emit()),
                        _ => self.reach.handle_datagram(now, from, &ack.emit()),
                    }
                }
            }
        }
    }

    fn candidates(&self, n: u8, input: &mut Input<'_>) -> Candidates {
        let choice = input.u8();
        let candidates = (0..input.below(34)).map(|_| Candidate {
            kind: [Kind::Host, Kind::Observed, Kind::Mapped, Kind::Unknown(9)][input.below(4)],
            at: address(input),
        });
        let mapping = |bits: u8| {
            [
                Mapping::Unknown,
                Mapping::EndpointIndependent,
                Mapping::EndpointDependent,
            ][usize::from(bits & 3) % 3]
        };
        Candidates {
            token: theirs(choice),
            echo: self.own.get(&peer(n)).copied().filter(|_| choice & 0x80 == 0),
            mappings: Mappings {
                v4: mapping(choice >> 4),
                v6: Mapping::Unknown,
                likely: mapping(choice >> 2),
            },
            candidates: candidates.collect(),
        }
    }

    /// A probe or ack under a key that the peer can make.
    fn forge(&mut self, n: u8, input: &mut Input<'_>) {
        let choice = input.u8();
        let Some(own) = self.own.get(&peer(n)) else { return };
        let probe = Probe {
            ack: choice & 0x80 != 0,
            sequence: input.u32(),
            key: key(ME, *own, peer(n), theirs(choice)),
        };
        let from = address(input);
        // What is sent with a sequence of the node's own is an answer.
        if self.sent.iter().any(|(_, _, sent)| sent.sequence == probe.sequence) {
            return;
        }
        for _ in 0..=input.below(40) {
            self.reach.handle_datagram(self.now, from, &probe.emit());
            self.collect();
        }
    }

    fn pass(&mut self, time: u64) {
        let until = self.now + time;
        while let Some((at, _)) = self.reach.poll_timeout().filter(|(at, _)| *at <= until) {
            self.now = self.now.max(at);
            self.reach.handle_timeout(self.now);
            self.collect();
            let due = self.reach.poll_timeout();
            assert!(due.is_none_or(|(at, _)| at > self.now), "a timer stays due");
        }
        self.now = until;
    }

    fn collect(&mut self) {
        while let Some(output) = self.reach.poll_output() {
            match output {
                Output::Message { peer, body } => {
                    assert!(body.len() <= 627);
                    self.own.insert(peer, Candidates::parse(&body).unwrap().token);
                }
                Output::Probe { to, datagram, .. } => self.note(to, datagram),
                Output::ProbeFrom {
                    socket, to, datagram, ..
                } => {
                    assert!(socket < self.sockets || Probe::parse(&datagram).unwrap().ack);
                    self.note(to, datagram);
                }
                Output::Ask { at, .. } => assert!(at.is_ipv4() && !weft_reach::nat::is_private(at.ip())),
                Output::OpenSockets { count, .. } => {
                    assert_eq!(self.sockets, 0, "two searches at once");
                    self.sockets = count;
                }
                Output::CloseSockets => self.sockets = 0,
                Output::Listen { token } => assert!(self.listens.insert(token)),
                Output::Ignore { token } => assert!(self.listens.remove(&token)),
                Output::Found { at, .. } | Output::Adopt { at, .. } => {
                    assert!(self.answered.contains(&at), "{at} answered nothing");
                }
            }
        }
        assert!(self.listens.len() <= usize::from(PEERS));
        assert!(self.reach.places() <= budget::PLACES);
    }

    fn note(&mut self, to: SocketAddr, datagram: [u8; Probe::LEN]) {
        assert_eq!(candidate::check(to), Ok(()));
        assert_ne!(to.ip(), IpAddr::from([10, 0, 0, 1]));
        self.sent.push((self.now, to, Probe::parse(&datagram).unwrap()));
    }

    fn check_budgets(&self) {
        let probes: Vec<u64> = self
            .sent
            .iter()
            .filter(|(.., probe)| !probe.ack)
            .map(|(at, ..)| *at)
            .collect();
        let second = |window: &[u64]| window[150] - window[0] >= 1_000;
        assert!(probes.windows(151).all(second), "more than 150 probes in a second");
        let mut bytes: BTreeMap<IpAddr, Vec<(u64, u32)>> = BTreeMap::new();
        let free = |at: &SocketAddr| self.answered.contains(at);
        for (at, to, _) in self.sent.iter().filter(|(_, to, _)| !free(to)) {
            let cost = if to.is_ipv4() { 52 } else { 72 };
            bytes.entry(to.ip()).or_default().push((*at, cost));
        }
        for (ip, all) in bytes {
            // One search in ten minutes.
            let searches = if self.seen.contains(&ip) { 7 * SEARCH } else { 0 };
            let (mut first, mut sum) = (0, 0);
            for (at, cost) in &all {
                sum += cost;
                while all[first].0 + HOUR <= *at {
                    sum -= all[first].1;
                    first += 1;
                }
                assert!(sum <= budget::HOUR + searches, "{ip} got {sum} bytes in an hour");
            }
        }
    }
}

/// Five tokens of a peer.
fn theirs(choice: u8) -> Token {
    Token::new([1 + (choice & 0x7f) % 5; 8]).unwrap()
}

/// Few addresses, so that they meet again, and some that must not be probed.
fn address(input: &mut Input<'_>) -> SocketAddr {
    let port = u16::from(input.u8());
    let ip = match input.u8() {
        n @ 0..=99 => IpAddr::from([198, 51, 100, n % 4]),
        n @ 100..=199 => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(n)]),
        200..=229 => IpAddr::from(input.array::<16>()),
        230..=249 => IpAddr::from(input.array::<4>()),
        _ => IpAddr::from([10, 0, 0, 1]),
    };
    SocketAddr::new(ip, port)
}
