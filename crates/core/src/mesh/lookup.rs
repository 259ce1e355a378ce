//! Look-ups: the coordinates of a node, and the neighbour on the route to it.
//!
//! FIPS fips-mesh-operation, "Discovery Protocol", as origin, transit and target, with the repairs
//! of L9 to L11.
//!
//! - This file: the interface ([`View`], [`LookupOutput`]) and the entry point.
//! - `origin`: this node's own look-ups, their attempts, and the answers to them.
//! - `request`, `response`: the requests and answers of other nodes. `hops`: the neighbours that a
//!   request goes to.
//! - `recent`: requests received lately. `answers`: the budget of one neighbour. `message`: bytes
//!   and proofs.
//!
//! Nothing here routes packets: a [`LookupOutput::Learned`] is a hint, and the caller, which keeps
//! the routes, decides how to use it.

mod answers;
mod hops;
mod message;
mod origin;
mod recent;
mod request;
mod response;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::mem::size_of;

use weft_contract::Rate;
use weft_wire::NodeAddr;
use weft_wire::link::LinkMessageType;

use self::origin::Wanted;
use self::recent::RecentRequests;
use super::provenance::Provenance;

/// Attempts of one look-up.
pub(crate) const ATTEMPTS: usize = 4;
/// Coordinates with more entries are refused. One datagram announces about 35, so no tree is as
/// deep.
pub(crate) const MAX_COORDS: usize = 64;

/// The present state of the node around the look-ups.
pub(crate) trait View {
    /// Returns the address of this node.
    fn me(&self) -> NodeAddr;
    /// Returns the coordinates of this node, from itself to the root: never empty, at most
    /// [`MAX_COORDS`].
    fn my_coords(&self) -> &[NodeAddr];
    /// Whether there is an authenticated link to this node.
    fn is_neighbour(&self, addr: &NodeAddr) -> bool;
    /// Returns the nodes with an authenticated link, always in the same order.
    fn neighbours(&self) -> impl Iterator<Item = NodeAddr>;
    /// Whether a neighbour is the parent or a child of this node.
    fn is_tree_peer(&self, addr: &NodeAddr) -> bool;
    /// Whether the neighbour's Bloom filter contains the destination.
    fn may_reach(&self, peer: &NodeAddr, dest: &NodeAddr) -> bool;
    /// Whether this neighbour does not answer at present as the next hop to the node.
    fn is_doubted(&self, peer: &NodeAddr, dest: &NodeAddr) -> bool {
        let _ = (peer, dest);
        false
    }
    /// Returns the MTU of the link to a neighbour, in bytes.
    fn link_mtu(&self, peer: &NodeAddr) -> u16;
    /// Whether this node forwards for others.
    fn transit(&self) -> bool;
    /// Returns the next hop to a destination, as far as it is known.
    fn next_hop(&self, dest: &NodeAddr) -> Option<NodeAddr>;
}

/// An effect or a result of a look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LookupOutput {
    /// A link message for a neighbour.
    Send {
        /// The neighbour.
        to: NodeAddr,
        /// [`LinkMessageType::LookupRequest`] or [`LinkMessageType::LookupResponse`].
        msg_type: u8,
        /// The bytes that follow the type.
        body: Vec<u8>,
    },
    /// The target of a look-up of this node answered, with a valid proof.
    Found {
        /// The node that answered.
        target: NodeAddr,
        /// Its coordinates, from itself to the root.
        coords: Vec<NodeAddr>,
        /// Smallest link MTU on the path, in bytes. Not proven: any node on the path can lower it.
        path_mtu: u16,
        /// The neighbour that forwarded the answer.
        via: NodeAddr,
    },
    /// No attempt was answered.
    Failed {
        /// The node that was looked up.
        target: NodeAddr,
    },
    /// A route to a node, learned from a message in transit (L11, "reply-learned routes").
    Learned {
        /// The node.
        dest: NodeAddr,
        /// The neighbour on the route.
        via: NodeAddr,
        /// The node's coordinates, from itself to the root.
        coords: Vec<NodeAddr>,
        /// The evidence for that.
        provenance: Provenance,
    },
}

/// The costs that look-ups may cause. Times are ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// How long each attempt waits for an answer. FIPS: 1, 2, 4, 8 s.
    pub(crate) attempts: [u64; ATTEMPTS],
    /// How long a request is remembered. FIPS: 10 s.
    pub(crate) window: u64,
    /// Requests remembered in total.
    pub(crate) recent: usize,
    /// Requests remembered of one neighbour.
    pub(crate) recent_per_neighbour: usize,
    /// Interval in which only [`Limits::forwards`] requests of one origin for one target, through
    /// one neighbour, are forwarded. FIPS: 2 s, by target alone, so that a node that asks often
    /// starves all others.
    pub(crate) forward_interval: u64,
    /// See [`Limits::forward_interval`]. Two, because the second attempt follows the first by 1 s.
    pub(crate) forwards: usize,
    /// Rate of the requests of one neighbour, and of the directed sends for them.
    pub(crate) requests: Rate,
    /// Rate of the undirected sends for one neighbour. It is separate, so that requests for nodes
    /// that do not exist leave room for those that filters can direct.
    pub(crate) undirected: Rate,
    /// Maximum number of neighbours that one request goes to.
    pub(crate) fanout: usize,
    /// Maximum number of this node's own look-ups at a time.
    pub(crate) wanted: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            attempts: [1_000, 2_000, 4_000, 8_000],
            window: 10_000,
            recent: 8_192,
            recent_per_neighbour: 1_024,
            forward_interval: 2_000,
            forwards: 2,
            requests: Rate {
                per_second: 64,
                burst: 256,
            },
            undirected: Rate {
                per_second: 16,
                burst: 64,
            },
            fanout: 16,
            wanted: 256,
        }
    }
}

