//! A laptop with the routes of a whole Internet table, of which some change each moment: they are none of
//! weft's, and cost it next to nothing.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use weft_lab::daemon::Daemon;
use weft_lab::host::Host;
use weft_os::process::usage_of;
use weft_os::test_support::require_nft;

use super::internet::{Internet, run};
use crate::common::beside;

/// The routes of others.
const ROUTES: u32 = 200_000;
/// Those that change in a second, each once.
const CHANGES: u32 = 100;
/// For how long each state is measured.
const WINDOW: Duration = Duration::from_secs(60);
/// The time after which links are idle, and searches and measurements have ended.
const SETTLE: Duration = Duration::from_secs(70);
/// Maximum CPU time of daemon and broker, as a share of one processor.
const CPU: f64 = 0.1;
/// Maximum number of packets in a second, in both directions, beside those of an idle node.
const PACKETS: f64 = 1.0;

/// A route, as a line for `ip -batch`.
fn line(verb: &str, number: u32) -> String {
    let [_, high, middle, low] = number.to_be_bytes();
    format!(
        "route {verb} {}.{middle}.{low}.0/24 via 192.168.1.1 dev eth0\n",
        100 + high
    )
}

/// Gives lines to `ip -batch`, which executes each as it comes; it ends after the last one.
fn batch(host: &Host, work: impl FnOnce(&mut dyn std::io::Write)) {
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]).stdin(Stdio::piped());
    let mut ip = host.spawn(command).unwrap();
    let mut lines = ip.stdin.take().unwrap();
    work(&mut lines);
    drop(lines);
    assert!(ip.wait().unwrap().success());
}

/// The CPU time that a daemon and its broker have used.
fn cpu(node: &Daemon) -> Duration {
    let children = run(
        node.host(),
        "sh",
        &["-c", &format!("cat /proc/{}/task/*/children", node.pid())],
    );
    let broker = children.split_whitespace().map(|pid| pid.parse().unwrap());
    let all: Vec<u32> = std::iter::once(node.pid()).chain(broker).collect();
    assert!(all.len() > 1, "there is no broker");
    all.into_iter().map(|pid| usage_of(pid).unwrap().cpu).sum()
}

/// The packets that have passed the LAN interface of a host.
fn packets(host: &Host) -> u64 {
    let counts = run(host, "ip", &["-j", "-s", "link", "show", "eth0"]);
    let counts: serde_json::Value = serde_json::from_str(&counts).unwrap();
    ["rx", "tx"]
        .map(|way| counts[0]["stats64"][way]["packets"].as_u64().unwrap())
        .iter()
        .sum()
}

/// The share of a processor, and the packets in a second, while `work` goes on.
fn cost(node: &Daemon, what: &str, work: impl FnOnce()) -> (f64, f64) {
    let (begin, before, seen) = (Instant::now(), cpu(node), packets(node.host()));
    work();
    let seconds = begin.elapsed().as_secs_f64();
    let share = (cpu(node) - before).as_secs_f64() / seconds;
    let rate = (packets(node.host()) - seen) as f64 / seconds;
    let resident = node.usage().unwrap().rss_bytes >> 10;
    eprintln!(
        "{what}: {seconds:.1} s, {:.2} % of a core, {rate:.2} packets/s, {resident} KiB resident",
        100.0 * share
    );
    (share, rate)
}

/// Replaces or removes and adds routes, as many in a second as a router with a full table may see.
fn change(host: &Host) {
    batch(host, |lines| {
        let (begin, mut number) = (Instant::now(), 0);
        while begin.elapsed() < WINDOW {
            for _ in 0..CHANGES / 20 {
                // Half of the changes are removals, and each of those comes back.
                lines.write_all(line("delete", number % ROUTES).as_bytes()).unwrap();
                lines.write_all(line("add", number % ROUTES).as_bytes()).unwrap();
                number += 7;
            }
            lines.flush().unwrap();
            let done = begin + Duration::from_millis(100) * (number / 7 / (CHANGES / 20));
            sleep(done.saturating_duration_since(Instant::now()));
        }
    });
}

#[test]
#[ignore = "takes minutes: .ci/long idle"]
fn many_routes_of_others_cost_next_to_nothing() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let net = Internet::by_exit(false);
        let laptop = net.laptop.host();
        sleep(SETTLE);
        let idle = cost(&net.laptop, "idle", || sleep(WINDOW));
        cost(&net.laptop, "while the routes are added", || {
            batch(laptop, |lines| {
                let all: String = (0..ROUTES).map(|number| line("add", number)).collect();
                lines.write_all(all.as_bytes()).unwrap();
            });
        });
        let count = run(laptop, "sh", &["-c", "ip route show dev eth0 | wc -l"]);
        assert!(count.trim().parse::<u32>().unwrap() > ROUTES, "{count}");
        cost(&net.laptop, "the minute after", || sleep(WINDOW));
        let many = cost(&net.laptop, "with the routes", || sleep(WINDOW));
        let changing = cost(&net.laptop, "with the routes and their changes", || change(laptop));
        assert!(net.passes());
        for (share, rate) in [many, changing] {
            assert!(share <= CPU, "{share:.3} of a processor, {CPU} allowed");
            assert!(rate <= idle.1 + PACKETS, "{rate:.2} packets/s, {:.2} when idle", idle.1);
        }
        // This state has no bound: `weft status` causes looks of its own.
        cost(&net.laptop, "with the routes, and `weft status` each second", || {
            for _ in 0..WINDOW.as_secs() {
                assert_eq!(net.laptop.status().unwrap()["node"]["exit"]["pass"], true);
                sleep(Duration::from_secs(1));
            }
        });
        drop(net.warnings());
    });
}
