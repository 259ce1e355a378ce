//! Session messages between endpoints: the three of the handshake, and the bodies inside sealed
//! messages.
//!
//! Source: FIPS wire-formats, "SessionSetup" to "PathMtuNotification", and `proto/fsp/wire.rs`.
//! Handshake messages are read and written whole, with their [`FspPrefix`]; bodies follow
//! [`FspInner`](crate::fsp::FspInner). In a handshake message the FIPS daemon reads neither
//! version, nor flags, nor `payload_len` of the prefix, and ignores bytes behind the Noise part. So
//! do these parsers, except that they refuse an unknown version.

mod kind;

pub use kind::SessionKind;

use crate::cursor::{Reader, Writer, len_u16, put};
use crate::fsp::{FspPhase, FspPrefix, VERSION};
use crate::{Coords, WireError};

/// The first session message type of weft; FIPS daemons drop unknown types.
pub const FIRST_WEFT_TYPE: u8 = 0xf0;
/// A session message of weft with an empty body: it shows that its sender is alive and holds the
/// epoch's keys. A FIPS daemon opens it, which confirms the epoch, and drops the unknown type.
pub const ALIVE: u8 = 0xf1;
/// A session message of weft with a [`RelayProbe`], which the peer answers over the link that it came
/// by. docs/protocol/session.md, "RelayProbe".
pub const RELAY_PROBE: u8 = 0xf7;
/// The answer, with the same body.
pub const RELAY_PROBE_ANSWER: u8 = 0xf8;
/// A session message of the fork of FIPS that nvpn runs: an IP packet with its whole header, or a
/// control frame of nvpn. A FIPS daemon drops it. docs/protocol/session.md, "Whole packets".
pub const WHOLE_PACKET: u8 = 0x15;
/// The beginning of a control frame of nvpn in a [`WHOLE_PACKET`]. Its first byte could be that of an IPv4
/// packet, so it is compared first. docs/protocol/nvpn.md, "Control frames".
pub const CONTROL_MAGIC: &[u8; 15] = b"NVPN-FIPS-CTRL\0";
/// The service port of IP packets behind the [`crate::shim`].
pub const IPV6_SHIM_PORT: u16 = 256;

/// Length of the Noise XK part of a [`SessionSetup`]: ephemeral 33.
pub const NOISE_SETUP_LEN: usize = 33;
/// Length of the Noise XK part of a [`SessionAck`]: ephemeral 33, sealed epoch 8 + 16.
pub const NOISE_ACK_LEN: usize = 57;
/// Length of the Noise XK part of a [`SessionMsg3`]: sealed static 33 + 16, sealed epoch 8 + 16.
pub const NOISE_MSG3_LEN: usize = 73;

/// Bit of [`SessionSetup::flags`]: the sender asks for an acknowledgement.
pub const SETUP_REQUEST_ACK: u8 = 0x01;
/// Bit of [`SessionSetup::flags`]: the session is to carry both directions.
pub const SETUP_BIDIRECTIONAL: u8 = 0x02;
/// Bit of [`SessionSetup::flags`] and [`SessionAck::flags`]: the sender reads direct records
/// ([`FLAG_DIRECT`](crate::fsp::FLAG_DIRECT)). Nodes of nvpn set it; FIPS ignores it.
pub const READS_DIRECT: u8 = 0x04;

/// The body that follows [`FspInner`](crate::fsp::FspInner) (FIPS wire-formats, "FSP Session
/// Message Types"). The types 0x20 to 0x22 are never sealed: see [`crate::signal::SignalType`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SessionMessageType {
    /// [`DataPorts`] and the payload behind them.
    Data = 0x10,
    /// [`SenderReport`](crate::mmp::SenderReport) about the session.
    SenderReport = 0x11,
    /// [`ReceiverReport`](crate::mmp::ReceiverReport) about the session.
    ReceiverReport = 0x12,
    /// [`PathMtuNotification`].
    PathMtuNotification = 0x13,
    /// [`CoordsWarmup`].
    CoordsWarmup = 0x14,
}

impl SessionMessageType {
    /// The type of a byte, or `None` for one that FIPS does not define.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0x10 => Self::Data,
            0x11 => Self::SenderReport,
            0x12 => Self::ReceiverReport,
            0x13 => Self::PathMtuNotification,
            0x14 => Self::CoordsWarmup,
            _ => return None,
        })
    }

    /// The byte on the wire.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        self as u8
    }
}

/// A message by which two nodes agree to traverse their NATs, of the fork of FIPS that nvpn runs;
/// FIPS wire-formats has none, and a FIPS daemon drops it. Its body is a JSON document
/// (docs/protocol/nostr.md, "Offers and answers").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TraversalType {
    /// An offer.
    Offer = 0x16,
    /// An answer.
    Answer = 0x17,
}

impl TraversalType {
    /// The type of a byte, or `None` for another message.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0x16 => Self::Offer,
            0x17 => Self::Answer,
            _ => return None,
        })
    }

    /// The byte on the wire.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        self as u8
    }
}

