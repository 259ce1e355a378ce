//! Members find each other by what other members pass on, after moves and restarts.

use std::fs;
use std::net::{IpAddr, SocketAddrV4};
use std::path::{Path, PathBuf};

use serde_json::Value;
use weft_lab::daemon::{Daemon, PeerState};
use weft_lab::host::Host;
use weft_lab::spec::NodeSpec;
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
fn members_that_know_one_find_all_after_moves_and_restarts() {
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

/// The address of a member as presences have it, in hexadecimal digits.
fn digits(at: &str) -> String {
    let at: SocketAddrV4 = at.parse().unwrap();
    let ip = at.ip().octets().into_iter();
    let bytes = ip.chain(at.port().to_be_bytes());
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// A host of several networks behind one router, which others leave for another network.
struct Place {
    host: Host,
    port: weft_lab::cable::Port,
    /// Its network, and its number there.
    at: (&'static str, u8),
}

impl Place {
    fn new(world: &World, switch: &Switch, name: &'static str, at: (&'static str, u8)) -> Self {
        let (host, port) = host(world, switch, name, &format!("{}.{}/24", at.0, at.1));
        host.add_default_route(gateway(at.0)).unwrap();
        Self { host, port, at }
    }

    fn go(&mut self, to: (&'static str, u8)) {
        let [old, new] = [self.at, to].map(|(net, last)| format!("{net}.{last}/24"));
        self.port.change_address(&old, &new).unwrap();
        self.host.add_default_route(gateway(to.0)).unwrap();
        self.at = to;
    }

    fn addr(&self) -> String {
        format!("{}.{}:2121", self.at.0, self.at.1)
    }
}

fn gateway(net: &str) -> IpAddr {
    format!("{net}.254").parse().unwrap()
}

/// Whether a node has a link with a peer.
fn linked(from: &Daemon, to: &Daemon) -> bool {
    let state = from.peer_state(&to.identity().npub).unwrap();
    state.is_some_and(|state| state >= PeerState::Linked)
}

/// A and B find each other by C alone: the founder, by which all joined, is off, and neither knows where the other one
/// is now. Nothing is announced in the LAN.
#[test]
fn members_that_both_moved_find_each_other_by_a_third() {
    beside(|| {
        const NETS: [&str; 3] = ["192.0.2", "198.51.100", "203.0.113"];
        let world = World::new().unwrap();
        let switch = world.switch("net").unwrap();
        let router = world.host("router").unwrap();
        let gateways = NETS.map(|net| format!("{net}.254/24"));
        switch
            .connect(&router, &gateways.each_ref().map(String::as_str))
            .unwrap();
        router.forward().unwrap();
        let place = |name, at| Place::new(&world, &switch, name, at);
        let founder = place("f", (NETS[0], 4));
        let (mut at_a, mut at_b) = (place("a", (NETS[0], 1)), place("b", (NETS[0], 2)));
        let at_c = place("c", (NETS[0], 3));
        let start = |place: &Place, name| {
            let spec = NodeSpec {
                extra_toml: "\n[lan]\nannounce = \"off\"\n\n[link]\nheartbeat_s = 1\ndead_after_s = 4\n".to_owned(),
                ..Underlay::V4.listener()
            };
            let mut node = Daemon::start(&place.host, Path::new(WEFT), &identity(&world, name), &spec).unwrap();
            node.wait_ready(PATIENCE).unwrap();
            node
        };
        let mut f = start(&founder, "f");
        let [mut a, mut b, mut c] = [(&at_a, "a"), (&at_b, "b"), (&at_c, "c")].map(|(place, name)| start(place, name));
        done(&f, &["create", "home", "--host", "desk"]);
        for (node, name) in [(&a, "a"), (&b, "b"), (&c, "c")] {
            done(node, &["join", &code(&f, &[]), "--host", name]);
        }
        for (node, others) in [(&a, [&at_b, &at_c]), (&b, [&at_a, &at_c]), (&c, [&at_a, &at_b])] {
            wait_until(MINUTE, "all keep where all are", || {
                members(node).len() == 4 && others.iter().all(|of| kept(node).contains(&digits(&of.addr())))
            });
        }
        assert_eq!(f.stop().unwrap().code(), Some(0));

        let meet = |a: &Daemon, b: &Daemon, at_a: &Place, at_b: &Place| {
            wait_until(2 * MINUTE, "the two have a direct path", || {
                direct(a, b) == at_b.addr() && direct(b, a) == at_a.addr()
            });
            wait_until(PATIENCE, "payload passes", || pings(a, "b") && pings(b, "a"));
        };
        // Both are cut off while they run, and come back in another network each.
        let isolate = |places: [&Place; 3], apart| places.iter().for_each(|place| place.port.isolate(apart).unwrap());
        isolate([&at_a, &at_b, &at_c], true);
        wait_until(MINUTE, "both are alone", || {
            let links = [(&a, &b), (&a, &c), (&b, &a), (&b, &c)];
            links.iter().all(|(from, to)| !linked(from, to))
        });
        at_a.go((NETS[1], 11));
        at_b.go((NETS[2], 12));
        isolate([&at_a, &at_b, &at_c], false);
        meet(&a, &b, &at_a, &at_b);

        // Both are off, and start in another network each.
        wait_until(MINUTE, "C knows where both are", || {
            [&at_a, &at_b].iter().all(|of| kept(&c).contains(&digits(&of.addr())))
        });
        for node in [&mut a, &mut b] {
            assert_eq!(node.stop().unwrap().code(), Some(0));
        }
        at_a.go((NETS[2], 21));
        at_b.go((NETS[1], 22));
        again(&mut a);
        again(&mut b);
        meet(&a, &b, &at_a, &at_b);
        for node in [&mut a, &mut b, &mut c] {
            assert_eq!(node.stop().unwrap().code(), Some(0));
        }
        for node in [&a, &b, &c, &f] {
            assert!(node.warnings().unwrap().is_empty(), "{:?}", node.warnings());
        }
    });
}
