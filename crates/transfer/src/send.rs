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
use weft_os::tcp::TcpInfo;

use self::job::{Job, Queue, Window};
use crate::api::{RawPath, TransferId, TransferState};
use crate::journal::{Journal, Kept, boot_id};
use crate::least::{Least, Watch};
use crate::link::{self, Far, Opened};
use crate::live::{Failure, LIMIT, Live, Reason};
use crate::names;
use crate::pace::Paces;
use crate::receive::{self, NOT_WANTED};
use crate::walk::{EntryKind, Source};
use crate::wire::message::{self, Ended};
use crate::wire::{Connection, FromReceiver, FromSender, Hello, Verdict, WireError};

/// A connection on which nothing came for this long is dead.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);
/// The pause between two signs of life.
pub(crate) const ALIVE: Duration = Duration::from_secs(5);
/// The path as what holds a transfer up.
const PATH: &str = "path";
/// The shortest round trip of a path on which more connections carry more.
const LONG: Duration = Duration::from_millis(5);
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
    /// Whether the other end has asked for it.
    pub is_fetched: bool,
    /// The limits of bytes a second.
    pub paces: Paces,
    /// The least speed.
    pub least: Least,
    /// How many connections carry data: at first, and once a long path holds the transfer up.
    pub connections: [usize; 2],
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

/// Reads the paths, and asks for a token to send them.
///
/// # Errors
/// How the try failed.
pub fn open(order: &Order, to: &Addressee, control: &Path, live: &Live) -> Result<(Source, Opened), Failure> {
    let source = Source::new(&order.paths, &order.exclude).map_err(|error| Failure::Fatal(error.to_string()))?;
    live.set(TransferState::Connecting, None);
    let agreed = link::open(control, &to.peer, to.user.clone(), TransferPurpose::Send)?;
    Ok((source, agreed))
}

/// Tells a peer that the user has cancelled a transfer of which it knows.
///
/// # Errors
/// Why it does not know that.
pub fn tell_cancel(hello: Hello, to: &Addressee, control: &Path) -> Result<(), Failure> {
    let agreed = link::open(control, &to.peer, to.user.clone(), TransferPurpose::Send)?;
    let stream = agreed.connect(Connection::Control)?;
    let talk = || -> io::Result<Result<(), Failure>> {
        for message in [FromSender::Hello(hello), FromSender::Cancel] {
            message::write(&mut &*stream, &message.to_bytes())?;
        }
        let end = Instant::now() + SILENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
            match FromReceiver::parse(&message::read(&mut &*stream)?)? {
                FromReceiver::Ended(Ended::NotNow, why) => return Ok(Err(Failure::Retry(plain(&why)))),
                FromReceiver::Ended(..) | FromReceiver::Done => return Ok(Ok(())),
                _ => {}
            }
        }
    };
    talk().map_err(|error| lost(&error))?
}

