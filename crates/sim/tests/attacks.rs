//! An attacker on the path that tries to move data to other frames, or to stop it: handshakes whose
//! transcripts differ, negotiation that is dropped, altered, replayed or reflected, and frames
//! replayed under every other index.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use weft_core::{Config, Event, Frames};
use weft_noise::fast::Suite;
use weft_packet::DropReason;
use weft_sim::{Datagram, Fate, HostId, Kind, World};
use weft_wire::fsp::{FspPhase, FspPrefix};
use weft_wire::link::{LinkMessageType, SessionDatagram};
use weft_wire::{fast, fmp};

use crate::common::stream;

const AES: Suite = Suite::Aes256Gcm;
/// Length of an ephemeral key, a compressed point: its first byte is the parity of y.
const POINT: usize = 33;
/// Length of the datagram with capabilities in a FIPS session that receives its first message of an
/// epoch.
const CAPABILITIES: usize = 142;

fn frames(world: &World, host: HostId, peer: HostId) -> Frames {
    let key = world.host(peer).key;
    let mut status = world.host(host).node.peer_status(world.now());
    status.find(|peer| peer.key == key).unwrap().frames
}

/// How often a host reported these frames.
fn told(world: &World, host: HostId, of: Frames) -> usize {
    let events = world.host(host).events.iter();
    events
        .filter(|(_, event)| matches!(event, Event::FramesChanged { frames, .. } if *frames == of))
        .count()
}

fn sealed_fast(world: &World, host: HostId) -> u64 {
    world.host(host).lane.counters().fast_tx
}

fn quick() -> Config {
    Config {
        mesh: true,
        rekey: 40_000,
        ..Config::default()
    }
}

/// A and B, and R between them, which alone knows their addresses.
fn through_a_relay(seed: u64) -> (World, [HostId; 3]) {
    let mut world = World::new(seed);
    let [a, r, b] = [0; 3].map(|_| world.add_host(quick()));
    world.add_peer(a, r, true);
    world.add_peer(b, r, true);
    world.add_peer(a, b, false);
    world.add_peer(b, a, false);
    world.run(5_000);
    (world, [a, r, b])
}

/// The handshake messages that a relay alters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flips {
    Setup,
    Ack,
    Both,
}

/// Flips the parity byte of the ephemeral key in a forwarded handshake. Diffie-Hellman uses the x
/// coordinate only, so its result stays the same.
fn flip_parity(body: &mut [u8], flips: Flips) -> bool {
    let Ok(datagram) = SessionDatagram::parse(body) else {
        return false;
    };
    let message = datagram.payload;
    let phase = FspPrefix::parse(message)
        .ok()
        .and_then(|p| FspPhase::from_nibble(p.phase));
    let noise = match phase {
        Some(FspPhase::Setup) if flips != Flips::Ack => POINT,
        // Its epoch is behind the point: 8 bytes and a tag.
        Some(FspPhase::Ack) if flips != Flips::Setup => POINT + 8 + 16,
        _ => return false,
    };
    let at = body.len() - noise;
    assert!(matches!(body[at], 2 | 3), "no point is there");
    body[at] ^= 1;
    true
}

/// FIPS's handshake does not detect it; data uses FIPS frames, no fast frame opens, and both ends
/// report it. Once the attack has ended the next epoch is fast.
#[test]
fn an_ephemeral_with_another_parity_is_a_downgrade_that_is_told() {
    for (seed, flips) in [(1, Flips::Setup), (2, Flips::Ack), (3, Flips::Both)] {
        let (mut world, [a, r, b]) = through_a_relay(seed);
        let (on, flipped) = (Rc::new(Cell::new(true)), Rc::new(Cell::new(0)));
        let (active, count) = (on.clone(), flipped.clone());
        world.host_mut(r).set_hand(move |msg_type, body| {
            if active.get() && msg_type == LinkMessageType::SessionDatagram.to_byte() && flip_parity(body, flips) {
                count.set(count.get() + 1);
            }
        });
        assert_eq!(stream(&mut world, a, b, 1_500), (1_500, 1_500), "{flips:?}");
        assert!(flipped.get() > 0);
        let down = Frames::Unproven(AES);
        assert_eq!((frames(&world, a, b), frames(&world, b, a)), (down, down), "{flips:?}");
        assert!(told(&world, a, down) == 1 && told(&world, b, down) == 1, "{flips:?}");
        assert_eq!((sealed_fast(&world, a), sealed_fast(&world, b)), (0, 0), "{flips:?}");

        on.set(false);
        assert_eq!(stream(&mut world, a, b, 2_500), (2_500, 2_500), "{flips:?}");
        let up = Frames::Relayed(AES);
        assert_eq!((frames(&world, a, b), frames(&world, b, a)), (up, up), "{flips:?}");
    }
}

