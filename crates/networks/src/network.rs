//! One network: its records, its members, and the request to join it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use weft_core::hint::{self, Hint, HintSource};
use weft_noise::{Identity, PublicKey};
use weft_roster::invite::Proof;
use weft_roster::key::RecordKey;
use weft_roster::names::Name;
use weft_roster::network_id::{NetworkId, Nonce};
use weft_roster::record::{Body, Draft, Member, Network as NetworkBody, Record};
use weft_roster::rules::Policy;
use weft_roster::set::{Insertion, RecordSet};
use weft_roster::state::{OpenInvite, State};
use weft_roster::sync::{Proven, Received, Sync, SyncError, Unproven};
use weft_wire::Subnet;

use crate::document::{Document, Refusal};
use crate::offers::Offers;
use crate::presences::Presences;
use crate::{NetworkError, Owners, Row, used_ipv4};

mod admin;
mod foreign;
mod guests;
mod joining;
mod names;
mod presence;
mod resignation;
mod routes;
mod secret;
mod signed;
mod successor;
mod turn;

pub use self::foreign::SignedMembers;
pub use self::joining::Joining;
use self::names::Names;
pub use self::names::Numbered;
pub(crate) use self::signed::Demotion;
pub use self::signed::{Signed, SignedKind, Wish};
use self::turn::Turn;

/// How long nodes learn that an invite is used up or revoked, in s.
const CLOSED: u64 = 3_600;
/// How long a removed member stays a contact, in ms.
const DISMISSAL: u64 = 60_000;
/// Members that a list of nvpn removes and that stay contacts, at most: they are peers of this node until then.
const MAX_DISMISSED: usize = 64;
/// Members that are tried although nothing shows that they can be reached, if fewer than this can.
const FEW: usize = 3;

/// A network that this node is a member of, or joins, or was removed from.
#[derive(Debug, Clone)]
pub struct Network {
    set: RecordSet,
    state: State,
    /// The list of nvpn that takes the place of records, in a network that was founded with it.
    foreign: Option<SignedMembers>,
    sync: Sync,
    /// The nodes that the synchronisation knows as connected.
    connected: BTreeSet<PublicKey>,
    /// Nodes by which this one came in, and where they were.
    contacts: BTreeMap<PublicKey, Vec<SocketAddr>>,
    joining: Option<Joining>,
    /// Its records were lost here, and any member gives them back.
    is_lost: bool,
    /// Members that were removed lately, and until when they stay contacts, in ms: they have to
    /// learn it.
    dismissed: BTreeMap<PublicKey, u64>,
    /// The subnets that this node offers.
    own_offer: BTreeSet<Subnet>,
    offers: Offers,
    presences: Presences,
    /// The name of the network on this node.
    label: Option<Name>,
    /// Its place in the order in which this node came into its networks.
    place: u32,
    /// Whether an administrator has to make another secret.
    lacks_secret: bool,
    /// When this node makes it.
    secret_turn: Turn,
    names: Names,
    /// When this node forgets it, in ms: it leaves.
    leaves_at: Option<u64>,
    /// How often what is kept of it has changed.
    revision: u64,
    /// The revision that was written last.
    saved: u64,
}

