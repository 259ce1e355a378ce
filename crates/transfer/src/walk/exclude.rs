//! Patterns of what is left out, as in `.gitignore`.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::WalkError;
use crate::names::RelPath;

/// Patterns of names that are left out.
#[derive(Debug)]
pub(super) struct Exclude {
    all: GlobSet,
    /// Those that mean folders alone.
    folders: GlobSet,
}

impl Exclude {
    /// Reads patterns. One without a slash means a name at any depth; one with a slash inside or in front means a path
    /// from the top; a slash at the end means folders alone.
    pub(super) fn new(patterns: &[String]) -> Result<Self, WalkError> {
        let (mut all, mut folders) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for pattern in patterns {
            let wrong = |error: globset::Error| WalkError::Pattern {
                pattern: pattern.clone(),
                why: error.kind().to_string(),
            };
            let body = pattern.strip_suffix('/').unwrap_or(pattern);
            let whole = match body.contains('/') {
                true => body.strip_prefix('/').unwrap_or(body).to_owned(),
                false => format!("**/{body}"),
            };
            let glob = GlobBuilder::new(&whole)
                .literal_separator(true)
                .backslash_escape(true)
                .build();
            let glob = glob.map_err(wrong)?;
            match body.len() == pattern.len() {
                true => all.add(glob),
                false => folders.add(glob),
            };
        }
        let built = |set: GlobSetBuilder| {
            set.build().map_err(|error| WalkError::Pattern {
                pattern: patterns.join(" "),
                why: error.kind().to_string(),
            })
        };
        Ok(Self {
            all: built(all)?,
            folders: built(folders)?,
        })
    }

    pub(super) fn matches(&self, path: &RelPath, is_folder: bool) -> bool {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt as _;
        let path = OsStr::from_bytes(path.as_bytes());
        self.all.is_match(path) || is_folder && self.folders.is_match(path)
    }
}
