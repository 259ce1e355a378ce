use weft_roster::rules::Policy;

use super::*;
use crate::{MemberChange, RouteChange, RuleChange};

/// What a command does to the networks of the founder.
pub(super) type Command = fn(&mut World, (u64, u64)) -> Result<(), NetworkError>;

fn change(world: &mut World, member: &str, change: MemberChange) -> Result<(), NetworkError> {
    let times = world.times();
    world.nodes[0]
        .change_member(None, member, (change, None), times)
        .map(drop)
}

fn new_invite(world: &World) -> NewInvite {
    NewInvite {
        name: None,
        tags: BTreeSet::new(),
        uses: 1,
        expires: world.unix() + 3_600,
        addresses: Vec::new(),
        entry: None,
    }
}

/// Each command that changes something, with its name.
pub(super) const COMMANDS: [(&str, Command); 18] = [
    ("create", |world, (_, unix)| {
        let lab = Name::network("lab").unwrap();
        world.nodes[0]
            .create(lab, Some(name("founder")), [8; 16], unix)
            .map(drop)
    }),
    ("join", |world, (now, unix)| {
        let other = Code {
            network: NetworkId::from_bytes([3; 16]),
            inviter: key(2),
            addresses: Vec::new(),
            entry: None,
            expires: u32::MAX,
            seed: Seed::new([1; 16]),
        };
        world.nodes[0].join(&other, None, now, unix).map(drop)
    }),
    ("leave", |world, _| {
        world.nodes[0].leave(None, true, (0, UNIX)).map(drop)
    }),
    ("invite", |world, times| {
        let invite = new_invite(world);
        world.nodes[0]
            .invite(None, &invite, Seed::new([4; 16]), times)
            .map(drop)
    }),
    ("revoke", |world, times| {
        let open = world
            .network(0)
            .open_invites(times.1)
            .next()
            .map(|(key, _)| hex::encode(key));
        world.nodes[0].revoke(None, &open.unwrap()[..12], times)
    }),
    ("member remove", |world, _| {
        change(world, "node-1", MemberChange::Remove {})
    }),
    ("member rename", |world, _| change(world, "node-1", rename("desk"))),
    ("member tag", |world, _| change(world, "node-1", tag(&["a"]))),
    ("member tag --remove", |world, _| change(world, "node-2", untag(&["b"]))),
    ("member address", |world, _| {
        change(
            world,
            "node-1",
            MemberChange::Address {
                ipv4: Some("10.44.1.2".parse().unwrap()),
            },
        )
    }),
    ("member replace", |world, _| change(world, "node-1", replace("node-2"))),
    ("admin add", |world, _| {
        change(world, "node-1", MemberChange::MakeAdmin {})
    }),
    ("admin remove", |world, _| {
        change(world, "node-2", MemberChange::RevokeAdmin {})
    }),
    ("admin successor", |world, times| {
        world.nodes[0]
            .set_successor(None, (Some("node-1"), None), times)
            .map(drop)
    }),
    ("rule add", |world, times| {
        let rule = "deny from any to any tcp/25".to_owned();
        world.nodes[0]
            .change_rules(None, RuleChange::Add { rule, at: None }, times)
            .map(drop)
    }),
    ("rule default", |world, times| {
        world.nodes[0]
            .change_rules(None, RuleChange::Default { policy: Policy::Deny }, times)
            .map(drop)
    }),
    ("route approve", |world, times| {
        let route = ("node-1", "192.168.7.0/24".parse().unwrap());
        world.nodes[0]
            .change_route(None, route, RouteChange::Approve, times)
            .map(drop)
    }),
    ("approve", |world, times| {
        world.nodes[0]
            .approve(None, &key(3), crate::Approval::default(), times)
            .map(drop)
    }),
];

/// The founder, the members 1 and 2, of which 2 is an administrator with a tag, a route that 1 offers, an
/// open invite, and the request of node 3.
pub(super) fn world() -> World {
    let mut world = World::new(4, &[(0, 1), (0, 2), (0, 3)]);
    world.create(0);
    for at in [1, 2] {
        let code = world.invite(0, 1, at as u8);
        world.join(at, &code, 0);
        world.run(5_000);
    }
    world.invite(0, 1, 3);
    change(&mut world, "node-2", MemberChange::MakeAdmin {}).unwrap();
    change(&mut world, "node-2", tag(&["b"])).unwrap();
    world.nodes[1].set_offer(&BTreeSet::from(["192.168.7.0/24".parse().unwrap()]));
    let now = world.now;
    world.nodes[0].accept_requests(3_600_000, now).unwrap();
    world.nodes[3].ask_admin(key(0), Vec::new(), None, now).unwrap();
    world.run(15_000);
    world.nodes[0].take_change();
    let (id, revision) = (world.network(0).id(), world.network(0).revision());
    world.nodes[0].note_saved(id, revision);
    world
}

