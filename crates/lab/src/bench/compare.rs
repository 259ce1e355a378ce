//! A comparison of two benches of the same arms and cases.
//!
//! Their runs were made at different times, so they are not paired: intervals of medians are
//! compared, and the ratio is that of the medians, by resampling both.

use std::fmt;
use std::io;
use std::path::Path;

use super::matrix::Unit;
use super::record::Record;
use super::table::{CONFIDENCE, Estimate, SEED};
use crate::stats::{Interval, Ratio, ratio_of_medians};

/// One arm in one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The arm's label.
    pub arm: String,
    /// The case's name.
    pub case: String,
    /// The case's first figure, in its [`Unit`], in the first and in the second bench; `None` without
    /// a valid run.
    pub rates: [Option<Estimate>; 2],
    /// The ratio of the second to the first; `None` if one has fewer than three runs.
    pub ratio: Option<Ratio>,
}

/// The verdict on an arm in a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The intervals of the medians overlap: no difference is shown.
    Same,
    /// The intervals do not overlap: one is faster.
    Apart,
    /// Too few runs: an interval takes three.
    TooFew,
    /// The first or the second (0, 1) has no valid run.
    Missing(usize),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same => f.write_str("intervals overlap"),
            Self::Apart => f.write_str("APART"),
            Self::TooFew => f.write_str("too few runs"),
            Self::Missing(0) => f.write_str("not in the first"),
            Self::Missing(_) => f.write_str("not in the second"),
        }
    }
}

impl Comparison {
    /// The verdict on the two benches.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match &self.rates {
            [None, _] => Verdict::Missing(0),
            [_, None] => Verdict::Missing(1),
            [Some(first), Some(second)] => match (first.interval, second.interval) {
                (Some(first), Some(second)) if first.overlaps(&second) => Verdict::Same,
                (Some(_), Some(_)) => Verdict::Apart,
                _ => Verdict::TooFew,
            },
        }
    }

    fn new(arm: &str, case: &str, benches: [&[Record]; 2]) -> Self {
        let unit = Unit::of_case(case);
        let runs = benches.map(|records| -> Vec<f64> {
            let ours = records.iter().filter(|r| r.arm == arm && r.case == case);
            ours.filter_map(Record::figures)
                .map(|figures| unit.of(figures))
                .collect()
        });
        let [first, second] = &runs;
        Self {
            arm: arm.to_owned(),
            case: case.to_owned(),
            ratio: ratio_of_medians(second, first, CONFIDENCE, SEED).ok(),
            rates: runs.map(|runs| Estimate::of(&runs)),
        }
    }
}

/// A row for display.
impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = self.rates.each_ref().map(|rate| {
            let rate = rate.as_ref();
            rate.map_or_else(|| "-".to_owned(), |rate| with_interval(rate.median(), rate.interval, 0))
        });
        let ratio = self
            .ratio
            .map(|ratio| with_interval(ratio.ratio, Some(ratio.interval), 3));
        let ratio = ratio.unwrap_or_else(|| "-".to_owned());
        let (arm, case, verdict) = (&self.arm, &self.case, self.verdict());
        write!(
            f,
            "{arm:<20} {case:<13} {first:>26} {second:>26} {ratio:>22}  {verdict}"
        )
    }
}

fn with_interval(value: f64, interval: Option<Interval>, digits: usize) -> String {
    match interval {
        Some(Interval { low, high }) => format!("{value:.digits$} [{low:.digits$}-{high:.digits$}]"),
        None => format!("{value:.digits$}"),
    }
}

/// The columns of the rows.
#[must_use]
pub fn columns() -> String {
    let names = ["arm", "case", "first", "second", "second / first"];
    let [arm, case, first, second, ratio] = names;
    format!("{arm:<20} {case:<13} {first:>26} {second:>26} {ratio:>22}")
}