/// Opens a session and announces the coordinates of both ends to relays (FIPS wire-formats,
/// "SessionSetup").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSetup<'a> {
    /// The `SETUP_` bits and [`READS_DIRECT`]. The FIPS daemon ignores the others; here they are kept.
    pub flags: u8,
    /// The sender's coordinates, never empty.
    pub src: Coords<'a>,
    /// The destination's coordinates, never empty.
    pub dest: Coords<'a>,
    /// The first Noise XK message, [`NOISE_SETUP_LEN`] bytes from a FIPS daemon; any length is
    /// read.
    pub noise: &'a [u8],
}

impl<'a> SessionSetup<'a> {
    /// Reads a whole message.
    ///
    /// # Errors
    /// [`WireError::TooShort`], [`WireError::UnsupportedVersion`], [`WireError::WrongPhase`],
    /// [`WireError::EmptyCoords`].
    pub fn parse(message: &'a [u8]) -> Result<Self, WireError> {
        let mut r = open(message, FspPhase::Setup)?;
        let (flags, src, dest, noise) = read_with_coords(&mut r)?;
        Ok(Self {
            flags,
            src,
            dest,
            noise,
        })
    }

    /// Bytes on the wire.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        FspPrefix::LEN + 1 + self.src.wire_len() + self.dest.wire_len() + 2 + self.noise.len()
    }

    /// Writes the message and returns [`SessionSetup::wire_len`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`], [`WireError::EmptyCoords`], [`WireError::TooLong`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        let mut w = begin(out, FspPhase::Setup, self.wire_len())?;
        write_with_coords(&mut w, self.flags, self.src, self.dest, self.noise)
    }
}

/// Answers [`SessionSetup`], and announces coordinates along the return path (FIPS wire-formats,
/// "SessionAck").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionAck<'a> {
    /// [`READS_DIRECT`]; the other bits are reserved: sent as zero, kept as received.
    pub flags: u8,
    /// The coordinates of the responder, never empty.
    pub src: Coords<'a>,
    /// The coordinates of the initiator, never empty.
    pub dest: Coords<'a>,
    /// The second Noise XK message, [`NOISE_ACK_LEN`] bytes from a FIPS daemon; any length is read.
    pub noise: &'a [u8],
}

impl<'a> SessionAck<'a> {
    /// Reads a whole message.
    ///
    /// # Errors
    /// Like [`SessionSetup::parse`].
    pub fn parse(message: &'a [u8]) -> Result<Self, WireError> {
        let mut r = open(message, FspPhase::Ack)?;
        let (flags, src, dest, noise) = read_with_coords(&mut r)?;
        Ok(Self {
            flags,
            src,
            dest,
            noise,
        })
    }

    /// Bytes on the wire.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        FspPrefix::LEN + 1 + self.src.wire_len() + self.dest.wire_len() + 2 + self.noise.len()
    }

    /// Writes the message and returns [`SessionAck::wire_len`].
    ///
    /// # Errors
    /// Like [`SessionSetup::emit`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        let mut w = begin(out, FspPhase::Ack, self.wire_len())?;
        write_with_coords(&mut w, self.flags, self.src, self.dest, self.noise)
    }
}

/// Ends the handshake and reveals the initiator's identity (FIPS wire-formats, "SessionMsg3").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionMsg3<'a> {
    /// Reserved: sent as zero, kept as received.
    pub flags: u8,
    /// The third Noise XK message, [`NOISE_MSG3_LEN`] bytes from a FIPS daemon; any length is read.
    pub noise: &'a [u8],
}

impl<'a> SessionMsg3<'a> {
    /// Reads a whole message.
    ///
    /// # Errors
    /// [`WireError::TooShort`], [`WireError::UnsupportedVersion`], [`WireError::WrongPhase`].
    pub fn parse(message: &'a [u8]) -> Result<Self, WireError> {
        let mut r = open(message, FspPhase::Msg3)?;
        let flags = r.u8()?;
        let noise_len = usize::from(r.u16()?);
        Ok(Self {
            flags,
            noise: r.take(noise_len)?,
        })
    }

    /// Bytes on the wire.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        FspPrefix::LEN + 1 + 2 + self.noise.len()
    }

    /// Writes the message and returns [`SessionMsg3::wire_len`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`], [`WireError::TooLong`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        let mut w = begin(out, FspPhase::Msg3, self.wire_len())?;
        w.u8(self.flags)
            .u16(len_u16(self.noise.len())?)
            .bytes(self.noise)
            .finish()
    }
}

/// Checks the prefix of a plain message and returns a reader behind it.
fn open(message: &[u8], phase: FspPhase) -> Result<Reader<'_>, WireError> {
    FspPrefix::parse(message)?.expect(phase)?;
    let mut r = Reader::new(message);
    r.take(FspPrefix::LEN)?;
    Ok(r)
}

