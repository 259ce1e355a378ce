//! Requests and replies as bytes.
//!
//! ```text
//! message: length (4 bytes, big-endian; of what follows), version (1), kind, body
//! request 1, names of the system: port (2 bytes, big-endian, not 0)
//! request 2, read the configuration: nothing
//! request 3, restore the configuration before a change: nothing
//! request 4, confirm the change: nothing
//! reply 0, done: nothing
//! reply 1, failed: why, UTF-8 without control characters
//! reply 2, refused: nothing
//! reply 3, text: UTF-8
//! ```
//!
//! A request has at most 512 bytes behind its length, and a reply at most 512 bytes more than the
//! longest configuration.
//!
//! Both processes run one program, started from one file. A different version therefore means that
//! the file was replaced in between, and the message is refused.

use std::num::NonZeroU16;

use crate::config;

/// The version of the messages.
const VERSION: u8 = 2;
/// The longest request in bytes, its length not counted, and the longest reply but a text.
pub const MAX_REQUEST: usize = 512;
/// The longest reply in bytes, its length not counted.
pub const MAX_REPLY: usize = MAX_REQUEST + config::MAX_LEN;

const SET_RESOLVER: u8 = 1;
const READ_CONFIG: u8 = 2;
const RESTORE_CONFIG: u8 = 3;
const CONFIRM_CONFIG: u8 = 4;
const DONE: u8 = 0;
const FAILED: u8 = 1;
const REFUSED: u8 = 2;
const TEXT: u8 = 3;

/// A request of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Configures the system's resolver to send queries for names below `.fips` to this node: to
    /// its own address in the mesh, on this port, through its interface.
    SetResolver {
        /// The port.
        port: NonZeroU16,
    },
    /// Reads the configuration file.
    ReadConfig,
    /// Puts the configuration back that the last change replaced, if that change waits for a
    /// confirmation.
    RestoreConfig,
    /// Confirms that change.
    ConfirmConfig,
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
    /// The file that was requested.
    Text(String),
}

/// The reason why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    /// Longer than its kind may be, or shorter than its head.
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
            Self::ReadConfig => frame(READ_CONFIG, &[]),
            Self::RestoreConfig => frame(RESTORE_CONFIG, &[]),
            Self::ConfirmConfig => frame(CONFIRM_CONFIG, &[]),
        }
    }

    /// Reads a message without its length.
    ///
    /// # Errors
    /// [`BadMessage`]
    pub fn decode(message: &[u8]) -> Result<Self, BadMessage> {
        let (kind, body) = parts(message, MAX_REQUEST)?;
        match (kind, body) {
            (SET_RESOLVER, _) => {
                let port = body.try_into().ok().map(u16::from_be_bytes);
                let port = port.and_then(NonZeroU16::new).ok_or(BadMessage::Body(kind))?;
                Ok(Self::SetResolver { port })
            }
            (READ_CONFIG, []) => Ok(Self::ReadConfig),
            (RESTORE_CONFIG, []) => Ok(Self::RestoreConfig),
            (CONFIRM_CONFIG, []) => Ok(Self::ConfirmConfig),
            (READ_CONFIG | RESTORE_CONFIG | CONFIRM_CONFIG, _) => Err(BadMessage::Body(kind)),
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
            Self::Text(text) => frame(TEXT, text.as_bytes()),
        }
    }

    /// Reads a message without its length.
    ///
    /// # Errors
    /// [`BadMessage`]
    pub fn decode(message: &[u8]) -> Result<Self, BadMessage> {
        let (kind, body) = parts(message, MAX_REPLY)?;
        match (kind, body) {
            (DONE, []) => Ok(Self::Done),
            (REFUSED, []) => Ok(Self::Refused),
            (FAILED, why) => {
                let why = std::str::from_utf8(why).map_err(|_| BadMessage::Body(kind))?;
                Ok(Self::Failed(printable(why)))
            }
            (TEXT, text) => {
                let text = std::str::from_utf8(text).map_err(|_| BadMessage::Body(kind))?;
                Ok(Self::Text(text.to_owned()))
            }
            (DONE | REFUSED, _) => Err(BadMessage::Body(kind)),
            _ => Err(BadMessage::Kind(kind)),
        }
    }
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 0, VERSION, kind];
    bytes.extend_from_slice(body);
    let len = (bytes.len() - 4) as u32;
    if let Some(front) = bytes.first_chunk_mut() {
        *front = len.to_be_bytes();
    }
    bytes
}

fn parts(message: &[u8], longest: usize) -> Result<(u8, &[u8]), BadMessage> {
    if message.len() > longest {
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
        if out.len() + c.len_utf8() > MAX_REQUEST - 2 {
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
            let port = NonZeroU16::new(port).unwrap();
            for request in [
                Request::SetResolver { port }, Request::ReadConfig, Request::RestoreConfig, Request::ConfirmConfig,
            ] {
                let bytes = request.encode();
                let (len, message) = bytes.split_first_chunk().unwrap();
                prop_assert_eq!(u32::from_be_bytes(*len) as usize, message.len());
                prop_assert_eq!(Request::decode(message), Ok(request));
            }
        }

        #[test]
        fn replies_round_trip(why in any::<String>()) {
            let failed = Reply::Failed(printable(&why));
            prop_assert!(failed.encode().len() <= 4 + MAX_REQUEST);
            for reply in [Reply::Done, Reply::Refused, failed, Reply::Text(why)] {
                prop_assert_eq!(Reply::decode(&reply.encode()[4..]), Ok(reply));
            }
        }
    }

    #[test]
    fn what_is_not_on_the_list_is_refused() {
        let decode = Request::decode;
        assert_eq!(decode(&[]), Err(BadMessage::Length(0)));
        assert_eq!(decode(&[2]), Err(BadMessage::Length(1)));
        assert_eq!(decode(&[1, 1, 0, 53]), Err(BadMessage::Version(1)));
        assert_eq!(decode(&[2, 0, 0, 53]), Err(BadMessage::Kind(0)));
        assert_eq!(decode(&[2, 5]), Err(BadMessage::Kind(5)));
        for body in [&[][..], &[0, 0], &[53], &[0, 53, 0], b"; rm -rf /"] {
            assert_eq!(decode(&[&[2, 1], body].concat()), Err(BadMessage::Body(1)), "{body:?}");
        }
        for kind in [READ_CONFIG, RESTORE_CONFIG, CONFIRM_CONFIG] {
            assert_eq!(decode(&[2, kind, b'/']), Err(BadMessage::Body(kind)));
        }
        assert_eq!(decode(&[2; MAX_REQUEST + 1]), Err(BadMessage::Length(MAX_REQUEST + 1)));
        assert_eq!(Reply::decode(&[2, TEXT, 0xff]), Err(BadMessage::Body(TEXT)));
    }
}