/// The same attack on the handshake of a link, which any host on the path sees in the clear: its
/// FIPS keys agree, those of the hop do not, and relayed traffic over it uses FIPS frames.
#[test]
fn a_link_whose_ephemeral_was_touched_relays_nothing() {
    let mut world = World::new(4);
    let [a, r, b] = [0; 3].map(|_| world.add_host(quick()));
    let held: Rc<RefCell<Vec<Datagram>>> = Rc::default();
    let tap = held.clone();
    world.set_rule(move |_, datagram| {
        let handshake = matches!(datagram.kind, Kind::LinkMsg1 | Kind::LinkMsg2);
        if handshake && (datagram.from == a || datagram.from == r) && datagram.dst.ip() != datagram.src.ip() {
            tap.borrow_mut().push(datagram.clone());
            return Fate::Drop;
        }
        Fate::Pass
    });
    let meddle = |world: &mut World| {
        for mut datagram in held.borrow_mut().drain(..) {
            let noise = match datagram.kind {
                Kind::LinkMsg1 => fmp::Msg1::LEN - fmp::Msg1::parse(&datagram.bytes).unwrap().noise.len(),
                _ => fmp::Msg2::LEN - fmp::Msg2::parse(&datagram.bytes).unwrap().noise.len(),
            };
            // R's handshakes with B are left unchanged.
            let of_a = [datagram.src, datagram.dst].contains(&world.host(a).addr);
            datagram.bytes[noise] ^= u8::from(of_a);
            world.inject(datagram.src, datagram.dst, datagram.bytes);
        }
    };
    world.add_peer(a, r, true);
    world.add_peer(b, r, true);
    world.add_peer(a, b, false);
    world.add_peer(b, a, false);
    for _ in 0..5_000 {
        world.run(1);
        meddle(&mut world);
    }
    let before = world.host(b).received.len();
    for seq in 0..6_000 {
        if seq % 20 == 0 {
            world.send(a, b, seq, 200);
        }
        world.run(5);
        meddle(&mut world);
    }
    assert_eq!(world.host(b).received.len() - before, 300);
    assert_eq!(world.host(a).lane.counters().relayed_tx, 0);
    let state = frames(&world, a, b);
    assert!(!matches!(state, Frames::Fast(_) | Frames::Relayed(_)), "{state:?}");
}

