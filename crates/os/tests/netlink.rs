//! Interfaces, addresses and routes, in namespaces of their own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

mod common;

use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::time::Duration;

use weft_os::netlink::{NetlinkError, Route, VethEnd, flush_connections};
use weft_os::netns::NetNs;
use weft_os::sysctl::{self, SysctlError};
use weft_os::test_support::{in_namespaces, require_nft, uninterrupted};

fn end<'a>(name: &'a str, namespace: Option<&'a NetNs>) -> VethEnd<'a> {
    VethEnd {
        name,
        namespace: namespace.map(|ns| ns.as_fd()),
    }
}

/// Sends a datagram from a socket in `here` to one in `there`, and one back.
fn exchange(here: &NetNs, there: &NetNs, target: &str) {
    let ip: IpAddr = target.parse().unwrap();
    let any = if ip.is_ipv4() { "0.0.0.0" } else { "[::]" };
    let open = |local: &str| {
        let socket = UdpSocket::bind(format!("{local}:0")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket
    };
    let bound = if ip.is_ipv4() {
        target.to_owned()
    } else {
        format!("[{target}]")
    };
    let (a, b) = (here.run(|| open(any)).unwrap(), there.run(|| open(&bound)).unwrap());
    let mut buf = [0; 16];
    a.send_to(b"ping", (ip, b.local_addr().unwrap().port())).unwrap();
    let (len, from) = uninterrupted(|| b.recv_from(&mut buf)).unwrap();
    assert_eq!(&buf[..len], b"ping");
    b.send_to(b"pong", from).unwrap();
    let (len, from) = uninterrupted(|| a.recv_from(&mut buf)).unwrap();
    assert_eq!((&buf[..len], from.ip()), (&b"pong"[..], ip));
}

#[test]
fn a_cable_between_two_namespaces() {
    in_namespaces(|| {
        let (here, there) = (NetNs::new().unwrap(), NetNs::new().unwrap());
        let (mut one, mut other) = (here.netlink().unwrap(), there.netlink().unwrap());
        one.create_veth(end("cable", None), end("cable", Some(&there))).unwrap();
        let mut both = Vec::new();
        for (netlink, v4, v6) in [
            (&mut one, "10.1.0.1/24", "fd01::1/64"),
            (&mut other, "10.1.0.2/24", "fd01::2/64"),
        ] {
            let index = netlink.interface("cable").unwrap().index;
            netlink.disable_link_local(index).unwrap();
            netlink.add_address(common::address(index, v4)).unwrap();
            let v6 = common::address(index, v6);
            netlink.add_address(v6).unwrap();
            netlink.set_up(index).unwrap();
            both.push((netlink, v6.address));
        }
        // The veth pair has a carrier once both ends are up.
        for (netlink, address) in both {
            netlink.wait_until_local(address).unwrap();
        }
        exchange(&here, &there, "10.1.0.2");
        exchange(&here, &there, "fd01::2");

        let index = one.interface("cable").unwrap().index;
        one.flush_neighbours(index).unwrap();
        exchange(&here, &there, "fd01::2");
        assert_eq!(one.addresses(index).unwrap().len(), 2);
        one.flush_addresses(index).unwrap();
        assert_eq!(one.addresses(index).unwrap(), []);
        // Both ends are deleted together.
        one.delete_interface(index).unwrap();
        assert!(matches!(other.interface("cable"), Err(NetlinkError::NotFound { .. })));
    });
}

#[test]
fn a_bridge_and_a_router() {
    in_namespaces(|| {
        // left and right on a bridge in the middle; right routes to a network of its own.
        let [left, middle, right] = [(); 3].map(|()| NetNs::new().unwrap());
        let mut netlink = middle.netlink().unwrap();
        netlink.create_bridge("bridge").unwrap();
        let bridge = netlink.interface("bridge").unwrap().index;
        netlink.set_up(bridge).unwrap();
        for (port, leaf, address) in [("left", &left, "10.2.0.1/24"), ("right", &right, "10.2.0.2/24")] {
            netlink.create_veth(end(port, None), end("port", Some(leaf))).unwrap();
            let index = netlink.interface(port).unwrap().index;
            netlink.set_bridge(index, Some(bridge)).unwrap();
            netlink.set_gso_max_segments(index, 1).unwrap();
            netlink.set_up(index).unwrap();
            assert_eq!(netlink.interface(port).unwrap().controller, Some(bridge));
            let mut netlink = leaf.netlink().unwrap();
            let index = netlink.interface("port").unwrap().index;
            netlink.add_address(common::address(index, address)).unwrap();
            assert!(!netlink.interface("port").unwrap().usable);
            netlink.set_up(index).unwrap();
        }
        for (end, name) in [(&left, "port"), (&right, "port"), (&middle, "left"), (&middle, "right")] {
            end.netlink().unwrap().wait_until_usable(name).unwrap();
        }
        exchange(&left, &right, "10.2.0.2");

        let mut right_link = right.netlink().unwrap();
        let loopback = right_link.interface("lo").unwrap().index;
        right_link
            .add_address(common::address(loopback, "10.3.0.1/32"))
            .unwrap();
        let route = Route::via("10.3.0.0".parse().unwrap(), 16, "10.2.0.2".parse().unwrap());
        left.netlink().unwrap().add_route(route).unwrap();
        exchange(&left, &right, "10.3.0.1");

        let index = netlink.interface("left").unwrap().index;
        netlink.set_bridge(index, None).unwrap();
        assert_eq!(netlink.interface("left").unwrap().controller, None);
    });
}

#[test]
fn settings_and_moves() {
    in_namespaces(|| {
        let (here, there) = (NetNs::new().unwrap(), NetNs::new().unwrap());
        let mut netlink = here.netlink().unwrap();
        netlink.create_veth(end("a", None), end("b", None)).unwrap();
        let a = netlink.interface("a").unwrap();
        assert!(!a.up && !a.loopback);
        netlink.set_mtu(a.index, 1400).unwrap();
        netlink.set_tx_queue_len(a.index, 77).unwrap();
        netlink.set_up(a.index).unwrap();
        let changed = netlink.interface("a").unwrap();
        assert_eq!((changed.mtu, changed.tx_queue_len, changed.up), (1400, 77, true));
        netlink.set_down(a.index).unwrap();
        assert!(!netlink.interface("a").unwrap().up);
        assert!(matches!(netlink.set_mtu(a.index, 1), Err(NetlinkError::Refused { .. })));

        let names = |list: Vec<weft_os::netlink::Interface>| {
            let mut names: Vec<String> = list.into_iter().map(|interface| interface.name).collect();
            names.retain(|name| name.len() == 1 || name == "lo");
            names.sort();
            names
        };
        assert_eq!(names(netlink.interfaces().unwrap()), ["a", "b", "lo"]);
        netlink.move_to(a.index, there.as_fd()).unwrap();
        assert_eq!(names(netlink.interfaces().unwrap()), ["b", "lo"]);
        assert_eq!(names(there.netlink().unwrap().interfaces().unwrap()), ["a", "lo"]);

        let taken = netlink.create_bridge("b");
        assert!(matches!(taken, Err(NetlinkError::Exists { .. })));
        let nameless = netlink.create_bridge("sixteen-letters-");
        assert!(matches!(nameless, Err(NetlinkError::InvalidName(_))));
        assert!(matches!(netlink.set_up(9999), Err(NetlinkError::NotFound { .. })));
    });
}

#[test]
fn addresses_and_routes() {
    in_namespaces(|| {
        let namespace = NetNs::new().unwrap();
        let mut netlink = namespace.netlink().unwrap();
        netlink.create_veth(end("a", None), end("b", None)).unwrap();
        let index = netlink.interface("a").unwrap().index;
        netlink.disable_link_local(index).unwrap();
        netlink.set_up(index).unwrap();
        let peer = netlink.interface("b").unwrap().index;
        netlink.set_up(peer).unwrap();

        let address = common::address(index, "fd00::1/128");
        netlink.add_address(address).unwrap();
        netlink.wait_until_local(address.address).unwrap();
        let twice = netlink.add_address(address);
        assert!(matches!(twice, Err(NetlinkError::Exists { .. })));
        assert_eq!(netlink.addresses(index).unwrap(), [address]);

        let v6 = Route::to_interface("fd00::".parse().unwrap(), 8, index);
        let v4 = Route {
            metric: Some(50),
            mtu: Some(1400),
            ..Route::to_interface("10.0.0.0".parse().unwrap(), 8, index)
        };
        let default = Route {
            metric: Some(7),
            ..Route::to_interface("::".parse().unwrap(), 0, index)
        };
        for route in [v6, v4, default] {
            netlink.add_route(route).unwrap();
            assert!(matches!(netlink.add_route(route), Err(NetlinkError::Exists { .. })));
            let found = netlink
                .routes()
                .unwrap()
                .into_iter()
                .find(|found| (found.destination, found.prefix_len) == (route.destination, route.prefix_len));
            let found = found.unwrap();
            assert_eq!((found.gateway, found.interface), (None, Some(index)));
            assert_eq!(found.mtu, route.mtu);
            assert_eq!(netlink.interface_towards(route.destination).unwrap(), Some(index));
            // The kernel's default is 1024 for IPv6.
            assert_eq!(found.metric, route.metric.or(Some(1024)));
            netlink.delete_route(route).unwrap();
            assert!(matches!(
                netlink.delete_route(route),
                Err(NetlinkError::NotFound { .. })
            ));
            assert!(!netlink.routes().unwrap().contains(&found));
            assert_eq!(netlink.interface_towards("10.1.2.3".parse().unwrap()).unwrap(), None);
        }
        netlink.delete_address(address).unwrap();
        assert!(matches!(
            netlink.delete_address(address),
            Err(NetlinkError::NotFound { .. })
        ));
    });
}

#[test]
fn settings_of_an_interface() {
    in_namespaces(|| {
        let namespace = NetNs::new().unwrap();
        namespace.netlink().unwrap().create_bridge("bridge").unwrap();
        namespace
            .run(|| {
                let read = |name: &str| {
                    let path = format!("/proc/sys/net/ipv6/conf/{name}");
                    std::fs::read_to_string(path).unwrap().trim().to_owned()
                };
                sysctl::disable_router_advertisements("bridge").unwrap();
                assert_eq!(
                    (read("bridge/accept_ra"), read("bridge/autoconf")),
                    ("0".into(), "0".into())
                );
                sysctl::set_ipv6_forwarding("all", true).unwrap();
                sysctl::set_ipv4_forwarding(true).unwrap();
                assert_eq!(read("bridge/forwarding"), "1");
                assert!(sysctl::ipv6_enabled("bridge"));
                for name in ["nobody", "../../ipv4", ""] {
                    let refused = sysctl::disable_router_advertisements(name);
                    assert!(matches!(refused, Err(SysctlError::NoInterface(_))), "{name}");
                }
            })
            .unwrap();
    });
}

#[test]
fn tracked_connections_are_deleted_in_one_namespace_alone() {
    const RULES: &str = "table ip track {
        chain enter {
            type filter hook input priority filter
            ct state new accept
        }
    }";
    in_namespaces(|| {
        if !require_nft() {
            return;
        }
        let namespaces = [NetNs::new().unwrap(), NetNs::new().unwrap()];
        let tracked = || {
            let text = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count");
            text.unwrap().trim().parse::<u32>().unwrap()
        };
        for namespace in &namespaces {
            let work = || {
                assert!(Command::new("nft").arg(RULES).status().unwrap().success());
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
                assert_eq!(tracked(), 1);
            };
            namespace.run(work).unwrap();
        }
        namespaces[0].run(flush_connections).unwrap().unwrap();
        let counts = namespaces.each_ref().map(|namespace| namespace.run(tracked).unwrap());
        assert_eq!(counts, [0, 1]);
    });
}
