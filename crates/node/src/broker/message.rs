//! Requests and replies as bytes.
//!
//! ```text
//! message: length (2 bytes, big-endian; of what follows, at most 512), version (1), kind, body
//! request 1, names of the system: port (2 bytes, big-endian, not 0)
//! reply 0, done: nothing
//! reply 1, failed: why, UTF-8 without control characters
//! reply 2, refused: nothing
//! ```
//!
//! Both processes run one program, started from one file. A different version therefore means that
//! the file was replaced in between, and the message is refused.

use std::num::NonZeroU16;

/// The version of the messages.
const VERSION: u8 = 1;
/// The longest message in bytes, its length not counted.
pub const MAX_MESSAGE: usize = 512;

const SET_RESOLVER: u8 = 1;
const DONE: u8 = 0;
const FAILED: u8 = 1;
const REFUSED: u8 = 2;

/// A request of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Configures the system's resolver to send queries for names below `.fips` to this node: to
    /// its own address in the mesh, on this port, through its interface.
    SetResolver {
        /// The port.
        port: NonZeroU16,
    },
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The request was carried out.
    Done,
    /// The system refused; one line for the user.
    Failed(String),
    /// The request is not on the list, or its parameters are invalid.
    Refused,
}

/// The reason why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    /// Longer than [`MAX_MESSAGE`], or shorter than its head.
    #[error("a message of {0} bytes")]
    Length(usize),
    /// The version is unknown.
    #[error("version {0} of messages")]
    Version(u8),
    /// The kind is not on the list.
    #[error("an unknown kind of message, {0}")]
    Kind(u8),
    /// The parameters are not those of the kind.
    #[error("parameters that message {0} does not have")]
    Body(u8),
}

impl Request {
    /// Returns the message with its length in front.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::SetResolver { port } => frame(SET_RESOLVER, &port.get().to_be_bytes()),
        }
    }

    /// Reads a message without its length.
    ///
    /// # Errors
    /// [`BadMessage`]
    pub fn decode(message: &[u8]) -> Result<Self, BadMessage> {
        let (kind, body) = parts(message)?;
        match kind {
            SET_RESOLVER => {
                let port = body.try_into().ok().map(u16::from_be_bytes);
                let port = port.and_then(NonZeroU16::new).ok_or(BadMessage::Body(kind))?;
                Ok(Self::SetResolver { port })
            }
            _ => Err(BadMessage::Kind(kind)),
        }
    }
}

impl Reply {
    /// Returns the message with its length in front. A reason is cut to the space that is left, and
    /// control characters are removed.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Done => frame(DONE, &[]),
            Self::Refused => frame(REFUSED, &[]),
            Self::Failed(why) => frame(FAILED, printable(why).as_bytes()),
        }
    }

    /// Reads a message without its length.
    ///
    /// # Errors
    /// [`BadMessage`]
    pub fn decode(message: &[u8]) -> Result<Self, BadMessage> {
        let (kind, body) = parts(message)?;
        match (kind, body) {
            (DONE, []) => Ok(Self::Done),
            (REFUSED, []) => Ok(Self::Refused),
            (FAILED, why) => {
                let why = std::str::from_utf8(why).map_err(|_| BadMessage::Body(kind))?;
                Ok(Self::Failed(printable(why)))
            }
            (DONE | REFUSED, _) => Err(BadMessage::Body(kind)),
            _ => Err(BadMessage::Kind(kind)),
        }
    }
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, VERSION, kind];
    bytes.extend_from_slice(body);
    let len = (bytes.len() - 2) as u16;
    if let Some(front) = bytes.first_chunk_mut() {
        *front = len.to_be_bytes();
    }
    bytes
}

fn parts(message: &[u8]) -> Result<(u8, &[u8]), BadMessage> {
    if message.len() > MAX_MESSAGE {
        return Err(BadMessage::Length(message.len()));
    }
    match message {
        [VERSION, kind, body @ ..] => Ok((*kind, body)),
        [version, _, ..] => Err(BadMessage::Version(*version)),
        _ => Err(BadMessage::Length(message.len())),
    }
}

/// The part of a text that fits into a message, without control characters.
fn printable(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        if out.len() + c.len_utf8() > MAX_MESSAGE - 2 {
            break;
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn requests_round_trip(port in 1..=u16::MAX) {
            let request = Request::SetResolver { port: NonZeroU16::new(port).unwrap() };
            let bytes = request.encode();
            let (len, message) = bytes.split_first_chunk().unwrap();
            prop_assert_eq!(usize::from(u16::from_be_bytes(*len)), message.len());
            prop_assert_eq!(Request::decode(message), Ok(request));
        }

        #[test]
        fn replies_round_trip(why in any::<String>()) {
            for reply in [Reply::Done, Reply::Refused, Reply::Failed(printable(&why))] {
                let bytes = reply.encode();
                prop_assert!(bytes.len() <= 2 + MAX_MESSAGE);
                prop_assert_eq!(Reply::decode(&bytes[2..]), Ok(reply));
            }
        }
    }

    #[test]
    fn what_is_not_on_the_list_is_refused() {
        let decode = Request::decode;
        assert_eq!(decode(&[]), Err(BadMessage::Length(0)));
        assert_eq!(decode(&[1]), Err(BadMessage::Length(1)));
        assert_eq!(decode(&[2, 1, 0, 53]), Err(BadMessage::Version(2)));
        assert_eq!(decode(&[1, 0, 0, 53]), Err(BadMessage::Kind(0)));
        assert_eq!(decode(&[1, 2]), Err(BadMessage::Kind(2)));
        for body in [&[][..], &[0, 0], &[53], &[0, 53, 0], b"; rm -rf /"] {
            assert_eq!(decode(&[&[1, 1], body].concat()), Err(BadMessage::Body(1)), "{body:?}");
        }
        assert_eq!(decode(&[1; MAX_MESSAGE + 1]), Err(BadMessage::Length(MAX_MESSAGE + 1)));
    }
}
