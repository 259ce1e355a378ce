//! `weft lab bench` with the real binary: the files it writes, the arguments it refuses, and what
//! remains after it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use weft_lab::bench::conditions::Conditions;
use weft_lab::bench::driver::{self, Subject, Tunnel};
use weft_lab::bench::matrix::CASES;
use weft_lab::bench::measure::{RunError, converge, measure};
use weft_lab::bench::stage::{Cable, Stage};
use weft_lab::host::Host;
use weft_lab::world::World;
use weft_os::udp::{BindOptions, RECEIVE_BUFFER_LEN, UdpSocket, is_too_long};

use crate::common::lab::Folder;
use crate::common::{MINUTE, WEFT, alone, beside, wait_until};

fn bench(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(WEFT);
    command.args(["lab", "bench", "--out"]).arg(folder).args(arguments);
    if !arguments.contains(&"--congestion") {
        command.args(EVERYWHERE);
    }
    command.output().unwrap()
}

/// What every user may choose on every system.
const EVERYWHERE: [&str; 2] = ["--congestion", "reno"];

/// Runs two rounds of a bench of these arms, and of one that is missing, and checks what it writes.
fn measure_arms(arms: &[&str], cases: &[&str]) {
    let folder = Folder::new();
    let all = format!("{},gone=nebula@/nowhere/nebula", arms.join(","));
    let cases_of = cases.join(",");
    let arguments = ["--arms", &all, "--cases", &cases_of, "--rounds", "2", "--seconds", "1"];
    let output = bench(folder.path(), &arguments);
    let (said, complained) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(3), "{said}\n{complained}");
    let count = 2 * arms.len() * cases.len();
    let counts = format!("{count} runs, 0 void, 1 arms missing");
    assert!(said.contains(&counts), "{said}\n{complained}");
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let report = read("report.md");
    for arm in arms {
        assert!(report.contains(&format!("\n| {arm} | ")), "{report}");
    }
    assert!(
        report.contains("**gone did not run: /nowhere/nebula is missing.**"),
        "{report}"
    );
    assert_eq!(read("runs.jsonl").lines().count(), count);
    assert_eq!(read("runs.csv").lines().count(), count + 1);
    for case in cases {
        let lines: Vec<_> = said
            .lines()
            .filter(|line| line.contains(&format!(" {case} ")))
            .collect();
        // The second round runs in reverse order.
        let order: Vec<_> = lines.iter().filter_map(|line| line.split_whitespace().nth(2)).collect();
        let expected: Vec<_> = arms.iter().chain(arms.iter().rev()).copied().collect();
        assert_eq!(order, expected, "{said}");
        let tells_loss = lines.iter().all(|line| line.contains("% lost"));
        assert!(tells_loss || !case.starts_with("quic"), "{said}");
        assert!(read(&format!("{case}.svg")).starts_with("<svg"));
    }
    assert!(read(&format!("{}-time.svg", cases[0])).ends_with("</svg>\n"));
    let twins = [folder.path(), folder.path()];
    let compare = |options: &[&str]| {
        let mut command = Command::new(WEFT);
        command.args(["lab", "compare"]).args(options).args(twins);
        command.output().unwrap()
    };
    let compared = compare(&[]);
    let rows = String::from_utf8_lossy(&compared.stdout).into_owned();
    assert_eq!(compared.status.code(), Some(0), "{rows}");
    assert_eq!(rows.matches("too few runs").count(), arms.len() * cases.len(), "{rows}");
    let strict = compare(&["--expect-same"]);
    assert_eq!(strict.status.code(), Some(1), "two runs are no interval");
    let again = bench(folder.path(), &["--arms", "direct", "--rounds", "1", "--seconds", "1"]);
    assert_eq!(
        again.status.code(),
        Some(2),
        "a folder with results is not written over"
    );
}

#[test]
fn a_bench_measures_its_arms_and_says_who_is_missing() {
    alone(|| measure_arms(&["direct", "weft"], &["quic-back"]));
}

#[test]
#[ignore = "measures: .ci/long perf"]
fn a_bench_measures_three_arms_in_two_cases() {
    alone(|| measure_arms(&["direct", "null", "weft"], &["tcp", "quic-back"]));
}

