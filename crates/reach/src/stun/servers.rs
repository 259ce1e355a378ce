//! Which STUN servers are asked, and when.
//!
//! A server is asked once at the start, once after each change of this node's network, and every
//! [`INTERVAL`] while the answer is of use: while a peer is reached through others. Heartbeats of
//! links keep the mapping of a NAT alive, so that the interval follows from how soon the restart of a
//! router should be noticed, and a node without relayed peers asks nothing.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use rand_core::CryptoRng;

use super::client::{self, Client, Failure};
use super::message::{HEADER, TransactionId};

/// Milliseconds between two questions to a server that answers, while they are of use. A NAT keeps a
/// mapping for two minutes at least (RFC 4787, REQ-5).
pub const INTERVAL: u64 = 120_000;
/// Milliseconds until a server is asked again that has not answered; doubled with each further
/// failure.
pub const FIRST_PAUSE: u64 = 60_000;
/// The longest such pause, in milliseconds.
pub const LAST_PAUSE: u64 = 3_600_000;
/// Milliseconds between two questions to a server at least, however often the network changes.
pub const LEAST_INTERVAL: u64 = 2_000;
/// Addresses of one version of IP that are kept of a server, at most.
pub const ADDRESSES: usize = 8;

/// An effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// From now on, pass datagrams with these 16 bytes at offset 4 to [`Servers::handle_datagram`].
    Listen {
        /// The magic cookie and the transaction ID.
        token: [u8; 16],
    },
    /// No longer pass such datagrams.
    Ignore {
        /// The magic cookie and the transaction ID.
        token: [u8; 16],
    },
    /// Send this request from the node's ordinary socket.
    Send {
        /// To which server.
        to: SocketAddr,
        /// The request.
        datagram: [u8; HEADER],
    },
    /// The server sees the socket under this address.
    Seen {
        /// Which server.
        by: SocketAddr,
        /// The address.
        at: SocketAddr,
    },
    /// What the server said no longer counts: it stopped answering, or is no longer configured.
    Gone {
        /// Which server.
        by: SocketAddr,
    },
}

/// What is known of a server in one version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its name in [`Servers::set`].
    pub name: &'a str,
    /// The address in use.
    pub at: SocketAddr,
    /// What it said last, unless it failed since, and when.
    pub seen: Option<Answer>,
    /// Why the last question failed.
    pub failure: Option<Failure>,
    /// Whether an answer is awaited.
    pub asking: bool,
}

/// What a server said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Under which address it sees the socket.
    pub at: SocketAddr,
    /// When it said so.
    pub when: u64,
    /// The round trip in milliseconds, unless the request was sent more than once: then it is not
    /// known which one was answered.
    pub rtt: Option<u64>,
}

/// A server in one version of IP.
#[derive(Debug)]
struct Slot {
    /// The addresses of its name, the one in use first.
    addresses: Vec<SocketAddr>,
    transaction: Option<TransactionId>,
    asked: Option<u64>,
    seen: Option<Answer>,
    failure: Option<Failure>,
    failures: u32,
    /// When it is asked again if answers are of use.
    due: u64,
}

/// The configured servers, as a state machine. `now` is in milliseconds on a clock that never runs
/// backwards. After each call, [`Servers::poll_output`] is to be called until it returns `None`.
pub struct Servers {
    rng: Box<dyn CryptoRng + Send>,
    client: Client,
    /// By name, and whether it is IPv6.
    slots: BTreeMap<(String, bool), Slot>,
    wanted: bool,
    /// When the network changed last.
    changed: u64,
    outputs: VecDeque<Output>,
}

impl Servers {
    /// Makes the state without servers. `rng` draws transaction IDs.
    #[must_use]
    pub fn new(rng: Box<dyn CryptoRng + Send>) -> Self {
        Self {
            rng,
            client: Client::default(),
            slots: BTreeMap::new(),
            wanted: false,
            changed: 0,
            outputs: VecDeque::new(),
        }
    }

