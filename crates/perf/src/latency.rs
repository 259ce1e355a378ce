//! A summary of round trips.

use serde::{Deserialize, Serialize};

/// Round trips within one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Probes sent.
    pub sent: u64,
    /// Answers received.
    pub received: u64,
    /// Mean, in milliseconds; without answers all of these are zero.
    pub avg_ms: f64,
    /// Median, in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile, in milliseconds.
    pub p99_ms: f64,
    /// Maximum, in milliseconds.
    pub max_ms: f64,
}

impl Latency {
    /// Summarises `sent` probes, of which those with the round trips `ms` were answered, in any
    /// order.
    #[must_use]
    pub fn of(sent: u64, ms: &[f64]) -> Self {
        let mut sorted = ms.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share| nearest_rank(&sorted, share).unwrap_or(0.0);
        Self {
            sent,
            received: sorted.len() as u64,
            avg_ms: sorted.iter().sum::<f64>() / sorted.len().max(1) as f64,
            p50_ms: at(0.50),
            p99_ms: at(0.99),
            max_ms: at(1.0),
        }
    }

    /// The median in milliseconds; `None` without answers.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        (self.received > 0).then_some(self.p50_ms)
    }
}

/// The least value that the fraction `share` of all values does not exceed.
fn nearest_rank(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let latency = Latency::of(101, &hundred);
        assert_eq!(
            (latency.p50_ms, latency.p99_ms, latency.max_ms, latency.avg_ms),
            (50.0, 99.0, 100.0, 50.5)
        );
        assert_eq!((latency.sent, latency.received), (101, 100));
        assert_eq!(Latency::of(1, &[3.0]).p99_ms, 3.0);
        assert_eq!(Latency::of(1, &[3.0]).median(), Some(3.0));
    }

    #[test]
    fn without_answers() {
        let none = Latency::of(5, &[]);
        assert_eq!((none.sent, none.received, none.max_ms), (5, 0, 0.0));
        assert_eq!(none.median(), None);
        assert!(none.avg_ms.is_finite());
    }
}
