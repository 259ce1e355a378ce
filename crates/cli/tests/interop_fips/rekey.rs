//! Two minutes of traffic in which both layers are rekeyed, and nothing is lost (L4).
//!
//! The flows are paced far below what the daemon can forward: under a flow at full rate its bounded
//! queues overflow by design, and a ping that is lost there is not evidence about keys.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use weft_lab::traffic::{Limit, PingOptions, TcpFlow, UdpFlow, UdpOptions};
use weft_os::assert_strict;
use weft_os::test_support::in_namespaces;

use crate::common::MINUTE;
use crate::mixed::{Case, Dialler, Mixed, NEVER_S, Side, binary};

const RUN: Duration = Duration::from_secs(120);
/// The daemon ignores a request within 30 s of the last one, and shifts its own by up to 15 s.
const INTERVAL_S: u32 = 35;
const AT_LEAST: u64 = 2;
/// Bytes per second of each TCP flow.
const PACE: u64 = 250_000;

/// Pings, a UDP and a TCP flow in each direction, for two minutes.
fn continuity(fips: &Path, mut case: Case, weft_rekey_s: u32, fips_rekey_s: u32) {
    (case.weft_rekey_s, case.fips_rekey_s) = (weft_rekey_s, fips_rekey_s);
    // Rekeys by age only.
    case.fips_rekey_after_messages = 1 << 40;
    let mixed = Mixed::start(fips, &case);
    let before = mixed.rekeys();
    let sides = [Side::Weft, Side::Fips];
    let pingers = sides.map(|from| {
        let options = PingOptions {
            interval: Duration::from_millis(200),
            grace: Duration::from_secs(5),
            ..PingOptions::default()
        };
        mixed.pinger(from, options)
    });
    let to = |from: Side| IpAddr::V6(mixed.address(from.other()));
    let udp = sides.map(|from| {
        let options = UdpOptions {
            payload: 1000,
            grace: Duration::from_secs(5),
            ..UdpOptions::default()
        };
        UdpFlow::start(mixed.hosts(from), to(from), options).unwrap()
    });
    let tcp = sides.map(|from| {
        let limit = Limit::Paced(PACE);
        TcpFlow::start(mixed.hosts(from), to(from), limit, 1, RUN + MINUTE).unwrap()
    });
    std::thread::sleep(RUN);

    let name = format!("{:?} dials, {:?} is smaller", case.dialler, case.smaller);
    let [link, session] = mixed.rekeys();
    let rekeys = [link - before[0], session - before[1]];
    println!("{name}: {} link and {} session rekeys", rekeys[0], rekeys[1]);
    let pings = pingers.map(|pinger| pinger.stop().unwrap());
    let udp = udp.map(|flow| flow.stop().unwrap());
    let tcp = tcp.map(|flow| flow.stop().unwrap());
    for (at, from) in sides.into_iter().enumerate() {
        let (ping, udp, tcp) = (&pings[at], &udp[at], &tcp[at]);
        println!(
            "{name}: from {from:?} pings {} sent, {} lost, longest gap {:.0} ms; UDP {} sent, {} lost; \
             TCP {:.1} MB, longest stall {:.0} ms",
            ping.sent,
            ping.lost.len(),
            ping.longest_gap_ms,
            udp.sent,
            udp.lost.len(),
            tcp.bytes as f64 * 1e-6,
            tcp.longest_stall_ms,
        );
    }
    for (ping, (udp, tcp)) in pings.iter().zip(udp.iter().zip(&tcp)) {
        assert!(ping.sent >= 590 && ping.lost.is_empty(), "pings: {ping:?}");
        assert!(udp.sent >= 10_000 && udp.lost.is_empty(), "UDP: {udp:?}");
        assert_strict!(tcp.hash_ok, "TCP: {tcp:?}");
        assert!(tcp.bytes > 20_000_000, "TCP: {tcp:?}");
    }
    assert!(rekeys.iter().all(|count| *count >= AT_LEAST), "{rekeys:?}");
    assert_eq!(mixed.fips_peer()["consecutive_decrypt_failures"], 0);
    mixed.finish();
}

#[test]
fn weft_dials_and_weft_rekeys() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| continuity(&fips, Case::new(Dialler::Weft, Side::Weft), INTERVAL_S, NEVER_S));
}

#[test]
fn weft_dials_and_fips_rekeys() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| continuity(&fips, Case::new(Dialler::Weft, Side::Weft), NEVER_S, INTERVAL_S));
}

#[test]
fn fips_dials_and_weft_rekeys() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| continuity(&fips, Case::new(Dialler::Fips, Side::Fips), INTERVAL_S, NEVER_S));
}

#[test]
fn fips_dials_and_fips_rekeys() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| continuity(&fips, Case::new(Dialler::Fips, Side::Fips), NEVER_S, INTERVAL_S));
}

#[test]
fn both_dial_and_both_rekey() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| continuity(&fips, Case::new(Dialler::Both, Side::Weft), INTERVAL_S, INTERVAL_S));
}

/// The daemon also replaces keys after 65,536 messages: every few seconds in a flow at full rate.
/// Pings may be lost in its queues here; TCP must continue.
#[test]
fn fips_rekeys_by_messages_at_full_speed() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| {
        let mut case = Case::new(Dialler::Weft, Side::Fips);
        (case.weft_rekey_s, case.fips_rekey_s) = (NEVER_S, NEVER_S);
        case.busy = true;
        let mixed = Mixed::start(&fips, &case);
        let before = mixed.rekeys();
        let from = Side::Fips;
        let to = IpAddr::V6(mixed.address(from.other()));
        let pinger = mixed.pinger(from, PingOptions::default());
        let flow = TcpFlow::start(mixed.hosts(from), to, Limit::Stopped, 1, MINUTE).unwrap();
        std::thread::sleep(Duration::from_secs(20));
        let (tcp, ping) = (flow.stop().unwrap(), pinger.stop().unwrap());
        let after = mixed.rekeys();
        let rekeys = [after[0] - before[0], after[1] - before[1]];
        println!(
            "full speed from fips for 20 s: {} link and {} session rekeys, {:.0} Mbit/s, longest stall {:.0} ms, \
             pings {} sent, {} lost",
            rekeys[0],
            rekeys[1],
            tcp.mbit_s,
            tcp.longest_stall_ms,
            ping.sent,
            ping.lost.len(),
        );
        assert!(
            tcp.hash_ok && rekeys.iter().all(|count| *count >= AT_LEAST),
            "{rekeys:?}"
        );
        assert!(tcp.longest_stall_ms < 1000.0, "{tcp:?}");
        mixed.finish();
    });
}
