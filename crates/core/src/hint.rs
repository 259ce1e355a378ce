//! Addresses at which a node may be, each with where it comes from. An address proves nothing: the
//! handshake of a link does.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An address at which a node may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The address.
    pub at: SocketAddr,
    /// Where it comes from.
    pub source: HintSource,
}

/// Where an address of a node comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HintSource {
    /// The configuration.
    Configured,
    /// A host name of the configuration, which has the address at present.
    HostName,
    /// An invite code, or the command that asked for membership.
    Invite,
    /// The node itself, in a signed statement that members of a network pass on.
    Member,
    /// An earlier run, or an earlier link.
    LastAddress,
    /// An announcement in the LAN.
    Lan,
    /// The node itself, in an advert at a Nostr relay.
    Advert,
    /// A probe that was answered.
    Probe,
    /// A search of ports: a probe of it was answered.
    Search,
    /// The node itself: its datagrams come from there.
    Incoming,
}

impl HintSource {
    /// Whether nothing but the node itself, or other nodes, has named the address. It may be that of
    /// another host.
    #[must_use]
    pub const fn is_unconfirmed(self) -> bool {
        matches!(self, Self::Member | Self::Advert)
    }

    /// Whether the user has named the address, or the node was linked there.
    #[must_use]
    pub const fn is_confirmed(self) -> bool {
        matches!(
            self,
            Self::Configured | Self::HostName | Self::Invite | Self::LastAddress
        )
    }

    /// The source as text for the user.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Configured => "the configuration",
            Self::HostName => "a host name",
            Self::Invite => "the invite",
            Self::Member => "what members pass on",
            Self::LastAddress => "the last address",
            Self::Lan => "the LAN",
            Self::Advert => "an advert at a Nostr relay",
            Self::Probe => "a probe",
            Self::Search => "a search of ports",
            Self::Incoming => "the peer, which came from there",
        }
    }
}

impl From<SocketAddr> for Hint {
    /// The address of a configuration.
    fn from(at: SocketAddr) -> Self {
        let source = HintSource::Configured;
        Self { at, source }
    }
}

/// Adds an address, unless a source before has it.
pub fn add(hints: &mut Vec<Hint>, at: SocketAddr, source: HintSource) {
    if hints.iter().all(|hint| hint.at != at) {
        hints.push(Hint { at, source });
    }
}