/// Writes the prefix of a handshake message of `wire_len` bytes in all.
fn begin(out: &mut [u8], phase: FspPhase, wire_len: usize) -> Result<Writer<'_>, WireError> {
    let payload_len = len_u16(wire_len - FspPrefix::LEN)?;
    let prefix = FspPrefix {
        version: VERSION,
        phase: phase as u8,
        flags: 0,
        payload_len,
    };
    let mut w = Writer::new(out);
    w.bytes(&prefix.to_bytes());
    Ok(w)
}

type WithCoords<'a> = (u8, Coords<'a>, Coords<'a>, &'a [u8]);

fn read_with_coords<'a>(r: &mut Reader<'a>) -> Result<WithCoords<'a>, WireError> {
    let flags = r.u8()?;
    let src = Coords::read_some(r)?;
    let dest = Coords::read_some(r)?;
    let noise_len = usize::from(r.u16()?);
    Ok((flags, src, dest, r.take(noise_len)?))
}

fn write_with_coords(
    w: &mut Writer<'_>,
    flags: u8,
    src: Coords<'_>,
    dest: Coords<'_>,
    noise: &[u8],
) -> Result<usize, WireError> {
    w.u8(flags);
    src.some()?.write(w)?;
    dest.some()?.write(w)?;
    w.u16(len_u16(noise.len())?).bytes(noise).finish()
}

/// The ports in front of every service payload (FIPS wire-formats, "DataPacket Port
/// Multiplexing"). Receivers dispatch on `dst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataPorts {
    /// The sender's port, little-endian on the wire.
    pub src: u16,
    /// The port of the service, little-endian on the wire.
    pub dst: u16,
}

impl DataPorts {
    /// Bytes on the wire.
    pub const LEN: usize = 4;
    /// Both ports of a packet behind the IPv6 shim.
    pub const IPV6_SHIM: Self = Self {
        src: IPV6_SHIM_PORT,
        dst: IPV6_SHIM_PORT,
    };

    /// Splits a body into its ports and the service payload.
    ///
    /// # Errors
    /// [`WireError::TooShort`].
    pub fn parse(body: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let mut r = Reader::new(body);
        let ports = Self {
            src: r.u16()?,
            dst: r.u16()?,
        };
        Ok((ports, r.rest()))
    }

    /// Returns the ports in wire format.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; Self::LEN] {
        let ([a, b], [c, d]) = (self.src.to_le_bytes(), self.dst.to_le_bytes());
        [a, b, c, d]
    }

    /// Writes the ports and returns [`DataPorts::LEN`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        put(out, &self.to_bytes())
    }
}

/// The receiver reports the path MTU to the sender (FIPS wire-formats, "PathMtuNotification").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathMtuNotification {
    /// Smallest link MTU on the path, in bytes.
    pub path_mtu: u16,
}

impl PathMtuNotification {
    /// Bytes of the body.
    pub const LEN: usize = 2;

    /// Reads a body; bytes behind it are ignored, as the FIPS daemon does.
    ///
    /// # Errors
    /// [`WireError::TooShort`].
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        Ok(Self {
            path_mtu: Reader::new(body).u16()?,
        })
    }

    /// Writes the body and returns [`PathMtuNotification::LEN`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        put(out, &self.path_mtu.to_le_bytes())
    }
}

/// Asks the peer to answer at once, over the link that this arrives by (weft only;
/// docs/protocol/session.md, "RelayProbe").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RelayProbe {
    /// A number of the sender, which the answer repeats.
    pub number: u32,
}

impl RelayProbe {
    /// Bytes of the body.
    pub const LEN: usize = 4;

    /// Reads a body.
    ///
    /// # Errors
    /// [`WireError::WrongLength`].
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let (expected, got) = (Self::LEN, body.len());
        let bytes = <[u8; Self::LEN]>::try_from(body);
        Ok(Self {
            number: u32::from_le_bytes(bytes.map_err(|_| WireError::WrongLength { expected, got })?),
        })
    }

    /// Returns the body.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; Self::LEN] {
        self.number.to_le_bytes()
    }

    /// Writes the body and returns [`RelayProbe::LEN`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        put(out, &self.to_bytes())
    }
}

/// Carries coordinates and nothing else (FIPS wire-formats, "CoordsWarmup"): the body is empty, the
/// coordinates are in the clear before the ciphertext.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CoordsWarmup;

impl CoordsWarmup {
    /// Bytes of the body.
    pub const LEN: usize = 0;

    /// Reads a body; its content is ignored, as the FIPS daemon does.
    ///
    /// # Errors
    /// None today.
    pub fn parse(_body: &[u8]) -> Result<Self, WireError> {
        Ok(Self)
    }

    /// Writes nothing and returns [`CoordsWarmup::LEN`].
    ///
    /// # Errors
    /// None today.
    pub fn emit(&self, _out: &mut [u8]) -> Result<usize, WireError> {
        Ok(Self::LEN)
    }
}
