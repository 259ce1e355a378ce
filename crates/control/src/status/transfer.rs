//! The documents about transfers of files. They have no endpoint of the underlay, so that all users of the host
//! may read them.

use std::net::Ipv6Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Document;
use crate::TransferPurpose;

/// The answer to `transfer` with the action `place`: where connections of this node begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TransferPlace {
    /// [`Document::SCHEMA`]
    pub schema: String,
    /// The IPv6 address of this node in the mesh.
    pub own: Ipv6Addr,
    /// The name of its interface, to which sockets are bound.
    pub interface: String,
}

/// The answer to `transfer` with the action `open`: a peer grants connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TransferOpened {
    /// [`Document::SCHEMA`]
    pub schema: String,
    /// The secret with which each connection begins: 32 hexadecimal digits.
    pub token: String,
    /// The peer's public key.
    pub npub: String,
    /// The peer's name on this node.
    pub name: Option<String>,
    /// The peer's IPv6 address in the mesh.
    pub address: Ipv6Addr,
    /// The TCP ports there, one for each user that is told of the grant.
    pub ports: Vec<u16>,
    /// The IPv6 address of this node in the mesh.
    pub own: Ipv6Addr,
    /// The name of its interface, to which sockets are bound.
    pub interface: String,
}

/// An answer to `transfer` with the action `receive`: the registration, or a connection that is granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TransferEvent {
    /// [`Document::SCHEMA`]
    pub schema: String,
    /// What happened.
    pub kind: TransferEventKind,
    /// The IPv6 address of this node in the mesh.
    pub own: Ipv6Addr,
    /// The name of its interface, to which sockets are bound.
    pub interface: String,
    /// The name of the user that receives; `None` in a grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The secret with which connections of the grant begin: 32 hexadecimal digits; `None` in a registration, as
    /// the fields below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// What the connections are for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<TransferPurpose>,
    /// The public key of the peer that connects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub npub: Option<String>,
    /// Its name on this node; `None` if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its IPv6 address in the mesh, from which its connections come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Ipv6Addr>,
    /// The names of the networks in which both nodes are members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<String>,
    /// The tags of the peer in these networks, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The TCP port at which the process that asks listens: where no connection of it can come, one may go there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back: Option<u16>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TransferEventKind {
    /// The first of each stream: the process is registered.
    Registered,
    /// A peer may connect with the token.
    Granted,
    /// An event of a later version.
    #[serde(other)]
    Other,
}

impl TransferEvent {
    /// The first event of each stream.
    #[must_use]
    pub fn registered(own: Ipv6Addr, interface: &str, user: String) -> Self {
        Self {
            user: Some(user),
            ..Self::of(TransferEventKind::Registered, own, interface)
        }
    }

    /// An event without a user and without a grant.
    #[must_use]
    pub fn of(kind: TransferEventKind, own: Ipv6Addr, interface: &str) -> Self {
        Self {
            schema: Self::SCHEMA.to_owned(),
            kind,
            own,
            interface: interface.to_owned(),
            user: None,
            token: None,
            purpose: None,
            npub: None,
            name: None,
            address: None,
            networks: Vec::new(),
            tags: Vec::new(),
            back: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_of_transfers_as_documented() {
        let own = "fd00::1".parse().unwrap();
        let registered = TransferEvent::registered(own, "weft0", "bob".to_owned());
        let json = json!({
            "schema": "weft.transfer-event/1", "kind": "registered", "own": "fd00::1", "interface": "weft0",
            "user": "bob"
        });
        assert_eq!(serde_json::to_value(&registered).unwrap(), json);
        assert_eq!(registered.for_all_users(), Some(json));
        let granted = json!({
            "schema": "weft.transfer-event/1", "kind": "granted", "own": "fd00::1", "interface": "weft0",
            "token": "00", "purpose": "read", "npub": "npub1x", "name": "nas", "address": "fd00::2",
            "networks": ["home"], "tags": ["family"], "back": 7375
        });
        let event: TransferEvent = serde_json::from_value(granted.clone()).unwrap();
        assert_eq!(event.purpose, Some(TransferPurpose::Read));
        assert_eq!(serde_json::to_value(&event).unwrap(), granted);
        let later = json!({"schema": "weft.transfer-event/1", "kind": "left", "own": "fd00::1", "interface": "w"});
        let event: TransferEvent = serde_json::from_value(later).unwrap();
        assert_eq!(event.kind, TransferEventKind::Other);
    }
}
