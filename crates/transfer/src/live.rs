//! A transfer that is under way: how far it is, and how to end it.

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::api::{Amount, Note, Progress, TransferState};
use crate::least::{Least, Motion, Watch};
use crate::pace::Paces;

/// The most notes of a transfer that are kept.
pub const MAX_NOTES: usize = 100;
/// The least pause between two samples of the rate.
const SAMPLE: Duration = Duration::from_millis(500);
/// How many samples count: those of five seconds.
const SAMPLES: usize = 11;
/// What holds a transfer up that keeps to a limit.
pub(crate) const LIMIT: &str = "limit";
/// The least time that has shares, in microseconds.
const LEAST_TIME: u64 = 20_000;
/// The longest sleep of who keeps to a limit, after which the limit may be another one.
const NAP: Duration = Duration::from_millis(100);
/// How many times as long nothing may move where a limit holds a transfer up.
const LIMITED: u32 = 12;
/// The number that stands for a total that is not known.
const UNKNOWN: u64 = u64::MAX;

/// A count that several threads raise.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds `more`.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Takes back what was added.
    pub fn take_back(&self, less: u64) {
        self.0.fetch_sub(less, Ordering::Relaxed);
    }

    /// Sets it.
    pub fn set(&self, to: u64) {
        self.0.store(to, Ordering::Relaxed);
    }

    /// Returns it.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a thread of a transfer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// It reads or writes a file.
    Disk,
    /// It computes.
    Cpu,
    /// It waits for the connection.
    Net,
    /// It keeps to the limit.
    Limit,
}

/// Microseconds of all threads, by [`Work`].
#[derive(Debug, Default)]
pub struct Times([Count; 4]);

impl Times {
    /// Does something and counts its time.
    pub fn of<T>(&self, work: Work, action: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = action();
        let spent = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        if let Some(count) = self.0.get(work as usize) {
            count.add(spent);
        }
        result
    }

    /// The microseconds so far: disk, CPU, network, limit.
    pub fn now(&self) -> [u64; 4] {
        [0, 1, 2, 3].map(|at: usize| self.0.get(at).map_or(0, Count::value))
    }

    /// The shares of the last seconds, in thousandths: disk, CPU, network, limit. All are 0 if little time was counted.
    /// `before` is what the caller keeps for it from one half second to the next.
    pub fn shares(&self, before: &mut [u64; 4]) -> [u64; 4] {
        let mut spent = [0; 4];
        for ((spent, now), before) in spent.iter_mut().zip(self.now()).zip(before) {
            *spent = now.saturating_sub(*before);
            // What is long ago counts less and less.
            *before += *spent / 4;
        }
        match spent.iter().sum::<u64>() {
            // The threads are inside something that has not ended.
            0..LEAST_TIME => [0; 4],
            all => spent.map(|part| part * 1_000 / all),
        }
    }
}

/// The state of a transfer.
#[derive(Clone, Debug)]
pub struct State {
    /// What it does.
    pub state: TransferState,
    /// Why.
    pub why: Option<String>,
    /// Notes about entries.
    pub notes: Vec<Note>,
    /// How many more there are.
    pub more_notes: u64,
    /// The path to the peer.
    pub path: Option<String>,
    /// What holds it up.
    pub held_up_by: Option<&'static str>,
    /// Bytes a second.
    pub rate: Option<u64>,
    samples: Vec<(Instant, u64)>,
    version: u64,
}

