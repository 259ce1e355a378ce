//! Offers and answers about NATs in sessions: session messages 0x16 and 0x17.

use weft_core::{Config, MAX_TRAVERSAL, TRAVERSALS, TraversalError};
use weft_sim::{HostId, World};
use weft_wire::session::TraversalType::{Answer, Offer};

use crate::common::stream;

/// A node without fast frames, as a FIPS daemon is.
fn fips() -> Config {
    Config {
        fast: false,
        ..Config::default()
    }
}

fn key(world: &World, id: HostId) -> weft_noise::PublicKey {
    world.host(id).identity().public()
}

#[test]
fn documents_pass_in_both_kinds_of_frames_and_only_in_a_session() {
    for config in [fips(), Config::default()] {
        let is_fips = !config.fast;
        let (mut world, a, b) = World::pair(1, config);
        world.run(3_000);
        let (to, now) = (key(&world, b), world.now());
        let sent = world.host_mut(a).send_traversal(now, &to, Offer, b"{}");
        assert_eq!(sent, Err(TraversalError::NoSession));
        assert!(!world.host(a).node.has_fips_session(&to));

        assert_eq!(stream(&mut world, a, b, 5), (5, 5));
        assert_eq!(world.host(a).node.has_fips_session(&to), is_fips);
        let now = world.now();
        let longest = vec![b' '; MAX_TRAVERSAL];
        let host = world.host_mut(a);
        host.send_traversal(now, &to, Offer, &longest).unwrap();
        host.send_traversal(now, &to, Answer, b"{}").unwrap();
        let longer = host.send_traversal(now, &to, Offer, &vec![b' '; MAX_TRAVERSAL + 1]);
        assert_eq!(longer, Err(TraversalError::TooLong(MAX_TRAVERSAL + 1)));
        let stranger = weft_noise::SecretKey::from_bytes(&[9; 32]).unwrap().public();
        assert_eq!(
            host.send_traversal(now, &stranger, Offer, b"{}"),
            Err(TraversalError::NoPeer)
        );
        world.run(1_000);
        let from = key(&world, a);
        let heard = std::mem::take(&mut world.host_mut(b).traversals);
        assert_eq!(heard, [(from, Offer, longest), (from, Answer, b"{}".to_vec())]);
        assert!(world.host(a).traversals.is_empty());
        world.check_all().unwrap();
    }
}

/// A flood costs its sender's documents alone, and no packet.
#[test]
fn a_peer_has_ten_a_second() {
    const SECONDS: u64 = 10;
    let (mut world, a, b) = World::pair(2, fips());
    world.run(3_000);
    assert_eq!(stream(&mut world, a, b, 5), (5, 5));
    let to = key(&world, b);
    for _ in 0..SECONDS * 100 {
        let now = world.now();
        for _ in 0..10 {
            let _ = world.host_mut(a).send_traversal(now, &to, Offer, b"{}");
        }
        world.run(10);
    }
    let heard = world.host(b).traversals.len() as u64;
    let most = TRAVERSALS.burst + SECONDS * TRAVERSALS.per_second;
    assert!((most - 10..=most + 1).contains(&heard), "{heard} of {most}");
    let refused = world.host(b).node.counters().traversals_refused;
    assert!(refused > 9_000, "{refused}");
    assert_eq!(stream(&mut world, a, b, 50), (50, 50));
    world.check_all().unwrap();
}
