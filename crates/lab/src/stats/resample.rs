//! The bootstrap: the distribution of a statistic over resampled runs.

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

use super::{Interval, Ratio, StatsError, check, percentile, sorted};

/// Number of samples. The bounds of a 95 % interval then vary by about a percent of its width.
const SAMPLES: usize = 10_000;

/// The interval of the median with this confidence (a share, such as 0.95): percentiles of the
/// medians of samples drawn with replacement. The same seed gives the same interval. At least three
/// runs.
///
/// # Errors
/// [`StatsError::TooFew`], [`StatsError::NotFinite`].
pub fn median_interval(runs: &[f64], confidence: f64, seed: u64) -> Result<Interval, StatsError> {
    check(runs, 3)?;
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let medians: Vec<f64> = (0..SAMPLES).map(|_| resampled_median(runs, &mut rng)).collect();
    Ok(middle(&medians, confidence))
}

/// The ratio of the medians of two arms that did not run alternately, with its interval by the same
/// resampling of both.
///
/// # Errors
/// Like [`median_interval`]; values must be positive.
pub fn ratio_of_medians(a: &[f64], b: &[f64], confidence: f64, seed: u64) -> Result<Ratio, StatsError> {
    for runs in [a, b] {
        check(runs, 3)?;
        if let Some(bad) = runs.iter().position(|run| *run <= 0.0) {
            return Err(StatsError::NotPositive(bad));
        }
    }
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let ratios = (0..SAMPLES).map(|_| resampled_median(a, &mut rng) / resampled_median(b, &mut rng));
    Ok(Ratio {
        ratio: percentile(&sorted(a), 0.5) / percentile(&sorted(b), 0.5),
        interval: middle(&ratios.collect::<Vec<_>>(), confidence),
    })
}

/// The median of as many runs, drawn with replacement.
fn resampled_median(runs: &[f64], rng: &mut ChaCha20Rng) -> f64 {
    let mut draw = || runs.get(below(rng, runs.len())).copied().unwrap_or_default();
    let sample: Vec<f64> = (0..runs.len()).map(|_| draw()).collect();
    percentile(&sorted(&sample), 0.5)
}

/// The interval that has the share `confidence` of the values in its middle.
fn middle(values: &[f64], confidence: f64) -> Interval {
    let values = sorted(values);
    let outside = (1.0 - confidence) / 2.0;
    Interval {
        low: percentile(&values, outside),
        high: percentile(&values, 1.0 - outside),
    }
}

/// A number below `n`: the high half of a product, whose bias is `n` in 2^64.
fn below(rng: &mut ChaCha20Rng, n: usize) -> usize {
    ((u128::from(rng.next_u64()) * n as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_runs_give_their_own_span() {
        let interval = median_interval(&[3.0, 1.0, 2.0], 0.99, 1).unwrap();
        assert_eq!((interval.low, interval.high), (1.0, 3.0));
    }

    #[test]
    fn the_seed_decides_and_equal_runs_leave_no_doubt() {
        let runs = [5.0, 9.0, 7.0, 6.0, 8.0, 7.5, 6.5];
        assert_eq!(median_interval(&runs, 0.95, 3), median_interval(&runs, 0.95, 3));
        let sure = median_interval(&[4.0; 5], 0.95, 1).unwrap();
        assert_eq!((sure.low, sure.high), (4.0, 4.0));
    }

    /// The interval of a median by order statistics is known without resampling: with 15 runs, the
    /// 4th to the 12th contain it in 96.5 % of all cases (binomial, 1/2).
    #[test]
    fn it_agrees_with_the_order_statistics() {
        let runs: Vec<f64> = (1..=15).map(f64::from).collect();
        let interval = median_interval(&runs, 0.965, 7).unwrap();
        assert!(
            (interval.low - 4.0).abs() <= 1.0 && (interval.high - 12.0).abs() <= 1.0,
            "{interval:?}"
        );
    }

    /// Of many medians of known samples, about 95 of 100 intervals contain the true one.
    #[test]
    fn it_covers_what_it_promises() {
        let mut rng = ChaCha20Rng::seed_from_u64(42);
        let held = (0..200)
            .filter(|seed| {
                let runs: Vec<f64> = (0..21).map(|_| below(&mut rng, 1_000_000) as f64).collect();
                median_interval(&runs, 0.95, *seed).unwrap().contains(500_000.0)
            })
            .count();
        assert!((178..=200).contains(&held), "{held} of 200");
    }

    #[test]
    fn two_runs_are_too_few() {
        assert_eq!(
            median_interval(&[1.0, 2.0], 0.95, 1),
            Err(StatsError::TooFew { found: 2, needed: 3 })
        );
    }
}
