//! Routes to subnets behind peers, with the real kernel.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use weft_config::Config;
use weft_host::routes::{PeerRoutes, WantedRoutes};
use weft_host::surroundings::{Subnets, Surroundings};
use weft_os::netlink::Netlink;
use weft_os::netns::NetNs;
use weft_os::test_support::in_namespaces;

const SITE: &str = "192.168.9.0/24";

fn run(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A host with a LAN and an interface of a node.
struct Scene {
    netlink: Netlink,
    routes: PeerRoutes,
    wanted: WantedRoutes,
}

impl Scene {
    fn new() -> Self {
        run("ip link add lan type veth peer name out; ip link set out up");
        run("ip address add 10.9.0.2/24 dev lan; ip link set lan up");
        run("ip route add default via 10.9.0.1");
        run("ip link add weft0 type veth peer name in; ip link set in up; ip link set weft0 up");
        run("ip address add 10.44.0.1/32 dev weft0; ip address add 10.44.0.2/32 dev weft0");
        let mut netlink = Netlink::open().unwrap();
        let index = netlink.interface("weft0").unwrap().index;
        let config = Config::parse("", Path::new("weft.toml")).unwrap();
        Self {
            netlink,
            routes: PeerRoutes::new(index, &config),
            wanted: WantedRoutes::default(),
        }
    }

    fn want(&mut self, subnet: &str, source: Option<&str>) {
        let source = source.map(|ip| ip.parse::<Ipv4Addr>().unwrap());
        self.wanted.subnets.insert(subnet.parse().unwrap(), source);
    }

    fn surroundings(&mut self) -> Surroundings {
        let subnets: Subnets = self.wanted.subnets.keys().copied().collect();
        Surroundings::read(&mut self.netlink, &subnets).unwrap()
    }

    fn set(&mut self) -> bool {
        let surroundings = self.surroundings();
        self.routes.set(&mut self.netlink, &self.wanted, &surroundings).is_ok()
    }

    fn handle_change(&mut self, paths: bool) {
        let surroundings = self.surroundings();
        let handled = self
            .routes
            .handle_system_change(&mut self.netlink, &self.wanted, &surroundings, paths);
        handled.unwrap();
    }

    /// Whether the system leads the subnet into the interface, as the value says.
    fn leads(&self, subnet: &str) -> bool {
        let there = run(&format!("ip route show {subnet} dev weft0")).contains(subnet);
        assert_eq!(
            there,
            !self.routes.withheld().contains_key(&subnet.parse().unwrap()),
            "{subnet}"
        );
        there
    }
}

/// Runs a test in a network namespace of its own.
fn alone(body: impl FnOnce(Scene) + Send) {
    NetNs::new().unwrap().run(|| body(Scene::new())).unwrap();
}

#[test]
fn a_route_stays_when_its_source_changes() {
    in_namespaces(|| {
        alone(|mut scene| {
            for source in [Some("10.44.0.1"), Some("10.44.0.2"), None, Some("10.44.0.1")] {
                scene.want(SITE, source);
                assert!(scene.set());
                assert!(scene.leads(SITE), "{source:?}");
                let line = run("ip route show 192.168.9.0/24");
                assert_eq!(
                    source.is_some_and(|ip| line.contains(&format!("src {ip}"))),
                    source.is_some(),
                    "{line}"
                );
            }
        });
    });
}

#[test]
fn a_subnet_in_which_a_peer_is_follows_the_routes_to_that() {
    in_namespaces(|| {
        alone(|mut scene| {
            scene.want(SITE, None);
            scene.wanted.peers.insert("192.168.9.80:2121".parse().unwrap());
            run("ip route add 192.168.9.80/32 via 10.9.0.1");
            assert!(scene.set());
            assert!(scene.leads(SITE), "a smaller route leads to the peer");
            run("ip route delete 192.168.9.80/32");
            scene.handle_change(true);
            assert!(!scene.leads(SITE), "datagrams to the peer would go into the tunnel");
            scene.handle_change(true);
            assert!(!scene.leads(SITE), "nothing has changed");
            run("ip route add 192.168.9.80/32 via 10.9.0.1");
            scene.handle_change(true);
            assert!(scene.leads(SITE));
        });
    });
}

#[test]
fn a_route_that_is_refused_keeps_no_other_from_being_set() {
    in_namespaces(|| {
        alone(|mut scene| {
            // No address of this host.
            scene.want("10.5.0.0/16", Some("10.44.0.99"));
            scene.want(SITE, None);
            assert!(!scene.set());
            assert!(scene.leads(SITE));
            run("ip address add 10.44.0.99/32 dev weft0");
            assert!(scene.set());
            assert!(scene.leads("10.5.0.0/16"));
        });
    });
}
