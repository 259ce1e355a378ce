//! The report of a bench: Markdown, with a plot for each case.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::matrix::{Case, Unit};
use super::record::Record;
use super::setup::Setup;
use super::table::{Estimate, Row, rows};
use super::{Entrant, Missing, Options, media, plot};
use crate::stats::{Interval, Ratio};

/// Writes `report.md`, `setup.json`, and for each case a plot and its table as CSV, into the folder
/// of results, and returns the report's path.
///
/// # Errors
/// If they cannot be written.
pub fn write(
    options: &Options,
    setup: &Setup,
    entrants: &[Entrant],
    missing: &[Missing],
    records: &[Record],
) -> io::Result<PathBuf> {
    let folder = &options.out;
    fs::write(folder.join("setup.json"), serde_json::to_string_pretty(setup)?)?;
    let arms: Vec<String> = entrants.iter().map(|entrant| entrant.arm.label.clone()).collect();
    let cases: Vec<(&Case, Vec<Row>)> = options
        .cases
        .iter()
        .map(|case| (case, rows(&arms, case.name, records)))
        .collect();
    fs::write(folder.join("overview.csv"), overview_csv(&cases))?;
    for (case, rows) in &cases {
        fs::write(folder.join(format!("{}.csv", case.name)), table_csv(rows))?;
        fs::write(folder.join(format!("{}.svg", case.name)), plot::bars(case, rows))?;
        if case.unit() != Unit::Gap {
            fs::write(
                folder.join(format!("{}-time.svg", case.name)),
                plot::over_time(case, &arms, records),
            )?;
        }
    }
    let path = folder.join("report.md");
    fs::write(&path, text(setup, &cases, missing, folder))?;
    Ok(path)
}

/// The whole report.
fn text(setup: &Setup, cases: &[(&Case, Vec<Row>)], missing: &[Missing], folder: &Path) -> String {
    let mut out = format!("# Bench of {}\n\n", setup.date());
    // Writing to a String cannot fail; this applies to everything below.
    let _ = writeln!(
        out,
        "{} rounds of {} s of load in each case, all arms in every round, every other round in reverse order. \
         All hosts are namespaces of one machine: the CPUs are shared by the hosts and the load. Medians with 95 % \
         intervals; ratios are to the first arm, by rounds. Beside each load runs a media stream of {} datagrams a \
         second.\n",
        setup.rounds,
        setup.seconds,
        media::PER_SECOND
    );
    let _ = writeln!(out, "    {}\n", setup.command);
    let _ = writeln!(out, "Set-up of every table: {}.\n", conditions(setup));
    out.push_str(&overview(cases));
    for Missing { label, lacks } in missing {
        let _ = writeln!(out, "**{label} did not run: {lacks} is missing.** See docs/peers.md.\n");
    }
    for (case, rows) in cases {
        match case.unit() {
            Unit::Gap => out.push_str(&event_section(case, rows)),
            Unit::Mbit | Unit::Packets => out.push_str(&section(case, rows)),
        }
    }
    out.push_str(&about(setup, cases, folder));
    out
}

/// The conditions of all runs in one line.
fn conditions(setup: &Setup) -> String {
    let wire = match setup.wire {
        true => "; the cable carries each UDP datagram by itself, like a wire",
        false => "",
    };
    let mtu = setup.mtu.map_or_else(
        || "each program's own MTU".to_owned(),
        |mtu| format!("an MTU of {mtu} bytes inside every arm"),
    );
    format!(
        "{}; {}{wire}; {mtu}; TCP has {}",
        setup.layout, setup.regime, setup.congestion
    )
}

