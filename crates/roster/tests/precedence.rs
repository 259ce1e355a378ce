//! Which record is in force: each rule by an example, in all orders of arrival.

#![allow(clippy::unwrap_used, reason = "test helpers")]

mod common;

use std::sync::Arc;

use common::*;
use weft_roster::key::RecordKey;
use weft_roster::record::{Body, Draft, Exit, Network, Record};
use weft_roster::rules::Policy;
use weft_roster::set::Insertion;
use weft_roster::state::{InviteClosed, State};

fn ranks(state: &State) -> Vec<(u8, u8)> {
    let rank = |n: u8| Some((n, state.admins.rank(&key(n))?));
    (1..20).filter_map(rank).collect()
}

#[test]
fn without_the_founder_nothing_is_in_force() {
    let state = in_all_orders(&[grant(1, 2, 1), member(1, 3, 1), member(2, 4, 1)]);
    assert_eq!(state.admins.founder, None);
    assert!(state.members.is_empty() && state.admins.of.is_empty());
}

#[test]
fn ranks_follow_from_grants() {
    let state = in_all_orders(&[
        founding(1, Some(5)),
        grant(1, 2, 1),
        grant(2, 3, 1),
        grant(5, 4, 1),
        grant(9, 8, 1),
        grant(3, 2, 9),
    ]);
    assert_eq!(ranks(&state), [(1, 0), (2, 1), (3, 2), (4, 1), (5, 0)]);
}

#[test]
fn the_highest_version_is_in_force() {
    let records = [
        founding(1, None),
        grant(1, 2, 1),
        member(1, 7, 1),
        member(2, 7, 3),
        member(1, 7, 2),
    ];
    let state = in_all_orders(&records);
    assert_eq!(named(&state, 7), Some("n2-3"));
}

#[test]
fn at_equal_versions_removal_then_seniority_decide() {
    let records = [founding(1, None), grant(1, 2, 1), member(2, 7, 5), member(1, 7, 5)];
    assert_eq!(named(&in_all_orders(&records), 7), Some("n1-5"));
    let records = [founding(1, None), grant(1, 2, 1), unmember(2, 7, 5), member(1, 7, 5)];
    let state = in_all_orders(&records);
    assert_eq!(named(&state, 7), None);
    assert_eq!(state.removed[&key(7)].id(), records[2].id());
}

#[test]
fn at_equal_ranks_the_lower_identifier_decides() {
    let (a, b) = (member(2, 7, 5), member(3, 7, 5));
    let records = [
        founding(1, None),
        grant(1, 2, 1),
        grant(1, 3, 1),
        Arc::clone(&a),
        Arc::clone(&b),
    ];
    let winner = if a.id() < b.id() { "n2-5" } else { "n3-5" };
    assert_eq!(named(&in_all_orders(&records), 7), Some(winner));
}

#[test]
fn a_removed_admin_gains_nothing_by_backdating() {
    // Everything that 2 ever signed is void, whatever its version and whenever it comes.
    let records = [
        founding(1, None),
        grant(1, 2, 1),
        member(1, 7, 1),
        member(2, 7, 9),
        member(2, 8, u64::MAX),
        grant(2, 3, 9),
        member(3, 9, 9),
    ];
    let state = in_all_orders(&records);
    assert_eq!((named(&state, 7), state.members.len()), (Some("n2-9"), 3));

    let state = in_all_orders(&[&records[..], &[revoke(1, 2, 2)]].concat());
    assert_eq!(ranks(&state), [(1, 0)]);
    assert_eq!((named(&state, 7), state.members.len()), (Some("n1-1"), 1));
}

#[test]
fn admins_of_one_rank_cannot_remove_each_other() {
    let records = [
        founding(1, None),
        grant(1, 2, 1),
        grant(1, 3, 1),
        revoke(2, 3, 9),
        revoke(3, 2, u64::MAX),
    ];
    assert_eq!(ranks(&in_all_orders(&records)), [(1, 0), (2, 1), (3, 1)]);
}

