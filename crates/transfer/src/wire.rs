//! The connections of a transfer: what each begins with, messages of the control connection, frames of the data
//! connections. docs/protocol/transfer.md. Integers are little-endian.

pub mod entry;
pub mod frame;
pub mod message;
mod reader;
pub mod request;

use std::io::{self, Read};

pub use self::entry::WireEntry;
pub use self::frame::{Form, Frame};
pub use self::message::{FromReceiver, FromSender, Hello, Verdict};

/// The version of the protocol.
pub const VERSION: u8 = 1;

/// The reason why bytes of the other end are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other end sent {0}")]
pub struct WireError(pub String);

impl WireError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl From<WireError> for io::Error {
    fn from(error: WireError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// The kind of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// The one with messages.
    Control,
    /// One with frames, or with the bytes of a service.
    Data,
    /// One on which the end that connects asks first ([`request`]).
    Request,
}

/// The first bytes of each connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Prelude {
    /// The token that the daemons agreed on.
    pub token: [u8; 16],
    /// The kind of the connection.
    pub connection: Connection,
}

impl Prelude {
    /// Length in bytes: token 16, version 1, kind 1 (1 control, 2 data, 3 request), zero 2.
    pub const LEN: usize = 20;

    /// Returns the bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let kind = match self.connection {
            Connection::Control => 1,
            Connection::Data => 2,
            Connection::Request => 3,
        };
        let (token, rest) = bytes.split_at_mut(16);
        token.copy_from_slice(&self.token);
        rest.copy_from_slice(&[VERSION, kind, 0, 0]);
        bytes
    }

    /// Reads the bytes.
    ///
    /// # Errors
    /// Another version or kind.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Result<Self, WireError> {
        let mut token = [0; 16];
        let (first, rest) = bytes.split_at(16);
        token.copy_from_slice(first);
        let connection = match rest {
            [VERSION, 1, 0, 0] => Connection::Control,
            [VERSION, 2, 0, 0] => Connection::Data,
            [VERSION, 3, 0, 0] => Connection::Request,
            [VERSION, ..] => return Err(WireError::new("a connection of an unknown kind")),
            _ => {
                return Err(WireError::new(format!(
                    "a connection of version {}",
                    rest.first().unwrap_or(&0)
                )));
            }
        };
        Ok(Self { token, connection })
    }
}

/// Reads exactly `N` bytes.
pub(crate) fn read_array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
