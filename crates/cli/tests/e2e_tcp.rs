//! Two nodes, the real binary, a real TUN interface: pings and verified TCP over IPv4 and IPv6.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::net::SocketAddr;

use common::{Pair, Underlay, assert_pings, assert_transfer};
use weft_os::test_support::in_namespaces;

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
        let status = own.peer(&peer.identity().npub).unwrap().unwrap();
        assert_eq!(status["state"], "payload");
        let path: SocketAddr = status["path"]["addr"].as_str().unwrap().parse().unwrap();
        assert_eq!(path, SocketAddr::new(underlay.parse().unwrap(), 2121), "{status}");
    }
    pair.finish();
}

#[test]
fn over_ipv4() {
    in_namespaces(|| both_ways(Underlay::V4));
}

#[test]
fn over_ipv6() {
    in_namespaces(|| both_ways(Underlay::V6));
}

#[test]
fn a_full_interface_mtu_passes_unfragmented() {
    in_namespaces(|| {
        use weft_lab::traffic::{PingOptions, Pinger};
        let pair = Pair::start(Underlay::V4, |_| {});
        // IPv6 and ICMPv6 headers take 48 bytes; an inner packet of FIPS frames has 1,203 (FIPS-NOTES).
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
