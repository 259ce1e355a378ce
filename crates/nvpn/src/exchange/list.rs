//! The list of members that devices get: made of the records, and what becomes of another one.

use thiserror::Error;
use weft_noise::{Identity, PublicKey};
use weft_nostr::event::{Event, EventError, Unverified};
use weft_roster::membership::{self, MembershipError};
use weft_roster::state::State;

use super::{Exchange, MAX_FRAME, Output, RIVAL, VERIFY};
use crate::control::{self, FrameError};
use crate::network_id::NetworkId;
use crate::shared_roster::{Refusal, RosterError, SharedRoster};

/// By how many seconds the time of a list that this node signs may be ahead of its clock. nvpn takes twice
/// as much, so a list of this node is no older than its rivals for ever.
pub(super) const MAX_SIGNED_AHEAD: u64 = 300;

/// The reason why a document is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ListError {
    /// It is no control frame that is understood.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The device has sent another list a moment ago.
    #[error("the device sends lists of members too often")]
    TooOften,
    /// The identifier or the signature of the list is wrong.
    #[error("the list of members: {0}")]
    Event(#[from] EventError),
    /// The event is no list of members.
    #[error(transparent)]
    Roster(#[from] RosterError),
    /// The list does not count.
    #[error("the list of members is refused: {0}")]
    Refused(#[from] Refusal),
}

/// A list that devices get.
#[derive(Debug, Clone)]
pub struct Held {
    /// The event.
    pub event: Event,
    /// What it says.
    pub list: SharedRoster,
    /// Until when no other list replaces it, in ms: it says something else than the records of this node, which
    /// may be older ones.
    pub(super) until: u64,
}

impl Held {
    /// Returns the frame with the list, unless it is too long for the readers.
    #[must_use]
    pub fn frame(&self) -> Option<Vec<u8>> {
        Some(control::roster(&self.list, &self.event)).filter(|bytes| bytes.len() <= MAX_FRAME)
    }
}

impl Exchange {
    /// Returns the list of a network that devices get.
    #[must_use]
    pub fn held(&self, network: &NetworkId) -> Option<&Held> {
        self.lists.get(network)
    }

    /// Signs the list of a network anew if the one that is held says something else than its records, if
    /// devices have one with a later time, or if there is none. Returns whether it did.
    ///
    /// # Errors
    /// [`MembershipError`]
    pub fn sign(
        &mut self,
        network: &NetworkId,
        state: &State,
        signer: &Identity,
        (now, unix): (u64, u64),
    ) -> Result<bool, MembershipError> {
        let held = self.lists.get(network);
        let floor = self.floors.get(network).copied();
        let says = |held: &Held| held.event.body().tags == membership::tags(state);
        let is_newest = |held: &Held| floor.is_none_or(|floor| floor < held.list.signed_at);
        if held.is_some_and(|held| now < held.until || is_newest(held) && says(held)) {
            return Ok(false);
        }
        let last = held.map(|held| held.list.signed_at).max(floor);
        if last.is_some_and(|last| last >= unix.saturating_add(MAX_SIGNED_AHEAD)) {
            return Ok(false);
        }
        let event = membership::event(state, signer, unix, last)?;
        if let Ok(list) = SharedRoster::read(&event) {
            let until = if floor.is_some() { now + RIVAL } else { 0 };
            self.floors.remove(network);
            self.lists.insert(network.clone(), Held { event, list, until });
        }
        Ok(true)
    }

    /// Handles a list that a device has. A newer one of an administrator is held: its time is the least that
    /// the next one must have.
    pub(super) fn take_list(
        &mut self,
        (now, unix): (u64, u64),
        from: PublicKey,
        event: Unverified,
    ) -> Result<(), ListError> {
        let Some(peer) = self.peers.get_mut(&from) else {
            return Ok(());
        };
        let Some(held) = self.lists.get(&peer.network) else {
            return Ok(());
        };
        if event.is(&held.event) {
            return Ok(());
        }
        if now < peer.verify_at {
            return Err(ListError::TooOften);
        }
        peer.verify_at = now + VERIFY;
        let event = event.verify()?;
        let list = SharedRoster::read(&event)?;
        let differs = held.event.body().tags != event.body().tags;
        match list.supersedes(&held.list, unix) {
            // Devices that have it take no other one of this second, so the next one is later.
            Err(Refusal::Old) if list.signed_at == held.list.signed_at && differs => {}
            Err(Refusal::Signer)
                if (held.list.signed_at..unix.saturating_add(MAX_SIGNED_AHEAD)).contains(&list.signed_at) =>
            {
                // The device may have it from a time when its signer was an administrator, and then takes later
                // ones alone.
                let floor = self.floors.entry(list.network).or_default();
                *floor = list.signed_at.max(*floor);
                return Err(Refusal::Signer.into());
            }
            other => other?,
        }
        if differs {
            self.out.push_back(Output::Rival { signer: list.signer });
        }
        let until = if differs { now + RIVAL } else { 0 };
        self.lists.insert(list.network.clone(), Held { event, list, until });
        Ok(())
    }
}
