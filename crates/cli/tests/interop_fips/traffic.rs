//! Pings and verified TCP in both directions, whichever node dials.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use weft_lab::traffic::PingOptions;
use weft_os::test_support::in_namespaces;

use crate::common::Underlay;
use crate::mixed::{Case, Dialler, Mixed, Side, binary};

const BYTES: u64 = 100_000_000;

/// The largest inner packet in a UDP payload of 1,280 bytes (docs/protocol/session.md, "Overhead and
/// MTU").
const MAX_INNER: usize = 1203;

/// Headers of IPv6 and ICMPv6.
const PING_HEADERS: usize = 48;

fn both_ways(fips: &Path, case: &Case) {
    let mixed = Mixed::start(fips, &Case { busy: true, ..*case });
    let Case { dialler, smaller, .. } = case;
    for from in [Side::Weft, Side::Fips] {
        let report = mixed.assert_pings(from);
        let (avg, max) = (report.avg_ms.unwrap(), report.max_ms.unwrap());
        println!("{dialler:?} dials, {smaller:?} is smaller: ping from {from:?} {avg:.2} ms, at most {max:.2} ms");
    }
    for from in [Side::Weft, Side::Fips] {
        let options = PingOptions {
            payload: MAX_INNER - PING_HEADERS,
            interval: Duration::from_millis(20),
            count: Some(5),
            ..PingOptions::default()
        };
        let report = mixed.pinger(from, options).join().unwrap();
        assert!(report.lost.is_empty(), "full-size pings of {from:?}: {report:?}");
    }
    for from in [Side::Weft, Side::Fips] {
        let report = mixed.assert_transfer(from, BYTES);
        let (rate, stall) = (report.mbit_s, report.longest_stall_ms);
        println!("{dialler:?} dials: 100 MB from {from:?} at {rate:.0} Mbit/s, longest stall {stall:.0} ms");
    }
    let [link, session] = mixed.rekeys();
    println!("{dialler:?} dials: {link} link and {session} session rekeys meanwhile");

    let status = mixed.status();
    assert_eq!(status["state"], "payload", "{status}");
    let path: SocketAddr = status["path"]["addr"].as_str().unwrap().parse().unwrap();
    let underlay = case.underlay.addresses()[1].parse().unwrap();
    assert_eq!(path, SocketAddr::new(underlay, 2121), "{status}");
    assert_eq!(mixed.fips_peer()["consecutive_decrypt_failures"], 0);
    mixed.finish();
}

#[test]
fn weft_dials() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| both_ways(&fips, &Case::new(Dialler::Weft, Side::Weft)));
}

#[test]
fn fips_dials() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| both_ways(&fips, &Case::new(Dialler::Fips, Side::Weft)));
}

#[test]
fn both_dial_and_weft_wins() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| both_ways(&fips, &Case::new(Dialler::Both, Side::Weft)));
}

#[test]
fn both_dial_and_fips_wins() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| both_ways(&fips, &Case::new(Dialler::Both, Side::Fips)));
}

#[test]
fn over_ipv6() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| {
        both_ways(
            &fips,
            &Case {
                underlay: Underlay::V6,
                ..Case::new(Dialler::Weft, Side::Fips)
            },
        );
    });
}
