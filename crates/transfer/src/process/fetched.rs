//! What a peer fetches of a share: the peer opens all connections, and this end sends.

pub(super) mod outboards;

use std::collections::{BTreeMap, VecDeque};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weft_control::status::WhoisNode;
use weft_os::clock::unix_s;

use super::grants::{Bulk, Grant};
use super::incoming::TAKE_OVER;
use super::outgoing::connections;
use super::requests::{Refused, answer};
use super::shared::{below, refusal};
use super::{Process, nodes};
use crate::api::{Direction, RawPath, TransferId, TransferState};
use crate::least::Least;
use crate::link::Far;
use crate::live::{Failure, Live, Reason};
use crate::names::{RelPath, display};
use crate::queue::Outgoing;
use crate::receive::MAX_DATA;
use crate::send::{self, Order};
use crate::shares::{Asker, Share};
use crate::walk::{Source, WalkError};
use crate::wire::message::Ended;
use crate::wire::request::Answer;

/// The most transfers that are fetched at a time, and those of one peer.
const MAX_FETCHES: (usize, usize) = (4, 2);
/// The most transfers of the history that peers have fetched.
const MAX_HISTORY: usize = 200;
/// How long a connection with data is awaited.
const DIALED: Duration = Duration::from_secs(10);
/// A connection that takes no data for this long is dead. A peer with a limit takes them slowly.
const STALLED: Duration = Duration::from_secs(600);
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// What a peer asks for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) id: TransferId,
    pub(super) share: String,
    pub(super) path: Vec<u8>,
    pub(super) exclude: Vec<String>,
}

/// The peer that fetches, and its connections for data.
#[derive(Debug)]
pub(super) struct Fetcher {
    npub: String,
    name: String,
    live: Arc<Live>,
    lines: Mutex<Lines>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    control: Option<Arc<TcpStream>>,
    waiting: VecDeque<Arc<TcpStream>>,
    /// All that have come.
    come: usize,
    is_over: bool,
}

