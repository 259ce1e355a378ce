//! The behaviour of a NAT box, in the terms of RFC 4787.

use std::net::SocketAddrV4;

use serde::Deserialize;

/// The ports that are assigned if the inner one is not kept: Linux's ephemeral range.
pub const EPHEMERAL: [u16; 2] = [32_768, 60_999];
/// All ports that need no rights at a host.
const UNPRIVILEGED: [u16; 2] = [1024, 65_535];

/// The behaviour of a NAT box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behaviour {
    /// The remote endpoints that share the outer port of an inner endpoint (RFC 4787, section 4.1).
    pub mapping: Dependence,
    /// The remote endpoints that may send to a mapping: those that count as one with an endpoint
    /// that the inner one has sent to (section 5).
    pub filtering: Dependence,
    /// The choice of outer ports (section 4.2).
    pub ports: PortAssignment,
    /// The first and the last of the ports that are assigned if the inner one is not kept.
    pub port_range: [u16; 2],
    /// How long a mapping lasts without packets that refresh it (section 4.3).
    pub life: MappingLife,
    /// The packets that refresh a mapping (section 4.3).
    pub refresh: Refresh,
    /// Whether two hosts inside reach each other through their outer ports (section 6).
    pub hairpin: bool,
}

/// What a mapping or a filter distinguishes of a remote endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dependence {
    /// Nothing: all remote endpoints count as one.
    EndpointIndependent,
    /// Its address: the ports of a host count as one.
    AddressDependent,
    /// Its address and port.
    AddressAndPortDependent,
}

impl Dependence {
    /// The part of a remote endpoint that is distinguished. Endpoints with the same part count as
    /// one.
    #[must_use]
    pub fn part(self, remote: SocketAddrV4) -> Option<SocketAddrV4> {
        match self {
            Self::EndpointIndependent => None,
            Self::AddressDependent => Some(SocketAddrV4::new(*remote.ip(), 0)),
            Self::AddressAndPortDependent => Some(remote),
        }
    }
}

/// The choice of the outer port of a new mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortAssignment {
    /// The inner port, unless another mapping has it: then one at random. Port preservation, with
    /// overloading off.
    Preserving,
    /// The inner port, also if another mapping has it whose remote endpoint counts as a different
    /// one; otherwise one at random. Port preservation with overloading, as of Linux. Without
    /// mappings that depend on the remote endpoint it is the same as [`Self::Preserving`].
    Overloading,
    /// One at random, never the inner one: a peer that guesses that one would take the box for one
    /// that preserves ports.
    Random,
    /// The next one, never the inner one.
    Sequential,
}

/// The packets that refresh a mapping, and the permission of their remote endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refresh {
    /// Those of both directions.
    Both,
    /// Those from inside only. RFC 4787 requires it at least (REQ-6).
    Outbound,
    /// Those from outside only.
    Inbound,
}

impl Refresh {
    /// Whether packets from inside refresh.
    #[must_use]
    pub fn is_outbound(self) -> bool {
        self != Self::Inbound
    }

    /// Whether packets from outside refresh.
    #[must_use]
    pub fn is_inbound(self) -> bool {
        self != Self::Outbound
    }
}

/// How long a mapping, and the permission to send to it, outlive the last packet, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappingLife {
    /// UDP. RFC 4787 requires at least two minutes; NAT boxes with half a minute are common.
    pub udp_ms: u64,
    /// TCP, closed or not.
    pub tcp_ms: u64,
    /// ICMP echo.
    pub echo_ms: u64,
}

impl Default for MappingLife {
    /// 30 s for UDP, Linux's value for a flow in one direction; 2 h 4 min for TCP (RFC 5382); 60 s
    /// for echo (RFC 5508).
    fn default() -> Self {
        Self {
            udp_ms: 30_000,
            tcp_ms: 7_440_000,
            echo_ms: 60_000,
        }
    }
}

/// Names of common combinations. The first four are the kinds of RFC 3489, section 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NatKind {
    /// One outer port for each inner endpoint, to which any host may send.
    FullCone,
    /// One outer port for each inner endpoint, to which the addresses may send that it has sent to.
    Restricted,
    /// One outer port for each inner endpoint, to which the endpoints may send that it has sent to.
    PortRestricted,
    /// An outer port for each pair of endpoints, at random among those of [`EPHEMERAL`], to which
    /// only the remote endpoint of the pair may send.
    Symmetric,
    /// As [`Self::Symmetric`], with the inner port for all pairs that this keeps apart: Linux.
    SymmetricPreserving,
    /// As [`Self::Symmetric`], at random among all ports from 1024 on, which makes a guess less
    /// likely.
    SymmetricRandom,
}

impl NatKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::FullCone,
        Self::Restricted,
        Self::PortRestricted,
        Self::Symmetric,
        Self::SymmetricPreserving,
        Self::SymmetricRandom,
    ];

    /// Its behaviour, with mappings of the [default life](MappingLife::default) that packets of both
    /// directions refresh, and without hairpinning, as in most home routers.
    #[must_use]
    pub fn behaviour(self) -> Behaviour {
        use Dependence::{AddressAndPortDependent, AddressDependent, EndpointIndependent};
        use PortAssignment::{Overloading, Preserving, Random};
        let (mapping, filtering, ports) = match self {
            Self::FullCone => (EndpointIndependent, EndpointIndependent, Preserving),
            Self::Restricted => (EndpointIndependent, AddressDependent, Preserving),
            Self::PortRestricted => (EndpointIndependent, AddressAndPortDependent, Preserving),
            Self::Symmetric | Self::SymmetricRandom => (AddressAndPortDependent, AddressAndPortDependent, Random),
            Self::SymmetricPreserving => (AddressAndPortDependent, AddressAndPortDependent, Overloading),
        };
        Behaviour {
            ports,
            port_range: match self {
                Self::SymmetricRandom => UNPRIVILEGED,
                _ => EPHEMERAL,
            },
            ..Behaviour::new(mapping, filtering)
        }
    }
}

impl Behaviour {
    /// A box with this mapping and this filtering that keeps inner ports if they are free; otherwise
    /// as [`NatKind::behaviour`].
    #[must_use]
    pub fn new(mapping: Dependence, filtering: Dependence) -> Self {
        Self {
            mapping,
            filtering,
            ports: PortAssignment::Preserving,
            port_range: EPHEMERAL,
            life: MappingLife::default(),
            refresh: Refresh::Both,
            hairpin: false,
        }
    }
}
