//! Signatures that are verified apart from the synchronisation, on another thread.
//!
//! A message has hundreds of records, and each signature takes longer than all else that is done with its
//! record. [`Sync::unproven`] takes out what has to be verified, [`Unproven::verify`] does that anywhere, and
//! [`Sync::receive`] looks at no signature that it finds in [`Proven`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weft_noise::PublicKey;

use super::budget::EACH;
use super::{Message, Sync, SyncError, admission, entitled};
use crate::event::Unverified;
use crate::record::Record;
use crate::set::RecordSet;
use crate::state::State;

/// Records of a message whose signatures nothing has verified.
#[derive(Debug)]
pub struct Unproven {
    /// What says who has a say: the records about administrators.
    rights: RecordSet,
    events: Vec<Unverified>,
    charged: bool,
}

/// Records whose signatures hold.
#[derive(Debug, Default)]
pub struct Proven {
    records: BTreeMap<[u8; 32], Arc<Record>>,
    /// What is wrong with the one behind them.
    refused: Option<SyncError>,
    /// Whether the message has been taken from the share of its sender.
    pub(super) charged: bool,
}

impl Sync {
    /// Returns the records of a message that [`receive`](Self::receive) would verify; `None` if there are none, or if
    /// it would refuse the message.
    #[must_use]
    pub fn unproven(
        &mut self,
        from: &PublicKey,
        bytes: &[u8],
        (set, state): (&RecordSet, &State),
        now: u64,
    ) -> Option<Unproven> {
        let heard = entitled(state, from) || state.admins.heads.contains(from);
        let may_send = heard || !entitled(state, &self.own);
        if !may_send {
            return None;
        }
        let Ok(Message::Records { records, .. }) = Message::decode(bytes) else {
            return None;
        };
        let known: BTreeSet<&[u8; 32]> = set.records().map(|record| record.id()).collect();
        let events = records.iter().map_while(|json| Unverified::read(json.as_bytes()).ok());
        let events: Vec<Unverified> = events.filter(|event| !known.contains(event.id())).collect();
        if !admission::any_has_a_say(set, &events) {
            return None;
        }
        // Messages that are dropped before the synchronisation count as well.
        let peer = self.peers.get_mut(from);
        let charged = peer.map(|peer| peer.receive.take(bytes.len() + EACH, now));
        if charged == Some(false) {
            return None;
        }
        let mut rights = RecordSet::new(set.network());
        let about_rights = set.records().filter(|record| record.key().is_about_rights());
        rights.insert_all(&about_rights.cloned().collect::<Vec<_>>());
        Some(Unproven {
            rights,
            events,
            charged: charged.is_some(),
        })
    }
}

impl Unproven {
    /// Verifies signatures, up to the first that does not hold. It takes some 100 us for each.
    #[must_use]
    pub fn verify(mut self) -> Proven {
        let mut taken = Vec::new();
        let outcome = admission::take(&mut self.rights, self.events, &Proven::default(), &mut taken);
        Proven {
            records: taken.into_iter().map(|(record, _)| (*record.id(), record)).collect(),
            refused: outcome.err(),
            charged: self.charged,
        }
    }
}

impl Proven {
    /// Returns the record that an event is, if its signature was verified.
    ///
    /// # Errors
    /// [`SyncError`] about the record that ended the verification, for one that was not verified then.
    pub(super) fn get(&self, event: &Unverified) -> Result<Option<&Arc<Record>>, SyncError> {
        let verified = self.records.get(event.id()).filter(|record| event.is(record.event()));
        match self.refused {
            Some(error) if verified.is_none() => Err(error),
            _ => Ok(verified),
        }
    }
}
