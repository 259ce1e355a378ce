//! Presences between the networks of several nodes.

use weft_core::HintSource;

use super::*;

fn hints(node: &Networks, of: &PublicKey) -> Vec<String> {
    let row = node.rows().find(|row| row.key == *of && row.member);
    let hints = row.map(|row| row.addresses).unwrap_or_default();
    let of_members = hints.into_iter().filter(|hint| hint.source == HintSource::Member);
    of_members.map(|hint| hint.at.to_string()).collect()
}

/// A network of three: 0 founds it, 1 and 2 are connected with it alone.
fn three() -> World {
    let mut world = World::new(3, &[(0, 1), (0, 2)]);
    world.create(0);
    for (number, seed) in [(1, 1), (2, 2)] {
        let code = world.invite(0, 1, seed);
        let (now, unix) = world.times();
        world.nodes[number].join(&code, None, now, unix).unwrap();
    }
    world.run(10_000);
    world
}

fn moved(world: &mut World, node: usize, to: &str) {
    let (now, unix) = world.times();
    world.nodes[node].set_own_addresses(&[to.parse().unwrap()], now, unix * 1_000);
}

#[test]
fn a_member_learns_where_another_one_is_from_a_third() {
    let mut world = three();
    for (node, at) in [(0, "192.0.2.1:1"), (1, "192.0.2.2:1"), (2, "10.0.0.3:1")] {
        moved(&mut world, node, at);
    }
    world.run(20_000);
    assert!(world.nodes[1].take_change(), "others follow it");
    assert_eq!(hints(&world.nodes[1], &key(2)), ["10.0.0.3:1"]);
    assert_eq!(hints(&world.nodes[2], &key(1)), ["192.0.2.2:1"]);
    // 2 is off while 1 moves.
    world.connected.remove(&(0, 2));
    moved(&mut world, 1, "192.0.2.4:1");
    world.run(20_000);
    moved(&mut world, 1, "192.0.2.5:1");
    world.run(20_000);
    world.connected.insert((0, 2));
    world.run(20_000);
    assert_eq!(hints(&world.nodes[2], &key(1)), ["192.0.2.5:1"]);
}

#[test]
fn a_removed_member_gets_none_and_is_forgotten() {
    let mut world = three();
    moved(&mut world, 1, "192.0.2.2:1");
    world.run(20_000);
    let times = world.times();
    let removed = key(1).to_string();
    world.nodes[0]
        .change_member(None, &removed, (MemberChange::Remove {}, None), times)
        .unwrap();
    world.run(20_000);
    let known = |node: &Networks| node.iter().next().unwrap().presences(0).count();
    assert_eq!(hints(&world.nodes[0], &key(1)), [""; 0]);
    moved(&mut world, 2, "192.0.2.3:1");
    world.run(20_000);
    assert_eq!((known(&world.nodes[0]), hints(&world.nodes[1], &key(2))), (1, vec![]));
}

#[test]
fn they_are_kept_over_a_restart_and_grow_older() {
    let mut world = three();
    moved(&mut world, 1, "192.0.2.2:1");
    world.run(20_000);
    let network = world.nodes[0].iter().next().unwrap();
    assert!(network.has_unsaved_presences());
    let text = kept::presences_to_text(network, world.times()).unwrap();
    let load = |text: &str, unix: u64| {
        let mut again = kept_again(network, 0);
        let added = kept::add_presences(text, &mut again, (5, unix));
        (hints(&networks(0, vec![again]), &key(1)), added.is_ok())
    };
    assert_eq!(
        load(&text, world.unix() + 3_600),
        (vec!["192.0.2.2:1".to_owned()], true)
    );
    assert_eq!(load(&text, world.unix() + 8 * 86_400), (vec![], true));
    let of_schema = |number: u8| text.replace("weft.presence/2", &format!("weft.presence/{number}"));
    for bad in ["", "{", &of_schema(1), &of_schema(3)] {
        assert_eq!(load(bad, world.unix()), (vec![], false));
    }
}

