//! The documents about private networks.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// The networks of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkList {
    /// [`Document::SCHEMA`](super::Document::SCHEMA)
    pub schema: String,
    /// Each network.
    pub networks: Vec<NetworkStatus>,
}

/// One network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkStatus {
    /// Its identifier: 32 hexadecimal digits.
    pub id: String,
    /// Its name; `None` while the node joins it.
    pub name: Option<String>,
    /// What this node is in it.
    pub state: NetworkState,
    /// The reason for it, as text for the user.
    pub why: String,
    /// The request to join is refused, and asking again leads to nothing else.
    #[serde(default)]
    pub refused: bool,
    /// The IPv4 address of this node in it.
    pub ipv4: Option<Ipv4Addr>,
    /// Its members, by name.
    pub members: Vec<MemberStatus>,
    /// Its open invites.
    pub invites: Vec<InviteStatus>,
}

/// What a node is in a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkState {
    /// A member.
    Member,
    /// It has asked to be one.
    Joining,
    /// It is not a member: it was removed.
    Removed,
    /// A state of a later version.
    #[serde(other)]
    Other,
}

/// A member of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its public key.
    pub npub: String,
    /// Its name.
    pub name: Option<String>,
    /// Its IPv6 address in the mesh.
    pub address: Ipv6Addr,
    /// Its IPv4 address in the network.
    pub ipv4: Option<Ipv4Addr>,
    /// Whether it is an administrator.
    pub admin: bool,
    /// Whether it is this node.
    pub own: bool,
    /// Its tags.
    pub tags: Vec<String>,
}

/// An open invite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InviteStatus {
    /// The public half of its key: 64 hexadecimal digits.
    pub key: String,
    /// The name of the member that it brings.
    pub name: Option<String>,
    /// How many members it may still bring.
    pub remaining: u32,
    /// Its end, in seconds since 1970.
    pub expires_unix: Option<u64>,
}

/// The answer to `invite`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invited {
    /// [`Document::SCHEMA`](super::Document::SCHEMA)
    pub schema: String,
    /// The code, which is a secret.
    pub code: String,
    /// The name of the network.
    pub network: Option<String>,
    /// How many members it may bring.
    pub uses: u32,
    /// Its end, in seconds since 1970.
    pub expires_unix: u64,
}
