//! Subnets behind nodes: IPv4 and IPv6 with the complete header, hosts behind hosts, and packets
//! that may not pass.

use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use weft_host::routes::TABLE;
use weft_lab::daemon::Daemon;
use weft_lab::host::Host;
use weft_lab::spec::{DEFAULT_PORT, NodeSpec};
use weft_lab::traffic::transfer;
use weft_lab::world::{Link, World};
use weft_os::assert_strict;
use weft_os::netlink::{InterfaceAddress, Netlink};
use weft_os::test_support::{allow_fragments, send_without_checksum, uninterrupted};
use weft_os::udp::MARK;

use crate::common::net::Net;
use crate::common::{MINUTE, PATIENCE, Underlay, WEFT, beside, identity, reached_within, wait_until};

const BYTES: u64 = 20_000_000;

/// The routes in a node's configuration: its own addresses, the subnets behind it, and those
/// behind its only peer.
struct Told<'a> {
    addresses: &'a [&'a str],
    behind: &'a [&'a str],
    theirs: &'a [&'a str],
}

const A: Told<'_> = Told {
    addresses: &["10.99.0.1/24"],
    behind: &["10.7.7.0/24"],
    theirs: &["10.99.0.2/32", "10.8.7.0/24", "2001:db8:8::/64"],
};
const B: Told<'_> = Told {
    addresses: &["10.99.0.2/24"],
    behind: &["10.8.7.0/24", "2001:db8:8::/64"],
    theirs: &["10.99.0.1/32", "10.7.7.0/24"],
};

impl Told<'_> {
    fn adjust(&self, spec: &mut NodeSpec, peer: &str) {
        spec.settings
            .push(("tun.addresses".to_owned(), self.addresses.to_vec().into()));
        spec.settings
            .push(("tun.routes".to_owned(), self.behind.to_vec().into()));
        for peer in spec.peers.iter_mut().filter(|known| known.name == peer) {
            peer.routes = self.theirs.iter().map(|text| (*text).to_owned()).collect();
        }
    }
}

/// Two nodes on a cable, and a host behind each.
struct Village {
    a: Daemon,
    b: Daemon,
    /// Behind a, and behind b.
    g: Host,
    h: Host,
    _world: World,
    _links: [Link; 3],
}

impl Village {
    fn start(a: &Told<'_>, b: &Told<'_>, adjust: impl Fn(&mut NodeSpec, &str)) -> Self {
        Self::start_on(1500, a, b, adjust)
    }

    fn start_on(cable_mtu: u32, a: &Told<'_>, b: &Told<'_>, adjust: impl Fn(&mut NodeSpec, &str)) -> Self {
        let world = World::new().unwrap();
        let [host_a, host_b, g, h] = ["a", "b", "g", "h"].map(|name| world.host(name).unwrap());
        let link = |(x, at_x): (&Host, &[&str]), (y, at_y): (&Host, &[&str])| world.link((x, at_x), (y, at_y)).unwrap();
        let cable = link((&host_a, &["192.0.2.1/24"]), (&host_b, &["192.0.2.2/24"]));
        for end in [cable.a(), cable.b()] {
            end.set_mtu(cable_mtu).unwrap();
        }
        let of_a = link((&host_a, &["10.7.7.1/24"]), (&g, &["10.7.7.2/24"]));
        let of_b = link(
            (&host_b, &["10.8.7.1/24", "2001:db8:8::1/64"]),
            (&h, &["10.8.7.2/24", "2001:db8:8::2/64"]),
        );
        for router in [&host_a, &host_b] {
            router.forward().unwrap();
        }
        g.add_default_route("10.7.7.1".parse().unwrap()).unwrap();
        h.add_default_route("10.8.7.1".parse().unwrap()).unwrap();
        h.add_default_route("2001:db8:8::1".parse().unwrap()).unwrap();
        let ids = ["a", "b"].map(|name| identity(&world, name));
        let ends = ["192.0.2.1", "192.0.2.2"];
        let [a, b] = [(&host_a, a), (&host_b, b)].map(|(host, told)| {
            let own = usize::from(host.name() == "b");
            let peer = &ids[1 - own];
            let at = SocketAddr::new(ends[1 - own].parse().unwrap(), DEFAULT_PORT);
            let mut spec = Underlay::V4.listener().with_peer(&peer.npub, &peer.name, &[at]);
            told.adjust(&mut spec, &peer.name);
            adjust(&mut spec, host.name());
            let mut daemon = Daemon::start(host, Path::new(WEFT), &ids[own], &spec).unwrap();
            daemon.wait_ready(PATIENCE).unwrap();
            daemon
        });
        reached_within(PATIENCE, &a, &b);
        Self {
            a,
            b,
            g,
            h,
            _world: world,
            _links: [cable, of_a, of_b],
        }
    }

