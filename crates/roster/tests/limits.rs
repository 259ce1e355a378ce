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
use weft_roster::set::{Insertion, MAX_RIGHTS, RecordSet, Refusal};
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
    let live = [founding(1, None), grant(1, 2, 1), grant(1, 7, 1)];
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
    assert_eq!(full.insert(&grant(1, 8, 1)), Insertion::Refused(Refusal::Full));
    assert_eq!(
        full.insert(&grant(1, 7, 2)),
        Insertion::Kept,
        "a later version of one that is there"
    );
}

/// An administrator that fills the set leaves room for the records of its seniors, by which it is removed.
#[test]
fn an_administrator_that_fills_the_set_can_be_removed() {
    let room = 64 << 10;
    let mut set = RecordSet::with_room(id(), room);
    for record in [founding(1, None), grant(1, 2, 1), grant(2, 3, 1)] {
        set.insert(&record);
    }
    let invites = |by: u8, set: &mut RecordSet| {
        let taken = (0..=u8::MAX).take_while(|n| set.insert(&invite(by, *n, 1, 1, false)) == Insertion::Kept);
        taken.count()
    };
    // The junior fills its part, its senior another one, and the founder what is left.
    assert!(invites(3, &mut set) > 50 && set.bytes() <= room - room / 16 * 2);
    assert!(invites(2, &mut set) > 5 && set.bytes() <= room - room / 16);
    assert_eq!(set.insert(&revoke(2, 3, 2)), Insertion::Kept);
    for n in 0..20 {
        assert_eq!(
            set.insert(&member(1, 100 + n, 1)),
            Insertion::Kept,
            "void records make room"
        );
    }
    assert_eq!(set.insert(&revoke(1, 2, 2)), Insertion::Kept);
    assert_eq!(State::of(&set).admins.of.len(), 1);
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

/// What the founder's node signs by itself does not take the room of the record by which it removes another one.
#[test]
fn the_last_room_is_for_records_about_rights() {
    let room = 64 << 10;
    let mut set = RecordSet::with_room(id(), room);
    for record in [founding(1, None), grant(1, 2, 1)] {
        set.insert(&record);
    }
    let taken = (0..=u8::MAX).take_while(|n| set.insert(&invite(1, *n, 1, 1, false)) == Insertion::Kept);
    assert!(taken.count() > 50);
    assert_eq!(set.insert(&member(1, 9, 1)), Insertion::Refused(Refusal::Full));
    assert_eq!(set.insert(&unmember(1, 9, 1)), Insertion::Kept);
    let removals = (10..200).take_while(|n| set.insert(&unmember(1, *n, 1)) == Insertion::Kept);
    assert!(removals.count() < 10);
    assert_eq!(set.insert(&revoke(1, 2, 2)), Insertion::Kept);
    assert_eq!(set.insert(&founding(2, Some(3))), Insertion::Kept);
    // A file of this node has room for all of it, in whatever order.
    let mut records: Vec<_> = set.records().cloned().collect();
    records.reverse();
    assert_eq!(State::of(&RecordSet::of_file(id(), &records)), State::of(&set));
}

/// Records about rights are looked at with each further one, so that few of one signer find a place.
#[test]
fn an_administrator_signs_so_many_rights_and_no_more() {
    let mut set = RecordSet::new(id());
    set.insert(&founding(1, None));
    set.insert(&grant(1, 2, 1));
    let about = |n: usize| {
        let mut bytes = [0x55; 32];
        bytes[..8].copy_from_slice(&(n as u64).to_be_bytes());
        RecordKey::Admin(SecretKey::from_bytes(&bytes).unwrap().public())
    };
    let grant_of = |n: usize, version| record(2, about(n), version, false, &Body::Plain);
    let taken = (0..MAX_RIGHTS + 10).filter(|n| set.insert(&grant_of(*n, 1)) == Insertion::Kept);
    assert_eq!(taken.count(), MAX_RIGHTS);
    assert_eq!(
        set.insert(&grant_of(0, 2)),
        Insertion::Kept,
        "another version of one that is there"
    );
    assert_eq!(set.insert(&revoke(1, 2, 2)), Insertion::Kept);
}
