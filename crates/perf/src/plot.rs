//! A run as a drawing (SVG 1.1): throughput, processors and round trips over time. A sawtooth hides in an average (L41).

use std::fmt::Write as _;

use crate::report::Report;

const WIDTH: f64 = 800.0;
const PANEL: f64 = 150.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const GAP: f64 = 40.0;
const TOP: f64 = 60.0;

/// One line of a panel: its name, its colour, a value for each second.
struct Curve {
    name: &'static str,
    colour: &'static str,
    values: Vec<Option<f64>>,
}

/// Draws `report`, under `title`.
#[must_use]
pub fn svg(report: &Report, title: &str) -> String {
    let of = |name, colour, value: &dyn Fn(&crate::report::SecondReport) -> Option<f64>| Curve {
        name,
        colour,
        values: report.seconds.iter().map(value).collect(),
    };
    let panels = [
        (
            "Mbit/s",
            vec![
                of("forward", "#1b6ca8", &|second| second.forward_mbit_s),
                of("reverse", "#c8553d", &|second| second.reverse_mbit_s),
            ],
        ),
        (
            "processor, %",
            vec![
                of("this end", "#1b6ca8", &|second| Some(second.near.cpu_percent())),
                of("far end", "#c8553d", &|second| Some(second.far.as_ref()?.cpu_percent())),
            ],
        ),
        (
            "round trip, ms",
            vec![
                of("P50", "#1b6ca8", &|second| second.rtt.median()),
                of("P99", "#c8553d", &|second| {
                    second.rtt.median().map(|_| second.rtt.p99_ms)
                }),
            ],
        ),
    ];
    let height = TOP + panels.len() as f64 * (PANEL + GAP);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{}</text>\n",
        escape(title)
    );
    let verdicts = report
        .directions
        .iter()
        .map(|direction| direction.bottleneck.is.words());
    let verdicts = verdicts.collect::<Vec<_>>().join("; ");
    let invalid = report.invalid_because.as_ref().map(|why| format!(" INVALID: {why}"));
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "<text x=\"{LEFT}\" y=\"42\">bottleneck: {}{}</text>",
        escape(if verdicts.is_empty() { "no load" } else { &verdicts }),
        escape(invalid.as_deref().unwrap_or(""))
    );
    for (n, (unit, curves)) in panels.iter().enumerate() {
        panel(&mut text, TOP + n as f64 * (PANEL + GAP), unit, curves);
    }
    text.push_str("</svg>\n");
    text
}

fn panel(text: &mut String, top: f64, unit: &str, curves: &[Curve]) {
    let most = curves
        .iter()
        .flat_map(|curve| curve.values.iter().flatten().copied())
        .fold(0.0, f64::max);
    let ceiling = ceiling(most);
    let (bottom, right) = (top + PANEL, WIDTH - RIGHT);
    let _ = writeln!(
        text,
        "<text x=\"{LEFT}\" y=\"{:.1}\">{}</text>",
        top - 4.0,
        escape(unit)
    );
    for quarter in 0..=4 {
        let share = f64::from(quarter) / 4.0;
        let y = bottom - share * PANEL;
        let _ = writeln!(
            text,
            "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            ceiling * share
        );
    }
    let mut legend = LEFT + 120.0;
    for curve in curves.iter().filter(|curve| curve.values.iter().any(Option::is_some)) {
        draw(text, curve, bottom, ceiling);
        let _ = writeln!(
            text,
            "<text x=\"{legend:.1}\" y=\"{:.1}\" fill=\"{}\">{}</text>",
            top - 4.0,
            curve.colour,
            curve.name
        );
        legend += 90.0;
    }
}

/// A line through what there is; a second without a value is a gap.
fn draw(text: &mut String, curve: &Curve, bottom: f64, ceiling: f64) {
    let step = (WIDTH - LEFT - RIGHT) / curve.values.len().max(1) as f64;
    let mut path = String::new();
    let mut begun = false;
    for (n, value) in curve.values.iter().enumerate() {
        let Some(value) = value else {
            begun = false;
            continue;
        };
        let (x, y) = (LEFT + (n as f64 + 0.5) * step, bottom - value / ceiling * PANEL);
        let _ = write!(path, "{}{x:.1} {y:.1}", if begun { "L" } else { "M" });
        // One second alone is a dot.
        if !begun {
            let _ = write!(path, "h0.1");
        }
        begun = true;
    }
    let _ = writeln!(
        text,
        "<path d=\"{path}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-linecap=\"round\"/>",
        curve.colour
    );
}

/// The least of 1, 2, 4, 6, 8 and 10 times a power of ten that is not below `most`.
#[must_use]
pub fn ceiling(most: f64) -> f64 {
    if !most.is_finite() || most <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(most.log10().floor());
    let steps = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0];
    steps
        .iter()
        .map(|step| step * power)
        .find(|step| *step >= most)
        .unwrap_or(power * 10.0)
}

/// Text as it may stand in an SVG element.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings() {
        for (most, expected) in [
            (0.0, 1.0),
            (1.0, 1.0),
            (1.1, 2.0),
            (7.0, 8.0),
            (95.0, 100.0),
            (0.3, 0.4),
            (f64::NAN, 1.0),
        ] {
            assert!((ceiling(most) - expected).abs() < 1e-9, "{most}");
        }
    }

    #[test]
    fn text_of_others_stays_text() {
        assert_eq!(escape("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
    }

    #[test]
    fn a_gap_is_not_bridged() {
        let curve = Curve {
            name: "x",
            colour: "red",
            values: vec![Some(1.0), None, Some(1.0), Some(0.0)],
        };
        let mut text = String::new();
        draw(&mut text, &curve, 100.0, 1.0);
        assert_eq!((text.matches('M').count(), text.matches('L').count()), (2, 1), "{text}");
        assert!(!text.contains("NaN"));
    }
}
