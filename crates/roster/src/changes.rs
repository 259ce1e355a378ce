//! What has to be signed for a change: the version of a record, and the records that would fall
//! with an administrator.

use std::sync::Arc;

use thiserror::Error;
use weft_noise::PublicKey;

pub use crate::admins::Keep;
use crate::admins::{Admin, Admins, Rank, network_of, successor_of};
use crate::key::RecordKey;
use crate::record::{Body, Draft, Member, Record};
use crate::set::RecordSet;
use crate::state::{Winners, in_force};

mod demotion;

use demotion::Demotion;

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
    /// Whether of a member no more stays than that it is one: its name, and the invite by which it came.
    pub bare: bool,
}

impl Again {
    /// Drafts the record to sign.
    #[must_use]
    pub fn draft(&self) -> Draft {
        let draft = match self.record.body() {
            Body::Member(member) if self.bare => {
                let (name, proof) = (member.name.clone(), member.proof.clone());
                let bare = Member {
                    name,
                    proof,
                    ..Member::default()
                };
                Draft::changed(&self.record, self.version, &Body::Member(bare))
            }
            _ => Draft::again(&self.record, self.version),
        };
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
    /// Returns the version with which a record about `key` that `signer` signs now comes into
    /// force: one more than the highest of those that could prevent it.
    ///
    /// Records of signers that are no administrators do not count, nor do, about administrators,
    /// those of their juniors and equals, so a version of 2^64 - 1 blocks a key only until its signer
    /// is removed. Nothing that juniors of `signer` sign about rights counts.
    ///
    /// # Errors
    /// [`ChangeError::NotAdmin`]; [`ChangeError::NotSenior`] for a record about a more senior
    /// administrator, or one of the same rank, but for the rights of the head by its successor;
    /// [`ChangeError::Exhausted`].
    pub fn next_version(&self, key: &RecordKey, signer: &PublicKey) -> Result<u64, ChangeError> {
        self.version_under(self.admins(), key, signer)
    }

    fn version_under(&self, admins: &Admins, key: &RecordKey, signer: &PublicKey) -> Result<u64, ChangeError> {
        // An earlier head takes its place back.
        let heads = matches!(key, RecordKey::Network) && admins.heads.contains(signer);
        let rank_of = |key: &PublicKey| admins.rank(key).or_else(|| (heads && key == signer).then_some(0));
        let own = rank_of(signer).ok_or(ChangeError::NotAdmin(*signer))?;
        let ranked = key.about().and_then(|subject| Some((subject, admins.rank(subject)?)));
        check_seniority(admins, key, (signer, own), ranked)?;
        let is_rival = |other: &PublicKey, rank: Rank| match (key, ranked) {
            // Seniority decides about rights before the version does.
            (RecordKey::Admin(_), _) => rank <= own,
            (_, Some((subject, of))) => rank < of || other == subject || admins.is_head(other),
            (_, None) => true,
        };
        let rivals = self
            .slots()
            .get(key)
            .into_iter()
            .flatten()
            .filter(|(other, _)| rank_of(other).is_some_and(|rank| is_rival(other, rank)));
        let rivals = rivals.map(|(_, kept)| &kept.best);
        // A node gives itself no rights.
        let rivals = rivals.filter(|record| record.removed() || *record.key() != RecordKey::Admin(*record.signer()));
        // A record that ends the rights of the head is later than that of the head about the network.
        let network = key.about().filter(|subject| admins.is_head(subject));
        let network = network.filter(|_| matches!(key, RecordKey::Admin(_)));
        let network = network.and_then(|head| network_of(self.slots(), head));
        let next = match rivals.chain(network).max_by_key(|record| record.version()) {
            None => 1,
            Some(record) => next_above(record, signer)?,
        };
        Ok(next.max(self.above_resignation(key)))
    }

    /// Returns the least version of a grant that undoes the resignation of a node. If that has the highest version,
    /// an equal one is enough.
    fn above_resignation(&self, key: &RecordKey) -> u64 {
        let RecordKey::Admin(subject) = key else { return 0 };
        let own = self.slots().get(key).and_then(|slot| slot.get(subject));
        let resignation = own.filter(|kept| kept.best.removed());
        resignation.map_or(0, |kept| kept.best.version().saturating_add(1))
    }

    /// Returns the version of the next record about the network by `head`, the head or an earlier one that takes its
    /// place back, which names `successor`. Records of a successor that it drops do not count, whatever their
    /// versions, and no earlier handover counts again.
    ///
    /// # Errors
    /// [`ChangeError`], as for [`next_version`](Self::next_version).
    pub fn successor_version(&self, head: &PublicKey, successor: Option<&PublicKey>) -> Result<u64, ChangeError> {
        let key = RecordKey::Network;
        let named = successor_of(self.slots(), head);
        let version = match named.filter(|named| Some(named) != successor) {
            Some(former) => {
                let after = demotion::without(self, (&former, head), &Keep::default());
                self.version_under(&after, &key, head)
            }
            None => self.version_under(self.admins(), &key, head),
        };
        // The name that another one has given with the highest version stays until its rights end. The successor
        // that the head names counts all the same.
        let version = match version {
            Err(ChangeError::Exhausted(other)) if other != *head => {
                let own = network_of(self.slots(), head).map_or(0, |record| record.version());
                own.checked_add(1).ok_or(ChangeError::Exhausted(*head))?
            }
            version => version?,
        };
        let Some(successor) = successor else {
            return Ok(version);
        };
        let slot = self.slots().get(&RecordKey::Admin(*head));
        let handovers = slot.into_iter().flat_map(|slot| [slot.get(head), slot.get(successor)]);
        let handovers = handovers
            .flatten()
            .map(|kept| &kept.best)
            .filter(|record| record.removed());
        match handovers.max_by_key(|record| record.version()) {
            Some(last) if last.version() == u64::MAX => Err(ChangeError::Exhausted(*last.signer())),
            last => Ok(version.max(last.map_or(0, |last| last.version()))),
        }
    }

    /// Lists the records that `by` signs before it removes the administrator `admin`, so that of what the
    /// administrator has signed that stays which `keep` says: grants first, then all other records that would no
    /// longer be in force, removals among them. Members that do not stay are removed, and invites that do not stay
    /// are revoked.
    ///
    /// # Errors
    /// [`ChangeError`], as for [`next_version`](Self::next_version).
    pub fn resign_list(&self, admin: &PublicKey, by: &PublicKey, keep: &Keep) -> Result<Vec<Again>, ChangeError> {
        self.next_version(&RecordKey::Admin(*admin), by)?;
        Demotion::of(self, (admin, by), keep).list()
    }

    /// Lists the records that the head, or an earlier one, signs together with `network`, its next record about the
    /// network, which names another successor or none. If the rights of the former one end, the list is that of
    /// [`resign_list`](Self::resign_list).
    ///
    /// # Errors
    /// [`ChangeError`], as for [`next_version`](Self::next_version).
    pub fn successor_list(&self, network: &Arc<Record>, keep: &Keep) -> Result<Vec<Again>, ChangeError> {
        let by = network.signer();
        if !self.admins().heads.contains(by) {
            return Err(ChangeError::NotAdmin(*by));
        }
        let mut list = match self.falls_with(network) {
            Some(former) => Demotion::of(self, (&former, by), keep).list()?,
            None => {
                let mut after = self.clone();
                after.insert(network);
                let mut list = Vec::new();
                self.add_changed(after.admins(), by, &mut list)?;
                list
            }
        };
        list.retain(|again| *again.record.key() != RecordKey::Network);
        Ok(list)
    }

    /// Returns the successor that `network`, the next record about the network of the head or an earlier one, names
    /// no longer, if rights end with that: its own, and those that it or its own successors have given.
    #[must_use]
    pub fn falls_with(&self, network: &Arc<Record>) -> Option<PublicKey> {
        let former = successor_of(self.slots(), network.signer())?;
        let mut after = self.clone();
        after.insert(network);
        // It may have lost its rank to a successor of its own, which falls with it.
        let mut admins = self.admins().of.keys().filter(|key| *key != network.signer());
        admins.any(|key| after.admins().rank(key).is_none()).then_some(former)
    }

    /// Returns the record in force for `key` once `by` has ended the rights of `admin`, and has signed nothing again.
    #[must_use]
    pub fn in_force_without(&self, key: &RecordKey, admin: &PublicKey, by: &PublicKey) -> Option<&Arc<Record>> {
        let after = demotion::without(self, (admin, by), &Keep::default());
        in_force(&after, key, self.slots().get(key)?.values().map(|kept| &kept.best))
    }

    /// Returns the successor that `head` names; it counts if `head` is the head.
    #[must_use]
    pub fn named_by(&self, head: &PublicKey) -> Option<PublicKey> {
        successor_of(self.slots(), head)
    }

    /// Lists the records in force that end with the rights of `admin` if `by` ends them and signs none again: what it
    /// has signed, and what those have signed that it made administrators. A record counts as kept if another one
    /// says the same. Unless `admin` itself resigns, members are in the list that others took in by invites of these,
    /// and what others have restated of their records ([`Record::of`]).
    #[must_use]
    pub fn resting_on(&self, admin: &PublicKey, by: &PublicKey) -> Vec<Arc<Record>> {
        let nothing = Keep::default();
        Demotion::of(self, (admin, by), &nothing).resting()
    }

    /// Lists the records about `subject` that `by` signs again when it makes `subject` an
    /// administrator: those of signers that are not senior enough to make statements about it then.
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
            bare: false,
        })
    }
}

