//! The limits of transfers: how they are set, and the document about them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema of [`LimitsStatus`].
pub const LIMITS: &str = "weft.limits/1";

/// A limit that may be taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// No limit.
    None,
    /// At most so much.
    Most(u64),
}

impl Bound {
    /// The limit, if there is one.
    #[must_use]
    pub const fn value(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Most(most) => Some(most),
        }
    }
}

/// The limits that are to be changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsRequest {
    /// Bytes a second of all transfers from here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send: Option<Bound>,
    /// Bytes a second of all transfers to here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive: Option<Bound>,
    /// Bytes a second of all transfers from here through relays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relay: Option<Bound>,
    /// Bytes of files that may come within 24 hours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<Bound>,
    /// The same of one peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_quota: Option<Bound>,
    /// Free bytes that stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<u64>,
    /// Transfers at a time in each direction: 1 to 32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_once: Option<u8>,
}

/// The limits of a user: `weft.limits/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitsStatus {
    /// `weft.limits/1`.
    pub schema: String,
    /// Bytes a second of all transfers from here together.
    pub send: LimitStatus,
    /// Bytes a second of all transfers to here together.
    pub receive: LimitStatus,
    /// Bytes a second of all transfers from here whose path goes through a relay.
    pub relay: LimitStatus,
    /// Bytes of files that may come within 24 hours.
    pub quota: LimitStatus,
    /// The same of one peer; `used` is that of the peer of which most came.
    pub peer_quota: LimitStatus,
    /// What came of each peer within 24 hours.
    pub peers: Vec<PeerUsage>,
    /// The bytes that stay free on the file system of the folder that gets files.
    pub floor: u64,
    /// Free bytes of the file system of the receiving folder; `None` if the folder does not exist.
    pub free: Option<u64>,
    /// Transfers from here at a time.
    pub send_at_once: LimitStatus,
    /// Transfers to here at a time.
    pub receive_at_once: LimitStatus,
}

/// A limit, and what is used of it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitStatus {
    /// The limit; `None` for none.
    pub limit: Option<u64>,
    /// What is used.
    pub used: u64,
}

/// What came of a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PeerUsage {
    /// The key of the peer.
    pub npub: String,
    /// Bytes of files within 24 hours.
    pub used: u64,
}