#[test]
fn a_record_is_begun_once() {
    beside(|| {
        let project = tempfile::tempdir().unwrap();
        let bench = |out: &str| {
            let mut command = Command::new(WEFT);
            command.args(["lab", "bench", "--arms", "direct", "--cases", "tcp", "--rounds", "1"]);
            command
                .args(["--seconds", "1", "--record", "first", "--out", out])
                .args(EVERYWHERE);
            command.current_dir(project.path()).output().unwrap()
        };
        let complaint = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
        let nowhere = bench("a");
        assert_eq!(nowhere.status.code(), Some(2));
        assert!(
            complaint(&nowhere).contains("run this in the project's folder"),
            "{nowhere:?}"
        );
        let folder = project.path().join("docs/experiments");
        fs::create_dir_all(&folder).unwrap();
        let begun = bench("b");
        assert_eq!(begun.status.code(), Some(0), "{begun:?}");
        let only = |folder: &Path, ending: &str| {
            let ends = |path: &PathBuf| path.to_str().is_some_and(|path| path.ends_with(ending));
            let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            let found: Vec<PathBuf> = entries.filter(ends).collect();
            let [file] = &found[..] else { panic!("{found:?}") };
            file.clone()
        };
        let page = &only(&folder, "-first.md");
        let data = &only(&folder.join("data"), "-first.csv");
        let text = fs::read_to_string(page).unwrap();
        assert!(
            text.contains("\n### tcp\n") && text.contains("--record first"),
            "{text}"
        );
        assert_eq!(fs::read_to_string(data).unwrap().lines().count(), 2);
        fs::write(page, "what it means").unwrap();
        let again = bench("c");
        assert_eq!(again.status.code(), Some(2));
        assert!(complaint(&again).contains("records are not overwritten"), "{again:?}");
        assert_eq!(fs::read_to_string(page).unwrap(), "what it means");
    });
}

#[test]
fn one_program_on_both_arms_is_refused() {
    let folder = Folder::new();
    let copy = folder.path().join("copy");
    fs::copy(WEFT, &copy).unwrap();
    let arms = format!("weft,new=weft@{}", copy.display());
    let output = bench(&folder.path().join("out"), &["--arms", &arms]);
    assert_eq!(output.status.code(), Some(2));
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(
        complained.contains("\"weft\" and \"new\" are the same program"),
        "{complained}"
    );
}

#[test]
fn an_absent_congestion_control_is_refused_before_any_run() {
    let folder = Folder::new();
    let out = folder.path().join("out");
    for name in ["carrier-pigeon", "Upper Case", ""] {
        let output = bench(&out, &["--congestion", name]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(complained.contains("no congestion control"), "{complained}");
    }
    assert!(!out.exists());
}

#[test]
fn an_interrupted_bench_leaves_nothing_behind() {
    beside(|| {
        let folder = Folder::new();
        let mut command = Command::new(WEFT);
        command.args([
            "lab",
            "bench",
            "--arms",
            "weft",
            "--cases",
            "tcp",
            "--rounds",
            "9",
            "--seconds",
            "1",
            "--out",
        ]);
        // Its own temporary folder distinguishes its processes from those of other tests.
        let temporary = tempfile::tempdir().unwrap();
        command
            .arg(folder.path())
            .args(EVERYWHERE)
            .env("TMPDIR", temporary.path())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut String::new()).unwrap();
        let needle = temporary.path().to_str().unwrap().to_owned();
        // The daemons of the next round.
        wait_until(MINUTE, "daemons of the next round", || processes_with(&needle) > 0);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130));
        wait_until(MINUTE, "the end of the daemons", || processes_with(&needle) == 0);
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
        // The measurements made until then are kept.
        assert!(
            fs::read_to_string(folder.path().join("runs.csv"))
                .unwrap()
                .lines()
                .count()
                > 1
        );
    });
}

