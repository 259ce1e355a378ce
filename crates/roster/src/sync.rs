//! How members agree on their records: new ones are pushed, and digests find what pushes missed.
//!
//! A node pushes what is new to the members that it is connected with, if these are few. Otherwise, on a
//! ring of their keys, to the next one, and those 2, 4, 8 ... places on. So a record reaches all in as
//! many steps as their number has binary digits, and several times, which makes up for lost messages.
//!
//! Digests begin with one hash of all records, and go down to the identifiers of the buckets that
//! differ. Each message is answered from the set as it is then: no state of an exchange can be left
//! behind, and a lost message costs an exchange at most.
//!
//! Only records that count are exchanged ([`RecordSet::live`]), so records of a signer without
//! rights go no further than the node that they were sent to. A non-member receives only the record
//! that removed it. A joining node takes records from all nodes: they prove themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use thiserror::Error;
use weft_noise::PublicKey;

use crate::admins::network_of;
use crate::event::{EventError, Unverified};
use crate::record::{Record, RecordError};
use crate::set::{RecordSet, Refusal};
use crate::state::State;

mod admission;
mod budget;
mod dismissal;
mod message;
mod proven;

use budget::{Budget, EACH};
use dismissal::Dismissal;
use message::has;
pub use message::{BUCKETS, MAX_MESSAGE, Message, MessageError};
pub use proven::{Proven, Unproven};

/// Time for which new records are collected before a push, in ms.
const BATCH: u64 = 50;

/// The first interval between two digests behind a change, in ms. Each one is twice the one before.
const FIRST_DIGEST: u64 = 2_000;

/// The longest interval between two digests, in ms. Each costs an idle link a session.
const LAST_DIGEST: u64 = 3_600_000;

/// Nodes that are gone whose budgets are kept, at most: members, which are not more.
const MAX_GONE: usize = 2_048;

/// Up to this many connected members all get a push.
const FEW: usize = 16;

/// The state of the synchronisation of one network at one node.
///
/// Times are in milliseconds on a clock that never goes back.
#[derive(Debug, Clone)]
pub struct Sync {
    own: PublicKey,
    peers: BTreeMap<PublicKey, Peer>,
    /// The time of the next digest, and the interval behind it.
    digest: (u64, u64),
    /// The partner that had the last digest.
    last: Option<PublicKey>,
    /// What nodes that are gone may send, and be sent, when they are back.
    gone: BTreeMap<PublicKey, (Budget, Budget)>,
}

/// What is kept of a connected node.
#[derive(Debug, Clone)]
struct Peer {
    /// Records to push, by identifier.
    push: BTreeMap<[u8; 32], Arc<Record>>,
    /// When to push.
    due: Option<u64>,
    /// Answers and digests that wait to be sent.
    answers: Vec<Message>,
    /// Whether it was entitled to records when it was last looked at.
    entitled: bool,
    /// Whether it got the record that removed it.
    dismissed: bool,
    /// What it may send.
    receive: Budget,
    /// What it may be sent in answers.
    send: Budget,
}

/// The reason why a message is refused, as a whole or from a record on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SyncError {
    /// The sender is not connected.
    #[error("the sender is not connected")]
    Unconnected,
    /// The sender is neither a member nor an administrator.
    #[error("the sender is no member of the network")]
    NotMember,
    /// The sender has sent more than its share.
    #[error("the sender has sent more than its share")]
    Budget,
    /// Not a message.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// A record that is none, or of another network. Those before it are kept.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A record that the set did not take. Those before it are kept.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// What became of a message.
#[derive(Debug)]
pub struct Received {
    /// The records that are new in the set and count, also if those behind them are refused.
    pub kept: Vec<Arc<Record>>,
    /// Whether all of it was processed.
    pub outcome: Result<(), SyncError>,
}

impl From<EventError> for SyncError {
    fn from(error: EventError) -> Self {
        Self::Record(error.into())
    }
}