/// One row per arm, one column per case: the medians.
fn overview(cases: &[(&Case, Vec<Row>)]) -> String {
    let Some((_, first)) = cases.first() else {
        return String::new();
    };
    let names: Vec<_> = cases.iter().map(|(case, _)| case.name).collect();
    let mut out = format!("| arm | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
    for (n, row) in first.iter().enumerate() {
        let cell = |(case, rows): &(&Case, Vec<Row>)| match rows.get(n).and_then(|row| row.rate.as_ref()) {
            Some(rate) => number(rate.median(), case.unit()),
            None => "void".to_owned(),
        };
        let cells: Vec<_> = cases.iter().map(cell).collect();
        let _ = writeln!(out, "| {} | {} |", row.arm, cells.join(" | "));
    }
    out.push_str("\nMbit/s; thousands of packets a second for pps; seconds for events.\n\n[As CSV](overview.csv)\n\n");
    out
}

fn overview_csv(cases: &[(&Case, Vec<Row>)]) -> String {
    let mut out = "arm,case,unit,runs,median\n".to_owned();
    for (case, rows) in cases {
        for row in rows {
            let (runs, median) = row
                .rate
                .as_ref()
                .map_or((0, String::new()), |rate| (rate.summary.n, rate.median().to_string()));
            let _ = writeln!(out, "{},{},{},{runs},{median}", row.arm, case.name, case.unit().name());
        }
    }
    out
}

/// The table of a case in full.
fn table_csv(rows: &[Row]) -> String {
    let mut out = "arm,runs,median,low,high,ratio,ratio_low,ratio_high,cpu_s_per_gb,mbit_s_per_cpu_percent_sender,\
                   mbit_s_per_cpu_percent_receiver,idle_avg_ms,loaded_avg_ms,loaded_p99_ms,media_gap_ms,rss_mib,loss,\
                   retransmits,cable_lost,cable_overflowed,bound,bound_runs,mtu,void_runs\n"
        .to_owned();
    for row in rows {
        let interval = row.rate.as_ref().and_then(|rate| rate.interval);
        let figures = [
            row.rate.as_ref().map(|rate| rate.summary.n as f64),
            row.rate.as_ref().map(Estimate::median),
            interval.map(|interval| interval.low),
            interval.map(|interval| interval.high),
            row.ratio.map(|ratio| ratio.ratio),
            row.ratio.map(|ratio| ratio.interval.low),
            row.ratio.map(|ratio| ratio.interval.high),
            row.cpu_s_per_gb.as_ref().map(Estimate::median),
            row.mbit_s_per_cpu_percent.map(|both| both[0]),
            row.mbit_s_per_cpu_percent.map(|both| both[1]),
            row.rtt.map(|rtt| rtt[0]),
            row.rtt.map(|rtt| rtt[1]),
            row.rtt.map(|rtt| rtt[2]),
            row.media_gap_ms,
            row.rss_mib,
            row.loss,
            row.retransmits,
            row.cable_dropped.map(|both| both[0]),
            row.cable_dropped.map(|both| both[1]),
        ];
        let figures = figures.map(|figure| figure.map_or_else(String::new, |figure| figure.to_string()));
        let bound = row
            .bound
            .map_or_else(|| ",".to_owned(), |(by, runs)| format!("{},{runs}", by.words()));
        let mtu = row.mtu.map_or_else(String::new, |mtu| mtu.to_string());
        let _ = writeln!(
            out,
            "{},{},{bound},{mtu},{}",
            row.arm,
            figures.join(","),
            row.void.len()
        );
    }
    out
}

fn section(case: &Case, rows: &[Row]) -> String {
    let mut out = heading(case);
    let _ = writeln!(
        out,
        "| arm | {} | ratio | CPU s/GB | Mbit/s per 1 % CPU, sender / receiver | ping idle, ms | loaded avg / P99, ms \
         | longest media gap, ms | RSS, MiB | lost or retransmitted | bound by | warnings |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|",
        case.unit().name()
    );
    for row in rows {
        let Some(rate) = &row.rate else {
            let _ = writeln!(
                out,
                "| {} | void: {} | | | | | | | | | | |",
                row.arm,
                row.void.join("; ")
            );
            continue;
        };
        let dash = || "-".to_owned();
        let cells = [
            row.arm.clone(),
            estimate(rate, case.unit()),
            row.ratio.as_ref().map_or_else(dash, ratio),
            row.cpu_s_per_gb
                .as_ref()
                .map_or_else(dash, |cpu| format!("{:.2}", cpu.median())),
            row.mbit_s_per_cpu_percent
                .map_or_else(dash, |both| format!("{:.1} / {:.1}", both[0], both[1])),
            row.rtt.map_or_else(dash, |rtt| format!("{:.3}", rtt[0])),
            row.rtt
                .map_or_else(dash, |rtt| format!("{:.2} / {:.2}", rtt[1], rtt[2])),
            row.media_gap_ms.map_or_else(dash, |gap| format!("{gap:.0}")),
            row.rss_mib.map_or_else(dash, |mib| format!("{mib:.0}")),
            match (row.loss, row.retransmits) {
                (Some(loss), _) => format!("{:.1} %", loss * 100.0),
                (None, Some(segments)) => format!("{segments:.0}"),
                (None, None) => dash(),
            },
            row.bound.map_or_else(dash, |(by, runs)| {
                format!("{} ({runs} of {})", by.words(), rate.summary.n)
            }),
            warnings(row),
        ];
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    let dropped = rows.iter().filter_map(|row| Some((&row.arm, row.cable_dropped?)));
    let dropped: Vec<_> = dropped
        .filter(|(_, [lost, overflowed])| lost + overflowed > 0.0)
        .map(|(arm, [lost, overflowed])| format!("{arm} {lost:.0} and {overflowed:.0}"))
        .collect();
    if !dropped.is_empty() {
        let _ = writeln!(
            out,
            "\nPackets that the cables lost at random, and that their queues had no room for: {}.",
            dropped.join("; ")
        );
    }
    let _ = writeln!(
        out,
        "\n[As CSV]({0}.csv)\n\n![{1} over time]({0}-time.svg)\n",
        case.name, case.about
    );
    out
}

fn heading(case: &Case) -> String {
    let (name, about) = (case.name, case.about);
    format!("## {name}\n\n{}.\n\n![{about}]({name}.svg)\n\n", sentence(about))
}

/// The table of an event.
fn event_section(case: &Case, rows: &[Row]) -> String {
    let mut out = heading(case);
    let _ = writeln!(
        out,
        "| arm | {} | lowest and highest | ratio | warnings |\n|---|---|---|---|---|",
        case.unit().name()
    );
    for row in rows {
        let Some(rate) = &row.rate else {
            let _ = writeln!(out, "| {} | void: {} | | | |", row.arm, row.void.join("; "));
            continue;
        };
        let _ = writeln!(
            out,
            "| {} | {} | {:.2}-{:.2} | {} | {} |",
            row.arm,
            estimate(rate, Unit::Gap),
            rate.summary.min,
            rate.summary.max,
            row.ratio.as_ref().map_or_else(|| "-".to_owned(), ratio),
            warnings(row)
        );
    }
    let _ = writeln!(out, "\n[As CSV]({}.csv)\n", case.name);
    out
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn warnings(row: &Row) -> String {
    let void = row.void.iter().map(|why| format!("void: {why}"));
    row.flags.iter().cloned().chain(void).collect::<Vec<_>>().join("; ")
}

fn estimate(rate: &Estimate, unit: Unit) -> String {
    match rate.interval {
        Some(Interval { low, high }) => {
            format!(
                "{} [{}-{}]",
                number(rate.median(), unit),
                number(low, unit),
                number(high, unit)
            )
        }
        None => number(rate.median(), unit),
    }
}

fn ratio(ratio: &Ratio) -> String {
    let Interval { low, high } = ratio.interval;
    format!("{:.2} [{low:.2}-{high:.2}]", ratio.ratio)
}

/// Formats three significant digits.
fn number(value: f64, unit: Unit) -> String {
    match value {
        _ if unit == Unit::Packets => format!("{:.1}k", value / 1e3),
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 1_000.0 => format!("{v:.0}"),
        v => {
            let whole = (v / 10.0).round() as u64 * 10;
            format!("{},{:03}", whole / 1_000, whole % 1_000)
        }
    }
}

fn about(setup: &Setup, cases: &[(&Case, Vec<Row>)], folder: &Path) -> String {
    let mut out = "## Set-up\n\n| what | value |\n|---|---|\n".to_owned();
    let conditions = [
        ("hosts and cables", setup.layout.clone()),
        ("each cable", setup.regime.clone()),
        (
            "UDP on plain cables",
            match setup.wire {
                true => "each datagram by itself, like a wire".to_owned(),
                false => "datagrams that were sent in one call in one piece, unlike a wire".to_owned(),
            },
        ),
        (
            "MTU inside",
            setup.mtu.map_or_else(
                || "each program's default".to_owned(),
                |mtu| format!("{mtu} bytes, every arm"),
            ),
        ),
        ("congestion control of the load", setup.congestion.clone()),
        (
            "congestion control of the namespaces",
            setup.namespace_congestion.clone(),
        ),
    ];
    for (what, value) in &conditions {
        let _ = writeln!(out, "| {what} | {value} |");
    }
    for (what, value) in &setup.machine {
        let _ = writeln!(out, "| {what} | {value} |");
    }
    out.push_str(
        "\n| arm | kind | MTU inside | threads | threads seen, sender / receiver | frames | settings | version | SHA-256 \
         of the program |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for arm in &setup.arms {
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let sha256 = or_dash(&arm.sha256).chars().take(16).collect::<String>();
        let settings = if arm.settings.is_empty() {
            "-".to_owned()
        } else {
            arm.settings.join(" ")
        };
        let mut of_arm = cases
            .iter()
            .flat_map(|(_, rows)| rows)
            .filter(|row| row.arm == arm.label);
        let seen = of_arm.clone().find_map(|row| row.threads);
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {settings} | {} | {sha256} |",
            arm.label,
            arm.kind,
            or_dash(&of_arm.clone().find_map(|row| row.mtu).map(|mtu| mtu.to_string())),
            arm.threads,
            or_dash(&seen.map(|[sender, receiver]| format!("{sender} / {receiver}"))),
            or_dash(&of_arm.find_map(|row| row.frames.clone())),
            or_dash(&arm.version)
        );
    }
    let digest = super::arm::digest(&folder.join("runs.jsonl")).unwrap_or_else(|_| "unreadable".to_owned());
    let _ = writeln!(
        out,
        "\nRaw data: `runs.jsonl` (SHA-256 {digest}), `runs.csv`, `setup.json`, `logs/`."
    );
    out
}

#[cfg(test)]
mod tests {
    use super::super::matrix::CASES;
    use super::super::record::tests::run;
    use super::*;

    #[test]
    fn a_report_has_a_row_for_every_arm_and_names_missing_ones() {
        let arms = ["direct".to_owned(), "weft".to_owned(), "dead".to_owned()];
        let records: Vec<Record> = (1..=5)
            .flat_map(|round| [run(round, "direct", 12_345.0), run(round, "weft", 812.0)])
            .collect();
        let rows = rows(&arms, "tcp", &records);
        let text = section(&CASES[0], &rows);
        assert!(text.contains("| direct | 12,350 [12,350-12,350] | - |"), "{text}");
        assert!(
            text.contains("| weft | 812 [812-812] | 0.07 [0.07-0.07] | 1.00 |"),
            "{text}"
        );
        assert!(text.contains("| dead | void"), "{text}");
        let overview = overview(&[(&CASES[0], rows)]);
        assert!(
            overview.contains("| weft | 812 |") && overview.contains("| dead | void |"),
            "{overview}"
        );
    }

    #[test]
    fn numbers_have_the_digits_that_count() {
        let numbers = [
            (0.5, "0.50"),
            (9.999, "10.00"),
            (812.4, "812"),
            (999.6, "1000"),
            (12_345.0, "12,350"),
        ];
        for (value, text) in numbers {
            assert_eq!(number(value, Unit::Mbit), text);
        }
        assert_eq!(number(123_456.0, Unit::Packets), "123.5k");
    }
}
