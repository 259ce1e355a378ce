//! Node addresses and the IPv6 addresses derived from them.

use core::fmt;
use core::net::Ipv6Addr;

/// First byte of every mesh IPv6 address: `fd00::/8` (RFC 4193, locally assigned).
pub const FIPS_PREFIX: u8 = 0xfd;

/// A node's routing address: the first 16 bytes of the SHA-256 of its x-only public key.
///
/// The wire order is the order of comparison; the tree root is the smallest address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeAddr([u8; 16]);

impl NodeAddr {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// Wraps bytes in wire order.
    #[must_use]
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes in wire order.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The node's IPv6 address: [`FIPS_PREFIX`], then the first 15 bytes. The 16th is lost.
    #[must_use]
    pub fn to_ipv6(&self) -> Ipv6Addr {
        let mut octets = [FIPS_PREFIX; 16];
        octets[1..].copy_from_slice(&self.0[..15]);
        Ipv6Addr::from(octets)
    }

    /// Returns the first 15 bytes of the node address behind a mesh IPv6 address, or `None` outside
    /// `fd00::/8`. An address is looked up by these bytes, as the 16th is unknown.
    #[must_use]
    pub fn prefix_of_ipv6(addr: Ipv6Addr) -> Option<[u8; 15]> {
        let [first, prefix @ ..] = addr.octets();
        (first == FIPS_PREFIX).then_some(prefix)
    }
}

impl From<[u8; 16]> for NodeAddr {
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl AsRef<[u8]> for NodeAddr {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// All 16 bytes as 32 lower-case hexadecimal digits.
impl fmt::Display for NodeAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Like [`fmt::Display`], so that the address in a log line can be searched for.
impl fmt::Debug for NodeAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn ipv6_keeps_fifteen_bytes() {
        let addr = NodeAddr::new(core::array::from_fn(|i| i as u8 + 1));
        assert_eq!(addr.to_ipv6().to_string(), "fd01:203:405:607:809:a0b:c0d:e0f");
        let prefix = NodeAddr::prefix_of_ipv6(addr.to_ipv6());
        assert_eq!(prefix.as_ref().map(|p| &p[..]), addr.as_bytes().get(..15));
        assert_eq!(NodeAddr::prefix_of_ipv6(Ipv6Addr::LOCALHOST), None);
    }

    #[test]
    fn text_is_all_of_it() {
        let addr = NodeAddr::new(core::array::from_fn(|i| i as u8));
        assert_eq!(format!("{addr}"), "000102030405060708090a0b0c0d0e0f");
        assert_eq!(format!("{addr:?}"), format!("{addr}"));
    }

    use std::string::ToString;
}
