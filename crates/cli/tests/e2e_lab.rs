//! `weft lab run`, `up`, `exec` and `down` with the real binary: the ready scenarios hold, what does not hold is named,
//! and nothing stays behind, however it ends.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its ground is missing"
)]

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{MINUTE, WEFT, shared_turn, turn, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weft_os::test_support::require_namespaces;

fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(WEFT);
    command.arg("lab").args(arguments);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a scenario into a folder.
fn run(from: &str, folder: &Path, more: &[&str]) -> Output {
    lab(&["run", from, "--out"]).arg(folder).args(more).output().unwrap()
}

fn results(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("results.json")).unwrap()).unwrap()
}

/// A ready scenario: every expectation holds, and the folder has all that a run leaves.
fn holds(name: &str) {
    if !require_namespaces() {
        return;
    }
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let output = run(name, folder.path(), &[]);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("steps, all as expected: "), "{said}");
    let results = results(folder.path());
    assert_eq!(
        (&results["schema"], &results["ok"]),
        (&"weft.lab/1".into(), &true.into())
    );
    for node in results["nodes"].as_array().unwrap() {
        let name = node["name"].as_str().unwrap();
        assert!(folder.path().join(format!("logs/{name}.log")).is_file());
        let status = fs::read(folder.path().join(format!("status/{name}.json"))).unwrap();
        let status: Value = serde_json::from_slice(&status).unwrap();
        assert_eq!(status["schema"], "weft.status/1");
    }
}

#[test]
fn lan_holds() {
    holds("lan");
}

#[test]
fn home_nat_to_cloud_holds() {
    holds("home-nat-to-cloud");
}

#[test]
fn double_cgnat_holds() {
    holds("double-cgnat");
}

#[test]
fn wan_26ms_holds() {
    holds("wan-26ms");
}

#[test]
fn loss_1_holds() {
    holds("loss-1");
}

#[test]
fn roaming_laptop_holds() {
    holds("roaming-laptop");
}

#[test]
fn relay_chain_holds() {
    holds("relay-chain");
}

#[test]
fn mtu_black_hole_holds() {
    holds("mtu-black-hole");
}

#[test]
fn flapping_link_holds() {
    holds("flapping-link");
}

const PAIR: &str = r#"name = "pair"
[host.a]
dials = ["b"]
[host.b]
dials = ["a"]
[host.plain]
node = false
[link.line]
between = ["a", "b"]
addresses = { a = "192.0.2.1/24", b = "192.0.2.2/24" }
[link.spare]
between = ["plain", "a"]
addresses = { plain = "192.0.3.1/24", a = "192.0.3.2/24" }
"#;

#[test]
fn an_expectation_that_fails_is_named_and_the_rest_goes_on() {
    if !require_namespaces() {
        return;
    }
    let _turn = shared_turn();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.toml");
    let steps = r#"
[[step]]
expect = "answer"
from = "a"
to = "b"
within = "20s"
[[step]]
expect = "path"
from = "a"
to = "b"
is = "via b"
[[step]]
do = "udp"
name = "flow"
from = "b"
to = "a"
rate = "400kbit"
for = "1s"
[[step]]
expect = "load"
of = "flow"
lost_at_least = 1000
mean_at_least = "3ms"
[[step]]
do = "start"
node = "a"
[[step]]
expect = "quiet"
"#;
    fs::write(&file, format!("{PAIR}{steps}")).unwrap();
    let out = folder.path().join("out");
    let output = run(
        file.to_str().unwrap(),
        &out,
        &["--pcap", "line", "--set", "link.line.delay=3ms"],
    );
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{said}{complained}");
    assert!(
        said.contains("FAILED  expect path a to b via b: direct; expected via b\n"),
        "{said}"
    );
    // The delay that was set is there: of two bounds one is broken.
    assert!(said.contains("; expected at least 1000 lost\n"), "{said}");
    assert!(said.contains("FAILED  start a: it is running\n"), "{said}");
    assert!(said.contains("ok      expect quiet: no warning in 2 logs\n"), "{said}");
    let place = out.display();
    assert_eq!(
        complained,
        format!("weft: 3 of 6 steps failed; {place} has logs, statuses and results.json\n")
    );
    let results = results(&out);
    let failed = results["steps"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|step| step["ok"] == false);
    assert_eq!(
        failed.map(|step| step["number"].as_u64().unwrap()).collect::<Vec<_>>(),
        [2, 4, 5]
    );
    for status in ["step-2-a.json", "step-5-b.json", "a.json"] {
        assert!(out.join("status").join(status).is_file(), "{status}");
    }
    // Both ends have the pings; the far end saw them 3 ms later.
    let captures = ["line.a.pcap", "line.b.pcap"].map(|name| fs::read(out.join("pcap").join(name)).unwrap());
    for capture in captures {
        assert_eq!(capture[..4], [0x4d, 0x3c, 0xb2, 0xa1]);
        assert!(capture.len() > 24 + 50 * 1000, "{}", capture.len());
    }
    assert!(!out.join("pcap/spare.a.pcap").exists());

    let again = run(file.to_str().unwrap(), &out, &[]);
    assert_eq!(
        again.status.code(),
        Some(2),
        "a folder with results is not written over"
    );
}

