//! Socket addresses in the kernel's format.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A `sockaddr_in` or `sockaddr_in6` in room for either.
#[derive(Clone, Copy)]
pub(super) struct RawAddress {
    storage: libc::sockaddr_in6,
    len: libc::socklen_t,
}

const V4_LEN: usize = size_of::<libc::sockaddr_in>();
const V6_LEN: usize = size_of::<libc::sockaddr_in6>();

impl RawAddress {
    /// Room for the kernel to write an address into.
    pub(super) fn empty() -> Self {
        Self {
            // SAFETY: `sockaddr_in6` is plain old data for which all zeros is a value.
            storage: unsafe { std::mem::zeroed() },
            len: V6_LEN as libc::socklen_t,
        }
    }

    /// Converts `address` for a socket of the given version; for an IPv6 socket, IPv4 addresses are
    /// mapped.
    pub(super) fn new(address: SocketAddr, ipv6_socket: bool) -> Self {
        match address {
            SocketAddr::V4(v4) if ipv6_socket => {
                let ip = v4.ip().to_ipv6_mapped();
                Self::v6(SocketAddrV6::new(ip, v4.port(), 0, 0))
            }
            SocketAddr::V4(v4) => Self::v4(v4),
            SocketAddr::V6(v6) => Self::v6(v6),
        }
    }

    fn v4(address: SocketAddrV4) -> Self {
        let mut raw = Self::empty();
        let v4 = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: address.port().to_be(),
            sin_addr: libc::in_addr {
                s_addr: u32::from_ne_bytes(address.ip().octets()),
            },
            sin_zero: [0; 8],
        };
        // SAFETY: `sockaddr_in6` is larger than `sockaddr_in` and aligned at least as strictly, and
        // both are plain old data.
        unsafe { (&raw mut raw.storage).cast::<libc::sockaddr_in>().write(v4) };
        raw.len = V4_LEN as libc::socklen_t;
        raw
    }

    fn v6(address: SocketAddrV6) -> Self {
        let mut raw = Self::empty();
        raw.storage.sin6_family = libc::AF_INET6 as libc::sa_family_t;
        raw.storage.sin6_port = address.port().to_be();
        raw.storage.sin6_addr.s6_addr = address.ip().octets();
        raw.storage.sin6_scope_id = address.scope_id();
        raw
    }

    /// The address that the kernel wrote; a mapped IPv4 address is returned as IPv4.
    pub(super) fn decode(&self) -> Option<SocketAddr> {
        match i32::from(self.storage.sin6_family) {
            libc::AF_INET if self.len as usize >= V4_LEN => {
                // SAFETY: see `v4`; the storage is initialised whatever the kernel wrote.
                let v4 = unsafe { (&raw const self.storage).cast::<libc::sockaddr_in>().read() };
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::from((ip, u16::from_be(v4.sin_port))))
            }
            libc::AF_INET6 if self.len as usize >= V6_LEN => {
                let ip = Ipv6Addr::from(self.storage.sin6_addr.s6_addr);
                let port = u16::from_be(self.storage.sin6_port);
                Some(match ip.to_ipv4_mapped() {
                    Some(v4) => SocketAddr::from((v4, port)),
                    None => SocketAddrV6::new(ip, port, 0, self.storage.sin6_scope_id).into(),
                })
            }
            _ => None,
        }
    }

    pub(super) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    pub(super) fn len(&self) -> libc::socklen_t {
        self.len
    }

    /// For calls that write an address of at most [`RawAddress::len`] bytes.
    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.storage).cast()
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
