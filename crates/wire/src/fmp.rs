//! FMP, the link layer: the header of every datagram between neighbours.
//!
//! Source: FIPS wire-formats, "Link-Layer Formats", and `proto/fmp/wire.rs`. A datagram transport
//! carries one frame in each datagram; on a stream [`CommonPrefix::frame_len`] finds the next one.

use crate::WireError;
use crate::cursor::{Reader, Writer, put};

/// The frame version in use, in the high nibble of a frame's first byte.
pub const VERSION: u8 = 0;
/// Length of the AEAD tag behind every sealed part, at both layers.
pub const TAG_LEN: usize = 16;
/// The Noise IK part of [`Msg1`]: ephemeral 33, sealed static 33 + 16, sealed epoch 8 + 16.
pub const NOISE_MSG1_LEN: usize = 106;
/// The Noise IK part of [`Msg2`]: ephemeral 33, sealed epoch 8 + 16.
pub const NOISE_MSG2_LEN: usize = 57;
/// Bytes that a frame adds to the body of a link message: header 16, inner header 5, tag 16.
pub const LINK_OVERHEAD: usize = EstablishedHeader::LEN + InnerHeader::LEN + TAG_LEN;

/// Flag K: the parity of the key epoch under which the frame is sealed. It is a hint, not a proof.
pub const FLAG_KEY_EPOCH: u8 = 0x01;
/// Flag CE: congestion was experienced on the path.
pub const FLAG_CE: u8 = 0x02;
/// Flag SP: the spin bit, for passive round-trip measurement.
pub const FLAG_SPIN: u8 = 0x04;

/// The kind of a frame, from the low nibble of its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Phase {
    /// A sealed frame of an established link.
    Established = 0,
    /// The first Noise IK message.
    Msg1 = 1,
    /// The second Noise IK message.
    Msg2 = 2,
}

impl Phase {
    /// The phase of a nibble, or `None` if no frame is defined for it.
    #[must_use]
    pub const fn from_nibble(nibble: u8) -> Option<Self> {
        match nibble {
            0 => Some(Self::Established),
            1 => Some(Self::Msg1),
            2 => Some(Self::Msg2),
            _ => None,
        }
    }
}

/// The first four bytes of every frame (FIPS wire-formats, "Common Prefix").
///
/// Parsing checks no value, so that a frame of another version can still be named and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommonPrefix {
    /// Version: high nibble of byte 0. Values above 15 cannot be written.
    pub version: u8,
    /// Phase: low nibble of byte 0; see [`Phase::from_nibble`]. Values above 15 cannot be written.
    pub phase: u8,
    /// The `FLAG_` bits. Bits 3-7 are reserved: sent as zero, ignored on receipt.
    pub flags: u8,
    /// Length in bytes, little-endian on the wire. In a handshake frame it counts what follows
    /// these four bytes; in an established frame it counts the sealed plaintext without its tag.
    pub payload_len: u16,
}

impl CommonPrefix {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the prefix at the start of a frame; bytes behind it are ignored.
    ///
    /// # Errors
    /// [`WireError::TooShort`].
    pub fn parse(frame: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(frame);
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

    /// Writes the prefix and returns [`CommonPrefix::LEN`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        put(out, &self.to_bytes())
    }

    /// Returns the length of the whole frame that starts with this prefix, by which a stream
    /// transport finds the frame boundary. Handshake frames have the fixed length of their phase.
    ///
    /// # Errors
    /// [`WireError::UnsupportedVersion`], [`WireError::WrongPhase`], and
    /// [`WireError::LengthMismatch`] for a handshake frame that declares another length than its
    /// own. After any of them the frame boundary in the stream is lost.
    pub fn frame_len(&self) -> Result<usize, WireError> {
        if self.version != VERSION {
            return Err(WireError::UnsupportedVersion(self.version));
        }
        let declared = usize::from(self.payload_len);
        let handshake = |len: usize| {
            let actual = len - Self::LEN;
            if declared == actual {
                Ok(len)
            } else {
                Err(WireError::LengthMismatch { declared, actual })
            }
        };
        match Phase::from_nibble(self.phase) {
            Some(Phase::Established) => Ok(EstablishedHeader::LEN + declared + TAG_LEN),
            Some(Phase::Msg1) => handshake(Msg1::LEN),
            Some(Phase::Msg2) => handshake(Msg2::LEN),
            None => Err(WireError::WrongPhase(self.phase)),
        }
    }

