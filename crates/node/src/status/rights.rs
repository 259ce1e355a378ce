//! What the daemon tells about its own rights.

use serde::{Deserialize, Serialize};

/// What the daemon can still do to the system, and who could read its memory. docs/guides/privileges.md explains it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RightsStatus {
    /// The user that the daemon is.
    pub uid: u32,
    /// Why it is uid 0 still; none where it is not.
    pub root: Option<String>,
    /// Files are out of reach but for those that it needs (Landlock).
    pub landlock: GuardStatus,
    /// System calls that it does not need are refused (seccomp).
    pub seccomp: GuardStatus,
    /// Its memory is not swapped out.
    pub memory_locked: GuardStatus,
    /// The process runs that does what takes root's rights.
    pub broker: GuardStatus,
}

/// Whether something is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardStatus {
    /// It is.
    pub on: bool,
    /// Why it is not, for people.
    pub why: Option<String>,
}

impl GuardStatus {
    /// In force, unless there is a reason why it is not.
    #[must_use]
    pub fn new(why: Option<String>) -> Self {
        Self { on: why.is_none(), why }
    }
}
