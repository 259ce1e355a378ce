//! What administrators do: they sign records about members, administrators and invites.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use weft_noise::{Identity, PublicKey};
use weft_roster::addresses;
use weft_roster::changes::{Again, ChangeError};
use weft_roster::guest;
use weft_roster::invite::{Code, Seed};
use weft_roster::key::RecordKey;
use weft_roster::names::Name;
use weft_roster::record::{Body, Draft, Guest, Invite, Member, Network as NetworkBody, Record, RuleList};
use weft_roster::rules::{MAX_RULES, Policy};

use super::signed::{Demotion, invite_of, told};
use super::{Enrolment, Network, Wish};
use crate::document::{Ask, Refusal};
use crate::rules;
use crate::{Changed, MemberChange, NetworkError, NewInvite, RuleChange};

impl Network {
    pub(crate) fn invite(
        &mut self,
        identity: &Identity,
        new: &NewInvite,
        seed: Seed,
        now: u64,
        unix: u64,
    ) -> Result<Code, NetworkError> {
        if let Some(name) = &new.name {
            self.check_name(None, name)?;
        }
        let body = Body::Invite(Invite {
            uses: new.uses,
            tags: new.tags.clone(),
            name: new.name.clone(),
            expires: Some(new.expires),
        });
        let key = *seed.key_pair().public().as_bytes();
        self.write(identity, RecordKey::Invite(key), &body, now, unix)?;
        Ok(Code {
            network: self.id(),
            inviter: identity.public(),
            addresses: new.addresses.clone(),
            entry: new.entry,
            expires: u32::try_from(new.expires).unwrap_or(u32::MAX),
            seed,
        })
    }

    pub(crate) fn revoke(
        &mut self,
        identity: &Identity,
        prefix: &str,
        now: u64,
        unix: u64,
    ) -> Result<(), NetworkError> {
        self.admin(identity)?;
        let key = invite_of(prefix, self.open_invites(unix).map(|(key, _)| key))?;
        self.remove(identity, &RecordKey::Invite(key), now, unix)
    }

    pub(crate) fn change_member(
        &mut self,
        identity: &Identity,
        named: &str,
        (change, wish): (MemberChange, Option<&Wish>),
        now: u64,
        unix: u64,
    ) -> Result<Changed, NetworkError> {
        self.admin(identity)?;
        let key = match change {
            MemberChange::Remove {} | MemberChange::RevokeAdmin {} => self.known(named)?,
            _ => self.named(named)?,
        };
        if change == (MemberChange::RevokeAdmin {}) && !self.has_been_admin(&key) {
            return Err(NetworkError::NoAdmin(self.name_of(&key)));
        }
        let is_own = key == identity.public();
        if is_own && change == (MemberChange::Remove {}) {
            return Err(NetworkError::ThisMachine(self.name_of(&key)));
        }
        if is_own && change == (MemberChange::RevokeAdmin {}) {
            self.check_resignation(&key, false, unix)?;
            self.end_rights(identity, &key, now, unix)?;
            return Ok(Changed { key, again: Vec::new() });
        }
        let demotion = Demotion {
            admin: &key,
            by: &identity.public(),
            leaves: change.ends_membership(),
        };
        self.check_seen(demotion, wish, unix)?;
        // So that none takes over a name that the change makes free.
        self.write_names(identity, (now, unix));
        // Of what the change ends, the names are those from before.
        let names = self.state.names.clone();
        let mut again = Vec::new();
        let mut body = self.state.members.get(&key).cloned().unwrap_or_default();
        match change {
            MemberChange::Rename { name } => {
                let name = Name::host(&name)?;
                self.check_name(Some(&key), &name)?;
                body.name = Some(name);
                self.change_record(identity, &key, body, (now, unix))?;
            }
            MemberChange::Tag { tags } => {
                body.tags.extend(Name::labels(&tags)?);
                self.change_record(identity, &key, body, (now, unix))?;
            }
            MemberChange::Untag { tags } => {
                if let Some(tag) = Name::labels(&tags)?.into_iter().find(|tag| !body.tags.remove(tag)) {
                    let member = self.name_of(&key);
                    return Err(NetworkError::NoTag { member, tag });
                }
                self.change_record(identity, &key, body, (now, unix))?;
            }
            MemberChange::Address { ipv4 } => {
                self.check_address(&key, ipv4)?;
                body.ipv4 = ipv4;
                self.change_record(identity, &key, body, (now, unix))?;
            }
            MemberChange::Remove {} => again = self.remove_member(identity, demotion, wish, (now, unix))?,
            MemberChange::Replace { by } => {
                again = self.replace(identity, (demotion, body), &by, wish, (now, unix))?;
            }
            MemberChange::MakeAdmin {} => {
                self.check_grant(&identity.public(), &key)?;
                let grants = self.set.grant_list(&key, &identity.public())?;
                self.write(identity, RecordKey::Admin(key), &Body::Plain, now, unix)?;
                // The user has not looked at these: they stay what others have said.
                let own = identity.public();
                let restated = grants.iter().map(|again| again.draft().restating(&again.record, &own));
                let signed = restated.map(|draft| draft.sign(identity, unix));
                self.add_all(signed.collect::<Result<_, _>>()?, now)?;
            }
            MemberChange::RevokeAdmin {} => again = self.revoke_admin(identity, demotion, wish, (now, unix))?,
        }
        let gone = !self.is_member(&key);
        again.retain(|again| !(gone && again.record.key().subject() == Some(&key)));
        let again = again.iter().map(|again| self.in_words(again, &names)).collect();
        Ok(Changed { key, again })
    }

