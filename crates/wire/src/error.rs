//! Errors of parsing and writing.

use core::fmt;

/// The reason why bytes do not form a message, or why a message does not fit.
///
/// Each cause has its own variant, so a caller counts refusals without matching on text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WireError {
    /// The input ends before the message does.
    TooShort {
        /// Bytes that the message needs, counted from its start.
        needed: usize,
        /// Bytes of the input.
        got: usize,
    },
    /// The input does not have the fixed length of this message.
    WrongLength {
        /// The length in bytes that this message always has.
        expected: usize,
        /// Bytes of the input.
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
        /// Size of the buffer in bytes.
        got: usize,
    },
    /// A part is longer than its length field can express.
    TooLong {
        /// The largest value of the length field.
        max: usize,
        /// The length of the part.
        got: usize,
    },
    /// This crate does not read this version.
    UnsupportedVersion(u8),
    /// The phase nibble is not that of this message.
    WrongPhase(u8),
    /// The message type byte belongs to another message, or is unknown.
    WrongMessageType(u8),
    /// Flags are set in a message that must have none.
    NonZeroFlags(u8),
    /// The U flag is set in a sealed FSP message, or clear in a plain one; the value is the flags
    /// byte.
    WrongCipherFlag(u8),
    /// The CP flag and the presence of coordinates disagree; the value is the flags byte.
    WrongCoordsFlag(u8),
    /// Coordinates without an entry in a message that needs at least one.
    EmptyCoords,
    /// A tree announcement without an ancestry entry.
    EmptyAncestry,
    /// A Bloom filter of another size class than the one in use.
    UnsupportedSizeClass(u8),
    /// A Bloom filter with no hash functions.
    ZeroHashCount,
    /// An unknown IPv6 shim format.
    UnknownShimFormat(u8),
    /// Fewer bytes before the shim than the IPv6 header that replaces it needs.
    NoHeadroom {
        /// Bytes that are needed before the shim.
        needed: usize,
        /// Bytes before the shim.
        got: usize,
    },
    /// The IP version nibble is not that of this header.
    WrongIpVersion(u8),
    /// A distance on a path that is 0, or above
    /// [`MAX_DISTANCE`](crate::hops::MAX_DISTANCE).
    BadDistance(u8),
    /// An unknown value of [`Onward`](crate::hops::Onward).
    UnknownOnward(u8),
    /// An unknown version and kind of a [`Check`](crate::check::Check).
    UnknownCheck(u8, u8),
    /// An unknown version and kind of a [`Grant`](crate::grant::Grant).
    UnknownGrant(u8, u8),
    /// An unknown [`Purpose`](crate::grant::Purpose) of a grant.
    UnknownPurpose(u8),
    /// The name of a user that is no UTF-8, or has control characters.
    BadName,
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
            Self::BadDistance(d) => write!(f, "distance {d} on a path is out of range"),
            Self::UnknownOnward(v) => write!(f, "{v:#04x} is not known as what becomes of a request"),
            Self::UnknownCheck(version, kind) => {
                write!(f, "version {version} and kind {kind} of a check are not known")
            }
            Self::UnknownGrant(version, kind) => {
                write!(f, "version {version} and kind {kind} of a grant are not known")
            }
            Self::UnknownPurpose(purpose) => write!(f, "purpose {purpose} of a grant is not known"),
            Self::BadName => f.write_str("the name of a user is no text without control characters"),
            Self::HeaderTooSmall(n) => write!(f, "header length of {n} is below the minimum"),
        }
    }
}

impl core::error::Error for WireError {}
