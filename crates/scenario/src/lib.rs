//! What the scenario files of the lab and of the simulator have in common: TOML that is read
//! strictly, faults in one line with their place and a remedy, and values with a unit.
//!
//! - [`Text`], [`FileError`]: a file, and a fault in it.
//! - [`read`], [`known`]: a table as a type; keys that are in no list.
//! - [`units`]: `20ms`, `100Mbit`, `20MB`.
//!
//! Never here: what a scenario is made of.

pub mod units;

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// A fault of a scenario: one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {at}: {what}")]
pub struct FileError {
    /// The file, or the name of a built-in scenario.
    pub file: String,
    /// The line, and the table or the step.
    pub at: String,
    /// The fault, and the remedy.
    pub what: String,
}

/// The text of a file, and its name for faults.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    /// The name.
    pub file: &'a str,
    /// The text.
    pub text: &'a str,
}

impl Text<'_> {
    /// Reads the file.
    ///
    /// # Errors
    /// [`FileError`] with the line of the first fault.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, FileError> {
        toml::from_str(self.text).map_err(|error| self.error(error.span(), "", error.message()))
    }

    /// A fault at these bytes of the text, in the table or step called `section`.
    #[must_use]
    pub fn error(&self, span: Option<Range<usize>>, section: &str, what: &str) -> FileError {
        let before = span.and_then(|span| self.text.get(..span.start));
        let line = before.map(|before| before.matches('\n').count() + 1);
        let at = match (line, section) {
            (Some(line), "") => format!("line {line}"),
            (Some(line), section) => format!("line {line}, {section}"),
            (None, "") => "the file".to_owned(),
            (None, section) => section.to_owned(),
        };
        self.fault(&at, one_line(what))
    }

    /// A fault at a place that is not in the text.
    #[must_use]
    pub fn fault(&self, at: &str, what: String) -> FileError {
        FileError {
            file: self.file.to_owned(),
            at: at.to_owned(),
            what,
        }
    }
}

/// Refuses keys that are in none of the lists.
///
/// # Errors
/// The first unknown key, with all known ones.
pub fn known(table: &Table, lists: &[&[&str]]) -> Result<(), String> {
    let all = lists.concat();
    match table.keys().find(|key| !all.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(format!("there is no {key:?} here; there are {}", all.join(", "))),
    }
}

/// Deserialises a table.
///
/// # Errors
/// The fault in one line.
pub fn read<T: DeserializeOwned>(table: Table) -> Result<T, String> {
    Value::Table(table)
        .try_into()
        .map_err(|error: toml::de::Error| one_line(&error.to_string()))
}

/// Joins a message of several lines to one.
fn one_line(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ")
}
