//! How long NATs and firewalls let a peer in that has heard nothing from this node: "binding lifetime"
//! in RFC 5780, section 4.6.
//!
//! Sockets of their own send a neighbour probes, and fall silent. The neighbour answers each after a
//! delay of its own. The longest delay after which the answer still arrives is how long an idle link
//! may be silent. Meanwhile the link itself is as it was: a test that fails costs no path.
//!
//! One measurement counts for all peers of a [`Scope`], until the network changes. `docs/protocol/reach.md`,
//! "Lifetimes", has every byte and rule, `docs/protocol/security.md` (P34) what others can make it cost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use rand_core::CryptoRng;
use weft_wire::NodeAddr;
pub use weft_wire::address::Scope;

use self::answers::Answers;
use self::measurement::{End, Measurement};
use self::request::{BadRequest, Request};
use crate::probe::{Key, Probe};

mod answers;
mod measurement;
pub mod request;

/// The silences that are tried, in s. NATs forget after 30 s, after 60 s, after 120 s (RFC 4787, REQ-5) or
/// after 180 s (Linux) for the most part, and after 300 s if they do as RFC 4787 recommends.
pub const DELAYS: [u16; 4] = [45, 90, 150, 290];
/// Sockets of a measurement: one for each delay, and one that sends nothing.
pub const SOCKETS: u16 = DELAYS.len() as u16 + 1;

/// The sequence of datagrams from another socket of the peer.
const ASIDE: u32 = u32::MAX;
/// How long a link is there before its peer is asked, in ms.
const SETTLED: u64 = 20_000;
/// Milliseconds between two requests to one peer.
const AGAIN: u64 = 3_600_000;
/// Milliseconds between two measurements in one scope that have found nothing.
const PAUSE: u64 = 60_000;
/// Milliseconds until a lifetime is measured again that may be longer than was found: an answer may have
/// been lost. They double each time, up to [`LAST_REPEAT`].
const REPEAT: u64 = 7_200_000;
const LAST_REPEAT: u64 = 86_400_000;
/// Milliseconds until the next measurement once a finding has turned out to be wrong. They double with
/// each one, up to [`LONGEST_DISTRUST`].
const DISTRUST: u64 = 3_600_000;
const LONGEST_DISTRUST: u64 = 86_400_000;

/// How long this node may be silent and still be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// For ever: strangers reach it.
    Open,
    /// For so long, in s, and perhaps for longer.
    AtLeast(u16),
    /// For less than the shortest of [`DELAYS`].
    Short,
}

impl Lifetime {
    /// Whether nothing better can be found.
    fn is_best(self) -> bool {
        self == Self::Open || DELAYS.last().is_some_and(|longest| self == Self::AtLeast(*longest))
    }

    /// Whether this one is known to be shorter than another one.
    fn is_shorter_than(self, other: Self) -> bool {
        match (self, other) {
            (Self::Open, _) | (_, Self::Short) => false,
            (_, Self::Open) | (Self::Short, _) => true,
            (Self::AtLeast(own), Self::AtLeast(other)) => own < other,
        }
    }

    /// How often an idle link has to send something, in s; 0 for never, `None` for as often as without a
    /// measurement. A sixth of the time remains for a NAT that counts roughly, and for a datagram that
    /// is late.
    #[must_use]
    pub fn interval(self) -> Option<u16> {
        match self {
            Self::Open => Some(0),
            Self::AtLeast(lifetime) => Some(lifetime - (lifetime / 6).max(10).min(lifetime)),
            Self::Short => None,
        }
    }
}

/// Which datagrams reach the ordinary socket of this node (RFC 4787, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filtering {
    /// All.
    None,
    /// Those of hosts to which it has sent something, from any of their ports; perhaps all. The helper has
    /// one address.
    AddressDependent,
    /// Those of addresses and ports to which it has sent something.
    AddressAndPortDependent,
}

/// What a measurement has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The neighbour that answered.
    pub by: NodeAddr,
    /// When it was found, in ms.
    pub at: u64,
    /// What was found. It may grow while the measurement goes on.
    pub lifetime: Lifetime,
}

/// An effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Open [`SOCKETS`] sockets of the same version of IP as this address, which all have ports of their
    /// own, and call [`Lifetimes::handle_sockets`]. Those before are closed.
    OpenSockets {
        /// An address of a peer.
        to: SocketAddr,
    },
    /// Close the sockets.
    CloseSockets,
    /// Send this message to a peer inside the session with it. It may get lost.
    Message {
        /// To which peer.
        peer: NodeAddr,
        /// The message.
        body: Vec<u8>,
    },
    /// From now on, pass datagrams of 24 bytes that end in these 16 to [`Lifetimes::handle_datagram`].
    Listen {
        /// The last 16 bytes.
        token: Key,
    },
    /// End what [`Output::Listen`] began.
    Ignore {
        /// The last 16 bytes.
        token: Key,
    },
    /// Send this datagram from the ordinary UDP socket.
    Send {
        /// To which address.
        to: SocketAddr,
        /// The datagram.
        datagram: [u8; Probe::LEN],
    },
    /// Send this datagram from one of the sockets.
    SendFrom {
        /// The number of the socket.
        socket: u16,
        /// To which address.
        to: SocketAddr,
        /// The datagram.
        datagram: [u8; Probe::LEN],
    },
    /// Send this datagram from a socket that has sent nothing before.
    SendAside {
        /// To which address.
        to: SocketAddr,
        /// The datagram.
        datagram: [u8; Probe::LEN],
    },
}

