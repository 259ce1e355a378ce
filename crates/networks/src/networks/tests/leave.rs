use super::*;
use weft_roster::key::RecordKey;
use weft_roster::state::InviteClosed;
use weft_roster::sync::Message;

use crate::MemberChange;

impl World {
    /// The founder, and members that are connected with all others.
    fn of_three() -> Self {
        let mut world = Self::new(3, &[(0, 1), (0, 2), (1, 2)]);
        world.create(0);
        let code = world.invite(0, 2, 1);
        for at in [1, 2] {
            world.join(at, &code, 0);
        }
        world.run(10_000);
        world
    }

    fn change_by(&mut self, at: usize, member: &str, change: MemberChange) -> Result<Vec<String>, NetworkError> {
        let times = self.times();
        let wish = keep_rest();
        let changed = self.nodes[at].change_member(None, member, (change, Some(&wish)), times);
        self.run(10_000);
        changed.map(|changed| changed.again)
    }

    fn leave(&mut self, at: usize, force: bool) -> Result<(), NetworkError> {
        let times = self.times();
        self.nodes[at].leave(None, force, times).map(drop)
    }

    /// Delivers documents until a node has left, and says whether a member has its resignation.
    fn left(&mut self, at: usize) -> bool {
        for _ in 0..100 {
            self.run(100);
            if let [(_, told)] = self.nodes[at].take_left()[..] {
                return told;
            }
        }
        panic!("it has not left");
    }

    fn admins(&self, at: usize) -> Vec<usize> {
        let admin = |number: &usize| self.network(at).is_admin(&key(*number));
        (0..self.nodes.len()).filter(admin).collect()
    }
}

#[test]
fn the_last_member_ends_its_network_only_by_force() {
    let mut world = World::of_three();
    for member in ["node-1", "node-2"] {
        world.change_by(0, member, MemberChange::Remove {}).unwrap();
    }
    assert_eq!(world.leave(0, false), Err(NetworkError::OnlyMember("home".to_owned())));
    assert!(world.leave(0, true).is_ok());
}

#[test]
fn the_last_administrator_leaves_only_by_force() {
    let mut world = World::of_three();
    assert_eq!(world.leave(0, false), Err(NetworkError::OnlyAdmin("home".to_owned())));
    let (text, own) = (kept::to_text(world.network(0)).unwrap(), MemberChange::RevokeAdmin {});
    assert_eq!(
        world.change_by(0, "founder", own),
        Err(NetworkError::OnlyAdmin("home".to_owned()))
    );
    assert_eq!(kept::to_text(world.network(0)).unwrap(), text);
    assert!(world.leave(2, false).is_ok(), "a member may");
    // What is forced can be undone: any member gives the records back.
    world.leave(0, true).unwrap();
    assert!(world.nodes[0].iter().next().is_none());
    let now = world.now;
    world.nodes[0].ask_admin(key(1), Vec::new(), None, now).unwrap();
    world.run(10_000);
    assert_eq!((world.admins(0), world.admins(1)), (vec![0], vec![0]));
}

#[test]
fn an_administrator_that_leaves_signs_the_end_of_its_rights() {
    for reached in [true, false] {
        let mut world = World::of_three();
        world.change_by(0, "node-1", MemberChange::MakeAdmin {}).unwrap();
        assert_eq!(world.admins(2), [0, 1]);
        let before = world.nodes[1].before();
        world.leave(1, false).unwrap();
        let network = world.network(1);
        assert!(network.is_leaving() && !network.is_unsaved(), "nothing of it is kept");
        assert_eq!(world.nodes[1].forgotten_since(&before).count(), 1);
        assert_eq!(world.nodes[1].changed_since(&before).count(), 0);
        if !reached {
            world.connected.clear();
        }
        assert_eq!(world.left(1), reached);
        assert!(world.nodes[1].iter().next().is_none());
        world.run(120_000);
        let admins = if reached { vec![0] } else { vec![0, 1] };
        assert_eq!(world.admins(0), admins);
        if reached {
            assert_eq!(world.admins(2), [0]);
            // It is a member until one removes it, as each node that leaves.
            assert_eq!(world.members(0), [0, 1, 2]);
            world.change_by(0, "node-1", MemberChange::Remove {}).unwrap();
            assert_eq!(world.members(2), [0, 2]);
        }
    }
}

