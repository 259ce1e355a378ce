//! What a lane's handle and its thread share.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use weft_contract::{Command, bounds};
use weft_os::clock::monotonic_ns;
use weft_os::poll::EventFd;

use crate::counters::Snapshot;
use crate::further::Change;
use crate::inbox::Inbox;
use crate::trace::Trace;

/// State that the handle and the thread share.
pub(crate) struct Shared {
    commands: Mutex<Commands>,
    /// Whether there are commands, so that checking needs no lock.
    commands_wait: AtomicBool,
    /// Messages that were dropped because the commands were full.
    commands_dropped: AtomicU64,
    /// Batches that other lanes hand over.
    pub(crate) inbox: Inbox,
    pub(crate) wake: EventFd,
    stop: AtomicBool,
    snapshot: Mutex<Snapshot>,
    traced: AtomicBool,
    trace: Mutex<Option<Trace>>,
    /// While traced: when the oldest pending command arrived, ns; 0 if there is none.
    commands_since: AtomicU64,
}

/// Commands that wait for a lane, in order.
#[derive(Default)]
struct Commands {
    queue: VecDeque<Command>,
    /// Changes of the further sockets, which go before the commands.
    changes: Vec<Change>,
    /// Size of those that may be dropped, bytes.
    bytes: usize,
}

impl Commands {
    /// Queues a command. Returns false if it may be dropped and too much waits.
    fn push(&mut self, command: Command) -> bool {
        if let Some(bytes) = command.loss_tolerant_bytes() {
            if self.bytes + bytes > bounds::COMMANDS {
                return false;
            }
            self.bytes += bytes;
        }
        self.queue.push_back(command);
        true
    }
}

impl Shared {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            commands: Mutex::default(),
            commands_wait: AtomicBool::new(false),
            commands_dropped: AtomicU64::new(0),
            inbox: Inbox::default(),
            wake: EventFd::new()?,
            stop: AtomicBool::new(false),
            snapshot: Mutex::default(),
            traced: AtomicBool::new(false),
            trace: Mutex::default(),
            commands_since: AtomicU64::new(0),
        })
    }
}

/// The handle's part.
impl Shared {
    /// Queues commands, which the lane executes in this order. If [`bounds::COMMANDS`] bytes wait
    /// because the lane is far behind, messages that may be lost like any datagram are dropped and
    /// counted.
    pub(crate) fn send(&self, commands: impl IntoIterator<Item = Command>) {
        let mut queue = lock(&self.commands);
        let before = queue.queue.len();
        let dropped = commands
            .into_iter()
            .filter_map(|command| (!queue.push(command)).then_some(()));
        self.commands_dropped
            .fetch_add(dropped.count() as u64, Ordering::Relaxed);
        if queue.queue.len() > before {
            self.commands_wait.store(true, Ordering::Release);
            if self.traced() {
                let now = monotonic_ns();
                let _ = self
                    .commands_since
                    .compare_exchange(0, now, Ordering::AcqRel, Ordering::Relaxed);
            }
            self.wake.wake();
        }
    }

    /// Queues a change of the further sockets. It is executed before any command that is queued
    /// afterwards.
    pub(crate) fn change(&self, change: Change) {
        lock(&self.commands).changes.push(change);
        self.commands_wait.store(true, Ordering::Release);
        self.wake.wake();
    }

    /// The counters of the lane.
    pub(crate) fn snapshot(&self) -> Snapshot {
        lock(&self.snapshot).clone()
    }

    /// Starts or stops the tracing of the lane's stages. Tracing costs CPU time; see
    /// [`Trace::clock_ns`].
    pub(crate) fn set_traced(&self, on: bool) {
        if self.traced.swap(on, Ordering::AcqRel) != on {
            *lock(&self.trace) = None;
            self.wake.wake();
        }
    }

    /// The trace so far, at most 250 ms old; `None` before the first sample and while tracing is
    /// off.
    pub(crate) fn trace(&self) -> Option<Trace> {
        lock(&self.trace).clone().filter(|_| self.traced())
    }

    /// Makes the thread execute the commands queued so far and end.
    pub(crate) fn tell_to_stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake.wake();
    }
}

/// The thread's part.
impl Shared {
    /// Whether commands wait.
    #[inline]
    pub(crate) fn commands_wait(&self) -> bool {
        self.commands_wait.load(Ordering::Relaxed)
    }

    /// Swaps all commands into an empty queue, and returns the changes of the further sockets.
    pub(crate) fn take_commands(&self, into: &mut VecDeque<Command>) -> Vec<Change> {
        if !self.commands_wait.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut commands = lock(&self.commands);
        self.commands_wait.store(false, Ordering::Release);
        commands.bytes = 0;
        std::mem::swap(&mut commands.queue, into);
        std::mem::take(&mut commands.changes)
    }

    /// Messages of the core that were dropped.
    pub(crate) fn commands_dropped(&self) -> u64 {
        self.commands_dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(crate) fn traced(&self) -> bool {
        self.traced.load(Ordering::Relaxed)
    }

    /// How long the oldest command waited, ns, if tracing recorded it.
    pub(crate) fn take_command_wait(&self) -> Option<u64> {
        let since = self.commands_since.swap(0, Ordering::AcqRel);
        (since > 0).then(|| monotonic_ns().saturating_sub(since))
    }

    pub(crate) fn publish_trace(&self, trace: Option<Trace>) {
        *lock(&self.trace) = trace;
    }

    pub(crate) fn publish(&self, snapshot: Snapshot) {
        *lock(&self.snapshot) = snapshot;
    }
}

/// A panic elsewhere leaves these values consistent: they are replaced or extended in one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use weft_contract::{Endpoint, LinkCommand, LinkId, SendCommand};

    use super::*;

    #[test]
    fn a_lane_that_is_behind_has_bounded_messages_and_new_tables() {
        let mut commands = Commands::default();
        let message = || {
            Command::Send(SendCommand::Transmit {
                to: Endpoint::from(([192, 0, 2, 1], 2121)),
                datagram: vec![0; 1_400],
            })
        };
        let taken = (0..10_000).filter(|_| commands.push(message())).count();
        assert!(
            commands.bytes <= bounds::COMMANDS && taken >= bounds::COMMANDS / 2_000,
            "{taken}"
        );
        for link in 0..100 {
            assert!(commands.push(Command::Link(LinkId(link), LinkCommand::Remove)));
        }
        assert!(!commands.push(message()));
    }
}
