//! Two nodes that do not reach each other report the reason, each on its side.

use std::net::SocketAddr;
use std::path::Path;

use crate::common::{MINUTE, PATIENCE, Underlay, WEFT, beside, identity, wait_until};
use serde_json::Value;
use weft_lab::daemon::{Daemon, Identity};
use weft_lab::host::Host;
use weft_lab::spec::NodeSpec;
use weft_lab::world::{Switch, World};

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Hosts on one switch, which exists as long as its value.
fn hosts<const N: usize>(world: &World, named: [(&str, &str); N]) -> (Switch, [Host; N]) {
    let switch = world.switch("net").unwrap();
    let hosts = named.map(|(name, ip)| {
        let host = world.host(name).unwrap();
        switch.connect(&host, &[&format!("{ip}/24")]).unwrap();
        host
    });
    (switch, hosts)
}

fn start(host: &Host, id: &Identity, spec: &NodeSpec) -> Daemon {
    let mut daemon = Daemon::start(host, Path::new(WEFT), id, spec).unwrap();
    daemon.wait_ready(PATIENCE).unwrap();
    daemon
}

fn why(of: &Daemon, peer: &str) -> String {
    let peer = of.peer(peer).unwrap().unwrap_or_default();
    peer["why"].as_str().unwrap_or_default().to_owned()
}

fn text(of: &Daemon, arguments: &[&str]) -> String {
    String::from_utf8(of.command(arguments).unwrap().stdout).unwrap()
}

fn finish(daemons: &mut [Daemon]) {
    for daemon in daemons {
        assert_eq!(daemon.stop().unwrap().code(), Some(0));
        assert!(daemon.warnings().unwrap().is_empty(), "{:?}", daemon.warnings());
    }
}

#[test]
fn an_unconfigured_node_is_named_by_the_node_that_refuses_it() {
    beside(|| {
        let world = World::new().unwrap();
        let (_switch, [one, two]) = hosts(&world, [("one", "192.0.2.1"), ("two", "192.0.2.2")]);
        let [asks, refuses] = ["asks", "refuses"].map(|name| identity(&world, name));
        let refusing = start(&two, &refuses, &Underlay::V4.listener());
        let spec = Underlay::V4
            .listener()
            .with_peer(&refuses.npub, "server", &[at("192.0.2.2:2121")]);
        let asking = start(&one, &asks, &spec);
        let turned_away = || refusing.status().unwrap()["turned_away"].clone();
        wait_until(PATIENCE, "the key is named", || {
            turned_away()[0]["times"].as_u64().is_some_and(|times| times >= 3)
        });
        let named = turned_away();
        assert_eq!(named.as_array().map(Vec::len), Some(1));
        assert_eq!(
            (&named[0]["npub"], &named[0]["from"]),
            (&asks.npub.clone().into(), &"192.0.2.1:2121".into())
        );
        let shown = text(&refusing, &["status"]);
        for part in [&*asks.npub, "at 192.0.2.1:2121 asked to link"] {
            assert!(shown.contains(part), "{part:?} is missing in:\n{shown}");
        }
        assert!(shown.contains("`weft peer add` with its npub lets one in"), "{shown}");
        let log = std::fs::read_to_string(refusing.log_path()).unwrap();
        let told: Vec<&str> = log.lines().filter(|line| line.contains("asked to link")).collect();
        assert_eq!(told.len(), 1, "once: {log}");
        for part in [&*asks.npub, "192.0.2.1:2121", "INFO", "`weft peer add`"] {
            assert!(told[0].contains(part), "{part:?} is missing in: {}", told[0]);
        }
        // The other node cannot know more than that there is no answer, and reports what to check.
        for part in ["no answer from 192.0.2.2:2121", "list this node's npub", "UDP 2121"] {
            wait_until(PATIENCE, part, || why(&asking, &refuses.npub).contains(part));
        }
        finish(&mut [asking, refusing]);
    });
}

#[test]
fn each_reason_of_a_peer_that_does_not_answer_has_its_own_words() {
    beside(|| {
        let world = World::new().unwrap();
        let (_switch, [here, _silent]) = hosts(&world, [("here", "192.0.2.1"), ("silent", "192.0.2.2")]);
        let id = identity(&world, "id");
        let reasons = [
            ("closed", "192.0.2.2:2121", "nothing listens at 192.0.2.2:2121"),
            ("away", "192.0.2.9:2121", "192.0.2.9 cannot be reached"),
            ("far", "198.51.100.1:2121", "no route to 198.51.100.1"),
            ("self", "192.0.2.1:2121", "192.0.2.1:2121 is this node's own address"),
        ];
        let mut spec = Underlay::V4.listener();
        let mut peers = Vec::new();
        for (name, address, words) in reasons {
            let peer = identity(&world, name);
            spec = spec.with_peer(&peer.npub, name, &[at(address)]);
            peers.push((peer, words));
        }
        let daemon = start(&here, &id, &spec);
        for (peer, words) in &peers {
            wait_until(MINUTE, words, || why(&daemon, &peer.npub).contains(words));
        }
        // Addresses outside were dialled in vain, and no route leads there.
        wait_until(MINUTE, "netcheck tells", || {
            let found: Value = serde_json::from_str(&text(&daemon, &["netcheck", "--json"])).unwrap();
            found["udp"]["state"] == "no-route"
        });
        // A whole attempt without an answer: the peer is offline, and the time is that in this
        // state.
        wait_until(MINUTE, "offline", || {
            let states = daemon.status().unwrap()["peers"].clone();
            let states = states.as_array().unwrap();
            states
                .iter()
                .all(|peer| peer["standing"] == "offline" && peer["state"] == "linking")
        });
        let peer: Value = daemon.peer(&peers[0].0.npub).unwrap().unwrap();
        assert!(peer["standing_s"].as_u64() < peer["since_s"].as_u64(), "{peer}");
        assert!(text(&daemon, &["peers", "closed.fips"]).contains("state    offline for"));
        finish(&mut [daemon]);
    });
}

#[test]
fn unconfigured_neighbours_are_listed_and_stop_answering() {
    beside(|| {
        let world = World::new().unwrap();
        let (_switch, [relay, laptop]) = hosts(&world, [("relay", "192.0.2.1"), ("laptop", "192.0.2.2")]);
        let [open, user] = ["open", "user"].map(|name| identity(&world, name));
        let mut spec = Underlay::V4.listener();
        spec.settings.push(("mesh.open".to_owned(), true.into()));
        let relay = start(&relay, &open, &spec);
        let spec = Underlay::V4
            .listener()
            .with_peer(&open.npub, "relay", &[at("192.0.2.1:2121")]);
        let laptop = start(&laptop, &user, &spec);
        let list = || serde_json::from_str::<Value>(&text(&relay, &["peers", "--json"])).unwrap();
        wait_until(PATIENCE, "the neighbour is listed", || {
            list()["strangers"][0]["npub"] == user.npub
        });
        let shown = text(&relay, &["peers"]);
        assert!(
            shown.contains(&user.npub) && shown.contains("not configured here"),
            "{shown}"
        );
        // The relay does not have a session with a node that it does not list: the laptop reports
        // that in the end.
        wait_until(PATIENCE, "the laptop says what to check", || {
            let mut ping = std::process::Command::new(WEFT);
            ping.args(["ping", "relay.fips", "-c", "1", "-W", "1", "--state"]);
            let answer = ping.arg(&user.state).output().unwrap();
            String::from_utf8(answer.stdout)
                .unwrap()
                .contains("list this node's npub")
        });
        finish(&mut [relay, laptop]);
    });
}
