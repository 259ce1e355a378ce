//! Names of networks, members and tags, and names that two members share.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use thiserror::Error;
use weft_noise::PublicKey;

/// Names that programs and systems look up by themselves and trust the answer.
const RESERVED_HOSTS: &[&str] = &["gateway", "isatap", "localhost", "wpad"];

/// Domains that other systems answer for.
const RESERVED_NETWORKS: &[&str] = &["fips", "local", "nvpn"];

/// Length of the longest label of DNS in bytes (RFC 1035, 2.3.4).
const MAX_LEN: usize = 63;

/// A label of DNS in lower case: 1 to 63 of `a` to `z`, `0` to `9` and `-`, no `-` at either end.
///
/// A leading `-` would make an option of a name on a command line.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// The reason why a text is not a [`Name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NameError {
    /// The empty text.
    #[error("the name is empty")]
    Empty,
    /// More than 63 bytes.
    #[error("a name has at most 63 characters, this one has {0} bytes")]
    TooLong(usize),
    /// A character other than those of a label.
    #[error("a name consists of a to z, 0 to 9 and -, not of {0:?}")]
    Character(char),
    /// A hyphen at the beginning or the end.
    #[error("a name begins and ends with a letter or a digit")]
    Hyphen,
    /// A name that programs look up by themselves, or a domain of another system.
    #[error("the name `{0}` has a meaning of its own; choose another one")]
    Reserved(&'static str),
}

impl Name {
    /// Checks a name without a meaning to DNS, such as a tag.
    ///
    /// # Errors
    /// [`NameError`], other than `Reserved`.
    pub fn label(text: &str) -> Result<Self, NameError> {
        let of_label = |c: &char| matches!(c, 'a'..='z' | '0'..='9' | '-');
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > MAX_LEN {
            return Err(NameError::TooLong(text.len()));
        }
        if let Some(c) = text.chars().find(|c| !of_label(c)) {
            return Err(NameError::Character(c));
        }
        if text.starts_with('-') || text.ends_with('-') {
            return Err(NameError::Hyphen);
        }
        Ok(Self(text.to_owned()))
    }

    /// Checks the name of a member.
    ///
    /// # Errors
    /// [`NameError`]; `Reserved` for `gateway`, `isatap`, `localhost` and `wpad`.
    pub fn host(text: &str) -> Result<Self, NameError> {
        Self::unreserved(text, RESERVED_HOSTS)
    }

    /// Checks the name of a network, which is a domain below `weft`.
    ///
    /// # Errors
    /// [`NameError`]; `Reserved` for the names that [`host`](Self::host) refuses, and for `fips`,
    /// `local` and `nvpn`.
    pub fn network(text: &str) -> Result<Self, NameError> {
        Self::unreserved(text, RESERVED_HOSTS)?;
        Self::unreserved(text, RESERVED_NETWORKS)
    }