/// All that is kept of the networks of a node.
fn texts(networks: &Networks) -> Vec<String> {
    networks.iter().map(|network| kept::to_text(network).unwrap()).collect()
}

#[test]
fn a_change_that_is_not_saved_is_undone_in_each_command() {
    for (command, run) in COMMANDS {
        let mut world = world();
        let times = world.times();
        let text = texts(&world.nodes[0]);
        let (state, members) = (world.network(0).state().clone(), world.members(1));
        let before = world.nodes[0].before();
        run(&mut world, times).unwrap_or_else(|error| panic!("{command}: {error}"));
        assert_ne!(texts(&world.nodes[0]), text, "{command} changes nothing");
        let changed: Vec<NetworkId> = world.nodes[0].changed_since(&before).map(Network::id).collect();
        let forgotten: Vec<NetworkId> = world.nodes[0].forgotten_since(&before).collect();
        assert_eq!(
            (changed.len(), forgotten.len()),
            if command == "leave" { (0, 1) } else { (1, 0) }
        );
        world.nodes[0].undo(before, &[]);
        assert_eq!(texts(&world.nodes[0]), text, "{command}");
        assert!(
            !world.nodes[0].take_change() && !world.network(0).is_unsaved(),
            "{command}"
        );
        // None of the others learns of it.
        world.run(30_000);
        assert_eq!(
            (world.network(0).state(), world.members(1)),
            (&state, members),
            "{command}"
        );
        assert_eq!(world.network(1).state(), &state, "{command}");
        assert_eq!(world.nodes[0].requests(world.now).count(), 1, "{command}");
        // The same command does it later.
        let times = world.times();
        run(&mut world, times).unwrap_or_else(|error| panic!("{command}, again: {error}"));
        assert_ne!(texts(&world.nodes[0]), text, "{command}, again");
    }
}

#[test]
fn files_of_an_undone_change_are_written_again() {
    let mut world = world();
    let before = world.nodes[0].before();
    change(&mut world, "node-1", rename("desk")).unwrap();
    let (id, revision) = (world.network(0).id(), world.network(0).revision());
    world.nodes[0].note_saved(id, revision);
    world.nodes[0].undo(before, &[id, NetworkId::from_bytes([9; 16])]);
    assert!(world.network(0).is_unsaved());
}

#[test]
fn a_node_is_told_that_it_is_a_member_once_that_is_saved() {
    for saved in [false, true] {
        let mut world = world();
        let code = world.invite(0, 1, 7);
        let id = code.network;
        let (now, unix) = world.times();
        let ask = |number: usize| {
            let ask = Ask {
                network: id,
                member: key(number),
                proof: code.seed.prove(&key(number), id),
                name: None,
            };
            Document::Ask(ask).encode()
        };
        let revision = world.network(0).revision();
        let founder = &mut world.nodes[0];
        founder.note_saved(id, revision);
        founder.take_documents();
        founder.handle_document(key(3), &ask(3), now, unix).unwrap();
        assert!(founder.enrolled().unwrap().is_member(&key(3)));
        assert!(founder.take_documents().is_empty(), "told before it is saved");
        founder.settle_enrolment(saved);
        assert!(founder.enrolled().is_none());
        let answers: Vec<Vec<u8>> = founder
            .take_documents()
            .into_iter()
            .map(|(_, document)| document)
            .collect();
        let refusal = (!saved).then_some(Refusal::NotSaved);
        let answer = Document::Answer {
            network: id,
            member: key(3),
            refusal,
        };
        assert_eq!(answers, [answer.encode()]);
        // The use of the invite is free again, or it is not.
        founder.handle_document(key(9), &ask(9), now, unix).unwrap();
        founder.settle_enrolment(true);
        assert_eq!(
            (world.network(0).is_member(&key(3)), world.network(0).is_member(&key(9))),
            (saved, !saved)
        );
    }
}

/// A second code of a network that is being joined takes the place of the first, and is written.
#[test]
fn a_second_join_of_a_network_is_a_change() {
    let mut world = World::new(2, &[]);
    world.create(0);
    let (first, second) = (world.invite(0, 1, 1), world.invite(0, 1, 2));
    world.join(1, &first, 0);
    let place = world.network(1).place();
    let revision = world.network(1).revision();
    world.nodes[1].note_saved(first.network, revision);
    for code in [&second, &second, &first] {
        let before = world.nodes[1].before();
        world.join(1, code, 0);
        let changed = world.nodes[1].changed_since(&before).count();
        assert_eq!((changed, world.network(1).is_unsaved()), (1, true));
        let proof = world.network(1).joining().unwrap().proof.as_ref().unwrap();
        assert_eq!(proof.invite, *code.seed.key_pair().public().as_bytes());
        assert_eq!(world.network(1).place(), place);
    }
}