/// Counters of look-ups, and of received messages that had no effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LookupCounters {
    /// Own look-ups that were started.
    pub(crate) started: u64,
    /// Own look-ups that were refused because too many are in progress.
    pub(crate) refused: u64,
    /// Own attempts, each with its own request id.
    pub(crate) attempts: u64,
    /// Own look-ups that were answered.
    pub(crate) found: u64,
    /// Own look-ups that were not answered.
    pub(crate) failed: u64,
    /// Requests that this node answered as their target.
    pub(crate) answered: u64,
    /// Requests that this node forwarded.
    pub(crate) forwarded: u64,
    /// Of these, those sent to neighbours that neither a filter nor a route pointed to.
    pub(crate) undirected: u64,
    /// Requests that were received before.
    pub(crate) duplicates: u64,
    /// Received requests with this node's own address as origin.
    pub(crate) echoes: u64,
    /// Requests and responses that contradict themselves.
    pub(crate) malformed: u64,
    /// Requests beyond the rate of a neighbour.
    pub(crate) throttled: u64,
    /// Requests for which there was no room.
    pub(crate) full: u64,
    /// Requests whose origin asked for the same target a moment ago.
    pub(crate) too_soon: u64,
    /// Requests without a hop left.
    pub(crate) ttl_exhausted: u64,
    /// Requests that could be forwarded to no neighbour.
    pub(crate) dead_ends: u64,
    /// Requests and responses for other nodes while this node does not forward.
    pub(crate) not_transit: u64,
    /// Responses that this node forwarded.
    pub(crate) relayed: u64,
    /// Of these, those that could not take the path of the request in reverse.
    pub(crate) rerouted: u64,
    /// Responses with an invalid proof.
    pub(crate) forged: u64,
    /// Responses to this node from a target whose key is not known.
    pub(crate) unknown_key: u64,
    /// Responses that no request waits for.
    pub(crate) unsolicited: u64,
    /// Responses beyond the number that one request may cause.
    pub(crate) surplus: u64,
    /// Responses for which there is no route back.
    pub(crate) no_way_back: u64,
}

impl LookupCounters {
    /// Returns all counters with their names, in the order of the fields.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("lookups_started", self.started),
            ("lookups_refused", self.refused),
            ("lookups_attempts", self.attempts),
            ("lookups_found", self.found),
            ("lookups_failed", self.failed),
            ("lookups_answered", self.answered),
            ("lookups_forwarded", self.forwarded),
            ("lookups_undirected", self.undirected),
            ("lookups_duplicates", self.duplicates),
            ("lookups_echoes", self.echoes),
            ("lookups_malformed", self.malformed),
            ("lookups_throttled", self.throttled),
            ("lookups_full", self.full),
            ("lookups_too_soon", self.too_soon),
            ("lookups_ttl_exhausted", self.ttl_exhausted),
            ("lookups_dead_ends", self.dead_ends),
            ("lookups_not_transit", self.not_transit),
            ("lookups_relayed", self.relayed),
            ("lookups_rerouted", self.rerouted),
            ("lookups_forged", self.forged),
            ("lookups_unknown_key", self.unknown_key),
            ("lookups_unsolicited", self.unsolicited),
            ("lookups_surplus", self.surplus),
            ("lookups_no_way_back", self.no_way_back),
        ]
        .into_iter()
    }
}

/// All look-ups of a node: its own, and its part in those of others.
#[derive(Debug)]
pub(crate) struct Lookups {
    limits: Limits,
    wanted: Wanted,
    recent: RecentRequests,
    outputs: VecDeque<LookupOutput>,
    counters: LookupCounters,
}

impl Lookups {
    /// Returns a state without look-ups and requests.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            wanted: Wanted::default(),
            recent: RecentRequests::new(),
            outputs: VecDeque::new(),
            counters: LookupCounters::default(),
        }
    }

    /// Returns the next effect. The caller drains the effects after each call.
    pub(crate) fn poll(&mut self) -> Option<LookupOutput> {
        self.outputs.pop_front()
    }

    /// Returns when [`Lookups::handle_timeout`] should be called, and for what; `u64::MAX` for
    /// never.
    pub(crate) fn deadline(&self) -> (u64, &'static str) {
        let attempt = (self.wanted.deadline(), "look-up attempt");
        attempt.min((self.recent.purge_at(), "look-up requests to forget"))
    }

    /// Returns the counters.
    pub(crate) fn counters(&self) -> LookupCounters {
        self.counters
    }

    /// Returns the memory in use, in bytes, estimated.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.wanted.bytes()
            + self.recent.bytes()
            + self.outputs.capacity() * size_of::<LookupOutput>()
    }

    /// Checks that the state is bounded and consistent.
    ///
    /// # Errors
    ///
    /// The broken invariant, in words.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        self.wanted.check(&self.limits)?;
        self.recent.check(&self.limits)
    }

    fn send(&mut self, to: NodeAddr, msg_type: LinkMessageType, body: Vec<u8>) {
        self.outputs.push_back(LookupOutput::Send {
            to,
            msg_type: msg_type.to_byte(),
            body,
        });
    }
}
