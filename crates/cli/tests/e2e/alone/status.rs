//! The cost of status requests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use weft_lab::traffic::{PingOptions, Pinger};

use crate::common::{Pair, Underlay, alone};

/// Answers to a program that requests continuously are computed beside the packets, not before
/// them.
#[test]
#[ignore = "measures: .ci/long perf"]
fn asking_for_status_fifty_times_a_second_holds_up_no_packet() {
    /// A round trip in ms that the load of a machine rarely explains.
    const SLOW: f64 = 50.0;
    alone(|| {
        let mut pair = Pair::start(Underlay::V4, |_| {});
        pair.wait_payload();
        let (a, b) = (&pair.a, &pair.b);
        let asking = AtomicBool::new(false);
        let (done, asked) = (AtomicBool::new(false), AtomicU64::new(0));
        let options = PingOptions {
            count: Some(10),
            interval: Duration::from_millis(10),
            ..PingOptions::default()
        };
        let run = || {
            Pinger::start(a.host(), b.identity().address, options)
                .unwrap()
                .join()
                .unwrap()
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if asking.load(Ordering::Relaxed) {
                        drop((a.status().unwrap(), b.status().unwrap()));
                        asked.fetch_add(1, Ordering::Relaxed);
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            // Alternating, so that other load of the machine affects both halves.
            let mut slow = [0_usize; 2];
            for round in 0..6 {
                asking.store(round % 2 == 1, Ordering::Relaxed);
                for _ in 0..25 {
                    let report = run();
                    assert!(report.lost.is_empty(), "round {round}: {report:?}");
                    slow[round % 2] += usize::from(report.max_ms.is_none_or(|ms| ms > SLOW));
                }
            }
            done.store(true, Ordering::Relaxed);
            assert!(asked.load(Ordering::Relaxed) >= 100, "asked {asked:?} times");
            // A burst of 100 to 400 ms at one answer in ten would slow down nearly all.
            assert!(
                slow[1] <= slow[0] + 7,
                "{slow:?} of 75 trains have a ping above {SLOW} ms, the latter while asked"
            );
        });
        pair.finish();
    });
}
