//! Names of networks, members and tags, and names that two members share.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use thiserror::Error;
use weft_noise::PublicKey;

use crate::admins::Rank;

/// Names that programs and systems look up by themselves and trust the answer.
const RESERVED_HOSTS: &[&str] = &["gateway", "isatap", "localhost", "wpad"];

/// Domains that other systems answer for.
const RESERVED_NETWORKS: &[&str] = &["fips", "local", "nvpn"];

/// What rules say in place of a member.
const RULE_WORDS: &[&str] = &["any", "exit"];

/// How texts begin that are keys (NIP-19, NIP-49).
const KEYS: &[&str] = &["npub1", "nsec1", "ncryptsec1"];

/// The least length of a name before its number, in characters: numbers have five digits at most, as
/// there are fewer members.
const SHORTEST_STEM: usize = MAX_LEN - 6;

/// Length of a network id as text, in hexadecimal digits.
const ID_LEN: usize = 32;

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
    /// A capital letter. It is refused rather than changed, so that a name looks the same everywhere.
    #[error("a name is written in lower case, not with {0:?}")]
    UpperCase(char),
    /// A hyphen at the beginning or the end.
    #[error("a name begins and ends with a letter or a digit")]
    Hyphen,
    /// A name that programs look up by themselves, or a domain of another system.
    #[error("the name `{0}` has a meaning of its own; choose another one")]
    Reserved(&'static str),
    /// A text that commands and systems read as something else: a key, an identifier, an address.
    #[error("the name looks like {0}; choose another one")]
    Looks(&'static str),
}

impl Name {
    /// The length of the longest name in bytes.
    pub const MAX_LEN: usize = MAX_LEN;

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
            return Err(match c.is_ascii_uppercase() {
                true => NameError::UpperCase(c),
                false => NameError::Character(c),
            });
        }
        if text.starts_with('-') || text.ends_with('-') {
            return Err(NameError::Hyphen);
        }
        Ok(Self(text.to_owned()))
    }

    /// Checks tags.
    ///
    /// # Errors
    /// Those of [`label`](Self::label), for the first one that is wrong.
    pub fn labels(texts: &[String]) -> Result<BTreeSet<Self>, NameError> {
        texts.iter().map(|text| Self::label(text)).collect()
    }

    /// Checks the name of a member.
    ///
    /// # Errors
    /// [`NameError`]; `Reserved` for `gateway`, `isatap`, `localhost` and `wpad`; `Looks` for what
    /// begins like a key, for `any` and `exit`, for 32 hexadecimal digits, and for a number, which `inet_aton` (POSIX) reads
    /// as an IPv4 address.
    pub fn host(text: &str) -> Result<Self, NameError> {
        if RULE_WORDS.contains(&text) {
            return Err(NameError::Looks("a word of the rules"));
        }
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

    /// Returns the name of a host that resembles a text: its characters other than `a` to `z` and digits become
    /// hyphens. `None` if none does.
    #[must_use]
    pub fn host_like(text: &str) -> Option<Self> {
        Self::host(&resembling(text)).ok()
    }

    /// Returns the name of a network that resembles a text, as [`host_like`](Self::host_like).
    #[must_use]
    pub fn network_like(text: &str) -> Option<Self> {
        Self::network(&resembling(text)).ok()
    }

    fn unreserved(text: &str, reserved: &[&'static str]) -> Result<Self, NameError> {
        let name = Self::label(text)?;
        if let Some(kind) = other_kind(text) {
            return Err(NameError::Looks(kind));
        }
        match reserved.iter().find(|reserved| **reserved == name.0) {
            Some(reserved) => Err(NameError::Reserved(reserved)),
            None => Ok(name),
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name with a hyphen and a number behind it, cut to the length of a label:
    /// `nas-2`.
    #[must_use]
    pub fn numbered(&self, number: usize) -> Self {
        let behind = format!("-{number}");
        let stem: String = self.0.chars().take(MAX_LEN.saturating_sub(behind.len())).collect();
        Self(stem + &behind)
    }

    /// Returns true if this name is `other` with a number behind it.
    #[must_use]
    pub fn is_numbered(&self, other: &Self) -> bool {
        let number = self.0.rsplit_once('-').and_then(|(_, number)| number.parse().ok());
        number.is_some_and(|number| other.numbered(number) == *self)
    }

    /// Accepts a checked name that was written before, by this version or an earlier one. Earlier versions took names
    /// that look like something else: these count as no name.
    ///
    /// # Errors
    /// [`NameError`], other than `Looks`.
    pub fn written(checked: Result<Self, NameError>) -> Result<Option<Self>, NameError> {
        match checked {
            Err(NameError::Looks(_)) => Ok(None),
            checked => checked.map(Some),
        }
    }

    /// Returns the numbered names, from 2 on.
    pub fn numbers(&self) -> impl Iterator<Item = Self> {
        (2..).map(|number| self.numbered(number))
    }
}

/// Returns a label of DNS that resembles a text, or an empty text.
fn resembling(text: &str) -> String {
    let of_label = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9') => c,
        _ => '-',
    };
    let label: String = text.trim().chars().take(63).map(of_label).collect();
    label.trim_matches('-').to_owned()
}

/// Returns what commands and systems read a label as, if it has the form of a key, an identifier or an address.
fn other_kind(text: &str) -> Option<&'static str> {
    let digits = |text: &str, hex: bool| {
        let is_digit = |c: char| c.is_ascii_digit() || (hex && c.is_ascii_hexdigit());
        !text.is_empty() && text.chars().all(is_digit)
    };
    if KEYS.iter().any(|start| text.starts_with(start)) {
        Some("a key")
    } else if text.len() == ID_LEN && digits(text, true) {
        Some("the identifier of a network")
    } else if digits(text, false)
        || text
            .strip_prefix("0x")
            .is_some_and(|rest| rest.is_empty() || digits(rest, true))
    {
        Some("an address")
    } else {
        None
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

/// The name that the record of a member gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim<'a> {
    /// The member.
    pub member: &'a PublicKey,
    /// The name.
    pub name: &'a Name,
    /// The rank of the administrator that signed the record.
    pub rank: Rank,
}

/// Determines a name for each member such that no two are equal, and the members whose name is not
/// the one of their record.
///
/// Administrators give no name twice, but two that do not know of each other may. Of members with one
/// name, that whose record the more senior administrator signed has it, then that with the lower key.
/// The others have the name with the next number that no record asks for.
#[must_use]
pub fn settle<'a>(claims: impl IntoIterator<Item = Claim<'a>>) -> (BTreeMap<PublicKey, Name>, BTreeSet<PublicKey>) {
    let mut by_name: BTreeMap<&Name, BTreeSet<(Rank, PublicKey)>> = BTreeMap::new();
    for claim in claims {
        by_name
            .entry(claim.name)
            .or_default()
            .insert((claim.rank, *claim.member));
    }
    let mut taken: BTreeSet<Name> = by_name.keys().map(|name| (*name).clone()).collect();
    let (mut names, mut renamed) = (BTreeMap::new(), BTreeSet::new());
    // Each number is tried once for all members of a name, and for names that are one when they are cut.
    let mut next: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, members) in by_name {
        let mut members = members.into_iter().map(|(_, key)| key);
        names.extend(members.next().map(|key| (key, name.clone())));
        let stem = name.0.get(..SHORTEST_STEM).unwrap_or(&name.0);
        let number = next.entry(stem).or_insert(2);
        for key in members {
            renamed.insert(key);
            let free = (*number..).map(|number| (number, name.numbered(number)));
            let free = free.into_iter().find(|(_, name)| taken.insert(name.clone()));
            if let Some((at, name)) = free {
                *number = at + 1;
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
    fn a_name_resembles_the_text_of_another_program() {
        let host = |text| Name::host_like(text).map(|name| name.to_string());
        assert_eq!(host(" Anna's Phone ").as_deref(), Some("anna-s-phone"));
        assert_eq!(host("b\u{fc}ro").as_deref(), Some("b-ro"));
        assert_eq!((host("--"), host(""), host("localhost")), (None, None, None));
        let network = |text| Name::network_like(text).map(|name| name.to_string());
        assert_eq!(network("Network 1").as_deref(), Some("network-1"));
        assert_eq!(network("nvpn"), None);
    }

    #[test]
    fn names_are_labels_of_dns() {
        for name in [
            "a",
            "0a",
            "laptop",
            "my-nas-2",
            &"x".repeat(63),
            "xn--bcher-kva",
            "4-2",
            "0xray",
        ] {
            assert_eq!(Name::host(name).unwrap().as_str(), name);
            assert_eq!(Name::network(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn each_cause_has_its_error() {
        assert_eq!(Name::host(""), Err(NameError::Empty));
        assert_eq!(Name::host(&"x".repeat(64)), Err(NameError::TooLong(64)));
        assert_eq!(Name::host("Laptop"), Err(NameError::UpperCase('L')));
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
        let id = "0123456789abcdef0123456789abcdef";
        for (name, kind) in [
            ("npub1", "a key"),
            ("npub1wsnzfu4cy4tqqrsr5t0lsk7qmpcd2fd2yx7k5a5ljc8jdsrqqxqs", "a key"),
            ("nsec1x", "a key"),
            ("ncryptsec1q", "a key"),
            (id, "the identifier of a network"),
            ("0", "an address"),
            ("10", "an address"),
            ("3232235777", "an address"),
            ("0xc0a80101", "an address"),
            ("0x", "an address"),
        ] {
            assert_eq!(Name::host(name), Err(NameError::Looks(kind)), "{name}");
            assert_eq!(Name::network(name), Err(NameError::Looks(kind)), "{name}");
            assert!(Name::label(name).is_ok(), "a tag");
        }
        for name in ["any", "exit"] {
            assert_eq!(Name::host(name), Err(NameError::Looks("a word of the rules")));
            assert!(Name::network(name).is_ok());
        }
        for name in ["fips", "nvpn", "local"] {
            assert_eq!(Name::network(name), Err(NameError::Reserved(name)));
            assert!(Name::host(name).is_ok());
        }
    }

    fn keys(count: u8) -> Vec<PublicKey> {
        let mut keys: Vec<PublicKey> = (1..=count)
            .map(|n| SecretKey::from_bytes(&[n; 32]).unwrap().public())
            .collect();
        keys.sort();
        keys
    }

    fn claim<'a>(member: &'a PublicKey, name: &'a Name, rank: Rank) -> Claim<'a> {
        Claim { member, name, rank }
    }

    #[test]
    fn the_name_is_that_of_the_senior_signer_then_of_the_lower_key() {
        let keys = keys(4);
        let (nas, second) = (Name::host("nas").unwrap(), Name::host("nas-2").unwrap());
        let claims = [
            claim(&keys[0], &nas, 1),
            claim(&keys[1], &second, 3),
            claim(&keys[2], &nas, 0),
            claim(&keys[3], &nas, 0),
        ];
        let (names, renamed) = settle(claims);
        let name = |at: usize| names[&keys[at]].as_str();
        assert_eq!(name(2), "nas");
        assert_eq!(name(1), "nas-2", "a number takes no name away");
        assert_eq!([name(3), name(0)], ["nas-3", "nas-4"]);
        assert_eq!(renamed, BTreeSet::from([keys[0], keys[3]]));
    }

    #[test]
    fn a_numbered_name_has_room_in_a_label() {
        let long = Name::host(&"x".repeat(63)).unwrap();
        assert_eq!(long.numbered(17).as_str(), format!("{}-17", "x".repeat(60)));
        assert!(long.numbered(17).is_numbered(&long));
        let name = |text: &str| Name::host(text).unwrap();
        assert_eq!(name("nas").numbers().nth(1), Some(name("nas-3")));
        for (other, is_number) in [
            ("nas-2", true),
            ("nas-02", false),
            ("nas-x", false),
            ("nas", false),
            ("na-2", false),
        ] {
            assert_eq!(name(other).is_numbered(&name("nas")), is_number, "{other}");
        }
    }

    #[test]
    fn two_thousand_members_of_one_name_get_a_number_each() {
        let keys: Vec<PublicKey> = (1..=2_000_u16)
            .map(|n| {
                let mut secret = [1; 32];
                secret[..2].copy_from_slice(&n.to_be_bytes());
                SecretKey::from_bytes(&secret).unwrap().public()
            })
            .collect();
        let nas = Name::host("nas").unwrap();
        let (names, renamed) = settle(keys.iter().map(|key| claim(key, &nas, 0)));
        assert_eq!((names.len(), renamed.len()), (2_000, 1_999));
        assert!(names.values().any(|name| name.as_str() == "nas-2000"));
        // Names that differ behind the place at which they are cut share their numbers.
        let long: Vec<Name> = (0..1_000).map(|n| Name(format!("{}-{n:03}", "x".repeat(59)))).collect();
        let claims = keys.iter().enumerate().map(|(at, key)| claim(key, &long[at / 2], 0));
        let (names, _) = settle(claims);
        assert_eq!(names.values().collect::<BTreeSet<_>>().len(), 2_000);
        assert!(names.values().any(|name| name.as_str().ends_with("x-1001")));
    }

    proptest! {
        #[test]
        fn settled_names_are_valid_and_differ(
            wanted in prop::collection::vec((1..9_u8, "[ab](-[23])?|[ab]{60,63}", 0..3_u8), 0..20),
        ) {
            let wanted: BTreeMap<PublicKey, (Name, Rank)> = wanted
                .iter()
                .map(|(n, name, rank)| {
                    let key = SecretKey::from_bytes(&[*n; 32]).unwrap().public();
                    (key, (Name::host(name).unwrap(), *rank))
                })
                .collect();
            let claims = wanted.iter().map(|(key, (name, rank))| claim(key, name, *rank));
            let (names, renamed) = settle(claims);
            let distinct: BTreeSet<&Name> = names.values().collect();
            prop_assert_eq!(distinct.len(), names.len());
            prop_assert_eq!(names.len(), wanted.len());
            for (key, name) in &names {
                prop_assert_eq!(Name::label(name.as_str()), Ok(name.clone()));
                let (own, rank) = &wanted[key];
                let before = |(other, (name, place)): (&PublicKey, &(Name, Rank))| {
                    name == own && (place, other) < (rank, key)
                };
                let holds = !wanted.iter().any(before);
                prop_assert_eq!(holds, name == own);
                prop_assert_eq!(holds, !renamed.contains(key));
            }
        }
    }
}
