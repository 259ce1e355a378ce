//! The four messages on the wire (paper, section 5.4). Numbers are in little-endian order.
//!
//! | message | bytes | fields after the type and three zero bytes |
//! |---|---|---|
//! | [`Initiation`] | 148 | sender (4), ephemeral (32), static (48), timestamp (28), mac1 (16), mac2 (16) |
//! | [`Response`] | 92 | sender (4), receiver (4), ephemeral (32), empty (16), mac1 (16), mac2 (16) |
//! | [`CookieReply`] | 64 | receiver (4), nonce (24), cookie (32) |
//! | data | 32 and more | receiver (4), counter (8), packet with tag |

use crate::keys::KEY_LEN;

/// Length of a tag of ChaCha20-Poly1305 in bytes.
pub const TAG_LEN: usize = 16;
/// Length of MAC1, of MAC2, and of a cookie in bytes.
pub const MAC_LEN: usize = 16;
/// Length of a timestamp in bytes: TAI64N.
pub const TIMESTAMP_LEN: usize = 12;
/// Length of the nonce of a cookie reply in bytes.
pub const NONCE_LEN: usize = 24;
/// Length of an initiation in bytes.
pub const INITIATION_LEN: usize = 148;
/// Length of a response in bytes.
pub const RESPONSE_LEN: usize = 92;
/// Length of a cookie reply in bytes.
pub const COOKIE_REPLY_LEN: usize = 64;
/// Length of the header of a data message in bytes.
pub const DATA_HEADER_LEN: usize = 16;

const INITIATION: [u8; 4] = [1, 0, 0, 0];
const RESPONSE: [u8; 4] = [2, 0, 0, 0];
const COOKIE_REPLY: [u8; 4] = [3, 0, 0, 0];
/// The first bytes of a data message.
pub const DATA: [u8; 4] = [4, 0, 0, 0];

/// The first message of a handshake, without its MACs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Initiation {
    /// The index by which its sender wants to be addressed.
    pub sender: u32,
    /// The ephemeral public key of the sender.
    pub ephemeral: [u8; KEY_LEN],
    /// The static public key of the sender, sealed.
    pub sealed_static: [u8; KEY_LEN + TAG_LEN],
    /// The time, sealed.
    pub sealed_timestamp: [u8; TIMESTAMP_LEN + TAG_LEN],
}

/// The second message of a handshake, without its MACs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// The index by which its sender wants to be addressed.
    pub sender: u32,
    /// The index of the initiator.
    pub receiver: u32,
    /// The ephemeral public key of the sender.
    pub ephemeral: [u8; KEY_LEN],
    /// Nothing, sealed.
    pub sealed_empty: [u8; TAG_LEN],
}

/// The answer of a node under load to a handshake message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CookieReply {
    /// The index of the sender of that message.
    pub receiver: u32,
    /// The nonce of the cookie.
    pub nonce: [u8; NONCE_LEN],
    /// The cookie, sealed.
    pub sealed_cookie: [u8; MAC_LEN + TAG_LEN],
}

/// A message that is no data message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// See [`Initiation`].
    Initiation(Initiation),
    /// See [`Response`].
    Response(Response),
    /// See [`CookieReply`].
    CookieReply(CookieReply),
}

/// Splits `N` bytes off the front of `bytes`.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (field, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*field)
}

impl Message {
    /// Reads a message that is no data message. Returns `None` for anything else: another type, another length, or
    /// reserved bytes that are not zero. The MACs are left to [`crate::cookie`].
    #[must_use]
    pub fn read(datagram: &[u8]) -> Option<Self> {
        let (kind, mut rest) = datagram.split_first_chunk()?;
        let rest = &mut rest;
        match (*kind, datagram.len()) {
            (INITIATION, INITIATION_LEN) => Some(Self::Initiation(Initiation {
                sender: u32::from_le_bytes(take(rest)?),
                ephemeral: take(rest)?,
                sealed_static: take(rest)?,
                sealed_timestamp: take(rest)?,
            })),
            (RESPONSE, RESPONSE_LEN) => Some(Self::Response(Response {
                sender: u32::from_le_bytes(take(rest)?),
                receiver: u32::from_le_bytes(take(rest)?),
                ephemeral: take(rest)?,
                sealed_empty: take(rest)?,
            })),
            (COOKIE_REPLY, COOKIE_REPLY_LEN) => Some(Self::CookieReply(CookieReply {
                receiver: u32::from_le_bytes(take(rest)?),
                nonce: take(rest)?,
                sealed_cookie: take(rest)?,
            })),
            _ => None,
        }
    }
}

impl Initiation {
    /// Returns the message up to its MACs.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let sender = self.sender.to_le_bytes();
        [
            &INITIATION[..],
            &sender,
            &self.ephemeral,
            &self.sealed_static,
            &self.sealed_timestamp,
        ]
        .concat()
    }
}

impl Response {
    /// Returns the message up to its MACs.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let (sender, receiver) = (self.sender.to_le_bytes(), self.receiver.to_le_bytes());
        [&RESPONSE[..], &sender, &receiver, &self.ephemeral, &self.sealed_empty].concat()
    }
}

impl CookieReply {
    /// Returns the message.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let receiver = self.receiver.to_le_bytes();
        [&COOKIE_REPLY[..], &receiver, &self.nonce, &self.sealed_cookie].concat()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_message_that_reads_is_emitted_unchanged(mut bytes: [u8; INITIATION_LEN], kind in 0_u8..6, cut in 0..=INITIATION_LEN) {
            bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
            for length in [cut, INITIATION_LEN, RESPONSE_LEN, COOKIE_REPLY_LEN] {
                let bytes = &bytes[..length];
                let (again, macs) = match Message::read(bytes) {
                    Some(Message::Initiation(message)) => (message.to_bytes(), 2 * MAC_LEN),
                    Some(Message::Response(message)) => (message.to_bytes(), 2 * MAC_LEN),
                    Some(Message::CookieReply(message)) => (message.to_bytes(), 0),
                    None => continue,
                };
                prop_assert_eq!(&again[..], &bytes[..length - macs]);
            }
        }
    }

    #[test]
    fn other_lengths_and_reserved_bytes_are_no_message() {
        for (kind, length) in [(1, INITIATION_LEN), (2, RESPONSE_LEN), (3, COOKIE_REPLY_LEN)] {
            let mut bytes = vec![0; length];
            bytes[0] = kind;
            assert!(Message::read(&bytes).is_some());
            assert_eq!(Message::read(&bytes[1..]), None);
            assert_eq!(Message::read(&[&bytes[..], &[0]].concat()), None);
            for reserved in 1..4 {
                let mut bytes = bytes.clone();
                bytes[reserved] = 1;
                assert_eq!(Message::read(&bytes), None);
            }
        }
        assert_eq!(Message::read(&[4; 64]), None);
        assert_eq!(Message::read(&[]), None);
    }
}
