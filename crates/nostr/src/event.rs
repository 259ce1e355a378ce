//! Signed Nostr events (NIP-01).
//!
//! Reading has two steps. [`Unverified::read`] checks form and size, which costs little;
//! [`Unverified::verify`] computes the identifier and checks the signature. Between the two, a
//! caller refuses what it does not want.

use std::fmt;

use data_encoding::HEXLOWER;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use sha2::{Digest, Sha256};
use thiserror::Error;
use weft_noise::{Identity, KeyError, PublicKey};

use crate::hex::decode;

mod rumor;

pub use rumor::Rumor;

/// Length of the longest event in bytes of JSON.
pub const MAX_EVENT: usize = 65_536;

/// The largest integer that every reader of JSON represents exactly, 2^53 - 1.
const MAX_INTEGER: u64 = (1 << 53) - 1;

/// The tags of an event: each a list of texts, the first of which is its name.
pub type Tags = Vec<Vec<String>>;

/// The reason why bytes are not an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EventError {
    /// More bytes than [`MAX_EVENT`].
    #[error("an event has at most 65,536 bytes, this one has {0}")]
    TooLong(usize),
    /// Not one JSON object and nothing else.
    #[error("the event is not a JSON object")]
    Json,
    /// A field that NIP-01 does not name.
    #[error("the event has a field that does not belong there")]
    UnknownField,
    /// A field that occurs twice, so that two readers may see two events.
    #[error("the event has the field `{0}` twice")]
    Duplicate(&'static str),
    /// A field of NIP-01 that does not occur.
    #[error("the event lacks the field `{0}`")]
    Missing(&'static str),
    /// A field of another type or range.
    #[error("the field `{0}` of the event has the wrong type or range")]
    Type(&'static str),
    /// Not the right number of hexadecimal digits in lower case.
    #[error("the field `{0}` of the event is not hexadecimal in lower case, or has the wrong length")]
    Hex(&'static str),
    /// A control character other than line feed and tab, for which JSON has several spellings.
    #[error("the event contains a control character")]
    Control,
    /// The signer's key is no point of the curve.
    #[error("the signer's key: {0}")]
    Key(KeyError),
    /// The identifier is not the hash of the event.
    #[error("the id of the event is not its hash")]
    Id,
    /// The signature was not made by the signer for this identifier.
    #[error("the signature of the event is wrong")]
    Signature,
}

/// The fields that are signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsigned {
    /// The time of signing in seconds since 1970, as the signer says.
    pub created_at: u64,
    /// The kind of the event.
    pub kind: u16,
    /// The tags.
    pub tags: Tags,
    /// The content.
    pub content: String,
}

/// An event with a valid identifier and signature.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    id: [u8; 32],
    signer: PublicKey,
    body: Unsigned,
    signature: [u8; 64],
}

/// An event whose identifier and signature nothing has verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unverified {
    id: [u8; 32],
    pubkey: [u8; 32],
    body: Unsigned,
    signature: [u8; 64],
}

impl Event {
    /// Signs an event as `signer`, without auxiliary randomness: the same event gets the same
    /// signature.
    ///
    /// # Errors
    /// [`EventError::TooLong`], [`EventError::Control`], [`EventError::Type`] for a time above
    /// 2^53 - 1.
    pub fn sign(signer: &Identity, body: Unsigned) -> Result<Self, EventError> {
        body.check()?;
        let id = body.id(signer.public().as_bytes());
        let event = Self {
            id,
            signer: signer.public(),
            signature: signer.sign_digest(&id),
            body,
        };
        match event.to_json().len() {
            len if len > MAX_EVENT => Err(EventError::TooLong(len)),
            _ => Ok(event),
        }
    }

    /// Reads and verifies an event.
    ///
    /// # Errors
    /// The first of [`EventError`] that applies; the signature is checked last.
    pub fn parse(json: &[u8]) -> Result<Self, EventError> {
        Unverified::read(json)?.verify()
    }

    /// The identifier: SHA-256 of the signed fields.
    #[must_use]
    pub const fn id(&self) -> &[u8; 32] {
        &self.id
    }

    /// The key that signed.
    #[must_use]
    pub const fn signer(&self) -> &PublicKey {
        &self.signer
    }

    /// The signed fields other than the key.
    #[must_use]
    pub const fn body(&self) -> &Unsigned {
        &self.body
    }

