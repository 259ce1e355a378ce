//! Records: signed statements of an administrator about one key.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;

use thiserror::Error;
use weft_noise::{Identity, PublicKey};

use crate::event::{Event, EventError, Tags, Unsigned, Unverified};
use crate::invite::Proof;
use crate::key::{RecordKey, RecordKeyError};
use crate::network_id::{NetworkId, NetworkIdError};

mod body;

pub use body::{Body, Exit, Guest, Invite, MAX_USES, Member, Network, RuleList, Secret, TagError};

/// The kind of the events that records are: addressable (NIP-01), and not among those that the NIPs
/// list.
pub const KIND: u16 = 36417;

/// Length of the longest record in bytes of JSON.
pub const MAX_RECORD: usize = 8_192;

/// Length of the longest `rules` record in bytes of JSON.
pub const MAX_RULES_RECORD: usize = 65_536;

/// Signers that a record names whose records it restates, at most.
const MAX_OF: usize = 8;

/// A statement about one key, with a valid signature. Whether the signer may make it depends on all
/// the other records.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    event: Event,
    network: NetworkId,
    key: RecordKey,
    version: u64,
    removed: bool,
    body: Body,
    len: usize,
}

/// The reason why bytes are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RecordError {
    /// Not a valid event.
    #[error(transparent)]
    Event(#[from] EventError),
    /// An event of another kind.
    #[error("an event of kind {0} is not a record")]
    Kind(u16),
    /// More bytes than the key allows.
    #[error("the record has {len} bytes; at most {most} are allowed for its key")]
    TooLong {
        /// Length in bytes of JSON.
        len: usize,
        /// The limit.
        most: usize,
    },
    /// The tag `d` does not begin with a network id and a slash.
    #[error("the tag `d` of the record: {0}")]
    Network(#[from] NetworkIdError),
    /// The record is of another network than the one that it was read for.
    #[error("the record is of the network {0}")]
    OtherNetwork(NetworkId),
    /// The rest of the tag `d` is not a record key.
    #[error("the tag `d` of the record: {0}")]
    Key(#[from] RecordKeyError),
    /// A tag is missing, occurs twice, or has no value that its key allows.
    #[error(transparent)]
    Tag(#[from] TagError),
    /// The record `network` removes itself, which would leave no founder.
    #[error("the record `network` cannot be removed")]
    NotRemovable,
    /// The nonce of a `network` record does not make its signer the founder.
    #[error("the signer of the record did not found this network")]
    Founder,
}

/// The order of two records of one signer about one key; the greater one is kept.
///
/// A record that proves its signer to be the founder takes precedence, so that no later one can leave
/// the network without a founder. The end of the signer's own rights takes precedence over all else that
/// it says about them, so that none comes back by its own key.
pub type Precedence<'a> = (bool, bool, u64, bool, Reverse<&'a [u8; 32]>);

impl Record {
    /// Reads a record of any network and verifies its signature, after all checks that cost less.
    ///
    /// # Errors
    /// The first of [`RecordError`] that applies.
    pub fn parse(json: &[u8]) -> Result<Self, RecordError> {
        Self::verify_if(Unverified::read(json)?, |_| Ok(()))
    }

    /// Parses as [`parse`](Self::parse), and refuses another network than `network` before it
    /// verifies the signature.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse), and [`RecordError::OtherNetwork`].
    pub fn parse_of(network: NetworkId, json: &[u8]) -> Result<Self, RecordError> {
        Self::verify_of(network, Unverified::read(json)?)
    }

    /// Verifies an event that is read already, as [`parse_of`](Self::parse_of).
    ///
    /// # Errors
    /// As for [`parse_of`](Self::parse_of).
    pub fn verify_of(network: NetworkId, event: Unverified) -> Result<Self, RecordError> {
        Self::verify_if(event, |of| match of {
            of if of == network => Ok(()),
            of => Err(RecordError::OtherNetwork(of)),
        })
    }

    fn verify_if(
        unverified: Unverified,
        wanted: impl FnOnce(NetworkId) -> Result<(), RecordError>,
    ) -> Result<Self, RecordError> {
        let checked = Checked::new(unverified.body(), unverified.json_len())?;
        wanted(checked.network)?;
        Self::new(unverified.verify()?, checked)
    }

    fn new(event: Event, checked: Checked) -> Result<Self, RecordError> {
        let Checked {
            network,
            key,
            version,
            removed,
            mut body,
            len,
        } = checked;
        match &mut body {
            Body::Network(content) => {
                let founds = |nonce| NetworkId::new(event.signer(), nonce) == network;
                if !content.founder.as_ref().is_none_or(founds) {
                    return Err(RecordError::Founder);
                }
            }
            Body::Member(member) => {
                if let (Some(proof), RecordKey::Member(subject)) = (&member.proof, &key) {
                    proof.verify(subject, network).map_err(|_| TagError::Value("invite"))?;
                }
            }
            _ => {}
        }
        Ok(Self {
            event,
            network,
            key,
            version,
            removed,
            body,
            len,
        })
    }

    /// Returns the event that the record is.
    #[must_use]
    pub const fn event(&self) -> &Event {
        &self.event
    }

    /// Returns the identifier of the event.
    #[must_use]
    pub const fn id(&self) -> &[u8; 32] {
        self.event.id()
    }

    /// Returns the key that signed.
    #[must_use]
    pub const fn signer(&self) -> &PublicKey {
        self.event.signer()
    }

    /// Returns the network that the record is of.
    #[must_use]
    pub const fn network(&self) -> NetworkId {
        self.network
    }

    /// Returns the key that the record is about.
    #[must_use]
    pub const fn key(&self) -> &RecordKey {
        &self.key
    }

    /// Returns the version: among records with equal rights the highest is in force.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Returns true if the record removes what earlier versions added.
    #[must_use]
    pub const fn removed(&self) -> bool {
        self.removed
    }

    /// Returns the content of the record.
    #[must_use]
    pub const fn body(&self) -> &Body {
        &self.body
    }

    /// Returns the proof that a member had an invite code.
    #[must_use]
    pub const fn proof(&self) -> Option<&Proof> {
        match &self.body {
            Body::Member(member) => member.proof.as_ref(),
            _ => None,
        }
    }

    /// Returns the signers whose records this one restates, with another name or tag, or for another rank: the tags
    /// `of`. The signer says so, and may leave some out.
    pub fn of(&self) -> impl Iterator<Item = PublicKey> {
        let tags = self.event.body().tags.iter();
        tags.filter_map(|tag| match &tag[..] {
            [name, signer] if name == "of" => signer.parse().ok(),
            _ => None,
        })
    }

    /// Returns the length in bytes of JSON.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the record has no bytes, which is never the case.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if the record proves its signer to be the founder of the network.
    #[must_use]
    pub const fn founds(&self) -> bool {
        matches!(&self.body, Body::Network(Network { founder: Some(_), .. }))
    }

    /// Returns true if the record ends the rights of its signer.
    #[must_use]
    pub fn resigns(&self) -> bool {
        self.removed && matches!(&self.key, RecordKey::Admin(subject) if subject == self.signer())
    }

    /// Returns true if another record about the same key has the same effect when both are in force. A record
    /// that proves the founder and names its successor has its effect in any case.
    pub(crate) fn says_the_same_as(&self, other: &Self) -> bool {
        let same = match (&self.body, &other.body) {
            (Body::Network(one), Body::Network(other)) => one.name == other.name && one.inside == other.inside,
            (one, other) => one == other,
        };
        self.removed() == other.removed() && (same || self.removed())
    }

    /// Returns true if this version of Weft understands the whole record. Only rules can contain
    /// what it does not.
    #[must_use]
    pub const fn understood(&self) -> bool {
        !matches!(&self.body, Body::Rules(RuleList::NotUnderstood))
    }

    /// Returns the place of this record among those of its signer about its key.
    #[must_use]
    pub fn precedence(&self) -> Precedence<'_> {
        let id = Reverse(self.event.id());
        (self.founds(), self.resigns(), self.version, self.removed, id)
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.removed { "-" } else { "+" };
        write!(f, "Record({sign}{} v{} by {})", self.key, self.version, self.signer())
    }
}

/// What can be read from an event without a look at its signature.
struct Checked {
    network: NetworkId,
    key: RecordKey,
    version: u64,
    removed: bool,
    body: Body,
    len: usize,
}

impl Checked {
    fn new(event: &Unsigned, len: usize) -> Result<Self, RecordError> {
        if event.kind != KIND {
            return Err(RecordError::Kind(event.kind));
        }
        let tags = &event.tags;
        let address = body::required(tags, "d")?;
        let (network, key) = address.split_once('/').ok_or(NetworkIdError)?;
        let network = network.parse()?;
        // Before the key, whose points of the curve cost more.
        let most = if key == "rules" { MAX_RULES_RECORD } else { MAX_RECORD };
        if len > most {
            return Err(RecordError::TooLong { len, most });
        }
        let version = body::decimal(body::required(tags, "v")?).ok_or(TagError::Value("v"))?;
        let removed = body::flag(tags, "removed")?;
        let key: RecordKey = key.parse()?;
        if removed && key == RecordKey::Network {
            return Err(RecordError::NotRemovable);
        }
        Ok(Self {
            network,
            body: Body::read(&key, tags)?,
            key,
            version,
            removed,
            len,
        })
    }
}

/// A record that nothing has signed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// The tags behind `d`, `v` and `removed`.
    tags: Tags,
    content: String,
    network: NetworkId,
    key: RecordKey,
    version: u64,
    removed: bool,
}

