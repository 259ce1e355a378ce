//! Error signals: a relay's reports to the source of a datagram that it could not forward.
//!
//! Source: FIPS wire-formats, "CoordsRequired" to "MtuExceeded", and `proto/routing/wire.rs`. They
//! are sent in the clear and unauthenticated end to end: hints, never proof. Each is read and
//! written whole, with its [`FspPrefix`]. The FIPS daemon reads neither version nor `payload_len`
//! of the prefix nor the reserved byte behind the type, and ignores bytes behind the message. So do
//! these parsers, except that they refuse an unknown version.

use crate::cursor::{Reader, Writer, len_u16};
use crate::fsp::{FLAG_UNENCRYPTED, FspPhase, FspPrefix, VERSION};
use crate::{Coords, NodeAddr, WireError};

/// The error signal that follows the prefix (FIPS wire-formats, "FSP Session Message Types").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SignalType {
    /// [`CoordsRequired`].
    CoordsRequired = 0x20,
    /// [`PathBroken`].
    PathBroken = 0x21,
    /// [`MtuExceeded`].
    MtuExceeded = 0x22,
}

impl SignalType {
    /// The type of a byte, or `None` for one that FIPS does not define.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0x20 => Some(Self::CoordsRequired),
            0x21 => Some(Self::PathBroken),
            0x22 => Some(Self::MtuExceeded),
            _ => None,
        }
    }

    /// The byte on the wire.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        self as u8
    }
}

/// Any error signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal<'a> {
    /// The reporter does not know the coordinates of the destination.
    CoordsRequired(CoordsRequired),
    /// The reporter knows the coordinates, and has no route to them.
    PathBroken(PathBroken<'a>),
    /// The datagram does not fit the reporter's next link.
    MtuExceeded(MtuExceeded),
}

impl<'a> Signal<'a> {
    /// Reads a whole message of any signal type.
    ///
    /// # Errors
    /// [`WireError::TooShort`], [`WireError::UnsupportedVersion`], [`WireError::WrongPhase`],
    /// [`WireError::WrongCipherFlag`] for a sealed message, [`WireError::WrongMessageType`].
    pub fn parse(message: &'a [u8]) -> Result<Self, WireError> {
        let (msg_type, mut r) = open(message)?;
        match SignalType::from_byte(msg_type) {
            Some(SignalType::CoordsRequired) => CoordsRequired::read(&mut r).map(Self::CoordsRequired),
            Some(SignalType::PathBroken) => PathBroken::read(&mut r).map(Self::PathBroken),
            Some(SignalType::MtuExceeded) => MtuExceeded::read(&mut r).map(Self::MtuExceeded),
            None => Err(WireError::WrongMessageType(msg_type)),
        }
    }

    /// Writes the message and returns its length.
    ///
    /// # Errors
    /// Like the signal's own `emit`.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        match self {
            Self::CoordsRequired(signal) => signal.emit(out),
            Self::PathBroken(signal) => signal.emit(out),
            Self::MtuExceeded(signal) => signal.emit(out),
        }
    }
}

/// The reporter lacks the destination's coordinates (FIPS wire-formats, "CoordsRequired").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CoordsRequired {
    /// The destination of the datagram.
    pub dest: NodeAddr,
    /// The node that reports.
    pub reporter: NodeAddr,
}

impl CoordsRequired {
    /// Bytes on the wire, prefix included.
    pub const LEN: usize = FIXED_LEN;

    /// Reads a whole message.
    ///
    /// # Errors
    /// Like [`Signal::parse`].
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        Self::read(&mut open_as(message, SignalType::CoordsRequired)?)
    }

    /// Writes the message and returns [`CoordsRequired::LEN`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        let mut w = begin(out, SignalType::CoordsRequired, Self::LEN)?;
        w.addr(&self.dest).addr(&self.reporter).finish()
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            dest: r.addr()?,
            reporter: r.addr()?,
        })
    }
}

