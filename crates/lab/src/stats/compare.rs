//! Comparison of two arms.

use super::{Interval, StatsError, check, moments};

/// t(0.975) of Student's distribution for 1 to 30 degrees of freedom, from tables.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The value that Student's distribution exceeds in 5 % of all cases, in both directions together;
/// beyond the table within 0.002.
fn t(freedom: usize) -> f64 {
    let listed = T.get(freedom.saturating_sub(1)).copied();
    listed.unwrap_or_else(|| 1.960 + 2.4 / freedom as f64)
}

/// The ratio of the first arm to the second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The estimate.
    pub ratio: f64,
    /// The 95 % interval of the ratio.
    pub interval: Interval,
}

impl Ratio {
    /// Whether the interval excludes 1: the arms differ.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        !self.interval.contains(1.0)
    }
}

/// The ratio of two arms that ran alternately: `a[i]` and `b[i]` in the same round, so that a
/// disturbance of a whole round affects both: by the mean of the logarithms of each round's ratio, with
/// the interval of a paired t test. At least two rounds.
///
/// # Errors
/// [`StatsError`]; values must be positive.
pub fn paired_ratio(a: &[f64], b: &[f64]) -> Result<Ratio, StatsError> {
    if a.len() != b.len() {
        return Err(StatsError::NotPaired(a.len(), b.len()));
    }
    check(a, 2)?;
    let ratios: Vec<f64> = logs(a)?.iter().zip(logs(b)?).map(|(a, b)| a - b).collect();
    let (mean, variance) = moments(&ratios);
    let reach = t(ratios.len() - 1) * (variance / ratios.len() as f64).sqrt();
    Ok(Ratio {
        ratio: mean.exp(),
        interval: Interval {
            low: (mean - reach).exp(),
            high: (mean + reach).exp(),
        },
    })
}

fn logs(runs: &[f64]) -> Result<Vec<f64>, StatsError> {
    check(runs, 1)?;
    match runs.iter().position(|run| *run <= 0.0) {
        Some(bad) => Err(StatsError::NotPositive(bad)),
        None => Ok(runs.iter().map(|run| run.ln()).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ratio_of_medians;
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-4 * b.abs().max(1.0)
    }

    #[test]
    fn the_interval_is_that_of_the_t_distribution() {
        assert_eq!((t(1), t(4), t(30)), (12.706, 2.776, 2.042));
        assert!((t(40) - 2.021).abs() < 0.002 && (t(120) - 1.980).abs() < 0.002);
        // ln ratios of 0, 0.1 and -0.1: a variance of 0.01, and 4.303 * 0.1 / sqrt(3) = 0.24843.
        let ratios: Vec<f64> = [0.0, 0.1, -0.1_f64].iter().map(|ln| ln.exp()).collect();
        let paired = paired_ratio(&ratios, &[1.0; 3]).unwrap();
        assert!(close(paired.ratio, 1.0), "{paired:?}");
        assert!(close(paired.interval.low, (-0.24843_f64).exp()), "{paired:?}");
        assert!(close(paired.interval.high, 0.24843_f64.exp()), "{paired:?}");
    }

    #[test]
    fn an_arm_against_itself_is_one() {
        let a = [10.0, 11.0, 9.0, 10.5, 9.5];
        let ratio = ratio_of_medians(&a, &a, 0.95, 1).unwrap();
        assert!(close(ratio.ratio, 1.0) && !ratio.is_clear());
        let paired = paired_ratio(&a, &a).unwrap();
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
        let paired = paired_ratio(&a, &slow).unwrap();
        assert!((paired.ratio - 1.1).abs() < 0.01 && paired.is_clear(), "{paired:?}");
        assert!(!ratio_of_medians(&a, &slow, 0.95, 1).unwrap().is_clear());
        let back = paired_ratio(&slow, &a).unwrap();
        assert!(close(back.ratio * paired.ratio, 1.0));
    }

    #[test]
    fn samples_that_cannot_be_compared_are_refused() {
        assert_eq!(
            ratio_of_medians(&[1.0; 2], &[1.0; 3], 0.95, 1),
            Err(StatsError::TooFew { found: 2, needed: 3 })
        );
        assert_eq!(paired_ratio(&[1.0, 2.0], &[1.0]), Err(StatsError::NotPaired(2, 1)));
        assert_eq!(paired_ratio(&[1.0, 2.0], &[1.0, 0.0]), Err(StatsError::NotPositive(1)));
    }
}
