//! Plots of a bench: bars with intervals, and throughput over time.

use weft_perf::svg::{Anchor, COLOURS, Drawing, ceiling, quarters, through};

use super::matrix::Case;
use super::record::Record;
use super::table::Row;

const WIDTH: f64 = 760.0;
/// Room for the arms' names at the left.
const LEFT: f64 = 170.0;
const RIGHT: f64 = 40.0;
const BAR: f64 = 22.0;
const GAP: f64 = 10.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 40.0;
/// Height of the plot over time, without its margins.
const HEIGHT: f64 = 260.0;

/// One bar per arm: the median, with its interval as a whisker.
#[must_use]
pub fn bars(case: &Case, rows: &[Row]) -> String {
    let tops = rows.iter().filter_map(|row| {
        let rate = row.rate.as_ref()?;
        Some(
            rate.interval
                .map_or(rate.median(), |interval| interval.high.max(rate.median())),
        )
    });
    let axis = Axis::to(tops.fold(0.0, f64::max));
    let height = TOP + rows.len() as f64 * (BAR + GAP) + BOTTOM;
    let mut svg = begin(case, height);
    axis.draw(&mut svg, height - BOTTOM);
    for (n, row) in rows.iter().enumerate() {
        let y = TOP + n as f64 * (BAR + GAP);
        let middle = y + BAR / 2.0;
        svg.text((LEFT - 8.0, middle + 4.0), Anchor::End, &row.arm);
        let Some(rate) = &row.rate else {
            svg.text((LEFT + 6.0, middle + 4.0), Anchor::Start, "void");
            continue;
        };
        let width = axis.x(rate.median()) - LEFT;
        svg.rectangle((LEFT, y), (width, BAR), COLOURS[n % COLOURS.len()]);
        if let Some(interval) = rate.interval {
            let (low, high, top) = (axis.x(interval.low), axis.x(interval.high), middle - 4.0);
            let whisker = format!("M{low:.1} {middle}H{high:.1}M{low:.1} {top}v8M{high:.1} {top}v8");
            svg.path(&whisker, "#333", 1.0, 1.0);
        }
    }
    svg.finish()
}

/// One line per run: the payload received in each second.
#[must_use]
pub fn over_time(case: &Case, arms: &[String], records: &[Record]) -> String {
    let runs: Vec<_> = records
        .iter()
        .filter(|record| record.case == case.name)
        .filter_map(|record| {
            Some((
                arms.iter().position(|arm| *arm == record.arm)?,
                &record.figures()?.seconds,
            ))
        })
        .collect();
    let most = runs
        .iter()
        .flat_map(|(_, seconds)| seconds.iter())
        .fold(0.0, |a: f64, b| a.max(*b));
    let seconds = runs.iter().map(|(_, seconds)| seconds.len()).max().unwrap_or(0).max(2);
    let axis = Axis::to(most);
    let bottom = TOP + HEIGHT;
    let mut svg = begin(case, bottom + BOTTOM);
    let y = |value: f64| bottom - value / axis.top * HEIGHT;
    for tick in axis.ticks() {
        let at = y(tick);
        svg.scale_line((LEFT, at), (WIDTH - RIGHT, at));
        svg.text((LEFT - 8.0, at + 4.0), Anchor::End, &label(tick));
    }
    let x = |second: usize| LEFT + second as f64 / (seconds - 1) as f64 * (WIDTH - RIGHT - LEFT);
    for (arm, run) in &runs {
        let points = run.iter().enumerate().map(|(n, value)| Some((x(n), y(*value))));
        svg.path(&through(points), COLOURS[arm % COLOURS.len()], 1.0, 0.7);
    }
    for (n, arm) in arms.iter().enumerate() {
        let at = TOP + n as f64 * 16.0;
        svg.rectangle((8.0, at), (10.0, 10.0), COLOURS[n % COLOURS.len()]);
        svg.text((24.0, at + 9.0), Anchor::Start, arm);
    }
    let unit = format!("Mbit/s in each of {seconds} seconds");
    svg.text((LEFT, bottom + 24.0), Anchor::Start, &unit);
    svg.finish()
}

/// From zero to a round number above the largest value, in quarters.
struct Axis {
    top: f64,
}

impl Axis {
    fn to(most: f64) -> Self {
        Self { top: ceiling(most) }
    }

    fn ticks(&self) -> impl Iterator<Item = f64> + use<> {
        quarters(self.top)
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + value / self.top * (WIDTH - RIGHT - LEFT)
    }

    fn draw(&self, svg: &mut Drawing, bottom: f64) {
        for tick in self.ticks() {
            let x = self.x(tick);
            svg.scale_line((x, TOP - 6.0), (x, bottom));
            svg.text((x, bottom + 18.0), Anchor::Middle, &label(tick));
        }
    }
}

fn label(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.1}M", v / 1e6),
        v if v >= 1e4 => format!("{:.0}k", v / 1e3),
        v if v < 1.0 && v > 0.0 => format!("{v:.2}"),
        v => format!("{v:.0}"),
    }
}

fn begin(case: &Case, height: f64) -> Drawing {
    let unit = case.unit().name();
    let mut svg = Drawing::new(WIDTH, height);
    let title = format!("{}: {} ({unit})", case.name, case.about);
    svg.text((8.0, 20.0), Anchor::Start, &title);
    svg
}

#[cfg(test)]
mod tests {
    use super::super::matrix::CASES;
    use super::super::record::tests::run;
    use super::super::table::rows;
    use super::*;

    #[test]
    fn plots_have_a_bar_or_a_word_for_every_arm_and_no_stray_markup() {
        let arms = ["a<b".to_owned(), "dead".to_owned()];
        let records = [run(1, "a<b", 100.0), run(2, "a<b", 110.0)];
        let bars = bars(&CASES[0], &rows(&arms, "tcp", &records));
        assert_eq!(bars.matches("<rect").count(), 2, "the background and one bar");
        assert!(bars.contains("a&lt;b") && bars.contains(">void<"));
        let lines = over_time(&CASES[0], &arms, &records);
        assert_eq!(lines.matches("<path d=\"M170").count(), 5 + 2, "a scale and two runs");
        assert!(!lines.contains("NaN") && !bars.contains("NaN"));
    }
}
