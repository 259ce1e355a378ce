//! Comments and documents cite docs/lessons.md by number. These tests check that the page has each
//! cited lesson, and that what the page names exists.
#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

use std::fs;
use std::path::{Path, PathBuf};

fn at_root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The Rust and Markdown files of the project, without the outputs of builds.
fn sources() -> Vec<PathBuf> {
    let top = ["crates", "docs", "fuzz", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"];
    let (mut open, mut found) = (Vec::from(top.map(at_root)), Vec::new());
    while let Some(path) = open.pop() {
        if path.is_dir() && !path.ends_with("target") {
            open.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|e| e == "rs" || e == "md") {
            found.push(path);
        }
    }
    found
}

/// The lessons that a line cites, as `L13` or `L24b`. `GSO_UDP_L4`, `#L20` and `L2 cache` are not
/// citations.
fn cited(line: &str) -> Vec<String> {
    let line = line.replace(" cache", "_cache");
    let words = line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '#');
    let number = |word: &str| word.strip_prefix('L')?.trim_end_matches('b').parse::<u8>().ok();
    words.filter(|word| number(word).is_some()).map(str::to_owned).collect()
}

#[test]
fn every_lesson_that_is_cited_is_on_the_page() {
    let page = fs::read_to_string(at_root("docs/lessons.md")).unwrap();
    let mut count = 0;
    for file in sources() {
        let is_rust = file.extension().is_some_and(|e| e == "rs");
        for (n, line) in (1..).zip(fs::read_to_string(&file).unwrap().lines()) {
            let comment = line.split_once("//").map_or("", |(_, comment)| comment);
            for lesson in cited(if is_rust { comment } else { line }) {
                count += 1;
                let is_there = page.contains(&format!("\n### {lesson} "));
                assert!(is_there, "{}:{n}: no lesson {lesson}", file.display());
            }
        }
    }
    assert!(count > 100, "{count} citations; are the files read right?");
}

#[test]
fn names_on_the_page_exist() {
    let page = fs::read_to_string(at_root("docs/lessons.md")).unwrap();
    for name in page.split(['`', '(', ')', '#']) {
        assert!(!name.starts_with("crates/") || at_root(name).exists(), "{name}");
        assert!(!name.ends_with(".md") || at_root("docs").join(name).exists(), "{name}");
    }
}
