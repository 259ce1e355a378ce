//! Versions of new records, and what is signed again before an administrator goes.

#![allow(clippy::unwrap_used, reason = "test helpers")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::*;
use weft_noise::PublicKey;
use weft_roster::changes::{Again, ChangeError, Keep};
use weft_roster::key::RecordKey;
use weft_roster::record::{Body, Draft, Member, Network, Record};
use weft_roster::rules::Policy;
use weft_roster::state::State;

/// All stays, and the rights of these administrators.
fn keep(admins: &[u8]) -> Keep {
    Keep {
        rest: true,
        admins: admins.iter().map(|n| key(*n)).collect(),
        ..Keep::default()
    }
}

fn number(key: &PublicKey) -> u8 {
    (1..60).find(|n| common::key(*n) == *key).unwrap()
}

/// The records of a list, signed by `by`.
fn signed(list: &[Again], by: u8) -> Vec<Arc<Record>> {
    let sign = |again: &Again| again.draft().sign(&identity(by), 1).unwrap();
    list.iter().map(sign).map(Arc::new).collect()
}

/// Members with their names, administrators, and how many nodes are removed.
type Facts = (Vec<(u8, Option<String>)>, Vec<u8>, usize);

/// Members and ranks, which a revocation is not to change but for the one revoked.
fn facts(state: &State) -> Facts {
    let members = state.members.iter().map(|(key, member)| {
        let name = member.name.as_ref().map(ToString::to_string);
        (number(key), name)
    });
    (
        members.collect(),
        state.admins.of.keys().map(number).collect(),
        state.removed.len(),
    )
}

#[test]
fn a_version_is_one_more_than_the_highest_that_counts() {
    let records = [
        founding(4, None),
        grant(1, 2, 3),
        member(2, 7, 5),
        member(1, 7, 2),
        member(9, 7, 80),
    ];
    let set = set(&records);
    let member = RecordKey::Member(key(7));
    assert_eq!(set.next_version(&member, &key(1)), Ok(6));
    assert_eq!(set.next_version(&RecordKey::Network, &key(1)), Ok(5));
    assert_eq!(set.next_version(&RecordKey::Rules, &key(2)), Ok(1));
    assert_eq!(set.next_version(&member, &key(9)), Err(ChangeError::NotAdmin(key(9))));
    assert_eq!(
        set.next_version(&RecordKey::Admin(key(1)), &key(2)),
        Err(ChangeError::NotSenior(key(1)))
    );
    assert_eq!(
        set.next_version(&RecordKey::Member(key(1)), &key(2)),
        Err(ChangeError::NotSenior(key(1)))
    );
    assert_eq!(set.next_version(&RecordKey::Admin(key(2)), &key(2)), Ok(4));
}

#[test]
fn the_highest_version_names_its_signer() {
    let records = [
        founding(1, None),
        grant(1, 2, 1),
        member(2, 7, u64::MAX),
        grant(2, 2, u64::MAX),
        grant(2, 3, u64::MAX),
    ];
    let mut set = set(&records);
    let member = RecordKey::Member(key(7));
    assert_eq!(set.next_version(&member, &key(1)), Err(ChangeError::Exhausted(key(2))));
    // Records of the junior do not keep the founder from removing it, or what it granted.
    assert_eq!(set.next_version(&RecordKey::Admin(key(3)), &key(1)), Ok(1));
    let list = set.resign_list(&key(2), &key(1), &keep(&[3])).unwrap();
    for record in signed(&list, 1) {
        set.insert(&record);
    }
    let version = set.next_version(&RecordKey::Admin(key(2)), &key(1)).unwrap();
    set.insert(&revoke(1, 2, version.max(2)));
    let state = State::of(&set);
    assert_eq!(state.admins.rank(&key(2)), None);
    assert_eq!(state.admins.rank(&key(3)), Some(1));
    assert_eq!(named(&state, 7).unwrap().len(), 23);
    assert!(set.next_version(&member, &key(1)).is_ok());
}

