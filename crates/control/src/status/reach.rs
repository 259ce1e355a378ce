//! The document about the search for a direct path to a peer.

use std::net::{IpAddr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PathStatus;

/// The answer to `reach`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReachStatus {
    /// [`Document::SCHEMA`](super::Document::SCHEMA)
    pub schema: String,
    /// The peer's public key.
    pub npub: String,
    /// Its name on this node.
    pub name: Option<String>,
    /// The path of packets to it, if there is one.
    pub path: Option<PathStatus>,
    /// Why packets take this path, as text for the user.
    pub why: String,
    /// The same for programs: `silent` or `shut-down`, if the peer is not there; `no-network`, `direct`, `no-path`; and of
    /// a path through others `off`, `idle`, `no-part`, `trying`, `found`, `no-reply`, `no-answer`, `ended`, by the
    /// last attempt at a direct one that has ended; `other-port` instead of `no-answer` if links of this node go through
    /// another port, so that none outside sees its ordinary one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Milliseconds until the next attempt at a direct path begins, while none is under way and one is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_ms: Option<u64>,
    /// What would make the path direct, as text for the user, if anything is known to.
    pub advice: Option<String>,
    /// The addresses of this node that peers are told.
    pub own: Vec<CandidateStatus>,
    /// What the STUN servers of the configuration say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stun: Vec<StunStatus>,
    /// The port that the gateway maps; `None` from a daemon that does not ask for one.
    #[serde(default)]
    pub port_mapping: Option<MappingStatus>,
    /// What is known about the NATs in front of this node.
    pub nat: NatStatus,
    /// What the peer says about the NATs in front of it, if it has.
    pub peer_nat: Option<NatStatus>,
    /// The latest attempts, the last one first.
    pub attempts: Vec<AttemptStatus>,
}

/// A STUN server of the configuration, in one version of IP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StunStatus {
    /// The server as the configuration names it, as `stun.example.org:3478`.
    pub server: String,
    /// The address at which it is asked; `None` if its name has none yet.
    pub address: Option<SocketAddr>,
    /// The address under which it sees this node, if it has said so.
    pub seen: Option<SocketAddr>,
    /// Seconds since it said so.
    pub ago_s: Option<u64>,
    /// The round trip to it in milliseconds, if one could be measured.
    pub rtt_ms: Option<u64>,
    /// Why it says nothing, as text for the user.
    pub why: Option<String>,
}

/// A Nostr relay of the configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NostrRelayStatus {
    /// Its URL.
    pub url: String,
    /// Whether the node is connected to it: `open`, `connecting`, or `waiting` for the next try.
    pub state: String,
    /// Seconds since it is open, or is not.
    pub since_s: u64,
    /// The last round trip to it in milliseconds, of a ping each 30 s; `None` unless it is open.
    pub rtt_ms: Option<f64>,
    /// What went wrong last: why the connection ended or was not made, or what the relay refused, as
    /// text for the user.
    pub trouble: Option<String>,
    /// Seconds since then.
    pub trouble_s: Option<u64>,
}

/// A port that the gateway of the host's network maps to this node, on request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MappingStatus {
    /// The gateway that is asked; `None` if none is.
    pub gateway: Option<IpAddr>,
    /// The outer address that is mapped to this node.
    pub mapped: Option<SocketAddr>,
    /// By which protocol: `PCP`, `NAT-PMP` or `UPnP`.
    pub protocol: Option<String>,
    /// What became of the questions by other protocols.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<MappingTried>,
    /// The state, as text for the user.
    pub why: String,
}

/// A question to a gateway that brought no mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MappingTried {
    /// The protocol: `PCP`, `NAT-PMP` or `UPnP`.
    pub protocol: String,
    /// What the gateway said, as text for the user.
    pub outcome: String,
}

/// An address that peers are told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CandidateStatus {
    /// The address.
    pub address: SocketAddr,
    /// Where it comes from: `host`, `observed`, `mapped` or `relayed`.
    pub source: String,
}

/// The NATs in front of a node, by version of IP, in the terms of RFC 4787.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NatStatus {
    /// IPv4: `unknown`, `endpoint-independent`, `endpoint-dependent` or `public`.
    pub ipv4: String,
    /// The same of IPv6.
    pub ipv6: String,
}

/// One attempt to find a direct path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptStatus {
    /// Milliseconds since it began.
    pub ago_ms: u64,
    /// Why it began, as text for the user.
    pub because: String,
    /// How long it took, in milliseconds, if it has ended.
    pub took_ms: Option<u64>,
    /// What came of it, as text for the user.
    pub outcome: String,
    /// The addresses that were tried.
    pub tried: Vec<TriedStatus>,
}

/// An address of the peer that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TriedStatus {
    /// The address.
    pub address: SocketAddr,
    /// Where it comes from: as in the candidates of the peer, `probe` if a probe of the peer came from
    /// it, `search` if a search found it.
    pub source: String,
    /// The number of probes that were sent to it.
    pub probes: u32,
    /// What became of it, as text for the user.
    pub outcome: String,
}
