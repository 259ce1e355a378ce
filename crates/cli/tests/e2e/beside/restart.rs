//! One node is killed and comes back: payload passes again within five seconds of its return.

use std::time::Duration;

use crate::common::{Pair, Underlay, assert_pings, assert_transfer, beside, reached_within};

const LIMIT: Duration = Duration::from_secs(5);

#[test]
fn a_is_killed_and_comes_back() {
    beside(|| {
        let mut pair = Pair::start(Underlay::V4, |_| {});
        pair.a.kill().unwrap();
        pair.a.restart().unwrap();
        pair.a.wait_ready(LIMIT).unwrap();
        // The node that stayed sends first: it has to give up its old keys.
        reached_within(LIMIT, &pair.b, &pair.a);
        check(pair);
    });
}

#[test]
fn b_is_killed_and_comes_back() {
    beside(|| {
        let mut pair = Pair::start(Underlay::V4, |_| {});
        pair.b.kill().unwrap();
        pair.b.restart().unwrap();
        pair.b.wait_ready(LIMIT).unwrap();
        // The node that came back sends first.
        reached_within(LIMIT, &pair.b, &pair.a);
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
            daemon.wait_ready(LIMIT).unwrap();
        }
        reached_within(LIMIT, &pair.a, &pair.b);
        check(pair);
    });
}

#[test]
fn a_clean_stop_shows_at_once_and_a_restart_links_again() {
    beside(|| {
        let mut pair = Pair::start(Underlay::V4, |_| {});
        assert_eq!(pair.b.stop().unwrap().code(), Some(0));
        // Far less than the dead timeout of 30 s: the Disconnect reported it.
        let b = pair.b.identity().npub.clone();
        pair.a.wait_peer_gone(&b, Duration::from_secs(3)).unwrap();
        pair.b.restart().unwrap();
        pair.b.wait_ready(LIMIT).unwrap();
        reached_within(LIMIT, &pair.a, &pair.b);
        check(pair);
    });
}

fn check(mut pair: Pair) {
    pair.wait_payload();
    assert_pings(&pair.a, &pair.b);
    assert_pings(&pair.b, &pair.a);
    assert_transfer(&pair.a, &pair.b, 1_000_000);
    assert_transfer(&pair.b, &pair.a, 1_000_000);
    pair.finish();
}
