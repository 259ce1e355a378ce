//! Names of members: the one that a new member gets, and those that two administrators gave twice.

use std::collections::{BTreeMap, BTreeSet};

use weft_noise::{Identity, PublicKey};
use weft_roster::key::RecordKey;
use weft_roster::names::Name;
use weft_roster::record::{Body, Draft, Member, Record};
use weft_roster::state::State;

use super::Network;
use super::turn::Turn;
use crate::NetworkError;

/// Members without the name that they asked for, which are kept for the user to see.
const MAX_NUMBERED: usize = 16;
/// Bytes of a record of a member that is signed again with all that it says.
const SHORT: usize = 1_024;

/// A member that has a name with a number, because another one has the name that it should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbered {
    /// The member.
    pub member: PublicKey,
    /// The name that it asked for, or that its record gave it.
    pub wanted: Name,
    /// The member that has that name.
    pub holder: PublicKey,
}

/// What a network remembers of the names of its members beside their records.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    /// The latest members that got a number, the last one behind.
    numbered: Vec<Numbered>,
    /// When this node writes down the names that differ from those of the records.
    turn: Turn,
}

impl Network {
    /// The members that got a number lately, as far as they still have it.
    pub fn numbered(&self) -> impl Iterator<Item = &Numbered> {
        self.names.numbered.iter()
    }

    /// Fails if a member other than `member` has this name, or its record gives it, or if it is that of a guest.
    pub(crate) fn check_name(&self, member: Option<&PublicKey>, name: &Name) -> Result<(), NetworkError> {
        match self.holder(member, name) {
            Some(_) => Err(NetworkError::MemberNameTaken(name.clone())),
            None if self.has_guest_named(name) => Err(NetworkError::NameInUse(name.clone())),
            None => Ok(()),
        }
    }

    /// A member other than `member` that has this name, or whose record gives it.
    fn holder(&self, member: Option<&PublicKey>, name: &Name) -> Option<PublicKey> {
        let has = |(key, known): &(&PublicKey, &Member)| {
            Some(*key) != member && (known.name.as_ref() == Some(name) || self.state.names.get(*key) == Some(name))
        };
        self.state.members.iter().find(has).map(|(key, _)| *key)
    }

    /// The name for a new member that would like `wanted`: that one, or with a number if another member or a
    /// guest has it, which keeps it.
    pub(super) fn free_name(&self, member: &PublicKey, wanted: Option<Name>) -> (Option<Name>, Option<Numbered>) {
        let Some(wanted) = wanted else { return (None, None) };
        let holder = self.holder(Some(member), &wanted);
        if holder.is_none() && !self.has_guest_named(&wanted) {
            return (Some(wanted), None);
        }
        let records = self.state.members.values().filter_map(|member| member.name.as_ref());
        let known = self.state.names.values().chain(self.state.guest_names.values());
        let taken: BTreeSet<&Name> = known.chain(records).collect();
        let free = wanted.numbers().find(|name| !taken.contains(name));
        let member = *member;
        let numbered = holder.map(|holder| Numbered { member, wanted, holder });
        (free, numbered)
    }

    /// Notes the members that have got a number since the state was `before`.
    pub(super) fn note_collisions(&mut self, before: Option<&State>) {
        let new = self.new_numbers(before);
        self.note_numbered(new);
        // One that was renamed or removed since has nothing to complain of.
        let names = &self.state.names;
        let still = |numbered: &Numbered| {
            let name = names.get(&numbered.member);
            names.get(&numbered.holder) == Some(&numbered.wanted)
                && name.is_some_and(|name| name.is_numbered(&numbered.wanted))
        };
        self.names.numbered.retain(still);
    }