    /// Waits until both report that packets of subnets pass.
    fn wait_pass(&self) {
        for (own, peer) in [(&self.a, &self.b), (&self.b, &self.a)] {
            wait_until(PATIENCE, "subnets pass", || routes(own, peer)["pass"] == true);
        }
    }

    fn finish(mut self) {
        for node in [&mut self.a, &mut self.b] {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
        }
    }
}

/// One node's status of the routes behind the other.
fn routes(own: &Daemon, peer: &Daemon) -> Value {
    own.peer(&peer.identity().npub).unwrap().unwrap_or_default()["routes"].clone()
}

pub(super) fn counter(own: &Daemon, name: &str) -> u64 {
    own.status().unwrap()["counters"][name].as_u64().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn socket(host: &Host, at: &str) -> UdpSocket {
    let at = SocketAddr::new(ip(at), 0);
    host.run(move || UdpSocket::bind(at)).unwrap().unwrap()
}

/// Sends one datagram, which must arrive unchanged, however long it takes.
fn assert_passes(from: &UdpSocket, to: &UdpSocket, len: usize) {
    from.send_to(&payload(len), to.local_addr().unwrap()).unwrap();
    assert!(
        arrives(PATIENCE, from, to, len),
        "no datagram of {len} bytes in {PATIENCE:?}"
    );
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|n| n as u8).collect()
}

/// Whether a datagram of this length arrives in this time. It must be unchanged.
fn arrives(limit: Duration, from: &UdpSocket, to: &UdpSocket, len: usize) -> bool {
    let mut room = vec![0; 65_536];
    to.set_read_timeout(Some(limit)).unwrap();
    let Ok((got, source)) = uninterrupted(|| to.recv_from(&mut room)) else {
        return false;
    };
    let unchanged = (&room[..got], source) == (&payload(len)[..], from.local_addr().unwrap());
    assert_strict!(unchanged, "another datagram arrives: {got} bytes from {source}");
    true
}

/// A TCP transfer from one host to an address of another, complete and unchanged.
fn assert_tcp(from: &Host, (to, at): (&Host, &str)) {
    let report = transfer((from, to), ip(at), BYTES, BYTES, MINUTE).unwrap();
    assert_strict!(report.hash_ok, "{report:?}");
    assert_eq!(report.bytes, BYTES);
}

#[test]
fn hosts_behind_nodes_reach_each_other_over_ipv4_and_ipv6() {
    beside(|| {
        let village = Village::start(&A, &B, |_, _| {});
        village.wait_pass();
        let (a, b) = (village.a.host(), village.b.host());
        assert_tcp(a, (b, "10.99.0.2"));
        assert_tcp(b, (a, "10.99.0.1"));
        assert_tcp(&village.g, (&village.h, "10.8.7.2"));
        assert_tcp(&village.h, (&village.g, "10.7.7.2"));
        assert_tcp(a, (&village.h, "2001:db8:8::2"));
        // In super-packets on both sides: many packets for each read and write of the interface.
        for node in [&village.a, &village.b] {
            wait_until(PATIENCE, "counters", || counter(node, "full_rx") > 2 * BYTES / 1_400);
            let [sent, reads] = ["full_tx", "tun_reads"].map(|name| counter(node, name));
            assert!(sent > reads, "{sent} packets in {reads} reads");
            assert!(counter(node, "tun_coalesced") > 0 && counter(node, "udp_gso_sends") > 0);
            assert_eq!((counter(node, "tcp_recut"), counter(node, "too_big")), (0, 0));
        }
        // UDP with a checksum, and without.
        let (from, to) = (socket(a, "10.99.0.1"), socket(b, "10.99.0.2"));
        assert_passes(&from, &to, 1_000);
        send_without_checksum(&from).unwrap();
        assert_passes(&from, &to, 1_000);
        let (from, to) = (socket(&village.g, "10.7.7.2"), socket(&village.h, "10.8.7.2"));
        assert_passes(&from, &to, 1_000);
        send_without_checksum(&from).unwrap();
        assert_passes(&from, &to, 1_000);

        let status = village.a.status().unwrap();
        assert_eq!(status["node"]["tun"]["addresses"], json!(["10.99.0.1/24"]));
        assert_eq!(status["node"]["tun"]["routes"], json!(["10.7.7.0/24"]));
        let told = routes(&village.a, &village.b);
        assert_eq!(told["list"], json!(A.theirs));
        assert_eq!(told["why"], "packets pass");
        let shown = village.a.command(&["peers", "b"]).unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert!(shown.contains("10.8.7.0/24"), "{shown}");
        village.finish();
    });
}

