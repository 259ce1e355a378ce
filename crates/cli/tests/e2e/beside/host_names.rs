//! Peers at host names: asked for at the system's name servers, again with their TTL.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use weft_lab::daemon::{Daemon, DaemonError};
use weft_lab::world::World;

use super::join::{done, pings};
use super::upstream::Upstream;
use crate::common::{PATIENCE, Underlay, WEFT, beside, identity, wait_until};

const NAME: &str = "home.example.org";
/// Longer than the least TTL, 30 s, and longer than the first two pauses after failures.
const AGAIN: Duration = Duration::from_secs(60);

/// What the status of the node says about the name.
fn host(node: &Daemon) -> Value {
    node.status().unwrap()["peers"][0]["hosts"][0].clone()
}

#[test]
fn a_peer_at_a_host_name_is_found_and_followed() {
    beside(|| {
        let world = World::new().unwrap();
        let switch = world.switch("net").unwrap();
        let upstream = Upstream::start(&world, &switch);
        fs::set_permissions(world.directory(), fs::Permissions::from_mode(0o755)).unwrap();
        let etc = world.directory().join("etc");
        fs::create_dir(&etc).unwrap();
        let file = etc.join("resolv.conf");
        fs::write(&file, "nameserver 192.0.2.53\n").unwrap();
        let start = |name: &'static str, address: &str, extra: &str| {
            let host = world.host(name).unwrap();
            switch.connect(&host, &[address]).unwrap();
            let mut spec = Underlay::V4.listener();
            spec.extra_toml = extra.to_owned();
            let mut node = Daemon::start(&host, Path::new(WEFT), &identity(&world, name), &spec).unwrap();
            node.wait_ready(PATIENCE).unwrap();
            node
        };
        let mut a = start("a", "192.0.2.1/24", &format!("\n[dns]\nresolv_conf = {file:?}\n"));
        let mut b = start("b", "192.0.2.2/24", "");
        let (to_a, to_b) = (a.identity().npub.clone(), b.identity().npub.clone());
        done(&b, &["peer", "add", &to_a]);
        for (name, why) in [("nas:2121", "without a dot"), ("nas.home.weft:2121", "inside the mesh")] {
            match a.command(&["peer", "add", &to_b, "--address", name]) {
                Err(DaemonError::Command { status, stderr, .. }) => {
                    assert!(status.code() == Some(2) && stderr.contains(why), "{stderr}");
                }
                other => panic!("{name}: {other:?}"),
            }
        }
        done(&a, &["peer", "add", &to_b, "--address", &format!("{NAME}:2121")]);
        done(&a, &["config", "check"]);
        wait_until(PATIENCE, "the server has said that there is no such name", || {
            host(&a)["error"] == "the name does not exist"
        });
        let why = a.status().unwrap()["peers"][0]["why"].as_str().unwrap().to_owned();
        assert!(why.contains("home.example.org:2121: the name does not exist"), "{why}");

        // The next question is 10 s after the first failure.
        upstream.set(NAME, Ipv4Addr::new(192, 0, 2, 2));
        wait_until(AGAIN, "the name has its address", || {
            host(&a)["addresses"][0] == "192.0.2.2"
        });
        wait_until(PATIENCE, "payload passes", || pings(&a, &to_b));
        assert_eq!(host(&a)["error"], Value::Null);

        // A link that works stays; the new address is there for when it fails.
        upstream.set(NAME, Ipv4Addr::new(192, 0, 2, 99));
        wait_until(AGAIN, "the new address is known", || {
            host(&a)["addresses"][0] == "192.0.2.99"
        });
        assert!(pings(&a, &to_b));
        for node in [&mut a, &mut b] {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert!(node.warnings().unwrap().is_empty(), "{:?}", node.warnings());
        }
    });
}