    pub(crate) fn change_rules(
        &mut self,
        identity: &Identity,
        change: RuleChange,
        now: u64,
        unix: u64,
    ) -> Result<(), NetworkError> {
        self.admin(identity)?;
        let read = |text: String| {
            if let Some(name) = rules::unknown_name(&text, &self.state) {
                return Err(NetworkError::NoSuchMember(name.escape_debug().to_string()));
            }
            let rule = rules::from_words(&text, &self.state);
            rule.map_err(|error| NetworkError::BadRule { text, error })
        };
        // A new list has nothing of the one before.
        let goes_on = !matches!(change, RuleChange::Set { .. });
        let present = || self.state.table.rules.clone().ok_or(NetworkError::RulesNotUnderstood);
        let changed = match change {
            RuleChange::Default { policy } => return self.set_default(identity, policy, now, unix),
            RuleChange::Set { rules } => rules.into_iter().map(read).collect::<Result<Vec<_>, _>>()?,
            RuleChange::Add { rule, at } => {
                let (rule, mut rules) = (read(rule)?, present()?);
                let at = at.unwrap_or(rules.len() + 1);
                let known = rules.iter().position(|known| *known == rule);
                match (at.checked_sub(1).filter(|at| *at <= rules.len()), known) {
                    (Some(_), Some(known)) => return Err(NetworkError::RuleAlready(known + 1)),
                    (Some(place), None) => rules.insert(place, rule),
                    (None, _) => return Err(NetworkError::NoRule(at)),
                }
                rules
            }
            RuleChange::Remove { at } => {
                let mut rules = present()?;
                match at.checked_sub(1).filter(|at| *at < rules.len()) {
                    Some(place) => drop(rules.remove(place)),
                    None => return Err(NetworkError::NoRule(at)),
                }
                rules
            }
        };
        if changed.len() > MAX_RULES {
            return Err(NetworkError::TooManyRules);
        }
        let body = Body::Rules(RuleList::Understood(changed));
        let before = self.set.in_force(&RecordKey::Rules).filter(|_| goes_on).cloned();
        self.write_restating(identity, RecordKey::Rules, (&body, before.as_slice()), (now, unix))
    }

    fn set_default(&mut self, identity: &Identity, policy: Policy, now: u64, unix: u64) -> Result<(), NetworkError> {
        let body = NetworkBody {
            inside: policy,
            ..self.network_body(identity)
        };
        // The name is restated.
        let before = self.set.in_force(&RecordKey::Network).cloned();
        let body = Body::Network(body);
        self.write_restating(identity, RecordKey::Network, (&body, before.as_slice()), (now, unix))
    }

