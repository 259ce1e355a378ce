//! The node's own interface, with the real kernel: what other programs remove from it comes back.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

use std::process::Command;

use weft_host::interface::{Fact, Keeper, Outcome, Wanted};
use weft_host::routes::TABLE;
use weft_os::netlink::{InterfaceAddress, LookUp, Netlink, Route, Rule, Then};
use weft_os::netns::NetNs;
use weft_os::test_support::in_namespaces;
use weft_os::tun::{Offloads, Tun, TunOptions};

const ADDRESSES: [(&str, u8); 3] = [("fd00::1", 128), ("10.44.0.1", 32), ("10.1.0.1", 24)];

/// Runs a test in a network namespace of its own.
fn alone(body: impl FnOnce() + Send) {
    NetNs::new().unwrap().run(body).unwrap();
}

fn run(command: &str) {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
}

fn own(destination: &str, prefix_len: u8, interface: u32) -> Route {
    Route {
        own: true,
        ..Route::to_interface(destination.parse().unwrap(), prefix_len, interface)
    }
}

/// A rule that leads all packets to the own table.
fn rule(ipv6: bool) -> Rule {
    let table = LookUp {
        table: TABLE,
        no_default: false,
        not_through: None,
    };
    Rule::new(ipv6, 5_192, Then::LookUp(table))
}

/// An interface with all that is wanted.
struct Scene {
    tun: Tun,
    netlink: Netlink,
    keeper: Keeper,
    now: u64,
}

impl Scene {
    fn new() -> Self {
        let options = TunOptions {
            offloads: false,
            multi_queue: false,
        };
        let tun = Tun::create("weft0", options).unwrap();
        assert_eq!(tun.offloads(), Offloads::default());
        let index = tun.index();
        let wanted = Wanted {
            mtu: 1_470,
            addresses: ADDRESSES.map(|(address, len)| (address.parse().unwrap(), len)).into(),
            routes: vec![
                own("fd00::", 8, index),
                Route {
                    source: Some("10.44.0.1".parse().unwrap()),
                    mtu: Some(1_400),
                    ..own("192.168.9.0", 24, index)
                },
                own("fd12::", 64, index),
                Route {
                    table: TABLE,
                    ..own("10.44.0.9", 32, index)
                },
                Route {
                    own: true,
                    ..Route::throw(TABLE, "10.45.0.0".parse().unwrap(), 16)
                },
                Route {
                    own: true,
                    ..Route::throw(TABLE, "2001:db8::".parse().unwrap(), 32)
                },
            ],
            rules: vec![rule(false), rule(true)],
        };
        let mut scene = Self {
            tun,
            netlink: Netlink::open().unwrap(),
            keeper: Keeper::new(index, wanted, 0),
            now: 0,
        };
        scene.settle();
        scene
    }

    /// Looks, which has to be due.
    fn look(&mut self) -> Outcome {
        let outcome = self.keeper.handle_timeout(self.now, &mut self.netlink);
        outcome.unwrap().unwrap()
    }

    /// Looks until nothing is missing; in time no later than two seconds for each look.
    fn settle(&mut self) -> Vec<Fact> {
        let mut repaired = Vec::new();
        for _ in 0..3 {
            self.keeper.look_soon(self.now);
            assert!(self.keeper.timeout() <= self.now + 2_000);
            self.now = self.now.max(self.keeper.timeout());
            let outcome = self.look();
            assert!(outcome.refused.is_empty(), "{outcome:?}");
            repaired.extend(outcome.repaired);
        }
        assert_eq!(self.keeper.probe(&mut self.netlink).unwrap(), []);
        repaired
    }
}

#[test]
fn removed_facts_come_back() {
    in_namespaces(|| {
        alone(|| {
            let mut scene = Scene::new();
            for (command, number) in [
                ("true", 0),
                // IPv6 addresses and all routes, by the kernel's own doing.
                ("ip link set weft0 down && ip link set weft0 up", 4),
                ("ip link set weft0 down", 5),
                ("ip address flush dev weft0", 4),
                ("ip -4 address delete 10.44.0.1/32 dev weft0", 2),
                ("ip -6 address flush dev weft0", 1),
                ("ip route flush dev weft0; ip -6 route flush dev weft0", 3),
                ("ip -6 route delete fd00::/8", 1),
                ("ip link set weft0 mtu 1400", 1),
                ("ip link set weft0 mtu 1000", 4),
                ("ip rule delete proto 119; ip -6 rule delete proto 119", 2),
                (
                    "ip rule delete proto 119; ip rule add priority 5192 proto 119 fwmark 7 table 30564",
                    1,
                ),
                ("ip route flush table 30564", 2),
                ("ip -6 route flush table 30564", 1),
                ("ip route replace 10.44.0.9/32 dev lo table 30564", 1),
                // The properties of a route.
                ("ip route replace 192.168.9.0/24 dev weft0 proto 119 mtu 1300", 1),
            ] {
                run(command);
                scene.now += 60_000;
                let repaired = scene.settle();
                assert!(repaired.len() >= number, "{command}: {repaired:?}");
            }
            drop(scene.tun);
        });
    });
}

