//! Frames of the size of the path MTU: probes find it, it is reduced when such frames are lost, and
//! probes find it again.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use weft_lab::daemon::Daemon;
use weft_lab::emulator::{Cable, Impairments, TooBig};
use weft_lab::spec::DEFAULT_PORT;
use weft_lab::traffic::{Limit, PingOptions, Pinger, TcpFlow};
use weft_lab::world::World;

use crate::common::{
    MINUTE, PATIENCE, Pair, Underlay, WEFT, address, alone, assert_transfer, identity, reached_within, wait_until,
};
use weft_os::assert_strict;

/// Bytes of a packet in addition to the payload of a ping.
const HEADERS: usize = 48;

/// The path MTU from `own` to `peer`, and its source.
fn size(own: &Daemon, peer: &Daemon) -> (u64, String) {
    let status = own.peer(&peer.identity().npub).unwrap().unwrap_or_default();
    let size = &status["session"]["path_size"];
    let settled = size["searching"].as_bool() == Some(false);
    let bytes = size["bytes"].as_u64().filter(|_| settled).unwrap_or_default();
    (bytes, size["known"].as_str().unwrap_or_default().to_owned())
}

fn counter(own: &Daemon, name: &str) -> u64 {
    own.status().unwrap()["counters"][name].as_u64().unwrap()
}

/// Waits until both report that probes have found this size.
fn wait_size(a: &Daemon, b: &Daemon, bytes: u64) {
    let found = (bytes, "probed".to_owned());
    wait_until(PATIENCE, &format!("{bytes} bytes on the path"), || {
        size(a, b) == found && size(b, a) == found
    });
}

/// Waits until one reports it of its path to the peer.
fn wait_one(from: &Daemon, to: &Daemon, bytes: u64) {
    let found = (bytes, "probed".to_owned());
    wait_until(PATIENCE, &format!("{bytes} bytes on the path"), || {
        size(from, to) == found
    });
}

/// Pings of this size until one is answered.
fn ping_until(from: &Daemon, to: &Daemon, bytes: usize) {
    let options = PingOptions {
        payload: bytes - HEADERS,
        count: Some(5),
        interval: Duration::from_millis(50),
        ..PingOptions::default()
    };
    wait_until(PATIENCE, &format!("a packet of {bytes} bytes"), || {
        let pinger = Pinger::start(from.host(), to.identity().address, options).unwrap();
        pinger.join().unwrap().received > 0
    });
}

/// Pings of IP packets of this many bytes, none of which may be lost.
fn assert_packets_pass(from: &Daemon, to: &Daemon, bytes: usize) {
    let options = PingOptions {
        payload: bytes - HEADERS,
        count: Some(20),
        interval: Duration::from_millis(10),
        ..PingOptions::default()
    };
    let report = Pinger::start(from.host(), to.identity().address, options).unwrap();
    let report = report.join().unwrap();
    assert!(report.lost.is_empty() && report.received == 20, "{report:?}");
}

/// The default on a cable of 1,500 bytes: the MTU of the interface is that of the path, and such
/// packets pass in one frame.
fn whole(underlay: Underlay, path: u64) {
    let pair = Pair::start(underlay, |_| {});
    wait_size(&pair.a, &pair.b, path);
    let inner = usize::try_from(path - 2).unwrap();
    for (from, to) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
        assert_eq!(from.status().unwrap()["node"]["tun"]["mtu"].as_u64(), Some(1470));
        let pieces = counter(from, "fast_fragmented");
        assert_packets_pass(from, to, inner);
        assert_eq!(counter(from, "fast_fragmented"), pieces);
        assert_transfer(from, to, 20_000_000);
        assert_eq!(counter(from, "path_black_holes"), 0);
    }
    pair.finish();
}

#[test]
fn a_cable_of_1500_bytes_is_filled_over_ipv4() {
    alone(|| whole(Underlay::V4, 1472));
}

#[test]
fn a_cable_of_1500_bytes_is_filled_over_ipv6() {
    alone(|| whole(Underlay::V6, 1452));
}

