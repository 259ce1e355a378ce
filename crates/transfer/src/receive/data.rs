//! Frames of data: verified, written, and noted in the journal.

use std::fs::{File, Permissions};
use std::io;
use std::net::TcpStream;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use rustix::fs::{FallocateFlags, Timespec, Timestamps, fallocate, futimens};
use weft_os::clock::unix_s;

use super::{Item, ItemState, MAX_DATA, SILENCE, Session, failed};
use crate::hash::{FileHasher, GROUP, Hash, group_len, groups};
use crate::journal::{GroupSet, KeptFile, Record};
use crate::live::{Failure, Work};
use crate::pack::Unpacker;
use crate::wire::{Form, Frame, WireEntry};

/// How many hashes of a file are in memory at a time.
const AT_ONCE: usize = 1 << 16;

/// The hash that stands for a group of zeros.
const ZERO: Hash = Hash([0; 32]);

impl Item {
    /// What a later try has to know.
    pub(super) fn kept(&self, state: &ItemState) -> (u32, KeptFile) {
        let entry = &self.entry;
        let kept = KeptFile {
            path: entry.path.clone(),
            size: entry.size,
            mtime_s: entry.mtime_s,
            mtime_ns: entry.mtime_ns,
            identity: [0; 48],
            groups: state.groups.clone(),
            stored: None,
        };
        (self.number, kept)
    }
}

impl Session {
    /// Receives the frames of a connection until its end.
    pub fn serve_data(&self, stream: &Arc<TcpStream>) {
        if self.connections.fetch_add(1, Ordering::AcqRel) < MAX_DATA {
            self.live.stop().add(stream);
            match self.frames(stream) {
                // The control connection tells why.
                Ok(()) | Err(None) => {}
                Err(Some(failure)) => self.fail(failure),
            }
            self.live.stop().forget(stream);
        }
        self.connections.fetch_sub(1, Ordering::AcqRel);
        self.changed.notify_all();
    }

