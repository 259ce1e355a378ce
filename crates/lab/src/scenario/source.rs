//! Where a scenario comes from: a file, or one of those that are ready.

use std::io;
use std::path::{Path, PathBuf};

use super::file::{FileError, Scenario};

/// A scenario that is part of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// Its name.
    pub name: &'static str,
    /// Its file.
    pub text: &'static str,
}

macro_rules! ready {
    ($($name:literal),* $(,)?) => {
        &[$(Ready {
            name: $name,
            text: include_str!(concat!("../../scenarios/", $name, ".toml")),
        }),*]
    };
}

/// All ready scenarios.
pub const READY: &[Ready] = ready![
    "lan",
    "home-nat-to-cloud",
    "double-cgnat",
    "wan-26ms",
    "loss-1",
    "roaming-laptop",
    "relay-chain",
    "mtu-black-hole",
    "flapping-link",
];

/// A scenario, read and checked.
#[derive(Debug, Clone)]
pub struct Source {
    /// What was asked for: a path or a name.
    pub from: String,
    /// The text, as it stands there.
    pub text: String,
    /// What it says, with what was set.
    pub scenario: Scenario,
}

impl Source {
    /// Reads the file at this path, or the ready scenario of this name: what has a slash, a dot, or is there is a file.
    ///
    /// # Errors
    /// [`SourceError`], and the fault is the user's.
    pub fn open(from: &str, settings: &[String]) -> Result<Self, SourceError> {
        let ready = READY.iter().find(|ready| ready.name == from);
        let text = match ready {
            Some(ready) if !Path::new(from).is_file() => ready.text.to_owned(),
            _ => std::fs::read_to_string(from).map_err(|source| match source.kind() {
                io::ErrorKind::NotFound if !from.contains(['/', '.']) => SourceError::NoneReady(from.to_owned()),
                _ => SourceError::Unreadable {
                    path: from.into(),
                    source,
                },
            })?,
        };
        let scenario = Scenario::parse(from, &text, settings)?;
        Ok(Self {
            from: from.to_owned(),
            text,
            scenario,
        })
    }
}

/// Why there is no scenario.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Neither a file nor a ready one.
    #[error("there is no file {0:?}, and no ready scenario of that name; `weft lab list` has those")]
    NoneReady(String),
    /// The file cannot be read.
    #[error("{}: it cannot be read ({source}); check the path", .path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is wrong.
    #[error(transparent)]
    File(#[from] FileError),
}
