//! Frames of data connections: one group of a file each.

use std::io::{self, Read, Write};

use super::{WireError, read_array};
use crate::hash::{GROUP, Hash};

/// What a frame says of its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameFlags {
    /// The group has only zeros now; no bytes follow (2).
    pub zero: bool,
}

/// The head of a frame; `len` bytes follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The number of the entry.
    pub entry: u64,
    /// The number of the group in its file.
    pub group: u64,
    /// The bytes that follow.
    pub len: u32,
    /// What it says of its group.
    pub flags: FrameFlags,
    /// How often the file had changed since it was announced.
    pub changes: u8,
    /// The hash of the group.
    pub hash: Hash,
}

impl Frame {
    /// Length of the head in bytes: entry 8, group 8, length 4, flags 1, changes 1, zero 10, hash 32.
    pub const LEN: usize = 64;

    /// Returns the bytes of the head.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let parts: [&[u8]; 7] = [
            &self.entry.to_le_bytes(),
            &self.group.to_le_bytes(),
            &self.len.to_le_bytes(),
            &[if self.flags.zero { 2 } else { 0 }],
            &[self.changes],
            &[0; 10],
            &self.hash.0,
        ];
        for (to, from) in bytes.iter_mut().zip(parts.into_iter().flatten()) {
            *to = *from;
        }
        bytes
    }

    /// Reads the head.
    ///
    /// # Errors
    /// More bytes than a group has, and fields that are not known.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Result<Self, WireError> {
        let mut reader = super::reader::Reader(bytes);
        let (entry, group, len, flags) = (reader.u64()?, reader.u64()?, reader.u32()?, reader.u8()?);
        let (changes, zeros, hash) = (reader.u8()?, reader.array::<10>()?, Hash(reader.array()?));
        if u64::from(len) > GROUP || zeros != [0; 10] || !matches!(flags, 0 | 2) || flags == 2 && len != 0 {
            return Err(WireError::new("a frame that this version does not know"));
        }
        Ok(Self {
            entry,
            group,
            len,
            flags: FrameFlags { zero: flags == 2 },
            changes,
            hash,
        })
    }

    /// Reads the head of the next frame; `None` at the end of the connection.
    ///
    /// # Errors
    /// Those of the connection and of [`Frame::parse`].
    pub fn next(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut first = [0; 1];
        loop {
            match from.read(&mut first) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let rest: [u8; Self::LEN - 1] = read_array(from)?;
        let mut bytes = [0; Self::LEN];
        bytes
            .iter_mut()
            .zip(first.iter().chain(&rest))
            .for_each(|(to, from)| *to = *from);
        Ok(Some(Self::parse(&bytes)?))
    }

    /// Writes the frame.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn write(&self, to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
        to.write_all(&self.to_bytes())?;
        to.write_all(bytes)
    }
}
