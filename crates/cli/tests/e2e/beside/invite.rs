//! Which addresses of a host an invite names, and presences after it: those with a route to others first.

use std::path::Path;

use serde_json::Value;
use weft_lab::daemon::Daemon;
use weft_lab::host::Host;
use weft_lab::world::{Switch, World};

use super::internet::run;
use super::join::{about_invite, done, members, pings};
use super::join_nat::{behind_nat, start as start_v4};
use crate::common::{PATIENCE, Underlay, WEFT, beside, identity, wait_until};

/// Bridges of containers, as many as an invite has places for addresses of IPv4: two are up, and none
/// leads anywhere.
const BRIDGES: &str = "\
    ip link add docker0 type bridge; ip address add 172.17.0.1/16 dev docker0; ip link set docker0 up; \
    ip link add br-b type bridge; ip address add 172.18.0.1/16 dev br-b; ip link set br-b up; \
    ip link add br-c type bridge; ip address add 172.19.0.1/16 dev br-c";

fn shell(host: &Host, script: &str) {
    run(host, "sh", &["-ec", script]);
}

/// A host with bridges, and with a cable behind them.
fn host(world: &World, lan: &Switch, name: &'static str, addresses: &[&str]) -> Host {
    let host = world.host(name).unwrap();
    shell(&host, BRIDGES);
    lan.connect(&host, addresses).unwrap();
    host.add_default_route([192, 168, 1, 1].into()).unwrap();
    host
}

fn start(world: &World, host: &Host) -> Daemon {
    let mut spec = Underlay::V4.listener();
    spec.listen.extend(Underlay::V6.listener().listen);
    let mut node = Daemon::start(host, Path::new(WEFT), &identity(world, host.name()), &spec).unwrap();
    node.wait_ready(PATIENCE).unwrap();
    node
}

fn invite(node: &Daemon, arguments: &[&str]) -> Value {
    serde_json::from_str(&done(node, &[&["invite", "--json"], arguments].concat())).unwrap()
}

fn addresses(invite: &Value) -> Vec<&str> {
    let all = invite["addresses"].as_array().unwrap();
    all.iter().map(|at| at.as_str().unwrap()).collect()
}

#[test]
fn an_invite_names_the_uplink_and_no_bridge_of_containers() {
    beside(|| {
        let world = World::new().unwrap();
        let lan = world.switch("lan").unwrap();
        let own = ["192.168.1.5/24", "2001:db8:1::5/64"];
        let hosts = [
            host(&world, &lan, "a", &own),
            host(&world, &lan, "b", &["192.168.1.6/24"]),
        ];
        // One that goes soon.
        shell(
            &hosts[0],
            "ip address add 2001:db8:1::abcd/64 dev \"$(ip -o route show default | sed 's/.* dev \\([^ ]*\\).*/\\1/')\" \
             nodad preferred_lft 0",
        );
        let [a, b] = [&hosts[0], &hosts[1]].map(|host| start(&world, host));
        done(&a, &["create", "home", "--host", "desk"]);
        let made = invite(&a, &[]);
        let named = ["192.168.1.5:2121", "[2001:db8:1::5]:2121"];
        assert_eq!(addresses(&made), named, "{made}");
        let text = about_invite(&a, &["invite"]);
        let line = "Addresses in it: 192.168.1.5:2121, [2001:db8:1::5]:2121\n";
        assert!(text.contains(line), "{text}");
        let chosen = invite(&a, &["--address", "172.17.0.1:9"]);
        assert_eq!(addresses(&chosen), ["172.17.0.1:9"], "the user's own choice");
        assert_eq!(chosen["local_only"], true, "{chosen}");
        // The address of the mesh that `weft status` shows leads to no node for a joiner.
        let inside = a.status().unwrap()["node"]["address"].as_str().unwrap().to_owned();
        let refused = a.attempt(&["invite", "--address", &inside], PATIENCE).unwrap();
        let line = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{line}");
        assert!(
            line.contains(&format!("{inside} is an address inside the mesh")),
            "{line}"
        );
        done(&b, &["join", made["code"].as_str().unwrap(), "--host", "laptop"]);
        wait_until(PATIENCE, "the joiner is a member", || members(&a) == ["desk", "laptop"]);
        // Peers are told the uplink first, too, and bridges last.
        let told: Value = serde_json::from_str(&done(&b, &["why", "desk", "--json"])).unwrap();
        let own = told["own"].as_array().unwrap();
        assert_eq!(own[0]["address"], "192.168.1.6:2121", "{told}");
        for mut node in [a, b] {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert!(node.warnings().unwrap().is_empty(), "{:?}", node.warnings());
        }
    });
}