    /// Makes these the servers: each with its name and the addresses that the name has at present. A
    /// server that answers stays in use whatever addresses its name has next, so that lists which
    /// rotate bring no new servers; one that fails gives way to the next address.
    pub fn set(&mut self, now: u64, servers: &[(String, Vec<SocketAddr>)]) {
        let gone = |name: &String| !servers.iter().any(|(kept, _)| kept == name);
        let removed: Vec<Slot> = self
            .slots
            .extract_if(.., |(name, _), _| gone(name))
            .map(|(_, slot)| slot)
            .collect();
        for mut slot in removed {
            slot.stop(&mut self.client, &mut self.outputs);
            if let Some(by) = slot.in_use().filter(|_| slot.seen.is_some()) {
                self.gone(by);
            }
        }
        for (name, addresses) in servers {
            for v6 in [false, true] {
                let of_version = addresses.iter().filter(|at| at.is_ipv6() == v6).copied();
                let of_version: Vec<_> = of_version.take(ADDRESSES).collect();
                if of_version.is_empty() {
                    continue;
                }
                match self.slots.get_mut(&(name.clone(), v6)) {
                    Some(slot) => slot.rename(of_version),
                    None => drop(self.slots.insert((name.clone(), v6), Slot::new(of_version))),
                }
            }
        }
        self.handle_timeout(now);
    }

    /// Says whether answers are of use.
    pub fn set_wanted(&mut self, now: u64, wanted: bool) {
        self.wanted = wanted;
        self.handle_timeout(now);
    }

    /// Handles a change of this node's network: each server is asked again, whether answers are of
    /// use or not.
    pub fn handle_network_change(&mut self, now: u64) {
        self.changed = now;
        for slot in self.slots.values_mut() {
            slot.failures = 0;
            // The question went out through the network before.
            slot.stop(&mut self.client, &mut self.outputs);
        }
        self.handle_timeout(now);
    }

    /// Asks each server again that was not asked within [`LEAST_INTERVAL`], whether answers are of use
    /// or not.
    pub fn refresh(&mut self, now: u64) {
        self.changed = now;
        self.handle_timeout(now);
    }

    /// Handles a datagram. Returns whether it was the response to a pending request: one with its
    /// transaction ID, from the server that was asked.
    pub fn handle_datagram(&mut self, now: u64, from: SocketAddr, bytes: &[u8]) -> bool {
        let taken = self.client.handle_datagram(from, bytes);
        self.follow_client(now);
        taken
    }

    /// Asks, asks again or gives up what is due.
    pub fn handle_timeout(&mut self, now: u64) {
        self.client.handle_timeout(now);
        self.follow_client(now);
        let (wanted, changed) = (self.wanted, self.changed);
        for slot in self.slots.values_mut() {
            if slot.next(wanted, changed).is_some_and(|at| at <= now) {
                slot.ask(now, &mut self.client, &mut *self.rng, &mut self.outputs);
            }
        }
        self.follow_client(now);
    }

