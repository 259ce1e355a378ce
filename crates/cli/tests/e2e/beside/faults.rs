//! What keeps packets from passing on a host is named while it lasts, with the command that mends it.

use std::path::Path;

use serde_json::Value;
use weft_lab::daemon::Daemon;
use weft_lab::host::Host;
use weft_lab::world::World;
use weft_os::test_support::require_nft;

use super::internet::{Internet, done, mirror, run, seen};
use crate::common::{MINUTE, PATIENCE, Underlay, WEFT, beside, identity, wait_until};

const PRINTER: &str = "192.168.9.2:80";
/// The network of the printer.
const LAN: &str = "192.168.9.0/24";

fn shell(host: &Host, command: &str) {
    run(host, "sh", &["-c", command]);
}

/// The findings of doctor with these checks.
pub(super) fn findings(node: &Daemon, checks: &[&str], arguments: &[&str]) -> Vec<Value> {
    let output = node
        .attempt(&[&["doctor", "--json"], arguments].concat(), MINUTE)
        .unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = document["findings"].as_array().unwrap().iter();
    all.filter(|finding| checks.iter().any(|check| finding["check"] == *check))
        .cloned()
        .collect()
}

/// What the status says of the host.
fn status(node: &Daemon) -> Vec<String> {
    let status = node.status().unwrap();
    let faults = &status["node"]["faults"];
    assert!(faults["age_ms"].as_u64().is_some_and(|age| age < 5_000), "{faults}");
    let found = faults["found"].as_array().unwrap().iter();
    found.map(|fault| fault["what"].as_str().unwrap().to_owned()).collect()
}

/// Whether `weft routes` says that packets to the LAN pass, at the node that has it behind.
fn is_reached(node: &Daemon) -> bool {
    let list: Value = serde_json::from_str(&done(node, &["routes", "--json"])).unwrap();
    let routes = list["networks"][0]["routes"].as_array().unwrap();
    routes.iter().find(|route| route["subnet"] == LAN).unwrap()["used"] == true
}

#[test]
fn faults_that_stop_forwarded_packets_are_named_and_mended() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let net = Internet::start(true);
        net.approve();
        done(&net.nas, &["set", "--advertise-route", LAN]);
        wait_until(PATIENCE, "the route is approved", || {
            net.nas.command(&["route", "approve", "nas", LAN]).is_ok()
        });
        done(&net.laptop, &["set", "--accept-routes", "true"]);
        done(&net.laptop, &["set", "--exit", "nas"]);
        let nas = net.nas.host();
        let prints = || seen(net.laptop.host(), PRINTER).is_some();
        wait_until(MINUTE, "both ways pass", || net.passes() && prints());
        let checks = ["firewall", "forwarding", "route"];
        wait_until(PATIENCE, "no fault", || findings(&net.nas, &checks, &[]).is_empty());
        assert!(is_reached(&net.nas));
        let lan = run(nas, "ip", &["-o", "route", "get", "192.168.9.2"]);
        let lan = lan.split_whitespace().skip_while(|word| *word != "dev").nth(1).unwrap();
        let policy = |family: &str| {
            format!(
                "nft 'table {family} filter {{ chain FORWARD {{ type filter hook forward priority 0; policy drop; }}; }}'"
            )
        };
        for (breaks, words, exit, subnet) in [
            (policy("ip"), "the chain ip filter FORWARD drops", false, false),
            (policy("inet"), "the chain inet filter FORWARD drops", false, false),
            (
                format!("sysctl -qw net.ipv4.conf.{lan}.forwarding=0"),
                &*format!("net.ipv4.conf.{lan}.forwarding is 0"),
                true,
                false,
            ),
        ] {
            shell(nas, &breaks);
            wait_until(PATIENCE, words, || {
                status(&net.nas).iter().any(|what| what.contains(words))
            });
            let passing = (net.passes(), prints());
            assert_eq!(passing, (exit, subnet), "{breaks}");
            let serves = net.nas.status().unwrap()["node"]["serves"]["why"].clone();
            assert_eq!(serves.as_str().unwrap().contains(words), !exit, "{serves}");
            assert!(!is_reached(&net.nas));
            // The node that uses the exit learns it from there.
            let used = |passes: bool, words: &str| {
                let exit = net.laptop.status().unwrap()["node"]["exit"].clone();
                let why = exit["why"].as_str().unwrap().to_owned();
                assert!(exit["told_ms"].as_u64().is_none_or(|age| age < 60_000), "{exit}");
                exit["pass"] == passes && why.contains(words)
            };
            let says = if exit { "packets pass" } else { "nas has said" };
            wait_until(PATIENCE, says, || used(exit, says));
            assert_eq!(findings(&net.laptop, &["exit"], &[]).is_empty(), exit);
            // The command that doctor names mends it.
            let found = findings(&net.nas, &checks, &[]);
            assert!(found[0]["what"].as_str().unwrap().contains(words), "{found:?}");
            for finding in &found {
                shell(nas, &finding["fix"].as_str().unwrap().replace("sudo ", ""));
            }
            wait_until(PATIENCE, "both ways pass", || net.passes() && prints());
            wait_until(PATIENCE, "no fault", || findings(&net.nas, &checks, &[]).is_empty());
            wait_until(PATIENCE, "the exit is whole", || used(true, "packets pass"));
        }
        shell(nas, &policy("ip6"));
        wait_until(PATIENCE, "the IPv6 half is named", || {
            let found = findings(&net.nas, &checks, &[]);
            found.len() == 1 && found[0]["why"].as_str().unwrap().contains("reach nothing by IPv6")
        });
        assert!(net.passes() && prints() && is_reached(&net.nas));
        drop(net.warnings());
    });
}

