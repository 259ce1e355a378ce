//! Where members are at present.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use weft_noise::{Identity, PublicKey};

use super::Network;
use crate::document::DocumentError;
use crate::presence::Presence;
use crate::presences::PresenceDigest;

impl Network {
    /// Takes presences that a member passed on. Returns whether any changed.
    pub(crate) fn take_presences(
        &mut self,
        from: PublicKey,
        presences: Vec<(Presence, u32)>,
        now: u64,
    ) -> Result<bool, DocumentError> {
        if !self.is_member(&from) {
            return Err(DocumentError::Unwanted);
        }
        let members = &self.state.members;
        let is_member = |key: &PublicKey| members.contains_key(key);
        Ok(self.presences.receive(&from, presences, is_member, now))
    }

    /// Takes the digest of a member.
    pub(crate) fn take_presence_digest(
        &mut self,
        from: PublicKey,
        digest: &PresenceDigest,
        now: u64,
    ) -> Result<(), DocumentError> {
        if !self.is_member(&from) {
            return Err(DocumentError::Unwanted);
        }
        self.presences.receive_digest(&from, digest, now);
        self.sync.join_digest(&from, &self.state, now);
        Ok(())
    }

    /// Sets the addresses of this node, which its members are told.
    pub(crate) fn set_own_addresses(&mut self, addresses: &[SocketAddr], now: u64, unix_ms: u64) {
        if !self.is_foreign() {
            self.presences.set_own(addresses, now, unix_ms);
        }
    }

    /// Performs what is due. Returns whether addresses of members are forgotten.
    pub(crate) fn follow_presences(&mut self, identity: &Identity, now: u64) -> bool {
        !self.is_foreign() && self.is_member(&identity.public()) && self.presences.handle_timeout(identity, now)
    }

    /// The presences with their ages in seconds, for the file.
    pub fn presences(&self, now: u64) -> impl Iterator<Item = (&Presence, u64)> {
        self.presences.all(now)
    }

    /// Takes a presence of the file, if it is one of a member.
    pub fn restore_presence(&mut self, presence: Presence, age: u64, now: u64) {
        if !self.is_foreign() && self.is_member(&presence.member) {
            self.presences.restore(presence, age, now);
        }
    }

    /// Whether presences have changed since they were last written.
    #[must_use]
    pub fn has_unsaved_presences(&self) -> bool {
        self.presences.is_unsaved()
    }

    pub(crate) fn note_presences_saved(&mut self) {
        self.presences.note_saved();
    }

    /// Members that are reachable get presences; this node is one of them.
    pub(super) fn set_presence_partners(&mut self, own: &PublicKey, reachable: &BTreeSet<PublicKey>, now: u64) {
        let partners = match self.is_member(own) {
            true => reachable
                .iter()
                .filter(|key| self.is_member(key) && *key != own)
                .copied()
                .collect(),
            false => BTreeSet::new(),
        };
        self.presences.set_partners(&partners, now);
    }

    pub(super) fn drop_presences(&mut self) {
        let members = &self.state.members;
        self.presences.retain(|key| members.contains_key(key));
    }
}