#[test]
fn a_revocation_changes_nothing_else() {
    let records = [
        founding(1, None),
        grant(1, 2, 1),
        grant(1, 3, 1),
        grant(2, 4, 1),
        revoke(2, 5, 1),
        grant(4, 5, 1),
        member(2, 2, 1),
        member(2, 7, 3),
        member(1, 7, 2),
        unmember(2, 8, 2),
        member(3, 8, 1),
        joined(2, 9, 1, 50, false),
        invite(2, 50, 1, 1, false),
        rules(2, 3),
        member(4, 10, 1),
    ];
    let mut set = set(&records);
    let before = State::of(&set);
    let list = set.resign_list(&key(2), &key(1), &keep(&[4])).unwrap();
    for record in signed(&list, 1) {
        set.insert(&record);
    }
    let between = State::of(&set);
    assert_eq!(
        facts(&between),
        facts(&before),
        "signing again changes nothing of these"
    );
    let version = set.next_version(&RecordKey::Admin(key(2)), &key(1)).unwrap();
    set.insert(&revoke(1, 2, version));
    let after = State::of(&set);
    let (members, admins, removed) = facts(&before);
    let admins: Vec<u8> = admins.into_iter().filter(|n| *n != 2).collect();
    assert_eq!(facts(&after), (members, admins, removed));
    assert_eq!(after.table, before.table);
    assert_eq!(after.over_used, before.over_used);
    // The invites of the one revoked end, and those that it has brought stay.
    let open = |state: &State| !state.invites[&invite_key(50)].revoked;
    assert_eq!((open(&before), open(&between), open(&after)), (true, false, false));
    let invites = list.iter().filter(|again| again.ends);
    assert_eq!(invites.count(), 1);

    // Without the list, much falls.
    let mut bare = common::set(&records);
    bare.insert(&revoke(1, 2, 2));
    assert_ne!(facts(&State::of(&bare)), facts(&after));
}

/// What a thief of a key has signed goes with the key: its grants, and what follows from those, its
/// invites, and, unless the owner wants it, all the rest.
#[test]
fn a_thief_leaves_nothing_that_is_not_asked_for() {
    let records = [
        founding(1, None),
        grant(1, 2, 1),
        grant(1, 3, 1),
        // The founder took 7 in; the thief renames it, removes 3 and 8, grants 4, which takes in 10.
        member(1, 7, 1),
        member(1, 8, 1),
        member(1, 2, 1),
        member(2, 7, 2),
        unmember(2, 8, 2),
        grant(2, 4, 1),
        member(4, 10, 1),
        member(2, 9, 1),
        joined(2, 11, 1, 50, false),
        invite(2, 50, 1, 3, false),
        invite(4, 51, 1, 3, false),
        rules(2, 3),
    ];
    let removed_by = |keep: &Keep| {
        let mut set = set(&records);
        let list = set.resign_list(&key(2), &key(1), keep).unwrap();
        for record in signed(&list, 1) {
            set.insert(&record);
        }
        let version = set.next_version(&RecordKey::Admin(key(2)), &key(1)).unwrap();
        set.insert(&revoke(1, 2, version));
        State::of(&set)
    };
    let resting = set(&records).resting_on(&key(2), &key(1));
    let about: Vec<String> = resting.iter().map(|record| record.key().to_string()).collect();
    for number in [4, 7, 8, 9, 10, 11] {
        let npub = key(number).to_string();
        assert!(about.iter().any(|key| key.ends_with(&npub)), "{number}: {about:?}");
    }
    assert_eq!(about.len(), 6 + 3, "two invites and the rules: {about:?}");

    let nothing = removed_by(&Keep::default());
    let admins = |state: &State| state.admins.of.keys().map(number).collect::<Vec<_>>();
    let members = |state: &State| state.members.keys().map(number).collect::<BTreeSet<_>>();
    assert_eq!(admins(&nothing), admins_sorted(&[1, 3]));
    assert_eq!(members(&nothing), BTreeSet::from([2, 7, 8]));
    assert_eq!(named(&nothing, 7), Some("n1-1"), "as the founder has it");
    let removed: BTreeSet<u8> = nothing.removed.keys().map(number).collect();
    assert_eq!(
        removed,
        BTreeSet::from([9, 10, 11]),
        "they learn it, and come back by no code"
    );
    assert!(nothing.invites.values().all(|invite| invite.revoked));
    assert_eq!(nothing.table.rules, Some(Vec::new()));

    let rest = removed_by(&keep(&[]));
    assert_eq!(admins(&rest), admins_sorted(&[1, 3]));
    assert_eq!(members(&rest), BTreeSet::from([2, 7, 9, 10, 11]));
    assert!(rest.invites.values().all(|invite| invite.revoked));
    assert_ne!(rest.table.rules, Some(Vec::new()));

    let named = removed_by(&Keep {
        invites: BTreeSet::from([invite_key(50)]),
        ..keep(&[4])
    });
    assert_eq!(admins(&named), admins_sorted(&[1, 3, 4]));
    let open: Vec<_> = named
        .invites
        .iter()
        .filter(|(_, invite)| !invite.revoked)
        .map(|(key, _)| *key)
        .collect();
    let mut wanted = [invite_key(50), invite_key(51)];
    wanted.sort_unstable();
    assert_eq!(
        open, wanted,
        "the one by name, and that of the administrator that stays"
    );
}

