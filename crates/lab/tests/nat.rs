//! NAT boxes between two switches: mapping and filtering of each kind, with real sockets.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use weft_lab::host::Host;
use weft_lab::nat::{MappingLife, NatBox, NatConfig, NatKind};
use weft_lab::traffic::transfer;
use weft_lab::world::{Switch, World};
use weft_os::test_support::in_namespaces;

const MINUTE: Duration = Duration::from_secs(60);

/// Two hosts behind a NAT box at 203.0.113.1, and two outside.
struct Net {
    _world: World,
    lan: Switch,
    nat: NatBox,
    /// 10.0.0.2 and 10.0.0.3
    inside: [Host; 2],
    /// 203.0.113.7 and 203.0.113.8
    outside: [Host; 2],
}

impl Net {
    fn new(config: NatConfig) -> Self {
        let world = World::new().unwrap();
        let (lan, wan) = (world.switch("lan").unwrap(), world.switch("wan").unwrap());
        let nat = world
            .nat(config, (&lan, "10.0.0.1/24"), (&wan, "203.0.113.1/24"))
            .unwrap();
        let host = |name: &str, switch: &Switch, address: &str| {
            let host = world.host(name).unwrap();
            switch.connect(&host, &[address]).unwrap();
            host
        };
        let inside = [host("a", &lan, "10.0.0.2/24"), host("b", &lan, "10.0.0.3/24")];
        let outside = [host("x", &wan, "203.0.113.7/24"), host("y", &wan, "203.0.113.8/24")];
        for host in &inside {
            host.add_default_route(nat.inner()).unwrap();
        }
        Self {
            _world: world,
            lan,
            nat,
            inside,
            outside,
        }
    }
}

