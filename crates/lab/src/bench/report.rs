//! The report of a bench: Markdown, with a plot for each case.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::matrix::Case;
use super::record::Record;
use super::setup::Setup;
use super::table::{Estimate, Row, rows};
use super::{Entrant, Missing, Options, plot};
use crate::stats::{Interval, Ratio};

/// Writes `report.md`, `setup.json` and the plots into the folder of results, and returns the
/// report's path.
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
        .map(|case| (case, rows(&arms, case.name, case.counts_packets(), records)))
        .collect();
    for (case, rows) in &cases {
        fs::write(folder.join(format!("{}.svg", case.name)), plot::bars(case, rows))?;
        fs::write(
            folder.join(format!("{}-time.svg", case.name)),
            plot::over_time(case, &arms, records),
        )?;
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
         Both hosts are namespaces of one machine, with one virtual cable between them: the CPUs are shared by \
         both ends and the load. {} TCP has {}. Medians with 95 % intervals; ratios are to the first arm, by rounds.\n",
        setup.rounds,
        setup.seconds,
        if setup.wire {
            "It carries each UDP datagram by itself, like a wire."
        } else {
            "It carries UDP datagrams that were sent in one call in one piece, unlike a wire."
        },
        setup.congestion
    );
    let _ = writeln!(out, "    {}\n", setup.command);
    out.push_str(&overview(cases));
    for Missing { label, lacks } in missing {
        let _ = writeln!(out, "**{label} did not run: {lacks} is missing.** See docs/peers.md.\n");
    }
    for (case, rows) in cases {
        out.push_str(&section(case, rows));
    }
    out.push_str(&about(setup, folder));
    out
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
            Some(rate) => number(rate.median(), case.counts_packets()),
            None => "void".to_owned(),
        };
        let cells: Vec<_> = cases.iter().map(cell).collect();
        let _ = writeln!(out, "| {} | {} |", row.arm, cells.join(" | "));
    }
    out.push_str("\nMbit/s; thousands of packets a second for pps.\n\n");
    out
}

fn section(case: &Case, rows: &[Row]) -> String {
    let unit = if case.counts_packets() { "packets/s" } else { "Mbit/s" };
    let mut out = format!(
        "## {}\n\n{}.\n\n![{}]({}.svg)\n\n",
        case.name,
        sentence(case.about),
        case.about,
        case.name
    );
    let _ = writeln!(
        out,
        "| arm | {unit} | ratio | CPU s/GB | ping idle, ms | loaded avg / P99, ms | RSS, MiB | lost or retransmitted | warnings |\n\
         |---|---|---|---|---|---|---|---|---|"
    );
    for row in rows {
        let Some(rate) = &row.rate else {
            let _ = writeln!(out, "| {} | void: {} | | | | | | | |", row.arm, row.void.join("; "));
            continue;
        };
        let dash = || "-".to_owned();
        let cells = [
            row.arm.clone(),
            estimate(rate, case.counts_packets()),
            row.ratio.as_ref().map_or_else(dash, ratio),
            row.cpu_s_per_gb
                .as_ref()
                .map_or_else(dash, |cpu| format!("{:.2}", cpu.median())),
            row.rtt.map_or_else(dash, |rtt| format!("{:.3}", rtt[0])),
            row.rtt
                .map_or_else(dash, |rtt| format!("{:.2} / {:.2}", rtt[1], rtt[2])),
            row.rss_mib.map_or_else(dash, |mib| format!("{mib:.0}")),
            match (row.loss, row.retransmits) {
                (Some(loss), _) => format!("{:.1} %", loss * 100.0),
                (None, Some(again)) => format!("{again:.0}"),
                (None, None) => dash(),
            },
            beware(row),
        ];
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    let _ = writeln!(out, "\n![{} over time]({}-time.svg)\n", case.about, case.name);
    out
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn beware(row: &Row) -> String {
    let void = row.void.iter().map(|why| format!("void: {why}"));
    row.flags.iter().cloned().chain(void).collect::<Vec<_>>().join("; ")
}

fn estimate(rate: &Estimate, packets: bool) -> String {
    match rate.interval {
        Some(Interval { low, high }) => {
            format!(
                "{} [{}-{}]",
                number(rate.median(), packets),
                number(low, packets),
                number(high, packets)
            )
        }
        None => number(rate.median(), packets),
    }
}

fn ratio(ratio: &Ratio) -> String {
    let Interval { low, high } = ratio.interval;
    format!("{:.2} [{low:.2}-{high:.2}]", ratio.ratio)
}

/// Formats three significant digits.
fn number(value: f64, packets: bool) -> String {
    match value {
        _ if packets => format!("{:.1}k", value / 1e3),
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 1_000.0 => format!("{v:.0}"),
        v => {
            let whole = (v / 10.0).round() as u64 * 10;
            format!("{},{:03}", whole / 1_000, whole % 1_000)
        }
    }
}

fn about(setup: &Setup, folder: &Path) -> String {
    let mut out = "## Set-up\n\n| what | value |\n|---|---|\n".to_owned();
    for (what, value) in &setup.machine {
        let _ = writeln!(out, "| {what} | {value} |");
    }
    out.push_str("\n| arm | kind | settings | version | SHA-256 of the program |\n|---|---|---|---|---|\n");
    for arm in &setup.arms {
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let sha256 = or_dash(&arm.sha256).chars().take(16).collect::<String>();
        let settings = if arm.settings.is_empty() {
            "-".to_owned()
        } else {
            arm.settings.join(" ")
        };
        let _ = writeln!(
            out,
            "| {} | {} | {settings} | {} | {sha256} |",
            arm.label,
            arm.kind,
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
        let rows = rows(&arms, "tcp", false, &records);
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
            assert_eq!(number(value, false), text);
        }
        assert_eq!(number(123_456.0, true), "123.5k");
    }
}
