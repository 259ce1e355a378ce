//! What has to be signed for a change: the version of a record, and the records that would fall
//! with an administrator.

use std::sync::Arc;

use thiserror::Error;
use weft_noise::PublicKey;

pub use crate::admins::Keep;
use crate::admins::{Admin, Admins, Rank, Revocation};
use crate::key::RecordKey;
use crate::record::{Draft, Record};
use crate::set::RecordSet;
use crate::state::Winners;

/// A record to sign again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Again {
    /// The record that is in force.
    pub record: Arc<Record>,
    /// The version with which it stays in force.
    pub version: u64,
    /// What it says ends instead, as with an invite of an administrator that is removed, whose code the
    /// administrator still has.
    pub ends: bool,
}

impl Again {
    /// The record to sign.
    #[must_use]
    pub fn draft(&self) -> Draft {
        let draft = Draft::again(&self.record, self.version);
        if self.ends { draft.removal() } else { draft }
    }
}

/// The reason why a change cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ChangeError {
    /// The signer is no administrator.
    #[error("{0} is not an administrator of the network")]
    NotAdmin(PublicKey),
    /// The signer is not more senior than the administrator.
    #[error("only a more senior administrator can change {0}")]
    NotSenior(PublicKey),
    /// A record has the highest version that there is, so none can be higher.
    #[error("{0} has signed a record with the highest version there is: remove this administrator first")]
    Exhausted(PublicKey),
}

impl RecordSet {
    /// The version with which a record about `key` that `signer` signs now comes into force: one
    /// more than the highest of those that could prevent it.
    ///
    /// Records of signers that are no administrators do not count, nor do, about administrators,
    /// those of their juniors and equals, so a version of 2^64 - 1 blocks a key only until its signer
    /// is removed. Nothing that juniors of `signer` sign about rights counts.
    ///
    /// # Errors
    /// [`ChangeError::NotAdmin`]; [`ChangeError::NotSenior`] for a record about a more senior
    /// administrator, or one of the same rank, but for the rights of the founder by its successor;
    /// [`ChangeError::Exhausted`].
    pub fn next_version(&self, key: &RecordKey, signer: &PublicKey) -> Result<u64, ChangeError> {
        self.version_under(self.admins(), key, signer)
    }

    fn version_under(&self, admins: &Admins, key: &RecordKey, signer: &PublicKey) -> Result<u64, ChangeError> {
        // A founder that has handed over takes its rank back.
        let founds = matches!(key, RecordKey::Network) || *key == RecordKey::Admin(*signer);
        let founder = (founds && admins.is_founder(signer)).then_some(0);
        let own = admins.rank(signer).or(founder).ok_or(ChangeError::NotAdmin(*signer))?;
        let subject = match key {
            RecordKey::Admin(subject) => Some(subject),
            key => key.subject(),
        };
        let ranked = subject.and_then(|subject| Some((subject, admins.rank(subject)?)));
        // The successor is named by another record than those about its rights.
        let names = admins.is_founder(signer) && !matches!(key, RecordKey::Admin(_));
        let retires = admins.successor() == Some(signer)
            && matches!(key, RecordKey::Admin(subject) if admins.is_founder(subject));
        if let Some((subject, rank)) = ranked
            && rank <= own
            && subject != signer
            && !names
            && !retires
        {
            return Err(ChangeError::NotSenior(*subject));
        }
        let is_rival = |other: &PublicKey, rank: Rank| match (key, ranked) {
            // Seniority decides about rights before the version does.
            (RecordKey::Admin(_), _) => rank <= own,
            (_, Some((subject, of))) => rank < of || other == subject || admins.is_founder(other),
            (_, None) => true,
        };
        let slot = self.slots().get(key);
        let counted = slot
            .into_iter()
            .flatten()
            .filter(|(other, _)| admins.rank(other).is_some_and(|rank| is_rival(other, rank)));
        let highest = counted
            .map(|(_, kept)| &kept.best)
            .max_by_key(|record| record.version());
        let next = match highest {
            None => 1,
            Some(record) => record
                .version()
                .checked_add(1)
                .ok_or(ChangeError::Exhausted(*record.signer()))?,
        };
        // A grant has to be above the resignation that it is to undo. If that has the highest
        // version, an equal one is enough.
        let resignation = match key {
            RecordKey::Admin(subject) => slot.and_then(|slot| slot.get(subject)),
            _ => None,
        };
        let resignation = resignation.filter(|kept| kept.best.removed());
        let resigned = resignation.map_or(0, |kept| kept.best.version().saturating_add(1));
        Ok(next.max(resigned))
    }

    /// The records that `by` signs before it removes the administrator `admin`, so that of what the
    /// administrator has signed that stays which `keep` says: grants first, then all other records that
    /// would no longer be in force, removals among them. Members that do not stay are removed, and
    /// invites that do not stay are revoked.
    ///
    /// # Errors
    /// [`ChangeError`], as for [`next_version`](Self::next_version).
    pub fn resign_list(&self, admin: &PublicKey, by: &PublicKey, keep: &Keep) -> Result<Vec<Again>, ChangeError> {
        self.next_version(&RecordKey::Admin(*admin), by)?;
        self.resign_list_unchecked(admin, by, keep)
    }

