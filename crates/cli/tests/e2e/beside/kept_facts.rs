//! What other programs remove from the host of a node comes back: addresses, routes and MTU of its
//! interface, IPv6, rules for routes, tables of nftables and settings.

use std::net::IpAddr;

use serde_json::Value;
use weft_lab::daemon::Daemon;
use weft_lab::host::Host;
use weft_os::test_support::require_nft;

use super::internet::{Internet, done, mirror, run, seen};
use super::join::Net;
use crate::common::{MINUTE, PATIENCE, beside, wait_until};

/// The addresses of a node in the mesh and in its network.
pub(super) fn addresses(node: &Daemon) -> [IpAddr; 2] {
    let networks: Value = serde_json::from_str(&done(node, &["networks", "--json"])).unwrap();
    let members = networks["networks"][0]["members"].as_array().unwrap();
    let own = members
        .iter()
        .find(|member| member["name"] == node.host().name())
        .unwrap();
    ["address", "ipv4"].map(|field| own[field].as_str().unwrap().parse().unwrap())
}

/// A service at both addresses of the exit, and what reaches it.
pub(super) struct Mesh {
    pub(super) mirrors: [String; 2],
    /// The addresses of the laptop, by which it comes.
    pub(super) from: [String; 2],
}

impl Mesh {
    pub(super) fn new(net: &Internet) -> Self {
        let mirrors = addresses(&net.nas).map(|address| std::net::SocketAddr::new(address, 80).to_string());
        for at in &mirrors {
            mirror(net.nas.host(), at);
        }
        Self {
            mirrors,
            from: addresses(&net.laptop).map(|address| address.to_string()),
        }
    }

    /// Whether programs of the laptop reach both.
    fn is_whole(&self, laptop: &Host) -> bool {
        let mut both = self.mirrors.iter().zip(&self.from);
        both.all(|(at, from)| seen(laptop, at).as_ref() == Some(from))
    }
}

pub(super) fn shell(host: &Host, command: &str) {
    run(host, "sh", &["-c", command]);
}

