//! Random histories: every order of arrival gives one state, which is that of a slow model.
//!
//! The model keeps all records, and looks through all of them for each question. It shares no code
//! with the crate but the parsing of records.

#![allow(clippy::unwrap_used, reason = "test helpers")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::*;
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};
use weft_noise::PublicKey;
use weft_roster::event::Event;
use weft_roster::key::RecordKey;
use weft_roster::record::{Body, Guest, Member, Network, Record, RuleList, Secret};
use weft_roster::rules::{Policy, Rule};
use weft_roster::set::RecordSet;
use weft_roster::state::State;
use weft_roster::sync::{Message, Proven, Sync};

/// Histories of each run.
const HISTORIES: u64 = 10_000;

/// Keys that sign. The first is the founder.
const SIGNERS: std::ops::RangeInclusive<u8> = 1..=6;

/// Keys of guests.
const GUESTS: std::ops::RangeInclusive<u8> = 60..=62;

/// A guest behind one of several hosts, with an address that another one may have, too.
fn guest(by: u8, number: u8, version: u64) -> Arc<Record> {
    let body = Guest {
        ipv4: Some([10, 44, 0, 1 + (number + by) % 2].into()),
        host: Some(key(1 + (number + (version % 8) as u8) % 8)),
        ..Guest::default()
    };
    let key = RecordKey::Guest([number; 32]);
    record(by, key, version, version == 3, &Body::Guest(body))
}

/// Every record that a history may contain.
fn pool() -> Vec<Arc<Record>> {
    let mut pool = Vec::new();
    let unknown = |by, version| {
        let mut event = rules(by, version).event().body().clone();
        event.tags.push(vec!["default".to_owned(), "ask".to_owned()]);
        let event = Event::sign(&identity(by), event).unwrap();
        Arc::new(Record::parse(event.to_json().as_bytes()).unwrap())
    };
    for by in SIGNERS {
        for version in [1, 2, 3, u64::MAX] {
            for subject in SIGNERS {
                pool.extend([grant(by, subject, version), revoke(by, subject, version)]);
            }
            for subject in 1..=8 {
                pool.extend([member(by, subject, version), unmember(by, subject, version)]);
            }
            for subject in 6..=9 {
                for code in 50..=51 {
                    pool.push(joined(by, subject, version, code, version == 3));
                }
            }
            for code in 50..=51 {
                let (uses, revoked) = (1 + u32::from(version == 2), version > 2);
                pool.push(invite(by, code, version, uses, revoked));
            }
            let prefix = "10.9.0.0/16".parse().unwrap();
            for subject in 1..=8 {
                let key = RecordKey::Route(key(subject), prefix);
                pool.push(record(by, key, version, version == 2, &Body::Plain));
            }
            for number in GUESTS {
                pool.push(guest(by, number, version));
            }
            pool.push(secret(by, version, version == 3 && by > 4));
            pool.extend([rules(by, version % 60_000), unknown(by, version % 60_000)]);
        }
    }
    for version in 1..4 {
        pool.push(founding(version, Some(3 + version as u8)));
        for by in 3..=6 {
            pool.push(heir(by, version, 3 + (by + version as u8) % 4));
        }
    }
    pool
}

/// What a successor says about the network, which names its own successor.
fn heir(by: u8, version: u64, successor: u8) -> Arc<Record> {
    let body = Network {
        name: None,
        inside: Policy::Allow,
        founder: None,
        successor: Some(key(successor)),
    };
    record(by, RecordKey::Network, version, false, &Body::Network(body))
}

fn below(rng: &mut ChaCha20Rng, n: usize) -> usize {
    rng.next_u32() as usize % n
}

/// A history: mostly about few administrators, so that they have a say.
fn history(rng: &mut ChaCha20Rng, pool: &[Arc<Record>]) -> Vec<Arc<Record>> {
    let mut records = Vec::new();
    if below(rng, 20) > 0 {
        records.push(founding(1 + below(rng, 2) as u64, Some(4)));
    }
    for subject in 2..=5 {
        if below(rng, 2) == 0 {
            records.push(grant(1 + below(rng, subject as usize) as u8, subject, 1));
        }
    }
    // Now and then a successor has taken over, and one from it.
    if below(rng, 8) == 0 {
        records.extend([revoke(4, 1, 3), heir(4, 1, 5), revoke(5, 4, 3)]);
    }
    let count = below(rng, 60);
    records.extend((0..count).map(|_| Arc::clone(&pool[below(rng, pool.len())])));
    shuffle(rng, &mut records);
    records
}

