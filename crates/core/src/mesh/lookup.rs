//! Look-ups: where in the tree is a node, and who leads there?
//!
//! FIPS fips-mesh-operation, "Discovery Protocol", as origin, transit and target, with the repairs of L9 to L11.
//!
//! - This file: what others see ([`View`], [`LookupOutput`]), and the door.
//! - `origin`: our own look-ups, their attempts, and the answers to them.
//! - `request`, `response`: what others ask and answer. `hops`: whom a request goes to.
//! - `recent`: requests seen lately. `answers`: what a neighbour may cost us. `message`: bytes and proofs.
//!
//! Nothing here says how packets are routed: a [`LookupOutput::Learned`] is a hint, and the caller, which keeps the
//! routes, decides what it is worth.

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

use weft_packet::Rate;
use weft_wire::NodeAddr;
use weft_wire::link::LinkMessageType;

use self::origin::Wanted;
use self::recent::RecentRequests;
use super::ground::Ground;

/// Attempts of one look-up.
pub(crate) const ATTEMPTS: usize = 4;
/// Coordinates with more entries are refused. One datagram announces about 35, so no tree is as deep.
pub(crate) const MAX_COORDS: usize = 64;

/// What look-ups must know of the node around them, as it is at this moment.
pub(crate) trait View {
    /// Our address.
    fn me(&self) -> NodeAddr;
    /// Our place in the tree, from us to the root: never empty, at most [`MAX_COORDS`].
    fn my_coords(&self) -> &[NodeAddr];
    /// Whether there is an authenticated link to this node.
    fn is_neighbour(&self, addr: &NodeAddr) -> bool;
    /// Those with an authenticated link, in an order that does not vary.
    fn neighbours(&self) -> impl Iterator<Item = NodeAddr>;
    /// Whether a neighbour is our parent or a child of ours.
    fn is_tree_peer(&self, addr: &NodeAddr) -> bool;
    /// Whether the neighbour's bloom filter has the destination.
    fn may_reach(&self, peer: &NodeAddr, dest: &NodeAddr) -> bool;
    /// Whether this neighbour, on the way to the node, does not answer right now.
    fn is_doubted(&self, peer: &NodeAddr, dest: &NodeAddr) -> bool {
        let _ = (peer, dest);
        false
    }
    /// The MTU of the link to a neighbour, bytes.
    fn link_mtu(&self, peer: &NodeAddr) -> u16;
    /// Whether we carry anything for others.
    fn transit(&self) -> bool;
    /// The neighbour that is next on the way to a destination, as far as is known.
    fn next_hop(&self, dest: &NodeAddr) -> Option<NodeAddr>;
}

/// What a look-up wants done, or has learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LookupOutput {
    /// A link message for a neighbour.
    Send {
        /// The neighbour.
        to: NodeAddr,
        /// [`LinkMessageType::LookupRequest`] or [`LinkMessageType::LookupResponse`].
        msg_type: u8,
        /// What follows the type.
        body: Vec<u8>,
    },
    /// The target of a look-up of ours answered, with a proof that holds.
    Found {
        /// Who answered.
        target: NodeAddr,
        /// Its place in the tree, from it to the root.
        coords: Vec<NodeAddr>,
        /// Smallest link MTU on the way, bytes. Not proven: any node on the way can lower it.
        path_mtu: u16,
        /// The neighbour that brought the answer.
        via: NodeAddr,
    },
    /// No attempt was answered.
    Failed {
        /// Who was sought.
        target: NodeAddr,
    },
    /// Who leads to a node, seen in passing (L11, "reply-learned routes").
    Learned {
        /// The node.
        dest: NodeAddr,
        /// The neighbour towards it.
        via: NodeAddr,
        /// Its place in the tree, from it to the root.
        coords: Vec<NodeAddr>,
        /// What that rests on.
        ground: Ground,
    },
}

