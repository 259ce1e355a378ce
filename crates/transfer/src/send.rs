//! The end that sends: it connects, announces what there is, and sends what the other end asks for.

mod job;
mod listing;
mod worker;

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weft_control::TransferPurpose;

use self::job::{Job, Queue, Window};
use crate::api::{RawPath, TransferId, TransferState};
use crate::journal::{Journal, Kept, boot_id};
use crate::link::{self, Far, Opened};
use crate::live::{Failure, Live, Reason};
use crate::names;
use crate::pace::Pace;
use crate::walk::{EntryKind, Source};
use crate::wire::message::{self, Ended};
use crate::wire::{Connection, FromReceiver, FromSender, Hello, Verdict, WireError};

/// A connection on which nothing came for this long is dead.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);
/// The pause between two signs of life.
pub(crate) const ALIVE: Duration = Duration::from_secs(5);
/// The pause between two samples of the rate.
pub(crate) const SAMPLE: Duration = Duration::from_millis(500);
/// How long the list may take until the totals count as unknown in the greeting.
const COUNTING: Duration = Duration::from_millis(300);

/// What is to be sent, and to whom.
#[derive(Clone, Debug)]
pub struct Order {
    /// The identity of the transfer.
    pub id: TransferId,
    /// The files and folders.
    pub paths: Vec<PathBuf>,
    /// Patterns of names that are left out.
    pub exclude: Vec<String>,
    /// The folder below that of the receiver.
    pub into: String,
    /// Whether existing files are to be replaced.
    pub overwrite: bool,
    /// The most bytes a second.
    pub limit: Option<u64>,
    /// How many connections carry data.
    pub connections: usize,
    /// The file of the hashes of what was sent.
    pub outboard: PathBuf,
}

/// A try that is under way.
struct Session<'a> {
    order: &'a Order,
    live: &'a Live,
    far: &'a dyn Far,
    source: Source,
    control: Mutex<Arc<TcpStream>>,
    queue: Queue,
    window: Window,
    outboard: Mutex<Outboard>,
    pace: Option<Pace>,
}

/// The hashes of what was sent, kept for a resume.
struct Outboard {
    journal: Journal,
    kept: Kept,
    next: u32,
    /// How often each file has changed while it was read.
    changes: BTreeMap<u64, u32>,
}

/// Who gets what is sent.
#[derive(Clone, Debug)]
pub struct Addressee {
    /// The peer.
    pub peer: String,
    /// The user there; `None` for the only one that receives.
    pub user: Option<String>,
}

/// Connects to a peer and sends until everything is stored there. `opened` learns the peer's npub and name.
///
/// # Errors
/// How the try failed; why it was stopped is in `live`.
pub fn run(
    order: &Order,
    to: &Addressee,
    control: &Path,
    live: &Live,
    opened: impl FnOnce(&Opened),
) -> Result<(), Failure> {
    let source = Source::new(&order.paths, &order.exclude).map_err(|error| Failure::Fatal(error.to_string()))?;
    live.set(TransferState::Connecting, None);
    let agreed = link::open(control, &to.peer, to.user.clone(), TransferPurpose::Send)?;
    opened(&agreed);
    let stream = agreed.connect(Connection::Control)?;
    deliver(order, source, control, live, &stream, &agreed)
}

