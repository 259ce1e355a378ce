//! Routes of a private network: a member offers a subnet behind it, an administrator approves it,
//! and members that accept routes reach it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use weft_host::routes::{PRIORITIES, TABLE};
use weft_lab::daemon::{Daemon, DaemonError};
use weft_lab::host::Host;
use weft_lab::traffic::{PingOptions, Pinger};
use weft_lab::world::{Link, Switch, World};
use weft_os::assert_strict;
use weft_os::netlink::{InterfaceAddress, Netlink};

use crate::common::{MINUTE, PATIENCE, Underlay, WEFT, beside, identity, wait_until};

const LAN: &str = "192.168.7.0/24";
const PRINTER: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 2);

/// Three members: desk, the administrator; nas, with a printer on a LAN behind it; laptop.
struct Home {
    _world: World,
    _switch: Switch,
    _lan: Link,
    _printer: Host,
    desk: Daemon,
    nas: Daemon,
    laptop: Daemon,
}

impl Home {
    fn start() -> Self {
        let world = World::new().unwrap();
        let switch = world.switch("net").unwrap();
        let [desk, nas, laptop] = [("desk", 1), ("nas", 2), ("laptop", 3)].map(|(name, number)| {
            let host = world.host(name).unwrap();
            switch.connect(&host, &[&format!("192.0.2.{number}/24")]).unwrap();
            let id = identity(&world, name);
            let mut node = Daemon::start(&host, Path::new(WEFT), &id, &Underlay::V4.listener()).unwrap();
            node.wait_ready(PATIENCE).unwrap();
            node
        });
        let printer = world.host("printer").unwrap();
        let ends = (
            (nas.host(), &["192.168.7.1/24"][..]),
            (&printer, &["192.168.7.2/24"][..]),
        );
        let lan = world.link(ends.0, ends.1).unwrap();
        nas.host().forward().unwrap();
        printer.add_default_route("192.168.7.1".parse().unwrap()).unwrap();
        done(&desk, &["create", "home", "--host", "desk"]);
        let invited: Value = serde_json::from_str(&done(&desk, &["invite", "--uses", "2", "--json"])).unwrap();
        let code = invited["code"].as_str().unwrap();
        done(&nas, &["join", code, "--host", "nas"]);
        done(&laptop, &["join", code, "--host", "laptop"]);
        Self {
            _world: world,
            _switch: switch,
            _lan: lan,
            _printer: printer,
            desk,
            nas,
            laptop,
        }
    }

    fn finish(mut self) {
        for node in [&mut self.desk, &mut self.nas, &mut self.laptop] {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert!(node.warnings().unwrap().is_empty(), "{:?}", node.warnings());
        }
    }
}

fn done(node: &Daemon, arguments: &[&str]) -> String {
    let output = node.command(arguments);
    let output = output.unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
    String::from_utf8(output.stdout).unwrap()
}

/// The one line of a command that fails with `code`.
fn failed(node: &Daemon, arguments: &[&str], code: i32) -> String {
    match node.command(arguments) {
        Err(DaemonError::Command { status, stderr, .. }) => {
            assert_eq!(status.code(), Some(code), "{arguments:?}: {stderr}");
            stderr
        }
        other => panic!("{arguments:?}: {other:?}"),
    }
}

fn network(node: &Daemon) -> Value {
    let list: Value = serde_json::from_str(&done(node, &["routes", "--json"])).unwrap();
    list["networks"][0].clone()
}

/// The route to the LAN as a node knows it.
fn route(node: &Daemon) -> Value {
    let routes = network(node)["routes"].as_array().cloned().unwrap_or_default();
    routes
        .into_iter()
        .find(|route| route["subnet"] == LAN)
        .unwrap_or_default()
}

fn prints(from: &Daemon) -> bool {
    prints_as(from, None)
}

/// Whether the printer answers an echo request from this source address.
fn prints_as(from: &Daemon, source: Option<IpAddr>) -> bool {
    let options = PingOptions {
        source,
        count: Some(1),
        ..PingOptions::default()
    };
    let pinger = Pinger::start(from.host(), PRINTER, options).unwrap();
    pinger.join().unwrap().received == 1
}

/// The destinations of the routes of a host, with those of the table of weft.
fn kernel_routes(of: &Daemon) -> Vec<(IpAddr, u8)> {
    let mut routes = of.host().netlink(Netlink::routes).unwrap();
    routes.extend(of.host().netlink(|netlink| netlink.own_routes(TABLE)).unwrap());
    let mut routes: Vec<_> = routes
        .iter()
        .map(|route| (route.destination, route.prefix_len))
        .collect();
    routes.sort();
    routes
}

