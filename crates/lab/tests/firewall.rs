//! Firewalls at an end of a cable, with real sockets over both IP versions.
#![allow(clippy::unwrap_used)]

use std::io::ErrorKind;
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use weft_lab::cable::EmulatedLink;
use weft_lab::emulator::{Cable, End, Impairments, Protection};
use weft_lab::firewall::{FirewallRules, Inbound};
use weft_lab::host::Host;
use weft_lab::traffic::{PingOptions, Pinger, transfer};
use weft_lab::world::World;
use weft_os::test_support::{in_namespaces, uninterrupted, wait_until};

const MINUTE: Duration = Duration::from_secs(60);

/// Two hosts, the first of which is protected, with an address of each IP version.
struct Net {
    _world: World,
    link: EmulatedLink,
    inside: Host,
    outside: Host,
}

const INSIDE: [&str; 2] = ["11.0.0.1", "2d00:11::1"];
const OUTSIDE: [&str; 2] = ["11.0.0.7", "2d00:11::7"];

impl Net {
    fn new(rules: FirewallRules) -> Self {
        let world = World::new().unwrap();
        let (inside, outside) = (world.host("a").unwrap(), world.host("x").unwrap());
        let delay = Impairments::delay(Duration::from_millis(5));
        let link = world.protected_link(
            (&inside, &["11.0.0.1/8", "2d00:11::1/64"]),
            (&outside, &["11.0.0.7/8", "2d00:11::7/64"]),
            Cable::both(delay),
            Some(Protection { end: End::A, rules }),
        );
        Self {
            link: link.unwrap(),
            inside,
            outside,
            _world: world,
        }
    }

    fn dropped(&self) -> [u64; 2] {
        let counts = self.link.firewall().unwrap();
        [counts.dropped_in, counts.dropped_out]
    }
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

fn socket(host: &Host, address: &str, port: u16) -> UdpSocket {
    let socket = host.run(|| UdpSocket::bind(at(address, port)).unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    socket
}

/// Sends and waits for that datagram, before which no other may arrive.
fn pass(from: &UdpSocket, to: &UdpSocket, text: &str) {
    from.send_to(text.as_bytes(), to.local_addr().unwrap()).unwrap();
    let mut buf = [0; 100];
    let end = Instant::now() + MINUTE;
    loop {
        match uninterrupted(|| to.recv_from(&mut buf)) {
            Ok((len, _)) => return assert_eq!(&buf[..len], text.as_bytes()),
            Err(error) => assert!(
                error.kind() == ErrorKind::WouldBlock && Instant::now() < end,
                "{text}: {error}"
            ),
        }
    }
}

/// The answers to three pings.
fn pinged(from: &Host, to: &str, grace: Duration) -> u64 {
    let options = PingOptions {
        interval: Duration::from_millis(20),
        count: Some(3),
        grace,
        ..PingOptions::default()
    };
    let to: Ipv6Addr = to.parse().unwrap();
    Pinger::start(from, to, options).unwrap().join().unwrap().received
}

#[test]
fn behind_a_stateful_firewall_only_answers_arrive() {
    in_namespaces(|| {
        let net = Net::new(FirewallRules {
            inbound: Inbound::Answers,
            ..FirewallRules::default()
        });
        for (inside, outside) in INSIDE.into_iter().zip(OUTSIDE) {
            let a = socket(&net.inside, inside, 5000);
            let [x, x2] = [1000, 1001].map(|port| socket(&net.outside, outside, port));
            let before = net.dropped()[0];
            x.send_to(b"knock", a.local_addr().unwrap()).unwrap();
            wait_until(MINUTE, "the knock is dropped", || net.dropped()[0] == before + 1);
            pass(&a, &x, "out");
            x2.send_to(b"knock", a.local_addr().unwrap()).unwrap();
            pass(&x, &a, "back");
            wait_until(MINUTE, "the other port is dropped", || net.dropped()[0] == before + 2);
            // TCP begins inside only.
            let hosts = (&net.inside, &net.outside);
            assert!(
                transfer(hosts, outside.parse().unwrap(), 3_000_000, 1, MINUTE)
                    .unwrap()
                    .hash_ok
            );
            let limit = Duration::from_millis(300);
            let refused = net
                .outside
                .run(|| TcpStream::connect_timeout(&at(inside, 80), limit))
                .unwrap();
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::TimedOut);
        }
        assert_eq!(pinged(&net.inside, OUTSIDE[1], MINUTE), 3);
        assert_eq!(pinged(&net.outside, INSIDE[1], Duration::from_millis(500)), 0);
        assert_eq!(net.dropped()[1], 0);
    });
}

#[test]
fn where_no_udp_passes_tcp_does() {
    in_namespaces(|| {
        let net = Net::new(FirewallRules {
            udp: false,
            ..FirewallRules::default()
        });
        for (inside, outside) in INSIDE.into_iter().zip(OUTSIDE) {
            let (a, x) = (socket(&net.inside, inside, 5000), socket(&net.outside, outside, 1000));
            let before = net.dropped();
            a.send_to(b"out", x.local_addr().unwrap()).unwrap();
            x.send_to(b"in", a.local_addr().unwrap()).unwrap();
            wait_until(MINUTE, "both are dropped", || {
                net.dropped() == [before[0] + 1, before[1] + 1]
            });
            let hosts = [
                (&net.inside, &net.outside, outside),
                (&net.outside, &net.inside, inside),
            ];
            for (from, to, target) in hosts {
                let report = transfer((from, to), target.parse().unwrap(), 3_000_000, 1, MINUTE);
                assert!(report.unwrap().hash_ok);
            }
        }
        let listener = net
            .inside
            .run(|| TcpListener::bind(at(INSIDE[1], 80)).unwrap())
            .unwrap();
        let stream = net
            .outside
            .run(|| TcpStream::connect_timeout(&at(INSIDE[1], 80), MINUTE));
        let peer = stream.unwrap().unwrap().local_addr().unwrap();
        assert_eq!(listener.accept().unwrap().1, peer);
    });
}
