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

/// A reference to a node, on the command line or in a control request: all forms in which weft itself names
/// nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeRef {
    /// By public key: `npub1...`, or 64 hexadecimal digits.
    Key(PublicKey),
    /// By an address: that in `fd00::/8`, the IPv4 address in a network, or one behind the node.
    Address(IpAddr),
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

impl NodeRef {
    /// Reads a reference to a node itself: not by an address behind it.
    ///
    /// # Errors
    /// [`BadNodeRef`], also for an IPv6 address that no node has.
    pub fn of_node(text: &str) -> Result<Self, BadNodeRef> {
        match text.parse()? {
            Self::Address(IpAddr::V6(address)) if address.octets().first() != Some(&FIPS_PREFIX) => {
                Err(BadNodeRef::ForeignAddress(address))
            }
            wanted => Ok(wanted),
        }
    }

    /// True if this is the node with the key `key` and the name `name`. What networks give a node is known to
    /// the daemon alone.
    #[must_use]
    pub fn matches(&self, key: &PublicKey, name: Option<&PeerName>) -> bool {
        match self {
            Self::Key(wanted) => wanted == key,
            Self::Address(wanted) => *wanted == IpAddr::V6(key.node_addr().to_ipv6()),
            Self::Name(wanted) => Some(wanted) == name,
            Self::Member { .. } => false,
        }
    }
}

impl FromStr for NodeRef {
    type Err = BadNodeRef;

    fn from_str(text: &str) -> Result<Self, BadNodeRef> {
        let is_hex = text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
        if is_hex || text.starts_with("npub1") && !text.contains('.') {
            return Ok(Self::Key(text.parse()?));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Address(address.to_canonical()));
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
        match lower.strip_suffix(ZONE) {
            Some(label) if label.starts_with("npub1") => Ok(Self::Key(label.parse()?)),
            Some(label) => Ok(Self::Name(label.parse()?)),
            None => Ok(Self::Name(text.parse()?)),
        }
    }
}

impl fmt::Display for NodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => key.fmt(f),
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => name.fmt(f),
            Self::Member { name, network } => write!(f, "{name}.{network}{NETWORKS}"),
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

/// The reason why a text does not name a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNodeRef {
    /// It begins like an npub.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The text is an IPv6 address of another network.
    #[error("{0} is not in fd00::/8, where the addresses of nodes are")]
    ForeignAddress(Ipv6Addr),
    /// The text is neither a key nor an address, and not a valid name.
    #[error("neither an npub, nor an address, nor a name ({0})")]
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
            let peer: NodeRef = text.parse().unwrap();
            assert!(peer.matches(&key(), Some(&name)), "{text}");
            assert_eq!(peer.to_string().to_lowercase(), text.to_lowercase());
        }
        for text in ["bob.fips".to_owned(), "Bob.FIPS.".to_owned(), format!("{}.fips", key())] {
            let peer: NodeRef = text.parse().unwrap();
            assert!(peer.matches(&key(), Some(&name)), "{text}");
        }
        assert!(!"bob".parse::<NodeRef>().unwrap().matches(&key(), None));
        let member: NodeRef = "Bob.Home.weft.".parse().unwrap();
        assert!(!member.matches(&key(), Some(&name)), "only the daemon knows");
        assert_eq!(member.to_string(), "bob.home.weft");
    }

    #[test]
    fn each_form_of_a_node_is_read_and_written() {
        let key = key();
        for text in [
            key.to_string(),
            key.node_addr().to_ipv6().to_string(),
            "10.44.2.3".to_owned(),
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
        let hex: String = key.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        same(&hex, &key.to_string());
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
    fn texts_that_name_no_node_have_their_reason() {
        assert!(matches!("npub1bob".parse::<NodeRef>(), Err(BadNodeRef::Key(_))));
        assert!(matches!(
            NodeRef::of_node("2001:db8::1"),
            Err(BadNodeRef::ForeignAddress(_))
        ));
        for text in ["fd00::1", "10.44.2.3", "bob"] {
            assert_eq!(NodeRef::of_node(text), text.parse(), "{text}");
        }
        for text in [".fips", "bob.example", "b\u{f6}.fips", "a.b.home.weft", "home.weft", ""] {
            let error = text.parse::<NodeRef>();
            assert!(matches!(error, Err(BadNodeRef::Name(_))), "{text}: {error:?}");
        }
        assert!("fips".parse::<NodeRef>().is_ok(), "a name");
    }
}