/// Compares all arms and cases of either, in the order of the first, then of the second.
#[must_use]
pub fn compare(first: &[Record], second: &[Record]) -> Vec<Comparison> {
    let mut keys: Vec<(&str, &str)> = Vec::new();
    for record in first.iter().chain(second) {
        let key = (record.arm.as_str(), record.case.as_str());
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let all = keys.into_iter();
    all.map(|(arm, case)| Comparison::new(arm, case, [first, second]))
        .collect()
}

/// The runs of the bench whose results are in `folder`.
///
/// # Errors
/// If its `runs.jsonl` cannot be read or parsed.
pub fn read(folder: &Path) -> io::Result<Vec<Record>> {
    let text = std::fs::read_to_string(folder.join("runs.jsonl"))?;
    let record = |line| serde_json::from_str(line).map_err(io::Error::from);
    text.lines().map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::run;
    use super::super::record::{Records, Result};
    use super::*;

    fn bench(arm: &str, rates: &[f64]) -> Vec<Record> {
        (1..).zip(rates).map(|(round, rate)| run(round, arm, *rate)).collect()
    }

    fn only(first: &[Record], second: &[Record]) -> Comparison {
        let mut all = compare(first, second);
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// With three runs the interval of the median is their range.
    #[test]
    fn intervals_decide() {
        let first = bench("weft", &[90.0, 100.0, 110.0]);
        let near = only(&first, &bench("weft", &[109.0, 120.0, 130.0]));
        assert_eq!(near.verdict(), Verdict::Same);
        let far = only(&first, &bench("weft", &[111.0, 120.0, 130.0]));
        assert_eq!(far.verdict(), Verdict::Apart);
        assert_eq!(only(&first, &first).verdict(), Verdict::Same);
    }

    /// Of three runs, a resampled median is the lowest in 7 of 27 cases: two medians are at opposite
    /// ends in 6.7 % of the samples, more than the interval leaves out at each side.
    #[test]
    fn a_known_ratio() {
        let around = |middle: f64| [middle, middle * 0.1_f64.exp(), middle * (-0.1_f64).exp()];
        let twice = only(&bench("weft", &around(100.0)), &bench("weft", &around(200.0)));
        let ratio = twice.ratio.unwrap();
        let close = |a: f64, b: f64| (a - b).abs() < 1e-3;
        assert!(close(ratio.ratio, 2.0), "{ratio:?}");
        assert!(close(ratio.interval.low, 2.0 * (-0.2_f64).exp()), "{ratio:?}");
        assert!(close(ratio.interval.high, 2.0 * 0.2_f64.exp()), "{ratio:?}");
        let text = twice.to_string();
        assert!(
            text.contains("2.000 [1.637-2.443]") && text.ends_with("APART"),
            "{text}"
        );
    }

    #[test]
    fn missing_and_few_runs_have_verdicts_of_their_own() {
        let first = bench("weft", &[90.0, 100.0, 110.0]);
        let few = only(&first, &bench("weft", &[90.0, 100.0]));
        assert_eq!(few.verdict(), Verdict::TooFew);
        let mut void = bench("weft", &[1.0]);
        void[0].result = Result::Void("it broke".to_owned());
        assert_eq!(only(&first, &void).verdict(), Verdict::Missing(1));
        let both = compare(&first, &bench("null", &[1.0, 1.0, 1.0]));
        let verdicts: Vec<_> = both.iter().map(|row| (row.arm.as_str(), row.verdict())).collect();
        assert_eq!(verdicts, [("weft", Verdict::Missing(1)), ("null", Verdict::Missing(0))]);
    }

    #[test]
    fn packets_count_where_the_case_is_about_them() {
        let mut records = bench("weft", &[1.0]);
        records[0].case = "pps64".to_owned();
        if let Result::Figures(figures) = &mut records[0].result {
            figures.packets_s = Some(250_000.0);
        }
        let row = only(&records, &records);
        assert_eq!(row.rates[0].as_ref().unwrap().median(), 250_000.0);
    }

    #[test]
    fn a_folder_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut records = Records::create(folder.path()).unwrap();
        for record in bench("weft", &[1.0, 2.0]) {
            records.add(record).unwrap();
        }
        assert_eq!(read(folder.path()).unwrap(), records.all());
        std::fs::write(folder.path().join("runs.jsonl"), "{}\n").unwrap();
        assert!(read(folder.path()).is_err());
        assert!(read(&folder.path().join("none")).is_err());
    }
}
