//! What happens with each entry that is announced.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::data::clear;
use super::{Item, ItemState, MAX_CHANGES, MAX_WAITING, NOT_WANTED, Session, failed};
use crate::hash::{GROUP, Hash, group_len};
use crate::journal::{GroupSet, KeptFile, Record};
use crate::live::Failure;
use crate::names::RelPath;
use crate::root::{Kind, Meta};
use crate::walk::{DataGroups, EntryKind};
use crate::wire::message::MAX_RANGES;
use crate::wire::{FromReceiver, Verdict, WireEntry};

/// The most bytes of the verdicts of one message.
const VERDICTS_BYTES: usize = 96 << 10;

/// What was found about a file.
struct Decision {
    verdict: Verdict,
    /// Its number in the journal.
    number: u32,
    /// Where its records begin there.
    since: u64,
    groups: GroupSet,
}

impl From<Verdict> for Decision {
    fn from(verdict: Verdict) -> Self {
        Self {
            verdict,
            number: 0,
            since: 0,
            groups: GroupSet::default(),
        }
    }
}

/// The size and time of what is kept.
const fn times(kept: &KeptFile) -> (u64, i64, u32) {
    (kept.size, kept.mtime_s, kept.mtime_ns)
}

/// Whether something has the size and time of an entry.
fn is_same(meta: &Meta, entry: &WireEntry) -> bool {
    meta.kind == Kind::File && (meta.size, meta.mtime_s, meta.mtime_ns) == (entry.size, entry.mtime_s, entry.mtime_ns)
}