    /// The records that the founder signs before `network`, its next record about the network, which names
    /// another successor or none. If the rights of the former one end, the list is that of
    /// [`resign_list`](Self::resign_list).
    ///
    /// # Errors
    /// [`ChangeError`], as for [`next_version`](Self::next_version).
    pub fn successor_list(&self, network: &Arc<Record>, keep: &Keep) -> Result<Vec<Again>, ChangeError> {
        let by = network.signer();
        self.next_version(&RecordKey::Network, by)?;
        if let Some(former) = self.falls_with(network) {
            return self.resign_list_unchecked(&former, by, keep);
        }
        let mut after = self.clone();
        after.insert(network);
        let mut list = Vec::new();
        self.add_changed(after.admins(), by, &mut list)?;
        Ok(list)
    }

    /// The successor whose rights end with `network`, the founder's next record about the network.
    #[must_use]
    pub fn falls_with(&self, network: &Arc<Record>) -> Option<PublicKey> {
        let mut after = self.clone();
        after.insert(network);
        let former = self.admins().successor();
        former.filter(|former| after.admins().rank(former).is_none()).copied()
    }

    fn resign_list_unchecked(&self, admin: &PublicKey, by: &PublicKey, keep: &Keep) -> Result<Vec<Again>, ChangeError> {
        let after = Admins::settle(self.slots(), Some(Revocation { admin, by, keep }));
        let mut list = Vec::new();
        for (key, slot) in self.slots() {
            let (RecordKey::Admin(subject), Some(kept)) = (key, slot.get(admin)) else {
                continue;
            };
            let record = &kept.best;
            let granted = after.of.get(subject).and_then(|admin| admin.grant.as_ref());
            let decided = granted.is_some_and(|grant| grant.id() == record.id());
            let denied = record.removed() && keep.rest && !after.of.contains_key(subject) && subject != admin;
            if decided || denied {
                list.push(self.again(&after, record, by)?);
            }
        }
        let rights = list.len();
        let then = Winners::of(self, &after);
        self.add_changed(&after, by, &mut list)?;
        for again in &mut list[rights..] {
            again.ends = !again.record.removed()
                && match again.record.key() {
                    RecordKey::Invite(invite) => !keep.invites.contains(invite),
                    // An earlier record of another administrator has it as a member.
                    key @ RecordKey::Member(member) => !keep.rest && member != admin && !then.0.contains_key(key),
                    _ => false,
                };
        }
        // What neither stays nor is ended needs no record: it is void without its signer.
        let own = |key: &RecordKey| key.subject() == Some(admin);
        let mut at = 0;
        list.retain(|again| {
            at += 1;
            let key = again.record.key();
            at <= rights || again.ends || keep.rest || own(key) || matches!(key, RecordKey::Invite(_))
        });
        list.retain(|again| *again.record.key() != RecordKey::Secret);
        Ok(list)
    }

    /// The records in force that end with the rights of `admin` if none signs them again: what it has
    /// signed, and what those have signed that it made administrators. A record counts as kept if another
    /// one says the same.
    #[must_use]
    pub fn resting_on(&self, admin: &PublicKey) -> Vec<Arc<Record>> {
        let nothing = Keep::default();
        let revocation = Revocation {
            admin,
            by: admin,
            keep: &nothing,
        };
        let after = Admins::settle(self.slots(), Some(revocation));
        let (now, then) = (Winners::of(self, self.admins()), Winners::of(self, &after));
        let stays = |key: &RecordKey, record: &Record| match key {
            RecordKey::Admin(subject) => {
                subject == admin || self.admins().rank(subject).is_some() == after.rank(subject).is_some()
            }
            _ => then.0.get(key).is_some_and(|then| then.says_the_same_as(record)),
        };
        let resting = now.0.into_iter().filter(|(key, record)| !stays(key, record));
        resting.map(|(_, record)| Arc::clone(record)).collect()
    }

    /// The records about `subject` that `by` signs again when it makes `subject` an administrator:
    /// those of signers that are not senior enough to make statements about it then.
    ///
    /// # Errors
    /// [`ChangeError`], as for [`next_version`](Self::next_version).
    pub fn grant_list(&self, subject: &PublicKey, by: &PublicKey) -> Result<Vec<Again>, ChangeError> {
        self.next_version(&RecordKey::Admin(*subject), by)?;
        let mut after = self.admins().clone();
        let rank = after.rank(by).map_or(0, |rank| rank.saturating_add(1));
        let grant = None;
        after.of.insert(*subject, Admin { rank, grant });
        let mut list = Vec::new();
        self.add_changed(&after, by, &mut list)?;
        Ok(list)
    }

    /// Adds the records in force now that are not with the administrators `after`.
    fn add_changed(&self, after: &Admins, by: &PublicKey, list: &mut Vec<Again>) -> Result<(), ChangeError> {
        let (now, then) = (Winners::of(self, self.admins()), Winners::of(self, after));
        for (key, record) in now.0 {
            let stays = then.0.get(key).is_some_and(|then| then.id() == record.id());
            if !stays && !matches!(key, RecordKey::Admin(_)) {
                list.push(self.again(after, record, by)?);
            }
        }
        Ok(())
    }

    fn again(&self, after: &Admins, record: &Arc<Record>, by: &PublicKey) -> Result<Again, ChangeError> {
        Ok(Again {
            record: Arc::clone(record),
            version: self.version_under(after, record.key(), by)?,
            ends: false,
        })
    }
}
