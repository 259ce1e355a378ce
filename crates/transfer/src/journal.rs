//! What is kept of a transfer for a later try: a file of records that only grows.
//!
//! A record is in the page cache once it is written, which a kill of the process leaves alone. A loss of power takes what
//! was not synced: of records under another boot than the present one, those before its last [`Record::Synced`] count,
//! and those behind it only take away, as what they tell of may have been written over.

mod groups;
mod record;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

pub use self::groups::GroupSet;
pub use self::record::Record;
use crate::hash::Hash;
use crate::names::RelPath;

/// Bytes that are read at a time; more than the longest record.
const AT_ONCE: usize = 256 << 10;

/// A file of which something is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptFile {
    /// Its path.
    pub path: RelPath,
    /// Its size in bytes.
    pub size: u64,
    /// When it was changed: seconds since 1970.
    pub mtime_s: i64,
    /// Nanoseconds beside them.
    pub mtime_ns: u32,
    /// What the system says of it, at the end that sends.
    pub identity: [u8; 48],
    /// The groups that are verified.
    pub groups: GroupSet,
    /// Its hash, if it is whole.
    pub stored: Option<Hash>,
}

/// What can be trusted of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The files, by number.
    pub files: BTreeMap<u32, KeptFile>,
    /// What gets another name, or the same one as a new folder, and the number of the try, in order.
    pub moved: Vec<(RelPath, Vec<u8>, u32)>,
    /// Whether all of it was written since the last start of the system.
    pub same_boot: bool,
}

impl Kept {
    fn note(&mut self, record: Record) {
        match record {
            Record::File {
                number,
                path,
                size,
                mtime_s,
                mtime_ns,
                identity,
            } => {
                let groups = self
                    .files
                    .remove(&number)
                    .map(|before| before.groups)
                    .unwrap_or_default();
                let file = KeptFile {
                    path,
                    size,
                    mtime_s,
                    mtime_ns,
                    identity,
                    groups,
                    stored: None,
                };
                self.files.insert(number, file);
            }
            Record::Group { number, index, hash } => {
                if let Some(file) = self.files.get_mut(&number) {
                    file.stored = None;
                    match hash == Hash([0; 32]) {
                        true => file.groups.remove(index),
                        false => file.groups.insert(index),
                    };
                }
            }
            Record::Stored { number, hash } => {
                if let Some(file) = self.files.get_mut(&number) {
                    file.stored = Some(hash);
                }
            }
            Record::Moved { path, name, number } => self.moved.push((path, name, number)),
            Record::Forget { number } => drop(self.files.remove(&number)),
            Record::Boot(_) | Record::Synced => {}
        }
    }

    /// Forgets what a record that does not count tells of.
    fn doubt(&mut self, record: &Record) {
        match record {
            Record::Group { number, index, .. } => {
                if let Some(file) = self.files.get_mut(number) {
                    file.groups.remove(*index);
                    file.stored = None;
                }
            }
            Record::Forget { number } => drop(self.files.remove(number)),
            _ => {}
        }
    }
}

/// A journal that is open.
#[derive(Debug)]
pub struct Journal {
    file: File,
    /// Where the next record begins.
    end: u64,
}

impl Journal {
    /// Opens a journal and returns what can be trusted of it. What is behind the last whole record is cut off.
    ///
    /// # Errors
    /// Those of the system. A damaged record ends the journal without an error.
    pub fn open(file: File, boot: [u8; 16]) -> io::Result<(Self, Kept)> {
        // Where what counts ends, and the last boot.
        let (mut trusted, mut last) = (0, None);
        let end = scan(&file, 0, u64::MAX, |record, end| match record {
            Record::Boot(boot) => last = Some(*boot),
            Record::Synced => trusted = end,
            _ => {}
        })?;
        let same_boot = last.is_none_or(|last| last == boot);
        if last == Some(boot) {
            trusted = end;
        }
        let mut kept = Kept {
            same_boot: same_boot && trusted == end,
            ..Kept::default()
        };
        let mut doubted = Vec::new();
        scan(&file, 0, end, |record, end| match end <= trusted {
            true => kept.note(record.clone()),
            false => {
                kept.doubt(record);
                doubted.extend(withdrawal(record));
            }
        })?;
        // What does not count must not count later either.
        file.set_len(trusted)?;
        let mut journal = Self { file, end: trusted };
        if last != Some(boot) {
            doubted.iter().try_for_each(|record| journal.append(record))?;
            journal.append(&Record::Boot(boot))?;
            journal.flush()?;
        }
        Ok((journal, kept))
    }

