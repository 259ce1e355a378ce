//! Services of this machine that members use, and services of members that are brought here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::audience::Party;
use crate::services::{Local, Target};

/// The schema of [`ServiceList`].
pub const SERVICES: &str = "weft.services/1";

/// A request about services: [`ServiceList`], with all of them or with what it is about. In JSON `action` names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ServiceRequest {
    /// All services and forwards.
    List {},
    /// Lets members use a service of this machine.
    Serve {
        /// Where it listens.
        target: Target,
        /// Who may use it; without a party all members of the own networks.
        #[serde(default)]
        to: Vec<Party>,
        /// Its name; `None` for the port, or the file name of the socket.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The TCP port at the mesh addresses; `None` for that of the target.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
    },
    /// Removes a service, and ends its connections.
    RemoveService {
        /// Its name.
        name: String,
    },
    /// Brings a service of a peer to this machine.
    Forward {
        /// Where programs of this machine find it.
        local: Local,
        /// The peer, in a form that the daemon understands.
        peer: String,
        /// The user there; `None` for the one that has the service.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
        /// The name of the service.
        service: String,
    },
    /// Removes a forward, and ends its connections.
    RemoveForward {
        /// Where it listens.
        local: Local,
    },
}

/// The services and forwards of a user: `weft.services/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceList {
    /// `weft.services/1`.
    pub schema: String,
    /// Services of this machine that members use, in the order in which they came.
    pub services: Vec<ServiceStatus>,
    /// Services of peers that are brought here, likewise.
    pub forwards: Vec<ForwardStatus>,
    /// Why no peer can come at present: no daemon, no interface.
    pub why_not: Option<String>,
}

/// A service of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceStatus {
    /// Its name.
    pub name: String,
    /// Where it listens: `ADDR:PORT`, or the path of a socket.
    pub target: String,
    /// Who may use it: `MEMBER`, `tag:TAG`, `network:NETWORK`; empty for all members of the own networks.
    pub to: Vec<String>,
    /// The TCP port at the mesh addresses; `None` without one.
    pub port: Option<u16>,
    /// The mesh addresses at which members reach it at present, with the port.
    pub at: Vec<String>,
    /// Why they do not reach it at each mesh address.
    pub why: Option<String>,
    /// Why it does not answer at its target at present.
    #[serde(default)]
    pub silent: Option<String>,
    /// The connections at present.
    pub connections: u64,
}

/// A service of a peer that is brought here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForwardStatus {
    /// Where programs of this machine find it: a port of the loopback, or the path of a socket.
    pub local: String,
    /// The peer, as the user named it.
    pub peer: String,
    /// The npub of the peer.
    pub npub: Option<String>,
    /// The user there, if one is named.
    pub user: Option<String>,
    /// The name of the service.
    pub service: String,
    /// Whether the peer is there, and has granted it.
    pub up: bool,
    /// Why it is not up; while it is, why the service does not answer.
    pub why: Option<String>,
    /// The connections at present.
    pub connections: u64,
    /// When the next try is, in seconds from now.
    pub next_try_s: Option<u64>,
}
