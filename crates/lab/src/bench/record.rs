//! The record of every run: `runs.jsonl` with everything, `runs.csv` with the figures.

use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::measure::Figures;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its round, from 1.
    pub round: u32,
    /// The arm's label.
    pub arm: String,
    /// The case's name.
    pub case: String,
    /// Its result.
    #[serde(flatten)]
    pub result: Result,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Result {
    /// Figures.
    Figures(Box<Figures>),
    /// No valid figures, for this reason.
    Void(String),
}

impl Record {
    /// The figures, if the run is valid.
    #[must_use]
    pub fn figures(&self) -> Option<&Figures> {
        match &self.result {
            Result::Figures(figures) => Some(figures),
            Result::Void(_) => None,
        }
    }

    fn csv(&self) -> String {
        let void = match &self.result {
            Result::Void(why) => format!("\"{}\"", why.replace('"', "'").replace('\n', " ")),
            Result::Figures(_) => String::new(),
        };
        let Some(f) = self.figures() else {
            return format!(
                "{},{},{}{},{void}",
                self.round,
                self.arm,
                self.case,
                ",".repeat(COLUMNS.len() - 4)
            );
        };
        let or_empty = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.4}"));
        [
            self.round.to_string(),
            self.arm.clone(),
            self.case.clone(),
            format!("{:.2}", f.mbit_s),
            or_empty(f.packets_s),
            or_empty(f.loss),
            f.retransmits.map_or_else(String::new, |n| n.to_string()),
            or_empty(f.cpu_s_per_gb),
            format!("{:.3}", f.cpu_s[0]),
            format!("{:.3}", f.cpu_s[1]),
            format!("{:.2}", f.softirq_s),
            format!("{:.1}", f.rss_mib),
            format!("{:.3}", f.idle.avg_ms),
            format!("{:.3}", f.idle.p99_ms),
            format!("{:.3}", f.loaded.avg_ms),
            format!("{:.3}", f.loaded.p50_ms),
            format!("{:.3}", f.loaded.p99_ms),
            format!("{:.3}", f.loaded.max_ms),
            or_empty(f.mbit_s_per_cpu_percent.map(|both| both[0])),
            or_empty(f.mbit_s_per_cpu_percent.map(|both| both[1])),
            format!("{:.3}", f.relay_cpu_s),
            f.threads[0].to_string(),
            f.threads[1].to_string(),
            format!("{:.3}", f.idle_cpu),
            f.mtu.to_string(),
            f.frames.clone().unwrap_or_default(),
            or_empty(f.media.map(|media| media.longest_gap_ms)),
            f.media.map_or_else(String::new, |media| {
                media.sent.saturating_sub(media.received).to_string()
            }),
            f.cable_lost.to_string(),
            f.cable_overflowed.to_string(),
            or_empty(f.gap_s),
            f.bound.as_ref().map_or("", |bound| bound.by.words()).to_owned(),
            void,
        ]
        .join(",")
    }
}

const COLUMNS: [&str; 33] = [
    "round",
    "arm",
    "case",
    "mbit_s",
    "packets_s",
    "loss",
    "retransmits",
    "cpu_s_per_gb",
    "cpu_s_sender",
    "cpu_s_receiver",
    "softirq_s",
    "rss_mib",
    "idle_avg_ms",
    "idle_p99_ms",
    "loaded_avg_ms",
    "loaded_p50_ms",
    "loaded_p99_ms",
    "loaded_max_ms",
    "mbit_s_per_cpu_percent_sender",
    "mbit_s_per_cpu_percent_receiver",
    "cpu_s_relay",
    "threads_sender",
    "threads_receiver",
    "idle_cpu",
    "mtu",
    "frames",
    "media_gap_ms",
    "media_lost",
    "cable_lost",
    "cable_overflowed",
    "gap_s",
    "bound",
    "void",
];

