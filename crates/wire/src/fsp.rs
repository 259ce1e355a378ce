//! FSP, the session layer: the headers of end-to-end messages inside a
//! [`SessionDatagram`](crate::link::SessionDatagram).
//!
//! Source: FIPS wire-formats, "Session-Layer Message Formats", and `proto/fsp/wire.rs`. The phase
//! determines the message; within [`FspPhase::Established`] the U flag distinguishes error signals
//! in the clear ([`crate::signal`]) from sealed messages.

use crate::cursor::{Reader, Writer, put};
use crate::fmp::TAG_LEN;
use crate::{CoordsPair, WireError};

/// The session version in use, in the high nibble of a message's first byte.
pub const VERSION: u8 = 0;

/// Flag CP: the coordinates of both ends are in the clear between header and ciphertext.
pub const FLAG_COORDS: u8 = 0x01;
/// Flag K: the parity of the key epoch under which the message is sealed. It is a hint, not a
/// proof.
pub const FLAG_KEY_EPOCH: u8 = 0x02;
/// Flag U: the message is not sealed; it is an error signal of a relay.
pub const FLAG_UNENCRYPTED: u8 = 0x04;
/// The sealed message is a datagram of its own, outside a link: a direct record of nvpn
/// (docs/protocol/session.md, "Direct records"). Frames of links have no such flag in this place.
pub const FLAG_DIRECT: u8 = 0x08;
/// Inner flag SP: the spin bit, for passive round-trip measurement.
pub const INNER_FLAG_SPIN: u8 = 0x01;

/// The kind of a session message, from the low nibble of its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FspPhase {
    /// A sealed message, or with [`FLAG_UNENCRYPTED`] an error signal.
    Established = 0,
    /// [`SessionSetup`](crate::session::SessionSetup), with the first Noise XK message.
    Setup = 1,
    /// [`SessionAck`](crate::session::SessionAck), with the second.
    Ack = 2,
    /// [`SessionMsg3`](crate::session::SessionMsg3), with the third.
    Msg3 = 3,
}

impl FspPhase {
    /// The phase of a nibble, or `None` if no message is defined for it.
    #[must_use]
    pub const fn from_nibble(nibble: u8) -> Option<Self> {
        match nibble {
            0 => Some(Self::Established),
            1 => Some(Self::Setup),
            2 => Some(Self::Ack),
            3 => Some(Self::Msg3),
            _ => None,
        }
    }
}

/// The first four bytes of every session message (FIPS wire-formats, "FSP Common Prefix").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FspPrefix {
    /// Version: high nibble of byte 0. Values above 15 cannot be written.
    pub version: u8,
    /// Phase: low nibble of byte 0; see [`FspPhase::from_nibble`]. Values above 15 cannot be
    /// written.
    pub phase: u8,
    /// The `FLAG_` bits; zero in a handshake message.
    pub flags: u8,
    /// Length in bytes, little-endian on the wire. In a plain message it counts what follows these
    /// four bytes; in a sealed one it counts the plaintext, without coordinates and tag. The FIPS
    /// daemon writes it and never reads it.
    pub payload_len: u16,
}

impl FspPrefix {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the prefix at the start of a message; bytes behind it are ignored.
    ///
    /// # Errors
    /// [`WireError::TooShort`].
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(message);
        let [first, flags, low, high] = *r.array_ref()?;
        let payload_len = u16::from_le_bytes([low, high]);
        Ok(Self {
            version: first >> 4,
            phase: first & 0x0f,
            flags,
            payload_len,
        })
    }

    /// Returns the prefix in wire format.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; Self::LEN] {
        let [low, high] = self.payload_len.to_le_bytes();
        [self.version << 4 | self.phase & 0x0f, self.flags, low, high]
    }

    /// Writes the prefix and returns [`FspPrefix::LEN`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        put(out, &self.to_bytes())
    }

    /// Whether the message is an error signal in the clear.
    #[must_use]
    pub const fn is_signal(&self) -> bool {
        self.phase == FspPhase::Established as u8 && self.flags & FLAG_UNENCRYPTED != 0
    }

    pub(crate) fn expect(self, phase: FspPhase) -> Result<Self, WireError> {
        if self.version != VERSION {
            return Err(WireError::UnsupportedVersion(self.version));
        }
        if self.phase != phase as u8 {
            return Err(WireError::WrongPhase(self.phase));
        }
        Ok(self)
    }
}

/// The clear header of a sealed session message; its 12 bytes are the associated data of the seal
/// (FIPS wire-formats, "FSP Encrypted Message").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EncryptedHeader {
    /// [`FLAG_COORDS`] and [`FLAG_KEY_EPOCH`]; reserved bits are kept: they are authenticated.
    pub flags: u8,
    /// Bytes of sealed plaintext, [`FspInner`] included, coordinates and tag excluded.
    pub payload_len: u16,
    /// The sender's counter: nonce, and position in the replay window.
    pub counter: u64,
}