#[test]
fn several_lanes_carry_them_each() {
    beside(|| {
        let village = Village::start(&A, &B, |spec, _| spec.settings.push(("lanes".to_owned(), 3.into())));
        village.wait_pass();
        // Enough connections that every lane is used, unless by coincidence. That does not matter:
        // all bytes arrive.
        for _ in 0..8 {
            let hosts = (&village.g, &village.h);
            let report = transfer(hosts, ip("10.8.7.2"), 2_000_000, 1, MINUTE).unwrap();
            assert_strict!(report.hash_ok, "{report:?}");
        }
        assert_tcp(&village.h, (&village.g, "10.7.7.2"));
        village.finish();
    });
}

#[test]
fn packets_that_a_peer_may_not_send_are_dropped_and_counted() {
    beside(|| {
        // The configuration of each lists more routes behind the peer than the peer's own does.
        let a = Told {
            behind: &["10.7.7.0/24", "10.50.0.0/24"],
            theirs: &["10.99.0.2/32", "10.8.0.0/16"],
            ..A
        };
        let village = Village::start(&a, &B, |_, _| {});
        village.wait_pass();
        let host = village.a.host();
        for foreign in ["10.50.0.1", "10.51.0.1"] {
            let address = ip(foreign);
            let add = |netlink: &mut weft_os::netlink::Netlink| {
                let index = netlink.interface("lo")?.index;
                netlink.add_address(InterfaceAddress {
                    index,
                    address,
                    prefix_len: 32,
                })
            };
            host.netlink(add).unwrap();
        }
        let send = |source: &str, dest: &str| {
            let to = SocketAddr::new(ip(dest), 9);
            let _ = socket(host, source).send_to(b"foreign", to);
        };
        let cases = [
            ("10.50.0.1", "10.8.7.2", &village.b, "foreign_source"),
            ("10.99.0.1", "10.8.9.9", &village.b, "foreign_destination"),
            ("10.51.0.1", "10.8.7.2", &village.a, "wrong_source"),
        ];
        let any = SocketAddr::from(([0, 0, 0, 0], 9));
        let ear = village.h.run(|| UdpSocket::bind(any)).unwrap().unwrap();
        ear.set_nonblocking(true).unwrap();
        for (source, dest, where_to, name) in cases {
            let before = counter(where_to, name);
            wait_until(PATIENCE, name, || {
                send(source, dest);
                counter(where_to, name) > before
            });
        }
        // Other traffic continues.
        let (from, to) = (socket(host, "10.99.0.1"), socket(&village.h, "10.8.7.2"));
        assert_passes(&from, &to, 100);
        assert_strict!(ear.recv(&mut [0; 64]).is_err(), "a foreign packet arrives");
        village.finish();
    });
}

/// A path of 1,300 bytes: frames of 1,272, in which packets of subnets have 1,236.
#[test]
fn packets_too_large_for_the_path_are_answered_or_cut_in_pieces() {
    beside(|| {
        let village = Village::start_on(1300, &A, &B, |_, _| {});
        village.wait_pass();
        for (own, peer) in [(&village.a, &village.b), (&village.b, &village.a)] {
            wait_until(PATIENCE, "1,272 bytes on the path", || {
                let size = &own.peer(&peer.identity().npub).unwrap().unwrap()["session"]["path_size"];
                size["bytes"] == 1272 && size["searching"] == false
            });
        }
        let (a, b) = (village.a.host(), village.b.host());
        let (from, to) = (socket(a, "10.99.0.1"), socket(b, "10.99.0.2"));
        // A packet of exactly the maximum size, in one frame.
        let before = counter(&village.a, "fast_fragmented");
        assert_passes(&from, &to, 1_236 - 28);
        assert_eq!(counter(&village.a, "fast_fragmented"), before);
        // A packet that may be fragmented: it is sent in pieces, and no error is reported to the
        // system.
        allow_fragments(&from).unwrap();
        assert_passes(&from, &to, 1_400 - 28);
        wait_until(PATIENCE, "pieces", || counter(&village.a, "fast_fragmented") > before);
        assert_eq!(counter(&village.a, "too_big"), 0);
        // A packet that may not: the error is reported to the system, which sends smaller packets.
        let (from, before) = (socket(a, "10.99.0.1"), counter(&village.a, "fast_fragmented"));
        let send = || from.send_to(&payload(1_400 - 28), to.local_addr().unwrap());
        let arrives = || arrives(Duration::from_secs(2), &from, &to, 1_400 - 28);
        send().unwrap();
        assert!(!arrives(), "the first one is too big");
        wait_until(PATIENCE, "smaller packets", || {
            // Errors reported by ICMP are ignored.
            let _ = send();
            arrives()
        });
        wait_until(PATIENCE, "too big", || counter(&village.a, "too_big") > 0);
        assert_eq!(counter(&village.a, "fast_fragmented"), before);
        // TCP between hosts that have no knowledge of the path MTU.
        assert_tcp(&village.g, (&village.h, "10.8.7.2"));
        assert_tcp(&village.h, (&village.g, "10.7.7.2"));
        assert_tcp(&village.h, (a, "10.99.0.1"));
        village.finish();
    });
}

