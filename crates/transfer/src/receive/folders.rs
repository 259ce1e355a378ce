//! Permissions and times of folders, which are set once their files are there.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};

use crate::names::RelPath;
use crate::wire::WireEntry;

/// The folders of a transfer, in a file: there may be many.
#[derive(Debug)]
pub(super) struct Folders(BufWriter<File>);

/// A folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Folder {
    pub(super) path: RelPath,
    pub(super) mode: u32,
    pub(super) mtime_s: i64,
    pub(super) mtime_ns: u32,
}

/// Bytes beside the path: mode 4, seconds 8, nanoseconds 4, and behind all the length of the path 2.
const FIXED: usize = 4 + 8 + 4 + 2;

impl Folders {
    /// Begins a list in an empty file.
    pub(super) fn new(file: File) -> Self {
        Self(BufWriter::new(file))
    }

    /// Adds a folder.
    pub(super) fn note(&mut self, entry: &WireEntry) -> io::Result<()> {
        let path = entry.path.as_bytes();
        let len = u16::try_from(path.len()).map_err(io::Error::other)?;
        self.0.write_all(path)?;
        self.0.write_all(&u32::from(entry.mode).to_le_bytes())?;
        self.0.write_all(&entry.mtime_s.to_le_bytes())?;
        self.0.write_all(&entry.mtime_ns.to_le_bytes())?;
        self.0.write_all(&len.to_le_bytes())
    }

    /// Passes on each folder, those further down first: one that becomes read-only has its folders done.
    pub(super) fn backwards(&mut self, mut each: impl FnMut(Folder) -> io::Result<()>) -> io::Result<()> {
        self.0.flush()?;
        let file = self.0.get_mut();
        let mut end = file.seek(SeekFrom::End(0))?;
        while end > 0 {
            let mut fixed = [0; FIXED];
            file.seek(SeekFrom::Start(end - FIXED as u64))?;
            file.read_exact(&mut fixed)?;
            let (mode, rest) = fixed.split_at(4);
            let (seconds, rest) = rest.split_at(8);
            let (nanoseconds, len) = rest.split_at(4);
            let number = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
            let len = number(len);
            let begin = end.checked_sub(FIXED as u64 + len).ok_or(io::ErrorKind::InvalidData)?;
            let mut path = vec![0; usize::try_from(len).map_err(io::Error::other)?];
            file.seek(SeekFrom::Start(begin))?;
            file.read_exact(&mut path)?;
            each(Folder {
                path: RelPath::new(&path).map_err(io::Error::other)?,
                mode: u32::try_from(number(mode)).unwrap_or(0o700),
                mtime_s: number(seconds).cast_signed(),
                mtime_ns: u32::try_from(number(nanoseconds)).unwrap_or(0),
            })?;
            end = begin;
        }
        Ok(())
    }
}