#[test]
fn a_node_that_is_no_member_yet_has_nothing_to_say() {
    let mut world = World::new(2, &[]);
    world.create(0);
    let code = world.invite(0, 1, 1);
    world.join(1, &code, 0);
    moved(&mut world, 1, "192.0.2.2:1");
    world.run(20_000);
    assert_eq!(world.sent, 0);
    world.connected.insert((0, 1));
    world.run(20_000);
    assert_eq!(world.members(0), [0, 1]);
    assert_eq!(hints(&world.nodes[0], &key(1)), ["192.0.2.2:1"]);
}

#[test]
fn quiet_members_exchange_documents_once_an_hour() {
    let mut world = World::new(2, &[(0, 1)]);
    world.create(0);
    let code = world.invite(0, 1, 1);
    let (now, unix) = world.times();
    world.nodes[1].join(&code, None, now, unix).unwrap();
    for (node, at) in [(0, "192.0.2.1:1"), (1, "192.0.2.2:1")] {
        world.run(20_000);
        moved(&mut world, node, at);
    }
    // Digests behind the changes become rare within three quarters of an hour.
    world.run(45 * 60_000);
    let (mut sent, mut occasions) = (world.sent, Vec::new());
    for second in 0..8 * 3_600 {
        world.run(1_000);
        if std::mem::replace(&mut sent, world.sent) != world.sent {
            occasions.push(second);
        }
    }
    // A session of an idle link ends after 80 s.
    occasions.dedup_by(|later, first| *later < *first + 60);
    let pauses: Vec<usize> = occasions.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.iter().all(|pause| *pause > 3_500), "{occasions:?}");
    assert!(occasions.len() >= 7, "{occasions:?}");
}

/// 1 is a member of the networks of 0 and of 2, and connected with both.
#[test]
fn private_addresses_stay_in_the_network_they_are_told_in() {
    let mut world = World::new(4, &[(0, 1), (0, 3), (1, 2), (1, 3)]);
    for (founder, name, seed) in [(0, "home", 1), (2, "club", 2)] {
        let nonce = [founder as u8; 16];
        let name = Name::network(name).unwrap();
        world.nodes[founder].create(name, None, nonce, UNIX).unwrap();
        let code = world.invite(founder, 1, seed);
        world.join(1, &code, founder);
    }
    world.run(10_000);
    let code = world.invite(0, 1, 3);
    world.join(3, &code, 0);
    world.run(10_000);
    world.heard = Some(Vec::new());
    moved(&mut world, 0, "10.0.0.3:1");
    world.run(20_000);
    let address = weft_reach::message::address_bytes("10.0.0.3:1".parse().unwrap());
    let hears = |node: usize| {
        let mut to_node = world.heard.iter().flatten().filter(|(to, _)| *to == node);
        to_node.any(|(_, document)| document.windows(18).any(|part| part == address))
    };
    assert_eq!(hints(&world.nodes[1], &key(0)), ["10.0.0.3:1"]);
    assert!(hears(1) && hears(3), "members of the network are told");
    assert!(!hears(2));
    assert_eq!(hints(&world.nodes[2], &key(0)), [""; 0]);
}

/// Kinds 7 and 8 are those of builds before this format.
#[test]
fn documents_of_other_kinds_are_ignored_and_change_nothing() {
    let mut world = three();
    moved(&mut world, 2, "192.0.2.3:1");
    world.run(20_000);
    let network = world.network(0).id();
    let (now, unix) = world.times();
    let known = |world: &World| {
        world
            .network(0)
            .presences(now)
            .map(|(presence, _)| presence.clone())
            .collect::<Vec<_>>()
    };
    let before = known(&world);
    let mut statement = Vec::new();
    before[0].emit(0, &mut statement);
    for kind in [7, 8, 11, 255] {
        for body in [&[][..], &[0; 512], &statement] {
            let document = [&[1, kind][..], network.as_bytes(), body].concat();
            let ignored = world.nodes[0].handle_document(key(1), &document, now, unix);
            assert_eq!(ignored, Err(DocumentError::Kind(1, kind)));
        }
    }
    assert_eq!(known(&world), before);
    moved(&mut world, 1, "192.0.2.2:1");
    world.run(20_000);
    assert_eq!(
        hints(&world.nodes[0], &key(1)),
        ["192.0.2.2:1"],
        "its sender is heard as before"
    );
}
