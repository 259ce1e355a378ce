//! Both layers are rekeyed every five seconds under load, and nothing is lost (L4).

use std::time::Duration;

use weft_lab::daemon::Daemon;
use weft_lab::traffic::{Limit, PingOptions, Pinger, TcpFlow};

use crate::common::{MINUTE, Pair, Underlay, address, beside};
use weft_os::assert_strict;

const INTERVAL_S: u32 = 5;
const RUN: Duration = Duration::from_secs(20);
/// The load in bytes a second: thousands of frames under each key, and room for the tests that run
/// beside this one.
const RATE: u64 = 5_000_000;
/// Of four that fit into the time. How many do is a bound of the simulator (crates/sim/tests/pair.rs).
const AT_LEAST: u64 = 2;

#[test]
fn rekeys_under_load_lose_no_ping() {
    beside(|| {
        let pair = Pair::start(Underlay::V4, |spec| spec.rekey_s = INTERVAL_S);
        let before = [rekeys(&pair.a, &pair.b), rekeys(&pair.b, &pair.a)];
        let flow = TcpFlow::start(pair.hosts(), address(&pair.b), Limit::Paced(RATE), 1, 3 * MINUTE).unwrap();
        let pingers = [(&pair.a, &pair.b), (&pair.b, &pair.a)].map(|(from, to)| {
            let options = PingOptions {
                interval: Duration::from_millis(200),
                grace: Duration::from_secs(5),
                ..PingOptions::default()
            };
            Pinger::start(from.host(), to.identity().address, options).unwrap()
        });
        std::thread::sleep(RUN);
        for pinger in pingers {
            let report = pinger.stop().unwrap();
            assert!(report.sent > 0 && report.lost.is_empty(), "{report:?}");
        }
        let tcp = flow.stop().unwrap();
        assert_strict!(tcp.hash_ok, "{tcp:?}");
        assert!(tcp.bytes > 0, "{tcp:?}");
        let after = [rekeys(&pair.a, &pair.b), rekeys(&pair.b, &pair.a)];
        for (before, after) in before.iter().zip(after) {
            for layer in 0..2 {
                assert!(after[layer] - before[layer] >= AT_LEAST, "{before:?} {after:?}");
            }
        }
        pair.finish();
    });
}

/// The number of rekeys of link and session, as the status has it.
fn rekeys(own: &Daemon, peer: &Daemon) -> [u64; 2] {
    let status = own.peer(&peer.identity().npub).unwrap().unwrap();
    ["link", "session"].map(|layer| {
        let count = status[layer]["rekeys"].as_u64();
        count.unwrap_or_else(|| panic!("no {layer}.rekeys in {status}"))
    })
}
