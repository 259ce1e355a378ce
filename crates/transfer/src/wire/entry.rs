//! An entry of the list of what is sent.

use super::WireError;
use super::reader::{Reader, put_short};
use crate::names::{RelPath, link_stays_inside};
use crate::walk::EntryKind;

/// The longest target of a link, in bytes.
const MAX_TARGET: usize = 4_095;

/// An entry as it is announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireEntry {
    /// Its kind.
    pub kind: EntryKind,
    /// Its permissions: the lowest nine bits.
    pub mode: u16,
    /// When it was changed: seconds since 1970.
    pub mtime_s: i64,
    /// Nanoseconds beside them.
    pub mtime_ns: u32,
    /// Its size in bytes; 0 unless it is a file.
    pub size: u64,
    /// Its path from the top of the transfer on.
    pub path: RelPath,
    /// What it points to, if it is a link.
    pub target: Vec<u8>,
}

pub(super) const fn kind_byte(kind: EntryKind) -> u8 {
    match kind {
        EntryKind::Dir => 1,
        EntryKind::File => 2,
        EntryKind::Link => 3,
    }
}

pub(super) fn kind_of(byte: u8) -> Result<EntryKind, WireError> {
    match byte {
        1 => Ok(EntryKind::Dir),
        2 => Ok(EntryKind::File),
        3 => Ok(EntryKind::Link),
        other => Err(WireError::new(format!("an entry of kind {other}"))),
    }
}

impl WireEntry {
    /// The largest file that is taken: 2^60 bytes.
    pub const MAX_SIZE: u64 = 1 << 60;

    /// Appends the bytes: kind 1 (1 folder, 2 file, 3 link), mode 2, seconds 8, nanoseconds 4, size 8, path and
    /// target behind their length in two bytes.
    pub fn put(&self, to: &mut Vec<u8>) {
        to.push(kind_byte(self.kind));
        to.extend(self.mode.to_le_bytes());
        to.extend(self.mtime_s.to_le_bytes());
        to.extend(self.mtime_ns.to_le_bytes());
        to.extend(self.size.to_le_bytes());
        put_short(to, self.path.as_bytes());
        put_short(to, &self.target);
    }

    /// Reads an entry.
    pub(super) fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let kind = kind_of(from.u8()?)?;
        let (mode, mtime_s, mtime_ns, size) = (from.u16()?, from.i64()?, from.u32()?, from.u64()?);
        let (path, target) = (from.short()?, from.short()?);
        let path = RelPath::new(path).map_err(|error| WireError::new(format!("a name that is refused: {error}")))?;
        if mtime_ns >= 1_000_000_000 || size > Self::MAX_SIZE || kind != EntryKind::File && size != 0 {
            return Err(WireError::new(format!("a false size or time of {}", path.display())));
        }
        let is_link = kind == EntryKind::Link;
        if is_link && (target.len() > MAX_TARGET || !link_stays_inside(&path, target)) {
            let path = path.display();
            return Err(WireError::new(format!("a link that leads out of the transfer: {path}")));
        }
        if !is_link && !target.is_empty() {
            let path = path.display();
            return Err(WireError::new(format!("a target of something that is no link: {path}")));
        }
        Ok(Self {
            kind,
            mode: mode & 0o777,
            mtime_s,
            mtime_ns,
            size,
            path,
            target: target.to_vec(),
        })
    }
}
