//! Subnets behind nodes: the status of those of each peer.

use std::collections::BTreeMap;

use weft_control::status::RoutesStatus;
use weft_core::{Frames, PeerStatus as CorePeer};
use weft_desired::members::Members;
use weft_desired::routes::Obstacle;
use weft_noise::PublicKey;
use weft_wire::Subnet;

use super::why::why_frames;

/// The subnets behind peers, and those of them that have no route.
#[derive(Default)]
pub(super) struct Subnets {
    peers: BTreeMap<PublicKey, Vec<Subnet>>,
    withheld: BTreeMap<Subnet, Obstacle>,
}

impl Subnets {
    pub(super) fn new(members: &Members, withheld: &BTreeMap<Subnet, Obstacle>) -> Self {
        let peers = members.iter().filter(|(_, row)| !row.subnets.is_empty());
        Self {
            peers: peers.map(|(key, row)| (*key, row.subnets.clone())).collect(),
            withheld: withheld.clone(),
        }
    }

    /// Returns the status of the subnets behind a peer; `None` if it has none. An nvpn device takes their packets in
    /// FIPS frames.
    pub(super) fn status(&self, peer: &CorePeer, is_device: bool) -> Option<RoutesStatus> {
        let subnets = self.peers.get(&peer.key)?;
        let withheld = |subnet: &&Subnet| self.withheld.contains_key(subnet);
        let obstacles = subnets.iter().filter_map(|subnet| self.withheld.get(subnet));
        let by_device = is_device && !peer.require_fast;
        let fast = by_device || peer.fast && matches!(peer.frames, Frames::Fast(_) | Frames::Relayed(_));
        let reads = by_device || peer.reads_full;
        let routed = subnets.iter().any(|subnet| !withheld(&subnet));
        Some(RoutesStatus {
            list: subnets.iter().map(ToString::to_string).collect(),
            pass: fast && reads && routed,
            why: self.why(peer, (fast, reads), subnets.iter().find(withheld)),
            unrouted: subnets.iter().filter(withheld).map(ToString::to_string).collect(),
            obstacles: obstacles.map(ToString::to_string).collect(),
        })
    }

    fn why(&self, peer: &CorePeer, (fast, reads): (bool, bool), withheld: Option<&Subnet>) -> String {
        if peer.session.is_none() {
            return "no session with the peer; the first packet asks for one".to_owned();
        }
        if !fast {
            return format!("only fast frames carry them: {}", why_frames(peer.frames));
        }
        if !reads {
            return "the peer does not read such packets; a later version of weft does".to_owned();
        }
        let obstacle = withheld.and_then(|subnet| Some((subnet, self.withheld.get(subnet)?)));
        match obstacle {
            Some((subnet, obstacle)) => format!("no route to {subnet}: {obstacle}"),
            None => "packets pass".to_owned(),
        }
    }
}
