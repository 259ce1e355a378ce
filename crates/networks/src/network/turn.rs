//! What one administrator of several has to do: each waits for those before it.

use weft_noise::PublicKey;

use super::Network;

/// How long the first administrator waits, in ms: what another one did may be on its way. The n-th one
/// waits n times as long, so that one of them acts.
const WAIT: u64 = 5_000;
/// The place from which on administrators do not wait longer.
const LAST_PLACE: usize = 8;
/// The pause behind an attempt, in ms, before the next one.
const AGAIN: u64 = 60_000;

/// When this node acts, if no administrator acts before.
#[derive(Debug, Clone, Default)]
pub(super) struct Turn(Option<u64>);

impl Turn {
    /// Whether the administrator of this place acts at `now`, in ms. Without a place there is nothing
    /// to do for it.
    pub(super) fn is_due(&mut self, place: Option<usize>, now: u64) -> bool {
        let Some(place) = place else {
            self.0 = None;
            return false;
        };
        let wait = WAIT * (place.min(LAST_PLACE) as u64 + 1);
        *self.0.get_or_insert(now + wait) <= now
    }

    /// Puts the next attempt off.
    pub(super) fn put_off(&mut self, now: u64) {
        self.0 = Some(now + AGAIN);
    }

    /// When this node acts, in ms.
    pub(super) fn at(&self) -> Option<u64> {
        self.0
    }
}

impl Network {
    /// Puts off what is due to `own` as an administrator.
    pub(crate) fn put_off_duties(&mut self, own: &PublicKey, now: u64) {
        if self.is_secret_due(own, now) {
            self.secret_turn.put_off(now);
        }
        if self.are_names_due(own, now) {
            self.put_off_names(now);
        }
    }

    /// The place of an administrator among all of them; `None` if `own` is none.
    pub(super) fn place_among_admins(&self, own: &PublicKey) -> Option<usize> {
        self.state.admins.of.keys().position(|admin| admin == own)
    }
}
