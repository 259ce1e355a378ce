//! A mark is another one whenever what is told of the networks is.

use super::undo::{COMMANDS, world};
use super::*;

/// What is told of the networks of a node, in any form.
fn told(networks: &Networks, unix: u64) -> Vec<String> {
    let of_network = |network: &Network| {
        let joining = network
            .joining()
            .map(|joining| (joining.proof.is_some(), joining.refusal));
        let state = (network.id(), network.label(), network.state(), joining);
        let kept = (network.is_leaving(), network.is_lost(), network.is_unsaved());
        let addresses = (networks.unused(network), networks.shadowed(network));
        let invites: Vec<_> = network.open_invites(unix).collect();
        let numbered: Vec<_> = network.numbered().collect();
        format!("{state:?} {kept:?} {addresses:?} {invites:?} {numbered:?}")
    };
    let asked = networks.asked().map(|(admin, asked)| {
        let answer = (asked.verdict, asked.network, asked.is_open());
        format!("{admin} {answer:?}")
    });
    networks.iter().map(of_network).chain(asked).collect()
}

/// The marks of a node, each with what is told.
struct Marks {
    node: usize,
    seen: Vec<(Vec<String>, Mark)>,
}

impl Marks {
    fn of(world: &World, node: usize) -> Self {
        let mut marks = Self { node, seen: Vec::new() };
        marks.look(world);
        marks
    }

    /// Looks at the node. A mark that was seen before goes with what was told then.
    fn look(&mut self, world: &World) {
        let networks = &world.nodes[self.node];
        let (told, mark) = (told(networks, world.unix()), networks.mark(world.unix()));
        for (before, seen) in &self.seen {
            assert!(*seen != mark || *before == told, "{mark:?}: {before:?}, {told:?}");
        }
        self.seen.push((told, mark));
    }

    /// Returns the number of looks whose text differs from that of the look before.
    fn changes(&self) -> usize {
        self.seen.windows(2).filter(|two| two[0].0 != two[1].0).count()
    }
}

#[test]
fn each_command_and_its_undo_change_the_mark() {
    for (command, run) in COMMANDS {
        let mut world = world();
        let mut marks = Marks::of(&world, 0);
        let ids: Vec<NetworkId> = world.nodes[0].iter().map(Network::id).collect();
        for written in [&[][..], &ids] {
            let before = world.nodes[0].before();
            let times = world.times();
            run(&mut world, times).unwrap_or_else(|error| panic!("{command}: {error}"));
            marks.look(&world);
            world.nodes[0].undo(before, written);
            marks.look(&world);
        }
        assert!(marks.changes() >= 3, "{command}");
    }
}

#[test]
fn a_join_and_a_request_change_the_mark_at_each_step() {
    let mut world = World::new(3, &[(0, 1), (0, 2)]);
    world.create(0);
    let (code, used) = (world.invite(0, 1, 1), world.invite(0, 1, 2));
    let mut marks: Vec<Marks> = (0..3).map(|node| Marks::of(&world, node)).collect();
    let mut run = |world: &mut World| {
        for _ in 0..60 {
            world.run(100);
            marks.iter_mut().for_each(|marks| marks.look(world));
        }
        marks.iter().map(Marks::changes).collect::<Vec<_>>()
    };
    let revoked: String = hex::encode(used.seed.key_pair().public().as_bytes());
    let times = world.times();
    world.nodes[0].revoke(None, &revoked[..8], times).unwrap();
    world.join(1, &code, 0);
    world.join(2, &used, 0);
    let now = world.now;
    world.nodes[0].accept_requests(3_600_000, now).unwrap();
    let first = run(&mut world);
    assert_eq!(world.refusal(2), Some(Refusal::Revoked));
    assert!(first.iter().all(|changes| *changes >= 1), "{first:?}");
    world.nodes[2].leave(None, true, (0, UNIX)).unwrap();
    world.nodes[2].ask_admin(key(0), Vec::new(), None, now).unwrap();
    assert!(world.nodes[2].awaits_answers() && !world.nodes[1].awaits_answers());
    run(&mut world);
    let times = world.times();
    world.nodes[0]
        .approve(None, &key(2), crate::Approval::default(), times)
        .unwrap();
    let last = run(&mut world);
    assert_eq!(world.members(2), [0, 1, 2]);
    assert!(last[2] >= 4, "asked, answered, approved, a member: {last:?}");
}

#[test]
fn an_invite_that_ends_changes_the_mark_and_time_alone_does_not() {
    let mut world = world();
    world.run(60_000);
    let mark = |world: &World| world.nodes[0].mark(world.unix());
    let before = mark(&world);
    world.run(60_000);
    assert_eq!(mark(&world), before);
    world.run(3_600_000);
    assert_ne!(mark(&world), before);
}

#[test]
fn another_use_of_addresses_on_this_host_changes_the_mark() {
    let mut world = world();
    let mut marks = Marks::of(&world, 1);
    let own = HostUse {
        own: world.network(1).ipv4(&key(0)).into_iter().collect(),
        ..HostUse::default()
    };
    world.nodes[1].set_host_use(own.clone());
    marks.look(&world);
    assert_eq!(marks.changes(), 1);
    world.nodes[1].set_host_use(own);
    assert_eq!(world.nodes[1].mark(world.unix()), marks.seen[1].1, "the same once more");
}

#[test]
fn an_enrolment_that_is_not_saved_changes_the_mark_twice() {
    let mut world = world();
    let code = world.invite(0, 1, 7);
    let mut marks = Marks::of(&world, 0);
    for number in [3, 9, 10, 11, 12] {
        let ask = Ask {
            network: code.network,
            member: key(number),
            proof: code.seed.prove(&key(number), code.network),
            name: None,
        };
        let (now, unix) = world.times();
        let ask = Document::Ask(ask).encode();
        world.nodes[0].handle_document(key(number), &ask, now, unix).unwrap();
        marks.look(&world);
        world.nodes[0].settle_enrolment(false);
        marks.look(&world);
    }
    assert!(marks.changes() >= 3);
}
