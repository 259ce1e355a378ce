//! L12: with UDP between A and B blocked, both reach each other through C. Both cases run at once,
//! each in a world of its own. How soon they do is a bound of the simulator (crates/sim/tests/detour.rs).

use std::time::Duration;

use weft_lab::traffic::ProbeReport;

use crate::common::net::{Net, PINGS};
use crate::common::{PATIENCE, beside, wait_until};

/// The time without a lost ping.
const STEADY: Duration = Duration::from_secs(5);

#[test]
fn a_block_between_two_is_gone_round_and_left_when_it_ends() {
    beside(|| {
        std::thread::scope(|scope| {
            let blocked = scope.spawn(started_blocked);
            let cut = scope.spawn(cut_while_running);
            for case in [blocked, cut] {
                if let Err(panic) = case.join() {
                    std::panic::resume_unwind(panic);
                }
            }
        });
    });
}

/// A and B know each other's address and C's. C has no peers configured.
fn started(apart: bool) -> Net {
    let mut net = Net::new(&["a", "b", "c"]);
    net.keep_apart(&["a", "b"], apart);
    net.start("c", &net.spec(""));
    net.start("a", &net.knowing(&["b", "c"], &[]));
    net.start("b", &net.knowing(&["a", "c"], &[]));
    net.reached_within(PATIENCE, "a", "b");
    net.reached_within(PATIENCE, "b", "a");
    net
}

fn started_blocked() {
    let net = started(true);
    steady_and_back(net);
}

fn cut_while_running() {
    let net = started(false);
    net.wait_direct(["a", "b"], PATIENCE);
    assert_lossless(&net.ping_both(["a", "b"], PINGS, Duration::from_secs(3)));
    let pingers = [("a", "b"), ("b", "a")].map(|(from, to)| net.ping(from, to, PINGS));
    std::thread::sleep(Duration::from_secs(2));
    net.keep_apart(&["a", "b"], true);
    for (from, to) in [("a", "b"), ("b", "a")] {
        wait_until(PATIENCE, "the cut is gone round", || net.via(from, to) == Some("c"));
        net.reached_within(PATIENCE, from, to);
    }
    for report in pingers.map(|pinger| pinger.stop().unwrap()) {
        eprintln!(
            "the cut cost {} pings, {:.0} ms",
            report.lost.len(),
            report.longest_gap_ms
        );
    }
    steady_and_back(net);
}

/// Through C without a loss, then direct again.
fn steady_and_back(net: Net) {
    assert_lossless(&net.ping_both(["a", "b"], PINGS, STEADY));
    for (from, to) in [("a", "b"), ("b", "a")] {
        wait_until(PATIENCE, "status says that packets pass through C", || {
            // A report of the other end says what arrives there.
            net.reached_within(PATIENCE, from, to);
            net.via(from, to) == Some("c") && net.peer(from, to)["state"] == "payload"
        });
    }
    let pingers = [("a", "b"), ("b", "a")].map(|(from, to)| net.ping(from, to, PINGS));
    net.keep_apart(&["a", "b"], false);
    net.wait_direct(["a", "b"], PATIENCE);
    std::thread::sleep(Duration::from_secs(2));
    assert_lossless(&pingers.map(|pinger| pinger.stop().unwrap()));
    net.finish();
}

fn assert_lossless(reports: &[ProbeReport; 2]) {
    for report in reports {
        assert!(report.sent > 0 && report.lost.is_empty(), "{report:?}");
    }
}
