//! NAT boxes of the kernel, and a NAT64 box, between two switches, as they look from outside.
#![allow(clippy::unwrap_used)]

mod datagrams;

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use weft_lab::host::Host;
use weft_lab::nat::kernel::{KernelNat, KernelNatConfig, Masquerade};
use weft_lab::nat::miniupnpd::{Miniupnpd, Speaks};
use weft_lab::nat::nat64::{Nat64, WELL_KNOWN_PREFIX};
use weft_lab::traffic::transfer;
use weft_lab::world::{Switch, World};
use weft_os::test_support::{in_namespaces, require_miniupnpd, require_nft, require_tayga, uninterrupted};

use self::datagrams::{addr, bound, pass, socket};

const MINUTE: Duration = Duration::from_secs(60);

/// A host behind a NAT box at 11.0.0.1, and two outside.
struct Net {
    world: World,
    nat: KernelNat,
    inside: Host,
    /// 11.0.0.7 and 11.0.0.8
    outside: [Host; 2],
}

impl Net {
    fn new(ports: Masquerade) -> Self {
        let world = World::new().unwrap();
        let (lan, wan) = (world.switch("lan").unwrap(), world.switch("wan").unwrap());
        let config = KernelNatConfig {
            ports,
            lifetime: Some(Duration::from_secs(90)),
            gateway: None,
        };
        let nat = KernelNat::start(&world, config, (&lan, "192.168.1.1/24"), (&wan, "11.0.0.1/8")).unwrap();
        let host = |name: &str, switch: &Switch, address: &str| {
            let host = world.host(name).unwrap();
            switch.connect(&host, &[address]).unwrap();
            host
        };
        let inside = host("a", &lan, "192.168.1.2/24");
        inside.add_default_route(nat.inner()).unwrap();
        Self {
            nat,
            inside,
            outside: [host("x", &wan, "11.0.0.7/8"), host("y", &wan, "11.0.0.8/8")],
            world,
        }
    }
}

#[test]
fn by_default_the_kernel_keeps_ports_and_lets_answers_in() {
    in_namespaces(|| {
        if !require_nft() {
            return;
        }
        for ports in [Masquerade::Plain, Masquerade::Random, Masquerade::FullyRandom] {
            let net = Net::new(ports);
            let a = socket(&net.inside, 5000);
            let [x, y] = [0, 1].map(|n| socket(&net.outside[n], 1000));
            let x2 = socket(&net.outside[0], 1001);
            let outer = pass(&a, addr("11.0.0.7:1000"), &x, "out");
            assert_eq!(outer.ip(), net.nat.outer());
            let keeps = ports == Masquerade::Plain;
            // One in 64,512 random ports is the inner one.
            assert_eq!(outer.port() == 5000, keeps, "{ports:?}");
            let second = pass(&a, addr("11.0.0.8:1000"), &y, "second");
            assert_eq!(second == outer, keeps, "{ports:?}");
            // The box drops what the other port and the other host send there, and the answer passes.
            for stranger in [&x2, &y] {
                stranger.send_to(b"knock", outer).unwrap();
            }
            let other = if keeps { &x } else { &y };
            other
                .send_to(b"knock", addr(&format!("11.0.0.1:{}", outer.port() ^ 1)))
                .unwrap();
            if keeps {
                // The second host was sent to from this port.
                let mut buf = [0; 10];
                a.set_read_timeout(Some(MINUTE)).unwrap();
                assert_eq!(
                    uninterrupted(|| a.recv_from(&mut buf)).unwrap(),
                    (5, addr("11.0.0.8:1000"))
                );
            }
            assert_eq!(pass(&x, outer, &a, "back"), addr("11.0.0.7:1000"), "{ports:?}");
            assert!(net.nat.mappings().unwrap() >= 2);
            let report = transfer(
                (&net.inside, &net.outside[0]),
                addr("11.0.0.7:0").ip(),
                3_000_000,
                1,
                MINUTE,
            );
            assert!(report.unwrap().hash_ok);
        }
    });
}

#[test]
fn a_restarted_kernel_nat_has_no_mapping_and_another_address() {
    in_namespaces(|| {
        if !require_nft() {
            return;
        }
        let net = Net::new(Masquerade::Plain);
        let (a, x) = (socket(&net.inside, 5000), socket(&net.outside[0], 1000));
        let target = addr("11.0.0.7:1000");
        let first = pass(&a, target, &x, "one");
        net.nat.reboot(None).unwrap();
        assert_eq!(net.nat.mappings().unwrap(), 0);
        x.send_to(b"knock", first).unwrap();
        assert_eq!(pass(&a, target, &x, "two"), first);
        assert_eq!(pass(&x, first, &a, "back"), target);
        net.nat.reboot(Some("11.0.0.77/8")).unwrap();
        assert_eq!(net.nat.outer(), addr("11.0.0.77:0").ip());
        let second = pass(&a, target, &x, "three");
        assert_eq!(second, addr("11.0.0.77:5000"));
        assert_eq!(pass(&x, second, &a, "back"), target);
    });
}

