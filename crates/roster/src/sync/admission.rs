//! Which records of others are worth a look at their signature: those of signers that have a say.
//!
//! A key without rights signs what it likes, and each signature costs the reader more than the signer.
//! So a record is read, and dropped before it is verified, unless its signer is an administrator of the
//! records that are here. A record that is dropped by mistake, because the grant of its signer comes
//! later, is found by the next digest: both ends then agree about the grant, and not about the record.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_noise::PublicKey;

use super::{Proven, SyncError};
use crate::admins::Admins;
use crate::event::Unverified;
use crate::network_id::NetworkId;
use crate::record::Record;
use crate::set::{Insertion, RecordSet};

/// Takes records that have a say. They come to `taken`, each with whether it is new in the set. Signatures of
/// `proven` records are not verified again.
///
/// A record may give rights to the signer of another one, so those that have none are looked at again
/// as often as the administrators change.
///
/// # Errors
/// [`SyncError`] about the first record that is none, in front of which all are kept, or that finds no room.
pub(super) fn take(
    set: &mut RecordSet,
    mut waiting: Vec<Unverified>,
    proven: &Proven,
    taken: &mut Vec<(Arc<Record>, bool)>,
) -> Result<(), SyncError> {
    loop {
        let signers = Signers::of(set);
        let (wanted, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|event| signers.have_a_say(event));
        if wanted.is_empty() {
            set.counts_mut().without_rank += rest.len() as u64;
            return Ok(());
        }
        let mut outcome = Ok(());
        let mut records = Vec::new();
        for event in wanted {
            match prove(set, event, proven) {
                Ok(record) => records.push(record),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        let insertions = set.insert_all(&records);
        for (record, insertion) in records.into_iter().zip(insertions) {
            match insertion {
                Insertion::Refused(refusal) => outcome = outcome.and(Err(refusal.into())),
                insertion => taken.push((record, insertion == Insertion::Kept)),
            }
        }
        outcome?;
        waiting = rest;
    }
}

/// Verifies the signature of an event. Returns its record.
fn prove(set: &mut RecordSet, event: Unverified, proven: &Proven) -> Result<Arc<Record>, SyncError> {
    if let Some(record) = proven.get(&event)? {
        return Ok(Arc::clone(record));
    }
    set.counts_mut().verified += 1;
    Ok(Arc::new(Record::verify_of(set.network(), event)?))
}

/// Returns true if one of these records has a say.
pub(super) fn any_has_a_say(set: &RecordSet, events: &[Unverified]) -> bool {
    let signers = Signers::of(set);
    events.iter().any(|event| signers.have_a_say(event))
}

/// The keys whose records may count.
struct Signers {
    network: NetworkId,
    admins: Admins,
    /// The keys that have a rank, and those that had one.
    known: BTreeMap<[u8; 32], PublicKey>,
}

impl Signers {
    fn of(set: &RecordSet) -> Self {
        let admins = set.admins().clone();
        let keys = admins.of.keys().chain(&admins.resigned).chain(&admins.heads);
        let known = keys.map(|key| (*key.as_bytes(), *key)).collect();
        Self {
            network: set.network(),
            known,
            admins,
        }
    }

    fn have_a_say(&self, event: &Unverified) -> bool {
        let address = event.body().tag_value("d").and_then(|d| d.split_once('/'));
        let key = address.map(|(_, key)| key);
        let Some(signer) = self.known.get(event.pubkey()) else {
            return key == Some("network") && self.admins.founder.is_none() && self.founds(event);
        };
        if self.admins.rank(signer).is_some() {
            return true;
        }
        let removed = event.body().tag("removed").is_some();
        match key.map(str::parse) {
            Some(Ok(key)) => self.admins.counts_of_former(signer, &key, removed),
            _ => false,
        }
    }

    /// Returns true if an event would prove its signer to be the founder if its signature holds.
    fn founds(&self, event: &Unverified) -> bool {
        let nonce = event.body().tag_value("founder");
        let nonce = nonce.and_then(weft_nostr::hex::decode);
        nonce.is_some_and(|nonce| NetworkId::of_bytes(event.pubkey(), &nonce) == self.network)
    }
}
