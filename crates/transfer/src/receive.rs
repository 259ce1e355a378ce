//! The end that receives: it decides about each entry, verifies each group as it arrives, and gives files their names
//! once all of them are on the disk.

mod commit;
mod compare;
mod data;
mod decide;
mod folders;
mod moves;
mod only;
mod stage;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use self::compare::Comparison;
use self::folders::Folders;
use self::moves::Moves;
pub use self::only::Only;
use self::stage::Stage;
use crate::api::{TransferId, TransferState};
use crate::hash::Hash;
use crate::journal::{GroupSet, Journal, KeptFile, boot_id};
use crate::least::{Least, Watch};
use crate::limits::Keeper;
use crate::link::{self, Until};
use crate::live::{Failure, LIMIT, Live, Reason};
use crate::names::{self, RelPath, STAGED};
use crate::pace::Paces;
use crate::root::Root;
use crate::send::{ALIVE, SAMPLE, SILENCE, plain};
use crate::wire::message::{self, Ended};
use crate::wire::{FromReceiver, FromSender, Hello, WireEntry, WireError};

/// Time limit of the greeting.
const GREETING: Duration = Duration::from_secs(10);
/// The most entries that may wait for data: twice what a sender of this version announces.
const MAX_WAITING: usize = 8_192;
/// The most connections with data of one transfer.
pub const MAX_DATA: usize = 8;
/// The most frames of entries that do not wait for them: those that were under way when a file changed.
const MAX_STRAYS: u32 = 64;
/// How often a file may change while it is sent.
const MAX_CHANGES: u8 = 8;
/// The pause between two points from which a transfer goes on after a loss of power.
const CHECKPOINT: Duration = Duration::from_secs(30);

/// What the sending end gets to know about an entry that the user here has not chosen.
pub(crate) const NOT_WANTED: &str = "not wanted at the receiving end";

/// What the user here has set for a transfer, and chosen of it.
#[derive(Debug, Default)]
pub struct Terms {
    /// The limits of bytes a second.
    pub paces: Paces,
    /// The least speed.
    pub least: Least,
    /// The quotas and the free space, and the npub of the peer.
    pub keeper: Option<(Arc<Keeper>, String)>,
    /// The names at the top that are wanted; `None` for all.
    pub only: Option<Only>,
    /// The socket of the daemon, which knows the path, and the npub of the peer.
    pub path: Option<(PathBuf, String)>,
}

/// How much more than was announced may come in any case, in bytes.
const GROWTH: u64 = 64 << 20;
/// Reads the greeting of a control connection.
///
/// # Errors
/// Why there is none.
pub fn greet(stream: &TcpStream) -> io::Result<Hello> {
    stream.set_write_timeout(Some(SILENCE))?;
    let bytes = message::read(&mut Until(stream, Instant::now() + GREETING))?;
    match FromSender::parse(&bytes)? {
        FromSender::Hello(hello) => Ok(hello),
        _ => Err(WireError::new("no greeting").into()),
    }
}

/// Sends a message of the receiving end.
///
/// # Errors
/// Those of the connection.
pub fn tell(stream: &TcpStream, message: &FromReceiver) -> io::Result<()> {
    message::write(&mut &*stream, &message.to_bytes())
}

/// Says that this end does not go on, and why.
pub(crate) fn tell_end(stream: &TcpStream, failure: &Failure) {
    // The other end may have gone.
    let _ = tell(stream, &end_of(failure));
}

/// Returns the folder in which a transfer is staged.
fn staging(id: &TransferId) -> io::Result<RelPath> {
    let name = [STAGED, id.to_string().as_bytes()].concat();
    RelPath::own(&name).map_err(io::Error::other)
}

/// Removes what is kept of a transfer that ends before it is done.
///
/// # Errors
/// Those of the system.
pub fn discard(folder: &Path, into: &str, id: &TransferId) -> io::Result<()> {
    let mut root = Root::open(folder)?;
    if !into.is_empty() {
        let into = RelPath::new(into.as_bytes()).map_err(io::Error::other)?;
        root = root.enter(&into)?;
    }
    root.remove_all(&staging(id)?)
}

