//! The state machine of one node at its relays: which are connected, what is published and asked for,
//! offers to peers that are not reached directly, and offers of peers. Sessions with peers carry offers
//! as well ([`Carrier`]).
//!
//! Events in, [`Output`]s out, no clock and no sockets. What a stranger sends costs a bounded share:
//! texts, decryptions and adverts have a budget for each relay, and decryptions one for all relays
//! together. Only what a peer has signed gets an answer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use rand_core::{CryptoRng, Rng};
use weft_noise::{Identity, PublicKey};
use weft_reach::rate::Bucket;

use crate::advert::Advert;
use crate::signal::{Own, SignalError};

mod adverts;
mod incoming;
mod offers;
mod peer;
mod relay;
mod seen;

use adverts::Adverts;
use peer::Peer;
use relay::Relay;
pub use relay::{Standing, State, Trouble};
use seen::Seen;

/// Relays of a node, at most.
pub const MAX_RELAYS: usize = 8;
/// Messages of all relays that are decrypted at once, and milliseconds until one more is.
pub const MESSAGES: (u64, u64) = (32, 100);
/// Offers that are made at once, and milliseconds until one more is.
pub const OFFERS: (u64, u64) = (8, 1_000);

/// The present time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds on a clock that never runs backwards, for intervals.
    pub ms: u64,
    /// Milliseconds since 1970, for what is signed.
    pub unix_ms: u64,
}

impl Now {
    /// Seconds since 1970.
    const fn unix_s(self) -> u64 {
        self.unix_ms / 1_000
    }
}

/// What carries an offer or an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// All relays that are connected.
    Relays,
    /// The session with the peer, which other nodes forward (session messages 0x16 and 0x17 of nvpn).
    Session,
}

/// An effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Connect to this relay, and report [`Rendezvous::handle_connected`] or
    /// [`Rendezvous::handle_disconnected`].
    Connect {
        /// Its place in the list of relays.
        relay: usize,
    },
    /// Send a text message to a relay that is connected.
    Send {
        /// Its place in the list of relays.
        relay: usize,
        /// The message.
        text: String,
    },
    /// Send a peer an offer or answer in the session with it.
    Signal {
        /// Which peer.
        peer: PublicKey,
        /// Whether it is an offer.
        offer: bool,
        /// The document, at most [`MAX_IN_SESSION`](crate::signal::MAX_IN_SESSION) bytes.
        text: String,
    },
    /// A peer advertises these addresses: hints for links over UDP.
    Advertised {
        /// Which peer.
        peer: PublicKey,
        /// Public addresses.
        at: Vec<SocketAddr>,
    },
    /// Send punch packets with this key to these addresses now: the peer does so, too.
    Punch {
        /// Which peer.
        peer: PublicKey,
        /// The last 16 bytes of the packets.
        key: [u8; 16],
        /// The addresses, at most [`MAX_TARGETS`](crate::signal::MAX_TARGETS).
        targets: Vec<SocketAddr>,
    },
}

/// What was refused or ignored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Texts of relays above their rate.
    pub hasty_texts: u64,
    /// Texts that are not read as messages of a relay.
    pub bad_texts: u64,
    /// Events that nothing asked for, or whose time is over.
    pub useless_events: u64,
    /// Events that came before, by another relay for instance.
    pub repeated_events: u64,
    /// Messages above the rate of their relay, or of all of them.
    pub hasty_messages: u64,
    /// Messages that cannot be decrypted, or are forged.
    pub bad_messages: u64,
    /// Messages of nodes that are not peers.
    pub strangers: u64,
    /// Documents that do not count, other than by their time.
    pub bad_signals: u64,
    /// Documents that are too old or from the future.
    pub stale_signals: u64,
    /// Offers and answers that came before.
    pub replayed_signals: u64,
    /// Offers above the rate of their peer.
    pub hasty_offers: u64,
    /// Offers that had to yield to one of this node.
    pub crossed_offers: u64,
    /// Adverts above the rate of their relay, wrong or forged ones, and old ones.
    pub bad_adverts: u64,
}

