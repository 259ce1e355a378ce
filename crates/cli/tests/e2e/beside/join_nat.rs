//! Joining a network whose administrator is behind a NAT, like the machine that joins: a member that
//! both reach, and that is no administrator, brings them together.

use std::path::Path;

use weft_lab::daemon::Daemon;
use weft_lab::host::Host;
use weft_lab::nat::{NatBox, NatConfig, NatKind};
use weft_lab::spec::NodeSpec;
use weft_lab::world::{Switch, World};

use super::join::{code, done, ipv4, members, network, pings, pings_ipv4};
use crate::common::{PATIENCE, Underlay, WEFT, beside, identity, wait_until};

/// A node that knows no other one.
pub(crate) fn start(world: &World, host: &Host, name: &'static str) -> Daemon {
    let spec: NodeSpec = Underlay::V4.listener();
    let mut node = Daemon::start(host, Path::new(WEFT), &identity(world, name), &spec).unwrap();
    node.wait_ready(PATIENCE).unwrap();
    node
}

/// A node behind a NAT box of its own, with the same address as every other such node.
pub(crate) fn behind_nat(world: &World, wan: &Switch, outer: &str, name: &'static str) -> (Daemon, NatBox) {
    let lan = world.switch("lan").unwrap();
    let config = NatConfig::new(NatKind::Symmetric);
    let nat = world.nat(config, (&lan, "192.168.1.1/24"), (wan, outer)).unwrap();
    let host = world.host(name).unwrap();
    lan.connect(&host, &["192.168.1.2/24"]).unwrap();
    host.add_default_route(nat.inner()).unwrap();
    (start(world, &host, name), nat)
}

#[test]
fn a_public_member_passes_a_join_between_two_nats() {
    beside(|| {
        let world = World::new().unwrap();
        let wan = world.switch("wan").unwrap();
        let public = world.host("p").unwrap();
        wan.connect(&public, &["203.0.113.7/24"]).unwrap();
        let (desk, _desk_nat) = behind_nat(&world, &wan, "203.0.113.101/24", "a");
        let (laptop, _laptop_nat) = behind_nat(&world, &wan, "203.0.113.102/24", "b");
        let server = start(&world, &public, "p");
        done(&desk, &["create", "home", "--host", "desk"]);
        // The server cannot reach the desk, so the first step takes a server that is known to it.
        let npub = &server.identity().npub;
        done(&desk, &["peer", "add", npub, "--address", "203.0.113.7:2121"]);
        let npub = &desk.identity().npub;
        done(&server, &["peer", "add", npub]);
        wait_until(PATIENCE, "they are linked", || pings(&desk, &server.identity().npub));
        done(&server, &["join", &code(&desk, &[]), "--host", "server"]);
        wait_until(PATIENCE, "the server is a member", || {
            members(&server) == ["desk", "server"]
        });

        let invite = code(&desk, &["--name", "laptop"]);
        wait_until(PATIENCE, "the server knows the invite", || {
            !network(&server)["invites"].as_array().unwrap().is_empty()
        });
        let joined = done(&laptop, &["join", &invite]);
        assert!(joined.contains("home joined; this machine is laptop"), "{joined}");
        for node in [&desk, &server, &laptop] {
            wait_until(PATIENCE, "all know all members", || {
                members(node) == ["desk", "laptop", "server"]
            });
        }
        wait_until(PATIENCE, "payload passes", || {
            pings(&laptop, "desk") && pings(&desk, "laptop")
        });
        wait_until(PATIENCE, "IPv4 passes", || pings_ipv4(&laptop, ipv4(&desk)));
        for mut node in [desk, laptop, server] {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert!(node.warnings().unwrap().is_empty(), "{:?}", node.warnings());
        }
    });
}