/// The highest version above which a node signs a record of its own because of another one.
const MAX_FOLLOWED: u64 = 1 << 63;

/// Returns the version of the next record of `signer` above one that counts. No one else brings a node near the end
/// of the versions, where its own next record would find none.
fn next_above(record: &Record, signer: &PublicKey) -> Result<u64, ChangeError> {
    let exhausted = ChangeError::Exhausted(*record.signer());
    let own = record.signer() == signer;
    match record.version() {
        version if !own && version >= MAX_FOLLOWED => Err(exhausted),
        // A removal goes before what it removes also with the same version.
        u64::MAX if own && !record.removed() && matches!(record.key(), RecordKey::Admin(_)) => Ok(u64::MAX),
        version => version.checked_add(1).ok_or(exhausted),
    }
}

/// Fails if `signer`, of the rank `own`, may make no statement about the administrator `ranked`.
fn check_seniority(
    admins: &Admins,
    key: &RecordKey,
    (signer, own): (&PublicKey, Rank),
    ranked: Option<(&PublicKey, Rank)>,
) -> Result<(), ChangeError> {
    let Some((subject, rank)) = ranked.filter(|(subject, _)| *subject != signer) else {
        return Ok(());
    };
    let about_rights = matches!(key, RecordKey::Admin(_));
    // The successor is named by another record than those about its rights.
    let names = admins.is_head(signer) && !about_rights;
    let takes_over = about_rights && admins.successor() == Some(signer) && admins.is_head(subject);
    match rank > own || names || takes_over {
        true => Ok(()),
        false => Err(ChangeError::NotSenior(*subject)),
    }
}
