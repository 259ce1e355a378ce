//! What was removed of transfers that have ended.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Note;

/// The schema of [`Cleaned`].
pub const CLEANED: &str = "weft.cleaned/1";

/// What was removed: `weft.cleaned/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cleaned {
    /// `weft.cleaned/1`.
    pub schema: String,
    /// Transfers that have ended, of the history.
    pub transfers: u64,
    /// Folders with what had come of transfers that did not end well.
    pub staged: u64,
    /// Files of hashes of transfers from here.
    pub hashes: u64,
    /// Files of the state that could not be used, and were moved aside.
    pub damaged: u64,
    /// The bytes of the disk that are free again, about.
    pub bytes: u64,
    /// What could not be removed, and why.
    pub left: Vec<Note>,
}
