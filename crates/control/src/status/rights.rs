//! The part of the status about the daemon's own rights.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the daemon can still do to the system, and which processes could read its memory.
/// docs/guides/privileges.md explains it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RightsStatus {
    /// The user of the daemon.
    pub uid: u32,
    /// The reason why it still has uid 0; `None` if it has not.
    pub root: Option<String>,
    /// Access to files is limited to those that it needs (Landlock).
    pub landlock: GuardStatus,
    /// System calls that it does not need are refused (seccomp).
    pub seccomp: GuardStatus,
    /// Its memory is locked and not swapped out.
    pub memory_locked: GuardStatus,
    /// The broker runs, which carries out what needs root's rights.
    pub broker: GuardStatus,
}

/// Whether something is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuardStatus {
    /// Whether it is in force.
    pub on: bool,
    /// The reason why it is not, as text for the user.
    pub why: Option<String>,
}

impl GuardStatus {
    /// In force, unless there is a reason why it is not.
    #[must_use]
    pub fn new(why: Option<String>) -> Self {
        Self { on: why.is_none(), why }
    }
}
