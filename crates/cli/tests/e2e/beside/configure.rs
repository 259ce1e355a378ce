//! The configuration is changed while the daemon runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{MINUTE, PATIENCE, Underlay, WEFT, beside, identity, reached_within, wait_until};
use weft_lab::daemon::{Daemon, DaemonError, Identity};
use weft_lab::host::Host;
use weft_lab::world::{Switch, World};

/// Two hosts on one switch, each with a running node that knows no peer.
struct Pair {
    _world: World,
    _switch: Switch,
    ids: [Identity; 2],
    nodes: [Daemon; 2],
}

impl Pair {
    fn start() -> Self {
        let world = World::new().unwrap();
        let switch = world.switch("net").unwrap();
        let ids = ["a", "b"].map(|name| identity(&world, name));
        let hosts: [Host; 2] = [("a", "192.0.2.1/24"), ("b", "192.0.2.2/24")].map(|(name, ip)| {
            let host = world.host(name).unwrap();
            switch.connect(&host, &[ip]).unwrap();
            host
        });
        let start = |host: &Host, id: &Identity| {
            let mut node = Daemon::start(host, Path::new(WEFT), id, &Underlay::V4.listener()).unwrap();
            node.wait_ready(PATIENCE).unwrap();
            node
        };
        let nodes = [start(&hosts[0], &ids[0]), start(&hosts[1], &ids[1])];
        Self {
            _world: world,
            _switch: switch,
            ids,
            nodes,
        }
    }

    fn config(&self) -> PathBuf {
        self.ids[0].state.join("config.toml")
    }

    fn finish(self) {
        for mut node in self.nodes {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert!(node.warnings().unwrap().is_empty(), "{:?}", node.warnings());
        }
    }
}

/// The output of a command that has succeeded.
fn done(node: &Daemon, arguments: &[&str]) -> String {
    let output = node.command(arguments).unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The one line of a command that fails with `code`.
fn failed(node: &Daemon, arguments: &[&str], code: i32) -> String {
    match node.command(arguments) {
        Err(DaemonError::Command { status, stderr, .. }) => {
            assert_eq!(status.code(), Some(code), "{arguments:?}: {stderr}");
            assert_eq!(stderr.trim().lines().count(), 1, "{stderr}");
            stderr
        }
        other => panic!("{arguments:?}: {other:?}"),
    }
}

fn peers(node: &Daemon) -> usize {
    node.status().unwrap()["peers"].as_array().map_or(0, Vec::len)
}

#[test]
fn peers_come_and_go_while_the_daemons_run() {
    beside(|| {
        let pair = Pair::start();
        let [a, b] = &pair.nodes;
        let [npub_a, npub_b] = [&*pair.ids[0].npub, &*pair.ids[1].npub];
        let pids = [a.pid(), b.pid()];
        let text = done(
            a,
            &["peer", "add", npub_b, "--address", "192.0.2.2:2121", "--name", "bob"],
        );
        assert!(text.contains("added") && !text.contains("start"), "{text}");
        done(b, &["peer", "add", npub_a]);
        reached_within(PATIENCE, a, b);
        wait_until(PATIENCE, "its name leads there", || {
            let ping = a.command(&["ping", "bob", "--count", "1"]);
            ping.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("bob"))
        });
        assert!(done(a, &["peer", "add", npub_b, "--name", "robert"]).contains("changed"));
        assert_eq!(a.peer(npub_b).unwrap().unwrap()["name"], "robert");
        reached_within(PATIENCE, b, a);
        done(a, &["peer", "remove", "robert"]);
        assert_eq!(peers(a), 0);
        wait_until(PATIENCE, "the other end learns it", || {
            let peer = b.peer(npub_a).unwrap().unwrap();
            peer["why"].as_str().unwrap().contains("list this node's npub")
        });
        let ping = b.command(&["ping", npub_a, "--count", "1", "--timeout", "1"]);
        assert!(matches!(ping, Err(DaemonError::Command { .. })), "{ping:?}");
        done(a, &["peer", "add", npub_b, "--address", "192.0.2.2:2121"]);
        reached_within(PATIENCE, a, b);
        assert_eq!([a.pid(), b.pid()], pids);
        pair.finish();
    });
}

