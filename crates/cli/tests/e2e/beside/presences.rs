//! Members find each other by what other members pass on, after moves and restarts.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use weft_lab::daemon::Daemon;
use weft_lab::host::Host;
use weft_lab::world::{Switch, World};

use super::join::{code, done, members, pings};
use crate::common::{MINUTE, PATIENCE, Underlay, WEFT, beside, identity, wait_until};

fn start(world: &World, host: &Host, name: &'static str) -> Daemon {
    let id = identity(world, name);
    let mut node = Daemon::start(host, Path::new(WEFT), &id, &Underlay::V4.listener()).unwrap();
    node.wait_ready(PATIENCE).unwrap();
    node
}

fn host(world: &World, switch: &Switch, name: &'static str, address: &str) -> (Host, weft_lab::cable::Port) {
    let host = world.host(name).unwrap();
    let port = switch.connect(&host, &[address]).unwrap();
    (host, port)
}

fn again(node: &mut Daemon) {
    node.restart().unwrap();
    node.wait_ready(PATIENCE).unwrap();
}

/// The UDP address of the direct path, if the path is direct.
fn direct(from: &Daemon, to: &Daemon) -> Value {
    let peer = from.peer(&to.identity().npub).unwrap().unwrap_or_default();
    peer["path"]["addr"].clone()
}

/// The file in which a node keeps where members are.
fn file(node: &Daemon) -> Option<PathBuf> {
    let files = fs::read_dir(&node.identity().state).unwrap().flatten();
    let mut files = files.filter(|file| file.file_name().to_string_lossy().starts_with("presence-"));
    files.next().map(|file| file.path())
}

/// What a node keeps of where members are, in hexadecimal digits.
fn kept(node: &Daemon) -> String {
    file(node)
        .map(|file| fs::read_to_string(file).unwrap())
        .unwrap_or_default()
}

#[test]
fn members_that_know_one_member_find_all_after_moves_and_restarts() {
    beside(|| {
        let world = World::new().unwrap();
        let switch = world.switch("net").unwrap();
        let (host_c, _port_c) = host(&world, &switch, "c", "192.0.2.3/24");
        let (host_a, port_a) = host(&world, &switch, "a", "192.0.2.1/24");
        let (host_b, _port_b) = host(&world, &switch, "b", "192.0.2.2/24");
        let (mut c, mut a, mut b) = (
            start(&world, &host_c, "c"),
            start(&world, &host_a, "a"),
            start(&world, &host_b, "b"),
        );
        done(&c, &["create", "home", "--host", "hub"]);
        done(&a, &["join", &code(&c, &["--name", "moves"])]);
        done(&b, &["join", &code(&c, &["--name", "stays"])]);
        for node in [&a, &b, &c] {
            wait_until(PATIENCE, "all know all members", || {
                members(node) == ["hub", "moves", "stays"]
            });
        }

        // A moves while B is off.
        assert_eq!(b.stop().unwrap().code(), Some(0));
        port_a.change_address("192.0.2.1/24", "192.0.2.11/24").unwrap();
        // 192.0.2.11 and port 2121, as presences have them.
        let moved = "c000020b0849";
        wait_until(MINUTE, "C knows where A is now", || kept(&c).contains(moved));
        // The file of B is of a build with another form of presences.
        let of_b = file(&b).unwrap();
        let first = fs::read_to_string(&of_b)
            .unwrap()
            .replace("weft.presence/2", "weft.presence/1");
        assert!(first.contains("weft.presence/1"));
        fs::write(&of_b, first).unwrap();
        again(&mut b);
        let faults = b.status().unwrap()["node"]["faults"].to_string();
        assert!(!faults.contains("presence"), "{faults}");
        wait_until(MINUTE, "B has a direct path to A", || {
            direct(&b, &a) == "192.0.2.11:2121"
        });
        wait_until(PATIENCE, "payload passes", || pings(&b, "moves") && pings(&a, "stays"));
        wait_until(PATIENCE, "B keeps where A is", || kept(&b).contains(moved));

        // Without C, and without the last addresses of peers: presences alone lead to the other.
        assert_eq!(c.stop().unwrap().code(), Some(0));
        for node in [&mut a, &mut b] {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            fs::remove_file(node.identity().state.join("peers.json")).unwrap();
        }
        again(&mut a);
        again(&mut b);
        wait_until(MINUTE, "they find each other", || {
            pings(&b, "moves") && pings(&a, "stays")
        });
        for node in [&mut a, &mut b] {
            assert_eq!(node.stop().unwrap().code(), Some(0));
        }
        for node in [&a, &b, &c] {
            assert!(node.warnings().unwrap().is_empty(), "{:?}", node.warnings());
        }
    });
}
