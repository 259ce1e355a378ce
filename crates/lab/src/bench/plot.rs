//! Pictures of a bench: bars with intervals, and throughput over time.

use std::fmt::Write as _;

use weft_perf::plot::{ceiling, escape};

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
/// Height of the picture over time, without what is around it.
const HEIGHT: f64 = 260.0;

/// Colours that differ for the colour-blind too (Okabe and Ito, "Color Universal Design").
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999",
];

/// One bar an arm: the median, and its interval as a whisker.
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
        text(&mut svg, (LEFT - 8.0, middle + 4.0), "end", &row.arm);
        let Some(rate) = &row.rate else {
            text(&mut svg, (LEFT + 6.0, middle + 4.0), "start", "void");
            continue;
        };
        let width = axis.x(rate.median()) - LEFT;
        let colour = COLOURS[n % COLOURS.len()];
        let _ = writeln!(
            svg,
            r#"<rect x="{LEFT}" y="{y}" width="{width:.1}" height="{BAR}" fill="{colour}"/>"#
        );
        if let Some(interval) = rate.interval {
            let (low, high) = (axis.x(interval.low), axis.x(interval.high));
            let _ = writeln!(
                svg,
                r##"<path d="M{low:.1} {middle}H{high:.1}M{low:.1} {}v8M{high:.1} {}v8" stroke="#333" fill="none"/>"##,
                middle - 4.0,
                middle - 4.0
            );
        }
    }
    end(svg)
}

/// One line a run: what arrived in each second.
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
        let _ = writeln!(svg, r##"<path d="M{LEFT} {at:.1}H{}" stroke="#ddd"/>"##, WIDTH - RIGHT);
        text(&mut svg, (LEFT - 8.0, at + 4.0), "end", &label(tick));
    }
    let x = |second: usize| LEFT + second as f64 / (seconds - 1) as f64 * (WIDTH - RIGHT - LEFT);
    for (arm, run) in &runs {
        let points: Vec<_> = run
            .iter()
            .enumerate()
            .map(|(n, value)| format!("{:.1},{:.1}", x(n), y(*value)))
            .collect();
        let colour = COLOURS[arm % COLOURS.len()];
        let points = points.join(" ");
        let _ = writeln!(
            svg,
            r#"<polyline points="{points}" stroke="{colour}" fill="none" opacity="0.7"/>"#
        );
    }
    for (n, arm) in arms.iter().enumerate() {
        let at = TOP + n as f64 * 16.0;
        let colour = COLOURS[n % COLOURS.len()];
        let _ = writeln!(svg, r#"<rect x="8" y="{at}" width="10" height="10" fill="{colour}"/>"#);
        text(&mut svg, (24.0, at + 9.0), "start", arm);
    }
    text(
        &mut svg,
        (LEFT, bottom + 24.0),
        "start",
        &format!("Mbit/s in each of {seconds} seconds"),
    );
    end(svg)
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
        let top = self.top;
        (0..=4).map(move |quarter| f64::from(quarter) / 4.0 * top)
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + value / self.top * (WIDTH - RIGHT - LEFT)
    }

    fn draw(&self, svg: &mut String, bottom: f64) {
        for tick in self.ticks() {
            let x = self.x(tick);
            let _ = writeln!(svg, r##"<path d="M{x:.1} {}V{bottom}" stroke="#ddd"/>"##, TOP - 6.0);
            text(svg, (x, bottom + 18.0), "middle", &label(tick));
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

fn begin(case: &Case, height: f64) -> String {
    let unit = if case.counts_packets() { "packets/s" } else { "Mbit/s" };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\"><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    text(
        &mut svg,
        (8.0, 20.0),
        "start",
        &format!("{}: {} ({unit})", case.name, case.about),
    );
    svg
}

fn end(mut svg: String) -> String {
    svg.push_str("</svg>\n");
    svg
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    let words = escape(words);
    let _ = writeln!(
        svg,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{words}</text>"#
    );
}

#[cfg(test)]
mod tests {
    use super::super::matrix::CASES;
    use super::super::record::tests::run;
    use super::super::table::rows;
    use super::*;

    #[test]
    fn pictures_have_a_bar_or_a_word_for_every_arm_and_no_stray_markup() {
        let arms = ["a<b".to_owned(), "dead".to_owned()];
        let records = [run(1, "a<b", 100.0), run(2, "a<b", 110.0)];
        let bars = bars(&CASES[0], &rows(&arms, "tcp", false, &records));
        assert_eq!(bars.matches("<rect").count(), 2, "the background and one bar");
        assert!(bars.contains("a&lt;b") && bars.contains(">void<"));
        let lines = over_time(&CASES[0], &arms, &records);
        assert_eq!(lines.matches("<polyline").count(), 2);
        assert!(!lines.contains("NaN") && !bars.contains("NaN"));
    }
}