#[test]
fn an_administrator_whose_work_would_end_is_told_who_keeps_it() {
    let mut world = World::of_three();
    world.change_by(0, "node-1", MemberChange::MakeAdmin {}).unwrap();
    world.change_by(1, "node-2", rename("desk")).unwrap();
    let times = world.times();
    let invite = NewInvite {
        name: None,
        tags: BTreeSet::new(),
        uses: 1,
        expires: world.unix() + 60,
        addresses: Vec::new(),
        entry: None,
    };
    world.nodes[1].invite(None, &invite, Seed::new([9; 16]), times).unwrap();
    for own in [None, Some(MemberChange::RevokeAdmin {})] {
        let removes = if own.is_some() { "admin" } else { "member" };
        let refused = match own {
            None => world.leave(1, false),
            Some(change) => world.change_by(1, "node-1", change).map(drop),
        };
        let Err(NetworkError::RestsOnThis {
            what,
            own,
            on,
            removes: removed,
            ..
        }) = refused
        else {
            panic!("{refused:?}");
        };
        assert!(what.contains("member desk") && !what.contains("invite/"), "{what}");
        assert!(!what.contains("secret"), "{what}");
        assert_eq!((own.as_str(), on.as_str(), removed), ("node-1", "founder", removes));
    }
    // An invite that is over counts for nothing; the founder keeps what its junior has signed.
    world.run(120_000);
    let again = world.change_by(0, "node-1", MemberChange::RevokeAdmin {}).unwrap();
    assert!(again.contains(&"member desk".to_owned()), "{again:?}");
    assert_eq!((world.admins(1), world.members(1)), (vec![0], vec![0, 1, 2]));
    assert!(world.leave(1, false).is_ok());
}

#[test]
fn a_command_takes_nothing_from_its_own_machine() {
    let mut world = World::of_three();
    world.change_by(0, "node-1", MemberChange::MakeAdmin {}).unwrap();
    for (at, own) in [(0, "founder"), (1, "node-1")] {
        let text = kept::to_text(world.network(at)).unwrap();
        for named in [own, &key(at).to_string()] {
            let refused = world.change_by(at, named, MemberChange::Remove {});
            assert_eq!(refused, Err(NetworkError::ThisMachine(own.to_owned())), "{named}");
        }
        assert_eq!(kept::to_text(world.network(at)).unwrap(), text);
    }
    assert_eq!((world.admins(2), world.members(2)), (vec![0, 1], vec![0, 1, 2]));
    // It resigns, and stays a member.
    world.change_by(1, "node-1", MemberChange::RevokeAdmin {}).unwrap();
    assert_eq!((world.admins(2), world.members(2)), (vec![0], vec![0, 1, 2]));
}

#[test]
fn a_successor_takes_over_from_a_founder_that_is_lost() {
    let mut world = World::of_three();
    world.change_by(0, "node-2", tag(&["family"])).unwrap();
    // Without a successor the founder stays; with one it still does not leave its work behind.
    world.change_by(0, "node-1", MemberChange::MakeAdmin {}).unwrap();
    assert_eq!(world.leave(0, false), Err(NetworkError::NoSuccessor("home".to_owned())));
    let refused = world.change_by(1, "founder", MemberChange::Remove {});
    assert!(matches!(refused, Err(NetworkError::NotSenior(_))), "{refused:?}");
    let times = world.times();
    world.nodes[0]
        .set_successor(None, (Some("node-1"), None), times)
        .unwrap();
    world.run(10_000);
    let refused = world.leave(0, false);
    assert!(
        matches!(&refused, Err(NetworkError::RestsOnThis { on, .. }) if on == "node-1"),
        "{refused:?}"
    );
    assert_eq!(
        world.leave(1, false),
        Err(NetworkError::StaysSuccessor("founder".to_owned()))
    );
    // The founder's machine is lost.
    let connected = std::mem::replace(&mut world.connected, BTreeSet::from([(1, 2)]));
    let state = world.network(1).state().clone();
    let again = world.change_by(1, "founder", MemberChange::Remove {}).unwrap();
    assert!(again.contains(&"member node-2".to_owned()), "{again:?}");
    for at in [1, 2] {
        assert_eq!(
            (world.admins(at), world.members(at)),
            (vec![1], vec![1, 2]),
            "node {at}"
        );
        let now = world.network(at).state();
        assert_eq!((&now.name, &now.names[&key(2)]), (&state.name, &state.names[&key(2)]));
        assert_eq!(now.members[&key(2)].tags, state.members[&key(2)].tags);
    }
    // The network goes on: the former successor makes administrators, and may leave.
    world.change_by(1, "node-2", MemberChange::MakeAdmin {}).unwrap();
    assert_eq!(world.admins(2), [1, 2]);

    // A founder that comes back learns it.
    world.connected = connected;
    world.run(10_000);
    assert!(!world.network(0).is_admin(&key(0)) && !world.network(0).is_member(&key(0)));
}

