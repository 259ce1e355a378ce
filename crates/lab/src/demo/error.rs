//! Why a step of the demo failed.

use std::process::ExitStatus;

use super::acts::SILENCE_MS;
use crate::daemon::{DaemonError, PeerState};
use crate::traffic::TrafficError;
use crate::world::WorldError;

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The network could not be built or changed.
    #[error(transparent)]
    World(#[from] WorldError),
    /// A daemon failed.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// A measurement gave no result.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// Pings were lost on a lossless path.
    #[error("{lost} of {sent} pings from {from} were lost")]
    PingsLost {
        /// The node that sent them.
        from: String,
        /// Number of unanswered pings.
        lost: usize,
        /// Number of pings.
        sent: u64,
    },
    /// One node does not reach another.
    #[error("{from} got no answer from {to}")]
    NoAnswer {
        /// The node that sent the ping.
        from: &'static str,
        /// The node that did not answer.
        to: &'static str,
    },
    /// The path is not the expected one.
    #[error("the path should be {wanted}, and is {found}")]
    Path {
        /// The expected path.
        wanted: String,
        /// The paths found, in both directions.
        found: String,
    },
    /// Payload passes, and the status does not show it.
    #[error("payload passes, but the status shows the peer as {0:?}")]
    StateAfterPayload(Option<PeerState>),
    /// The content was altered.
    #[error("the SHA-256 of what was sent and of what arrived differ")]
    HashDiffers,
    /// A change of path took too long.
    #[error("nothing passed for {0:.0} ms; {SILENCE_MS} ms are allowed")]
    SilentTooLong(f64),
    /// A daemon that was stopped did not exit with 0.
    #[error("a daemon that was asked to stop ended with {0}")]
    ExitStatus(ExitStatus),
    /// The steps ran in the wrong order.
    #[error("nothing is under load")]
    NoLoad,
    /// A log has warnings.
    #[error("{count} warnings in the log of {name}, the first: {first}")]
    Warnings {
        /// The node.
        name: String,
        /// The number of warnings.
        count: usize,
        /// The first line.
        first: String,
    },
}