    /// Fails if a member cannot have an IPv4 address: the one that is to be fixed, or, for `None`, the
    /// one that follows from its key.
    fn check_address(&self, member: &PublicKey, fixed: Option<Ipv4Addr>) -> Result<(), NetworkError> {
        if let Some(address) = fixed.filter(|address| !addresses::is_of_networks(*address)) {
            return Err(NetworkError::NotOfNetworks(address));
        }
        let address = fixed.unwrap_or_else(|| addresses::derived(&self.id().to_string(), member));
        self.check_free(address, member)
    }

    /// The name of a node, or its npub.
    pub(crate) fn name_of(&self, key: &PublicKey) -> String {
        match self.state.names.get(key) {
            Some(name) => name.to_string(),
            None => key.to_string(),
        }
    }

    /// The member of this key or name.
    pub(crate) fn named(&self, named: &str) -> Result<PublicKey, NetworkError> {
        let found = match named.parse::<PublicKey>() {
            Ok(key) => Some(key).filter(|key| self.is_member(key)),
            Err(_) => {
                let mut names = self.state.names.iter();
                names.find(|(_, name)| name.as_str() == named).map(|(key, _)| *key)
            }
        };
        found.ok_or_else(|| NetworkError::NoMember(named.escape_debug().to_string()))
    }

    /// The member of this key or name, or the administrator of this key. An administrator keeps its rights
    /// when its membership ends.
    pub(crate) fn known(&self, named: &str) -> Result<PublicKey, NetworkError> {
        match named.parse() {
            Ok(key) if self.is_admin(&key) => Ok(key),
            _ => self.named(named),
        }
    }

    /// Removes a member, and ends the invites by which it came: its owner still has the codes.
    fn remove_member(
        &mut self,
        identity: &Identity,
        demotion: Demotion<'_>,
        wish: Option<&Wish>,
        (now, unix): (u64, u64),
    ) -> Result<Vec<Again>, NetworkError> {
        let member = demotion.admin;
        let kept = self.invites_by_name(demotion, wish, unix)?;
        let came_by = self.came_by(member, unix);
        let mut again = match self.has_been_admin(member) {
            true => self.revoke_admin(identity, demotion, wish, (now, unix))?,
            false => Vec::new(),
        };
        self.remove(identity, &RecordKey::Member(*member), now, unix)?;
        for invite in came_by.difference(&kept).copied() {
            let key = RecordKey::Invite(invite);
            if self.state.open_invite(&invite, unix).is_ok() {
                let record = self.set.in_force(&key).cloned();
                self.remove(identity, &key, now, unix)?;
                again.extend(record.map(|record| told(record, false, true)));
            }
        }
        Ok(again)
    }

    /// The open invites by which a member came. As an administrator it may have signed its record again
    /// without the invite, so earlier records count, too.
    pub(super) fn came_by(&self, member: &PublicKey, unix: u64) -> BTreeSet<[u8; 32]> {
        let about = RecordKey::Member(*member);
        let records = self.set.records().filter(|record| *record.key() == about);
        let invites = records.filter_map(|record| record.proof()).map(|proof| proof.invite);
        invites
            .filter(|invite| self.state.open_invite(invite, unix).is_ok())
            .collect()
    }

    /// Fails if a grant by this node gives an administrator no more than it has.
    fn check_grant(&self, own: &PublicKey, node: &PublicKey) -> Result<(), NetworkError> {
        let admins = &self.state.admins;
        if admins.heads.contains(node) && !admins.is_head(node) {
            return Err(NetworkError::EarlierHead(self.name_of(node)));
        }
        match (admins.rank(own), admins.rank(node)) {
            (Some(own), Some(rank)) if rank <= own.saturating_add(1) => {
                Err(NetworkError::AdminAlready(self.name_of(node)))
            }
            _ => Ok(()),
        }
    }

    /// An error with the names of members in place of their keys.
    pub(crate) fn with_names(&self, error: NetworkError) -> NetworkError {
        match error {
            NetworkError::Change(ChangeError::NotSenior(key)) => NetworkError::NotSenior(self.name_of(&key)),
            NetworkError::Change(ChangeError::NotAdmin(_)) => self.not_admin(),
            error => error,
        }
    }