#[test]
fn a_wrong_file_and_a_wrong_link_are_the_users_fault() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.toml");
    fs::write(&file, PAIR.replace("dials", "dial")).unwrap();
    let path = file.to_str().unwrap();
    for output in [
        run(path, &folder.path().join("out"), &[]),
        lab(&["up", path]).output().unwrap(),
    ] {
        assert_eq!(output.status.code(), Some(2));
        let complained = text(&output.stderr);
        assert!(
            complained.starts_with(&format!("weft: {path}: line 2, host.a: unknown field `dial`")),
            "{complained}"
        );
        assert_eq!(complained.lines().count(), 1);
    }
    let output = run("lan", &folder.path().join("out"), &["--pcap", "rope"]);
    assert_eq!(output.status.code(), Some(2));
    let complained = text(&output.stderr);
    let wanted = "weft: --pcap \"rope\": there is no such link; write \"all\" or one of desktop, printer, server\n";
    assert_eq!(complained, wanted);
    assert!(!folder.path().join("out").exists());
}

#[test]
fn the_list_has_every_ready_scenario_and_its_file() {
    let listed = text(&lab(&["list"]).output().unwrap().stdout);
    assert_eq!(listed.lines().count(), 9, "{listed}");
    assert!(listed.contains("roaming-laptop      a laptop moves "), "{listed}");
    let file = text(&lab(&["list", "wan-26ms"]).output().unwrap().stdout);
    assert!(file.starts_with("name = \"wan-26ms\"\n"), "{file}");
}

/// A run ends in the middle: its nodes end with it.
fn interrupted(signal: Signal) {
    if !require_namespaces() {
        return;
    }
    let _turn = shared_turn();
    let temporary = tempfile::tempdir().unwrap();
    let out = tempfile::tempdir().unwrap();
    let mut command = lab(&["run", "flapping-link", "--out"]);
    command.arg(out.path()).env("TMPDIR", temporary.path());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let interfaces = interfaces();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("ping a to b")));
    let namespaces = namespaces_of(temporary.path());
    assert_eq!(namespaces.len(), 3, "three nodes on three hosts");
    kill_process(Pid::from_child(&child), signal).unwrap();
    let status = child.wait().unwrap();
    wait_until(MINUTE, "no process is left", || processes(temporary.path()).is_empty());
    wait_until(MINUTE, "nobody is in the namespaces", || {
        !namespaces.iter().any(|ns| is_used(ns))
    });
    assert_eq!(self::interfaces(), interfaces);
    if signal == Signal::INT {
        assert_eq!(status.code(), Some(130));
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
    }
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    interrupted(Signal::INT);
}

#[test]
fn a_killed_run_leaves_no_process_namespace_or_interface() {
    interrupted(Signal::KILL);
}