/// Asks the gateway by NAT-PMP (RFC 6886, section 3.3) to map this port to that of the socket.
fn request(socket: &UdpSocket, port: u16) {
    let own = socket.local_addr().unwrap().port();
    let mut request = vec![0, 1, 0, 0];
    request.extend([own, port].map(u16::to_be_bytes).concat());
    request.extend(3_600_u32.to_be_bytes());
    socket.send_to(&request, addr("192.168.1.1:5351")).unwrap();
    let mut answer = [0; 16];
    assert_eq!(uninterrupted(|| socket.recv(&mut answer)).unwrap(), 16);
    assert_eq!(answer[..4], [0, 129, 0, 0]);
    assert_eq!(answer[10..12], port.to_be_bytes());
}

#[test]
fn a_restarted_gateway_maps_no_port_until_it_is_asked_again() {
    in_namespaces(|| {
        if !require_nft() || !require_miniupnpd() {
            return;
        }
        let net = Net::new(Masquerade::FullyRandom);
        let gateway = Miniupnpd::start(&net.nat, (net.world.directory(), "gateway"), Speaks::Pcp).unwrap();
        let (a, x) = (socket(&net.inside, 5000), socket(&net.outside[0], 1000));
        a.set_read_timeout(Some(MINUTE)).unwrap();
        request(&a, 6000);
        assert_eq!(pass(&x, addr("11.0.0.1:6000"), &a, "in"), addr("11.0.0.7:1000"));
        gateway.reboot(&net.nat, Some("11.0.0.77/8")).unwrap();
        assert!(!gateway.mapped(&net.nat).unwrap().contains("dnat"));
        x.send_to(b"knock", addr("11.0.0.77:6000")).unwrap();
        request(&a, 6001);
        assert_eq!(pass(&x, addr("11.0.0.77:6001"), &a, "in"), addr("11.0.0.7:1000"));
    });
}

#[test]
fn the_life_of_a_mapping_is_a_setting_of_the_box_alone() {
    in_namespaces(|| {
        if !require_nft() {
            return;
        }
        let net = Net::new(Masquerade::Plain);
        let read = || {
            let of = |name: &str| std::fs::read_to_string(format!("/proc/sys/net/netfilter/nf_conntrack_{name}"));
            [of("udp_timeout").unwrap(), of("udp_timeout_stream").unwrap()]
        };
        assert_eq!(net.nat.host().run(read).unwrap(), ["90\n", "90\n"]);
        assert_ne!(net.inside.run(read).unwrap(), ["90\n", "90\n"]);
    });
}

/// A host with IPv6 alone reaches one with IPv4 alone, by UDP and by TCP, also after the box has
/// restarted with another address.
#[test]
fn a_host_with_ipv6_alone_reaches_one_with_ipv4_alone() {
    in_namespaces(|| {
        if !require_nft() || !require_tayga() {
            return;
        }
        let world = World::new().unwrap();
        let (lan, wan) = (world.switch("lan").unwrap(), world.switch("wan").unwrap());
        let config = KernelNatConfig {
            ports: Masquerade::Plain,
            lifetime: None,
            gateway: None,
        };
        let sides = ((&lan, "2001:db8:1::1/64"), (&wan, "11.0.0.1/8"));
        let nat = Nat64::start(&world, "box", (config, WELL_KNOWN_PREFIX), sides.0, sides.1).unwrap();
        let (inside, outside) = (world.host("a").unwrap(), world.host("x").unwrap());
        lan.connect(&inside, &["2001:db8:1::2/64"]).unwrap();
        inside.add_default_route(nat.kernel().inner()).unwrap();
        wan.connect(&outside, &["11.0.0.7/8"]).unwrap();

        let mapped = nat.mapped("11.0.0.7".parse().unwrap());
        assert_eq!(mapped.to_string(), "64:ff9b::b00:7");
        let (a, x) = (bound(&inside, "[::]:5000"), socket(&outside, 1000));
        let target = SocketAddr::new(IpAddr::V6(mapped), 1000);
        let listener = outside.run(|| TcpListener::bind("0.0.0.0:80").unwrap()).unwrap();
        for outer in ["11.0.0.1:5000", "11.0.0.77:5000"] {
            let seen = pass(&a, target, &x, "out");
            assert_eq!(seen, addr(outer));
            assert_eq!(pass(&x, seen, &a, "back"), target);
            let stream = inside.run(|| TcpStream::connect_timeout(&SocketAddr::new(target.ip(), 80), MINUTE));
            stream.unwrap().unwrap();
            assert_eq!(listener.accept().unwrap().1.ip(), seen.ip());
            nat.reboot(Some("11.0.0.77/8")).unwrap();
        }
    });
}