/// One line of progress.
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "round {}  {:<24} {:<12} ", self.round, self.arm, self.case)?;
        match &self.result {
            Result::Void(why) => write!(f, "VOID: {why}"),
            Result::Figures(figures) => {
                if let Some(gap) = figures.gap_s {
                    return write!(f, "{gap:>9.3} s without payload");
                }
                write!(f, "{:>9.1} Mbit/s", figures.mbit_s)?;
                if let Some(cpu) = figures.cpu_s_per_gb {
                    write!(f, "  {cpu:>6.2} CPU s/GB")?;
                }
                if let Some(loss) = figures.loss {
                    write!(f, "  {:>5.1} % lost", loss * 100.0)?;
                }
                write!(
                    f,
                    "  ping {:.2} / {:.2} ms",
                    figures.loaded.avg_ms, figures.loaded.p99_ms
                )?;
                if let Some(media) = figures.media {
                    write!(f, "  media gap {:.0} ms", media.longest_gap_ms)?;
                }
                match &figures.bound {
                    Some(bound) => write!(f, "  bound by {}", bound.by.words()),
                    None => Ok(()),
                }
            }
        }
    }
}

/// The runs, stored as they finish: an interrupted bench leaves those before.
pub struct Records {
    all: Vec<Record>,
    json: File,
    csv: File,
}

impl Records {
    /// Creates both files in `folder`.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn create(folder: &Path) -> io::Result<Self> {
        let mut csv = File::create(folder.join("runs.csv"))?;
        writeln!(csv, "{}", COLUMNS.join(","))?;
        Ok(Self {
            all: Vec::new(),
            json: File::create(folder.join("runs.jsonl"))?,
            csv,
        })
    }

    /// Stores one run.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, record: Record) -> io::Result<()> {
        writeln!(self.json, "{}", serde_json::to_string(&record)?)?;
        writeln!(self.csv, "{}", record.csv())?;
        self.all.push(record);
        Ok(())
    }

    /// All runs, in order.
    #[must_use]
    pub fn all(&self) -> &[Record] {
        &self.all
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A run with this throughput.
    pub(in crate::bench) fn run(round: u32, arm: &str, mbit_s: f64) -> Record {
        let figures = Figures {
            mbit_s,
            packets_s: None,
            loss: None,
            retransmits: Some(3),
            idle: weft_perf::latency::Latency::default(),
            loaded: weft_perf::latency::Latency::default(),
            cpu_s_per_gb: Some(1.0),
            cpu_s: [1.0, 2.0],
            softirq_s: 0.5,
            rss_mib: 9.0,
            seconds: vec![mbit_s; 3],
            mbit_s_per_cpu_percent: Some([mbit_s / 50.0, mbit_s / 100.0]),
            ..Figures::default()
        };
        Record {
            round,
            arm: arm.to_owned(),
            case: "tcp".to_owned(),
            result: Result::Figures(Box::new(figures)),
        }
    }

    #[test]
    fn every_line_of_the_csv_has_all_columns() {
        let void = Record {
            result: Result::Void("a \"b\", c".to_owned()),
            ..run(1, "weft", 1.0)
        };
        assert_eq!(run(1, "weft", 1.0).csv().split(',').count(), COLUMNS.len());
        let line = void.csv();
        let (fields, why) = line.split_once('"').unwrap();
        assert_eq!(fields.split(',').count(), COLUMNS.len());
        assert_eq!(why, "a 'b', c\"");
    }

    #[test]
    fn runs_are_on_disk_at_once_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut records = Records::create(folder.path()).unwrap();
        records.add(run(1, "weft", 812.5)).unwrap();
        let text = std::fs::read_to_string(folder.path().join("runs.jsonl")).unwrap();
        let read: Record = serde_json::from_str(text.trim()).unwrap();
        assert_eq!(read, run(1, "weft", 812.5));
        assert_eq!(
            std::fs::read_to_string(folder.path().join("runs.csv"))
                .unwrap()
                .lines()
                .count(),
            2
        );
    }
}
