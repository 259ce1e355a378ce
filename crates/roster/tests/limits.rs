//! Limits: what is refused, and that it is the same everywhere.

#![allow(clippy::unwrap_used, reason = "test helpers")]

mod common;

use std::sync::Arc;

use common::*;
use weft_noise::{Identity, SecretKey};
use weft_roster::admins::MAX_ADMINS;
use weft_roster::key::RecordKey;
use weft_roster::network_id::NetworkId;
use weft_roster::record::{Body, Draft, Invite, Member, Record};
use weft_roster::set::{Insertion, RecordSet, Refusal};
use weft_roster::state::{InviteClosed, MAX_INVITES, MAX_MEMBERS, State};

/// Keys beyond those that have a number.
fn many(n: usize) -> Identity {
    let mut bytes = [0x55; 32];
    bytes[..8].copy_from_slice(&(n as u64).to_be_bytes());
    Identity::new(SecretKey::from_bytes(&bytes).unwrap())
}

fn by_founder(key: RecordKey, body: &Body) -> Arc<Record> {
    record(FOUNDER, key, 1, false, body)
}

#[test]
fn members_beyond_the_limit_are_refused_and_counted() {
    let mut records = vec![founding(1, None), grant(1, 2, 1), member(1, 2, 1)];
    let body = Body::Member(Member::default());
    records.extend((0..MAX_MEMBERS).map(|n| by_founder(RecordKey::Member(many(n).public()), &body)));
    let forward = state(&records);
    records.reverse();
    assert_eq!(state(&records), forward);
    assert_eq!((forward.members.len(), forward.refused.members), (MAX_MEMBERS, 1));
    assert!(forward.members.contains_key(&key(2)), "an administrator stays");
}

#[test]
fn admins_beyond_the_limit_are_refused_and_counted() {
    let mut records = vec![founding(1, None)];
    records.extend((0..MAX_ADMINS).map(|n| by_founder(RecordKey::Admin(many(n).public()), &Body::Plain)));
    let forward = state(&records);
    records.reverse();
    assert_eq!(state(&records), forward);
    assert_eq!((forward.admins.of.len(), forward.refused.admins), (MAX_ADMINS, 1));
    let refused = forward.admins.refused.first().unwrap();
    assert_eq!(forward.admins.rank(refused), None);
}

#[test]
fn open_invites_beyond_the_limit_are_refused_and_counted() {
    let body = Body::Invite(Invite {
        uses: 1,
        tags: Default::default(),
        name: None,
        expires: None,
    });
    let mut records = vec![founding(1, None)];
    records.extend((0..=MAX_INVITES).map(|n| by_founder(RecordKey::Invite(*many(n).public().as_bytes()), &body)));
    let forward = state(&records);
    assert_eq!(forward.refused.invites, 1);
    let (refused, _) = forward.invites.last_key_value().unwrap();
    assert_eq!(forward.open_invite(refused, 0), Err(InviteClosed::Refused));
    records.reverse();
    assert_eq!(state(&records), forward);
}

#[test]
fn a_full_set_keeps_what_counts() {
    let live = [founding(1, None), grant(1, 2, 1), member(2, 7, 1)];
    let void: Vec<_> = (20..50).map(|by| member(by, 7, 1)).collect();
    let live_bytes: usize = live.iter().map(|record| record.len()).sum();
    let room = live_bytes + void.iter().take(10).map(|record| record.len()).sum::<usize>() + 50;
    let fill = |records: &[Arc<Record>]| {
        let mut set = RecordSet::with_room(id(), room);
        for record in records {
            set.insert(record);
            assert!(set.bytes() <= room);
        }
        set
    };
    let first = fill(&[&live[..], &void].concat());
    let last = fill(&[&void[..], &live].concat());
    assert_eq!(State::of(&first), State::of(&last));
    assert_eq!(State::of(&first), state(&live));
    let ids = |set: &RecordSet| set.records().map(|record| *record.id()).collect::<Vec<_>>();
    assert_eq!(ids(&first), ids(&last), "the lowest identifiers stay");
    assert_eq!(first.records().count(), live.len() + 10);
    assert!(first.counts().full > 0 && last.counts().evicted > 0);

    // Of records that count, those that came first stay.
    let mut full = RecordSet::with_room(id(), live_bytes);
    for record in &live {
        assert_eq!(full.insert(record), Insertion::Kept);
    }
    assert_eq!(full.insert(&member(2, 8, 1)), Insertion::Refused(Refusal::Full));
    assert_eq!(
        full.insert(&member(2, 7, 2)),
        Insertion::Kept,
        "a later version of one that is there"
    );
}

#[test]
fn records_of_another_network_are_refused_and_counted() {
    let other = NetworkId::from_bytes([0; 16]);
    let draft = Draft::new(other, RecordKey::Admin(key(2)), 1, &Body::Plain);
    let record = Arc::new(draft.sign(&identity(1), 0).unwrap());
    let mut set = RecordSet::new(id());
    assert_eq!(set.insert(&record), Insertion::Refused(Refusal::OtherNetwork));
    assert_eq!(set.counts().other_network, 1);
}
