//! Paths whose links have different MTUs.

use weft_contract::{EpochId, Report, SessionReport};
use weft_core::{Config, PeerStatus};
use weft_packet::DropReason;
use weft_sim::{HostId, World};
use weft_wire::session::SessionMessageType;

/// The MTU of the ends' own links, and the IP packet that fits in it.
const WIDE: u16 = 1_400;
const LARGE: usize = 1_323;
/// The IP packet that fits in a link MTU of 1,280.
const FITS: usize = 1_203;

/// Two ends that reach each other through relays only, whose links have these MTUs.
fn relayed(seed: u64, relays: &[u16]) -> (World, HostId, HostId, Vec<HostId>) {
    relayed_in(seed, relays, true)
}

/// Like [`relayed`], in fast frames if nodes agree on them, or in FIPS frames.
fn relayed_in(seed: u64, relays: &[u16], fast: bool) -> (World, HostId, HostId, Vec<HostId>) {
    let host = |world: &mut World, mtu| {
        world.add_host(Config {
            mesh: true,
            mtu,
            probe: false,
            fast,
            ..Config::default()
        })
    };
    let mut world = World::new(seed);
    let (a, b) = (host(&mut world, WIDE), host(&mut world, WIDE));
    let relays: Vec<HostId> = relays.iter().map(|mtu| host(&mut world, *mtu)).collect();
    for relay in &relays {
        world.add_peer(a, *relay, true);
        world.add_peer(b, *relay, true);
    }
    world.add_peer(a, b, false);
    world.add_peer(b, a, false);
    world.run(20_000);
    (world, a, b, relays)
}

/// Sends `count` probes of `len` bytes from `a` and returns how many arrived.
fn send(world: &mut World, a: HostId, b: HostId, count: u32, len: usize) -> usize {
    let before = world.host(b).received.len();
    for seq in 0..count {
        world.send(a, b, seq, len);
        world.run(50);
    }
    world.run(1_000);
    world.host(b).received.len() - before
}

fn status(world: &World, of: HostId, peer: HostId) -> PeerStatus {
    let key = world.host(peer).key;
    let mut all = world.host(of).node.peer_status(world.now());
    all.find(|p| p.key == key).unwrap()
}

#[test]
fn a_narrow_relay_says_so_and_the_sender_follows() {
    let (mut world, a, b, _) = relayed(1, &[1_280]);
    world.send(a, b, 0, 100);
    // Before the peer has reported anything.
    world.run(100);
    let arrived = send(&mut world, a, b, 50, LARGE);
    assert_eq!(arrived, 0);
    assert_eq!(status(&world, a, b).session.unwrap().path_mtu_out, Some(1_280));
    // All except those in flight are answered here, and are not sent to be lost on the path.
    let refused = world.host(a).lane.counters().drops[DropReason::TooBig];
    assert!(refused >= 45, "{refused} of 50");
    assert_eq!(send(&mut world, a, b, 50, FITS), 50);
}

#[test]
fn small_packets_are_enough_to_learn_the_size() {
    let (mut world, a, b, _) = relayed(2, &[1_280]);
    assert_eq!(send(&mut world, a, b, 20, 100), 20);
    let [there, here] = [status(&world, a, b), status(&world, b, a)].map(|peer| peer.session.unwrap());
    assert_eq!((there.path_mtu_out, here.path_mtu_in), (Some(1_280), Some(1_280)));
    world.send(a, b, 0, LARGE);
    assert_eq!(world.host(a).lane.counters().drops[DropReason::TooBig], 1);
    // The other direction was reported in the same way, by the reports about this one.
    assert_eq!(there.path_mtu_in, Some(1_280));
}

#[test]
fn a_wider_way_is_used_as_such() {
    let (mut world, a, b, relays) = relayed(3, &[1_280, WIDE]);
    send(&mut world, a, b, 20, 100);
    let forwarded = |world: &World, relay: HostId| {
        let counters = world.host(relay).lane.counters();
        counters.forwarded + counters.relayed
    };
    let narrow = forwarded(&world, relays[0]) > forwarded(&world, relays[1]);
    let (by, other) = if narrow {
        (relays[0], relays[1])
    } else {
        (relays[1], relays[0])
    };
    world.kill(by);
    send(&mut world, a, b, 900, 100);
    assert!(forwarded(&world, other) > 700);
    let expected = if narrow { WIDE } else { 1_280 };
    assert_eq!(
        status(&world, a, b).session.unwrap().path_mtu_out,
        Some(expected),
        "{narrow}"
    );
    let len = usize::from(expected) - 77;
    assert_eq!(send(&mut world, a, b, 20, len), 20);
}

#[test]
fn a_direct_path_is_as_wide_as_its_link() {
    let (mut world, a, b) = World::pair(
        4,
        Config {
            mtu: WIDE,
            probe: false,
            ..Config::default()
        },
    );
    assert_eq!(send(&mut world, a, b, 20, LARGE), 20);
    assert_eq!(status(&world, a, b).session.unwrap().path_mtu_out, Some(WIDE));
    // The last packets are confirmed again.
    world.run(15_000);
    let before = status(&world, b, a).session.unwrap().tx.packets;
    world.run(60_000);
    assert_eq!(status(&world, b, a).session.unwrap().tx.packets, before, "silence");
}

/// A relay writes a tiny path MTU into the frames that it forwards, for both ends.
#[test]
fn a_relay_cannot_make_packets_too_big_for_a_path() {
    for told in [0_u16, 179, 256, 576, 1_199] {
        let (mut world, a, b, _) = relayed_in(5, &[WIDE], false);
        let key = world.host(a).key;
        let tell = move |world: &mut World| {
            let body = told.to_le_bytes().to_vec();
            let peer = key.node_addr();
            let report = Report::Session(
                peer,
                SessionReport::Message {
                    id: EpochId(0),
                    msg_type: SessionMessageType::PathMtuNotification.to_byte(),
                    body,
                },
            );
            let now = world.now();
            world.host_mut(b).node.handle_report(now, report);
        };
        assert_eq!(send(&mut world, a, b, 20, 100), 20);
        tell(&mut world);
        assert_eq!(
            status(&world, b, a).session.unwrap().path_mtu_out.unwrap_or(WIDE),
            WIDE,
            "{told}"
        );
        assert_eq!(send(&mut world, b, a, 20, LARGE), 20, "{told}");
        let counters = world.host(b).node.counters();
        assert!(counters.sizes_refused > 0, "{told}");
    }
}
