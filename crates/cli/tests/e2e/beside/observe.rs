//! Commands that look at a node without changing it: docs/guides/observing.md.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;

use serde_json::Value;
use weft_lab::daemon::{Daemon, DaemonError};
use weft_os::test_support::require_nft;

use super::join::{Net, code, done as done_by, members, network};
use crate::common::machine::{Connection, Machine, ROOT, done, failed, has_other_users, user};
use crate::common::{PATIENCE, Pair, Underlay, WEFT, beside, wait_until};
use weft_os::assert_strict;

#[test]
fn every_user_asks_which_node_an_address_belongs_to() {
    beside(|| {
        if !has_other_users() {
            return;
        }
        let machine = Machine::new();
        let made = done(&machine.weft(ROOT, &["identity", "new", "--state", "/run/test/bob"]));
        let npub = made.split_whitespace().find(|word| word.starts_with("npub1")).unwrap();
        machine.configure(&format!(
            "[[peer]]\nname = \"bob\"\nnpub = \"{npub}\"\naddresses = [\"192.0.2.77:2121\"]\nroutes = [\"10.8.7.0/24\"]\n"
        ));
        let _daemon = machine.up(&[]);
        done(&machine.weft(ROOT, &["create", "home", "--host", "desk"]));
        let other = user(4001);
        for query in ["bob", npub, "10.8.7.9"] {
            let text = done(&machine.weft(other, &["whois", query]));
            assert!(
                text.contains(npub) && text.contains("a peer of the configuration"),
                "{text}"
            );
            assert_strict!(!text.contains("192.0.2.77"), "{text}");
        }
        let json: Value =
            serde_json::from_str(&done(&machine.weft(other, &["whois", "desk.home.weft", "--json"]))).unwrap();
        assert_eq!(json["schema"], "weft.whois/1");
        assert_eq!(
            (&json["nodes"][0]["own"], &json["nodes"][0]["networks"][0]["network"]),
            (&true.into(), &"home".into())
        );
        let ipv4 = json["nodes"][0]["networks"][0]["ipv4"].as_str().unwrap();
        assert!(done(&machine.weft(other, &["whois", ipv4])).contains("this node"));
        let line = failed(&machine.weft(other, &["whois", "198.51.100.1"]));
        assert!(line.contains("198.51.100.1") && line.contains("weft peers"), "{line}");
    });
}

/// The lines of a command that goes on, as they come.
struct Lines {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Lines {
    fn start(daemon: &Daemon, arguments: &[&str]) -> Self {
        let mut command = Command::new(WEFT);
        command.args(arguments).arg("--state").arg(&daemon.identity().state);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let (to, lines) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || out.lines().map_while(Result::ok).all(|line| to.send(line).is_ok()));
        Self { child, lines }
    }

    fn next(&self) -> Option<String> {
        self.lines.recv_timeout(PATIENCE).ok()
    }

