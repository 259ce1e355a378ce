//! Structured logs on standard error.

use std::fmt;
use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;
use weft_config::log::{LogFilter, LogFormat};

/// Writes an error and its causes in one line. A cause that the text contains already is not
/// repeated.
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
}