/// Waits until the routes of a host are these.
fn wait_routes(of: &Daemon, routes: &[(IpAddr, u8)]) {
    wait_until(PATIENCE, "all routes are back", || kernel_routes(of) == routes);
}

fn has_lan(node: &Daemon) -> bool {
    kernel_routes(node).contains(&("192.168.7.0".parse().unwrap(), 24))
}

/// Whether a host has rules or routes of the table of weft.
fn has_rules(node: &Daemon) -> bool {
    let count = node
        .host()
        .netlink(|netlink| netlink.count_rules_and_routes(&PRIORITIES, TABLE));
    count.unwrap() != (0, 0)
}

fn counter(node: &Daemon, name: &str) -> u64 {
    node.status().unwrap()["counters"][name].as_u64().unwrap()
}

fn approve(home: &Home) {
    done(&home.nas, &["set", "--advertise-route", LAN]);
    wait_until(PATIENCE, "the offer arrives", || route(&home.desk)["offered"] == true);
    done(&home.laptop, &["set", "--accept-routes", "true"]);
    done(&home.desk, &["route", "approve", "nas", LAN]);
    wait_until(MINUTE, "the printer is reached", || prints(&home.laptop));
}

#[test]
fn members_that_accept_an_approved_route_reach_the_subnet() {
    beside(|| {
        let mut home = Home::start();
        let line = failed(&home.desk, &["route", "approve", "nas", LAN], 1);
        assert!(line.contains("nas does not offer the route 192.168.7.0/24"), "{line}");
        let line = failed(&home.nas, &["set", "--advertise-route", "10.44.0.0/16"], 2);
        assert!(line.contains("where the addresses of members are"), "{line}");
        done(&home.nas, &["set", "--advertise-route", LAN]);
        done(&home.laptop, &["set", "accept-routes", "true"]);
        wait_until(PATIENCE, "the offer arrives", || route(&home.desk)["offered"] == true);
        let table = done(&home.desk, &["routes"]);
        assert!(table.contains("nas") && table.contains("offered"), "{table}");
        assert_strict!(
            !has_lan(&home.laptop) && !prints(&home.laptop),
            "an offer has no effect"
        );
        let line = failed(&home.nas, &["route", "approve", "nas", LAN], 1);
        assert!(
            line.contains("no administrator of the network; ask one of desk"),
            "{line}"
        );

        done(&home.desk, &["route", "approve", "nas", LAN]);
        wait_until(MINUTE, "the printer is reached", || prints(&home.laptop));
        assert_eq!(route(&home.laptop)["used"], true);
        wait_until(PATIENCE, "status says so", || {
            let nas = home.laptop.peer(&home.nas.identity().npub).unwrap().unwrap();
            nas["member_of"][0] == "home" && nas["routes"]["pass"] == true
        });
        wait_until(PATIENCE, "nas says so", || {
            route(&home.nas)["why"] == "members may send to it"
        });
        assert_strict!(
            !has_lan(&home.desk) && !prints(&home.desk),
            "desk does not accept routes"
        );
        assert_eq!(route(&home.desk)["used"], false);

        // A crash and a stop: the same routes afterwards, and none of Weft in between.
        let before = kernel_routes(&home.laptop);
        home.laptop.kill().unwrap();
        assert!(!has_lan(&home.laptop));
        wait_until(PATIENCE, "the broker has removed the rules", || {
            !has_rules(&home.laptop)
        });
        home.laptop.restart().unwrap();
        home.laptop.wait_ready(PATIENCE).unwrap();
        wait_until(MINUTE, "the printer is reached again", || prints(&home.laptop));
        wait_routes(&home.laptop, &before);
        assert!(has_rules(&home.laptop));
        assert_eq!(home.laptop.stop().unwrap().code(), Some(0));
        assert!(!has_lan(&home.laptop) && !has_rules(&home.laptop));
        home.laptop.restart().unwrap();
        home.laptop.wait_ready(PATIENCE).unwrap();
        wait_until(MINUTE, "the printer is reached again", || prints(&home.laptop));
        wait_routes(&home.laptop, &before);

        done(&home.desk, &["route", "revoke", "nas", LAN]);
        wait_until(PATIENCE, "the route ends", || !has_lan(&home.laptop));
        assert_strict!(!prints(&home.laptop), "the route was revoked");
        wait_until(PATIENCE, "nas knows it", || route(&home.nas)["approved"] == false);
        home.finish();
    });
}

