//! An event without a signature (NIP-59): its sender can deny it.

use super::{EventError, Found, Unsigned, emit};

/// An event that is not signed. What it is in says of which key it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rumor {
    author: [u8; 32],
    body: Unsigned,
}

impl Rumor {
    /// Makes a rumor that names `author` as its author.
    ///
    /// # Errors
    /// [`EventError::Control`], [`EventError::Type`], as for events that are signed.
    pub fn new(author: [u8; 32], body: Unsigned) -> Result<Self, EventError> {
        body.check()?;
        Ok(Self { author, body })
    }

    /// The key that it names as its author.
    #[must_use]
    pub const fn author(&self) -> &[u8; 32] {
        &self.author
    }

    /// The fields of an event.
    #[must_use]
    pub const fn body(&self) -> &Unsigned {
        &self.body
    }

    /// Reads a rumor. Its identifier may be left out; its key may be any 32 bytes.
    ///
    /// # Errors
    /// [`EventError`]: [`EventError::UnknownField`] if there is a signature, [`EventError::Id`] for a
    /// wrong identifier.
    pub fn read(json: &[u8]) -> Result<Self, EventError> {
        let found = Found::read(json)?;
        if found.signature.is_some() {
            return Err(EventError::UnknownField);
        }
        let id = found.id;
        let (author, body) = found.body()?;
        match id {
            Some(id) if id != body.id(&author) => Err(EventError::Id),
            _ => Self::new(author, body),
        }
    }

    /// The rumor as JSON, with its identifier, in the form of [`Event::to_json`](super::Event::to_json).
    #[must_use]
    pub fn to_json(&self) -> String {
        emit(&self.body.id(&self.author), &self.author, &self.body, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> Unsigned {
        Unsigned {
            created_at: 1_700_000_000,
            kind: 14,
            tags: vec![vec!["p".into(), "x".into()]],
            content: "{\"type\":\"offer\"}".into(),
        }
    }

    fn rumor() -> Rumor {
        Rumor::new([7; 32], body()).unwrap()
    }

    #[test]
    fn rumors_that_cannot_be_read_are_not_made() {
        let content = "\u{b}".into();
        assert_eq!(
            Rumor::new([7; 32], Unsigned { content, ..body() }),
            Err(EventError::Control)
        );
    }

    #[test]
    fn rumors_round_trip_with_and_without_their_identifier() {
        let json = rumor().to_json();
        assert_eq!(Rumor::read(json.as_bytes()), Ok(rumor()));
        let mut object: serde_json::Value = serde_json::from_str(&json).unwrap();
        object.as_object_mut().unwrap().remove("id");
        assert_eq!(Rumor::read(object.to_string().as_bytes()), Ok(rumor()));
    }

    #[test]
    fn signed_and_altered_ones_are_refused() {
        let mut object: serde_json::Value = serde_json::from_str(&rumor().to_json()).unwrap();
        object["kind"] = 15.into();
        assert_eq!(Rumor::read(object.to_string().as_bytes()), Err(EventError::Id));
        object["sig"] = "00".repeat(64).into();
        assert_eq!(
            Rumor::read(object.to_string().as_bytes()),
            Err(EventError::UnknownField)
        );
    }
}