/// Sends on a connection that is there, until everything is stored at the other end.
///
/// # Errors
/// How the try failed; why it was stopped is in `live`.
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
    };
    // A limit of relays holds from the first byte on.
    session.note_path(control);
    session
        .say(&FromSender::Hello(session.greeting()))
        .map_err(|error| lost(&error))?;
    live.greeted.set(1);
    let result = thread::scope(|scope| {
        // It also ends the control connection, so that a wish of the user can be told there.
        scope.spawn(|| {
            session.tick(control);
            let _ = stream.shutdown(Shutdown::Both);
        });
        let result = session.listen(stream, scope);
        // Whatever the result is, the other threads end.
        live.stop().stop(Reason::Shutdown);
        session.queue.wake();
        session.window.wake();
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
        let counted = listing::count(&self.source, Instant::now() + COUNTING);
        let of = |part: fn([u64; 3]) -> u64| counted.map(part);
        let (entries, bytes) = (of(|[entries, ..]| entries), of(|[_, bytes, _]| bytes));
        self.live.set_totals(entries, bytes);
        let names = self.source.names();
        Hello {
            id: self.order.id,
            overwrite: self.order.overwrite,
            entries,
            bytes,
            disk: of(|[.., disk]| disk),
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
        let mut workers = 0;
        let mut before = [0; 4];
        loop {
            let bytes = message::read(&mut from).map_err(|error| lost(&error))?;
            match FromReceiver::parse(&bytes).map_err(|error| lost(&error.into()))? {
                FromReceiver::Waiting if self.order.is_fetched => {
                    let why = "the other end does not take what it has asked for";
                    return Err(Failure::Fatal(why.to_owned()));
                }
                FromReceiver::Waiting => self.live.set(
                    TransferState::Waiting,
                    Some(format!("it waits until it is accepted on {}", self.far.name())),
                ),
                FromReceiver::Accepted if !accepted => {
                    accepted = true;
                    self.live.set(TransferState::Running, None);
                    scope.spawn(|| self.announce());
                    while workers < self.order.connections[0].max(1) {
                        scope.spawn(|| self.work());
                        workers += 1;
                    }
                }
                FromReceiver::Accepted => {}
                FromReceiver::Ended(ended, why) => return Err(refused(ended, &why)),
                FromReceiver::Verdicts(first, verdicts) => {
                    self.live.steps.add(1);
                    for (entry, verdict) in (first..).zip(verdicts) {
                        self.judge(entry, verdict)?;
                    }
                }
                FromReceiver::Progress(entries, bytes, theirs) => {
                    self.live.entries.set(entries);
                    self.live.bytes.set(bytes);
                    let holder = self.weigh(theirs, &mut before);
                    // On a long path a loss holds a connection up for long, and one alone. Elsewhere more of them than
                    // processors only cost more.
                    while accepted && holder == PATH && is_long(stream) && workers < self.order.connections[1] {
                        scope.spawn(|| self.work());
                        workers += 1;
                    }
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
                if why == NOT_WANTED {
                    self.live.leave_out(entry.size);
                }
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
        let mut asked = said;
        let mut watch = Watch::new(said);
        let mut limited = false;
        while !self.live.stop().is_set() {
            self.live.stop().wait(SAMPLE / 5);
            let now = Instant::now();
            if now >= asked + SAMPLE * 4 {
                asked = now;
                self.note_path(control);
            }
            self.live.sample(now);
            self.live.look(&mut watch, &self.order.least, now);
            let is_limited = self.live.state().held_up_by == Some(LIMIT);
            if is_limited != std::mem::replace(&mut limited, is_limited)
                && self.say(&FromSender::Limited(is_limited)).is_err()
            {
                return;
            }
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

    /// Finds and returns what holds the transfer up: where most of the time of the threads goes, here and there.
    fn weigh(&self, theirs: [u16; 3], before: &mut [u64; 4]) -> &'static str {
        let [net, their_cpu, disk] = theirs.map(u64::from);
        let their_limit = receive::limit_of(net + their_cpu + disk);
        let [disk_here, cpu, wait, limit] = self.live.times.shares(before);
        let waits = wait > 500 || disk_here + cpu + wait + limit == 0;
        let by = if limit > 500 || their_limit > 500 {
            LIMIT
        } else if waits {
            if disk > 500 {
                "disk-there"
            } else if net > 700 {
                PATH
            } else {
                "cpu"
            }
        } else if disk_here > 500 {
            "disk-here"
        } else {
            "cpu"
        };
        self.live.change(|state| state.held_up_by = Some(by));
        by
    }

    /// Waits for the turn of `bytes` where there is a limit.
    fn keep_to_limit(&self, bytes: usize) {
        self.live.keep_to(&self.order.paces, bytes as u64);
    }

    /// Asks the daemon for the path.
    fn note_path(&self, control: &Path) {
        let (path, relayed) = link::path(control, self.far.npub()).unzip();
        self.live.set_relayed(relayed.unwrap_or(false));
        self.live.change(|state| state.path = path);
    }
}

/// Whether the round trips of a connection are long even where nothing waits.
fn is_long(stream: &TcpStream) -> bool {
    TcpInfo::of(stream).is_ok_and(|info| info.min_rtt >= LONG)
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
