//! A sending end that says whatever a test wants.

use std::io::{self, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use weft_transfer::api::TransferId;
use weft_transfer::hash::{FileHasher, GROUP, Hash, group_len, is_zero};
use weft_transfer::live::{Failure, Live};
use weft_transfer::names::RelPath;
use weft_transfer::receive::{Session, Terms};
use weft_transfer::walk::EntryKind;
use weft_transfer::wire::{Form, Frame, FromReceiver, FromSender, Hello, Verdict, WireEntry, message};

/// The identity of all transfers of these tests.
pub(crate) const ID: TransferId = TransferId([7; 16]);

/// The names at the top that these tests send.
const NAMES: &[&str] = &[
    "a", "a.txt", "b", "big", "c", "d", "e", "f", "gone", "huge", "kept", "small", "sparse",
];

/// A time limit for what takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Both ends of a connection.
pub(crate) fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    one.set_read_timeout(Some(PATIENCE)).unwrap();
    (one, other)
}

/// A transfer in which the test is the sender.
pub(crate) struct Sender {
    control: TcpStream,
    data: TcpStream,
    session: Arc<Session>,
    receiver: Option<JoinHandle<Result<(), Failure>>>,
    pub(crate) live: Arc<Live>,
}

/// A folder that gets files.
pub(crate) struct Folder(pub(crate) tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// All names below it, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut left = vec![self.0.path().to_owned()];
        while let Some(folder) = left.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    left.push(entry.path());
                }
                let name = entry.path().strip_prefix(self.0.path()).unwrap().to_owned();
                names.push(name.to_string_lossy().into_owned());
            }
        }
        names.sort();
        names
    }

    /// Whether something is staged.
    pub(crate) fn has_rest(&self) -> bool {
        self.names().iter().any(|name| name.contains(".weft-part-"))
    }
}

pub(crate) fn hello(overwrite: bool) -> Hello {
    Hello {
        id: ID,
        overwrite,
        entries: None,
        bytes: None,
        disk: None,
        into: Vec::new(),
        names: NAMES.iter().map(|name| name.as_bytes().to_vec()).collect(),
    }
}

/// Written where it leaves nothing, when the process is to keep that everything is stored.
pub(crate) const STORED: &[u8] = b"all is stored";

fn keep() -> io::Result<()> {
    std::fs::write("/dev/null", STORED)
}

impl Sender {
    pub(crate) fn start(folder: &Path) -> Self {
        Self::start_with(folder, &hello(false))
    }

    pub(crate) fn start_with(folder: &Path, hello: &Hello) -> Self {
        Self::begin(folder, hello, Terms::default(), keep)
    }

    /// Starts one whose end the process cannot keep, as if it ended there.
    pub(crate) fn start_unkept(folder: &Path) -> Self {
        let unkept = || Err(io::Error::other("it ends"));
        Self::begin(folder, &hello(false), Terms::default(), unkept)
    }

    pub(crate) fn start_with_terms(folder: &Path, terms: Terms) -> Self {
        Self::begin(folder, &hello(false), terms, keep)
    }

    fn begin(folder: &Path, hello: &Hello, terms: Terms, stored: fn() -> io::Result<()>) -> Self {
        let (control, theirs) = pair();
        let (data, their_data) = pair();
        let live = Arc::new(Live::default());
        let theirs = Arc::new(theirs);
        let session = Session::new(Arc::clone(&live), theirs, hello, folder, "").unwrap();
        let session = Arc::new(session.with_terms(terms));
        let run = Arc::clone(&session);
        let receiver = thread::spawn(move || run.run(&stored));
        let serve = Arc::clone(&session);
        thread::spawn(move || serve.serve_data(&Arc::new(their_data)));
        Self {
            control,
            data,
            session,
            receiver: Some(receiver),
            live,
        }
    }

    /// Says something on the control connection.
    pub(crate) fn say(&mut self, message: &FromSender) {
        self.say_raw(&message.to_bytes());
    }

    pub(crate) fn say_raw(&mut self, bytes: &[u8]) {
        message::write(&mut self.control, bytes).unwrap();
    }

    /// Sends a frame as it is.
    pub(crate) fn send(&mut self, frame: &Frame, bytes: &[u8]) -> io::Result<()> {
        frame.write(&mut self.data, bytes)
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.data.write_all(bytes).unwrap();
    }

    /// Sends a group with its hash.
    pub(crate) fn group(&mut self, entry: u64, group: u64, bytes: &[u8]) {
        self.send(&frame(entry, group, bytes), bytes).unwrap();
    }

