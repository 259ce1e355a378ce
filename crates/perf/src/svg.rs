//! The part of SVG 1.1 that plots of measurements need.

use std::fmt::{self, Write as _};

/// Colours that are distinguishable with colour blindness (Okabe and Ito, "Color Universal
/// Design").
pub const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999",
];

/// The position of a text relative to its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// To the right of it.
    Start,
    /// Centred on it.
    Middle,
    /// To the left of it.
    End,
}

/// A drawing with a white background. Lengths are pixels, from the upper left corner.
#[derive(Debug)]
pub struct Drawing(String);

impl Drawing {
    /// An empty drawing.
    #[must_use]
    pub fn new(width: f64, height: f64) -> Self {
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        ))
    }

    /// Draws text from any source: it is escaped.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        self.styled((x, y), anchor, "", text);
    }

    /// Draws text with further attributes.
    pub fn styled(&mut self, (x, y): (f64, f64), anchor: Anchor, attributes: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(text);
        self.element(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {attributes}>{text}</text>"
        ));
    }

    /// Draws a light line of a scale.
    pub fn scale_line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.element(format_args!(
            "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"#ddd\"/>"
        ));
    }

    /// Draws a rectangle of one colour.
    pub fn rectangle(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), colour: &str) {
        self.element(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        ));
    }

    /// Draws lines by the commands of a path (SVG 1.1, section 8.3).
    pub fn path(&mut self, commands: &str, colour: &str, width: f64, opacity: f64) {
        self.element(format_args!(
            "<path d=\"{commands}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" \
             stroke-linecap=\"round\" opacity=\"{opacity}\"/>"
        ));
    }

    /// The document.
    #[must_use]
    pub fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }

    fn element(&mut self, element: fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{element}");
    }
}

/// The commands of a path through the given points; a missing one is a gap, and an isolated one a
/// dot.
#[must_use]
pub fn through(points: impl IntoIterator<Item = Option<(f64, f64)>>) -> String {
    let mut commands = String::new();
    let mut begun = false;
    for point in points {
        if let Some((x, y)) = point {
            let (command, dot) = if begun { ("L", "") } else { ("M", "h0.1") };
            let _ = write!(commands, "{command}{x:.1} {y:.1}{dot}");
        }
        begun = point.is_some();
    }
    commands
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

/// Zero to `top` in quarters.
pub fn quarters(top: f64) -> impl Iterator<Item = f64> {
    (0..=4).map(move |quarter| f64::from(quarter) / 4.0 * top)
}

fn escape(text: &str) -> String {
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
        assert!(quarters(8.0).eq([0.0, 2.0, 4.0, 6.0, 8.0]));
    }

    #[test]
    fn text_of_others_stays_text() {
        let mut drawing = Drawing::new(10.0, 10.0);
        drawing.text((1.0, 2.0), Anchor::End, "<a href=\"x\">&");
        let svg = drawing.finish();
        assert!(svg.contains(">&lt;a href=&quot;x&quot;&gt;&amp;</text>"), "{svg}");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn a_gap_is_not_bridged() {
        let points = [Some((1.0, 1.0)), None, Some((2.0, 1.0)), Some((3.0, 0.0))];
        assert_eq!(through(points), "M1.0 1.0h0.1M2.0 1.0h0.1L3.0 0.0");
        assert_eq!(through([None, None]), "");
    }
}
