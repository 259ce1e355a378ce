//! What an administrator has signed, and what of it stays when it is removed.
//!
//! A thief of its key may have signed a part of it: grants and invites first. So these end unless the
//! command names them, and the user sees all other records before this node signs them again.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use weft_noise::PublicKey;
use weft_roster::changes::{Again, Keep};
use weft_roster::key::RecordKey;
use weft_roster::record::{Body, Record};

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
    /// It is what the administrator has signed about its own membership, which does not end with its rights.
    of_itself: bool,
    record: Arc<Record>,
}

/// What a record is that ends with the rights of its signer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SignedKind {
    /// It makes a node an administrator, which it stays only if it is named.
    Rights,
    /// An open invite, which stays only if it is named.
    Invite,
    /// A member, a route, rules, or a removal.
    #[serde(other)]
    Rest,
}

/// What of the records of an administrator stays, in the words of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    /// All but administrators and invites: members, rules, routes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rest: bool,
    /// Names or npubs of the administrators that stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admins: Vec<String>,
    /// Beginnings of the keys of the invites that stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invites: Vec<String>,
    /// The mark of the list that the user has seen, from
    /// [`Networks::signed_by`](crate::Networks::signed_by). If there is another list now, the command is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
}

impl Signed {
    /// Whether it is about this key.
    pub(super) fn is_about(&self, key: &RecordKey) -> bool {
        self.record.key() == key
    }

    /// The same as a record that has ended.
    pub(super) fn ended(self) -> Again {
        told(self.record, self.of_itself, true)
    }
}

/// The end of the rights of an administrator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demotion<'a> {
    pub(crate) admin: &'a PublicKey,
    /// Who ends them.
    pub(crate) by: &'a PublicKey,
    /// Whether its membership ends, too, and all that is about it.
    pub(crate) leaves: bool,
}

impl Network {
    /// What ends with the rights of an administrator, other than the secret of the network, which another
    /// one replaces.
    pub(crate) fn signed_by(&self, demotion: Demotion<'_>, unix: u64) -> Vec<Signed> {
        let Demotion { admin, by, leaves } = demotion;
        let signed = |record: Arc<Record>| {
            let kind = match record.key() {
                RecordKey::Secret => return None,
                key if leaves && key.subject() == Some(admin) => return None,
                RecordKey::Invite(invite) if self.state.open_invite(invite, unix).is_ok() => SignedKind::Invite,
                // One that is closed stays so where another one signs it again.
                RecordKey::Invite(_) if by != admin || !self.opens_without(&record, demotion, unix) => return None,
                // The record that ends its own membership stays; the signer that ends its rights takes its own back.
                RecordKey::Member(member) if member == admin && record.removed() => return None,
                key if key.about() == Some(by) && record.removed() => return None,
                RecordKey::Admin(_) if !record.removed() => SignedKind::Rights,
                _ => SignedKind::Rest,
            };
            let of_itself = *record.key() == RecordKey::Member(*admin);
            let again = told(Arc::clone(&record), of_itself, false);
            let what = self.in_words(&again, &self.state.names);
            Some(Signed {
                what,
                kind,
                of_itself,
                record,
            })
        };
        let mut all: Vec<Signed> = self.set.resting_on(admin, by).into_iter().filter_map(signed).collect();
        all.sort_by_key(|signed| match signed.kind {
            SignedKind::Rights => 0,
            SignedKind::Invite => 1,
            SignedKind::Rest => 2,
        });
        all
    }

    /// Whether an invite that is closed has another record by which it would be open.
    fn opens_without(&self, closed: &Record, Demotion { admin, by, .. }: Demotion<'_>, unix: u64) -> bool {
        let record = self.set.in_force_without(closed.key(), admin, by);
        record.is_some_and(|record| match record.body() {
            Body::Invite(invite) => !record.removed() && invite.expires.is_none_or(|expires| unix <= expires),
            _ => false,
        })
    }

    /// A mark of records, other than that of all other lists.
    pub(crate) fn mark(signed: &[Signed]) -> String {
        let ids: BTreeSet<&[u8; 32]> = signed.iter().map(|signed| signed.record.id()).collect();
        let hash = ids.into_iter().fold(Sha256::new(), Sha256::chain_update).finalize();
        hex::encode(&hash[..8])
    }

    /// Fails if the user has seen another list than there is now.
    pub(super) fn check_seen(
        &self,
        demotion: Demotion<'_>,
        wish: Option<&Wish>,
        unix: u64,
    ) -> Result<(), NetworkError> {
        match wish.and_then(|wish| wish.seen.as_ref()) {
            Some(seen) if *seen != Self::mark(&self.signed_by(demotion, unix)) => {
                Err(NetworkError::SignedMeanwhile(self.name_of(demotion.admin)))
            }
            _ => Ok(()),
        }
    }

    /// What stays of an administrator as the user wishes.
    ///
    /// # Errors
    /// [`NetworkError::Undecided`] without a wish where one is needed; others about the wish.
    pub(super) fn keep(&self, demotion: Demotion<'_>, wish: Option<&Wish>, unix: u64) -> Result<Keep, NetworkError> {
        let admin = demotion.admin;
        let signed = self.signed_by(demotion, unix);
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
                return Err(NetworkError::NotGranted(self.name_of(admin), self.name_of(&key)));
            }
            keep.admins.insert(key);
        }
        keep.invites = self.invites_by_name(demotion, Some(wish), unix)?;
        Ok(keep)
    }
}

impl Network {
    /// The invites that the user keeps by name: those that an administrator has made, and, if a member is to
    /// leave, those by which it came.
    pub(super) fn invites_by_name(
        &self,
        demotion: Demotion<'_>,
        wish: Option<&Wish>,
        unix: u64,
    ) -> Result<BTreeSet<[u8; 32]>, NetworkError> {
        let Some(wish) = wish.filter(|wish| !wish.invites.is_empty()) else {
            return Ok(BTreeSet::new());
        };
        let mut all = BTreeSet::new();
        if self.has_been_admin(demotion.admin) {
            let signed = self.signed_by(demotion, unix);
            all.extend(signed.iter().filter_map(|signed| match signed.record.key() {
                RecordKey::Invite(key) if signed.kind == SignedKind::Invite => Some(*key),
                _ => None,
            }));
        }
        if demotion.leaves {
            all.extend(self.came_by(demotion.admin, unix));
        }
        let prefixes = wish.invites.iter();
        prefixes.map(|prefix| invite_of(prefix, all.iter())).collect()
    }
}

/// The one of some invites whose key begins with `prefix`.
pub(super) fn invite_of<'a>(
    prefix: &str,
    mut invites: impl Iterator<Item = &'a [u8; 32]>,
) -> Result<[u8; 32], NetworkError> {
    let begins = |key: &&[u8; 32]| hex::encode(key).starts_with(prefix);
    let found = invites.find(begins);
    let found = found.ok_or_else(|| NetworkError::NoInvite(prefix.escape_debug().to_string()))?;
    match invites.find(begins) {
        None => Ok(*found),
        Some(_) => Err(NetworkError::SeveralInvites(prefix.escape_debug().to_string())),
    }
}

/// A record that is not signed, as text for the user.
pub(super) const fn told(record: Arc<Record>, bare: bool, ends: bool) -> Again {
    Again {
        record,
        version: 0,
        ends,
        bare,
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