/// A weft node with a direct link.
#[derive(Debug)]
struct Peer {
    at: SocketAddr,
    since: u64,
    /// When it was asked last.
    asked: Option<u64>,
}

impl Peer {
    /// When it may be asked.
    fn ready(&self) -> u64 {
        let again = self.asked.map_or(0, |at| at + AGAIN);
        (self.since + SETTLED).max(again)
    }
}

/// What is known about a scope.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    finding: Option<Finding>,
    /// Which datagrams reach the ordinary socket, and the peer that helped to find out.
    filtering: Option<(Filtering, NodeAddr)>,
    /// No measurement begins before, in ms.
    from: u64,
    /// Measurements that have found something.
    found: u32,
    /// Findings that turned out to be wrong.
    wrong: u32,
    /// A peer that did not help with the finding, and has said that it is wrong.
    doubted_by: Option<NodeAddr>,
}

/// The measurements of one node, one at a time, and what it does for those of its peers.
pub struct Lifetimes {
    rng: Box<dyn CryptoRng + Send>,
    peers: BTreeMap<NodeAddr, Peer>,
    /// The peers of each scope, by when they may be asked.
    ready: BTreeMap<Scope, BTreeSet<(u64, NodeAddr)>>,
    known: BTreeMap<Scope, Known>,
    running: Option<Measurement>,
    answers: Answers,
    outputs: VecDeque<Output>,
}

impl Lifetimes {
    /// Makes the state of a node without peers. `rng` is the source of all randomness.
    #[must_use]
    pub fn new(rng: Box<dyn CryptoRng + Send>) -> Self {
        Self {
            rng,
            peers: BTreeMap::new(),
            ready: BTreeMap::new(),
            known: BTreeMap::new(),
            running: None,
            answers: Answers::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Notes that a weft node has a direct link to this address, from the ordinary socket, or none.
    pub fn set_peer(&mut self, now: u64, peer: NodeAddr, at: Option<SocketAddr>) {
        if self.peers.get(&peer).map(|known| known.at) == at {
            return;
        }
        self.unindex(peer);
        let known = self.peers.remove(&peer);
        if let Some(at) = at {
            let asked = known.and_then(|known| known.asked);
            self.peers.insert(peer, Peer { at, since: now, asked });
            self.index(peer);
        } else if let Some(running) = self.running.as_ref().filter(|running| running.peer == peer) {
            // That answers of this peer do not arrive says nothing about a NAT.
            self.known.entry(running.scope).or_default().from = now + PAUSE;
            self.stop();
        }
    }

    /// The network of this node has changed: nothing is known of it.
    pub fn handle_network_change(&mut self, now: u64) {
        self.known.clear();
        self.ready.clear();
        for (addr, peer) in &mut self.peers {
            (peer.since, peer.asked) = (now, None);
            let ready = self.ready.entry(Scope::of(peer.at)).or_default();
            ready.insert((peer.ready(), *addr));
        }
        self.stop();
    }

    /// A peer sees this node at another address, although the network has not changed: a NAT has forgotten
    /// its mapping, and the finding is wrong. Of peers that did not help with the finding it takes two to
    /// say so, unless there is only one.
    pub fn handle_moved(&mut self, now: u64, peer: NodeAddr) {
        let Some(scope) = self.peers.get(&peer).map(|peer| Scope::of(peer.at)) else {
            return;
        };
        let peers = self.peers.values().filter(|peer| Scope::of(peer.at) == scope).count();
        let Some(known) = self.known.get_mut(&scope) else {
            return;
        };
        let trusted = known.finding.filter(|finding| finding.lifetime.interval().is_some());
        let Some(finding) = trusted else { return };
        let doubted = *known.doubted_by.get_or_insert(peer);
        if finding.by == peer || doubted != peer || peers == 1 {
            (known.finding, known.doubted_by) = (None, None);
            known.from = now + (DISTRUST << known.wrong.min(8)).min(LONGEST_DISTRUST);
            known.wrong += 1;
            if self.running.as_ref().is_some_and(|running| running.scope == scope) {
                self.stop();
            }
        }
    }

    /// Handles a request of a peer.
    ///
    /// # Errors
    /// [`BadRequest`]: this version does not read it.
    pub fn handle_message(&mut self, now: u64, peer: NodeAddr, bytes: &[u8]) -> Result<(), BadRequest> {
        let request = Request::parse(bytes)?;
        // Only a direct link proves an address.
        if let Some(known) = self.peers.get(&peer) {
            self.answers.begin(now, peer, known.at, &request, &mut self.outputs);
        }
        Ok(())
    }

    /// The sockets are open; `silent` is the port of the last one. `None` if they could not be opened.
    pub fn handle_sockets(&mut self, silent: Option<u16>) {
        match (&self.running, silent) {
            (Some(running), Some(port)) => {
                let (peer, body) = (running.peer, running.request(port));
                self.outputs.push_back(Output::Message { peer, body });
            }
            (Some(_), None) => self.stop(),
            (None, _) => {}
        }
    }

    /// Handles a datagram that `socket` has received, the ordinary one if `None`. Returns whether its key
    /// belongs here.
    pub fn handle_datagram(&mut self, now: u64, socket: Option<u16>, from: SocketAddr, bytes: &[u8]) -> bool {
        let Ok(probe) = Probe::parse(bytes) else { return false };
        match &mut self.running {
            Some(running) if running.key == probe.key => running.handle(now, socket, from, probe),
            _ => return socket.is_none() && self.answers.handle(now, from, probe, &mut self.outputs),
        }
        self.drive(now);
        true
    }

    /// Performs what is due.
    pub fn handle_timeout(&mut self, now: u64) {
        self.answers.drive(now, &mut self.outputs);
        self.drive(now);
        if self.running.is_none() {
            self.begin(now);
        }
    }

    /// Returns when something is due, in ms.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let own = match &self.running {
            Some(running) => Some(running.deadline()),
            None => self.next().map(|(at, _)| at),
        };
        own.into_iter().chain(self.answers.deadline()).min()
    }

