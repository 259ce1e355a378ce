//! Nodes that are not configured and ask for membership.

use weft_core::{Admit, Config, PeerConfig};
use weft_sim::{HostId, World};
use weft_wire::session::DataPorts;

use crate::common::stream;

const PORT: u16 = 7371;
const PORTS: DataPorts = DataPorts { src: 50_000, dst: PORT };

/// A mesh that admits no strangers.
fn closed() -> Config {
    Config {
        mesh: true,
        admit: Admit::Configured,
        ..Config::default()
    }
}

/// `joiner` knows `admin` as a contact.
fn contact(world: &mut World, joiner: HostId, admin: HostId) {
    let now = world.now();
    let host = world.host(admin);
    let (key, addresses) = (host.identity().public(), vec![host.addr.into()]);
    let joiner = world.host_mut(joiner);
    joiner.listen(now, &[PORT]);
    joiner.node.add_contact(now, &PeerConfig { key, addresses });
    joiner.settle(now);
}

fn say(world: &mut World, from: HostId, to: HostId, text: &[u8]) -> bool {
    let (now, key) = (world.now(), world.host(to).identity().public());
    let sent = world.host_mut(from).send_service(now, &key, PORTS, text);
    world.run(2_000);
    let heard = world.host_mut(to).services.drain(..).any(|(_, _, bytes)| bytes == text);
    sent.is_ok() && heard
}

fn strangers(world: &World, at: HostId) -> usize {
    world.host(at).node.stranger_status(world.now()).count()
}

fn world(joiners: usize) -> (World, HostId, Vec<HostId>) {
    let mut world = World::new(1);
    let admin = world.add_host(closed());
    world.host_mut(admin).listen(0, &[PORT]);
    let joiners = (0..joiners).map(|_| world.add_host(closed())).collect();
    (world, admin, joiners)
}

#[test]
fn a_guest_is_heard_while_guests_are_welcome_and_no_longer() {
    let (mut world, admin, joiners) = world(1);
    let joiner = joiners[0];
    contact(&mut world, joiner, admin);
    world.run(3_000);
    assert_eq!(strangers(&world, admin), 0, "guests are not welcome");
    assert!(!say(&mut world, joiner, admin, b"hello"));
    world.host_mut(admin).node.set_guests(true);
    world.run(10_000);
    assert!(say(&mut world, joiner, admin, b"hello"));
    assert!(say(&mut world, admin, joiner, b"answer"));
    assert_eq!(stream(&mut world, joiner, admin, 20), (0, 0), "no packet passes");
    assert_eq!(world.host(admin).node.mesh_status().unwrap().neighbours, 1);
    assert_eq!(
        world.host(admin).node.mesh_status().unwrap().known,
        0,
        "it is not in the mesh"
    );
    world.host_mut(admin).node.set_guests(false);
    world.run(61_000);
    assert_eq!(strangers(&world, admin), 0, "its time is over");
    assert!(!say(&mut world, joiner, admin, b"again"));
}

#[test]
fn a_guest_that_comes_again_at_once_is_heard() {
    let (mut world, admin, joiners) = world(1);
    let joiner = joiners[0];
    world.host_mut(admin).node.set_guests(true);
    for text in [&b"first"[..], b"second", b"third"] {
        contact(&mut world, joiner, admin);
        world.run(1_500);
        assert!(say(&mut world, joiner, admin, text));
        let (now, key) = (world.now(), world.host(admin).identity().public());
        let host = world.host_mut(joiner);
        assert!(host.node.remove_peer(now, &key));
        host.settle(now);
        world.run(500);
    }
}

#[test]
fn a_ninth_guest_finds_no_room_and_no_other_loses_its_place() {
    let (mut world, admin, joiners) = world(9);
    world.host_mut(admin).node.set_guests(true);
    for joiner in &joiners[..8] {
        contact(&mut world, *joiner, admin);
    }
    world.run(5_000);
    assert_eq!(strangers(&world, admin), 8);
    contact(&mut world, joiners[8], admin);
    world.run(5_000);
    assert_eq!(strangers(&world, admin), 8);
    assert!(!say(&mut world, joiners[8], admin, b"ninth"));
    assert!(say(&mut world, joiners[0], admin, b"first"));
    world.run(61_000);
    assert!(say(&mut world, joiners[8], admin, b"ninth"), "later there is room");
}

#[test]
fn a_guest_that_is_taken_in_is_a_peer_of_the_mesh() {
    let (mut world, admin, joiners) = world(1);
    let joiner = joiners[0];
    contact(&mut world, joiner, admin);
    world.host_mut(admin).node.set_guests(true);
    world.run(3_000);
    assert!(say(&mut world, joiner, admin, b"hello"));
    world.add_peer(admin, joiner, false);
    world.add_peer(joiner, admin, true);
    world.run(3_000);
    assert_eq!(stream(&mut world, joiner, admin, 100), (100, 100));
    world.run(65_000);
    assert_eq!(strangers(&world, admin), 0);
    assert!(say(&mut world, joiner, admin, b"still"), "its stay does not end");
}
