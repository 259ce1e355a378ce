//! Shared parts of the tests: a network with numbered keys, and records by them.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "test helpers")]

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use weft_noise::{Identity, PublicKey, SecretKey};
use weft_roster::invite::Seed;
use weft_roster::key::RecordKey;
use weft_roster::names::Name;
use weft_roster::network_id::NetworkId;
use weft_roster::record::{Body, Draft, Invite, Member, Network, Record, RuleList, Secret};
use weft_roster::rules::Policy;
use weft_roster::set::RecordSet;
use weft_roster::state::State;

/// The key of the founder; the others count up from here.
pub const FOUNDER: u8 = 1;

/// The nonce of the network.
pub const NONCE: [u8; 16] = [9; 16];

pub fn identity(n: u8) -> Identity {
    Identity::new(SecretKey::from_bytes(&[n; 32]).unwrap())
}

pub fn key(n: u8) -> PublicKey {
    static KEYS: LazyLock<Vec<PublicKey>> = LazyLock::new(|| (1..=250).map(|n| identity(n).public()).collect());
    KEYS[usize::from(n) - 1]
}

pub fn id() -> NetworkId {
    NetworkId::new(&key(FOUNDER), &NONCE)
}

pub fn name(text: &str) -> Name {
    Name::label(text).unwrap()
}

/// A record about `key` by the signer `by`.
pub fn record(by: u8, key: RecordKey, version: u64, removed: bool, body: &Body) -> Arc<Record> {
    let draft = Draft::new(id(), key, version, body);
    let draft = if removed { draft.removal() } else { draft };
    Arc::new(draft.sign(&identity(by), 0).unwrap())
}

/// The record of the founder that begins a network.
pub fn founding(version: u64, successor: Option<u8>) -> Arc<Record> {
    let body = Network {
        name: Some(name("home")),
        inside: Policy::Allow,
        founder: Some(NONCE),
        successor: successor.map(key),
    };
    record(FOUNDER, RecordKey::Network, version, false, &Body::Network(body))
}

pub fn grant(by: u8, subject: u8, version: u64) -> Arc<Record> {
    record(by, RecordKey::Admin(key(subject)), version, false, &Body::Plain)
}

pub fn revoke(by: u8, subject: u8, version: u64) -> Arc<Record> {
    record(by, RecordKey::Admin(key(subject)), version, true, &Body::Plain)
}

/// A member record whose name says who signed which version.
pub fn member(by: u8, subject: u8, version: u64) -> Arc<Record> {
    let body = Member {
        name: Some(name(&format!("n{by}-{version}"))),
        ..Member::default()
    };
    record(by, RecordKey::Member(key(subject)), version, false, &Body::Member(body))
}

pub fn unmember(by: u8, subject: u8, version: u64) -> Arc<Record> {
    record(
        by,
        RecordKey::Member(key(subject)),
        version,
        true,
        &Body::Member(Member::default()),
    )
}

/// The seed of the invite with a number.
pub fn seed(invite: u8) -> Seed {
    Seed::new([invite; 16])
}

pub fn invite_key(invite: u8) -> [u8; 32] {
    static KEYS: LazyLock<Vec<[u8; 32]>> =
        LazyLock::new(|| (0..=u8::MAX).map(|n| *seed(n).key_pair().public().as_bytes()).collect());
    KEYS[usize::from(invite)]
}

/// A member that joined by an invite.
pub fn joined(by: u8, subject: u8, version: u64, invite: u8, removed: bool) -> Arc<Record> {
    let body = Member {
        proof: Some(seed(invite).prove(&key(subject), id())),
        ..Member::default()
    };
    record(
        by,
        RecordKey::Member(key(subject)),
        version,
        removed,
        &Body::Member(body),
    )
}

pub fn invite(by: u8, invite: u8, version: u64, uses: u32, removed: bool) -> Arc<Record> {
    let body = Invite {
        uses,
        tags: BTreeSet::new(),
        name: None,
        expires: Some(1_000),
    };
    record(
        by,
        RecordKey::Invite(invite_key(invite)),
        version,
        removed,
        &Body::Invite(body),
    )
}

/// Rules that deny everything to one port, which is the version.
pub fn rules(by: u8, version: u64) -> Arc<Record> {
    let rule = format!("deny from any to any tcp/{version}").parse().unwrap();
    record(
        by,
        RecordKey::Rules,
        version,
        false,
        &Body::Rules(RuleList::Understood(vec![rule])),
    )
}

/// A secret that says who signed which version.
pub fn secret(by: u8, version: u64, removed: bool) -> Arc<Record> {
    let mut bytes = [by; 32];
    bytes[..8].copy_from_slice(&version.to_be_bytes());
    let exclusions = [by; 8];
    record(
        by,
        RecordKey::Secret,
        version,
        removed,
        &Body::Secret(Secret { bytes, exclusions }),
    )
}

pub fn set(records: &[Arc<Record>]) -> RecordSet {
    let mut set = RecordSet::new(id());
    for record in records {
        set.insert(record);
    }
    set
}

/// The state of records that came in this order.
pub fn state(records: &[Arc<Record>]) -> State {
    State::of(&set(records))
}

/// The name of a member, which says what record of it is in force.
pub fn named(state: &State, subject: u8) -> Option<&str> {
    state.members.get(&key(subject))?.name.as_ref().map(Name::as_str)
}

/// The state of records, the same in every order of arrival.
pub fn in_all_orders(records: &[Arc<Record>]) -> State {
    assert!(records.len() <= 8, "{} records have too many orders", records.len());
    let expected = state(records);
    let mut order: Vec<usize> = (0..records.len()).collect();
    let mut stack = vec![0; records.len()];
    // Heap's algorithm.
    let mut at = 1;
    while at < order.len() {
        if stack[at] < at {
            order.swap(if at % 2 == 0 { 0 } else { stack[at] }, at);
            let arranged: Vec<_> = order.iter().map(|index| Arc::clone(&records[*index])).collect();
            assert_eq!(state(&arranged), expected, "{arranged:?}");
            stack[at] += 1;
            at = 1;
        } else {
            stack[at] = 0;
            at += 1;
        }
    }
    expected
}
