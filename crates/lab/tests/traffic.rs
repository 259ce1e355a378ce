//! The traffic generators and the UDP relay, over a plain cable.
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use weft_lab::cable::Direction;
use weft_lab::host::Host;
use weft_lab::relay::{Leg, RelayError, UdpRelay, Verdict, drop_first, pass};
use weft_lab::traffic::{
    Limit, PingOptions, Pinger, ProbeReport, TcpFlow, TrafficError, UdpFlow, UdpOptions, transfer,
};
use weft_lab::world::{Link, World};
use weft_os::test_support::{in_namespaces, uninterrupted, wait_until};

const A: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
const B: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2));
const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const MINUTE: Duration = Duration::from_secs(60);

fn pair() -> (World, Host, Host, Link) {
    let world = World::new().unwrap();
    let (a, b) = (world.host("a").unwrap(), world.host("b").unwrap());
    let link = world
        .link(
            (&a, &["192.0.2.1/24", "2001:db8::1/64"]),
            (&b, &["192.0.2.2/24", "2001:db8::2/64"]),
        )
        .unwrap();
    (world, a, b, link)
}

#[test]
fn tcp_both_ways_and_both_ip_versions() {
    in_namespaces(|| {
        let (_world, a, b, _link) = pair();
        for (hosts, addr) in [((&a, &b), B), ((&b, &a), A), ((&a, &b), "192.0.2.2".parse().unwrap())] {
            let report = transfer(hosts, addr, 3_000_001, 1, MINUTE).unwrap();
            assert!(report.hash_ok);
            assert_eq!(report.bytes, 3_000_001);
            assert!(report.mbit_s > 0.0 && report.seconds > 0.0);
        }
        let nothing = transfer((&a, &b), B, 0, 1, MINUTE).unwrap();
        assert!(nothing.hash_ok && nothing.bytes == 0);
    });
}

#[test]
fn a_tcp_flow_runs_until_it_is_stopped_and_reports_its_stall() {
    in_namespaces(|| {
        let (_world, a, b, link) = pair();
        let flow = TcpFlow::start((&a, &b), B, Limit::Stopped, 2, MINUTE).unwrap();
        wait_until(MINUTE, "the flow passes", || flow.received() > 1_000_000);
        link.cut().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let before = flow.received();
        link.heal().unwrap();
        wait_until(MINUTE, "the flow passes again", || flow.received() > before + 1_000_000);
        let report = flow.stop().unwrap();
        assert!(report.hash_ok);
        assert!(report.longest_stall_ms >= 250.0, "{report:?}");
    });
}

#[test]
fn tcp_fails_in_words_and_in_time() {
    in_namespaces(|| {
        let (_world, a, b, link) = pair();
        let nowhere = transfer((&a, &b), "192.0.2.99".parse().unwrap(), 1, 1, MINUTE);
        assert!(matches!(nowhere, Err(TrafficError::Socket { .. })), "{nowhere:?}");
        link.cut().unwrap();
        let v4 = "192.0.2.2".parse().unwrap();
        let cut = transfer((&a, &b), v4, 1, 1, Duration::from_millis(300));
        assert!(matches!(cut, Err(TrafficError::Connect { .. })), "{cut:?}");
        link.heal().unwrap();
        // On a busy machine nothing may have passed by an early deadline.
        let mut ended = [1, 5, 25].into_iter().map(|seconds| {
            let deadline = Duration::from_secs(seconds);
            let endless = TcpFlow::start((&a, &b), B, Limit::Stopped, 1, deadline);
            endless.unwrap().join()
        });
        let in_words = ended.any(|result| {
            eprintln!("{result:?}");
            matches!(
                result,
                Err(TrafficError::Deadline {
                    end: "receiver",
                    bytes: 1..,
                    ..
                })
            )
        });
        assert!(in_words, "no endless flow failed at its deadline with what had passed");
    });
}

