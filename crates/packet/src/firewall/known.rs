//! Flows that the host had before there was a table of them, as its kernel knows them.
//!
//! A packet says nothing about who began its flow. The kernel does: which sockets are connected, and which
//! end of a tracked connection it saw first.

use std::collections::BTreeMap;
use std::net::IpAddr;

use weft_contract::KnownFlows;
use weft_contract::rules::Policy;
use weft_wire::NodeAddr;

use super::flow_key::FlowKey;
use super::flows::FlowTable;
use crate::tables::Routes;

impl FlowTable {
    /// Makes flows known that packets have not begun yet: those between this node, or what is behind it,
    /// and a peer that has rules, or what is behind that. One that the peer began is decided about with
    /// its next packet.
    pub(super) fn remember(&self, now: u64, policy: &Policy, known: &KnownFlows) {
        let mut routes = Routes::new(policy.me());
        routes.set_subnets(&known.ours, &known.theirs);
        let nodes: BTreeMap<IpAddr, NodeAddr> = policy.peers().map(|peer| (peer.to_ipv6().into(), peer)).collect();
        for flow in &known.flows {
            let remote = flow.remote.ip();
            let peer = nodes.get(&remote).copied().or_else(|| routes.node_behind(remote));
            let peer = peer.filter(|peer| policy.knows(*peer) && !routes.is_ours(remote));
            if let Some(peer) = peer.filter(|_| routes.is_ours(flow.local.ip())) {
                let key = FlowKey::of_ends(flow.protocol, flow.local, flow.remote);
                self.enter(now, key, flow.by_peer.then_some(peer));
            }
        }
    }
}