/// A transfer that is under way.
#[derive(Debug)]
pub struct Live {
    /// All entries; `u64::MAX` while that is unknown.
    total_entries: Count,
    total_bytes: Count,
    /// Entries that are done.
    pub entries: Count,
    /// Bytes that are verified and stored at the receiving end.
    pub bytes: Count,
    /// Bytes of files through connections.
    pub moved: Count,
    /// Bytes of files that compression has saved on the way.
    pub saved: Count,
    /// Bytes of files that were read here.
    pub read: Count,
    /// Entries that were there already.
    pub had: Count,
    /// Whether the other end knows of it: 1 from the greeting on.
    pub greeted: Count,
    /// Whatever else shows that it goes on: messages, entries, turns of a limit.
    pub steps: Count,
    /// Where the time of the threads here goes.
    pub times: Times,
    /// Entries, and their bytes, that the receiving end does not want.
    unwanted: [Count; 2],
    /// Whether the path goes through a relay.
    relayed: AtomicBool,
    /// Whether nothing has moved for so long that others have its turn.
    idle: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
    stop: Stop,
}

impl Default for Live {
    fn default() -> Self {
        let unknown = || Count(AtomicU64::new(UNKNOWN));
        Self {
            total_entries: unknown(),
            total_bytes: unknown(),
            entries: Count::default(),
            bytes: Count::default(),
            moved: Count::default(),
            saved: Count::default(),
            read: Count::default(),
            had: Count::default(),
            greeted: Count::default(),
            steps: Count::default(),
            times: Times::default(),
            unwanted: Default::default(),
            relayed: AtomicBool::new(false),
            idle: AtomicBool::new(false),
            state: Mutex::new(State {
                state: TransferState::Queued,
                why: None,
                notes: Vec::new(),
                more_notes: 0,
                path: None,
                held_up_by: None,
                rate: None,
                samples: Vec::new(),
                version: 0,
            }),
            changed: Condvar::new(),
            stop: Stop::default(),
        }
    }
}

impl Live {
    /// How to end it.
    pub const fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Sets how much there is, as far as that is known.
    pub fn set_totals(&self, entries: Option<u64>, bytes: Option<u64>) {
        self.total_entries.set(entries.unwrap_or(UNKNOWN));
        self.total_bytes.set(bytes.unwrap_or(UNKNOWN));
    }

    /// Notes that the receiving end does not want an entry: it counts no more.
    pub fn leave_out(&self, bytes: u64) {
        let [entries, of_bytes] = &self.unwanted;
        entries.add(1);
        of_bytes.add(bytes);
    }

    /// Returns entries and bytes, without those that the receiving end does not want.
    pub fn amounts(&self) -> [Amount; 2] {
        let amount = |total: &Count, unwanted: &Count, done: &Count| Amount {
            total: Some(total.value())
                .filter(|total| *total != UNKNOWN)
                .map(|total| total.saturating_sub(unwanted.value())),
            done: done.value(),
        };
        let [entries, bytes] = &self.unwanted;
        [
            amount(&self.total_entries, entries, &self.entries),
            amount(&self.total_bytes, bytes, &self.bytes),
        ]
    }

    /// Goes on with the counts of the tries before it.
    pub fn go_on_from(&self, before: &Progress) {
        self.moved.set(before.moved);
        self.saved.set(before.saved);
        self.read.set(before.read);
    }

    /// Notes how far it is now. A try that came to nothing tells less than those before it, unless it `has_ended`.
    pub fn keep_in(&self, progress: &mut Progress, has_ended: bool) {
        let amounts = self.amounts();
        let is_newer = has_ended || amounts[1].done >= progress.bytes.done;
        *progress = self.progress(if is_newer {
            amounts
        } else {
            [progress.entries, progress.bytes]
        });
    }

    /// Returns how far it is now, with these entries and bytes.
    pub fn progress(&self, [entries, bytes]: [Amount; 2]) -> Progress {
        let state = self.state();
        Progress {
            entries,
            bytes,
            moved: self.moved.value(),
            saved: self.saved.value(),
            read: self.read.value(),
            had: self.had.value(),
            notes: state.notes,
            more_notes: state.more_notes,
        }
    }

    /// Sets whether the path goes through a relay.
    pub fn set_relayed(&self, relayed: bool) {
        self.relayed.store(relayed, Ordering::Relaxed);
    }

