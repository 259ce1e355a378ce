//! Names of files: paths below one folder, as they come from peers, and how names are shown.

mod show;

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::api::RawPath;

pub use show::{display, numbered};

/// What the names of the folders begin with in which transfers are staged.
pub const STAGED: &[u8] = b".weft-part-";

/// The most bytes of one component, of which Linux takes no more (`NAME_MAX`).
pub const MAX_NAME: usize = 255;
/// The most bytes of a path: `PATH_MAX` of Linux, without the zero at its end.
pub const MAX_PATH: usize = 4095;
/// The most components of a path.
pub const MAX_DEPTH: usize = 256;

/// Why some bytes are no path below a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// There are no bytes.
    #[error("the path is empty")]
    Empty,
    /// It begins with a slash.
    #[error("the path is absolute")]
    Absolute,
    /// Two slashes follow each other, or it ends with one.
    #[error("the path has an empty component")]
    EmptyComponent,
    /// A component is `.` or `..`.
    #[error("the path has a component \".\" or \"..\"")]
    Dots,
    /// It contains a zero byte.
    #[error("the path contains a zero byte")]
    Nul,
    /// What is to be one component contains a slash.
    #[error("the name contains a slash")]
    Slash,
    /// A component has more than [`MAX_NAME`] bytes.
    #[error("the path has a component of more than 255 bytes")]
    LongName,
    /// It has more than [`MAX_PATH`] bytes.
    #[error("the path has more than 4095 bytes")]
    LongPath,
    /// It has more than [`MAX_DEPTH`] components.
    #[error("the path has more than 256 components")]
    Deep,
    /// It begins as the folders in which transfers are staged.
    #[error("the path begins with \".weft-part-\", as the folders of transfers under way")]
    Staged,
}

/// A path below a folder: one or more names with slashes between them, none of which is `.` or `..`.
///
/// Paths are ordered component by component, which is the order of a walk: a folder comes directly before what is in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RelPath(Vec<u8>);

impl RelPath {
    /// A path that another end, a user or a file system chose.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        if bytes.starts_with(STAGED) {
            return Err(NameError::Staged);
        }
        Self::own(bytes)
    }

    /// A path that this end chose: its first component may also begin as those of the folders in which transfers are
    /// staged.
    ///
    /// # Errors
    /// As those of [`RelPath::new`], without [`NameError::Staged`].
    pub fn own(bytes: &[u8]) -> Result<Self, NameError> {
        if bytes.is_empty() {
            return Err(NameError::Empty);
        }
        if bytes.starts_with(b"/") {
            return Err(NameError::Absolute);
        }
        if bytes.len() > MAX_PATH {
            return Err(NameError::LongPath);
        }
        let mut depth = 0;
        for component in bytes.split(|byte| *byte == b'/') {
            check(component)?;
            depth += 1;
        }
        if depth > MAX_DEPTH {
            return Err(NameError::Deep);
        }
        Ok(Self(bytes.to_vec()))
    }

    /// The bytes, with `/` between the components.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path for functions of the standard library; it is relative.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// The names, from the outermost folder on.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/')
    }

    /// The folder that has it; `None` for a path of one component.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let slash = self.0.iter().rposition(|byte| *byte == b'/')?;
        self.0.get(..slash).map(|bytes| Self(bytes.to_vec()))
    }

    /// The last component.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.components().next_back().unwrap_or_default()
    }

    /// The first component.
    #[must_use]
    pub fn first(&self) -> &[u8] {
        self.components().next().unwrap_or_default()
    }

    /// The path without its first component; `None` for a path of one component.
    #[must_use]
    pub fn below_first(&self) -> Option<Self> {
        let slash = self.0.iter().position(|byte| *byte == b'/')?;
        self.0.get(slash + 1..).map(|bytes| Self(bytes.to_vec()))
    }

    /// The path of `name`, which is one component, in this folder.
    ///
    /// # Errors
    /// What is wrong with the name, or with the path that has it at its end.
    pub fn join(&self, name: &[u8]) -> Result<Self, NameError> {
        if name.contains(&b'/') {
            return Err(NameError::Slash);
        }
        Self::own(&[&self.0, name].join(&b'/'))
    }

    /// The path of `rest` in this folder.
    ///
    /// # Errors
    /// [`NameError::LongPath`] or [`NameError::Deep`].
    pub fn join_all(&self, rest: &Self) -> Result<Self, NameError> {
        Self::own(&[self.as_bytes(), rest.as_bytes()].join(&b'/'))
    }

    /// The path for terminals and logs: see [`display`].
    #[must_use]
    pub fn display(&self) -> String {
        display(&self.0)
    }
}

impl Ord for RelPath {
    fn cmp(&self, other: &Self) -> Ordering {
        self.components().cmp(other.components())
    }
}

impl PartialOrd for RelPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Serialize for RelPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawPath::from(self.as_path()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RelPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let path = PathBuf::from(&RawPath::deserialize(deserializer)?);
        Self::new(path.as_os_str().as_bytes()).map_err(serde::de::Error::custom)
    }
}

/// Whether a symbolic link leads to a place in the folder `link.first()`, or, if the link itself is that component, to
/// one beside it. What it leads to need not exist.
///
/// The answer follows from the bytes alone. It holds for chains of links as well: steps upwards are taken only before
/// the first name, from the folder of the link, which is a real one. Behind a name, which may be that of another link,
/// `..` may lead anywhere, so such a target is not inside.
#[must_use]
pub fn link_stays_inside(link: &RelPath, target: &[u8]) -> bool {
    if target.is_empty() || target.starts_with(b"/") || target.contains(&0) || target.len() > MAX_PATH {
        return false;
    }
    let depth = link.components().count() - 1;
    // The folder of the top name itself is still inside.
    let most_up = depth.saturating_sub(1);
    let (mut up, mut named) = (0, false);
    for component in target.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." if named => return false,
            b".." => up += 1,
            _ => named = true,
        }
    }
    up <= most_up
}

/// Whether some bytes are the name of a file.
fn check(component: &[u8]) -> Result<(), NameError> {
    match component {
        b"" => Err(NameError::EmptyComponent),
        b"." | b".." => Err(NameError::Dots),
        _ if component.contains(&0) => Err(NameError::Nul),
        _ if component.len() > MAX_NAME => Err(NameError::LongName),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