impl Sync {
    /// Creates the synchronisation at the node `own`, without peers.
    #[must_use]
    pub const fn new(own: PublicKey) -> Self {
        Self {
            own,
            peers: BTreeMap::new(),
            digest: (u64::MAX, LAST_DIGEST),
            last: None,
            gone: BTreeMap::new(),
        }
    }

    /// Notes that a node can be reached. It gets a digest if it is a member.
    pub fn connect(&mut self, peer: PublicKey, now: u64) {
        if self.peers.contains_key(&peer) {
            return;
        }
        let full = || (Budget::full(now), Budget::full(now));
        let (receive, send) = self.gone.remove(&peer).unwrap_or_else(full);
        let new = Peer {
            push: BTreeMap::new(),
            due: Some(now),
            answers: Vec::new(),
            entitled: false,
            dismissed: false,
            receive,
            send,
        };
        self.peers.insert(peer, new);
        self.digest_soon(now);
    }

    /// Notes that a node can no longer be reached. Its budget is kept until it would be full again.
    pub fn disconnect(&mut self, peer: &PublicKey, now: u64) {
        let Some(gone) = self.peers.remove(peer) else { return };
        self.gone
            .retain(|_, (receive, send)| !receive.is_full(now) || !send.is_full(now));
        if self.gone.len() < MAX_GONE {
            self.gone.insert(*peer, (gone.receive, gone.send));
        }
    }

    /// Notes that a node has restarted, and may have lost what it was sent. It gets a digest if it is a member.
    pub fn handle_restart(&mut self, peer: &PublicKey) {
        if let Some(peer) = self.peers.get_mut(peer) {
            (peer.entitled, peer.dismissed, peer.due) = (false, false, Some(0));
        }
    }

    /// Passes on a record that is new in the set: made here, or received from `from`.
    pub fn push(&mut self, record: &Arc<Record>, from: Option<&PublicKey>, state: &State, now: u64) {
        for partner in self.partners(state) {
            if Some(&partner) != from
                && entitled(state, &partner)
                && let Some(peer) = self.peers.get_mut(&partner)
            {
                peer.push.insert(*record.id(), Arc::clone(record));
                peer.due.get_or_insert(now + BATCH);
            }
        }
        self.digest_soon(now);
    }

    /// Processes a message, of which `proven` records need no look at their signature. The caller makes a state of the set, and calls [`push`](Self::push) for each record
    /// that was kept.
    pub fn receive(
        &mut self,
        from: &PublicKey,
        bytes: &[u8],
        set: &mut RecordSet,
        state: &State,
        proven: &Proven,
        now: u64,
    ) -> Received {
        let mut kept = Vec::new();
        let outcome = self.process(from, bytes, (&mut *set, state), (proven, &mut kept), now);
        kept.retain(|record| set.is_live(record));
        if !kept.is_empty() {
            self.digest_soon(now);
        }
        Received { kept, outcome }
    }

    fn process(
        &mut self,
        from: &PublicKey,
        bytes: &[u8],
        (set, state): (&mut RecordSet, &State),
        (proven, kept): (&Proven, &mut Vec<Arc<Record>>),
        now: u64,
    ) -> Result<(), SyncError> {
        let peer = self.peers.get_mut(from).ok_or(SyncError::Unconnected)?;
        if !proven.charged && !peer.receive.take(bytes.len() + EACH, now) {
            return Err(SyncError::Budget);
        }
        let member = entitled(state, from);
        let refused = !member && entitled(state, &self.own);
        if refused {
            peer.dismiss(set, state, from, now);
        }
        // An earlier head takes its place back also from those that have removed it.
        if refused && !state.admins.heads.contains(from) {
            return Err(SyncError::NotMember);
        }
        let message = Message::decode(bytes)?;
        if refused && !matches!(message, Message::Records { .. }) {
            return Err(SyncError::NotMember);
        }
        match message {
            Message::Root(theirs) => {
                if theirs != root(set) {
                    peer.answer(Message::Buckets(digests(set)), now);
                } else if member {
                    self.join_digest(from, state, now);
                }
            }
            Message::Buckets(theirs) => {
                let buckets = differing(&theirs, &digests(set));
                if buckets != [0; 32] {
                    peer.answer(ids_of(set, &buckets), now);
                }
            }
            Message::Ids { buckets, ids } if member => peer.answer_ids(set, &buckets, &ids, now),
            Message::Ids { .. } => {}
            Message::Records { want, records } => {
                let outcome = take(set, peer, &records, (proven, kept));
                if member {
                    peer.answer_want(set, &want, now);
                }
                outcome?;
            }
        }
        Ok(())
    }

