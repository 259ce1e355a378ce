//! Members of one network that see each other in a LAN: what they announce there by DNS-SD (RFC
//! 6763), and how members recognise it.
//!
//! An announcement names no key. It has a nonce, and for each network of the node a tag that only
//! members can compute, since they have the secret of the network: 8 bytes that say "this network",
//! and 4 that say which member. Both depend on nonce, port and day, so two announcements of one node
//! have nothing in common, and one of another day says nothing. A tag is a hint: it can be copied, and
//! the handshake of the link proves the peer. [`sightings`] bounds what a copy can cost.

use data_encoding::HEXLOWER;
use hkdf::Hkdf;
use sha2::Sha256;
use thiserror::Error;

pub mod mdns;
pub mod sightings;

/// The type of service that members announce.
pub const SERVICE: &str = "_weft._udp.local";

/// Networks of one announcement, at most.
pub const MAX_NETWORKS: usize = 16;

/// Entries of a TXT record that are looked at, at most: those that a later version may add included.
pub const MAX_ENTRIES: usize = 64;

/// Members that one announcement may be, at most. More than one in a network is a collision of tags.
pub const MAX_MATCHES: usize = 16;

/// The version of the format.
const VERSION: &[u8] = b"2";

/// The length of a [`Day`].
const SECONDS_OF_A_DAY: u64 = 86_400;

/// What goes before everything that a tag of a network is made of.
const NETWORK_LABEL: &[u8] = b"weft lan 2";
/// What goes before everything that a tag of a member is made of.
const MEMBER_LABEL: &[u8] = b"weft lan member 2";

/// The secret of a network.
pub type Secret = [u8; 32];
/// The public key of a node, as 32 bytes.
pub type Key = [u8; 32];
/// What makes each announcement different.
pub type Nonce = [u8; 8];

/// A day, since the first of 1970 (UTC). An announcement is good on its day and on those beside it, so that clocks may
/// differ by a day, and a copy of it is worth nothing afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Day(u32);

impl Day {
    /// Returns the day of a time, in seconds since 1970 (UTC).
    #[must_use]
    pub fn of(unix: u64) -> Self {
        Self(u32::try_from(unix / SECONDS_OF_A_DAY).unwrap_or(u32::MAX))
    }

    /// Returns the days whose announcements are good on this one.
    fn around(self) -> [Self; 3] {
        [self, Self(self.0.saturating_sub(1)), Self(self.0.saturating_add(1))]
    }
}

/// What an announcement says of one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// HMAC-SHA-256(secret, `weft lan 2` || nonce || port || day), the first 8 bytes. Port and day
    /// are big-endian.
    pub network: [u8; 8],
    /// HMAC-SHA-256(secret, `weft lan member 2` || nonce || port || day || key of the member), the
    /// first 4 bytes.
    pub member: [u8; 4],
}

/// What a node announces in a LAN, beside its port and its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The nonce of this announcement.
    pub nonce: Nonce,
    /// One for each network, at most [`MAX_NETWORKS`].
    pub tags: Vec<Tag>,
}

/// The reason why a TXT record is not read as an announcement. The record is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadAnnouncement {
    /// More than [`MAX_ENTRIES`] entries.
    #[error("the announcement has more than {MAX_ENTRIES} entries")]
    TooMany,
    /// No version, or one that is not known.
    #[error("the announcement is of another version")]
    Version,
    /// No nonce, or none of 16 hexadecimal digits.
    #[error("the announcement has no nonce of 16 hexadecimal digits")]
    Nonce,
    /// A tag that has not 24 hexadecimal digits.
    #[error("a tag of the announcement has not 24 hexadecimal digits")]
    Tag,
}