impl Fetcher {
    fn lock(&self) -> MutexGuard<'_, Lines> {
        // No code panics while it holds the lock.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates one without connections.
    pub(super) fn new(npub: &str, name: &str, live: &Arc<Live>) -> Self {
        Self {
            npub: npub.to_owned(),
            name: name.to_owned(),
            live: Arc::clone(live),
            lines: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Returns the control connection that the other end has opened.
    pub(super) fn control(&self) -> Option<Arc<TcpStream>> {
        self.lock().control.clone()
    }

    /// Lets go of its connections.
    pub(super) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Waits until the end: a connection keeps its place among all until then.
    fn stay(&self, lines: MutexGuard<'_, Lines>) {
        drop(self.changed.wait_while(lines, |lines| !lines.is_over));
    }
}

impl Bulk for Fetcher {
    fn take(&self, stream: &Arc<TcpStream>) {
        let mut lines = self.lock();
        if lines.come >= MAX_DATA {
            return;
        }
        lines.come += 1;
        lines.waiting.push_back(Arc::clone(stream));
        self.changed.notify_all();
        self.stay(lines);
    }

    fn take_control(&self, stream: &Arc<TcpStream>) {
        let mut lines = self.lock();
        if lines.control.is_none() && !lines.is_over {
            lines.control = Some(Arc::clone(stream));
            self.changed.notify_all();
            self.stay(lines);
        }
    }
}

impl Far for Fetcher {
    fn npub(&self) -> &str {
        &self.npub
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn data(&self) -> Result<Arc<TcpStream>, Failure> {
        let end = Instant::now() + DIALED;
        let mut lines = self.lock();
        loop {
            if let Some(stream) = lines.waiting.pop_front() {
                let limited = stream.set_write_timeout(Some(STALLED));
                return limited
                    .map(|()| stream)
                    .map_err(|error| Failure::Retry(error.to_string()));
            }
            if self.live.stop().is_set() || Instant::now() >= end {
                return Err(Failure::Retry("the other end opens no connection for data".to_owned()));
            }
            lines = match self.changed.wait_timeout(lines, LOOK) {
                Ok((lines, _)) => lines,
                Err(error) => error.into_inner().0,
            };
        }
    }
}

impl Process {
    /// Sends what a peer asks for, until the end of the transfer.
    pub(super) fn serve_get(&self, stream: &Arc<TcpStream>, token: [u8; 16], grant: &Grant, asked: &Asked) {
        // The other end may have gone.
        let refuse = |(ended, why): Refused| drop(answer(stream, &Answer::Refused(ended, why)));
        let begun = self.find_asked(grant, asked).and_then(|(share, below, one)| {
            let live = self.begin_fetched(&one, &share.name, grant)?;
            Ok((share, below, one, live))
        });
        let (share, below, one, live) = match begun {
            Ok(begun) => begun,
            Err(refused) => return refuse(refused),
        };
        // Patterns cost memory, so a place is needed before they are read.
        let source = match source(&share, below, &asked.exclude) {
            Ok(source) => source,
            Err(refused) => {
                self.end_fetched(one, &live, Err(Failure::Retry(refused.1.clone())));
                return refuse(refused);
            }
        };
        let far = Arc::new(Fetcher::new(&grant.npub, &grant.name, &live));
        let bulk: Arc<dyn Bulk> = Arc::<Fetcher>::clone(&far);
        self.grants.begin(token, grant.address, bulk);
        outboards::make_room(&self.options.directory.join("sent"), &grant.npub, &one.id);
        let order = Order {
            id: one.id,
            paths: Vec::new(),
            exclude: Vec::new(),
            into: String::new(),
            overwrite: false,
            is_fetched: true,
            paces: self.keeper.of_sending(None, None, Instant::now()),
            least: Least::default(),
            connections: connections(),
            outboard: self.outboard(&one),
        };
        let result = answer(stream, &Answer::Granted)
            .map_err(|error| send::lost(&error))
            .and_then(|()| send::deliver(&order, source, &self.options.control, &live, stream, &*far));
        far.end();
        self.end_fetched(one, &live, result);
    }

    /// Finds what a peer asks for, if the peer may read it.
    fn find_asked(&self, grant: &Grant, asked: &Asked) -> Result<(Share, Option<RelPath>, Outgoing), Refused> {
        let share = self.share_for(&asked.share, grant)?;
        let below = below(&asked.path)?;
        let path = PathBuf::from(&share.path);
        let whole = below
            .as_ref()
            .map_or_else(|| path.clone(), |below| path.join(below.as_path()));
        let slash = if asked.path.is_empty() { "" } else { "/" };
        let one = Outgoing {
            npub: Some(grant.npub.clone()),
            share: Some(format!("{}{slash}{}", share.name, display(&asked.path))),
            exclude: asked.exclude.clone(),
            state: TransferState::Running,
            ..Outgoing::new(
                asked.id,
                grant.name.clone(),
                vec![RawPath::from(whole.as_path())],
                unix_s(),
            )
        };
        Ok((share, below, one))
    }

    /// Takes a place among the transfers that are fetched, or that of an older connection of the same one.
    fn begin_fetched(&self, one: &Outgoing, share: &str, grant: &Grant) -> Result<Arc<Live>, Refused> {
        let in_use = || Err((Ended::Fault, "the identifier is in use".to_owned()));
        let not_now = |why: &str| Err((Ended::NotNow, why.to_owned()));
        let is_of_another = |known: &Outgoing| known.share.is_none() || known.npub != one.npub;
        let end = Instant::now() + TAKE_OVER;
        loop {
            let mut fetched = self.fetched();
            let known = fetched
                .get(&one.id)
                .cloned()
                .or_else(|| self.store.find_outgoing(one.id));
            if known.as_ref().is_some_and(is_of_another) || self.store.find_incoming(one.id).is_some() {
                return in_use();
            }
            if known.is_some_and(|known| known.state == TransferState::Cancelled) {
                return Err((Ended::Cancelled, "cancelled at the sending end".to_owned()));
            }
            if !fetched.contains_key(&one.id) {
                // It may be shared no longer.
                self.share_for(share, grant)?;
                if !self.has_place(&fetched, one) || self.is_stopping() {
                    return not_now("too much is fetched from there at present");
                }
                let live = Arc::new(Live::default());
                live.set(TransferState::Connecting, None);
                self.lives().insert((Direction::Send, one.id), Arc::clone(&live));
                fetched.insert(one.id, one.clone());
                return Ok(live);
            }
            drop(fetched);
            if Instant::now() >= end {
                return not_now("an older connection has not ended there");
            }
            if let Some(older) = self.live(Direction::Send, one.id) {
                older.stop().stop(Reason::Shutdown);
            }
            thread::sleep(LOOK / 5);
        }
    }

    /// Whether one more transfer is served. One on which nothing moves leaves its place to others.
    fn has_place(&self, fetched: &BTreeMap<TransferId, Outgoing>, one: &Outgoing) -> bool {
        let moves = |id: &TransferId| {
            let live = self.live(Direction::Send, *id);
            live.is_some_and(|live| live.takes_turn())
        };
        let is_own = |other: &Outgoing| other.npub == one.npub;
        let all = fetched.keys().filter(|id| moves(id)).count();
        let own = fetched.iter().filter(|(id, other)| is_own(other) && moves(id)).count();
        let idle = fetched.values().filter(|other| is_own(other)).count();
        all < MAX_FETCHES.0 && own < MAX_FETCHES.1 && idle < 2 * MAX_FETCHES.1 && fetched.len() < 4 * MAX_FETCHES.0
    }

    /// Ends what is fetched by nodes that may not read it any more.
    pub(super) fn sweep_fetched(&self) {
        let all: Vec<Outgoing> = self.fetched().values().cloned().collect();
        for one in all {
            let (Some(npub), Some(share)) = (&one.npub, &one.share) else {
                continue;
            };
            let name = share.split('/').next().unwrap_or_default();
            let Ok(node) = npub.parse() else { continue };
            // Without an answer of the daemon it goes on: the path ends with the daemon, too.
            let Ok(node) = nodes::known(&self.options.control, node) else {
                continue;
            };
            let may_read = |node: WhoisNode| {
                let networks = node.networks.into_iter().map(|one| (one.network, one.tags));
                let (networks, tags): (Vec<_>, Vec<_>) = networks.unzip();
                let asker = Asker {
                    npub,
                    networks: &networks.into_iter().flatten().collect::<Vec<_>>(),
                    tags: &tags.concat(),
                };
                self.shares().find(name, asker).is_some()
            };
            if !node.is_some_and(may_read) {
                self.stop_fetched(&one, format!("{} may no longer read {name}", one.peer));
            }
        }
    }

    /// Ends what is fetched, for a reason that the user here sees in the history.
    pub(super) fn stop_fetched(&self, one: &Outgoing, why: String) {
        if let Some(live) = self.live(Direction::Send, one.id) {
            live.stop().stop(Reason::Failed(Failure::Fatal(why)));
        }
    }

    /// Keeps how a transfer that was fetched has ended. One that may go on is the peer's to begin again.
    fn end_fetched(&self, mut one: Outgoing, live: &Live, result: Result<(), Failure>) {
        let state = match (result, live.stop().reason()) {
            (Ok(()), _) => Some((TransferState::Done, None)),
            (Err(_), Some(Reason::Cancel)) => Some((TransferState::Cancelled, Some("cancelled here".to_owned()))),
            (Err(Failure::Cancelled(why)), _) => Some((TransferState::Cancelled, Some(why))),
            (Err(_), Some(Reason::Failed(Failure::Fatal(why)))) => Some((TransferState::Failed, Some(why))),
            (Err(failure), _) => {
                tracing::debug!(peer = one.peer, why = failure.words(), "what is fetched stops");
                None
            }
        };
        let mut fetched = self.fetched();
        match state {
            Some(state) => self.keep_outgoing(&mut one, live, state),
            None => drop(self.lives().remove(&(Direction::Send, one.id))),
        }
        fetched.remove(&one.id);
        drop(fetched);
        self.note_change();
        // What peers do leaves room for what the user has done.
        let kept = self.store.outgoing();
        let kept: Vec<_> = kept.iter().filter(|one| one.share.is_some()).collect();
        for old in kept.iter().take(kept.len().saturating_sub(MAX_HISTORY)) {
            if let Err(error) = self.store.remove(Direction::Send, old.id) {
                tracing::warn!(id = %old.id, %error, "a transfer cannot be removed from the history");
            }
        }
    }
}

/// Opens what a peer asks for.
fn source(share: &Share, below: Option<RelPath>, exclude: &[String]) -> Result<Source, Refused> {
    let path = PathBuf::from(&share.path);
    Source::shared(&path, &share.name, below, exclude).map_err(|error| match error {
        WalkError::Unreadable { source, .. } => refusal(&source),
        WalkError::Special(_) => refusal(&std::io::ErrorKind::InvalidInput.into()),
        WalkError::Pattern { .. } => (Ended::Fault, "a pattern is none, or takes too much memory".to_owned()),
        _ => (Ended::Fault, "its name cannot be sent".to_owned()),
    })
}

#[cfg(test)]
mod tests;