/// How much look-ups may cost. Times are ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// How long each attempt waits for an answer. FIPS: 1, 2, 4, 8 s.
    pub(crate) attempts: [u64; ATTEMPTS],
    /// How long a request is remembered. FIPS: 10 s.
    pub(crate) window: u64,
    /// Requests remembered in all.
    pub(crate) recent: usize,
    /// Requests remembered of one neighbour.
    pub(crate) recent_per_neighbour: usize,
    /// Span in which only [`Limits::forwards`] requests of one origin for one target, by way of one neighbour, go on.
    /// FIPS: 2 s, by target alone, so that a node that asks often starves all others.
    pub(crate) forward_interval: u64,
    /// See [`Limits::forward_interval`]. Two, because the second attempt follows the first by 1 s.
    pub(crate) forwards: usize,
    /// Requests of one neighbour, and directed sends for them.
    pub(crate) requests: Rate,
    /// Sends for one neighbour that nothing directs. Apart, so that requests for nodes that do not exist leave room for
    /// those that filters can direct.
    pub(crate) undirected: Rate,
    /// Neighbours that one request goes to.
    pub(crate) fanout: usize,
    /// Look-ups of our own at a time.
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

/// What look-ups did, and what came in and led to nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LookupCounters {
    /// Look-ups of ours begun.
    pub(crate) started: u64,
    /// Look-ups of ours refused because too many are under way.
    pub(crate) refused: u64,
    /// Attempts of ours, each with its own request id.
    pub(crate) attempts: u64,
    /// Look-ups of ours that were answered.
    pub(crate) found: u64,
    /// Look-ups of ours that were not.
    pub(crate) failed: u64,
    /// Requests that we answered as their target.
    pub(crate) answered: u64,
    /// Requests that we passed on.
    pub(crate) forwarded: u64,
    /// Of these, those that went to neighbours whom nothing pointed to.
    pub(crate) undirected: u64,
    /// Requests seen before.
    pub(crate) duplicates: u64,
    /// Requests in our own name.
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
    /// Requests that no neighbour could take on.
    pub(crate) dead_ends: u64,
    /// Requests and responses that were not for us while we carry nothing for others.
    pub(crate) not_transit: u64,
    /// Responses that we passed back.
    pub(crate) relayed: u64,
    /// Of these, those that could not go back the way of the request.
    pub(crate) rerouted: u64,
    /// Responses with a proof that does not hold.
    pub(crate) forged: u64,
    /// Responses to us from a target whose key we do not know.
    pub(crate) unknown_key: u64,
    /// Responses that no request waits for.
    pub(crate) unsolicited: u64,
    /// Responses beyond what one request may bring.
    pub(crate) surplus: u64,
    /// Responses for which there is no way back.
    pub(crate) no_way_back: u64,
}

impl LookupCounters {
    /// All of them by name, in the order of the fields.
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

/// All look-ups of a node: its own, and what it does for those of others.
#[derive(Debug)]
pub(crate) struct Lookups {
    limits: Limits,
    wanted: Wanted,
    recent: RecentRequests,
    outputs: VecDeque<LookupOutput>,
    counters: LookupCounters,
}

impl Lookups {
    /// Nothing wanted, nothing seen.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            wanted: Wanted::default(),
            recent: RecentRequests::new(),
            outputs: VecDeque::new(),
            counters: LookupCounters::default(),
        }
    }

    /// The next effect. Drain it after each call.
    pub(crate) fn poll(&mut self) -> Option<LookupOutput> {
        self.outputs.pop_front()
    }

    /// When [`Lookups::handle_timeout`] should be called, and for what; `u64::MAX` for never.
    pub(crate) fn deadline(&self) -> (u64, &'static str) {
        let attempt = (self.wanted.deadline(), "look-up attempt");
        attempt.min((self.recent.purge_at(), "look-up requests to forget"))
    }

    /// What was done so far.
    pub(crate) fn counters(&self) -> LookupCounters {
        self.counters
    }

    /// Memory held, bytes, estimated.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.wanted.bytes()
            + self.recent.bytes()
            + self.outputs.capacity() * size_of::<LookupOutput>()
    }

    /// Checks that what is held is bounded and consistent.
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
