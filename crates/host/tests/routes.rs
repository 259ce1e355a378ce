//! The table of routes to subnets behind peers, with the real kernel.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command};

use weft_config::Config;
use weft_host::interface::{Keeper, Wanted};
use weft_host::routes::{self, PRIORITIES, TABLE, WantedRoutes};
use weft_host::tun::mesh_route;
use weft_os::netlink::{Netlink, NetlinkError};
use weft_os::netns::NetNs;
use weft_os::test_support::in_namespaces;
use weft_os::udp::MARK;

const SITE: &str = "192.168.9.0/24";
/// A peer in the site, and a host there.
const PEER: &str = "192.168.9.80";
const PRINTER: &str = "192.168.9.2";

fn run(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A host with a LAN, whose router reaches the site as well, and an interface of a node.
struct Scene {
    netlink: Netlink,
    keeper: Keeper,
    index: u32,
}

impl Scene {
    fn new() -> Self {
        run("ip link set lo up; ip link add lan type veth peer name out; ip link set out up");
        run("ip address add 10.9.0.2/24 dev lan; ip link set lan up; ip -6 address add 2001:db8:1::2/64 dev lan nodad");
        run("ip route add default via 10.9.0.1; ip -6 route add default via 2001:db8:1::1 dev lan");
        run("ip link add weft0 type veth peer name in; ip link set in up; ip link set weft0 mtu 1470 up");
        run("ip address add 10.44.0.1/32 dev weft0; ip address add 10.44.0.2/32 dev weft0");
        let mut netlink = Netlink::open().unwrap();
        let index = netlink.interface("weft0").unwrap().index;
        let addresses = ["10.44.0.1", "10.44.0.2"].map(|text| (text.parse().unwrap(), 32));
        let wanted = Wanted {
            mtu: 1_470,
            addresses: addresses.into(),
            ..Wanted::default()
        };
        Self {
            netlink,
            keeper: Keeper::new(index, wanted, 0),
            index,
        }
    }

    fn want(&mut self, wanted: &WantedRoutes) -> bool {
        let config = Config::parse("", Path::new("weft.toml")).unwrap();
        let wanted = Wanted {
            routes: wanted.routes(self.index, &config),
            rules: wanted.rules(),
            ..self.keeper.wanted().clone()
        };
        self.keeper.want(0, wanted, &mut self.netlink).is_ok()
    }

    /// The interface of packets to an address, with this mark.
    fn towards(&mut self, to: &str, mark: u32) -> String {
        let index = self.netlink.interface_of_marked(to.parse().unwrap(), mark).unwrap();
        self.netlink.interface_at(index.unwrap()).unwrap().name
    }

    fn is_empty(&mut self) -> bool {
        let (rules, routes) = self.netlink.count_rules_and_routes(&PRIORITIES, TABLE).unwrap();
        (rules, routes) == (0, 0)
    }
}

fn subnets(subnets: &[&str]) -> WantedRoutes {
    WantedRoutes {
        subnets: subnets.iter().map(|text| (text.parse().unwrap(), None)).collect(),
        ..WantedRoutes::default()
    }
}

/// Runs a test in a network namespace of its own.
fn alone(body: impl FnOnce(Scene) + Send) {
    in_namespaces(|| NetNs::new().unwrap().run(|| body(Scene::new())).unwrap());
}

#[test]
fn datagrams_of_the_node_take_no_route_of_its_own() {
    alone(|mut scene| {
        assert!(scene.want(&subnets(&[SITE, "2001:db8:9::/64"])));
        for to in [PEER, "2001:db8:9::80"] {
            assert_eq!(scene.towards(to, 0), "weft0");
            assert_eq!(scene.towards(to, MARK), "lan");
            assert_eq!(scene.towards(to, MARK | 1), "lan", "other programs have other bits");
        }
        assert!(scene.want(&subnets(&[])));
        assert_eq!(scene.towards(PEER, 0), "lan");
        assert!(scene.is_empty());
    });
}

#[test]
fn a_network_of_the_host_within_a_subnet_stays_its_own() {
    alone(|mut scene| {
        let mut wanted = subnets(&["10.0.0.0/8", "2001:db8::/32"]);
        wanted.past = ["10.9.0.0/24", "2001:db8:1::/64"]
            .map(|text| text.parse().unwrap())
            .into();
        assert!(scene.want(&wanted));
        for (inside, past) in [("10.8.0.7", "10.9.0.7"), ("2001:db8:2::7", "2001:db8:1::7")] {
            assert_eq!((&*scene.towards(inside, 0), &*scene.towards(past, 0)), ("weft0", "lan"));
        }
        // It becomes that of a peer, and again its own: in both cases in one step.
        for (place, by) in [(true, "weft0"), (false, "lan")] {
            let mut now = wanted.clone();
            if place {
                now.past.clear();
                now.subnets.extend(subnets(&["10.9.0.0/24", "2001:db8:1::/64"]).subnets);
            }
            assert!(scene.want(&now));
            for to in ["10.9.0.7", "2001:db8:1::7"] {
                assert_eq!(scene.towards(to, 0), by);
            }
        }
        assert!(scene.keeper.probe(&mut scene.netlink).unwrap().is_empty());
    });
}

#[test]
fn a_gateway_is_looked_for_on_no_route_to_a_peer() {
    alone(|mut scene| {
        assert!(scene.want(&subnets(&["10.0.0.0/8"])));
        // A link that has just come, of which the daemon does not know yet.
        run("ip address add 10.77.0.2/24 dev lan; ip route add 198.51.100.0/24 via 10.77.0.1");
        assert_eq!(scene.towards("198.51.100.7", 0), "lan");
    });
}

/// A host outside, which sends from the address of the peer.
struct Outside {
    namespace: NetNs,
    _holder: Holder,
}

/// A process that keeps a namespace, so that programs find it by its number.
struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Outside {
    fn new() -> Self {
        let namespace = NetNs::new().unwrap();
        let holder = Holder(namespace.spawn(Command::new("sleep").arg("600")).unwrap());
        run("ip link set lan address 02:00:00:00:00:01");
        run(&format!("ip link set out netns {}", holder.0.id()));
        // The router between both has asked for the link address.
        let prepare = format!(
            "ip link set out up; ip address add {PEER}/32 dev out; ip route add 10.9.0.2 dev out; \
             ip neighbour add 10.9.0.2 lladdr 02:00:00:00:00:01 dev out"
        );
        namespace.run(|| run(&prepare)).unwrap();
        Self {
            namespace,
            _holder: holder,
        }
    }

    /// Whether a datagram arrives at a socket. Otherwise the check of sources has dropped it.
    fn arrives(&self, at: &UdpSocket) -> bool {
        let (before, to) = (dropped(), at.local_addr().unwrap());
        let send = || UdpSocket::bind((PEER, 0)).and_then(|from| from.send_to(b"x", to));
        self.namespace.run(send).unwrap().unwrap();
        loop {
            match at.recv(&mut [0; 9]) {
                Ok(_) => return true,
                Err(_) if dropped() > before => return false,
                Err(_) => std::thread::yield_now(),
            }
        }
    }
}

/// The packets that the check of sources has dropped.
fn dropped() -> u64 {
    let count = run("nstat -asz TcpExtIPReversePathFilter 2> /dev/null | grep Reverse | tr -s ' ' | cut -d ' ' -f 2");
    count.trim().parse().unwrap()
}

/// The peer sends by the router of the LAN.
#[test]
fn a_strict_check_of_sources_lets_a_peer_in_the_subnet_pass() {
    alone(|mut scene| {
        let outside = Outside::new();
        run("for i in all lan; do echo 1 > /proc/sys/net/ipv4/conf/$i/rp_filter; done");
        let [own, other] = [0; 2].map(|port| {
            let socket = UdpSocket::bind(("10.9.0.2", port)).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        });
        assert!(outside.arrives(&own), "the control");
        let mut wanted = subnets(&[SITE]);
        assert!(scene.want(&wanted));
        assert!(!outside.arrives(&own), "the check is strict");
        wanted.ports = BTreeSet::from([own.local_addr().unwrap().port()]);
        assert!(scene.want(&wanted));
        assert!(outside.arrives(&own));
        assert!(!outside.arrives(&other), "only for the node's own port");
        assert_eq!(scene.towards(PRINTER, 0), "weft0");
    });
}

#[test]
fn a_route_stays_when_its_source_changes() {
    alone(|mut scene| {
        for source in [Some("10.44.0.1"), Some("10.44.0.2"), None, Some("10.44.0.1")] {
            let mut wanted = subnets(&[]);
            let source = source.map(|ip| ip.parse().unwrap());
            wanted.subnets.insert(SITE.parse().unwrap(), source);
            assert!(scene.want(&wanted));
            let line = run(&format!("ip route show table {TABLE} {SITE}"));
            let has_source = source.is_some_and(|ip| line.contains(&format!("src {ip}")));
            assert_eq!((has_source, line.lines().count()), (source.is_some(), 1), "{line}");
        }
    });
}

#[test]
fn a_route_that_is_refused_keeps_no_other_from_being_set() {
    alone(|mut scene| {
        let mut wanted = subnets(&[SITE]);
        // No address of this host.
        let source = Some("10.44.0.99".parse().unwrap());
        wanted.subnets.insert("10.5.0.0/16".parse().unwrap(), source);
        assert!(!scene.want(&wanted));
        assert_eq!(scene.towards(PRINTER, 0), "weft0");
        run("ip address add 10.44.0.99/32 dev weft0");
        scene.keeper.look_soon(0);
        let now = scene.keeper.timeout();
        let outcome = scene.keeper.handle_timeout(now, &mut scene.netlink).unwrap().unwrap();
        assert!(outcome.refused.is_empty(), "{outcome:?}");
        assert_eq!(scene.towards("10.5.0.7", 0), "weft0");
    });
}

#[test]
fn routes_of_a_killed_daemon_and_its_lost_interface_are_removed() {
    alone(|mut scene| {
        let mut wanted = subnets(&["10.0.0.0/8"]);
        wanted.past = BTreeSet::from(["10.9.0.0/24".parse().unwrap()]);
        assert!(scene.want(&wanted));
        // The kernel removes the routes through the interface, and no others.
        run("ip link delete weft0");
        // Another daemon of this host has begun meanwhile.
        run("ip link add weft1 type veth peer name in1; ip link set in1 up; ip link set weft1 up");
        let other = scene.netlink.interface("weft1").unwrap().index;
        scene.netlink.add_route(mesh_route(other)).unwrap();
        routes::remove_left(scene.index).unwrap();
        assert!(!scene.is_empty());
        run("ip link delete weft1");
        routes::remove_left(scene.index).unwrap();
        assert!(scene.is_empty());
        let gone = scene.netlink.delete_rule(wanted.rules()[0]);
        assert!(matches!(gone, Err(NetlinkError::NotFound { .. })), "{gone:?}");
    });
}

#[test]
fn rules_of_other_programs_and_of_exits_stay() {
    alone(|mut scene| {
        run(
            "ip rule add to 203.0.113.77 lookup 99 priority 5191; ip rule add fwmark 7 lookup 99 priority 5210 protocol 119",
        );
        let before = run("ip rule");
        assert!(scene.want(&subnets(&[SITE])));
        assert!(scene.want(&subnets(&[])));
        routes::remove(&mut scene.netlink).unwrap();
        assert_eq!(run("ip rule"), before);
    });
}

#[test]
fn a_kernel_without_rules_has_the_routes_in_the_main_table() {
    alone(|mut scene| {
        let mut wanted = subnets(&[SITE]);
        wanted.in_main = [true; 2];
        assert!(scene.want(&wanted));
        assert!(scene.is_empty());
        assert_eq!(scene.towards(PRINTER, 0), "weft0");
        assert!(run(&format!("ip route show {SITE}")).contains("dev weft0"));
    });
}
