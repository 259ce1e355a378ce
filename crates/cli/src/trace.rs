//! `weft trace`: the time spent in each stage of the packet path, live.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use weft_control::ControlCommand;
use weft_control::trace::{LaneTrace, Sizes, TraceDocument, Work};
use weft_store::state::StatePaths;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::Out;

/// The interval between two tables; well below the time after which the daemon stops to measure.
const EVERY: Duration = Duration::from_secs(1);

/// The order in which the stages are shown.
const STAGES: [&str; 12] = [
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
    "queue",
    "wait",
];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Stop after this many tables, one a second [default: at Ctrl-C]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// Print a document weft.trace/1 a line, about a second each
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(paths: &StatePaths, args: &Args) -> Result<(), Failure> {
    let mut interrupt = Interrupt::catch()?;
    let mut out = Out::new();
    let ask = || weft_control::call::<TraceDocument>(&paths.control(), &ControlCommand::Trace { for_ms: None });
    let end = args.seconds.map(|n| Instant::now() + Duration::from_secs(n) + EVERY);
    let mut before = ask()?;
    let mut shown = 0;
    while interrupt.pause(EVERY) {
        let now = ask()?;
        // There is no data yet, or measuring was disabled meanwhile.
        if let Some(since) = now.since(&before) {
            shown += 1;
            if args.json {
                out.json_line(&serde_json::json!(since))?;
            } else {
                out.clear()?;
                out.text(&table(&since))?;
            }
        }
        before = now;
        let enough = args.seconds.is_some_and(|n| shown >= n);
        if enough || end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
    }
    Ok(())
}

/// The stages, the packets per call, and the drops and fallbacks.
fn table(document: &TraceDocument) -> String {
    let trace = &document.total;
    let mut text = format!(
        "{:12} {:>9} {:>9} {:>7} {:>8} {:>10} {:>9} {:>6}\n",
        "stage", "calls/s", "packets/s", "p/call", "B/call", "ns/packet", "ns/call", "time"
    );
    for name in STAGES {
        let stage = trace.stages.get(name).copied().unwrap_or_default();
        line(&mut text, name, &stage, trace.seconds);
    }
    by_lane(&mut text, &document.lanes);
    text.push('\n');
    for (name, what) in [
        ("tun-read", "packets in a TUN read"),
        ("udp-send", "datagrams in a send (GSO)"),
        ("udp-receive", "datagrams in a receive (GRO)"),
        ("tun-write", "packets in a TUN write"),
    ] {
        let sizes = trace.sizes.get(name).copied().unwrap_or_default();
        if let Some(spread) = spread(&sizes) {
            let _ = writeln!(text, "{what}: {spread}");
        }
    }
    for (name, wait) in trace.waits.iter().filter(|(_, wait)| wait.count > 0) {
        let mean = wait.ns as f64 / wait.count as f64 / 1e3;
        let _ = writeln!(text, "waits, {name}: {} of {mean:.0} us", wait.count);
    }
    for (what, counters) in [("not the fast way", &trace.fallbacks), ("dropped", &trace.drops)] {
        if let Some(moved) = moved(counters) {
            let _ = writeln!(text, "{what}: {moved}");
        }
        for (at, lane) in document.lanes.iter().enumerate() {
            let counters = if what == "dropped" {
                &lane.drops
            } else {
                &lane.fallbacks
            };
            if let Some(moved) = moved(counters) {
                let _ = writeln!(text, "  of these, lane {at}: {moved}");
            }
        }
    }
    let _ = writeln!(
        text,
        "measured over {:.1} s; a look at the clock costs {} ns of it, three for each packet sent, two for one received",
        trace.seconds, document.clock_ns
    );
    text
}

/// Shares of each lane's time; nothing if there is one lane.
fn by_lane(text: &mut String, lanes: &[LaneTrace]) {
    if lanes.is_empty() {
        return;
    }
    let _ = write!(text, "\n{:6}", "lane");
    for name in STAGES {
        let _ = write!(text, "{name:>width$}", width = WIDTH.max(name.len() + 1));
    }
    text.push('\n');
    for (at, lane) in lanes.iter().enumerate() {
        let _ = write!(text, "{at:<6}");
        for name in STAGES {
            let stage = lane.stages.get(name).copied().unwrap_or_default();
            let width = WIDTH.max(name.len() + 1) - 1;
            let _ = write!(text, "{:>width$.1}%", share(&stage, lane.seconds));
        }
        text.push('\n');
    }
}

