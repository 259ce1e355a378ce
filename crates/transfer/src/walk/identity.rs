//! What a file is for the system: another identity means other contents.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

use crate::root::Meta;

/// What tells whether a file is the one that was read before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The file system.
    pub dev: u64,
    /// The number of the inode.
    pub ino: u64,
    /// The size in bytes.
    pub size: u64,
    /// When the contents were changed: seconds since 1970.
    pub mtime_s: i64,
    /// Nanoseconds beside them.
    pub mtime_ns: u32,
    /// When the inode was changed: seconds since 1970. A program can set the time of contents, but not this one.
    pub ctime_s: i64,
    /// Nanoseconds beside them.
    pub ctime_ns: u32,
}

impl Identity {
    /// The identity of a file.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        let nanoseconds = |value: i64| u32::try_from(value).unwrap_or(0);
        Self {
            dev: metadata.dev(),
            ino: metadata.ino(),
            size: metadata.size(),
            mtime_s: metadata.mtime(),
            mtime_ns: nanoseconds(metadata.mtime_nsec()),
            ctime_s: metadata.ctime(),
            ctime_ns: nanoseconds(metadata.ctime_nsec()),
        }
    }

    /// The identity of what was looked at.
    #[must_use]
    pub const fn of_meta(meta: &Meta) -> Self {
        Self {
            dev: meta.dev,
            ino: meta.ino,
            size: meta.size,
            mtime_s: meta.mtime_s,
            mtime_ns: meta.mtime_ns,
            ctime_s: meta.ctime_s,
            ctime_ns: meta.ctime_ns,
        }
    }

    /// Returns the bytes, for a journal.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 48] {
        let mut bytes = [0; 48];
        let parts = [
            self.dev.to_le_bytes(),
            self.ino.to_le_bytes(),
            self.size.to_le_bytes(),
            self.mtime_s.to_le_bytes(),
            self.ctime_s.to_le_bytes(),
            (u64::from(self.mtime_ns) << 32 | u64::from(self.ctime_ns)).to_le_bytes(),
        ];
        bytes
            .iter_mut()
            .zip(parts.as_flattened())
            .for_each(|(to, from)| *to = *from);
        bytes
    }
}
