//! The end of this node's own rights: what would end with them, and the record that ends them.

use std::sync::Arc;

use weft_noise::{Identity, PublicKey};
use weft_roster::key::RecordKey;
use weft_roster::record::{Body, Draft, Record};

use super::Network;
use super::signed::{Demotion, SignedKind, list};
use crate::NetworkError;

impl Network {
    /// Fails if the network would lose something with the rights of this node, which is an administrator.
    /// `leaves`: its membership ends, too.
    pub(crate) fn check_resignation(&self, own: &PublicKey, leaves: bool, unix: u64) -> Result<(), NetworkError> {
        let admins = &self.state.admins;
        if leaves && self.state.members.keys().eq([own]) {
            return Err(NetworkError::OnlyMember(self.label_or_id()));
        }
        if self.has_only_admin(own) {
            return Err(NetworkError::OnlyAdmin(self.label_or_id()));
        }
        let successor = admins.successor();
        if admins.is_head(own) && successor.is_none() {
            return Err(NetworkError::NoSuccessor(self.label_or_id()));
        }
        if successor == Some(own) {
            let head = admins.head().map(|head| self.name_of(head));
            return Err(NetworkError::StaysSuccessor(head.unwrap_or_default()));
        }
        let (admin, by) = (own, own);
        let mut resting = self.signed_by(Demotion { admin, by, leaves }, unix);
        // Its own invites end with it: another administrator makes others.
        resting.retain(|signed| signed.kind != SignedKind::Invite);
        if resting.is_empty() {
            return Ok(());
        }
        Err(NetworkError::RestsOnThis {
            what: list(resting.into_iter().map(|signed| signed.what)),
            own: self.name_of(own),
            on: self.who_removes(own),
            removes: if leaves { "member" } else { "admin" },
            forced: if leaves {
                ", or leave with --force, which ends no rights"
            } else {
                ""
            },
        })
    }

    /// The record by which this node has ended its own rights.
    pub(crate) fn resignation(&self, own: &PublicKey) -> Option<&Arc<Record>> {
        let mut records = self.set.records();
        records.find(|record| record.resigns() && record.signer() == own)
    }

    /// An administrator that can end the rights of this node, and sign again what rests on them.
    fn who_removes(&self, own: &PublicKey) -> String {
        let admins = &self.state.admins;
        let rank = admins.rank(own);
        let mut seniors = admins.of.iter().filter(|(key, admin)| {
            let heir = admins.is_head(own) && admins.successor() == Some(*key);
            heir || rank.is_some_and(|own| admin.rank < own)
        });
        let senior = seniors
            .find(|(key, _)| self.is_member(key))
            .map(|(key, _)| self.name_of(key));
        senior.unwrap_or_else(|| "a more senior administrator".to_owned())
    }

    /// Signs the end of the rights of an administrator: of this node, of a junior, or of the head as its
    /// successor.
    pub(crate) fn end_rights(
        &mut self,
        identity: &Identity,
        admin: &PublicKey,
        now: u64,
        unix: u64,
    ) -> Result<(), NetworkError> {
        let end = self.sign_end(identity, admin, unix)?;
        self.add(end, now)
    }

    pub(super) fn sign_end(&self, identity: &Identity, admin: &PublicKey, unix: u64) -> Result<Record, NetworkError> {
        let version = self.set.next_version(&RecordKey::Admin(*admin), &identity.public())?;
        let draft = Draft::new(self.id(), RecordKey::Admin(*admin), version, &Body::Plain);
        Ok(draft.removal().sign(identity, unix)?)
    }
}
