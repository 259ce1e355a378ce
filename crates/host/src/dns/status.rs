//! Which programs can use names, for the status of the node.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Names: `NAME.fips` for configured peers, `npub1....fips` for every node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DnsStatus {
    /// Which programs can use them.
    pub state: DnsState,
    /// The reason, as text for the user: "answered on 127.0.0.1:5354; set up in systemd-resolved".
    pub why: String,
    /// The addresses that answer, for UDP and TCP.
    pub listen: Vec<SocketAddr>,
    /// Whether another program has taken the system's resolver from this node, so that programs find no
    /// names any more.
    #[serde(default)]
    pub lost: bool,
}

/// Which programs can use names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DnsState {
    /// Disabled.
    Off,
    /// No address could be bound.
    Failed,
    /// Queries to the listed addresses are answered; the system's programs do not query them.
    Local,
    /// The system's resolver queries this node, so names work in every program.
    System,
    /// A state that this version does not know.
    #[serde(other)]
    Other,
}
