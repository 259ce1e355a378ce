//! Guests: which of their records count, and under which names they are found.

#![allow(clippy::unwrap_used, reason = "test helpers")]

mod common;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use common::*;
use weft_roster::addresses;
use weft_roster::changes::Keep;
use weft_roster::guest::{self, MAX_GUESTS};
use weft_roster::key::RecordKey;
use weft_roster::record::{Body, Draft, Guest, Member, Record};
use weft_roster::state::State;

/// The address of a guest with a last byte.
fn ipv4(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 44, 0, last)
}

/// A guest of the founder with a name and an address.
fn phone(text: &str, last: u8) -> Guest {
    Guest {
        name: Some(name(text)),
        tags: BTreeSet::new(),
        ipv4: Some(ipv4(last)),
        host: Some(key(FOUNDER)),
    }
}

fn guest(by: u8, number: u8, version: u64, guest: Guest) -> Arc<Record> {
    record(by, RecordKey::Guest([number; 32]), version, false, &Body::Guest(guest))
}

fn no_guest(by: u8, number: u8, version: u64) -> Arc<Record> {
    let body = Body::Guest(Guest::default());
    record(by, RecordKey::Guest([number; 32]), version, true, &body)
}

/// The numbers of the guests that count.
fn numbers(state: &State) -> Vec<u8> {
    state.guests.keys().map(|key| key[0]).collect()
}

fn guest_name(state: &State, number: u8) -> Option<&str> {
    Some(state.guest_names.get(&[number; 32])?.as_str())
}

#[test]
fn a_guest_counts_while_its_record_is_in_force() {
    let mut records = vec![founding(1, None), member(1, 1, 1), guest(1, 9, 1, phone("phone", 7))];
    let state_of = in_all_orders(&records);
    assert_eq!(state_of.guests[&[9; 32]], phone("phone", 7));
    assert_eq!(guest_name(&state_of, 9), Some("phone"));
    records.push(no_guest(1, 9, 2));
    let removed = in_all_orders(&records);
    assert!(removed.guests.is_empty() && removed.guest_names.is_empty());
    records.push(guest(1, 9, 3, phone("tablet", 8)));
    assert_eq!(guest_name(&in_all_orders(&records), 9), Some("tablet"));
}

#[test]
fn a_guest_without_key_host_or_address_does_not_count() {
    let base = [founding(1, None), member(1, 1, 1)];
    let bad = [
        guest(1, 0, 1, phone("zeros", 3)),
        guest(
            1,
            3,
            1,
            Guest {
                host: None,
                ..phone("no-host", 3)
            },
        ),
        guest(
            1,
            4,
            1,
            Guest {
                host: Some(key(5)),
                ..phone("no-member", 4)
            },
        ),
        guest(
            1,
            5,
            1,
            Guest {
                ipv4: None,
                ..phone("no-address", 5)
            },
        ),
    ];
    let good = guest(1, 6, 1, phone("good", 6));
    let state = in_all_orders(&[&base[..], &bad, &[good]].concat());
    assert_eq!(numbers(&state), [6]);
    assert_eq!(state.guest_names.len(), 1);
    assert_eq!(state.refused.guests, 0);
}

#[test]
fn a_guest_ends_with_the_membership_of_its_host() {
    let hosted = Guest {
        host: Some(key(7)),
        ..phone("phone", 7)
    };
    let mut records = vec![founding(1, None), member(1, 7, 1), guest(1, 9, 1, hosted)];
    assert_eq!(numbers(&in_all_orders(&records)), [9]);
    records.push(unmember(1, 7, 2));
    assert!(in_all_orders(&records).guests.is_empty());
    records.push(member(1, 7, 3));
    assert_eq!(numbers(&in_all_orders(&records)), [9]);
}

#[test]
fn an_address_belongs_to_members_then_to_the_lower_key() {
    let fixed = Member {
        ipv4: Some(ipv4(20)),
        ..Member::default()
    };
    let records = [
        founding(1, None),
        member(1, 1, 1),
        record(1, RecordKey::Member(key(7)), 1, false, &Body::Member(fixed)),
        guest(1, 3, 1, phone("of-member", 20)),
        guest(1, 4, 1, phone("lower", 21)),
        guest(1, 5, 1, phone("higher", 21)),
        guest(
            1,
            6,
            1,
            Guest {
                ipv4: Some(addresses::derived(&id().to_string(), &key(1))),
                ..phone("derived", 0)
            },
        ),
    ];
    let state = in_all_orders(&records);
    assert_eq!(numbers(&state), [4]);
    assert_eq!(guest_name(&state, 5), None);
}

