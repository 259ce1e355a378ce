//! One node is killed and comes back: payload passes again. How soon is a bound of the simulator
//! (crates/sim/tests/pair.rs).

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use weft_lab::daemon::Daemon;
use weft_lab::host::Host;
use weft_lab::world::World;
use weft_os::netlink::Netlink;
use weft_os::tun::{Tun, TunOptions};

use crate::common::{PATIENCE, Pair, Underlay, WEFT, assert_pings, assert_transfer, beside, identity, reached_within};

/// Far less than the dead timeout of 30 s.
const AT_ONCE: Duration = Duration::from_secs(15);

#[test]
fn a_is_killed_and_comes_back() {
    beside(|| {
        let mut pair = Pair::start(Underlay::V4, |_| {});
        pair.a.kill().unwrap();
        pair.a.restart().unwrap();
        pair.a.wait_ready(PATIENCE).unwrap();
        // The node that stayed sends first: it has to give up its old keys.
        reached_within(PATIENCE, &pair.b, &pair.a);
        check(pair);
    });
}

#[test]
fn b_is_killed_and_comes_back() {
    beside(|| {
        let mut pair = Pair::start(Underlay::V4, |_| {});
        pair.b.kill().unwrap();
        pair.b.restart().unwrap();
        pair.b.wait_ready(PATIENCE).unwrap();
        // The node that came back sends first.
        reached_within(PATIENCE, &pair.b, &pair.a);
        check(pair);
    });
}

#[test]
fn both_are_killed_and_come_back() {
    beside(|| {
        let mut pair = Pair::start(Underlay::V4, |_| {});
        for daemon in [&mut pair.a, &mut pair.b] {
            daemon.kill().unwrap();
        }
        for daemon in [&mut pair.b, &mut pair.a] {
            daemon.restart().unwrap();
            daemon.wait_ready(PATIENCE).unwrap();
        }
        reached_within(PATIENCE, &pair.a, &pair.b);
        check(pair);
    });
}

#[test]
fn a_clean_stop_shows_at_once_and_a_restart_links_again() {
    beside(|| {
        let mut pair = Pair::start(Underlay::V4, |_| {});
        assert_eq!(pair.b.stop().unwrap().code(), Some(0));
        // The Disconnect reported it.
        let b = pair.b.identity().npub.clone();
        pair.a.wait_peer_gone(&b, AT_ONCE).unwrap();
        pair.b.restart().unwrap();
        pair.b.wait_ready(PATIENCE).unwrap();
        reached_within(PATIENCE, &pair.a, &pair.b);
        check(pair);
    });
}

/// An interface that has another owner stays, without addresses, and is used again after a kill.
#[test]
fn an_interface_that_was_there_before_is_left_as_it_was() {
    beside(|| {
        let world = World::new().unwrap();
        let host = world.host("a").unwrap();
        let id = identity(&world, "a");
        let options = TunOptions {
            offloads: true,
            multi_queue: true,
        };
        let held = host.run(|| Tun::create("weft0", options)).unwrap().unwrap();
        let before = state(&host, held.index());
        assert_eq!(before, (false, Vec::new()));
        let mut spec = Underlay::V4.listener();
        spec.settings.push(("lanes".to_owned(), 2.into()));
        let mut daemon = Daemon::start(&host, Path::new(WEFT), &id, &spec).unwrap();
        for _ in 0..2 {
            daemon.wait_ready(PATIENCE).unwrap();
            let (up, addresses) = state(&host, held.index());
            assert!(up && addresses.contains(&id.address.into()), "{addresses:?}");
            daemon.kill().unwrap();
            assert_eq!(state(&host, held.index()), (up, addresses));
            daemon.restart().unwrap();
        }
        daemon.wait_ready(PATIENCE).unwrap();
        assert_eq!(daemon.stop().unwrap().code(), Some(0));
        assert_eq!(state(&host, held.index()), before);
        let warnings = daemon.warnings().unwrap();
        assert!(warnings.is_empty(), "{warnings:#?}");
    });
}

/// Whether an interface is up, and its addresses.
fn state(host: &Host, index: u32) -> (bool, Vec<IpAddr>) {
    let look = || {
        let mut netlink = Netlink::open().unwrap();
        let interfaces = netlink.interfaces().unwrap();
        let up = interfaces.iter().find(|found| found.index == index).unwrap().up;
        let addresses = netlink.addresses(index).unwrap();
        (up, addresses.into_iter().map(|found| found.address).collect())
    };
    host.run(look).unwrap()
}

fn check(mut pair: Pair) {
    pair.wait_payload();
    assert_pings(&pair.a, &pair.b);
    assert_pings(&pair.b, &pair.a);
    assert_transfer(&pair.a, &pair.b, 1_000_000);
    assert_transfer(&pair.b, &pair.a, 1_000_000);
    pair.finish();
}
