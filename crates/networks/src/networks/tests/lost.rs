use weft_roster::key::RecordKey;
use weft_roster::sync::Message;

use super::*;

/// A founder and two members. Node 1 has lost the records; with `presences` it knows where the others are.
fn world(presences: bool) -> (World, NetworkId) {
    let mut world = World::new(3, &[(0, 1), (0, 2)]);
    world.create(0);
    let code = world.invite(0, 2, 1);
    for at in [1, 2] {
        world.join(at, &code, 0);
    }
    world.run(5_000);
    let at = "192.0.2.1:2121".parse().unwrap();
    let (now, unix) = world.times();
    world.nodes[0].set_own_addresses(&[at], now, unix * 1_000);
    world.run(5_000);
    let text = kept::presences_to_text(world.network(1), world.times()).unwrap();
    let lost = kept::lost(&key(1), code.network, presences.then_some(&text));
    world.nodes[1] = networks(1, vec![lost]);
    for at in [0, 2] {
        world.nodes[at].handle_restart(&key(1));
    }
    (world, code.network)
}

#[test]
fn lost_records_come_back_from_the_members_that_presences_name() {
    let (mut world, id) = world(true);
    let contacts = world.network(1).contacts();
    assert_eq!(contacts.get(&key(0)), Some(&vec!["192.0.2.1:2121".parse().unwrap()]));
    assert!(!contacts.contains_key(&key(1)), "this node itself");
    assert!(
        world.nodes[1]
            .rows()
            .any(|row| row.key == key(0) && !row.addresses.is_empty())
    );
    assert!(world.network(1).is_lost() && !world.network(1).is_unsaved());
    // What needs it says so, and leaving says which network.
    let times = world.times();
    let refused = world.nodes[1].change_member(None, "founder", (crate::MemberChange::MakeAdmin {}, None), times);
    assert_eq!(refused.map(drop), Err(NetworkError::Lost(id)));
    let lab = Name::network("lab").unwrap();
    world.nodes[1].create(lab, None, [9; 16], UNIX).unwrap();
    let refused = world.nodes[1].leave(None, true, times);
    assert!(matches!(refused, Err(NetworkError::Which(_))), "{refused:?}");
    world.nodes[1].leave(Some("lab"), true, times).unwrap();
    world.run(10_000);
    assert!(!world.network(1).is_lost() && world.network(1).is_unsaved());
    assert_eq!((world.network(1).id(), world.members(1)), (id, vec![0, 1, 2]));
    assert_eq!(world.network(1).state(), world.network(0).state());
}

#[test]
fn lost_records_come_back_from_a_member_that_calls() {
    let (mut world, _) = world(false);
    assert!(world.network(1).contacts().is_empty());
    let (now, unix) = world.times();
    assert!(
        world.nodes[1].welcomes_guests(now, unix + 1_000_000),
        "members are strangers"
    );
    world.run(10_000);
    assert_eq!(world.members(1), [0, 1, 2]);
    assert!(!world.nodes[1].welcomes_guests(now, unix + 1_000_000));
    assert_eq!(world.network(1).contacts().keys().collect::<Vec<_>>(), [&key(0)]);
}

#[test]
fn callers_without_records_are_few_and_leave_nothing() {
    let (mut world, network) = world(false);
    let (now, unix) = world.times();
    let digest = weft_roster::sync::Message::Root([7; 32]).encode();
    let call = Document::Sync {
        network,
        message: &digest,
    }
    .encode();
    for caller in 10..200 {
        let _ = world.nodes[1].handle_document(key(caller), &call, now, unix);
    }
    assert_eq!(world.network(1).contacts().len(), 64);
    assert!(world.network(1).is_lost() && world.network(1).state().members.is_empty());
    // They are gone, and make room for a member.
    world.nodes[1].set_reachable(BTreeSet::from([key(0)]), now);
    assert!(world.network(1).contacts().is_empty());
    world.run(10_000);
    assert_eq!(world.members(1), [0, 1, 2]);
    assert_eq!(world.network(1).contacts().len(), 1);
}

/// A part of the records leaves the node as it is: it goes on to listen, and writes no file over the old one.
#[test]
fn a_stray_record_does_not_end_the_search() {
    let (mut world, network) = world(false);
    let founding = world.network(0).set().in_force(&RecordKey::Network).unwrap();
    let message = Message::Records {
        want: Vec::new(),
        records: vec![founding.event().to_json()],
    };
    let message = message.encode();
    let stray = Document::Sync {
        network,
        message: &message,
    };
    let stray = stray.encode();
    let (now, unix) = world.times();
    let before = world.nodes[1].before();
    world.nodes[1].handle_document(key(2), &stray, now, unix).unwrap();
    assert!(world.network(1).state().admins.founder.is_some());
    assert!(world.network(1).is_lost() && !world.network(1).is_unsaved());
    assert_eq!(world.nodes[1].changed_since(&before).count(), 0);
    world.run(10_000);
    assert_eq!(world.members(1), [0, 1, 2]);
    assert!(!world.network(1).is_lost() && world.network(1).is_unsaved());
}