#[test]
fn a_lab_is_up_until_it_is_taken_down() {
    if !require_namespaces() {
        return;
    }
    let _turn = shared_turn();
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("pair.toml");
    fs::write(&file, PAIR).unwrap();
    let weft = |arguments: &[&str]| {
        let output = lab(arguments).env("TMPDIR", temporary.path()).output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let file = file.to_str().unwrap();
    let none = "weft: no lab is up; `weft lab up NAME` starts one\n".to_owned();
    assert_eq!(weft(&["down"]), (Some(1), String::new(), none.clone()));
    assert_eq!(
        weft(&["exec", "a", "--", "true"]),
        (Some(1), String::new(), none.clone())
    );

    let (code, said, complained) = weft(&["up", file]);
    assert_eq!(code, Some(0), "{complained}");
    assert!(said.contains("A shell on a host:  weft lab exec a\n"), "{said}");
    let (code, _, complained) = weft(&["up", file]);
    assert_eq!(
        (code, complained.as_str()),
        (Some(1), "weft: a lab is up already; `weft lab down` ends it\n")
    );

    // Each host has its own interfaces, and the node answers there.
    let links = |host: &str| weft(&["exec", host, "--", "cat", "/proc/self/net/dev"]).1;
    assert!(
        links("a").contains("weft0:") && links("a").contains("eth1:"),
        "{}",
        links("a")
    );
    assert!(!links("plain").contains("weft0:") && links("plain").contains("eth0:"));
    let state = said
        .split_whitespace()
        .skip_while(|word| *word != "--state")
        .nth(1)
        .unwrap();
    let status = weft(&["exec", "a", "--", WEFT, "status", "--state", state]);
    assert_eq!(status.0, Some(0), "{status:?}");
    // How the command ended, and what it said.
    assert_eq!(
        weft(&["exec", "a", "--", "sh", "-c", "echo $WEFT_LAB_HOST; exit 7"]),
        (Some(7), "a\n".to_owned(), String::new())
    );
    assert_eq!(weft(&["exec", "a", "--", "sh", "-c", "kill -9 $$"]).0, Some(137));
    let (code, _, complained) = weft(&["exec", "c"]);
    assert_eq!(
        (code, complained.as_str()),
        (Some(2), "weft: the lab has no host \"c\"; it has a, b, plain\n")
    );

    assert_eq!(
        weft(&["down"]),
        (Some(0), "the lab is down\n".to_owned(), String::new())
    );
    assert_eq!(weft(&["down"]), (Some(1), String::new(), none));
    wait_until(MINUTE, "no process is left", || processes(temporary.path()).is_empty());
    assert_eq!(leftovers(temporary.path()), Vec::<String>::new());
}

#[test]
fn a_killed_lab_takes_its_nodes_and_commands_along() {
    if !require_namespaces() {
        return;
    }
    let _turn = shared_turn();
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("pair.toml");
    fs::write(&file, PAIR).unwrap();
    let weft = |arguments: &[&str]| {
        let mut command = lab(arguments);
        command.env("TMPDIR", temporary.path());
        command
    };
    let output = weft(&["up", file.to_str().unwrap(), "--json"]).output().unwrap();
    let lab: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    assert_eq!(lab["schema"], "weft.lab-up/1");
    let mut shell = weft(&["exec", "plain", "--", "sh", "-c", "echo in; read x"]);
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(shell.stdout.take().unwrap());
    said.read_line(&mut String::new()).unwrap();
    // Open as long as this lives: the shell does not end by itself.
    let _input = shell.stdin.take();
    let namespaces = namespaces_of(temporary.path());
    assert!(namespaces.len() >= 2, "{namespaces:?}");

    let holder = Pid::from_raw(i32::try_from(lab["pid"].as_u64().unwrap()).unwrap()).unwrap();
    kill_process(holder, Signal::KILL).unwrap();
    assert_eq!(
        shell.wait().unwrap().code(),
        Some(137),
        "the shell is killed with the lab"
    );
    wait_until(MINUTE, "no process is left", || processes(temporary.path()).is_empty());
    wait_until(MINUTE, "nobody is in the namespaces", || {
        !namespaces.iter().any(|ns| is_used(ns))
    });
    let output = weft(&["down"]).output().unwrap();
    assert_eq!(
        text(&output.stdout),
        "the lab had ended already; what it left is removed\n"
    );
    assert_eq!(leftovers(temporary.path()), Vec::<String>::new());
}

/// What is in the folder for temporary files besides the test's own file and the lab's lock.
fn leftovers(temporary: &Path) -> Vec<String> {
    let names = fs::read_dir(temporary)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name.starts_with("weft-lab-") && !name.starts_with("weft-lab-of-"))
        .collect()
}

