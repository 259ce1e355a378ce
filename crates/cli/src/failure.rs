//! The reasons why a command fails, and their exit status.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use schemars::JsonSchema;
use serde::Serialize;
use weft_config::ConfigError;
use weft_config::edit::EditError;
use weft_control::{ControlError, ErrorCode};
use weft_host::broker::BrokerError;
use weft_host::exit::host::ExitError;
use weft_node::daemon::DaemonError;
use weft_node::logging::LoggingError;
use weft_os::process::PrivilegeError;
use weft_perf::client::ClientError;
use weft_perf::server::ServerError;
use weft_roster::invite::CodeError;
use weft_roster::names::NameError;
use weft_store::backup::BackupError;
use weft_store::keyfile::encrypted::EncryptedKeyError;
use weft_store::keyfile::{BadSecret, KeyFileError};
use weft_store::network_files::SaveError;
use weft_store::state::{StateError, StatePaths};

use crate::commands::{DONE, FINDINGS, LATE, NO_FLOW, NOT_DONE, NOT_VALID, USAGE};
use crate::documents::{self, OfCommand};
use crate::human;
use crate::output::Out;
use crate::service::{self, ServiceError};
use crate::strict;
use crate::transfer::TransferFailure;

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
    #[error("{0}")]
    Encrypted(#[from] EncryptedKeyError),
    #[error("{problem}: {from}")]
    EncryptedFile { from: String, problem: EncryptedKeyError },
    #[error(
        "the key is imported, and not its networks ({0}); `weft join --ask NPUB --address ADDRESS` gets them from a member"
    )]
    Backup(#[from] BackupError),
    #[error(
        "the key is imported, and not all of its networks ({0}); import it again, or get them from a member: `weft join --ask`"
    )]
    NetworkOfKey(SaveError),
    #[error("there is another key already ({npub}): {}; --force replaces it and keeps the old one beside it", .path.display())]
    OtherKey { path: PathBuf, npub: String },
    #[error("the encrypted key cannot be {what} ({source}): {}; check the path", .path.display())]
    KeyText {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("the passphrase cannot be read ({source}): {from}")]
    Passphrase { from: String, source: io::Error },
    #[error(
        "there is no terminal to ask for the passphrase; give a file that has it with --passphrase-file, or - for standard input"
    )]
    NoTerminal,
    #[error("the two passphrases differ; nothing was written")]
    PassphrasesDiffer,
    #[error(
        "both the encrypted key and the passphrase would be read from standard input; give --file, or a file with --passphrase-file"
    )]
    OneInput,
    #[error("the manual pages cannot be written ({source}): {}; check the directory", .path.display())]
    Man { path: PathBuf, source: io::Error },
    #[error("the code cannot be read ({source}): {}", .path.display())]
    CodeFile { path: PathBuf, source: io::Error },
    #[error("the file of the guest cannot be written ({source}): {}; give another path with --out", .path.display())]
    GuestFile { path: PathBuf, source: io::Error },
    #[error("the rules cannot be read ({source}): {}", .path.display())]
    RuleFile { path: PathBuf, source: io::Error },
    #[error("this node is in no network named {0}; `weft networks` lists them")]
    NoNetwork(String),
    /// The answer was reported: the flow does not pass.
    #[error("the flow does not pass")]
    DoesNotPass,
    #[error("not within {seconds} s: {missing}")]
    Waited { seconds: u64, missing: String },
    #[error("no code was given; `weft invite` on the machine of an administrator prints one")]
    NoCode,
    #[error("this is a public key, and no code; `weft join --ask NPUB` asks the administrator with that key")]
    KeyForCode,
    #[error(transparent)]
    Code(#[from] CodeError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("no daemon is running, and root alone can start one; use `sudo weft {0}`")]
    NoDaemon(&'static str),
    #[error("the daemon cannot be started ({0}); `weft up` starts one")]
    Start(io::Error),
    /// The daemon in the foreground has reported why it ended, and this is its exit status.
    #[error("the daemon has ended")]
    Ended(u8),
    #[error("the daemon was ended by signal {0}; start it again with `weft up`")]
    Killed(i32),
    #[error("not joined: {0}")]
    Refused(String),
    #[error("not a member yet: {0}; the node goes on asking, and `weft networks` shows how far it is")]
    Join(String),
    #[error(
        "interrupted before the daemon has answered; `weft networks` shows whether it does, and how far a request is"
    )]
    Interrupted,
    #[error("nothing is changed")]
    Cancelled,
    #[error("the answer cannot be read ({0}); --keep or --void says it without a question")]
    Answer(io::Error),
    /// This node is a member, and its machine cannot write that down. The request is written, so that
    /// nothing is lost: after a restart the node gets the records once more.
    #[error(
        "this machine is a member now, but that is not saved ({0}); `weft doctor` looks at the disk, and the daemon tries \
         again; after a restart it gets the records once more"
    )]
    JoinedUnsaved(String),
    #[error(
        "the key file is missing: {}; this machine is in {networks} with that key: `weft key import` puts a backup back, or \
         `weft identity new` makes a new one, with which the machine has to join again", .key.display()
    )]
    KeyLost { key: PathBuf, networks: String },
    #[error(
        "root's daemon runs on this machine, and `weft status` shows it; a node of your own beside it cannot start: {0}"
    )]
    BesideRoot(DaemonError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Broker(#[from] BrokerError),
    #[error("{0}; `sudo weft doctor` shows more")]
    Exit(#[from] ExitError),
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    Service(#[from] ServiceError),
    #[error("{peer} {error}")]
    Perf { peer: String, error: ClientError },
    /// Its text may have words of other nodes.
    #[error("{}", human::plain(&.0.to_string()))]
    Transfer(#[from] TransferFailure),
    #[error("the test cannot be served ({0}); it is the daemon that starts this command")]
    PerfServe(#[from] ServerError),
    /// The figures were reported, and the reason why they are invalid.
    #[error("the run is invalid")]
    Invalid,
    /// What was found was reported.
    #[error("something was found")]
    Findings,
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

/// The last document of a command with `--json` that failed.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Failed<'a> {
    /// What went wrong, as text for the user: the line of standard error.
    error: &'a str,
    /// The exit status.
    exit: u8,
    /// The code, if the daemon refused the command.
    code: Option<ErrorCode>,
}

impl OfCommand for Failed<'_> {
    const NAME: &'static str = "weft.error/1";
}

impl Failure {
    /// The text, which tells apart what starts a daemon.
    fn in_words(&self) -> String {
        match self {
            Self::Control(ControlError::NotRunning(socket))
                if service::is_installed() && *socket == StatePaths::system().control() =>
            {
                format!(
                    "no daemon is running: {}; `sudo systemctl start weft` starts the service",
                    socket.display()
                )
            }
            other => other.to_string(),
        }
    }

    /// The line for the user; `None` if the failure was reported already.
    fn line(&self) -> Option<String> {
        match self {
            Self::Closed
            | Self::Told
            | Self::Helped
            | Self::Invalid
            | Self::DoesNotPass
            | Self::Findings
            | Self::Ended(_) => None,
            #[cfg(feature = "lab")]
            Self::Tool(failure) if failure.is_reported() => None,
            Self::Control(ControlError::NotRunning(_)) | Self::Config(_) | Self::Edit { .. } => {
                let left = strict::left().map_or_else(String::new, |left| format!("; {}", strict::told(left)));
                Some(self.in_words() + &left)
            }
            other => Some(other.to_string()),
        }
    }

    /// Reports the failure on standard error, for `json` also as a document on standard output, and returns the exit
    /// status.
    pub(crate) fn report(self, json: bool) -> ExitCode {
        let exit = self.exit_code();
        if let Some(line) = self.line() {
            // If they are closed, nothing more can be done.
            let _ = writeln!(io::stderr(), "weft: {line}");
            if json {
                // Other documents may be in front of it, one a line.
                let _ = Out::new().json_line(&documents::document(&self.document(&line, exit)));
            }
        }
        ExitCode::from(exit)
    }

    /// The document `weft.error/1`.
    fn document<'a>(&self, error: &'a str, exit: u8) -> Failed<'a> {
        let code = match self {
            Self::Control(ControlError::Refused(refusal)) => Some(refusal.code),
            _ => None,
        };
        Failed { error, exit, code }
    }

    /// The exit code.
    pub(crate) fn exit_code(&self) -> u8 {
        let exit = match self {
            Self::Closed => DONE,
            // The file is of another user, or the disk fails or is full; nothing says that the input is wrong.
            Self::Config(ConfigError::Unreadable { .. } | ConfigError::Unwritable { .. }) => NOT_DONE,
            Self::Usage(_)
            | Self::Helped
            | Self::Config(_)
            | Self::NoConfig(_)
            | Self::Edit { .. }
            | Self::KeyLost { .. } => USAGE,
            Self::Invalid => NOT_VALID,
            Self::DoesNotPass => NO_FLOW,
            Self::Waited { .. } => LATE,
            Self::Findings => FINDINGS,
            Self::Ended(code) => return *code,
            Self::Daemon(error) | Self::BesideRoot(error) => return error.exit_code(),
            #[cfg(feature = "lab")]
            Self::Tool(failure) => return failure.exit_code(),
            _ => NOT_DONE,
        };
        exit.code
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