/// How the last exchange with a peer went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// An offer was sent, and no answer came yet.
    Offered,
    /// The peer has answered, or this node has answered the peer.
    Agreed,
    /// The peer answered that it has no address.
    Refused,
    /// An offer or answer of the peer did not count.
    Faulty(SignalError),
}

/// The state machine.
pub struct Rendezvous {
    identity: Arc<Identity>,
    rng: Box<dyn CryptoRng + Send>,
    relays: Vec<Relay>,
    own: Own,
    adverts: Adverts,
    peers: BTreeMap<PublicKey, Peer>,
    /// The peers with which a session carries offers.
    sessions: BTreeSet<PublicKey>,
    /// When an offer to a peer is due.
    due: BTreeSet<(u64, PublicKey)>,
    offers: Bucket,
    messages: Bucket,
    seen_events: Seen<[u8; 32]>,
    seen_sessions: Seen<(PublicKey, String)>,
    outputs: VecDeque<Output>,
    counts: Counts,
}

impl Rendezvous {
    /// Makes the state of a node with so many relays, of which the first [`MAX_RELAYS`] count. None is
    /// connected, and it has no peers. `rng` is the source of all randomness.
    #[must_use]
    pub fn new(identity: Arc<Identity>, relays: &[String], rng: Box<dyn CryptoRng + Send>) -> Self {
        let relays = first(relays);
        Self {
            identity,
            rng,
            relays: relays.iter().map(|_| Relay::new()).collect(),
            own: Own::default(),
            adverts: Adverts::new(relays.to_vec()),
            peers: BTreeMap::new(),
            sessions: BTreeSet::new(),
            due: BTreeSet::new(),
            offers: Bucket::new(OFFERS.0, OFFERS.1),
            messages: Bucket::new(MESSAGES.0, MESSAGES.1),
            seen_events: Seen::default(),
            seen_sessions: Seen::default(),
            outputs: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Sets other relays, as at the start: none is connected. What earlier ones have of this node stays
    /// there until it expires.
    pub fn set_relays(&mut self, now: Now, relays: &[String]) {
        let relays = first(relays);
        self.relays = relays.iter().map(|_| Relay::new()).collect();
        self.adverts.set_relays(relays.to_vec());
        self.outputs
            .retain(|output| !matches!(output, Output::Connect { .. } | Output::Send { .. }));
        self.follow_wanted(now);
        self.drive(now);
    }

    /// Sets the addresses of this node that peers are told. Peers that are wanted get an offer if there
    /// were none before.
    pub fn set_own(&mut self, now: Now, own: Own) {
        let first = self.own.is_empty() && !own.is_empty();
        self.own = own;
        if first {
            self.offer_to_all(now);
        }
        self.drive(now);
    }

    /// Sets what this node advertises, or that it does not, as at the start. What was published is
    /// withdrawn then.
    pub fn set_advert(&mut self, now: Now, advert: Option<Advert>) {
        self.adverts.set(now.ms, advert);
        self.drive(now);
    }

    /// Sets whose messages are answered, and which of these nodes have no direct link and are wanted.
    pub fn set_peers(&mut self, now: Now, peers: &BTreeMap<PublicKey, bool>) {
        self.peers.retain(|key, _| peers.contains_key(key));
        self.sessions.retain(|key| peers.contains_key(key));
        self.due.retain(|(_, key)| peers.contains_key(key));
        for (key, wanted) in peers {
            let peer = self.peers.entry(*key).or_insert_with(Peer::new);
            if let Some(due) = peer.want(now.ms, *wanted) {
                self.schedule(*key, due);
            }
        }
        self.follow_wanted(now);
        self.drive(now);
    }

    /// Sets whether a peer has no direct link and is wanted. A node that is not a peer changes nothing.
    pub fn set_wanted(&mut self, now: Now, key: &PublicKey, wanted: bool) {
        if let Some(due) = self.peers.get_mut(key).and_then(|peer| peer.want(now.ms, wanted)) {
            self.schedule(*key, due);
            self.follow_wanted(now);
            self.drive(now);
        }
    }

    /// Sets whether a session with a peer carries offers. A node that is not a peer changes nothing.
    pub fn set_session(&mut self, now: Now, key: &PublicKey, carries: bool) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        let changed = match carries {
            true => self.sessions.insert(*key),
            false => self.sessions.remove(key),
        };
        if !changed {
            return;
        }
        if carries && peer.wanted {
            peer.start_again();
            let due = peer.may_offer(now.ms);
            self.schedule(*key, Some(due));
        }
        self.drive(now);
    }

    /// A relay is connected.
    pub fn handle_connected(&mut self, now: Now, relay: usize) {
        let Some(state) = self.relays.get_mut(relay) else {
            return;
        };
        state.open(now.ms);
        self.greet(now, relay);
        self.offer_to_all(now);
        self.drive(now);
    }

    /// A relay is not connected any longer, or could not be. `why` is for people.
    pub fn handle_disconnected(&mut self, now: Now, relay: usize, why: &str) {
        if let Some(state) = self.relays.get_mut(relay) {
            state.close(now.ms, why);
        }
        self.drive(now);
    }

    /// The network of this host has changed: relays that are not connected are tried at once, and
    /// peers that are wanted get an offer.
    pub fn handle_network_change(&mut self, now: Now) {
        self.relays.iter_mut().for_each(|relay| relay.hurry(now.ms));
        self.offer_to_all(now);
        self.drive(now);
    }

    /// Performs what is due.
    pub fn handle_timeout(&mut self, now: Now) {
        self.drive(now);
    }

    /// Returns when [`Rendezvous::handle_timeout`] has something to do, in [`Now::ms`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let relays = self.relays.iter().filter_map(Relay::deadline);
        let offer = self.due.first().filter(|_| !self.own.is_empty());
        let offer = offer.map(|(at, _)| self.offers.next(*at));
        let adverts = self.is_open().then(|| self.adverts.deadline()).flatten();
        relays.chain(offer).chain(adverts).min()
    }

