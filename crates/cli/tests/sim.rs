//! `weft sim`: figures, documents, replay, and the output of a failed run.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its ground is missing"
)]

use std::process::{Command, Output};

use serde_json::Value;

fn sim(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.arg("sim").args(arguments).output().unwrap()
}

fn stdout(output: &Output, code: i32) -> String {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{complaint}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

const SMALL: [&str; 6] = ["--nodes", "12", "--pairs", "10", "--calm", "5"];

fn small(more: &[&str]) -> Output {
    sim(&[&SMALL[..], more].concat())
}

#[test]
fn the_document_has_figures_and_the_same_seed_the_same_trace() {
    let document = |more: &[&str]| -> Value { serde_json::from_str(&stdout(&small(more), 0)).unwrap() };
    let first = document(&["--json"]);
    assert_eq!(first["schema"], "weft.sim/1");
    assert_eq!(first["nodes"], 12);
    assert_eq!(first["pairs"], first["pairs_reached"]);
    assert!(first["pairs"].as_u64().unwrap() > 5 && first["stretch"].as_f64().unwrap() >= 1.0);
    assert!(first["state_bytes_mean"].as_u64().unwrap() > 0 && first["failure"].is_null());
    assert_eq!(first["trace"], document(&["--json"])["trace"]);
    assert_ne!(first["trace"], document(&["--json", "--seed", "2"])["trace"]);
}

#[test]
fn a_printed_scenario_is_the_run_it_stands_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.scenario");
    std::fs::write(&path, stdout(&small(&["--print"]), 0)).unwrap();
    let trace = |output: &Output| {
        let text = stdout(output, 0);
        text.lines().find(|line| line.starts_with("trace")).unwrap().to_owned()
    };
    assert_eq!(trace(&sim(&[path.to_str().unwrap()])), trace(&small(&[])));
}

#[test]
fn a_failure_is_told_shrunk_and_1() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cut.scenario");
    // All packets are lost, and the scenario nevertheless expects one.
    let text = r#"
        mesh = { shape = "line", nodes = 5 }
        duration = "9s"
        step = [
            { at = "0ms", do = "loss", share = 1.0 },
            { at = "2s", do = "know", between = [0, 4] },
            { at = "3s", do = "send", from = 0, to = 4 },
            { at = "3s", do = "send", from = 1, to = 2 },
            { at = "9s", do = "expect", from = 0, to = 4 },
        ]
    "#;
    std::fs::write(&path, text).unwrap();
    let text = stdout(&sim(&[path.to_str().unwrap(), "--shrink"]), 1);
    assert!(
        text.contains("none of the latest probes from host 0 to host 4 had arrived"),
        "{text}"
    );
    let (_, short) = text.split_once("The same with less:").unwrap();
    let expects = short.contains("do = \"expect\", from = 0, to = 4");
    assert!(expects && !short.contains("from = 1, to = 2"), "{short}");
}

#[test]
fn wrong_usage_is_one_line_and_2() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("odd.scenario");
    let odd = "mesh = { shape = \"line\", nodes = 2 }\n\nstep = [{ at = \"5ms\", do = \"explode\" }]\n";
    std::fs::write(&path, odd).unwrap();
    for (arguments, says) in [
        (&["--nodes", "0"][..], "0 is not in"),
        (&["--loss", "101"], "101 is not in"),
        (&["--topology", "star"], "star"),
        (
            &[path.to_str().unwrap()],
            "odd.scenario: line 3, step 1 (explode): unknown variant `explode`",
        ),
    ] {
        let output = sim(arguments);
        assert_eq!(stdout(&output, 2), "");
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert!(
            complaint.contains(says) && complaint.lines().count() == 1,
            "{complaint}"
        );
    }
    let missing = directory.path().join("missing");
    assert_eq!(sim(&[missing.to_str().unwrap()]).status.code(), Some(2));
}
