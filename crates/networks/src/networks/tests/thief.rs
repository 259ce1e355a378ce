use weft_roster::key::RecordKey;
use weft_roster::record::{Body, Draft, Member, Network as NetworkBody};
use weft_roster::rules::Policy;
use weft_roster::sync::Message;

use super::*;
use crate::{MemberChange, RouteChange, RuleChange, SignedKind};

/// The founder, the administrator 1, whose key a thief has had, the member 2, and two more nodes.
fn world() -> (World, Code) {
    let mut world = World::new(5, &[(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3)]);
    world.create(0);
    for at in [1, 2] {
        let code = world.invite(0, 1, at as u8);
        world.join(at, &code, 0);
        world.run(5_000);
    }
    let times = world.times();
    world.nodes[0]
        .change_member(None, "node-1", (MemberChange::MakeAdmin {}, None), times)
        .unwrap();
    world.run(5_000);
    // The thief gives rights to a second key, makes an invite, takes 3 in, and changes rules and routes.
    let code = world.invite(1, 5, 9);
    world.join(3, &code, 1);
    world.run(10_000);
    let times = world.times();
    world.nodes[1]
        .change_member(None, "node-3", (MemberChange::MakeAdmin {}, None), times)
        .unwrap();
    let rule = "allow from any to any".to_owned();
    world.nodes[1]
        .change_rules(None, RuleChange::Add { rule, at: None }, times)
        .unwrap();
    world.nodes[2].set_offer(&BTreeSet::from(["192.168.7.0/24".parse().unwrap()]));
    world.run(15_000);
    let (times, route) = (world.times(), ("node-2", "192.168.7.0/24".parse().unwrap()));
    world.nodes[1]
        .change_route(None, route, RouteChange::Approve, times)
        .unwrap();
    world.run(10_000);
    assert_eq!(world.members(0), [0, 1, 2, 3]);
    (world, code)
}

fn remove(world: &mut World, wish: Option<&Wish>, change: MemberChange) -> Result<Vec<String>, NetworkError> {
    let times = world.times();
    let before = world.nodes[0].before();
    let changed = world.nodes[0].change_member(None, "node-1", (change, wish), times);
    if changed.is_err() {
        world.nodes[0].undo(before, &[]);
    }
    world.run(30_000);
    changed.map(|changed| changed.again)
}

fn is_admin(world: &World, at: usize) -> bool {
    world.network(0).is_admin(&key(at)) || world.network(2).is_admin(&key(at))
}

#[test]
fn records_of_an_administrator_are_named_before_its_removal() {
    for change in [MemberChange::RevokeAdmin {}, MemberChange::Remove {}, replace("node-2")] {
        let (mut world, _) = world();
        let text = kept::to_text(world.network(0)).unwrap();
        let Err(NetworkError::Undecided { name, what }) = remove(&mut world, None, change) else {
            panic!("it is not asked");
        };
        assert_eq!(name, "node-1");
        for part in [
            "administrator node-3",
            "invite/",
            "member node-3",
            "the rules",
            "route 192.168.7.0/24 of node-2",
        ] {
            assert!(what.contains(part), "{part} is missing in {what}");
        }
        assert_eq!(kept::to_text(world.network(0)).unwrap(), text);
        let unix = world.unix();
        let (signed, _) = world.nodes[0].signed_by(None, (Some("node-1"), false), unix).unwrap();
        let kinds: Vec<SignedKind> = signed.iter().map(|signed| signed.kind).collect();
        assert_eq!(kinds[..2], [SignedKind::Rights, SignedKind::Invite]);
        assert!(
            kinds[2..].iter().all(|kind| *kind == SignedKind::Rest) && kinds.len() == 5,
            "{kinds:?}"
        );
        assert!(
            world.nodes[0]
                .signed_by(None, (Some("node-2"), false), unix)
                .unwrap()
                .0
                .is_empty()
        );
    }
}

