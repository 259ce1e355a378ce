//! Statistics of a few runs, with their uncertainty (L37).
//!
//! - [`Summary`]: one arm by itself, with warnings.
//! - [`paired_ratio`]: two arms, by the rounds in which both ran.
//! - [`median_interval`], [`ratio_of_medians`]: the uncertainty of a median, and of the ratio of two,
//!   by resampling.
//!
//! Means and variances are those of samples (`n - 1`). Everything here is pure; random numbers come
//! from a seed.

mod compare;
mod resample;

pub use compare::{Ratio, paired_ratio};
pub use resample::{median_interval, ratio_of_medians};

/// A coefficient of variation above this is flagged.
const UNSTEADY: f64 = 0.03;
/// A run further from the median than this share of it is flagged.
const OUTLYING: f64 = 0.2;

/// An interval that contains the true value with a stated confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Its lower bound.
    pub low: f64,
    /// Its upper bound.
    pub high: f64,
}

impl Interval {
    /// Whether the interval contains a value.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Whether two intervals have a value in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }
}

/// Why statistics cannot be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatsError {
    /// Fewer values than the figure needs.
    #[error("{found} runs, {needed} are needed")]
    TooFew {
        /// The number of values.
        found: usize,
        /// The required number.
        needed: usize,
    },
    /// A value is not a number, or infinite.
    #[error("run {0} is not a number")]
    NotFinite(usize),
    /// A ratio needs positive values.
    #[error("run {0} is not positive, so there is no ratio")]
    NotPositive(usize),
    /// Pairs need the same number of values on both sides.
    #[error("{0} runs on one side, {1} on the other")]
    NotPaired(usize, usize),
}

/// The statistics of one arm's runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Number of runs.
    pub n: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Half of the runs lie below.
    pub median: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
    /// Standard deviation of the sample; 0 for a single run.
    pub stddev: f64,
    /// Coefficient of variation: standard deviation by mean; 0 if the mean is 0.
    pub cov: f64,
    /// The 10th percentile, interpolated linearly between runs (R's type 7).
    pub p10: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The coefficient of variation is above 3 %.
    pub unsteady: bool,
    /// Runs, counted from 0, that are more than 20 % off the median.
    pub outliers: Vec<usize>,
}

impl Summary {
    /// Summarises at least one run.
    ///
    /// # Errors
    /// [`StatsError::TooFew`] for none, [`StatsError::NotFinite`].
    pub fn of(runs: &[f64]) -> Result<Self, StatsError> {
        check(runs, 1)?;
        let (mean, variance) = moments(runs);
        let sorted = sorted(runs);
        let median = percentile(&sorted, 0.5);
        let stddev = variance.sqrt();
        let cov = if mean == 0.0 { 0.0 } else { stddev / mean.abs() };
        let outlying = |(i, run): (usize, &f64)| ((run - median).abs() > OUTLYING * median.abs()).then_some(i);
        Ok(Self {
            n: runs.len(),
            mean,
            median,
            min: percentile(&sorted, 0.0),
            max: percentile(&sorted, 1.0),
            stddev,
            cov,
            p10: percentile(&sorted, 0.1),
            p90: percentile(&sorted, 0.9),
            unsteady: cov > UNSTEADY,
            outliers: runs.iter().enumerate().filter_map(outlying).collect(),
        })
    }
}

fn check(runs: &[f64], needed: usize) -> Result<(), StatsError> {
    if let Some(bad) = runs.iter().position(|run| !run.is_finite()) {
        return Err(StatsError::NotFinite(bad));
    }
    let found = runs.len();
    if found < needed {
        return Err(StatsError::TooFew { found, needed });
    }
    Ok(())
}

/// Mean, and variance of the sample.
fn moments(runs: &[f64]) -> (f64, f64) {
    let n = runs.len() as f64;
    let mean = runs.iter().sum::<f64>() / n;
    let squares: f64 = runs.iter().map(|run| (run - mean).powi(2)).sum();
    (mean, if runs.len() > 1 { squares / (n - 1.0) } else { 0.0 })
}

fn sorted(runs: &[f64]) -> Vec<f64> {
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The value below which a share of the sorted runs is, interpolated linearly.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let at = share * last as f64;
    let (below, part) = (at.floor() as usize, at.fract());
    let low = sorted.get(below.min(last)).copied().unwrap_or(f64::NAN);
    let high = sorted.get((below + 1).min(last)).copied().unwrap_or(low);
    low + (high - low) * part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * b.abs().max(1.0)
    }

    /// R: x <- c(2, 4, 4, 4, 5, 5, 7, 9); mean, sd, quantile(x, c(.1, .5, .9)).
    #[test]
    fn a_known_sample() {
        let s = Summary::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert!(close(s.mean, 5.0) && close(s.median, 4.5));
        assert!(close(s.stddev, (32.0_f64 / 7.0).sqrt()), "{}", s.stddev);
        assert!(close(s.p10, 3.4) && close(s.p90, 7.6), "{s:?}");
        assert_eq!((s.n, s.min, s.max, s.unsteady), (8, 2.0, 9.0, true));
        assert_eq!(s.outliers, [0, 6, 7]);
    }

    #[test]
    fn the_median_of_an_even_count_is_between_the_two_in_the_middle() {
        let median = |runs: &[f64]| Summary::of(runs).unwrap().median;
        assert_eq!(median(&[1.0, 3.0]), 2.0);
        assert_eq!(median(&[9.0, 1.0, 2.0, 4.0]), 3.0);
        assert_eq!(median(&[9.0, 1.0, 2.0]), 2.0);
    }

    #[test]
    fn steady_runs_are_not_flagged() {
        let s = Summary::of(&[100.0, 101.0, 99.0, 100.5]).unwrap();
        assert!(!s.unsteady && s.outliers.is_empty());
        let alone = Summary::of(&[7.0]).unwrap();
        assert_eq!((alone.median, alone.stddev, alone.p10, alone.p90), (7.0, 0.0, 7.0, 7.0));
    }

    #[test]
    fn an_invalid_sample_is_refused() {
        assert_eq!(Summary::of(&[]), Err(StatsError::TooFew { found: 0, needed: 1 }));
        assert_eq!(Summary::of(&[1.0, f64::NAN]), Err(StatsError::NotFinite(1)));
        assert_eq!(Summary::of(&[f64::INFINITY]), Err(StatsError::NotFinite(0)));
        assert_eq!(Summary::of(&[0.0, 0.0]).unwrap().cov, 0.0);
    }
}