/// Returns the folder below that of the user; no link leads there.
fn below(root: Root, into: &str) -> io::Result<Root> {
    if into.is_empty() {
        return Ok(root);
    }
    let into = RelPath::new(into.as_bytes()).map_err(io::Error::other)?;
    root.make_dirs(&into)?;
    root.enter(&into)
}

/// A transfer that is received.
#[derive(Debug)]
pub struct Session {
    live: Arc<Live>,
    control: Arc<TcpStream>,
    writes: Mutex<()>,
    terms: Terms,
    id: TransferId,
    overwrite: bool,
    /// The names at the top that were offered.
    offered: BTreeSet<Vec<u8>>,
    /// The most bytes that may come.
    most: u64,
    stage: Stage,
    journal: Mutex<Journal>,
    memory: Mutex<Memory>,
    waiting: Mutex<Waiting>,
    changed: Condvar,
    connections: AtomicUsize,
    /// The files that are being compared.
    comparing: AtomicUsize,
    /// Whether a limit of the sending end holds it up.
    limited_there: AtomicBool,
}

/// What earlier tries have left.
#[derive(Debug)]
struct Memory {
    files: BTreeMap<RelPath, (u32, KeptFile)>,
    moves: Moves,
    next: u32,
    folders: Folders,
}

/// The entries that are announced and not yet done.
#[derive(Debug, Default)]
struct Waiting {
    items: BTreeMap<u64, Arc<Item>>,
    next: u64,
    /// The numbers of entries and bytes, once announced.
    end: Option<(u64, u64)>,
    /// Frames of entries that did not wait for them.
    strays: u32,
    /// The bytes of all files so far.
    bytes: u64,
}

/// An entry that waits for data.
#[derive(Debug)]
struct Item {
    entry: WireEntry,
    /// Its number in the journal, if it has more than one group.
    number: u32,
    /// How often it has changed since it was announced.
    changes: u8,
    /// Where its records begin in the journal.
    since: u64,
    /// Whether nothing is stored for it any more. Who stores holds it for reading.
    is_closed: RwLock<bool>,
    state: Mutex<ItemState>,
}

#[derive(Debug, Default)]
struct ItemState {
    groups: GroupSet,
    /// Bytes that count as stored.
    counted: u64,
    /// The frames that have come.
    frames: u64,
    /// How many frames there are, and its hash.
    expected: Option<(u64, Hash)>,
    /// Whether the other end was asked for hashes, to compare them with a file that exists.
    awaits_hashes: bool,
    /// The comparison with that file.
    comparison: Option<Comparison>,
    is_done: bool,
}

impl Item {
    fn lock(&self) -> MutexGuard<'_, ItemState> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Words and kind of a failure of the system at this end.
fn failed(what: &str, error: &io::Error) -> Failure {
    if let Some(fault) = error.get_ref().and_then(|inner| inner.downcast_ref::<WireError>()) {
        return Failure::Fatal(fault.to_string());
    }
    match error.kind() {
        io::ErrorKind::StorageFull => Failure::Retry("the disk is full at the receiving end".to_owned()),
        io::ErrorKind::QuotaExceeded => Failure::Retry("the quota of the receiving user is used up".to_owned()),
        io::ErrorKind::ReadOnlyFilesystem => Failure::Retry("the folder of the receiving user is read-only".to_owned()),
        _ => Failure::Retry(format!("{what} at the receiving end ({error})")),
    }
}

impl Session {
    /// Prepares the folder for a transfer.
    ///
    /// # Errors
    /// Why nothing can be received.
    pub fn new(
        live: Arc<Live>,
        control: Arc<TcpStream>,
        hello: &Hello,
        folder: &Path,
        into: &str,
    ) -> Result<Self, Failure> {
        let prepared = || -> io::Result<(Stage, Journal, Memory)> {
            let stage = Stage::open(folder, into, &hello.id)?;
            let (journal, kept) = Journal::open(stage.journal()?, boot_id())?;
            let next = kept.files.keys().next_back().map_or(0, |last| last + 1);
            let files = kept.files.into_iter();
            let memory = Memory {
                moves: Moves::new(kept.moved, &stage)?,
                files: files
                    .map(|(number, file)| (file.path.clone(), (number, file)))
                    .collect(),
                next,
                folders: Folders::new(stage.fresh(b"folders")?),
            };
            Ok((stage, journal, memory))
        };
        let (stage, journal, memory) = prepared().map_err(|error| {
            tracing::info!(folder = %folder.display(), into, %error, "a transfer cannot be stored");
            match error.kind() {
                io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory if !into.is_empty() => Failure::Fatal(
                    format!("{} is no folder at the receiving end", names::display(into.as_bytes())),
                ),
                _ => failed("the folder of the user cannot be used", &error),
            }
        })?;
        live.set_totals(hello.entries, hello.bytes);
        Ok(Self {
            live,
            control,
            writes: Mutex::new(()),
            terms: Terms::default(),
            id: hello.id,
            overwrite: hello.overwrite,
            offered: hello.names.iter().cloned().collect(),
            most: most(hello.bytes),
            stage,
            journal: Mutex::new(journal),
            memory: Mutex::new(memory),
            waiting: Mutex::default(),
            changed: Condvar::new(),
            connections: AtomicUsize::new(0),
            comparing: AtomicUsize::new(0),
            limited_there: AtomicBool::new(false),
        })
    }

