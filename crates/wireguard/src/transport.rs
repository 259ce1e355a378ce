//! Data messages under the keys of a handshake (paper, section 5.4.6).
//!
//! A message has a header of 16 bytes with the receiver's index and a counter, then the packet, filled with zeros up
//! to a multiple of 16 bytes or to the MTU of the tunnel, and sealed. An empty packet is a keepalive.

use std::fmt;

use thiserror::Error;
use weft_noise::Key;
use weft_noise::aead::Cipher;
use weft_noise::replay::ReplayWindow;

use crate::message::{DATA, DATA_HEADER_LEN, TAG_LEN};

/// The counter from which no message is sealed or opened under the same keys (paper, section 6.1).
pub const REJECT_AFTER_MESSAGES: u64 = u64::MAX - (1 << 13);
/// The unit to which packets are filled, in bytes.
pub const PADDING: usize = 16;

/// The result of a handshake.
#[derive(Debug, Clone)]
pub struct Keys {
    /// The index in messages to this end.
    pub local: u32,
    /// The index in messages to the peer.
    pub remote: u32,
    /// The key of messages that this end sends. Counters start at 0.
    pub send: Key,
    /// The key of messages that this end receives.
    pub receive: Key,
}

/// A data message is not sent or not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DataError {
    /// It is too short, or of another type.
    #[error("the datagram is no data message")]
    Form,
    /// Its counter has come before, or is far behind.
    #[error("the counter has come before")]
    Replayed,
    /// It does not open.
    #[error("the data message does not authenticate")]
    Forged,
    /// As many messages were sealed or opened as the keys may.
    #[error("the keys have sealed as many messages as they may")]
    UsedUp,
}

/// Returns the receiver's index of a data message, or `None` if the datagram is not one.
#[must_use]
pub fn receiver(datagram: &[u8]) -> Option<u32> {
    let index = datagram.strip_prefix(&DATA)?.first_chunk()?;
    (datagram.len() >= DATA_HEADER_LEN + TAG_LEN).then(|| u32::from_le_bytes(*index))
}

/// Returns the IP packet at the start of what a data message had: the rest is filling. `None` if there is none.
#[must_use]
pub fn packet(padded: &[u8]) -> Option<&[u8]> {
    let field = |at: usize| {
        Some(usize::from(u16::from_be_bytes([
            *padded.get(at)?,
            *padded.get(at + 1)?,
        ])))
    };
    let (length, least) = match padded.first()? >> 4 {
        4 => (field(2)?, 20),
        6 => (field(4)? + 40, 40),
        _ => return None,
    };
    padded.get(..length).filter(|packet| packet.len() >= least)
}

/// The two directions under one pair of keys.
pub struct Session {
    remote: u32,
    send: Cipher,
    receive: Cipher,
    next: u64,
    window: ReplayWindow,
}

impl Session {
    /// Prepares keys for use.
    #[must_use]
    pub fn new(keys: &Keys) -> Self {
        Self {
            remote: keys.remote,
            send: Cipher::new(&keys.send),
            receive: Cipher::new(&keys.receive),
            next: 0,
            window: ReplayWindow::default(),
        }
    }

    /// Appends a data message with `packet` to `out`. `mtu` is that of the tunnel, in bytes: no filling goes beyond it, so
    /// that the largest packets fit in the path.
    ///
    /// # Errors
    /// [`DataError::UsedUp`]: nothing is appended.
    pub fn seal(&mut self, packet: &[u8], mtu: usize, out: &mut Vec<u8>) -> Result<(), DataError> {
        if self.next >= REJECT_AFTER_MESSAGES {
            return Err(DataError::UsedUp);
        }
        out.extend_from_slice(&DATA);
        out.extend_from_slice(&self.remote.to_le_bytes());
        out.extend_from_slice(&self.next.to_le_bytes());
        let start = out.len();
        out.extend_from_slice(packet);
        let filled = packet.len().next_multiple_of(PADDING).min(mtu.max(packet.len()));
        out.resize(start + filled, 0);
        let tag = self.send.seal_in_place(self.next, &[], &mut out[start..]);
        out.extend_from_slice(&tag);
        self.next += 1;
        Ok(())
    }

    /// Opens a data message in place, and returns the packet with its filling: [`packet`] is without.
    ///
    /// # Errors
    /// [`DataError`]: the contents of the datagram are then unspecified.
    pub fn open<'d>(&mut self, datagram: &'d mut [u8]) -> Result<&'d [u8], DataError> {
        receiver(datagram).ok_or(DataError::Form)?;
        let (header, sealed) = datagram.split_at_mut(DATA_HEADER_LEN);
        let counter = header.last_chunk().copied().map(u64::from_le_bytes);
        let counter = counter.ok_or(DataError::Form)?;
        if counter >= REJECT_AFTER_MESSAGES {
            return Err(DataError::UsedUp);
        }
        self.window.check(counter).map_err(|_| DataError::Replayed)?;
        let opened = self
            .receive
            .open_in_place(counter, &[], sealed)
            .map_err(|_| DataError::Forged)?;
        self.window.accept(counter).map_err(|_| DataError::Replayed)?;
        Ok(opened)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("remote", &self.remote)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