fn admins_sorted(numbers: &[u8]) -> Vec<u8> {
    let mut keys: Vec<u8> = numbers.to_vec();
    keys.sort_by_key(|n| key(*n));
    keys
}

#[test]
fn a_successor_that_is_taken_back_changes_nothing_else() {
    let records = [
        founding(1, Some(2)),
        grant(2, 3, 1),
        member(2, 7, 1),
        joined(2, 9, 1, 50, false),
        invite(2, 50, 1, 3, false),
        member(3, 8, 1),
    ];
    let mut set = set(&records);
    assert_eq!(set.admins().successor(), Some(&key(2)));
    let before = State::of(&set);
    let network = founding(2, None);
    for record in signed(&set.successor_list(&network, &keep(&[3])).unwrap(), 1) {
        set.insert(&record);
    }
    set.insert(&network);
    let after = State::of(&set);
    assert_eq!(after.admins.successor(), None);
    let (members, admins, removed) = facts(&before);
    let admins: Vec<u8> = admins.into_iter().filter(|n| *n != 2).collect();
    assert_eq!(facts(&after), (members, admins, removed));
    assert!(after.invites[&invite_key(50)].revoked);

    // What an administrator signed stays without that.
    let mut granted = common::set(&records);
    granted.insert(&grant(1, 2, 1));
    assert_eq!(granted.successor_list(&network, &keep(&[])), Ok(Vec::new()));
    assert_eq!(
        granted.successor_list(&founding(2, Some(2)), &keep(&[])),
        Ok(Vec::new())
    );
}

#[test]
fn a_new_successor_keeps_what_juniors_said_of_it() {
    let records = [founding(1, None), grant(1, 2, 1), member(2, 7, 1), member(1, 8, 1)];
    let mut set = set(&records);
    let before = State::of(&set);
    let network = founding(2, Some(7));
    let list = set.successor_list(&network, &keep(&[3])).unwrap();
    assert_eq!(list.len(), 1);
    for record in signed(&list, 1) {
        set.insert(&record);
    }
    set.insert(&network);
    let after = State::of(&set);
    assert_eq!(
        (facts(&after).0, after.admins.rank(&key(7))),
        (facts(&before).0, Some(0))
    );
    // The founder goes on to decide about it, but for its rank, and it decides nothing of the founder.
    assert_eq!(set.next_version(&RecordKey::Member(key(7)), &key(1)), Ok(2));
    for (about, by) in [(RecordKey::Admin(key(7)), 1), (RecordKey::Member(key(1)), 7)] {
        assert!(matches!(
            set.next_version(&about, &key(by)),
            Err(ChangeError::NotSenior(_))
        ));
    }
}

#[test]
fn a_grant_leaves_what_is_known_of_the_new_admin() {
    // An equal of the new administrator may say nothing about it.
    let records = [founding(1, None), grant(1, 2, 1), member(2, 7, 1)];
    let mut set = set(&records);
    let list = set.grant_list(&key(7), &key(1)).unwrap();
    assert_eq!(list.len(), 1);
    let mut without = set.clone();
    without.insert(&grant(1, 7, 1));
    assert_eq!(named(&State::of(&without), 7), None);
    for record in signed(&list, 1) {
        set.insert(&record);
    }
    set.insert(&grant(1, 7, 1));
    assert_eq!(named(&State::of(&set), 7), Some("n2-1"));
    assert_eq!(set.grant_list(&key(1), &key(2)), Err(ChangeError::NotSenior(key(1))));
}

