//! Flows that the host had before there was a table of them, as its kernel knows them.
//!
//! A packet says nothing about who began its flow. The kernel does: which sockets are connected, and which
//! end of a tracked connection it saw first.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use weft_wire::{NodeAddr, Subnet};

use super::Policy;
use super::flow_key::FlowKey;
use crate::tables::Routes;

/// A flow that the kernel knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownFlow {
    /// Its protocol, by its number.
    pub protocol: u8,
    /// Its end on this side; the port is 0 if the protocol has none.
    pub local: SocketAddr,
    /// Its other end.
    pub remote: SocketAddr,
    /// Whether the other end began it.
    pub by_peer: bool,
}

/// All that is known, with the addresses on both sides.
#[derive(Clone, Debug, Default)]
pub struct KnownFlows {
    /// The flows. Of two with the same ends the first counts.
    pub flows: Vec<KnownFlow>,
    /// The addresses of this node but that of its key, and the subnets behind it.
    pub ours: Vec<Subnet>,
    /// The subnets behind peers.
    pub theirs: Vec<(Subnet, NodeAddr)>,
}

impl Policy {
    /// Makes flows known that packets have not begun yet: those between this node, or what is behind it,
    /// and a peer that has rules, or what is behind that. One that the peer began is decided about with
    /// its next packet.
    pub fn remember(&self, now: u64, known: &KnownFlows) {
        let mut routes = Routes::new(self.me());
        routes.set_subnets(&known.ours, &known.theirs);
        let nodes: BTreeMap<IpAddr, NodeAddr> = self.peers().map(|peer| (peer.to_ipv6().into(), peer)).collect();
        for flow in &known.flows {
            let remote = flow.remote.ip();
            let peer = nodes.get(&remote).copied().or_else(|| routes.node_behind(remote));
            let peer = peer.filter(|peer| self.knows(*peer) && !routes.is_ours(remote));
            if let Some(peer) = peer.filter(|_| routes.is_ours(flow.local.ip())) {
                let key = FlowKey::of_ends(flow.protocol, flow.local, flow.remote);
                self.flows().enter(now, key, flow.by_peer.then_some(peer));
            }
        }
    }
}
