//! Files that exist already: their hashes tell whether they are the same.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;

use super::{Item, Session};
use crate::hash::{GROUP, Hash, group_len, is_zero};
use crate::live::{Failure, Work};
use crate::walk::DataGroups;
use crate::wire::Verdict;

/// The most files that are compared at a time.
const MAX_COMPARING: usize = 64;

/// How far the comparison of a file is.
#[derive(Debug)]
pub(super) struct Comparison {
    file: File,
    groups: DataGroups,
    room: Vec<u8>,
    differs: bool,
}

impl Comparison {
    /// The next group of the file here that has data.
    fn next(&mut self, size: u64) -> io::Result<Option<(u64, Hash)>> {
        for group in self.groups.by_ref() {
            self.room.resize(group_len(size, group), 0);
            self.file.read_exact_at(&mut self.room, group * GROUP)?;
            if !is_zero(&self.room) {
                return Ok(Some((group, Hash::of(&self.room))));
            }
        }
        Ok(None)
    }

    /// Compares with hashes of the other end.
    fn note(&mut self, size: u64, last: bool, hashes: &[(u64, Hash)]) -> io::Result<()> {
        for theirs in hashes {
            if self.differs {
                return Ok(());
            }
            self.differs = self.next(size)?.as_ref() != Some(theirs);
        }
        self.differs |= last && self.next(size)?.is_some();
        self.room = Vec::new();
        Ok(())
    }
}

impl Session {
    fn begin_comparison(&self, item: &Item) -> io::Result<Comparison> {
        let path = self.memory().moves.now(&item.entry.path);
        let file = self.stage.root.open_read(&path)?;
        if file.metadata()?.len() != item.entry.size {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Comparison {
            groups: DataGroups::new(&file, item.entry.size)?,
            file,
            room: Vec::new(),
            differs: false,
        })
    }

    /// Handles hashes of a file, of which one of the same size exists here.
    pub(super) fn compare(&self, index: u64, last: bool, hashes: &[(u64, Hash)]) -> Result<(), Failure> {
        let item = self.item(index)?;
        let size = item.entry.size;
        let mut state = item.lock();
        if !state.awaits_hashes {
            return Err(Failure::Fatal(
                "the other end sent hashes that nothing asked for".to_owned(),
            ));
        }
        state.awaits_hashes = !last;
        let comparison = match state.comparison.take() {
            Some(comparison) => {
                self.comparing.fetch_sub(1, Ordering::AcqRel);
                Ok(comparison)
            }
            None => self.begin_comparison(&item),
        };
        let noted = comparison.and_then(|mut comparison| {
            self.live.times.of(Work::Disk, || comparison.note(size, last, hashes))?;
            Ok(comparison)
        });
        let differs = match noted {
            Ok(comparison) if !last => {
                state.comparison = Some(comparison);
                if self.comparing.fetch_add(1, Ordering::AcqRel) >= MAX_COMPARING {
                    let why = "the other end compares more files at once than are taken";
                    return Err(Failure::Fatal(why.to_owned()));
                }
                return Ok(());
            }
            Ok(comparison) => comparison.differs,
            // A file that cannot be read is no reason to keep another one from coming.
            Err(_) => true,
        };
        if differs || !last {
            drop(state);
            if last {
                self.tell_verdicts(index, vec![Verdict::Send]);
            }
            return Ok(());
        }
        state.is_done = true;
        drop(state);
        if size > GROUP {
            self.forget(&item)?;
        }
        self.live.had.add(1);
        self.live.bytes.add(size);
        self.done(index);
        self.tell_verdicts(index, vec![Verdict::Have]);
        Ok(())
    }
}