    /// Takes frames; an error of `None`: the connection has ended.
    fn frames(&self, stream: &TcpStream) -> Result<(), Option<Failure>> {
        let lost = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => None,
            _ => Some(failed("the connection is lost", &error)),
        };
        let mut room = Vec::new();
        let mut unpacker = None;
        let mut from = stream;
        loop {
            // Between frames the control connection tells whether the other end is there.
            stream.set_read_timeout(None).map_err(lost)?;
            let frame = self.live.times.of(Work::Net, || Frame::next(&mut from));
            let Some(frame) = frame.map_err(lost)? else {
                return Ok(());
            };
            stream.set_read_timeout(Some(SILENCE)).map_err(lost)?;
            room.resize(frame.len as usize, 0);
            let Some(item) = self.item_of(frame.entry, frame.changes)? else {
                self.read(&mut from, &mut room, 0)?.map_err(lost)?;
                continue;
            };
            // What is compressed counts as what it becomes.
            let more = match frame.form {
                Form::Packed => group_len(item.entry.size, frame.group).saturating_sub(room.len()),
                Form::Plain | Form::Zero => 0,
            };
            self.read(&mut from, &mut room, more as u64)?.map_err(lost)?;
            let bytes = match frame.form {
                Form::Packed => self.unpack(&item, &frame, &room, &mut unpacker)?,
                Form::Plain | Form::Zero => &room,
            };
            self.take(&item, &frame, bytes)?;
        }
    }

    /// Reads the bytes of a frame, within the limits. `more` is how much longer its group is.
    fn read(&self, from: &mut impl io::Read, room: &mut [u8], more: u64) -> Result<io::Result<()>, Failure> {
        if let Some((keeper, npub)) = &self.terms.keeper {
            let taken = keeper.take(npub, room.len() as u64 + more, unix_s());
            taken.map_err(Failure::Retry)?;
        }
        let len = room.len();
        let mut at = 0;
        while at < len {
            // A connection that stands still for long would look dead.
            let piece = self.terms.paces.piece(len - at);
            let Some(piece) = room.get_mut(at..at + piece) else {
                break;
            };
            self.live.keep_to(&self.terms.paces, piece.len() as u64);
            let read = self.live.times.of(Work::Net, || from.read_exact(piece));
            if read.is_err() {
                return Ok(read);
            }
            self.live.moved.add(piece.len() as u64);
            at += piece.len();
        }
        self.live.moved.add(more);
        self.live.saved.add(more);
        Ok(Ok(()))
    }

    /// Takes a compressed group apart.
    fn unpack<'a>(
        &self,
        item: &Item,
        frame: &Frame,
        bytes: &[u8],
        unpacker: &'a mut Option<Unpacker>,
    ) -> Result<&'a [u8], Failure> {
        let no_room = |error| failed("there is no room to decompress", &error);
        let unpacker = match unpacker {
            Some(unpacker) => unpacker,
            none => none.insert(Unpacker::new().map_err(no_room)?),
        };
        let len = group_len(item.entry.size, frame.group);
        let unpacked = self.live.times.of(Work::Cpu, || unpacker.unpack(bytes, len));
        let unpacked = unpacked.map_err(|_| {
            Failure::Fatal(
                "the other end sent compressed data that are damaged, or more or less than a group".to_owned(),
            )
        })?;
        Ok(unpacked)
    }

    fn take(&self, item: &Item, frame: &Frame, bytes: &[u8]) -> Result<(), Failure> {
        let (size, name) = (item.entry.size, || item.entry.path.display());
        let len = group_len(size, frame.group);
        let zero = frame.form == Form::Zero;
        let expected = if zero { 0 } else { len };
        if frame.group >= groups(size) || bytes.len() != expected || zero && size <= GROUP {
            return Err(Failure::Fatal(format!(
                "the other end sent more or less of {} than it announced",
                name()
            )));
        }
        if item.lock().frames > groups(size).saturating_mul(3).saturating_add(64) {
            return Err(Failure::Fatal(format!(
                "the other end sends {} again and again",
                name()
            )));
        }
        let hash = self.live.times.of(Work::Cpu, || match zero {
            true => ZERO,
            false => Hash::of(bytes),
        });
        if hash != frame.hash {
            return Err(Failure::Fatal(format!(
                "the data of {} do not have the hash that came with them",
                name()
            )));
        }
        let stored = match size <= GROUP {
            true => self.store_small(frame.entry, item, bytes),
            false => self.store_group(frame, item, bytes),
        };
        stored.map_err(|error| failed(&format!("{} cannot be written", name()), &error))?;
        match size > GROUP {
            true => self.complete_if_all(frame.entry, item),
            false => Ok(()),
        }
    }

    fn store_small(&self, index: u64, item: &Item, bytes: &[u8]) -> io::Result<()> {
        let closed = item.is_closed.read().unwrap_or_else(PoisonError::into_inner);
        if *closed {
            return Ok(());
        }
        let mut state = item.lock();
        if std::mem::replace(&mut state.is_done, true) {
            return Ok(());
        }
        self.live.times.of(Work::Disk, || -> io::Result<()> {
            let file = self.stage.tree.create_new(&item.entry.path)?;
            file.write_all_at(bytes, 0)?;
            self.complete(&file, &item.entry)
        })?;
        drop(state);
        self.live.bytes.add(bytes.len() as u64);
        self.done(index);
        Ok(())
    }

    fn store_group(&self, frame: &Frame, item: &Item, bytes: &[u8]) -> io::Result<()> {
        let closed = item.is_closed.read().unwrap_or_else(PoisonError::into_inner);
        if *closed {
            // It was under way when the file changed.
            return Ok(());
        }
        let (at, zero) = (frame.group * GROUP, frame.form == Form::Zero);
        let (number, index, hash) = (item.number, frame.group, frame.hash);
        let is_held = item.lock().groups.contains(index);
        if zero && !is_held {
            // It is zero already.
            item.lock().frames += 1;
            return Ok(());
        }
        if is_held {
            // What is written over counts no more, even if only the new bytes reach the disk before the power fails.
            let mut journal = self.journal();
            journal.append(&Record::Group {
                number,
                index,
                hash: ZERO,
            })?;
            journal.flush()?;
        }
        self.live.times.of(Work::Disk, || -> io::Result<()> {
            let file = self.stage.tree.open_rw(&item.entry.path)?;
            match zero {
                true => clear(&file, at, group_len(item.entry.size, index) as u64)?,
                false => file.write_all_at(bytes, at)?,
            }
            self.journal().append(&Record::Group { number, index, hash })
        })?;
        let mut state = item.lock();
        let len = group_len(item.entry.size, index) as u64;
        state.frames += 1;
        let is_new = match zero {
            true => !state.groups.remove(index),
            false => state.groups.insert(index),
        };
        match (zero, is_new) {
            (false, true) => {
                state.counted += len;
                self.live.bytes.add(len);
            }
            (true, false) => {
                state.counted -= len;
                self.live.bytes.take_back(len);
            }
            _ => {}
        }
        Ok(())
    }

    /// Handles the hash of a file.
    pub(super) fn expect(&self, index: u64, frames: u64, hash: Hash) -> Result<(), Failure> {
        let item = self.item(index)?;
        if item.entry.size <= GROUP {
            return Err(Failure::Fatal("the other end sent a hash that no file has".to_owned()));
        }
        item.lock().expected = Some((frames, hash));
        self.complete_if_all(index, &item)
    }

    /// Completes a file if all of its groups are there.
    fn complete_if_all(&self, index: u64, item: &Item) -> Result<(), Failure> {
        let mut state = item.lock();
        let Some((frames, hash)) = state.expected else {
            return Ok(());
        };
        if state.is_done || state.frames < frames {
            return Ok(());
        }
        state.is_done = true;
        let rest = item.entry.size - state.counted;
        let held = state.groups.clone();
        drop(state);
        let name = item.entry.path.display();
        let storing = |error: io::Error| failed(&format!("{name} cannot be written"), &error);
        if self.hash_of(item, &held).map_err(storing)? != hash {
            self.forget(item)?;
            // It may have changed at one end without a sign: all of it comes again.
            return Err(Failure::Retry(format!(
                "{name} does not have the hash that the other end says; it comes anew"
            )));
        }
        let stored = || -> io::Result<()> {
            let file = self.stage.tree.open_rw(&item.entry.path)?;
            self.complete(&file, &item.entry)?;
            let number = item.number;
            self.journal().append(&Record::Stored { number, hash })
        };
        stored().map_err(storing)?;
        self.live.bytes.add(rest);
        self.done(index);
        Ok(())
    }

    /// Computes the hash of a file from those of its groups.
    fn hash_of(&self, item: &Item, held: &GroupSet) -> io::Result<Hash> {
        let mut hasher = FileHasher::new(item.entry.size);
        let mut held = held.ranges().flatten();
        while let Some(from) = held.next() {
            let to = 1 + held.by_ref().take(AT_ONCE).last().unwrap_or(from);
            let hashes = self.journal().hashes_since(item.since, item.number, from, to)?;
            hashes.iter().for_each(|(group, hash)| hasher.add(*group, hash));
        }
        Ok(hasher.finish())
    }

    /// Gives a file that is whole its permissions and its time.
    pub(super) fn complete(&self, file: &File, entry: &WireEntry) -> io::Result<()> {
        file.set_permissions(Permissions::from_mode(u32::from(entry.mode)))?;
        set_time(file, entry.mtime_s, entry.mtime_ns)
    }

    /// Removes what is staged of a file.
    pub(super) fn forget(&self, item: &Item) -> Result<(), Failure> {
        let removed = || -> io::Result<()> {
            if item.entry.size > GROUP {
                self.journal().append(&Record::Forget { number: item.number })?;
            }
            match self.stage.tree.remove_file(&item.entry.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        };
        removed().map_err(|error| failed("a file that was not finished cannot be removed", &error))
    }
}

/// Sets the time of the last change.
fn set_time(file: &File, seconds: i64, nanoseconds: u32) -> io::Result<()> {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds.into(),
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    Ok(futimens(file, &times)?)
}

/// Makes a range zero, as a hole where the file system can.
pub(super) fn clear(file: &File, at: u64, len: u64) -> io::Result<()> {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match fallocate(file, hole, at, len) {
        Ok(()) => Ok(()),
        Err(_) => file.write_all_at(&vec![0; usize::try_from(len).unwrap_or(0)], at),
    }
}
