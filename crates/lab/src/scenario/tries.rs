//! `weft lab cells`: many tries of the cells of a scenario, each cell by itself in a run of its own,
//! and the tables of what came of them.
//!
//! A try is a process of its own, `weft lab run`, with a seed of its own. Several run side by side.

mod table;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};

use serde::Deserialize;

pub use table::{cells, pairs};

use super::results::Settled;

/// The share of a cell's tries that must be as expected: a search of ports has its luck.
pub const ENOUGH: f64 = 0.9;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The scenario's file, or its name.
    pub from: String,
    /// The cells.
    pub cells: Vec<String>,
    /// The number of tries of each.
    pub tries: u32,
    /// The number of runs at the same time.
    pub jobs: usize,
    /// Settings of all runs, besides cell and seed.
    pub settings: Vec<String>,
    /// The folder for the runs that are not as expected, which have their results there.
    pub out: PathBuf,
    /// The weft program.
    pub weft: PathBuf,
}

/// One try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Try {
    /// The cell.
    pub cell: String,
    /// The seed of its run.
    pub seed: u32,
    /// Whether all steps were as expected.
    pub ok: bool,
    /// The paths; `None` if the run has no results.
    pub settled: Option<Settled>,
}

/// Why a try could not run.
#[derive(Debug, thiserror::Error)]
pub enum TryError {
    /// A file or folder could not be used.
    #[error("{} cannot be used", .path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The folder is not empty.
    #[error("{} is not empty; name another folder with --out", .0.display())]
    NotEmpty(PathBuf),
    /// The program could not be started.
    #[error("{} cannot be started", .path.display())]
    Start {
        /// The program.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Progress could not be written.
    #[error("standard output cannot be written")]
    Output(#[source] io::Error),
}

impl TryError {
    fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

/// Performs all tries, and writes a line about each as it ends. The tries of all cells come before
/// the next try of any.
///
/// # Errors
/// [`TryError::NotEmpty`]; [`TryError`] for the first try that could not run; one that is not as expected is a result.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<Vec<Try>, TryError> {
    fs::create_dir_all(&options.out).map_err(TryError::file(&options.out))?;
    let mut entries = fs::read_dir(&options.out).map_err(TryError::file(&options.out))?;
    if entries.next().is_some() {
        return Err(TryError::NotEmpty(options.out.clone()));
    }
    let tries = (1..=options.tries).flat_map(|seed| options.cells.iter().map(move |cell| (cell.clone(), seed)));
    let queue: Mutex<VecDeque<(String, u32)>> = Mutex::new(tries.collect());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let mut done = Vec::new();
    std::thread::scope(|scope| {
        let (ended, results) = mpsc::channel();
        for _ in 0..options.jobs.max(1) {
            let ended = ended.clone();
            scope.spawn(move || {
                while let Some((cell, seed)) = next() {
                    if ended.send(perform(options, &cell, seed)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(ended);
        for result in results {
            let one = result?;
            writeln!(out, "{}", line(&one))
                .and_then(|()| out.flush())
                .map_err(TryError::Output)?;
            done.push(one);
        }
        Ok(done)
    })
}

/// The cells in this order, of which too few tries were as expected.
#[must_use]
pub fn missed<'a>(order: &'a [String], tries: &[Try]) -> Vec<&'a str> {
    let enough = |cell: &&String| {
        let own: Vec<_> = tries.iter().filter(|one| one.cell == **cell).collect();
        let right = own.iter().filter(|one| one.ok).count();
        right as f64 >= ENOUGH * own.len() as f64
    };
    order.iter().filter(|cell| !enough(cell)).map(String::as_str).collect()
}

fn line(one: &Try) -> String {
    let mark = if one.ok { "ok    " } else { "FAILED" };
    let seen = one
        .settled
        .as_ref()
        .map_or_else(|| "no results".to_owned(), ToString::to_string);
    format!("{mark}  {:3}  {}: {seen}", one.seed, one.cell)
}

/// What of the document `weft.lab/1` counts here.
#[derive(Deserialize)]
struct Results {
    ok: bool,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    settled: Option<Settled>,
}

/// One try, whose folder stays if it was not as expected.
fn perform(options: &Options, cell: &str, seed: u32) -> Result<Try, TryError> {
    let fit = |letter: char| {
        if letter.is_ascii_alphanumeric() || "+,-".contains(letter) {
            letter
        } else {
            '_'
        }
    };
    let folder = options
        .out
        .join(format!("{}-{seed}", cell.chars().map(fit).collect::<String>()));
    let said = folder.with_extension("log");
    let log = File::create(&said).map_err(TryError::file(&said))?;
    let errors = log.try_clone().map_err(TryError::file(&said))?;
    let mut command = Command::new(&options.weft);
    command.args(["lab", "run", &options.from, "--out"]).arg(&folder);
    let own = [format!("cell={cell}"), format!("seed={seed}")];
    for setting in own.iter().chain(&options.settings) {
        command.args(["--set", setting]);
    }
    let run = command.stdin(Stdio::null()).stdout(log).stderr(errors).status();
    run.map_err(|source| TryError::Start {
        path: options.weft.clone(),
        source,
    })?;
    let results: Option<Results> = fs::read(folder.join("results.json"))
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let ok = results.as_ref().is_some_and(|results| results.ok);
    if ok {
        fs::remove_dir_all(&folder).map_err(TryError::file(&folder))?;
        fs::remove_file(&said).map_err(TryError::file(&said))?;
    }
    let settled = results.and_then(|results| results.steps.into_iter().find_map(|step| step.settled));
    Ok(Try {
        cell: cell.to_owned(),
        seed,
        ok,
        settled,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_missed_if_more_than_one_in_ten_tries_fails() {
        let tries = |cell: &str, failed: u32| {
            let cell = cell.to_owned();
            (0..20).map(move |seed| Try {
                cell: cell.clone(),
                seed,
                ok: seed >= failed,
                settled: None,
            })
        };
        let all: Vec<_> = tries("a+b", 2).chain(tries("b+b", 3)).collect();
        assert_eq!(missed(&["a+b", "b+b"].map(str::to_owned), &all), ["b+b"]);
    }
}