    /// Whether a node is an administrator, or has resigned, so that something may rest on what it has signed.
    pub(crate) fn has_been_admin(&self, node: &PublicKey) -> bool {
        let about = RecordKey::Admin(*node);
        let mut grants = self.set.live().filter(|record| *record.key() == about);
        self.is_admin(node) || grants.any(|record| record.signer() != node && !record.removed())
    }

    /// What a record is about that is signed again, with these names of members.
    pub(super) fn in_words(&self, again: &Again, names: &BTreeMap<PublicKey, Name>) -> String {
        let name = |node: &PublicKey| names.get(node).map_or_else(|| self.name_of(node), ToString::to_string);
        let about = match again.record.key() {
            RecordKey::Network => "the name and the default of the network".to_owned(),
            RecordKey::Rules => "the rules".to_owned(),
            RecordKey::Secret => "the secret of the network".to_owned(),
            RecordKey::Member(node) if again.bare && !again.ends => {
                format!("member {}, without tags and address", name(node))
            }
            RecordKey::Member(node) if again.bare => format!("name, tags and address of {}", name(node)),
            RecordKey::Member(node) => format!("member {}", name(node)),
            RecordKey::Admin(node) => format!("administrator {}", name(node)),
            RecordKey::Exit(node) => format!("exit {}", name(node)),
            RecordKey::Route(node, prefix) => format!("route {prefix} of {}", name(node)),
            RecordKey::Guest(key) => match again.record.body() {
                Body::Guest(Guest { name: Some(name), .. }) => format!("guest {name}"),
                _ => format!("guest {}", guest::key_text(key)),
            },
            key @ RecordKey::Invite(_) => key.to_string().chars().take(19).collect(),
            RecordKey::Unknown(text) => text.escape_debug().to_string(),
        };
        let restated =
            matches!(again.record.key(), RecordKey::Network | RecordKey::Rules) && again.record.of().next().is_some();
        match (again.ends, again.record.removed()) {
            (true, _) if restated => {
                format!("{about}: stay, as those of before are not known; `weft rule` shows and sets them")
            }
            (true, _) => format!("{about}: ended"),
            (_, true) => format!("{about}: still removed"),
            _ => about,
        }
    }

