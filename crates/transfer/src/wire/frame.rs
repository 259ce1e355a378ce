//! Frames of data connections: one group of a file each.

use std::io::{self, Read, Write};

use super::{WireError, read_array};
use crate::hash::{GROUP, Hash};

/// What the bytes of a frame are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// 0: those of the group.
    #[default]
    Plain,
    /// 1: the group, compressed with zstd.
    Packed,
    /// 2: none: the group has only zeros now.
    Zero,
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
    /// What these bytes are.
    pub form: Form,
    /// How often the file had changed since it was announced.
    pub changes: u8,
    /// The hash of the group.
    pub hash: Hash,
}

impl Frame {
    /// Length of the head in bytes: entry 8, group 8, length 4, form 1, changes 1, zero 10, hash 32.
    pub const LEN: usize = 64;

    /// Returns the bytes of the head.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let parts: [&[u8]; 7] = [
            &self.entry.to_le_bytes(),
            &self.group.to_le_bytes(),
            &self.len.to_le_bytes(),
            &[match self.form {
                Form::Plain => 0,
                Form::Packed => 1,
                Form::Zero => 2,
            }],
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
        let (entry, group, len, form) = (reader.u64()?, reader.u64()?, reader.u32()?, reader.u8()?);
        let (changes, zeros, hash) = (reader.u8()?, reader.array::<10>()?, Hash(reader.array()?));
        let form = match form {
            0 => Form::Plain,
            1 => Form::Packed,
            2 if len == 0 => Form::Zero,
            _ => return Err(WireError::new("a frame that this version does not know")),
        };
        if u64::from(len) > GROUP || zeros != [0; 10] {
            return Err(WireError::new("a frame that this version does not know"));
        }
        Ok(Self {
            entry,
            group,
            len,
            form,
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