    fn expect(self, phase: Phase) -> Result<Self, WireError> {
        if self.version != VERSION {
            return Err(WireError::UnsupportedVersion(self.version));
        }
        if self.phase != phase as u8 {
            return Err(WireError::WrongPhase(self.phase));
        }
        Ok(self)
    }

    fn expect_handshake(self, phase: Phase, len: usize) -> Result<(), WireError> {
        let prefix = self.expect(phase)?;
        if prefix.flags != 0 {
            return Err(WireError::NonZeroFlags(prefix.flags));
        }
        let (declared, actual) = (usize::from(prefix.payload_len), len - Self::LEN);
        if declared != actual {
            return Err(WireError::LengthMismatch { declared, actual });
        }
        Ok(())
    }

    const fn handshake(phase: Phase, len: usize) -> Self {
        let payload_len = (len - Self::LEN) as u16;
        Self {
            version: VERSION,
            phase: phase as u8,
            flags: 0,
            payload_len,
        }
    }
}

/// The outer header of a sealed frame; its 16 bytes are the associated data of the seal
/// (FIPS wire-formats, "Established Frame").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EstablishedHeader {
    /// The `FLAG_` bits. Reserved bits are kept as received: they are authenticated.
    pub flags: u8,
    /// Bytes of sealed plaintext, [`InnerHeader`] included and tag excluded.
    pub payload_len: u16,
    /// The index that the receiver chose for this link.
    pub receiver_idx: u32,
    /// The sender's counter: nonce, and position in the replay window.
    pub counter: u64,
}

impl EstablishedHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 16;
    /// The smallest frame: a header and the tag of an empty plaintext.
    pub const MIN_FRAME: usize = Self::LEN + TAG_LEN;

    /// Reads the header of a whole frame. The rest of the frame is ciphertext and tag.
    ///
    /// # Errors
    /// [`WireError::TooShort`] below [`EstablishedHeader::MIN_FRAME`],
    /// [`WireError::UnsupportedVersion`], [`WireError::WrongPhase`], and
    /// [`WireError::LengthMismatch`] if `payload_len` is not the frame's length less
    /// [`EstablishedHeader::MIN_FRAME`]: the FIPS daemon drops such a frame first, so bytes behind
    /// a frame are never tolerated.
    pub fn parse(frame: &[u8]) -> Result<Self, WireError> {
        let Some(actual) = frame.len().checked_sub(Self::MIN_FRAME) else {
            return Err(WireError::TooShort {
                needed: Self::MIN_FRAME,
                got: frame.len(),
            });
        };
        let prefix = CommonPrefix::parse(frame)?.expect(Phase::Established)?;
        let declared = usize::from(prefix.payload_len);
        if declared != actual {
            return Err(WireError::LengthMismatch { declared, actual });
        }
        let mut r = Reader::new(frame);
        r.take(CommonPrefix::LEN)?;
        Ok(Self {
            flags: prefix.flags,
            payload_len: prefix.payload_len,
            receiver_idx: r.u32()?,
            counter: r.u64()?,
        })
    }

    /// Returns the header in wire format, as it is authenticated.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let Self { flags, payload_len, .. } = *self;
        let prefix = CommonPrefix {
            version: VERSION,
            phase: 0,
            flags,
            payload_len,
        };
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&prefix.to_bytes());
        bytes[4..8].copy_from_slice(&self.receiver_idx.to_le_bytes());
        bytes[8..].copy_from_slice(&self.counter.to_le_bytes());
        bytes
    }

    /// Writes the header and returns [`EstablishedHeader::LEN`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        put(out, &self.to_bytes())
    }
}

/// The first bytes inside a sealed frame (FIPS wire-formats, "Encrypted inner header").
///
/// FIPS counts the type byte as offset 0 of each link message. Here it belongs to this header, so
/// that the body of a message follows these 5 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InnerHeader {
    /// Milliseconds since the sender's session began; wraps.
    pub timestamp: u32,
    /// The type of the message that follows: see [`crate::link::LinkMessageType`]. Unknown ones are
    /// dropped.
    pub msg_type: u8,
}

