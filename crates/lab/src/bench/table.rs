//! The summary of a bench's runs: medians with intervals, ratios by rounds, and warnings.

use std::collections::BTreeMap;

use crate::stats::{Interval, Ratio, StatsError, Summary, median_interval, paired_ratio};

use super::bound::By;
use super::matrix::Unit;
use super::measure::Figures;
use super::record::Record;

/// The confidence level of all intervals, also of [`paired_ratio`].
pub const CONFIDENCE: f64 = 0.95;

/// The seed of the resampling, so that the same runs give the same report.
pub(super) const SEED: u64 = 37;

/// One arm in one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The arm's label.
    pub arm: String,
    /// The case's first figure, in its [`Unit`].
    pub rate: Option<Estimate>,
    /// The ratio to the rate of the first arm, over the rounds in which both have one.
    pub ratio: Option<Ratio>,
    /// CPU seconds of the tunnel for 10^9 bytes.
    pub cpu_s_per_gb: Option<Estimate>,
    /// Medians of the round trips in ms: idle mean, loaded mean, loaded P99.
    pub rtt: Option<[f64; 3]>,
    /// Median memory of the larger end, MiB.
    pub rss_mib: Option<f64>,
    /// Median of the share of datagrams lost.
    pub loss: Option<f64>,
    /// Median of retransmitted TCP segments.
    pub retransmits: Option<f64>,
    /// Medians of Mbit/s for each percent of a CPU, of the sender's and the receiver's tunnel.
    pub mbit_s_per_cpu_percent: Option<[f64; 2]>,
    /// Median of the longest gap of the media stream, ms.
    pub media_gap_ms: Option<f64>,
    /// Medians of packets that cables lost at random, and that their queues had no room for.
    pub cable_dropped: Option<[f64; 2]>,
    /// What bound most of the runs, and how many.
    pub bound: Option<(By, usize)>,
    /// MTU inside the tunnel, bytes, in the first run.
    pub mtu: Option<u32>,
    /// Threads of the tunnel at sender and receiver, in the first run.
    pub threads: Option<[u32; 2]>,
    /// The kind of frames, in the first run.
    pub frames: Option<String>,
    /// The reasons of void runs, each once.
    pub void: Vec<String>,
    /// Warnings about the figures.
    pub flags: Vec<String>,
}

/// A median and its uncertainty.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// The summary of the runs.
    pub summary: Summary,
    /// Of the median, by resampling; `None` for a single run.
    pub interval: Option<Interval>,
}

impl Estimate {
    pub(super) fn of(runs: &[f64]) -> Option<Self> {
        Some(Self {
            summary: Summary::of(runs).ok()?,
            interval: (runs.len() > 1)
                .then(|| median_interval(runs, CONFIDENCE, SEED).ok())
                .flatten(),
        })
    }

    /// The median.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.summary.median
    }
}

/// The rows of one case, in the order of `arms`; the others are compared with the first.
#[must_use]
pub fn rows(arms: &[String], case: &str, records: &[Record]) -> Vec<Row> {
    let unit = Unit::of_case(case);
    let of_arm = |arm: &str| -> Vec<&Record> { records.iter().filter(|r| r.case == case && r.arm == arm).collect() };
    let by_round = |arm: &String| -> Vec<(u32, f64)> {
        of_arm(arm)
            .into_iter()
            .filter_map(|r| Some((r.round, unit.of(r.figures()?))))
            .collect()
    };
    let first = |arm: &str| of_arm(arm).into_iter().find_map(Record::figures);
    let base = arms.first().map(by_round).unwrap_or_default();
    let row = |(n, arm): (usize, &String)| {
        let own = by_round(arm);
        let rates: Vec<f64> = own.iter().map(|(_, rate)| *rate).collect();
        let column = |of: fn(&Figures) -> Option<f64>| -> Vec<f64> {
            of_arm(arm).into_iter().filter_map(|r| of(r.figures()?)).collect()
        };
        let median = |of| Summary::of(&column(of)).ok().map(|summary| summary.median);
        let rate = Estimate::of(&rates);
        let mut void: Vec<String> = of_arm(arm).into_iter().filter_map(void_because).collect();
        void.sort();
        void.dedup();
        Row {
            arm: arm.clone(),
            ratio: if n == 0 { None } else { ratio(&own, &base).ok() },
            flags: rate.as_ref().map(flags).unwrap_or_default(),
            rate,
            cpu_s_per_gb: Estimate::of(&column(|f| f.cpu_s_per_gb)),
            rtt: rtt(
                median(|f| Some(f.idle.avg_ms)),
                median(|f| Some(f.loaded.avg_ms)),
                median(|f| Some(f.loaded.p99_ms)),
            ),
            rss_mib: median(|f| (f.rss_mib > 0.0).then_some(f.rss_mib)),
            loss: median(|f| f.loss),
            retransmits: median(|f| f.retransmits.map(|n| n as f64)),
            mbit_s_per_cpu_percent: both([
                median(|f| Some(f.mbit_s_per_cpu_percent?[0])),
                median(|f| Some(f.mbit_s_per_cpu_percent?[1])),
            ]),
            media_gap_ms: median(|f| Some(f.media?.longest_gap_ms)),
            cable_dropped: both([
                median(|f| Some(f.cable_lost as f64)),
                median(|f| Some(f.cable_overflowed as f64)),
            ]),
            bound: most(
                of_arm(arm)
                    .into_iter()
                    .filter_map(|r| Some(r.figures()?.bound.as_ref()?.by)),
            ),
            mtu: first(arm).map(|f| f.mtu).filter(|mtu| *mtu > 0),
            threads: first(arm).map(|f| f.threads).filter(|threads| *threads != [0; 2]),
            frames: first(arm).and_then(|f| f.frames.clone()),
            void,
        }
    };
    arms.iter().enumerate().map(row).collect()
}

