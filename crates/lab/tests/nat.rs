//! NAT boxes between two switches: mapping and filtering of each kind, with real sockets.
#![allow(clippy::unwrap_used, clippy::panic)]

mod datagrams;

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use weft_lab::host::Host;
use weft_lab::nat::{Behaviour, Dependence, MappingLife, NatBox, NatConfig, NatKind, PortAssignment};
use weft_lab::traffic::transfer;
use weft_lab::world::{Switch, World};
use weft_os::test_support::{in_namespaces, wait_until};

use self::datagrams::{addr, pass, socket};

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

/// Whether the NAT box refuses what `from` sends to it, by its counters rather than by time.
fn refused(net: &Net, from: &UdpSocket, target: SocketAddr) -> bool {
    let before = net.nat.counts();
    from.send_to(b"knock", target).unwrap();
    let end = Instant::now() + MINUTE;
    loop {
        let late = Instant::now() >= end;
        let now = net.nat.counts();
        if now.filtered + now.unmapped > before.filtered + before.unmapped {
            return true;
        }
        if now.r#in > before.r#in {
            return false;
        }
        assert!(!late, "the box has seen nothing for a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn each_kind_maps_and_filters_as_its_name_says() {
    in_namespaces(|| {
        // Refused: the contacted address from another port, and a stranger. Kept: the inner port, and the
        // outer one towards another host.
        for (kind, [other_port, stranger], [inner, outer_port]) in [
            (NatKind::FullCone, [false, false], [true, true]),
            (NatKind::Restricted, [false, true], [true, true]),
            (NatKind::PortRestricted, [true, true], [true, true]),
            (NatKind::Symmetric, [true, true], [false, false]),
            (NatKind::SymmetricPreserving, [true, true], [true, true]),
            (NatKind::SymmetricRandom, [true, true], [false, false]),
        ] {
            let net = Net::new(NatConfig::new(kind));
            let a = socket(&net.inside[0], 5000);
            let (x, x2) = (socket(&net.outside[0], 1000), socket(&net.outside[0], 1001));
            let y = socket(&net.outside[1], 1000);
            let outer = pass(&a, addr("203.0.113.7:1000"), &x, "out");
            assert_eq!(outer.ip(), net.nat.outer());
            assert_eq!(outer.port() == 5000, inner, "{kind:?}");
            assert_eq!(pass(&x, outer, &a, "back"), addr("203.0.113.7:1000"));
            assert_eq!(refused(&net, &x2, outer), other_port, "{kind:?}");
            assert_eq!(refused(&net, &y, outer), stranger, "{kind:?}");
            let again = pass(&a, addr("203.0.113.7:1000"), &x, "again");
            let second = pass(&a, addr("203.0.113.8:1000"), &y, "second");
            assert_eq!(again, outer);
            assert_eq!(second == outer, outer_port, "{kind:?}");
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
            wait_until(MINUTE, "the box sees the connection", || net.nat.counts().unmapped > 0);
        }
    });
}

#[test]
fn hosts_of_one_nat_meet_by_outer_ports_only_if_it_hairpins() {
    in_namespaces(|| {
        for hairpin in [false, true] {
            let behaviour = Behaviour {
                hairpin,
                ..NatKind::FullCone.behaviour()
            };
            let net = Net::new(NatConfig::behaving(behaviour));
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
                wait_until(MINUTE, "the box drops it", || net.nat.counts().dropped == before + 1);
            }
        }
    });
}

/// With mappings that last 700 ms.
fn short_lived(behaviour: Behaviour) -> Behaviour {
    let life = MappingLife {
        udp_ms: 700,
        ..MappingLife::default()
    };
    Behaviour { life, ..behaviour }
}

#[test]
fn a_box_of_address_dependent_mapping_has_a_port_for_each_host() {
    in_namespaces(|| {
        let behaviour = Behaviour {
            ports: PortAssignment::Sequential,
            ..Behaviour::new(Dependence::AddressDependent, Dependence::EndpointIndependent)
        };
        let net = Net::new(NatConfig::behaving(behaviour));
        let a = socket(&net.inside[0], 5000);
        let (x, x2) = (socket(&net.outside[0], 1000), socket(&net.outside[0], 1001));
        let y = socket(&net.outside[1], 1000);
        let first = pass(&a, addr("203.0.113.7:1000"), &x, "one");
        assert_eq!(pass(&a, addr("203.0.113.7:1001"), &x2, "same"), first);
        let second = pass(&a, addr("203.0.113.8:1000"), &y, "two");
        assert_eq!(second.port(), first.port() + 1);
        // Endpoint-independent filtering admits the other host at either port.
        assert!(!refused(&net, &y, first));
        assert!(!refused(&net, &x2, second));
    });
}

