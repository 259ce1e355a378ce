//! The addresses at which a member says that it may be reached.
//!
//! A hint is an address or a name of a host, with a port. Addresses that are never probed
//! ([`weft_reach::candidate`]) are left out, and so is what nvpn leaves out (`peer_endpoint_hint_addr`
//! of nostr-vpn-core).

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use weft_reach::candidate::check;

/// Where a member may be reached by UDP.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Hint {
    /// An address.
    Address(SocketAddr),
    /// A name of DNS, without a dot at its end, and a port.
    Name(String, u16),
}

impl Hint {
    /// Reads `address:port`, `[address]:port` or `name:port`. `None` for an address that leads to no
    /// other host, and for port 0.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Ok(address) = text.parse::<SocketAddr>() {
            return is_usable(address).then_some(Self::Address(address));
        }
        let (name, port) = text.rsplit_once(':')?;
        let name = name.trim().trim_end_matches('.').to_ascii_lowercase();
        let port: u16 = port.trim().parse().ok()?;
        let is_key = name.len() >= 60 && name.starts_with("npub1");
        let good = port != 0 && is_name(&name) && name != "localhost" && !is_key;
        good.then_some(Self::Name(name, port))
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

/// Whether a text is a name of DNS: labels of letters, digits and hyphens, at least one letter among
/// them, so that it is not an incomplete address.
fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let inner = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        (1..=63).contains(&label.len()) && inner && !label.starts_with('-') && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_label) && text.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// Whether datagrams may be sent to an address. nvpn also leaves out documentation and the range of
/// carriers (RFC 6598).
fn is_usable(at: SocketAddr) -> bool {
    let left_out = match at.ip() {
        IpAddr::V4(ip) => ip.is_documentation() || matches!(ip.octets(), [100, 64..=127, ..]),
        IpAddr::V6(_) => false,
    };
    check(at).is_ok() && !left_out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_read() {
        for (text, shown) in [
            ("11.0.0.7:51820", "11.0.0.7:51820"),
            (" 192.168.1.5:1 ", "192.168.1.5:1"),
            ("[2600::7]:51820", "[2600::7]:51820"),
            ("Home.Example.net.:51820", "home.example.net:51820"),
            ("nas:7", "nas:7"),
        ] {
            let hint = Hint::read(text).map(|hint| hint.to_string());
            assert_eq!(hint.as_deref(), Some(shown), "{text}");
        }
    }

    #[test]
    fn hints_that_lead_to_no_other_host_are_left_out() {
        let key = format!("npub1{}:7", "q".repeat(58));
        for text in [
            "",
            "11.0.0.7",
            "11.0.0.7:0",
            "11.0.0.7:65536",
            "0.0.0.0:7",
            "127.0.0.1:7",
            "169.254.1.1:7",
            "224.0.0.1:7",
            "255.255.255.255:7",
            "100.64.0.1:7",
            "203.0.113.1:7",
            "[::]:7",
            "[::1]:7",
            "[fe80::1]:7",
            "[ff02::1]:7",
            "[::ffff:11.0.0.7]:7",
            "[fd12::1]:7",
            "0.1.2.3:7",
            "2600::7:51820",
            "localhost:7",
            "LocalHost.:7",
            "1.2.3:7",
            "a..b:7",
            "-a:7",
            "a_b:7",
            ":7",
            &key,
        ] {
            assert_eq!(Hint::read(text), None, "{text}");
        }
    }
}
