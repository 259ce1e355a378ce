//! The thread that hears of changes of the network, by any program.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::Notify;
use weft_os::netlink::{Change, Monitor};
use weft_os::poll::{EventFd, Events, Interest as Readiness, Poller};

/// Turns changes into something to do.
pub trait Listener: Send + 'static {
    /// What there is to do.
    type Due: Default + Send;

    /// Notes a change. Returns true if there is something to do.
    fn note(&mut self, change: &Change, due: &mut Self::Due) -> bool;
}

/// A thread that waits for the kernel's notifications. It sleeps between them, and ends with this
/// value.
pub struct Watch<L: Listener> {
    shared: Arc<Shared<L>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared<L: Listener> {
    state: Mutex<(L, L::Due)>,
    changed: Notify,
    stop: AtomicBool,
    wake: EventFd,
}

impl<L: Listener> Watch<L> {
    /// Starts to watch addresses, routes, the rules for them, and interfaces.
    ///
    /// # Errors
    /// The error of the system.
    pub fn of_network(listener: L) -> io::Result<Self> {
        Self::start(vec![Monitor::of_network().map_err(io::Error::other)?], listener)
    }

    /// Starts to watch nftables, and all that [`of_network`](Self::of_network) watches. It needs the capability
    /// CAP_NET_ADMIN.
    ///
    /// # Errors
    /// The error of the system.
    pub fn of_rules(listener: L) -> io::Result<Self> {
        let monitors = [Monitor::of_nftables(), Monitor::of_network()];
        let monitors: Result<_, _> = monitors.into_iter().collect();
        Self::start(monitors.map_err(io::Error::other)?, listener)
    }

    fn start(monitors: Vec<Monitor>, listener: L) -> io::Result<Self> {
        let poller = Poller::new()?;
        let shared = Arc::new(Shared {
            state: Mutex::new((listener, L::Due::default())),
            changed: Notify::new(),
            stop: AtomicBool::new(false),
            wake: EventFd::new()?,
        });
        poller.add(&shared.wake, 0, Readiness::Readable)?;
        for (token, monitor) in (1..).zip(&monitors) {
            poller.add(monitor, token, Readiness::Readable)?;
        }
        let of_thread = shared.clone();
        let watch = move || watch(&monitors, &poller, &of_thread);
        let thread = std::thread::Builder::new().name("weft-watch".into()).spawn(watch)?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Returns once there is something to do. Safe to cancel.
    pub async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// Takes what there is to do.
    #[must_use]
    pub fn take(&self) -> L::Due {
        std::mem::take(&mut self.shared.lock().1)
    }

    /// Changes the listener.
    pub fn with<T>(&self, change: impl FnOnce(&mut L) -> T) -> T {
        change(&mut self.shared.lock().0)
    }
}

impl<L: Listener> Shared<L> {
    fn lock(&self) -> MutexGuard<'_, (L, L::Due)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: Listener> Drop for Watch<L> {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake.wake();
        if let Some(thread) = self.thread.take() {
            // The message of a panic in it was already printed.
            let _ = thread.join();
        }
    }
}

fn watch<L: Listener>(monitors: &[Monitor], poller: &Poller, shared: &Shared<L>) {
    let mut events = Events::with_capacity(1 + monitors.len());
    let note = |change| {
        let (listener, due) = &mut *shared.lock();
        if listener.note(&change, due) {
            shared.changed.notify_one();
        }
    };
    let mut wait = || -> io::Result<()> {
        poller.wait(&mut events, None)?;
        monitors.iter().try_for_each(|monitor| monitor.drain(note))
    };
    while !shared.stop.load(Ordering::Acquire) {
        if let Err(error) = wait() {
            tracing::error!(%error, "changes of the network are no longer noticed");
            return;
        }
    }
}
