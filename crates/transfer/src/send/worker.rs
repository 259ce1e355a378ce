//! A worker: it reads groups, hashes them and sends them on a connection of its own.

use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::job::{Big, BigState, Job, Taken, next_group};
use super::listing::on_wire;
use super::{Session, lost};
use crate::hash::{FileHasher, GROUP, Hash, group_len, is_zero};
use crate::journal::{GroupSet, KeptFile, Record};
use crate::link;
use crate::live::{Failure, Work};
use crate::pack::Packing;
use crate::walk::{DataGroups, Entry, Identity};
use crate::wire::message::MAX_HASHES;
use crate::wire::{Form, Frame, FromSender};

/// How long the reason for a lost connection may take.
const TOLD: Duration = Duration::from_secs(1);
/// How often a file may change while it is read until it is left out.
const CHANGES: u32 = 3;

/// What a worker has: its connection and room for one group.
struct Worker<'a> {
    session: &'a Session<'a>,
    stream: Option<Arc<TcpStream>>,
    room: Vec<u8>,
    packing: Packing,
}

/// The reason why work on a file ends.
enum Trouble {
    /// The file: it cannot be read.
    File(String),
    /// The file: it is another one than announced.
    Changed,
    /// The transfer.
    Session(Failure),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Session(failure)
    }
}

impl Session<'_> {
    /// Works until the transfer ends.
    pub(super) fn work(&self) {
        let mut worker = Worker {
            session: self,
            stream: None,
            room: Vec::new(),
            packing: Packing::new(Instant::now()),
        };
        while let Some(taken) = self.queue.take(self.live.stop()) {
            if let Err(failure) = worker.carry_out(taken) {
                // Where the connection is lost, the control connection may tell why.
                let end = Instant::now() + TOLD;
                while matches!(failure, Failure::Retry(_)) && !self.live.stop().is_set() && Instant::now() < end {
                    thread::sleep(TOLD / 50);
                }
                self.fail(failure);
            }
        }
    }

    /// Tells the other end that a file has changed, or that it changes too often.
    fn tell_changed(&self, index: u64, entry: &Entry) -> Result<(), Failure> {
        let now = self.source.look(&entry.path);
        let mut outboard = self.outboard();
        let times = outboard.changes.entry(index).or_default();
        *times += 1;
        let too_often = *times > CHANGES;
        drop(outboard);
        match now {
            Ok(now) if !too_often => {
                let message = FromSender::Changed(index, on_wire(&now));
                self.window.put(index, now);
                self.say(&message).map_err(|error| lost(&error))
            }
            Ok(_) => self.give_up(index, entry, "it changes while it is read"),
            Err(error) => self.give_up(index, entry, &read_error(&error)),
        }
    }

    fn give_up(&self, index: u64, entry: &Entry, why: &str) -> Result<(), Failure> {
        self.live.note(entry.path.display(), format!("left out: {why}"));
        self.window.remove(index);
        self.say(&FromSender::Gone(index, why.to_owned()))
            .map_err(|error| lost(&error))
    }

    /// Opens a file of which the other end may have a part, with what is kept of it.
    fn begin(&self, index: u64, entry: Entry, held: Vec<std::ops::Range<u64>>) -> Result<Big, Trouble> {
        let file = self
            .source
            .open(&entry.path)
            .map_err(|error| Trouble::File(read_error(&error)))?;
        let now = Identity::of(&file.metadata().map_err(|error| Trouble::File(read_error(&error)))?);
        if now != entry.identity {
            return Err(Trouble::Changed);
        }
        let mut outboard = self.outboard();
        let known = outboard.kept.files.iter().find(|(_, kept)| kept.path == entry.path);
        let known = known.map(|(number, kept)| (*number, kept.identity == entry.identity.to_bytes()));
        let unsaved = |error: io::Error| {
            Trouble::Session(Failure::Retry(format!(
                "the state of the transfer cannot be written ({error})"
            )))
        };
        let before = match known {
            Some((number, _)) => outboard.journal.hashes(number, 0, u64::MAX).map_err(unsaved)?,
            None => std::collections::BTreeMap::new(),
        };
        let (number, is_same) = match known {
            Some((number, true)) => (number, true),
            _ => {
                let number = outboard.next;
                outboard.next += 1;
                let record = Record::File {
                    number,
                    path: entry.path.clone(),
                    size: entry.size,
                    mtime_s: entry.mtime_s,
                    mtime_ns: entry.mtime_ns,
                    identity: entry.identity.to_bytes(),
                };
                outboard.journal.append(&record).map_err(unsaved)?;
                if let Some((old, _)) = known {
                    // What stays the same goes over to the new number.
                    outboard.kept.files.remove(&old);
                    outboard
                        .journal
                        .append(&Record::Forget { number: old })
                        .map_err(unsaved)?;
                }
                let kept = KeptFile {
                    path: entry.path.clone(),
                    size: entry.size,
                    mtime_s: entry.mtime_s,
                    mtime_ns: entry.mtime_ns,
                    identity: entry.identity.to_bytes(),
                    groups: GroupSet::default(),
                    stored: None,
                };
                outboard.kept.files.insert(number, kept);
                (number, false)
            }
        };
        drop(outboard);
        let changes = self.changes(index);
        let groups = DataGroups::new(&file, entry.size).map_err(|error| Trouble::File(read_error(&error)))?;
        let state = Mutex::new(BigState {
            groups,
            busy: 0,
            is_over: false,
            is_done: false,
            frames: 0,
            hashes: Vec::new(),
        });
        Ok(Big {
            index,
            entry,
            file,
            number,
            held,
            before,
            is_same,
            changes,
            state,
        })
    }

    /// How often a file has changed since it was announced.
    fn changes(&self, index: u64) -> u8 {
        let changes = self.outboard().changes.get(&index).copied();
        u8::try_from(changes.unwrap_or(0)).unwrap_or(u8::MAX)
    }
}

