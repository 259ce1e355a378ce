//! Addresses in messages between neighbours (weft only): IPv6 address (IPv4 mapped), then port,
//! little-endian. docs/protocol/link.md, "KeyInTwo".

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Length in bytes.
pub const LEN: usize = 16 + 2;

/// Returns an address as [`KEY_IN_TWO`](crate::link::KEY_IN_TWO), [`OBSERVED`](crate::link::OBSERVED)
/// and [`Sighting`](crate::sighting::Sighting) contain it. The zone of an IPv6 address is left out.
#[must_use]
pub fn to_bytes(addr: SocketAddr) -> [u8; LEN] {
    let ip = match addr.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; LEN];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&addr.port().to_le_bytes());
    bytes
}

/// Reads that form; `None` if the length is another one.
#[must_use]
pub fn from_bytes(body: &[u8]) -> Option<SocketAddr> {
    let (ip, port) = body.split_first_chunk::<16>()?;
    let port = u16::from_le_bytes(port.try_into().ok()?);
    Some(SocketAddr::new(Ipv6Addr::from(*ip).to_canonical(), port))
}

/// Whether an address is one of a local network, by its form: RFC 1918, RFC 4193, link-local.
#[must_use]
pub fn is_local(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// Which NATs and firewalls of a node the paths to an address pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// To addresses of a local network ([`is_local`]).
    Local,
    /// To other addresses of IPv4.
    Ipv4,
    /// To other addresses of IPv6.
    Ipv6,
}

impl Scope {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Local, Self::Ipv4, Self::Ipv6];

    /// The scope of the paths to an address.
    #[must_use]
    pub fn of(at: SocketAddr) -> Self {
        match at.ip().to_canonical() {
            ip if is_local(ip) => Self::Local,
            IpAddr::V4(_) => Self::Ipv4,
            IpAddr::V6(_) => Self::Ipv6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ip_versions_return() {
        for addr in ["192.0.2.1:2121", "[2001:db8::1]:65535"] {
            let addr: SocketAddr = addr.parse().unwrap();
            assert_eq!(from_bytes(&to_bytes(addr)), Some(addr));
        }
        assert_eq!(from_bytes(&[0; 17]), None);
        assert_eq!(from_bytes(&[0; 19]), None);
    }
}