    /// The event as JSON without white space, the fields in the order of NIP-01. Equal events have
    /// equal bytes.
    #[must_use]
    pub fn to_json(&self) -> String {
        emit(&self.id, self.signer.as_bytes(), &self.body, Some(&self.signature))
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("id", &HEXLOWER.encode(&self.id))
            .field("signer", &self.signer)
            .field("tags", &self.body.tags)
            .finish_non_exhaustive()
    }
}

impl Unverified {
    /// Reads an event, without a look at key, identifier and signature.
    ///
    /// # Errors
    /// [`EventError`], other than `Key`, `Id` and `Signature`.
    pub fn read(json: &[u8]) -> Result<Self, EventError> {
        let event = Found::read(json)?.finish()?;
        event.body.check()?;
        Ok(event)
    }

    /// Length of the event as [`Event::to_json`] writes it.
    #[must_use]
    pub fn json_len(&self) -> usize {
        emit(&self.id, &self.pubkey, &self.body, Some(&self.signature)).len()
    }

    /// The fields that are signed, if the signature holds.
    #[must_use]
    pub const fn body(&self) -> &Unsigned {
        &self.body
    }

    /// The identifier that the event claims.
    #[must_use]
    pub const fn id(&self) -> &[u8; 32] {
        &self.id
    }

    /// The key that the event claims to be of.
    #[must_use]
    pub const fn pubkey(&self) -> &[u8; 32] {
        &self.pubkey
    }

    /// Whether this is the event `verified`, signature and all.
    #[must_use]
    pub fn is(&self, verified: &Event) -> bool {
        self.id == verified.id
            && self.pubkey == *verified.signer.as_bytes()
            && self.signature == verified.signature
            && self.body == verified.body
    }

    /// Whether the identifier is the hash of the event, which costs much less than
    /// [`Unverified::verify`].
    #[must_use]
    pub fn id_holds(&self) -> bool {
        self.body.id(&self.pubkey) == self.id
    }

    /// Checks identifier, key and signature.
    ///
    /// # Errors
    /// [`EventError::Id`], [`EventError::Key`], [`EventError::Signature`], in this order.
    pub fn verify(self) -> Result<Event, EventError> {
        if !self.id_holds() {
            return Err(EventError::Id);
        }
        let signer = PublicKey::from_bytes(&self.pubkey).map_err(EventError::Key)?;
        signer
            .verify_digest(&self.id, &self.signature)
            .map_err(|_| EventError::Signature)?;
        Ok(Event {
            id: self.id,
            signer,
            body: self.body,
            signature: self.signature,
        })
    }
}

impl Unsigned {
    /// The values of the first tag with this name.
    #[must_use]
    pub fn tag(&self, name: &str) -> Option<&[String]> {
        let mut tags = self.tags.iter().filter_map(|tag| tag.split_first());
        tags.find_map(|(first, values)| (first == name).then_some(values))
    }

    /// The first value of the first tag with this name.
    #[must_use]
    pub fn tag_value(&self, name: &str) -> Option<&str> {
        self.tag(name)?.first().map(String::as_str)
    }

    /// The identifier of this event of `pubkey`.
    fn id(&self, pubkey: &[u8; 32]) -> [u8; 32] {
        let mut text = format!("[0,\"{}\",{},{},", HEXLOWER.encode(pubkey), self.created_at, self.kind);
        self.push_tags(&mut text);
        text.push(',');
        push_string(&mut text, &self.content);
        text.push(']');
        Sha256::digest(text).into()
    }

    fn push_tags(&self, out: &mut String) {
        push_list(out, &self.tags, |out, tag| {
            push_list(out, tag, |out, text| push_string(out, text));
        });
    }

    fn check(&self) -> Result<(), EventError> {
        if self.created_at > MAX_INTEGER {
            return Err(EventError::Type("created_at"));
        }
        let texts = self.tags.iter().flatten().chain([&self.content]);
        let mut characters = texts.flat_map(|text| text.chars());
        if characters.any(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
            return Err(EventError::Control);
        }
        Ok(())
    }
}