/// A thief of the successor's key retires the founder with the highest versions that there are.
#[test]
fn no_version_of_a_successor_locks_the_founder_out() {
    let stolen = Network {
        name: Some(name("stolen")),
        inside: Policy::Deny,
        founder: None,
        successor: Some(key(5)),
    };
    let records = [
        founding(1, Some(2)),
        grant(1, 3, 1),
        member(1, 1, 1),
        member(1, 2, 1),
        member(1, 7, 1),
        record(2, RecordKey::Network, u64::MAX, false, &Body::Network(stolen)),
        revoke(2, 1, u64::MAX),
        unmember(2, 7, u64::MAX),
        member(2, 8, 1),
        grant(5, 6, 1),
    ];
    let mut set = set(&records);
    let admins: BTreeSet<u8> = set.admins().of.keys().map(number).collect();
    assert_eq!(admins, BTreeSet::from([2, 5, 6]));
    let version = set.successor_version(&key(1), None).unwrap();
    let network = founding(version, None);
    assert_eq!(set.falls_with(&network), Some(key(2)));
    let list = set.successor_list(&network, &Keep::default()).unwrap();
    for record in [vec![network], signed(&list, 1)].concat() {
        set.insert(&record);
    }
    let state = State::of(&set);
    let admins: BTreeSet<u8> = state.admins.of.keys().map(number).collect();
    assert_eq!(admins, BTreeSet::from([1, 3]));
    let members: BTreeSet<u8> = state.members.keys().map(number).collect();
    assert_eq!(members, BTreeSet::from([1, 2, 7]));
    assert_eq!(state.name, Some(name("home")));
    // Another successor is as any, and the former one is not named again.
    let other = set.successor_version(&key(1), Some(&key(7))).unwrap();
    set.insert(&founding(other, Some(7)));
    let first = set.admins().of.iter().filter(|(_, admin)| admin.rank == 0);
    let first: BTreeSet<u8> = first.map(|(key, _)| number(key)).collect();
    assert_eq!(first, BTreeSet::from([1, 7]));
    assert_eq!(
        set.successor_version(&key(1), Some(&key(2))),
        Err(ChangeError::Exhausted(key(2)))
    );
}

/// The founder hands over, comes back without a successor, and names another one: its resignation of then
/// does not count again.
#[test]
fn a_founder_that_came_back_stays_with_a_new_successor() {
    let mut set = set(&[founding(1, Some(2)), revoke(2, 1, 7), revoke(1, 1, 9)]);
    assert_eq!(set.admins().rank(&key(1)), None);
    for successor in [None, Some(3), Some(2)] {
        let version = set.successor_version(&key(1), successor.map(key).as_ref()).unwrap();
        set.insert(&founding(version, successor));
        assert_eq!(set.admins().rank(&key(1)), Some(0), "{successor:?}");
        assert_eq!(set.admins().successor(), successor.map(key).as_ref());
    }
    // The next one to end its rights does.
    let version = set.next_version(&RecordKey::Admin(key(1)), &key(2)).unwrap();
    set.insert(&revoke(2, 1, version));
    assert_eq!(set.admins().head(), Some(&key(2)));
}

/// An honest administrator takes in by the thief's invite, and the thief changes its own records.
#[test]
fn a_thief_leaves_no_guest_and_no_tag_of_its_own() {
    let prefix = "10.9.0.0/16".parse().unwrap();
    let route = record(2, RecordKey::Route(key(2), prefix), 1, false, &Body::Plain);
    let records = [
        founding(1, None),
        grant(1, 2, 1),
        grant(1, 3, 1),
        grant(2, 4, 1),
        member(1, 2, 1),
        member(2, 2, 2),
        route,
        invite(2, 50, 1, 3, false),
        invite(4, 51, 1, 3, false),
        invite(3, 52, 1, 3, false),
        joined(3, 11, 1, 50, false),
        joined(3, 12, 1, 51, false),
        joined(3, 13, 1, 52, false),
        joined(1, 14, 1, 50, false),
        grant(1, 14, 1),
    ];
    let resting = set(&records).resting_on(&key(2), &key(1));
    let about: BTreeSet<String> = resting.iter().map(|record| record.key().to_string()).collect();
    for number in [11, 12] {
        assert!(about.contains(&RecordKey::Member(key(number)).to_string()), "{about:?}");
    }
    assert!(about.contains(&RecordKey::Member(key(2)).to_string()), "{about:?}");
    assert!(
        about.contains(&RecordKey::Route(key(2), prefix).to_string()),
        "{about:?}"
    );
    let removed_by = |keep: &Keep| {
        let mut set = set(&records);
        for record in signed(&set.resign_list(&key(2), &key(1), keep).unwrap(), 1) {
            set.insert(&record);
        }
        let version = set.next_version(&RecordKey::Admin(key(2)), &key(1)).unwrap();
        set.insert(&revoke(1, 2, version));
        State::of(&set)
    };
    let members = |state: &State| state.members.keys().map(number).collect::<BTreeSet<_>>();
    let nothing = removed_by(&Keep::default());
    assert_eq!(members(&nothing), BTreeSet::from([2, 13, 14]));
    assert_eq!(named(&nothing, 2), Some("n1-1"), "as the founder has it");
    assert!(nothing.routes.is_empty());
    let invites = BTreeSet::from([invite_key(50)]);
    let by_name = removed_by(&Keep {
        invites,
        ..Keep::default()
    });
    assert_eq!(members(&by_name), BTreeSet::from([2, 11, 13, 14]));
    let rest = removed_by(&keep(&[]));
    assert_eq!(members(&rest), BTreeSet::from([2, 11, 12, 13, 14]));
    assert_eq!((named(&rest, 2), rest.routes.len()), (Some("n2-2"), 1));
}

