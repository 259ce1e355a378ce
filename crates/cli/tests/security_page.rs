//! docs/protocol/security.md names a test for each of its promises. These tests check that those
//! tests exist.
#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

use std::path::{Path, PathBuf};

/// `crate/path/file.rs::test`, as the page names tests, with the number of its line.
fn tests_named(page: &str) -> Vec<(usize, &str, &str)> {
    let lines = page.lines().enumerate();
    let spans = lines.flat_map(|(n, line)| line.split('`').skip(1).step_by(2).map(move |span| (n + 1, span)));
    let named = spans.filter_map(|(line, span)| span.split_once(".rs::").map(|(file, name)| (line, file, name)));
    named.collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    std::fs::read_to_string(root().join("docs/protocol/security.md")).unwrap()
}

/// Whether `source` has a test of this name: a function with `#[test]` or a similar attribute in
/// front of it.
fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<_> = source.lines().map(str::trim).collect();
    let declares = |line: &&str| {
        let rest = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        rest.and_then(|rest| rest.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with('('))
    };
    let before = |at: usize| {
        lines[..at]
            .iter()
            .rev()
            .take_while(|line| !line.is_empty() && **line != "}")
    };
    let is_test = |line: &&str| line.starts_with("#[test]") || line.starts_with("#[tokio::test");
    let mut found = lines.iter().enumerate().filter(|(_, line)| declares(line));
    found.any(|(at, _)| before(at).any(&is_test))
}

#[test]
fn every_test_that_the_page_names_exists() {
    let page = page();
    let named = tests_named(&page);
    assert!(
        named.len() > 50,
        "the page names {} tests; is it read right?",
        named.len()
    );
    let missing: Vec<_> = named
        .iter()
        .filter(|(_, file, name)| {
            let path = root().join("crates").join(format!("{file}.rs"));
            !std::fs::read_to_string(path).is_ok_and(|source| has_test(&source, name))
        })
        .map(|(line, file, name)| format!("line {line}: {file}.rs::{name}"))
        .collect();
    assert!(missing.is_empty(), "no such tests:\n{}", missing.join("\n"));
}

#[test]
fn every_promise_has_a_test_and_says_what_remains() {
    let page = page();
    let promises: Vec<_> = page.split("\n### P").skip(1).collect();
    for (n, promise) in (1..).zip(&promises) {
        let text = promise.split("\n## ").next().unwrap();
        let title = text.lines().next().unwrap();
        assert!(
            title.starts_with(&format!("{n}. ")),
            "promises are numbered in order: P{title}"
        );
        for part in ["**At most:**", "**How:**", "**Tests:**", "**Remains:**"] {
            assert!(text.contains(part), "P{title} has no part {part}");
        }
        assert!(!tests_named(text).is_empty(), "P{title} names no test");
    }
    assert!(
        promises.len() > 10,
        "{} promises; is the page read right?",
        promises.len()
    );
}

#[test]
fn every_class_of_defects_has_a_test_or_a_reason() {
    let page = page();
    let (_, classes) = page.split_once("\n## The defect classes of the field\n").unwrap();
    let rows = classes.lines().filter(|line| line.starts_with("| ")).skip(1);
    let mut count = 0;
    for row in rows {
        count += 1;
        let reasons = ["does not apply: ", "`.ci/deny`"];
        let said = !tests_named(row).is_empty() || reasons.iter().any(|reason| row.contains(reason));
        assert!(said, "neither a test nor a reason: {row}");
    }
    assert_eq!(count, 22);
}

#[test]
fn a_test_is_found_by_its_attribute() {
    let source = "#[test]\nfn one() {}\n\nfn two() {}\n#[test]\n#[ignore]\nfn three_more() {}\n";
    assert!(has_test(source, "one") && has_test(source, "three_more"));
    assert!(!has_test(source, "two") && !has_test(source, "three") && !has_test(source, "four"));
    let named = tests_named("see `a/src/b.rs::one` and `two`, `c.rs`\n| `d/tests/e.rs::f` |\n");
    assert_eq!(named, [(1, "a/src/b", "one"), (2, "d/tests/e", "f")]);
}