    /// Returns the time of the next message, if nothing else happens.
    #[must_use]
    pub fn timeout(&self) -> Option<u64> {
        if self.peers.is_empty() {
            return None;
        }
        let answers = self.peers.values().any(|peer| !peer.answers.is_empty());
        let due = self.peers.values().filter_map(|peer| peer.due).min();
        [answers.then_some(0), due, Some(self.digest.0)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Returns the next message to send at the time `now`. The caller asks until there is none,
    /// also when the state has changed.
    pub fn poll(&mut self, set: &RecordSet, state: &State, now: u64) -> Option<(PublicKey, Message)> {
        if now >= self.digest.0 {
            self.send_digest(set, state, now);
        }
        let joining = !entitled(state, &self.own);
        for (key, peer) in &mut self.peers {
            let entitled = entitled(state, key);
            if !entitled && !joining {
                peer.dismiss(set, state, key, now);
            }
            if !std::mem::replace(&mut peer.entitled, entitled || joining) && peer.entitled {
                peer.dismissed = false;
                peer.answers.push(Message::Root(root(set)));
                // These records make this node the head, for nodes that do not know it yet and answer no root.
                peer.answers.extend(headship(set, &self.own));
            }
            if !peer.answers.is_empty() {
                return Some((*key, peer.answers.remove(0)));
            }
            if peer.due.is_some_and(|due| now >= due)
                && let Some(message) = peer.next_push()
            {
                return Some((*key, message));
            }
        }
        None
    }

    fn digest_soon(&mut self, now: u64) {
        self.digest = (self.digest.0.min(now + FIRST_DIGEST), FIRST_DIGEST);
    }

    /// Makes the digest of this node due, after one of a partner to which the session is up, if this partner is next
    /// and half of the interval is over.
    pub fn join_digest(&mut self, from: &PublicKey, state: &State, now: u64) {
        let (due, interval) = self.digest;
        if due <= now.saturating_add(interval / 2) && self.next_partner(state) == Some(*from) {
            self.digest.0 = due.min(now);
        }
    }

    /// Returns the partner that gets the next digest.
    fn next_partner(&self, state: &State) -> Option<PublicKey> {
        let partners = self.partners(state);
        let behind = |last: &PublicKey| partners.range(*last..).find(|key| *key != last);
        self.last.as_ref().and_then(behind).or(partners.first()).copied()
    }

    /// Sends a digest to the next partner.
    fn send_digest(&mut self, set: &RecordSet, state: &State, now: u64) {
        let (_, interval) = self.digest;
        let next = (interval * 2).min(LAST_DIGEST);
        self.digest = (now + next, next);
        let partner = self.next_partner(state);
        if let Some(peer) = partner.and_then(|key| self.peers.get_mut(&key))
            && !peer.answers.iter().any(|answer| matches!(answer, Message::Root(_)))
        {
            peer.answers.push(Message::Root(root(set)));
        }
        self.last = partner;
    }

    /// Returns the members that get what is new from here: all of few, and of many on the ring of keys those 1, 2, 4,
    /// 8 ... places on.
    fn partners(&self, state: &State) -> BTreeSet<PublicKey> {
        let ring = self.peers.range(self.own..).chain(self.peers.range(..self.own));
        let joining = !entitled(state, &self.own);
        let wanted = |key: &PublicKey| joining || entitled(state, key);
        let ring: Vec<PublicKey> = ring.map(|(key, _)| *key).filter(wanted).collect();
        if ring.len() <= FEW {
            return ring.into_iter().collect();
        }
        let places = (0..usize::BITS).map(|power| (1_usize << power) - 1);
        places.map_while(|place| ring.get(place).copied()).collect()
    }
}

impl Peer {
    /// Queues an answer, if the share of the peer allows; the next digest starts over otherwise.
    fn answer(&mut self, message: Message, now: u64) {
        if self.send.take(message.encode().len(), now) {
            self.answers.push(message);
        }
    }

    /// Leaves nothing but what shows the peer that it was removed, once.
    fn dismiss(&mut self, set: &RecordSet, state: &State, key: &PublicKey, now: u64) {
        if self.dismissed {
            return;
        }
        self.push.clear();
        self.due = None;
        self.answers.clear();
        if let Some(Dismissal { rights, ends }) = Dismissal::of(key, set, state) {
            self.dismissed = true;
            let message = |records: &[&[Arc<Record>]]| Message::Records {
                want: Vec::new(),
                records: records.concat().iter().map(|record| record.event().to_json()).collect(),
            };
            // One message, because two may come in the other order.
            let all = message(&[&rights, &ends]);
            let len = all.encode().len();
            let fits = len <= MAX_MESSAGE && self.send.take(len, now);
            self.answers.push(if fits { all } else { message(&[&ends]) });
        }
    }

    /// Answers what the peer has in some buckets by what it lacks, and by what is lacking here.
    fn answer_ids(&mut self, set: &RecordSet, buckets: &[u8; 32], theirs: &[[u8; 32]], now: u64) {
        let known: BTreeSet<&[u8; 32]> = set.records().map(|record| record.id()).collect();
        let theirs: BTreeSet<&[u8; 32]> = theirs.iter().collect();
        let lacks = |record: &&Arc<Record>| has(buckets, record.id()[0]) && !theirs.contains(record.id());
        let records: Vec<Arc<Record>> = set.live().filter(lacks).cloned().collect();
        let want = theirs.into_iter().filter(|id| !known.contains(id)).copied();
        // The bytes of a message leave room for no more.
        let want = want.take(MAX_MESSAGE / 128).collect();
        self.answer_records(want, &records, now);
    }

    fn answer_want(&mut self, set: &RecordSet, want: &[[u8; 32]], now: u64) {
        let want: BTreeSet<&[u8; 32]> = want.iter().collect();
        let records = set.live().filter(|record| want.contains(record.id()));
        let records: Vec<Arc<Record>> = records.cloned().collect();
        if !records.is_empty() {
            self.answer_records(Vec::new(), &records, now);
        }
    }

    /// Sends records, in as many messages as they need.
    fn answer_records(&mut self, mut want: Vec<[u8; 32]>, records: &[Arc<Record>], now: u64) {
        let mut rest = records.iter().peekable();
        loop {
            let mut len = 3 + want.len() * 32;
            let mut some = Vec::new();
            while let Some(record) = rest.next_if(|record| len + 4 + record.len() <= MAX_MESSAGE) {
                len += 4 + record.len();
                some.push(record.event().to_json());
            }
            let want = std::mem::take(&mut want);
            self.answer(Message::Records { want, records: some }, now);
            if rest.peek().is_none() {
                return;
            }
        }
    }

    /// Takes the next push, of as many records as fit.
    fn next_push(&mut self) -> Option<Message> {
        let mut len = 3;
        let mut records = Vec::new();
        while let Some(next) = self.push.first_entry() {
            len += 4 + next.get().len();
            if len > MAX_MESSAGE {
                break;
            }
            records.push(next.remove().event().to_json());
        }
        if self.push.is_empty() {
            self.due = None;
        }
        let want = Vec::new();
        (!records.is_empty()).then_some(Message::Records { want, records })
    }
}

/// Returns the record of the head about the network, if `own` is the head.
fn headship(set: &RecordSet, own: &PublicKey) -> Option<Message> {
    let record = network_of(set.slots(), own).filter(|_| set.admins().is_head(own))?;
    Some(Message::Records {
        want: Vec::new(),
        records: vec![record.event().to_json()],
    })
}

/// Returns true if a node gets the records of the network.
fn entitled(state: &State, key: &PublicKey) -> bool {
    state.members.contains_key(key) || state.admins.rank(key).is_some()
}

/// Inserts records, known ones without a look at their signature.
fn take(
    set: &mut RecordSet,
    peer: &mut Peer,
    records: &[String],
    (proven, kept): (&Proven, &mut Vec<Arc<Record>>),
) -> Result<(), SyncError> {
    let known: BTreeSet<[u8; 32]> = set.records().map(|record| *record.id()).collect();
    let mut new = Vec::new();
    let mut outcome = Ok(());
    for json in records {
        match Unverified::read(json.as_bytes()) {
            Ok(event) => {
                // The peer has it, so it needs no push.
                peer.push.remove(event.id());
                new.extend(Some(event).filter(|event| !known.contains(event.id())));
            }
            Err(error) => {
                outcome = Err(error.into());
                break;
            }
        }
    }
    let mut taken = Vec::new();
    let admitted = admission::take(set, new, proven, &mut taken);
    kept.extend(
        taken
            .into_iter()
            .filter(|(_, is_new)| *is_new)
            .map(|(record, _)| record),
    );
    admitted?;
    outcome
}

fn root(set: &RecordSet) -> [u8; 32] {
    let ids = live_ids(set, &[0xff; 32]).into_iter();
    ids.fold(Sha256::new(), Sha256::chain_update).finalize().into()
}

fn digests(set: &RecordSet) -> Box<[[u8; 8]; BUCKETS]> {
    let mut hashes: BTreeMap<u8, Sha256> = BTreeMap::new();
    for id in live_ids(set, &[0xff; 32]) {
        hashes.entry(id[0]).or_default().update(id);
    }
    let mut digests = Box::new([[0; 8]; BUCKETS]);
    for (bucket, hash) in hashes {
        digests[usize::from(bucket)].copy_from_slice(&hash.finalize()[..8]);
    }
    digests
}

fn differing(a: &[[u8; 8]; BUCKETS], b: &[[u8; 8]; BUCKETS]) -> [u8; 32] {
    let mut buckets = [0; 32];
    for (at, (a, b)) in a.iter().zip(b).enumerate() {
        buckets[at / 8] |= u8::from(a != b) << (at % 8);
    }
    buckets
}

fn live_ids(set: &RecordSet, buckets: &[u8; 32]) -> BTreeSet<[u8; 32]> {
    let ids = set.live().map(|record| *record.id());
    ids.filter(|id| has(buckets, id[0])).collect()
}

/// Lists the identifiers in the first of some buckets, as many as fit a message.
fn ids_of(set: &RecordSet, buckets: &[u8; 32]) -> Message {
    let most = (MAX_MESSAGE - 33) / 32;
    let mut ids: Vec<[u8; 32]> = live_ids(set, buckets).into_iter().collect();
    let mut buckets = *buckets;
    if ids.len() > most {
        // A bucket that is cut is sent back in part; one alone cannot be left out.
        let cut = ids[most][0];
        let kept = ids.partition_point(|id| id[0] < cut);
        let last = if kept == 0 { cut } else { cut - 1 };
        ids.truncate(if kept == 0 { most } else { kept });
        for bucket in (0..=u8::MAX).filter(|bucket| *bucket > last) {
            buckets[usize::from(bucket / 8)] &= !(1 << (bucket % 8));
        }
    }
    Message::Ids { buckets, ids }
}
