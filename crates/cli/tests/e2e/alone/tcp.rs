//! Two nodes, the real binary, a real TUN interface: pings and verified TCP over IPv4 and IPv6.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weft_lab::daemon::Daemon;

use crate::common::{PATIENCE, Pair, Underlay, alone, assert_pings, assert_transfer, reached_within, wait_until};

const BYTES: u64 = 20_000_000;

fn both_ways(underlay: Underlay) {
    let pair = Pair::start(underlay, |_| {});
    assert_pings(&pair.a, &pair.b);
    assert_pings(&pair.b, &pair.a);
    assert_transfer(&pair.a, &pair.b, BYTES);
    assert_transfer(&pair.b, &pair.a, BYTES);
    for (own, peer, underlay) in [
        (&pair.a, &pair.b, underlay.addresses()[1]),
        (&pair.b, &pair.a, underlay.addresses()[0]),
    ] {
        let status = || own.peer(&peer.identity().npub).unwrap().unwrap();
        wait_until(PATIENCE, "status says that packets pass", || {
            // A report of the other end says what arrives there.
            reached_within(PATIENCE, own, peer);
            status()["state"] == "payload"
        });
        let status = status();
        let path: SocketAddr = status["path"]["addr"].as_str().unwrap().parse().unwrap();
        assert_eq!(path, SocketAddr::new(underlay.parse().unwrap(), 2121), "{status}");
    }
    pair.finish();
}

#[test]
fn over_ipv4() {
    alone(|| both_ways(Underlay::V4));
}

#[test]
fn over_ipv6() {
    alone(|| both_ways(Underlay::V6));
}

#[test]
fn a_full_interface_mtu_passes_unfragmented() {
    alone(|| {
        use weft_lab::traffic::{PingOptions, Pinger};
        let pair = Pair::start(Underlay::V4, |_| {});
        // IPv6 and ICMPv6 headers take 48 bytes; an inner packet of FIPS frames has 1,203
        // (docs/protocol/session.md, "Overhead and MTU").
        let options = PingOptions {
            payload: 1203 - 48,
            count: Some(5),
            ..PingOptions::default()
        };
        for (from, to) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
            let pinger = Pinger::start(from.host(), to.identity().address, options).unwrap();
            assert_eq!(pinger.join().unwrap().received, 5);
        }
        pair.finish();
    });
}

#[test]
fn the_same_bytes_arrive_without_offloads_and_status_says_why() {
    alone(|| {
        let pair = Pair::start(Underlay::V4, |spec| {
            if spec.peers[0].name == "b" {
                spec.settings.push(("udp.batch".to_owned(), 1.into()));
                spec.settings.push(("udp.gro".to_owned(), false.into()));
                spec.settings.push(("tun.offload".to_owned(), false.into()));
            } else {
                spec.settings.push(("udp.batch".to_owned(), 7.into()));
            }
        });
        assert_transfer(&pair.a, &pair.b, BYTES);
        assert_transfer(&pair.b, &pair.a, BYTES);
        let [a, b] = [&pair.a, &pair.b].map(counted);
        assert_eq!(
            a["node"]["offload"],
            json!({"tun": "off", "gso": "off", "gro": "off", "senders": "on", "batch": 1})
        );
        assert_eq!(a["node"]["tun"]["offloads"], json!([]));
        for unused in ["udp_gso_sends", "udp_gso_refusals", "udp_gro_receives", "tun_coalesced"] {
            assert_eq!(a["counters"][unused], 0, "{unused}");
        }
        assert_eq!(
            b["node"]["offload"],
            json!({"tun": "on", "gso": "on", "gro": "on", "senders": "on", "batch": 7})
        );
        let count = |name: &str| b["counters"][name].as_u64().unwrap();
        assert!(count("udp_gso_sends") > 0 && count("tun_coalesced") > 0, "{b}");
        pair.finish();
    });
}

#[test]
fn trains_are_no_longer_than_the_setting_says() {
    alone(|| {
        let pair = Pair::start(Underlay::V4, |spec| {
            spec.settings.push(("udp.batch".to_owned(), 7.into()));
        });
        assert_transfer(&pair.a, &pair.b, BYTES);
        // A veth passes trains on whole.
        let status = counted(&pair.b);
        let count = |name: &str| status["counters"][name].as_u64().unwrap();
        let (trains, in_trains) = (
            count("udp_gro_receives"),
            count("udp_segments_received") - count("udp_plain_receives"),
        );
        assert!(trains > 0 && in_trains <= 7 * trains, "{in_trains} in {trains}");
        assert!(in_trains > 3 * trains, "most are full: {in_trains} in {trains}");
        pair.finish();
    });
}

/// The status after its counters, which are sampled at intervals, include a whole transfer.
fn counted(daemon: &Daemon) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let status = daemon.status().unwrap();
        // Each has at most 1,410 bytes: a packet of 1,470 less the headers of IPv6 and TCP.
        if status["counters"]["udp_segments_received"].as_u64() > Some(BYTES / 1410) {
            return status;
        }
        assert!(Instant::now() < end, "{status}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
