//! One network: its records, its members, and the request to join it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use weft_noise::{Identity, PublicKey};
use weft_roster::addresses;
use weft_roster::changes::Again;
use weft_roster::invite::{Code, Proof, Seed};
use weft_roster::key::RecordKey;
use weft_roster::names::Name;
use weft_roster::network_id::{NetworkId, Nonce};
use weft_roster::record::{Body, Draft, Invite, Member, Network as NetworkBody, Record};
use weft_roster::rules::Policy;
use weft_roster::set::{Insertion, RecordSet};
use weft_roster::state::{OpenInvite, State};
use weft_roster::sync::{Sync, SyncError};

use super::document::{Ask, Document, Refusal};
use super::{MemberChange, NetworkError, NewInvite, Row};

/// The interval between two requests to join, in ms.
const ASK_AGAIN: u64 = 2_000;
/// How long a removed member stays a contact, in ms.
const DISMISSAL: u64 = 60_000;
/// Members that are tried although nothing shows that they can be reached, if fewer than this can.
const FEW: usize = 3;

/// A network that this node is a member of, or joins, or was removed from.
#[derive(Debug)]
pub struct Network {
    set: RecordSet,
    state: State,
    sync: Sync,
    /// The nodes that the synchronisation knows as connected.
    connected: BTreeSet<PublicKey>,
    /// Nodes by which this one came in, and where they were.
    contacts: BTreeMap<PublicKey, Vec<SocketAddr>>,
    joining: Option<Joining>,
    /// Members that were removed lately, and until when they stay contacts, in ms: they have to
    /// learn it.
    dismissed: BTreeMap<PublicKey, u64>,
    unsaved: bool,
}

/// A request to join that is under way, or was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joining {
    /// The proof that this node has an invite code.
    pub proof: Proof,
    /// The name that it would like.
    pub name: Option<Name>,
    /// The last refusal. The request goes on, because the next answer may be another one.
    pub refusal: Option<Refusal>,
    /// When it is sent again, in ms.
    next: u64,
}

/// What a request to join leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Enrolment {
    /// The node is a member now.
    Done,
    /// It is not.
    Refused(Refusal),
    /// These administrators decide.
    PassOn(Vec<PublicKey>),
}

impl Network {
    /// A network that was kept: its records, the nodes by which this one came in, and the request to
    /// join it.
    #[must_use]
    pub fn kept(
        own: &PublicKey,
        set: RecordSet,
        contacts: BTreeMap<PublicKey, Vec<SocketAddr>>,
        joining: Option<(Proof, Option<Name>)>,
    ) -> Self {
        let state = State::of(&set);
        Self {
            state,
            set,
            sync: Sync::new(*own),
            connected: BTreeSet::new(),
            contacts,
            joining: joining.map(|(proof, name)| Joining {
                proof,
                name,
                refusal: None,
                next: 0,
            }),
            dismissed: BTreeMap::new(),
            unsaved: false,
        }
    }

    /// Founds a network with one member, which is its administrator.
    pub(super) fn found(
        identity: &Identity,
        name: Name,
        host: Option<Name>,
        nonce: Nonce,
        unix: u64,
    ) -> Result<Self, NetworkError> {
        let own = identity.public();
        let id = NetworkId::new(&own, &nonce);
        let mut network = Self::kept(&own, RecordSet::new(id), BTreeMap::new(), None);
        let body = Body::Network(NetworkBody {
            name: Some(name),
            inside: Policy::Allow,
            founder: Some(nonce),
            successor: None,
        });
        let record = Draft::new(id, RecordKey::Network, 1, &body).sign(identity, unix)?;
        network.add(record, 0)?;
        let member = Member {
            name: host,
            ..Member::default()
        };
        network.write(identity, RecordKey::Member(own), &Body::Member(member), 0, unix)?;
        Ok(network)
    }

    /// A network that this node is about to join with `code`.
    pub(super) fn join(own: &PublicKey, code: &Code, host: Option<Name>, now: u64) -> Self {
        let mut contacts = BTreeMap::from([(code.inviter, code.addresses.clone())]);
        if let Some(entry) = &code.entry {
            contacts.entry(entry.key).or_default().push(entry.address);
        }
        contacts.remove(own);
        let proof = code.seed.prove(own, code.network);
        let mut network = Self::kept(own, RecordSet::new(code.network), contacts, Some((proof, host)));
        network.unsaved = true;
        if let Some(joining) = &mut network.joining {
            joining.next = now;
        }
        network
    }

    /// Its identifier.
    #[must_use]
    pub fn id(&self) -> NetworkId {
        self.set.network()
    }

