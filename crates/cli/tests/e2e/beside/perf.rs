//! `weft perf` refused, interrupted and disturbed, with little or no load. Its measurements are in
//! `alone`.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use weft_lab::daemon::Daemon;
use weft_perf::report::Report;

use crate::alone::perf::{document, perf, servers};
use crate::alone::perf_stages::{command, traced};
use crate::common::net::Net;
use crate::common::{MINUTE, PATIENCE, Pair, Underlay, WEFT, beside, wait_until};

#[test]
fn outside_the_tunnel_only_where_it_is_configured() {
    beside(|| {
        let pair = Pair::start(Underlay::V4, |_| {});
        for (arguments, why) in [
            (
                &["b", "--time", "1", "--raw"][..],
                "it serves no tests outside the tunnel (its perf.raw is false); leave --raw out",
            ),
            (
                &["b", "--time", "3600"],
                "a test takes at most 120 s (its perf.max_s); lower --time",
            ),
            (
                &["b", "--time", "1", "--streams", "64"],
                "a test has at most 16 streams (its perf.max_streams); lower --streams",
            ),
        ] {
            let refused = perf(&pair.a, arguments);
            let stderr = String::from_utf8_lossy(&refused.stderr);
            assert_eq!(refused.status.code(), Some(1), "{stderr}");
            assert_eq!(stderr, format!("weft: b refuses the test: {why}\n"));
        }
        pair.finish();
    });
}

#[test]
fn tests_are_refused_when_perf_is_off() {
    beside(|| {
        let mut pair = Pair::start(Underlay::V4, |spec| {
            spec.extra_toml = "\n[perf]\nallow = \"off\"\n".to_owned();
        });
        let refused = perf(&pair.a, &["b", "--json"]);
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.starts_with("weft: b accepts no tests: nothing listens at ["),
            "{stderr}"
        );
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        let document: Value = serde_json::from_slice(&refused.stdout).unwrap();
        assert_eq!(document["schema"], "weft.error/1", "no figures");
        let status = pair.b.status().unwrap();
        assert_eq!(status["node"]["perf"]["state"], "off");
        pair.wait_payload();
        pair.finish();
    });
}

#[test]
fn one_at_a_time() {
    beside(|| {
        let pair = Pair::start(Underlay::V4, |_| {});
        let served = |daemon: &Daemon| daemon.status().unwrap()["counters"]["perf_served"].as_u64();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| document(&pair.a, &["b", "--time", "5", "--udp"]));
            wait_until(MINUTE, "the first to begin", || served(&pair.b) == Some(1));
            let second = perf(&pair.a, &["b", "--time", "1"]);
            let stderr = String::from_utf8_lossy(&second.stderr);
            assert_eq!(second.status.code(), Some(1), "{stderr}");
            assert_eq!(
                stderr,
                "weft: b refuses the test: another test is running there; try again when it is over\n"
            );
            assert_eq!(first.join().unwrap()["valid"], true);
        });
        // The previous run leaves nothing behind that disturbs this one.
        document(&pair.a, &["b", "--time", "1", "--udp"]);
        assert_eq!(served(&pair.b), Some(2));
        pair.finish();
    });
}

#[test]
fn a_client_that_leaves_frees_the_server() {
    beside(|| {
        let pair = Pair::start(Underlay::V4, |_| {});
        let mut command = Command::new(WEFT);
        command
            .args(["perf", "b", "--time", "60", "--udp", "--json", "--state"])
            .arg(&pair.a.identity().state);
        let mut child = pair.a.host().spawn(command).unwrap();
        wait_until(MINUTE, "a process that serves", || servers(&pair.b) == 1);
        sleep(Duration::from_secs(2));
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until(MINUTE, "its end", || servers(&pair.b) == 0);
        document(&pair.a, &["b", "--time", "1", "--udp"]);
        pair.finish();
    });
}

#[test]
fn a_path_that_changes_makes_the_run_invalid() {
    beside(|| {
        let mut net = Net::new(&["a", "b", "c"]);
        for (name, dials) in [("a", ["b", "c"]), ("b", ["a", "c"]), ("c", ["a", "b"])] {
            let spec = net.knowing(&dials, &[]);
            net.start(name, &spec);
        }
        net.reached_within(MINUTE, "a", "b");
        net.wait_direct(["a", "b"], MINUTE);
        let (host, state) = (net.host("a").clone(), net.node("a").identity().state.clone());
        let run = std::thread::spawn(move || {
            let mut command = Command::new(WEFT);
            command
                .args(["perf", "b", "--time", "12", "--udp", "--json", "--state"])
                .arg(state);
            host.command(command, MINUTE).unwrap()
        });
        wait_until(MINUTE, "a process that serves", || servers(net.node("b")) == 1);
        // Ten seconds of the probes that go before the load are as many.
        let received = || net.node("b").status().unwrap()["counters"]["udp_rx"].as_u64().unwrap();
        let before = received();
        wait_until(MINUTE, "the load", || received() > before + 1_000);
        net.keep_apart(&["a", "b"], true);
        let output = run.join().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["valid"], false);
        let why = report["invalid_because"].as_str().unwrap();
        assert!(why.starts_with("the path changed during the run"), "{why}");
        assert_eq!(report["path"]["start"], "direct 192.0.2.2:2121");
        assert_eq!(report["path"]["end"], "relayed by c", "{report:#}");
        net.finish();
    });
}

