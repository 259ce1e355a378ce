//! Names of members: the one that a new member gets, and those that two administrators gave twice.

use std::collections::{BTreeMap, BTreeSet};

use weft_noise::{Identity, PublicKey};
use weft_roster::key::RecordKey;
use weft_roster::names::Name;
use weft_roster::record::{Body, Draft, Member};

use super::Network;
use super::turn::Turn;
use crate::NetworkError;

/// Members without the name that they asked for, which are kept for the user to see.
const MAX_NUMBERED: usize = 16;

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
#[derive(Debug, Default)]
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

    /// Fails if a member other than `member` has this name, or its record gives it.
    pub(crate) fn check_name(&self, member: Option<&PublicKey>, name: &Name) -> Result<(), NetworkError> {
        match self.holder(member, name) {
            Some(_) => Err(NetworkError::MemberNameTaken(name.clone())),
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

    /// The name for a new member that would like `wanted`: that one, or with a number if another member
    /// has it, which keeps it.
    pub(super) fn free_name(&self, member: &PublicKey, wanted: Option<Name>) -> (Option<Name>, Option<Numbered>) {
        let holder = wanted.as_ref().and_then(|name| self.holder(Some(member), name));
        let (Some(wanted), Some(holder)) = (&wanted, holder) else {
            return (wanted, None);
        };
        let records = self.state.members.values().filter_map(|member| member.name.as_ref());
        let taken: BTreeSet<&Name> = self.state.names.values().chain(records).collect();
        let free = wanted.numbers().find(|name| !taken.contains(name));
        let numbered = Numbered {
            member: *member,
            wanted: wanted.clone(),
            holder,
        };
        (free, Some(numbered))
    }

    /// Notes the members whose name differs from that of their record and did not before.
    pub(super) fn note_collisions(&mut self, before: &BTreeSet<PublicKey>) {
        let new: Vec<PublicKey> = self.state.renamed.difference(before).copied().collect();
        if !new.is_empty() {
            self.note_numbered(self.collisions(&new));
        }
        // One that was renamed or removed since has nothing to complain of.
        let (names, members) = (&self.state.names, &self.state.members);
        let still = |numbered: &Numbered| members.contains_key(&numbered.holder) && has_number_of(names, numbered);
        self.names.numbered.retain(still);
    }

    pub(super) fn note_numbered(&mut self, new: impl IntoIterator<Item = Numbered>) {
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

    /// What the records of these members collide with.
    fn collisions(&self, members: &[PublicKey]) -> Vec<Numbered> {
        let holders: BTreeMap<&Name, &PublicKey> = self.state.names.iter().map(|(key, name)| (name, key)).collect();
        let numbered = |member: &PublicKey| {
            let wanted = self.state.members.get(member)?.name.clone()?;
            let holder = **holders.get(&wanted)?;
            Some(Numbered {
                member: *member,
                wanted,
                holder,
            })
        };
        members.iter().filter_map(numbered).collect()
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
        for member in self.state.renamed.clone() {
            let Some(name) = self.state.names.get(&member).cloned() else {
                continue;
            };
            if let Err(error) = self.write_name(identity, &member, name, (now, unix)) {
                tracing::debug!(%error, network = %self.id(), %member, "the name of a member is not written");
            }
        }
        self.names.turn.put_off(now);
    }

    fn write_name(
        &mut self,
        identity: &Identity,
        member: &PublicKey,
        name: Name,
        (now, unix): (u64, u64),
    ) -> Result<(), NetworkError> {
        self.admin(identity)?;
        let key = RecordKey::Member(*member);
        let version = self.set.next_version(&key, &identity.public())?;
        let Some(record) = self.set.in_force(&key) else {
            return Ok(());
        };
        let mut body = self.state.members.get(member).cloned().unwrap_or_default();
        body.name = Some(name);
        let record = Draft::changed(record, version, &Body::Member(body)).sign(identity, unix)?;
        self.add(record, now)
    }

    pub(super) fn name_timeout(&self) -> Option<u64> {
        self.names.turn.at()
    }
}

/// Whether a member still has the name with a number that it got.
fn has_number_of(names: &BTreeMap<PublicKey, Name>, numbered: &Numbered) -> bool {
    let number = |name: &Name| {
        let behind = name.as_str().rsplit_once('-')?.1;
        let number: usize = behind.parse().ok()?;
        Some(numbered.wanted.numbered(number) == *name)
    };
    names.get(&numbered.member).and_then(number).unwrap_or(false)
}

#[cfg(test)]
mod tests;
