//! Structured logs on standard error.

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

/// An error and its causes, in one line. A cause that the text contains already is not repeated.
#[must_use]
pub fn causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.map(ToString::to_string).fold(error.to_string(), |text, cause| {
        if text.contains(&cause) {
            text
        } else {
            format!("{text}: {cause}")
        }
    })
}

/// The filter of log lines: a level (`off`, `error`, `warn`, `info`, `debug`, `trace`), or
/// directives such as `info,weft_node=debug` as tracing-subscriber's `EnvFilter` defines them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter(String);

impl LogFilter {
    /// The filter as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether lines in text form name their module: at `info` it is of no use to the user.
    fn names_modules(&self) -> bool {
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

/// Changes the filter of a running log.
pub struct LogControl(Box<dyn Fn(EnvFilter) -> bool + Send>);

impl LogControl {
    /// Logs by this filter from now on. Returns whether it does.
    pub fn set(&self, filter: &LogFilter) -> bool {
        EnvFilter::try_new(filter.as_str()).is_ok_and(&self.0)
    }
}

impl fmt::Debug for LogControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogControl")
    }
}

/// Starts logging to standard error, for the whole process.
///
/// # Errors
/// [`LoggingError`] if it was started before.
pub fn init(filter: &LogFilter, format: LogFormat) -> Result<LogControl, LoggingError> {
    let modules = filter.names_modules();
    let filter = EnvFilter::try_new(filter.as_str()).map_err(|_| LoggingError)?;
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    match format {
        LogFormat::Text => {
            let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let logs = logs
                .with_target(modules)
                .with_ansi(!plain && io::stderr().is_terminal());
            let logs = logs.with_filter_reloading();
            let filter = logs.reload_handle();
            logs.try_init().map_err(|_| LoggingError)?;
            Ok(LogControl(Box::new(move |new| filter.reload(new).is_ok())))
        }
        LogFormat::Json => {
            let logs = logs.json().flatten_event(true).with_filter_reloading();
            let filter = logs.reload_handle();
            logs.try_init().map_err(|_| LoggingError)?;
            Ok(LogControl(Box::new(move |new| filter.reload(new).is_ok())))
        }
    }
}

/// Logging was started before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("logging has been started already in this process")]
pub struct LoggingError;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Told {
        text: &'static str,
        #[source]
        cause: io::Error,
    }

    #[test]
    fn a_cause_is_told_once() {
        let told = |text| {
            causes(&Told {
                text,
                cause: io::Error::other("no room"),
            })
        };
        assert_eq!(told("it cannot be written"), "it cannot be written: no room");
        assert_eq!(told("it cannot be written (no room)"), "it cannot be written (no room)");
    }

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
