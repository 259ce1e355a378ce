//! How this node leaves a network.
//!
//! A member forgets it. An administrator signs the end of its rights first, and forgets the network once
//! a member has that record.

use weft_noise::PublicKey;
use weft_roster::names::Name;
use weft_roster::network_id::NetworkId;
use weft_roster::sync::Message;

use super::Networks;
use crate::document::Document;
use crate::{Network, NetworkError};

/// How long the record that ends the rights of this node waits for a member to take it, in ms.
const FAREWELL: u64 = 3_000;

impl Networks {
    /// Leaves a network. The other members list this node until an administrator removes it. As an
    /// administrator, it stays in the network until [`take_left`](Self::take_left) says that its
    /// resignation has arrived or has waited long enough. `force`: it resigns from nothing, and leaves at
    /// once whatever that does to the network.
    ///
    /// # Errors
    /// [`NetworkError`], nothing is changed then.
    pub fn leave(&mut self, of: Option<&str>, force: bool, (now, unix): (u64, u64)) -> Result<NetworkId, NetworkError> {
        let mut all = self.all.keys();
        let id = match (of, all.next(), all.next()) {
            // Also one that has removed this node, or whose records are lost.
            (None, Some(only), None) => *only,
            (None, Some(_), Some(_)) => {
                let names: Vec<String> = self.in_order().map(Network::label_or_id).collect();
                return Err(NetworkError::Which(names.join(", ")));
            }
            _ => self.find(of)?,
        };
        self.changed = true;
        let own = self.own;
        match self.all.get_mut(&id) {
            Some(network) if network.is_admin(&own) && !force => {
                network.check_resignation(&own, true, unix)?;
                network.end_rights(&self.identity, &own, now, unix)?;
                network.leave_by(now + FAREWELL);
            }
            _ => drop(self.all.remove(&id)),
        }
        Ok(id)
    }

    /// The network that a document to `to` takes leave of: with it, a member has the resignation.
    #[must_use]
    pub fn farewell(&self, to: &PublicKey, document: &[u8]) -> Option<NetworkId> {
        let Ok(Document::Sync { network, message }) = Document::decode(document) else {
            return None;
        };
        let known = self
            .all
            .get(&network)
            .filter(|known| known.is_leaving() && known.is_member(to))?;
        let resignation = known.resignation(&self.own)?.event().to_json();
        match Message::decode(message) {
            Ok(Message::Records { records, .. }) => records.contains(&resignation).then(|| known.id()),
            _ => None,
        }
    }

    /// A document that takes leave of a network has arrived.
    pub fn note_farewell(&mut self, network: NetworkId) {
        if self.all.get(&network).is_some_and(Network::is_leaving) {
            self.forget(network, true);
        }
    }

    /// The networks that this node has left, each with whether a member has its resignation.
    pub fn take_left(&mut self) -> Vec<(NetworkId, bool)> {
        std::mem::take(&mut self.left)
    }

    /// Forgets the networks whose time to leave has come.
    pub(super) fn end_farewells(&mut self, now: u64) {
        let over = self
            .all
            .values()
            .filter(|network| network.leaves_at().is_some_and(|at| at <= now));
        let over: Vec<NetworkId> = over.map(Network::id).collect();
        for network in over {
            self.forget(network, false);
        }
    }

    fn forget(&mut self, network: NetworkId, told: bool) {
        self.all.remove(&network);
        self.left.push((network, told));
        self.changed = true;
    }
}

impl Network {
    /// Its name on this node, or its identifier.
    #[must_use]
    pub fn label_or_id(&self) -> String {
        self.label().map_or_else(|| self.id().to_string(), Name::to_string)
    }
}