/// The minimum width of a column of shares.
const WIDTH: usize = 7;

/// The counters that are not zero, by name; `None` if there are none.
fn moved(counters: &BTreeMap<String, u64>) -> Option<String> {
    let moved = counters.iter().filter(|(_, n)| **n > 0);
    let moved: Vec<String> = moved.map(|(name, n)| format!("{name} {n}")).collect();
    (!moved.is_empty()).then(|| moved.join(", "))
}

/// Percent of the time.
fn share(stage: &Work, seconds: f64) -> f64 {
    if seconds > 0.0 {
        stage.ns as f64 / 1e7 / seconds
    } else {
        0.0
    }
}

fn line(text: &mut String, name: &str, stage: &Work, seconds: f64) {
    let per = |n: u64| match n {
        0 => "-".to_owned(),
        n => format!("{:.0}", stage.ns as f64 / n as f64),
    };
    let rate = |n: u64| format!("{:.0}", n as f64 / seconds);
    let batch = match (stage.calls, stage.packets) {
        (0, _) | (_, 0) => "-".to_owned(),
        (calls, packets) => format!("{:.1}", packets as f64 / calls as f64),
    };
    let bytes = match (stage.calls, stage.bytes) {
        (0, _) | (_, 0) => "-".to_owned(),
        (calls, bytes) => (bytes / calls).to_string(),
    };
    let share = share(stage, seconds);
    let _ = writeln!(
        text,
        "{name:12} {:>9} {:>9} {batch:>7} {bytes:>8} {:>10} {:>9} {share:>5.1}%",
        rate(stage.calls),
        rate(stage.packets),
        per(stage.packets),
        per(stage.calls)
    );
}

/// The distribution of packets per call; `None` if there were no calls.
fn spread(sizes: &Sizes) -> Option<String> {
    const CLASSES: [&str; 8] = ["1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", ">64"];
    let all: u64 = sizes.calls.iter().sum();
    let classes = CLASSES.iter().zip(sizes.calls).filter(|(_, n)| *n > 0);
    let parts: Vec<String> = classes
        .map(|(class, n)| format!("{class}: {:.0}%", 100.0 * n as f64 / all as f64))
        .collect();
    (all > 0).then(|| format!("{}; most {}, {} bytes", parts.join(", "), sizes.max, sizes.max_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_stages_sizes_and_drops() {
        let counters = BTreeMap::from([("too_big".to_owned(), 3)]);
        let mut document = TraceDocument::new(&[None], &counters, &[BTreeMap::new()]);
        document.clock_ns = 25;
        let trace = &mut document.total;
        trace.seconds = 2.0;
        let send = trace.stages.get_mut("udp-send").unwrap();
        (send.calls, send.packets, send.bytes, send.ns) = (100, 4_000, 5_720_000, 1_000_000_000);
        let sizes = trace.sizes.get_mut("udp-send").unwrap();
        (sizes.calls, sizes.max, sizes.max_bytes) = ([25, 0, 0, 0, 0, 0, 75, 0], 45, 64_350);
        let text = table(&document);
        assert!(
            text.contains("udp-send            50      2000    40.0    57200     250000  10000000  50.0%"),
            "{text}"
        );
        assert!(
            text.contains("datagrams in a send (GSO): 1: 25%, 33-64: 75%; most 45, 64350 bytes"),
            "{text}"
        );
        assert!(
            text.contains("dropped: too_big 3\n") && !text.contains("not the fast way") && !text.contains("lane"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }

    #[test]
    fn each_lane_has_its_line() {
        let dropped = BTreeMap::from([("no_route".to_owned(), 2)]);
        let mut document = TraceDocument::new(&[None, None], &dropped, &[BTreeMap::new(), dropped.clone()]);
        document.total.seconds = 1.0;
        document.lanes[1].seconds = 1.0;
        document.lanes[1].stages.get_mut("seal").unwrap().ns = 425_000_000;
        let text = table(&document);
        assert!(
            text.lines()
                .any(|line| line.starts_with("1     ") && line.contains("  42.5%")),
            "{text}"
        );
        assert!(text.lines().any(|line| line.starts_with("0     ")), "{text}");
        assert!(
            text.contains("dropped: no_route 2\n  of these, lane 1: no_route 2\n"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }
}
