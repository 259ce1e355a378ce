//! What a client and a relay tell each other (NIP-01): arrays of JSON, each a text message of a
//! WebSocket.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use thiserror::Error;
use weft_noise::PublicKey;

use crate::event::{Event, EventError, Unverified};
use crate::hex::decode;
use crate::json::{self, OverLimit};

/// Characters of an identifier of a subscription, at most (NIP-01).
pub const MAX_SUBSCRIPTION: usize = 64;
/// Characters that are kept of what a relay says for people.
pub const MAX_REASON: usize = 200;

/// What events a subscription is about: those to which all that is set applies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Kinds.
    pub kinds: Vec<u16>,
    /// Keys that signed them.
    pub authors: Vec<PublicKey>,
    /// The value of a tag `d`.
    pub identifier: Option<String>,
    /// The key in a tag `p`.
    pub recipient: Option<PublicKey>,
    /// Signed not before, in seconds since 1970.
    pub since: Option<u64>,
    /// Stored events, at most, before those that come from now on.
    pub limit: Option<u32>,
}

impl Filter {
    fn to_value(&self) -> Value {
        let hex = |key: &PublicKey| Value::from(data_encoding::HEXLOWER.encode(key.as_bytes()));
        let mut fields = Map::new();
        fields.insert("kinds".into(), self.kinds.clone().into());
        if !self.authors.is_empty() {
            fields.insert("authors".into(), self.authors.iter().map(hex).collect());
        }
        if let Some(identifier) = &self.identifier {
            fields.insert("#d".into(), json!([identifier]));
        }
        if let Some(recipient) = &self.recipient {
            fields.insert("#p".into(), json!([hex(recipient)]));
        }
        if let Some(since) = self.since {
            fields.insert("since".into(), since.into());
        }
        if let Some(limit) = self.limit {
            fields.insert("limit".into(), limit.into());
        }
        Value::Object(fields)
    }
}

/// The message that publishes an event.
#[must_use]
pub fn publish(event: &Event) -> String {
    format!("[\"EVENT\",{}]", event.to_json())
}

/// The message that opens a subscription, or replaces the one with its identifier.
#[must_use]
pub fn subscribe(subscription: &str, filter: &Filter) -> String {
    json!(["REQ", subscription, filter.to_value()]).to_string()
}

/// The message that ends a subscription.
#[must_use]
pub fn unsubscribe(subscription: &str) -> String {
    json!(["CLOSE", subscription]).to_string()
}

/// A message of a relay. Texts for people are cut to [`MAX_REASON`] characters, without control
/// characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayMessage {
    /// An event for a subscription. Nothing of it is verified.
    Event {
        /// Which subscription.
        subscription: String,
        /// The event.
        event: Box<Unverified>,
    },
    /// Whether a published event was accepted.
    Accepted {
        /// The identifier of the event.
        id: [u8; 32],
        /// Whether it was.
        accepted: bool,
        /// Why not.
        reason: String,
    },
    /// All stored events of a subscription were sent.
    End {
        /// Which subscription.
        subscription: String,
    },
    /// The relay has ended a subscription.
    Closed {
        /// Which subscription.
        subscription: String,
        /// Why.
        reason: String,
    },
    /// Something for people.
    Notice(String),
    /// The relay asks the client to prove its key (NIP-42), which this client does not.
    Challenge,
}

/// The reason why a text is not read as a message of a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MessageError {
    /// It exceeds [`json::MESSAGE`].
    #[error("{0}")]
    OverLimit(#[from] OverLimit),
    /// Not one JSON array and nothing else.
    #[error("the message is not a JSON array")]
    Json,
    /// The array begins with something else than a known label.
    #[error("the message has no label that is known")]
    Label,
    /// An item is missing, of another type, or one too many.
    #[error("the message `{0}` has other items than it should")]
    Items(&'static str),
    /// The event cannot be read.
    #[error("{0}")]
    Event(#[from] EventError),
}

impl RelayMessage {
    /// Reads a message.
    ///
    /// # Errors
    /// [`MessageError`]. Limits are checked before anything is allocated.
    pub fn parse(text: &str) -> Result<Self, MessageError> {
        json::check(text.as_bytes(), json::MESSAGE)?;
        let items: Vec<&RawValue> = serde_json::from_str(text).map_err(|_| MessageError::Json)?;
        let (label, items) = items.split_first().ok_or(MessageError::Label)?;
        match string(label).ok_or(MessageError::Label)?.as_str() {
            "EVENT" => event(items),
            "OK" => accepted(items),
            "EOSE" => match items {
                [subscription] => Ok(Self::End {
                    subscription: name(subscription).ok_or(MessageError::Items("EOSE"))?,
                }),
                _ => Err(MessageError::Items("EOSE")),
            },
            "CLOSED" => closed(items),
            "NOTICE" => match items {
                [notice] => reason(notice).map(Self::Notice).ok_or(MessageError::Items("NOTICE")),
                _ => Err(MessageError::Items("NOTICE")),
            },
            "AUTH" => Ok(Self::Challenge),
            _ => Err(MessageError::Label),
        }
    }
}

fn event(items: &[&RawValue]) -> Result<RelayMessage, MessageError> {
    let [subscription, event] = items else {
        return Err(MessageError::Items("EVENT"));
    };
    Ok(RelayMessage::Event {
        subscription: name(subscription).ok_or(MessageError::Items("EVENT"))?,
        event: Box::new(Unverified::read(event.get().as_bytes())?),
    })
}

fn accepted(items: &[&RawValue]) -> Result<RelayMessage, MessageError> {
    let wrong = MessageError::Items("OK");
    let (id, accepted, rest) = match items {
        [id, accepted] => (id, accepted, None),
        [id, accepted, rest] => (id, accepted, Some(rest)),
        _ => return Err(wrong),
    };
    Ok(RelayMessage::Accepted {
        id: string(id).and_then(|id| decode(&id)).ok_or(wrong)?,
        accepted: serde_json::from_str(accepted.get()).map_err(|_| wrong)?,
        reason: rest.map_or(Some(String::new()), |rest| reason(rest)).ok_or(wrong)?,
    })
}

fn closed(items: &[&RawValue]) -> Result<RelayMessage, MessageError> {
    let wrong = MessageError::Items("CLOSED");
    let (subscription, rest) = match items {
        [subscription] => (subscription, None),
        [subscription, rest] => (subscription, Some(rest)),
        _ => return Err(wrong),
    };
    Ok(RelayMessage::Closed {
        subscription: name(subscription).ok_or(wrong)?,
        reason: rest.map_or(Some(String::new()), |rest| reason(rest)).ok_or(wrong)?,
    })
}

fn string(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// An identifier of a subscription.
fn name(value: &RawValue) -> Option<String> {
    string(value).filter(|name| (1..=MAX_SUBSCRIPTION).contains(&name.chars().count()))
}

fn reason(value: &RawValue) -> Option<String> {
    string(value).map(|text| json::plain(&text, MAX_REASON))
}

#[cfg(test)]
mod tests;