#[test]
fn a_configuration_that_is_not_valid_changes_nothing() {
    beside(|| {
        let pair = Pair::start();
        let [a, _] = &pair.nodes;
        let before = fs::read_to_string(pair.config()).unwrap();
        for (arguments, words) in [
            (
                vec!["set", "mesh.opne", "true"],
                "mesh.opne: unknown key; did you mean open?",
            ),
            (vec!["set", "mesh.open", "maybe"], "mesh.open: a string where"),
            (vec!["set", "lanes", "99"], "lanes: 99 is out of range"),
            (vec!["set", "peer.name", "x"], "`weft peer add`"),
            (vec!["peer", "remove", "nobody"], "no peer named nobody"),
        ] {
            let line = failed(a, &arguments, 2);
            assert!(line.contains(words), "{arguments:?}: {line}");
        }
        // A fault that only the daemon knows: its own key as a peer.
        let line = failed(a, &["peer", "add", &pair.ids[0].npub], 1);
        assert!(line.contains("this node's own key"), "{line}");
        assert_eq!(fs::read_to_string(pair.config()).unwrap(), before);
        // A file that was edited by hand.
        fs::write(pair.config(), format!("{before}\n[mesh]\nopne = true\n")).unwrap();
        let line = failed(a, &["reload"], 1);
        assert!(line.contains("config.toml:") && line.contains("unknown key"), "{line}");
        let line = failed(a, &["config", "check"], 2);
        assert!(line.contains("unknown key"), "{line}");
        fs::write(pair.config(), &before).unwrap();
        done(a, &["reload"]);
        assert!(done(a, &["config", "check"]).contains("valid, 0 peers"));
        assert_eq!(done(a, &["config", "show"]), before);
        pair.finish();
    });
}

#[test]
fn settings_that_need_a_start_are_named_and_take_effect_then() {
    beside(|| {
        let mut pair = Pair::start();
        let a = &pair.nodes[0];
        let text = done(a, &["set", "mesh.open", "true"]);
        assert!(!text.contains("start"), "{text}");
        let text = done(a, &["set", "session.idle_s", "33"]);
        assert!(
            text.contains("takes effect when weft starts again: session.idle_s"),
            "{text}"
        );
        assert_eq!(
            a.status().unwrap()["node"]["at_start"],
            serde_json::json!(["session.idle_s"])
        );
        assert!(done(a, &["status"]).contains("waits for the next start: session.idle_s"));
        pair.nodes[0].restart().unwrap();
        pair.nodes[0].wait_ready(PATIENCE).unwrap();
        let a = &pair.nodes[0];
        assert!(a.status().unwrap()["node"].get("at_start").is_none());
        let text = done(a, &["set", "session.idle_s", "--default"]);
        assert!(text.contains("starts again"), "{text}");
        pair.finish();
    });
}

#[test]
fn a_change_is_taken_back_unless_it_is_confirmed() {
    beside(|| {
        let mut pair = Pair::start();
        let npub = pair.ids[1].npub.clone();
        let before = fs::read_to_string(pair.config()).unwrap();
        let kept = pair.config().with_file_name("config.toml.before");
        let a = &pair.nodes[0];
        let text = done(a, &["peer", "add", &npub, "--confirm", "5m"]);
        assert!(text.contains("taken back in"), "{text}");
        assert_eq!(peers(a), 1);
        // Of several changes the time of the last one counts, and all are taken back.
        done(a, &["peer", "add", &npub, "--name", "bob", "--confirm", "1s"]);
        wait_until(PATIENCE, "both are taken back", || peers(a) == 0);
        assert_eq!(fs::read_to_string(pair.config()).unwrap(), before);
        let line = failed(a, &["confirm"], 1);
        assert!(line.contains("no change"), "{line}");
        // Confirmed, it stays.
        done(a, &["peer", "add", &npub, "--confirm", "5m"]);
        assert!(done(a, &["status"]).contains("unless `weft confirm` comes"));
        done(a, &["confirm"]);
        assert!(!kept.exists());
        done(a, &["peer", "remove", &npub]);
        // The daemon is killed, and starts again before and after the time is over.
        let restart = |pair: &mut Pair| {
            pair.nodes[0].kill().unwrap();
            pair.nodes[0].restart().unwrap();
            pair.nodes[0].wait_ready(MINUTE).unwrap();
        };
        done(&pair.nodes[0], &["peer", "add", &npub, "--confirm", "5m"]);
        restart(&mut pair);
        assert_eq!(peers(&pair.nodes[0]), 1);
        assert!(done(&pair.nodes[0], &["status"]).contains("taken back in"));
        done(&pair.nodes[0], &["confirm"]);
        done(&pair.nodes[0], &["peer", "remove", &npub]);
        done(&pair.nodes[0], &["peer", "add", &npub, "--confirm", "1s"]);
        pair.nodes[0].kill().unwrap();
        std::thread::sleep(Duration::from_millis(2_100));
        pair.nodes[0].restart().unwrap();
        pair.nodes[0].wait_ready(MINUTE).unwrap();
        assert_eq!(peers(&pair.nodes[0]), 0);
        assert!(!kept.exists());
        pair.finish();
    });
}
