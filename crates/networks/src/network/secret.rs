//! The secret of a network, as one of its administrators makes it.

use weft_noise::{Identity, PublicKey};
use weft_roster::key::RecordKey;
use weft_roster::record::{Body, Secret};

use super::Network;
use crate::{MemberChange, NetworkError};

/// How long the first administrator waits before it replaces a secret that is missing or known to a
/// removed node, in ms: the secret of the administrator that removed the node may be on its way. The
/// n-th one waits n times as long, so that one of them makes it.
const WAIT: u64 = 5_000;
/// The place from which on administrators do not wait longer.
const LAST_PLACE: usize = 8;
/// The pause behind a secret that could not be made, in ms.
const AGAIN: u64 = 60_000;

impl MemberChange {
    /// Whether a node loses rights, so that the network needs another secret.
    pub(crate) const fn takes_rights(&self) -> bool {
        matches!(self, Self::Remove | Self::ReplaceBy(_) | Self::RevokeAdmin)
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

    /// Replaces the secret. What made that necessary stands if it fails; the next attempt is after
    /// [`AGAIN`].
    pub(crate) fn replace_secret(&mut self, identity: &Identity, bytes: [u8; 32], (now, unix): (u64, u64)) {
        if let Err(error) = self.write_secret(identity, bytes, (now, unix)) {
            tracing::info!(%error, network = %self.id(), "the secret of the network is not replaced");
            self.secret_due = Some(now + AGAIN);
        }
    }

    /// Whether `own` makes a secret at `now`.
    pub(crate) fn is_secret_due(&mut self, own: &PublicKey, now: u64) -> bool {
        let mut admins = self.state().admins.of.keys();
        let place = admins.position(|admin| admin == own).filter(|_| self.lacks_secret());
        let Some(place) = place else {
            self.secret_due = None;
            return false;
        };
        let wait = WAIT * (place.min(LAST_PLACE) as u64 + 1);
        *self.secret_due.get_or_insert(now + wait) <= now
    }
}
