//! Control frames of nvpn, and packets with their whole header, in sessions without fast frames: session
//! message 0x15.

use weft_core::{Config, TRAVERSALS, TraversalError};
use weft_sim::{HostId, World};
use weft_wire::session::CONTROL_MAGIC;

use crate::common::stream;

/// Two nodes without fast frames, as nodes of nvpn are, and with a session.
fn pair(seed: u64) -> (World, HostId, HostId) {
    let config = Config {
        fast: false,
        ..Config::default()
    };
    let (mut world, a, b) = World::pair(seed, config);
    world.run(3_000);
    assert_eq!(stream(&mut world, a, b, 5), (5, 5));
    (world, a, b)
}

fn take(world: &mut World, host: HostId, on: bool) {
    let now = world.now();
    world.host_mut(host).take_whole_packets(now, on);
}

fn control(world: &mut World, from: HostId, to: HostId) -> Result<(), TraversalError> {
    let (to, now) = (world.host(to).identity().public(), world.now());
    world.host_mut(from).send_control(now, &to, &CONTROL_MAGIC[..])
}

#[test]
fn control_frames_pass_where_they_are_turned_on() {
    let (mut world, a, b) = pair(1);
    control(&mut world, a, b).unwrap();
    world.run(1_000);
    assert!(world.host(b).controls.is_empty());
    assert_eq!(world.host(b).node.counters().messages_unknown, 1);
    take(&mut world, b, true);
    control(&mut world, a, b).unwrap();
    world.run(1_000);
    let from = world.host(a).identity().public();
    assert_eq!(
        std::mem::take(&mut world.host_mut(b).controls),
        [(from, CONTROL_MAGIC.to_vec())]
    );
    take(&mut world, b, false);
    control(&mut world, a, b).unwrap();
    world.run(1_000);
    assert!(world.host(b).controls.is_empty());
    let stranger = weft_noise::SecretKey::from_bytes(&[9; 32]).unwrap().public();
    let now = world.now();
    let sent = world.host_mut(a).send_control(now, &stranger, &CONTROL_MAGIC[..]);
    assert_eq!(sent, Err(TraversalError::NoPeer));
    world.check_all().unwrap();
}

/// A flood costs its sender's frames alone, and no packet.
#[test]
fn control_frames_of_a_peer_have_a_rate() {
    const SECONDS: u64 = 10;
    let (mut world, a, b) = pair(2);
    take(&mut world, b, true);
    for _ in 0..SECONDS * 100 {
        for _ in 0..10 {
            let _ = control(&mut world, a, b);
        }
        world.run(10);
    }
    let heard = world.host(b).controls.len() as u64;
    let most = TRAVERSALS.burst + SECONDS * TRAVERSALS.per_second;
    assert!((most - 10..=most + 1).contains(&heard), "{heard} of {most}");
    assert_eq!(stream(&mut world, a, b, 50), (50, 50));
    world.check_all().unwrap();
}

/// nvpn's sessions have no end for lack of traffic, and its pings are all that passes at night.
#[test]
fn control_frames_keep_the_session() {
    let (mut world, a, b) = pair(3);
    for host in [a, b] {
        take(&mut world, host, true);
    }
    for _ in 0..60 {
        control(&mut world, a, b).unwrap();
        control(&mut world, b, a).unwrap();
        world.run(10_000);
    }
    assert_eq!(world.host(b).controls.len(), 60);
    world.check_all().unwrap();
}

/// A node of nvpn makes new keys if nothing reports within 5 s that a frame of it has arrived.
#[test]
fn a_control_frame_is_reported_as_received() {
    let (mut world, a, b) = pair(4);
    take(&mut world, b, true);
    let told = |world: &World| {
        let peer = world.host(b).identity().public().node_addr();
        let status = world.host(a).node.status_of(world.now(), peer).unwrap();
        status.session.unwrap().told_s.unwrap()
    };
    world.run(20_000);
    assert!(told(&world) > 10, "{}", told(&world));
    control(&mut world, a, b).unwrap();
    world.run(2_000);
    assert!(told(&world) <= 2, "{}", told(&world));
}