fn socket(host: &Host, port: u16) -> UdpSocket {
    let socket = host.run(|| UdpSocket::bind(("0.0.0.0", port)).unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    socket
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Sends `text` and waits for it at `to`; returns the source address that `to` sees.
fn pass(from: &UdpSocket, target: SocketAddr, to: &UdpSocket, text: &str) -> SocketAddr {
    from.send_to(text.as_bytes(), target).unwrap();
    let mut buf = [0; 100];
    let end = Instant::now() + MINUTE;
    loop {
        match to.recv_from(&mut buf) {
            Ok((len, source)) => {
                assert_eq!(&buf[..len], text.as_bytes());
                return source;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => assert!(Instant::now() < end, "{text} is lost"),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Whether the NAT box refuses what `from` sends to it, by its counters rather than by time.
fn refused(net: &Net, from: &UdpSocket, target: SocketAddr) -> bool {
    let before = net.nat.counts();
    from.send_to(b"knock", target).unwrap();
    let end = Instant::now() + MINUTE;
    loop {
        let now = net.nat.counts();
        if now.filtered + now.unmapped > before.filtered + before.unmapped {
            return true;
        }
        if now.r#in > before.r#in {
            return false;
        }
        assert!(Instant::now() < end, "the box has seen nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn each_kind_maps_and_filters_as_its_name_says() {
    in_namespaces(|| {
        use NatKind::{FullCone, PortRestricted, Restricted, Symmetric};
        // Refused: the contacted address from another port, and a stranger.
        for (kind, other_port, stranger) in [
            (FullCone, false, false),
            (Restricted, false, true),
            (PortRestricted, true, true),
            (Symmetric, true, true),
        ] {
            let net = Net::new(NatConfig::new(kind));
            let a = socket(&net.inside[0], 5000);
            let (x, x2) = (socket(&net.outside[0], 1000), socket(&net.outside[0], 1001));
            let y = socket(&net.outside[1], 1000);
            let outer = pass(&a, addr("203.0.113.7:1000"), &x, "out");
            assert_eq!(outer.ip(), net.nat.outer());
            assert_eq!(outer.port() == 5000, kind != Symmetric, "{kind:?}");
            assert_eq!(pass(&x, outer, &a, "back"), addr("203.0.113.7:1000"));
            assert_eq!(refused(&net, &x2, outer), other_port, "{kind:?}");
            assert_eq!(refused(&net, &y, outer), stranger, "{kind:?}");
            let again = pass(&a, addr("203.0.113.7:1000"), &x, "again");
            let second = pass(&a, addr("203.0.113.8:1000"), &y, "second");
            assert_eq!(again, outer);
            assert_eq!(second == outer, kind != Symmetric, "{kind:?}");
            // The former stranger is admitted at the port that has sent to it.
            assert!(!refused(&net, &y, second), "{kind:?}");
            // Two hosts with the same port get two outer ports.
            let b = socket(&net.inside[1], 5000);
            assert_ne!(pass(&b, addr("203.0.113.7:1000"), &x, "other"), outer);
            // No host has another outer port.
            assert!(refused(&net, &x, addr("203.0.113.1:9")));
        }
    });
}

#[test]
fn tcp_goes_out_and_not_in() {
    in_namespaces(|| {
        for kind in [NatKind::PortRestricted, NatKind::Symmetric] {
            let net = Net::new(NatConfig::new(kind));
            let [a, _] = &net.inside;
            let [x, _] = &net.outside;
            let report = transfer((a, x), "203.0.113.7".parse().unwrap(), 3_000_000, 1, MINUTE).unwrap();
            assert!(report.hash_ok);
            let outer = SocketAddr::new(net.nat.outer(), 80);
            let limit = Duration::from_millis(300);
            let refused = x.run(move || TcpStream::connect_timeout(&outer, limit)).unwrap();
            assert!(refused.is_err());
            assert!(net.nat.counts().unmapped > 0);
        }
    });
}

#[test]
fn hosts_behind_one_box_meet_by_their_outer_ports_only_where_it_hairpins() {
    in_namespaces(|| {
        for hairpin in [false, true] {
            let config = NatConfig {
                hairpin,
                ..NatConfig::new(NatKind::FullCone)
            };
            let net = Net::new(config);
            let (a, b) = (socket(&net.inside[0], 5000), socket(&net.inside[1], 6000));
            let x = socket(&net.outside[0], 1000);
            let outer_a = pass(&a, addr("203.0.113.7:1000"), &x, "a");
            let outer_b = pass(&b, addr("203.0.113.7:1000"), &x, "b");
            if hairpin {
                assert_eq!(pass(&a, outer_b, &b, "over the box"), outer_a);
                assert_eq!(net.nat.counts().hairpinned, 1);
            } else {
                let before = net.nat.counts().dropped;
                a.send_to(b"lost", outer_b).unwrap();
                wait_until(|| net.nat.counts().dropped == before + 1);
            }
        }
    });
}

#[test]
fn a_mapping_ends_with_its_life_and_with_a_restart_of_the_box() {
    in_namespaces(|| {
        let life = MappingLife {
            udp_ms: 700,
            ..MappingLife::default()
        };
        let config = NatConfig {
            life,
            ..NatConfig::new(NatKind::Symmetric)
        };
        let net = Net::new(config);
        let (a, x) = (socket(&net.inside[0], 5000), socket(&net.outside[0], 1000));
        let first = pass(&a, addr("203.0.113.7:1000"), &x, "one");
        std::thread::sleep(Duration::from_secs(1));
        assert!(refused(&net, &x, first));
        let second = pass(&a, addr("203.0.113.7:1000"), &x, "two");
        assert_ne!(first, second);
        assert_eq!(net.nat.mappings(), 1);
        net.nat.forget();
        assert!(refused(&net, &x, second));
    });
}

#[test]
fn a_box_takes_its_ports_with_it() {
    in_namespaces(|| {
        let net = Net::new(NatConfig::new(NatKind::FullCone));
        let a = socket(&net.inside[0], 5000);
        let x = socket(&net.outside[0], 1000);
        pass(&a, addr("203.0.113.7:1000"), &x, "out");
        let ports = |switch: &Switch| switch.ports().unwrap();
        assert_eq!(ports(&net.lan), 3);
        drop(net.nat);
        assert_eq!(ports(&net.lan), 2);
    });
}

fn wait_until(mut done: impl FnMut() -> bool) {
    let end = Instant::now() + MINUTE;
    while !done() {
        assert!(Instant::now() < end, "nothing happened for a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}
