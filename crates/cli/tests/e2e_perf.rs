//! `weft perf` between two nodes in namespaces: every kind of load, every way, and what comes of it.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::process::{Command, Output};

use common::{MINUTE, Pair, Underlay, WEFT};
use serde_json::Value;
use weft_lab::daemon::Daemon;
use weft_os::test_support::in_namespaces;

/// Runs `weft perf` on the host of `from`.
fn perf(from: &Daemon, arguments: &[&str]) -> Output {
    let mut command = Command::new(WEFT);
    command
        .arg("perf")
        .args(arguments)
        .arg("--state")
        .arg(&from.identity().state);
    from.host().command(command, MINUTE).unwrap()
}

/// The document of a run that succeeds.
fn document(from: &Daemon, arguments: &[&str]) -> Value {
    let output = perf(from, &[arguments, &["--json"]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What every run says, whatever it measures.
fn assert_accounted(report: &Value) {
    assert_eq!(report["schema"], "weft.perf/1");
    assert_eq!(report["valid"], true, "{report}");
    for end in ["near", "far"] {
        for process in ["daemon", "test"] {
            let load = &report[end][process];
            assert!(load["rss_bytes"].as_u64() > Some(0), "{end} {process}: {report:#}");
            assert!(load["cpu_percent"].as_f64() > Some(0.0), "{end} {process}: {report:#}");
        }
    }
    for (path, address) in [("path", "192.0.2.2:2121"), ("far_path", "192.0.2.1:2121")] {
        assert_eq!(report[path]["start"], format!("direct {address}"), "{report:#}");
        assert_eq!(report[path]["end"], format!("direct {address}"), "{report:#}");
    }
    for when in ["idle", "loaded"] {
        let rtt = &report["rtt"][when];
        let figure = |name: &str| rtt[name].as_f64().unwrap();
        assert!(figure("received") > 0.0 && figure("p50_ms") > 0.0, "{rtt}");
        assert!(
            figure("p50_ms") <= figure("p99_ms") && figure("p99_ms") <= figure("max_ms"),
            "{rtt}"
        );
    }
}

#[test]
fn tcp_forward() {
    in_namespaces(|| {
        let pair = Pair::start(Underlay::V4, |_| {});
        let report = document(&pair.a, &["b", "--time", "3"]);
        assert_accounted(&report);
        assert_eq!(report["directions"].as_array().unwrap().len(), 1);
        let forward = &report["directions"][0];
        assert_eq!(forward["direction"], "forward");
        assert!(forward["mbit_s"].as_f64() > Some(1.0), "{forward}");
        assert!(forward["bytes"].as_u64() > Some(1_000_000), "{forward}");
        assert!(report["mbit_s_per_cpu_percent"].as_f64() > Some(0.0), "{report}");
        assert_eq!(report["seconds"].as_array().unwrap().len(), 3);
        let output = perf(&pair.a, &["b", "--time", "1"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            text.starts_with("TCP, 1 stream, to b, 1 s\n") && text.contains("\nBottleneck: "),
            "{text}"
        );
        pair.finish();
    });
}