#[test]
fn a_junior_cannot_remove_a_senior() {
    let records = [
        founding(1, None),
        grant(1, 2, 1),
        grant(2, 3, 1),
        revoke(3, 2, 9),
        revoke(3, 1, 9),
        revoke(2, 1, 9),
    ];
    assert_eq!(ranks(&in_all_orders(&records)), [(1, 0), (2, 1), (3, 2)]);
    let records = [
        founding(1, None),
        grant(1, 2, 1),
        grant(2, 3, 1),
        revoke(2, 3, 2),
        grant(3, 4, 1),
    ];
    assert_eq!(ranks(&in_all_orders(&records)), [(1, 0), (2, 1)]);
}

#[test]
fn two_that_grant_each_other_are_worth_nothing_without_a_senior() {
    let records = [founding(1, None), grant(2, 3, 5), grant(3, 2, 5), revoke(1, 2, 1)];
    assert_eq!(ranks(&in_all_orders(&records)), [(1, 0)]);
    let records = [founding(1, None), grant(2, 3, 5), grant(3, 2, 5), grant(1, 2, 1)];
    assert_eq!(ranks(&in_all_orders(&records)), [(1, 0), (2, 1), (3, 2)]);
}

#[test]
fn about_an_admin_its_seniors_and_itself_say_the_last_word() {
    let records = [
        founding(1, None),
        grant(1, 2, 1),
        grant(1, 3, 1),
        member(1, 2, 1),
        member(2, 2, 8),
        member(3, 2, 9),
    ];
    assert_eq!(named(&in_all_orders(&records), 2), Some("n2-8"), "an equal has no say");
    let records = [
        founding(1, None),
        grant(1, 2, 1),
        grant(2, 3, 1),
        member(3, 3, 2),
        unmember(2, 3, 3),
        member(1, 3, 4),
    ];
    assert_eq!(named(&in_all_orders(&records[..4]), 3), Some("n3-2"));
    assert_eq!(named(&in_all_orders(&records[..5]), 3), None);
    assert_eq!(named(&in_all_orders(&records), 3), Some("n1-4"));
    let records = [
        founding(1, None),
        grant(1, 2, 1),
        grant(1, 3, 1),
        member(3, 2, 9),
        unmember(3, 1, 9),
    ];
    let state = in_all_orders(&records);
    assert_eq!((named(&state, 2), state.removed.len()), (None, 0));
}

#[test]
fn an_admin_resigns_by_a_higher_version() {
    let base = [founding(1, None), grant(1, 2, 5), member(2, 7, 1)];
    let with = |own: Arc<Record>| in_all_orders(&[&base[..], &[own]].concat());
    assert_eq!(ranks(&with(revoke(2, 2, 5))), [(1, 0), (2, 1)]);
    let resigned = with(revoke(2, 2, 6));
    assert_eq!(ranks(&resigned), [(1, 0)]);
    assert!(resigned.admins.resigned.contains(&key(2)));
    assert!(resigned.members.is_empty());
    // A later grant undoes it, the highest version included.
    let records = [founding(1, None), revoke(2, 2, u64::MAX), grant(1, 2, u64::MAX)];
    assert_eq!(ranks(&in_all_orders(&records)), [(1, 0), (2, 1)]);
}

#[test]
fn the_highest_version_is_survived_by_removing_its_signer() {
    let records = [
        founding(1, None),
        grant(1, 2, 1),
        member(2, 7, u64::MAX),
        unmember(2, 8, u64::MAX),
        member(1, 7, 2),
        member(1, 8, 2),
        rules(1, 1),
    ];
    let before = in_all_orders(&records);
    assert_eq!((named(&before, 7).unwrap().len(), named(&before, 8)), (23, None));
    let after = in_all_orders(&[&records[..], &[revoke(1, 2, 2)]].concat());
    assert_eq!((named(&after, 7), named(&after, 8)), (Some("n1-2"), Some("n1-2")));
}