/// What a pinger reports that pings before, during and after a cut of 400 ms.
fn pings_through_a_cut(a: &Host, link: &Link) -> ProbeReport {
    let options = PingOptions {
        interval: Duration::from_millis(20),
        grace: Duration::from_millis(200),
        ..PingOptions::default()
    };
    let pinger = Pinger::start(a, B6, options).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    link.cut().unwrap();
    std::thread::sleep(Duration::from_millis(400));
    link.heal().unwrap();
    std::thread::sleep(Duration::from_millis(400));
    pinger.stop().unwrap()
}

#[test]
fn a_pinger_accounts_for_a_cut() {
    in_namespaces(|| {
        let (_world, a, _b, link) = pair();
        wait_until(
            MINUTE,
            "the pinger gets a processor before, during and after a cut",
            || {
                let report = pings_through_a_cut(&a, &link);
                assert_eq!(report.sent, report.received + report.lost.len() as u64);
                if let (Some(min), Some(avg)) = (report.min_ms, report.avg_ms) {
                    assert!(min <= avg, "{report:?}");
                }
                let shows_it = !report.lost.is_empty() && report.longest_gap_ms >= 380.0 && report.min_ms.is_some();
                if !shows_it {
                    eprintln!("{report:?}");
                }
                shows_it
            },
        );
    });
}

#[test]
fn two_pingers_on_one_host_do_not_mix() {
    in_namespaces(|| {
        let (_world, a, _b, _link) = pair();
        let options = PingOptions {
            interval: Duration::from_millis(5),
            count: Some(40),
            payload: 1000,
            grace: MINUTE,
            ..PingOptions::default()
        };
        let pingers: Vec<Pinger> = [B6, Ipv6Addr::LOCALHOST]
            .map(|target| Pinger::start(&a, target, options).unwrap())
            .into_iter()
            .collect();
        for pinger in pingers {
            let report = pinger.join().unwrap();
            assert_eq!((report.sent, report.received, report.duplicates), (40, 40, 0));
        }
    });
}

#[test]
fn a_udp_flow_loses_nothing_on_a_cable_and_something_in_a_cut() {
    in_namespaces(|| {
        let (_world, a, b, link) = pair();
        let options = |grace| UdpOptions {
            interval: Duration::from_millis(2),
            grace,
            ..UdpOptions::default()
        };
        let flow = UdpFlow::start((&a, &b), B, options(MINUTE)).unwrap();
        wait_until(MINUTE, "fifty datagrams are sent", || flow.sent() > 50);
        let report = flow.stop().unwrap();
        assert_eq!((report.received, report.reordered), (report.sent, 0));

        let flow = UdpFlow::start((&a, &b), B, options(Duration::from_millis(100))).unwrap();
        wait_until(MINUTE, "ten datagrams are sent", || flow.sent() > 10);
        link.cut().unwrap();
        let at_cut = flow.sent();
        wait_until(MINUTE, "ten more are sent", || flow.sent() > at_cut + 10);
        assert!(flow.stop().unwrap().lost.len() >= 10);
    });
}

/// Two hosts with the relay between them configured as each other, and a socket on each.
struct Relayed {
    _world: World,
    middle: Host,
    a: UdpSocket,
    b: UdpSocket,
    legs: (Leg, Leg),
}