    /// Removes a member, and gives its name, its tags and its fixed address to another one.
    fn replace(
        &mut self,
        identity: &Identity,
        (demotion, old): (Demotion<'_>, Member),
        new: &str,
        wish: Option<&Wish>,
        (now, unix): (u64, u64),
    ) -> Result<Vec<Again>, NetworkError> {
        let key = demotion.admin;
        let successor = self.named(new)?;
        if successor == *key {
            return Err(NetworkError::SameMember(self.name_of(key)));
        }
        if *key == identity.public() {
            return Err(NetworkError::ReplacesItself);
        }
        let record = RecordKey::Member(successor);
        // A record that this node may not sign is found before the old one is removed.
        self.set.next_version(&record, &identity.public())?;
        let before = self.state.members.get(&successor).cloned().unwrap_or_default();
        let body = Member {
            name: self.state.names.get(key).cloned().or(old.name).or(before.name),
            tags: old.tags,
            ipv4: old.ipv4.or(before.ipv4),
            proof: before.proof,
        };
        let old = self.set.in_force(&RecordKey::Member(*key)).cloned();
        let again = self.remove_member(identity, demotion, wish, (now, unix))?;
        self.change_record_like(identity, &successor, (body, old.as_slice()), (now, unix))?;
        Ok(again)
    }

    /// Decides about a request to join. A node that is no administrator makes the same checks, so
    /// that nothing is passed on without a valid code.
    pub(crate) fn enrol(&mut self, identity: &Identity, ask: &Ask, now: u64, unix: u64) -> Enrolment {
        let own = identity.public();
        if self.is_member(&ask.member) {
            return Enrolment::Member;
        }
        let admin = self.state.admins.rank(&own).is_some();
        // An administrator that was removed may not know yet that its rights have ended.
        if !self.is_member(&own) {
            return Enrolment::Refused(Refusal::OtherNetwork);
        }
        // The cheap checks come first: any guest can ask.
        let invite = match self.state.may_join(&ask.member, &ask.proof.invite, unix) {
            Ok(invite) => invite.clone(),
            Err(closed) => return Enrolment::Refused(closed.into()),
        };
        if ask.proof.verify(&ask.member, self.id()).is_err() {
            return Enrolment::Refused(Refusal::BadProof);
        }
        if !admin {
            return Enrolment::PassOn(self.state.admins.of.keys().copied().collect());
        }
        let (name, numbered) = self.free_name(&ask.member, invite.name.or_else(|| ask.name.clone()));
        let body = Body::Member(Member {
            name,
            tags: invite.tags,
            ipv4: self.free_ipv4(&ask.member),
            proof: Some(ask.proof.clone()),
        });
        let before = Box::new(self.clone());
        let by = self.set.in_force(&RecordKey::Invite(ask.proof.invite)).cloned();
        match self.write_restating(
            identity,
            RecordKey::Member(ask.member),
            (&body, by.as_slice()),
            (now, unix),
        ) {
            Ok(()) if self.is_member(&ask.member) => {
                self.note_numbered(numbered);
                Enrolment::Done(before)
            }
            Ok(()) | Err(_) => Enrolment::Refused(Refusal::Full),
        }
    }

    /// Makes a node a member without an invite, also one that was removed.
    pub(crate) fn take_in(
        &mut self,
        identity: &Identity,
        node: &PublicKey,
        (wanted, tags): (Option<Name>, BTreeSet<Name>),
        now: u64,
        unix: u64,
    ) -> Result<(), NetworkError> {
        self.admin(identity)?;
        if self.is_member(node) {
            return Ok(());
        }
        let (name, numbered) = self.free_name(node, wanted);
        let body = Body::Member(Member {
            name,
            tags,
            ipv4: self.free_ipv4(node),
            proof: None,
        });
        self.write(identity, RecordKey::Member(*node), &body, now, unix)?;
        self.note_numbered(numbered);
        match self.is_member(node) {
            true => Ok(()),
            false => Err(NetworkError::TooManyMembers),
        }
    }

    /// The IPv4 address to fix for a new member, if another member or a guest has that which follows from its key.
    fn free_ipv4(&self, member: &PublicKey) -> Option<Ipv4Addr> {
        let network = self.id().to_string();
        let taken = |ipv4: Ipv4Addr| self.is_taken(ipv4);
        taken(addresses::derived(&network, member)).then(|| addresses::free(&network, member.as_bytes(), taken))?
    }

    /// Returns what was signed again.
    pub(super) fn revoke_admin(
        &mut self,
        identity: &Identity,
        demotion: Demotion<'_>,
        wish: Option<&Wish>,
        (now, unix): (u64, u64),
    ) -> Result<Vec<Again>, NetworkError> {
        let Demotion { admin: key, by, .. } = demotion;
        // An administrator without that right is not asked what stays.
        self.check_revocation(by, key)?;
        let keep = self.keep(demotion, wish, unix)?;
        let signed = self.signed_by(demotion, unix);
        let mut again = self.set.resign_list(key, by, &keep)?;
        let mut signed_again = self.signed_again(identity, &again, unix)?;
        // The end comes first: what it makes void makes room for the rest.
        signed_again.insert(0, self.sign_end(identity, key, unix)?);
        self.add_all(signed_again, now)?;
        // Only what the user knows of is told: no invites that were closed before.
        again.retain(|again| signed.iter().any(|signed| signed.is_about(again.record.key())) || !again.ends);
        for signed in signed {
            if !again.iter().any(|again| signed.is_about(again.record.key())) {
                again.push(signed.ended());
            }
        }
        Ok(again)
    }

    /// Fails if this node may not end the rights of an administrator.
    pub(crate) fn check_revocation(&self, own: &PublicKey, admin: &PublicKey) -> Result<(), NetworkError> {
        let admins = &self.state.admins;
        if admins.heads.contains(own) && self.set.named_by(own) == Some(*admin) {
            return Err(NetworkError::IsSuccessor(self.name_of(admin)));
        }
        self.set.next_version(&RecordKey::Admin(*admin), own)?;
        Ok(())
    }

    /// Signs records again, with the names that members have.
    pub(super) fn signed_again(
        &self,
        identity: &Identity,
        again: &[Again],
        unix: u64,
    ) -> Result<Vec<Record>, NetworkError> {
        let draft = |again: &Again| match again.record.key() {
            // A record of the founder counts only with what proves the founder.
            RecordKey::Network => {
                let body = Body::Network(self.network_body(identity));
                Draft::new(self.id(), RecordKey::Network, again.version, &body)
            }
            _ if again.ends || again.bare => again.draft(),
            _ => {
                let named = self.draft_with_name(&again.record, again.version);
                named.unwrap_or_else(|| again.draft())
            }
        };
        let signed = again.iter().map(|again| draft(again).sign(identity, unix));
        Ok(signed.collect::<Result<Vec<Record>, _>>()?)
    }

    /// Fails unless this node is an administrator.
    pub(crate) fn admin(&self, identity: &Identity) -> Result<(), NetworkError> {
        self.check_own()?;
        if self.state.admins.rank(&identity.public()).is_some() {
            return Ok(());
        }
        Err(self.not_admin())
    }

    fn not_admin(&self) -> NetworkError {
        let names: Vec<String> = self.state.admins.of.keys().map(|key| self.name_of(key)).collect();
        NetworkError::NotAdmin(names.join(", "))
    }

    /// Signs a record and adds it.
    pub(crate) fn write(
        &mut self,
        identity: &Identity,
        key: RecordKey,
        body: &Body,
        now: u64,
        unix: u64,
    ) -> Result<(), NetworkError> {
        self.admin(identity)?;
        let version = self.set.next_version(&key, &identity.public())?;
        let record = Draft::new(self.id(), key, version, body).sign(identity, unix)?;
        self.add(record, now)
    }

    /// Signs another version of the record of a member. Statements of others stay theirs
    /// ([`Record::of`](weft_roster::record::Record::of)).
    fn change_record(
        &mut self,
        identity: &Identity,
        member: &PublicKey,
        body: Member,
        times: (u64, u64),
    ) -> Result<(), NetworkError> {
        self.change_record_like(identity, member, (body, &[]), times)
    }

    /// [`change_record`](Self::change_record) with what `others` say, too.
    fn change_record_like(
        &mut self,
        identity: &Identity,
        member: &PublicKey,
        (body, others): (Member, &[Arc<Record>]),
        (now, unix): (u64, u64),
    ) -> Result<(), NetworkError> {
        self.admin(identity)?;
        let key = RecordKey::Member(*member);
        let version = self.set.next_version(&key, &identity.public())?;
        let body = Body::Member(body);
        let draft = match self.set.in_force(&key) {
            Some(record) => Draft::changed(record, version, &body).restating(record, &identity.public()),
            None => Draft::new(self.id(), key, version, &body),
        };
        let restate = |draft: Draft, other: &Arc<Record>| draft.restating(other, &identity.public());
        let draft = others.iter().fold(draft, restate);
        self.add(draft.sign(identity, unix)?, now)
    }

    /// [`write`](Self::write) of what other records say in part.
    fn write_restating(
        &mut self,
        identity: &Identity,
        key: RecordKey,
        (body, others): (&Body, &[Arc<Record>]),
        (now, unix): (u64, u64),
    ) -> Result<(), NetworkError> {
        self.admin(identity)?;
        let version = self.set.next_version(&key, &identity.public())?;
        let restate = |draft: Draft, other: &Arc<Record>| draft.restating(other, &identity.public());
        let draft = others.iter().fold(Draft::new(self.id(), key, version, body), restate);
        self.add(draft.sign(identity, unix)?, now)
    }

    /// Signs the removal of what is in force about a key.
    pub(super) fn remove(
        &mut self,
        identity: &Identity,
        key: &RecordKey,
        now: u64,
        unix: u64,
    ) -> Result<(), NetworkError> {
        let version = self.set.next_version(key, &identity.public())?;
        let present = self.set.live().filter(|record| record.key() == key);
        let draft = match present.max_by_key(|record| record.version()) {
            Some(record) => Draft::again(record, version),
            None => return Ok(()),
        };
        self.add(draft.removal().sign(identity, unix)?, now)
    }
}

#[cfg(test)]
mod tests;
