//! Which nodes may use what a user offers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use weft_config::peer::NodeRef;

/// The most parties of an audience.
pub const MAX_PARTIES: usize = 64;
/// The longest name of a party, in bytes.
const MAX_NAME: usize = 256;

/// A part of an [`Audience`]. Its text is `MEMBER`, `tag:TAG` or `network:NETWORK`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Party {
    /// One member, by its key: a name may be another one's later.
    Member {
        /// The member, as the user named it.
        name: String,
        /// Its npub; `None` until it is looked up, and then the party is empty.
        npub: Option<String>,
    },
    /// Members with this tag.
    Tag(String),
    /// Members of this network.
    Network(String),
}

/// The nodes that may use something; without a party all members of the own networks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Audience(pub Vec<Party>);

impl Audience {
    /// Whether a node is one of them. `networks` are those that this node is a member of, too, and `tags` those of the
    /// node in them.
    #[must_use]
    pub fn allows(&self, npub: &str, networks: &[String], tags: &[String]) -> bool {
        let is_in = |party: &Party| match party {
            Party::Member { npub: of, .. } => of.as_deref() == Some(npub),
            Party::Tag(tag) => tags.contains(tag),
            Party::Network(network) => networks.contains(network),
        };
        match self.0.is_empty() {
            true => !networks.is_empty(),
            false => self.0.iter().any(is_in),
        }
    }
}

impl FromStr for Party {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = |name: &str| match name.is_empty() || name.len() > MAX_NAME || name.contains(char::is_control) {
            true => Err("write MEMBER, tag:TAG or network:NETWORK".to_owned()),
            false => Ok(name.to_owned()),
        };
        if let Some(tag) = text.strip_prefix("tag:") {
            return named(tag).map(Self::Tag);
        }
        if let Some(network) = text.strip_prefix("network:") {
            return named(network).map(Self::Network);
        }
        let member = NodeRef::of_node(&named(text)?).map_err(|error| error.to_string())?;
        Ok(Self::Member {
            name: member.to_string(),
            npub: None,
        })
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member { name, .. } => f.write_str(name),
            Self::Tag(tag) => write!(f, "tag:{tag}"),
            Self::Network(network) => write!(f, "network:{network}"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use super::*;

    fn audience(parties: &[&str]) -> Audience {
        Audience(parties.iter().map(|text| text.parse().unwrap()).collect())
    }

    #[test]
    fn an_audience_has_members_tags_and_networks() {
        let [home, family] = ["home", "family"].map(|name| vec![name.to_owned()]);
        let none: Vec<String> = Vec::new();
        for (parties, networks, tags, allowed) in [
            (&[][..], &home, &none, true),
            (&[], &none, &family, false),
            (&["tag:family"], &home, &family, true),
            (&["tag:family"], &home, &none, false),
            (&["tag:home"], &home, &family, false),
            (&["network:home"], &home, &none, true),
            (&["network:work"], &home, &family, false),
            (&["tag:work", "network:home"], &home, &none, true),
            // It is not looked up yet.
            (&["nas"], &home, &family, false),
        ] {
            let audience = audience(parties);
            assert_eq!(
                audience.allows("npub1x", networks, tags),
                allowed,
                "{parties:?} {networks:?} {tags:?}"
            );
        }
    }

    #[test]
    fn a_member_counts_by_its_key() {
        let mut one = audience(&["nas"]);
        one.0 = vec![Party::Member {
            name: "nas".to_owned(),
            npub: Some("npub1x".to_owned()),
        }];
        assert!(one.allows("npub1x", &[], &[]));
        assert!(!one.allows("npub1y", &["home".to_owned()], &["nas".to_owned()]));
        let json = serde_json::to_string(&one).unwrap();
        assert_eq!(json, r#"[{"member":{"name":"nas","npub":"npub1x"}}]"#);
        assert_eq!(serde_json::from_str::<Audience>(&json).unwrap(), one);
    }

    #[test]
    fn parties_are_read_as_they_are_written() {
        for text in ["nas", "nas.home.weft", "fd00::1", "tag:family", "network:home"] {
            assert_eq!(text.parse::<Party>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "tag:",
            "network:",
            "a b",
            "tag:a\nb",
            "2001:db8::1",
            &"x".repeat(300),
        ] {
            assert!(text.parse::<Party>().is_err(), "{text}");
        }
    }
}