/// One of the addresses of nas is in the subnet behind it, which packets of the laptop reach through
/// the tunnel. A link to that address would lead through itself.
#[test]
fn a_link_does_not_lead_through_the_subnet_behind_its_peer() {
    beside(|| {
        let home = Home::start();
        approve(&home);
        wait_until(MINUTE, "the laptop knows the address", || {
            let nas = home.laptop.peer(&home.nas.identity().npub).unwrap().unwrap();
            nas.to_string().contains("192.168.7.1:2121")
        });
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) {
            wait_until(PATIENCE, "the printer is reached", || prints(&home.laptop));
        }
        let peers: Value = serde_json::from_str(&done(&home.laptop, &["status", "--json"])).unwrap();
        assert!(peers.to_string().contains("192.0.2.2:2121"), "{peers:#}");
        let log = std::fs::read_to_string(home.laptop.log_path()).unwrap();
        assert!(!log.contains("path=192.168.7.1"), "{log}");
        // Not even a probe has entered the tunnel.
        assert_eq!(counter(&home.laptop, "underlay_loops"), 0);
        home.finish();
    });
}

#[test]
fn a_source_address_in_a_route_of_another_member_passes_nowhere() {
    beside(|| {
        let home = Home::start();
        approve(&home);
        let ipv4 = |node: &Daemon| network(node)["ipv4"].as_str().unwrap().parse::<Ipv4Addr>().unwrap();
        let [nas, laptop] = [&home.nas, &home.laptop].map(|node| SocketAddr::from((ipv4(node), 9)));
        // The desk takes an address of the LAN. Its own node drops what it sends from there.
        let source: IpAddr = "192.168.7.77".parse().unwrap();
        let add = |netlink: &mut Netlink| {
            let index = netlink.interface("lo")?.index;
            netlink.add_address(InterfaceAddress {
                index,
                address: source,
                prefix_len: 32,
            })
        };
        home.desk.host().netlink(add).unwrap();
        let socket = home.desk.host().run(|| UdpSocket::bind((source, 0))).unwrap().unwrap();
        wait_until(PATIENCE, "the node of the desk drops it", || {
            let _ = socket.send_to(b"forged", nas);
            counter(&home.desk, "wrong_source") > 0
        });
        // With a node that sends it all the same, those of the receivers do.
        done(&home.desk, &["set", "tun.routes", "[\"192.168.7.0/24\"]"]);
        for node in [&home.nas, &home.laptop] {
            add_peer(&home.desk, &format!("npub = \"{}\"", node.identity().npub));
        }
        let ears = [(&home.nas, nas), (&home.laptop, laptop)].map(|(node, at)| {
            let ear = node.host().run(|| UdpSocket::bind(at)).unwrap().unwrap();
            ear.set_nonblocking(true).unwrap();
            (node, at, ear)
        });
        for (node, at, ear) in &ears {
            wait_until(MINUTE, "a receiver drops it", || {
                let _ = socket.send_to(b"forged", at);
                counter(node, "foreign_source") > 0
            });
            assert_strict!(ear.recv(&mut [0; 9]).is_err(), "a forged datagram arrives");
        }
        wait_until(PATIENCE, "the route itself is not disturbed", || prints(&home.laptop));
        home.finish();
    });
}

#[test]
fn only_members_of_its_network_send_to_an_approved_subnet() {
    beside(|| {
        let home = Home::start();
        approve(&home);
        done(&home.desk, &["member", "remove", "laptop"]);
        wait_until(PATIENCE, "the laptop is no member", || !prints(&home.laptop));
        wait_until(PATIENCE, "nas knows it", || {
            let laptop = home.nas.peer(&home.laptop.identity().npub).unwrap();
            laptop.is_none_or(|peer| peer["member_of"].as_array().is_none_or(Vec::is_empty))
        });
        done(&home.laptop, &["leave"]);

        // Nas and laptop are peers by hand from now on, and the laptop leads the subnet to nas.
        let own: IpAddr = "10.99.0.3".parse().unwrap();
        let nas = &home.nas.identity().npub;
        let peer = format!("npub = \"{nas}\"\naddresses = [\"192.0.2.2:2121\"]\nroutes = [\"{LAN}\"]");
        add_peer(&home.laptop, &peer);
        let laptop = &home.laptop.identity().npub;
        add_peer(&home.nas, &format!("npub = \"{laptop}\"\nroutes = [\"{own}/32\"]"));
        done(&home.laptop, &["set", "tun.routes", "[\"10.99.0.3/32\"]"]);
        let add = |netlink: &mut Netlink| {
            let index = netlink.interface("lo")?.index;
            netlink.add_address(InterfaceAddress {
                index,
                address: own,
                prefix_len: 32,
            })
        };
        home.laptop.host().netlink(add).unwrap();
        let prints = || prints_as(&home.laptop, Some(own));
        wait_until(MINUTE, "nas denies it", || {
            assert_strict!(!prints(), "a peer that is no member reaches the printer");
            counter(&home.nas, "denied_by_rules") > 0
        });
        done(&home.nas, &["set", "tun.routes", "[\"192.168.7.0/24\"]"]);
        wait_until(MINUTE, "a subnet of the configuration is for its peers", prints);
        home.finish();
    });
}

