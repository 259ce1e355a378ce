//! Reading a daemon's text log.

/// The lines of `log` at WARN or ERROR, as `tracing` writes them: a time, then the level. Lines
/// that are not log lines (a panic message, for example) count as warnings too, since a clean run
/// writes none.
#[must_use]
pub fn warnings(log: &str) -> Vec<String> {
    let lines = log.lines().map(strip_colour);
    let lines = lines.filter(|line| !line.trim().is_empty());
    let noisy = lines.filter(|line| !matches!(level(line), Some("INFO" | "DEBUG" | "TRACE")));
    noisy.collect()
}

/// The level name among the first words of a line.
fn level(line: &str) -> Option<&str> {
    const LEVELS: [&str; 5] = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"];
    let mut words = line.split_whitespace().take(3);
    words.find(|word| LEVELS.contains(word))
}

/// Removes escape sequences that set a colour (`ESC [ ... m`).
fn strip_colour(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_warnings_errors_and_what_is_no_log_line() {
        let log = "\
2026-08-02T10:00:00.1Z  INFO weft_node: up address=fd00::1
2026-08-02T10:00:00.2Z  WARN weft_node: receive buffer is small
2026-08-02T10:00:00.3Z ERROR weft_node: gone
2026-08-02T10:00:00.4Z DEBUG weft_node: about to WARN

thread 'main' panicked at src/main.rs:1:1:
";
        let found = warnings(log);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("buffer is small"));
        assert!(found[1].contains("gone"));
        assert!(found[2].starts_with("thread 'main' panicked"));
    }

    #[test]
    fn sees_through_colours() {
        let log = "\u{1b}[2m10:00\u{1b}[0m \u{1b}[33m WARN\u{1b}[0m x\n\u{1b}[32m INFO\u{1b}[0m y\n";
        assert_eq!(warnings(log), ["10:00  WARN x"]);
    }

    #[test]
    fn a_level_without_a_time_is_seen() {
        assert_eq!(warnings("INFO up\nWARN down"), ["WARN down"]);
    }
}
