//! What ends with the rights of an administrator, and what is signed of it again.
//!
//! More than its own records rests on it: those of the administrators that it has made, members that others
//! took in by an invite of these, and what others have restated of their records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weft_noise::PublicKey;

use super::{Again, ChangeError};
use crate::admins::{Admins, Keep, Revocation};
use crate::key::RecordKey;
use crate::record::Record;
use crate::set::RecordSet;
use crate::state::Winners;

/// The end of the rights of an administrator, which has not come yet.
pub(super) struct Demotion<'a> {
    set: &'a RecordSet,
    admin: &'a PublicKey,
    /// The administrator that ends them.
    by: &'a PublicKey,
    keep: &'a Keep,
    /// The administrators behind it.
    after: Admins,
    /// The administrator, and the keys that have or had rights by it and have none behind it.
    keys: BTreeSet<PublicKey>,
}

/// Determines the administrators once `admin` is none, and `by` has signed again what `keep` says.
pub(super) fn without(set: &RecordSet, (admin, by): (&PublicKey, &PublicKey), keep: &Keep) -> Admins {
    let now = set.admins();
    let settle = |keep: &Keep, lost: &BTreeSet<PublicKey>| {
        let revocation = Revocation {
            admin,
            by,
            keep,
            now,
            lost,
        };
        Admins::settle(set.slots(), Some(revocation))
    };
    let none = settle(&Keep::default(), &BTreeSet::new());
    let lost = now
        .of
        .keys()
        .filter(|key| none.rank(key).is_none() && !keep.admins.contains(key));
    settle(keep, &lost.chain([admin]).copied().collect())
}

impl<'a> Demotion<'a> {
    pub(super) fn of(set: &'a RecordSet, (admin, by): (&'a PublicKey, &'a PublicKey), keep: &'a Keep) -> Self {
        let after = without(set, (admin, by), keep);
        let keys = keys(set, admin, &after);
        Self {
            set,
            admin,
            by,
            keep,
            after,
            keys,
        }
    }

    /// Lists the records that are signed again, or whose end is signed.
    ///
    /// # Errors
    /// [`ChangeError`]
    pub(super) fn list(&self) -> Result<Vec<Again>, ChangeError> {
        let (set, after, by) = (self.set, &self.after, self.by);
        let mut list = Vec::new();
        for record in self.rights() {
            list.push(set.again(after, record, by)?);
        }
        let then = Winners::of(set, after);
        let mut changed = Vec::new();
        set.add_changed(after, by, &mut changed)?;
        list.extend(changed.into_iter().filter_map(|again| self.stays(again, &then)));
        if !self.keep.rest {
            let others = self.guests(&then).into_iter().chain(self.restated(&then));
            let others: BTreeMap<&RecordKey, &Arc<Record>> = others.map(|record| (record.key(), record)).collect();
            for (key, record) in others {
                // A network has a name, a default and rules in any case, and to end rules may open what they close.
                if !matches!(key, RecordKey::Network | RecordKey::Rules) {
                    let bare = matches!(key, RecordKey::Member(member) if self.is_admin(member));
                    let again = set.again(after, record, by)?;
                    list.push(Again {
                        bare,
                        ends: !bare,
                        ..again
                    });
                }
            }
        }
        Ok(list)
    }

    /// Lists the records in force that end, or that may have been made by the administrator although another one has
    /// signed them.
    pub(super) fn resting(&self) -> Vec<Arc<Record>> {
        let (now, then) = (
            Winners::of(self.set, self.set.admins()),
            Winners::of(self.set, &self.after),
        );
        let admins = self.set.admins();
        let stays = |key: &RecordKey, record: &Record| match key {
            RecordKey::Admin(subject) => {
                subject == self.admin || admins.rank(subject).is_some() == self.after.rank(subject).is_some()
            }
            _ => then.0.get(key).is_some_and(|then| then.says_the_same_as(record)),
        };
        // Records that others have signed stay when a node resigns: its key is not in wrong hands.
        let others = match self.by == self.admin {
            true => Vec::new(),
            false => [self.guests(&then), self.restated(&then)].concat(),
        };
        let others: BTreeSet<&RecordKey> = others.into_iter().map(|record| record.key()).collect();
        let resting = now.0.into_iter();
        let resting = resting.filter(|(key, record)| !stays(key, record) || others.contains(key));
        resting.map(|(_, record)| Arc::clone(record)).collect()
    }

