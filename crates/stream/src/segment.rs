//! The layout of a segment: a TCP header without checksum and urgent pointer, options, payload.
//!
//! TCP/FIPS v1, "Segment Encoding". Numbers are big-endian. A [`Segment`] borrows its payload; after
//! [`Segment::parse`] nothing panics.

use std::ops::BitOr;

use thiserror::Error;

/// Bytes of a segment without options and payload.
pub const HEADER_LEN: usize = 20;
/// Bytes of a segment of ours that carries SYN, with both options.
pub const SYN_LEN: usize = HEADER_LEN + 8;
/// The version of TCP/FIPS in the option of a SYN.
pub const VERSION: u8 = 1;
/// The largest payload towards an end that names none.
pub const DEFAULT_MSS: u16 = 1024;

/// Kinds of options (RFC 9293, 3.2; TCP/FIPS v1).
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MSS: u8 = 2;
const FIPS: u8 = 254;

/// The flags of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// The stream ends behind the payload.
    pub const FIN: Self = Self(0x01);
    /// The stream begins.
    pub const SYN: Self = Self(0x02);
    /// The connection is gone.
    pub const RST: Self = Self(0x04);
    /// The receiver should not wait for more. Not read.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment number counts. Follows from [`Segment::acknowledgment`] when emitted.
    pub const ACK: Self = Self(0x10);

    /// Returns whether all of `flags` are set.
    #[must_use]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Why bytes are no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SegmentError {
    /// Less than a header, or less than its length says.
    #[error("a segment of {0} bytes is shorter than its header")]
    Short(usize),
    /// The header's own length is below 20 bytes.
    #[error("a header of {0} bytes")]
    HeaderLength(usize),
    /// Port 0.
    #[error("port 0")]
    PortZero,
    /// The session authenticates; a checksum has no place.
    #[error("the checksum is not zero")]
    Checksum,
    /// Urgent data, or a flag that v1 does not know.
    #[error("urgent data or an unknown flag")]
    Flags,
    /// An option that is longer than the header, or has another length than its kind's.
    #[error("an option with a wrong length")]
    Option,
}

/// A segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The port of the end that sends it.
    pub source: u16,
    /// The port of the end that receives it.
    pub destination: u16,
    /// The number of the first byte of the payload, or of SYN.
    pub sequence: u32,
    /// The number that is expected next from the other end.
    pub acknowledgment: Option<u32>,
    /// The other flags. ECE and CWR are accepted and not kept.
    pub flags: Flags,
    /// Bytes behind the acknowledgment that the sender of the segment takes.
    pub window: u16,
    /// The largest payload that the sender of the segment takes, in a SYN.
    pub mss: Option<u16>,
    /// The version of TCP/FIPS, if the option is there and its reserved byte is 0.
    pub version: Option<u8>,
    /// The payload.
    pub payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Parses a segment.
    ///
    /// # Errors
    ///
    /// [`SegmentError`], a variant for each cause.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, SegmentError> {
        let (header, _) = bytes
            .split_first_chunk::<HEADER_LEN>()
            .ok_or(SegmentError::Short(bytes.len()))?;
        let u16_at = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let u32_at = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let len = usize::from(header[12] >> 4) * 4;
        if len < HEADER_LEN {
            return Err(SegmentError::HeaderLength(len));
        }
        let options = bytes.get(HEADER_LEN..len).ok_or(SegmentError::Short(bytes.len()))?;
        let (source, destination) = (u16_at(0), u16_at(2));
        if source == 0 || destination == 0 {
            return Err(SegmentError::PortZero);
        }
        if u16_at(16) != 0 {
            return Err(SegmentError::Checksum);
        }
        // The ninth flag is the lowest bit of the byte before; URG is 0x20.
        if u16_at(18) != 0 || header[13] & 0x20 != 0 || header[12] & 1 != 0 {
            return Err(SegmentError::Flags);
        }
        let all = Flags(header[13] & 0x1f);
        let mut segment = Self {
            source,
            destination,
            sequence: u32_at(4),
            acknowledgment: all.contains(Flags::ACK).then(|| u32_at(8)),
            flags: Flags(all.0 & !Flags::ACK.0),
            window: u16_at(14),
            mss: None,
            version: None,
            payload: &bytes[len..],
        };
        segment.read_options(options)?;
        Ok(segment)
    }

    /// Reads MSS and version, each the first time that it is there, and passes over others.
    fn read_options(&mut self, mut options: &[u8]) -> Result<(), SegmentError> {
        loop {
            options = match options {
                [] | [END, ..] => return Ok(()),
                [NO_OPERATION, rest @ ..] => rest,
                [MSS, 4, high, low, rest @ ..] => {
                    self.mss.get_or_insert(u16::from_be_bytes([*high, *low]));
                    rest
                }
                [FIPS, 4, version, reserved, rest @ ..] => {
                    if *reserved == 0 {
                        self.version.get_or_insert(*version);
                    }
                    rest
                }
                [MSS | FIPS, ..] => return Err(SegmentError::Option),
                [_, len, ..] if *len >= 2 => options.get(usize::from(*len)..).ok_or(SegmentError::Option)?,
                _ => return Err(SegmentError::Option),
            };
        }
    }

    /// Returns the bytes of the segment.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        // Words of four bytes, one an option.
        let options = u8::from(self.mss.is_some()) + u8::from(self.version.is_some());
        let mut bytes = Vec::with_capacity(HEADER_LEN + 4 * usize::from(options) + self.payload.len());
        bytes.extend(self.source.to_be_bytes());
        bytes.extend(self.destination.to_be_bytes());
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(self.acknowledgment.unwrap_or(0).to_be_bytes());
        let ack = if self.acknowledgment.is_some() {
            Flags::ACK
        } else {
            Flags::NONE
        };
        bytes.push((5 + options) << 4);
        bytes.push((self.flags | ack).0);
        bytes.extend(self.window.to_be_bytes());
        bytes.extend([0; 4]);
        if let Some(mss) = self.mss {
            bytes.extend([MSS, 4]);
            bytes.extend(mss.to_be_bytes());
        }
        if let Some(version) = self.version {
            bytes.extend([FIPS, 4, version, 0]);
        }
        bytes.extend(self.payload);
        bytes
    }

    /// Returns how many numbers the segment takes: its payload, SYN and FIN.
    #[must_use]
    pub fn numbers(&self) -> u32 {
        let flags = u32::from(self.flags.contains(Flags::SYN)) + u32::from(self.flags.contains(Flags::FIN));
        flags.wrapping_add(u32::try_from(self.payload.len()).unwrap_or(u32::MAX))
    }

    /// Returns the reset that answers this segment where its connection is not known (RFC 9293,
    /// 3.5.2), or `None` if it is a reset itself.
    #[must_use]
    pub fn reset(&self) -> Option<Segment<'static>> {
        let (sequence, acknowledgment) = match self.acknowledgment {
            Some(acknowledgment) => (acknowledgment, None),
            None => (0, Some(self.sequence.wrapping_add(self.numbers()))),
        };
        (!self.flags.contains(Flags::RST)).then_some(Segment {
            source: self.destination,
            destination: self.source,
            sequence,
            acknowledgment,
            flags: Flags::RST,
            window: 0,
            mss: None,
            version: None,
            payload: &[],
        })
    }
}
