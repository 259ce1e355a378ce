//! The peers that are configured: they are added, changed and removed while the node runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_contract::rules::{PeerRules, Policy};
use weft_contract::{FirstFlows, KnownFlows, TableCommand};
use weft_noise::PublicKey;
use weft_wire::{NodeAddr, Subnet};

use super::Node;
use crate::{Hint, PeerConfig, SessionDown};

impl Node {
    /// Adds a peer, or changes the addresses of a known one. The node's own key is ignored.
    pub fn add_peer(&mut self, now: u64, peer: &PeerConfig) {
        self.add(now, peer, true);
    }

    /// Adds a node that is linked and has a session for messages of services, and with which no IP
    /// packets pass. A peer stays a peer.
    pub fn add_contact(&mut self, now: u64, contact: &PeerConfig) {
        self.add(now, contact, false);
    }

    fn add(&mut self, now: u64, peer: &PeerConfig, packets: bool) {
        let addr = peer.key.node_addr();
        if addr == self.ctx.me {
            return;
        }
        if let Some(known) = self.peers.get_mut(&addr) {
            known.link.set_addresses(now, &peer.addresses);
            known.configured = true;
        } else {
            self.insert_peer(now, peer.key, &peer.addresses, true);
        }
        self.turned_away.forget(&peer.key);
        let guest = self.peers.get_mut(&addr).and_then(|peer| peer.guest.take());
        if packets {
            self.ctx.lane(TableCommand::AllowPeer { peer: addr });
        }
        self.expect(addr);
        if guest.is_some_and(|guest| guest.apart) {
            self.neighbour_up(now, addr);
        }
        self.adopt(now, addr);
    }

    /// Handles a neighbour that has become a peer: its session may use the link at once.
    fn adopt(&mut self, now: u64, addr: NodeAddr) {
        if self.peers.get(&addr).is_some_and(|peer| peer.link.is_up()) {
            self.reroute_one(now, addr);
            self.note_progress(now, addr);
        }
    }

    /// Removes a peer: its session and its link end, and no IP packet passes any longer. The peer
    /// receives a disconnect. Where the mesh admits nodes that are not configured, it may link
    /// again as one of them. Returns `false` if the key belongs to no configured peer.
    pub fn remove_peer(&mut self, now: u64, key: &PublicKey) -> bool {
        let addr = key.node_addr();
        let Some(peer) = self.peers.get_mut(&addr).filter(|peer| peer.configured) else {
            return false;
        };
        let was_up = peer.link.is_up();
        peer.configured = false;
        peer.session.take_down(&mut self.ctx, SessionDown::Removed);
        self.counters.services_dropped += peer.session.drop_services();
        peer.link.remove(&mut self.ctx, now);
        self.ctx.lane(TableCommand::DenyPeer { peer: addr });
        if was_up {
            self.neighbour_down(now, addr);
        }
        self.forget_strangers();
        true
    }

    /// Restricts data for this peer to fast frames, or allows other frames again. While a
    /// restricted peer has not agreed on fast frames, or the path to it takes none, data waits and
    /// is dropped in the end. A key that belongs to no peer is ignored.
    pub fn require_fast(&mut self, peer: &PublicKey, required: bool) {
        self.with_peer(peer.node_addr(), |ctx, p| p.session.require_fast(ctx, required));
    }

    /// Sets whether data to this peer goes through all uplinks of both ends at once, each flow through
    /// one. The peer has to want that, too. A key that belongs to no peer is ignored.
    pub fn set_bond(&mut self, now: u64, peer: &PublicKey, on: bool) {
        self.with_peer(peer.node_addr(), |ctx, p| p.link.set_bond(ctx, now, on));
    }

    /// Sets the subnets behind this node and behind peers; see [`TableCommand::SetSubnets`].
    /// Subnets have an effect once their node is a peer.
    pub fn set_subnets(&mut self, ours: Vec<Subnet>, theirs: Vec<(Subnet, NodeAddr)>) {
        self.ctx.lane(TableCommand::SetSubnets { ours, theirs });
    }

    /// Whether there are rules.
    #[must_use]
    pub const fn has_rules(&self) -> bool {
        self.has_rules
    }

    /// Applies rules to the IP packets of peers from now on, or none. With rules, packets of a peer
    /// that the map does not contain are dropped. Flows that the new rules allow go on. If there were no
    /// rules before, so do those that are `known`, if this host began them.
    pub fn set_rules(&mut self, rules: Option<BTreeMap<NodeAddr, PeerRules>>, known: KnownFlows) {
        let hash_key = self.ctx.rng.next_u64();
        let first = (rules.is_some() && !self.has_rules).then(|| Arc::new(FirstFlows { hash_key, known }));
        self.has_rules = rules.is_some();
        self.policies += 1;
        let policy = rules.map(|rules| Arc::new(Policy::new(self.ctx.me, self.policies, rules)));
        self.ctx.lane(TableCommand::SetPolicy { policy, first });
    }

    /// Records that data with this peer went in fast frames before this process began. The first
    /// agreement that fails is then an [`Event::FramesChanged`](crate::Event::FramesChanged).
    pub fn remember_fast(&mut self, peer: &PublicKey) {
        self.with_peer(peer.node_addr(), |_, p| p.session.remember_fast());
    }

    /// Records an address at which a peer was last seen, so that it is dialled there too.
    pub fn hint(&mut self, now: u64, peer: &PublicKey, hint: Hint) {
        let node = peer.node_addr();
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.link.hint(now, hint.at.into(), hint.source);
            self.expect(node);
        }
    }
}
