//! Which records of others are worth a look at their signature: those of signers that have a say.
//!
//! A key without rights signs what it likes, and each signature costs the reader more than the signer.
//! So a record is read, and dropped before it is verified, unless its signer is an administrator of the
//! records that are here. What is dropped by mistake, because the grant of its signer comes later, is
//! found by the next digest: both ends then agree about the grant, and not about the record.

use std::collections::BTreeSet;
use std::sync::Arc;

use weft_noise::PublicKey;

use super::SyncError;
use crate::event::Unverified;
use crate::key::RecordKey;
use crate::network_id::NetworkId;
use crate::record::Record;
use crate::set::{Insertion, RecordSet};

/// Takes records that have a say. Those that are new in the set come to `kept`.
///
/// A record may give rights to the signer of another one, so those that have none are looked at again
/// as often as the administrators change.
///
/// # Errors
/// [`SyncError`] about the first record that is none, or finds no room. Those before it are kept.
pub(super) fn take(
    set: &mut RecordSet,
    mut waiting: Vec<Unverified>,
    kept: &mut Vec<Arc<Record>>,
) -> Result<(), SyncError> {
    loop {
        let signers = Signers::of(set);
        let (wanted, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|event| signers.have_a_say(event));
        if wanted.is_empty() {
            set.counts_mut().without_rank += rest.len() as u64;
            return Ok(());
        }
        for event in wanted {
            set.counts_mut().verified += 1;
            let record = Arc::new(Record::verify_of(set.network(), event)?);
            match set.insert(&record) {
                Insertion::Kept => kept.push(record),
                Insertion::Known | Insertion::Older => {}
                Insertion::Refused(refusal) => return Err(refusal.into()),
            }
        }
        waiting = rest;
    }
}

/// The keys whose records may count.
struct Signers {
    network: NetworkId,
    /// Whether the founder is known.
    founded: bool,
    admins: BTreeSet<[u8; 32]>,
    /// Former administrators, whose own resignation counts.
    resigned: BTreeSet<[u8; 32]>,
    founder: Option<[u8; 32]>,
}

impl Signers {
    fn of(set: &RecordSet) -> Self {
        let admins = set.admins();
        let bytes = |key: &PublicKey| *key.as_bytes();
        Self {
            network: set.network(),
            founded: admins.founder.is_some(),
            admins: admins.of.keys().map(bytes).collect(),
            resigned: admins.resigned.iter().map(bytes).collect(),
            founder: admins.founder.as_ref().map(bytes),
        }
    }

    fn have_a_say(&self, event: &Unverified) -> bool {
        let signer = event.pubkey();
        if self.admins.contains(signer) {
            return true;
        }
        let address = event.body().tag_value("d").and_then(|d| d.split_once('/'));
        match address.map(|(_, key)| key) {
            Some("network") if self.founded => self.founder.as_ref() == Some(signer),
            Some("network") => self.founds(event),
            Some(key) if self.resigned.contains(signer) => {
                matches!(key.parse(), Ok(RecordKey::Admin(subject)) if subject.as_bytes() == signer)
            }
            _ => false,
        }
    }

    /// Whether an event would prove its signer to be the founder if its signature holds.
    fn founds(&self, event: &Unverified) -> bool {
        let nonce = event.body().tag_value("founder");
        let nonce = nonce.and_then(weft_nostr::hex::decode);
        nonce.is_some_and(|nonce| NetworkId::of_bytes(event.pubkey(), &nonce) == self.network)
    }
}
