//! L14: a node that restarts is reached directly at once, although a relay is available; the same
//! holds in the other direction. How soon it is reached is a bound of the simulator
//! (crates/sim/tests/detour.rs).

use std::time::Duration;

use weft_lab::daemon::PeerState;

use crate::common::net::{Net, PINGS};
use crate::common::{PATIENCE, beside};

#[test]
fn a_restarted_node_is_direct_at_the_first_look() {
    beside(|| {
        let mut net = Net::new(&["a", "b", "c"]);
        net.start("c", &net.spec(""));
        net.start("a", &net.knowing(&["b", "c"], &[]));
        // B cannot dial A: it learns A's address from A.
        net.start("b", &net.knowing(&["c"], &["a"]));
        net.reached_within(PATIENCE, "a", "b");
        net.wait_direct(["a", "b"], PATIENCE);
        for restarted in ["a", "b", "a"] {
            net.node_mut(restarted).kill().unwrap();
            net.node_mut(restarted).restart().unwrap();
            net.node_mut(restarted).wait_ready(PATIENCE).unwrap();
            let other = if restarted == "a" { "b" } else { "a" };
            net.reached_within(PATIENCE, restarted, other);
            // The first check after payload passes.
            for (from, to) in [(restarted, other), (other, restarted)] {
                assert!(net.is_direct(from, to), "{}", net.peer(from, to));
                // That packets pass in both directions is known with the next sample.
                let npub = net.npub(to);
                let passes = net.node_mut(from).wait_peer(&npub, PeerState::Payload, PATIENCE);
                passes.unwrap();
            }
            for report in net.ping_both(["a", "b"], PINGS, Duration::from_secs(3)) {
                assert!(report.lost.is_empty(), "{report:?}");
            }
        }
        net.finish();
    });
}
