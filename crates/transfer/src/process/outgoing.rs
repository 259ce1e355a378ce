//! The queue: what is sent next, and what follows from how it went.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use weft_control::{ControlCommand, EventStream};
use weft_os::clock::unix_s;

use super::Process;
use super::fetched::outboards;
use crate::api::{Direction, TransferState};
use crate::least::Least;
use crate::live::{Failure, Live, Reason};
use crate::queue::{Outgoing, backoff};
use crate::send::{self, Addressee, Order};
use crate::wire::Hello;

/// The pause between the beginnings of two tries.
const APART: Duration = Duration::from_millis(150);
/// The most transfers that are connected at a time, those that wait to be accepted among them.
const MAX_CONNECTED: usize = 50;
/// The pause between two looks at the queue.
const LOOK: Duration = Duration::from_secs(1);
/// The pause before the daemon is asked again for its events.
const AGAIN: Duration = Duration::from_secs(2);
/// How long it may take to tell a peer of a cancel.
const TELLING: Duration = Duration::from_secs(60);
/// The most data connections of a transfer.
pub(super) const CONNECTIONS: usize = 4;

/// Data connections at first, one for each processor, and where a long path is the limit.
pub(super) fn connections() -> [usize; 2] {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    [processors.min(CONNECTIONS), CONNECTIONS]
}

/// Who gets a transfer: once it is known, the key counts.
fn addressee(transfer: &Outgoing) -> Addressee {
    Addressee {
        peer: transfer.npub.clone().unwrap_or_else(|| transfer.peer.clone()),
        user: transfer.user.clone(),
    }
}

/// Why a transfer is cancelled.
pub(super) const CANCELLED_HERE: &str = "cancelled here";

impl Process {
    /// Starts what is due, until the process ends.
    pub(super) fn schedule(self: &Arc<Self>) {
        let mut version = 0;
        while !self.is_stopping() {
            for transfer in self.store.outgoing() {
                if self.is_to_be_told(&transfer) {
                    self.plan().next.insert(transfer.id, Instant::now() + TELLING);
                    let process = Arc::clone(self);
                    if thread::Builder::new().spawn(move || process.tell(transfer)).is_ok() {
                        thread::sleep(APART);
                    }
                    continue;
                }
                if self.is_due(&transfer) {
                    let live = Arc::new(Live::default());
                    live.set(TransferState::Connecting, None);
                    self.lives().insert((Direction::Send, transfer.id), Arc::clone(&live));
                    let (process, id) = (Arc::clone(self), transfer.id);
                    if let Err(error) = thread::Builder::new().spawn(move || process.send(transfer, &live)) {
                        tracing::info!(%error, "a transfer has no thread, and waits");
                        self.lives().remove(&(Direction::Send, id));
                    }
                    // Each try asks the daemon, which takes so many questions of a user.
                    thread::sleep(APART);
                }
            }
            self.start_gets();
            version = self.wait_for_change(version, LOOK);
        }
    }

    /// Starts to fetch what is due.
    fn start_gets(self: &Arc<Self>) {
        for transfer in self.store.incoming() {
            if !self.is_due_get(&transfer) {
                continue;
            }
            let (id, live) = (transfer.id, Arc::new(Live::default()));
            live.set(TransferState::Connecting, None);
            self.lives().insert((Direction::Receive, id), Arc::clone(&live));
            let process = Arc::clone(self);
            if let Err(error) = thread::Builder::new().spawn(move || process.get(&transfer, &live)) {
                tracing::info!(%error, "a transfer has no thread, and waits");
                self.lives().remove(&(Direction::Receive, id));
            }
            thread::sleep(APART);
        }
    }

    fn is_due(&self, transfer: &Outgoing) -> bool {
        let fetched: BTreeSet<_> = self.fetched().keys().copied().collect();
        let lives = self.lives();
        let sends = lives
            .iter()
            .filter(|((direction, id), _)| *direction == Direction::Send && !fetched.contains(id));
        let all = sends.clone().count();
        let active = sends.filter(|(_, live)| live.takes_turn());
        transfer.state == TransferState::Queued
            && !lives.contains_key(&(Direction::Send, transfer.id))
            && active.count() < usize::from(self.keeper.limits().turns().0)
            && all < MAX_CONNECTED
            && self
                .plan()
                .next
                .get(&transfer.id)
                .is_none_or(|at| Instant::now() >= *at)
    }

    /// Whether the receiving end of a transfer that was cancelled is to be told now.
    fn is_to_be_told(&self, transfer: &Outgoing) -> bool {
        let next = self.plan().next.get(&transfer.id).copied();
        transfer.tell_until.is_some() && next.is_none_or(|at| Instant::now() >= at)
    }

    /// Reports a cancelled transfer to the receiving end.
    fn tell(&self, mut transfer: Outgoing) {
        let names = send::paths(&transfer.paths).into_iter();
        let names = names.filter_map(|path| Some(path.file_name()?.as_bytes().to_vec()));
        let hello = Hello {
            id: transfer.id,
            overwrite: transfer.overwrite,
            entries: None,
            bytes: None,
            disk: None,
            into: transfer.into.clone().into_bytes(),
            names: names.collect(),
        };
        let told = send::tell_cancel(hello, &addressee(&transfer), &self.options.control);
        let is_over = transfer.tell_until.is_none_or(|until| until <= unix_s());
        if is_over || !matches!(told, Err(Failure::Retry(_))) {
            transfer.tell_until = None;
        }
        transfer.tries += 1;
        // A peer that comes is told at once; the pause is for a user there whose process does not run.
        let at = Instant::now() + 4 * backoff(transfer.tries);
        self.plan().next.insert(transfer.id, at);
        // The history may have been removed meanwhile.
        if self.store.find_outgoing(transfer.id).is_some()
            && let Err(error) = self.store.save_outgoing(&transfer)
        {
            tracing::warn!(id = %transfer.id, %error, "the state of a transfer is not saved");
        }
    }