impl Draft {
    /// Drafts a record of `network` about `key` that says `body`.
    #[must_use]
    pub fn new(network: NetworkId, key: RecordKey, version: u64, body: &Body) -> Self {
        Self {
            tags: body.tags(),
            content: String::new(),
            network,
            key,
            version,
            removed: false,
        }
    }

    /// Drafts `record` again with another version, for another administrator to sign. Tags that
    /// this version of Weft does not know stay.
    #[must_use]
    pub fn again(record: &Record, version: u64) -> Self {
        let event = record.event.body();
        let set_here = |tag: &Vec<String>| matches!(tag.first().map(String::as_str), Some("d" | "v" | "removed"));
        Self {
            tags: event.tags.iter().filter(|tag| !set_here(tag)).cloned().collect(),
            content: event.content.clone(),
            network: record.network,
            key: record.key.clone(),
            version,
            removed: record.removed,
        }
    }

    /// Drafts `record` with another body, for instance another name. Tags that this version of Weft
    /// does not know stay.
    #[must_use]
    pub fn changed(record: &Record, version: u64, body: &Body) -> Self {
        let mut draft = Self::again(record, version);
        let known = body::known_tags(&record.key);
        draft
            .tags
            .retain(|tag| tag.first().is_none_or(|name| !known.contains(&&**name)));
        let unknown = std::mem::replace(&mut draft.tags, body.tags());
        draft.tags.extend(unknown);
        draft.removed = false;
        draft
    }

