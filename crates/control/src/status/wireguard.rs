//! Guests: devices with WireGuard.

use std::net::{Ipv4Addr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The answer to `guests` and `remove-guest`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestList {
    /// [`Document::SCHEMA`](super::Document::SCHEMA)
    pub schema: String,
    /// What this node is for its own guests; left out while it has had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub here: Option<WireGuardStatus>,
    /// The guests of all networks of this node, by network and name.
    pub guests: Vec<GuestStatus>,
}

/// What a node is for its own guests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WireGuardStatus {
    /// Its public key of WireGuard, in base64.
    pub public_key: String,
    /// Its UDP port; left out while it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Why guests cannot reach it, in words; left out if nothing is known to be wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// The messages that were dropped.
    pub dropped: WireGuardDrops,
}

/// Messages other than data messages that were dropped, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WireGuardDrops {
    /// Of no known form.
    pub malformed: u64,
    /// For another node.
    pub not_for_us: u64,
    /// Beyond the rates.
    pub too_many: u64,
    /// Answered with a cookie and not read.
    pub cookies: u64,
    /// Not authentic.
    pub forged: u64,
    /// Initiations under keys of strangers.
    pub strangers: u64,
    /// That came before.
    pub replayed: u64,
    /// Answers to nothing.
    pub unasked: u64,
}

/// One guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestStatus {
    /// The label of its network.
    pub network: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// Its public key of WireGuard, in base64.
    pub public_key: String,
    /// Its address.
    pub ipv4: Ipv4Addr,
    /// Its tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The npub of its host.
    pub host: String,
    /// The name of its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_name: Option<String>,
    /// What this node knows of it as its host; left out for guests of other members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub here: Option<GuestHere>,
}

/// What a host knows of its guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestHere {
    /// Whether a message of it has opened within the last 180 s.
    pub up: bool,
    /// Why it is not up, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<SocketAddr>,
    /// Seconds since the last handshake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake_s: Option<u64>,
    /// Seconds since the last message of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_s: Option<u64>,
    /// Bytes of IP packets from it, since the daemon started.
    pub rx_bytes: u64,
    /// Bytes of IP packets to it.
    pub tx_bytes: u64,
    /// Whether a preshared key protects it beside its key.
    pub preshared: bool,
}

/// The answer to `add-guest`: what the file of the guest contains beside its own key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestAdded {
    /// [`Document::SCHEMA`](super::Document::SCHEMA)
    pub schema: String,
    /// The label of the network.
    pub network: Option<String>,
    /// The name of the guest.
    pub name: String,
    /// Its address.
    pub ipv4: Ipv4Addr,
    /// The public key of this node, in base64.
    pub host_key: String,
    /// The addresses of this node for its file, the best one first.
    pub endpoints: Vec<SocketAddr>,
    /// Whether no address is known to be reached from other networks.
    pub local_only: bool,
    /// The subnets that are reached through this node.
    pub allowed_ips: Vec<String>,
    /// The MTU of the tunnel, in bytes.
    pub mtu: u16,
    /// The text of its file for wg-quick, with its secrets. The command adds it, not the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}
