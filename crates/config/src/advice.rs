//! Suggestions for the correction of a wrong configuration.

use super::reader::printable;
use super::starter;

/// Returns the known word that `found` may be a misspelling of.
#[must_use]
pub fn nearest<'a>(found: &str, known: &[&'a str]) -> Option<&'a str> {
    const MOST: usize = 2;
    let distances = known.iter().map(|key| (distance(found, key), *key));
    let close = distances.filter(|(n, key)| *n <= MOST && *n < key.len());
    close.min_by_key(|(n, _)| *n).map(|(_, key)| key)
}

/// The table of the starter file that contains the setting `key`, if exactly one does.
pub(super) fn table_of(key: &str) -> Option<&'static str> {
    let (mut table, mut found) = (None, Vec::new());
    for line in starter::TEXT.lines() {
        let line = line.trim_start_matches('#');
        if line.starts_with('[') {
            table = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        } else if line.split_once(" = ").is_some_and(|(name, _)| name == key) {
            found.push(table?);
        }
    }
    match found[..] {
        [one] => Some(one),
        _ => None,
    }
}

/// The problem with a line that is not TOML, and what to write. `at` is where the parser stopped,
/// in bytes.
pub(super) fn syntax(text: &str, at: usize, message: &str) -> String {
    let line = line_at(text, at);
    let code = line.split(" #").next().unwrap_or(line).trim();
    let general = || format!("{message}; see toml.io for how a line is written");
    if message.contains("duplicate") {
        return match table(code) {
            Some(name) => format!("[{name}] is in the file already; write the setting there, below the first [{name}]"),
            None => match code.split_once('=') {
                Some((key, _)) => format!("{} is set twice; remove one of the two", printable(key.trim())),
                None => general(),
            },
        };
    }
    let Some((key, value)) = code.split_once('=') else {
        return match code.starts_with('[') || code.is_empty() || !text.is_char_boundary(at) {
            true => general(),
            false => format!(
                "'{}' is neither a setting nor a comment; begin a comment with #",
                printable(code)
            ),
        };
    };
    let (key, value) = (printable(key.trim()), value.trim());
    let quotes = value.bytes().filter(|byte| *byte == b'"').count();
    match value {
        "True" | "TRUE" | "False" | "FALSE" | "yes" | "no" | "on" | "off" => {
            format!("{key}: '{value}' is no value; write true or false")
        }
        "" => format!("{key}: the value is missing"),
        _ if quotes % 2 == 1 => format!("{key}: a quotation mark is missing; write {key} = \"...\""),
        _ if value.starts_with(|c: char| c.is_ascii_alphabetic()) && quotes == 0 => {
            format!(
                "{key}: the value has no quotation marks; write {key} = \"{}\"",
                printable(value)
            )
        }
        _ => format!("{key}: {}", general()),
    }
}

fn table(line: &str) -> Option<String> {
    let name = line.strip_prefix('[')?.strip_suffix(']')?;
    (!name.starts_with('[')).then(|| printable(name))
}

fn line_at(text: &str, at: usize) -> &str {
    let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    let (before, after) = text.split_at_checked(at.unwrap_or(0)).unwrap_or((text, ""));
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let end = after.find('\n').map_or(text.len(), |newline| before.len() + newline);
    text.get(start..end).unwrap_or_default()
}

/// The number of characters to insert, delete or replace. A long word is not a misspelling of a
/// short one.
fn distance(one: &str, other: &str) -> usize {
    const LONGEST: usize = 40;
    if one.len() > LONGEST {
        return LONGEST;
    }
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut left = i + 1;
        let mut diagonal = i;
        for (b, cell) in other.iter().zip(row.iter_mut().skip(1)) {
            let above = *cell;
            left = (diagonal + usize::from(a != *b)).min(left + 1).min(above + 1);
            diagonal = above;
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_near() {
        let known = ["listen", "mtu", "peer", "addresses"];
        for (found, expected) in [
            ("lissten", Some("listen")),
            ("mut", Some("mtu")),
            ("peers", Some("peer")),
            ("adresses", Some("addresses")),
            ("listen_port", None),
            ("b", None),
        ] {
            assert_eq!(nearest(found, &known), expected, "{found}");
        }
        assert_eq!((distance("", "abc"), distance("abc", "abc")), (3, 0));
        assert_eq!(distance(&"x".repeat(1000), "abc"), 40);
    }

    #[test]
    fn settings_know_their_table() {
        assert_eq!(table_of("open"), Some("mesh"));
        assert_eq!(table_of("key_file"), Some("identity"));
        assert_eq!(table_of("mtu"), None, "two tables have it");
        assert_eq!(table_of("lanes"), None);
        assert_eq!(table_of("nonsense"), None);
    }
}
