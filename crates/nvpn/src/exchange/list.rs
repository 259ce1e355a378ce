//! The list of members that devices get: made of the records, and what becomes of another one.

use thiserror::Error;
use weft_contract::Bucket;
use weft_noise::{Identity, PublicKey};
use weft_nostr::event::{Event, EventError, Unverified};
use weft_roster::membership::{self, MembershipError};
use weft_roster::state::State;

use super::{EDITS, Edit, Exchange, FOLLOWS, Left, MAX_FRAME, Output, RIVAL, VERIFY};
use crate::control::{self, FrameError};
use crate::join::JoinRefusal;
use crate::network_id::NetworkId;
use crate::shared_roster::{Refusal, RosterError, SharedRoster};

/// By how many seconds the time of a list that this node signs may be ahead of its clock: half of what nvpn
/// accepts.
pub(super) const MAX_SIGNED_AHEAD: u64 = 300;

/// The reason why a document is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ListError {
    /// The document is not a control frame, or one of an unknown kind.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The device has sent another list a moment ago.
    #[error("the device sends lists of members too often")]
    TooOften,
    /// The identifier or the signature of the list is wrong.
    #[error("the list of members: {0}")]
    Event(#[from] EventError),
    /// The event is not a list of members.
    #[error(transparent)]
    Roster(#[from] RosterError),
    /// The list does not count.
    #[error("the list of members is refused: {0}")]
    Refused(#[from] Refusal),
    /// The list does not answer the request of this node.
    #[error("the answer to the request to join is refused: {0}")]
    Answer(#[from] JoinRefusal),
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
    /// Whether its signer has put back what was undone. It stands until the records change.
    pub(super) insists: bool,
    /// The revision of the records that say the same, if that is known, or against which it stands.
    pub(super) revision: Option<u64>,
    /// Whether the network was founded with nvpn. Such a network has no records, and this node signs no lists of it.
    pub(super) foreign: bool,
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
    /// devices have one with a later time, or if there is none. `revision` is that of the records: with the same one
    /// they say the same. Returns whether it did.
    ///
    /// # Errors
    /// [`MembershipError`]
    pub fn sign(
        &mut self,
        network: &NetworkId,
        (state, revision): (&State, u64),
        signer: &Identity,
        (now, unix): (u64, u64),
    ) -> Result<bool, MembershipError> {
        if self.is_foreign(network) {
            return Ok(false);
        }
        let held = self.lists.get_mut(network);
        let floor = self.floors.get(network).copied();
        let is_newest = |held: &Held| floor.is_none_or(|floor| floor < held.list.signed_at);
        if held
            .as_deref()
            .is_some_and(|held| now < held.until || is_newest(held) && held.revision == Some(revision))
        {
            return Ok(false);
        }
        let stands =
            |held: &Held| held.insists || membership::is_same(&held.event.body().tags, &membership::tags(state));
        if let Some(held) = held.filter(|held| is_newest(held) && stands(held)) {
            held.insists = false;
            held.revision = Some(revision);
            return Ok(false);
        }
        let held = self.lists.get(network);
        let last = held.map(|held| held.list.signed_at).max(floor);
        if last.is_some_and(|last| last >= unix.saturating_add(MAX_SIGNED_AHEAD)) {
            return Ok(false);
        }
        let event = membership::event(state, signer, unix, last)?;
        if let Ok(list) = SharedRoster::read(&event) {
            let until = if floor.is_some() { now + RIVAL } else { 0 };
            self.floors.remove(network);
            let held = Held {
                event,
                list,
                until,
                insists: false,
                revision: Some(revision),
                foreign: false,
            };
            self.lists.insert(network.clone(), held);
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
        let of = (from, peer.network.clone());
        if event.is(&held.event) {
            self.shown.note(of, &held.list, unix);
            return Ok(());
        }
        if now < peer.verify_at {
            return Err(ListError::TooOften);
        }
        peer.verify_at = now + VERIFY;
        if held.foreign {
            let new = || Bucket::new(FOLLOWS, now);
            let budget = self.follows.entry(peer.network.clone()).or_insert_with(new);
            if budget.take(FOLLOWS, now, 1) == 0 {
                return Err(ListError::TooOften);
            }
        }
        let event = event.verify()?;
        let list = SharedRoster::read(&event)?;
        if held.foreign {
            return Ok(self.follow_foreign(unix, event, list)?);
        }
        let differs = !membership::is_same(&held.event.body().tags, &event.body().tags);
        let is_of_weft = membership::is_of_weft(&event.body().tags);
        let deposes = !is_of_weft && held.list.admins.contains(&self.own) && !list.admins.contains(&self.own);
        let refusal = match list.supersedes(&held.list, unix) {
            // Devices that have it would take no list of this node any longer.
            Ok(()) if deposes => Some(Refusal::Deposes),
            // Devices that have it take no other one of this second, so the next one is later. Of two such lists
            // one stays.
            Err(Refusal::Old) if list.signed_at == held.list.signed_at && differs && list.id > held.list.id => None,
            other => other.err(),
        };
        if let Some(refusal) = refusal {
            if list.network == held.list.network && refusal != Refusal::Signer {
                self.shown.note(of, &list, unix);
            }
            // The device may have it from a time when its signer was an administrator, and then takes later ones
            // alone.
            let is_near = (held.list.signed_at..unix.saturating_add(MAX_SIGNED_AHEAD)).contains(&list.signed_at);
            if is_near && (matches!(refusal, Refusal::Signer | Refusal::Deposes) || refusal == Refusal::Old && differs)
            {
                let floor = self.floors.entry(list.network).or_default();
                *floor = list.signed_at.max(*floor);
            }
            return Err(refusal.into());
        }
        let mut insists = false;
        // A list of another node of weft follows from its records, which are on their way.
        if differs && !is_of_weft {
            let new = || Bucket::new(EDITS, now);
            let budget = self.edits.entry(list.network.clone()).or_insert_with(new);
            let before = self.shown.of(&list.signer, &list.network);
            let edit = Edit::of(before, &held.list, &list, |wanted| budget.take(EDITS, now, wanted));
            insists = edit.left == Some(Left::Insists);
            let network = list.network.clone();
            self.out.push_back(Output::Edited { network, edit });
        }
        // One rival after the other puts the list of the records off no longer than one.
        let until = match differs {
            true if now < held.until => held.until,
            true => now + RIVAL,
            false => 0,
        };
        let network = list.network.clone();
        self.shown.note((list.signer, network.clone()), &list, unix);
        let held = Held {
            event,
            list,
            until,
            insists,
            revision: None,
            foreign: false,
        };
        self.lists.insert(network, held);
        Ok(())
    }

    /// Lets the next list replace the one that is held at once: the records say what they will say.
    pub fn end_rivalry(&mut self, network: &NetworkId) {
        if let Some(held) = self.lists.get_mut(network) {
            held.until = 0;
        }
    }
}
