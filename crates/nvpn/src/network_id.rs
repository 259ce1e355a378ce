//! The identifier of a network of nvpn: any text, of which several may mean the same network.

use std::fmt;

/// What older versions put in front of the identifier.
const PREFIX: &str = "nostr-vpn:";
/// Bytes of the longest identifier that is read; nvpn has no bound.
const MAX_LEN: usize = 256;

/// The identifier of a network in its normal form (`normalize_runtime_network_id` of nostr-vpn-core).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkId(String);

impl NetworkId {
    /// Brings a text into the normal form. White space around it and the prefix `nostr-vpn:` go. If
    /// what remains consists of hexadecimal digits, hyphens and white space, the digits alone count, in
    /// lower case. `None` if nothing remains, or more than 256 bytes.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix(PREFIX).unwrap_or(text).trim();
        let compact: String = text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect();
        let normal = match compact.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            true => compact.to_ascii_lowercase(),
            false => text.to_owned(),
        };
        (1..=MAX_LEN).contains(&normal.len()).then_some(Self(normal))
    }

    /// The text in its normal form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NetworkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NetworkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NetworkId({:?})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn normal(text: &str) -> Option<String> {
        NetworkId::new(text).map(|id| id.0)
    }

    #[test]
    fn texts_that_mean_the_same_network() {
        for text in [
            "ab12cd34",
            " AB12-cd34 ",
            "nostr-vpn:ab12cd34",
            " nostr-vpn: AB 12 CD 34",
        ] {
            assert_eq!(normal(text).as_deref(), Some("ab12cd34"), "{text}");
        }
        // What is not hexadecimal stays as it is, with its hyphens and capitals.
        assert_eq!(normal(" My-Home ").as_deref(), Some("My-Home"));
        assert_eq!(normal("nostr-vpn:my home").as_deref(), Some("my home"));
        assert_eq!(normal("NOSTR-VPN:ab").as_deref(), Some("NOSTR-VPN:ab"));
    }

    #[test]
    fn nothing_is_no_network() {
        for text in ["", "  ", "-", " - - ", "nostr-vpn:", "nostr-vpn: --"] {
            assert_eq!(normal(text), None, "{text:?}");
        }
        assert_eq!(normal(&"x".repeat(257)), None);
        assert!(normal(&"x".repeat(256)).is_some());
    }

    proptest! {
        #[test]
        fn the_normal_form_is_its_own(text in "[ a-fA-F0-9-]{0,12}|nostr-vpn:[ -~]{0,12}|.{0,12}") {
            if let Some(id) = NetworkId::new(&text) {
                // A prefix behind a prefix is a part of the name, for nvpn as well.
                prop_assume!(!id.as_str().starts_with(PREFIX));
                prop_assert_eq!(NetworkId::new(id.as_str()), Some(id));
            }
        }
    }
}