#[test]
fn a_thief_keeps_nothing_after_its_key_is_removed() {
    for change in [MemberChange::RevokeAdmin {}, MemberChange::Remove {}] {
        let (mut world, code) = world();
        remove(&mut world, Some(&Wish::default()), change.clone()).unwrap();
        assert!(!is_admin(&world, 1) && !is_admin(&world, 3));
        assert!(!world.members(0).contains(&3) && world.members(0).contains(&2));
        let state = world.network(2).state();
        assert_eq!(state.table.rules, Some(Vec::new()));
        assert!(state.routes.is_empty());
        // The removed ones learn that they decide nothing any more.
        for at in if change == (MemberChange::Remove {}) {
            vec![1, 3]
        } else {
            vec![3]
        } {
            assert!(!world.network(at).is_member(&key(at)), "{at}");
        }
        assert!(!world.network(1).is_admin(&key(1)) && !world.network(1).is_admin(&key(3)));
        // Neither the second key nor a new one comes back by the code.
        world.nodes[3] = networks(3, Vec::new());
        for at in [3, 4] {
            world.join(at, &code, 0);
            world.run(10_000);
            assert!(!world.members(0).contains(&at), "{at}");
        }
        assert_eq!(world.refusal(4), Some(Refusal::Revoked));
        // Nor does the node that the code names take it in, though it has made the invite.
        world.connected.insert((1, 4));
        world.nodes[4] = networks(4, Vec::new());
        world.join(4, &code, 1);
        world.run(10_000);
        assert!(!world.network(4).is_member(&key(4)));
    }
}

#[test]
fn grants_and_invites_stay_by_name_only() {
    let (mut world, code) = world();
    let again = remove(&mut world, Some(&keep_rest()), MemberChange::RevokeAdmin {}).unwrap();
    for ended in ["administrator node-3: ended", "invite/"] {
        let is_told = |line: &String| line.starts_with(ended) && line.ends_with(": ended");
        assert!(again.iter().any(is_told), "{ended}: {again:?}");
    }
    assert!(
        !is_admin(&world, 1) && !is_admin(&world, 3),
        "rights do not stay with the rest"
    );
    assert_eq!(world.members(0), [0, 1, 2, 3]);
    assert_eq!(world.network(2).state().table.rules.as_ref().map(Vec::len), Some(1));
    world.join(4, &code, 0);
    world.run(10_000);
    assert_eq!(world.refusal(4), Some(Refusal::Revoked));

    let (mut world, code) = self::world();
    let invite = hex::encode(code.seed.key_pair().public().as_bytes());
    let wish = Wish {
        admins: vec!["node-3".to_owned()],
        invites: vec![invite[..12].to_owned()],
        ..keep_rest()
    };
    for (wish, error) in [
        (
            Wish {
                admins: vec!["node-2".to_owned()],
                ..wish.clone()
            },
            "NotGranted",
        ),
        (
            Wish {
                admins: vec!["desk".to_owned()],
                ..wish.clone()
            },
            "NoMember",
        ),
        (
            Wish {
                invites: vec!["zz".to_owned()],
                ..wish.clone()
            },
            "NoInvite",
        ),
        (
            Wish {
                seen: Some("0".repeat(16)),
                ..wish.clone()
            },
            "SignedMeanwhile",
        ),
    ] {
        let refused = remove(&mut world, Some(&wish), MemberChange::RevokeAdmin {});
        assert!(format!("{refused:?}").contains(error), "{refused:?}");
    }
    let (_, seen) = world.nodes[0]
        .signed_by(None, (Some("node-1"), false), world.unix())
        .unwrap();
    let wish = Wish {
        seen: Some(seen),
        ..wish
    };
    remove(&mut world, Some(&wish), MemberChange::RevokeAdmin {}).unwrap();
    assert_eq!(world.network(2).state().admins.rank(&key(3)), Some(1));
    world.join(4, &code, 0);
    world.run(10_000);
    assert_eq!(world.members(0), [0, 1, 2, 3, 4]);
}

#[test]
fn a_removed_member_does_not_come_back_by_its_code() {
    for named in [false, true] {
        let mut world = World::new(4, &[(0, 1), (0, 2), (0, 3)]);
        world.create(0);
        let (code, other) = (world.invite(0, 5, 1), world.invite(0, 5, 2));
        world.join(1, &code, 0);
        world.join(2, &code, 0);
        world.run(10_000);
        let invite = hex::encode(code.seed.key_pair().public().as_bytes());
        let wish = Wish {
            invites: vec![invite[..12].to_owned()],
            ..Wish::default()
        };
        let again = remove(&mut world, named.then_some(&wish), MemberChange::Remove {}).unwrap();
        assert_eq!(again.len(), usize::from(!named), "{again:?}");
        // A fresh key, with the code that has uses left.
        world.join(3, &code, 0);
        world.run(10_000);
        assert_eq!(world.members(0).contains(&3), named);
        // The others stay, as do other invites.
        assert!(world.members(0).contains(&2));
        assert!(
            world
                .network(0)
                .state()
                .open_invite(other.seed.key_pair().public().as_bytes(), UNIX)
                .is_ok()
        );
    }
}

