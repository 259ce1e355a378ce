//! Changes that are undone: those that fail half-way, and those that cannot be saved.

use std::collections::BTreeMap;

use weft_noise::PublicKey;
use weft_roster::network_id::NetworkId;

use super::Networks;
use super::asked::Asked;
use super::requests::Requests;
use crate::Network;

/// The networks of a node before a change.
#[derive(Debug)]
pub struct Before {
    all: BTreeMap<NetworkId, Network>,
    out: Vec<(PublicKey, Vec<u8>)>,
    requests: Requests,
    asked: BTreeMap<PublicKey, Asked>,
    changed: bool,
}

impl Networks {
    /// The networks as they are, for [`undo`](Self::undo).
    #[must_use]
    pub fn before(&self) -> Before {
        Before {
            all: self.all.clone(),
            out: self.out.clone(),
            requests: self.requests.clone(),
            asked: self.asked.clone(),
            changed: self.changed,
        }
    }

    /// The networks that are not what they were, new ones among them: these have to be written. Those that
    /// have lost their records are not.
    pub fn changed_since(&self, before: &Before) -> impl Iterator<Item = &Network> {
        self.all
            .values()
            .filter(|network| !network.is_leaving() && !network.is_lost())
            .filter(|network| {
                let old = before.all.get(&network.id());
                old.is_none_or(|old| network.differs_from(old))
            })
    }

    /// The networks that were forgotten since, or are being left: what was written of them has to go.
    pub fn forgotten_since(&self, before: &Before) -> impl Iterator<Item = NetworkId> {
        let stays = |id: &&NetworkId| self.all.get(*id).is_some_and(|network| !network.is_leaving());
        before.all.keys().filter(move |id| !stays(id)).copied()
    }

    /// Makes the networks what they were before a change. Nothing of it has been sent. Those that were
    /// `written` since have to be written again.
    pub fn undo(&mut self, before: Before, written: &[NetworkId]) {
        (self.all, self.out, self.requests) = (before.all, before.out, before.requests);
        (self.asked, self.changed) = (before.asked, before.changed);
        // Revisions go back, and the next change reaches that of the one that is undone.
        self.generation += 1;
        // These come from elsewhere, and may have changed since.
        for network in self.all.values_mut() {
            network.set_offer(self.offer.clone());
        }
        for id in written {
            if let Some(network) = self.all.get_mut(id) {
                network.note_change();
            }
        }
    }
}
