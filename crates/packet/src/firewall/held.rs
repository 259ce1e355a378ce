//! Later fragments that arrived before the first one of their packet, which has the ports and is
//! decided about.
//!
//! A peer can send later fragments of packets that have no first one. The store has a bound for all peers
//! together, which they share, and drops a fragment after [`HOLD`].

use std::collections::VecDeque;

use weft_contract::{Shares, bounds};
use weft_wire::NodeAddr;

use super::flow_key::FlowKey;

/// How long a fragment waits, in ms: longer than any two paths differ, or two lanes.
pub(super) const HOLD: u64 = 2_000;

/// A fragment that waits.
struct Fragment {
    since: u64,
    peer: NodeAddr,
    /// The key of all fragments of its packet.
    key: FlowKey,
    packet: Vec<u8>,
}

/// The fragments that wait; see the module.
pub(super) struct Held {
    /// The oldest first.
    fragments: VecDeque<Fragment>,
    shares: Shares<NodeAddr>,
}

impl Held {
    pub(super) const fn new() -> Self {
        Self {
            fragments: VecDeque::new(),
            shares: Shares::new(bounds::FRAGMENTS),
        }
    }

    /// Keeps a fragment. Returns the number of those that are given up: old ones, and this one or the
    /// newest of a peer that holds more than its share.
    pub(super) fn push(&mut self, now: u64, peer: NodeAddr, key: FlowKey, packet: &[u8]) -> u64 {
        let mut dropped = self.expire(now);
        while !self.shares.take(peer, packet.len()) {
            dropped += 1;
            let most = self.shares.displaces(peer, packet.len());
            if !most.is_some_and(|most| self.drop_newest(most)) {
                return dropped;
            }
        }
        self.fragments.push_back(Fragment {
            since: now,
            peer,
            key,
            packet: packet.to_vec(),
        });
        dropped
    }

    /// Removes the fragments of one packet that a peer has sent. Returns the number of old ones that are
    /// given up, too.
    pub(super) fn take(&mut self, now: u64, peer: NodeAddr, key: &FlowKey) -> (Vec<Vec<u8>>, u64) {
        let expired = self.expire(now);
        let is_of = |fragment: &Fragment| fragment.key == *key && fragment.peer == peer;
        if !self.fragments.iter().any(is_of) {
            return (Vec::new(), expired);
        }
        let (taken, left): (VecDeque<_>, VecDeque<_>) = self.fragments.drain(..).partition(is_of);
        self.fragments = left;
        for fragment in &taken {
            self.shares.give_back(peer, fragment.packet.len());
        }
        (taken.into_iter().map(|fragment| fragment.packet).collect(), expired)
    }

    fn expire(&mut self, now: u64) -> u64 {
        let old = |fragment: &mut Fragment| fragment.since + HOLD <= now;
        let mut count = 0;
        while let Some(fragment) = self.fragments.pop_front_if(old) {
            self.shares.give_back(fragment.peer, fragment.packet.len());
            count += 1;
        }
        count
    }

    fn drop_newest(&mut self, of: NodeAddr) -> bool {
        let at = self.fragments.iter().rposition(|fragment| fragment.peer == of);
        let newest = at.and_then(|at| self.fragments.remove(at));
        if let Some(fragment) = &newest {
            self.shares.give_back(of, fragment.packet.len());
        }
        newest.is_some()
    }
}