#[test]
fn a_guest_that_does_not_count_takes_no_address_and_name() {
    let stray = Guest {
        host: Some(key(5)),
        ..phone("phone", 9)
    };
    let state = in_all_orders(&[
        founding(1, None),
        member(1, 1, 1),
        guest(1, 3, 1, stray),
        guest(1, 4, 1, phone("phone", 9)),
    ]);
    assert_eq!((numbers(&state), guest_name(&state, 4)), (vec![4], Some("phone")));
}

#[test]
fn names_belong_to_members_then_to_the_lower_key() {
    let state = in_all_orders(&[
        founding(1, None),
        member(1, 1, 1),
        guest(1, 3, 1, phone("n1-1", 3)),
        guest(1, 4, 1, phone("phone", 4)),
        guest(1, 5, 1, phone("phone", 5)),
        guest(
            1,
            6,
            1,
            Guest {
                name: None,
                ..phone("none", 6)
            },
        ),
    ]);
    assert_eq!(numbers(&state), [3, 4, 5, 6], "a guest counts without its name");
    assert_eq!(named(&state, 1), Some("n1-1"));
    let names: Vec<Option<&str>> = (3..=6).map(|number| guest_name(&state, number)).collect();
    assert_eq!(names, [None, Some("phone"), None, None]);
}

#[test]
fn guests_beyond_the_limit_are_refused_and_counted() {
    let mut records = vec![founding(1, None), member(1, 1, 1)];
    for n in 0..=MAX_GUESTS as u16 {
        let [high, low] = n.to_be_bytes();
        let mut key = [1; 32];
        (key[0], key[1]) = (high, low);
        let body = Guest {
            ipv4: Some(Ipv4Addr::new(10, 45, high, low)),
            ..phone("phone", 0)
        };
        records.push(record(1, RecordKey::Guest(key), 1, false, &Body::Guest(body)));
    }
    let forward = state(&records);
    assert_eq!((forward.guests.len(), forward.refused.guests), (MAX_GUESTS, 1));
    let (last, _) = forward.guests.last_key_value().unwrap();
    assert_eq!(last[..2], (MAX_GUESTS as u16 - 1).to_be_bytes());
    records.reverse();
    assert_eq!(state(&records), forward);
}

#[test]
fn the_key_of_a_guest_has_two_spellings() {
    let key: [u8; 32] = std::array::from_fn(|at| at as u8 * 8);
    let base64 = guest::key_text(&key);
    assert_eq!(base64.len(), 44);
    let hex = RecordKey::Guest(key).to_string().split_off("guest/".len());
    for text in [&base64, &hex, &hex.to_uppercase()] {
        assert_eq!(guest::read_key(text), Some(key), "{text}");
    }
    for text in [
        "",
        "phone",
        &base64[1..],
        &hex[2..],
        &"=".repeat(44),
        &"g".repeat(64),
        &"é".repeat(22),
    ] {
        assert_eq!(guest::read_key(text), None, "{text}");
    }
}

/// As routes are: they end with the rights of their signer, unless what it has signed is kept.
#[test]
fn guests_go_with_the_administrator_that_signed_them() {
    let by_thief = guest(2, 9, 1, phone("phone", 7));
    let other = guest(2, 8, 1, phone("tablet", 8));
    let restated = Draft::again(&other, 2).restating(&other, &key(1));
    let restated = Arc::new(restated.sign(&identity(1), 0).unwrap());
    let records = [
        founding(1, None),
        grant(1, 2, 1),
        member(1, 1, 1),
        by_thief,
        other,
        restated,
        guest(1, 7, 1, phone("own", 9)),
    ];
    let about: Vec<RecordKey> = set(&records)
        .resting_on(&key(2), &key(1))
        .iter()
        .map(|record: &Arc<Record>| record.key().clone())
        .collect();
    assert_eq!(about, [RecordKey::Guest([8; 32]), RecordKey::Guest([9; 32])]);
    let removed_by = |keep: &Keep| {
        let mut set = set(&records);
        for again in set.resign_list(&key(2), &key(1), keep).unwrap() {
            set.insert(&Arc::new(again.draft().sign(&identity(1), 0).unwrap()));
        }
        set.insert(&revoke(1, 2, 2));
        State::of(&set)
    };
    assert_eq!(numbers(&removed_by(&Keep::default())), [7]);
    let rest = Keep {
        rest: true,
        ..Keep::default()
    };
    assert_eq!(numbers(&removed_by(&rest)), [7, 8, 9]);
}