/// The daemons roam while the load runs: their figures would be those of two paths.
#[test]
fn a_path_that_changes_during_a_run_voids_it() {
    alone(|| {
        let (_world, stage, tunnel) = set_up("weft", &Conditions::default());
        let case = CASES.into_iter().find(|case| case.name == "udp500").unwrap();
        measure(&stage, &tunnel, &case, &case.plan(1, "reno")).unwrap();
        std::thread::scope(|scope| {
            let run = scope.spawn(|| measure(&stage, &tunnel, &case, &case.plan(4, "reno")));
            let Cable::Plain(link) = &stage.cables[0].cable else {
                panic!()
            };
            // The load runs.
            let before = received(&stage.hosts[1]);
            wait_until(MINUTE, "the load", || received(&stage.hosts[1]) > before + 10_000_000);
            link.b().change_address("10.96.0.2/24", "10.96.0.77/24").unwrap();
            let error = run.join().unwrap().unwrap_err();
            assert!(matches!(error, RunError::PathChanged { .. }), "{error:?}");
            assert!(error.to_string().contains("10.96.0.77"), "{error}");
        });
    });
}

/// Bytes that a host has received.
fn received(host: &Host) -> u64 {
    let read = || fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let devices = host.run(read).unwrap();
    let counts = devices.lines().filter_map(|line| line.split_once(':'));
    let bytes = counts.filter_map(|(_, counts)| counts.split_whitespace().next()?.parse::<u64>().ok());
    bytes.sum()
}

/// A tunnel that is up.
fn set_up(arm: &str, conditions: &Conditions) -> (World, Stage, Tunnel) {
    let (world, weft) = (World::new().unwrap(), Path::new(WEFT));
    let stage = Stage::set(&world, world.directory().join(arm), conditions).unwrap();
    let subject = Subject {
        arm: &arm.parse().unwrap(),
        program: weft,
        weft,
    };
    let tunnel = driver::start(&subject, &stage).unwrap();
    converge(&stage, &tunnel, driver::READY).unwrap();
    (world, stage, tunnel)
}

/// A datagram of the MTU passes each tunnel whole, one of a byte more passes neither.
#[test]
fn an_equal_mtu_is_that_of_packets() {
    alone(|| {
        let conditions = Conditions {
            mtu: Some(1380),
            threads: Some(1),
            ..Conditions::default()
        };
        for arm in ["null", "weft"] {
            let (_world, stage, tunnel) = set_up(arm, &conditions);
            assert_eq!(tunnel.mtu, 1380, "{arm}");
            let bind = |end: usize| {
                let address = SocketAddr::new(tunnel.ends[end].address, 0);
                let bind = || UdpSocket::bind(address, BindOptions::default()).unwrap();
                stage.hosts[end].run(bind).unwrap()
            };
            let (from, to) = (bind(0), bind(1));
            let headers = if to.local_address().is_ipv6() { 48 } else { 28 };
            let datagram = vec![7; 1381 - headers];
            let error = from.send(to.local_address(), &datagram, None).unwrap_err();
            assert!(is_too_long(&error), "{arm}: {error}");
            let mut buffer = [0; RECEIVE_BUFFER_LEN];
            // A datagram may get lost: the path may still be searched for its size.
            wait_until(MINUTE, "the whole datagram", || {
                from.send(to.local_address(), &datagram[1..], None).unwrap();
                to.recv(&mut buffer)
                    .is_ok_and(|received| received.len == datagram.len() - 1)
            });
        }
    });
}

/// The rows of `runs.csv`, by column.
fn runs(folder: &Path) -> Vec<BTreeMap<String, String>> {
    let text = fs::read_to_string(folder.join("runs.csv")).unwrap();
    let mut lines = text
        .lines()
        .map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    let names = lines.next().unwrap();
    lines.map(|line| names.iter().cloned().zip(line).collect()).collect()
}

