//! The document about what the network of this host lets through.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MappingStatus, NostrRelayStatus, StunStatus};

/// The answer to `netcheck`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetcheckStatus {
    /// [`Document::SCHEMA`](super::Document::SCHEMA)
    pub schema: String,
    /// Whether UDP gets out, and answers in: `works`, `blocked`, `probably-blocked` if peers outside are silent and
    /// nothing else tells, `no-network`, `no-route` or `unknown`.
    pub udp: ConclusionStatus,
    /// Whether a portal seems to hold this host back: `suspected`, `no-sign` or `unknown`.
    pub captive_portal: ConclusionStatus,
    /// IPv4.
    pub ipv4: FamilyStatus,
    /// IPv6.
    pub ipv6: FamilyStatus,
    /// What the STUN servers of the configuration say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stun: Vec<StunStatus>,
    /// The Nostr relays of the configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nostr_relays: Vec<NostrRelayStatus>,
    /// The port that the gateway maps.
    pub port_mapping: MappingStatus,
    /// How often idle links send something: in each of three scopes.
    #[serde(default)]
    pub keepalives: Vec<KeepaliveStatus>,
    /// The neighbours, each of which may relay.
    pub neighbours: Vec<NeighbourStatus>,
}

/// What is known of one version of IP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FamilyStatus {
    /// This host has an address of this version that other hosts may reach.
    #[serde(default = "available")]
    pub available: bool,
    /// The public addresses of this host's interfaces, with the port of the node.
    pub public: Vec<SocketAddr>,
    /// The addresses under which observers see the node.
    pub outer: Vec<SocketAddr>,
    /// How outer ports are given (RFC 4787, section 4.1): `public`, `endpoint-independent`,
    /// `endpoint-dependent` or `unknown`.
    pub mapping: ConclusionStatus,
    /// Which datagrams are let in (RFC 4787, section 5): `none` if all are, or no NAT is known that filters,
    /// `address-dependent`, `address-and-port-dependent` or `unknown`.
    pub filtering: ConclusionStatus,
    /// Whether a datagram to the outer address comes back inside (RFC 4787, section 6): `yes`, `no` or
    /// `unknown`.
    pub hairpin: ConclusionStatus,
}

/// Of a daemon that does not say it.
fn available() -> bool {
    true
}

/// A conclusion, and what it rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConclusionStatus {
    /// The conclusion, as a word.
    pub state: String,
    /// What it rests on, or what would tell, as text for the user.
    pub because: String,
}

/// How often idle links with weft nodes send something, so that the network lets frames of the peer in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeepaliveStatus {
    /// The addresses of peers: `local`, those of a local network; `ipv4` and `ipv6`, the others.
    pub scope: String,
    /// The interval in seconds; 0: never.
    pub interval_s: u16,
    /// What it rests on, as text for the user.
    pub because: String,
}

/// A neighbour that may relay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NeighbourStatus {
    /// Its public key.
    pub npub: String,
    /// Its name on this node.
    pub name: Option<String>,
    /// The address of the link.
    pub address: SocketAddr,
    /// Smoothed round-trip time of the link in milliseconds, once measured.
    pub rtt_ms: Option<f64>,
}
