//! The URL of a relay of Nostr.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use tokio_tungstenite::tungstenite::http::Uri;

use crate::host_name::PeerAddress;

/// The URL of a relay: `wss://` or, without encryption, `ws://`, a host, and a port and a path if there
/// are any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayUrl {
    text: String,
    secure: bool,
    host: String,
    at: PeerAddress,
}

/// A text is not the URL of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a relay is written as wss://relay.example or ws://192.0.2.2:7777")]
pub struct BadRelayUrl;

impl RelayUrl {
    /// The longest one in bytes.
    pub const MAX_LEN: usize = 200;

    /// The URL as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the connection is encrypted.
    #[must_use]
    pub const fn is_secure(&self) -> bool {
        self.secure
    }

    /// The host as a certificate names it, without a port.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Where the relay is.
    #[must_use]
    pub const fn address(&self) -> &PeerAddress {
        &self.at
    }
}

impl FromStr for RelayUrl {
    type Err = BadRelayUrl;

    fn from_str(text: &str) -> Result<Self, BadRelayUrl> {
        let uri: Uri = text.parse().map_err(|_| BadRelayUrl)?;
        let (secure, port) = match uri.scheme_str() {
            Some("wss") => (true, 443),
            Some("ws") => (false, 80),
            _ => return Err(BadRelayUrl),
        };
        let authority = uri.authority().ok_or(BadRelayUrl)?;
        let plain = authority.as_str().contains('@') || text.contains('#') || text.len() > Self::MAX_LEN;
        let host = authority.host();
        if plain || host.is_empty() {
            return Err(BadRelayUrl);
        }
        let port = match authority.as_str().strip_prefix(host) {
            Some("") => port,
            rest => rest
                .and_then(|rest| rest.strip_prefix(':')?.parse().ok())
                .ok_or(BadRelayUrl)?,
        };
        if port == 0_u16 {
            return Err(BadRelayUrl);
        }
        Ok(Self {
            text: text.to_owned(),
            secure,
            host: host.trim_matches(['[', ']']).to_owned(),
            at: format!("{host}:{port}").parse().map_err(|_| BadRelayUrl)?,
        })
    }
}

impl fmt::Display for RelayUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_hosts_and_ports() {
        for (text, secure, host, at) in [
            ("wss://relay.example", true, "relay.example", "relay.example:443"),
            ("wss://relay.example/", true, "relay.example", "relay.example:443"),
            (
                "wss://relay.example:8443/nostr",
                true,
                "relay.example",
                "relay.example:8443",
            ),
            ("ws://192.0.2.2", false, "192.0.2.2", "192.0.2.2:80"),
            ("ws://192.0.2.2:7777", false, "192.0.2.2", "192.0.2.2:7777"),
            ("wss://[2001:db8::2]:7777", true, "2001:db8::2", "[2001:db8::2]:7777"),
        ] {
            let url: RelayUrl = text.parse().unwrap();
            assert_eq!((url.is_secure(), url.host()), (secure, host), "{text}");
            assert_eq!(*url.address(), at.parse().unwrap(), "{text}");
            assert_eq!(url.to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "relay.example",
            "https://relay.example",
            "wss://",
            "wss:///x",
            "wss://user@relay.example",
            "wss://relay.example:0",
            "wss://relay.example:99999",
            "wss://relay.example/#x",
            "wss://a b",
            "wss://re\u{7}lay",
            "wss://[::1",
            &format!("wss://relay.example/{}", "x".repeat(RelayUrl::MAX_LEN)),
        ] {
            assert_eq!(text.parse::<RelayUrl>(), Err(BadRelayUrl), "{text}");
        }
    }
}