/// Whether a failure concerns one name alone: the file system has no such names, or something is in its way.
fn is_of_name(error: &io::Error) -> bool {
    use io::ErrorKind::{
        AlreadyExists, FileTooLarge, InvalidFilename, InvalidInput, IsADirectory, NotADirectory, PermissionDenied,
    };
    use rustix::io::Errno;
    let kinds = [
        AlreadyExists,
        FileTooLarge,
        InvalidFilename,
        InvalidInput,
        IsADirectory,
        NotADirectory,
        PermissionDenied,
    ];
    // ILSEQ: a file system that takes some bytes in names alone. LOOP: a link is in the way.
    let codes = [Errno::ILSEQ, Errno::LOOP, Errno::XDEV].map(Errno::raw_os_error);
    kinds.contains(&error.kind()) || error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

impl Session {
    /// Decides about entries, the first with this number.
    pub(super) fn decide_all(&self, first: u64, entries: Vec<WireEntry>) -> Result<(), Failure> {
        let fault = |what: &str| Err(Failure::Fatal(format!("the other end sent {what}")));
        let waiting = self.waiting();
        if waiting.end.is_some() || first != waiting.next {
            return fault("entries out of turn");
        }
        if waiting.items.len() + entries.len() > MAX_WAITING {
            return fault("more entries at once than are taken");
        }
        drop(waiting);
        let mut verdicts = Vec::new();
        let (mut from, mut room) = (first, 0);
        for (index, entry) in (first..).zip(entries) {
            let verdict = self.decide_one(index, entry, 0)?;
            room += verdict.room();
            if room > VERDICTS_BYTES {
                self.tell_verdicts(from, std::mem::take(&mut verdicts));
                (from, room) = (index, verdict.room());
            }
            verdicts.push(verdict);
        }
        self.tell_verdicts(from, verdicts);
        self.changed.notify_all();
        Ok(())
    }

    /// Decides about a file that is another one than announced.
    pub(super) fn decide_again(&self, index: u64, entry: WireEntry) -> Result<(), Failure> {
        let item = self.item(index)?;
        if entry.path != item.entry.path || entry.kind != EntryKind::File {
            return Err(Failure::Fatal("the other end changed the name of a file".to_owned()));
        }
        let changes = item.changes + 1;
        if changes > MAX_CHANGES {
            return Err(Failure::Fatal("the other end changed a file too often".to_owned()));
        }
        // Waits for what is being stored.
        *item.is_closed.write().unwrap_or_else(PoisonError::into_inner) = true;
        let mut state = item.lock();
        state.is_done = true;
        let mut memory = self.memory();
        if entry.size > GROUP && item.entry.size > GROUP {
            memory.files.insert(entry.path.clone(), item.kept(&state));
        }
        self.live.bytes.take_back(state.counted);
        drop((state, memory));
        if item.entry.size > GROUP && entry.size <= GROUP {
            self.forget(&item)?;
        }
        let mut waiting = self.waiting();
        waiting.items.remove(&index);
        waiting.bytes -= item.entry.size;
        drop(waiting);
        let verdict = self.decide_one(index, entry, changes)?;
        self.tell_verdicts(index, vec![verdict]);
        Ok(())
    }

    pub(super) fn tell_verdicts(&self, first: u64, verdicts: Vec<Verdict>) {
        if !verdicts.is_empty() {
            // A lost connection shows where messages are read.
            let _ = self.say(&FromReceiver::Verdicts(first, verdicts));
        }
    }

    /// Decides about an entry, and notes that it waits for data if so.
    fn decide_one(&self, index: u64, entry: WireEntry, changes: u8) -> Result<Verdict, Failure> {
        if !self.offered.contains(entry.path.first()) {
            let name = entry.path.display();
            return Err(Failure::Fatal(format!(
                "the other end sends {name}, which it did not offer"
            )));
        }
        let is_wanted = self.terms.only.as_ref().is_none_or(|only| only.has(entry.path.first()));
        let decided = match is_wanted {
            true => self.decide(&entry, changes > 0),
            false => Ok(Verdict::Refused(NOT_WANTED.to_owned()).into()),
        };
        let decision = match decided {
            Ok(decision) => decision,
            Err(error) if is_of_name(&error) => {
                let why = format!("it cannot be stored at the receiving end ({error})");
                self.live.note(entry.path.display(), format!("left out: {why}"));
                Verdict::Refused(why).into()
            }
            Err(error) => return Err(failed(&format!("{} cannot be stored", entry.path.display()), &error)),
        };
        let mut waiting = self.waiting();
        waiting.next = waiting.next.max(index + 1);
        waiting.bytes = waiting.bytes.saturating_add(entry.size);
        if waiting.bytes > self.most {
            return Err(Failure::Fatal("the other end sends more than it offered".to_owned()));
        }
        match decision.verdict {
            Verdict::Send | Verdict::Resume(_) | Verdict::Compare => {
                let counted = held_bytes(&decision.groups, entry.size);
                self.live.bytes.add(counted);
                let state = Mutex::new(ItemState {
                    groups: decision.groups,
                    counted,
                    awaits_hashes: decision.verdict == Verdict::Compare,
                    ..ItemState::default()
                });
                let number = decision.number;
                let item = Item {
                    entry,
                    number,
                    changes,
                    since: decision.since,
                    is_closed: RwLock::new(false),
                    state,
                };
                waiting.items.insert(index, Arc::new(item));
            }
            Verdict::Have | Verdict::Made | Verdict::Refused(_) => {
                drop(waiting);
                if !is_wanted {
                    self.live.leave_out(entry.size);
                } else if !matches!(decision.verdict, Verdict::Refused(_)) {
                    self.live.entries.add(1);
                }
                if decision.verdict == Verdict::Have {
                    self.live.had.add(1);
                    self.live.bytes.add(entry.size);
                }
            }
        }
        Ok(decision.verdict)
    }

    fn decide(&self, entry: &WireEntry, again: bool) -> io::Result<Decision> {
        if let Some(parent) = entry.path.parent() {
            self.stage.tree.make_dirs(&parent)?;
        }
        match entry.kind {
            EntryKind::Dir => self.decide_folder(entry).map(Decision::from),
            EntryKind::Link => self.decide_link(entry).map(Decision::from),
            EntryKind::File => self.decide_file(entry, again),
        }
    }

    fn decide_folder(&self, entry: &WireEntry) -> io::Result<Verdict> {
        if !self.stage.tree.make_dir(&entry.path, 0o700)? {
            let there = self.stage.tree.stat(&entry.path)?;
            if there.is_none_or(|there| there.kind != Kind::Dir) {
                return Err(io::ErrorKind::NotADirectory.into());
            }
        }
        let mut memory = self.memory();
        memory.folders.note(entry)?;
        if let Some(ours) = memory.moves.find(&entry.path) {
            // An earlier try may have closed it, and more may come into it. An error shows when a file gets its name.
            let _ = self.stage.root.set_mode(&ours, 0o700);
        }
        Ok(Verdict::Made)
    }

    fn decide_link(&self, entry: &WireEntry) -> io::Result<Verdict> {
        let there = self.memory().moves.now(&entry.path);
        // Of anything else it is an error.
        if self
            .stage
            .root
            .read_link(&there)
            .is_ok_and(|target| target == entry.target)
        {
            return Ok(Verdict::Have);
        }
        self.make_room(&entry.path)?;
        self.stage.tree.symlink(&entry.path, &entry.target)?;
        Ok(Verdict::Made)
    }

    /// Decides about a file; `again`: it has changed since the last decision.
    fn decide_file(&self, entry: &WireEntry, again: bool) -> io::Result<Decision> {
        // What is in the way shows when the file gets its name.
        let there = self.there(entry);
        let is_big = entry.size > GROUP;
        let kept = self.memory().files.remove(&entry.path);
        if !again {
            self.make_room(&entry.path)?;
            if there.as_ref().is_some_and(|there| is_same(there, entry)) {
                return Ok(Verdict::Have.into());
            }
            if self.take_staged(entry, kept.as_ref())? {
                return Ok(Verdict::Have.into());
            }
        }
        let staged = self.stage.tree.stat(&entry.path)?;
        if let (true, Some((number, kept)), Some(_)) = (is_big, kept, &staged) {
            return self.go_on(entry, number, &kept);
        }
        if staged.is_some() {
            self.stage.tree.remove_file(&entry.path)?;
        }
        if entry.size == 0 {
            let file = self.stage.tree.create_new(&entry.path)?;
            self.complete(&file, entry)?;
            return Ok(Verdict::Made.into());
        }
        let is_like = |there: &Meta| there.kind == Kind::File && there.size == entry.size;
        let verdict = match there.as_ref().is_some_and(is_like) {
            true => Verdict::Compare,
            false => Verdict::Send,
        };
        let since = self.journal().position();
        Ok(Decision {
            number: self.begin_if_big(entry)?,
            since,
            ..verdict.into()
        })
    }

    /// Moves what an earlier try has of a file into the tree of this one. Returns whether it is whole.
    fn take_staged(&self, entry: &WireEntry, kept: Option<&(u32, KeptFile)>) -> io::Result<bool> {
        let Some((number, staged, same_boot)) = self.stage.find(&entry.path) else {
            return Ok(false);
        };
        let is_whole = is_same(&staged, entry)
            && match kept {
                // What it became later may have reached the disk without its records.
                Some((_, kept)) => kept.stored.is_some() && times(kept) == (entry.size, entry.mtime_s, entry.mtime_ns),
                None => entry.size <= GROUP && same_boot,
            };
        let goes_on = entry.size > GROUP && kept.is_some() && staged.kind == Kind::File;
        if is_whole || goes_on {
            self.stage.take(number, &entry.path)?;
        }
        Ok(is_whole)
    }

    /// What has the name of an entry, or the name that an earlier try gave it.
    fn there(&self, entry: &WireEntry) -> Option<Meta> {
        let path = self.memory().moves.now(&entry.path);
        self.stage.root.stat(&path).ok().flatten()
    }

    /// Refuses a name that another entry of this try has: names that differ in case alone are one name on some file
    /// systems.
    fn make_room(&self, path: &RelPath) -> io::Result<()> {
        match self.stage.tree.stat(path)? {
            None => Ok(()),
            Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
        }
    }

    fn begin_if_big(&self, entry: &WireEntry) -> io::Result<u32> {
        if entry.size <= GROUP {
            return Ok(0);
        }
        let file = self.stage.tree.create_new(&entry.path)?;
        file.set_len(entry.size)?;
        let mut memory = self.memory();
        let number = memory.next;
        memory.next += 1;
        drop(memory);
        self.journal().append(&record(entry, number))?;
        Ok(number)
    }

    /// Goes on with a file of which some groups are there.
    fn go_on(&self, entry: &WireEntry, number: u32, kept: &KeptFile) -> io::Result<Decision> {
        // One that was whole may be read-only.
        self.stage.tree.set_mode(&entry.path, 0o600)?;
        let file = self.stage.tree.open_rw(&entry.path)?;
        // Of a file that has changed its size, the groups that are whole in both stay.
        let whole = kept.size.min(entry.size) / GROUP;
        let mut groups = GroupSet::default();
        let mut journal = self.journal();
        for index in kept.groups.ranges().flatten() {
            match kept.size == entry.size || index < whole {
                true => drop(groups.insert(index)),
                false => journal.append(&Record::Group {
                    number,
                    index,
                    hash: Hash([0; 32]),
                })?,
            }
        }
        let is_changed = times(kept) != (entry.size, entry.mtime_s, entry.mtime_ns);
        if is_changed {
            journal.append(&record(entry, number))?;
        }
        if kept.size != entry.size {
            journal.flush()?;
            file.set_len(whole * GROUP)?;
            file.set_len(entry.size)?;
        }
        drop(journal);
        // Data without a record, as an interruption leaves them: the sender passes over what is zero there now.
        for index in DataGroups::new(&file, entry.size)?.filter(|index| !groups.contains(*index)) {
            if self.live.stop().is_set() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            clear(&file, index * GROUP, group_len(entry.size, index) as u64)?;
        }
        let ranges = groups.ranges().take(MAX_RANGES).collect();
        let verdict = Verdict::Resume(ranges);
        Ok(Decision {
            verdict,
            number,
            since: 0,
            groups,
        })
    }
}

/// The record by which a later try knows a file.
pub(super) fn record(entry: &WireEntry, number: u32) -> Record {
    Record::File {
        number,
        path: entry.path.clone(),
        size: entry.size,
        mtime_s: entry.mtime_s,
        mtime_ns: entry.mtime_ns,
        identity: [0; 48],
    }
}

/// The bytes of the groups of a file that are there.
fn held_bytes(groups: &GroupSet, size: u64) -> u64 {
    let last = size / GROUP;
    let all = groups.len() * GROUP;
    match !size.is_multiple_of(GROUP) && groups.contains(last) {
        true => all - GROUP + size % GROUP,
        false => all,
    }
}
