//! The requests of commands, among others at a daemon that hangs, refuses, is of an earlier version, or ends its events.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use weft_noise::SecretKey;
use weft_roster::invite::{Code, Seed};
use weft_roster::network_id::NetworkId;

const WEFT: &str = env!("CARGO_BIN_EXE_weft");
/// A time limit above that of any answer.
const MINUTE: Duration = Duration::from_secs(60);

/// Documents that answer a request, after which the connection is closed or kept.
enum Answer {
    /// These, and the end of the connection.
    Ended(Vec<Value>),
    /// These, and nothing more.
    Silent(Vec<Value>),
    /// These, once no connection is kept: a refusal until then.
    Alone(Vec<Value>),
    /// A refusal with this code.
    Refused(&'static str),
}

/// A socket at which a test answers in the place of a daemon.
struct Fake {
    directory: tempfile::TempDir,
    /// The name of each request: `events`, `network join`.
    asked: Receiver<String>,
}

impl Fake {
    /// `answer` gets the name of a request and how many of this name there were before.
    fn start(answer: impl Fn(&str, usize) -> Answer + Send + 'static) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("control.sock")).unwrap();
        let (to, asked) = channel();
        thread::spawn(move || serve(&listener, &to, answer));
        Self { directory, asked }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(WEFT);
        command.arg("--state").arg(self.directory.path()).args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Ends a command by Ctrl-C once it has made the request `at`.
    fn interrupt(&self, arguments: &[&str], at: &str) -> Output {
        let child = self.command(arguments).spawn().unwrap();
        while self.asked.recv_timeout(MINUTE).unwrap() != at {}
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        child.wait_with_output().unwrap()
    }

    /// How often a command makes each request until it ends, in the order of the first ones.
    fn counts(&self) -> Vec<(String, usize)> {
        let mut counts: Vec<(String, usize)> = Vec::new();
        for name in self.asked.try_iter() {
            match counts.iter_mut().find(|(known, _)| *known == name) {
                Some((_, number)) => *number += 1,
                None => counts.push((name, 1)),
            }
        }
        counts
    }
}

fn serve(listener: &UnixListener, to: &Sender<String>, answer: impl Fn(&str, usize) -> Answer) {
    let mut names: Vec<String> = Vec::new();
    // Connections that stay open.
    let mut kept: Vec<UnixStream> = Vec::new();
    for stream in listener.incoming() {
        let mut stream = BufReader::new(stream.unwrap());
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let request: Value = serde_json::from_str(&line).unwrap();
        let words = [&request["cmd"], &request["action"]];
        let name = words
            .iter()
            .filter_map(|word| word.as_str())
            .collect::<Vec<_>>()
            .join(" ");
        let before = names.iter().filter(|known| **known == name).count();
        let answer = answer(&name, before);
        names.push(name.clone());
        let mut stream = stream.into_inner();
        kept.retain_mut(|stream| stream.read(&mut [0]).is_err());
        let (lines, stays) = match answer {
            Answer::Ended(documents) => (documents.iter().map(done).collect(), false),
            Answer::Silent(documents) => (documents.iter().map(done).collect(), true),
            Answer::Alone(documents) if kept.is_empty() => (documents.iter().map(done).collect(), false),
            refused => {
                let code = match refused {
                    Answer::Refused(code) => code,
                    _ => "busy",
                };
                let error = json!({"code": code, "message": "not at present"});
                (vec![json!({"ok": false, "error": error})], false)
            }
        };
        // The command may have ended.
        let _ = lines.iter().try_for_each(|line: &Value| writeln!(stream, "{line}"));
        stream.set_nonblocking(true).unwrap();
        kept.extend(stays.then_some(stream));
        let _ = to.send(name);
    }
}

fn done(document: &Value) -> Value {
    json!({"ok": true, "data": document})
}

fn event(kind: &str) -> Value {
    json!({"schema": "weft.event/1", "event": kind, "unix_ms": 1})
}

fn listening() -> Value {
    let mut first = event("listening");
    first["kinds"] = json!(["listening", "peer-up", "networks", "stopping"]);
    first
}

fn npub() -> String {
    SecretKey::from_bytes(&[1; 32]).unwrap().public().to_string()
}

/// The list of the one network, as its member or not.
fn list(member: bool) -> Value {
    let own = json!({"npub": npub(), "name": "desk", "address": "fd00::1", "ipv4": null, "admin": true, "own": true,
        "tags": []});
    let network = json!({"id": NetworkId::from_bytes([3; 16]).to_string(), "name": "home",
        "state": if member { "member" } else { "joining" }, "why": "no answer yet", "ipv4": null,
        "members": if member { vec![own] } else { Vec::new() }, "invites": []});
    json!({"schema": "weft.networks/1", "networks": [network], "asked": [], "signed_again": []})
}

fn code() -> String {
    let code = Code {
        network: NetworkId::from_bytes([3; 16]),
        inviter: SecretKey::from_bytes(&[1; 32]).unwrap().public(),
        addresses: vec!["192.0.2.1:2121".parse().unwrap()],
        entry: None,
        expires: u32::MAX,
        seed: Seed::new([1; 16]),
    };
    code.encode().to_string()
}

/// A daemon that answers all requests of a join, and makes this node a member at the `from`-th look.
fn joins(name: &str, before: usize, from: usize, events: Answer) -> Answer {
    match name {
        "events" => events,
        "network join" => Answer::Ended(vec![list(false)]),
        "network list" => Answer::Ended(vec![list(before >= from)]),
        other => panic!("{other}"),
    }
}

#[test]
fn ctrl_c_ends_a_join_at_a_daemon_that_does_not_answer() {
    let code = code();
    for hangs_at in ["events", "network join", "network list"] {
        let fake = Fake::start(move |name, before| match name == hangs_at {
            true => Answer::Silent(Vec::new()),
            false => joins(name, before, 0, Answer::Silent(vec![listening()])),
        });
        let ended = fake.interrupt(&["join", &code, "--json"], hangs_at);
        let line = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{hangs_at}: {line}");
        assert!(
            line.lines().any(|line| line.starts_with("weft: interrupted")),
            "{hangs_at}: {line}"
        );
    }
}

#[test]
fn ctrl_c_ends_events_at_a_daemon_that_does_not_answer() {
    let fake = Fake::start(|_, _| Answer::Silent(Vec::new()));
    let ended = fake.interrupt(&["events"], "events");
    assert_eq!((ended.status.code(), ended.stdout.len()), (Some(0), 0), "{ended:?}");
}

/// Joins with a daemon whose request for events is answered by `events`. Returns how often it asks.
fn join(from: usize, events: fn() -> Answer) -> Vec<(String, usize)> {
    let fake = Fake::start(move |name, before| joins(name, before, from, events()));
    let joined = fake.command(&["join", &code(), "--json"]).output().unwrap();
    let printed = String::from_utf8(joined.stdout).unwrap();
    assert_eq!(
        joined.status.code(),
        Some(0),
        "{printed} {:?}",
        String::from_utf8(joined.stderr)
    );
    let document: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(document["networks"][0]["state"], "member", "{document}");
    fake.counts()
}

#[test]
fn a_join_asks_again_where_the_daemon_sends_no_such_events() {
    // As an earlier one, as one that knows no events, and as one that ends them.
    let earlier = || Answer::Silent(vec![event("listening")]);
    let ended = || Answer::Ended(vec![listening()]);
    for events in [
        earlier,
        || Answer::Refused("bad-request"),
        || Answer::Ended(Vec::new()),
        ended,
    ] {
        let counts = join(2, events);
        // Two looks at a node that joins, one at a member, and the document.
        let all = [("events", 1), ("network join", 1), ("network list", 4)];
        assert_eq!(counts, all.map(|(name, number)| (name.to_owned(), number)));
    }
}

#[test]
fn a_join_looks_again_at_each_event_about_networks() {
    let events = || {
        Answer::Silent(vec![
            listening(),
            event("peer-up"),
            event("networks"),
            event("networks"),
        ])
    };
    let counts = join(2, events);
    let all = [("events", 1), ("network join", 1), ("network list", 4)];
    assert_eq!(counts, all.map(|(name, number)| (name.to_owned(), number)));
}

fn peers(standing: &str) -> Value {
    let peer = json!({"npub": npub(), "name": "nas", "address": "fd00::1", "state": "linking", "since_s": 0,
        "standing": standing, "standing_s": 0, "path": null, "frames": null, "rtt_ms": null, "rx": null, "tx": null});
    json!({"schema": "weft.public-peers/1", "peers": [peer]})
}

#[test]
fn a_wait_looks_again_at_an_event_and_without_events() {
    let up = || Answer::Silent(vec![listening(), event("peer-up")]);
    for (events, subscriptions) in [
        (up as fn() -> Answer, 1),
        (|| Answer::Refused("bad-request"), 1),
        // It ends with the first look, and further ones.
        (|| Answer::Ended(vec![listening()]), 3),
    ] {
        let fake = Fake::start(move |name, before| match name {
            "events" => events(),
            "peers" => Answer::Ended(vec![peers(if before < 2 { "connecting" } else { "connected" })]),
            "ping" => Answer::Ended(vec![json!({"schema": "weft.ping/1", "npub": npub(), "name": "nas",
                "address": "fd00::1", "rtt_ms": null, "path": null, "why": null})]),
            other => panic!("{other}"),
        });
        let waited = fake.command(&["wait", "nas", "--timeout", "1m"]).output().unwrap();
        assert_eq!(waited.status.code(), Some(0), "{waited:?}");
        let all = [("events", subscriptions), ("peers", 3), ("ping", 2)];
        assert_eq!(fake.counts(), all.map(|(name, number)| (name.to_owned(), number)));
    }
}

#[test]
fn a_wait_for_an_echo_listens_to_no_events() {
    let fake = Fake::start(|name, before| match name {
        "ping" => Answer::Ended(vec![json!({"schema": "weft.ping/1", "npub": npub(), "name": "nas",
            "address": "fd00::1", "rtt_ms": (before >= 1).then_some(1.0), "path": null, "why": null})]),
        other => panic!("{other}"),
    });
    let waited = fake
        .command(&["wait", "nas", "--payload", "--timeout", "1m"])
        .output()
        .unwrap();
    assert_eq!(waited.status.code(), Some(0), "{waited:?}");
    assert_eq!(fake.counts(), [("ping".to_owned(), 2)]);
}

#[test]
fn a_wait_asks_a_silent_daemon_once_in_its_time() {
    let fake = Fake::start(|_, _| Answer::Silent(Vec::new()));
    let waited = fake.command(&["wait", "nas", "--timeout", "1s"]).output().unwrap();
    assert_eq!(waited.status.code(), Some(4), "{waited:?}");
    assert_eq!(fake.counts(), [("events".to_owned(), 1)]);
}

#[test]
fn a_wait_keeps_no_connection_that_its_looks_need() {
    let fake = Fake::start(|name, _| match name {
        "events" => Answer::Silent(vec![listening()]),
        "peers" => Answer::Alone(vec![peers("connected")]),
        other => panic!("{other}"),
    });
    let waited = fake.command(&["wait", "nas", "--timeout", "1m"]).output().unwrap();
    assert_eq!(waited.status.code(), Some(0), "{waited:?}");
    let all = [("events", 1), ("peers", 2)];
    assert_eq!(fake.counts(), all.map(|(name, number)| (name.to_owned(), number)));
}

#[test]
fn a_status_without_its_networks_is_none() {
    let status = || {
        let node = json!({"npub": npub(), "address": "fd00::1", "version": "1", "commit": "x", "started_unix": 1, "uptime_s": 1,
            "interface": "weft0", "mtu": 1280, "neighbours": null, "rss_bytes": 1, "cpu_s": 1.0});
        json!({"schema": "weft.public-status/1", "node": node, "peers": [], "counters": {}})
    };
    for (code, exit, said) in [("too-often", 1, "weft: not at present\n"), ("forbidden", 0, "")] {
        let fake = Fake::start(move |name, _| match name {
            "status" => Answer::Ended(vec![status()]),
            "network list" => Answer::Refused(code),
            other => panic!("{other}"),
        });
        let shown = fake.command(&["status"]).output().unwrap();
        assert_eq!(shown.status.code(), Some(exit), "{code}: {shown:?}");
        assert_eq!(String::from_utf8(shown.stderr).unwrap(), said);
    }
}

/// The exit code is that of the document: both are of one answer.
#[test]
fn an_explanation_as_document_is_asked_for_once() {
    for (allowed, exit) in [(true, 0), (false, 3)] {
        let why = json!({"schema": "weft.why/1", "allowed": allowed, "reasons": ["rule 1 of home"]});
        let fake = Fake::start(move |_, _| Answer::Ended(vec![why.clone()]));
        let shown = fake.command(&["why", "a", "b", "tcp/22", "--json"]).output().unwrap();
        assert_eq!(shown.status.code(), Some(exit), "{shown:?}");
        let document: Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!(document["allowed"], allowed);
        assert_eq!(fake.counts(), [("network why".to_owned(), 1)]);
    }
}
