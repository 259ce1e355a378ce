//! A path to a peer as a value: the remote address, and the local end that it is reached from.
//!
//! The local end is an underlay socket, and on an ordinary socket an address of this host if the peer
//! has asked that one: then the answer leaves from there, and through the interface that the question
//! came by. Through another socket, or from another address, the remote address may be unreachable,
//! or another host, and a firewall or a NAT in front of the peer lets the answer pass only from where
//! it sent the question. docs/decisions/0072-endpoints.md.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// The number of an underlay socket, which decides what carries its datagrams. It has a meaning in
/// this process only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(u16);

impl SocketId {
    /// The ordinary sockets, of which one serves each IP version.
    pub const ORDINARY: Self = Self(0);
    /// The highest number.
    pub const MAX: Self = Self(u16::MAX);

    /// Returns whether this is the number of the ordinary sockets.
    #[must_use]
    #[inline]
    pub const fn is_ordinary(self) -> bool {
        self.0 == 0
    }

    /// Returns the number that follows. That after the highest one is the first of a further socket,
    /// 1.
    #[must_use]
    #[inline]
    pub const fn following(self) -> Self {
        Self(self.0 % Self::MAX.0 + 1)
    }

    /// Returns the path to `to` through this socket, from no address in particular. A path of another
    /// socket becomes one of this.
    #[must_use]
    #[inline]
    pub fn path(self, to: impl Into<Endpoint>) -> Endpoint {
        Endpoint {
            socket: self,
            ..to.into().without_local()
        }
    }
}

/// An address of this host, and the interface through which the peer has reached it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalEnd {
    /// The address.
    pub ip: IpAddr,
    /// The index of the interface.
    pub device: u32,
}

/// A remote address, and the local end from which it is reached.
///
/// IPv4 addresses are mapped (RFC 4291, section 2.5.5.2), so that comparing two values compares
/// bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    remote: [u8; 16],
    /// All zeros: no address in particular.
    local: [u8; 16],
    port: u16,
    socket: SocketId,
    /// The interface in whose network a link-local remote address lies; otherwise 0.
    zone: u32,
    /// The interface of the local end; 0 without one.
    device: u32,
}

impl Endpoint {
    /// Returns the remote address.
    #[must_use]
    #[inline]
    pub fn remote(self) -> SocketAddr {
        match self.ip() {
            IpAddr::V4(ip) => SocketAddr::from((ip, self.port)),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, self.port, 0, self.zone).into(),
        }
    }

    /// Returns the IP address of the remote end.
    #[must_use]
    #[inline]
    pub fn ip(self) -> IpAddr {
        Ipv6Addr::from(self.remote).to_canonical()
    }

    /// Returns the port of the remote end.
    #[must_use]
    #[inline]
    pub const fn port(self) -> u16 {
        self.port
    }

    /// Returns whether the remote address is one of IPv6.
    #[must_use]
    #[inline]
    pub fn is_ipv6(self) -> bool {
        self.remote.first_chunk() != Some(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff])
    }

    /// Returns the number of the socket.
    #[must_use]
    #[inline]
    pub const fn socket(self) -> SocketId {
        self.socket
    }

    /// Returns the address of this host that the path leads from, unless the system selects it.
    #[must_use]
    #[inline]
    pub fn local(self) -> Option<LocalEnd> {
        (self.local != [0; 16]).then(|| LocalEnd {
            ip: Ipv6Addr::from(self.local).to_canonical(),
            device: self.device,
        })
    }

    /// Returns the path from this local end, through the same socket.
    #[must_use]
    #[inline]
    pub fn with_local(self, local: Option<LocalEnd>) -> Self {
        let Some(LocalEnd { ip, device }) = local else {
            return self.without_local();
        };
        Self {
            local: octets(ip),
            device,
            ..self
        }
    }

    /// Returns the path from no address in particular, through the same socket.
    #[must_use]
    #[inline]
    pub const fn without_local(self) -> Self {
        Self {
            local: [0; 16],
            device: 0,
            ..self
        }
    }

    /// Returns the path to the same address through the ordinary sockets, from no address in
    /// particular.
    #[must_use]
    #[inline]
    pub const fn ordinary(self) -> Self {
        Self {
            socket: SocketId::ORDINARY,
            ..self.without_local()
        }
    }

    /// Returns whether a frame that came by `came` has come on this path. One from no address in
    /// particular has every local address; the interface does not matter, since any may bring what
    /// is for an address of this host.
    #[must_use]
    #[inline]
    pub fn covers(self, came: Self) -> bool {
        self.is_to(came) && (self.local == came.local || self.local == [0; 16])
    }

    /// Returns whether both lead to one address through one socket.
    #[must_use]
    #[inline]
    pub fn is_to(self, other: Self) -> bool {
        (self.remote, self.port, self.socket, self.zone) == (other.remote, other.port, other.socket, other.zone)
    }
}