/// The reporter has no route to the destination (FIPS wire-formats, "PathBroken").
///
/// With no coordinates it is 40 bytes long. FIPS's size summary gives `35 + 16n`; tables and source
/// make it 4 + 36 + 16n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathBroken<'a> {
    /// The destination of the datagram.
    pub dest: NodeAddr,
    /// The node that reports.
    pub reporter: NodeAddr,
    /// The coordinates that led nowhere, possibly empty.
    pub last_coords: Coords<'a>,
}

impl<'a> PathBroken<'a> {
    /// Reads a whole message.
    ///
    /// # Errors
    /// Like [`Signal::parse`].
    pub fn parse(message: &'a [u8]) -> Result<Self, WireError> {
        Self::read(&mut open_as(message, SignalType::PathBroken)?)
    }

    /// Bytes on the wire, prefix included.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        FIXED_LEN + self.last_coords.wire_len()
    }

    /// Writes the message and returns [`PathBroken::wire_len`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`], [`WireError::TooLong`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        let mut w = begin(out, SignalType::PathBroken, self.wire_len())?;
        w.addr(&self.dest).addr(&self.reporter);
        self.last_coords.write(&mut w)?;
        w.finish()
    }

    fn read(r: &mut Reader<'a>) -> Result<Self, WireError> {
        Ok(Self {
            dest: r.addr()?,
            reporter: r.addr()?,
            last_coords: Coords::read(r)?,
        })
    }
}

/// The datagram was larger than the next link takes (FIPS wire-formats, "MtuExceeded").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MtuExceeded {
    /// The destination of the datagram.
    pub dest: NodeAddr,
    /// The node that reports.
    pub reporter: NodeAddr,
    /// The MTU of the link, in bytes of transport payload; little-endian on the wire.
    pub mtu: u16,
}

impl MtuExceeded {
    /// Bytes on the wire, prefix included.
    pub const LEN: usize = FIXED_LEN + 2;

    /// Reads a whole message.
    ///
    /// # Errors
    /// Like [`Signal::parse`].
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        Self::read(&mut open_as(message, SignalType::MtuExceeded)?)
    }

    /// Writes the message and returns [`MtuExceeded::LEN`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        let mut w = begin(out, SignalType::MtuExceeded, Self::LEN)?;
        w.addr(&self.dest).addr(&self.reporter).u16(self.mtu).finish()
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            dest: r.addr()?,
            reporter: r.addr()?,
            mtu: r.u16()?,
        })
    }
}

/// Prefix, type, reserved byte and the two addresses that all signals have.
const FIXED_LEN: usize = FspPrefix::LEN + 2 + 2 * NodeAddr::LEN;

/// Checks the prefix; returns the type and a reader behind the reserved byte.
fn open(message: &[u8]) -> Result<(u8, Reader<'_>), WireError> {
    let prefix = FspPrefix::parse(message)?.expect(FspPhase::Established)?;
    if !prefix.is_signal() {
        return Err(WireError::WrongCipherFlag(prefix.flags));
    }
    let mut r = Reader::new(message);
    r.take(FspPrefix::LEN)?;
    let msg_type = r.u8()?;
    r.u8()?;
    Ok((msg_type, r))
}

fn open_as(message: &[u8], expected: SignalType) -> Result<Reader<'_>, WireError> {
    let (msg_type, r) = open(message)?;
    if msg_type == expected.to_byte() {
        Ok(r)
    } else {
        Err(WireError::WrongMessageType(msg_type))
    }
}

fn begin(out: &mut [u8], msg_type: SignalType, wire_len: usize) -> Result<Writer<'_>, WireError> {
    let payload_len = len_u16(wire_len - FspPrefix::LEN)?;
    let phase = FspPhase::Established as u8;
    let prefix = FspPrefix {
        version: VERSION,
        phase,
        flags: FLAG_UNENCRYPTED,
        payload_len,
    };
    let mut w = Writer::new(out);
    w.bytes(&prefix.to_bytes()).u8(msg_type.to_byte()).u8(0);
    Ok(w)
}
