//! The handle of a lane's thread.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use weft_os::clock::monotonic_ns;
use weft_os::poll::EventFd;
use weft_os::tun::Tun;
use weft_os::udp::UdpSocket;
use weft_packet::{Command, Lane, Report, bounds};

use crate::counters::Snapshot;
use crate::handover::Inbox;
use crate::trace::Trace;
use crate::worker::{self, Worker};

/// Accepts reports of a lane's thread; it must not block. Returns the reports that it has no room
/// for: a proof is offered again, and any other report is dropped and counted.
pub type ReportSink = Box<dyn FnMut(Report) -> Vec<Report> + Send>;

/// Everything that a lane's thread owns.
pub struct LaneSetup {
    /// The packet path.
    pub lane: Lane,
    /// Its TUN queue.
    pub tun: Tun,
    /// Its sockets: datagrams leave by the first that serves their IP version.
    pub sockets: Vec<UdpSocket>,
    /// Maximum number of datagrams in one send call.
    pub batch: usize,
    /// Whether the thread raises its priority while it moves bulk
    /// ([`LANE_NICE`](crate::LANE_NICE)).
    pub preferred: bool,
    /// The receiver of its reports.
    pub reports: ReportSink,
}

/// Why a lane did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system returned no descriptor for polling.
    #[error("cannot set up waiting for sockets: {0}")]
    Poll(#[source] io::Error),
    /// The system started no thread.
    #[error("cannot start a packet thread: {0}")]
    Thread(#[source] io::Error),
}

/// A running lane. Dropping it stops the thread and waits for it.
pub(crate) struct LaneThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

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

impl LaneThread {
    /// Starts the thread of lane number `at`.
    pub(crate) fn start(setup: LaneSetup, at: usize, lanes: Arc<[Arc<Shared>]>) -> Result<Self, StartError> {
        let name = match lanes.len() {
            1 => "weft-lane".to_owned(),
            _ => format!("weft-lane-{at}"),
        };
        let shared = match lanes.get(at) {
            Some(shared) => shared.clone(),
            None => Shared::new().map(Arc::new).map_err(StartError::Poll)?,
        };
        let preferred = setup.preferred;
        let worker = Worker::new(setup, shared.clone(), lanes).map_err(StartError::Poll)?;
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || worker::run(worker, preferred))
            .map_err(StartError::Thread)?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Queues commands, which the lane executes in this order. If [`bounds::COMMANDS`] bytes wait
    /// because the lane is far behind, messages that may be lost like any datagram are dropped and
    /// counted.
    pub(crate) fn send(&self, commands: impl IntoIterator<Item = Command>) {
        let mut queue = lock(&self.shared.commands);
        let before = queue.queue.len();
        let dropped = commands
            .into_iter()
            .filter_map(|command| (!queue.push(command)).then_some(()));
        self.shared
            .commands_dropped
            .fetch_add(dropped.count() as u64, Ordering::Relaxed);
        if queue.queue.len() > before {
            self.shared.commands_wait.store(true, Ordering::Release);
            if self.shared.traced() {
                let now = monotonic_ns();
                let _ = (self.shared.commands_since).compare_exchange(0, now, Ordering::AcqRel, Ordering::Relaxed);
            }
            self.shared.wake.wake();
        }
    }

    /// The counters of the lane.
    pub(crate) fn snapshot(&self) -> Snapshot {
        lock(&self.shared.snapshot).clone()
    }

    /// Starts or stops the tracing of the lane's stages. Tracing costs CPU time; see
    /// [`Trace::clock_ns`].
    pub(crate) fn set_traced(&self, on: bool) {
        if self.shared.traced.swap(on, Ordering::AcqRel) != on {
            *lock(&self.shared.trace) = None;
            self.shared.wake.wake();
        }
    }

    /// The trace so far, at most 250 ms old; `None` before the first sample and while tracing is
    /// off.
    pub(crate) fn trace(&self) -> Option<Trace> {
        lock(&self.shared.trace).clone().filter(|_| self.shared.traced())
    }

    /// Whether the thread has ended, which happens only if it was stopped or its TUN is gone.
    pub(crate) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Makes the thread execute the commands queued so far and end.
    pub(crate) fn tell_to_stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake.wake();
    }

    fn end(&mut self) {
        self.tell_to_stop();
        if let Some(thread) = self.thread.take() {
            // The thread has already printed its panic.
            let _ = thread.join();
        }
    }
}

impl Drop for LaneThread {
    fn drop(&mut self) {
        self.end();
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

    /// Whether commands wait.
    #[inline]
    pub(crate) fn commands_wait(&self) -> bool {
        self.commands_wait.load(Ordering::Relaxed)
    }

    /// Swaps all commands into an empty queue.
    pub(crate) fn take_commands(&self, into: &mut VecDeque<Command>) {
        if !self.commands_wait.load(Ordering::Acquire) {
            return;
        }
        let mut commands = lock(&self.commands);
        self.commands_wait.store(false, Ordering::Release);
        commands.bytes = 0;
        std::mem::swap(&mut commands.queue, into);
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
    use std::net::SocketAddr;

    use weft_packet::{LinkCommand, LinkId, SendCommand};

    use super::*;

    #[test]
    fn messages_for_a_lane_that_is_behind_are_bounded_in_bytes_and_tables_change_all_the_same() {
        let mut commands = Commands::default();
        let message = || {
            Command::Send(SendCommand::Transmit {
                to: SocketAddr::from(([192, 0, 2, 1], 2121)),
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
