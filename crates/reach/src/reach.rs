//! The state machine of one node.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use rand_core::{CryptoRng, Rng};
use weft_wire::NodeAddr;

use crate::attempt::Attempt;
use crate::budget::Budgets;
use crate::candidate::{Prefix, Refused, check, plain};
use crate::history::{End, Record, Source, Why};
use crate::message::{Candidate, Candidates};
use crate::nat::{Behaviour, Mappings};
use crate::own::{Noted, Observer, Own};
use crate::peer::{Peer, Standing};
use crate::probe::{Key, Probe};
use crate::rate::PerSecond;
use crate::search::{PAUSE, SOCKETS};

mod agreed;
mod datagrams;
mod messages;
mod searches;
mod starts;

/// Attempts that run at the same time.
pub(crate) const RUNNING: usize = 8;
/// Of these, the attempts that peers began.
pub(crate) const RUNNING_OF_PEERS: usize = 6;

/// Settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Probes a second, at most, for all attempts together; as many answers may be sent beside
    /// them.
    pub probes_per_second: usize,
    /// Sockets that a search may have opened, at most [`SOCKETS`](crate::SOCKETS); 0 for no searches
    /// from many sockets.
    pub sockets: u16,
    /// Whether ports of a peer's NAT may be searched for.
    pub search: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            probes_per_second: 150,
            sockets: SOCKETS,
            search: true,
        }
    }
}

/// An effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this message to the peer inside the session with it. It may get lost.
    Message {
        /// To which peer.
        peer: NodeAddr,
        /// The message, at most 627 bytes.
        body: Vec<u8>,
    },
    /// Send this datagram, a probe or the answer to one, from the node's ordinary UDP socket.
    Probe {
        /// To which address.
        to: SocketAddr,
        /// The datagram.
        datagram: [u8; Probe::LEN],
        /// Whether the budget of silent addresses covers the datagram: that is so if the address has not
        /// answered, and the datagram belongs to no search. The caller counts it with all else that it sends
        /// there, and calls [`Reach::handle_unsent`] if that is too much.
        counts: bool,
    },
    /// From now on, pass datagrams of 24 bytes that end in these 16 to [`Reach::handle_datagram`].
    Listen {
        /// The last 16 bytes.
        token: Key,
    },
    /// No longer pass such datagrams.
    Ignore {
        /// The last 16 bytes.
        token: Key,
    },
    /// Ask other nodes that are trusted in this, a few neighbours say, whether they see the peer at
    /// this IP address, and pass what they say to [`Reach::handle_seen`].
    Ask {
        /// About which peer.
        peer: NodeAddr,
        /// The address, which the peer has named.
        at: SocketAddr,
    },
    /// Open so many more UDP sockets, each with a port of its own and numbered from 0, for a search,
    /// and call [`Reach::handle_sockets`]. What they receive goes to
    /// [`Reach::handle_socket_datagram`] if it ends in a token that is listened for.
    OpenSockets {
        /// With which peer.
        peer: NodeAddr,
        /// How many, at most [`SOCKETS`](crate::SOCKETS).
        count: u16,
    },
    /// Send this datagram, a probe or the answer to one, from a socket of the search.
    ProbeFrom {
        /// The number of the socket.
        socket: u16,
        /// To which address.
        to: SocketAddr,
        /// The datagram.
        datagram: [u8; Probe::LEN],
        /// Whether the budget of silent addresses covers the datagram: that is so if the address has not
        /// answered, and the datagram belongs to no search. The caller counts it with all else that it sends
        /// there, and calls [`Reach::handle_unsent`] if that is too much.
        counts: bool,
    },
    /// A probe from a socket of the search was answered: the handshake of a link with the peer may
    /// be tried from that socket. It keeps its number for [`Reach::handle_socket_datagram`] until
    /// its token is ignored or more sockets are asked for.
    Adopt {
        /// Which peer.
        peer: NodeAddr,
        /// The number of the socket.
        socket: u16,
        /// The address of the peer.
        at: SocketAddr,
    },
    /// Close the sockets of the search, but one that was adopted.
    CloseSockets,
    /// A probe was answered from this address: the handshake of a link may be tried there.
    Found {
        /// Which peer.
        peer: NodeAddr,
        /// The address.
        at: SocketAddr,
        /// Where it comes from.
        source: Source,
    },
}

