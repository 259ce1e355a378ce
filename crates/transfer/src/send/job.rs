//! What the workers of a transfer have to do, and the entries that wait for a verdict.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::hash::{GROUP, Hash, groups};
use crate::live::Stop;
use crate::walk::{DataGroups, Entry};

/// The most entries that are announced and not yet done.
pub(crate) const WINDOW: usize = 4_096;
/// The pause between two looks whether the transfer ends.
const LOOK: Duration = Duration::from_millis(100);

/// A piece of work.
#[derive(Debug)]
pub(super) enum Job {
    /// A file of one group.
    Small { index: u64, entry: Entry },
    /// A file of more, of which the other end has some.
    Big {
        index: u64,
        entry: Entry,
        held: Vec<Range<u64>>,
    },
    /// The hashes of a file that the other end may have.
    Compare { index: u64, entry: Entry },
}

impl Job {
    pub(super) fn new(index: u64, entry: Entry, held: Vec<Range<u64>>) -> Self {
        match entry.size <= GROUP {
            true => Self::Small { index, entry },
            false => Self::Big { index, entry, held },
        }
    }
}

/// A file whose groups several workers send.
#[derive(Debug)]
pub(super) struct Big {
    pub(super) index: u64,
    pub(super) entry: Entry,
    pub(super) file: File,
    /// Its number in the outboard.
    pub(super) number: u32,
    /// The groups that the other end has.
    pub(super) held: Vec<Range<u64>>,
    /// The hashes of what was sent of it before.
    pub(super) before: BTreeMap<u64, Hash>,
    /// Whether the file is the one that these hashes are of.
    pub(super) is_same: bool,
    /// How often it had changed since it was announced.
    pub(super) changes: u8,
    pub(super) state: Mutex<BigState>,
}

/// How far a file is.
#[derive(Debug)]
pub(super) struct BigState {
    pub(super) groups: DataGroups,
    /// The groups that workers have in their hands.
    pub(super) busy: usize,
    /// No group is left.
    pub(super) is_over: bool,
    /// It was finished, or given up.
    pub(super) is_done: bool,
    /// The frames that were sent.
    pub(super) frames: u64,
    /// The hashes of groups that are not zero.
    pub(super) hashes: Vec<(u64, Hash)>,
}

impl Big {
    pub(super) fn lock(&self) -> MutexGuard<'_, BigState> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the other end has a group. The ranges are in order.
    pub(super) fn is_held(&self, group: u64) -> bool {
        let after = self.held.partition_point(|range| range.end <= group);
        self.held.get(after).is_some_and(|range| range.contains(&group))
    }
}

/// The work that waits. Workers share the files that were begun, the first of them first.
#[derive(Debug, Default)]
pub(super) struct Queue {
    inner: Mutex<(VecDeque<Job>, VecDeque<Arc<Big>>)>,
    changed: Condvar,
}

/// What a worker takes.
#[derive(Debug)]
pub(super) enum Taken {
    /// A piece of work of its own.
    Job(Job),
    /// A group of a file.
    Group(Arc<Big>, u64),
    /// A file of which all groups were sent.
    Finish(Arc<Big>),
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<Job>, VecDeque<Arc<Big>>)> {
        // No code panics while it holds the lock.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, job: Job) {
        self.lock().0.push_back(job);
        self.changed.notify_one();
    }

    /// Shares a file with the other workers.
    pub(super) fn share(&self, big: Arc<Big>) {
        self.lock().1.push_back(big);
        self.changed.notify_all();
    }

    /// Wakes the workers, which look whether the transfer has ended.
    pub(super) fn wake(&self) {
        let _waits_or_looks = self.lock();
        self.changed.notify_all();
    }

    /// Takes the next piece of work; `None` at the end of the transfer.
    pub(super) fn take(&self, stop: &Stop) -> Option<Taken> {
        let mut inner = self.lock();
        loop {
            if stop.is_set() {
                return None;
            }
            while let Some(big) = inner.1.front().cloned() {
                if let Some(group) = next_group(&big) {
                    return Some(Taken::Group(big, group));
                }
                inner.1.pop_front();
                // Else the worker that has the last group finishes it.
                if big.lock().busy == 0 {
                    return Some(Taken::Finish(big));
                }
            }
            if let Some(job) = inner.0.pop_front() {
                return Some(Taken::Job(job));
            }
            inner = match self.changed.wait_timeout(inner, LOOK) {
                Ok((inner, _)) => inner,
                Err(error) => error.into_inner().0,
            };
        }
    }
}