fn shuffle<T>(rng: &mut ChaCha20Rng, items: &mut [T]) {
    for at in (1..items.len()).rev() {
        items.swap(at, below(rng, at + 1));
    }
}

/// What is compared.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    ranks: BTreeMap<PublicKey, u32>,
    members: BTreeMap<PublicKey, Member>,
    removed: BTreeMap<PublicKey, [u8; 32]>,
    over_used: BTreeMap<PublicKey, [u8; 32]>,
    remaining: BTreeMap<[u8; 32], (u32, bool)>,
    routes: BTreeSet<PublicKey>,
    guests: BTreeMap<[u8; 32], Guest>,
    rules: Option<Vec<Rule>>,
    secret: Option<Secret>,
}

impl Outcome {
    fn of(state: &State) -> Self {
        let ranks = state.admins.of.iter().map(|(key, admin)| (*key, admin.rank.into()));
        let invites = state.invites.iter();
        Self {
            ranks: ranks.collect(),
            members: state.members.clone(),
            removed: state.removed.iter().map(|(key, record)| (*key, *record.id())).collect(),
            over_used: state.over_used.clone(),
            remaining: invites
                .map(|(key, open)| (*key, (open.remaining, open.revoked)))
                .collect(),
            routes: state.routes.values().flatten().copied().collect(),
            guests: state.guests.clone(),
            rules: state.table.rules.clone(),
            secret: state.secret.clone(),
        }
    }
}

/// The slow model.
struct Model<'a> {
    records: &'a [Arc<Record>],
    ranks: BTreeMap<PublicKey, u32>,
    head: Option<PublicKey>,
}

/// Whether `a` goes before `b`, both by signers of one rank.
fn beats(a: &Record, b: &Record) -> bool {
    if a.version() != b.version() {
        return a.version() > b.version();
    }
    if a.removed() != b.removed() {
        return a.removed();
    }
    a.id() < b.id()
}

impl<'a> Model<'a> {
    fn new(records: &'a [Arc<Record>]) -> Self {
        let mut model = Self {
            records,
            ranks: BTreeMap::new(),
            head: None,
        };
        let founder = key(FOUNDER);
        let Some(first) = model.best(|r| *r.key() == RecordKey::Network && *r.signer() == founder, beats) else {
            return model;
        };
        let mut heads = vec![founder];
        let mut said = Some(first);
        let successor = loop {
            let head = heads[heads.len() - 1];
            let Some(network) = said else { break None };
            let Body::Network(body) = network.body() else {
                unreachable!()
            };
            let Some(successor) = body.successor.filter(|successor| *successor != head) else {
                break None;
            };
            let own = model.own_rights(&head).filter(|own| own.removed());
            let about = |r: &Record| {
                let by_head = own.is_some_and(|own| own.id() == r.id());
                *r.key() == RecordKey::Admin(head) && (by_head || *r.signer() == successor)
            };
            let ends = model.best(about, beats);
            let hands_over = ends.is_some_and(|r| r.removed() && r.version() > network.version());
            if !hands_over || heads.contains(&successor) {
                break Some(successor);
            }
            heads.push(successor);
            said = model.best(|r| *r.key() == RecordKey::Network && *r.signer() == successor, beats);
        };
        model.head = Some(heads[heads.len() - 1]);
        model
            .ranks
            .extend(model.head.into_iter().chain(successor).map(|key| (key, 0)));
        let mut decided: BTreeSet<PublicKey> = model.ranks.keys().copied().collect();
        for rank in 0..10 {
            let signs: Vec<PublicKey> = model
                .ranks
                .iter()
                .filter(|(_, r)| **r == rank)
                .map(|(k, _)| *k)
                .collect();
            for subject in (1..=9).map(key) {
                let about = RecordKey::Admin(subject);
                let says = |r: &Record| *r.key() == about && signs.contains(r.signer());
                let Some(decisive) = model.best(says, beats) else {
                    continue;
                };
                if !decided.insert(subject) {
                    continue;
                }
                let own = model.own_rights(&subject);
                let resigned = own.is_some_and(|own| own.removed() && own.version() > decisive.version());
                if !decisive.removed() && !resigned {
                    model.ranks.insert(subject, rank + 1);
                }
            }
        }
        model
    }

