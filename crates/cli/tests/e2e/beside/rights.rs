//! The rights of a running daemon.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use weft_lab::daemon::Daemon;
use weft_os::process::{UserChange, service_user};
use weft_os::test_support::skip;

use crate::common::{MINUTE, PATIENCE, Pair, Underlay, WEFT, assert_pings, beside, wait_until};

const NET_ADMIN: &str = "0000000000001000";
/// The rights of lanes if `RLIMIT_NICE` cannot be raised.
const NET_ADMIN_AND_NICE: &str = "0000000000801000";
const NONE: &str = "0000000000000000";

/// The user that a daemon becomes here, if it can change its user.
fn service_uid() -> Option<u32> {
    match service_user().unwrap() {
        UserChange::To(ids) => Some(ids.uid),
        UserChange::NotRoot(uid) => Some(uid),
        UserChange::Impossible(why) => {
            skip(format!("other users of the host: {why}"));
            None
        }
    }
}

/// The value of a line of `/proc/PID/status`, with single spaces.
fn field(status: &str, name: &str) -> String {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Asserts that the daemon, in each of its threads, has the rights that docs/guides/privileges.md
/// names and no others.
fn assert_confined(daemon: &Daemon) {
    let pid = daemon.pid();
    let process = format!("/proc/{pid}");
    let mut threads = 0;
    for task in fs::read_dir(format!("{process}/task")).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let thread = field(&status, "Name");
        if let Some(uid) = service_uid() {
            assert_eq!(field(&status, "Uid"), vec![uid.to_string(); 4].join(" "), "{thread}");
            assert!(!field(&status, "Gid").split(' ').any(|gid| gid == "0"), "{thread}");
            assert_eq!(field(&status, "Groups"), "", "{thread}");
        }
        let lane = thread.starts_with("weft-lane");
        let capabilities = field(&status, "CapEff");
        assert!(
            capabilities == NET_ADMIN || (lane && capabilities == NET_ADMIN_AND_NICE),
            "{thread}: {capabilities}"
        );
        assert_eq!(field(&status, "CapPrm"), capabilities, "{thread}");
        for (name, value) in [
            ("CapInh", NONE),
            ("CapBnd", NONE),
            ("CapAmb", NONE),
            ("NoNewPrivs", "1"),
            ("Seccomp", "2"),
        ] {
            assert_eq!(field(&status, name), value, "{thread}: {name}");
        }
        threads += 1;
    }
    assert!(threads >= 3, "{threads} threads");
    let limits = fs::read_to_string(format!("{process}/limits")).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .unwrap();
    assert_eq!(core.split_whitespace().collect::<Vec<_>>()[4..6], ["0", "0"]);
    if service_uid().is_some_and(|uid| uid != 0) {
        // The kernel makes root the owner of the files of a process that cannot be dumped.
        assert_eq!(
            fs::metadata(format!("{process}/environ")).unwrap().uid(),
            0,
            "it can be dumped"
        );
    }
    let rights = rights(daemon);
    assert_eq!(rights["seccomp"]["on"], true, "{rights}");
    assert_eq!(rights["broker"]["on"], true, "{rights}");
    if rights["landlock"]["on"] != true {
        skip(format!("Landlock: {}", rights["landlock"]["why"].as_str().unwrap()));
    }
    if let Some(uid) = service_uid() {
        assert_eq!(rights["uid"], uid, "{rights}");
        assert_eq!(rights["root"], Value::Null, "{rights}");
    }
}

fn rights(daemon: &Daemon) -> Value {
    daemon.status().unwrap()["node"]["rights"].clone()
}

/// The process that keeps root's rights for this daemon.
pub(crate) fn broker(daemon: &Daemon) -> u32 {
    let pid = daemon.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let serves = |pid: &&str| {
        let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.split('\0').nth(1) == Some("broker")
    };
    let broker = children.split_whitespace().find(serves).unwrap();
    broker.parse().unwrap()
}

fn runs(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}/exe")).exists()
}

