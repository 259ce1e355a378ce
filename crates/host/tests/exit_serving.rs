//! A host that is an exit, with the real kernel and the real nft(8): what a member reaches there, whatever
//! the packet path lets through, and what the host forwards for others.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::time::Duration;

use tokio::runtime::Runtime;
use weft_host::exit::ServeExit;
use weft_host::exit::host::Host;
use weft_host::exit::rules::{CLOSED, SERVE};
use weft_os::netlink::{Netlink, VethEnd};
use weft_os::netns::NetNs;
use weft_os::test_support::{in_namespaces, require_nft};

/// How long is waited for a packet that shall not arrive.
const KEPT: Duration = Duration::from_millis(500);
/// How long is waited for one that shall: a link that has just come up takes a second now and then.
const ARRIVES: Duration = Duration::from_secs(20);

/// What a command prints.
fn printed(command: &str) -> String {
    let output = Command::new("sh").args(["-ec", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// An exit, the member behind `weft0`, a target on the Internet behind `eth0`, a printer behind `lan`.
struct World {
    exit: NetNs,
    member: NetNs,
    target: NetNs,
    printer: NetNs,
    runtime: Runtime,
}

impl World {
    fn new() -> Self {
        let [exit, member, target, printer] = std::array::from_fn(|_| NetNs::new().unwrap());
        let world = Self {
            exit,
            member,
            target,
            printer,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap(),
        };
        world.wire("weft0", &world.member, "10.44.0.1/24", "10.44.0.2/24");
        world.wire("eth0", &world.target, "203.0.113.10/24", "203.0.113.1/24");
        world.wire("lan", &world.printer, "192.168.9.1/24", "192.168.9.2/24");
        world.at(&world.exit, "ip route add default via 203.0.113.1");
        world.at(&world.member, "ip route add default via 10.44.0.1");
        world.at(&world.printer, "ip route add default via 192.168.9.1");
        world.at(
            &world.target,
            "ip route add 192.168.9.0/24 via 203.0.113.10; ip route add 172.17.0.0/16 via 203.0.113.10",
        );
        world
    }

    /// Connects the exit with another host.
    fn wire(&self, name: &str, other: &NetNs, ours: &str, theirs: &str) {
        cable(name, &self.exit, other);
        self.at(
            &self.exit,
            &format!("ip address add {ours} dev {name}; ip link set {name} up"),
        );
        self.at(other, &format!("ip address add {theirs} dev eth0; ip link set eth0 up"));
    }

    fn at(&self, host: &NetNs, command: &str) -> String {
        host.run(|| printed(command)).unwrap()
    }

    fn serves(&self, lans: &[&str]) -> Host {
        let exit = ServeExit {
            ipv4: true,
            ipv6: true,
            lans: lans.iter().map(|lan| lan.parse().unwrap()).collect(),
        };
        let serve = || {
            let mut host = Host::new(Netlink::open().unwrap().interface("weft0").unwrap().index);
            self.runtime.block_on(host.serve_exit(&exit)).unwrap();
            host
        };
        self.exit.run(serve).unwrap()
    }

    fn stops(&self, host: &mut Host) {
        let stop = || self.runtime.block_on(host.stop_serving());
        self.exit.run(stop).unwrap().unwrap();
    }

    fn tables(&self) -> String {
        self.at(&self.exit, "nft list ruleset")
    }

    /// Whether a datagram to this address arrives at a socket of the exit at all addresses.
    fn hears(&self, to: &str) -> bool {
        let tries = ARRIVES.as_millis() / KEPT.as_millis();
        (0..tries).any(|_| !self.keeps_out(to))
    }

    /// Whether one does not.
    fn keeps_out(&self, to: &str) -> bool {
        let socket = self.exit.run(|| bound(|| UdpSocket::bind("0.0.0.0:9999"))).unwrap();
        socket.set_read_timeout(Some(KEPT)).unwrap();
        let send = || {
            let socket = UdpSocket::bind("10.44.0.2:0").unwrap();
            socket.set_broadcast(true).unwrap();
            let _ = socket.send_to(b"here", (to, 9999));
        };
        self.member.run(send).unwrap();
        socket.recv(&mut [0; 9]).is_err()
    }
}

/// Binds a socket as soon as its port is free: a child that another test has just forked holds the one before
/// until it executes its program.
fn bound<S>(bind: impl Fn() -> io::Result<S>) -> S {
    for _ in 0..1_000 {
        match bind() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => std::thread::sleep(Duration::from_millis(10)),
            socket => return socket.unwrap(),
        }
    }
    panic!("the port is not free")
}

/// Connects an interface of a host with `eth0` of another one.
fn cable(name: &str, host: &NetNs, other: &NetNs) {
    let end = |name, namespace| VethEnd {
        name,
        namespace: Some(namespace),
    };
    let (one, two) = (end(name, host.as_fd()), end("eth0", other.as_fd()));
    Netlink::open().unwrap().create_veth(one, two).unwrap();
}

/// Whether a connection comes about from a host to a listener at `at`, by the address `to`.
fn connects(from: &NetNs, listener: (&NetNs, &str), to: &str) -> bool {
    comes_about(from, listener, to, ARRIVES)
}

/// Whether none comes about.
fn kept_out(from: &NetNs, listener: (&NetNs, &str), to: &str) -> bool {
    !comes_about(from, listener, to, KEPT)
}

fn comes_about(from: &NetNs, (host, at): (&NetNs, &str), to: &str, patience: Duration) -> bool {
    let at: SocketAddr = at.parse().unwrap();
    let listener = host.run(|| bound(|| TcpListener::bind(at))).unwrap();
    let to: SocketAddr = to.parse().unwrap();
    let connect = || TcpStream::connect_timeout(&to, patience);
    let connected: io::Result<TcpStream> = from.run(connect).unwrap();
    drop(listener);
    connected.is_ok()
}

#[test]
fn a_member_reaches_no_other_address_of_an_exits_host() {
    in_namespaces(|| {
        if !require_nft() {
            return;
        }
        let world = World::new();
        // As kube-proxy sets it, and a printer daemon on loopback.
        world.at(&world.exit, "sysctl -qw net.ipv4.conf.all.route_localnet=1");
        world.at(
            &world.member,
            "ip route add 127.0.0.9 via 10.44.0.1; sysctl -qw net.ipv4.conf.all.route_localnet=1",
        );
        world.at(
            &world.member,
            "ip route add 255.255.255.255 dev eth0; ip route add 224.0.0.0/4 dev eth0",
        );
        let foreign = [
            "192.168.9.1",
            "203.0.113.10",
            "127.0.0.9",
            "192.168.9.255",
            "255.255.255.255",
        ];
        for to in foreign {
            assert!(world.hears(to), "without an exit it is heard: {to}");
        }
        let _host = world.serves(&["10.44.0.1/32"]);
        for to in foreign {
            assert!(world.keeps_out(to), "{to}");
        }
        assert!(world.hears("10.44.0.1"), "the node itself");
        // As the rules of the packet path say: an own address of the Internet, and an approved route.
        let _host = world.serves(&["10.44.0.1/32", "203.0.113.10/32", "192.168.9.0/24"]);
        assert!(world.hears("203.0.113.10") && world.hears("192.168.9.1"));
        assert!(world.keeps_out("192.168.9.255") && world.keeps_out("127.0.0.9"));
        let printer = (&world.printer, "192.168.9.2:80");
        assert!(connects(&world.member, printer, "192.168.9.2:80"), "the approved route");
        assert!(connects(
            &world.member,
            (&world.target, "203.0.113.1:80"),
            "203.0.113.1:80"
        ));
    });
}

#[test]
fn a_published_port_is_reached_where_the_rules_were_asked() {
    in_namespaces(|| {
        if !require_nft() {
            return;
        }
        let world = World::new();
        // As Docker publishes a port of a container.
        world.at(
            &world.exit,
            "nft 'table ip d { chain p { type nat hook prerouting priority dstnat; \
             fib daddr type local tcp dport 8080 dnat to 192.168.9.2:80; }; }'",
        );
        let container = (&world.printer, "192.168.9.2:80");
        let mut host = world.serves(&["10.44.0.1/32"]);
        assert!(kept_out(&world.member, container, "203.0.113.10:8080"));
        assert!(kept_out(&world.member, container, "192.168.9.1:8080"));
        assert!(kept_out(&world.member, container, "192.168.9.2:80"));
        assert!(
            connects(&world.member, container, "10.44.0.1:8080"),
            "a port of the node"
        );
        assert!(
            connects(&world.target, container, "203.0.113.10:8080"),
            "for others, too"
        );
        world.stops(&mut host);
        assert!(connects(&world.target, container, "203.0.113.10:8080"), "and later");
    });
}

#[test]
fn a_host_that_forwarded_nothing_becomes_no_router() {
    in_namespaces(|| {
        if !require_nft() {
            return;
        }
        let world = World::new();
        world.at(
            &world.exit,
            "sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0 net.ipv6.conf.eth0.accept_ra=1 \
             net.ipv6.conf.default.accept_ra=1",
        );
        let on = || {
            let names = "net.ipv4.ip_forward net.ipv6.conf.all.forwarding net.ipv6.conf.eth0.accept_ra \
                         net.ipv6.conf.default.accept_ra";
            world.at(&world.exit, &format!("sysctl -n {names}")).replace('\n', " ")
        };
        let target = (&world.target, "203.0.113.1:80");
        let keeps = || kept_out(&world.printer, target, "203.0.113.1:80");
        let mut host = world.serves(&["10.44.0.1/32"]);
        assert_eq!(on(), "1 1 2 1 ", "and it follows its routers");
        assert!(connects(&world.member, target, "203.0.113.1:80") && keeps());
        // A flush of all rules is mended, with this, too.
        world.at(&world.exit, "nft flush ruleset");
        let mended = world.exit.run(|| world.runtime.block_on(host.mend())).unwrap().unwrap();
        assert!(mended.is_some() && keeps());
        // The exit ends: it forwards, and is closed, until both end with the host's run.
        world.exit.run(|| world.runtime.block_on(host.end())).unwrap();
        assert_eq!(on(), "1 1 2 1 ");
        let tables = world.tables();
        assert!(!tables.contains(SERVE) && keeps(), "{tables}");
        // The next one finds it, and leaves it as it is.
        let mut host = world.serves(&["10.44.0.1/32"]);
        assert!(connects(&world.member, target, "203.0.113.1:80") && keeps());
        world.at(&world.exit, &format!("nft delete table ip {CLOSED}"));
        world.exit.run(|| world.runtime.block_on(host.mend())).unwrap().unwrap();
        assert!(keeps());
        // If another program turns forwarding off, it is off, and nothing is left.
        world.at(
            &world.exit,
            "sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0",
        );
        world.stops(&mut host);
        let tables = world.tables();
        assert!(tables.trim().is_empty(), "{tables}");
    });
}

#[test]
fn a_router_and_a_host_of_containers_stay_as_they_are() {
    in_namespaces(|| {
        if !require_nft() {
            return;
        }
        let world = World::new();
        world.at(
            &world.exit,
            "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
        );
        let routes = || connects(&world.printer, (&world.target, "203.0.113.1:80"), "203.0.113.1:80");
        assert!(routes());
        let mut host = world.serves(&["10.44.0.1/32"]);
        assert!(routes() && !world.tables().contains(CLOSED));
        world.stops(&mut host);
        assert!(routes() && world.tables().trim().is_empty());
    });
}

#[test]
fn containers_that_come_later_have_their_network() {
    in_namespaces(|| {
        if !require_nft() {
            return;
        }
        let world = World::new();
        world.at(&world.exit, "sysctl -qw net.ipv4.ip_forward=0");
        let mut host = world.serves(&["10.44.0.1/32"]);
        // A bridge with a container, as Docker makes it. Its own forwarding is on already.
        let container = NetNs::new().unwrap();
        cable("vethc", &world.exit, &container);
        world.at(
            &world.exit,
            "ip link add docker0 type bridge; ip link set vethc master docker0 up; \
             ip address add 172.17.0.1/16 dev docker0; ip link set docker0 up; sysctl -qw net.ipv4.ip_forward=1; \
             nft 'table ip d { chain o { type nat hook postrouting priority srcnat; \
             ip saddr 172.17.0.0/16 oifname != docker0 masquerade; }; \
             chain i { type nat hook prerouting priority dstnat; \
             fib daddr type local tcp dport 8080 dnat to 172.17.0.2:80; }; }'",
        );
        world.at(
            &container,
            "ip address add 172.17.0.2/16 dev eth0; ip link set eth0 up; ip route add default via 172.17.0.1",
        );
        let target = (&world.target, "203.0.113.1:80");
        let whole = || {
            connects(&container, target, "203.0.113.1:80")
                && connects(&world.target, (&container, "172.17.0.2:80"), "203.0.113.10:8080")
                && connects(&world.printer, (&container, "172.17.0.2:80"), "192.168.9.1:8080")
        };
        assert!(whole());
        assert!(connects(&world.member, (&container, "172.17.0.2:80"), "10.44.0.1:8080"));
        assert!(kept_out(&world.member, (&container, "172.17.0.2:80"), "172.17.0.2:80"));
        assert!(
            kept_out(&world.printer, target, "203.0.113.1:80"),
            "no router for others"
        );
        world.stops(&mut host);
        assert!(whole());
        let mut host = world.serves(&["10.44.0.1/32"]);
        assert!(whole(), "after a restart");
        world.exit.run(|| world.runtime.block_on(host.end())).unwrap();
        assert!(whole());
        assert!(kept_out(&world.printer, target, "203.0.113.1:80"));
    });
}