/// A member that is one by its own signature alone stays one, and no more.
#[test]
fn a_thief_that_is_member_by_itself_stays_without_tags() {
    let body = Member {
        name: Some(name("laptop")),
        tags: BTreeSet::from([name("servers")]),
        ipv4: Some("10.44.1.2".parse().unwrap()),
        proof: None,
    };
    let own = record(2, RecordKey::Member(key(2)), 1, false, &Body::Member(body));
    let mut set = set(&[founding(1, None), grant(1, 2, 1), own]);
    let list = set.resign_list(&key(2), &key(1), &Keep::default()).unwrap();
    for record in signed(&list, 1) {
        set.insert(&record);
    }
    set.insert(&revoke(1, 2, 2));
    let state = State::of(&set);
    let bare = Member {
        name: Some(name("laptop")),
        ..Member::default()
    };
    assert_eq!(state.members.get(&key(2)), Some(&bare));
}

/// The grants that juniors of the one removed have made stay by name, too.
#[test]
fn the_administrator_of_a_junior_stays_by_name() {
    let mut set = set(&[
        founding(1, None),
        grant(1, 2, 1),
        grant(2, 3, 1),
        grant(3, 4, 1),
        member(4, 9, 1),
    ]);
    let list = set.resign_list(&key(2), &key(1), &keep(&[4])).unwrap();
    for record in signed(&list, 1) {
        set.insert(&record);
    }
    set.insert(&revoke(1, 2, 2));
    let state = State::of(&set);
    let admins: BTreeSet<u8> = state.admins.of.keys().map(number).collect();
    assert_eq!(admins, BTreeSet::from([1, 4]));
    assert_eq!(state.admins.rank(&key(4)), Some(1));
    assert_eq!(state.members.len(), 1);
}

/// A thief of the successor's key hands over to a second key, and that takes the network over.
#[test]
fn the_founder_comes_back_from_behind_a_chain() {
    let heir = Network {
        name: Some(name("home")),
        inside: Policy::Allow,
        founder: None,
        successor: Some(key(5)),
    };
    let records = [
        founding(1, Some(2)),
        member(1, 1, 1),
        member(1, 7, 1),
        record(2, RecordKey::Network, 5, false, &Body::Network(heir)),
        revoke(2, 1, 5),
        revoke(5, 2, 6),
        member(5, 5, 1),
        member(5, 8, 1),
        member(5, 7, 9),
        unmember(5, 1, 9),
        invite(5, 50, 1, 2_000, false),
        joined(5, 9, 1, 50, false),
        rules(5, 9),
    ];
    for (wish, kept) in [(Keep::default(), false), (keep(&[]), true)] {
        let mut set = set(&records);
        assert_eq!(set.admins().heads, [key(1), key(2), key(5)]);
        let network = founding(set.successor_version(&key(1), None).unwrap(), None);
        assert_eq!(set.falls_with(&network), Some(key(2)));
        assert!(set.resting_on(&key(2), &key(1)).len() >= 5);
        let list = set.successor_list(&network, &wish).unwrap();
        for record in [vec![network], signed(&list, 1)].concat() {
            set.insert(&record);
        }
        let state = State::of(&set);
        assert_eq!(state.admins.of.keys().map(number).collect::<Vec<_>>(), [1]);
        let members: BTreeSet<u8> = state.members.keys().map(number).collect();
        let expected = if kept { vec![1, 5, 7, 8, 9] } else { vec![1, 7] };
        assert_eq!(members, BTreeSet::from_iter(expected), "kept: {kept}");
        assert!(state.invites.values().all(|invite| invite.revoked));
        assert_eq!(state.table.rules == Some(Vec::new()), !kept);
    }
}