/// What was refused or ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Candidates and sources of probes that are not probed, by cause.
    pub refused: BTreeMap<Refused, u64>,
    /// Messages that could not be read, or came from nodes that are no peers.
    pub bad_messages: u64,
    /// Messages above the rate of a peer.
    pub hasty_messages: u64,
    /// Messages of an attempt that the peer has replaced.
    pub stale_messages: u64,
    /// Attempts of a peer above its rate.
    pub hasty_attempts: u64,
    /// Attempts of peers while too many run.
    pub busy: u64,
    /// Observations above their rate or number.
    pub refused_observations: u64,
    /// Datagrams that are no probe of an attempt.
    pub unknown_datagrams: u64,
    /// Probes of this node that came back.
    pub reflected: u64,
    /// Answers to probes that were not sent.
    pub unknown_acks: u64,
    /// Answers to probes that were not given, for want of rate or budget.
    pub unanswered: u64,
    /// Targets that were given up for want of a budget.
    pub over_budget: u64,
}

/// The state machine of one node: events in, [`Output`]s out, no clock and no sockets. `now` is in
/// milliseconds on any clock that never runs backwards.
///
/// After each event, [`Reach::poll_output`] is to be called until it returns `None`.
pub struct Reach {
    me: NodeAddr,
    rng: Box<dyn CryptoRng + Send>,
    own: Own,
    /// What peers were told last: addresses, and what this node's NATs are like.
    told: Vec<Candidate>,
    told_mappings: Mappings,
    peers: BTreeMap<NodeAddr, Peer>,
    /// The peers by their deadlines, but for those that have none.
    index: BTreeSet<(u64, NodeAddr)>,
    /// The peers whose attempts hold one of [`RUNNING`] places.
    running: BTreeSet<NodeAddr>,
    /// The peers whose attempts would begin if there were a place.
    waiting: BTreeMap<(u64, NodeAddr), Why>,
    /// The keys that are listened for.
    keys: BTreeMap<Key, NodeAddr>,
    budgets: Budgets,
    probes: PerSecond,
    acks: PerSecond,
    /// The number of the last probe.
    served: u64,
    config: Config,
    /// The peer whose ports are searched for, or for which sockets are open.
    searching: Option<NodeAddr>,
    /// Addresses that were searched lately, and when.
    searched: BTreeMap<Prefix, u64>,
    outputs: VecDeque<Output>,
    counts: Counts,
}

