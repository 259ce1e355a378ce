//! The forms in which a user names a peer.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weft_noise::{KeyError, PublicKey};
use weft_wire::FIPS_PREFIX;

/// The zone of all names.
const ZONE: &str = ".fips";
/// The zone of private networks: members of `home` are below `home.weft`.
const NETWORKS: &str = ".weft";

/// A configured name: one DNS label (RFC 1123), kept in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerName(String);

impl PeerName {
    /// The longest name, in bytes.
    pub const MAX_LEN: usize = 63;

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PeerName {
    type Err = BadPeerName;

    fn from_str(text: &str) -> Result<Self, BadPeerName> {
        let name = text.to_ascii_lowercase();
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if name.is_empty() {
            Err(BadPeerName::Empty)
        } else if name.len() > Self::MAX_LEN {
            Err(BadPeerName::TooLong)
        } else if !name.bytes().all(inner) {
            Err(BadPeerName::Character)
        } else if name.starts_with('-') || name.ends_with('-') {
            Err(BadPeerName::Hyphen)
        } else if name.starts_with("npub1") || name.starts_with("nsec1") {
            Err(BadPeerName::LooksLikeKey)
        } else {
            Ok(Self(name))
        }
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The reason why a text is not a peer name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPeerName {
    /// The text is empty.
    #[error("a name has at least one character")]
    Empty,
    /// The text has more than [`PeerName::MAX_LEN`] bytes.
    #[error("a name has at most 63 characters")]
    TooLong,
    /// A character is not a letter, a digit or a hyphen.
    #[error("a name consists of letters a-z, digits and hyphens")]
    Character,
    /// A hyphen is at the start or the end.
    #[error("a name neither begins nor ends with a hyphen")]
    Hyphen,
    /// The text could be taken for a key.
    #[error("a name does not begin like a key (npub1, nsec1)")]
    LooksLikeKey,
}

/// A reference to a peer, on the command line or in a control request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerRef {
    /// By public key: `npub1...`.
    Key(PublicKey),
    /// By mesh address, in `fd00::/8`.
    Address(Ipv6Addr),
    /// By its name on this node, also written as `NAME.fips`; `npub1....fips` is a key.
    Name(PeerName),
    /// By its name in one network: `NAME.NETWORK.weft`.
    Member {
        /// The name of the member.
        name: PeerName,
        /// The name of the network on this node.
        network: PeerName,
    },
}

impl PeerRef {
    /// True if this is the peer with the key `key` and the name `name`. A name in a network is known
    /// to the daemon alone.
    #[must_use]
    pub fn matches(&self, key: &PublicKey, name: Option<&PeerName>) -> bool {
        match self {
            Self::Key(wanted) => wanted == key,
            Self::Address(wanted) => *wanted == key.node_addr().to_ipv6(),
            Self::Name(wanted) => Some(wanted) == name,
            Self::Member { .. } => false,
        }
    }
}

impl FromStr for PeerRef {
    type Err = BadPeerRef;

    fn from_str(text: &str) -> Result<Self, BadPeerRef> {
        if text.starts_with("npub1") && !text.contains('.') {
            return Ok(Self::Key(text.parse()?));
        }
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return match address.octets() {
                [FIPS_PREFIX, ..] => Ok(Self::Address(address)),
                _ => Err(BadPeerRef::ForeignAddress(address)),
            };
        }
        // The forms of other programs: NAME.fips and NAME.NETWORK.weft, with or without the final dot.
        let absolute = text.strip_suffix('.').unwrap_or(text);
        let lower = absolute.to_ascii_lowercase();
        if let Some((name, network)) = lower.strip_suffix(NETWORKS).and_then(|rest| rest.split_once('.')) {
            return Ok(Self::Member {
                name: name.parse()?,
                network: network.parse()?,
            });
        }
        let split = absolute
            .len()
            .checked_sub(ZONE.len())
            .and_then(|at| absolute.split_at_checked(at));
        match split {
            Some((label, zone)) if zone.eq_ignore_ascii_case(ZONE) => match label.get(..5) {
                Some(start) if start.eq_ignore_ascii_case("npub1") => {
                    Ok(Self::Key(label.to_ascii_lowercase().parse()?))
                }
                _ => Ok(Self::Name(label.parse()?)),
            },
            _ => Ok(Self::Name(text.parse()?)),
        }
    }
}

impl fmt::Display for PeerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => key.fmt(f),
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => name.fmt(f),
            Self::Member { name, network } => write!(f, "{name}.{network}{NETWORKS}"),
        }
    }
}

impl Serialize for PeerRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PeerRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// A reference to any known node: a peer, a member of a network, this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeRef {
    /// By any address of its own or behind it.
    Address(IpAddr),
    /// As peers are referred to.
    Peer(PeerRef),
}

