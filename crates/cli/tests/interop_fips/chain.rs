//! Two nodes without a link reach each other through one or two others, of either kind.

use std::path::Path;
use std::time::Duration;

use weft_os::test_support::in_namespaces;

use crate::mixed::{Side, binary};
use crate::net::{CONVERGED, Net, Node, Plan};

const BYTES: u64 = 100_000_000;
const PINGS: Duration = Duration::from_secs(10);

/// Pings and 100 MB of TCP between the ends of a chain, in both directions.
fn chain(fips: &Path, nodes: &[Side], root: usize) {
    let plan = Plan {
        busy: true,
        ..Plan::chain(nodes, root)
    };
    let net = Net::start(fips, &plan);
    let (name, last) = (&net.name, nodes.len() - 1);
    let times = [net.reach(0, last, CONVERGED), net.reach(last, 0, CONVERGED)];
    println!("{name}: first answers after {times:.2?}");
    for report in net.assert_pings([0, last], PINGS) {
        let (avg, max) = (report.avg_ms.unwrap(), report.max_ms.unwrap());
        println!(
            "{name}: {} pings, none lost, {avg:.2} ms, at most {max:.2} ms",
            report.sent
        );
    }
    for (from, to) in [(0, last), (last, 0)] {
        let report = net.assert_transfer(from, to, BYTES);
        let (rate, stall) = (report.mbit_s, report.longest_stall_ms);
        println!("{name}: 100 MB from {from} at {rate:.0} Mbit/s, longest stall {stall:.0} ms");
    }
    for (end, other, next) in [(0, last, 1), (last, 0, last - 1)] {
        if let Node::Weft(_) = net.nodes[end] {
            let status = net.peer(end, other);
            assert_eq!(status["state"], "payload", "{status}");
            assert_eq!(status["path"]["kind"], "relayed", "{status}");
            assert_eq!(status["path"]["via"], net.npub(next), "{status}");
        }
    }
    net.assert_understood();
    net.finish();
}

#[test]
fn weft_fips_weft() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| {
        for root in 0..2 {
            chain(&fips, &[Side::Weft, Side::Fips, Side::Weft], root);
        }
    });
}

#[test]
fn fips_weft_fips() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| {
        for root in 0..2 {
            chain(&fips, &[Side::Fips, Side::Weft, Side::Fips], root);
        }
    });
}

#[test]
fn weft_weft_fips() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| {
        for root in 0..3 {
            chain(&fips, &[Side::Weft, Side::Weft, Side::Fips], root);
        }
    });
}