/// Adds a peer with these settings to the configuration.
fn add_peer(node: &Daemon, settings: &str) {
    let path = node.identity().state.join("config.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{text}\n[[peer]]\n{settings}\n")).unwrap();
    done(node, &["reload"]);
}

/// The interface by which packets of a host leave.
fn towards(of: &Daemon, address: &str) -> Option<u32> {
    let address: IpAddr = address.parse().unwrap();
    of.host().netlink(|netlink| netlink.interface_towards(address)).unwrap()
}

fn index_of(of: &Daemon, interface: &str) -> Option<u32> {
    let found = of.host().netlink(|netlink| netlink.interface(interface)).unwrap();
    Some(found.index)
}

/// A member offers one address of the LAN that this host is in.
#[test]
fn a_host_of_the_own_link_is_reached_there_and_not_by_a_member() {
    beside(|| {
        const NEIGHBOUR: &str = "192.0.2.77/32";
        let home = Home::start();
        done(&home.nas, &["set", "--advertise-route", NEIGHBOUR]);
        done(&home.laptop, &["set", "--accept-routes", "true"]);
        wait_until(PATIENCE, "the route is approved", || {
            home.desk.command(&["route", "approve", "nas", NEIGHBOUR]).is_ok()
        });
        let why = || {
            let routes = network(&home.laptop)["routes"].as_array().cloned().unwrap_or_default();
            let mut of = routes.into_iter().filter(|route| route["subnet"] == NEIGHBOUR);
            let why = of.next().map(|route| route["why"].as_str().unwrap().to_owned());
            why.unwrap_or_default()
        };
        wait_until(MINUTE, "weft routes says so", || {
            why().starts_with("no route: this host is in 192.0.2.0/24 by ")
        });
        assert_strict!(
            towards(&home.laptop, "192.0.2.77") == index_of(&home.laptop, "eth0"),
            "a member takes the place of a neighbour"
        );
        let status = done(&home.laptop, &["status"]);
        assert!(
            status.contains("route 192.0.2.77/32 of nas is not used: this host is in 192.0.2.0/24"),
            "{status}"
        );
        // The link ends, so that the route of the member counts, and comes back.
        let address = InterfaceAddress {
            index: index_of(&home.laptop, "eth0").unwrap(),
            address: "192.0.2.3".parse().unwrap(),
            prefix_len: 24,
        };
        let delete = |netlink: &mut Netlink| netlink.delete_address(address);
        home.laptop.host().netlink(delete).unwrap();
        let by = |interface: &str| towards(&home.laptop, "192.0.2.77") == index_of(&home.laptop, interface);
        wait_until(PATIENCE, "the member has it", || by("weft0"));
        home.laptop
            .host()
            .netlink(|netlink| netlink.add_address(address))
            .unwrap();
        wait_until(PATIENCE, "the neighbour has it", || by("eth0"));
    });
}

/// The LAN of the laptop has addresses of the range of networks, and its router that of a member.
#[test]
fn a_members_address_wins_over_a_link_but_not_over_its_router() {
    beside(|| {
        const ROUTER: &str = "10.44.3.4";
        let home = Home::start();
        let index = index_of(&home.laptop, "eth0").unwrap();
        let address = InterfaceAddress {
            index,
            address: "10.44.3.1".parse().unwrap(),
            prefix_len: 16,
        };
        home.laptop
            .host()
            .netlink(|netlink| netlink.add_address(address))
            .unwrap();
        home.laptop.host().add_default_route(ROUTER.parse().unwrap()).unwrap();
        let desk = network(&home.desk)["ipv4"].as_str().unwrap().to_owned();
        wait_until(PATIENCE, "the address of a member leads to it", || {
            towards(&home.laptop, &desk) == index_of(&home.laptop, "weft0")
        });
        done(&home.desk, &["member", "address", "nas", ROUTER]);
        let named = "10.44.3.4, the address of nas, is not used: a router of this host has it";
        wait_until(MINUTE, "members and status say so", || {
            ["members", "status"]
                .iter()
                .all(|command| done(&home.laptop, &[command]).contains(named))
        });
        assert_strict!(
            towards(&home.laptop, ROUTER) == Some(index),
            "a member takes the place of the router"
        );
        assert!(towards(&home.laptop, &desk) == index_of(&home.laptop, "weft0"));
        // On a host without that router it leads to the member.
        assert!(towards(&home.desk, ROUTER) == index_of(&home.desk, "weft0"));
    });
}
