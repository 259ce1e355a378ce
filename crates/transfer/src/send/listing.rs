//! The list of what is sent, announced while it is made.

use std::time::{Duration, Instant};

use super::{Session, lost};
use crate::live::Failure;
use crate::walk::{Entry, Found, Source};
use crate::wire::message::{ENTRIES_BYTES, MAX_ENTRIES};
use crate::wire::{FromSender, WireEntry};

/// How long an entry waits for others, so that one message has many.
const GATHER: Duration = Duration::from_millis(20);

/// Counts entries, bytes, and bytes outside of holes; `None` if the count is not complete at `end`.
pub(super) fn count(source: &Source, end: Instant) -> Option<[u64; 3]> {
    let (mut entries, mut bytes, mut disk) = (0, 0, 0);
    let mut complete = true;
    source.walk(&mut |found| {
        if let Found::Entry(entry) = found {
            entries += 1;
            bytes += entry.size;
            disk += entry.disk;
        }
        complete = Instant::now() < end;
        complete
    });
    complete.then_some([entries, bytes, disk])
}

/// Returns an entry as it is announced.
pub(super) fn on_wire(entry: &Entry) -> WireEntry {
    WireEntry {
        kind: entry.kind,
        mode: u16::try_from(entry.mode & 0o777).unwrap_or(0),
        mtime_s: entry.mtime_s,
        mtime_ns: entry.mtime_ns,
        size: entry.size,
        path: entry.path.clone(),
        target: entry.target.clone(),
    }
}

/// Entries that wait to be announced together.
struct Batch {
    first: u64,
    entries: Vec<WireEntry>,
    bytes: usize,
    begun: Instant,
}

impl Session<'_> {
    /// Announces everything.
    pub(super) fn announce(&self) {
        let mut batch = Batch {
            first: 0,
            entries: Vec::new(),
            bytes: 0,
            begun: Instant::now(),
        };
        let (mut entries, mut bytes) = (0_u64, 0_u64);
        let mut failed = None;
        self.source.walk(&mut |found| {
            self.live.steps.add(1);
            match found {
                Found::LeftOut { path, why } => {
                    self.live.note(path, format!("left out: {why}"));
                    !self.live.stop().is_set()
                }
                Found::Entry(entry) => {
                    let wire = on_wire(&entry);
                    let (index, size) = (entries, entry.size);
                    entries += 1;
                    bytes += size;
                    batch.bytes += 32 + wire.path.as_bytes().len() + wire.target.len();
                    batch.entries.push(wire);
                    let full = !self.window.has_room();
                    self.window.put(index, entry);
                    let is_due = full
                        || batch.entries.len() >= MAX_ENTRIES
                        || batch.bytes >= ENTRIES_BYTES
                        || batch.begun.elapsed() >= GATHER;
                    if is_due {
                        failed = self.send_batch(&mut batch).err();
                    }
                    failed.is_none() && self.window.wait_for_room(self.live.stop())
                }
            }
        });
        if self.live.stop().is_set() {
            return;
        }
        let mut ended = || -> std::io::Result<()> {
            if entries == 0 {
                // There is nothing that the other end could call done.
                return self.say(&FromSender::Cancel);
            }
            self.send_batch(&mut batch)?;
            self.live.set_totals(Some(entries), Some(bytes));
            self.say(&FromSender::End(entries, bytes))
        };
        let failed = failed.or_else(|| ended().err());
        if entries == 0 {
            self.fail(Failure::Fatal("nothing is left to be sent".to_owned()));
        } else if let Some(error) = failed {
            self.fail(lost(&error));
        }
    }

    fn send_batch(&self, batch: &mut Batch) -> std::io::Result<()> {
        let entries = std::mem::take(&mut batch.entries);
        let first = batch.first;
        batch.first += entries.len() as u64;
        batch.bytes = 0;
        batch.begun = Instant::now();
        match entries.is_empty() {
            true => Ok(()),
            false => self.say(&FromSender::Entries(first, entries)),
        }
    }
}