    /// Appends a record.
    ///
    /// # Errors
    /// Those of the system.
    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        let mut bytes = Vec::new();
        record.put(&mut bytes);
        // A part of a record that a full disk leaves is written over by the next one.
        self.file.write_all_at(&bytes, self.end)?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Writes the records so far to the disk, without saying anything of the data that they tell of.
    ///
    /// # Errors
    /// Those of the system.
    pub fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Notes that everything before is on the disk, and writes that to the disk.
    ///
    /// # Errors
    /// Those of the system.
    pub fn sync(&mut self) -> io::Result<()> {
        self.append(&Record::Synced)?;
        self.file.sync_data()
    }

    /// Where the next record begins.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.end
    }

    /// Reads the hashes of groups of a file, from one number to before another.
    ///
    /// # Errors
    /// Those of the system.
    pub fn hashes(&self, number: u32, from: u64, to: u64) -> io::Result<BTreeMap<u64, Hash>> {
        self.hashes_since(0, number, from, to)
    }

    /// Does the same for a file whose records begin at a [`position`](Self::position).
    ///
    /// # Errors
    /// Those of the system.
    pub fn hashes_since(&self, since: u64, number: u32, from: u64, to: u64) -> io::Result<BTreeMap<u64, Hash>> {
        let mut hashes = BTreeMap::new();
        scan(&self.file, since, self.end, |record, _| match record {
            Record::Group {
                number: of,
                index,
                hash,
            } if *of == number && (from..to).contains(index) => drop(hashes.insert(*index, *hash)),
            Record::Forget { number: of } if *of == number => hashes.clear(),
            _ => {}
        })?;
        hashes.retain(|_, hash| *hash != Hash([0; 32]));
        Ok(hashes)
    }
}

/// The record that takes away what another one tells of.
const fn withdrawal(record: &Record) -> Option<Record> {
    match record {
        Record::Group { number, index, .. } => Some(Record::Group {
            number: *number,
            index: *index,
            hash: Hash([0; 32]),
        }),
        Record::Forget { number } => Some(Record::Forget { number: *number }),
        _ => None,
    }
}

/// Passes on each whole record behind `since` that ends before `limit`, with the place where it ends. Returns where the last one ends.
fn scan(file: &File, since: u64, limit: u64, mut each: impl FnMut(&Record, u64)) -> io::Result<u64> {
    let mut room = vec![0; AT_ONCE];
    let (mut at, mut have, mut used) = (since, 0, 0);
    loop {
        room.copy_within(used..have, 0);
        have -= used;
        used = 0;
        let more = file.read_at(room.get_mut(have..).unwrap_or_default(), at + have as u64)?;
        have += more;
        while let Some((record, len)) = Record::read(room.get(used..have).unwrap_or_default()) {
            let end = at + (used + len) as u64;
            if end > limit {
                return Ok(at + used as u64);
            }
            each(&record, end);
            used += len;
        }
        if used == 0 && (more == 0 || have == AT_ONCE) {
            return Ok(at);
        }
        at += used as u64;
    }
}

/// The identity of this start of the system; zeros where the system does not tell it.
#[must_use]
pub fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    digits.parse::<crate::api::TransferId>().map_or([0; 16], |id| id.0)
}

#[cfg(test)]
mod tests;
