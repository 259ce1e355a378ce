//! Socket addresses in the kernel's format.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// A `sockaddr_in` (ip(7)) or a `sockaddr_in6` (ipv6(7)) in room for either: family, port, then the
/// address, in IPv6 after the flow label and before the interface. Family and interface have the
/// byte order of the machine.
#[derive(Clone, Copy)]
#[repr(C, align(4))]
pub(super) struct RawAddress {
    bytes: [u8; V6_LEN],
    len: libc::socklen_t,
}

const V4_LEN: usize = size_of::<libc::sockaddr_in>();
const V6_LEN: usize = size_of::<libc::sockaddr_in6>();

impl RawAddress {
    /// Room for the kernel to write an address into.
    pub(super) fn empty() -> Self {
        Self {
            bytes: [0; V6_LEN],
            len: V6_LEN as libc::socklen_t,
        }
    }

    /// Converts `address` for a socket of the given version; for an IPv6 socket, IPv4 addresses are
    /// mapped.
    pub(super) fn new(address: SocketAddr, ipv6_socket: bool) -> Self {
        let mut raw = Self::empty();
        raw.bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(v4) if ipv6_socket => raw.set_v6(v4.ip().to_ipv6_mapped(), 0),
            SocketAddr::V4(v4) => {
                raw.set_family(libc::AF_INET);
                raw.bytes[4..8].copy_from_slice(&v4.ip().octets());
                raw.len = V4_LEN as libc::socklen_t;
            }
            SocketAddr::V6(v6) => raw.set_v6(*v6.ip(), v6.scope_id()),
        }
        raw
    }

    fn set_v6(&mut self, ip: Ipv6Addr, interface: u32) {
        self.set_family(libc::AF_INET6);
        self.bytes[8..24].copy_from_slice(&ip.octets());
        self.bytes[24..].copy_from_slice(&interface.to_ne_bytes());
    }

    fn set_family(&mut self, family: libc::c_int) {
        self.bytes[..2].copy_from_slice(&(family as libc::sa_family_t).to_ne_bytes());
    }

    /// The address that the kernel wrote; a mapped IPv4 address is returned as IPv4.
    pub(super) fn decode(&self) -> Option<SocketAddr> {
        let [f0, f1, p0, p1, a, b, c, d, rest @ ..] = &self.bytes;
        let port = u16::from_be_bytes([*p0, *p1]);
        match libc::c_int::from(libc::sa_family_t::from_ne_bytes([*f0, *f1])) {
            libc::AF_INET if self.len as usize >= V4_LEN => {
                Some(SocketAddr::from((Ipv4Addr::new(*a, *b, *c, *d), port)))
            }
            libc::AF_INET6 if self.len as usize >= V6_LEN => {
                let (ip, interface) = rest.split_first_chunk::<16>()?;
                let ip = Ipv6Addr::from(*ip);
                Some(match ip.to_ipv4_mapped() {
                    Some(v4) => SocketAddr::from((v4, port)),
                    None => SocketAddrV6::new(ip, port, 0, u32::from_ne_bytes(interface.try_into().ok()?)).into(),
                })
            }
            _ => None,
        }
    }

    pub(super) fn as_ptr(&self) -> *const libc::sockaddr {
        self.bytes.as_ptr().cast()
    }

    /// Whether it is for an IPv6 socket.
    pub(super) fn is_ipv6(&self) -> bool {
        self.len as usize == V6_LEN
    }

    pub(super) fn len(&self) -> libc::socklen_t {
        self.len
    }

    /// For calls that write an address of at most [`RawAddress::len`] bytes.
    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        self.bytes.as_mut_ptr().cast()
    }

    /// The length that the kernel reported.
    pub(super) fn set_len(&mut self, len: libc::socklen_t) {
        self.len = len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_undoes_encoding() {
        let addresses: [SocketAddr; 4] = [
            "192.0.2.7:1".parse().unwrap(),
            "[2001:db8::1]:65535".parse().unwrap(),
            SocketAddrV6::new("fe80::9".parse().unwrap(), 2121, 0, 3).into(),
            "0.0.0.0:0".parse().unwrap(),
        ];
        for address in addresses {
            assert_eq!(RawAddress::new(address, address.is_ipv6()).decode(), Some(address));
            assert_eq!(RawAddress::new(address, true).decode(), Some(address));
        }
        assert_eq!(RawAddress::empty().decode(), None);
    }
}