impl From<SocketAddr> for Endpoint {
    /// The path through an ordinary socket, from no address in particular.
    fn from(to: SocketAddr) -> Self {
        let zone = match to {
            SocketAddr::V6(to) if to.ip().is_unicast_link_local() || to.ip().is_multicast() => to.scope_id(),
            _ => 0,
        };
        Self {
            remote: octets(to.ip()),
            local: [0; 16],
            port: to.port(),
            socket: SocketId::ORDINARY,
            zone,
            device: 0,
        }
    }
}

impl<I: Into<IpAddr>> From<(I, u16)> for Endpoint {
    /// The path to an address and a port, through an ordinary socket.
    fn from(to: (I, u16)) -> Self {
        SocketAddr::from(to).into()
    }
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.remote())?;
        if let Some(local) = self.local() {
            write!(f, " from {}", local.ip)?;
        }
        match self.socket.is_ordinary() {
            true => Ok(()),
            false => write!(f, " through socket {}", self.socket.0),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> [SocketAddr; 3] {
        [
            "192.0.2.7:1".parse().unwrap(),
            "[2001:db8::1]:65535".parse().unwrap(),
            SocketAddrV6::new("fe80::9".parse().unwrap(), 2121, 0, 3).into(),
        ]
    }

    #[test]
    fn a_path_is_its_address_and_its_socket() {
        for addr in addresses() {
            let plain = Endpoint::from(addr);
            assert_eq!((plain.socket(), plain.remote()), (SocketId::ORDINARY, addr));
            assert_eq!((plain.ip(), plain.is_ipv6()), (addr.ip(), addr.is_ipv6()));
            assert_eq!(SocketId::ORDINARY.path(addr), plain);
            let mut paths = vec![plain];
            for socket in [SocketId(1), SocketId(2), SocketId::MAX] {
                let path = socket.path(addr);
                assert_eq!((path.socket(), path.remote()), (socket, addr));
                assert!(!paths.contains(&path) && !path.covers(plain) && !plain.covers(path));
                assert_eq!(SocketId(7).path(path), SocketId(7).path(addr));
                assert_eq!(SocketId::ORDINARY.path(path), plain);
                paths.push(path);
            }
        }
    }

    #[test]
    fn a_path_from_an_address_takes_no_frames_of_another() {
        for addr in addresses() {
            let any = Endpoint::from(addr);
            let [here, there] = ["192.0.2.1", "2001:db8::9"].map(|ip| LocalEnd {
                ip: ip.parse().unwrap(),
                device: 4,
            });
            let paths = [here, there].map(|local| any.with_local(Some(local)));
            assert_eq!(paths.map(Endpoint::local), [Some(here), Some(there)]);
            assert_eq!(paths.map(Endpoint::remote), [addr; 2]);
            assert!(paths.iter().all(|path| any.covers(*path) && !path.covers(any)));
            assert!(paths[0].covers(paths[0]) && !paths[0].covers(paths[1]));
            let by_another = any.with_local(Some(LocalEnd { device: 9, ..here }));
            assert!(paths[0].covers(by_another));
            assert_eq!(paths.map(Endpoint::without_local), [any; 2]);
            assert!(paths[0].is_to(paths[1]) && !paths[0].is_to(SocketId(1).path(addr)));
        }
    }

    #[test]
    fn further_sockets_never_have_the_number_of_the_ordinary_ones() {
        assert_eq!(SocketId::ORDINARY.following(), SocketId(1));
        assert_eq!(SocketId::MAX.following(), SocketId(1));
        assert_eq!(SocketId(7).following(), SocketId(8));
    }

    #[test]
    fn a_zone_counts_for_link_local_addresses_only() {
        let zoned =
            |ip: &str, zone| Endpoint::from(SocketAddr::from(SocketAddrV6::new(ip.parse().unwrap(), 1, 0, zone)));
        assert_ne!(zoned("fe80::1", 1), zoned("fe80::1", 2));
        assert_eq!(zoned("2001:db8::1", 1), zoned("2001:db8::1", 2));
        assert!(!zoned("fe80::1", 1).covers(zoned("fe80::1", 2)));
    }
}