/// Two keys are stolen: one administrator has signed the highest version about the network, and the successor
/// has retired the founder.
#[test]
fn a_version_of_a_third_does_not_keep_the_founder_out() {
    let stolen = Network {
        name: Some(name("stolen")),
        inside: Policy::Deny,
        founder: None,
        successor: None,
    };
    let mut set = set(&[
        founding(1, Some(2)),
        grant(1, 3, 1),
        record(3, RecordKey::Network, u64::MAX, false, &Body::Network(stolen)),
        revoke(2, 1, 9),
    ]);
    let version = set.successor_version(&key(1), None).unwrap();
    set.insert(&founding(version, None));
    assert_eq!(set.admins().rank(&key(1)), Some(0));
    for admin in [3, 2] {
        let version = set.next_version(&RecordKey::Admin(key(admin)), &key(1)).unwrap();
        set.insert(&revoke(1, admin, version));
    }
    assert_eq!(State::of(&set).name, Some(name("home")));
}

/// A record of the founder about its own rights, other than their end, keeps no successor from taking over.
#[test]
fn a_founder_cannot_make_itself_irremovable() {
    let mut set = set(&[founding(1, Some(2)), grant(1, 1, u64::MAX)]);
    let version = set.next_version(&RecordKey::Admin(key(1)), &key(2)).unwrap();
    assert_eq!(version, 2, "above what it says about the network");
    set.insert(&revoke(2, 1, version));
    assert_eq!(set.admins().head(), Some(&key(2)));
}

/// The thief makes an invite with a second key, or ends its own rights, so that none of it is in force.
#[test]
fn guests_of_keys_without_rights_go_with_the_thief() {
    let base = [
        founding(1, None),
        grant(1, 2, 1),
        grant(2, 4, 1),
        invite(4, 50, 1, 3, false),
        joined(1, 11, 1, 50, false),
        member(1, 12, 1),
    ];
    for (by_thief, has_rank) in [(revoke(2, 4, 2), true), (revoke(2, 2, u64::MAX), false)] {
        let mut set = set(&[&base[..], &[by_thief]].concat());
        assert_eq!(set.admins().rank(&key(2)).is_some(), has_rank);
        let resting = set.resting_on(&key(2), &key(1));
        let about: Vec<&RecordKey> = resting.iter().map(|record| record.key()).collect();
        assert_eq!(about, [&RecordKey::Member(key(11))]);
        let list = set.resign_list(&key(2), &key(1), &Keep::default()).unwrap();
        for record in signed(&list, 1) {
            set.insert(&record);
        }
        let members: Vec<u8> = State::of(&set).members.keys().map(number).collect();
        assert_eq!(members, [12]);
    }
}

