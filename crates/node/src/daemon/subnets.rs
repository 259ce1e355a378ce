//! Networks behind nodes: the networks that the lanes get, and the status of each peer's networks.

use std::collections::BTreeMap;
use std::net::IpAddr;

use weft_core::{Frames, Node, PeerStatus as CorePeer};
use weft_noise::PublicKey;
use weft_wire::Network;

use super::members::Members;
use super::routes::Obstacle;
use super::why::why_frames;
use crate::config::Config;
use crate::networks::Networks;
use crate::status::NetworksStatus;

/// Passes the addresses and subnets of this node, and those of its peers, to the core.
pub(super) fn tell(node: &mut Node, config: &Config, networks: &Networks, members: &Members) {
    let mut ours = config.own_networks();
    ours.extend(networks.own_ipv4().map(|address| Network::host(IpAddr::V4(address))));
    node.set_networks(ours, members.networks().collect());
}

/// The networks behind peers, and those of them that have no route.
#[derive(Default)]
pub(super) struct Subnets {
    peers: BTreeMap<PublicKey, Vec<Network>>,
    withheld: BTreeMap<Network, Obstacle>,
}

impl Subnets {
    pub(super) fn new(members: &Members, withheld: &BTreeMap<Network, Obstacle>) -> Self {
        let peers = members.iter().filter(|(_, row)| !row.networks.is_empty());
        Self {
            peers: peers.map(|(key, row)| (*key, row.networks.clone())).collect(),
            withheld: withheld.clone(),
        }
    }

    /// The status of the networks behind a peer; `None` if it has none.
    pub(super) fn status(&self, peer: &CorePeer) -> Option<NetworksStatus> {
        let networks = self.peers.get(&peer.key)?;
        let withheld = |network: &&Network| self.withheld.contains_key(network);
        let fast = peer.fast && matches!(peer.frames, Frames::Fast(_) | Frames::Relayed(_));
        let routed = networks.iter().any(|network| !withheld(&network));
        Some(NetworksStatus {
            list: networks.iter().map(ToString::to_string).collect(),
            pass: fast && peer.reads_full && routed,
            why: self.why(peer, fast, networks.iter().find(withheld)),
            unrouted: networks.iter().filter(withheld).map(ToString::to_string).collect(),
        })
    }

    fn why(&self, peer: &CorePeer, fast: bool, withheld: Option<&Network>) -> String {
        if peer.session_age.is_none() {
            return "no session with the peer; the first packet asks for one".to_owned();
        }
        if !fast {
            return format!("only fast frames carry them: {}", why_frames(peer.frames));
        }
        if !peer.reads_full {
            return "the peer does not read such packets; a later version of weft does".to_owned();
        }
        let obstacle = withheld.and_then(|network| Some((network, self.withheld.get(network)?)));
        match obstacle {
            Some((network, obstacle)) => format!("no route to {network}: {obstacle}"),
            None => "packets pass".to_owned(),
        }
    }
}