#[test]
fn only_the_founder_names_a_successor() {
    let body = |successor| Network {
        name: Some(name("taken")),
        inside: Policy::Deny,
        founder: None,
        successor,
    };
    // Of an administrator whose key is lower than the founder's, and of one whose key is not.
    let lower = (2..=250).find(|n| key(*n) < key(FOUNDER)).unwrap();
    let by = |n: u8| record(n, RecordKey::Network, 9, false, &Body::Network(body(Some(key(n)))));
    let state = in_all_orders(&[
        founding(1, Some(3)),
        founding(2, Some(4)),
        grant(1, 2, 1),
        grant(1, lower, 1),
        by(2),
        by(lower),
    ]);
    assert_eq!(state.admins.founder, Some(key(FOUNDER)));
    assert_eq!(
        (state.admins.rank(&key(2)), state.admins.rank(&key(lower))),
        (Some(1), Some(1))
    );
    assert_eq!(
        (state.admins.rank(&key(3)), state.admins.rank(&key(4))),
        (None, Some(0))
    );
    // Name and policy are those of the highest version.
    assert_eq!(state.name, Some(name("taken")));
    assert_eq!(state.table.inside, Policy::Deny);
}

#[test]
fn a_successor_decides_nothing_about_its_founder() {
    let records = [
        founding(1, Some(2)),
        member(1, 2, 1),
        member(1, 1, 1),
        member(2, 1, 9),
        unmember(2, 1, 10),
    ];
    let state = in_all_orders(&records);
    assert_eq!((named(&state, 1), named(&state, 2)), (Some("n1-1"), Some("n1-1")));
    let own = in_all_orders(&[&records[..], &[member(2, 2, 2)]].concat());
    assert_eq!(named(&own, 2), Some("n2-2"));
    let removed = in_all_orders(&[&records[..], &[unmember(1, 2, 3)]].concat());
    assert_eq!(named(&removed, 2), None);
}

#[test]
fn a_successor_alone_retires_the_founder() {
    let records = [founding(1, Some(2)), revoke(1, 2, 9), grant(2, 3, 1), grant(1, 4, 1)];
    // Of the founder's rights only its successor and itself decide.
    let others = [&records[..], &[revoke(3, 1, 9), revoke(4, 1, 9), revoke(9, 1, 9)]].concat();
    assert_eq!(ranks(&in_all_orders(&others)), [(1, 0), (2, 0), (3, 1), (4, 1)]);
    let retired = [&records[..], &[revoke(2, 1, 9)]].concat();
    let state = in_all_orders(&retired);
    assert_eq!(
        (ranks(&state), state.admins.founder),
        (vec![(2, 0), (3, 1)], Some(key(1)))
    );
    // By itself, which holds while it has a successor.
    assert_eq!(
        ranks(&in_all_orders(&[&records[..], &[revoke(1, 1, 9)]].concat())),
        [(2, 0), (3, 1)]
    );
    let alone = [founding(1, None), revoke(1, 1, 9), revoke(2, 1, 9), grant(1, 4, 1)];
    assert_eq!(ranks(&in_all_orders(&alone)), [(1, 0), (4, 1)]);
    // With its key it takes its rank back by what it says of the network, or names another successor.
    let back = [&retired[..], &[founding(9, Some(2))]].concat();
    assert_eq!(ranks(&in_all_orders(&back)), [(1, 0), (2, 0), (3, 1), (4, 1)]);
    let early = [&retired[..], &[founding(8, Some(2)), grant(1, 1, 10)]].concat();
    assert_eq!(ranks(&in_all_orders(&early)), [(2, 0), (3, 1)]);
    let other = [&retired[..], &[founding(2, None)]].concat();
    assert_eq!(ranks(&in_all_orders(&other)), [(1, 0), (4, 1)]);
}

/// What a successor says about the network, which names its own successor.
fn heir(by: u8, version: u64, successor: Option<u8>) -> Arc<Record> {
    let body = Network {
        name: Some(name("home")),
        inside: Policy::Allow,
        founder: None,
        successor: successor.map(key),
    };
    record(by, RecordKey::Network, version, false, &Body::Network(body))
}

