//! `weft perf` reports the stages of the packet path that took the time, and always disables
//! measuring at its end.

use std::process::{Command, Output};

use weft_lab::cpu_hog::CpuHog;
use weft_lab::daemon::Daemon;
use weft_perf::report::Report;
use weft_perf::stages::{EndpointStages, LaneStages};
use weft_perf::thread_verdict::By;

use crate::common::{MINUTE, Pair, Underlay, WEFT, alone};

fn perf(from: &Daemon, arguments: &[&str]) -> Output {
    from.host().command(command(from, arguments), MINUTE).unwrap()
}

pub(crate) fn command(from: &Daemon, arguments: &[&str]) -> Command {
    let mut command = Command::new(WEFT);
    command.args(["perf", "b"]).args(arguments);
    command.arg("--state").arg(&from.identity().state);
    command
}

/// The document of a run that succeeds.
fn report(from: &Daemon, arguments: &[&str]) -> Report {
    let output = perf(from, &[arguments, &["--json"]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

pub(crate) fn traced(daemon: &Daemon) -> bool {
    daemon.status().unwrap()["node"]["traced"].as_bool().unwrap()
}

/// The only packet thread of an end.
fn only(end: Option<&EndpointStages>) -> &LaneStages {
    match &*end.unwrap().lanes {
        [lane] => lane,
        lanes => panic!("{lanes:?}"),
    }
}

#[test]
fn stages_behind_a_run_and_then_no_longer() {
    alone(|| {
        let pair = Pair::start(Underlay::V4, |_| {});
        let ran = report(&pair.a, &["--time", "1"]);
        assert_eq!(
            [traced(&pair.a), traced(&pair.b)],
            [false; 2],
            "off with the last answer"
        );
        assert_eq!(ran.seconds.len(), 1, "the run is what was asked for");
        let stages = ran.stages.as_ref().unwrap();
        assert_eq!(stages.not_measured, None);
        let (near, far) = (only(stages.client.as_ref()), only(stages.server.as_ref()));
        for (lane, worked) in [
            (near, ["tun-read", "split", "seal", "udp-send"]),
            (far, ["udp-receive", "open", "coalesce", "tun-write"]),
        ] {
            assert!(lane.seconds > 0.5, "{lane:#?}");
            assert!((0.01..=1.0).contains(&lane.busy()), "{lane:#?}");
            assert_eq!(lane.thread.as_ref().unwrap().name, "weft-lane");
            for name in worked {
                assert!(
                    lane.stages[name].ns > 0 && lane.stages[name].calls > 0,
                    "{name}: {lane:#?}"
                );
            }
        }
        // Packets sent at one end arrived at the other, in trains at both.
        assert!(near.stages["seal"].packets > 1_000, "{near:#?}");
        assert!(
            near.stages["udp-send"].packets > 4 * near.stages["udp-send"].calls,
            "{near:#?}"
        );
        let held = ran.directions[0].thread_verdict.as_ref().unwrap();
        assert!(held.by != By::Unknown, "{held:#?}");
        assert_eq!(held.lane, None, "there is one alone");

        let output = perf(&pair.a, &["--time", "1"]);
        let text = String::from_utf8_lossy(&output.stdout);
        println!("{text}");
        assert_eq!(output.status.code(), Some(0), "{text}");
        let line = text.lines().find(|line| line.starts_with("  - stages: "));
        assert!(line.is_some_and(|line| line.contains(" packet thread")), "{text}");
        let stage = ["udp-send", "tun-write", "seal", "open", "tun-read"];
        assert!(stage.iter().any(|stage| text.contains(stage)), "{text}");
        assert_eq!([traced(&pair.a), traced(&pair.b)], [false; 2]);
        pair.finish();
    });
}

#[test]
#[ignore = "measures: .ci/long perf"]
fn the_end_without_processor_is_named_with_its_stages() {
    alone(|| {
        let pair = Pair::start(Underlay::V4, |_| {});
        let hog = CpuHog::on(pair.a.pid(), &[pair.b.pid()]).unwrap();
        for arguments in [&["--time", "3"][..], &["--time", "3", "--reverse"]] {
            let ran = report(&pair.a, arguments);
            let held = ran.directions[0].thread_verdict.as_ref().unwrap();
            assert_eq!(held.by, By::ClientLane, "{held:#?}");
            // The point at which a thread loses its processor is random, and so is the order of its
            // stages.
            assert!(held.text.starts_with("this node's packet thread, "), "{held:#?}");
            assert!(
                held.text.contains(" for a CPU: ") && !held.stages.is_empty(),
                "{held:#?}"
            );
            let shares: f64 = held.stages.iter().map(|stage| stage.share).sum();
            assert!(shares <= held.busy.unwrap() + 1e-6 && shares > 0.0, "{held:#?}");
        }
        drop(hog);
        pair.finish();
    });
}

#[test]
#[ignore = "measures: .ci/long perf"]
fn a_load_that_leaves_the_packet_path_idle() {
    alone(|| {
        let pair = Pair::start(Underlay::V4, |spec| {
            spec.extra_toml = "\n[perf]\nraw = true\n".to_owned();
        });
        let ran = report(&pair.a, &["--time", "2", "--udp", "--rate", "5M", "--both"]);
        for direction in &ran.directions {
            let held = direction.thread_verdict.as_ref().unwrap();
            assert_eq!(held.by, By::Elsewhere, "{held:#?}");
            assert!(
                held.text.ends_with("; but the sender, which had no more to send"),
                "{held:#?}"
            );
            assert_eq!(held.evidence.len(), 2, "{held:#?}");
        }
        // No stages if no packets of the test pass the daemons, and none without a load.
        for arguments in [&["--time", "1", "--raw"][..], &["--time", "1", "--ping"]] {
            assert_eq!(report(&pair.a, arguments).stages, None);
        }
        pair.finish();
    });
}

#[test]
#[ignore = "measures: .ci/long perf"]
fn the_busiest_of_two_packet_threads() {
    alone(|| {
        let pair = Pair::start(Underlay::V4, |spec| {
            spec.settings.push(("lanes".to_owned(), 2.into()));
        });
        let ran = report(&pair.a, &["--time", "2", "--streams", "8"]);
        let stages = ran.stages.as_ref().unwrap();
        for end in [&stages.client, &stages.server] {
            let lanes = &end.as_ref().unwrap().lanes;
            let names: Vec<_> = lanes.iter().map(|lane| &*lane.thread.as_ref().unwrap().name).collect();
            assert_eq!(names, ["weft-lane-0", "weft-lane-1"]);
        }
        let held = ran.directions[0].thread_verdict.as_ref().unwrap();
        match held.lane {
            Some(lane) => assert!(held.text.contains(&format!("packet thread {lane} of 2")), "{held:#?}"),
            None => assert_eq!(held.by, By::Elsewhere, "{held:#?}"),
        }
        let others = held
            .evidence
            .iter()
            .filter(|line| line.contains("other packet threads were busy"));
        assert_eq!(others.count(), 2, "{held:#?}");
        pair.finish();
    });
}
