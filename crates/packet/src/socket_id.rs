//! The underlay socket that a datagram leaves by, or came in by, as a part of its address.
//!
//! A path is a remote address and the local socket that reaches it: through another socket the same
//! address may be unreachable, or another host. Most nodes have only their ordinary sockets, so a
//! path is a [`SocketAddr`] all the same, and the number of a further socket is in it: in the flow
//! information of an IPv6 address (RFC 3493, section 3.3), which an address from the system or from
//! a message never has. An IPv4 address is mapped for that. Thus paths are compared, ordered and
//! passed on as before, and those of the ordinary sockets cost nothing more.
//! docs/decisions/0048-underlay-sockets.md.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// The number of an underlay socket. It has a meaning in this process only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(u32);

impl SocketId {
    /// The ordinary sockets, of which one serves each IP version.
    pub const ORDINARY: Self = Self(0);
    /// The highest number: flow information has 20 bits beside the traffic class.
    pub const MAX: Self = Self(0xf_ffff);

    /// Returns the number of the socket in the path `path`.
    #[inline]
    #[must_use]
    pub const fn of(path: SocketAddr) -> Self {
        match path {
            SocketAddr::V4(_) => Self::ORDINARY,
            SocketAddr::V6(path) => Self(path.flowinfo()),
        }
    }

    /// Returns whether this is the number of the ordinary sockets.
    #[inline]
    #[must_use]
    pub const fn is_ordinary(self) -> bool {
        self.0 == 0
    }

    /// Returns the number that follows. That after the highest one is the first of a further socket,
    /// 1.
    #[must_use]
    pub const fn following(self) -> Self {
        Self(self.0 % Self::MAX.0 + 1)
    }

    /// Returns the path to `to` through this socket. A path of another socket becomes one of this.
    #[must_use]
    pub fn path(self, to: SocketAddr) -> SocketAddr {
        if self.is_ordinary() {
            return plain(to);
        }
        let (ip, zone) = match to {
            SocketAddr::V4(to) => (to.ip().to_ipv6_mapped(), 0),
            SocketAddr::V6(to) => (*to.ip(), to.scope_id()),
        };
        SocketAddrV6::new(ip, to.port(), self.0, zone).into()
    }
}

/// Returns the address of a path without its socket.
#[must_use]
pub fn plain(path: SocketAddr) -> SocketAddr {
    match path {
        SocketAddr::V6(v6) if v6.flowinfo() != 0 => match v6.ip().to_canonical() {
            IpAddr::V4(ip) => SocketAddr::from((ip, v6.port())),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, v6.port(), 0, v6.scope_id()).into(),
        },
        path => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_its_address_and_its_socket() {
        let zoned = SocketAddrV6::new("fe80::9".parse().unwrap(), 2121, 0, 3).into();
        for addr in [
            "192.0.2.7:1".parse().unwrap(),
            "[2001:db8::1]:65535".parse().unwrap(),
            zoned,
        ] {
            assert_eq!((SocketId::of(addr), plain(addr)), (SocketId::ORDINARY, addr));
            assert_eq!(SocketId::ORDINARY.path(addr), addr);
            let mut paths = vec![addr];
            for socket in [SocketId(1), SocketId(2), SocketId::MAX] {
                let path = socket.path(addr);
                assert_eq!((SocketId::of(path), plain(path)), (socket, addr));
                assert!(!paths.contains(&path));
                assert_eq!(SocketId(7).path(path), SocketId(7).path(addr));
                assert_eq!(SocketId::ORDINARY.path(path), addr);
                paths.push(path);
            }
        }
    }

    #[test]
    fn further_sockets_never_have_the_number_of_the_ordinary_ones() {
        assert_eq!(SocketId::ORDINARY.following(), SocketId(1));
        assert_eq!(SocketId::MAX.following(), SocketId(1));
        assert_eq!(SocketId(7).following(), SocketId(8));
    }
}
