//! Notification of changes of the system's network, by any program.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use tokio::sync::Notify;
use weft_os::netlink::Monitor;
use weft_os::poll::{EventFd, Events, Interest, Poller};

/// A thread that waits for the kernel's notifications. It sleeps between them, and ends with this
/// value.
pub(crate) struct SystemChanges {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    changed: Notify,
    stop: AtomicBool,
    wake: EventFd,
}

impl SystemChanges {
    /// Starts to watch for changes of addresses, routes and links.
    pub(crate) fn of_network() -> io::Result<Self> {
        Self::start(vec![Monitor::of_network().map_err(io::Error::other)?])
    }

    /// Starts to watch for changes of nftables and of the rules for routes. It needs the capability
    /// CAP_NET_ADMIN.
    pub(crate) fn of_rules() -> io::Result<Self> {
        let monitors = [Monitor::of_nftables(), Monitor::of_rules()];
        let monitors: Result<_, _> = monitors.into_iter().collect();
        Self::start(monitors.map_err(io::Error::other)?)
    }

    fn start(monitors: Vec<Monitor>) -> io::Result<Self> {
        let poller = Poller::new()?;
        let shared = Arc::new(Shared {
            changed: Notify::new(),
            stop: AtomicBool::new(false),
            wake: EventFd::new()?,
        });
        poller.add(&shared.wake, 0, Interest::Readable)?;
        for (token, monitor) in (1..).zip(&monitors) {
            poller.add(monitor, token, Interest::Readable)?;
        }
        let of_thread = shared.clone();
        let watch = move || watch(&monitors, &poller, &of_thread);
        let thread = std::thread::Builder::new().name("weft-watch".into()).spawn(watch)?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Returns once something has changed. Safe to cancel.
    pub(crate) async fn changed(&self) {
        self.shared.changed.notified().await;
    }
}

impl Drop for SystemChanges {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake.wake();
        if let Some(thread) = self.thread.take() {
            // The message of a panic in it was already printed.
            let _ = thread.join();
        }
    }
}

fn watch(monitors: &[Monitor], poller: &Poller, shared: &Shared) {
    let mut events = Events::with_capacity(1 + monitors.len());
    let mut wait = || -> io::Result<bool> {
        poller.wait(&mut events, None)?;
        let mut heard = false;
        for monitor in monitors {
            monitor.drain(|_| heard = true)?;
        }
        Ok(heard)
    };
    while !shared.stop.load(Ordering::Acquire) {
        match wait() {
            Ok(true) => shared.changed.notify_one(),
            Ok(false) => {}
            Err(error) => {
                tracing::error!(%error, "changes of the network are no longer noticed");
                return;
            }
        }
    }
}
