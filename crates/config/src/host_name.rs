//! Addresses of peers as the configuration writes them: an IP address and a port, or a host name and
//! a port.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::DEFAULT_PORT;

/// Zones whose names lead into the mesh: the tunnel's datagrams would enter the tunnel.
const MESH_ZONES: [&str; 2] = ["fips", "weft"];

/// Where a peer listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// At this address.
    At(SocketAddr),
    /// At the addresses that the name has at present.
    Named {
        /// The name.
        host: HostName,
        /// The UDP port.
        port: u16,
    },
}

/// A host name with a dot in it (RFC 1123, RFC 1035 section 2.3.4), in lower case and without a dot
/// at its end. It is below neither `.fips` nor `.weft`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

/// The reason why a text is not where a peer listens. Its text is a part of a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPeerAddress {
    /// An IP address or a host name without a port.
    #[error("has no port; write it as \"{0}\"")]
    NoPort(String),
    /// Neither an address nor a name.
    #[error("is not host:port; write it as \"192.0.2.2:2121\", \"[2001:db8::2]:2121\" or \"home.example.org:2121\"")]
    Form,
    /// A host name that no server can know.
    #[error("{0}")]
    Name(#[from] BadHostName),
}

/// The reason why a text is not a [`HostName`]. Its text is a part of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHostName {
    /// More than [`HostName::MAX_LEN`] bytes, or a label of more than 63.
    #[error("is too long for a host name; a name has at most 253 characters, and 63 between two dots")]
    TooLong,
    /// An empty label, a character that host names do not have, or a hyphen at an end of a label.
    #[error("is no host name; a name has letters a-z, digits, hyphens and dots, as home.example.org")]
    Form,
    /// One label: what it means depends on the domains that this host searches.
    #[error("is a host name without a dot, which each network may take for another host; write the full name")]
    NoDot,
    /// A name of the mesh.
    #[error("is a name inside the mesh; write the name or the address that the peer's machine has outside of it")]
    Mesh,
}

impl HostName {
    /// The longest name, in bytes: with its length bytes it takes the 255 of RFC 1035.
    pub const MAX_LEN: usize = 253;

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = BadHostName;

    fn from_str(text: &str) -> Result<Self, BadHostName> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let labels: Vec<&str> = name.split('.').collect();
        if name.len() > Self::MAX_LEN || labels.iter().any(|label| label.len() > 63) {
            return Err(BadHostName::TooLong);
        }
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
        let is_label = |label: &str| {
            let ends = label.starts_with('-') || label.ends_with('-');
            !label.is_empty() && label.bytes().all(allowed) && !ends
        };
        let last = labels.last().copied().unwrap_or_default();
        // The last label of an address in the form of IPv4 is a number.
        if !labels.iter().all(|label| is_label(label)) || last.bytes().all(|b| b.is_ascii_digit()) {
            return Err(BadHostName::Form);
        }
        if labels.len() < 2 {
            return Err(BadHostName::NoDot);
        }
        if MESH_ZONES.contains(&last) {
            return Err(BadHostName::Mesh);
        }
        Ok(Self(name))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for PeerAddress {
    type Err = BadPeerAddress;

    fn from_str(text: &str) -> Result<Self, BadPeerAddress> {
        if let Ok(at) = text.parse() {
            return Ok(Self::At(at));
        }
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Err(BadPeerAddress::NoPort(SocketAddr::new(ip, DEFAULT_PORT).to_string()));
        }
        match text.rsplit_once(':') {
            // What has another colon is a wrong IPv6 address.
            Some((host, _)) if host.contains([':', '[']) => Err(BadPeerAddress::Form),
            Some((host, port)) => {
                let port = port.parse().map_err(|_| BadPeerAddress::Form)?;
                let host = host.parse()?;
                Ok(Self::Named { host, port })
            }
            None => match text.parse::<HostName>() {
                Ok(host) => Err(BadPeerAddress::NoPort(format!("{host}:{DEFAULT_PORT}"))),
                Err(BadHostName::Form) => Err(BadPeerAddress::Form),
                Err(why) => Err(why.into()),
            },
        }
    }
}

