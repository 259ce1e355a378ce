//! Text for the user: lines that fit, and quantities.

use std::fmt::Write as _;
use std::io::stdout;

/// Columns if no terminal reports its width.
pub(crate) const WIDTH: usize = 100;
/// Minimum number of columns for readable text.
const LEAST: usize = 60;

/// The width of the terminal at standard output, or [`WIDTH`] if it is not a terminal.
pub(crate) fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(stdout());
    size.map_or(WIDTH, |size| columns(size.ws_col))
}

/// The width of tables: of the terminal at standard output. Elsewhere a row is one line, however long.
pub(crate) fn row_width() -> usize {
    match rustix::termios::isatty(stdout()) {
        true => width(),
        false => usize::MAX,
    }
}

fn columns(told: u16) -> usize {
    match usize::from(told) {
        // A terminal that does not know its width.
        0 => WIDTH,
        columns => columns.max(LEAST),
    }
}

/// Lines of at most this many characters.
#[derive(Debug)]
pub(super) struct Page {
    text: String,
    width: usize,
}

impl Page {
    pub(super) fn new(width: usize) -> Self {
        Self {
            text: String::new(),
            width,
        }
    }

    /// Adds a line. The part that does not fit continues in the next one, `indent` columns from the
    /// left; nothing is cut off. Control characters would move the cursor and are shown as question
    /// marks.
    pub(super) fn line(&mut self, indent: usize, line: &str) {
        let line: String = line.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let mut rest = line.trim_end();
        let mut left = 0;
        while left + rest.chars().count() > self.width {
            let room = self.width.saturating_sub(left).max(1);
            let (now, later) = rest.split_at(break_at(rest, room));
            self.push(left, now.trim_end());
            rest = later.trim_start();
            left = indent.min(self.width / 2);
        }
        self.push(left, rest);
    }

    pub(super) fn empty_line(&mut self) {
        self.text.push('\n');
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    fn push(&mut self, left: usize, line: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{:left$}{line}", "");
    }
}

/// The end of a line of `room` characters, in bytes: at its last space, or inside a word that is
/// longer.
fn break_at(text: &str, room: usize) -> usize {
    let end = text.char_indices().nth(room).map_or(text.len(), |(at, _)| at);
    let indent = text.len() - text.trim_start().len();
    let (head, next) = text.split_at(end);
    if next.starts_with(' ') {
        return end;
    }
    match head.rfind(' ') {
        Some(space) if space > indent => space,
        _ => end,
    }
}

/// At most `width` characters, the last of which is an ellipsis if something is cut off.
pub(crate) fn clip(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['\u{2026}']).collect()
}

/// At most two units.
pub(crate) fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min"),
        3600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// At least three significant digits, in powers of 1000.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if count < 1000 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1000.0;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    // 999.95 would round to 1000.0.
    while value >= 999.95 {
        value /= 1000.0;
        unit = units.next();
    }
    format!("{value:.1} {}", unit.unwrap_or(&"EB"))
}

/// One digit below the unit; a smaller value is not a measurement.
pub(super) fn milliseconds(ms: f64) -> String {
    if ms < 0.05 {
        return "<0.1 ms".to_owned();
    }
    format!("{ms:.1} ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(width: usize, indent: usize, line: &str) -> String {
        let mut page = Page::new(width);
        page.line(indent, line);
        page.into_text()
    }

    #[test]
    fn lines_are_wrapped_at_spaces_and_nothing_is_cut() {
        assert_eq!(lines(20, 2, "short"), "short\n");
        assert_eq!(lines(10, 2, "one two three four"), "one two\n  three\n  four\n");
        assert_eq!(lines(10, 2, "abcdefghijklmnop q"), "abcdefghij\n  klmnop q\n");
        assert_eq!(lines(10, 4, "    indented words"), "    indent\n    ed\n    words\n");
        assert_eq!(lines(10, 8, "abcdefghij klm"), "abcdefghij\n     klm\n");
        let long = "word ".repeat(100);
        let wrapped = lines(40, 4, &long);
        assert!(wrapped.lines().all(|line| line.chars().count() <= 40));
        assert_eq!(wrapped.split_whitespace().count(), 100);
    }

    #[test]
    fn a_terminal_has_the_columns_that_it_tells() {
        assert_eq!([0, 20, 80, 200].map(columns), [WIDTH, LEAST, 80, 200]);
    }

    #[test]
    fn quantities() {
        assert_eq!([0, 59, 60, 3599].map(duration), ["0 s", "59 s", "1 min", "59 min"]);
        assert_eq!(
            [3600, 86_399, 86_400].map(duration),
            ["1 h 0 min", "23 h 59 min", "1 d 0 h"]
        );
        assert_eq!([0, 999, 1000].map(bytes), ["0 B", "999 B", "1.0 kB"]);
        assert_eq!([999_949, 999_950].map(bytes), ["999.9 kB", "1.0 MB"]);
        assert_eq!(
            [0.01, 0.23, 1.0, 40.26].map(milliseconds),
            ["<0.1 ms", "0.2 ms", "1.0 ms", "40.3 ms"]
        );
    }
}