impl Reach {
    /// Makes the state of a node without addresses and peers. `rng` is the source of all randomness.
    #[must_use]
    pub fn new(me: NodeAddr, config: Config, rng: Box<dyn CryptoRng + Send>) -> Self {
        Self {
            me,
            rng,
            own: Own::default(),
            told: Vec::new(),
            told_mappings: Mappings::default(),
            peers: BTreeMap::new(),
            index: BTreeSet::new(),
            running: BTreeSet::new(),
            waiting: BTreeMap::new(),
            keys: BTreeMap::new(),
            budgets: Budgets::default(),
            probes: PerSecond::new(config.probes_per_second),
            acks: PerSecond::new(config.probes_per_second),
            served: 0,
            config,
            searching: None,
            searched: BTreeMap::new(),
            outputs: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Sets the addresses of this host's interfaces, with the port of the socket. Peers are told the
    /// first 16 that [`check`] passes.
    pub fn set_host(&mut self, now: u64, host: Vec<SocketAddr>) {
        self.own.set_host(host);
        self.follow_candidates(now);
    }

    /// Sets the addresses of this host that peers are not told. They are own ones all the same: no
    /// peer is looked for there, and no NAT is in front of a socket that is seen there.
    pub fn set_untold(&mut self, now: u64, untold: Vec<SocketAddr>) {
        self.own.set_untold(untold);
        self.follow_candidates(now);
    }

    /// Sets the addresses that gateways have mapped to the socket. Peers are told the first four that
    /// [`check`] passes.
    pub fn set_mapped(&mut self, now: u64, mapped: Vec<SocketAddr>) {
        self.own.set_mapped(mapped);
        self.follow_candidates(now);
    }

    /// Handles what a neighbour or a STUN server says: it sees the socket under this address. Peers
    /// are told at most four such addresses, and eight that are predicted from them.
    pub fn handle_observed(&mut self, now: u64, by: impl Into<Observer>, at: SocketAddr) {
        let at = plain(at);
        if let Err(cause) = check(at) {
            return self.count_refused(cause);
        }
        match self.own.observe(now, by.into(), at) {
            Noted::Yes => self.follow_candidates(now),
            Noted::Known => {}
            Noted::TooMany => self.counts.refused_observations += 1,
        }
    }

    /// Forgets what a neighbour or server said, since it may no longer be true.
    pub fn forget_observer(&mut self, now: u64, by: impl Into<Observer>) {
        self.own.forget(by.into());
        self.follow_candidates(now);
    }

    /// Says how a peer is reached. The first call for a node makes it a peer. Of a peer that became
    /// [`Standing::Relayed`], an attempt begins at once.
    pub fn set_peer(&mut self, now: u64, addr: NodeAddr, standing: Standing) {
        match standing {
            Standing::Gone => self.remove_peer(addr),
            Standing::Relayed => {
                let peer = self.peers.entry(addr).or_insert_with(Peer::new);
                if peer.direct {
                    peer.set_direct(now, false);
                }
            }
            Standing::Direct(at) => {
                let me = self.me;
                let peer = self.peers.entry(addr).or_insert_with(Peer::new);
                peer.see(now, me, at);
                let was_relayed = !peer.direct;
                peer.set_direct(now, true);
                self.stop_waiting(addr);
                if was_relayed {
                    self.end(now, addr, End::Direct);
                }
            }
        }
        self.advance(now, addr);
    }

    /// Handles a change of this node's network: NATs and routes may be others, so attempts begin
    /// again with all relayed peers.
    pub fn handle_network_change(&mut self, now: u64) {
        let relayed = self.peers.iter().filter(|(_, peer)| !peer.direct);
        for addr in relayed.map(|(addr, _)| *addr).collect::<Vec<_>>() {
            // What runs on the old network keeps no place from the attempt that follows.
            if self
                .peers
                .get(&addr)
                .is_some_and(|peer| peer.own_starts.next(now) <= now)
            {
                self.end(now, addr, End::Replaced);
            }
            self.begin_soon(now, addr, Why::Network);
        }
        self.start_waiting(now);
        self.send_probes(now);
    }

    /// Performs what is due.
    pub fn handle_timeout(&mut self, now: u64) {
        while let Some((_, addr)) = self.index.first().copied().filter(|(at, _)| *at <= now) {
            self.drive(now, addr);
            self.reindex(addr);
        }
        self.start_waiting(now);
        self.send_probes(now);
    }

    /// Returns when [`Reach::handle_timeout`] has something to do, and what.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(u64, &'static str)> {
        let indexed = self.index.first().and_then(|(at, addr)| {
            let what = self.peers.get(addr).map(|peer| peer.deadline().1);
            what.map(|what| (*at, what))
        });
        let probe = self.next_probe().map(|at| (self.probes.next(at), "probe"));
        indexed.into_iter().chain(probe).min()
    }

    /// Returns the next effect.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns what was tried with a peer: the attempt before and the present one.
    #[must_use]
    pub fn history(&self, addr: NodeAddr) -> Vec<Record> {
        let peer = self.peers.get(&addr);
        let last = peer.and_then(|peer| peer.last.clone());
        let present = peer.and_then(|peer| peer.attempt.as_ref()).map(Attempt::record);
        last.into_iter().chain(present).collect()
    }

    /// Returns when the next attempt with a peer begins that has none under way, in ms, as far as that is known.
    #[must_use]
    pub fn next_attempt(&self, addr: NodeAddr) -> Option<u64> {
        self.peers.get(&addr)?.next.map(|(at, _)| at)
    }

    /// Returns when the next search of ports with a peer may begin after the last one, in ms.
    #[must_use]
    pub fn next_search(&self, addr: NodeAddr) -> Option<u64> {
        self.peers.get(&addr)?.searched.map(|at| at + PAUSE)
    }

    /// Returns what peers are told.
    #[must_use]
    pub fn candidates(&self) -> &[Candidate] {
        &self.told
    }

    /// Returns what is known about the NATs of IPv4 or, if `v6`, of IPv6.
    #[must_use]
    pub fn nat(&self, v6: bool) -> Behaviour {
        self.own.behaviour(v6)
    }

    /// Returns the addresses of IPv4 or, if `v6`, of IPv6 under which observers see the socket, one for
    /// each of them.
    #[must_use]
    pub fn observed(&self, v6: bool) -> Vec<SocketAddr> {
        self.own.seen(v6)
    }

    /// Returns the public address of IPv4 that more than half of the observers see.
    #[must_use]
    pub fn outer(&self) -> Option<SocketAddr> {
        self.own.outer()
    }

    /// Returns the mappings of this node's NATs, as peers are told them.
    #[must_use]
    pub fn mappings(&self) -> Mappings {
        self.own.mappings()
    }

    /// Returns what a peer has said last about the NATs in front of it.
    #[must_use]
    pub fn peer_mappings(&self, addr: NodeAddr) -> Option<Mappings> {
        self.peers.get(&addr)?.mappings
    }

    /// Returns what was refused or ignored.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the number of places in the table of addresses that is bounded by
    /// [`budget::PLACES`](crate::budget::PLACES).
    #[must_use]
    pub fn places(&self) -> usize {
        self.budgets.places()
    }

    fn count_refused(&mut self, cause: Refused) {
        *self.counts.refused.entry(cause).or_default() += 1;
    }

    /// Sends this node's candidates to a peer with an attempt.
    fn tell(&mut self, addr: NodeAddr) {
        let Some((peer, attempt)) = self
            .peers
            .get(&addr)
            .and_then(|peer| Some((peer, peer.attempt.as_ref()?)))
        else {
            return;
        };
        let message = Candidates {
            token: attempt.own,
            echo: peer.theirs,
            mappings: self.own.mappings(),
            candidates: self.told.clone(),
        };
        let body = message.emit();
        self.outputs.push_back(Output::Message { peer: addr, body });
    }

    /// Puts a peer where its deadline is.
    fn reindex(&mut self, addr: NodeAddr) {
        if let Some(peer) = self.peers.get_mut(&addr) {
            let (at, _) = peer.deadline();
            self.index.remove(&(peer.indexed, addr));
            peer.indexed = at;
            if at != u64::MAX {
                self.index.insert((at, addr));
            }
            let holds = peer.attempt.as_ref().is_some_and(Attempt::holds_place);
            let _ = if holds {
                self.running.insert(addr)
            } else {
                self.running.remove(&addr)
            };
        }
    }

    /// What follows from an event of one peer.
    fn advance(&mut self, now: u64, addr: NodeAddr) {
        if self.peers.get(&addr).is_some_and(|peer| peer.deadline().0 <= now) {
            self.drive(now, addr);
        }
        self.reindex(addr);
        self.start_waiting(now);
        self.send_probes(now);
    }

    fn random(&mut self) -> u32 {
        self.rng.next_u32()
    }
}
