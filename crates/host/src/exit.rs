//! Exits, as the system carries them out: packets to all other addresses go by another node, or come
//! from other nodes and leave this host. The broker does it, with root's rights.
//!
//! | module | what it is |
//! |---|---|
//! | [`around`] | the interfaces and networks of this host that rules name |
//! | [`rules`] | the text for nft(8), and the rules that choose a table of routes; pure |
//! | [`saved`] | settings of the kernel that are changed, and their former values |
//! | `tracked` | the tracked connections that begin anew with the way of packets |
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
mod tracked;
pub mod watch;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weft_wire::Subnet;

/// How the system sends by an exit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UseExit {
    /// IPv4 goes through the exit; otherwise IPv4 to other networks leads nowhere.
    pub ipv4: bool,
    /// The same for IPv6.
    pub ipv6: bool,
    /// Drops every packet that does not go through the exit, also while the exit is down.
    pub strict: bool,
    /// Local networks are reached directly.
    pub lan: bool,
    /// Connections that come in by another interface are answered there, although the exit is strict.
    pub inbound: bool,
    /// Packets leave without it for now, as it is not reached; none of them has an address of the mesh as its source.
    pub direct: bool,
    /// The IPv4 addresses of this node and of the exit in the exit's network: packets by the exit have the
    /// first one as their source, and queries for names to local networks go to the second one.
    pub ends: Option<Ends<Ipv4Addr>>,
    /// The same for IPv6: the addresses of both in the mesh.
    pub ends6: Option<Ends<Ipv6Addr>>,
}

impl UseExit {
    /// Whether packets go by the exit, and connections that come in by another interface are answered there.
    pub(crate) const fn answers(&self) -> bool {
        !self.direct && (!self.strict || self.inbound)
    }

    /// The addresses of this node under which the exit forwards and `next` does not, or as another exit. One that is
    /// not reached for now may go on with its connections.
    pub(crate) fn lost(&self, next: &Self) -> impl Iterator<Item = IpAddr> + use<> {
        let ipv4 = self.ends != next.ends || self.ipv4 && !next.ipv4 && !next.direct;
        let ipv6 = self.ends6 != next.ends6 || self.ipv6 && !next.ipv6 && !next.direct;
        let is_lost = move |own: &IpAddr| if own.is_ipv4() { ipv4 } else { ipv6 };
        self.own().filter(is_lost)
    }

    /// The addresses of this node under which the exit forwards.
    pub fn own(&self) -> impl Iterator<Item = IpAddr> + use<> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_that_carries_more_ends_no_connection() {
        let ends = |exit: &str| {
            Some(Ends {
                own: "10.44.0.7".parse().unwrap(),
                exit: exit.parse().unwrap(),
            })
        };
        let ends6 = Some(Ends {
            own: "fd00::7".parse().unwrap(),
            exit: "fd00::9".parse().unwrap(),
        });
        let now = UseExit {
            ipv4: true,
            ends: ends("10.44.0.9"),
            ends6,
            ..UseExit::default()
        };
        let lost = |next: UseExit| now.lost(&next).map(|own| own.to_string()).collect::<Vec<_>>();
        assert_eq!(lost(UseExit { ipv6: true, ..now }), [""; 0]);
        assert_eq!(lost(UseExit { strict: true, ..now }), [""; 0]);
        assert_eq!(lost(UseExit { ipv4: false, ..now }), ["10.44.0.7"]);
        let unreached = UseExit {
            direct: true,
            ipv4: false,
            ..now
        };
        assert_eq!(lost(unreached), [""; 0]);
        let other = UseExit {
            ends: ends("10.44.0.8"),
            ..now
        };
        assert_eq!(lost(other), ["10.44.0.7"]);
    }
}