impl Relayed {
    fn new() -> Self {
        let world = World::new().unwrap();
        let [a, middle, b] = ["a", "middle", "b"].map(|name| world.host(name).unwrap());
        world
            .link((&a, &["192.0.2.1/24"]), (&middle, &["192.0.2.254/24"]))
            .unwrap();
        world
            .link((&middle, &["198.51.100.254/24"]), (&b, &["198.51.100.2/24"]))
            .unwrap();
        let addr = |text: &str| text.parse::<SocketAddr>().unwrap();
        let leg = |local, peer| Leg {
            local: addr(local),
            peer: addr(peer),
        };
        let legs = (
            leg("192.0.2.254:2121", "192.0.2.1:2121"),
            leg("198.51.100.254:2121", "198.51.100.2:2121"),
        );
        let socket = |host: &Host, leg: Leg| {
            let socket = host
                .run(|| {
                    let socket = UdpSocket::bind(leg.peer).unwrap();
                    socket.connect(leg.local).unwrap();
                    socket
                })
                .unwrap();
            socket.set_read_timeout(Some(MINUTE)).unwrap();
            socket
        };
        let (a, b) = (socket(&a, legs.0), socket(&b, legs.1));
        Self {
            _world: world,
            middle,
            a,
            b,
            legs,
        }
    }

    fn relay(&self, rule: impl FnMut(Direction, &[u8]) -> Verdict + Send + 'static) -> UdpRelay {
        UdpRelay::start(&self.middle, self.legs.0, self.legs.1, rule).unwrap()
    }
}

/// The next datagram.
fn next(socket: &UdpSocket) -> Vec<u8> {
    let mut buf = [0; 2000];
    let len = uninterrupted(|| socket.recv(&mut buf)).unwrap();
    buf[..len].to_vec()
}

#[test]
fn the_relay_passes_drops_doubles_delays_and_flips() {
    in_namespaces(|| {
        let net = Relayed::new();
        let relay = net.relay(pass);
        net.a.send(b"hello").unwrap();
        assert_eq!(next(&net.b), b"hello");
        net.b.send(b"there").unwrap();
        assert_eq!(next(&net.a), b"there");

        relay.set_rule(drop_first(1, |direction, datagram| {
            direction == Direction::AToB && datagram == b"two"
        }));
        for text in [b"one", b"two", b"six", b"two"] {
            net.a.send(text).unwrap();
        }
        assert_eq!([next(&net.b), next(&net.b)], [b"one", b"six"]);
        assert_eq!(next(&net.b), b"two");

        relay.set_rule(|direction, _| match direction {
            Direction::AToB => Verdict::Duplicate,
            Direction::BToA => Verdict::Flip(7),
        });
        net.a.send(b"twice").unwrap();
        assert_eq!([next(&net.b), next(&net.b)], [b"twice", b"twice"]);
        net.b.send(b"a").unwrap();
        assert_eq!(next(&net.a), [b'a' ^ 1]);

        relay.set_rule(|_, datagram| match datagram {
            // Far more than between two datagrams that are sent at once.
            b"late" => Verdict::Delay(Duration::from_secs(1)),
            _ => Verdict::Pass,
        });
        net.a.send(b"late").unwrap();
        net.a.send(b"now").unwrap();
        assert_eq!([next(&net.b), next(&net.b)], [&b"now"[..], b"late"]);
        let counts = relay.counts();
        assert_eq!((counts.dropped, counts.duplicated, counts.delayed), (1, 1, 1));
        assert_eq!((counts.flipped, counts.failed), (1, 0));
    });
}

#[test]
fn the_relay_ends_and_frees_its_addresses() {
    in_namespaces(|| {
        let net = Relayed::new();
        let seen = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&seen);
        let relay = net.relay(move |_, _| {
            counter.fetch_add(1, Ordering::Relaxed);
            Verdict::Drop
        });
        let taken = UdpRelay::start(&net.middle, net.legs.0, net.legs.1, pass);
        assert!(matches!(taken, Err(RelayError::Bind { addr, .. }) if addr == net.legs.0.local));
        net.a.send(b"x").unwrap();
        wait_until(MINUTE, "the rule sees the datagram", || {
            seen.load(Ordering::Relaxed) > 0
        });
        drop(relay);
        assert_eq!(seen.load(Ordering::Relaxed), 1);
        let _again = net.relay(pass);
        net.a.send(b"y").unwrap();
        // What was dropped would have been the first.
        assert_eq!(next(&net.b), b"y");
    });
}