    /// What a node says about its own rights: their end, once it has said that.
    fn own_rights(&self, node: &PublicKey) -> Option<&'a Record> {
        let own = |r: &Record| *r.key() == RecordKey::Admin(*node) && r.signer() == node;
        let ended = self.best(|r| own(r) && r.removed(), beats);
        ended.or_else(|| self.best(own, beats))
    }

    /// The record that `beats` all others of those that are wanted.
    fn best(&self, wanted: impl Fn(&Record) -> bool, beats: impl Fn(&Record, &Record) -> bool) -> Option<&'a Record> {
        let mut best: Option<&Record> = None;
        for record in self.records {
            if wanted(record) && best.is_none_or(|best| beats(record, best)) {
                best = Some(record);
            }
        }
        best
    }

    /// The record in force for a key.
    fn in_force(
        &self,
        about: &RecordKey,
        subject: Option<PublicKey>,
        wanted: impl Fn(&Record) -> bool,
    ) -> Option<&'a Record> {
        let rank = |record: &Record| self.ranks.get(record.signer()).copied();
        let own = subject.and_then(|subject| self.ranks.get(&subject).copied());
        let counts = |record: &Record| {
            let Some(rank) = rank(record) else { return false };
            let head = Some(*record.signer()) == self.head;
            let senior = own.is_none_or(|own| rank < own || head || Some(*record.signer()) == subject);
            record.key() == about && senior && wanted(record)
        };
        let goes_first = |a: &Record, b: &Record| {
            if (a.version(), a.removed()) == (b.version(), b.removed()) && rank(a) != rank(b) {
                return rank(a) < rank(b);
            }
            beats(a, b)
        };
        self.best(counts, goes_first)
    }

    fn outcome(&self) -> Outcome {
        let mut outcome = Outcome {
            ranks: self.ranks.clone(),
            members: BTreeMap::new(),
            removed: BTreeMap::new(),
            over_used: BTreeMap::new(),
            remaining: BTreeMap::new(),
            routes: BTreeSet::new(),
            guests: BTreeMap::new(),
            rules: self.rules(),
            secret: self.secret(),
        };
        let mut users: BTreeMap<[u8; 32], Vec<([u8; 32], PublicKey)>> = BTreeMap::new();
        for subject in (1..=9).map(key) {
            let Some(record) = self.in_force(&RecordKey::Member(subject), Some(subject), |_| true) else {
                continue;
            };
            let Body::Member(member) = record.body() else {
                unreachable!()
            };
            if record.removed() {
                outcome.removed.insert(subject, *record.id());
            } else {
                outcome.members.insert(subject, member.clone());
            }
            if let Some(proof) = &member.proof {
                let place = Sha256::digest([proof.invite, *subject.as_bytes()].concat()).into();
                users.entry(proof.invite).or_default().push((place, subject));
            }
        }
        for code in 50..=51 {
            let code = invite_key(code);
            let about = RecordKey::Invite(code);
            let Some(record) = self.in_force(&about, None, |_| true) else {
                continue;
            };
            let Body::Invite(invite) = record.body() else {
                unreachable!()
            };
            let mut users = users.remove(&code).unwrap_or_default();
            users.sort_unstable();
            let mut remaining = invite.uses;
            for (_, user) in users {
                if remaining > 0 {
                    remaining -= 1;
                } else if outcome.members.remove(&user).is_some() {
                    outcome.over_used.insert(user, code);
                }
            }
            outcome.remaining.insert(code, (remaining, record.removed()));
        }
        let prefix = "10.9.0.0/16".parse().unwrap();
        for subject in (1..=9).map(key) {
            let record = self.in_force(&RecordKey::Route(subject, prefix), Some(subject), |_| true);
            if record.is_some_and(|record| !record.removed()) && outcome.members.contains_key(&subject) {
                outcome.routes.insert(subject);
            }
        }
        outcome.guests = self.guests(&outcome.members);
        outcome
    }

    fn guests(&self, members: &BTreeMap<PublicKey, Member>) -> BTreeMap<[u8; 32], Guest> {
        let mut guests: BTreeMap<[u8; 32], Guest> = BTreeMap::new();
        for number in GUESTS {
            let record = self.in_force(&RecordKey::Guest([number; 32]), None, |_| true);
            let Some(record) = record.filter(|record| !record.removed()) else {
                continue;
            };
            let Body::Guest(guest) = record.body() else {
                unreachable!()
            };
            let taken = guests.values().any(|other| other.ipv4 == guest.ipv4);
            if guest.host.is_some_and(|host| members.contains_key(&host)) && !taken {
                guests.insert([number; 32], guest.clone());
            }
        }
        guests
    }

    fn secret(&self) -> Option<Secret> {
        let record = self.in_force(&RecordKey::Secret, None, |_| true)?;
        match record.body() {
            _ if record.removed() => None,
            Body::Secret(secret) => Some(secret.clone()),
            _ => unreachable!(),
        }
    }

    fn rules(&self) -> Option<Vec<Rule>> {
        let understood = |record: &Record| matches!(record.body(), Body::Rules(RuleList::Understood(_)));
        let Some(mut record) = self.in_force(&RecordKey::Rules, None, |_| true) else {
            return Some(Vec::new());
        };
        if !understood(record) {
            record = self.in_force(&RecordKey::Rules, None, understood)?;
        }
        match record.body() {
            Body::Rules(RuleList::Understood(rules)) => Some(rules.clone()),
            _ => unreachable!(),
        }
    }
}

