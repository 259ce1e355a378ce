//! Networks that were founded with nvpn: the request of this node to come into one, and their lists, which it follows
//! and never signs.

use std::collections::BTreeMap;

use weft_contract::{Bucket, Rate};
use weft_noise::PublicKey;
use weft_nostr::event::{Event, Unverified};

use super::{Exchange, Held, ListError, Output, VERIFY};
use crate::control;
use crate::join::{JoinRefusal, Pending};
use crate::network_id::NetworkId;
use crate::secret::Secret;
use crate::shared_roster::{Refusal, SharedRoster};

/// Answers to the request of this node whose signature is verified, of all nodes. Each node has one in
/// [`VERIFY`] ms.
pub const ANSWERS: Rate = Rate {
    per_second: 4,
    burst: 8,
};

/// Lists of one network that was founded with nvpn which this node follows: each is stored, and may name other
/// members.
pub const FOLLOWS: Rate = Rate {
    per_second: 1,
    burst: 8,
};

/// The request of this node that waits for an answer.
#[derive(Debug)]
pub(super) struct Asking {
    pending: Pending,
    pub(super) until: u64,
    budget: Bucket,
    /// The nodes whose last answer was read a moment ago, and until when no further one is.
    seen: BTreeMap<PublicKey, u64>,
}

impl Asking {
    /// Takes one answer of a node out of the budgets.
    fn may_read(&mut self, now: u64, from: PublicKey) -> bool {
        self.seen.retain(|_, until| now < *until);
        let may = !self.seen.contains_key(&from) && self.budget.take(ANSWERS, now, 1) > 0;
        if may {
            self.seen.insert(from, now + VERIFY);
        }
        may
    }
}

impl Exchange {
    /// Begins to wait for the answer to a request of this node, or waits longer, until `until`; an earlier request
    /// ends. The first answer that [`Pending::accepts`] is an [`Output::Invited`], and ends it.
    pub fn await_answer(&mut self, now: u64, pending: Pending, until: u64) {
        let known = self.asking.take().filter(|known| known.pending == pending);
        self.asking = Some(match known {
            Some(known) => Asking { until, ..known },
            None => Asking {
                pending,
                until,
                budget: Bucket::new(ANSWERS, now),
                seen: BTreeMap::new(),
            },
        });
    }

    /// Returns the request of this node, while it waits for an answer.
    #[must_use]
    pub fn request(&self, now: u64) -> Option<&Pending> {
        let asking = self.asking.as_ref().filter(|asking| now < asking.until);
        asking.map(|asking| &asking.pending)
    }

    /// Holds the list of a network that was founded with nvpn. Devices get it, and later ones of its administrators
    /// replace it.
    pub fn hold_foreign(&mut self, event: &Event, list: &SharedRoster) {
        let known = self.lists.get(&list.network);
        if known.is_some_and(|held| held.foreign && held.event == *event) {
            return;
        }
        let held = Held {
            event: event.clone(),
            list: list.clone(),
            until: 0,
            insists: false,
            revision: None,
            foreign: true,
        };
        self.lists.insert(list.network.clone(), held);
    }

    /// Confirms a node that the list with this identifier is stored.
    pub fn confirm(&mut self, to: PublicKey, id: &[u8; 32]) {
        let bytes = control::join_roster_ack(id);
        self.out.push_back(Output::Document { to, bytes });
    }

    /// Handles the answer to a request of this node. One with a list that is held was stored before, and is
    /// confirmed again. `counted`: the document was taken out of the budget.
    pub(super) fn take_answer(
        &mut self,
        (now, unix): (u64, u64),
        from: PublicKey,
        (event, secret, counted): (Unverified, &Secret, bool),
    ) -> Result<(), ListError> {
        let mut stored = self.lists.values().filter(|held| held.foreign);
        if let Some(id) = stored.find(|held| event.is(&held.event)).map(|held| held.list.id) {
            self.confirm(from, &id);
            return Ok(());
        }
        let Some(asking) = &self.asking else { return Ok(()) };
        // The secret is compared first, because that costs less than a signature.
        if !asking.pending.secret.matches(secret.as_str()) {
            return Err(JoinRefusal::Secret.into());
        }
        if !counted && !self.may_answer(now, from) {
            return Err(ListError::TooOften);
        }
        let Some(asking) = &self.asking else { return Ok(()) };
        let event = event.verify()?;
        let list = SharedRoster::read(&event)?;
        asking.pending.accepts(&list, secret, unix)?;
        if let Some(held) = self.lists.get(&list.network) {
            list.supersedes(&held.list, unix)?;
        }
        self.asking = None;
        self.out.push_back(Output::Invited { by: from, event });
        Ok(())
    }

    /// Returns whether a document may have the secret of the request of this node, as its text is there.
    pub(super) fn has_secret(&self, now: u64, document: &[u8]) -> bool {
        let secret = self.request(now).map(|pending| pending.secret.as_str().as_bytes());
        secret.is_some_and(|secret| document.windows(secret.len().max(1)).any(|text| text == secret))
    }

    /// Takes an answer to the request of this node out of the budgets. Returns whether it is read.
    pub(super) fn may_answer(&mut self, now: u64, from: PublicKey) -> bool {
        let asking = self.asking.as_mut().filter(|asking| now < asking.until);
        asking.is_some_and(|asking| asking.may_read(now, from))
    }

    /// Follows a verified list of a network that was founded with nvpn. It replaces the one that is held if that one
    /// permits it, and this node undoes nothing of it.
    pub(super) fn follow_foreign(&mut self, unix: u64, event: Event, list: SharedRoster) -> Result<(), Refusal> {
        let Some(held) = self.lists.get_mut(&list.network).filter(|held| held.foreign) else {
            return Err(Refusal::Network);
        };
        list.supersedes(&held.list, unix)?;
        self.out.push_back(Output::Replaced { event: event.clone() });
        (held.event, held.list) = (event, list);
        Ok(())
    }

    /// Returns whether a network was founded with nvpn, by the list that is held.
    #[must_use]
    pub fn is_foreign(&self, network: &NetworkId) -> bool {
        self.lists.get(network).is_some_and(|held| held.foreign)
    }
}