/// What the status says of the interface: what it lacks, and the alarm.
pub(super) fn said(node: &Daemon) -> (Vec<String>, String) {
    let tun = node.status().unwrap()["node"]["tun"].clone();
    let lacks = tun["lacks"].as_array().cloned().unwrap_or_default();
    let lacks = lacks.iter().map(|fact| fact.as_str().unwrap().to_owned());
    (lacks.collect(), tun["alarm"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn an_interface_that_loses_something_has_it_again() {
    beside(|| {
        let net = Internet::start(false);
        let laptop = net.laptop.host();
        let mesh = Mesh::new(&net);
        wait_until(MINUTE, "packets pass", || mesh.is_whole(laptop));
        for command in [
            "ip link set weft0 down; ip link set weft0 up",
            "ip link set weft0 down",
            "ip address flush dev weft0",
            "ip -4 address flush dev weft0",
            "ip -6 address flush dev weft0",
            "ip route flush dev weft0; ip -6 route flush dev weft0",
            "ip route flush table 30564",
            "ip rule delete proto 119",
            "ip rule flush; ip rule add lookup main priority 32766",
            "ip link set weft0 mtu 1000",
            "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6",
            "echo 1 > /proc/sys/net/ipv6/conf/weft0/disable_ipv6",
        ] {
            shell(laptop, command);
            wait_until(PATIENCE, command, || {
                said(&net.laptop).0.is_empty() && mesh.is_whole(laptop)
            });
        }
        // What others have added stays.
        shell(
            laptop,
            "ip address add 198.51.100.77/32 dev weft0; ip route add 203.0.113.77/32 dev weft0",
        );
        shell(laptop, "ip -6 address flush dev weft0");
        wait_until(PATIENCE, "packets pass", || mesh.is_whole(laptop));
        let routes = run(laptop, "ip", &["route", "show", "dev", "weft0"]);
        assert!(routes.contains("203.0.113.77 scope link"), "{routes}");
        let own = run(laptop, "ip", &["route", "show", "table", "all", "proto", "119"]);
        assert!(own.contains("10.44.") && !own.contains("203.0.113.77"), "{own}");
        let warned = net.warnings();
        assert!(
            warned
                .iter()
                .all(|line| line.contains("and has it again") || line.contains("the interface does not have all")),
            "{warned:?}"
        );
    });
}

#[test]
fn a_program_that_goes_on_removing_is_named_by_doctor() {
    beside(|| {
        let net = Internet::start(false);
        let laptop = net.laptop.host();
        wait_until(MINUTE, "the alarm", || {
            shell(laptop, "ip -4 address flush dev weft0");
            said(&net.laptop)
                .1
                .contains("another program has removed the address 10.44.")
        });
        let doctor = net.laptop.attempt(&["doctor"], MINUTE).unwrap();
        let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert!(
            doctor.contains("another program has removed the address 10.44."),
            "{doctor}"
        );
        wait_until(PATIENCE, "it is set up all the same", || said(&net.laptop).0.is_empty());
        drop(net.warnings());
    });
}

#[test]
fn a_route_that_the_system_has_refused_is_tried_again() {
    const SITE: &str = "2001:db8:9::/64";
    beside(|| {
        let net = Internet::start(false);
        let laptop = net.laptop.host();
        done(&net.laptop, &["set", "--accept-routes", "true"]);
        done(&net.nas, &["set", "--advertise-route", SITE]);
        // Without IPv6 the interface takes no such route. After four fights within a minute, weft switches it on
        // every other second only.
        let fight = Loop::start(laptop, "echo 1 > /proc/sys/net/ipv6/conf/weft0/disable_ipv6; false");
        wait_until(MINUTE, "the alarm", || !said(&net.laptop).1.is_empty());
        wait_until(PATIENCE, "the route is approved", || {
            net.nas.command(&["route", "approve", "nas", SITE]).is_ok()
        });
        let refused = || {
            let warned = net.laptop.warnings().unwrap();
            warned
                .iter()
                .any(|line| line.contains("the system refuses the route to 2001:db8:9::/64"))
        };
        wait_until(MINUTE, "the route is refused", refused);
        drop(fight);
        let there = || run(laptop, "ip", &["-6", "route", "get", "2001:db8:9::1"]).contains("dev weft0");
        wait_until(PATIENCE, "the route is there", there);
        drop(net.warnings());
    });
}

/// Runs a command on a host again and again, until it is dropped.
struct Loop(std::process::Child);

impl Loop {
    fn start(host: &Host, command: &str) -> Self {
        let mut shell = std::process::Command::new("sh");
        shell.args([
            "-c",
            &format!("while {command} 2> /dev/null || true; do sleep 0.05; done"),
        ]);
        Self(host.spawn(shell).unwrap())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_program_that_goes_on_removing_an_exit_is_named() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let net = Internet::by_exit(false);
        let alarm = |node: &Daemon| {
            let status = node.status().unwrap();
            let found = status["node"]["faults"]["found"].as_array().unwrap().clone();
            let alarm = found.into_iter().find(|fault| fault["check"] == "alarm");
            alarm.map(|alarm| alarm["what"].as_str().unwrap().to_owned())
        };
        let doctor = |node: &Daemon| {
            let output = node.attempt(&["doctor"], MINUTE).unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        for (node, table, what, end) in [
            (
                &net.laptop,
                "weft",
                "has removed what leads packets to the exit",
                &["set", "--no-exit"][..],
            ),
            (
                &net.nas,
                "weft_exit",
                "has removed rules or settings of this host as exit",
                &["set", "--advertise-exit=false"],
            ),
        ] {
            assert_eq!(alarm(node), None);
            let fight = Loop::start(node.host(), &format!("nft delete table inet {table}"));
            wait_until(MINUTE, "the alarm", || alarm(node).is_some());
            let said = alarm(node).unwrap();
            assert!(said.starts_with("nft (process ") && said.contains(what), "{said}");
            assert!(
                said.contains(" times within a minute; it is set up again each time"),
                "{said}"
            );
            let found = doctor(node);
            assert!(
                found.contains("alarm: nft (process ") && found.contains(what),
                "{found}"
            );
            drop(fight);
            wait_until(PATIENCE, "packets leave by the exit", || {
                net.passes() || table == "weft_exit"
            });
            done(node, end);
            wait_until(PATIENCE, "no alarm without an exit", || alarm(node).is_none());
            assert!(!doctor(node).contains("alarm: "));
        }
        drop(net.warnings());
    });
}

#[test]
fn another_route_to_all_nodes_is_logged_once_a_change() {
    beside(|| {
        let net = Net::start(&["a"]);
        let [a] = &net.nodes[..] else { panic!() };
        let logged = || {
            let warned = a.warnings().unwrap().into_iter();
            warned
                .filter(|line| line.contains("another program has a route to fd00::/8"))
                .count()
        };
        let lacks = || said(a).0.contains(&"the route to fd00::/8".to_owned());
        for change in 1..=2 {
            shell(a.host(), "ip -6 route replace fd00::/8 dev eth0");
            wait_until(PATIENCE, "it is logged", || lacks() && logged() >= change);
            // Each status is a look.
            assert!((0..5).all(|_| lacks()));
            assert_eq!(logged(), change);
            shell(a.host(), "ip -6 route delete fd00::/8 dev eth0");
            wait_until(PATIENCE, "the route is there", || !lacks());
        }
    });
}