#[test]
fn a_successor_that_has_taken_over_names_its_own() {
    let records = [
        founding(1, Some(2)),
        heir(2, 1, Some(3)),
        grant(3, 4, 1),
        revoke(2, 1, 2),
    ];
    // Before it has taken over, what it says counts for nothing.
    assert_eq!(ranks(&in_all_orders(&records[..3])), [(1, 0), (2, 0)]);
    let state = in_all_orders(&records);
    assert_eq!(ranks(&state), [(2, 0), (3, 0), (4, 1)]);
    assert_eq!(
        (state.admins.head(), state.admins.successor()),
        (Some(&key(2)), Some(&key(3)))
    );
    let second = [&records[..], &[revoke(3, 2, 2)]].concat();
    let state = in_all_orders(&second);
    assert_eq!(ranks(&state), [(3, 0), (4, 1)]);
    assert_eq!(state.admins.heads, [key(1), key(2), key(3)]);
    // Earlier heads come back by what they say of the network, and what came behind them ends.
    let back = [&second[..], &[heir(2, 2, Some(3))]].concat();
    assert_eq!(ranks(&in_all_orders(&back)), [(2, 0), (3, 0), (4, 1)]);
    let founder = [&second[..], &[founding(2, None)]].concat();
    assert_eq!(ranks(&in_all_orders(&founder)), [(1, 0)]);
    // A ring of successors comes to an end.
    let ring = [&records[..], &[heir(2, 2, Some(1)), revoke(1, 2, 9)]].concat();
    assert_eq!(ranks(&in_all_orders(&ring)), [(1, 0), (2, 0)]);
}

/// A node that has given up its rights does not get them back by its own key, whatever the versions.
#[test]
fn a_key_does_not_take_back_rights_that_it_gave_up() {
    let records = [
        founding(1, None),
        grant(1, 2, 1),
        revoke(2, 2, 2),
        grant(2, 2, 3),
        grant(2, 2, u64::MAX),
    ];
    let state = in_all_orders(&records);
    assert_eq!(ranks(&state), [(1, 0)]);
    assert!(state.admins.resigned.contains(&key(2)));
    let again = [&records[..], &[grant(1, 2, 3)]].concat();
    assert_eq!(ranks(&in_all_orders(&again)), [(1, 0), (2, 1)]);
}

#[test]
fn two_admins_that_enrol_on_one_use() {
    let base = [founding(1, None), grant(1, 2, 1), invite(1, 50, 1, 1, false)];
    let both = [joined(1, 7, 1, 50, false), joined(2, 8, 1, 50, false)];
    let state = in_all_orders(&[&base[..], &both].concat());
    assert_eq!((state.members.len(), state.over_used.len()), (1, 1));
    assert_eq!(state.over_used.values().next(), Some(&invite_key(50)));
    assert_eq!(state.open_invite(&invite_key(50), 0), Err(InviteClosed::Used));

    // A removed member has used the invite, and a revoked invite keeps its uses.
    let removed = in_all_orders(&[&base[..], &[joined(1, 7, 2, 50, true)]].concat());
    assert_eq!(removed.open_invite(&invite_key(50), 0), Err(InviteClosed::Used));
    let revoked = [&base[..], &both, &[invite(2, 50, 2, 1, true)]].concat();
    let revoked = in_all_orders(&revoked);
    assert_eq!(
        (&revoked.members, &revoked.over_used),
        (&state.members, &state.over_used)
    );
    assert_eq!(revoked.open_invite(&invite_key(50), 0), Err(InviteClosed::Revoked));
    // An administrator may admit the one that is over, without a proof.
    let over = state.over_used.keys().next().unwrap();
    let approved = Draft::new(
        id(),
        RecordKey::Member(*over),
        2,
        &Body::Member(weft_roster::record::Member::default()),
    );
    let approved = Arc::new(approved.sign(&identity(1), 0).unwrap());
    let settled = in_all_orders(&[&base[..], &both, &[approved]].concat());
    assert_eq!((settled.members.len(), settled.over_used.len()), (2, 0));
}

