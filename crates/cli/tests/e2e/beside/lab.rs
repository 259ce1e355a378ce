//! `weft lab run` with the real binary: the built-in scenarios hold, and a failed expectation is
//! named.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use weft_lab::scenario::source::READY;
use weft_os::assert_strict;
use weft_os::test_support::{require_nft, require_tayga};

use crate::common::beside;
use crate::common::lab::{Folder, PAIR, lab, text};

/// Runs a scenario with its output in a folder.
fn run(from: &str, folder: &Path, more: &[&str]) -> Output {
    lab(&["run", from, "--out"]).arg(folder).args(more).output().unwrap()
}

fn results(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("results.json")).unwrap()).unwrap()
}

/// A built-in scenario: every expectation holds, and the folder has all files of a run.
fn holds(name: &str) {
    holds_with(name, &[]);
}

/// The same with further arguments.
fn holds_with(name: &str, more: &[&str]) {
    let folder = Folder::new();
    let output = run(name, folder.path(), more);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_strict!(!said.contains("CHANGED"), "content has changed: {said}");
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
    beside(|| holds("lan"));
}

#[test]
#[ignore = "takes time: .ci/long lab"]
fn home_nat_to_cloud_holds() {
    beside(|| holds("home-nat-to-cloud"));
}

#[test]
#[ignore = "takes time: .ci/long lab"]
fn double_cgnat_holds() {
    beside(|| holds("double-cgnat"));
}

#[test]
#[ignore = "takes time: .ci/long lab"]
fn wan_26ms_holds() {
    beside(|| holds("wan-26ms"));
}

#[test]
#[ignore = "takes time: .ci/long lab"]
fn loss_1_holds() {
    beside(|| holds("loss-1"));
}

#[test]
#[ignore = "takes time: .ci/long lab"]
fn roaming_laptop_holds() {
    beside(|| holds("roaming-laptop"));
}

#[test]
fn relay_chain_holds() {
    beside(|| holds("relay-chain"));
}

#[test]
#[ignore = "takes time: .ci/long lab"]
fn two_relays_holds() {
    beside(|| holds("two-relays"));
}

#[test]
#[ignore = "takes time: .ci/long lab"]
fn mtu_black_hole_holds() {
    beside(|| holds("mtu-black-hole"));
}

#[test]
#[ignore = "takes time: .ci/long lab"]
fn flapping_link_holds() {
    beside(|| holds("flapping-link"));
}

#[test]
fn private_network_holds() {
    beside(|| holds("private-network"));
}

#[test]
fn router_reboot_holds() {
    beside(|| holds("router-reboot"));
}

#[test]
fn cgnat_neighbours_holds() {
    beside(|| holds("cgnat-neighbours"));
}

#[test]
fn kernel_nat_holds() {
    beside(|| {
        if require_nft() {
            holds("kernel-nat");
        }
    });
}

#[test]
fn nat64_holds() {
    beside(|| {
        if require_nft() && require_tayga() {
            holds("nat64");
        }
    });
}

#[test]
fn ipv6_firewall_holds() {
    beside(|| holds("ipv6-firewall"));
}

#[test]
fn udp_blocked_holds() {
    beside(|| holds("udp-blocked"));
}

#[test]
#[ignore = "takes time: .ci/long lab"]
fn two_uplinks_holds() {
    beside(|| holds("two-uplinks"));
}

/// One cell of the matrix of NAT boxes; the path that it expects is a word of the scenario's file.
#[test]
fn two_port_restricted_boxes_and_a_public_neighbour_hold() {
    beside(|| holds_with("nat-matrix", &["--set", "cell=port-restricted+port-restricted"]));
}

#[test]
fn a_run_without_a_needed_program_fails_and_leaves_no_results() {
    let folder = Folder::new();
    let out = folder.path().join("out");
    let mut command = lab(&["run", "kernel-nat", "--out"]);
    let output = command.arg(&out).env("PATH", folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr),
        "weft: SKIPPED: kernel-nat: nft is not installed\n"
    );
    assert!(!out.exists());
}

#[test]
fn an_expectation_that_fails_is_named_and_the_rest_goes_on() {
    beside(|| {
        let folder = Folder::new();
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
        // The configured delay is in effect: of two bounds one is broken.
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
        // Both ends have the pings; the second end received them 3 ms later.
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
    });
}

#[test]
fn a_wrong_file_and_a_wrong_link_are_the_users_fault() {
    let folder = Folder::new();
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
    assert_eq!(listed.lines().count(), READY.len(), "{listed}");
    assert!(listed.contains("roaming-laptop      a laptop moves "), "{listed}");
    let file = text(&lab(&["list", "wan-26ms"]).output().unwrap().stdout);
    assert!(file.starts_with("name = \"wan-26ms\"\n"), "{file}");
}

/// Steps that no built-in scenario has: networks behind each other, an address that changes, cuts
/// that hosts notice, nodes that start late and are killed.
#[test]
fn every_other_deed_does_what_it_says() {
    beside(|| {
        let folder = Folder::new();
        let file = folder.path().join("deeds.toml");
        fs::write(&file, DEEDS).unwrap();
        let output = run(file.to_str().unwrap(), &folder.path().join("out"), &[]);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
    });
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