    /// Hears from the daemon which peers come, and tries what waits for one.
    pub(super) fn hear(self: &Arc<Self>) {
        while !self.is_stopping() {
            if let Ok(mut events) = EventStream::open_with(&self.options.control, &ControlCommand::Events {}) {
                while let Ok(Some(event)) = events.next_event() {
                    // The first one: what came before it is not known.
                    let kind = event.get("event").and_then(serde_json::Value::as_str);
                    if let Some("peer-up" | "listening") = kind {
                        self.try_all();
                    }
                }
            }
            let version = self.plan().version;
            self.wait_for_change(version, AGAIN);
        }
    }

    /// Tries to send a transfer.
    fn send(&self, mut transfer: Outgoing, live: &Arc<Live>) {
        // The user may have decided between the look at the queue and here.
        if self
            .store
            .find_outgoing(transfer.id)
            .is_none_or(|kept| is_decided(&kept))
        {
            self.lives().remove(&(Direction::Send, transfer.id));
            return self.note_change();
        }
        live.go_on_from(&transfer.progress);
        let order = Order {
            id: transfer.id,
            paths: send::paths(&transfer.paths),
            exclude: transfer.exclude.clone(),
            into: transfer.into.clone(),
            overwrite: transfer.overwrite,
            is_fetched: false,
            paces: self
                .keeper
                .of_sending(transfer.limit, transfer.limit_relay, Instant::now()),
            least: Least::default(),
            connections: connections(),
            outboard: self.outboard(&transfer),
        };
        let to = addressee(&transfer);
        let mut opened = None;
        let control = &self.options.control;
        let result = send::open(&order, &to, control, live).and_then(|(source, agreed)| {
            opened = Some(agreed.npub.clone());
            let token = agreed.token;
            let to = self.connect(agreed, live)?;
            let delivered = send::deliver(&order, source, control, live, &to.control, &*to.far);
            self.grants.end(&token);
            to.awaited.end();
            delivered
        });
        // A name may be another one's later: from here on the key counts.
        transfer.npub = transfer.npub.or(opened);
        let state = match (result, live.stop().reason()) {
            (Ok(()), _) => (TransferState::Done, None),
            (Err(_), Some(Reason::Cancel)) => (TransferState::Cancelled, Some(CANCELLED_HERE.to_owned())),
            (Err(_), Some(Reason::Pause)) => (TransferState::Paused, None),
            (Err(Failure::Retry(why)), _) => (TransferState::Queued, Some(why)),
            (Err(Failure::Fatal(why)), _) => (TransferState::Failed, Some(why)),
            (Err(Failure::Rejected(why)), _) => (TransferState::Rejected, Some(why)),
            (Err(Failure::Cancelled(why)), _) => (TransferState::Cancelled, Some(why)),
        };
        self.keep_outgoing(&mut transfer, live, state);
    }

    pub(super) fn outboard(&self, transfer: &Outgoing) -> std::path::PathBuf {
        let name = match (&transfer.share, &transfer.npub) {
            (Some(_), Some(npub)) => outboards::name(npub, &transfer.id),
            _ => transfer.id.to_string(),
        };
        self.options.directory.join("sent").join(name)
    }

    /// Saves how a try went.
    pub(super) fn keep_outgoing(
        &self,
        transfer: &mut Outgoing,
        live: &Live,
        (state, why): (TransferState, Option<String>),
    ) {
        let deciding = self.deciding();
        let decided = self.store.find_outgoing(transfer.id).filter(is_decided);
        // What the user has decided meanwhile stays, unless it came too late.
        let (state, why) = match decided.filter(|_| transfer.share.is_none() && state != TransferState::Done) {
            Some(decided) => (decided.state, decided.why),
            None => (state, why),
        };
        let has_moved = live.moved.value() > transfer.progress.moved;
        live.keep_in(&mut transfer.progress, state.has_ended());
        transfer.tries = match state {
            // A try that moves something begins the pauses anew.
            TransferState::Queued if has_moved => self.plan_try(transfer.id, 0),
            TransferState::Queued => self.plan_try(transfer.id, transfer.tries),
            _ => 0,
        };
        transfer.reached |= live.greeted.value() > 0;
        if state == TransferState::Cancelled && why.as_deref() == Some(CANCELLED_HERE) && transfer.share.is_none() {
            transfer.tell_of_cancel(unix_s());
        }
        if state.has_ended() {
            transfer.ended = Some(unix_s());
            let _ = std::fs::remove_file(self.outboard(transfer));
        }
        (transfer.state, transfer.why) = (state, why);
        if let Err(error) = self.store.save_outgoing(transfer) {
            tracing::warn!(id = %transfer.id, %error, "the state of a transfer is not saved");
        }
        drop(deciding);
        self.lives().remove(&(Direction::Send, transfer.id));
        self.note_change();
    }
}

/// Whether the user has ended or paused a transfer.
fn is_decided(transfer: &Outgoing) -> bool {
    transfer.state.has_ended() || transfer.state == TransferState::Paused
}

#[cfg(test)]
pub(super) mod tests;
