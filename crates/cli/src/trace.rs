//! `weft trace`: where the time of the packet path goes, live.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use weft_node::control::{self, ControlCommand};
use weft_node::state::StatePaths;
use weft_node::trace::{SizesStatus, StageStatus, TraceDocument};

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::Out;

/// From one table to the next; well below the time after which the daemon stops to measure.
const EVERY: Duration = Duration::from_secs(1);

/// How the stages are shown: name, and what a call of it is, if it makes any.
const STAGES: [&str; 11] = [
    "tun-read",
    "route",
    "split",
    "seal",
    "udp-send",
    "udp-receive",
    "open",
    "coalesce",
    "tun-write",
    "control",
    "wait",
];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Stop after this many seconds [default: at Ctrl-C]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// Print a document weft.trace/1 a line, about a second each
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(paths: &StatePaths, args: &Args) -> Result<(), Failure> {
    let mut interrupt = Interrupt::catch()?;
    let mut out = Out::new();
    let ask = || control::call::<TraceDocument>(&paths.control(), &ControlCommand::Trace {});
    let end = args.seconds.map(|n| Instant::now() + Duration::from_secs(n) + EVERY);
    let mut before = ask()?;
    while interrupt.pause(EVERY) {
        let now = ask()?;
        // Nothing to tell yet, or it was switched off meanwhile.
        if let Some(since) = now.since(&before) {
            if args.json {
                out.json_line(&serde_json::json!(since))?;
            } else {
                out.clear()?;
                out.text(&table(&since))?;
            }
        }
        before = now;
        if end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
    }
    Ok(())
}

/// The stages, what calls take, and what did not go as it should.
fn table(trace: &TraceDocument) -> String {
    let mut text = format!(
        "{:12} {:>9} {:>9} {:>7} {:>10} {:>9} {:>6}\n",
        "stage", "calls/s", "packets/s", "p/call", "ns/packet", "ns/call", "time"
    );
    for name in STAGES {
        let stage = trace.stages.get(name).copied().unwrap_or_default();
        line(&mut text, name, &stage, trace.seconds);
    }
    let named = |names: &[(&str, &str)], text: &mut String| {
        for (name, what) in names {
            let sizes = trace.sizes.get(*name).copied().unwrap_or_default();
            if let Some(spread) = spread(&sizes) {
                let _ = writeln!(text, "{what}: {spread}");
            }
        }
    };
    text.push('\n');
    named(
        &[
            ("tun-read", "packets in a TUN read"),
            ("udp-send", "datagrams in a send"),
            ("udp-receive", "datagrams in a receive"),
            ("tun-write", "packets in a TUN write"),
        ],
        &mut text,
    );
    for (name, wait) in trace.waits.iter().filter(|(_, wait)| wait.count > 0) {
        let mean = wait.ns as f64 / wait.count as f64 / 1e3;
        let _ = writeln!(text, "waits, {name}: {} of {mean:.0} us", wait.count);
    }
    for (what, counters) in [("not the fast way", &trace.fallbacks), ("dropped", &trace.drops)] {
        let moved: Vec<String> = counters
            .iter()
            .filter(|(_, n)| **n > 0)
            .map(|(name, n)| format!("{name} {n}"))
            .collect();
        if !moved.is_empty() {
            let _ = writeln!(text, "{what}: {}", moved.join(", "));
        }
    }
    let _ = writeln!(
        text,
        "measured over {:.1} s; a look at the clock costs {} ns of it, three for each packet sent, two for one received",
        trace.seconds, trace.clock_ns
    );
    text
}

fn line(text: &mut String, name: &str, stage: &StageStatus, seconds: f64) {
    let per = |n: u64| match n {
        0 => "-".to_owned(),
        n => format!("{:.0}", stage.ns as f64 / n as f64),
    };
    let rate = |n: u64| format!("{:.0}", n as f64 / seconds);
    let batch = match (stage.calls, stage.packets) {
        (0, _) | (_, 0) => "-".to_owned(),
        (calls, packets) => format!("{:.1}", packets as f64 / calls as f64),
    };
    let share = stage.ns as f64 / 1e7 / seconds;
    let _ = writeln!(
        text,
        "{name:12} {:>9} {:>9} {batch:>7} {:>10} {:>9} {share:>5.1}%",
        rate(stage.calls),
        rate(stage.packets),
        per(stage.packets),
        per(stage.calls)
    );
}

/// How many calls took how many packets; none if there were no calls.
fn spread(sizes: &SizesStatus) -> Option<String> {
    const CLASSES: [&str; 8] = ["1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", ">64"];
    let all: u64 = sizes.calls.iter().sum();
    let classes = CLASSES.iter().zip(sizes.calls).filter(|(_, n)| *n > 0);
    let parts: Vec<String> = classes
        .map(|(class, n)| format!("{class}: {:.0}%", 100.0 * n as f64 / all as f64))
        .collect();
    (all > 0).then(|| format!("{}; most {}", parts.join(", "), sizes.max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown() {
        let mut trace = TraceDocument::new(None, &std::collections::BTreeMap::new());
        trace.seconds = 2.0;
        trace.clock_ns = 25;
        let send = trace.stages.get_mut("udp-send").unwrap();
        (send.calls, send.packets, send.ns) = (100, 4_000, 1_000_000_000);
        trace.sizes.get_mut("udp-send").unwrap().calls = [25, 0, 0, 0, 0, 0, 75, 0];
        trace.sizes.get_mut("udp-send").unwrap().max = 45;
        trace.drops.insert("too_big".to_owned(), 3);
        let text = table(&trace);
        assert!(
            text.contains("udp-send            50      2000    40.0     250000  10000000  50.0%"),
            "{text}"
        );
        assert!(
            text.contains("datagrams in a send: 1: 25%, 33-64: 75%; most 45"),
            "{text}"
        );
        assert!(
            text.contains("dropped: too_big 3\n") && !text.contains("not the fast way"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }
}
