//! Members of a network that find each other in a LAN.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mdns_sd::{ServiceDaemon, ServiceEvent, ServiceInfo};
use serde_json::Value;
use weft_lab::daemon::Daemon;
use weft_lab::host::Host;
use weft_lab::nat::{NatBox, NatConfig, NatKind};
use weft_lab::spec::{NodeSpec, PeerSpec};
use weft_lab::world::{Switch, World};
use weft_os::netlink::InterfaceAddress;

use super::join::{code, done, members, pings};
use crate::common::spoof::Tap;
use crate::common::{MINUTE, PATIENCE, Underlay, WEFT, beside, identity, wait_until};
use weft_os::assert_strict;

/// Two members behind one NAT box, and the founder outside. The two know the founder's address only,
/// and send no probes, so that the LAN is the one way to a direct path.
struct Net {
    a: Daemon,
    b: Daemon,
    founder: Daemon,
    /// What mDNS says in the LAN.
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
    _tap: Tap,
    _nat: NatBox,
    _world: World,
}

fn start(world: &World, host: &Host, name: &'static str, underlay: Underlay, more: &str) -> Daemon {
    let spec = NodeSpec {
        extra_toml: more.to_owned(),
        ..underlay.listener()
    };
    let mut node = Daemon::start(host, Path::new(WEFT), &identity(world, name), &spec).unwrap();
    node.wait_ready(PATIENCE).unwrap();
    node
}

impl Net {
    fn start(announce: &str) -> Self {
        let world = World::new().unwrap();
        let (wan, lan) = (world.switch("wan").unwrap(), world.switch("lan").unwrap());
        let public = world.host("p").unwrap();
        wan.connect(&public, &["203.0.113.7/24"]).unwrap();
        let inner = (&lan, "192.168.1.1/24");
        let nat = world.nat(NatConfig::new(NatKind::Symmetric), inner, (&wan, "203.0.113.101/24"));
        let nat = nat.unwrap();
        let behind = |name, address: &str| -> Host {
            let host = world.host(name).unwrap();
            lan.connect(&host, &[address]).unwrap();
            host.add_default_route(nat.inner()).unwrap();
            host
        };
        let [a, b, onlooker] =
            [("a", 2), ("b", 3), ("c", 4)].map(|(name, last)| behind(name, &format!("192.168.1.{last}/24")));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hear = Arc::clone(&heard);
        let tap = Tap::start(&onlooker, move |source: SocketAddr, payload: &[u8]| {
            if source.port() == 5353 {
                hear.lock().unwrap().push(payload.to_vec());
            }
        });
        let more = format!("\n[reach]\npunch = false\n\n[lan]\nannounce = \"{announce}\"\n");
        let founder = start(&world, &public, "p", Underlay::V4, &more);
        done(&founder, &["create", "home", "--host", "desk"]);
        let join = |host: &Host, name| {
            let node = start(&world, host, name, Underlay::V4, &more);
            done(&node, &["join", &code(&founder, &[]), "--host", name]);
            node
        };
        let (a, b) = (join(&a, "a"), join(&b, "b"));
        for node in [&a, &b] {
            wait_until(PATIENCE, "all are members", || members(node) == ["a", "b", "desk"]);
        }
        Self {
            a,
            b,
            founder,
            heard,
            _tap: tap,
            _nat: nat,
            _world: world,
        }
    }

    /// Whether mDNS said something with this text in it.
    fn heard(&self, text: &str) -> bool {
        let heard = self.heard.lock().unwrap();
        heard
            .iter()
            .any(|payload| payload.windows(text.len()).any(|part| part == text.as_bytes()))
    }

    fn finish(self) {
        finish([self.a, self.b, self.founder]);
    }
}

fn finish<const N: usize>(nodes: [Daemon; N]) {
    for mut node in nodes {
        assert_eq!(node.stop().unwrap().code(), Some(0));
        assert!(node.warnings().unwrap().is_empty(), "{:?}", node.warnings());
    }
}

fn peer(from: &Daemon, to: &Daemon) -> Value {
    from.peer(&to.identity().npub).unwrap().unwrap_or_default()
}