#[test]
fn random_histories_have_the_state_of_the_model_in_every_order() {
    let pool = pool();
    let mut seen = [0; 9];
    for seed in 0..HISTORIES {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let mut records = history(&mut rng, &pool);
        let first = set(&records);
        let state = State::of(&first);
        assert_eq!(
            Outcome::of(&state),
            Model::new(&records).outcome(),
            "seed {seed}: {records:?}"
        );

        shuffle(&mut rng, &mut records);
        assert_eq!(common::state(&records), state, "seed {seed}: another order");
        let mut at_once = RecordSet::new(id());
        at_once.insert_all(&records);
        assert_eq!(State::of(&at_once), state, "seed {seed}: all at once");
        // What is passed on has the same state, but for rules kept for want of better ones.
        let live: Vec<_> = first.live().cloned().collect();
        let passed_on = common::state(&live);
        assert_eq!(
            (&passed_on.members, &passed_on.admins),
            (&state.members, &state.admins),
            "seed {seed}"
        );

        // A test of nothing would pass: count what the histories bring about.
        let happened = [
            state.admins.of.len() > 2,
            state.admins.of.values().any(|admin| admin.rank > 1),
            !state.admins.resigned.is_empty(),
            !state.over_used.is_empty(),
            !state.removed.is_empty(),
            state.table.rules.is_none(),
            state.secret.is_some(),
            state.admins.heads.len() > 1,
            state.admins.heads.len() > 2,
        ];
        for (count, happened) in seen.iter_mut().zip(happened) {
            *count += u32::from(happened);
        }
    }
    assert!(seen.iter().all(|count| *count > 200), "{seen:?}");
}

/// A node that takes records as the synchronisation does: those of signers without a say are dropped.
struct Reader {
    set: RecordSet,
    sync: Sync,
}

impl Reader {
    /// A node that is no member, so that it listens to the other one whatever the records say.
    fn new(own: u8, other: u8, records: &[Arc<Record>]) -> Self {
        let mut sync = Sync::new(key(own));
        sync.connect(key(other), 0);
        Self {
            set: set(records),
            sync,
        }
    }

    fn receive(&mut self, from: u8, records: Vec<String>, now: u64) -> usize {
        let want = Vec::new();
        let message = Message::Records { want, records }.encode();
        let state = State::of(&self.set);
        let proven = Proven::default();
        let received = self
            .sync
            .receive(&key(from), &message, &mut self.set, &state, &proven, now);
        assert_eq!(received.outcome, Ok(()));
        received.kept.len()
    }

    fn live(&self) -> Vec<String> {
        self.set.live().map(|record| record.event().to_json()).collect()
    }
}

/// Each of two nodes has a part of the records. Once neither has one for the other that counts, they have the
/// same ones that count, and the same state.
#[test]
fn nodes_that_exchange_what_counts_agree() {
    let pool = pool();
    let (mut exchanged, mut heads) = (0, 0);
    for seed in 0..HISTORIES / 5 {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let records = history(&mut rng, &pool);
        let mut parts = [Vec::new(), Vec::new()];
        for record in records {
            let to = below(&mut rng, 3);
            (0..2)
                .filter(|at| to == 2 || to == *at)
                .for_each(|at| parts[at].push(Arc::clone(&record)));
        }
        let [mut one, mut other] = [Reader::new(60, 61, &parts[0]), Reader::new(61, 60, &parts[1])];
        let mut now = 0;
        loop {
            now += 1_000_000;
            let new = other.receive(60, one.live(), now) + one.receive(61, other.live(), now);
            exchanged += new;
            if new == 0 {
                break;
            }
        }
        let ids = |reader: &Reader| reader.live().into_iter().collect::<BTreeSet<_>>();
        assert_eq!(ids(&one), ids(&other), "seed {seed}");
        let states = [&one, &other].map(|reader| Outcome::of(&State::of(&reader.set)));
        // Rules that one of them kept for want of better ones aside.
        let [a, b] = states.map(|mut outcome| {
            outcome.rules = None;
            outcome
        });
        assert_eq!(a, b, "seed {seed}");
        heads += u32::from(one.set.admins().heads.len() > 1);
    }
    assert!(exchanged > 1_000 && heads > 100, "{exchanged} {heads}");
}