#[test]
fn invites_close_for_their_reasons() {
    let state = in_all_orders(&[
        founding(1, None),
        invite(1, 50, 1, 2, false),
        joined(1, 7, 1, 50, false),
    ]);
    assert_eq!(state.invites[&invite_key(50)].remaining, 1);
    assert!(state.open_invite(&invite_key(50), 1_000).is_ok());
    assert_eq!(state.open_invite(&invite_key(50), 1_001), Err(InviteClosed::Expired));
    assert_eq!(state.open_invite(&invite_key(51), 0), Err(InviteClosed::Unknown));
    let removed = [founding(1, None), invite(1, 50, 1, 9, false), unmember(1, 7, 2)];
    let removed = in_all_orders(&removed);
    assert_eq!(
        removed.may_join(&key(7), &invite_key(50), 0),
        Err(InviteClosed::Removed)
    );
    assert!(removed.may_join(&key(8), &invite_key(50), 0).is_ok());
}

#[test]
fn rules_that_are_not_understood_never_open() {
    let later = |by: u8, version| {
        let mut event = rules(by, version).event().body().clone();
        event.tags.push(vec!["default".to_owned(), "ask".to_owned()]);
        let event = weft_roster::event::Event::sign(&identity(by), event).unwrap();
        Arc::new(Record::parse(event.to_json().as_bytes()).unwrap())
    };
    let base = [founding(1, None), grant(1, 2, 1)];
    let of = |records: &[Arc<Record>]| in_all_orders(&[&base[..], records].concat()).table.rules;
    let understood = |version: u64| Some(vec![format!("deny from any to any tcp/{version}").parse().unwrap()]);
    assert_eq!(of(&[]), Some(vec![]));
    assert_eq!(of(&[later(1, 1)]), None);
    assert_eq!(of(&[later(1, 3), rules(1, 2), rules(1, 1)]), understood(2));
    assert_eq!(of(&[later(1, 3), rules(2, 2), rules(1, 1)]), understood(2));
    assert_eq!(of(&[later(1, 3), later(1, 5), rules(1, 2)]), understood(2));
    assert_eq!(of(&[later(1, 3), rules(1, 2), rules(2, 4)]), understood(4));
    // Rules of a signer that is no administrator are no rules.
    assert_eq!(of(&[later(9, 3)]), Some(vec![]));
}

#[test]
fn routes_and_exits_are_those_of_members() {
    let prefix = "192.168.7.0/24".parse().unwrap();
    let route = |by, n| record(by, RecordKey::Route(key(n), prefix), 1, false, &Body::Plain);
    let exit = |by, n| record(by, RecordKey::Exit(key(n)), 1, false, &Body::Exit(Exit::default()));
    let records = [
        founding(1, None),
        member(1, 7, 1),
        route(1, 7),
        route(1, 8),
        exit(1, 7),
        exit(1, 8),
        exit(9, 1),
    ];
    let state = in_all_orders(&records);
    assert_eq!(state.routes[&prefix].iter().copied().collect::<Vec<_>>(), [key(7)]);
    assert_eq!(state.exits.keys().copied().collect::<Vec<_>>(), [key(7)]);
}

#[test]
fn insertion_says_if_a_record_was_kept() {
    let mut set = set(&[founding(1, None), member(1, 7, 2)]);
    assert_eq!(set.insert(&member(1, 7, 2)), Insertion::Known);
    assert_eq!(set.insert(&member(1, 7, 1)), Insertion::Older);
    assert_eq!(set.insert(&member(1, 7, 3)), Insertion::Kept);
    assert_eq!(set.insert(&member(9, 7, 3)), Insertion::Kept);
    assert_eq!((set.records().count(), set.live().count()), (3, 2));
    let unknown = record(1, RecordKey::Unknown("later/1".to_owned()), 1, false, &Body::Plain);
    assert_eq!(set.insert(&unknown), Insertion::Kept);
    assert_eq!(set.live().count(), 3);
}
