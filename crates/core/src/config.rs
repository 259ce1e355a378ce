//! Settings of the state machines. Times are milliseconds.

use std::net::SocketAddr;

use weft_noise::PublicKey;

/// How the node behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// A link that had nothing to send for this long sends a heartbeat. FIPS: 10 s.
    pub heartbeat: u64,
    /// A link that heard nothing for this long is down. FIPS: 30 s.
    pub link_dead: u64,
    /// Age at which keys of either layer are replaced. FIPS: 120 s, and a daemon ignores requests that come within
    /// 30 s of the last one.
    pub rekey: u64,
    /// A session without IP packets for this long ends. Below FIPS's 90 s, so that we never hold one that a daemon
    /// has already forgotten.
    pub session_idle: u64,
    /// The UDP payload our links carry, bytes: told to peers as the path's MTU.
    pub mtu: u16,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            heartbeat: 10_000,
            link_dead: 30_000,
            rekey: 120_000,
            session_idle: 80_000,
            mtu: 1280,
        }
    }
}

/// A node we may link with and exchange IP packets with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// Who it is.
    pub key: PublicKey,
    /// Where it may be reached; may be empty for a peer that dials us.
    pub addresses: Vec<SocketAddr>,
}
