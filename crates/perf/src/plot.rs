//! A run as a plot (SVG 1.1): throughput, CPU and round trips over time. An average hides a
//! sawtooth (L41).

use crate::report::{Report, SecondReport};
use crate::svg::{Anchor, COLOURS, Drawing, ceiling, quarters, through};

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

/// Plots `report`, under `title`.
#[must_use]
pub fn svg(report: &Report, title: &str) -> String {
    let of = |name, colour, value: &dyn Fn(&SecondReport) -> Option<f64>| Curve {
        name,
        colour,
        values: report.seconds.iter().map(value).collect(),
    };
    let panels = [
        (
            "Mbit/s",
            vec![
                of("upload", COLOURS[0], &|second| second.forward_mbit_s),
                of("download", COLOURS[1], &|second| second.reverse_mbit_s),
            ],
        ),
        (
            "CPU, %",
            vec![
                of("this node", COLOURS[0], &|second| Some(second.client.cpu_percent())),
                of("peer", COLOURS[1], &|second| {
                    Some(second.server.as_ref()?.cpu_percent())
                }),
            ],
        ),
        (
            "round trip, ms",
            vec![
                of("P50", COLOURS[0], &|second| second.rtt.median()),
                of("P99", COLOURS[1], &|second| {
                    second.rtt.median().map(|_| second.rtt.p99_ms)
                }),
            ],
        ),
    ];
    let height = TOP + panels.len() as f64 * (PANEL + GAP);
    let mut drawing = Drawing::new(WIDTH, height);
    drawing.styled((LEFT, 22.0), Anchor::Start, "font-size=\"15\"", title);
    let verdicts = report
        .directions
        .iter()
        .map(|direction| direction.bottleneck.is.words());
    let verdicts = verdicts.collect::<Vec<_>>().join("; ");
    let invalid = report.invalid_because.as_ref().map(|why| format!(" INVALID: {why}"));
    let verdicts: &str = if verdicts.is_empty() { "no load" } else { &verdicts };
    let line = format!("bottleneck: {verdicts}{}", invalid.unwrap_or_default());
    drawing.text((LEFT, 42.0), Anchor::Start, &line);
    for (n, (unit, curves)) in panels.iter().enumerate() {
        panel(&mut drawing, TOP + n as f64 * (PANEL + GAP), unit, curves);
    }
    drawing.finish()
}

fn panel(drawing: &mut Drawing, top: f64, unit: &str, curves: &[Curve]) {
    let values = curves.iter().flat_map(|curve| curve.values.iter().flatten().copied());
    let ceiling = ceiling(values.fold(0.0, f64::max));
    let bottom = top + PANEL;
    drawing.text((LEFT, top - 4.0), Anchor::Start, unit);
    for tick in quarters(ceiling) {
        let y = bottom - tick / ceiling * PANEL;
        drawing.scale_line((LEFT, y), (WIDTH - RIGHT, y));
        drawing.text((LEFT - 6.0, y + 4.0), Anchor::End, &tick.to_string());
    }
    let mut legend = LEFT + 120.0;
    for curve in curves.iter().filter(|curve| curve.values.iter().any(Option::is_some)) {
        let step = (WIDTH - LEFT - RIGHT) / curve.values.len() as f64;
        let point = |(n, value): (usize, &Option<f64>)| {
            Some((LEFT + (n as f64 + 0.5) * step, bottom - (*value)? / ceiling * PANEL))
        };
        let line = through(curve.values.iter().enumerate().map(point));
        drawing.path(&line, curve.colour, 2.0, 1.0);
        let colour = format!("fill=\"{}\"", curve.colour);
        drawing.styled((legend, top - 4.0), Anchor::Start, &colour, curve.name);
        legend += 90.0;
    }
}