/// The interface itself reports that its MTU is smaller: nothing larger is sent any more.
#[test]
fn an_interface_that_takes_less_is_followed() {
    alone(|| {
        let pair = Pair::start(Underlay::V4, |_| {});
        wait_size(&pair.a, &pair.b, 1472);
        let flow = TcpFlow::start(pair.hosts(), address(&pair.b), Limit::Stopped, 1, 3 * MINUTE).unwrap();
        wait_until(PATIENCE, "TCP", || flow.received() > 1_000_000);
        pair.link.a().set_mtu(1400).unwrap();
        pair.link.b().set_mtu(1400).unwrap();
        wait_one(&pair.a, &pair.b, 1372);
        assert_packets_pass(&pair.a, &pair.b, 1280);
        let before = flow.received();
        wait_until(PATIENCE, "TCP on the smaller path", || {
            flow.received() > before + 1_000_000
        });
        let tcp = flow.stop().unwrap();
        assert_strict!(tcp.hash_ok, "{tcp:?}");
        assert!(tcp.bytes > 0, "{tcp:?}");
        assert!(counter(&pair.a, "path_black_holes") >= 1);
        // The hosts agreed on larger segments than the path takes now.
        assert!(counter(&pair.a, "tcp_recut") > 0);
        // The peer has sent nothing large so far, and discovers the size with the first such
        // packets.
        ping_until(&pair.b, &pair.a, 1370);
        wait_size(&pair.a, &pair.b, 1372);
        assert_packets_pass(&pair.a, &pair.b, 1370);
        assert_transfer(&pair.a, &pair.b, 20_000_000);
        assert_transfer(&pair.b, &pair.a, 20_000_000);
        // The kernel itself decides whether it sends many at once or one by one; no refusal has
        // decided it permanently.
        let offload = pair.a.status().unwrap()["node"]["offload"]["gso"].clone();
        assert_eq!(offload, "on");
        pair.finish();
    });
}

/// A cable that takes 1,500 bytes, then silently drops all above 1,300, and recovers.
#[test]
fn a_black_hole_is_left_under_load_and_the_path_rises_again() {
    alone(|| {
        let world = World::new().unwrap();
        let hosts = ["a", "b"].map(|name| world.host(name).unwrap());
        let ends = ["192.0.2.1", "192.0.2.2"];
        let delay = Impairments::delay(Duration::from_millis(5));
        let link = world
            .emulated_link(
                (&hosts[0], &["192.0.2.1/24"]),
                (&hosts[1], &["192.0.2.2/24"]),
                Cable::both(delay),
            )
            .unwrap();
        let ids = ["a", "b"].map(|name| identity(&world, name));
        let [mut a, mut b] = [0, 1].map(|own| {
            let peer = &ids[1 - own];
            let at = SocketAddr::new(ends[1 - own].parse().unwrap(), DEFAULT_PORT);
            let mut spec = Underlay::V4.listener().with_peer(&peer.npub, &peer.name, &[at]);
            spec.settings.push(("udp.raise_s".to_owned(), 3.into()));
            let mut daemon = Daemon::start(&hosts[own], Path::new(WEFT), &ids[own], &spec).unwrap();
            daemon.wait_ready(PATIENCE).unwrap();
            daemon
        });
        reached_within(PATIENCE, &a, &b);
        wait_size(&a, &b, 1472);
        let flow = TcpFlow::start((a.host(), b.host()), address(&b), Limit::Stopped, 1, 3 * MINUTE).unwrap();
        wait_until(PATIENCE, "TCP", || flow.received() > 1_000_000);
        link.set_both(Impairments {
            mtu: Some(1300),
            too_big: TooBig::Silent,
            ..delay
        });
        // One direction has data and discovers it at once; the other has only acknowledgements,
        // which fit.
        wait_one(&a, &b, 1272);
        ping_until(&b, &a, 1280);
        wait_size(&a, &b, 1272);
        for (from, to) in [(&a, &b), (&b, &a)] {
            assert_packets_pass(from, to, 1280);
        }
        let grows = |what: &str| {
            let before = flow.received();
            wait_until(PATIENCE, what, || flow.received() > before + 1_000_000);
        };
        grows("TCP on the smaller path");
        link.set_both(delay);
        wait_size(&a, &b, 1472);
        grows("TCP on the larger path");
        let tcp = flow.stop().unwrap();
        assert_strict!(tcp.hash_ok, "{tcp:?}");
        assert!(tcp.bytes > 0, "{tcp:?}");
        assert!(counter(&a, "path_black_holes") >= 1);
        assert_packets_pass(&a, &b, 1470);
        for node in [&mut a, &mut b] {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
        }
    });
}

/// A configured size is used at once, and is not probed.
#[test]
fn a_set_size_is_used_at_once() {
    alone(|| {
        let pair = Pair::start(Underlay::V4, |spec| {
            spec.udp_mtu = Some(1400);
        });
        assert_eq!(size(&pair.a, &pair.b), (1400, "set".to_owned()));
        assert_eq!(pair.a.status().unwrap()["node"]["tun"]["mtu"].as_u64(), Some(1398));
        assert_packets_pass(&pair.a, &pair.b, 1398);
        assert_transfer(&pair.a, &pair.b, 5_000_000);
        assert_eq!(counter(&pair.a, "path_probes"), 0);
        pair.finish();
    });
}