    fn unreserved(text: &str, reserved: &[&'static str]) -> Result<Self, NameError> {
        let name = Self::label(text)?;
        match reserved.iter().find(|reserved| **reserved == name.0) {
            Some(reserved) => Err(NameError::Reserved(reserved)),
            None => Ok(name),
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The name of each member such that no two are equal, and the members whose name is not the one of
/// their record.
///
/// Of members with one name, that with the lowest key has it. The others have the name with `-` and
/// eight hexadecimal digits of their key, which no later member changes.
#[must_use]
pub fn settle<'a>(
    wanted: impl IntoIterator<Item = (&'a PublicKey, &'a Name)>,
) -> (BTreeMap<PublicKey, Name>, BTreeSet<PublicKey>) {
    let mut by_name: BTreeMap<&Name, BTreeSet<PublicKey>> = BTreeMap::new();
    for (key, name) in wanted {
        by_name.entry(name).or_default().insert(*key);
    }
    let mut taken: BTreeSet<Name> = by_name.keys().map(|name| (*name).clone()).collect();
    let (mut names, mut renamed) = (BTreeMap::new(), BTreeSet::new());
    for (name, keys) in by_name {
        let mut keys = keys.into_iter();
        names.extend(keys.next().map(|key| (key, name.clone())));
        for key in keys {
            renamed.insert(key);
            let digits = data_encoding::HEXLOWER.encode(&key.as_bytes()[..4]);
            // Room for the hyphen and the digits; a stem that ends in a hyphen is a valid one here.
            let stem: String = name.0.chars().take(MAX_LEN - 9).collect();
            let name = Name(format!("{stem}-{digits}"));
            // Another record may ask for the very same name; then the member has none.
            if taken.insert(name.clone()) {
                names.insert(key, name);
            }
        }
    }
    (names, renamed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weft_noise::SecretKey;

    use super::*;

    #[test]
    fn names_are_labels_of_dns() {
        for name in ["a", "0", "laptop", "my-nas-2", &"x".repeat(63), "xn--bcher-kva"] {
            assert_eq!(Name::host(name).unwrap().as_str(), name);
            assert_eq!(Name::network(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn each_cause_has_its_error() {
        assert_eq!(Name::host(""), Err(NameError::Empty));
        assert_eq!(Name::host(&"x".repeat(64)), Err(NameError::TooLong(64)));
        assert_eq!(Name::host("Laptop"), Err(NameError::Character('L')));
        assert_eq!(Name::host("a.b"), Err(NameError::Character('.')));
        assert_eq!(Name::host("a_b"), Err(NameError::Character('_')));
        assert_eq!(Name::host("é"), Err(NameError::Character('é')));
        assert_eq!(Name::host("\u{1b}[2J"), Err(NameError::Character('\u{1b}')));
        assert_eq!(Name::host("-rf"), Err(NameError::Hyphen));
        assert_eq!(Name::host("a-"), Err(NameError::Hyphen));
        for name in ["wpad", "isatap", "localhost", "gateway"] {
            assert_eq!(Name::host(name), Err(NameError::Reserved(name)));
            assert_eq!(Name::network(name), Err(NameError::Reserved(name)));
        }
        for name in ["fips", "nvpn", "local"] {
            assert_eq!(Name::network(name), Err(NameError::Reserved(name)));
            assert!(Name::host(name).is_ok());
        }
    }

    #[test]
    fn members_of_one_name_get_names_of_their_own() {
        let mut keys: Vec<PublicKey> = (1..4)
            .map(|n| SecretKey::from_bytes(&[n; 32]).unwrap().public())
            .collect();
        keys.sort();
        let (nas, other) = (Name::host("nas").unwrap(), Name::host("other").unwrap());
        let wanted = [(&keys[2], &nas), (&keys[0], &nas), (&keys[1], &other)];
        let (names, renamed) = settle(wanted);
        assert_eq!(names[&keys[0]], nas);
        assert_eq!(names[&keys[1]], other);
        assert!(names[&keys[2]].as_str().starts_with("nas-"));
        assert_eq!(renamed, BTreeSet::from([keys[2]]));
    }

    proptest! {
        #[test]
        fn settled_names_are_valid_and_differ(wanted in prop::collection::vec((1..9_u8, "[ab]{1,2}|[ab]{60,63}"), 0..20)) {
            let wanted: Vec<(PublicKey, Name)> = wanted
                .iter()
                .map(|(n, name)| {
                    let key = SecretKey::from_bytes(&[*n; 32]).unwrap().public();
                    (key, Name::host(name).unwrap())
                })
                .collect();
            let wanted: BTreeMap<PublicKey, Name> = wanted.into_iter().collect();
            let (names, _) = settle(&wanted);
            let distinct: BTreeSet<&Name> = names.values().collect();
            prop_assert_eq!(distinct.len(), names.len());
            prop_assert_eq!(names.len(), wanted.len());
            for name in names.values() {
                prop_assert_eq!(Name::label(name.as_str()), Ok(name.clone()));
            }
        }
    }
}
