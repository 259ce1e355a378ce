//! Exits, as the system carries them out: packets to all other addresses go by another node, or come
//! from other nodes and leave this host. The broker does it, with root's rights.
//!
//! | module | what it is |
//! |---|---|
//! | [`rules`] | the text for nft(8), and the rules that choose a table of routes; pure |
//! | [`saved`] | settings of the kernel that are changed, and their former values |
//! | [`host`] | carries it out, and puts everything back |
//! | [`nft`] | runs of nft(8) |
//! | [`watch`] | when to look whether other programs have changed something |
//!
//! docs/decisions/0042-exits.md has the reasons.

pub mod around;
pub mod host;
pub mod nft;
pub mod rules;
pub mod saved;
pub mod sessions;
pub mod watch;

use std::net::{IpAddr, Ipv4Addr};

use weft_wire::Subnet;

/// How the system sends by an exit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UseExit {
    /// IPv4 goes by the exit; otherwise IPv4 to other networks leads nowhere.
    pub ipv4: bool,
    /// The same for IPv6.
    pub ipv6: bool,
    /// Nothing leaves this host another way, whatever routes say and whether the exit is up.
    pub strict: bool,
    /// Local networks are reached directly.
    pub lan: bool,
    /// The source of IPv4 packets by the exit: the address of this node in the exit's network.
    pub source: Option<Ipv4Addr>,
    /// The IPv4 address of the exit, at which it answers queries for names: those to local networks
    /// go there.
    pub dns: Option<Ipv4Addr>,
}

/// What the system forwards for other nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServeExit {
    /// IPv4.
    pub ipv4: bool,
    /// IPv6.
    pub ipv6: bool,
    /// The DNS server that queries to this node's own addresses are passed on to; by default the
    /// first one of the system that is not on this host.
    pub dns: Option<IpAddr>,
    /// The local networks that other nodes may send to; all others are refused.
    pub lans: Vec<Subnet>,
}