    /// Adds what the user has set and chosen.
    #[must_use]
    pub fn with_terms(mut self, terms: Terms) -> Self {
        self.terms = terms;
        self
    }

    fn say(&self, message: &FromReceiver) -> io::Result<()> {
        // No code panics while it holds the lock.
        let _one_at_a_time = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        tell(&self.control, message)
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        // No code panics while it holds the lock.
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // No code panics while it holds the lock.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // No code panics while it holds the lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, failure: Failure) {
        self.live.stop().stop(Reason::Failed(failure));
        self.changed.notify_all();
    }

    /// Receives until everything is stored. `stored` keeps that, before the sender is told.
    ///
    /// # Errors
    /// How the try failed; the sender has been told.
    pub fn run(&self, stored: &dyn Fn() -> io::Result<()>) -> Result<(), Failure> {
        let result = thread::scope(|scope| {
            scope.spawn(|| self.tick());
            let messages = scope.spawn(|| self.listen());
            let result = self.finish(stored);
            self.live.stop().stop(Reason::Shutdown);
            // The other connections have ended with the transfer; this one has told why.
            let _ = self.control.shutdown(Shutdown::Both);
            let _ = messages.join();
            result
        });
        // Threads with data end with their connections.
        let mut waiting = self.waiting();
        while self.connections.load(Ordering::Acquire) > 0 {
            waiting = match self.changed.wait_timeout(waiting, SAMPLE) {
                Ok((waiting, _)) => waiting,
                Err(error) => error.into_inner().0,
            };
        }
        drop(waiting);
        result
    }

    /// Waits until all entries are there, then stores them.
    fn finish(&self, stored: &dyn Fn() -> io::Result<()>) -> Result<(), Failure> {
        let waited = self.wait_for_all();
        let done = waited.and_then(|()| {
            self.live.set(TransferState::Syncing, None);
            // The end of the connection shows in the next step.
            let _ = self.say(&FromReceiver::Syncing);
            self.commit()?;
            stored().map_err(|error| failed("the state of the transfer cannot be kept", &error))?;
            // No sooner: a try that does not know that all is there would give second names.
            self.tidy();
            Ok(())
        });
        let last = match &done {
            Ok(()) => FromReceiver::Done,
            Err(failure) => end_of(failure),
        };
        self.say_progress(&mut self.live.times.now());
        let _ = self.say(&last);
        done
    }

    fn wait_for_all(&self) -> Result<(), Failure> {
        let mut waiting = self.waiting();
        loop {
            match self.live.stop().reason() {
                None => {}
                Some(Reason::Failed(failure)) => return Err(failure),
                Some(Reason::Cancel) => return Err(Failure::Cancelled("cancelled at the receiving end".to_owned())),
                Some(Reason::Pause) => return Err(Failure::Retry("paused at the receiving end".to_owned())),
                Some(Reason::Shutdown) => return Err(Failure::Retry("the receiving end stops".to_owned())),
            }
            let complete = waiting.end.is_some_and(|(entries, _)| entries == waiting.next);
            if complete && waiting.items.is_empty() {
                return Ok(());
            }
            waiting = match self.changed.wait_timeout(waiting, SAMPLE) {
                Ok((waiting, _)) => waiting,
                Err(error) => error.into_inner().0,
            };
        }
    }