/// The thief of the key of 1 signs a record of its own making.
fn forge(world: &mut World, key: RecordKey, version: u64, removed: bool, body: &Body) {
    let draft = Draft::new(world.network(0).id(), key, version, body);
    forge_draft(world, if removed { draft.removal() } else { draft });
}

fn forge_draft(world: &mut World, draft: Draft) {
    let record = draft.sign(&identity(1), world.unix()).unwrap();
    let message = Message::Records {
        want: Vec::new(),
        records: vec![record.event().to_json()],
    };
    let message = message.encode();
    let network = world.network(0).id();
    let document = Document::Sync {
        network,
        message: &message,
    };
    let (now, unix) = world.times();
    let _ = world.nodes[0].handle_document(self::key(1), &document.encode(), now, unix);
    world.run(1_000);
}

/// An honest administrator has taken a node in by the thief's invite.
#[test]
fn a_guest_of_the_thief_goes_with_it() {
    for (wish, stays) in [(Wish::default(), false), (keep_rest(), true)] {
        let (mut world, code) = world();
        // The founder takes it in: the thief is away.
        let connected = std::mem::take(&mut world.connected);
        world.connected = BTreeSet::from([(0, 4), (0, 2)]);
        world.join(4, &code, 0);
        world.run(10_000);
        assert!(world.members(0).contains(&4));
        world.connected = connected;
        world.run(30_000);
        let times = world.times();
        let (signed, _) = world.nodes[0]
            .signed_by(None, (Some("node-1"), false), times.1)
            .unwrap();
        assert!(signed.iter().any(|signed| signed.what == "member node-4"), "{signed:?}");
        remove(&mut world, Some(&wish), MemberChange::RevokeAdmin {}).unwrap();
        assert_eq!(world.members(0).contains(&4), stays);
    }
}

#[test]
fn a_former_administrator_does_not_come_back_by_its_own_key() {
    for change in [MemberChange::Remove {}, MemberChange::RevokeAdmin {}] {
        let mut world = World::new(3, &[(0, 1), (0, 2), (1, 2)]);
        world.create(0);
        let code = world.invite(0, 2, 1);
        for at in [1, 2] {
            world.join(at, &code, 0);
            world.run(5_000);
        }
        let times = world.times();
        world.nodes[0]
            .change_member(None, "node-1", (MemberChange::MakeAdmin {}, None), times)
            .unwrap();
        world.run(5_000);
        let times = world.times();
        world.nodes[1]
            .change_member(None, "node-1", (MemberChange::RevokeAdmin {}, None), times)
            .unwrap();
        world.run(5_000);
        assert!(!is_admin(&world, 1));
        world.connected.remove(&(1, 2));
        remove(&mut world, None, change).unwrap();
        for version in [3, u64::MAX] {
            forge(&mut world, RecordKey::Admin(key(1)), version, false, &Body::Plain);
            assert!(!is_admin(&world, 1), "{version}");
        }
        // The grant of then is gone, so it does not count whatever the key signs.
        let about = RecordKey::Admin(key(1));
        let record = world.network(0).set().in_force(&about).unwrap();
        assert!(record.removed() && *record.signer() == key(0));
    }
}

/// The successor's thief retires the founder with the highest version, and renames the network.
#[test]
fn the_founder_comes_back_whatever_its_successor_signs() {
    let (mut world, _) = world();
    let times = world.times();
    let wish = keep_rest();
    world.nodes[0]
        .set_successor(None, (Some("node-1"), Some(&wish)), times)
        .unwrap();
    world.run(10_000);
    let stolen = NetworkBody {
        name: Some(Name::network("stolen").unwrap()),
        inside: Policy::Deny,
        founder: None,
        successor: Some(key(3)),
    };
    forge(&mut world, RecordKey::Network, u64::MAX, false, &Body::Network(stolen));
    forge(&mut world, RecordKey::Admin(key(0)), u64::MAX, true, &Body::Plain);
    assert!(world.network(0).is_admin(&key(1)) && !world.network(0).is_admin(&key(0)));
    let times = world.times();
    for (member, refused) in [(Some("node-1"), true), (None, false)] {
        let before = world.nodes[0].before();
        let named = world.nodes[0].set_successor(None, (member, Some(&Wish::default())), times);
        assert_eq!(named.is_err(), refused, "{named:?}");
        if refused {
            world.nodes[0].undo(before, &[]);
        }
    }
    world.run(30_000);
    for at in [0, 2] {
        let network = world.network(at);
        let admins: Vec<usize> = (0..5).filter(|number| network.is_admin(&key(*number))).collect();
        // What the founder granted before it named a successor is in force again.
        assert_eq!(admins, [0, 1, 3], "node {at}");
    }
    remove(&mut world, Some(&Wish::default()), MemberChange::RevokeAdmin {}).unwrap();
    assert!(!is_admin(&world, 1) && !is_admin(&world, 3));
    for at in [0, 2] {
        assert_eq!(world.network(at).name(), Some(&Name::network("home").unwrap()));
        assert_eq!(world.members(at), [0, 1, 2], "node {at}");
    }
}

