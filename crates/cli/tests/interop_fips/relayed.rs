//! Nodes without a link with each other while keys change, and relays and ends restart.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use weft_lab::traffic::{UdpFlow, UdpOptions};
use weft_os::test_support::in_namespaces;

use crate::mixed::{Side, binary};
use crate::net::{CONVERGED, DAEMONS_HEALED, Net, Plan, kilobyte_pings};

const RUN: Duration = Duration::from_secs(120);
/// The daemon ignores a request within 30 s of the last one, and shifts its own by up to 15 s.
const INTERVAL_S: u32 = 35;

/// The number of rekeys that a weft node has counted for its links, and for its session with
/// `other`.
fn rekeys(net: &Net, number: usize, other: usize) -> [u64; 2] {
    let status = net.nodes[number].weft().status().unwrap();
    let peers = status["peers"].as_array().unwrap();
    let count = |peer: &Value, layer: &str| peer[layer]["rekeys"].as_u64().unwrap_or(0);
    let links = peers.iter().map(|peer| count(peer, "link")).sum();
    let session = peers.iter().filter(|peer| peer["npub"] == net.npub(other));
    [links, session.map(|peer| count(peer, "session")).sum()]
}

/// Both layers are rekeyed during two minutes of pings and UDP packets, none of which is lost.
fn renewed(fips: &Path, nodes: &[Side], root: usize) {
    let mut plan = Plan::chain(nodes, root);
    (plan.weft_rekey_s, plan.fips_rekey_s) = (INTERVAL_S, INTERVAL_S);
    let net = Net::start(fips, &plan);
    let (name, last) = (&net.name, nodes.len() - 1);
    net.reach(0, last, CONVERGED);
    net.reach(last, 0, CONVERGED);
    let flows = [(0, last), (last, 0)].map(|(from, to)| {
        let options = UdpOptions {
            payload: 1000,
            grace: Duration::from_secs(5),
            ..UdpOptions::default()
        };
        let hosts = (net.host(from), net.host(to));
        UdpFlow::start(hosts, IpAddr::V6(net.address(to)), options).unwrap()
    });
    let pings = net.assert_pings([0, last], RUN);
    let flows = flows.map(|flow| flow.stop().unwrap());
    for (ping, udp) in pings.iter().zip(&flows) {
        println!(
            "{name}: {} pings, none lost, longest gap {:.0} ms; {} UDP packets, {} lost",
            ping.sent,
            ping.longest_gap_ms,
            udp.sent,
            udp.lost.len(),
        );
    }
    let ends = [(0, last), (last, 0)];
    for number in (0..nodes.len()).filter(|number| nodes[*number] == Side::Weft) {
        let end = ends.iter().find(|(end, _)| *end == number);
        let [links, session] = rekeys(&net, number, end.map_or(number, |(_, other)| *other));
        println!("{name}: {number} renewed the keys of its links {links} times, of its session {session} times");
        assert!(links >= 2 && (end.is_none() || session >= 2), "{name}: too few");
    }
    // On a link between two daemons packets are lost if the responder of a rekey is slow: it
    // switches to the new keys by a timer (docs/interoperation.md).
    let allowed = if nodes.windows(2).any(|link| link == [F, F]) {
        100
    } else {
        0
    };
    for udp in &flows {
        assert!(udp.sent >= 10_000 && udp.lost.len() <= allowed, "{name}: {udp:?}");
    }
    net.assert_understood();
    net.finish();
}

/// A node of a chain is killed while both ends ping each other, and comes back at once, after a
/// short time, and after the others have given up their links with it.
fn killed(fips: &Path, nodes: &[Side], victim: usize) {
    // Two daemons that lost each other's coordinates send nothing until their session has ended,
    // after 90 s.
    let limit = if [nodes[0], nodes[nodes.len() - 1]] == [F, F] {
        DAEMONS_HEALED
    } else {
        2 * CONVERGED
    };
    for (root, away) in [(0, 0), (victim, 8), (nodes.len() - 1, 40)] {
        let mut net = Net::start(fips, &Plan::chain(nodes, root));
        let last = nodes.len() - 1;
        let ends = [(0, last), (last, 0)];
        for (from, to) in ends {
            net.reach(from, to, CONVERGED);
        }
        let pingers = ends.map(|(from, to)| net.pinger(from, to, kilobyte_pings()));
        std::thread::sleep(Duration::from_secs(2));
        net.kill(victim);
        std::thread::sleep(Duration::from_secs(away));
        let since = Instant::now();
        net.restart(victim);
        let times = std::thread::scope(|scope| {
            let net = &net;
            let wait = move |(from, to)| scope.spawn(move || net.first_answer(from, to, since, limit));
            ends.map(wait).map(|thread| thread.join().unwrap())
        });
        println!("{}: {victim} killed for {away} s, answers after {times:.2?}", net.name);
        assert!(times.iter().all(Option::is_some), "{}: {times:?}", net.name);
        for pinger in pingers {
            pinger.stop().unwrap();
        }
        // A daemon that changes its position in the tree again loses its peer's coordinates again,
        // and sends nothing.
        let settled = (1..=12).find(|_| {
            let reports = net.pings([0, last], Duration::from_secs(5));
            reports.iter().all(|report| report.lost.is_empty())
        });
        println!("{}: no ping is lost in round {settled:?} of 5 s after that", net.name);
        assert!(settled.is_some(), "{}", net.name);
        net.assert_transfer(0, last, 1_000_000);
        net.assert_transfer(last, 0, 1_000_000);
        net.finish();
    }
}

const W: Side = Side::Weft;
const F: Side = Side::Fips;

#[test]
fn keys_change_over_fips() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| renewed(&fips, &[W, F, W], 1));
}

#[test]
fn keys_change_over_weft_between_daemons() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| renewed(&fips, &[F, W, F], 0));
}

#[test]
fn keys_change_over_weft_between_both() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| renewed(&fips, &[W, W, F], 1));
}

#[test]
fn keys_change_over_fips_between_both() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| renewed(&fips, &[W, F, F], 2));
}

#[test]
fn fips_relay_is_killed() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| killed(&fips, &[W, F, W], 1));
}

#[test]
fn weft_relay_is_killed() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| killed(&fips, &[W, W, F], 1));
}

#[test]
fn weft_relay_between_daemons_is_killed() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| killed(&fips, &[F, W, F], 1));
}

#[test]
#[ignore = "daemons alone, for comparison"]
fn fips_relay_between_daemons_is_killed() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| killed(&fips, &[F, F, F], 1));
}

#[test]
fn fips_end_behind_weft_is_killed() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| killed(&fips, &[W, W, F], 2));
}

#[test]
fn weft_end_behind_fips_is_killed() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| killed(&fips, &[W, F, F], 0));
}