    /// Its name, if it is known yet.
    #[must_use]
    pub fn name(&self) -> Option<&Name> {
        self.state.name.as_ref()
    }

    /// What its records amount to.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Its records.
    #[must_use]
    pub fn set(&self) -> &RecordSet {
        &self.set
    }

    /// The nodes by which this one came in, and where they were.
    #[must_use]
    pub fn contacts(&self) -> &BTreeMap<PublicKey, Vec<SocketAddr>> {
        &self.contacts
    }

    /// The request to join it, while it is under way.
    #[must_use]
    pub fn joining(&self) -> Option<&Joining> {
        self.joining.as_ref()
    }

    /// Whether a node is a member.
    #[must_use]
    pub fn is_member(&self, key: &PublicKey) -> bool {
        self.state.members.contains_key(key)
    }

    /// The IPv4 address of a member.
    #[must_use]
    pub fn ipv4(&self, key: &PublicKey) -> Option<Ipv4Addr> {
        self.state.addresses.of.get(key).copied()
    }

    /// Whether an invite has not expired at `unix`. One that is used or revoked counts, too: a node
    /// that comes with it shall learn that.
    #[must_use]
    pub fn has_invite(&self, unix: u64) -> bool {
        let mut invites = self.state.invites.values();
        invites.any(|open| open.invite.expires.is_none_or(|expires| unix < expires))
    }

    /// The open invites at `unix`, by the public half of their key.
    pub fn open_invites(&self, unix: u64) -> impl Iterator<Item = (&[u8; 32], &OpenInvite)> {
        let invites = self.state.invites.iter();
        invites.filter(move |(invite, _)| self.state.open_invite(invite, unix).is_ok())
    }

    /// The nodes that the network brings to `own`.
    pub(super) fn rows(&self, own: &PublicKey) -> Vec<Row> {
        let member = self.is_member(own);
        let row = |key: &PublicKey| Row {
            key: *key,
            name: self.state.names.get(key).cloned(),
            addresses: self.contacts.get(key).cloned().unwrap_or_default(),
            ipv4: self.ipv4(key),
            member,
        };
        if member {
            let others = self.state.members.keys().filter(|key| *key != own);
            let dismissed = self.dismissed.keys().map(|key| Row {
                member: false,
                ..row(key)
            });
            others.map(row).chain(dismissed).collect()
        } else if self.joining.is_some() {
            self.contacts.keys().map(row).collect()
        } else {
            Vec::new()
        }
    }