    /// Returns the next effect.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns what was refused or ignored.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns what is known about the relays, in the order of the list.
    pub fn relays(&self) -> impl Iterator<Item = &Standing> {
        self.relays.iter().map(Relay::standing)
    }

    /// Returns how the last exchange with a peer went.
    #[must_use]
    pub fn progress(&self, peer: &PublicKey) -> Option<Progress> {
        self.peers.get(peer)?.progress
    }

    /// Returns by how many ms the clock of a peer was ahead in the last exchange that told it.
    #[must_use]
    pub fn skew(&self, peer: &PublicKey) -> Option<i64> {
        self.peers.get(peer)?.skew
    }

    /// Whether a session with a peer carries offers.
    #[must_use]
    pub fn has_session(&self) -> bool {
        !self.sessions.is_empty()
    }

    fn is_open(&self) -> bool {
        self.relays.iter().any(Relay::is_open)
    }

    fn drive(&mut self, now: Now) {
        for (n, relay) in self.relays.iter_mut().enumerate() {
            if relay.connects(now.ms) {
                self.outputs.push_back(Output::Connect { relay: n });
            }
            if relay.asks_again(now.ms) {
                self.adverts.ask(now.ms);
            }
        }
        if self.is_open() {
            self.publish(now);
            self.ask(now);
        }
        self.send_offers(now);
    }

    fn send_to_all(&mut self, text: &str) {
        for (relay, _) in self.relays.iter().enumerate().filter(|(_, relay)| relay.is_open()) {
            let text = text.to_owned();
            self.outputs.push_back(Output::Send { relay, text });
        }
    }

    fn schedule(&mut self, key: PublicKey, at: Option<u64>) {
        let Some(peer) = self.peers.get_mut(&key) else { return };
        if let Some(before) = peer.next.take() {
            self.due.remove(&(before, key));
        }
        peer.next = at;
        self.due.extend(at.map(|at| (at, key)));
    }

    fn random(&mut self) -> u64 {
        self.rng.next_u64()
    }
}

/// The relays that count.
fn first(relays: &[String]) -> &[String] {
    relays.get(..MAX_RELAYS).unwrap_or(relays)
}