impl InnerHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 5;

    /// Splits opened plaintext into this header and the body of the message.
    ///
    /// # Errors
    /// [`WireError::TooShort`].
    pub fn parse(plaintext: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let mut r = Reader::new(plaintext);
        let header = Self {
            timestamp: r.u32()?,
            msg_type: r.u8()?,
        };
        Ok((header, r.rest()))
    }

    /// Returns the header in wire format.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; Self::LEN] {
        let [a, b, c, d] = self.timestamp.to_le_bytes();
        [a, b, c, d, self.msg_type]
    }

    /// Writes the header and returns [`InnerHeader::LEN`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        put(out, &self.to_bytes())
    }
}

/// The frame that opens a link (FIPS wire-formats, "Noise IK Message 1").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Msg1<'a> {
    /// The receiver index by which the sender wants to be addressed.
    pub sender_idx: u32,
    /// The Noise message.
    pub noise: &'a [u8; NOISE_MSG1_LEN],
}

impl<'a> Msg1<'a> {
    /// Bytes on the wire, prefix included.
    pub const LEN: usize = CommonPrefix::LEN + 4 + NOISE_MSG1_LEN;

    /// Reads a whole frame.
    ///
    /// # Errors
    /// [`WireError::WrongLength`] for any length but [`Msg1::LEN`],
    /// [`WireError::UnsupportedVersion`], [`WireError::WrongPhase`], [`WireError::NonZeroFlags`],
    /// [`WireError::LengthMismatch`]; the FIPS daemon also drops all of these.
    pub fn parse(frame: &'a [u8]) -> Result<Self, WireError> {
        if frame.len() != Self::LEN {
            return Err(WireError::WrongLength {
                expected: Self::LEN,
                got: frame.len(),
            });
        }
        CommonPrefix::parse(frame)?.expect_handshake(Phase::Msg1, Self::LEN)?;
        let mut r = Reader::new(frame);
        r.take(CommonPrefix::LEN)?;
        Ok(Self {
            sender_idx: r.u32()?,
            noise: r.array_ref()?,
        })
    }

    /// Writes the frame and returns [`Msg1::LEN`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        let prefix = CommonPrefix::handshake(Phase::Msg1, Self::LEN);
        let mut w = Writer::new(out);
        w.bytes(&prefix.to_bytes())
            .u32(self.sender_idx)
            .bytes(self.noise)
            .finish()
    }
}

/// The frame that answers [`Msg1`] (FIPS wire-formats, "Noise IK Message 2").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Msg2<'a> {
    /// The receiver index by which the responder wants to be addressed.
    pub sender_idx: u32,
    /// The `sender_idx` of the message that this one answers.
    pub receiver_idx: u32,
    /// The Noise message.
    pub noise: &'a [u8; NOISE_MSG2_LEN],
}

impl<'a> Msg2<'a> {
    /// Bytes on the wire, prefix included.
    pub const LEN: usize = CommonPrefix::LEN + 4 + 4 + NOISE_MSG2_LEN;

    /// Reads a whole frame.
    ///
    /// # Errors
    /// Like [`Msg1::parse`], with [`Msg2::LEN`].
    pub fn parse(frame: &'a [u8]) -> Result<Self, WireError> {
        if frame.len() != Self::LEN {
            return Err(WireError::WrongLength {
                expected: Self::LEN,
                got: frame.len(),
            });
        }
        CommonPrefix::parse(frame)?.expect_handshake(Phase::Msg2, Self::LEN)?;
        let mut r = Reader::new(frame);
        r.take(CommonPrefix::LEN)?;
        Ok(Self {
            sender_idx: r.u32()?,
            receiver_idx: r.u32()?,
            noise: r.array_ref()?,
        })
    }

    /// Writes the frame and returns [`Msg2::LEN`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        let prefix = CommonPrefix::handshake(Phase::Msg2, Self::LEN);
        let mut w = Writer::new(out);
        w.bytes(&prefix.to_bytes()).u32(self.sender_idx).u32(self.receiver_idx);
        w.bytes(self.noise).finish()
    }
}