/// The address of a direct path.
fn direct(from: &Daemon, to: &Daemon) -> Option<String> {
    let path = &peer(from, to)["path"];
    (path["kind"] == "direct").then(|| path["addr"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn members_behind_one_box_become_direct_by_the_lan() {
    beside(|| {
        let net = Net::start("members");
        let (a, b) = (&net.a, &net.b);
        wait_until(MINUTE, "the two are direct", || {
            direct(a, b).as_deref() == Some("192.168.1.3:2121") && direct(b, a).as_deref() == Some("192.168.1.2:2121")
        });
        let hints = [(a, b), (b, a)].map(|(from, to)| peer(from, to)["hint"].as_str().unwrap_or_default().to_owned());
        // Members also pass on where the two are.
        assert!(
            hints
                .iter()
                .all(|hint| ["lan", "incoming", "member", "probe"].contains(&hint.as_str())),
            "{hints:?}"
        );
        assert_eq!(peer(a, &net.founder)["hint"], "invite");
        assert!(pings(a, "b") && pings(b, "a"));
        let text = done(a, &["peers", "b"]);
        assert!(text.contains("known for"), "{text}");
        assert!(net.heard("_weft"));
        assert_strict!(!net.heard("npub") && !net.heard("_fips"), "others learn a key");
        net.finish();
    });
}

#[test]
fn nothing_is_multicast_when_it_is_off() {
    beside(|| {
        let net = Net::start("off");
        wait_until(PATIENCE, "payload passes", || pings(&net.a, "b"));
        std::thread::sleep(Duration::from_secs(10));
        assert_strict!(net.heard.lock().unwrap().is_empty(), "something is multicast");
        // The setting takes effect while the nodes run.
        for node in [&net.a, &net.b] {
            done(node, &["set", "lan.announce", "everyone"]);
        }
        wait_until(MINUTE, "the two are direct", || direct(&net.a, &net.b).is_some());
        for (node, scope) in [(&net.a, "fips-overlay-v1"), (&net.b, "nostr-vpn")] {
            let npub = node.identity().npub.clone();
            wait_until(PATIENCE, "FIPS sees it", || net.heard(&npub) && net.heard(scope));
        }
        net.finish();
    });
}

/// Link-local addresses mean something on one link only, so the path has the interface, too.
#[test]
fn members_find_each_other_by_link_local_addresses_alone() {
    beside(|| {
        let world = World::new().unwrap();
        let lan: Switch = world.switch("lan").unwrap();
        let more = "\n[reach]\npunch = false\n\n[link]\nheartbeat_s = 1\ndead_after_s = 4\n";
        let [(a_host, a), (b_host, b)] = [("a", 1), ("b", 2)].map(|(name, last)| {
            let host = world.host(name).unwrap();
            lan.connect(&host, &[&format!("2001:db8::{last}/64")]).unwrap();
            let node = start(&world, &host, name, Underlay::V6, more);
            (host, node)
        });
        done(&a, &["create", "home", "--host", "a"]);
        done(&b, &["join", &code(&a, &[]), "--host", "b"]);
        wait_until(PATIENCE, "the two are members", || members(&b) == ["a", "b"]);
        for host in [&a_host, &b_host] {
            let removed = host.netlink(|netlink| {
                for interface in netlink.interfaces()? {
                    let of: Vec<InterfaceAddress> = netlink.addresses(interface.index)?;
                    let global = |of: &InterfaceAddress| of.address.to_string().starts_with("2001:");
                    for address in of.into_iter().filter(global) {
                        netlink.delete_address(address)?;
                    }
                }
                Ok(())
            });
            removed.unwrap();
        }
        wait_until(MINUTE, "they are direct by link-local addresses", || {
            [(&a, &b), (&b, &a)]
                .iter()
                .all(|(from, to)| direct(from, to).is_some_and(|at| at.starts_with("[fe80:") && at.contains('%')))
        });
        assert!(pings(&a, "b") && pings(&b, "a"));
        finish([a, b]);
    });
}

/// The library mdns-sd is what FIPS announces itself with, and looks for others.
#[test]
fn the_library_of_fips_finds_a_node_and_is_found() {
    const TYPE: &str = "_fips._udp.local.";
    beside(|| {
        let world = World::new().unwrap();
        let lan = world.switch("lan").unwrap();
        let [a, b, c] = [("a", 1), ("b", 2), ("c", 3)].map(|(name, last)| {
            let host = world.host(name).unwrap();
            lan.connect(&host, &[&format!("192.168.1.{last}/24")]).unwrap();
            host
        });
        let identities = ["a", "b"].map(|name| identity(&world, name));
        let knows = |own: &Host, at: usize, announce: &str| {
            let of = &identities[1 - at];
            let peer = PeerSpec {
                npub: of.npub.clone(),
                name: "other".to_owned(),
                addresses: Vec::new(),
                routes: Vec::new(),
            };
            let spec = NodeSpec {
                peers: vec![peer],
                extra_toml: format!("\n[lan]\nannounce = \"{announce}\"\n"),
                ..Underlay::V4.listener()
            };
            let mut node = Daemon::start(own, Path::new(WEFT), &identities[at], &spec).unwrap();
            node.wait_ready(PATIENCE).unwrap();
            node
        };
        // Only the library says where b is.
        let b = knows(&b, 1, "off");
        let a = knows(&a, 0, "everyone");
        let library = c.run(ServiceDaemon::new).unwrap().unwrap();
        let events = library.browse(TYPE).unwrap();
        let npub = a.identity().npub.clone();
        let mut scopes = Vec::new();
        wait_until(PATIENCE, "the library finds the node in both scopes", || {
            while let Ok(event) = events.try_recv() {
                if let ServiceEvent::ServiceResolved(found) = event
                    && found.get_property_val_str("npub") == Some(&npub)
                    && found
                        .get_addresses_v4()
                        .iter()
                        .any(|ip| ip.to_string() == "192.168.1.1")
                    && found.port == 2121
                {
                    scopes.extend(found.get_property_val_str("scope").map(str::to_owned));
                }
            }
            ["fips-overlay-v1", "nostr-vpn"]
                .iter()
                .all(|scope| scopes.iter().any(|of| of == scope))
        });
        let npub = b.identity().npub.clone();
        let entries = [("npub", &*npub), ("v", "1"), ("scope", "fips-overlay-v1")];
        let name = format!("fips-{}", &npub[..16]);
        let service = ServiceInfo::new(
            TYPE,
            &name,
            &format!("{name}.local."),
            "192.168.1.2",
            2121,
            &entries[..],
        );
        library.register(service.unwrap()).unwrap();
        wait_until(MINUTE, "the node dials what the library announces", || {
            direct(&a, &b).as_deref() == Some("192.168.1.2:2121")
        });
        assert_eq!(peer(&a, &b)["hint"], "lan");
        let _ = library.shutdown();
        finish([a, b]);
    });
}