fn read_error(error: &io::Error) -> String {
    format!("it cannot be read ({error})")
}

impl Worker<'_> {
    fn carry_out(&mut self, taken: Taken) -> Result<(), Failure> {
        let session = self.session;
        let (index, entry, trouble) = match taken {
            Taken::Job(Job::Small { index, entry }) => {
                let trouble = self.send_small(index, &entry).err();
                (index, entry, trouble)
            }
            Taken::Job(Job::Compare { index, entry }) => {
                let trouble = self.send_hashes(index, &entry).err();
                (index, entry, trouble)
            }
            Taken::Job(Job::Big { index, entry, held }) => match session.begin(index, entry.clone(), held) {
                Ok(big) => {
                    let big = Arc::new(big);
                    session.queue.share(Arc::clone(&big));
                    let trouble = match next_group(&big) {
                        Some(group) => self.send_group(&big, group).err(),
                        None => self.finish(&big).err(),
                    };
                    (index, entry, trouble)
                }
                Err(trouble) => (index, entry, Some(trouble)),
            },
            Taken::Group(big, group) => {
                let trouble = self.send_group(&big, group).err();
                (big.index, big.entry.clone(), trouble)
            }
            Taken::Finish(big) => {
                let trouble = self.finish(&big).err();
                (big.index, big.entry.clone(), trouble)
            }
        };
        match trouble {
            None => Ok(()),
            Some(Trouble::Session(failure)) => Err(failure),
            Some(Trouble::Changed) => session.tell_changed(index, &entry),
            Some(Trouble::File(why)) => session.give_up(index, &entry, &why),
        }
    }

    fn send_small(&mut self, index: u64, entry: &Entry) -> Result<(), Trouble> {
        let session = self.session;
        let read = session.live.times.of(Work::Disk, || -> io::Result<bool> {
            let file = session.source.open(&entry.path)?;
            self.read(&file, 0, usize::try_from(entry.size).unwrap_or(0))?;
            Ok(Identity::of(&file.metadata()?) == entry.identity)
        });
        match read {
            Ok(true) => {}
            Ok(false) => return Err(Trouble::Changed),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(Trouble::Changed),
            Err(error) => return Err(Trouble::File(read_error(&error))),
        }
        let hash = session.live.times.of(Work::Cpu, || Hash::of(&self.room));
        self.send(index, session.changes(index), 0, hash, false)?;
        session.window.remove(index);
        Ok(())
    }

    /// Reads `len` bytes at `at` into the room.
    fn read(&mut self, file: &File, at: u64, len: usize) -> io::Result<()> {
        self.room.resize(len, 0);
        self.session.live.read.add(len as u64);
        file.read_exact_at(&mut self.room, at)
    }

    /// Sends what is in the room as a group of a file.
    fn send(&mut self, index: u64, changes: u8, group: u64, hash: Hash, zero: bool) -> Result<(), Failure> {
        let session = self.session;
        let stream = match &self.stream {
            Some(stream) => Arc::clone(stream),
            None => {
                let stream = session.far.data()?;
                link::make_patient(&stream).map_err(|error| lost(&error))?;
                session.live.stop().add(&stream);
                Arc::clone(self.stream.insert(stream))
            }
        };
        let packed = match zero {
            true => None,
            false => session.live.times.of(Work::Cpu, || self.packing.pack(&self.room)),
        };
        let (form, bytes): (Form, &[u8]) = match packed {
            Some(packed) => (Form::Packed, packed),
            None if zero => (Form::Zero, &[]),
            None => (Form::Plain, &self.room),
        };
        let begun = Instant::now();
        session.keep_to_limit(bytes.len());
        let frame = Frame {
            entry: index,
            group,
            len: u32::try_from(bytes.len()).unwrap_or(0),
            form,
            changes,
            hash,
        };
        let sent = session.live.times.of(Work::Net, || frame.write(&mut &*stream, bytes));
        sent.map_err(|error| lost(&error))?;
        let len = if zero { 0 } else { self.room.len() };
        let saved = len - bytes.len();
        self.packing.note(begun, Instant::now());
        session.live.moved.add(len as u64);
        session.live.saved.add(saved as u64);
        Ok(())
    }

    /// Sends a group, unless the other end has it, and finishes the file if it was the last one.
    fn send_group(&mut self, big: &Big, group: u64) -> Result<(), Trouble> {
        let done = self.group(big, group);
        let mut state = big.lock();
        state.busy -= 1;
        let hash = match done {
            Ok(hash) => hash,
            // One worker tells of it.
            Err(Trouble::File(_) | Trouble::Changed) if state.is_done => return Ok(()),
            Err(trouble) => {
                (state.is_done, state.is_over) = (true, true);
                state.groups = DataGroups::none();
                return Err(trouble);
            }
        };
        state.hashes.extend(hash.map(|hash| (group, hash)));
        let is_last = state.is_over && state.busy == 0 && !state.is_done;
        drop(state);
        match is_last {
            true => self.finish(big),
            false => Ok(()),
        }
    }

    fn group(&mut self, big: &Big, group: u64) -> Result<Option<Hash>, Trouble> {
        let session = self.session;
        let is_held = big.is_held(group);
        let before = big.before.get(&group).copied();
        if is_held && big.is_same && before.is_some() {
            return Ok(before);
        }
        let (at, len) = (group * GROUP, group_len(big.entry.size, group));
        let read = session.live.times.of(Work::Disk, || self.read(&big.file, at, len));
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Trouble::Changed,
            _ => Trouble::File(read_error(&error)),
        })?;
        let hash = session.live.times.of(Work::Cpu, || match is_zero(&self.room) {
            true => None,
            false => Some(Hash::of(&self.room)),
        });
        let Some(hash) = hash else {
            if is_held {
                self.send_of(big, group, Hash([0; 32]), true)?;
            }
            return Ok(None);
        };
        let record = Record::Group {
            number: big.number,
            index: group,
            hash,
        };
        // Before the other end can have it, so that a later try knows what it has. Where it has other bytes, a later try
        // cannot tell whether these arrived, so that nothing is kept.
        if !is_held || before == Some(hash) {
            let kept = session.outboard().journal.append(&record);
            kept.map_err(|error| Failure::Retry(format!("the state of the transfer cannot be written ({error})")))?;
        }
        if !is_held || before != Some(hash) {
            self.send_of(big, group, hash, false)?;
        }
        Ok(Some(hash))
    }

    /// Sends what is in the room as a group of a shared file.
    fn send_of(&mut self, big: &Big, group: u64, hash: Hash, zero: bool) -> Result<(), Failure> {
        self.send(big.index, big.changes, group, hash, zero)?;
        big.lock().frames += 1;
        Ok(())
    }

    /// Tells the hash of a file whose groups were sent.
    fn finish(&mut self, big: &Big) -> Result<(), Trouble> {
        let session = self.session;
        let metadata = big.file.metadata().map_err(|error| Trouble::File(read_error(&error)))?;
        let mut state = big.lock();
        if std::mem::replace(&mut state.is_done, true) {
            return Ok(());
        }
        let mut hashes = std::mem::take(&mut state.hashes);
        drop(state);
        if Identity::of(&metadata) != big.entry.identity {
            return Err(Trouble::Changed);
        }
        hashes.sort_unstable();
        // What the other end has of a former file, and the present one has not.
        for group in big.held.iter().cloned().flatten() {
            if hashes.binary_search_by_key(&group, |(group, _)| *group).is_err() {
                self.send_of(big, group, Hash([0; 32]), true)?;
            }
        }
        let mut hasher = FileHasher::new(big.entry.size);
        hashes.iter().for_each(|(group, hash)| hasher.add(*group, hash));
        session.window.remove(big.index);
        let frames = big.lock().frames;
        let message = FromSender::Finished(big.index, frames, hasher.finish());
        session.say(&message).map_err(|error| lost(&error).into())
    }

    /// Sends the hashes of a file that the other end may have. Its verdict follows.
    fn send_hashes(&mut self, index: u64, entry: &Entry) -> Result<(), Trouble> {
        let session = self.session;
        let open = || -> io::Result<(File, DataGroups, bool)> {
            let file = session.source.open(&entry.path)?;
            let groups = DataGroups::new(&file, entry.size)?;
            let is_same = Identity::of(&file.metadata()?) == entry.identity;
            Ok((file, groups, is_same))
        };
        let (file, groups, is_same) = open().map_err(|error| Trouble::File(read_error(&error)))?;
        if !is_same {
            return Err(Trouble::Changed);
        }
        let mut hashes = Vec::new();
        for group in groups {
            let len = group_len(entry.size, group);
            let read = session
                .live
                .times
                .of(Work::Disk, || self.read(&file, group * GROUP, len));
            match read {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(Trouble::Changed),
                Err(error) => return Err(Trouble::File(read_error(&error))),
            }
            if !is_zero(&self.room) {
                hashes.push((group, session.live.times.of(Work::Cpu, || Hash::of(&self.room))));
            }
            if hashes.len() >= MAX_HASHES {
                let message = FromSender::Hashes(index, false, std::mem::take(&mut hashes));
                session.say(&message).map_err(|error| lost(&error))?;
            }
            if session.live.stop().is_set() {
                return Ok(());
            }
        }
        session.window.await_again(index);
        let message = FromSender::Hashes(index, true, hashes);
        session.say(&message).map_err(|error| lost(&error).into())
    }
}