/// An attacker on the path can drop the whole negotiation, or alter it, with the same effect: the
/// peer looks like one without fast frames. If the peer had used them before, the node reports it.
#[test]
fn negotiation_that_is_dropped_or_altered_leaves_fips_frames() {
    for altered in [false, true] {
        let mut world = World::new(5);
        let [a, b] = [0; 2].map(|_| world.add_host(Config::default()));
        world.add_peer(a, b, true);
        world.add_peer(b, a, true);
        let key = world.host(b).identity().public();
        world.host_mut(a).node.remember_fast(&key);
        let held: Rc<RefCell<Vec<Datagram>>> = Rc::default();
        let tap = held.clone();
        world.set_rule(move |_, datagram| {
            if datagram.kind == Kind::SessionControl && datagram.bytes.len() == CAPABILITIES {
                tap.borrow_mut().push(datagram.clone());
                return Fate::Drop;
            }
            Fate::Pass
        });
        let before = world.host(b).received.len();
        for seq in 0..600 {
            world.send(a, b, seq, 200);
            for at in 0..20 {
                world.run(1);
                for mut datagram in held.borrow_mut().drain(..).filter(|_| altered) {
                    let at = 16 + (seq as usize * 20 + at) % (CAPABILITIES - 16);
                    datagram.bytes[at] ^= 1 << (seq % 8);
                    world.inject(datagram.src, datagram.dst, datagram.bytes);
                }
            }
        }
        world.run(1_000);
        assert_eq!(world.host(b).received.len() - before, 600, "altered {altered}");
        assert_eq!(
            (frames(&world, a, b), frames(&world, b, a)),
            (Frames::Fips, Frames::Fips)
        );
        assert_eq!((told(&world, a, Frames::Fips), told(&world, b, Frames::Fips)), (1, 0));
        let forged = world.host(a).lane.counters().drops[DropReason::LinkTag]
            + world.host(b).lane.counters().drops[DropReason::LinkTag];
        assert_eq!(forged > 0, altered, "{forged}");
    }
}

/// Replays everything that two nodes have sent to each other, and reflects it, over two epochs:
/// neither starts anything because of it.
#[test]
fn negotiation_that_comes_again_changes_nothing() {
    let config = Config {
        rekey: 10_000,
        phase_frames: 100,
        ..Config::default()
    };
    let (mut world, a, b) = World::pair(6, config);
    let seen: Rc<RefCell<Vec<Datagram>>> = Rc::default();
    let tap = seen.clone();
    world.set_rule(move |_, datagram| {
        let of_session = matches!(datagram.kind, Kind::SessionControl | Kind::Data);
        if datagram.from != Datagram::NOBODY && of_session {
            tap.borrow_mut().push(datagram.clone());
        }
        Fate::Pass
    });
    assert_eq!(stream(&mut world, a, b, 1_000), (1_000, 1_000));
    let seen = seen.take();
    assert!(seen.iter().any(|datagram| datagram.bytes.len() == CAPABILITIES));
    let fast_indices: BTreeSet<_> = seen
        .iter()
        .filter_map(|datagram| Some((datagram.dst, fast::index_of(&datagram.bytes)?)))
        .collect();
    assert!(
        fast_indices.len() >= 4,
        "{} indices: two epochs, both ends",
        fast_indices.len()
    );
    let state = |world: &World| {
        [a, b].map(|host| {
            let changes = world.host(host).events.len();
            (
                changes,
                world.host(host).received.len(),
                world.host(host).node.peer_status(world.now()).count(),
            )
        })
    };
    let before = state(&world);
    for datagram in seen.iter().rev().take(3_000) {
        world.inject(datagram.src, datagram.dst, datagram.bytes.clone());
        world.inject(datagram.dst, datagram.src, datagram.bytes.clone());
        if fast::index_of(&datagram.bytes).is_some() {
            // Under every other index of either end: other epochs, the other direction.
            for (dst, index) in &fast_indices {
                let mut moved = datagram.bytes.clone();
                moved[4..8].copy_from_slice(&index.to_le_bytes());
                if moved != datagram.bytes {
                    let src = if *dst == datagram.dst {
                        datagram.src
                    } else {
                        datagram.dst
                    };
                    world.inject(src, *dst, moved);
                }
            }
        }
    }
    world.run(200);
    assert_eq!(state(&world), before, "something that is old was taken");
    let counters = [a, b].map(|host| *world.host(host).lane.counters());
    assert!(
        counters
            .iter()
            .all(|c| c.drops[DropReason::FastReplay] > 100 && c.drops[DropReason::FastTag] > 100),
        "{counters:?}"
    );
    assert_eq!(stream(&mut world, a, b, 100), (100, 100));
    let fast = Frames::Fast(AES);
    assert_eq!((frames(&world, a, b), frames(&world, b, a)), (fast, fast));
}
