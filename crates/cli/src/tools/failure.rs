//! The reasons why the demo, a simulation, a scenario or a bench fails, and their exit status.

use std::io;
use std::path::PathBuf;

use weft_lab::bench::BenchError;
use weft_lab::scenario::hold::HoldError;
use weft_lab::scenario::run::RunError;
use weft_lab::scenario::source::SourceError;
use weft_lab::scenario::tries::TryError;
use weft_node::logging::causes;
use weft_sim::scenario::FileError;

use crate::commands::{NOT_DONE, NOT_VALID, USAGE};
use crate::failure::Failure;

/// The text of each is one line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolFailure {
    #[error("the scenario cannot be read ({source}): {}; check the path", .path.display())]
    ScenarioFile { path: PathBuf, source: io::Error },
    #[error("{0}; see docs/guides/simulation.md")]
    Scenario(FileError),
    #[error("{}", causes(.0))]
    Bench(BenchError),
    #[error("some runs do not count; the report says which and why")]
    Incomplete,
    #[error(transparent)]
    LabFile(#[from] SourceError),
    #[error("{}", causes(.0))]
    LabRun(RunError),
    #[error("{}", causes(.0))]
    LabHold(#[from] HoldError),
    /// A command on a host of the lab has reported the reason itself.
    #[error("the command ended with {0}")]
    Ended(u8),
    #[error("{failed} of {steps} steps failed; {} has logs, statuses and results.json", .out.display())]
    LabFailed { failed: usize, steps: usize, out: PathBuf },
    #[error("{0} has no cells, which `weft lab cells` runs; `weft lab run` runs its steps")]
    NoCells(String),
    #[error("too few tries were as expected in {cells}; {} has their results", .out.display())]
    CellsMissed { cells: String, out: PathBuf },
    #[error("{}", causes(.0))]
    LabTries(TryError),
    #[error("the path of this program is unknown ({0}); start it by its full path")]
    OwnPath(io::Error),
}

impl ToolFailure {
    /// Whether a command on a host of the lab has reported the reason.
    pub(crate) fn is_reported(&self) -> bool {
        matches!(self, Self::Ended(_))
    }

    /// The exit status.
    pub(crate) fn exit_code(&self) -> u8 {
        let exit = match self {
            Self::ScenarioFile { source, .. } if source.kind() == io::ErrorKind::NotFound => USAGE,
            Self::Scenario(_) => USAGE,
            Self::Bench(
                BenchError::SameArm(..)
                | BenchError::NotEmpty(_)
                | BenchError::NoArms(_)
                | BenchError::Relayed(_)
                | BenchError::Congestion(..)
                | BenchError::CongestionNotAllowed(_),
            ) => USAGE,
            Self::LabFile(_) | Self::LabRun(RunError::NotEmpty(_) | RunError::NoLink(..)) => USAGE,
            Self::NoCells(_) | Self::LabTries(TryError::NotEmpty(_)) => USAGE,
            Self::LabHold(HoldError::NoHost(..)) => USAGE,
            Self::Incomplete => NOT_VALID,
            Self::Ended(code) => return *code,
            _ => NOT_DONE,
        };
        exit.code
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Output(error) => error.into(),
            other => ToolFailure::LabRun(other).into(),
        }
    }
}

impl From<TryError> for Failure {
    fn from(error: TryError) -> Self {
        match error {
            TryError::Output(error) => error.into(),
            other => ToolFailure::LabTries(other).into(),
        }
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        ToolFailure::LabFile(error).into()
    }
}

impl From<HoldError> for Failure {
    fn from(error: HoldError) -> Self {
        ToolFailure::LabHold(error).into()
    }
}