impl Announcement {
    /// Makes the announcement of the node `own` at `port` in the networks with these secrets, on a day. Secrets beyond
    /// [`MAX_NETWORKS`] are left out.
    #[must_use]
    pub fn new<'a>(
        nonce: Nonce,
        port: u16,
        day: Day,
        own: &Key,
        secrets: impl IntoIterator<Item = &'a Secret>,
    ) -> Self {
        let salt = Salt { nonce, port, day };
        let tag = |secret: &Secret| Tag {
            network: salt.network_tag(secret),
            member: salt.member_tag(secret, own),
        };
        Self {
            nonce,
            tags: secrets.into_iter().take(MAX_NETWORKS).map(tag).collect(),
        }
    }

    /// The entries of the TXT record: keys and values.
    #[must_use]
    pub fn entries(&self) -> Vec<(String, String)> {
        let mut entries = vec![
            ("v".to_owned(), "2".to_owned()),
            ("n".to_owned(), HEXLOWER.encode(&self.nonce)),
        ];
        for (at, tag) in self.tags.iter().enumerate() {
            let (network, member) = (HEXLOWER.encode(&tag.network), HEXLOWER.encode(&tag.member));
            entries.push((format!("t{at}"), network + &member));
        }
        entries
    }

    /// Reads the entries of a TXT record. Keys that are not known are ignored, as are tags beyond
    /// [`MAX_NETWORKS`].
    ///
    /// # Errors
    /// [`BadAnnouncement`].
    pub fn read<'a>(entries: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Result<Self, BadAnnouncement> {
        let (mut version, mut nonce, mut tags) = (None, None, Vec::new());
        for (at, (key, value)) in entries.into_iter().enumerate() {
            if at >= MAX_ENTRIES {
                return Err(BadAnnouncement::TooMany);
            }
            match key {
                "v" => version = version.or(Some(value)),
                "n" => nonce = nonce.or(Some(value)),
                _ if is_tag(key) && tags.len() < MAX_NETWORKS => tags.push(read_tag(value)?),
                _ => {}
            }
        }
        if version != Some(VERSION) {
            return Err(BadAnnouncement::Version);
        }
        let nonce = nonce.and_then(hex).ok_or(BadAnnouncement::Nonce)?;
        Ok(Self { nonce, tags })
    }

    /// Returns the members that the announcement, which came from `port`, may be on a day, of the networks of the
    /// reader: each with its secret and its members. At most [`MAX_MATCHES`].
    #[must_use]
    pub fn members<'a, M>(&self, port: u16, day: Day, networks: impl IntoIterator<Item = (&'a Secret, M)>) -> Vec<Key>
    where
        M: IntoIterator<Item = Key>,
    {
        let mut found = Vec::new();
        for (secret, members) in networks.into_iter().take(MAX_NETWORKS) {
            let Some((salt, tag)) = self.recognise(port, day, secret) else {
                continue;
            };
            let is_it = |key: &Key| salt.member_tag(secret, key) == tag;
            for key in members.into_iter().filter(is_it) {
                if found.len() < MAX_MATCHES && !found.contains(&key) {
                    found.push(key);
                }
            }
        }
        found
    }

    /// Returns the tag of the member in the network with this secret, with what it is salted with.
    fn recognise(&self, port: u16, day: Day, secret: &Secret) -> Option<(Salt, [u8; 4])> {
        let nonce = self.nonce;
        let salts = day.around().map(|day| Salt { nonce, port, day });
        salts.into_iter().find_map(|salt| {
            let wanted = salt.network_tag(secret);
            let tag = self.tags.iter().find(|tag| tag.network == wanted)?;
            Some((salt, tag.member))
        })
    }
}

/// What the tags of one announcement have in common.
#[derive(Clone, Copy)]
struct Salt {
    nonce: Nonce,
    port: u16,
    day: Day,
}

impl Salt {
    /// Returns the tag of a network.
    fn network_tag(&self, secret: &Secret) -> [u8; 8] {
        let hash = self.hmac(secret, NETWORK_LABEL, &[]);
        std::array::from_fn(|at| hash[at])
    }

    /// Returns the tag of a member of a network.
    fn member_tag(&self, secret: &Secret, member: &Key) -> [u8; 4] {
        let hash = self.hmac(secret, MEMBER_LABEL, member);
        std::array::from_fn(|at| hash[at])
    }

    fn hmac(&self, secret: &Secret, label: &[u8], of: &[u8]) -> [u8; 32] {
        let (port, day) = (self.port.to_be_bytes(), self.day.0.to_be_bytes());
        hmac(secret, &[label, &self.nonce, &port, &day, of])
    }
}

/// HMAC-SHA-256, which HKDF-Extract is (RFC 5869, section 2.2).
fn hmac(secret: &Secret, parts: &[&[u8]]) -> [u8; 32] {
    let (hash, _) = Hkdf::<Sha256>::extract(Some(secret), &parts.concat());
    hash.into()
}

/// Whether the key of an entry is `t` and one or two digits.
fn is_tag(key: &str) -> bool {
    let digits = key.strip_prefix('t').unwrap_or_default();
    (1..=2).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn read_tag(value: &[u8]) -> Result<Tag, BadAnnouncement> {
    let bytes: [u8; 12] = hex(value).ok_or(BadAnnouncement::Tag)?;
    Ok(Tag {
        network: std::array::from_fn(|at| bytes[at]),
        member: std::array::from_fn(|at| bytes[8 + at]),
    })
}

fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    // Before the digits are read, so that a long text costs nothing.
    if text.len() != 2 * N {
        return None;
    }
    HEXLOWER.decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests;
