//! Relays that are killed, form a chain, do not forward, or accept only configured nodes.

use std::time::Duration;

use weft_lab::daemon::PeerState;
use weft_lab::traffic::{Limit, TcpFlow};

use crate::common::net::{DENSE, Net, PINGS};
use crate::common::{MINUTE, address, assert_transfer, beside, wait_until};
use weft_os::assert_strict;

const START: Duration = Duration::from_secs(30);

/// A and B reach each other through C or D. The relay in use is killed, then the other. How soon it is
/// replaced is a bound of the simulator (crates/sim/tests/detour.rs).
#[test]
fn a_killed_relay_is_replaced() {
    beside(|| {
        let mut net = Net::new(&["a", "b", "c", "d"]);
        net.keep_apart(&["a", "b"], true);
        for relay in ["c", "d"] {
            net.start(relay, &net.spec(""));
        }
        net.start("a", &net.knowing(&["c", "d"], &["b"]));
        net.start("b", &net.knowing(&["c", "d"], &["a"]));
        net.reached_within(START, "a", "b");
        net.reached_within(START, "b", "a");
        let hosts = (net.host("a"), net.host("b"));
        let flow = TcpFlow::start(hosts, address(net.node("b")), Limit::Paced(2_000_000), 1, 4 * MINUTE).unwrap();
        for _ in 0..2 {
            let used = net.via("a", "b").unwrap();
            let spare = if used == "c" { "d" } else { "c" };
            for end in ["a", "b"] {
                let relay = net.npub(spare);
                net.node_mut(end).wait_peer(&relay, PeerState::Linked, START).unwrap();
            }
            let pingers = [("a", "b"), ("b", "a")].map(|(from, to)| net.ping(from, to, DENSE));
            std::thread::sleep(Duration::from_secs(3));
            net.node_mut(used).kill().unwrap();
            for (from, to) in [("a", "b"), ("b", "a")] {
                wait_until(MINUTE, "the other relay is used", || net.via(from, to) == Some(spare));
                net.reached_within(MINUTE, from, to);
            }
            for report in pingers.map(|pinger| pinger.stop().unwrap()) {
                eprintln!("{used} was killed: {:.0} ms without payload", report.longest_gap_ms);
                assert!(!report.lost.is_empty(), "{report:?}");
            }
            net.node_mut(used).restart().unwrap();
            net.node_mut(used).wait_ready(START).unwrap();
            // The ends keep the old link until they give it up. That both have a new one shows in
            // the relay.
            wait_until(MINUTE, "the killed relay is back and has links", || {
                net.node(used).status().unwrap()["node"]["mesh"]["neighbours"] == 2
            });
        }
        assert_strict!(flow.stop().unwrap().hash_ok, "the content of a flow changed");
        for pinger in net.ping_both(["a", "b"], PINGS, Duration::from_secs(5)) {
            assert!(pinger.lost.is_empty(), "{pinger:?}");
        }
        net.finish();
    });
}

/// A and B, which have a relay each, C and D. Only the relays know each other.
pub(super) fn in_a_row() -> Net {
    let mut net = Net::new(&["a", "c", "d", "b"]);
    net.start("c", &net.spec(""));
    net.start("d", &net.knowing(&["c"], &[]));
    net.start("a", &net.knowing(&["c"], &["b"]));
    net.start("b", &net.knowing(&["d"], &["a"]));
    net.reached_within(START, "a", "b");
    net.reached_within(START, "b", "a");
    net
}

#[test]
fn two_relays_in_a_row_carry() {
    beside(|| {
        let net = in_a_row();
        for report in net.ping_both(["a", "b"], PINGS, Duration::from_secs(10)) {
            assert!(report.lost.is_empty(), "{report:?}");
        }
        assert_transfer(net.node("a"), net.node("b"), 5_000_000);
        assert_transfer(net.node("b"), net.node("a"), 5_000_000);
        assert_eq!((net.via("a", "b"), net.via("b", "a")), (Some("c"), Some("d")));
        net.finish();
    });
}

/// C does not forward for other nodes. A and B do not reach each other through it, and report that,
/// until D starts, which does.
#[test]
fn a_node_without_transit_carries_nothing() {
    beside(|| {
        let mut net = Net::new(&["a", "b", "c", "d"]);
        net.keep_apart(&["a", "b"], true);
        net.start("c", &net.spec("transit = false\n"));
        net.start("a", &net.knowing(&["c", "d"], &["b"]));
        net.start("b", &net.knowing(&["c", "d"], &["a"]));
        let c = net.npub("c");
        for end in ["a", "b"] {
            net.node_mut(end).wait_peer(&c, PeerState::Linked, START).unwrap();
        }
        for report in net.ping_both(["a", "b"], PINGS, Duration::from_secs(5)) {
            assert_strict!(report.received == 0, "{report:?}");
        }
        for (from, to) in [("a", "b"), ("b", "a")] {
            let status = net.peer(from, to);
            assert!(status["state"] != "payload" && status["state"] != "session", "{status}");
        }
        assert_strict!(
            net.node("c").status().unwrap()["counters"]["forwarded"] == 0,
            "a node without transit has forwarded"
        );
        net.start("d", &net.spec(""));
        net.reached_within(START, "a", "b");
        net.reached_within(START, "b", "a");
        // After a moment without an answer of D, both try C again for a second.
        wait_until(MINUTE, "D carries and loses nothing", || {
            let reports = net.ping_both(["a", "b"], PINGS, Duration::from_secs(5));
            reports.iter().all(|report| report.lost.is_empty())
        });
        assert_eq!((net.via("a", "b"), net.via("b", "a")), (Some("d"), Some("d")));
        assert_strict!(
            net.node("c").status().unwrap()["counters"]["forwarded"] == 0,
            "a node without transit has forwarded"
        );
        net.finish();
    });
}

/// C accepts only A, D every node but A. Neither can connect A and B, until C is configured to
/// accept B too.
#[test]
fn a_relay_takes_whom_it_is_told_to() {
    beside(|| {
        let mut net = Net::new(&["a", "b", "c", "d"]);
        net.keep_apart(&["a", "b"], true);
        let (a, b) = (net.npub("a"), net.npub("b"));
        net.start("c", &net.choosy(&format!("allow = [\"{a}\"]\n")));
        net.start("d", &net.spec(&format!("deny = [\"{a}\"]\n")));
        net.start("a", &net.knowing(&["c", "d"], &["b"]));
        net.start("b", &net.knowing(&["c", "d"], &["a"]));
        let (c, d) = (net.npub("c"), net.npub("d"));
        net.node_mut("a").wait_peer(&c, PeerState::Linked, START).unwrap();
        net.node_mut("b").wait_peer(&d, PeerState::Linked, START).unwrap();
        for report in net.ping_both(["a", "b"], PINGS, Duration::from_secs(5)) {
            assert_strict!(report.received == 0, "{report:?}");
        }
        assert_eq!(net.peer("a", "d")["state"], "linking");
        assert_eq!(net.peer("b", "c")["state"], "linking");
        net.node_mut("c").stop().unwrap();
        net.start("c", &net.choosy(&format!("allow = [\"{a}\", \"{b}\"]\n")));
        net.reached_within(START, "a", "b");
        net.reached_within(START, "b", "a");
        assert_eq!(net.via("a", "b"), Some("c"));
        net.finish();
    });
}