#[test]
fn facts_that_others_added_stay() {
    in_namespaces(|| {
        alone(|| {
            let mut scene = Scene::new();
            run("ip address add 198.51.100.1/32 dev weft0 && ip route add 203.0.113.0/24 dev weft0");
            assert_eq!(scene.settle(), []);
            let index = scene.keeper.index();
            let routes = scene.netlink.routes_through(index).unwrap();
            let theirs = routes
                .iter()
                .find(|route| !route.own && route.destination.to_string() == "203.0.113.0");
            assert!(theirs.is_some(), "{routes:?}");
            // Another program's route in the place of one of this program's: it stays, and is told.
            run("ip link add other type bridge && ip link set other up && ip route replace 192.168.9.0/24 dev other");
            scene.now += 60_000;
            scene.keeper.look_soon(scene.now);
            let outcome = scene.look();
            let taken: Vec<String> = outcome
                .taken
                .iter()
                .map(|route| route.destination.to_string())
                .collect();
            assert_eq!(taken, ["192.168.9.0"]);
            assert!(outcome.refused.is_empty() && outcome.repaired.is_empty(), "{outcome:?}");
        });
    });
}

#[test]
fn stale_routes_and_unwanted_addresses_go() {
    in_namespaces(|| {
        alone(|| {
            let mut scene = Scene::new();
            let index = scene.keeper.index();
            scene.netlink.add_route(own("10.9.0.0", 16, index)).unwrap();
            scene.settle();
            let routes = scene.netlink.routes_through(index).unwrap();
            assert!(routes.iter().all(|route| route.destination.to_string() != "10.9.0.0"));
            let mut wanted = scene.keeper.wanted().clone();
            wanted.addresses.remove(&("10.1.0.1".parse().unwrap(), 24));
            wanted.addresses.insert(("10.44.0.7".parse().unwrap(), 32));
            scene.keeper.want(scene.now, wanted, &mut scene.netlink).unwrap();
            let present = |address: &str, prefix_len| InterfaceAddress {
                index,
                address: address.parse().unwrap(),
                prefix_len,
            };
            let addresses = scene.netlink.addresses(index).unwrap();
            assert!(addresses.contains(&present("10.44.0.7", 32)) && !addresses.contains(&present("10.1.0.1", 24)));
            assert_eq!(scene.settle(), []);
        });
    });
}

#[test]
fn without_ipv6_the_rest_is_kept_and_ipv6_is_asked_for() {
    in_namespaces(|| {
        alone(|| {
            let mut scene = Scene::new();
            let off = |value| std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", value).unwrap();
            off("1");
            run("ip -4 address flush dev weft0");
            scene.keeper.look_soon(scene.now);
            let outcome = scene.look();
            assert!(outcome.lacks_ipv6(), "{outcome:?}");
            assert!(
                scene
                    .keeper
                    .alarm(scene.now)
                    .unwrap()
                    .starts_with("the system refuses the address fd00::1/128")
            );
            let missing = scene.keeper.probe(&mut scene.netlink).unwrap();
            assert!(
                missing.iter().all(|fact| fact.to_string().contains("fd")),
                "{missing:?}"
            );
            off("0");
            scene.settle();
            assert_eq!(scene.keeper.alarm(scene.now), None);
        });
    });
}

#[test]
fn a_program_that_goes_on_removing_is_told() {
    in_namespaces(|| {
        alone(|| {
            let mut scene = Scene::new();
            let begin = scene.now + 60_000;
            scene.now = begin;
            let mut looks = 0;
            while scene.now < begin + 20_000 {
                run("ip -4 address delete 10.44.0.1/32 dev weft0");
                scene.keeper.look_soon(scene.now);
                scene.now = scene.now.max(scene.keeper.timeout());
                let outcome = scene.look();
                assert!(!outcome.repaired.is_empty());
                looks += 1;
            }
            assert!((10..=14).contains(&looks), "{looks}");
            let alarm = scene.keeper.alarm(scene.now).unwrap();
            assert!(
                alarm.contains("the address 10.44.0.1/32") && alarm.contains(" times within a minute"),
                "{alarm}"
            );
            assert_eq!(scene.keeper.alarm(scene.now + 60_000), None);
        });
    });
}