    /// Says that the record restates what `record` says, unless `signer`, who signs it, has said that itself.
    #[must_use]
    pub fn restating(mut self, record: &Record, signer: &PublicKey) -> Self {
        let known: Vec<PublicKey> = self
            .tags
            .extract_if(.., |tag| tag.first().is_some_and(|name| name == "of"))
            .filter_map(|tag| tag.get(1)?.parse().ok())
            .collect();
        // The direct signer first: what others have written into its record may be made up.
        let all = [*record.signer()].into_iter().chain(record.of()).chain(known);
        let mut seen = BTreeSet::from([*signer]);
        let named: Vec<PublicKey> = all.filter(|key| seen.insert(*key)).take(MAX_OF).collect();
        let tags = named.into_iter().map(|key| vec!["of".to_owned(), key.to_string()]);
        self.tags.extend(tags);
        self
    }

    /// Makes the draft a removal. The content stays: the proof of a member and the uses of an
    /// invite count beyond the removal.
    #[must_use]
    pub fn removal(mut self) -> Self {
        self.removed = true;
        self
    }

    /// Signs the record. `created_at` is in seconds since 1970 and decides nothing.
    ///
    /// # Errors
    /// [`RecordError`], as for a record that is read.
    pub fn sign(self, signer: &Identity, created_at: u64) -> Result<Record, RecordError> {
        let text = |text: &str| text.to_owned();
        let mut tags = vec![
            vec![text("d"), format!("{}/{}", self.network, self.key)],
            vec![text("v"), self.version.to_string()],
        ];
        if self.removed {
            tags.push(vec![text("removed")]);
        }
        tags.extend(self.tags);
        let unsigned = Unsigned {
            created_at,
            kind: KIND,
            tags,
            content: self.content,
        };
        let event = Event::sign(signer, unsigned)?;
        let checked = Checked::new(event.body(), event.to_json().len())?;
        Record::new(event, checked)
    }
}

#[cfg(test)]
mod tests;
