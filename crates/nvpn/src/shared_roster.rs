//! The signed list of members: a Nostr event of kind 30388, whose time is its version.
//!
//! A list replaces the one before as a whole. Whether it does, its time and its signer decide:
//! [`SharedRoster::supersedes`].

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;
use weft_noise::PublicKey;
use weft_nostr::event::Event;
use weft_nostr::hex;
use weft_roster::membership::{APP, KIND, VERSION};

use crate::network_id::NetworkId;

/// By how many seconds the time of a list may be ahead of the clock of who reads it.
pub const MAX_AHEAD: u64 = 600;

/// The members of a network, as one of its administrators signed them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedRoster {
    /// The identifier of the event.
    pub id: [u8; 32],
    /// Who signed it.
    pub signer: PublicKey,
    /// The time of signing in seconds since 1970, which is the version.
    pub signed_at: u64,
    /// The network.
    pub network: NetworkId,
    /// The name of the network for people; empty if it has none.
    pub name: String,
    /// Those that carry traffic.
    pub members: BTreeSet<PublicKey>,
    /// Those that may sign a later list. nvpn gives an administrator that is not a member no address.
    pub admins: BTreeSet<PublicKey>,
    /// The name of a member, by its key.
    pub aliases: BTreeMap<PublicKey, String>,
}

/// The reason why an event is not a list of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RosterError {
    /// Another kind.
    #[error("the event has kind {0}, not 30388")]
    Kind(u16),
    /// Content, which such an event has not.
    #[error("the event of the roster has content")]
    Content,
    /// Another application, or none.
    #[error("the event is not of nvpn")]
    App,
    /// A version that is not understood, or none.
    #[error("the roster has a version that is not understood")]
    Version,
    /// No network.
    #[error("the roster names no network")]
    Network,
    /// A key that is none, in a tag `member`, `admin` or `alias`.
    #[error("the roster has a tag `{0}` without a valid key")]
    Key(&'static str),
}

/// The reason why a list does not replace the one that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// It is of another network.
    #[error("it belongs to another network")]
    Network,
    /// Its signer is not an administrator by the list that is held.
    #[error("its signer is not an administrator")]
    Signer,
    /// Not newer than the one that is held.
    #[error("it is not newer")]
    Old,
    /// More than [`MAX_AHEAD`] seconds ahead.
    #[error("it comes from the future; do both clocks agree?")]
    Future,
    /// No administrator would remain.
    #[error("it has no administrator")]
    NoAdmin,
    /// It takes the rights of this node, which has them by its records.
    #[error("it takes the rights of this node, which administrators of weft alone can do")]
    Deposes,
}

impl SharedRoster {
    /// Reads a list from a verified event. Unknown tags are passed over, and a key that occurs twice
    /// counts once.
    ///
    /// # Errors
    /// [`RosterError`].
    pub fn read(event: &Event) -> Result<Self, RosterError> {
        let body = event.body();
        if body.kind != KIND {
            return Err(RosterError::Kind(body.kind));
        }
        if !body.content.is_empty() {
            return Err(RosterError::Content);
        }
        let values = |name: &'static str| {
            let tags = body.tags.iter().filter_map(|tag| tag.split_first());
            tags.filter_map(move |(first, values)| (first == name).then_some(values))
        };
        let firsts = |name| values(name).filter_map(|values| values.first().map(String::as_str));
        if !firsts("app").any(|app| app == APP) {
            return Err(RosterError::App);
        }
        if !firsts("v").any(|version| version == VERSION) {
            return Err(RosterError::Version);
        }
        let network = firsts("d").next_back().and_then(NetworkId::new);
        let keys = |name: &'static str| {
            firsts(name)
                .map(|text| key(text, name))
                .collect::<Result<BTreeSet<_>, _>>()
        };
        let mut aliases = BTreeMap::new();
        for pair in values("alias") {
            let [of, alias, ..] = pair else { continue };
            let of = key(of, "alias")?;
            if !alias.trim().is_empty() {
                aliases.insert(of, alias.trim().to_owned());
            }
        }
        Ok(Self {
            id: *event.id(),
            signer: *event.signer(),
            signed_at: body.created_at,
            network: network.ok_or(RosterError::Network)?,
            name: firsts("name").next_back().unwrap_or_default().trim().to_owned(),
            members: keys("member")?,
            admins: keys("admin")?,
            aliases,
        })
    }

    /// Checks whether this list replaces `held`, at `now` in seconds since 1970.
    ///
    /// # Errors
    /// [`Refusal`]: the first reason that applies.
    pub fn supersedes(&self, held: &Self, now: u64) -> Result<(), Refusal> {
        if self.network != held.network {
            return Err(Refusal::Network);
        }
        if !held.admins.contains(&self.signer) {
            return Err(Refusal::Signer);
        }
        if self.signed_at > now.saturating_add(MAX_AHEAD) {
            return Err(Refusal::Future);
        }
        if self.signed_at <= held.signed_at {
            return Err(Refusal::Old);
        }
        if self.admins.is_empty() {
            return Err(Refusal::NoAdmin);
        }
        Ok(())
    }

    /// Whether a key is a member or an administrator.
    #[must_use]
    pub fn names(&self, key: &PublicKey) -> bool {
        self.members.contains(key) || self.admins.contains(key)
    }
}

/// Reads a key as 64 hexadecimal digits or as `npub1...`.
fn key(text: &str, tag: &'static str) -> Result<PublicKey, RosterError> {
    let text = text.trim();
    let key = match hex::decode(&text.to_ascii_lowercase()) {
        Some(bytes) => PublicKey::from_bytes(&bytes).ok(),
        None => text.parse().ok(),
    };
    key.ok_or(RosterError::Key(tag))
}

#[cfg(test)]
pub(crate) mod tests;