/// A beginning that several invites share names none of them.
#[test]
fn an_invite_is_named_by_what_no_other_begins_with() {
    let mut world = World::with_invites(20);
    let times = world.times();
    let keys: Vec<String> = world
        .network(0)
        .open_invites(times.1)
        .map(|(key, _)| hex::encode(key))
        .collect();
    let shared = keys.iter().find_map(|one| {
        let first = &one[..1];
        (keys.iter().filter(|key| key.starts_with(first)).count() > 1).then(|| first.to_owned())
    });
    let shared = shared.unwrap();
    for prefix in [shared.as_str(), ""] {
        assert_eq!(
            world.nodes[0].revoke(None, prefix, times),
            Err(NetworkError::SeveralInvites(prefix.to_owned()))
        );
    }
    world.nodes[0].revoke(None, &keys[0], times).unwrap();
    assert_eq!(world.network(0).open_invites(times.1).count(), 19);
}

impl World {
    fn with_invites(count: u8) -> Self {
        let mut world = Self::new(1, &[]);
        world.create(0);
        for seed in 1..=count {
            world.invite(0, 1, seed);
        }
        world
    }
}

/// The thief takes a node in by the name of a member; this node writes the number down, and that is no
/// statement of its own.
#[test]
fn a_number_behind_a_name_does_not_take_a_member_over() {
    let (mut world, _) = world();
    let body = Member {
        name: Some(name("node-2")),
        tags: BTreeSet::from([name("boss")]),
        ..Member::default()
    };
    let guest = RecordKey::Member(key(4));
    forge(&mut world, guest.clone(), 1, false, &Body::Member(body));
    // The duty of administrators, 5 s later, or the command itself.
    world.run(120_000);
    let record = world.network(0).set().in_force(&guest).unwrap();
    assert!(
        *record.signer() == key(1) || record.of().any(|of| of == key(1)),
        "{record:?}"
    );
    let times = world.times();
    let (signed, _) = world.nodes[0]
        .signed_by(None, (Some("node-1"), false), times.1)
        .unwrap();
    assert!(
        signed.iter().any(|signed| signed.what.starts_with("member node-2-")),
        "{signed:?}"
    );
    let again = remove(&mut world, Some(&Wish::default()), MemberChange::RevokeAdmin {}).unwrap();
    assert!(
        again
            .iter()
            .any(|line| line.starts_with("member node-2-") && line.ends_with(": ended")),
        "{again:?}"
    );
    assert_eq!(world.members(0), [0, 1, 2]);
}

/// The founder makes a member an administrator, about which the thief has signed this and that.
#[test]
fn a_grant_signs_nothing_of_the_thief_unseen() {
    let (mut world, _) = world();
    let body = Member {
        name: Some(name("node-2")),
        tags: BTreeSet::from([name("boss")]),
        ..Member::default()
    };
    forge(&mut world, RecordKey::Member(key(2)), 9, false, &Body::Member(body));
    let change = |world: &mut World, member: &str, change: MemberChange| {
        let times = world.times();
        let changed = world.nodes[0].change_member(None, member, (change, None), times);
        world.run(10_000);
        changed.map(drop)
    };
    change(&mut world, "node-2", MemberChange::MakeAdmin {}).unwrap();
    change(&mut world, "node-2", rename("desk")).unwrap();
    let tags = |world: &World| world.network(0).state().members[&key(2)].tags.len();
    assert_eq!((tags(&world), world.network(0).state().routes.len()), (1, 1));
    let again = remove(&mut world, Some(&Wish::default()), MemberChange::RevokeAdmin {}).unwrap();
    assert!(
        again.contains(&"route 192.168.7.0/24 of desk: ended".to_owned()),
        "{again:?}"
    );
    assert_eq!((tags(&world), world.network(0).state().routes.len()), (0, 0));
    assert!(world.network(0).is_admin(&key(2)) && world.members(0).contains(&2));
}

