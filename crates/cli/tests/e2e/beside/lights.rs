//! What is shown of a peer agrees with what a packet finds: one that died behind a relay, one that the
//! rules close, one whose relay restarts.

use std::path::Path;

use serde_json::Value;
use weft_lab::daemon::Daemon;
use weft_lab::world::{Switch, World};

use super::internet::{done, run};
use crate::common::{MINUTE, PATIENCE, Underlay, WEFT, beside, identity, wait_until};

/// nas, the founder, and two members that reach each other through it alone.
struct Trio {
    _world: World,
    _switches: [Switch; 2],
    nas: Daemon,
    laptop: Daemon,
    shed: Daemon,
}

impl Trio {
    fn start() -> Self {
        let world = World::new().unwrap();
        let switches = ["left", "right"].map(|name| world.switch(name).unwrap());
        let [left, right] = &switches;
        let host = |name| world.host(name).unwrap();
        let (nas, laptop, shed) = (host("nas"), host("laptop"), host("shed"));
        left.connect(&nas, &["192.0.2.1/24"]).unwrap();
        left.connect(&laptop, &["192.0.2.2/24"]).unwrap();
        right.connect(&nas, &["198.51.100.1/24"]).unwrap();
        right.connect(&shed, &["198.51.100.2/24"]).unwrap();
        let [nas, laptop, shed] = [nas, laptop, shed].map(|host| {
            let id = identity(&world, host.name());
            let mut node = Daemon::start(&host, Path::new(WEFT), &id, &Underlay::V4.listener()).unwrap();
            node.wait_ready(PATIENCE).unwrap();
            node
        });
        done(&nas, &["create", "home", "--host", "nas"]);
        for (node, address) in [(&laptop, "192.0.2.1:2121"), (&shed, "198.51.100.1:2121")] {
            let invited: Value =
                serde_json::from_str(&done(&nas, &["invite", "--address", address, "--json"])).unwrap();
            let name = node.host().name().to_owned();
            done(node, &["join", invited["code"].as_str().unwrap(), "--host", &name]);
        }
        let trio = Self {
            _world: world,
            _switches: switches,
            nas,
            laptop,
            shed,
        };
        wait_until(MINUTE, "an echo through the relay", || {
            trio.laptop.command(&["ping", "shed", "--count", "1"]).is_ok()
        });
        trio
    }

    fn stop(mut self) {
        for node in [&mut self.nas, &mut self.laptop, &mut self.shed] {
            assert_eq!(node.stop().unwrap().code(), Some(0));
        }
    }
}

/// What the status says of a member: its standing and the reason.
fn said(node: &Daemon, name: &str) -> (String, String) {
    let status = node.status().unwrap();
    let peers = status["peers"].as_array().unwrap();
    let peer = peers.iter().find(|peer| peer["name"] == name).unwrap();
    let text = |field: &str| peer[field].as_str().unwrap().to_owned();
    (text("standing"), text("why"))
}

fn is_up((standing, _): &(String, String)) -> bool {
    matches!(standing.as_str(), "connected" | "active")
}

/// The exit status and the error of `weft wait`.
fn waits(node: &Daemon, name: &str, timeout: &str) -> (i32, String) {
    let output = node.attempt(&["wait", name, "--timeout", timeout], MINUTE).unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_member_that_dies_behind_a_relay_is_not_shown_up() {
    beside(|| {
        let trio = Trio::start();
        // An idle member that is there answers, and no packet of its passes for that.
        wait_until(MINUTE, "the member is idle and there", || {
            let (standing, why) = said(&trio.laptop, "shed");
            standing == "connected" && why.contains("idle") && why.contains("last heard")
        });
        assert_eq!(waits(&trio.laptop, "shed", "2s").0, 0);
        let cable = |to: &str| run(trio.shed.host(), "ip", &["link", "set", "eth0", to]);
        cable("down");
        wait_until(PATIENCE, "it does not answer", || !is_up(&said(&trio.laptop, "shed")));
        let (_, why) = said(&trio.laptop, "shed");
        assert!(
            why.contains("no answer through nas for") && why.contains("last heard"),
            "{why}"
        );
        let mut told = serde_json::Value::Null;
        wait_until(MINUTE, "the question about its path is answered by its silence", || {
            let output = trio.laptop.command(&["why", "shed", "--json"]).unwrap();
            told = serde_json::from_slice(&output.stdout).unwrap();
            told["code"] == "silent"
        });
        let why = told["why"].as_str().unwrap();
        assert!(why.starts_with("shed has not answered for "), "{why}");
        assert!(
            why.contains("(last heard through nas)") && why.contains("off or asleep"),
            "{why}"
        );
        let (code, error) = waits(&trio.laptop, "shed", "2s");
        assert!(code == 4 && error.contains("no answer through nas"), "{code}: {error}");
        wait_until(MINUTE, "it is offline", || said(&trio.laptop, "shed").0 == "offline");
        assert_eq!(waits(&trio.laptop, "shed", "2s").0, 4);
        cable("up");
        assert_eq!(waits(&trio.laptop, "shed", "60s").0, 0);
        trio.stop();
    });
}

#[test]
fn an_echo_that_the_rules_deny_is_no_broken_network() {
    beside(|| {
        let trio = Trio::start();
        done(&trio.nas, &["rule", "default", "deny"]);
        let denied = "denied by rules: no rule of home matches, and its default is deny; `weft why laptop shed icmp`";
        wait_until(MINUTE, "the echo is denied by name", || {
            let ping = trio
                .laptop
                .attempt(&["ping", "shed", "--count", "1", "--timeout", "1"], MINUTE)
                .unwrap();
            String::from_utf8_lossy(&ping.stdout).contains(denied)
        });
        // A denied echo leaves the standing of the peer as it is.
        for _ in 0..4 {
            let _ = trio
                .laptop
                .attempt(&["ping", "shed", "--count", "3", "--timeout", "1"], MINUTE)
                .unwrap();
            let said = said(&trio.laptop, "shed");
            assert!(is_up(&said), "{said:?}");
        }
        assert_eq!(waits(&trio.laptop, "shed", "5s").0, 0);
        let payload = ["wait", "shed", "--payload", "--timeout", "2s"];
        let output = trio.laptop.attempt(&payload, MINUTE).unwrap();
        assert_eq!(output.status.code(), Some(4));
        assert!(String::from_utf8_lossy(&output.stderr).contains(denied), "{output:?}");
        trio.stop();
    });
}

#[test]
fn a_member_whose_relay_restarts_is_not_shown_offline() {
    beside(|| {
        let mut trio = Trio::start();
        trio.nas.restart().unwrap();
        let mut seen = Vec::new();
        wait_until(MINUTE, "the member is up again", || {
            let echo = trio
                .laptop
                .attempt(&["ping", "shed", "--count", "1", "--timeout", "1"], MINUTE)
                .unwrap();
            let said = said(&trio.laptop, "shed");
            let both = (echo.status.success(), said.0 == "offline");
            seen.push((both, said.clone()));
            is_up(&said) && both.0
        });
        let lies: Vec<_> = seen.iter().filter(|(both, _)| *both == (true, true)).collect();
        assert!(lies.is_empty(), "{lies:?}");
        trio.stop();
    });
}