/// What an honest administrator has restated of the thief's records goes with the thief.
#[test]
fn restated_records_go_with_the_one_that_said_them_first() {
    let prefix = "10.9.0.0/16".parse().unwrap();
    let tagged = Member {
        name: Some(name("tagged")),
        tags: BTreeSet::from([name("servers")]),
        ..Member::default()
    };
    let by_thief = [
        member(2, 7, 1),
        record(2, RecordKey::Route(key(8), prefix), 1, false, &Body::Plain),
        record(2, RecordKey::Member(key(8)), 1, false, &Body::Member(tagged)),
    ];
    let mut records = vec![founding(1, None), grant(1, 2, 1), grant(1, 8, 1), member(1, 9, 1)];
    for record in &by_thief {
        let draft = Draft::again(record, 2).restating(record, &key(1));
        let restated = Arc::new(draft.sign(&identity(1), 0).unwrap());
        let of = |record: &Record| record.of().collect::<Vec<_>>();
        assert_eq!(of(&restated), [key(2)]);
        // Restated once more, it is still the thief's, whatever the thief has said of it.
        let third = Draft::again(&restated, 3).restating(&restated, &key(3));
        assert_eq!(of(&third.sign(&identity(3), 0).unwrap()), [key(1), key(2)]);
        let made_up = (0..20).fold(Draft::again(record, 3), |draft, n| {
            let other = member(30 + n, 7, 1);
            draft.restating(&other, &key(2))
        });
        let made_up = made_up.sign(&identity(2), 0).unwrap();
        assert_eq!(made_up.of().count(), 8);
        let fourth = Draft::again(&made_up, 4).restating(&made_up, &key(1));
        let fourth = of(&fourth.sign(&identity(1), 0).unwrap());
        assert_eq!((fourth.len(), fourth[0]), (8, key(2)));
        records.push(restated);
    }
    records.extend(by_thief);
    let removed_by = |keep: &Keep| {
        let mut set = set(&records);
        assert_eq!(set.resting_on(&key(2), &key(1)).len(), 3);
        assert!(
            set.resting_on(&key(2), &key(2)).is_empty(),
            "who resigns takes nothing along"
        );
        for record in signed(&set.resign_list(&key(2), &key(1), keep).unwrap(), 1) {
            set.insert(&record);
        }
        set.insert(&revoke(1, 2, 2));
        State::of(&set)
    };
    let nothing = removed_by(&Keep::default());
    let members: BTreeSet<u8> = nothing.members.keys().map(number).collect();
    assert_eq!(members, BTreeSet::from([8, 9]));
    assert!(nothing.routes.is_empty() && nothing.members[&key(8)].tags.is_empty());
    let rest = removed_by(&keep(&[]));
    assert_eq!((rest.members.len(), rest.routes.len()), (3, 1));
    assert_eq!(rest.members[&key(8)].tags.len(), 1);
}

/// What is restated about an administrator of the same rank is no reason to refuse a removal.
#[test]
fn a_removal_leaves_restated_records_about_equals() {
    let about_equal = member(2, 4, 1);
    let restated = Draft::again(&about_equal, 2).restating(&about_equal, &key(1));
    let set = set(&[
        founding(1, None),
        grant(1, 3, 1),
        grant(1, 4, 1),
        grant(3, 2, 1),
        about_equal,
        Arc::new(restated.sign(&identity(1), 0).unwrap()),
    ]);
    assert_eq!(set.resign_list(&key(2), &key(3), &Keep::default()), Ok(Vec::new()));
    assert!(set.resting_on(&key(2), &key(3)).is_empty());
    assert_eq!(set.resting_on(&key(2), &key(1)).len(), 1);
}

/// A thief signs just below the highest version, and the next record of an honest administrator would be the
/// last one that there is.
#[test]
fn no_signer_is_led_to_the_last_version() {
    let base = [founding(1, None), grant(1, 2, 1), member(1, 7, 1)];
    for version in [1 << 63, u64::MAX - 1, u64::MAX] {
        let set = set(&[
            &base[..],
            &[member(2, 7, version), rules(2, 1), secret(2, version, false)],
        ]
        .concat());
        for about in [RecordKey::Member(key(7)), RecordKey::Secret] {
            assert_eq!(set.next_version(&about, &key(1)), Err(ChangeError::Exhausted(key(2))));
        }
        assert_eq!(set.next_version(&RecordKey::Rules, &key(1)), Ok(2));
        // Without the thief it goes on as before.
        let list = set.resign_list(&key(2), &key(1), &keep(&[])).unwrap();
        assert!(list.iter().all(|again| again.version <= 2), "{list:?}");
    }
    let set = set(&[&base[..], &[member(2, 7, (1 << 63) - 1)]].concat());
    assert_eq!(set.next_version(&RecordKey::Member(key(7)), &key(1)), Ok(1 << 63));
}

/// A grant that undoes a resignation with the highest version can itself be undone.
#[test]
fn a_grant_of_the_highest_version_is_undone_with_the_same() {
    let mut set = set(&[founding(1, None), revoke(2, 2, u64::MAX), grant(1, 2, u64::MAX)]);
    assert_eq!(set.admins().rank(&key(2)), Some(1));
    let version = set.next_version(&RecordKey::Admin(key(2)), &key(1)).unwrap();
    set.insert(&revoke(1, 2, version));
    assert_eq!(set.admins().rank(&key(2)), None);
}