/// Takes the next group of a file into a worker's hands.
pub(super) fn next_group(big: &Big) -> Option<u64> {
    let mut state = big.lock();
    let next = state.groups.next();
    match next {
        Some(_) => state.busy += 1,
        None => state.is_over = true,
    }
    next
}

/// The entries that are announced and not yet done.
#[derive(Debug, Default)]
pub(super) struct Window {
    entries: Mutex<BTreeMap<u64, Open>>,
    room: Condvar,
}

/// An entry that is announced.
#[derive(Debug)]
struct Open {
    entry: Entry,
    /// Whether a verdict about it is awaited.
    is_awaited: bool,
}

impl Window {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Open>> {
        // No code panics while it holds the lock.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry, or replaces it by what it is now. A verdict follows.
    pub(super) fn put(&self, index: u64, entry: Entry) {
        let is_awaited = true;
        self.lock().insert(index, Open { entry, is_awaited });
    }

    /// Returns the entry of a verdict; `None` if none is awaited.
    pub(super) fn judged(&self, index: u64) -> Option<Entry> {
        let mut entries = self.lock();
        let open = entries.get_mut(&index).filter(|open| open.is_awaited)?;
        open.is_awaited = false;
        Some(open.entry.clone())
    }

    /// Notes that a further verdict follows.
    pub(super) fn await_again(&self, index: u64) {
        if let Some(open) = self.lock().get_mut(&index) {
            open.is_awaited = true;
        }
    }

    pub(super) fn remove(&self, index: u64) {
        self.lock().remove(&index);
        self.room.notify_all();
    }

    /// Wakes the thread that waits for room, which looks whether the transfer has ended.
    pub(super) fn wake(&self) {
        let _waits_or_looks = self.lock();
        self.room.notify_all();
    }

    /// Whether two more entries may be announced.
    pub(super) fn has_room(&self) -> bool {
        self.lock().len() + 1 < WINDOW
    }

    /// Waits until another entry may be announced; false at the end of the transfer.
    pub(super) fn wait_for_room(&self, stop: &Stop) -> bool {
        let mut entries = self.lock();
        while entries.len() >= WINDOW {
            if stop.is_set() {
                return false;
            }
            entries = match self.room.wait_timeout(entries, LOOK) {
                Ok((entries, _)) => entries,
                Err(error) => error.into_inner().0,
            };
        }
        !stop.is_set()
    }
}

/// Whether groups that the other end says it has are in order, and of a file of this size.
pub(super) fn are_of(held: &[Range<u64>], size: u64) -> bool {
    let ends = held.iter().map(|range| range.end).collect::<Vec<_>>();
    held.iter().all(|range| range.start < range.end)
        && held
            .iter()
            .skip(1)
            .zip(&ends)
            .all(|(range, before)| range.start >= *before)
        && ends.last().is_none_or(|last| *last <= groups(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_the_other_end_are_checked() {
        let size = 4 * GROUP + 1;
        for (held, right) in [
            (&[][..], true),
            (&[0..2, 2..3, 4..5], true),
            (&[0..1, 2..6], false),
            (&[2..3, 0..1], false),
            (&[0..3, 2..4], false),
            (&[0..1, 1..1], false),
            (&[0..1, 1..u64::MAX], false),
        ] {
            assert_eq!(are_of(held, size), right, "{held:?}");
        }
    }
}
