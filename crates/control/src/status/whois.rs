//! The document about the nodes that an address, a name or a key belongs to. It has no endpoint, so
//! that all users of the host may read it.

use std::net::{Ipv4Addr, Ipv6Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The answer to `whois`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Whois {
    /// [`Document::SCHEMA`](super::Document::SCHEMA)
    pub schema: String,
    /// The address, name or key that was asked for.
    pub query: String,
    /// The nodes that it belongs to, by key: one, or several if members of several networks have the
    /// same name.
    pub nodes: Vec<WhoisNode>,
}

/// A known node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhoisNode {
    /// Its public key.
    pub npub: String,
    /// Its name on this node, or else in a network.
    pub name: Option<String>,
    /// Its IPv6 address in the mesh.
    pub address: Ipv6Addr,
    /// Whether it is this node.
    pub own: bool,
    /// Whether the configuration names it as a peer.
    pub configured: bool,
    /// The subnet behind it that has the address, if the address is not its own.
    pub subnet: Option<String>,
    /// The networks that it and this node know of each other by.
    pub networks: Vec<WhoisNetwork>,
}

/// A network that a node is a member of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhoisNetwork {
    /// The identifier of the network: 32 hexadecimal digits.
    pub id: String,
    /// The name of the network.
    pub network: Option<String>,
    /// The name of the node in it.
    pub name: Option<String>,
    /// The IPv4 address of the node in it.
    pub ipv4: Option<Ipv4Addr>,
    /// Whether the node is an administrator.
    pub admin: bool,
    /// The tags of the node in it.
    #[serde(default)]
    pub tags: Vec<String>,
}