/// Processes that have the folder in their command line: its nodes, and the holder.
fn processes(folder: &Path) -> Vec<u32> {
    let needle = folder.to_str().unwrap();
    let pids = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has = |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| text(&line).contains(needle));
    pids.filter(has).collect()
}

/// The network namespaces of those processes, but for this one's own.
fn namespaces_of(folder: &Path) -> Vec<String> {
    let own = namespace("self").unwrap();
    let mut all: Vec<_> = processes(folder)
        .iter()
        .filter_map(|pid| namespace(&pid.to_string()))
        .collect();
    all.retain(|namespace| *namespace != own);
    all.sort();
    all.dedup();
    all
}

fn namespace(pid: &str) -> Option<String> {
    Some(fs::read_link(format!("/proc/{pid}/ns/net")).ok()?.to_str()?.to_owned())
}

/// Whether any process is in it.
fn is_used(wanted: &str) -> bool {
    let pids = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    pids.filter_map(|pid| namespace(&pid)).any(|found| found == wanted)
}

fn interfaces() -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir("/sys/class/net")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// What no ready scenario does: networks behind each other, an address that changes, cuts that hosts notice, nodes that
/// come late and are killed.
#[test]
fn every_other_deed_does_what_it_says() {
    if !require_namespaces() {
        return;
    }
    let _turn = shared_turn();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("deeds.toml");
    fs::write(&file, DEEDS).unwrap();
    let output = run(file.to_str().unwrap(), &folder.path().join("out"), &[]);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
}

const DEEDS: &str = r#"name = "deeds"
networks = ["near", "far"]
[host.a]
dials = ["b"]
knows = ["late"]
[host.b]
dials = ["a"]
[host.late]
started = false
dials = ["a@192.0.2.1:2121"]
[link.a]
between = ["a", "near"]
addresses = { a = "192.0.2.1/24" }
[link.bridge]
between = ["near", "far"]
delay = "1ms"
toward = { far = { delay = "6ms" } }
[link.b]
between = ["b", "far"]
addresses = { b = "192.0.2.2/24" }
[link.late]
between = ["late", "far"]
addresses = { late = "192.0.2.3/24" }

[[step]]
expect = "answer"
from = "a"
to = "b"
both = true
within = "20s"
[[step]]
do = "ping"
name = "before"
from = "a"
to = "b"
count = 10
[[step]]
expect = "load"
of = "before"
mean_at_least = "7ms"
[[step]]
do = "change"
link = "bridge"
toward = "near"
delay = "30ms"
[[step]]
do = "ping"
name = "after"
from = "a"
to = "b"
count = 10
[[step]]
expect = "load"
of = "after"
mean_at_least = "36ms"
[[step]]
do = "roam"
host = "b"
link = "b"
address = "192.0.2.77/24"
[[step]]
expect = "answer"
from = "b"
to = "a"
both = true
within = "20s"
[[step]]
do = "cut"
link = "a"
noticed = true
[[step]]
do = "ping"
name = "apart"
from = "b"
to = "a"
count = 5
[[step]]
expect = "load"
of = "apart"
lost_at_least = 5
[[step]]
do = "heal"
link = "a"
[[step]]
expect = "answer"
from = "b"
to = "a"
both = true
within = "60s"
[[step]]
do = "start"
node = "late"
[[step]]
expect = "answer"
from = "late"
to = "a"
both = true
within = "20s"
[[step]]
do = "kill"
node = "late"
[[step]]
do = "start"
node = "late"
[[step]]
expect = "answer"
from = "late"
to = "a"
within = "20s"
[[step]]
do = "stop"
node = "late"
[[step]]
expect = "state"
from = "a"
to = "late"
at_most = "linking"
within = "20s"
[[step]]
expect = "quiet"
"#;
