//! Notification of changes of the system's addresses and routes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use tokio::sync::Notify;
use weft_os::netlink::Monitor;
use weft_os::poll::{EventFd, Events, Interest, Poller};

/// A thread that waits for the kernel's notifications. It sleeps between them, and ends with this
/// value.
pub(super) struct NetworkWatch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    changed: Notify,
    stop: AtomicBool,
    wake: EventFd,
}

impl NetworkWatch {
    /// Starts to watch the calling thread's network namespace.
    pub(super) fn start() -> io::Result<Self> {
        let monitor = Monitor::open().map_err(io::Error::other)?;
        let poller = Poller::new()?;
        let shared = Arc::new(Shared {
            changed: Notify::new(),
            stop: AtomicBool::new(false),
            wake: EventFd::new()?,
        });
        poller.add(&monitor, 0, Interest::Readable)?;
        poller.add(&shared.wake, 1, Interest::Readable)?;
        let of_thread = shared.clone();
        let watch = move || watch(&monitor, &poller, &of_thread);
        let thread = std::thread::Builder::new().name("weft-watch".into()).spawn(watch)?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Returns once something has changed. Safe to cancel.
    pub(super) async fn changed(&self) {
        self.shared.changed.notified().await;
    }
}

impl Drop for NetworkWatch {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake.wake();
        if let Some(thread) = self.thread.take() {
            // The message of a panic in it was already printed.
            let _ = thread.join();
        }
    }
}

fn watch(monitor: &Monitor, poller: &Poller, shared: &Shared) {
    let mut events = Events::with_capacity(2);
    while !shared.stop.load(Ordering::Acquire) {
        match poller.wait(&mut events, None).and_then(|_| monitor.drain()) {
            Ok(true) => shared.changed.notify_one(),
            Ok(false) => {}
            Err(error) => {
                tracing::error!(%error, "changes of addresses are no longer noticed");
                return;
            }
        }
    }
}
