//! Records of experiments: the bench writes the figures, and a person writes the interpretation.
//!
//! A record is `docs/experiments/DATE-NAME.md`, with every run in
//! `docs/experiments/data/DATE-NAME.csv`. A document or comment that relies on a record names it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::setup::{Setup, today};

/// The folder of records, from the project's folder.
pub const FOLDER: &str = "docs/experiments";

/// The folder of runs, from the records' folder.
const DATA: &str = "data";

/// The mark of text that has to be written by hand.
const OPEN: &str = "TODO";

/// A new record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experiment {
    /// The path of its page.
    path: PathBuf,
    /// The path of its runs.
    data: PathBuf,
    /// Its name, without the date.
    name: String,
}

/// Why a record cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The name is invalid.
    #[error("{0:?} is not a name of a record; write lower-case letters, digits and hyphens, such as \"gso-cap\"")]
    Name(String),
    /// The record exists.
    #[error("{} exists; records are not overwritten: choose another name", .0.display())]
    Exists(PathBuf),
    /// The folder for it does not exist.
    #[error("the folder {} does not exist; run this in the project's folder", .0.display())]
    NoFolder(PathBuf),
}

impl Experiment {
    /// The record `DATE-name.md` of today, in `folder`.
    ///
    /// # Errors
    /// [`ExperimentError`].
    pub fn new(folder: &Path, name: &str) -> Result<Self, ExperimentError> {
        let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || !name.bytes().all(good) {
            return Err(ExperimentError::Name(name.to_owned()));
        }
        if !folder.is_dir() {
            return Err(ExperimentError::NoFolder(folder.to_owned()));
        }
        let file = format!("{}-{name}", today());
        let path = folder.join(format!("{file}.md"));
        let data = folder.join(DATA).join(format!("{file}.csv"));
        if let Some(taken) = [&path, &data].into_iter().find(|file| file.exists()) {
            return Err(ExperimentError::Exists(taken.clone()));
        }
        Ok(Self {
            path,
            data,
            name: name.to_owned(),
        })
    }

    /// The path of its page.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the page, with the tables of the report and marks for the interpretation, and every
    /// run to its file.
    ///
    /// # Errors
    /// If a file cannot be read or written, or has been created meanwhile.
    pub fn begin(&self, report: &Path, runs: &Path, setup: &Setup) -> io::Result<()> {
        let text = self.text(&fs::read_to_string(report)?, setup);
        File::create_new(&self.path)?.write_all(text.as_bytes())?;
        if let Some(folder) = self.data.parent() {
            fs::create_dir_all(folder)?;
        }
        File::create_new(&self.data)?.write_all(&fs::read(runs)?)
    }

    fn text(&self, report: &str, setup: &Setup) -> String {
        let commits: Vec<_> = setup
            .arms
            .iter()
            .map(|arm| format!("{}: {}", arm.label, arm.version.as_deref().unwrap_or("-")))
            .collect();
        let mut text = format!("# {}\n\n{}. {}.\n", self.name, setup.date(), commits.join("; "));
        for part in ["Question", "Result", "Decision", "Rejected"] {
            text.push_str(&format!("\n**{part}.** {OPEN}\n"));
        }
        let data = self.data.file_name().unwrap_or_default().to_string_lossy();
        text.push_str(&format!(
            "\n**To repeat.** `{}`\n\n**Every run:** [{data}]({DATA}/{data}).\n\n## Runs\n",
            setup.command
        ));
        // Plots and the tables as CSV stay with the raw data; the report's sections become part of one here.
        for line in report
            .lines()
            .skip(1)
            .filter(|line| !line.starts_with("![") && !line.starts_with("[As CSV]"))
        {
            if line.is_empty() && text.ends_with("\n\n") {
                continue;
            }
            if line.starts_with("## ") {
                text.push('#');
            }
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup() -> Setup {
        Setup {
            schema: "weft.bench/1",
            unix: 1_763_683_200,
            command: "weft lab bench --record x".to_owned(),
            rounds: 1,
            seconds: 1,
            layout: "two hosts and one cable".to_owned(),
            regime: "no delay, loss or limit".to_owned(),
            congestion: "cubic".to_owned(),
            namespace_congestion: "bbr".to_owned(),
            mtu: None,
            wire: false,
            machine: Vec::new(),
            arms: Vec::new(),
            missing: Vec::new(),
        }
    }

    #[test]
    fn a_record_has_the_tables_and_room_for_what_they_mean() {
        let folder = tempfile::tempdir().unwrap();
        let (report, runs) = (folder.path().join("report.md"), folder.path().join("runs.csv"));
        fs::write(&report, "# Bench\n\n| a |\n\n## tcp\n\n![t](tcp.svg)\n\n| b |\n").unwrap();
        fs::write(&runs, "round\n1\n").unwrap();
        let experiment = Experiment::new(folder.path(), "gso-cap").unwrap();
        experiment.begin(&report, &runs, &setup()).unwrap();
        let text = fs::read_to_string(experiment.path()).unwrap();
        assert!(text.starts_with("# gso-cap\n\n2025-11-21."), "{text}");
        for part in ["Question", "Result", "Decision", "Rejected"] {
            assert!(text.contains(&format!("\n**{part}.** TODO\n")), "{text}");
        }
        assert!(text.contains("`weft lab bench --record x`"), "{text}");
        assert!(text.ends_with("\n## Runs\n\n| a |\n\n### tcp\n\n| b |\n"), "{text}");
        let file = experiment.path().file_stem().unwrap().to_string_lossy().into_owned();
        let data = format!("data/{file}.csv");
        assert!(text.contains(&format!("[{file}.csv]({data})")), "{text}");
        assert_eq!(fs::read_to_string(folder.path().join(data)).unwrap(), "round\n1\n");
    }

    #[test]
    fn a_record_is_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let (report, runs) = (folder.path().join("report.md"), folder.path().join("runs.csv"));
        fs::write(&report, "# Bench\n").unwrap();
        fs::write(&runs, "").unwrap();
        let experiment = Experiment::new(folder.path(), "x").unwrap();
        // Another process was faster.
        fs::write(experiment.path(), "mine").unwrap();
        assert!(experiment.begin(&report, &runs, &setup()).is_err());
        assert_eq!(fs::read_to_string(experiment.path()).unwrap(), "mine");
        let again = Experiment::new(folder.path(), "x");
        assert!(matches!(again, Err(ExperimentError::Exists(path)) if path == experiment.path()));
    }

    #[test]
    fn a_name_is_part_of_a_file_name() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["", "a/b", "../a", "A", "a b", "a.md"] {
            let refused = Experiment::new(folder.path(), name);
            assert!(matches!(refused, Err(ExperimentError::Name(_))), "{name}");
        }
        let nowhere = Experiment::new(&folder.path().join("none"), "x");
        assert!(matches!(nowhere, Err(ExperimentError::NoFolder(_))));
    }
}