    /// The next message that is no progress.
    pub(crate) fn hear(&mut self) -> FromReceiver {
        loop {
            let bytes = message::read(&mut self.control).unwrap();
            match FromReceiver::parse(&bytes).unwrap() {
                FromReceiver::Progress(..) | FromReceiver::Alive => {}
                other => return other,
            }
        }
    }

    /// Announces entries, the first with this number, and returns the verdicts.
    pub(crate) fn announce(&mut self, first: u64, entries: &[WireEntry]) -> Vec<Verdict> {
        self.say(&FromSender::Entries(first, entries.to_vec()));
        let mut all = Vec::new();
        while all.len() < entries.len() {
            match self.hear() {
                FromReceiver::Verdicts(_, verdicts) => all.extend(verdicts),
                other => panic!("{other:?}"),
            }
        }
        all
    }

    /// Ends the list and waits for the end. Returns the notes before it.
    pub(crate) fn finish(mut self, entries: u64, bytes: u64) -> Vec<String> {
        self.say(&FromSender::End(entries, bytes));
        let mut notes = Vec::new();
        loop {
            match self.hear() {
                FromReceiver::Syncing => {}
                FromReceiver::Note(_, what) => notes.push(what),
                FromReceiver::Done => break,
                other => panic!("{other:?}"),
            }
        }
        self.receiver.take().unwrap().join().unwrap().unwrap();
        notes
    }

    /// Waits until the receiver has ended without everything.
    pub(crate) fn ended(mut self) -> Failure {
        self.receiver.take().unwrap().join().unwrap().unwrap_err()
    }

    /// Waits until the receiver has refused the transfer; returns its words.
    pub(crate) fn refused(self) -> String {
        let failure = self.ended();
        assert!(matches!(failure, Failure::Fatal(_)), "{failure:?}");
        let words = failure.words().to_owned();
        assert_eq!(words.lines().count(), 1, "{words}");
        words
    }

    /// Ends the connection without a message, and waits for the receiver.
    pub(crate) fn vanish(mut self) {
        drop((
            self.control.shutdown(std::net::Shutdown::Both),
            self.data.shutdown(std::net::Shutdown::Both),
        ));
        let failure = self.receiver.take().unwrap().join().unwrap().unwrap_err();
        assert!(matches!(failure, Failure::Retry(_)), "{failure:?}");
    }

    /// Adds a further data connection; returns this end of it.
    pub(crate) fn further(&self) -> TcpStream {
        let (data, theirs) = pair();
        let serve = Arc::clone(&self.session);
        thread::spawn(move || serve.serve_data(&Arc::new(theirs)));
        data
    }
}

/// The frame of a group.
pub(crate) fn frame(entry: u64, group: u64, bytes: &[u8]) -> Frame {
    Frame {
        entry,
        group,
        len: bytes.len() as u32,
        form: Form::Plain,
        changes: 0,
        hash: Hash::of(bytes),
    }
}

pub(crate) fn folder(path: &str) -> WireEntry {
    WireEntry {
        kind: EntryKind::Dir,
        mode: 0o755,
        mtime_s: 1_600_000_000,
        mtime_ns: 5,
        size: 0,
        path: RelPath::new(path.as_bytes()).unwrap(),
        target: Vec::new(),
    }
}

pub(crate) fn file(path: &str, size: u64) -> WireEntry {
    WireEntry {
        kind: EntryKind::File,
        mode: 0o640,
        size,
        ..folder(path)
    }
}

pub(crate) fn link(path: &str, target: &str) -> WireEntry {
    WireEntry {
        kind: EntryKind::Link,
        target: target.as_bytes().to_vec(),
        ..folder(path)
    }
}

/// Bytes that differ from group to group.
pub(crate) fn content(size: u64, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let next = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..size).map(next).collect()
}

/// The groups of a file that are not zero, and its hash.
pub(crate) fn groups(bytes: &[u8]) -> (Vec<(u64, Vec<u8>)>, Hash) {
    let size = bytes.len() as u64;
    let mut hasher = FileHasher::new(size);
    let mut all = Vec::new();
    for (index, group) in (0..).zip(bytes.chunks(GROUP as usize)) {
        assert_eq!(group.len(), group_len(size, index));
        if !is_zero(group) {
            hasher.add(index, &Hash::of(group));
            all.push((index, group.to_vec()));
        }
    }
    (all, hasher.finish())
}
