//! The layers inside the packet path: no files of the crate import each other in a circle.
//!
//! An arrow goes from a file to the file that defines an item which it imports. A module that passes
//! an item on (`pub use`) is not in between.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its ground is missing"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The path of a module or item from the root of the crate.
type Segments = Vec<String>;

/// What a module imports, and whether it passes that on.
struct Imports(Vec<(Segments, bool)>);

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("tests") || path.ends_with("tests.rs") {
            continue;
        }
        match path.is_dir() {
            true => found.extend(sources(&path)),
            false => found.push(path),
        }
    }
    found
}

/// The path of the module in a file.
fn module(root: &Path, file: &Path) -> Segments {
    let relative = file.strip_prefix(root).unwrap().with_extension("");
    let segments = relative.iter().map(|part| part.to_str().unwrap().to_owned());
    segments.filter(|part| part != "lib").collect()
}

/// Adds each path of a tree of imports, such as `crate::a::{b, c::{d, e}}`.
fn expand(tree: &str, prefix: &[&str], paths: &mut Vec<Segments>) {
    let tree = tree.trim();
    let (head, inner) = match tree.split_once('{') {
        Some((head, inner)) => (head, inner.strip_suffix('}')),
        None => (tree.split(" as ").next().unwrap_or_default(), None),
    };
    let own = head
        .split("::")
        .map(str::trim)
        .filter(|part| !part.is_empty() && *part != "self");
    // The first segment `self` names the module itself.
    let starts = prefix.is_empty() && head.starts_with("self::");
    let path: Vec<&str> = prefix
        .iter()
        .copied()
        .chain(starts.then_some("self"))
        .chain(own)
        .collect();
    let Some(inner) = inner else {
        paths.push(path.into_iter().map(str::to_owned).collect());
        return;
    };
    let (mut depth, mut from) = (0, 0);
    for (at, character) in inner.char_indices().chain([(inner.len(), ',')]) {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[from..at].trim().is_empty() {
                    expand(&inner[from..at], &path, paths);
                }
                from = at + 1;
            }
            _ => {}
        }
    }
}

/// Returns the path from the root of the crate, or `None` for one of another crate.
fn absolute(of: &Segments, path: &[String], modules: &BTreeSet<Segments>) -> Option<Segments> {
    let first = path.first()?.as_str();
    let above = path.iter().take_while(|part| *part == "super").count();
    let child = || of.iter().chain(path.first()).cloned().collect::<Segments>();
    match first {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([of, &path[1..]].concat()),
        "super" => Some([&of[..of.len() - above], &path[above..]].concat()),
        _ if modules.contains(&child()) => Some([&of[..], path].concat()),
        _ => None,
    }
}

fn imports(of: &Segments, text: &str, modules: &BTreeSet<Segments>) -> Imports {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let code: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let mut found = Vec::new();
    for statement in code.join("\n").split(';') {
        let Some(at) = statement.rfind("use ") else { continue };
        let before = statement[..at].trim_end().rsplit('\n').next().unwrap_or_default();
        let mut paths = Vec::new();
        expand(&statement[at + 4..], &[], &mut paths);
        let passed_on = before.trim_start().starts_with("pub");
        let paths = paths.iter().filter_map(|path| absolute(of, path, modules));
        found.extend(paths.map(|path| (path, passed_on)));
    }
    Imports(found)
}

/// Returns the module that defines what a path names.
fn origin(path: &[String], of: &BTreeMap<Segments, Imports>) -> Option<Segments> {
    let module = (0..=path.len())
        .rev()
        .map(|len| &path[..len])
        .find(|prefix| of.contains_key(*prefix))?;
    let Some(item) = path.get(module.len()) else {
        return Some(module.to_vec());
    };
    let passed_on = of[module]
        .0
        .iter()
        .find(|(from, passed_on)| *passed_on && from.last() == Some(item));
    match passed_on {
        Some((from, _)) => origin(from, of),
        None => Some(module.to_vec()),
    }
}

fn arrows(root: &Path) -> BTreeMap<Segments, BTreeSet<Segments>> {
    let files: BTreeMap<Segments, PathBuf> = sources(root)
        .into_iter()
        .map(|file| (module(root, &file), file))
        .collect();
    let modules: BTreeSet<Segments> = files.keys().cloned().collect();
    let read =
        |(of, file): (&Segments, &PathBuf)| (of.clone(), imports(of, &fs::read_to_string(file).unwrap(), &modules));
    let imported: BTreeMap<Segments, Imports> = files.iter().map(read).collect();
    let own = |(of, imports): (&Segments, &Imports)| {
        let named = imports.0.iter().filter(|(_, passed_on)| !passed_on);
        let to = named
            .filter_map(|(path, _)| origin(path, &imported))
            .filter(|to| to != of);
        (of.clone(), to.collect())
    };
    imported.iter().map(own).collect()
}

/// Returns the files that a file needs, and those that they need.
fn reached(from: &Segments, arrows: &BTreeMap<Segments, BTreeSet<Segments>>) -> BTreeSet<Segments> {
    let (mut found, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(at) = next.pop() {
        let new = arrows[at].iter().filter(|to| found.insert((*to).clone()));
        next.extend(new);
    }
    found
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    for name in ["packet", "contract"] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
        let arrows = arrows(&root);
        let count: usize = arrows.values().map(BTreeSet::len).sum();
        assert!(
            count > arrows.len(),
            "{count} arrows between {} files of {name}",
            arrows.len()
        );
        let circle = arrows.keys().filter(|of| reached(of, &arrows).contains(*of));
        let circle: Vec<String> = circle.map(|of| of.join("/")).collect();
        assert!(circle.is_empty(), "files of {name} that need themselves: {circle:?}");
    }
}
