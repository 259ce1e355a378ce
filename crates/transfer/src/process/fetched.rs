//! What a peer fetches of a share: the peer opens all connections, and this end sends.

pub(super) mod outboards;

use std::collections::VecDeque;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weft_os::clock::unix_s;

use super::Process;
use super::grants::{Bulk, Grant};
use super::incoming::TAKE_OVER;
use super::outgoing::CONNECTIONS;
use super::requests::{Refused, answer};
use super::shared::{below, refusal};
use crate::api::{Amount, Direction, RawPath, TransferId, TransferState};
use crate::link::Far;
use crate::live::{Failure, Live, Reason};
use crate::names::{RelPath, display};
use crate::queue::Outgoing;
use crate::receive::MAX_DATA;
use crate::send::{self, Order};
use crate::shares::Share;
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
struct Fetcher {
    npub: String,
    name: String,
    live: Arc<Live>,
    lines: Mutex<Lines>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
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

    fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
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
        // It keeps its place among the connections until the end.
        drop(self.changed.wait_while(lines, |lines| !lines.is_over));
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
            let live = self.begin_fetched(&one)?;
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
        let far = Arc::new(Fetcher {
            npub: grant.npub.clone(),
            name: grant.name.clone(),
            live: Arc::clone(&live),
            lines: Mutex::default(),
            changed: Condvar::new(),
        });
        let bulk: Arc<dyn Bulk> = Arc::<Fetcher>::clone(&far);
        self.grants.begin(token, grant.address, bulk);
        outboards::make_room(&self.options.directory.join("sent"), &grant.npub, &one.id);
        let order = Order {
            id: one.id,
            paths: Vec::new(),
            exclude: Vec::new(),
            into: String::new(),
            overwrite: false,
            limit: None,
            connections: thread::available_parallelism().map_or(1, usize::from).min(CONNECTIONS),
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
            id: asked.id,
            paths: vec![RawPath::from(whole.as_path())],
            peer: grant.name.clone(),
            npub: Some(grant.npub.clone()),
            share: Some(format!("{}{slash}{}", share.name, display(&asked.path))),
            user: None,
            into: String::new(),
            exclude: asked.exclude.clone(),
            overwrite: false,
            limit: None,
            state: TransferState::Running,
            why: None,
            begun: unix_s(),
            ended: None,
            tries: 0,
            entries: Amount::default(),
            bytes: Amount::default(),
            moved: 0,
            saved: 0,
            read: 0,
            had: 0,
            notes: Vec::new(),
            more_notes: 0,
        };
        Ok((share, below, one))
    }

    /// Takes a place among the transfers that are fetched, or that of an older connection of the same one.
    fn begin_fetched(&self, one: &Outgoing) -> Result<Arc<Live>, Refused> {
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
                let own = fetched.values().filter(|other| other.npub == one.npub).count();
                if fetched.len() >= MAX_FETCHES.0 || own >= MAX_FETCHES.1 || self.is_stopping() {
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

    /// Keeps how a transfer that was fetched has ended. One that may go on is the peer's to begin again.
    fn end_fetched(&self, mut one: Outgoing, live: &Live, result: Result<(), Failure>) {
        let state = match (result, live.stop().reason()) {
            (Ok(()), _) => Some((TransferState::Done, None)),
            (Err(_), Some(Reason::Cancel)) => Some((TransferState::Cancelled, Some("cancelled here".to_owned()))),
            (Err(Failure::Cancelled(why)), _) => Some((TransferState::Cancelled, Some(why))),
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