/// Sends on a connection that is there, until everything is stored at the other end.
///
/// # Errors
/// As [`run`].
pub fn deliver(
    order: &Order,
    source: Source,
    control: &Path,
    live: &Live,
    stream: &Arc<TcpStream>,
    far: &dyn Far,
) -> Result<(), Failure> {
    let outboard = Outboard::open(&order.outboard)
        .map_err(|error| Failure::Fatal(format!("{} cannot be written ({error})", order.outboard.display())))?;
    let session = Session {
        order,
        live,
        control: Mutex::new(Arc::clone(stream)),
        far,
        source,
        queue: Queue::default(),
        window: Window::default(),
        outboard: Mutex::new(outboard),
        pace: order.limit.map(Pace::new),
    };
    session
        .say(&FromSender::Hello(session.greeting()))
        .map_err(|error| lost(&error))?;
    let result = thread::scope(|scope| {
        // It also ends the control connection, so that a wish of the user can be told there.
        scope.spawn(|| {
            session.tick(control);
            let _ = stream.shutdown(Shutdown::Both);
        });
        let result = session.listen(stream, scope);
        // Whatever the result is, the other threads end.
        live.stop().stop(Reason::Shutdown);
        result
    });
    match (result, live.stop().reason()) {
        (Ok(()), _) => Ok(()),
        (Err(_), Some(Reason::Failed(failure))) => Err(failure),
        (Err(failure), _) => Err(failure),
    }
}

/// The failure of a connection.
pub(crate) fn lost(error: &io::Error) -> Failure {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<WireError>()) {
        Some(fault) => Failure::Fatal(fault.to_string()),
        None => Failure::Retry(match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "the connection fell silent".to_owned(),
            io::ErrorKind::UnexpectedEof => "the other end has ended the connection".to_owned(),
            _ => format!("the connection is lost ({error})"),
        }),
    }
}

