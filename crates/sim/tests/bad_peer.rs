//! A hostile peer with valid keys: other peers are not affected.

use weft_core::{Config, Event, Frames, PeerState};
use weft_packet::DropReason;
use weft_sim::{HostId, World};
use weft_wire::link::LinkMessageType;

/// A peer with which the others have a link and a session, and which sends anything, 1,000 messages
/// a second.
const BAD: HostId = 2;
const SECONDS: u32 = 30;

/// Bytes derived from a number.
fn bytes(number: u32, len: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..len).map(next).collect()
}

/// Sends link messages of every type with any body, frames that do not open under the link's index,
/// and occasional disconnects.
fn misbehave(world: &mut World, number: u32) {
    let target = (number % 2) as HostId;
    let len = [0, 1, 18, 60, 200, 1_100][number as usize % 6];
    let any = bytes(number, len);
    match number % 5 {
        0 => world.say(BAD, target, LinkMessageType::SessionDatagram, any),
        1 if number.is_multiple_of(1_001) => world.say(BAD, target, LinkMessageType::Disconnect, vec![0]),
        1 | 2 => world.say_type(BAD, target, (number / 5) as u8, any),
        3 => {
            let (src, dst) = (world.host(BAD).addr, world.host(target).addr);
            let mut frame = vec![0, 0, 32, 0];
            frame.extend(bytes(number, 60));
            world.inject(src, dst, frame);
        }
        _ => world.send(BAD, target, number, 200),
    }
}

#[test]
fn a_peer_that_sends_what_it_likes_costs_others_nothing() {
    for mesh in [false, true] {
        let mut world = World::new(41);
        let config = Config {
            mesh,
            rekey: 12_000,
            ..Config::default()
        };
        let [a, b, _] = [0; 3].map(|_| world.add_host(config));
        for (from, to) in [(a, b), (BAD, a), (BAD, b)] {
            world.add_peer(from, to, true);
            world.add_peer(to, from, false);
        }
        world.run(3_000);
        for n in 0..50 {
            for (from, to) in [(a, b), (b, a), (BAD, a), (BAD, b)] {
                world.send(from, to, n, 100);
            }
            world.run(20);
        }
        let key = world.host(b).key;
        let frames = |world: &World| {
            let now = world.now();
            let mut peers = world.host(a).node.peer_status(now);
            let peer = peers.find(|peer| peer.key == key).unwrap();
            (peer.state, matches!(peer.frames, Frames::Fast(_)))
        };
        assert_eq!(frames(&world), (PeerState::Payload, true));
        let arrived = |world: &World| {
            let of = |host: HostId, from: HostId| {
                let from = world.host(from).node_addr();
                let received = world.host(host).received.iter();
                received.filter(|(_, packet)| packet.from == from).count()
            };
            of(a, b) + of(b, a)
        };
        let (before, start) = (arrived(&world), world.now());
        let mut sent = 0;
        for ms in 0..SECONDS * 1_000 {
            misbehave(&mut world, ms);
            if ms.is_multiple_of(20) {
                world.send(a, b, 1_000 + ms, 200);
                world.send(b, a, 1_000 + ms, 200);
                sent += 2;
            }
            world.run(1);
            if ms.is_multiple_of(500) {
                assert_eq!(frames(&world), (PeerState::Payload, true), "after {ms} ms");
            }
        }
        world.run(1_000);
        let (node, lane) = (world.host(a).node.counters(), world.host(a).lane.counters());
        assert!(
            node.messages_unknown > 500
                && lane.drops[DropReason::Malformed] > 500
                && lane.drops[DropReason::UnknownIndex] > 500,
            "{node:?} {lane:?}"
        );
        assert_eq!(arrived(&world) - before, sent, "mesh {mesh}");
        let good = [world.host(a).key, world.host(b).key];
        let events = [a, b].map(|host| &world.host(host).events);
        let news = events.into_iter().flatten().filter(|(at, _)| *at >= start);
        let about_good = news.filter(|(_, event)| match event {
            Event::LinkDown { peer, .. } | Event::SessionDown { peer, .. } | Event::LinkSilent { peer } => {
                good.contains(peer)
            }
            _ => false,
        });
        assert_eq!(about_good.count(), 0, "mesh {mesh}");
        let rekeyed = world
            .host(a)
            .events
            .iter()
            .filter(|(at, event)| *at >= start && matches!(event, Event::LinkRekeyed { peer } if *peer == key));
        assert!(rekeyed.count() > 0, "keys are renewed meanwhile");
    }
}
