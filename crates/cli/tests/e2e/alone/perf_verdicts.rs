//! `weft perf` reports the bottleneck of a run, in scenes with exactly one.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use weft_lab::cable::EmulatedLink;
use weft_lab::cpu_hog::CpuHog;
use weft_lab::daemon::Daemon;
use weft_lab::emulator::{Cable, Impairments};
use weft_lab::spec::{DEFAULT_PORT, NodeSpec};
use weft_lab::world::World;

use crate::common::{MINUTE, PATIENCE, Pair, Underlay, WEFT, alone, identity, reached_within};

/// Two nodes on an impaired cable.
struct Flawed {
    a: Daemon,
    b: Daemon,
    _link: EmulatedLink,
    _world: World,
}

impl Flawed {
    fn start(flaws: Impairments) -> Self {
        let world = World::new().unwrap();
        let hosts = ["a", "b"].map(|name| world.host(name).unwrap());
        let ends = ((&hosts[0], &["192.0.2.1/24"][..]), (&hosts[1], &["192.0.2.2/24"][..]));
        let link = world.emulated_link(ends.0, ends.1, Cable::both(flaws)).unwrap();
        let ids = ["a", "b"].map(|name| identity(&world, name));
        let [a, b] = [0, 1].map(|own| {
            let peer = &ids[1 - own];
            let at = SocketAddr::from(([192, 0, 2, 2 - own as u8], DEFAULT_PORT));
            let spec = NodeSpec::default().with_peer(&peer.npub, &peer.name, &[at]);
            let mut daemon = Daemon::start(&hosts[own], Path::new(WEFT), &ids[own], &spec).unwrap();
            daemon.wait_ready(PATIENCE).unwrap();
            daemon
        });
        reached_within(PATIENCE, &a, &b);
        Self {
            a,
            b,
            _link: link,
            _world: world,
        }
    }

    fn finish(mut self) {
        for daemon in [&mut self.a, &mut self.b] {
            assert_eq!(daemon.stop().unwrap().code(), Some(0));
            assert_eq!(daemon.warnings().unwrap(), Vec::<String>::new());
        }
    }
}

fn perf(from: &Daemon, arguments: &[&str]) -> Value {
    let mut command = Command::new(WEFT);
    command.args(["perf", "b", "--json", "--no-stages"]).args(arguments);
    command.arg("--state").arg(&from.identity().state);
    let output = from.host().command(command, MINUTE).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Checks the verdict on the one measured direction, which must have figures that support it.
fn assert_verdict(report: &Value, expected: &str) {
    let shown = |report: &Value| {
        let mut short = report.clone();
        short["seconds"] = Value::Null;
        format!("{short:#}")
    };
    let verdict = &report["directions"][0]["bottleneck"];
    assert_eq!(verdict["is"], expected, "{}", shown(report));
    let evidence = verdict["evidence"].as_array().unwrap();
    assert!(!evidence.is_empty(), "{}", shown(report));
}

fn evidence(report: &Value) -> &str {
    report["directions"][0]["bottleneck"]["evidence"][0].as_str().unwrap()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
#[ignore = "measures: .ci/long perf"]
fn a_sender_without_processor() {
    alone(|| {
        let pair = Pair::start(Underlay::V4, |_| {});
        let hog = CpuHog::on(pair.a.pid(), &[pair.b.pid()]).unwrap();
        let report = perf(&pair.a, &["--time", "5"]);
        assert_verdict(&report, "near-cpu");
        assert!(
            evidence(&report).starts_with("this node's daemon: thread weft-lane"),
            "{}",
            evidence(&report)
        );
        // The same host, measured from the other end.
        let reverse = perf(&pair.a, &["--time", "5", "--reverse"]);
        assert_verdict(&reverse, "near-cpu");
        drop(hog);
        pair.finish();
    });
}

#[test]
fn a_busy_peer_is_the_bottleneck() {
    alone(|| {
        let pair = Pair::start(Underlay::V4, |_| {});
        let hog = CpuHog::on(pair.b.pid(), &[pair.a.pid()]).unwrap();
        let report = perf(&pair.a, &["--time", "3"]);
        assert_verdict(&report, "far-cpu");
        let direction = &report["directions"][0];
        assert!(report.get("stages").is_none() && direction.get("held_up_by").is_none());
        assert!(
            evidence(&report).starts_with("the peer's daemon: thread weft-lane"),
            "{}",
            evidence(&report)
        );
        drop(hog);
        pair.finish();
    });
}

#[test]
#[ignore = "measures: .ci/long perf"]
fn a_link_with_a_rate() {
    alone(|| {
        let pair = Flawed::start(Impairments {
            rate: Some(20_000_000),
            ..Impairments::delay(ms(5))
        });
        for congestion in ["reno", ""] {
            let named = ["--congestion", congestion];
            let named = if congestion.is_empty() { &[][..] } else { &named[..] };
            let report = perf(&pair.a, &[&["--time", "6"], named].concat());
            assert_verdict(&report, "path-rate");
        }
        let flood = perf(&pair.a, &["--time", "4", "--udp", "--rate", "40M"]);
        assert_verdict(&flood, "path-rate");
        assert!(flood["directions"][0]["udp"]["loss"].as_f64() > Some(0.2), "{flood}");
        pair.finish();
    });
}

#[test]
#[ignore = "measures: .ci/long perf"]
fn one_percent_of_loss() {
    alone(|| {
        let pair = Flawed::start(Impairments {
            loss: 0.01,
            ..Impairments::delay(ms(20))
        });
        let report = perf(&pair.a, &["--time", "8", "--congestion", "reno"]);
        assert_verdict(&report, "loss");
        assert!(report["directions"][0]["tcp"]["retransmits"].as_u64() > Some(0));
        let flood = perf(&pair.a, &["--time", "4", "--udp", "--rate", "5M"]);
        assert_verdict(&flood, "loss");
        pair.finish();
    });
}

#[test]
#[ignore = "measures: .ci/long perf"]
fn a_tiny_window() {
    alone(|| {
        let pair = Flawed::start(Impairments::delay(ms(20)));
        let report = perf(&pair.a, &["--time", "5", "--window", "16384"]);
        assert_verdict(&report, "window");
        assert!(evidence(&report).starts_with("the receive window was the limit"));
        pair.finish();
    });
}

#[test]
#[ignore = "measures: .ci/long perf"]
fn a_sender_that_asks_for_no_more() {
    alone(|| {
        let pair = Flawed::start(Impairments::delay(ms(5)));
        assert_verdict(&perf(&pair.a, &["--time", "3", "--udp", "--rate", "5M"]), "application");
        assert_verdict(&perf(&pair.a, &["--time", "3", "--rate", "5M"]), "application");
        pair.finish();
    });
}
