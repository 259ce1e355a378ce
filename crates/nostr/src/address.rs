//! Addresses in the documents of FIPS.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use weft_reach::candidate::check;
use weft_reach::nat::is_private;

/// An address in an offer or an answer, as its sender wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// `udp`.
    pub protocol: String,
    /// An IP address.
    pub ip: String,
    /// The port.
    pub port: u16,
}

impl From<SocketAddr> for Address {
    fn from(at: SocketAddr) -> Self {
        Self {
            protocol: "udp".into(),
            ip: at.ip().to_canonical().to_string(),
            port: at.port(),
        }
    }
}

impl Address {
    /// The socket address, if it is one of UDP to which datagrams may be sent
    /// ([`weft_reach::candidate::check`]). IPv4 in the form of IPv6 counts as IPv4.
    #[must_use]
    pub fn socket(&self) -> Option<SocketAddr> {
        let ip: IpAddr = self.ip.parse().ok()?;
        let at = SocketAddr::new(ip.to_canonical(), self.port);
        (self.protocol == "udp" && check(at).is_ok()).then_some(at)
    }
}

/// Whether an address is of use to any node that reads it in an advert: not private, not of a
/// carrier's network, not of documentation, and none of those that are never probed.
#[must_use]
pub fn is_public(at: SocketAddr) -> bool {
    let documentation = matches!(at.ip(), IpAddr::V4(ip) if ip.is_documentation());
    check(at).is_ok() && !is_private(at.ip()) && !documentation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_to_which_nothing_is_sent_are_passed_over() {
        let of = |protocol: &str, ip: &str, port| {
            Address {
                protocol: protocol.into(),
                ip: ip.into(),
                port,
            }
            .socket()
        };
        assert_eq!(of("udp", "11.0.0.1", 7), "11.0.0.1:7".parse().ok());
        assert_eq!(of("udp", "::ffff:11.0.0.1", 7), "11.0.0.1:7".parse().ok());
        assert_eq!(of("udp", "192.168.1.2", 7), "192.168.1.2:7".parse().ok());
        for (protocol, ip, port) in [
            ("tcp", "11.0.0.1", 7),
            ("UDP", "11.0.0.1", 7),
            ("udp", "11.0.0.1", 0),
            ("udp", "example.com", 7),
            ("udp", "11.0.0.1:7", 7),
            ("udp", "127.0.0.1", 7),
            ("udp", "::ffff:127.0.0.1", 7),
            ("udp", "fd00::1", 7),
            ("udp", "fe80::1%eth0", 7),
            ("udp", "255.255.255.255", 7),
            ("udp", "011.0.0.1", 7),
            ("udp", "", 7),
        ] {
            assert_eq!(of(protocol, ip, port), None, "{protocol} {ip} {port}");
        }
    }

    #[test]
    fn public_addresses_are_those_that_fips_takes() {
        for at in ["11.0.0.1:1", "[2600::1]:2121", "8.8.8.8:53"] {
            assert!(is_public(at.parse().unwrap()), "{at}");
        }
        for at in [
            "10.0.0.1:1",
            "192.168.1.1:1",
            "100.64.0.1:1",
            "127.0.0.1:1",
            "169.254.1.1:1",
            "0.0.0.0:1",
            "224.0.0.1:1",
            "192.0.2.1:1",
            "198.51.100.1:1",
            "203.0.113.1:1",
            "11.0.0.1:0",
            "[fc00::1]:1",
            "[fd00::1]:1",
            "[::1]:1",
            "[fe80::1]:1",
        ] {
            assert!(!is_public(at.parse().unwrap()), "{at}");
        }
    }
}
