//! The document about the nodes of a path.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PathStatus;

/// The answer to `hops`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HopsStatus {
    /// [`Document::SCHEMA`](super::Document::SCHEMA)
    pub schema: String,
    /// The peer's public key.
    pub npub: String,
    /// Its name on this node.
    pub name: Option<String>,
    /// The path of packets to it when the inquiry began, if there was one.
    pub path: Option<PathStatus>,
    /// Whether the peer and each node in between have answered.
    pub complete: bool,
    /// The nodes in their order, the peer last; none without a path.
    pub hops: Vec<HopStatus>,
}

/// A node of a path, or a place where one or several nodes are not known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HopStatus {
    /// Its public key, if it is known: of the first node and the peer proven, of others as the nodes
    /// of the path say.
    pub npub: Option<String>,
    /// Its name on this node.
    pub name: Option<String>,
    /// Milliseconds until its answer came. A node answers data sooner.
    pub rtt_ms: Option<f64>,
    /// The smoothed round trip of the link from the node before it, as that node says, in
    /// milliseconds.
    pub link_rtt_ms: Option<f64>,
    /// Why something is not known, as text for the user.
    pub why: Option<String>,
}