#[test]
fn an_invite_of_a_host_without_an_uplink_says_so() {
    beside(|| {
        let world = World::new().unwrap();
        let alone = world.host("a").unwrap();
        shell(&alone, BRIDGES);
        let mut node = start(&world, &alone);
        done(&node, &["create", "home"]);
        let made = invite(&node, &[]);
        let text = about_invite(&node, &["invite"]);
        assert_eq!(made["local_only"], true, "{made}");
        assert!(text.contains("Machines of other networks may not reach"), "{text}");
        assert_eq!(node.stop().unwrap().code(), Some(0));
    });
}

#[test]
fn an_invite_waits_until_the_kernel_has_checked_the_address() {
    beside(|| {
        let world = World::new().unwrap();
        let lan = world.switch("lan").unwrap();
        let host = world.host("a").unwrap();
        lan.connect(&host, &[]).unwrap();
        let mut node = start(&world, &host);
        done(&node, &["create", "home"]);
        // With a check for duplicates, as addresses of IPv6 have after each start.
        shell(
            &host,
            "echo 1 > /proc/sys/net/ipv6/conf/eth0/accept_dad; ip address add 2001:db8:1::5/64 dev eth0",
        );
        let made = invite(&node, &[]);
        assert_eq!(addresses(&made), ["[2001:db8:1::5]:2121"], "{made}");
        for (addresses, said) in [
            ("", "no address for the code"),
            (
                "; ip address add fe80::5/64 dev eth0 nodad",
                "ip address add 192.168.77.1/24 dev eth0",
            ),
        ] {
            shell(&host, &format!("ip address flush dev eth0{addresses}"));
            let refused = node.attempt(&["invite"], PATIENCE).unwrap();
            let line = String::from_utf8(refused.stderr).unwrap();
            assert_eq!(refused.status.code(), Some(1), "{line}");
            assert!(line.contains(said), "{line}");
        }
        assert_eq!(node.stop().unwrap().code(), Some(0));
    });
}

#[test]
fn an_invite_behind_a_nat_names_what_peers_see_and_warns() {
    beside(|| {
        let world = World::new().unwrap();
        let wan = world.switch("wan").unwrap();
        let public = world.host("p").unwrap();
        wan.connect(&public, &["203.0.113.7/24"]).unwrap();
        let (desk, _nat) = behind_nat(&world, &wan, "203.0.113.101/24", "a");
        let server = start_v4(&world, &public, "p");
        done(&desk, &["create", "home", "--host", "desk"]);
        let alone = invite(&desk, &[]);
        assert_eq!(addresses(&alone), ["192.168.1.2:2121"], "{alone}");
        done(&server, &["peer", "add", &desk.identity().npub]);
        let npub = &server.identity().npub;
        done(&desk, &["peer", "add", npub, "--address", "203.0.113.7:2121"]);
        wait_until(PATIENCE, "they are linked", || pings(&desk, npub));
        let seen = || {
            let made = invite(&desk, &[]);
            let [own, outer] = addresses(&made)[..] else {
                return false;
            };
            assert_eq!(own, "192.168.1.2:2121");
            assert_eq!(made["local_only"], true, "a NAT may let no joiner in: {made}");
            outer.starts_with("203.0.113.101:")
        };
        wait_until(PATIENCE, "the invite names what the server sees", seen);
        for mut node in [desk, server] {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert!(node.warnings().unwrap().is_empty(), "{:?}", node.warnings());
        }
    });
}
