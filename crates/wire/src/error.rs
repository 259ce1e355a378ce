//! Why bytes were refused, or could not be written.

use core::fmt;

/// A reason why bytes do not form a message, or a message does not fit.
///
/// There is one variant for each cause, so a caller counts refusals without looking at text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WireError {
    /// The input ends before the message does.
    TooShort {
        /// Bytes that the message needs, counted from its start.
        needed: usize,
        /// Bytes that were there.
        got: usize,
    },
    /// The input does not have the one length that this message has.
    WrongLength {
        /// The length in bytes that this message always has.
        expected: usize,
        /// Bytes that were there.
        got: usize,
    },
    /// The length field of the header does not describe the frame that carries it.
    LengthMismatch {
        /// The value of the field.
        declared: usize,
        /// The value that the frame's size implies.
        actual: usize,
    },
    /// The output buffer cannot hold the message. Its content is unspecified afterwards.
    BufferTooSmall {
        /// Bytes that the message needs.
        needed: usize,
        /// Bytes that the buffer has.
        got: usize,
    },
    /// A part is longer than the length field in front of it can say.
    TooLong {
        /// The largest length that the field can say.
        max: usize,
        /// The length of the part.
        got: usize,
    },
    /// The version is not one that this crate reads.
    UnsupportedVersion(u8),
    /// The phase nibble is not that of this message.
    WrongPhase(u8),
    /// The message type byte is not that of this message, or of none that is known.
    WrongMessageType(u8),
    /// Flags are set in a message that must have none.
    NonZeroFlags(u8),
    /// The U flag is set in a sealed FSP message, or clear in a plain one; the value is the flags.
    WrongCipherFlag(u8),
    /// The CP flag and the presence of coordinates disagree; the value is the flags.
    WrongCoordsFlag(u8),
    /// Coordinates without an entry, where the message needs at least one.
    EmptyCoords,
    /// A tree announcement without an ancestry entry.
    EmptyAncestry,
    /// A bloom filter size class other than the one in use.
    UnsupportedSizeClass(u8),
    /// A bloom filter with no hash functions.
    ZeroHashCount,
    /// An IPv6 shim format that is not known.
    UnknownShimFormat(u8),
    /// Fewer bytes before the shim than the header that replaces it needs.
    NoHeadroom {
        /// Bytes that are needed before the shim.
        needed: usize,
        /// Bytes that are there.
        got: usize,
    },
    /// The IP version nibble is not that of this header.
    WrongIpVersion(u8),
    /// A header's own length field is below the minimum of its kind; the value is in bytes.
    HeaderTooSmall(usize),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooShort { needed, got } => write!(f, "needs {needed} bytes, has {got}"),
            Self::WrongLength { expected, got } => write!(f, "is {expected} bytes long, has {got}"),
            Self::LengthMismatch { declared, actual } => {
                write!(f, "declares a length of {declared}, carries {actual}")
            }
            Self::BufferTooSmall { needed, got } => {
                write!(f, "needs a buffer of {needed} bytes, was given {got}")
            }
            Self::TooLong { max, got } => write!(f, "a part of {got} exceeds the limit of {max}"),
            Self::UnsupportedVersion(v) => write!(f, "version {v} is not supported"),
            Self::WrongPhase(p) => write!(f, "phase {p:#x} does not belong to this message"),
            Self::WrongMessageType(t) => write!(f, "message type {t:#04x} does not belong here"),
            Self::NonZeroFlags(v) => write!(f, "flags {v:#04x} in a message that has none"),
            Self::WrongCipherFlag(v) => write!(f, "flags {v:#04x} contradict whether it is sealed"),
            Self::WrongCoordsFlag(v) => write!(f, "flags {v:#04x} contradict the coordinates"),
            Self::EmptyCoords => f.write_str("coordinates without an entry"),
            Self::EmptyAncestry => f.write_str("ancestry without an entry"),
            Self::UnsupportedSizeClass(c) => write!(f, "filter size class {c} is not supported"),
            Self::ZeroHashCount => f.write_str("a filter with no hash functions"),
            Self::UnknownShimFormat(v) => write!(f, "IPv6 shim format {v:#04x} is not known"),
            Self::NoHeadroom { needed, got } => {
                write!(f, "needs {needed} bytes before the shim, has {got}")
            }
            Self::WrongIpVersion(v) => write!(f, "IP version {v} does not belong to this header"),
            Self::HeaderTooSmall(n) => write!(f, "header length of {n} is below the minimum"),
        }
    }
}

impl core::error::Error for WireError {}