#[test]
fn without_fast_frames_senders_are_told_and_status_says_why() {
    beside(|| {
        let none = Told { theirs: &[], ..B };
        let village = Village::start(&A, &none, |spec, name| {
            if name == "b" {
                spec.settings.push(("fast.enabled".to_owned(), false.into()));
            }
        });
        let to = SocketAddr::new(ip("10.8.7.2"), 9);
        let connect = || TcpStream::connect_timeout(&to, PATIENCE).map(drop);
        let refused = village.a.host().run(connect).unwrap().unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::HostUnreachable, "{refused}");
        wait_until(PATIENCE, "counted", || counter(&village.a, "no_full_frames") > 0);
        let told = routes(&village.a, &village.b);
        assert_eq!(told["pass"], false);
        let why = told["why"].as_str().unwrap();
        assert!(why.starts_with("only fast frames carry them: "), "{why}");
        // Packets that need none pass.
        reached_within(PATIENCE, &village.a, &village.b);
        village.finish();
    });
}

#[test]
fn a_subnet_around_the_peer_itself_makes_no_loop() {
    beside(|| {
        // The host is in a part of the first. The user has written the second, so that it goes first.
        let around = Told {
            theirs: &["192.0.0.0/16", "192.0.2.2/32", "10.99.0.2/32"],
            ..A
        };
        let village = Village::start(&around, &B, |_, _| {});
        wait_until(PATIENCE, "subnets pass", || {
            routes(&village.a, &village.b)["pass"] == true
        });
        let told = routes(&village.a, &village.b);
        assert_eq!(
            (&told["unrouted"], &told["why"]),
            (&Value::Null, &json!("packets pass"))
        );
        let own = |netlink: &mut Netlink| netlink.own_routes(TABLE);
        let routes = village.a.host().netlink(own).unwrap();
        let known = |dest: &str| {
            let mut to = routes.iter().filter(|route| route.destination == ip(dest));
            to.any(|route| route.mtu == Some(1436))
        };
        assert!(known("192.0.0.0") && known("192.0.2.2"), "{routes:?}");
        // Packets go into the tunnel, and the datagrams that carry them do not.
        let towards = |mark: u32| {
            let look = move |netlink: &mut Netlink| netlink.interface_of_marked(ip("192.0.2.2"), mark);
            village.a.host().netlink(look).unwrap()
        };
        assert_ne!(towards(0), towards(MARK));
        assert_tcp(village.a.host(), (village.b.host(), "10.99.0.2"));
        assert_eq!(counter(&village.a, "underlay_loops"), 0);
        village.finish();
    });
}

#[test]
fn subnets_pass_through_a_relay() {
    beside(|| {
        let mut net = Net::new(&["a", "b", "c"]);
        net.keep_apart(&["a", "b"], true);
        net.start("c", &net.spec(""));
        for (own, peer, told) in [("a", "b", &A), ("b", "a", &B)] {
            let mut spec = net.knowing(&["c"], &[peer]);
            told.adjust(&mut spec, peer);
            net.start(own, &spec);
        }
        net.reached_within(MINUTE, "a", "b");
        for (own, peer) in [("a", "b"), ("b", "a")] {
            wait_until(MINUTE, "fast frames through c", || {
                net.reached_within(MINUTE, own, peer);
                routes(net.node(own), net.node(peer))["pass"] == true
            });
        }
        wait_until(MINUTE, "the path is through c", || {
            (net.via("a", "b"), net.via("b", "a")) == (Some("c"), Some("c"))
        });
        assert_tcp(net.host("a"), (net.host("b"), "10.99.0.2"));
        assert_tcp(net.host("b"), (net.host("a"), "10.99.0.1"));
        let (from, to) = (socket(net.host("a"), "10.99.0.1"), socket(net.host("b"), "10.99.0.2"));
        send_without_checksum(&from).unwrap();
        assert_passes(&from, &to, 1_000);
        for node in ["a", "b"] {
            wait_until(PATIENCE, "counters", || counter(net.node(node), "full_tx") > 1_000);
        }
        assert_eq!(counter(net.node("c"), "full_rx"), 0);
        net.finish();
    });
}