    /// Returns the next effect.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns what is known about a scope.
    #[must_use]
    pub fn finding(&self, scope: Scope) -> Option<Finding> {
        self.known.get(&scope)?.finding
    }

    /// Returns what reaches the ordinary socket in a scope, and the peer that has helped to find out.
    #[must_use]
    pub fn filtering(&self, scope: Scope) -> Option<(Filtering, NodeAddr)> {
        self.known.get(&scope)?.filtering
    }

    /// Whether a measurement goes on in a scope.
    #[must_use]
    pub fn is_measuring(&self, scope: Scope) -> bool {
        self.running.as_ref().is_some_and(|running| running.scope == scope)
    }

    /// The next measurement: when it begins, and with which peer.
    fn next(&self) -> Option<(u64, NodeAddr)> {
        let due = Scope::ALL.into_iter().filter_map(|scope| {
            let known = self.known.get(&scope).copied().unwrap_or_default();
            if known.finding.is_some_and(|finding| finding.lifetime.is_best()) {
                return None;
            }
            let (ready, addr) = self.ready.get(&scope)?.first()?;
            Some((known.from.max(*ready), *addr))
        });
        due.min()
    }

    fn index(&mut self, addr: NodeAddr) {
        if let Some(peer) = self.peers.get(&addr) {
            let ready = self.ready.entry(Scope::of(peer.at)).or_default();
            ready.insert((peer.ready(), addr));
        }
    }

    fn unindex(&mut self, addr: NodeAddr) {
        if let Some(peer) = self.peers.get(&addr)
            && let Some(ready) = self.ready.get_mut(&Scope::of(peer.at))
        {
            ready.remove(&(peer.ready(), addr));
        }
    }

    fn begin(&mut self, now: u64) {
        let Some((_, addr)) = self.next().filter(|(at, _)| *at <= now) else {
            return;
        };
        self.unindex(addr);
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        peer.asked = Some(now);
        let to = peer.at;
        self.index(addr);
        let mut token = Key::default();
        self.rng.fill_bytes(&mut token);
        self.running = Some(Measurement::new(now, addr, to, token, self.rng.next_u32()));
        self.outputs
            .extend([Output::Listen { token }, Output::OpenSockets { to }]);
    }

    /// Goes on with the measurement.
    fn drive(&mut self, now: u64) {
        let Some(running) = &mut self.running else { return };
        let end = running.drive(now, &mut self.outputs);
        let (scope, by, so_far, filtering) = (running.scope, running.peer, running.so_far(), running.filtering());
        let known = self.known.entry(scope).or_default();
        known.filtering = filtering.map(|filtering| (filtering, by)).or(known.filtering);
        let before = known.finding.map(|finding| finding.lifetime);
        let found = match end {
            Some(End::Known(lifetime)) => Some(lifetime),
            Some(End::NoAnswer) => None,
            // What was found before counts until this measurement has come as far.
            None => so_far.filter(|so_far| before.is_none_or(|before| before.is_shorter_than(*so_far))),
        };
        if let Some(lifetime) = found.filter(|found| before != Some(*found)) {
            known.finding = Some(Finding { by, at: now, lifetime });
        }
        match end {
            Some(End::Known(_)) => {
                known.from = now + (REPEAT << known.found.min(8)).min(LAST_REPEAT);
                known.found += 1;
            }
            Some(End::NoAnswer) => known.from = now + PAUSE,
            None => return,
        }
        self.stop();
    }

    /// Ends the measurement.
    fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            let token = running.key;
            self.outputs.extend([Output::Ignore { token }, Output::CloseSockets]);
        }
    }
}

/// The number of the test to which a sequence belongs.
const fn number(sequence: u32) -> u8 {
    sequence as u8
}

#[cfg(test)]
mod tests;
