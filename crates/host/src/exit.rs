//! Exits, as the system carries them out: packets to all other addresses go by another node, or come
//! from other nodes and leave this host. The broker does it, with root's rights.
//!
//! | module | what it is |
//! |---|---|
//! | [`around`] | the interfaces and networks of this host that rules name |
//! | [`rules`] | the text for nft(8), and the rules that choose a table of routes; pure |
//! | [`saved`] | settings of the kernel that are changed, and their former values |
//! | [`sessions`] | the connections that came in from other hosts |
//! | [`host`] | carries it out, and puts everything back |
//! | [`nft`] | runs of nft(8) |
//! | [`watch`] | when to look whether other programs have changed something |
//! | [`kept`] | what a strict exit leaves when its daemon ends, and how it is opened |
//!
//! docs/decisions/0042-exits.md has the reasons.

pub mod around;
pub mod host;
pub mod kept;
pub mod nft;
pub mod rules;
pub mod saved;
pub mod sessions;
pub mod watch;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
    /// Connections that come in by another interface are answered there, although the exit is strict.
    pub inbound: bool,
    /// The IPv4 addresses of this node and of the exit in the exit's network: packets by the exit have the
    /// first one as their source, and queries for names to local networks go to the second one.
    pub ends: Option<Ends<Ipv4Addr>>,
    /// The same for IPv6: the addresses of both in the mesh.
    pub ends6: Option<Ends<Ipv6Addr>>,
}

impl UseExit {
    /// The addresses of this node under which the exit forwards.
    pub fn own(&self) -> impl Iterator<Item = IpAddr> {
        let ipv4 = self.ends.map(|ends| IpAddr::V4(ends.own));
        let ipv6 = self.ends6.map(|ends| IpAddr::V6(ends.own));
        ipv4.into_iter().chain(ipv6)
    }
}

/// The addresses of both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends<A> {
    /// That of this node.
    pub own: A,
    /// That of the exit.
    pub exit: A,
}

impl<A: Copy> Ends<A> {
    /// One address for both.
    #[must_use]
    pub const fn of(address: A) -> Self {
        Self {
            own: address,
            exit: address,
        }
    }
}

/// What the system forwards for other nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServeExit {
    /// IPv4.
    pub ipv4: bool,
    /// IPv6.
    pub ipv6: bool,
    /// What other nodes may send to besides the Internet: the addresses of this node, and of its host those
    /// of the Internet, and local networks. All others are refused.
    pub lans: Vec<Subnet>,
}