    /// Handles what the sending end says, until its connection ends.
    fn listen(&self) {
        // Time limits of the greeting and of the wait for consent end here.
        let limited = self.control.set_read_timeout(Some(SILENCE));
        if let Err(error) = limited {
            return self.fail(failed("the connection is lost", &error));
        }
        let mut from = io::BufReader::new(&*self.control);
        let failure = loop {
            let handled = message::read(&mut from)
                .and_then(|bytes| Ok(FromSender::parse(&bytes)?))
                .map_err(|error| match error.kind() {
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                        Failure::Retry("the sender has ended the connection, and comes again".to_owned())
                    }
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        Failure::Retry("the connection fell silent".to_owned())
                    }
                    _ => failed("the connection is lost", &error),
                })
                .and_then(|message| self.handle(message));
            if let Err(failure) = handled {
                break failure;
            }
        };
        self.fail(failure);
    }

    fn handle(&self, message: FromSender) -> Result<(), Failure> {
        // What the other end says of itself moves nothing.
        if !matches!(message, FromSender::Alive | FromSender::Limited(..)) {
            self.live.steps.add(1);
        }
        let fault = |what: &str| Err(Failure::Fatal(format!("the other end sent {what}")));
        match message {
            FromSender::Hello(_) => fault("a second greeting"),
            FromSender::Entries(first, entries) => self.decide_all(first, entries),
            FromSender::End(entries, bytes) => {
                let mut waiting = self.waiting();
                if waiting.end.is_some() || entries != waiting.next {
                    return fault("another number of entries than it announced");
                }
                waiting.end = Some((entries, bytes));
                drop(waiting);
                self.live.set_totals(Some(entries), Some(bytes));
                self.changed.notify_all();
                Ok(())
            }
            FromSender::Finished(index, groups, hash) => self.expect(index, groups, hash),
            FromSender::Hashes(index, last, hashes) => self.compare(index, last, &hashes),
            FromSender::Gone(index, why) => self.give_up(index, &why),
            FromSender::Changed(index, entry) => self.decide_again(index, entry),
            FromSender::Cancel => Err(Failure::Cancelled("cancelled at the sending end".to_owned())),
            FromSender::Alive => Ok(()),
            FromSender::Limited(is_so) => {
                self.limited_there.store(is_so, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    fn item(&self, index: u64) -> Result<Arc<Item>, Failure> {
        let item = self.waiting().items.get(&index).cloned();
        item.ok_or_else(|| Failure::Fatal("the other end sent data that nobody asked for".to_owned()))
    }

    /// The entry of a frame; `None` if the frame comes too late.
    fn item_of(&self, index: u64, changes: u8) -> Result<Option<Arc<Item>>, Failure> {
        let mut waiting = self.waiting();
        match waiting.items.get(&index) {
            Some(item) if item.changes == changes => return Ok(Some(Arc::clone(item))),
            _ if index < waiting.next && waiting.strays < MAX_STRAYS => {}
            _ => {
                return Err(Failure::Fatal(
                    "the other end sent data that nobody asked for".to_owned(),
                ));
            }
        }
        waiting.strays += 1;
        Ok(None)
    }

    /// Notes that an entry is done.
    fn done(&self, index: u64) {
        self.live.entries.add(1);
        self.end_of(index);
    }

    /// Notes that nothing more comes of an entry.
    fn end_of(&self, index: u64) {
        self.waiting().items.remove(&index);
        self.changed.notify_all();
    }

    /// Handles that a file cannot be sent.
    fn give_up(&self, index: u64, why: &str) -> Result<(), Failure> {
        let item = self.item(index)?;
        self.live
            .note(item.entry.path.display(), format!("left out: {}", plain(why)));
        // Waits for what is being stored.
        *item.is_closed.write().unwrap_or_else(PoisonError::into_inner) = true;
        let mut state = item.lock();
        if !std::mem::replace(&mut state.is_done, true) {
            self.live.bytes.take_back(state.counted);
        }
        drop(state);
        self.forget(&item)?;
        self.end_of(index);
        Ok(())
    }

    /// Says now and then how far it is, and that this end is alive; writes what is there to the disk.
    fn tick(&self) {
        let mut said = Instant::now();
        let mut checked = (said, 0);
        let mut sampled = said;
        let mut asked = said;
        let mut before = [0; 4];
        let mut watch = Watch::new(said);
        self.note_path();
        while !self.live.stop().is_set() {
            self.live.stop().wait(SAMPLE / 5);
            let now = Instant::now();
            if now >= asked + SAMPLE * 4 {
                asked = now;
                self.note_path();
            }
            if now >= sampled + SAMPLE {
                sampled = now;
                self.live.sample(now);
                self.say_progress(&mut before);
                self.keep_limits(now);
            }
            self.live.look(&mut watch, &self.terms.least, now);
            if now >= said + ALIVE {
                said = now;
                let _ = self.say(&FromReceiver::Alive);
            }
            let moved = self.live.moved.value();
            if now >= checked.0 + CHECKPOINT && moved != checked.1 {
                checked = (now, moved);
                if let Err(error) = self.checkpoint() {
                    self.fail(failed("the disk cannot be written", &error));
                }
            }
        }
    }

    /// Asks the daemon for the path.
    fn note_path(&self) {
        if let Some((control, npub)) = &self.terms.path {
            let path = link::path(control, npub).map(|(path, _)| path);
            self.live.change(|state| state.path = path);
        }
    }

    fn say_progress(&self, before: &mut [u64; 4]) {
        let [disk, cpu, net, limit] = self.live.times.shares(before);
        let is_limited = limit > 500 || self.limited_there.load(Ordering::Relaxed);
        self.live.change(|state| state.held_up_by = is_limited.then_some(LIMIT));
        // Shares of nothing would look like those of a limit.
        let net = if limit > 0 { net.max(1) } else { net };
        let times = [net, cpu, disk].map(|share| u16::try_from(share).unwrap_or(0));
        let [entries, bytes] = [self.live.entries.value(), self.live.bytes.value()];
        // A lost connection shows where messages are read.
        let _ = self.say(&FromReceiver::Progress(entries, bytes, times));
    }

    /// Ends the transfer if too little space is free; keeps what is used of the quotas.
    fn keep_limits(&self, now: Instant) {
        let Some((keeper, _)) = &self.terms.keeper else { return };
        keeper.save(now, false);
        match self.stage.root.free_bytes() {
            Err(error) => tracing::debug!(%error, "the free space is unknown"),
            Ok(free) => {
                if let Err(words) = keeper.check_free(free) {
                    self.fail(Failure::Retry(words));
                }
            }
        }
    }

    /// Makes a point from which the transfer goes on after a loss of power.
    fn checkpoint(&self) -> io::Result<()> {
        // Most of it without the lock, so that data go on.
        self.stage.tree.sync_fs()?;
        let mut journal = self.journal();
        self.stage.tree.sync_fs()?;
        journal.sync()
    }
}

/// The share of the time of the receiving end, in thousandths, in which it keeps to a limit: what the others leave.
#[must_use]
pub(crate) const fn limit_of(others: u64) -> u64 {
    match others {
        0 => 0,
        _ => 1_000_u64.saturating_sub(others),
    }
}

/// The most bytes that may come where so many were announced: files may grow meanwhile.
#[must_use]
pub fn most(announced: Option<u64>) -> u64 {
    announced.map_or(u64::MAX, |bytes| bytes.saturating_add((bytes / 10).max(GROWTH)))
}

/// Returns the message about a failure.
fn end_of(failure: &Failure) -> FromReceiver {
    let ended = match failure {
        Failure::Retry(_) => Ended::NotNow,
        Failure::Fatal(_) => Ended::Fault,
        Failure::Rejected(_) => Ended::Rejected,
        Failure::Cancelled(_) => Ended::Cancelled,
    };
    FromReceiver::Ended(ended, failure.words().to_owned())
}
