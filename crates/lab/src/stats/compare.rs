//! Comparison of two arms.

use super::{Interval, StatsError, check, moments, student};

/// Welch's t test of two means whose variances may differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Welch {
    /// Mean of the first less mean of the second.
    pub difference: f64,
    /// The statistic; infinite if neither arm varies and they differ.
    pub t: f64,
    /// Degrees of freedom, after Welch and Satterthwaite.
    pub df: f64,
    /// The probability of a difference at least this large by chance alone.
    pub p: f64,
    /// The confidence interval of the difference.
    pub interval: Interval,
}

/// The ratio of the first arm to the second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The estimate.
    pub ratio: f64,
    /// The confidence interval of the ratio.
    pub interval: Interval,
}

impl Ratio {
    /// Whether the interval excludes 1: the arms differ.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        !self.interval.contains(1.0)
    }
}

/// Compares the means of two arms with at least two runs each. `confidence` is a share, such as 0.95.
///
/// # Errors
/// [`StatsError::TooFew`], [`StatsError::NotFinite`].
pub fn welch(a: &[f64], b: &[f64], confidence: f64) -> Result<Welch, StatsError> {
    check(a, 2)?;
    check(b, 2)?;
    let ((mean_a, var_a), (mean_b, var_b)) = (moments(a), moments(b));
    let (share_a, share_b) = (var_a / a.len() as f64, var_b / b.len() as f64);
    let difference = mean_a - mean_b;
    let error = (share_a + share_b).sqrt();
    let freedom = |share: f64, n: usize| share.powi(2) / (n - 1) as f64;
    let df = match freedom(share_a, a.len()) + freedom(share_b, b.len()) {
        0.0 => (a.len() + b.len() - 2) as f64,
        sum => (share_a + share_b).powi(2) / sum,
    };
    let t = if difference == 0.0 { 0.0 } else { difference / error };
    let reach = student::quantile(confidence, df) * error;
    Ok(Welch {
        difference,
        t,
        df,
        p: student::two_sided(t.abs(), df),
        interval: around(difference, reach),
    })
}

/// The ratio of two arms, by the means of their logarithms, so that twice and half are equally far
/// from one.
///
/// # Errors
/// [`StatsError`]; values must be positive.
pub fn ratio_of_means(a: &[f64], b: &[f64], confidence: f64) -> Result<Ratio, StatsError> {
    let test = welch(&logs(a)?, &logs(b)?, confidence)?;
    Ok(from_logs(test.difference, test.interval))
}

/// The ratio of two arms that ran alternately: `a[i]` and `b[i]` in the same round, so that a
/// disturbance of a whole round affects both. At least two rounds.
///
/// # Errors
/// [`StatsError`]; values must be positive.
pub fn paired_ratio(a: &[f64], b: &[f64], confidence: f64) -> Result<Ratio, StatsError> {
    if a.len() != b.len() {
        return Err(StatsError::NotPaired(a.len(), b.len()));
    }
    check(a, 2)?;
    let ratios: Vec<f64> = logs(a)?.iter().zip(logs(b)?).map(|(a, b)| a - b).collect();
    let (mean, variance) = moments(&ratios);
    let n = ratios.len() as f64;
    let reach = student::quantile(confidence, n - 1.0) * (variance / n).sqrt();
    Ok(from_logs(mean, around(mean, reach)))
}

fn logs(runs: &[f64]) -> Result<Vec<f64>, StatsError> {
    check(runs, 1)?;
    match runs.iter().position(|run| *run <= 0.0) {
        Some(bad) => Err(StatsError::NotPositive(bad)),
        None => Ok(runs.iter().map(|run| run.ln()).collect()),
    }
}

fn from_logs(mean: f64, interval: Interval) -> Ratio {
    Ratio {
        ratio: mean.exp(),
        interval: Interval {
            low: interval.low.exp(),
            high: interval.high.exp(),
        },
    }
}

fn around(middle: f64, reach: f64) -> Interval {
    Interval {
        low: middle - reach,
        high: middle + reach,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-4 * b.abs().max(1.0)
    }

    /// The third example of Welch's test on Wikipedia, "Welch's t-test": unequal variances and sizes.
    #[test]
    fn a_known_test() {
        let a = [19.8, 20.4, 19.6, 17.8, 18.5, 18.9, 18.3, 18.9, 19.5, 22.0];
        let b = [
            28.2, 26.6, 20.1, 23.3, 25.2, 22.1, 17.7, 27.6, 20.6, 13.7, 23.2, 17.5, 20.6, 18.0, 23.9, 21.6, 24.3, 20.4,
            24.0, 13.2,
        ];
        let test = welch(&a, &b, 0.95).unwrap();
        assert!((test.t + 2.2192).abs() < 1e-4, "{test:?}");
        assert!((test.df - 24.4962).abs() < 1e-4, "{test:?}");
        assert!((test.p - 0.036).abs() < 1e-3, "{test:?}");
        assert!(!test.interval.contains(0.0));
    }

    #[test]
    fn an_arm_against_itself_is_one() {
        let a = [10.0, 11.0, 9.0, 10.5, 9.5];
        let test = welch(&a, &a, 0.95).unwrap();
        assert!(close(test.p, 1.0) && test.interval.contains(0.0));
        let ratio = ratio_of_means(&a, &a, 0.95).unwrap();
        assert!(close(ratio.ratio, 1.0) && !ratio.is_clear());
        let paired = paired_ratio(&a, &a, 0.95).unwrap();
        assert_eq!(
            (paired.ratio, paired.interval.low, paired.interval.high),
            (1.0, 1.0, 1.0)
        );
    }

    #[test]
    fn rounds_that_are_slow_for_both_do_not_hide_a_difference() {
        let slow = [1.0, 0.5, 2.0, 0.7, 1.5];
        let a: Vec<f64> = slow
            .iter()
            .zip([1.10, 1.09, 1.11, 1.10, 1.10])
            .map(|(s, r)| s * r)
            .collect();
        let paired = paired_ratio(&a, &slow, 0.95).unwrap();
        assert!((paired.ratio - 1.1).abs() < 0.01 && paired.is_clear(), "{paired:?}");
        assert!(!ratio_of_means(&a, &slow, 0.95).unwrap().is_clear());
        let back = paired_ratio(&slow, &a, 0.95).unwrap();
        assert!(close(back.ratio * paired.ratio, 1.0));
    }

    #[test]
    fn without_any_variation_every_difference_is_certain() {
        let test = welch(&[2.0, 2.0], &[1.0, 1.0], 0.95).unwrap();
        assert_eq!((test.p, test.interval.low, test.interval.high), (0.0, 1.0, 1.0));
        assert_eq!(welch(&[2.0, 2.0], &[2.0, 2.0], 0.95).unwrap().p, 1.0);
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        assert_eq!(
            welch(&[1.0], &[1.0, 2.0], 0.95),
            Err(StatsError::TooFew { found: 1, needed: 2 })
        );
        assert_eq!(
            paired_ratio(&[1.0, 2.0], &[1.0], 0.95),
            Err(StatsError::NotPaired(2, 1))
        );
        assert_eq!(
            ratio_of_means(&[1.0, 2.0], &[1.0, 0.0], 0.95),
            Err(StatsError::NotPositive(1))
        );
    }
}