    /// The next event of a kind about `npub`.
    fn event(&self, kind: &str, npub: &str) -> Value {
        while let Some(line) = self.next() {
            let event: Value = serde_json::from_str(&line).unwrap();
            if event["event"] == kind && event["npub"].as_str().unwrap_or_default() == npub {
                return event;
            }
        }
        panic!("no event {kind} of {npub}");
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Exit status and the one line of a command that fails.
fn refused(daemon: &Daemon, arguments: &[&str]) -> (i32, String) {
    match daemon.command(arguments) {
        Err(DaemonError::Command { status, stderr, .. }) => {
            assert_eq!(stderr.trim().lines().count(), 1, "{stderr}");
            (status.code().unwrap(), stderr)
        }
        other => panic!("{arguments:?}: {other:?}"),
    }
}

#[test]
fn events_follow_a_peer_that_comes_and_goes_and_wait_waits() {
    beside(|| {
        let mut pair = Pair::start(Underlay::V4, |_| {});
        let npub = pair.b.identity().npub.clone();
        let events = Lines::start(&pair.a, &["events"]);
        events.event("listening", "");
        pair.a.command(&["wait", "b", "--timeout", "5s"]).unwrap();
        pair.a.command(&["wait", "b", "--payload"]).unwrap();
        pair.b.stop().unwrap();
        let down = events.event("peer-down", &npub);
        assert_eq!((&down["schema"], &down["name"]), (&"weft.event/1".into(), &"b".into()));
        assert!(down["why"].is_string(), "{down}");
        let told: Value = serde_json::from_slice(&pair.a.command(&["why", "b", "--json"]).unwrap().stdout).unwrap();
        assert_eq!(told["code"], "shut-down", "{told}");
        assert!(told["why"].as_str().unwrap().starts_with("b shut down "), "{told}");
        for arguments in [
            &["wait", "b", "--timeout", "1s"][..],
            &["wait", "b", "--timeout", "1s", "--payload"],
        ] {
            let (code, line) = refused(&pair.a, arguments);
            assert_eq!(code, 4, "{line}");
            assert!(line.contains("not within 1 s") && line.contains(" b"), "{line}");
        }
        let (code, line) = refused(&pair.a, &["wait", "carol", "--timeout", "1s"]);
        assert_eq!(code, 4);
        assert!(line.contains("no node named carol"), "{line}");
        let watch = Lines::start(&pair.a, &["status", "--watch", "--json"]);
        let standing = |line: &str| serde_json::from_str::<Value>(line).unwrap()["peers"][0]["standing"].clone();
        assert_ne!(standing(&watch.next().unwrap()), "connected");
        pair.b.restart().unwrap();
        pair.a.command(&["wait", "b", "--payload"]).unwrap();
        let up = events.event("peer-up", &npub);
        assert_eq!(up["path"]["kind"], "direct", "{up}");
        let mut lines = std::iter::from_fn(|| watch.next());
        assert!(lines.any(|line| standing(&line) == "active" || standing(&line) == "connected"));
        // A table after the other, with an empty line between them.
        let tables = Lines::start(&pair.a, &["status", "--watch"]);
        let mut lines = std::iter::from_fn(|| tables.next());
        assert!(lines.by_ref().filter(|line| line.starts_with("weft ")).nth(1).is_some());
        pair.a.command(&["peer", "remove", "b"]).unwrap();
        events.event("member-removed", &npub);
        pair.a.command(&["peer", "add", &npub, "--name", "b"]).unwrap();
        events.event("member-added", &npub);
        pair.a.stop().unwrap();
        events.event("stopping", "");
        assert_eq!(events.next(), None, "the stream ends with the daemon");
        pair.b.stop().unwrap();
    });
}

#[test]
fn an_event_tells_of_a_join_at_both_of_its_ends() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [a, b] = &net.nodes[..] else { panic!() };
        done_by(a, &["create", "home", "--host", "desk"]);
        let code = code(a, &[]);
        let events = [a, b].map(|node| Lines::start(node, &["events"]));
        for events in &events {
            let first = events.event("listening", "");
            let kinds = first["kinds"].as_array().unwrap();
            assert!(kinds.contains(&"networks".into()), "{first}");
        }
        done_by(b, &["join", &code, "--host", "laptop"]);
        for (node, events) in [a, b].into_iter().zip(&events) {
            // The last of them comes with the list as it stays; one before it may be of a part of the records.
            loop {
                let changed = events.event("networks", "");
                assert_eq!((&changed["npub"], &changed["kinds"]), (&Value::Null, &Value::Null));
                if members(node) == ["desk", "laptop"] && network(node)["state"] == "member" {
                    break;
                }
            }
        }
        drop(events);
        net.finish();
    });
}