fn both([a, b]: [Option<f64>; 2]) -> Option<[f64; 2]> {
    Some([a?, b?])
}

/// The most frequent verdict, of equals the first of [`By`], and how often it occurs.
fn most(all: impl Iterator<Item = By>) -> Option<(By, usize)> {
    let mut counts = BTreeMap::new();
    for by in all {
        *counts.entry(by).or_insert(0) += 1;
    }
    counts.into_iter().rev().max_by_key(|(_, count)| *count)
}

fn rtt(idle: Option<f64>, loaded: Option<f64>, p99: Option<f64>) -> Option<[f64; 3]> {
    Some([idle?, loaded?, p99?])
}

fn void_because(record: &Record) -> Option<String> {
    match &record.result {
        super::record::Result::Void(why) => Some(why.clone()),
        super::record::Result::Figures(_) => None,
    }
}

/// Over the rounds that both have: other rounds would compare different times.
fn ratio(own: &[(u32, f64)], base: &[(u32, f64)]) -> Result<Ratio, StatsError> {
    let of_base = |round: u32| base.iter().find(|(other, _)| *other == round).map(|(_, rate)| *rate);
    let pairs = own.iter().filter_map(|(round, rate)| Some((*rate, of_base(*round)?)));
    let (own, base): (Vec<f64>, Vec<f64>) = pairs.unzip();
    paired_ratio(&own, &base)
}

fn flags(rate: &Estimate) -> Vec<String> {
    let summary = &rate.summary;
    let mut flags = Vec::new();
    if summary.n < 5 {
        flags.push(format!("{} runs", summary.n));
    }
    if summary.unsteady {
        flags.push(format!("CoV {:.0} %", summary.cov * 100.0));
    }
    if !summary.outliers.is_empty() {
        flags.push(format!(
            "{} of {} runs more than 20 % off",
            summary.outliers.len(),
            summary.n
        ));
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::run;
    use super::super::record::{Record, Result};
    use super::*;

    fn arms() -> Vec<String> {
        vec!["direct".to_owned(), "weft".to_owned()]
    }

    #[test]
    fn ratios_are_by_rounds_that_both_have() {
        let mut records = vec![run(1, "direct", 100.0), run(1, "weft", 50.0), run(2, "weft", 100.0)];
        records.push(run(2, "direct", 200.0));
        // A third round in which the first arm failed must not count for the ratio, although it
        // does for the median.
        records.push(run(3, "weft", 900.0));
        records.push(Record {
            result: Result::Void("it broke".to_owned()),
            ..run(3, "direct", 0.0)
        });
        let rows = rows(&arms(), "tcp", &records);
        assert!(rows[0].ratio.is_none());
        assert_eq!(rows[0].void, ["it broke"]);
        let ratio = rows[1].ratio.unwrap();
        assert!((ratio.ratio - 0.5).abs() < 1e-9, "{ratio:?}");
        assert_eq!(rows[1].rate.as_ref().unwrap().median(), 100.0);
    }

    #[test]
    fn suspicious_results_are_flagged() {
        let steady: Vec<Record> = (1..=5).map(|round| run(round, "weft", 100.0)).collect();
        assert!(rows(&arms()[1..], "tcp", &steady)[0].flags.is_empty());
        let few = rows(&arms()[1..], "tcp", &steady[..2]);
        assert_eq!(few[0].flags, ["2 runs"]);
        let mut wild = steady;
        wild[4] = run(5, "weft", 300.0);
        let flags = rows(&arms()[1..], "tcp", &wild)[0].flags.join(", ");
        assert!(flags.contains("CoV 64 %") && flags.contains("1 of 5 runs"), "{flags}");
    }

    #[test]
    fn an_arm_without_runs_has_an_empty_row() {
        let rows = rows(&arms(), "tcp", &[run(1, "direct", 5.0)]);
        assert!(rows[1].rate.is_none() && rows[1].ratio.is_none() && rows[1].rtt.is_none());
    }
}