    /// Whether the path goes through a relay.
    pub fn is_relayed(&self) -> bool {
        self.relayed.load(Ordering::Relaxed)
    }

    /// Whether it takes a turn of the transfers at a time: it does not wait for a user, and something moves.
    pub fn takes_turn(&self) -> bool {
        goes_on(self.lock().state) && !self.idle.load(Ordering::Relaxed)
    }

    /// Looks whether something moves. One on which nothing has moved for too long ends.
    pub fn look(&self, watch: &mut Watch, least: &Least, now: Instant) {
        let counts = [
            &self.moved,
            &self.read,
            &self.entries,
            &self.bytes,
            &self.had,
            &self.steps,
        ];
        let (goes_on, is_limited) = {
            let state = self.lock();
            (goes_on(state.state), state.held_up_by == Some(LIMIT))
        };
        // A low limit may let nothing through for long, which another try would not change.
        let end = least.end * if is_limited { LIMITED } else { 1 };
        let motion = watch.look(&Least { end, ..*least }, counts.map(Count::value), goes_on, now);
        self.idle.store(motion != Motion::Moves, Ordering::Relaxed);
        if motion == Motion::Over {
            self.stop.stop(Reason::Failed(Failure::Retry(least.words())));
        }
    }

    /// Waits for the turn of `bytes` at each limit that holds, unless the transfer ends.
    pub fn keep_to(&self, paces: &Paces, bytes: u64) {
        for (pace, of_relay) in paces.all() {
            let holds = || !of_relay || self.relayed.load(Ordering::Relaxed);
            if !holds() {
                continue;
            }
            let turn = pace.take(bytes, Instant::now());
            loop {
                let wait = pace.wait(turn, Instant::now());
                if wait.is_zero() {
                    break;
                }
                if self.stop.is_set() || !holds() {
                    pace.give_back(bytes, Instant::now());
                    break;
                }
                self.times.of(Work::Limit, || std::thread::sleep(wait.min(NAP)));
                self.steps.add(1);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state.
    pub fn state(&self) -> State {
        self.lock().clone()
    }

    /// Changes the state, and wakes those that follow it.
    pub fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        state.version += 1;
        drop(state);
        self.changed.notify_all();
    }

    /// Sets what the transfer does.
    pub fn set(&self, to: TransferState, why: Option<String>) {
        self.change(|state| {
            state.state = to;
            state.why = why;
        });
    }

    /// Notes something about an entry.
    pub fn note(&self, name: String, what: impl Into<String>) {
        let what = what.into();
        self.change(|state| match state.notes.len() < MAX_NOTES {
            true => state.notes.push(Note { name, what }),
            false => state.more_notes += 1,
        });
    }

    /// Takes a sample of what moves, each half second at most, and wakes those that follow.
    pub fn sample(&self, now: Instant) {
        let moved = self.moved.value();
        self.change(|state| {
            let last = state.samples.last().map(|(at, _)| *at);
            if last.is_some_and(|last| now < last + SAMPLE) {
                return;
            }
            state.samples.push((now, moved));
            if state.samples.len() > SAMPLES {
                state.samples.remove(0);
            }
            let Some((first, before)) = state.samples.first().copied() else {
                return;
            };
            // Groups come in steps, which a shorter time would show.
            let spent = now.saturating_duration_since(first).as_secs_f64();
            if spent >= 1.0 {
                state.rate = Some((moved.saturating_sub(before) as f64 / spent) as u64);
            }
        });
    }

    /// Waits until the state is another than that of `version`, or the time is over. Returns the version.
    pub fn wait(&self, version: u64, limit: Duration) -> u64 {
        let state = self.lock();
        let waited = self
            .changed
            .wait_timeout_while(state, limit, |state| state.version == version);
        match waited {
            Ok((state, _)) => state.version,
            Err(error) => error.into_inner().0.version,
        }
    }
}

/// Whether something should move: a peer that has not answered yet, or does not say that all is stored, may be one that
/// never will.
const fn goes_on(state: TransferState) -> bool {
    !matches!(state, TransferState::Queued | TransferState::Waiting)
}

/// Why a transfer ends before it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The user here cancels it.
    Cancel,
    /// The user here pauses it.
    Pause,
    /// The process ends, or another connection takes its place.
    Shutdown,
    /// A thread of it failed.
    Failed(Failure),
}

/// How a try of a transfer failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Another try may succeed.
    Retry(String),
    /// No other try can.
    Fatal(String),
    /// The user at the other end wants it no more.
    Rejected(String),
    /// The user at the other end has cancelled it.
    Cancelled(String),
}