#[test]
fn an_exit_that_serves_no_longer_is_shown_at_its_users() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let net = Internet::by_exit(false);
        let exit = || net.laptop.status().unwrap()["node"]["exit"].clone();
        wait_until(PATIENCE, "packets pass", || exit()["pass"] == true);
        // It is approved still.
        done(&net.nas, &["set", "--advertise-exit=false"]);
        wait_until(PATIENCE, "the user learns it", || {
            let exit = exit();
            exit["pass"] == false && exit["why"].as_str().unwrap().contains("that it forwards nothing")
        });
        assert!(!findings(&net.laptop, &["exit"], &[]).is_empty());
        done(&net.nas, &["set", "--advertise-exit"]);
        wait_until(PATIENCE, "packets pass again", || {
            exit()["pass"] == true && net.passes()
        });
        drop(net.warnings());
    });
}

#[test]
fn a_route_that_leads_away_is_named_with_the_filter() {
    beside(|| {
        let net = Internet::start(false);
        let laptop = net.laptop.host();
        let checks = ["route", "rp_filter"];
        let members: Value = serde_json::from_str(&done(&net.laptop, &["members", "--json"])).unwrap();
        let members = members["networks"][0]["members"].as_array().unwrap();
        let nas = members.iter().find(|member| member["name"] == "nas").unwrap();
        let nas = nas["ipv4"].as_str().unwrap();
        shell(
            laptop,
            "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.weft0.rp_filter=1",
        );
        // The filter alone drops nothing.
        wait_until(PATIENCE, "no fault", || findings(&net.laptop, &checks, &[]).is_empty());
        shell(
            laptop,
            &format!("ip route add default via 192.168.1.1 table 99; ip rule add to {nas} lookup 99 priority 100"),
        );
        let checked = |arguments: &[&str]| {
            let found = findings(&net.laptop, &checks, arguments);
            found
                .iter()
                .map(|finding| finding["check"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        wait_until(PATIENCE, "both are named", || checked(&[]) == checks);
        let what = &findings(&net.laptop, &checks, &[])[0]["what"];
        let leaves = format!("packets to {nas} leave by eth0, and not by weft0");
        assert_eq!(what.as_str(), Some(&*leaves));
        assert!(status(&net.laptop).contains(&leaves));
        shell(laptop, "sysctl -qw net.ipv4.conf.all.rp_filter=0");
        wait_until(PATIENCE, "doctor loosens the filter", || {
            checked(&["--fix"]) == ["route"]
        });
        shell(laptop, "ip rule del priority 100");
        wait_until(PATIENCE, "no fault", || checked(&[]).is_empty());
        drop(net.warnings());
    });
}

#[test]
fn a_site_in_the_range_of_the_mesh_is_named_and_mended() {
    const FAR: &str = "[fd12:3456:789a:2::2]:80";
    beside(|| {
        let world = World::new().unwrap();
        let [nas, router, far] = ["nas", "router", "far"].map(|name| world.host(name).unwrap());
        let _links = [
            world.link(
                (&nas, &["192.0.2.1/24", "fd12:3456:789a:1::10/64"]),
                (&router, &["192.0.2.2/24", "fd12:3456:789a:1::1/64"]),
            ),
            world.link(
                (&router, &["fd12:3456:789a:2::1/64"]),
                (&far, &["fd12:3456:789a:2::2/64"]),
            ),
        ];
        router.forward().unwrap();
        far.add_default_route("fd12:3456:789a:2::1".parse().unwrap()).unwrap();
        mirror(&far, FAR);
        let passes = || seen(&nas, FAR).is_some();
        let id = identity(&world, "nas");
        let mut node = Daemon::start(&nas, Path::new(WEFT), &id, &Underlay::V4.listener()).unwrap();
        node.wait_ready(PATIENCE).unwrap();
        let checks = ["route"];
        assert!(findings(&node, &checks, &[]).is_empty(), "no default route leads there");
        nas.add_default_route("fd12:3456:789a:1::1".parse().unwrap()).unwrap();
        wait_until(PATIENCE, "the site is named", || {
            findings(&node, &checks, &[]).len() == 1
        });
        assert!(!passes());
        let found = findings(&node, &checks, &[]).remove(0);
        let what = found["what"].as_str().unwrap();
        assert!(
            what.contains("other subnets of fd12:3456:789a::/48, the site that eth0 is in, go into weft0"),
            "{what}"
        );
        assert!(status(&node).contains(&what.to_owned()));
        let fix = found["fix"].as_str().unwrap();
        assert_eq!(
            fix,
            "sudo ip -6 route add fd12:3456:789a::/48 via fd12:3456:789a:1::1 dev eth0"
        );
        shell(&nas, &fix.replace("sudo ", ""));
        wait_until(PATIENCE, "the other subnet is reached", passes);
        wait_until(PATIENCE, "no fault", || findings(&node, &checks, &[]).is_empty());
        assert_eq!(node.stop().unwrap().code(), Some(0));
        let warned = node.warnings().unwrap();
        assert!(warned.is_empty(), "{warned:?}");
    });
}