impl FromStr for NodeRef {
    type Err = BadPeerRef;

    fn from_str(text: &str) -> Result<Self, BadPeerRef> {
        match text.parse::<IpAddr>() {
            Ok(address) => Ok(Self::Address(address.to_canonical())),
            Err(_) => text.parse().map(Self::Peer),
        }
    }
}

impl fmt::Display for NodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Peer(peer) => peer.fmt(f),
        }
    }
}

impl Serialize for NodeRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for NodeRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// The reason why a text does not name a peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPeerRef {
    /// It begins like an npub.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The text is an IPv6 address of another network.
    #[error("{0} is not in fd00::/8, where the addresses of nodes are")]
    ForeignAddress(Ipv6Addr),
    /// The text is neither a key nor an address, and not a valid name.
    #[error("neither an npub, nor an fd00 address, nor a name ({0})")]
    Name(#[from] BadPeerName),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> PublicKey {
        weft_noise::SecretKey::from_bytes(&[7; 32]).unwrap().public()
    }

    #[test]
    fn names_are_dns_labels() {
        assert_eq!("Bob-2".parse::<PeerName>().unwrap().as_str(), "bob-2");
        assert!("a".repeat(63).parse::<PeerName>().is_ok());
        for (text, error) in [
            ("", BadPeerName::Empty),
            (&*"a".repeat(64), BadPeerName::TooLong),
            ("bob.home", BadPeerName::Character),
            ("b\u{f6}b", BadPeerName::Character),
            ("-bob", BadPeerName::Hyphen),
            ("bob-", BadPeerName::Hyphen),
            ("npub1x", BadPeerName::LooksLikeKey),
        ] {
            assert_eq!(text.parse::<PeerName>(), Err(error), "{text}");
        }
    }

    #[test]
    fn each_form_finds_its_peer() {
        let name: PeerName = "bob".parse().unwrap();
        let address = key().node_addr().to_ipv6();
        for text in [key().to_string(), address.to_string(), "BOB".to_owned()] {
            let peer: PeerRef = text.parse().unwrap();
            assert!(peer.matches(&key(), Some(&name)), "{text}");
            assert_eq!(peer.to_string().to_lowercase(), text.to_lowercase());
        }
        for text in ["bob.fips".to_owned(), "Bob.FIPS.".to_owned(), format!("{}.fips", key())] {
            let peer: PeerRef = text.parse().unwrap();
            assert!(peer.matches(&key(), Some(&name)), "{text}");
        }
        assert!(!"bob".parse::<PeerRef>().unwrap().matches(&key(), None));
        let member: PeerRef = "Bob.Home.weft.".parse().unwrap();
        assert!(!member.matches(&key(), Some(&name)), "only the daemon knows");
        assert_eq!(member.to_string(), "bob.home.weft");
    }

    #[test]
    fn each_form_of_a_node_is_read_and_written() {
        let key = key();
        for text in [
            key.to_string(),
            key.node_addr().to_ipv6().to_string(),
            "10.1.2.3".to_owned(),
            "2001:db8::1".to_owned(),
            "bob".to_owned(),
            "nas.home.weft".to_owned(),
        ] {
            let node: NodeRef = text.parse().unwrap();
            assert_eq!(node.to_string(), text);
            assert_eq!(
                serde_json::from_value::<NodeRef>(serde_json::json!(node)).unwrap(),
                node
            );
        }
        let same = |one: &str, other: &str| assert_eq!(one.parse::<NodeRef>(), other.parse::<NodeRef>(), "{one}");
        same("Bob.fips", "bob");
        same("NAS.home.weft.", "nas.home.weft");
        same("::ffff:10.1.2.3", "10.1.2.3");
        for text in [
            "",
            "home.weft",
            "a.b.home.weft",
            "bob.example",
            "npub1bob",
            "-.home.weft",
        ] {
            assert!(text.parse::<NodeRef>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_names_nobody() {
        assert!(matches!("npub1bob".parse::<PeerRef>(), Err(BadPeerRef::Key(_))));
        assert!(matches!(
            "2001:db8::1".parse::<PeerRef>(),
            Err(BadPeerRef::ForeignAddress(_))
        ));
        for text in [
            "10.0.0.1",
            ".fips",
            "bob.example",
            "b\u{f6}.fips",
            "a.b.home.weft",
            "home.weft",
            "fips",
        ] {
            let name = text == "fips";
            assert_eq!(
                matches!(text.parse::<PeerRef>(), Err(BadPeerRef::Name(_))),
                !name,
                "{text}"
            );
        }
    }
}