#[test]
fn a_founder_takes_its_rank_back_with_its_key() {
    let mut world = World::of_three();
    let times = world.times();
    world.nodes[0]
        .set_successor(None, (Some("node-1"), None), times)
        .unwrap();
    world.run(10_000);
    world.change_by(1, "founder", MemberChange::RevokeAdmin {}).unwrap();
    for at in 0..3 {
        assert_eq!(
            (world.admins(at), world.members(at)),
            (vec![1], vec![0, 1, 2]),
            "node {at}"
        );
    }
    let times = world.times();
    world.nodes[0].set_successor(None, (None, None), times).unwrap();
    world.run(120_000);
    for at in 0..3 {
        assert_eq!(
            (world.admins(at), world.members(at)),
            (vec![0], vec![0, 1, 2]),
            "node {at}"
        );
        assert_eq!(world.network(at).name(), Some(&Name::network("home").unwrap()));
    }
}

/// What an administrator has revoked stays so when it leaves.
#[test]
fn a_revoked_invite_stays_revoked_after_its_revoker_leaves() {
    let mut world = World::of_three();
    world.change_by(0, "node-1", MemberChange::MakeAdmin {}).unwrap();
    let code = world.invite(0, 3, 7);
    world.run(5_000);
    let invite = *code.seed.key_pair().public().as_bytes();
    let times = world.times();
    world.nodes[1].revoke(None, &hex::encode(invite)[..12], times).unwrap();
    world.run(5_000);
    let refused = world.leave(1, false);
    assert!(
        matches!(&refused, Err(NetworkError::RestsOnThis { what, .. }) if what.starts_with("invite/")),
        "{refused:?}"
    );
    // The founder removes it without a question, and the invite stays closed.
    let times = world.times();
    world.nodes[0]
        .change_member(None, "node-1", (MemberChange::Remove {}, None), times)
        .unwrap();
    world.run(5_000);
    let closed = world.network(2).state().open_invite(&invite, world.unix()).err();
    assert_eq!(closed, Some(InviteClosed::Revoked));
}

/// Another message with records on its way to a member is no farewell.
#[test]
fn a_farewell_is_the_message_with_the_resignation() {
    let mut world = World::of_three();
    world.change_by(0, "node-1", MemberChange::MakeAdmin {}).unwrap();
    world.run(10_000);
    let network = world.network(1).id();
    let others = Message::Records {
        want: Vec::new(),
        records: world
            .network(1)
            .set()
            .records()
            .map(|record| record.event().to_json())
            .collect(),
    };
    world.leave(1, false).unwrap();
    let about = RecordKey::Admin(key(1));
    let own = world
        .network(1)
        .set()
        .records()
        .find(|record| *record.key() == about && *record.signer() == key(1));
    let mut with = others.clone();
    if let Message::Records { records, .. } = &mut with {
        records.push(own.unwrap().event().to_json());
    }
    let left = |message: &Message| {
        let message = &message.encode();
        let document = Document::Sync { network, message }.encode();
        world.nodes[1].farewell(&key(0), &document)
    };
    assert_eq!((left(&others), left(&with)), (None, Some(network)));
}

/// The network goes on when the machine is lost that has taken over from a lost founder.
#[test]
fn a_successor_passes_its_place_on() {
    let mut world = World::of_three();
    let name_successor = |world: &mut World, at: usize, member: Option<&str>| {
        let times = world.times();
        let named = world.nodes[at].set_successor(None, (member, Some(&keep_rest())), times);
        world.run(10_000);
        named.map(drop)
    };
    name_successor(&mut world, 0, Some("node-1")).unwrap();
    for at in [0, 1] {
        let again = world.change_by(at, "node-1", MemberChange::MakeAdmin {});
        assert_eq!(again, Err(NetworkError::AdminAlready("node-1".to_owned())));
    }
    assert_eq!(
        name_successor(&mut world, 1, Some("node-2")),
        Err(NetworkError::NotHeadYet("founder".to_owned())),
        "not while the founder is the head"
    );
    let connected = std::mem::replace(&mut world.connected, BTreeSet::from([(1, 2)]));
    world.change_by(1, "founder", MemberChange::Remove {}).unwrap();
    assert_eq!(world.leave(1, false), Err(NetworkError::OnlyAdmin("home".to_owned())));
    name_successor(&mut world, 1, Some("node-2")).unwrap();
    assert_eq!(world.network(2).state().admins.successor(), Some(&key(2)));
    world.connected.clear();
    world.change_by(2, "node-1", MemberChange::Remove {}).unwrap();
    assert_eq!((world.admins(2), world.members(2)), (vec![2], vec![2]));
    assert_eq!(world.network(2).name(), Some(&Name::network("home").unwrap()));
    // The others learn it. The founder, with its key, ends it all.
    world.connected = connected;
    world.run(60_000);
    for at in 0..2 {
        assert!(!world.network(at).is_admin(&key(at)), "node {at}");
    }
    world.run(120_000);
    name_successor(&mut world, 0, None).unwrap();
    world.run(60_000);
    for at in 0..3 {
        assert_eq!(
            (world.admins(at), world.members(at)),
            (vec![0], vec![0, 1, 2]),
            "node {at}"
        );
    }
}