    pub(super) fn invite(
        &mut self,
        identity: &Identity,
        new: &NewInvite,
        seed: Seed,
        now: u64,
        unix: u64,
    ) -> Result<Code, NetworkError> {
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

    pub(super) fn revoke(
        &mut self,
        identity: &Identity,
        prefix: &str,
        now: u64,
        unix: u64,
    ) -> Result<(), NetworkError> {
        self.admin(identity)?;
        let hex = |key: &[u8; 32]| RecordKey::Invite(*key).to_string();
        let open: Vec<[u8; 32]> = self.open_invites(unix).map(|(key, _)| *key).collect();
        let found = open.into_iter().find(|key| {
            hex(key)
                .split('/')
                .next_back()
                .is_some_and(|text| text.starts_with(prefix))
        });
        let key = found.ok_or_else(|| NetworkError::NoInvite(prefix.escape_debug().to_string()))?;
        self.remove(identity, &RecordKey::Invite(key), now, unix)
    }

    pub(super) fn change_member(
        &mut self,
        identity: &Identity,
        named: &str,
        change: MemberChange,
        now: u64,
        unix: u64,
    ) -> Result<PublicKey, NetworkError> {
        self.admin(identity)?;
        let named_so = |key: &&PublicKey| {
            self.state.names.get(*key).is_some_and(|name| name.as_str() == named) || key.to_string() == named
        };
        let found = self.state.members.keys().find(named_so).copied();
        let key = found.ok_or_else(|| NetworkError::NoMember(named.escape_debug().to_string()))?;
        match change {
            MemberChange::Rename(name) => {
                let mut body = self.state.members.get(&key).cloned().unwrap_or_default();
                body.name = Some(name);
                self.write(identity, RecordKey::Member(key), &Body::Member(body), now, unix)?;
            }
            MemberChange::Remove => {
                if self.state.admins.rank(&key).is_some() {
                    self.revoke_admin(identity, &key, now, unix)?;
                }
                self.remove(identity, &RecordKey::Member(key), now, unix)?;
            }
            MemberChange::MakeAdmin => {
                let again = self.set.grant_list(&key, &identity.public())?;
                self.write(identity, RecordKey::Admin(key), &Body::Plain, now, unix)?;
                self.sign_again(identity, again, now, unix)?;
            }
            MemberChange::RevokeAdmin => self.revoke_admin(identity, &key, now, unix)?,
        }
        Ok(key)
    }

    /// Decides about a request to join.
    pub(super) fn enrol(&mut self, identity: &Identity, ask: &Ask, now: u64, unix: u64) -> Enrolment {
        if self.is_member(&ask.member) {
            return Enrolment::Done;
        }
        if self.state.admins.rank(&identity.public()).is_none() {
            return match self.is_member(&identity.public()) {
                true => Enrolment::PassOn(self.state.admins.of.keys().copied().collect()),
                false => Enrolment::Refused(Refusal::OtherNetwork),
            };
        }
        // The cheap checks come first: any guest can ask.
        let invite = match self.state.may_join(&ask.member, &ask.proof.invite, unix) {
            Ok(invite) => invite.clone(),
            Err(closed) => return Enrolment::Refused(closed.into()),
        };
        if ask.proof.verify(&ask.member, self.id()).is_err() {
            return Enrolment::Refused(Refusal::BadProof);
        }
        let network = self.id().to_string();
        let derived = addresses::derived(&network, &ask.member);
        let taken = |address: Ipv4Addr| self.state.addresses.of.values().any(|known| *known == address);
        let fixed = taken(derived)
            .then(|| addresses::free(&network, &ask.member, taken))
            .flatten();
        let body = Body::Member(Member {
            name: invite.name.or_else(|| ask.name.clone()),
            tags: invite.tags,
            ipv4: fixed,
            proof: Some(ask.proof.clone()),
        });
        match self.write(identity, RecordKey::Member(ask.member), &body, now, unix) {
            Ok(()) if self.is_member(&ask.member) => Enrolment::Done,
            Ok(()) | Err(_) => Enrolment::Refused(Refusal::Full),
        }
    }

    /// Handles an answer to this node's request.
    pub(super) fn handle_answer(&mut self, from: &PublicKey, refusal: Option<Refusal>) {
        if let Some(joining) = self.joining.as_mut().filter(|_| self.contacts.contains_key(from)) {
            joining.refusal = refusal;
        }
    }

    /// Processes a message of the synchronisation. Returns whether the state is another one.
    pub(super) fn handle_sync(
        &mut self,
        own: &PublicKey,
        from: &PublicKey,
        message: &[u8],
        now: u64,
    ) -> Result<bool, SyncError> {
        // A node that joins knows no members yet, and listens to those that it asked.
        if self.joining.is_some() && !self.contacts.contains_key(from) && self.state.members.is_empty() {
            return Err(SyncError::Unconnected);
        }
        self.sync.connect(*from, now);
        self.connected.insert(*from);
        let kept = self.sync.receive(from, message, &mut self.set, &self.state, now)?;
        if kept.is_empty() {
            return Ok(false);
        }
        self.renew_state(now);
        for record in &kept {
            self.sync.push(record, Some(from), &self.state, now);
        }
        self.unsaved = true;
        if self.is_member(own) {
            self.joining = None;
        }
        Ok(true)
    }

    /// Records which nodes can be reached. If few members can, some are tried all the same.
    pub(super) fn set_reachable(&mut self, own: &PublicKey, reachable: &BTreeSet<PublicKey>, now: u64) {
        let partners: BTreeSet<PublicKey> = if self.joining.is_some() {
            self.contacts.keys().copied().collect()
        } else if self.is_member(own) || self.state.admins.rank(own).is_some() {
            let known = |key: &&PublicKey| self.is_member(key) || self.state.removed.contains_key(*key);
            let mut partners: BTreeSet<PublicKey> = reachable.iter().filter(known).copied().collect();
            let others = self.state.members.range(own..).chain(self.state.members.range(..own));
            let others = others.map(|(key, _)| *key).filter(|key| key != own);
            let missing = FEW.saturating_sub(partners.len());
            partners.extend(others.filter(|key| !reachable.contains(key)).take(missing));
            partners
        } else {
            BTreeSet::new()
        };
        let gone: Vec<PublicKey> = self.connected.difference(&partners).copied().collect();
        for key in gone {
            self.sync.disconnect(&key);
        }
        for key in partners.difference(&self.connected) {
            self.sync.connect(*key, now);
        }
        self.connected = partners;
    }

    /// Returns the next document to send.
    pub(super) fn poll(&mut self, own: &PublicKey, now: u64) -> Option<(PublicKey, Vec<u8>)> {
        if let Some(document) = self.ask(own, now) {
            return Some(document);
        }
        let (to, message) = self.sync.poll(&self.set, &self.state, now)?;
        let message = message.encode();
        let document = Document::Sync {
            network: self.id(),
            message: &message,
        };
        Some((to, document.encode()))
    }

    /// When [`poll`](Self::poll) has something, if nothing else happens.
    pub(super) fn timeout(&self) -> Option<u64> {
        let ask = self.joining.as_ref().map(|joining| joining.next);
        let dismissed = self.dismissed.values().min().copied();
        [self.sync.timeout(), ask, dismissed].into_iter().flatten().min()
    }

    pub(super) fn take_unsaved(&mut self) -> bool {
        std::mem::take(&mut self.unsaved)
    }

    /// Computes the state again, and notes which members it has no longer.
    fn renew_state(&mut self, now: u64) {
        let before = std::mem::replace(&mut self.state, State::of(&self.set));
        let removed = before
            .members
            .keys()
            .filter(|key| self.state.removed.contains_key(*key));
        self.dismissed.extend(removed.map(|key| (*key, now + DISMISSAL)));
        self.dismissed.retain(|key, _| !self.state.members.contains_key(key));
    }

    /// Forgets removed members whose time as contacts is over. Returns whether there were any.
    pub(super) fn end_dismissals(&mut self, now: u64) -> bool {
        let before = self.dismissed.len();
        self.dismissed.retain(|_, until| now < *until);
        self.dismissed.len() < before
    }

    /// The request to join, to the next of the contacts, if it is due.
    fn ask(&mut self, own: &PublicKey, now: u64) -> Option<(PublicKey, Vec<u8>)> {
        let network = self.id();
        let joining = self.joining.as_mut().filter(|joining| joining.next <= now)?;
        joining.next = now + ASK_AGAIN;
        let turn = usize::try_from(now / ASK_AGAIN).unwrap_or(0) % self.contacts.len().max(1);
        let to = *self.contacts.keys().nth(turn)?;
        let ask = Document::Ask(Ask {
            network,
            member: *own,
            proof: joining.proof.clone(),
            name: joining.name.clone(),
        });
        Some((to, ask.encode()))
    }

    fn revoke_admin(&mut self, identity: &Identity, key: &PublicKey, now: u64, unix: u64) -> Result<(), NetworkError> {
        let again = self.set.resign_list(key, &identity.public())?;
        self.sign_again(identity, again, now, unix)?;
        self.remove(identity, &RecordKey::Admin(*key), now, unix)
    }

    fn sign_again(&mut self, identity: &Identity, again: Vec<Again>, now: u64, unix: u64) -> Result<(), NetworkError> {
        for Again { record, version } in again {
            let record = Draft::again(&record, version).sign(identity, unix)?;
            self.add(record, now)?;
        }
        Ok(())
    }

    /// Fails unless this node is an administrator.
    fn admin(&self, identity: &Identity) -> Result<(), NetworkError> {
        if self.state.admins.rank(&identity.public()).is_some() {
            return Ok(());
        }
        let name = |key: &PublicKey| match self.state.names.get(key) {
            Some(name) => name.to_string(),
            None => key.to_string(),
        };
        let names: Vec<String> = self.state.admins.of.keys().map(name).collect();
        Err(NetworkError::NotAdmin(names.join(", ")))
    }

    /// Signs a record and adds it.
    fn write(
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

    /// Signs the removal of what is in force about a key.
    fn remove(&mut self, identity: &Identity, key: &RecordKey, now: u64, unix: u64) -> Result<(), NetworkError> {
        let version = self.set.next_version(key, &identity.public())?;
        let present = self.set.live().filter(|record| record.key() == key);
        let draft = match present.max_by_key(|record| record.version()) {
            Some(record) => Draft::again(record, version),
            None => return Ok(()),
        };
        self.add(draft.removal().sign(identity, unix)?, now)
    }

    fn add(&mut self, record: Record, now: u64) -> Result<(), NetworkError> {
        let record = Arc::new(record);
        match self.set.insert(&record) {
            Insertion::Refused(_) => Err(NetworkError::Full),
            Insertion::Kept | Insertion::Known | Insertion::Older => {
                self.renew_state(now);
                self.sync.push(&record, None, &self.state, now);
                self.unsaved = true;
                Ok(())
            }
        }
    }
}

/// Whether an address can be reached from other networks than its own.
#[must_use]
pub fn is_global(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            let shared = a == 100 && b & 0xc0 == 64;
            !(ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_unspecified() || shared)
        }
        IpAddr::V6(ip) => ip.segments()[0] & 0xe000 == 0x2000,
    }
}
