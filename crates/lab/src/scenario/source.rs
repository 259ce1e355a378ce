//! The source of a scenario: a file, or a built-in one.

use std::io;
use std::path::{Path, PathBuf};

use super::file::{FileError, Scenario};

/// A built-in scenario.
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

/// All built-in scenarios.
pub const READY: &[Ready] = ready![
    "lan",
    "home-nat-to-cloud",
    "double-cgnat",
    "wan-26ms",
    "loss-1",
    "roaming-laptop",
    "relay-chain",
    "two-relays",
    "mtu-black-hole",
    "flapping-link",
    "private-network",
    "router-reboot",
    "cgnat-neighbours",
    "kernel-nat",
    "nat64",
    "nat-matrix",
    "nat-search",
    "reach",
    "reach-ipv6",
    "ipv6-firewall",
    "udp-blocked",
    "two-uplinks",
    "demo",
];

/// A scenario, read and checked.
#[derive(Debug, Clone)]
pub struct Source {
    /// The requested path or name.
    pub from: String,
    /// The text of the file.
    pub text: String,
    /// The parsed scenario, with the settings applied.
    pub scenario: Scenario,
}

impl Source {
    /// Reads the file at this path, or the built-in scenario of this name: an argument with a slash
    /// or a dot, or that exists as a file, is a path.
    ///
    /// # Errors
    /// [`SourceError`]: a mistake of the user.
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

/// Why a scenario could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Neither a file nor a built-in scenario.
    #[error("there is no file {0:?}, and no built-in scenario of that name; `weft lab list` shows those")]
    NoneReady(String),
    /// The file cannot be read.
    #[error("{}: it cannot be read ({source}); check the path", .path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It contains a fault.
    #[error(transparent)]
    File(#[from] FileError),
}
