//! One peer of the exchange: what it said, and when it is told what.

use std::collections::BTreeSet;

use weft_contract::{Bucket, Rate};
use weft_noise::PublicKey;

use super::{FIRST_PING, Held, JOIN_AGAIN, Lists, PING, RARE_PING, REPEAT};
use crate::control::Capabilities;
use crate::network_id::NetworkId;

/// How many pings of a peer are sent before they become rare.
const FIRST_PINGS: u32 = 3;
/// Documents of one peer that are read.
const DOCUMENTS: Rate = Rate {
    per_second: 1,
    burst: 10,
};
/// When a document that found no room is sent again, in ms.
const RETRY: u64 = 5_000;

/// A member whose session agreed on no messages of weft.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// The networks that it and this node are members of.
    pub(super) networks: BTreeSet<NetworkId>,
    /// The one of these that it has named last, or the first one.
    pub(super) network: NetworkId,
    /// Whether it has shown to be a node of weft.
    pub(super) is_weft: bool,
    pings: u32,
    pub(super) next_ping: u64,
    /// The time in the last ping, in seconds since 1970.
    pinged: u64,
    /// The time in the ping whose answer a client waits for.
    pub(super) asked: Option<u64>,
    /// When its last control frame came; `None` before the first one.
    pub(super) heard: Option<u64>,
    pub(super) capabilities: Option<(Capabilities, u64)>,
    /// When it last got the capabilities of this node.
    pub(super) told: Option<u64>,
    /// The list that it last got, and when.
    pub(super) list: Option<([u8; 32], u64)>,
    /// Before this time none of its events is verified.
    pub(super) verify_at: u64,
    documents: Bucket,
}

impl Peer {
    pub(super) fn new(now: u64, networks: BTreeSet<NetworkId>, network: NetworkId) -> Self {
        Self {
            networks,
            network,
            is_weft: false,
            pings: 0,
            next_ping: now,
            pinged: 0,
            asked: None,
            heard: None,
            capabilities: None,
            told: None,
            list: None,
            verify_at: 0,
            documents: Bucket::new(DOCUMENTS, now),
        }
    }

    /// Makes another network that of the peer. It is told everything about it.
    pub(super) fn enter(&mut self, network: NetworkId) {
        if self.network != network {
            (self.network, self.list, self.told) = (network, None, None);
        }
    }

    /// Takes one document out of the budget of the peer.
    pub(super) fn may_read(&mut self, now: u64) -> bool {
        self.documents.take(DOCUMENTS, now, 1) > 0
    }

    /// Returns when the next ping is due, or `None` for a node of weft.
    pub(super) fn ping_due(&self) -> Option<u64> {
        (!self.is_weft).then_some(self.next_ping)
    }

    /// Notes that a ping is sent, and returns the time to put into it: each ping has one of its own.
    pub(super) fn ping(&mut self, now: u64, unix: u64) -> u64 {
        self.pings = self.pings.saturating_add(1);
        self.next_ping = now
            + match (self.heard, self.pings) {
                (Some(_), _) => PING,
                (None, 0..=FIRST_PINGS) => FIRST_PING,
                (None, _) => RARE_PING,
            };
        self.pinged = unix.max(self.pinged.saturating_add(1));
        self.pinged
    }

    /// Returns when the device is told the capabilities of this node; `None` for other peers.
    pub(super) fn capabilities_due(&self) -> Option<u64> {
        self.heard?;
        Some(self.told.map_or(0, |at| at + REPEAT))
    }

    /// Returns the list that the device is told, and when; `None` if there is none for it.
    pub(super) fn list_due<'l>(&self, lists: &'l Lists) -> Option<(u64, &'l Held)> {
        self.heard?;
        let held = lists.get(&self.network)?;
        let same = self.list.filter(|(id, _)| *id == held.list.id);
        Some((same.map_or(0, |(_, at)| at + REPEAT), held))
    }

    /// Notes that a document found no room: it is sent again soon.
    pub(super) fn put_off(&mut self, now: u64) {
        let at = (now + RETRY).saturating_sub(REPEAT);
        self.told = self.told.map(|_| at);
        self.list = self.list.map(|(id, _)| (id, at));
    }
}

/// A device that was removed.
#[derive(Debug, Clone)]
pub(super) struct Leaving {
    pub(super) until: u64,
    next: u64,
}

impl Leaving {
    pub(super) const fn new(now: u64, until: u64) -> Self {
        Self { until, next: now }
    }

    /// Returns the list that shows the device that it was removed, and when it gets it.
    pub(super) fn due<'l>(
        &self,
        (device, network): &(PublicKey, NetworkId),
        lists: &'l Lists,
    ) -> Option<(u64, &'l Held)> {
        let held = lists.get(network).filter(|held| !held.list.names(device))?;
        Some((self.next, held))
    }

    pub(super) fn note_told(&mut self, now: u64) {
        self.next = now + JOIN_AGAIN;
    }
}
