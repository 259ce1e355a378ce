//! The status is correct: for a path that is dead in one direction, and for two hosts with one key.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use weft_lab::cable::Direction;
use weft_lab::daemon::{Daemon, Identity, PeerState};
use weft_lab::relay::{Leg, UdpRelay, Verdict};
use weft_lab::traffic::{PingOptions, Pinger};
use weft_lab::world::World;

use crate::common::{MINUTE, PATIENCE, Underlay, WEFT, beside, identity, reached_within, wait_until};

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

fn peer(of: &Daemon, peer: &Identity) -> Value {
    of.peer(&peer.npub).unwrap().unwrap_or_default()
}

#[test]
fn both_ends_name_the_direction_in_which_a_path_is_dead() {
    beside(|| {
        let world = World::new().unwrap();
        let switch = world.switch("net").unwrap();
        let [a, b, middle] = [("a", "192.0.2.1"), ("b", "192.0.2.2"), ("middle", "192.0.2.3")].map(|(name, ip)| {
            let host = world.host(name).unwrap();
            switch.connect(&host, &[&format!("{ip}/24")]).unwrap();
            host
        });
        let cut = Arc::new(AtomicBool::new(false));
        let dead = Arc::clone(&cut);
        let (to_a, to_b) = (at("192.0.2.3", 1001), at("192.0.2.3", 1002));
        let leg = |local, peer| Leg { local, peer };
        let _relay = UdpRelay::start(
            &middle,
            leg(to_a, at("192.0.2.1", 2121)),
            leg(to_b, at("192.0.2.2", 2121)),
            move |direction, _: &[u8]| match direction == Direction::BToA && dead.load(Ordering::Relaxed) {
                true => Verdict::Drop,
                false => Verdict::Pass,
            },
        )
        .unwrap();
        let ids = ["a", "b"].map(|name| identity(&world, name));
        let start = |host, own: usize, via: &[SocketAddr]| {
            let other = &ids[1 - own];
            let spec = Underlay::V4.listener().with_peer(&other.npub, &other.name, via);
            let mut daemon = Daemon::start(host, Path::new(WEFT), &ids[own], &spec).unwrap();
            daemon.wait_ready(PATIENCE).unwrap();
            daemon
        };
        let mut a = start(&a, 0, &[]);
        let mut b = start(&b, 1, &[to_b]);
        reached_within(PATIENCE, &b, &a);
        let options = PingOptions {
            interval: Duration::from_millis(100),
            ..PingOptions::default()
        };
        let pingers =
            [(&a, &b), (&b, &a)].map(|(from, to)| Pinger::start(from.host(), to.identity().address, options).unwrap());
        a.wait_peer(&ids[1].npub, PeerState::Payload, PATIENCE).unwrap();
        b.wait_peer(&ids[0].npub, PeerState::Payload, PATIENCE).unwrap();
        // Some reports must have arrived: without any, the status does not report that they are
        // missing.
        wait_until(PATIENCE, "reports", || {
            [(&a, &ids[1]), (&b, &ids[0])]
                .iter()
                .all(|(of, id)| peer(of, id)["session"]["told_s"].is_u64())
        });
        cut.store(true, Ordering::Relaxed);
        // How soon they say so is what crates/sim/tests/states.rs asserts.
        wait_until(MINUTE, "A says that nothing comes", || {
            let seen = peer(&a, &ids[1]);
            seen["trouble"]["kind"] == "nothing-comes" && seen["state"] != "payload"
        });
        wait_until(MINUTE, "B says that nothing arrives", || {
            let seen = peer(&b, &ids[0]);
            let why = seen["why"].as_str().unwrap_or_default();
            let says = why.contains("what we send does not arrive");
            seen["trouble"]["kind"] == "nothing-arrives" && seen["state"] == "session" && says
        });
        cut.store(false, Ordering::Relaxed);
        a.wait_peer(&ids[1].npub, PeerState::Payload, PATIENCE).unwrap();
        b.wait_peer(&ids[0].npub, PeerState::Payload, PATIENCE).unwrap();
        pingers.into_iter().for_each(|pinger| drop(pinger.stop().unwrap()));
        for daemon in [&mut a, &mut b] {
            assert_eq!(daemon.stop().unwrap().code(), Some(0));
            assert!(daemon.warnings().unwrap().is_empty());
        }
    });
}

#[test]
fn a_state_directory_started_twice_is_named_by_peer_and_both() {
    beside(|| {
        let world = World::new().unwrap();
        let switch = world.switch("net").unwrap();
        let hosts = [("one", "192.0.2.1"), ("two", "192.0.2.2"), ("peer", "192.0.2.3")].map(|(name, ip)| {
            let host = world.host(name).unwrap();
            switch.connect(&host, &[&format!("{ip}/24")]).unwrap();
            host
        });
        let [one, observer] = ["one", "observer"].map(|name| identity(&world, name));
        let copy = world.directory().join("two");
        assert!(
            std::process::Command::new("cp")
                .arg("-a")
                .args([&one.state, &copy])
                .status()
                .unwrap()
                .success()
        );
        let two = Identity::load(Path::new(WEFT), &copy, "two").unwrap();
        assert_eq!(one.npub, two.npub);
        let start = |host, id: &Identity, peer: &Identity, addresses: &[SocketAddr]| {
            let spec = Underlay::V4.listener().with_peer(&peer.npub, &peer.name, addresses);
            let mut daemon = Daemon::start(host, Path::new(WEFT), id, &spec).unwrap();
            daemon.wait_ready(PATIENCE).unwrap();
            daemon
        };
        let third = start(&hosts[2], &observer, &one, &[]);
        let dial = [at("192.0.2.3", 2121)];
        let first = start(&hosts[0], &one, &observer, &dial);
        reached_within(PATIENCE, &first, &third);
        let second = start(&hosts[1], &two, &observer, &dial);
        let options = PingOptions {
            interval: Duration::from_millis(200),
            ..PingOptions::default()
        };
        let pingers = [&first, &second].map(|from| Pinger::start(from.host(), observer.address, options).unwrap());
        wait_until(MINUTE, "the peer names both, and says why", || {
            let told = peer(&third, &one);
            let seen = told["clones"]["seen"].as_array();
            let both = ["192.0.2.1:2121", "192.0.2.2:2121"]
                .iter()
                .all(|at| seen.is_some_and(|all| all.contains(&(*at).into())));
            let why = told["why"].as_str().unwrap_or_default();
            both && why.contains("another machine runs with the key")
        });
        for (clone, other) in [(&first, "192.0.2.2:2121"), (&second, "192.0.2.1:2121")] {
            wait_until(MINUTE, "each knows the other", || {
                let node = clone.status().unwrap()["node"].clone();
                node["clones"]["seen"][0] == other && node["clones"]["told_by"] == "observer"
            });
        }
        pingers.into_iter().for_each(|pinger| drop(pinger.stop().unwrap()));
        let told = third.warnings().unwrap();
        assert!(
            told.iter()
                .any(|line| line.contains("another machine runs with the key of this peer")),
            "{told:?}"
        );
    });
}
