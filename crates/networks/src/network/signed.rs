//! What an administrator has signed, and what of it stays when it is removed.
//!
//! A thief of its key may have signed a part of it: grants and invites first. So these end unless the
//! command names them, and the user sees all other records before this node signs them again.

use std::collections::BTreeSet;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use weft_noise::PublicKey;
use weft_roster::changes::{Again, Keep};
use weft_roster::key::RecordKey;
use weft_roster::record::Record;

use super::Network;
use crate::NetworkError;

/// Records that an error names, at most.
const NAMED: usize = 8;

/// A record that ends with the rights of an administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// What it is about, as text for the user.
    pub what: String,
    /// What becomes of it if the user names it or not.
    pub kind: SignedKind,
    record: Arc<Record>,
}

/// What a record is that ends with the rights of an administrator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignedKind {
    /// It makes a node an administrator, which it stays only by name.
    Rights,
    /// An open invite, which stays only by name.
    Invite,
    /// A member, a route, rules, or a removal.
    Rest,
}

/// What of the records of an administrator stays, in the words of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    /// Whether all stays but grants and invites.
    pub rest: bool,
    /// Names or npubs of administrators that stay.
    pub admins: Vec<String>,
    /// Beginnings of the keys of invites that stay.
    pub invites: Vec<String>,
    /// The mark of the list that the user has seen, from
    /// [`Networks::signed_by`](crate::Networks::signed_by).
    pub seen: Option<String>,
}

impl Signed {
    /// Whether it is about this key.
    pub(super) fn is_about(&self, key: &RecordKey) -> bool {
        self.record.key() == key
    }

    /// The same as a record that has ended.
    pub(super) fn ended(self) -> Again {
        Again {
            record: self.record,
            version: 0,
            ends: true,
        }
    }
}

impl Network {
    /// What ends with the rights of an administrator, other than what is about itself and the secret of
    /// the network.
    pub(crate) fn signed_by(&self, admin: &PublicKey, unix: u64) -> Vec<Signed> {
        let mut all = self.resting_on(admin, unix);
        all.retain(|signed| signed.record.key().subject() != Some(admin));
        all
    }

    /// What ends with the rights of an administrator, other than the secret of the network, which another
    /// one replaces.
    pub(super) fn resting_on(&self, admin: &PublicKey, unix: u64) -> Vec<Signed> {
        let signed = |record: Arc<Record>| {
            let kind = match record.key() {
                RecordKey::Secret => return None,
                RecordKey::Invite(invite) if self.state.open_invite(invite, unix).is_err() => return None,
                RecordKey::Invite(_) => SignedKind::Invite,
                RecordKey::Admin(_) if !record.removed() => SignedKind::Rights,
                _ => SignedKind::Rest,
            };
            let again = Again {
                record: Arc::clone(&record),
                version: 0,
                ends: false,
            };
            let what = self.in_words(&again, &self.state.names);
            Some(Signed { what, kind, record })
        };
        let mut all: Vec<Signed> = self.set.resting_on(admin).into_iter().filter_map(signed).collect();
        all.sort_by_key(|signed| match signed.kind {
            SignedKind::Rights => 0,
            SignedKind::Invite => 1,
            SignedKind::Rest => 2,
        });
        all
    }

    /// A mark of records, other than that of all other lists.
    pub(crate) fn mark(signed: &[Signed]) -> String {
        let ids: BTreeSet<&[u8; 32]> = signed.iter().map(|signed| signed.record.id()).collect();
        let hash = ids.into_iter().fold(Sha256::new(), Sha256::chain_update).finalize();
        hex::encode(&hash[..8])
    }

    /// Fails if the user has seen another list than there is now.
    pub(super) fn check_seen(&self, admin: &PublicKey, wish: Option<&Wish>, unix: u64) -> Result<(), NetworkError> {
        match wish.and_then(|wish| wish.seen.as_ref()) {
            Some(seen) if *seen != Self::mark(&self.signed_by(admin, unix)) => {
                Err(NetworkError::SignedMeanwhile(self.name_of(admin)))
            }
            _ => Ok(()),
        }
    }

    /// What stays of an administrator as the user wishes.
    ///
    /// # Errors
    /// [`NetworkError::Undecided`] without a wish where one is needed; others about the wish.
    pub(super) fn keep(&self, admin: &PublicKey, wish: Option<&Wish>, unix: u64) -> Result<Keep, NetworkError> {
        let signed = self.signed_by(admin, unix);
        let Some(wish) = wish else {
            let decides = |signed: &&Signed| signed.kind != SignedKind::Invite;
            return match signed.iter().find(decides) {
                None => Ok(Keep::default()),
                Some(_) => Err(NetworkError::Undecided {
                    name: self.name_of(admin),
                    what: list(signed.iter().map(|signed| signed.what.clone())),
                }),
            };
        };
        let mut keep = Keep {
            rest: wish.rest,
            ..Keep::default()
        };
        for named in &wish.admins {
            let key = self.known(named)?;
            let grants = |signed: &Signed| *signed.record.key() == RecordKey::Admin(key);
            if !signed
                .iter()
                .any(|signed| signed.kind == SignedKind::Rights && grants(signed))
            {
                return Err(NetworkError::NotGranted(
                    self.name_of(admin),
                    named.escape_debug().to_string(),
                ));
            }
            keep.admins.insert(key);
        }
        for prefix in &wish.invites {
            let begins = |signed: &Signed| match signed.record.key() {
                RecordKey::Invite(key) if hex::encode(key).starts_with(prefix) => Some(*key),
                _ => None,
            };
            let found = signed.iter().find_map(begins);
            keep.invites
                .insert(found.ok_or_else(|| NetworkError::NoInvite(prefix.escape_debug().to_string()))?);
        }
        Ok(keep)
    }
}

/// Some texts in a line, the first ones of many.
pub(super) fn list(all: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = all.collect();
    let mut text = all
        .iter()
        .take(NAMED)
        .map(String::as_str)
        .collect::<Vec<&str>>()
        .join(", ");
    if all.len() > NAMED {
        text.push_str(&format!(" and {} more", all.len() - NAMED));
    }
    text
}