/// Whatever is sent to the port, the daemon counts it and continues.
#[test]
fn nonsense_is_counted() {
    beside(|| {
        let pair = Pair::start(Underlay::V4, |_| {});
        let to = std::net::SocketAddr::from((pair.b.identity().address, 2125));
        for nonsense in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"{\"schema\":\"weft.perf-control/1\"}\n",
            &[0; 100_000],
        ] {
            let said = pair.a.host().run(|| {
                let mut stream = std::net::TcpStream::connect(to)?;
                // The server may close before everything is sent.
                let _ = stream.write_all(nonsense);
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let mut answer = Vec::new();
                let _ = stream.read_to_end(&mut answer);
                std::io::Result::Ok(answer)
            });
            assert_eq!(said.unwrap().unwrap(), b"", "silence");
            wait_until(MINUTE, "its end", || servers(&pair.b) == 0);
        }
        let failed = || pair.b.status().unwrap()["counters"]["perf_failed"].as_u64();
        wait_until(MINUTE, "all to be counted", || failed() == Some(3));
        document(&pair.a, &["b", "--time", "1", "--udp"]);
        pair.finish();
    });
}

/// Starts a run, and returns it while both ends are measured. They are for three seconds, whatever the
/// length of the run: if no look falls into these, as on a machine that stood still, the next run is
/// looked at.
fn measured(pair: &Pair, arguments: &[&str]) -> Child {
    let start = || {
        let mut command = command(&pair.a, arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        pair.a.host().spawn(command).unwrap()
    };
    let mut child = start();
    wait_until(MINUTE, "both ends to be measured", || {
        let both = traced(&pair.a) && traced(&pair.b);
        let is_over = child.try_wait().unwrap().is_some();
        if is_over {
            let over = std::mem::replace(&mut child, start()).wait_with_output().unwrap();
            eprintln!("over: {}", String::from_utf8_lossy(&over.stderr));
        }
        both && !is_over
    });
    child
}

#[test]
fn an_end_in_the_middle_leaves_measuring_off() {
    beside(|| {
        let mut pair = Pair::start(Underlay::V4, |_| {});
        let mut child = measured(&pair, &["--time", "1"]);
        // It catches no signal, so Ctrl-C has the same effect as this.
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until(PATIENCE, "an end of it", || !traced(&pair.a) && !traced(&pair.b));

        // The run before stays valid, whatever the result of its stages.
        let mut child = measured(&pair, &["--time", "1", "--json"]);
        pair.b.kill().unwrap();
        wait_until(MINUTE, "the end of the run", || child.try_wait().unwrap().is_some());
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let ran: Report = serde_json::from_slice(&output.stdout).unwrap();
        assert!(ran.directions[0].mbit_s > 1.0 && ran.directions[0].thread_verdict.is_none());
        let why = ran.stages.unwrap().not_measured.unwrap();
        assert!(why.starts_with("the peer stopped answering after "), "{why}");
        wait_until(PATIENCE, "an end of it", || !traced(&pair.a));
        assert_eq!(pair.a.warnings().unwrap(), Vec::<String>::new());
    });
}

#[test]
fn a_server_that_dies_fails_the_run() {
    beside(|| {
        let mut pair = Pair::start(Underlay::V4, |_| {});
        let (host, state) = (pair.a.host().clone(), pair.a.identity().state.clone());
        let run = std::thread::spawn(move || {
            let mut command = Command::new(WEFT);
            command
                .args(["perf", "b", "--time", "40", "--json", "--state"])
                .arg(state);
            host.command(command, MINUTE).unwrap()
        });
        wait_until(MINUTE, "a process that serves", || servers(&pair.b) == 1);
        let received = || pair.b.status().unwrap()["counters"]["udp_rx"].as_u64();
        let before = received();
        wait_until(MINUTE, "the load", || received() > before.map(|count| count + 1_000));
        pair.b.kill().unwrap();
        let output = run.join().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.starts_with("weft: b stopped answering after "), "{stderr}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["schema"], "weft.error/1", "no figures of a run that failed");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert_eq!(pair.a.warnings().unwrap(), Vec::<String>::new());
    });
}
