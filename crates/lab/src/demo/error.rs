//! Why a step of the demo failed.

use std::process::ExitStatus;

use super::acts::SILENCE_MS;
use crate::daemon::{DaemonError, PeerState};
use crate::traffic::TrafficError;
use crate::world::WorldError;

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The world could not be made or changed.
    #[error(transparent)]
    World(#[from] WorldError),
    /// A daemon did not do what was wanted.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// A measurement gave no result.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// Pings were lost on a path that loses none.
    #[error("{lost} of {sent} pings from {from} were lost")]
    PingsLost {
        /// Which node sent them.
        from: String,
        /// How many got no answer.
        lost: usize,
        /// How many were sent.
        sent: u64,
    },
    /// One node does not reach another.
    #[error("{from} got no answer from {to}")]
    NoAnswer {
        /// Who asked.
        from: &'static str,
        /// Who did not answer.
        to: &'static str,
    },
    /// The path is not what it should be.
    #[error("the path should be {wanted}, and is {found}")]
    Path {
        /// What it should be.
        wanted: String,
        /// What it is, in both directions.
        found: String,
    },
    /// Payload passes, and the status does not say so.
    #[error("payload passes, but the status shows the peer as {0:?}")]
    StateAfterPayload(Option<PeerState>),
    /// What arrived is not what was sent.
    #[error("the SHA-256 of what was sent and of what arrived differ")]
    HashDiffers,
    /// A change of path took too long.
    #[error("nothing passed for {0:.0} ms; {SILENCE_MS} ms are allowed")]
    SilentTooLong(f64),
    /// A daemon that was asked to stop did not exit with 0.
    #[error("a daemon that was asked to stop ended with {0}")]
    ExitStatus(ExitStatus),
    /// The steps were not made in their order.
    #[error("nothing is under load")]
    NoLoad,
    /// A log has warnings.
    #[error("{count} warnings in the log of {name}, the first: {first}")]
    Warnings {
        /// Whose.
        name: String,
        /// How many.
        count: usize,
        /// The first line.
        first: String,
    },
}
