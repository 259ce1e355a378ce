//! `weft perf` between two nodes in namespaces: every kind of load in every direction, and its
//! results.

use std::process::{Command, Output};

use serde_json::Value;
use weft_lab::daemon::Daemon;

use crate::common::{MINUTE, Pair, Underlay, WEFT, alone};

/// Runs `weft perf` on the host of `from`. `perf_stages` tests its output about stages.
pub(crate) fn perf(from: &Daemon, arguments: &[&str]) -> Output {
    let mut command = Command::new(WEFT);
    command
        .args(["perf", "--no-stages"])
        .args(arguments)
        .arg("--state")
        .arg(&from.identity().state);
    from.host().command(command, MINUTE).unwrap()
}

/// The document of a run that succeeds.
pub(crate) fn document(from: &Daemon, arguments: &[&str]) -> Value {
    let output = perf(from, &[arguments, &["--json"]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Checks the fields of every run, whatever it measures.
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
    alone(|| {
        let pair = Pair::start(Underlay::V4, |_| {});
        let report = document(&pair.a, &["b", "--time", "2"]);
        assert_accounted(&report);
        assert_eq!(report["directions"].as_array().unwrap().len(), 1);
        let forward = &report["directions"][0];
        assert_eq!(forward["direction"], "forward");
        assert!(forward["mbit_s"].as_f64() > Some(1.0), "{forward}");
        assert!(forward["bytes"].as_u64() > Some(1_000_000), "{forward}");
        assert!(report["mbit_s_per_cpu_percent"].as_f64() > Some(0.0), "{report}");
        assert_eq!(report["seconds"].as_array().unwrap().len(), 2);
        let plot = pair.a.identity().state.join("run.svg");
        let output = perf(&pair.a, &["b", "--time", "1", "--plot", plot.to_str().unwrap()]);
        let plot = std::fs::read_to_string(plot).unwrap();
        assert!(
            plot.starts_with("<svg ") && plot.contains("upload") && plot.contains("peer"),
            "{plot}"
        );
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            text.starts_with("TCP, 1 stream, to b, 1 s\n") && text.contains("\nBottleneck: "),
            "{text}"
        );
        pair.finish();
    });
}

#[test]
#[ignore = "measures: .ci/long perf"]
fn every_load_every_way() {
    alone(|| {
        let pair = Pair::start(Underlay::V4, |_| {});
        let directions = |report: &Value| {
            let all = report["directions"].as_array().unwrap().clone();
            let names = all
                .iter()
                .map(|d| d["direction"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>();
            (all, names)
        };
        let (all, names) = directions(&document(&pair.a, &["b", "--time", "2", "--both", "--streams", "3"]));
        assert_eq!(names, ["forward", "reverse"]);
        for direction in &all {
            let streams = direction["tcp"]["stream_bytes"].as_array().unwrap();
            assert_eq!(streams.len(), 3);
            assert!(streams.iter().all(|bytes| bytes.as_u64() > Some(0)), "{direction}");
            assert!(direction["bytes"].as_u64() > Some(0), "{direction}");
        }
        let report = document(
            &pair.a,
            &[
                "b",
                "--time",
                "2",
                "--udp",
                "--rate",
                "8M",
                "--size",
                "1000",
                "--reverse",
            ],
        );
        assert_accounted(&report);
        let (all, names) = directions(&report);
        assert_eq!(names, ["reverse"]);
        let udp = &all[0]["udp"];
        let figure = |name: &str| udp[name].as_f64().unwrap();
        // A thousand a second, as far as a busy machine keeps time.
        assert!(figure("sent") > 500.0 && figure("sent") <= 2100.0, "{udp}");
        assert!(figure("received") + figure("lost") == figure("sent"), "{udp}");
        let (all, _) = directions(&document(&pair.a, &["b", "--time", "1", "--pps"]));
        assert_eq!(all[0]["bytes"].as_u64().unwrap() % 64, 0);
        assert!(all[0]["udp"]["packets_s"].as_f64() > Some(100.0), "{}", all[0]);
        let report = document(&pair.a, &["b", "--time", "2", "--quic", "--both"]);
        assert_eq!(report["plan"]["load"]["size"], 1200);
        for direction in directions(&report).0 {
            let udp = &direction["udp"];
            let figure = |name: &str| udp[name].as_u64().unwrap();
            assert!(figure("received") > 1000, "{direction}");
            assert_eq!(figure("received") + figure("lost"), figure("sent"), "{direction}");
        }
        let ping = document(&pair.a, &["b", "--time", "1", "--ping"]);
        assert_eq!(ping["directions"].as_array().unwrap().len(), 0);
        assert!(ping["rtt"]["loaded"]["received"].as_u64() > Some(10), "{ping}");
        pair.finish();
    });
}

#[test]
#[ignore = "measures: .ci/long perf"]
fn raw_runs_pass_outside_the_tunnel_if_the_peer_allows_it() {
    alone(|| {
        let pair = Pair::start(Underlay::V4, |spec| {
            spec.extra_toml = "\n[perf]\nraw = true\n".to_owned();
        });
        let before = [&pair.a, &pair.b].map(tunnelled);
        let report = document(&pair.a, &["b", "--time", "2", "--raw", "--both"]);
        let after = [&pair.a, &pair.b].map(tunnelled);
        let bytes = report["directions"][0]["bytes"].as_u64().unwrap();
        // The daemons forwarded almost nothing of it, which proves the route.
        for (before, after) in before.iter().zip(after) {
            assert!(bytes > 10 * (after - before), "{before} {after} {bytes}");
        }
        assert_eq!(report["plan"]["raw"], "192.0.2.2");
        // Longer than datagrams continue without a report of their arrival.
        let report = document(&pair.a, &["b", "--time", "6", "--raw", "--both", "--udp"]);
        for direction in report["directions"].as_array().unwrap() {
            assert!(direction["udp"]["received"].as_f64() > Some(1000.0), "{direction}");
        }
        pair.finish();
    });
}

/// Bytes that a daemon's only session has sent.
fn tunnelled(daemon: &Daemon) -> u64 {
    daemon.status().unwrap()["peers"][0]["session"]["tx"]["bytes"]
        .as_u64()
        .unwrap()
}

/// Processes that a daemon has started to serve tests.
pub(crate) fn servers(daemon: &Daemon) -> usize {
    let pid = daemon.pid();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let serves = |pid: &&str| {
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.split('\0').any(|argument| argument == "perf-serve")
    };
    children.split_whitespace().filter(serves).count()
}