impl Failure {
    /// The reason in words.
    #[must_use]
    pub fn words(&self) -> &str {
        let (Self::Retry(words) | Self::Fatal(words) | Self::Rejected(words) | Self::Cancelled(words)) = self;
        words
    }
}

/// Ends all threads of a transfer: their connections are shut down.
#[derive(Debug, Default)]
pub struct Stop {
    is_set: AtomicBool,
    inner: Mutex<(Option<Reason>, Vec<Arc<TcpStream>>)>,
    changed: Condvar,
}

impl Stop {
    fn lock(&self) -> MutexGuard<'_, (Option<Reason>, Vec<Arc<TcpStream>>)> {
        // No code panics while it holds the lock.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection that is shut down with the others.
    pub fn add(&self, connection: &Arc<TcpStream>) {
        let mut inner = self.lock();
        match inner.0 {
            Some(_) => drop(connection.shutdown(Shutdown::Both)),
            None => inner.1.push(Arc::clone(connection)),
        }
    }

    /// Forgets a connection that has ended.
    pub fn forget(&self, connection: &Arc<TcpStream>) {
        self.lock().1.retain(|one| !Arc::ptr_eq(one, connection));
    }

    /// Ends the transfer. The first reason stays.
    pub fn stop(&self, reason: Reason) {
        let mut inner = self.lock();
        inner.0.get_or_insert(reason);
        self.is_set.store(true, Ordering::Release);
        for connection in inner.1.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        self.changed.notify_all();
    }

    /// Waits until it ends, for `time` at most.
    pub fn wait(&self, time: Duration) {
        let end = Instant::now() + time;
        let mut inner = self.lock();
        while inner.0.is_none() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            inner = match self.changed.wait_timeout(inner, left) {
                Ok((inner, _)) => inner,
                Err(error) => error.into_inner().0,
            };
        }
    }

    /// Whether it ends.
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Why it ends.
    pub fn reason(&self) -> Option<Reason> {
        self.lock().0.clone()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use weft_os::test_support::wait_until;

    use super::*;
    use crate::pace::Pace;

    #[test]
    fn a_connection_that_has_ended_is_not_held() {
        let listener = std::net::TcpListener::bind("[::1]:0").unwrap();
        let stream = Arc::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let stop = Stop::default();
        stop.add(&stream);
        assert_eq!(Arc::strong_count(&stream), 2);
        stop.forget(&stream);
        assert_eq!(Arc::strong_count(&stream), 1);
    }

    #[test]
    fn a_limit_of_relays_holds_while_the_path_goes_through_one() {
        let live = Live::default();
        let pace = Arc::new(Pace::new(Some(1), Instant::now()));
        let paces = Paces {
            always: Vec::new(),
            relayed: vec![Arc::clone(&pace)],
        };
        live.keep_to(&paces, 1_000_000);
        assert_eq!(live.steps.value(), 0, "it is not asked on a direct path");
        live.set_relayed(true);
        live.keep_to(&paces, 1_000_000);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| live.keep_to(&paces, 1_000_000));
            wait_until(Duration::from_secs(60), "it waits", || live.steps.value() > 0);
            live.set_relayed(false);
            waits.join().unwrap();
        });
        assert!(live.times.now()[3] > 0);
    }
}
