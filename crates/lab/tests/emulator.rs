//! Emulated cables with real kernels at both ends.
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use weft_lab::cable::Direction;
use weft_lab::emulator::{Cable, Impairments, TooBig};
use weft_lab::host::Host;
use weft_lab::traffic::{Limit, PingOptions, Pinger, ProbeReport, TcpFlow, transfer};
use weft_lab::world::{EmulatedLink, World};
use weft_os::test_support::{in_namespaces, wait_until};

const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const MINUTE: Duration = Duration::from_secs(60);
/// How long an answer that must not come is waited for.
const SILENCE: Duration = Duration::from_millis(500);

/// Sends `count` pings and waits for their answers, at most for a minute.
fn ping(from: &Host, to: Ipv6Addr, count: u64) -> ProbeReport {
    let options = PingOptions {
        interval: Duration::from_millis(10),
        count: Some(count),
        grace: MINUTE,
        ..PingOptions::default()
    };
    Pinger::start(from, to, options).unwrap().join().unwrap()
}

/// Whether no ping with this payload is answered.
fn is_silent(from: &Host, to: Ipv6Addr, payload: usize) -> bool {
    let options = PingOptions {
        payload,
        interval: Duration::from_millis(10),
        count: Some(2),
        grace: SILENCE,
        ..PingOptions::default()
    };
    Pinger::start(from, to, options).unwrap().join().unwrap().received == 0
}

fn pair(cable: Cable) -> (World, Host, Host, EmulatedLink) {
    let world = World::new().unwrap();
    let (a, b) = (world.host("a").unwrap(), world.host("b").unwrap());
    let link = world
        .emulated_link(
            (&a, &["192.0.2.1/24", "2001:db8::1/64"]),
            (&b, &["192.0.2.2/24", "2001:db8::2/64"]),
            cable,
        )
        .unwrap();
    (world, a, b, link)
}

#[test]
fn a_delay_is_in_every_round_trip_and_changes_at_run_time() {
    in_namespaces(|| {
        let (_world, a, b, link) = pair(Cable::both(Impairments::delay(Duration::from_millis(20))));
        for (from, to) in [(&a, B6), (&b, A6)] {
            let report = ping(from, to, 10);
            assert_eq!(report.received, 10);
            assert!(report.min_ms.unwrap() >= 40.0, "{report:?}");
        }
        link.set(Direction::AToB, Impairments::default());
        // A busy machine adds to the delay, but not of every ping.
        wait_until(MINUTE, "a ping has the delay of one direction", || {
            let report = ping(&a, B6, 10);
            assert!(report.min_ms.unwrap() >= 20.0, "{report:?}");
            report.min_ms.unwrap() < 40.0
        });
    });
}

#[test]
fn chance_has_its_share_in_both_directions_apart() {
    in_namespaces(|| {
        let (_world, a, _b, link) = pair(Cable::both(Impairments::default()));
        // The neighbour query must not be the lost packet: it is repeated only a second later.
        assert_eq!(ping(&a, B6, 1).received, 1);
        link.set(Direction::AToB, Impairments::loss(0.2));
        let doubled = Impairments {
            duplicate: 0.5,
            ..Impairments::default()
        };
        link.set(Direction::BToA, doubled);
        let options = PingOptions {
            interval: Duration::from_millis(1),
            count: Some(1000),
            ..PingOptions::default()
        };
        let report = Pinger::start(&a, B6, options).unwrap().join().unwrap();
        assert!((700..900).contains(&report.received), "{report:?}");
        assert!((300..500).contains(&report.duplicates), "{report:?}");
        let (out, back) = (link.counts(Direction::AToB), link.counts(Direction::BToA));
        assert!(out.lost >= 1000 - report.received && out.duplicated == 0, "{out:?}");
        assert!(back.lost == 0 && back.duplicated >= report.duplicates, "{back:?}");
    });
}