fn emit(id: &[u8; 32], pubkey: &[u8; 32], body: &Unsigned, signature: Option<&[u8; 64]>) -> String {
    let mut text = format!(
        "{{\"id\":\"{}\",\"pubkey\":\"{}\",\"created_at\":{},\"kind\":{},\"tags\":",
        HEXLOWER.encode(id),
        HEXLOWER.encode(pubkey),
        body.created_at,
        body.kind
    );
    body.push_tags(&mut text);
    text.push_str(",\"content\":");
    push_string(&mut text, &body.content);
    if let Some(signature) = signature {
        text.push_str(",\"sig\":\"");
        text.push_str(&HEXLOWER.encode(signature));
        text.push('"');
    }
    text.push('}');
    text
}

fn push_list<T>(out: &mut String, items: &[T], mut push: impl FnMut(&mut String, &T)) {
    out.push('[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        push(out, item);
    }
    out.push(']');
}

/// A JSON string with the escapes of NIP-01. [`Unsigned::check`] leaves no other character that
/// needs one.
fn push_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// The fields of a JSON object in their order, duplicates included, which a map would hide.
struct Fields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

/// The fields that were read so far.
#[derive(Default)]
struct Found {
    id: Option<[u8; 32]>,
    pubkey: Option<[u8; 32]>,
    created_at: Option<u64>,
    kind: Option<u16>,
    tags: Option<Tags>,
    content: Option<String>,
    signature: Option<[u8; 64]>,
}

impl Found {
    fn read(json: &[u8]) -> Result<Self, EventError> {
        if json.len() > MAX_EVENT {
            return Err(EventError::TooLong(json.len()));
        }
        let Fields(fields) = serde_json::from_slice(json).map_err(|_| EventError::Json)?;
        let mut found = Self::default();
        for (name, value) in fields {
            found.take(&name, value)?;
        }
        Ok(found)
    }

    fn take(&mut self, name: &str, value: Value) -> Result<(), EventError> {
        match name {
            "id" => set(&mut self.id, "id", hex_field(&value, "id")?),
            "pubkey" => set(&mut self.pubkey, "pubkey", hex_field(&value, "pubkey")?),
            "sig" => set(&mut self.signature, "sig", hex_field(&value, "sig")?),
            "created_at" => {
                let time = value.as_u64().ok_or(EventError::Type("created_at"))?;
                set(&mut self.created_at, "created_at", time)
            }
            "kind" => {
                let kind = value.as_u64().and_then(|kind| u16::try_from(kind).ok());
                set(&mut self.kind, "kind", kind.ok_or(EventError::Type("kind"))?)
            }
            "tags" => {
                let tags = tags(value).ok_or(EventError::Type("tags"))?;
                set(&mut self.tags, "tags", tags)
            }
            "content" => {
                let Value::String(content) = value else {
                    return Err(EventError::Type("content"));
                };
                set(&mut self.content, "content", content)
            }
            _ => Err(EventError::UnknownField),
        }
    }

    fn finish(self) -> Result<Unverified, EventError> {
        let id = self.id.ok_or(EventError::Missing("id"))?;
        let signature = self.signature.ok_or(EventError::Missing("sig"));
        let (pubkey, body) = self.body()?;
        Ok(Unverified {
            id,
            pubkey,
            body,
            signature: signature?,
        })
    }

    /// The key, and what is signed.
    fn body(self) -> Result<([u8; 32], Unsigned), EventError> {
        let pubkey = self.pubkey.ok_or(EventError::Missing("pubkey"))?;
        let body = Unsigned {
            created_at: self.created_at.ok_or(EventError::Missing("created_at"))?,
            kind: self.kind.ok_or(EventError::Missing("kind"))?,
            tags: self.tags.ok_or(EventError::Missing("tags"))?,
            content: self.content.ok_or(EventError::Missing("content"))?,
        };
        Ok((pubkey, body))
    }
}

fn set<T>(field: &mut Option<T>, name: &'static str, value: T) -> Result<(), EventError> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(EventError::Duplicate(name)),
    }
}

fn hex_field<const N: usize>(value: &Value, name: &'static str) -> Result<[u8; N], EventError> {
    let text = value.as_str().ok_or(EventError::Type(name))?;
    decode(text).ok_or(EventError::Hex(name))
}

fn tags(value: Value) -> Option<Tags> {
    let tag = |tag| match tag {
        Value::Array(texts) => texts.into_iter().map(text).collect(),
        _ => None,
    };
    match value {
        Value::Array(tags) => tags.into_iter().map(tag).collect(),
        _ => None,
    }
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
