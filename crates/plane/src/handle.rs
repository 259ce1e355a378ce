//! The outside of a lane's thread.

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

/// Takes reports out of a lane's thread; it must not wait. Returns the reports that find no room: a proof is offered again, and
/// anything else is dropped and counted.
pub type ReportSink = Box<dyn FnMut(Report) -> Vec<Report> + Send>;

/// What a lane's thread owns.
pub struct LaneSetup {
    /// The packet path.
    pub lane: Lane,
    /// Its TUN queue.
    pub tun: Tun,
    /// Its sockets: datagrams leave by the first that serves their IP version.
    pub sockets: Vec<UdpSocket>,
    /// Datagrams that leave in one call at most.
    pub batch: usize,
    /// Its thread is to go before others of this machine while it moves bulk ([`LANE_NICE`](crate::LANE_NICE)).
    pub preferred: bool,
    /// Where its reports go.
    pub reports: ReportSink,
}

/// Why a lane could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system gave no descriptor to wait with.
    #[error("cannot set up waiting for sockets: {0}")]
    Poll(#[source] io::Error),
    /// The system gave no thread.
    #[error("cannot start a packet thread: {0}")]
    Thread(#[source] io::Error),
}

/// A running lane. Dropping it stops the thread and waits for it.
pub(crate) struct LaneThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What both sides of the thread touch.
pub(crate) struct Shared {
    commands: Mutex<Commands>,
    /// There are commands; so that a look takes no lock.
    commands_wait: AtomicBool,
    /// Messages that found no room among them.
    commands_dropped: AtomicU64,
    /// What other lanes give it.
    pub(crate) inbox: Inbox,
    pub(crate) wake: EventFd,
    stop: AtomicBool,
    snapshot: Mutex<Snapshot>,
    traced: AtomicBool,
    trace: Mutex<Option<Trace>>,
    /// While traced: when the oldest command came that has not been taken, ns; 0 if there is none.
    commands_since: AtomicU64,
}

/// Commands that wait for a lane, in their order.
#[derive(Default)]
struct Commands {
    queue: VecDeque<Command>,
    /// What those take that may be lost, bytes.
    bytes: usize,
}

impl Commands {
    /// Takes a command; false if it may be lost and too much waits.
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
    /// Starts the thread of the lane at this place of all.
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

    /// Hands over commands, to be carried out in this order. Messages that may be lost as datagrams may are dropped, and
    /// counted, where the lane is so far behind that [`bounds::COMMANDS`] bytes of them wait.
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

    /// What the lane counted.
    pub(crate) fn snapshot(&self) -> Snapshot {
        lock(&self.shared.snapshot).clone()
    }

    /// Has the lane's stages measured from now on, or no longer. That takes some of its time; see [`Trace::clock_ns`].
    pub(crate) fn set_traced(&self, on: bool) {
        if self.shared.traced.swap(on, Ordering::AcqRel) != on {
            *lock(&self.shared.trace) = None;
            self.shared.wake.wake();
        }
    }

    /// What was measured since that began, at most 250 ms old; none before the first of it, and while nothing is measured.
    pub(crate) fn trace(&self) -> Option<Trace> {
        lock(&self.shared.trace).clone().filter(|_| self.shared.traced())
    }

    /// Whether the thread has ended, which it does only when it was stopped or its TUN is gone.
    pub(crate) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Has it carry out the commands given so far and end.
    pub(crate) fn tell_to_stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake.wake();
    }

    fn end(&mut self) {
        self.tell_to_stop();
        if let Some(thread) = self.thread.take() {
            // A panic in the thread was already printed by it.
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

    /// Whether there are commands.
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

    /// Messages of the core that found no room.
    pub(crate) fn commands_dropped(&self) -> u64 {
        self.commands_dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(crate) fn traced(&self) -> bool {
        self.traced.load(Ordering::Relaxed)
    }

    /// How long the oldest command waited, ns, if it was noted.
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

/// A panic elsewhere leaves these values whole: they are replaced or extended in one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use weft_packet::LinkId;

    use super::*;

    #[test]
    fn messages_for_a_lane_that_is_behind_are_bounded_in_bytes_and_tables_change_all_the_same() {
        let mut commands = Commands::default();
        let message = || Command::Transmit {
            to: SocketAddr::from(([192, 0, 2, 1], 2121)),
            datagram: vec![0; 1_400],
        };
        let taken = (0..10_000).filter(|_| commands.push(message())).count();
        assert!(
            commands.bytes <= bounds::COMMANDS && taken >= bounds::COMMANDS / 2_000,
            "{taken}"
        );
        for link in 0..100 {
            assert!(commands.push(Command::RemoveLink { link: LinkId(link) }));
        }
        assert!(!commands.push(message()));
    }
}
