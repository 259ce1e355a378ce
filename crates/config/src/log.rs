//! Settings of the log.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

/// The filter of log lines: a level (`off`, `error`, `warn`, `info`, `debug`, `trace`), or
/// directives such as `info,weft_node=debug` as tracing-subscriber's `EnvFilter` defines them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter(String);

impl LogFilter {
    /// The filter of warnings and errors: `warn`.
    #[must_use]
    pub fn warn() -> Self {
        Self("warn".to_owned())
    }

    /// The filter as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether lines in text form name their module: at `info` it is of no use to the user.
    #[must_use]
    pub fn names_modules(&self) -> bool {
        let text = self.0.to_ascii_lowercase();
        ["debug", "trace", "="].iter().any(|part| text.contains(part))
    }
}

impl Default for LogFilter {
    /// `info`.
    fn default() -> Self {
        Self("info".to_owned())
    }
}

impl FromStr for LogFilter {
    type Err = BadFilter;

    fn from_str(text: &str) -> Result<Self, BadFilter> {
        const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
        let bad = || BadFilter(text.chars().flat_map(char::escape_debug).take(80).collect());
        for directive in text.split(',') {
            // A single word would be taken as a module's name, so a misspelled level would log
            // nothing.
            let level = directive.rsplit('=').next().unwrap_or_default().trim();
            if !LEVELS.contains(&level.to_ascii_lowercase().as_str()) {
                return Err(bad());
            }
        }
        EnvFilter::try_new(text).map_err(|_| bad())?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is neither a level nor a list of directives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no log level; write error, warn, info, debug or trace, or directives as \"info,weft_node=debug\"")]
pub struct BadFilter(String);

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text; coloured on a terminal unless `NO_COLOR` is set.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_directives() {
        for text in ["off", "info", "WARN", "info,weft_node=debug", "weft_plane=trace"] {
            assert_eq!(text.parse::<LogFilter>().unwrap().as_str(), text);
        }
    }

    #[test]
    fn modules_are_named_where_details_are_wanted() {
        for (text, named) in [
            ("info", false),
            ("WARN", false),
            ("DEBUG", true),
            ("info,weft_node=warn", true),
        ] {
            assert_eq!(text.parse::<LogFilter>().unwrap().names_modules(), named, "{text}");
        }
    }

    #[test]
    fn a_mistyped_level_is_no_module_name() {
        for text in ["inof", "", "info,weft_node", "weft_node=loud", "info,", "[=info"] {
            assert!(text.parse::<LogFilter>().is_err(), "{text}");
        }
    }
}
