//! Whether the delay of frames grows: a queue fills before it drops.

/// The fewest frames that give a slope. With fewer, the millisecond of the clocks dominates.
const MIN_FRAMES: i64 = 8;
/// The most frames of one interval that count, so that no sum overflows.
const MAX_FRAMES: i64 = 1 << 20;
/// The largest distance of times and delays from the first frame's, in ms. Larger ones count as
/// this.
const MAX_SPAN: i64 = 1 << 17;

/// Sums for a line through (time of arrival, delay), both in ms from the first frame's.
#[derive(Debug, Default)]
pub(super) struct Trend {
    first: Option<(u64, u32)>,
    n: i64,
    x: i64,
    y: i64,
    xx: i64,
    xy: i64,
}

impl Trend {
    /// Adds a frame: its time of arrival, and this node's clock less the sender's, both in ms.
    pub(super) fn add(&mut self, now: u64, delay: u32) {
        let (began, shortest) = *self.first.get_or_insert((now, delay));
        if self.n >= MAX_FRAMES {
            return;
        }
        let x = (now.saturating_sub(began) as i64).min(MAX_SPAN);
        let y = i64::from(delay.wrapping_sub(shortest) as i32).clamp(-MAX_SPAN, MAX_SPAN);
        self.n += 1;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.xy += x * y;
    }

    /// Returns the slope in microseconds a second, and begins a new interval. The slope is zero if
    /// there were too few frames.
    pub(super) fn take(&mut self) -> i32 {
        let sums = std::mem::take(self);
        let [n, x, y, xx, xy] = [sums.n, sums.x, sums.y, sums.xx, sums.xy].map(i128::from);
        let spread = n * xx - x * x;
        if sums.n < MIN_FRAMES || spread == 0 {
            return 0;
        }
        let slope = (n * xy - x * y) * 1_000_000 / spread;
        slope.clamp(i128::from(i32::MIN), i128::from(i32::MAX)) as i32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The textbook formula, with means and floating point.
    fn slope(points: &[(u64, u32)]) -> f64 {
        let n = points.len() as f64;
        let mean = |f: fn(&(u64, u32)) -> f64| points.iter().map(f).sum::<f64>() / n;
        let (mx, my) = (mean(|p| p.0 as f64), mean(|p| f64::from(p.1)));
        let num: f64 = points.iter().map(|p| (p.0 as f64 - mx) * (f64::from(p.1) - my)).sum();
        let den: f64 = points.iter().map(|p| (p.0 as f64 - mx).powi(2)).sum();
        num / den * 1e6
    }

    proptest! {
        #[test]
        fn as_the_textbook_says(steps in prop::collection::vec((1_u64..50, 0_u32..300), 8..200)) {
            let mut now = 10_000;
            let points: Vec<_> = steps.iter().map(|(step, delay)| { now += step; (now, delay + 900) }).collect();
            let mut trend = Trend::default();
            points.iter().for_each(|(at, delay)| trend.add(*at, *delay));
            prop_assert!((f64::from(trend.take()) - slope(&points)).abs() <= 1.0);
            prop_assert_eq!(trend.take(), 0);
        }
    }

    #[test]
    fn sums_do_not_overflow() {
        let mut trend = Trend::default();
        for i in 0..MAX_FRAMES as u64 + 10 {
            trend.add(i << 40, if i % 2 == 0 { 0 } else { 1 << 31 });
        }
        trend.take();
    }
}