#[test]
#[ignore = "measures: .ci/long perf"]
fn two_clients_through_a_relay_under_equal_conditions() {
    beside(|| {
        let folder = Folder::new();
        let conditions = "--relayed --clients 2 --mtu 1380 --threads 1 --congestion reno --delay 5 --rate 200";
        let load = "--arms direct,null,weft --cases tcp --rounds 1 --seconds 2";
        let arguments: Vec<_> = conditions.split(' ').chain(load.split(' ')).collect();
        let output = bench(folder.path(), &arguments);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let runs = runs(folder.path());
        let arms: Vec<_> = runs.iter().map(|run| run["arm"].as_str()).collect();
        assert_eq!(arms, ["direct", "null", "weft"]);
        for run in &runs {
            let figure = |name: &str| run[name].parse::<f64>().unwrap();
            assert_eq!(run["mtu"], "1380", "{run:?}");
            // Two cables, in both directions.
            assert!((20.0..80.0).contains(&figure("idle_avg_ms")), "{run:?}");
            // Both clients share the server's cable.
            assert!(figure("mbit_s") > 5.0 && figure("mbit_s") < 200.0, "{run:?}");
            assert!(figure("media_gap_ms") >= 16.0 && !run["bound"].is_empty(), "{run:?}");
            let tunnel = run["arm"] != "direct";
            assert_eq!(figure("cpu_s_relay") > 0.0, tunnel, "{run:?}");
            assert_eq!(run["mbit_s_per_cpu_percent_sender"].is_empty(), !tunnel, "{run:?}");
        }
        assert_eq!(runs[2]["frames"], "relayed");
        let report = fs::read_to_string(folder.path().join("report.md")).unwrap();
        for line in [
            "Set-up of every table: 2 clients and a server, each with a cable to one relay; 5 ms delay and 0 % loss",
            "| MTU inside | 1380 bytes, every arm |",
            "| congestion control of the namespaces | reno |",
            "| weft | weft | 1380 | lanes=1 |",
        ] {
            assert!(report.contains(line), "{line}: {report}");
        }
        let table = fs::read_to_string(folder.path().join("tcp.csv")).unwrap();
        assert_eq!(table.lines().count(), 4, "{table}");
        let overview = fs::read_to_string(folder.path().join("overview.csv")).unwrap();
        assert!(overview.contains("weft,tcp,Mbit/s,1,"), "{overview}");
    });
}

#[test]
#[ignore = "measures: .ci/long perf"]
fn events_interrupt_payload_for_a_while() {
    beside(|| {
        let folder = Folder::new();
        let events = "--arms weft --cases restart,rejoin,roam --rounds 1";
        let output = bench(folder.path(), &events.split(' ').collect::<Vec<_>>());
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{said}");
        let runs = runs(folder.path());
        assert_eq!(runs.len(), 3, "{said}");
        for run in runs {
            let gap: f64 = run["gap_s"].parse().unwrap();
            // 60 packets a second are sent. A restart can be as short as the pause between two.
            assert!((0.016..60.0).contains(&gap), "{run:?}");
        }
        let report = fs::read_to_string(folder.path().join("report.md")).unwrap();
        assert!(
            report.contains("| arm | s without payload | lowest and highest |"),
            "{report}"
        );
    });
}

#[test]
fn an_arm_without_a_process_is_void_where_one_restarts() {
    beside(|| {
        let folder = Folder::new();
        let events = "--arms direct --cases restart,rejoin --rounds 1";
        let output = bench(folder.path(), &events.split(' ').collect::<Vec<_>>());
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(3), "{said}");
        for run in runs(folder.path()) {
            let why = "it has no process that the bench can restart";
            assert!(run["void"].contains(why), "{run:?}");
        }
    });
}

#[test]
fn conditions_out_of_bounds_are_refused_in_one_line() {
    let folder = Folder::new();
    let out = folder.path().join("out");
    for (arguments, reason) in [
        ("--delay=-1", "write 0 to 10000 ms"),
        ("--delay x", "write 0 to 10000 ms"),
        ("--loss 91", "write 0 to 90 %"),
        ("--loss NaN", "write 0 to 90 %"),
        ("--rate 0", "write 0.1 to 100000 Mbit/s"),
        ("--rate 10 --queue 12KB", "write 1500 to 1000000000 bytes"),
        ("--queue 50ms", "--rate"),
        ("--mtu 1279", "1279 is not in 1280..=1500"),
        ("--threads 0", "0 is not in 1..=64"),
        ("--clients 2", "--relayed"),
        ("--relayed --clients 9", "9 is not in 1..=8"),
        ("--wire --delay 1", "cannot be used with"),
        ("--relayed --arms weft,nebula", "nebula cannot be measured with a relay"),
    ] {
        let output = bench(&out, &arguments.split(' ').collect::<Vec<_>>());
        let complained = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {complained}");
        assert!(complained.contains(reason), "{arguments}: {complained}");
        assert_eq!(complained.lines().count(), 1, "{arguments}: {complained}");
    }
    assert!(!out.exists());
}

/// Number of processes with a text in their command line.
fn processes_with(text: &str) -> usize {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| String::from_utf8_lossy(line).contains(text))
        .count()
}