#[test]
fn a_box_that_restarts_may_have_another_address() {
    in_namespaces(|| {
        let net = Net::new(NatConfig::new(NatKind::FullCone));
        let (a, x) = (socket(&net.inside[0], 5000), socket(&net.outside[0], 1000));
        let target = addr("203.0.113.7:1000");
        let first = pass(&a, target, &x, "one");
        net.nat.reboot(None);
        assert_eq!(net.nat.mappings(), 0);
        assert!(refused(&net, &x, first));
        assert_eq!(pass(&a, target, &x, "two"), first);
        net.nat.reboot(Some(("203.0.113.77".parse().unwrap(), 24)));
        let second = pass(&a, target, &x, "three");
        assert_eq!(second, addr("203.0.113.77:5000"));
        assert_eq!(net.nat.outer(), second.ip());
        assert_eq!(pass(&x, second, &a, "back"), target);
    });
}

#[test]
fn a_mapping_ends_with_its_life_and_with_a_restart_of_the_box() {
    in_namespaces(|| {
        let net = Net::new(NatConfig::behaving(short_lived(NatKind::Symmetric.behaviour())));
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

/// Two homes, each behind a box of its own, behind a carrier's: both reach a public host by the
/// carrier's address, and each other by it only if the carrier's box hairpins.
#[test]
fn boxes_behind_a_carriers_box_compose() {
    in_namespaces(|| {
        for hairpin in [false, true] {
            let world = World::new().unwrap();
            let (carrier, wan) = (world.switch("carrier").unwrap(), world.switch("wan").unwrap());
            let behaviour = Behaviour {
                hairpin,
                port_range: [40_000, 40_511],
                ..NatKind::Symmetric.behaviour()
            };
            let open = Behaviour {
                filtering: Dependence::EndpointIndependent,
                ..behaviour
            };
            let sides = ((&carrier, "100.64.0.1/16"), (&wan, "11.0.0.1/8"));
            let cgnat = world.nat(NatConfig::behaving(open), sides.0, sides.1).unwrap();
            let home = |outer: &str| {
                let lan = world.switch("home").unwrap();
                let config = NatConfig {
                    gateway: Some("100.64.0.1".parse().unwrap()),
                    ..NatConfig::new(NatKind::FullCone)
                };
                let nat = world.nat(config, (&lan, "192.168.1.1/24"), (&carrier, outer)).unwrap();
                let host = world.host("inside").unwrap();
                lan.connect(&host, &["192.168.1.2/24"]).unwrap();
                host.add_default_route(nat.inner()).unwrap();
                (host, nat)
            };
            let [(a_host, _a_box), (b_host, _b_box)] = ["100.64.1.2/16", "100.64.1.3/16"].map(home);
            let public = world.host("x").unwrap();
            wan.connect(&public, &["11.0.0.7/8"]).unwrap();
            let (a, b, x) = (socket(&a_host, 5000), socket(&b_host, 5000), socket(&public, 1000));
            let [outer_a, outer_b] = [&a, &b].map(|inside| pass(inside, addr("11.0.0.7:1000"), &x, "out"));
            for (outer, inside) in [(outer_a, &a), (outer_b, &b)] {
                assert_eq!(outer.ip(), cgnat.outer());
                assert!((40_000..40_512).contains(&outer.port()), "{outer}");
                assert_eq!(pass(&x, outer, inside, "back"), addr("11.0.0.7:1000"));
            }
            let before = cgnat.counts();
            if hairpin {
                assert_eq!(pass(&a, outer_b, &b, "over the carrier").ip(), cgnat.outer());
                assert_eq!(cgnat.counts().hairpinned, before.hairpinned + 1);
            } else {
                a.send_to(b"lost", outer_b).unwrap();
                wait_until(MINUTE, "the carrier drops it", || {
                    cgnat.counts().dropped == before.dropped + 1
                });
            }
        }
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