impl Session<'_> {
    fn greeting(&self) -> Hello {
        let (entries, bytes) = listing::count(&self.source, Instant::now() + COUNTING).unzip();
        self.live.set_totals(entries, bytes);
        let names = self.source.names();
        Hello {
            id: self.order.id,
            overwrite: self.order.overwrite,
            entries,
            bytes,
            into: self.order.into.clone().into_bytes(),
            names,
        }
    }

    /// Sends a message on the control connection.
    fn say(&self, message: &FromSender) -> io::Result<()> {
        // No code panics while it holds the lock.
        let control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        message::write(&mut &**control, &message.to_bytes())
    }

    fn outboard(&self) -> MutexGuard<'_, Outboard> {
        // No code panics while it holds the lock.
        self.outboard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the try from a thread that cannot go on.
    fn fail(&self, failure: Failure) {
        self.live.stop().stop(Reason::Failed(failure));
    }

    /// Handles what the receiving end says, until the end of the transfer.
    fn listen<'scope>(
        &'scope self,
        stream: &TcpStream,
        scope: &'scope thread::Scope<'scope, '_>,
    ) -> Result<(), Failure> {
        stream.set_read_timeout(Some(SILENCE)).map_err(|error| lost(&error))?;
        let mut from = io::BufReader::new(stream);
        let mut accepted = false;
        loop {
            let bytes = message::read(&mut from).map_err(|error| lost(&error))?;
            match FromReceiver::parse(&bytes).map_err(|error| lost(&error.into()))? {
                FromReceiver::Waiting => self.live.set(
                    TransferState::Waiting,
                    Some(format!("it waits until it is accepted on {}", self.far.name())),
                ),
                FromReceiver::Accepted if !accepted => {
                    accepted = true;
                    self.live.set(TransferState::Running, None);
                    scope.spawn(|| self.announce());
                    for _ in 0..self.order.connections.max(1) {
                        scope.spawn(|| self.work());
                    }
                }
                FromReceiver::Accepted => {}
                FromReceiver::Ended(ended, why) => return Err(refused(ended, &why)),
                FromReceiver::Verdicts(first, verdicts) => {
                    for (entry, verdict) in (first..).zip(verdicts) {
                        self.judge(entry, verdict)?;
                    }
                }
                FromReceiver::Progress(entries, bytes, theirs) => {
                    self.live.entries.set(entries);
                    self.live.bytes.set(bytes);
                    self.weigh(theirs);
                }
                FromReceiver::Note(name, what) => self.live.note(names::display(&name), plain(&what)),
                FromReceiver::Syncing => self.live.set(TransferState::Syncing, None),
                FromReceiver::Done => return Ok(()),
                FromReceiver::Alive => {}
            }
        }
    }

    /// Does what the receiving end decided about an entry.
    fn judge(&self, index: u64, verdict: Verdict) -> Result<(), Failure> {
        let known = self.window.judged(index);
        let entry = known.ok_or_else(|| Failure::Fatal("the other end asks for what was not announced".to_owned()))?;
        match verdict {
            Verdict::Have => {
                self.live.had.add(1);
                self.window.remove(index);
            }
            Verdict::Made => self.window.remove(index),
            Verdict::Refused(why) => {
                self.live.note(entry.path.display(), plain(&why));
                self.window.remove(index);
            }
            _ if entry.kind != EntryKind::File => {
                return Err(Failure::Fatal(
                    "the other end asks for data of what has none".to_owned(),
                ));
            }
            Verdict::Send => self.queue.push(Job::new(index, entry, Vec::new())),
            Verdict::Resume(held) if job::are_of(&held, entry.size) => self.queue.push(Job::new(index, entry, held)),
            Verdict::Resume(_) => {
                return Err(Failure::Fatal("the other end has groups that no file has".to_owned()));
            }
            Verdict::Compare => self.queue.push(Job::Compare { index, entry }),
        }
        Ok(())
    }

    /// Says each half second how fast it goes and what holds it up, and that this end is alive.
    fn tick(&self, control: &Path) {
        let mut said = Instant::now();
        let mut asked = None;
        while !self.live.stop().is_set() {
            thread::sleep(SAMPLE.min(Duration::from_millis(100)));
            let now = Instant::now();
            if asked.is_none_or(|at| now >= at + SAMPLE * 4) {
                asked = Some(now);
                let path = link::path(control, self.far.npub());
                self.live.change(|state| state.path = path);
            }
            self.live.sample(now);
            if now >= said + ALIVE {
                said = now;
                if self.say(&FromSender::Alive).is_err() {
                    return;
                }
            }
        }
        // A user's wish is told, if the connection still takes it.
        if self.live.stop().reason() == Some(Reason::Cancel) {
            let _ = self.say(&FromSender::Cancel);
        }
    }

    /// Finds what holds the transfer up: where most of the time of the threads goes, here and there.
    fn weigh(&self, theirs: [u16; 3]) {
        let [net, _, disk] = theirs;
        let [disk_here, cpu, wait, limit] = self.live.times.now();
        let all = (disk_here + cpu + wait + limit).max(1);
        let share = |part: u64| part * 1_000 / all;
        let by = if share(limit) > 500 {
            "limit"
        } else if share(wait) > 500 {
            if disk > 500 {
                "disk-there"
            } else if net > 700 {
                "path"
            } else {
                "cpu"
            }
        } else if share(disk_here) > 500 {
            "disk-here"
        } else {
            "cpu"
        };
        self.live.change(|state| state.held_up_by = Some(by));
    }

    /// Waits for the turn of `bytes` where there is a limit.
    fn keep_to_limit(&self, bytes: usize) {
        if let Some(pace) = &self.pace {
            pace.keep(bytes, self.live);
        }
    }
}

/// Escapes a text of the other end.
pub(crate) fn plain(text: &str) -> String {
    names::display(text.as_bytes())
}

pub(crate) fn refused(ended: Ended, why: &str) -> Failure {
    let why = plain(why);
    match ended {
        Ended::Rejected => Failure::Rejected(why),
        Ended::Cancelled => Failure::Cancelled(why),
        Ended::NotNow => Failure::Retry(why),
        Ended::Fault => Failure::Fatal(why),
    }
}

impl Outboard {
    fn open(path: &Path) -> io::Result<Self> {
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        let (journal, kept) = Journal::open(file, boot_id())?;
        let next = kept.files.keys().next_back().map_or(0, |last| last + 1);
        Ok(Self {
            journal,
            kept,
            next,
            changes: BTreeMap::new(),
        })
    }
}

/// The paths of a request, as the system has them.
#[must_use]
pub fn paths(raw: &[RawPath]) -> Vec<PathBuf> {
    raw.iter().map(PathBuf::from).collect()
}