    /// Lists the records by which keys without rights have given rights and, unless the rest ends, taken them, and
    /// which count.
    fn rights(&self) -> Vec<&Arc<Record>> {
        let void = |record: &&Arc<Record>| self.after.rank(record.signer()).is_none();
        let grants = self.after.of.values().filter_map(|admin| admin.grant.as_ref());
        let mut rights: Vec<&Arc<Record>> = grants.filter(void).collect();
        if self.keep.rest {
            rights.extend(self.set.slots().iter().filter_map(|(key, slot)| match key {
                RecordKey::Admin(subject) if !self.after.of.contains_key(subject) && subject != self.admin => {
                    let ends = slot
                        .iter()
                        .filter(|(signer, _)| self.set.admins().rank(signer).is_some());
                    ends.map(|(_, kept)| &kept.best)
                        .find(|best| best.removed() && void(best))
                }
                _ => None,
            }));
        }
        rights
    }

    /// Lists the members that others took in by an invite of which no record is in force behind the end, and that one
    /// of the keys has signed.
    fn guests<'b>(&'b self, then: &Winners<'b>) -> Vec<&'b Arc<Record>> {
        let ends = |invite: &[u8; 32]| {
            let key = RecordKey::Invite(*invite);
            let mut signers = self.set.slots().get(&key).into_iter().flat_map(BTreeMap::keys);
            !then.0.contains_key(&key)
                && !self.keep.invites.contains(invite)
                && signers.any(|signer| self.keys.contains(signer))
        };
        let guest = |(key, record): &(&&RecordKey, &&'b Arc<Record>)| {
            let RecordKey::Member(member) = key else { return false };
            let proof = record
                .proof()
                .filter(|_| member != self.admin && !self.is_admin(member));
            !record.removed() && proof.is_some_and(|proof| ends(&proof.invite))
        };
        then.0.iter().filter(guest).map(|(_, record)| *record).collect()
    }

    /// Lists the records in which others restate those of the keys, other than about seniors of the one that ends the
    /// rights, and about itself.
    fn restated<'b>(&'b self, then: &Winners<'b>) -> Vec<&'b Arc<Record>> {
        let of_these = |record: &Record| record.of().any(|of| self.keys.contains(&of));
        let found = then.0.iter().filter(|(key, record)| {
            let other = matches!(key, RecordKey::Admin(_) | RecordKey::Secret | RecordKey::Invite(_));
            !record.removed() && !other && of_these(record)
        });
        let found = found.map(|(_, record)| record);
        found.filter(|record| self.decides(record.key())).copied().collect()
    }

    fn decides(&self, key: &RecordKey) -> bool {
        let version = self.set.version_under(&self.after, key, self.by);
        key.about() != Some(self.by) && !matches!(version, Err(ChangeError::NotSenior(_)))
    }

    fn is_admin(&self, key: &PublicKey) -> bool {
        self.after.rank(key).is_some()
    }

    /// Returns what is signed of a record that ends: `None` if it is left to end, or to the record that is in force
    /// `then`.
    fn stays(&self, again: Again, then: &Winners<'_>) -> Option<Again> {
        let key = again.record.key();
        let added = !again.record.removed();
        let (ends, bare) = match key {
            RecordKey::Secret => return None,
            // A head that takes its place back is not removed by its own hand.
            key if key.subject() == Some(self.by) && !added => return None,
            RecordKey::Invite(invite) => (added && !self.keep.invites.contains(invite), false),
            _ if self.keep.rest => (false, false),
            RecordKey::Member(member) if member == self.admin && !added => (false, false),
            RecordKey::Member(member) if added && !then.0.contains_key(key) => {
                let bare = member == self.admin || self.is_admin(member);
                (!bare, bare)
            }
            _ => return None,
        };
        Some(Again { ends, bare, ..again })
    }
}

/// Returns `admin`, and the keys that have or had rights by it, and have none `after` it.
fn keys(set: &RecordSet, admin: &PublicKey, after: &Admins) -> BTreeSet<PublicKey> {
    let mut given: BTreeMap<&PublicKey, Vec<&PublicKey>> = BTreeMap::new();
    for (key, slot) in set.slots() {
        if let RecordKey::Admin(subject) = key {
            // The removal of rights, too, shows who had given them: of a signer the last record stays.
            for signer in slot.keys() {
                given.entry(signer).or_default().push(subject);
            }
        }
    }
    let lost = set.admins().of.keys().filter(|key| after.rank(key).is_none());
    let mut open: Vec<&PublicKey> = lost.chain([admin]).collect();
    let mut keys = BTreeSet::new();
    while let Some(key) = open.pop() {
        if keys.insert(*key) {
            let subjects = given.remove(key).unwrap_or_default();
            open.extend(subjects.into_iter().filter(|subject| after.rank(subject).is_none()));
        }
    }
    keys
}