/// A test with a peer, which starts a process at the peer.
fn perf(from: &Daemon) {
    let mut command = Command::new(WEFT);
    command.args(["perf", "--no-stages", "b", "--time", "1", "--state"]);
    command.arg(&from.identity().state);
    let output = from.host().command(command, MINUTE).unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn no_thread_has_more_than_it_needs_before_and_after_use() {
    beside(|| {
        let mut pair = Pair::start(Underlay::V4, |_| {});
        for daemon in [&pair.a, &pair.b] {
            assert_confined(daemon);
        }
        // All operations that start threads or processes, open sockets, or write files.
        assert_pings(&pair.a, &pair.b);
        perf(&pair.a);
        pair.a.command(&["ping", "b", "--count", "1"]).unwrap();
        pair.a.command(&["peers"]).unwrap();
        let written = pair.b.identity().state.join("peers.json");
        wait_until(PATIENCE, "addresses are written", || written.exists());
        if let Some(uid) = service_uid() {
            assert_eq!(fs::metadata(&written).unwrap().uid(), uid);
        }
        let status = fs::read_to_string(format!("/proc/{}/status", broker(&pair.b))).unwrap();
        for (name, value) in [
            ("CapEff", NET_ADMIN),
            ("CapPrm", NET_ADMIN),
            ("NoNewPrivs", "1"),
            ("Seccomp", "2"),
        ] {
            assert_eq!(field(&status, name), value, "broker: {name}");
        }
        for daemon in [&pair.a, &pair.b] {
            assert_confined(daemon);
        }
        // The daemon can still read and write the files of the first run.
        assert_eq!(pair.b.stop().unwrap().code(), Some(0));
        pair.b.restart().unwrap();
        pair.b.wait_ready(PATIENCE).unwrap();
        pair.wait_payload();
        assert_confined(&pair.b);
        pair.finish();
    });
}

#[test]
fn files_of_the_daemon_lie_beside_those_that_stay_roots() {
    beside(|| {
        let pair = Pair::start(Underlay::V4, |_| {});
        let state = &pair.a.identity().state;
        let owner = |name: &str| fs::metadata(state.join(name)).unwrap().uid();
        let own = fs::metadata("/proc/self").unwrap().uid();
        for name in ["identity.key", "lock", "."] {
            assert_eq!(owner(name), own, "{name}");
        }
        if let Some(uid) = service_uid() {
            assert_eq!(owner("control.sock"), uid);
        }
        pair.finish();
    });
}

#[test]
fn the_broker_ends_with_its_daemon() {
    beside(|| {
        let mut pair = Pair::start_unlinked(Underlay::V4, |_| {});
        let brokers = [&pair.a, &pair.b].map(broker);
        assert!(brokers.into_iter().all(runs));
        assert_eq!(pair.a.stop().unwrap().code(), Some(0));
        // The daemon waits for the end of its broker, which it has cut off before.
        assert!(!runs(brokers[0]), "the broker of a daemon that was stopped");
        pair.b.kill().unwrap();
        wait_until(PATIENCE, "the end of the broker of a daemon that was killed", || {
            !runs(brokers[1])
        });
    });
}

#[test]
fn a_daemon_without_its_broker_says_so_and_goes_on() {
    beside(|| {
        let pair = Pair::start(Underlay::V4, |_| {});
        let killed = Command::new("kill").arg("-9").arg(broker(&pair.a).to_string()).status();
        assert!(killed.unwrap().success());
        wait_until(PATIENCE, "the daemon notices", || {
            rights(&pair.a)["broker"]["on"] == false
        });
        assert_eq!(rights(&pair.a)["broker"]["why"], "it ended");
        let warnings = pair.a.warnings().unwrap();
        assert!(
            matches!(&warnings[..], [line] if line.contains("the broker ended")),
            "{warnings:?}"
        );
        assert_pings(&pair.a, &pair.b);
        let text = String::from_utf8(pair.a.command(&["status"]).unwrap().stdout).unwrap();
        assert!(text.contains("no broker (it ended)"), "{text}");
    });
}