#[test]
fn other_users_get_events_without_endpoints() {
    beside(|| {
        if !has_other_users() {
            return;
        }
        let machine = Machine::new();
        let made = done(&machine.weft(ROOT, &["identity", "new", "--state", "/run/test/bob"]));
        let npub = made.split_whitespace().find(|word| word.starts_with("npub1")).unwrap();
        machine.configure("");
        let _daemon = machine.up(&[]);
        let mut events = machine.as_user(user(4001), "/run/weft", |sockets| sockets.connect().unwrap());
        let first = events.ask(r#""cmd":"events""#);
        assert_eq!(
            (&first["data"]["event"], &first["data"]["schema"]),
            (&"listening".into(), &"weft.public-event/1".into())
        );
        done(&machine.weft(
            ROOT,
            &["peer", "add", npub, "--name", "bob", "--address", "192.0.2.77:2121"],
        ));
        let added = events.next();
        assert_eq!(
            (&added["data"]["event"], &added["data"]["name"]),
            (&"member-added".into(), &"bob".into())
        );
        assert_strict!(!added.to_string().contains("192.0.2.77"), "{added}");
        // The stream takes one of the eight places of this user.
        let busy = machine.as_user(user(4001), "/run/weft", |sockets| {
            let mut held: Vec<_> = (0..8).map(|_| sockets.connect().unwrap()).collect();
            let mut is_busy = |one: &mut Connection| one.ask(r#""cmd":"version""#)["error"]["code"] == "busy";
            let answers: Vec<bool> = held.iter_mut().map(&mut is_busy).collect();
            answers.into_iter().filter(|busy| *busy).count()
        });
        assert_eq!(busy, 1);
        let (code, line) = {
            let output = machine.weft(user(4001), &["wait", "bob", "--timeout", "1s"]);
            (output.status.code(), String::from_utf8(output.stderr).unwrap())
        };
        assert!(code == Some(4) && !line.contains("192.0.2.77"), "{line}");
    });
}

#[test]
fn both_ends_show_the_same_words() {
    beside(|| {
        let pair = Pair::start(Underlay::V4, |_| {});
        let verify = |daemon: &Daemon, peer: &str| -> Value {
            serde_json::from_slice(&daemon.command(&["verify", peer, "--json"]).unwrap().stdout).unwrap()
        };
        let (here, there) = (verify(&pair.a, "b"), verify(&pair.b, "a"));
        assert_eq!(here["schema"], "weft.verify/1");
        assert_eq!((&here["words"], &here["npub"]), (&there["words"], &there["own"]));
        assert_eq!(
            (here["words"].as_array().unwrap().len(), &here["connected"]),
            (8, &true.into())
        );
        let text = String::from_utf8(pair.a.command(&["verify", "b"]).unwrap().stdout).unwrap();
        let words: Vec<_> = here["words"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        assert!(text.contains(&words.join(" ")), "{text}");
        let (code, line) = refused(&pair.a, &["verify", "carol"]);
        assert!(code == 1 && line.contains("no node named carol"), "{line}");
        pair.finish();
    });
}

/// Runs a shell command on the host of a node.
fn script(daemon: &Daemon, script: &str) -> Output {
    let mut command = Command::new("sh");
    command.args(["-ec", script]);
    daemon.host().command(command, PATIENCE).unwrap()
}

fn shell(daemon: &Daemon, text: &str) {
    let output = script(daemon, text);
    assert!(output.status.success(), "{text}: {output:?}");
}

#[test]
fn doctor_finds_what_is_wrong_on_a_host() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let pair = Pair::start(Underlay::V4, |spec| {
            spec.settings
                .push(("tun.addresses".to_owned(), vec!["10.99.0.1/24"].into()));
        });
        // What the checks report depends on the host that runs the tests, but for these.
        let ours = ["rp_filter", "ipv6", "firewall", "daemon", "key", "tun", "clones"];
        let doctor = |arguments: &[&str]| {
            let mut command = Command::new(WEFT);
            command
                .arg("doctor")
                .args(arguments)
                .arg("--state")
                .arg(&pair.a.identity().state);
            let output = pair.a.host().command(command, PATIENCE).unwrap();
            (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
        };
        let found = |arguments: &[&str], list: &str| {
            let (code, text) = doctor(&[&["--json"], arguments].concat());
            let document: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(document["schema"], "weft.doctor/1");
            let all = document["findings"].as_array().unwrap();
            assert_eq!(code, if all.is_empty() { 0 } else { 5 }, "{text}");
            let names = document[list]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|one| one["check"].as_str());
            names
                .filter(|name| ours.contains(name))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let interface = pair.a.status().unwrap()["node"]["tun"]["name"]
            .as_str()
            .unwrap()
            .to_owned();
        shell(&pair.a, "sysctl -qw net.ipv4.conf.all.rp_filter=0");
        shell(&pair.a, &format!("sysctl -qw net.ipv4.conf.{interface}.rp_filter=0"));
        assert_eq!(found(&[], "findings"), [""; 0]);
        // The reverse path filter drops nothing while the way back is by the interface.
        shell(&pair.a, "sysctl -qw net.ipv4.conf.all.rp_filter=1");
        assert_eq!(found(&[], "findings"), [""; 0]);
        shell(
            &pair.a,
            &format!(
                "sysctl -qw net.ipv6.conf.{interface}.disable_ipv6=1
                 nft add table inet test
                 nft 'add chain inet test input {{ type filter hook input priority 0; policy drop; }}'
                 nft add rule inet test input ct state established,related accept"
            ),
        );
        // The daemon switches IPv6 on again, and sets up what the kernel took away with it.
        let expected = ["firewall", "firewall"];
        wait_until(PATIENCE, "IPv6 is on again", || found(&[], "findings") == expected);
        let (code, text) = doctor(&[]);
        assert_eq!(code, 5);
        for part in [
            "port 2121",
            "sudo nft insert rule inet test input udp dport 2121 accept",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let whole =
            format!("ip -6 address show dev {interface} | grep -q fd && ip -6 route get fd00::1 | grep -q {interface}");
        shell(&pair.a, &whole);
        shell(&pair.a, &format!("ip -6 address flush dev {interface}"));
        wait_until(PATIENCE, "the address is back", || {
            script(&pair.a, &whole).status.success()
        });
        shell(&pair.a, "nft insert rule inet test input udp dport 2121 accept");
        shell(
            &pair.a,
            &format!("nft insert rule inet test input iifname {interface} accept"),
        );
        // A look serves those of the second after it.
        wait_until(PATIENCE, "nothing is found", || found(&[], "findings").is_empty());
        let (mut a, mut b) = (pair.a.identity().state.clone(), pair);
        a.push("identity.key");
        std::fs::set_permissions(&a, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        b.a.stop().unwrap();
        let mut command = Command::new(WEFT);
        command.args(["doctor", "--json", "--state"]).arg(&b.a.identity().state);
        let output = b.a.host().command(command, PATIENCE).unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let names: Vec<_> = document["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["check"].clone())
            .collect();
        assert!(
            names.contains(&"daemon".into()) && names.contains(&"key".into()),
            "{document}"
        );
        std::fs::set_permissions(&a, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        b.b.stop().unwrap();
    });
}
