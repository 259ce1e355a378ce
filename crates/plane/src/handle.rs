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
use weft_packet::{Command, Lane, Report};

use crate::counters::Snapshot;
use crate::handover::Inbox;
use crate::trace::Trace;
use crate::worker::{self, Worker};

/// Takes reports out of a lane's thread; it must not wait. Returns false if there was no room, and the report is lost.
pub type ReportSink = Box<dyn FnMut(Report) -> bool + Send>;

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
    commands: Mutex<VecDeque<Command>>,
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

    /// Hands over commands, to be carried out in this order.
    pub(crate) fn send(&self, commands: impl IntoIterator<Item = Command>) {
        let mut queue = lock(&self.shared.commands);
        let before = queue.len();
        queue.extend(commands);
        if queue.len() > before {
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
            inbox: Inbox::default(),
            wake: EventFd::new()?,
            stop: AtomicBool::new(false),
            snapshot: Mutex::default(),
            traced: AtomicBool::new(false),
            trace: Mutex::default(),
            commands_since: AtomicU64::new(0),
        })
    }

    pub(crate) fn take_commands(&self, into: &mut VecDeque<Command>) {
        std::mem::swap(&mut *lock(&self.commands), into);
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