/// The head before the one of now does not become an administrator as others do: that would end the rights
/// of all behind it.
#[test]
fn an_earlier_head_comes_back_by_its_own_key_alone() {
    let mut world = World::new(3, &[(0, 1), (0, 2), (1, 2)]);
    world.create(0);
    let code = world.invite(0, 2, 1);
    for at in [1, 2] {
        world.join(at, &code, 0);
        world.run(5_000);
    }
    let times = world.times();
    world.nodes[0]
        .set_successor(None, (Some("node-1"), None), times)
        .unwrap();
    world.run(10_000);
    let times = world.times();
    let wish = keep_rest();
    let admin = MemberChange::RevokeAdmin {};
    world.nodes[1]
        .change_member(None, "founder", (admin, Some(&wish)), times)
        .unwrap();
    world.run(10_000);
    let times = world.times();
    let refused = world.nodes[1].change_member(None, "founder", (MemberChange::MakeAdmin {}, None), times);
    assert_eq!(refused.map(drop), Err(NetworkError::EarlierHead("founder".to_owned())));
    assert!(world.network(1).is_admin(&key(1)) && !world.network(1).is_admin(&key(0)));
}

/// The default that the thief has set is in the founder's record about its successor, and is named.
#[test]
fn a_default_of_the_thief_is_named() {
    let (mut world, _) = world();
    let body = NetworkBody {
        name: Some(Name::network("home").unwrap()),
        inside: Policy::Deny,
        founder: None,
        successor: None,
    };
    forge(&mut world, RecordKey::Network, 7, false, &Body::Network(body));
    let times = world.times();
    world.nodes[0]
        .set_successor(None, (Some("node-2"), None), times)
        .unwrap();
    world.run(10_000);
    let again = remove(&mut world, Some(&Wish::default()), MemberChange::RevokeAdmin {}).unwrap();
    assert!(
        again.iter().any(|line| line.contains("default of the network: stay")),
        "{again:?}"
    );
}

/// What the thief has said comes into records of the founder by its commands, and is named or ends with the
/// thief: a tag that is said to be of another, a tag that a new machine takes over, a rule.
#[test]
fn no_command_takes_the_tags_and_rules_of_a_thief_over() {
    let (mut world, code) = world();
    let tagged = |name: &str| Member {
        name: Some(self::name(name)),
        tags: BTreeSet::from([self::name("boss")]),
        ..Member::default()
    };
    let about = RecordKey::Member(key(2));
    let made_up = Draft::new(world.network(0).id(), about.clone(), 9, &Body::Member(tagged("node-2")));
    let founders = world.network(0).set().in_force(&about).unwrap().clone();
    let made_up = made_up.restating(&founders, &key(1));
    forge_draft(&mut world, made_up);
    let change = |world: &mut World, member: &str, change: MemberChange| {
        let times = world.times();
        let changed = world.nodes[0].change_member(None, member, (change, None), times);
        world.run(10_000);
        changed.map(drop).unwrap();
    };
    change(&mut world, "node-2", rename("desk"));
    // The founder takes 4 in by the code of the thief, and revokes the invite; 4 takes over from 2.
    world.connected = BTreeSet::from([(0, 4), (0, 2)]);
    world.join(4, &code, 0);
    world.run(10_000);
    assert!(world.members(0).contains(&4));
    let times = world.times();
    let key_of = hex::encode(code.seed.key_pair().public().as_bytes());
    world.nodes[0].revoke(None, &key_of, times).unwrap();
    let rule = "allow from tag:family to any".to_owned();
    world.nodes[0]
        .change_rules(None, RuleChange::Add { rule, at: None }, times)
        .unwrap();
    let (signed, _) = world.nodes[0]
        .signed_by(None, (Some("node-1"), false), times.1)
        .unwrap();
    let listed: Vec<&str> = signed.iter().map(|signed| &*signed.what).collect();
    for what in ["member desk", "member node-4", "the rules"] {
        assert!(listed.contains(&what), "{what}: {listed:?}");
    }
    change(&mut world, "desk", replace("node-4"));
    assert_eq!(world.network(0).state().members[&key(4)].tags.len(), 1);
    let again = remove(&mut world, Some(&Wish::default()), MemberChange::RevokeAdmin {}).unwrap();
    assert!(again.contains(&"member desk: ended".to_owned()), "{again:?}");
    assert!(
        again.iter().any(|line| line.starts_with("the rules: stay")),
        "{again:?}"
    );
    assert!(!world.members(0).contains(&4));
}