/// What a request to join leads to.
#[derive(Debug)]
pub(crate) enum Enrolment {
    /// The node was a member already.
    Member,
    /// The node is a member now. The network as it was before, in case that cannot be saved.
    Done(Box<Network>),
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
        joining: Option<(Option<Proof>, Option<Name>)>,
    ) -> Self {
        let state = State::of(&set);
        let mut network = Self {
            presences: Presences::new(set.network(), *own),
            lacks_secret: state.lacks_secret(),
            secret_turn: Turn::default(),
            names: Names::default(),
            foreign: None,
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
            is_lost: false,
            dismissed: BTreeMap::new(),
            own_offer: BTreeSet::new(),
            offers: Offers::default(),
            label: None,
            place: 0,
            leaves_at: None,
            revision: 0,
            saved: 0,
        };
        network.note_collisions(None);
        network
    }

    /// Founds a network with one member, which is its administrator.
    pub(crate) fn found(
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

    /// The name by which this node tells it from its other networks; `None` while its name is unknown.
    #[must_use]
    pub fn label(&self) -> Option<&Name> {
        self.label.as_ref()
    }

    pub(crate) fn set_label(&mut self, label: Option<Name>) {
        if self.label != label {
            self.label = label;
            self.note_change();
        }
    }

    /// Its place in the order in which this node came into its networks.
    #[must_use]
    pub fn place(&self) -> u32 {
        self.place
    }

    pub(crate) fn set_place(&mut self, place: u32) {
        if self.place != place {
            self.place = place;
            self.note_change();
        }
    }

    /// Sets what was kept of its label and its place.
    #[must_use]
    pub fn placed(mut self, label: Option<Name>, place: u32) -> Self {
        (self.label, self.place) = (label, place);
        self
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

    /// Whether a node is an administrator.
    #[must_use]
    pub fn is_admin(&self, key: &PublicKey) -> bool {
        self.state.admins.rank(key).is_some()
    }

    /// Whether a node is the only member that is an administrator.
    #[must_use]
    pub fn has_only_admin(&self, key: &PublicKey) -> bool {
        let mut admins = self.state.admins.of.keys().filter(|admin| self.is_member(admin));
        admins.next() == Some(key) && admins.next().is_none()
    }

    /// The IPv4 address of a member.
    #[must_use]
    pub fn ipv4(&self, key: &PublicKey) -> Option<Ipv4Addr> {
        self.state.addresses.of.get(key).copied()
    }

    /// Whether nodes may come with an invite at `unix`: one that is open, or that was used up or revoked
    /// within the hour, so that a node with its code learns that.
    #[must_use]
    pub fn has_invite(&self, unix: u64) -> bool {
        let mut invites = self.state.invites.values();
        invites.any(|open| {
            let lasts = open.invite.expires.is_none_or(|expires| unix < expires);
            let closed = open.closed_at.filter(|_| open.revoked || open.remaining == 0);
            lasts && !open.refused && closed.is_none_or(|at| unix < at.saturating_add(CLOSED))
        })
    }

    /// The open invites at `unix`, by the public half of their key.
    pub fn open_invites(&self, unix: u64) -> impl Iterator<Item = (&[u8; 32], &OpenInvite)> {
        let invites = self.state.invites.iter();
        invites.filter(move |(invite, _)| self.state.open_invite(invite, unix).is_ok())
    }

    /// Addresses at which a node may be.
    fn hints(&self, key: &PublicKey) -> Vec<Hint> {
        let mut hints = Vec::new();
        for at in self.contacts.get(key).into_iter().flatten() {
            hint::add(&mut hints, *at, HintSource::Invite);
        }
        if self.is_member(key) {
            for at in self.presences.addresses(key) {
                hint::add(&mut hints, at, HintSource::Member);
            }
        }
        hints
    }

    /// The nodes that the network brings to `own`.
    pub(crate) fn rows(&self, own: &PublicKey, owners: &Owners) -> Vec<Row> {
        let member = self.is_member(own);
        let source = used_ipv4(self, own, owners);
        let row = |key: &PublicKey, member: bool| Row {
            key: *key,
            name: self.state.names.get(key).cloned(),
            network: self.label.clone(),
            addresses: self.hints(key),
            ipv4: used_ipv4(self, key, owners).filter(|_| source.is_some()),
            source,
            member,
        };
        if member {
            let others = self.state.members.keys().filter(|key| *key != own);
            let dismissed = self.dismissed.keys().map(|key| row(key, false));
            let contacts = self.awaited().map(|key| row(key, false));
            others
                .map(|key| row(key, true))
                .chain(dismissed)
                .chain(contacts)
                .collect()
        } else if self.joining.is_some() {
            self.contacts.keys().map(|key| row(key, false)).collect()
        } else {
            Vec::new()
        }
    }

    /// Processes a message of the synchronisation. Returns whether the state is another one, and whether all
    /// of the message was processed.
    pub(crate) fn handle_sync(
        &mut self,
        own: &PublicKey,
        from: &PublicKey,
        message: &[u8],
        proven: &Proven,
        now: u64,
    ) -> (bool, Result<(), SyncError>) {
        if !self.listens_to(from) {
            return (false, Err(SyncError::Unconnected));
        }
        self.sync.connect(*from, now);
        self.connected.insert(*from);
        let Received { kept, outcome } = self
            .sync
            .receive(from, message, &mut self.set, &self.state, proven, now);
        if outcome.is_ok() && self.is_member(from) {
            self.presences.join_digest(from, now);
        }
        if kept.is_empty() {
            return (false, outcome);
        }
        self.renew_state(now);
        for record in &kept {
            self.sync.push(record, Some(from), &self.state, now);
        }
        self.note_change();
        self.end_joining(own, from);
        (true, outcome)
    }

    /// The records of a message of the synchronisation that are to be verified.
    pub(crate) fn unproven(&mut self, from: &PublicKey, message: &[u8], now: u64) -> Option<Unproven> {
        let listens = self.listens_to_some() || self.contacts.contains_key(from);
        let mut unproven = || self.sync.unproven(from, message, (&self.set, &self.state), now);
        listens.then(&mut unproven)?
    }

    /// Records which nodes can be reached. If few members can, some are tried all the same.
    pub(crate) fn set_reachable(&mut self, own: &PublicKey, reachable: &BTreeSet<PublicKey>, now: u64) {
        // Members of a network of nvpn get its list, and nothing of weft.
        if self.is_foreign() {
            return;
        }
        self.forget_callers(reachable);
        let partners: BTreeSet<PublicKey> = if self.joining.is_some() {
            self.contacts.keys().copied().collect()
        } else if self.is_member(own) || self.state.admins.rank(own).is_some() {
            let known = |key: &&PublicKey| self.is_member(key) || self.state.removed.contains_key(*key);
            let mut partners: BTreeSet<PublicKey> = reachable.iter().filter(known).copied().collect();
            partners.extend(self.awaited());
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
            self.sync.disconnect(&key, now);
        }
        for key in partners.difference(&self.connected) {
            self.sync.connect(*key, now);
        }
        self.connected = partners;
        self.offers.follow_reachable(reachable);
        self.set_presence_partners(own, reachable, now);
    }

    /// A node has restarted, and has lost what it was told.
    pub(crate) fn handle_restart(&mut self, node: &PublicKey) {
        self.offers.forget_sent(node);
        self.sync.handle_restart(node);
    }

    /// A document to a node did not arrive.
    pub(crate) fn handle_lost(&mut self, node: &PublicKey, now: u64) {
        self.handle_restart(node);
        self.presences.handle_lost(node, now);
    }

    /// Returns the next document to send.
    pub(crate) fn poll(&mut self, own: &PublicKey, now: u64) -> Option<(PublicKey, Vec<u8>)> {
        if self.is_foreign() {
            return None;
        }
        if let Some(document) = self.ask(own, now) {
            return Some(document);
        }
        if let Some(document) = self.poll_offer(own, now) {
            return Some(document);
        }
        if let Some(document) = self.presences.poll(now) {
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
    pub(crate) fn timeout(&self, own: &PublicKey) -> Option<u64> {
        if self.is_foreign() {
            return self.dismissed.values().min().copied();
        }
        let asks = self.joining.as_ref().filter(|joining| joining.proof.is_some());
        let ask = asks.map(|joining| joining.next);
        let dismissed = self.dismissed.values().min().copied();
        let offer = self.offer_timeout(own);
        let presences = self.presences.timeout().filter(|_| self.is_member(own));
        let turns = [self.secret_turn.at(), self.name_timeout()];
        let first = [self.sync.timeout(), ask, dismissed, offer, presences, self.leaves_at];
        first.into_iter().chain(turns).flatten().min()
    }

    /// Whether it has changed since it was last written. One that has lost its records is written once this
    /// node is a member again: a file of a part of them would not be told from the whole.
    #[must_use]
    pub fn is_unsaved(&self) -> bool {
        self.revision != self.saved && !self.is_leaving() && !self.is_lost
    }

    /// Whether this node leaves it. The members get the resignation, and no file of it is written.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.leaves_at.is_some()
    }

    pub(crate) fn leaves_at(&self) -> Option<u64> {
        self.leaves_at
    }

    pub(crate) fn leave_by(&mut self, at: u64) {
        self.leaves_at = Some(at);
    }

    /// How often what is kept of it has changed.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn note_saved(&mut self, revision: u64) {
        self.saved = revision;
    }

    /// Takes the place of `before`, from which it differs.
    pub(crate) fn replaces(&mut self, before: &Self) {
        self.place = before.place;
        self.revision = before.revision + 1;
        self.saved = before.saved;
    }

    /// Notes that what was written last is not what it is now.
    pub(crate) fn note_change(&mut self) {
        self.revision += 1;
    }

    /// Whether something that is kept has changed since `before`.
    pub(crate) fn differs_from(&self, before: &Self) -> bool {
        self.revision != before.revision
    }

    /// Computes the state again, and notes which members it has no longer.
    fn renew_state(&mut self, now: u64) {
        let before = std::mem::replace(&mut self.state, State::of(&self.set));
        self.lacks_secret = self.state.lacks_secret();
        let removed = before
            .members
            .keys()
            .filter(|key| self.state.removed.contains_key(*key));
        self.dismissed.extend(removed.map(|key| (*key, now + DISMISSAL)));
        self.dismissed.retain(|key, _| !self.state.members.contains_key(key));
        self.note_collisions(Some(&before));
        self.drop_offers();
        self.drop_presences();
    }

    /// Forgets removed members whose time as contacts is over. Returns whether there were any.
    pub(crate) fn end_dismissals(&mut self, now: u64) -> bool {
        let before = self.dismissed.len();
        self.dismissed.retain(|_, until| now < *until);
        self.dismissed.len() < before
    }

    fn add(&mut self, record: Record, now: u64) -> Result<(), NetworkError> {
        self.add_all(vec![record], now)
    }

    /// Adds records that this node has signed. Those that find no room are left out, which is an error.
    fn add_all(&mut self, records: Vec<Record>, now: u64) -> Result<(), NetworkError> {
        let records: Vec<Arc<Record>> = records.into_iter().map(Arc::new).collect();
        let taken = |record: &&Arc<Record>| !matches!(self.set.insert(record), Insertion::Refused(_));
        let kept: Vec<&Arc<Record>> = records.iter().filter(taken).collect();
        if !kept.is_empty() {
            self.renew_state(now);
            self.note_change();
        }
        for record in &kept {
            self.sync.push(record, None, &self.state, now);
        }
        match kept.len() == records.len() {
            true => Ok(()),
            false => Err(NetworkError::Full),
        }
    }
}
