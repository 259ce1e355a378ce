//! Nodes that have no neighbour in common, and find each other through a relay of Nostr: that of
//! `relay/`, a program of its own.

use std::path::Path;

use weft_lab::daemon::{Daemon, Identity};
use weft_lab::host::Host;
use weft_lab::nat::{NatBox, NatConfig, NatKind};
use weft_lab::spec::NodeSpec;
use weft_lab::world::{Switch, World};

use super::join::done;
use crate::common::servers::{NostrRelay, relay_of};
use crate::common::{MINUTE, PATIENCE, WEFT, assert_transfer, beside, identity, reached_within, wait_until};

/// Not of documentation, which is never advertised.
const RELAY: &str = "11.0.0.7";

struct Net {
    world: World,
    wan: Switch,
    relay: NostrRelay,
}

impl Net {
    fn start(program: &Path) -> Self {
        let world = World::new().unwrap();
        let wan = world.switch("wan").unwrap();
        let host = world.host("r").unwrap();
        wan.connect(&host, &[&format!("{RELAY}/24")]).unwrap();
        let relay = NostrRelay::start(program, &host, &format!("{RELAY}:7777"));
        Self { world, wan, relay }
    }

    fn host(&self, address: &str) -> Host {
        let host = self.world.host("h").unwrap();
        self.wan.connect(&host, &[address]).unwrap();
        host
    }

    fn behind(&self, outer: &str) -> (Host, NatBox) {
        let lan = self.world.switch("lan").unwrap();
        let config = NatConfig::new(NatKind::PortRestricted);
        let inner = (&lan, "192.168.1.1/24");
        let nat = self
            .world
            .nat(config, inner, (&self.wan, &format!("{outer}/24")))
            .unwrap();
        let host = self.world.host("behind").unwrap();
        lan.connect(&host, &["192.168.1.2/24"]).unwrap();
        host.add_default_route(nat.inner()).unwrap();
        (host, nat)
    }
}

/// A node that knows the keys of others and no address of any.
fn start(host: &Host, own: &Identity, peers: &[&Identity], more: &str) -> Daemon {
    start_with(
        host,
        own,
        peers,
        &format!("\n[nostr]\nrelays = [\"ws://{RELAY}:7777\"]\n{more}"),
    )
}

/// The same with this end of its configuration.
fn start_with(host: &Host, own: &Identity, peers: &[&Identity], extra_toml: &str) -> Daemon {
    let spec = NodeSpec {
        extra_toml: extra_toml.to_owned(),
        ..NodeSpec::default()
    };
    let spec = peers
        .iter()
        .fold(spec, |spec, peer| spec.with_peer(&peer.npub, &peer.name, &[]));
    let mut node = Daemon::start(host, Path::new(WEFT), own, &spec).unwrap();
    node.wait_ready(PATIENCE).unwrap();
    node
}

fn path(from: &Daemon, to: &Daemon) -> String {
    let status = from.peer(&to.identity().npub).unwrap().unwrap();
    status["path"]["kind"].as_str().unwrap_or_default().to_owned()
}

fn finish(nodes: [&mut Daemon; 2]) {
    for node in nodes {
        assert_eq!(node.stop().unwrap().code(), Some(0));
        assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
    }
}

#[test]
fn two_nodes_behind_nats_become_direct_and_outlast_the_relay() {
    beside(|| {
        let Some(program) = NostrRelay::program() else { return };
        let net = Net::start(&program);
        let [a, b] = ["a", "b"].map(|name| identity(&net.world, name));
        let [(a_host, a_box), (b_host, b_box)] = ["11.0.0.101", "11.0.0.102"].map(|outer| net.behind(outer));
        // The boxes keep ports, which their owners know, and forward nothing.
        let external = |nat: &NatBox| format!("[reach]\nexternal = [\"{}:2121\"]\n", nat.outer());
        let mut a = start(&a_host, &a, &[&b], &external(&a_box));
        let mut b = start(&b_host, &b, &[&a.identity().clone()], &external(&b_box));
        for (from, to) in [(&a, &b), (&b, &a)] {
            reached_within(MINUTE, from, to);
            assert_eq!(path(from, to), "direct");
        }
        assert!(a_box.counts().out > 0 && b_box.counts().out > 0);
        wait_until(PATIENCE, "the relay answers a ping", || {
            relay_of(&a)["rtt_ms"].as_f64().is_some()
        });
        assert_eq!(relay_of(&a)["state"], "open");
        drop(net.relay);
        wait_until(PATIENCE, "the node notices", || relay_of(&a)["state"] != "open");
        let relay = relay_of(&a);
        assert_eq!(relay["url"], format!("ws://{RELAY}:7777"), "{relay}");
        assert!(relay["rtt_ms"].is_null() && relay["trouble"].is_string(), "{relay}");
        let text = done(&a, &["netcheck"]);
        assert!(text.contains("not connected for"), "{text}");
        assert_transfer(&a, &b, 3_000_000);
        assert_transfer(&b, &a, 3_000_000);
        finish([&mut a, &mut b]);
    });
}

#[test]
fn relays_are_set_while_the_nodes_run() {
    beside(|| {
        let Some(program) = NostrRelay::program() else { return };
        let net = Net::start(&program);
        let [a, b] = ["a", "b"].map(|name| identity(&net.world, name));
        let hosts = ["11.0.0.8/24", "11.0.0.9/24"].map(|address| net.host(address));
        let url = format!("ws://{RELAY}:7777");
        let mut a = start_with(&hosts[0], &a, &[&b], "");
        let mut b = start_with(&hosts[1], &b, &[&a.identity().clone()], "");
        for node in [&a, &b] {
            assert!(relay_of(node).is_null());
            done(node, &["set", "nostr.relays", &format!("[\"{url}\"]")]);
        }
        reached_within(MINUTE, &a, &b);
        assert_eq!(relay_of(&a)["url"], url);
        done(&a, &["set", "nostr.relays", "[]"]);
        assert!(relay_of(&a).is_null());
        assert_transfer(&a, &b, 1_000_000);
        finish([&mut a, &mut b]);
    });
}

#[test]
fn a_public_node_is_found_by_its_advert() {
    beside(|| {
        let Some(program) = NostrRelay::program() else { return };
        let net = Net::start(&program);
        let [a, b] = ["a", "b"].map(|name| identity(&net.world, name));
        let public = net.host("11.0.0.8/24");
        let (behind, _nat) = net.behind("11.0.0.101");
        let mut a = start(&public, &a, &[&b], "advertise = true\n[reach]\npunch = false\n");
        let mut b = start(&behind, &b, &[&a.identity().clone()], "[reach]\npunch = false\n");
        reached_within(MINUTE, &b, &a);
        let status = b.peer(&a.identity().npub).unwrap().unwrap();
        assert_eq!(status["path"]["addr"], "11.0.0.8:2121", "{status}");
        assert_eq!(status["hint"], "advert", "{status}");
        finish([&mut a, &mut b]);
    });
}
