//! The end of this node's own rights: what would end with them, and the record that ends them.

use std::sync::Arc;

use weft_noise::{Identity, PublicKey};
use weft_roster::changes::Again;
use weft_roster::key::RecordKey;
use weft_roster::record::{Body, Draft, Record};

use super::Network;
use crate::NetworkError;

/// Records that an error names, at most.
const NAMED: usize = 8;

impl Network {
    /// Fails if the network would lose something with the rights of this node, which is an administrator.
    /// `leaves`: its membership ends, too.
    pub(crate) fn check_resignation(&self, own: &PublicKey, leaves: bool, unix: u64) -> Result<(), NetworkError> {
        let admins = &self.state.admins;
        if self.has_only_admin(own) {
            return Err(NetworkError::OnlyAdmin(self.label_or_id()));
        }
        let successor = admins.successor();
        if admins.is_founder(own) && successor.is_none() {
            return Err(NetworkError::NoSuccessor(self.label_or_id()));
        }
        if successor == Some(own) {
            let founder = admins.founder.as_ref().map(|founder| self.name_of(founder));
            return Err(NetworkError::StaysSuccessor(founder.unwrap_or_default()));
        }
        let resting = self.resting_on(own, leaves, unix);
        if resting.is_empty() {
            return Ok(());
        }
        let more = resting.len().saturating_sub(NAMED);
        let mut named = resting.into_iter().take(NAMED).collect::<Vec<String>>().join(", ");
        if more > 0 {
            named.push_str(&format!(" and {more} more"));
        }
        Err(NetworkError::RestsOnThis {
            what: named,
            own: self.name_of(own),
            on: self.who_removes(own),
            removes: if leaves { "member" } else { "admin" },
        })
    }

    /// The records that end with the rights of this node, in words.
    fn resting_on(&self, own: &PublicKey, leaves: bool, unix: u64) -> Vec<String> {
        let matters = |record: &Arc<Record>| match record.key() {
            // Another administrator makes another one at once.
            RecordKey::Secret => false,
            RecordKey::Invite(invite) => self.state.open_invite(invite, unix).is_ok(),
            key => !(leaves && key.subject() == Some(own)),
        };
        let resting = self.set.resting_on(own).into_iter().filter(matters);
        let in_words = |record| {
            let again = Again {
                record,
                version: 0,
                ends: false,
            };
            self.in_words(&again)
        };
        resting.map(in_words).collect()
    }

    /// An administrator that can end the rights of this node, and sign again what rests on them.
    fn who_removes(&self, own: &PublicKey) -> String {
        let admins = &self.state.admins;
        let rank = admins.rank(own);
        let mut seniors = admins.of.iter().filter(|(key, admin)| {
            let heir = admins.is_founder(own) && admins.successor() == Some(*key);
            heir || rank.is_some_and(|own| admin.rank < own)
        });
        let senior = seniors
            .find(|(key, _)| self.is_member(key))
            .map(|(key, _)| self.name_of(key));
        senior.unwrap_or_else(|| "a more senior administrator".to_owned())
    }

    /// Signs the end of the rights of an administrator: of this node, of a junior, or of the founder as
    /// its successor.
    pub(crate) fn end_rights(
        &mut self,
        identity: &Identity,
        admin: &PublicKey,
        now: u64,
        unix: u64,
    ) -> Result<(), NetworkError> {
        let version = self.set.next_version(&RecordKey::Admin(*admin), &identity.public())?;
        let draft = Draft::new(self.id(), RecordKey::Admin(*admin), version, &Body::Plain);
        self.add(draft.removal().sign(identity, unix)?, now)
    }
}