#[test]
fn tcp_keeps_to_the_rate_and_survives_loss_and_reordering() {
    in_namespaces(|| {
        let narrow = Impairments {
            rate: Some(20_000_000),
            queue: 100_000,
            loss: 0.002,
            reorder: 0.005,
            reorder_by: Duration::from_millis(2),
            ..Impairments::delay(Duration::from_millis(5))
        };
        // With this seed each direction loses one of its first five hundred frames.
        let cable = Cable {
            seed: 7,
            ..Cable::both(narrow)
        };
        let (_world, a, b, link) = pair(cable);
        for (hosts, to) in [((&a, &b), B6), ((&b, &a), A6)] {
            let report = transfer(hosts, IpAddr::V6(to), 2_000_000, 1, MINUTE).unwrap();
            assert!(report.hash_ok && report.mbit_s < 20.0, "{report:?}");
        }
        let counts = link.counts(Direction::AToB);
        assert!(counts.reordered > 0 && counts.lost > 0, "{counts:?}");
    });
}

#[test]
fn a_dead_direction_keeps_its_carrier() {
    in_namespaces(|| {
        let (_world, a, b, link) = pair(Cable::both(Impairments::default()));
        let flow = TcpFlow::start((&a, &b), IpAddr::V6(B6), Limit::Stopped, 1, MINUTE).unwrap();
        wait_until(MINUTE, "the flow passes", || flow.received() > 100_000);
        link.set(Direction::AToB, Impairments::loss(1.0));
        let lost = link.counts(Direction::AToB).lost;
        wait_until(MINUTE, "the flow is lost", || {
            link.counts(Direction::AToB).lost > lost + 2
        });
        assert!(a.netlink(|netlink| netlink.interface("eth0")).unwrap().usable);
        link.set(Direction::AToB, Impairments::default());
        let before = flow.received();
        wait_until(MINUTE, "the flow passes again", || flow.received() > before + 100_000);
        assert!(flow.stop().unwrap().hash_ok);
        link.a().cut().unwrap();
        assert!(is_silent(&b, A6, 56));
        link.a().heal().unwrap();
        assert_eq!(ping(&b, A6, 2).received, 2);
    });
}

/// Traffic through a hole of 1,280 bytes: pings up to that size pass, and so does TCP if the sender
/// is notified.
#[test]
fn an_mtu_hole_swallows_what_is_larger_and_says_so_if_it_shall() {
    in_namespaces(|| {
        let (_world, a, b, link) = pair(Cable::both(Impairments::mtu(1280, TooBig::Silent)));
        // Echo: 40 bytes of IPv6 and 8 of ICMPv6 around the payload.
        let largest = PingOptions {
            payload: 1232,
            count: Some(2),
            grace: MINUTE,
            ..PingOptions::default()
        };
        let report = Pinger::start(&a, B6, largest).unwrap().join().unwrap();
        assert_eq!(report.received, 2);
        assert!(is_silent(&a, B6, 1233));
        let silent = transfer((&a, &b), IpAddr::V6(B6), 100_000, 1, SILENCE);
        assert!(silent.is_err(), "{silent:?}");
        link.set_both(Impairments::mtu(1280, TooBig::Icmp));
        for (hosts, to) in [((&a, &b), IpAddr::V6(B6)), ((&b, &a), "192.0.2.1".parse().unwrap())] {
            let report = transfer(hosts, to, 1_000_000, 1, MINUTE).unwrap();
            assert!(report.hash_ok);
        }
        assert!(link.counts(Direction::AToB).too_big > 0);

        // A UDP socket that sets DF learns the MTU, too.
        let socket = a.run(|| UdpSocket::bind("192.0.2.1:0").unwrap()).unwrap();
        socket.connect("192.0.2.2:9").unwrap();
        let too_long = vec![0; 1253];
        wait_until(MINUTE, "the socket learns the MTU", || socket.send(&too_long).is_err());
    });
}