impl EncryptedHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 12;
    /// The smallest message: a header and the tag of an empty plaintext.
    pub const MIN_MESSAGE: usize = Self::LEN + TAG_LEN;

    /// Reads the header of a whole message.
    ///
    /// # Errors
    /// [`WireError::TooShort`] below [`EncryptedHeader::MIN_MESSAGE`],
    /// [`WireError::UnsupportedVersion`], [`WireError::WrongPhase`], and
    /// [`WireError::WrongCipherFlag`] for an error signal. Like the FIPS daemon, the parser does
    /// not compare `payload_len` with the message; a message with a wrong one fails to open.
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        if message.len() < Self::MIN_MESSAGE {
            return Err(WireError::TooShort {
                needed: Self::MIN_MESSAGE,
                got: message.len(),
            });
        }
        let FspPrefix { flags, payload_len, .. } = FspPrefix::parse(message)?.expect(FspPhase::Established)?;
        if flags & FLAG_UNENCRYPTED != 0 {
            return Err(WireError::WrongCipherFlag(flags));
        }
        let mut r = Reader::new(message);
        r.take(FspPrefix::LEN)?;
        Ok(Self {
            flags,
            payload_len,
            counter: r.u64()?,
        })
    }

    /// Returns the header in wire format, as it is authenticated.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let Self { flags, payload_len, .. } = *self;
        let prefix = FspPrefix {
            version: VERSION,
            phase: 0,
            flags,
            payload_len,
        };
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&prefix.to_bytes());
        bytes[4..].copy_from_slice(&self.counter.to_le_bytes());
        bytes
    }

    /// Writes the header and returns [`EncryptedHeader::LEN`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        put(out, &self.to_bytes())
    }

    /// Whether coordinates follow between this header and the ciphertext.
    #[must_use]
    pub const fn has_coords(&self) -> bool {
        self.flags & FLAG_COORDS != 0
    }
}

/// A sealed session message split into its parts, as its receiver and each relay see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncryptedMessage<'a> {
    /// The clear header.
    pub header: EncryptedHeader,
    /// The coordinates in the clear, present exactly if [`EncryptedHeader::has_coords`]. The seal
    /// does **not** authenticate them: any relay can have written them.
    pub coords: Option<CoordsPair<'a>>,
    /// Ciphertext and tag, at least [`TAG_LEN`] bytes.
    pub ciphertext: &'a [u8],
}

impl<'a> EncryptedMessage<'a> {
    /// Splits a whole message; everything behind the coordinates is ciphertext.
    ///
    /// # Errors
    /// Like [`EncryptedHeader::parse`], and [`WireError::TooShort`] if the coordinates leave less
    /// than a tag. The FIPS daemon caches the coordinates of such a message before it fails to
    /// open.
    pub fn parse(message: &'a [u8]) -> Result<Self, WireError> {
        let header = EncryptedHeader::parse(message)?;
        let mut r = Reader::new(message);
        let mut rest = r.take(EncryptedHeader::LEN).map(|_| r.rest())?;
        let mut coords = None;
        if header.has_coords() {
            let (pair, after) = CoordsPair::parse(rest)?;
            (coords, rest) = (Some(pair), after);
        }
        if rest.len() < TAG_LEN {
            let needed = message.len() - rest.len() + TAG_LEN;
            return Err(WireError::TooShort {
                needed,
                got: message.len(),
            });
        }
        Ok(Self {
            header,
            coords,
            ciphertext: rest,
        })
    }

    /// Bytes on the wire.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        let coords = self.coords.map_or(0, |pair| pair.wire_len());
        EncryptedHeader::LEN + coords + self.ciphertext.len()
    }

    /// Writes the message and returns [`EncryptedMessage::wire_len`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`]; [`WireError::WrongCoordsFlag`] if the header's flag disagrees
    /// with `coords`, as the flag is authenticated; [`WireError::TooLong`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        if self.header.has_coords() != self.coords.is_some() {
            return Err(WireError::WrongCoordsFlag(self.header.flags));
        }
        let mut w = Writer::new(out);
        w.bytes(&self.header.to_bytes());
        if let Some(pair) = self.coords {
            pair.write(&mut w)?;
        }
        w.bytes(self.ciphertext).finish()
    }
}

/// The first bytes inside a sealed session message (FIPS wire-formats, "Encrypted inner header").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FspInner {
    /// Milliseconds since the sender's session began; wraps.
    pub timestamp: u32,
    /// The type of the message that follows: see [`crate::session::SessionMessageType`]. Unknown
    /// ones are dropped.
    pub msg_type: u8,
    /// [`INNER_FLAG_SPIN`]; the other bits are reserved: sent as zero, ignored on receipt.
    pub inner_flags: u8,
}

impl FspInner {
    /// Bytes on the wire.
    pub const LEN: usize = 6;

    /// Splits opened plaintext into this header and the body of the message.
    ///
    /// # Errors
    /// [`WireError::TooShort`].
    pub fn parse(plaintext: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let mut r = Reader::new(plaintext);
        let header = Self {
            timestamp: r.u32()?,
            msg_type: r.u8()?,
            inner_flags: r.u8()?,
        };
        Ok((header, r.rest()))
    }

    /// Returns the header in wire format.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; Self::LEN] {
        let [a, b, c, d] = self.timestamp.to_le_bytes();
        [a, b, c, d, self.msg_type, self.inner_flags]
    }

    /// Writes the header and returns [`FspInner::LEN`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        put(out, &self.to_bytes())
    }
}
