//! The fuzz target of the bytes that other ends of a transfer, and damaged disks, hold.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{MemfdFlags, memfd_create};
use weft_transfer::journal::Journal;
use weft_transfer::names::{RelPath, link_stays_inside, numbered};
use weft_transfer::wire::{Frame, FromReceiver, FromSender, Prelude, message, request};

/// Reads the bytes behind the first one as what that one says: a message of either end, the beginning of a connection,
/// a name, a journal, a request or its answer.
///
/// # Panics
/// If a value is written differently from what it was read from, a name leads out of a folder, or damage of a journal
/// brings back what was not written.
pub fn transfer(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    match kind % 6 {
        0 => from_sender(rest),
        1 => from_receiver(rest),
        2 => connection(rest),
        3 => name(rest),
        4 => journal(rest),
        _ => request(rest),
    }
}

fn from_sender(bytes: &[u8]) {
    let Ok(read) = FromSender::parse(bytes) else { return };
    if let FromSender::Entries(_, entries) = &read {
        for entry in entries {
            assert!(entry.path.components().all(|part| !matches!(part, b"" | b"." | b"..")));
            assert!(entry.target.is_empty() || link_stays_inside(&entry.path, &entry.target));
        }
    }
    // The reader replaces bytes outside of UTF-8, so the second reading is compared with the first.
    let again = FromSender::parse(&read.to_bytes());
    assert_eq!(again.as_ref(), Ok(&read));
}

fn from_receiver(bytes: &[u8]) {
    let Ok(read) = FromReceiver::parse(bytes) else { return };
    assert_eq!(FromReceiver::parse(&read.to_bytes()).as_ref(), Ok(&read));
}

fn request(bytes: &[u8]) {
    if let Ok(read) = request::Request::parse(bytes) {
        assert_eq!(request::Request::parse(&read.to_bytes()).as_ref(), Ok(&read));
    }
    if let Ok(read) = request::Answer::parse(bytes) {
        assert_eq!(request::Answer::parse(&read.to_bytes()).as_ref(), Ok(&read));
    }
}

/// A connection: its prelude, then frames; and as messages.
fn connection(bytes: &[u8]) {
    let mut left = bytes;
    while let Ok(message) = message::read(&mut left) {
        assert!(!message.is_empty() && message.len() <= message::MAX_MESSAGE);
    }
    let Some((prelude, mut left)) = bytes.split_first_chunk::<{ Prelude::LEN }>() else {
        return;
    };
    if let Ok(read) = Prelude::parse(prelude) {
        assert_eq!(read.to_bytes(), *prelude);
    }
    while let Ok(Some(frame)) = Frame::next(&mut left) {
        let head = frame.to_bytes();
        assert_eq!(Frame::parse(&head), Ok(frame));
        left = left.get(frame.len as usize..).unwrap_or_default();
    }
}

fn name(bytes: &[u8]) {
    let Ok(path) = RelPath::new(bytes) else { return };
    assert_eq!(path.as_bytes(), bytes);
    assert!(!path.display().chars().any(char::is_control));
    let second = numbered(path.name(), 2);
    assert!(second != path.name() && RelPath::own(&second).is_ok(), "{second:?}");
}

/// A journal of any bytes, opened, written to, and opened again under the same and another boot.
fn journal(bytes: &[u8]) {
    let file = File::from(memfd_create("journal", MemfdFlags::CLOEXEC).unwrap());
    file.write_all_at(bytes, 0).unwrap();
    let (mut opened, kept) = Journal::open(file.try_clone().unwrap(), [1; 16]).unwrap();
    opened.sync().unwrap();
    for (number, file) in &kept.files {
        let hashes = opened.hashes(*number, 0, u64::MAX).unwrap();
        assert!(hashes.keys().all(|group| file.groups.contains(*group)));
        assert_eq!(hashes.len() as u64, file.groups.len());
    }
    for boot in [[1; 16], [2; 16]] {
        let (_, again) = Journal::open(file.try_clone().unwrap(), boot).unwrap();
        assert_eq!((again.files, again.moved), (kept.files.clone(), kept.moved.clone()));
    }
}
