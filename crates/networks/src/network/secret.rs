//! The secret of a network, as one of its administrators makes it.

use weft_noise::{Identity, PublicKey};
use weft_roster::key::RecordKey;
use weft_roster::record::{Body, Secret};

use super::Network;
use crate::{MemberChange, NetworkError};

impl MemberChange {
    /// Whether a node loses rights, so that the network needs another secret.
    pub(crate) const fn takes_rights(&self) -> bool {
        self.ends_membership() || matches!(self, Self::RevokeAdmin {})
    }

    /// Whether a node is a member no longer.
    pub(crate) const fn ends_membership(&self) -> bool {
        matches!(self, Self::Remove {} | Self::Replace { .. })
    }
}

impl Network {
    /// Signs the record of a secret. It follows the removals of the same command, so both go out in
    /// one message.
    pub(crate) fn write_secret(
        &mut self,
        identity: &Identity,
        bytes: [u8; 32],
        (now, unix): (u64, u64),
    ) -> Result<(), NetworkError> {
        let exclusions = self.state().exclusions();
        let body = Body::Secret(Secret { bytes, exclusions });
        self.write(identity, RecordKey::Secret, &body, now, unix)
    }

    /// Replaces the secret. If it fails, the reason for it remains, and a later attempt follows.
    pub(crate) fn replace_secret(&mut self, identity: &Identity, bytes: [u8; 32], (now, unix): (u64, u64)) {
        if let Err(error) = self.write_secret(identity, bytes, (now, unix)) {
            tracing::info!(%error, network = %self.id(), "the secret of the network is not replaced");
            self.secret_turn.put_off(now);
        }
    }

    /// Whether `own` makes a secret at `now`.
    pub(crate) fn is_secret_due(&mut self, own: &PublicKey, now: u64) -> bool {
        let place = self.place_among_admins(own).filter(|_| self.lacks_secret);
        self.secret_turn.is_due(place, now)
    }
}