    /// The members whose record gives a name that another one has, as it did not before, and those that
    /// had the name before.
    fn new_numbers(&self, before: Option<&State>) -> Vec<Numbered> {
        let of_record = |member: &PublicKey| Some((*member, self.state.members.get(member)?.name.clone()?));
        let known = |member: &&PublicKey| before.is_some_and(|before| before.renamed.contains(*member));
        let collided = self.state.renamed.iter().filter(|member| !known(member));
        let had = before
            .into_iter()
            .flat_map(|before| &before.names)
            .filter(|(member, name)| {
                let now = self.state.names.get(*member);
                now.is_some_and(|now| now.is_numbered(name))
            });
        let wanted: BTreeMap<PublicKey, Name> = collided
            .filter_map(of_record)
            .chain(had.map(|(member, name)| (*member, name.clone())))
            .collect();
        if wanted.is_empty() {
            return Vec::new();
        }
        let holders: BTreeMap<&Name, &PublicKey> = self.state.names.iter().map(|(key, name)| (name, key)).collect();
        let numbered = |(member, wanted): (PublicKey, Name)| {
            let holder = **holders.get(&wanted)?;
            Some(Numbered { member, wanted, holder })
        };
        wanted.into_iter().filter_map(numbered).collect()
    }

    /// Keeps the last of them, and logs those.
    pub(super) fn note_numbered(&mut self, new: impl IntoIterator<Item = Numbered>) {
        let mut new: Vec<Numbered> = new.into_iter().collect();
        new.drain(..new.len().saturating_sub(MAX_NUMBERED));
        for numbered in new {
            tracing::info!(
                network = %self.id(),
                member = %numbered.member,
                wanted = %numbered.wanted,
                holder = %numbered.holder,
                "a member gets a number behind its name, which another member has"
            );
            self.names.numbered.retain(|known| known.member != numbered.member);
            self.names.numbered.push(numbered);
        }
        let over = self.names.numbered.len().saturating_sub(MAX_NUMBERED);
        self.names.numbered.drain(..over);
    }

    pub(super) fn put_off_names(&mut self, now: u64) {
        self.names.turn.put_off(now);
    }

    /// Whether `own` writes names down at `now`.
    pub(crate) fn are_names_due(&mut self, own: &PublicKey, now: u64) -> bool {
        let place = self.place_among_admins(own).filter(|_| !self.state.renamed.is_empty());
        self.names.turn.is_due(place, now)
    }

    /// Signs the names that members have and their records do not say, so that they keep them whatever
    /// happens to other members. Records that this node may not change are left to another administrator.
    pub(crate) fn write_names(&mut self, identity: &Identity, (now, unix): (u64, u64)) {
        if self.state.renamed.is_empty() {
            return;
        }
        let renamed = self.state.renamed.iter();
        let signed = renamed.filter_map(|member| match self.sign_name(identity, member, unix) {
            Ok(record) => record,
            Err(error) => {
                tracing::debug!(%error, network = %self.id(), %member, "the name of a member is not written");
                None
            }
        });
        let signed: Vec<Record> = signed.collect();
        if let Err(error) = self.add_all(signed, now) {
            tracing::info!(%error, network = %self.id(), "names of members are not written");
        }
        self.put_off_names(now);
    }

    fn sign_name(&self, identity: &Identity, member: &PublicKey, unix: u64) -> Result<Option<Record>, NetworkError> {
        self.admin(identity)?;
        let key = RecordKey::Member(*member);
        let version = self.set.next_version(&key, &identity.public())?;
        let record = self.set.in_force(&key);
        let draft = record.and_then(|record| {
            let body = self.body_with_name(record)?;
            // Without what this version does not know, if that is long: no user has asked for this record.
            let draft = match record.len() <= SHORT {
                true => Draft::changed(record, version, &body),
                false => Draft::new(self.id(), key.clone(), version, &body),
            };
            Some(draft.restating(record, &identity.public()))
        });
        Ok(draft.map(|draft| draft.sign(identity, unix)).transpose()?)
    }

    /// The record of a member whose name it does not give, with that name and this version; `None` for
    /// all other records.
    pub(super) fn draft_with_name(&self, record: &Record, version: u64) -> Option<Draft> {
        let body = self.body_with_name(record)?;
        Some(Draft::changed(record, version, &body))
    }

    fn body_with_name(&self, record: &Record) -> Option<Body> {
        let (RecordKey::Member(key), Body::Member(body)) = (record.key(), record.body()) else {
            return None;
        };
        let name = self.state.names.get(key).filter(|_| self.state.renamed.contains(key))?;
        let name = Some(name.clone());
        Some(Body::Member(Member { name, ..body.clone() }))
    }

    pub(super) fn name_timeout(&self) -> Option<u64> {
        self.names.turn.at()
    }
}

#[cfg(test)]
mod tests;
