//! A run as text for display.

use std::fmt::Write as _;

use crate::account::{PathSeen, TcpSent};
use crate::client::STAGED;
use crate::latency::Latency;
use crate::meter::{ProcessLoad, Spent};
use crate::plan::{Direction, Load, Plan};
use crate::report::{DirectionReport, Report, SecondReport, UdpReport, Way};

/// Describes the run that is about to start.
#[must_use]
pub fn heading(plan: &Plan, peer: &str) -> String {
    let way = match plan.direction {
        Direction::Forward => format!("to {peer}"),
        Direction::Reverse => format!("from {peer}"),
        Direction::Both => format!("to and from {peer}"),
    };
    let what = match &plan.load {
        Load::Tcp { streams: 1, .. } => format!("TCP, 1 stream, {way}"),
        Load::Tcp { streams, .. } => format!("TCP, {streams} streams, {way}"),
        Load::Udp { rate: Some(rate), size } => {
            format!(
                "UDP, {} Mbit/s in datagrams of {size} bytes, {way}",
                *rate as f64 * 1e-6
            )
        }
        Load::Udp { rate: None, size } => format!("UDP, datagrams of {size} bytes as fast as possible, {way}"),
        Load::Quic { rate, size } => {
            let rate = rate.map_or_else(String::new, |rate| format!(", {} Mbit/s at most", rate as f64 * 1e-6));
            format!("QUIC-like UDP, trains of {size} bytes each{rate}, {way}")
        }
        Load::None => format!("round trips to {peer}"),
    };
    let raw = plan
        .raw
        .map_or_else(String::new, |address| format!(", outside the tunnel ({address})"));
    format!("{what}, {} s{raw}\n", plan.seconds)
}

/// Announces the measurement of stages after the run.
#[must_use]
pub fn heading_of_stages() -> String {
    format!("Measuring stages for {STAGED} more seconds (--no-stages skips this)\n")
}

/// The columns of [`second`].
#[must_use]
pub fn columns() -> String {
    row([
        "second",
        "upload",
        "download",
        "retransmitted",
        "missing",
        "RTT",
        "CPU",
        "CPU of peer",
    ])
}

/// One second of a run as a row.
#[must_use]
pub fn second(second: &SecondReport) -> String {
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1} Mbit/s"));
    row([
        &second.second.to_string(),
        &rate(second.forward_mbit_s),
        &rate(second.reverse_mbit_s),
        &second.retransmits.to_string(),
        &second.missing.to_string(),
        &second
            .rtt
            .median()
            .map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2} ms")),
        &percent(second.client.cpu_percent()),
        &second
            .server
            .as_ref()
            .map_or_else(|| "-".to_owned(), |server| percent(server.cpu_percent())),
    ])
}

/// The result as text.
#[must_use]
pub fn summary(report: &Report) -> String {
    let mut text = String::from("\n");
    for direction in &report.directions {
        text.push_str(&way(direction));
    }
    line(&mut text, "round trip", &rtt("idle", &report.rtt.idle));
    if !report.directions.is_empty() {
        line(&mut text, "", &rtt("under load", &report.rtt.loaded));
    }
    line(&mut text, "this node", &spent(&report.client));
    line(&mut text, "peer", &spent(&report.server));
    if let Some(rate) = report.mbit_s_per_cpu_percent {
        line(
            &mut text,
            "efficiency",
            &format!("{rate:.2} Mbit/s for each 1 % of a CPU, client and server together"),
        );
    }
    if report.plan.raw.is_none() {
        line(&mut text, "path", &path(&report.path));
        if report.server_path.start.is_some() {
            line(&mut text, "reverse", &path(&report.server_path));
        }
    }
    for direction in &report.directions {
        let which = if report.directions.len() < 2 {
            ""
        } else {
            match direction.direction {
                Way::Forward => " (upload)",
                Way::Reverse => " (download)",
            }
        };
        let verdict = &direction.bottleneck;
        let _ = writeln!(text, "\nBottleneck{which}: {}", verdict.is.words());
        for reason in &verdict.evidence {
            let _ = writeln!(text, "  - {reason}");
        }
        if let Some(held) = &direction.thread_verdict {
            for line in std::iter::once(&held.text).chain(&held.evidence) {
                let _ = writeln!(text, "  - stages: {line}");
            }
        }
    }
    if let Some(why) = report.stages.as_ref().and_then(|stages| stages.not_measured.as_ref()) {
        let _ = writeln!(text, "Stages of the packet path were not measured: {why}");
    }
    if let Some(why) = &report.invalid_because {
        let _ = writeln!(text, "\nINVALID: {why}");
    }
    text
}

fn way(direction: &DirectionReport) -> String {
    let mut text = String::new();
    let name = match direction.direction {
        Way::Forward => "upload",
        Way::Reverse => "download",
    };
    let got = format!(
        "{:.1} Mbit/s, {} bytes in {:.2} s",
        direction.mbit_s, direction.bytes, direction.seconds
    );
    line(&mut text, name, &got);
    if let Some(tcp) = &direction.tcp {
        line(&mut text, "", &over_tcp(tcp));
    }
    if let Some(udp) = &direction.udp {
        line(&mut text, "", &over_udp(udp));
    }
    text
}

fn over_tcp(tcp: &TcpSent) -> String {
    format!(
        "{} of {} segments retransmitted, {}, round trip {:.1} ms (minimum {:.1} ms)",
        tcp.retransmits, tcp.segments, tcp.congestion, tcp.rtt_ms, tcp.min_rtt_ms
    )
}

fn over_udp(udp: &UdpReport) -> String {
    format!(
        "{:.0} packets/s; {} of {} lost ({:.2} %), {} reordered, {} duplicated, jitter {:.3} ms",
        udp.packets_s,
        udp.lost,
        udp.sent,
        udp.loss * 100.0,
        udp.reordered,
        udp.duplicates,
        udp.jitter_ms
    )
}

fn rtt(when: &str, latency: &Latency) -> String {
    if latency.received == 0 {
        return format!("{when}: none of {} probes was answered", latency.sent);
    }
    format!(
        "{when}: avg {:.2}, P50 {:.2}, P99 {:.2}, max {:.2} ms; {} of {} lost",
        latency.avg_ms,
        latency.p50_ms,
        latency.p99_ms,
        latency.max_ms,
        latency.sent.saturating_sub(latency.received),
        latency.sent
    )
}

fn spent(spent: &Spent) -> String {
    let one = |what: &str, load: &Option<ProcessLoad>| match load {
        Some(load) => format!(
            "{what} {} of a CPU, {:.1} MiB",
            percent(load.cpu_percent),
            load.rss_bytes as f64 / f64::from(1 << 20)
        ),
        None => format!("{what} not visible"),
    };
    format!("{}; {}", one("daemon", &spent.daemon), one("test", &spent.test))
}

fn path(path: &PathSeen) -> String {
    match (&path.start, &path.end) {
        (Some(start), Some(end)) if path.changes > 0 => format!("{start}, at the end {end}"),
        (Some(start), _) => start.clone(),
        (None, _) => "unknown".to_owned(),
    }
}

fn percent(percent: f64) -> String {
    format!("{percent:.0} %")
}

fn line(text: &mut String, name: &str, value: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{name:<11}{value}");
}

fn row(cells: [&str; 8]) -> String {
    let mut text = String::new();
    for (cell, width) in cells.into_iter().zip([6, 15, 15, 15, 9, 11, 8, 13]) {
        let _ = write!(text, "{cell:>width$}");
    }
    text.push('\n');
    text
}
