//! The names of an offer that the user wants.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Names at the top, and patterns of such names.
#[derive(Clone, Debug)]
pub struct Only {
    names: Vec<String>,
    patterns: GlobSet,
}

impl Only {
    /// Reads patterns, as those of names that are left out.
    ///
    /// # Errors
    /// What is wrong with one, in words.
    pub fn new(patterns: &[String]) -> Result<Self, String> {
        let mut all = GlobSetBuilder::new();
        for pattern in patterns {
            let glob = GlobBuilder::new(pattern.strip_suffix('/').unwrap_or(pattern))
                .literal_separator(true)
                .backslash_escape(true)
                .build();
            all.add(glob.map_err(|error| format!("{pattern} is no pattern: {}", error.kind()))?);
        }
        let all = all.build().map_err(|error| error.kind().to_string())?;
        Ok(Self {
            names: patterns.to_vec(),
            patterns: all,
        })
    }

    /// Whether a name is wanted.
    #[must_use]
    pub fn has(&self, name: &[u8]) -> bool {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt as _;
        let is_name = self.names.iter().any(|one| one.as_bytes() == name);
        is_name || self.patterns.is_match(OsStr::from_bytes(name))
    }
}
