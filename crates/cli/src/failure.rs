//! The reasons why a command fails, and their exit status.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use weft_node::broker::BrokerError;
use weft_node::config::ConfigError;
use weft_node::config::edit::EditError;
use weft_node::control::ControlError;
use weft_node::daemon::DaemonError;
use weft_node::keyfile::{BadSecret, KeyFileError};
use weft_node::logging::LoggingError;
use weft_node::state::StateError;
use weft_os::process::PrivilegeError;
use weft_perf::client::ClientError;
use weft_perf::server::ServerError;

use crate::service::ServiceError;

/// The text of each is one line, except for the first three.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The reader of standard output closed it.
    #[error("standard output is closed")]
    Closed,
    /// The command has already reported the failure.
    #[error("not done")]
    Told,
    /// Help was shown because arguments are missing.
    #[error("arguments are missing")]
    Helped,
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("there is no configuration yet: {}; `weft up` makes one when it first starts, or name another with --config", .0.display())]
    NoConfig(PathBuf),
    #[error("{}: {error}", .path.display())]
    Edit { path: PathBuf, error: EditError },
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Key(#[from] KeyFileError),
    #[error("{problem}: {from}; give one nsec")]
    Import { from: String, problem: BadSecret },
    #[error("the key cannot be read ({source}): {}; check the path", .path.display())]
    ImportFile { path: PathBuf, source: io::Error },
    #[error("the code cannot be read ({source}): {}", .path.display())]
    CodeFile { path: PathBuf, source: io::Error },
    #[error("not joined: {0}")]
    Refused(String),
    #[error("not a member yet: {0}; the node goes on asking, and `weft networks` shows how far it is")]
    Join(String),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Broker(#[from] BrokerError),
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    Service(#[from] ServiceError),
    #[error("{peer} {error}")]
    Perf { peer: String, error: ClientError },
    #[error("the test cannot be served ({0}); it is the daemon that starts this command")]
    PerfServe(#[from] ServerError),
    /// The figures were reported, and the reason why they are invalid.
    #[error("the run is invalid")]
    Invalid,
    #[error("the plot cannot be written ({source}): {}; check the path", .path.display())]
    Plot { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Privileges(#[from] PrivilegeError),
    #[cfg(feature = "lab")]
    #[error(transparent)]
    Tool(#[from] crate::tools::ToolFailure),
    #[error(transparent)]
    Logging(#[from] LoggingError),
    #[error("standard output cannot be written ({0}); check where it goes")]
    Output(io::Error),
    #[error("signals cannot be caught ({0}); try again")]
    Signals(io::Error),
}

impl Failure {
    /// Reports the failure on standard error, and returns the exit status.
    pub(crate) fn report(self) -> ExitCode {
        match &self {
            Self::Closed => return ExitCode::SUCCESS,
            Self::Told | Self::Helped | Self::Invalid => {}
            #[cfg(feature = "lab")]
            Self::Tool(failure) if failure.is_reported() => {}
            // If standard error is closed as well, nothing more can be done.
            other => drop(writeln!(io::stderr(), "weft: {other}")),
        }
        match self {
            // The disk is full or closed; the user's input is valid.
            Self::Config(ConfigError::Unwritable { .. }) => ExitCode::FAILURE,
            Self::Usage(_) | Self::Helped | Self::Config(_) | Self::NoConfig(_) | Self::Edit { .. } => {
                ExitCode::from(2)
            }
            Self::Invalid => ExitCode::from(3),
            Self::Daemon(error) => ExitCode::from(error.exit_code()),
            #[cfg(feature = "lab")]
            Self::Tool(failure) => ExitCode::from(failure.exit_code()),
            _ => ExitCode::FAILURE,
        }
    }
}

/// Errors of standard output; others are converted explicitly.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Output(error),
        }
    }
}
