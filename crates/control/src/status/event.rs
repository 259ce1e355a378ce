//! The documents about changes: one for each, as a stream.

use std::net::Ipv6Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Document, PathStatus, PublicPath, Standing};

/// A change, for owners of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// [`Document::SCHEMA`]
    pub schema: String,
    /// What happened.
    pub event: EventKind,
    /// When: milliseconds since 1970 (UTC), by the clock of the system.
    pub unix_ms: u64,
    /// The node that it is about.
    pub npub: Option<String>,
    /// Its name on this node.
    pub name: Option<String>,
    /// Its IPv6 address in the mesh.
    pub address: Option<Ipv6Addr>,
    /// The state of that node from then on, in terms for the user.
    pub standing: Option<Standing>,
    /// The path of packets to it from then on.
    pub path: Option<PathStatus>,
    /// The reason, as text for the user.
    pub why: Option<String>,
    /// The kinds of events that this daemon sends, in the first one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<EventKind>,
}

/// A change, for all users: without endpoints, and without reasons, whose text names them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PublicEvent {
    /// [`Document::SCHEMA`]
    pub schema: String,
    /// As in `weft.event/1`.
    pub event: EventKind,
    /// As in `weft.event/1`.
    pub unix_ms: u64,
    /// As in `weft.event/1`.
    pub npub: Option<String>,
    /// As in `weft.event/1`.
    pub name: Option<String>,
    /// As in `weft.event/1`.
    pub address: Option<Ipv6Addr>,
    /// As in `weft.event/1`.
    pub standing: Option<Standing>,
    /// The kind of the path.
    pub path: Option<PublicPath>,
    /// [`Event::kinds`]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<EventKind>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// The first of each stream: changes from here on are reported.
    Listening,
    /// Packets can pass to the peer: it is connected or active, and was neither before.
    PeerUp,
    /// The peer is connected or active no longer.
    PeerDown,
    /// Packets to the peer take another path, or none.
    Path,
    /// A peer was configured, or a member came.
    MemberAdded,
    /// A peer or a member was removed.
    MemberRemoved,
    /// What `weft networks` shows may have changed: the state of a network or of a request, members, addresses at
    /// which this node asks, or whether records are saved.
    Networks,
    /// The daemon is about to end. The last of each stream.
    Stopping,
    /// An event of a later version.
    #[serde(other)]
    Other,
}

impl Event {
    /// An event that is about no node.
    #[must_use]
    pub fn of_daemon(event: EventKind, unix_ms: u64) -> Self {
        Self {
            schema: Self::SCHEMA.to_owned(),
            event,
            unix_ms,
            npub: None,
            name: None,
            address: None,
            standing: None,
            path: None,
            why: None,
            kinds: Vec::new(),
        }
    }

    /// The first event of each stream.
    #[must_use]
    pub fn listening(unix_ms: u64) -> Self {
        Self {
            kinds: EventKind::ALL.to_vec(),
            ..Self::of_daemon(EventKind::Listening, unix_ms)
        }
    }
}

impl EventKind {
    /// All that this version sends.
    const ALL: [Self; 8] = [
        Self::Listening,
        Self::PeerUp,
        Self::PeerDown,
        Self::Path,
        Self::MemberAdded,
        Self::MemberRemoved,
        Self::Networks,
        Self::Stopping,
    ];
}

impl From<&Event> for PublicEvent {
    fn from(event: &Event) -> Self {
        Self {
            schema: Self::SCHEMA.to_owned(),
            event: event.event,
            unix_ms: event.unix_ms,
            npub: event.npub.clone(),
            name: event.name.clone(),
            address: event.address,
            standing: event.standing,
            path: event.path.as_ref().map(PublicPath::from),
            kinds: event.kinds.clone(),
        }
    }
}