    /// Returns when [`Servers::handle_timeout`] has something to do, and what.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(u64, &'static str)> {
        let slots = self.slots.values();
        let next = slots.filter_map(|slot| slot.next(self.wanted, self.changed));
        let next = next.map(|at| (at, "question to a STUN server"));
        next.chain(self.client.poll_timeout()).min()
    }

    /// Returns the next effect.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns what is known of each server.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.slots.iter().filter_map(|((name, _), slot)| {
            Some(Entry {
                name,
                at: slot.in_use()?,
                seen: slot.seen,
                failure: slot.failure,
                asking: slot.transaction.is_some(),
            })
        })
    }

    fn follow_client(&mut self, now: u64) {
        while let Some(output) = self.client.poll_output() {
            match output {
                client::Output::Send { to, datagram } => self.outputs.push_back(Output::Send { to, datagram }),
                client::Output::Seen { by, at } => self.ended(now, by, Ok(at)),
                client::Output::Failed { by, cause } => self.ended(now, by, Err(cause)),
            }
        }
    }

    fn ended(&mut self, now: u64, by: SocketAddr, result: Result<SocketAddr, Failure>) {
        let asked = |slot: &&mut Slot| slot.transaction.is_some() && slot.in_use() == Some(by);
        let Some(slot) = self.slots.values_mut().find(asked) else {
            return;
        };
        slot.stop(&mut self.client, &mut self.outputs);
        match result {
            Ok(at) => {
                slot.answered(now, at);
                self.outputs.push_back(Output::Seen { by, at });
            }
            Err(cause) => {
                if slot.failed(now, cause) {
                    self.gone(by);
                }
            }
        }
    }

    /// Takes back what a server said, unless it is known by another name as well.
    fn gone(&mut self, by: SocketAddr) {
        let same = |slot: &Slot| slot.in_use() == Some(by) && slot.seen.is_some();
        if !self.slots.values().any(same) {
            self.outputs.push_back(Output::Gone { by });
        }
    }
}

impl Slot {
    fn new(addresses: Vec<SocketAddr>) -> Self {
        Self {
            addresses,
            transaction: None,
            asked: None,
            seen: None,
            failure: None,
            failures: 0,
            due: 0,
        }
    }

    fn in_use(&self) -> Option<SocketAddr> {
        self.addresses.first().copied()
    }

    /// Takes the present addresses of the name. The one in use stays unless it has failed.
    fn rename(&mut self, addresses: Vec<SocketAddr>) {
        let in_use = self.transaction.is_some() || self.failure.is_none();
        let kept = self.in_use().filter(|_| in_use);
        let others = addresses.into_iter().filter(|at| Some(*at) != kept);
        self.addresses = kept.into_iter().chain(others).take(ADDRESSES).collect();
    }

    /// When it is asked next.
    fn next(&self, wanted: bool, changed: u64) -> Option<u64> {
        match self.asked {
            _ if self.transaction.is_some() => None,
            None => Some(0),
            Some(asked) if asked < changed => Some(asked + LEAST_INTERVAL),
            Some(_) => wanted.then_some(self.due),
        }
    }

    fn ask(&mut self, now: u64, client: &mut Client, rng: &mut (dyn CryptoRng + Send), outputs: &mut VecDeque<Output>) {
        let Some(at) = self.in_use() else { return };
        self.asked = Some(now);
        match client.ask(now, at, rng) {
            Ok(id) => {
                self.transaction = Some(id);
                outputs.push_back(Output::Listen { token: id.token() });
            }
            // Two names of one server, or more servers than are asked at a time.
            Err(_) => self.due = now + FIRST_PAUSE,
        }
    }

    fn answered(&mut self, now: u64, at: SocketAddr) {
        let asked = self.asked.unwrap_or(now);
        let rtt = Some(now.saturating_sub(asked)).filter(|rtt| *rtt < client::RTO);
        self.seen = Some(Answer { at, when: now, rtt });
        self.failure = None;
        self.failures = 0;
        self.due = now + INTERVAL;
    }

    /// Returns whether what it said before no longer counts.
    fn failed(&mut self, now: u64, cause: Failure) -> bool {
        let pause = FIRST_PAUSE << self.failures.min(6);
        self.failures = self.failures.saturating_add(1);
        self.failure = Some(cause);
        self.due = now + pause.min(LAST_PAUSE);
        self.addresses.rotate_left(1);
        self.seen.take().is_some()
    }

    /// Ends its transaction.
    fn stop(&mut self, client: &mut Client, outputs: &mut VecDeque<Output>) {
        if let Some(id) = self.transaction.take() {
            client.forget(id);
            outputs.push_back(Output::Ignore { token: id.token() });
        }
    }
}

#[cfg(test)]
#[path = "servers_tests.rs"]
mod tests;