impl PeerAddress {
    /// Reads an address as a user writes it in a command: without a port it is at [`DEFAULT_PORT`].
    ///
    /// # Errors
    /// [`BadPeerAddress`], but not [`BadPeerAddress::NoPort`].
    pub fn of_command(text: &str) -> Result<Self, BadPeerAddress> {
        match text.parse() {
            Err(BadPeerAddress::NoPort(whole)) => whole.parse(),
            read => read,
        }
    }
}

impl From<SocketAddr> for PeerAddress {
    fn from(at: SocketAddr) -> Self {
        Self::At(at)
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(at) => at.fmt(f),
            Self::Named { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, BadPeerAddress> {
        text.parse().map(|address: PeerAddress| address.to_string())
    }

    #[test]
    fn addresses_and_names_with_a_port() {
        for (text, same) in [
            ("192.0.2.2:2121", "192.0.2.2:2121"),
            ("[2001:db8::2]:2121", "[2001:db8::2]:2121"),
            ("home.example.org:2121", "home.example.org:2121"),
            ("Home.Example.ORG.:1", "home.example.org:1"),
            ("_a.x-1.example:65535", "_a.x-1.example:65535"),
        ] {
            assert_eq!(read(text), Ok(same.to_owned()), "{text}");
            assert_eq!(read(same), Ok(same.to_owned()));
        }
    }

    #[test]
    fn a_command_may_leave_the_port_out() {
        for (text, whole) in [
            ("192.0.2.2", "192.0.2.2:2121"),
            ("2001:db8::2", "[2001:db8::2]:2121"),
            ("[2001:db8::2]", "[2001:db8::2]:2121"),
            ("home.example.org", "home.example.org:2121"),
            ("home.example.org:5000", "home.example.org:5000"),
        ] {
            let read = PeerAddress::of_command(text).map(|address| address.to_string());
            assert_eq!(read, Ok(whole.to_owned()), "{text}");
        }
        for text in ["", "localhost", "nas.home.weft", "192.0.2.2:", "192.0.2"] {
            let error = PeerAddress::of_command(text).unwrap_err();
            assert!(!matches!(error, BadPeerAddress::NoPort(_)), "{text}: {error}");
        }
    }

    #[test]
    fn each_refusal_has_its_texts() {
        let no_port = |instead: &str| BadPeerAddress::NoPort(instead.to_owned());
        let long = format!("{}.example:1", "a".repeat(64));
        let longer = format!("{}example:1", "abc.".repeat(62));
        for (text, error) in [
            ("192.0.2.2", no_port("192.0.2.2:2121")),
            ("2001:db8::2", no_port("[2001:db8::2]:2121")),
            ("home.example.org", no_port("home.example.org:2121")),
            ("", BadPeerAddress::Form),
            ("a b.example:1", BadHostName::Form.into()),
            ("a..example:1", BadHostName::Form.into()),
            (".example:1", BadHostName::Form.into()),
            ("-a.example:1", BadHostName::Form.into()),
            ("b\u{fc}ro.example:1", BadHostName::Form.into()),
            ("192.0.2.256:1", BadHostName::Form.into()),
            ("1.2:1", BadHostName::Form.into()),
            ("home.example.org:", BadPeerAddress::Form),
            ("home.example.org:65536", BadPeerAddress::Form),
            ("[2001:db8::x]:1", BadPeerAddress::Form),
            ("::x:1", BadPeerAddress::Form),
            ("nas:2121", BadHostName::NoDot.into()),
            ("localhost:2121", BadHostName::NoDot.into()),
            ("nas", BadHostName::NoDot.into()),
            ("bob.fips:2121", BadHostName::Mesh.into()),
            ("nas.home.WEFT.:2121", BadHostName::Mesh.into()),
            ("nas.home.weft", BadHostName::Mesh.into()),
            (&long, BadHostName::TooLong.into()),
            (&longer, BadHostName::TooLong.into()),
        ] {
            assert_eq!(read(text), Err(error), "{text}");
        }
    }
}
