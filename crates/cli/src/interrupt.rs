//! Ctrl-C during a command that repeats an action, or has a child.

use std::future::poll_fn;
use std::path::Path;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use serde_json::Value;
use weft_control::ControlError;

use crate::failure::Failure;
use crate::feed::Feed;

/// What came first.
pub(crate) enum Next<T = Result<Value, ControlError>> {
    /// An event.
    Event(T),
    /// The end of the events.
    Ended,
    /// The end of the wait.
    Time,
    /// Ctrl-C.
    Interrupted,
}

/// Catches SIGINT from its creation on, and other signals that end a process.
pub(crate) struct Interrupt {
    runtime: Runtime,
    signals: Vec<Signal>,
}

impl Interrupt {
    pub(crate) fn catch() -> Result<Self, Failure> {
        Self::of(&[SignalKind::interrupt()])
    }

    /// Catches SIGTERM, SIGHUP and SIGQUIT as well: they must not end this process before its child.
    pub(crate) fn catch_all() -> Result<Self, Failure> {
        Self::of(&[
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::quit(),
        ])
    }

    /// Catches nothing: signals end this process as they end any other.
    pub(crate) fn catch_none() -> Result<Self, Failure> {
        Self::of(&[])
    }

    fn of(kinds: &[SignalKind]) -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Failure::Signals)?;
        let signals = {
            let _inside = runtime.enter();
            let signals = kinds.iter().map(|kind| signal(*kind));
            signals.collect::<Result<_, _>>().map_err(Failure::Signals)?
        };
        Ok(Self { runtime, signals })
    }

    /// Waits for `time`. Returns false if Ctrl-C ended the wait.
    pub(crate) fn pause(&mut self, time: Duration) -> bool {
        let signals = &mut self.signals;
        self.runtime.block_on(async {
            tokio::select! {
                () = tokio::time::sleep(time) => true,
                () = received(signals) => false,
            }
        })
    }

    /// Asks the daemon at the socket `path` for its events: those, and the first one. Returns `None` if Ctrl-C came
    /// first.
    pub(crate) fn open(&mut self, path: &Path) -> Option<Result<(Feed, Value), ControlError>> {
        let path = path.to_owned();
        self.run(move || Feed::open(&path))
    }

    /// Waits for the next event of the daemon, at most for `time`.
    pub(crate) fn next(&mut self, feed: &mut Feed, time: Option<Duration>) -> Next {
        self.first(feed.next(), time)
    }

    /// Waits for the next message of another thread.
    pub(crate) fn receive<T>(&mut self, from: &mut mpsc::Receiver<T>) -> Next<T> {
        self.first(from.recv(), None)
    }

    fn first<T>(&mut self, event: impl Future<Output = Option<T>>, time: Option<Duration>) -> Next<T> {
        let signals = &mut self.signals;
        self.runtime.block_on(async {
            let end = async {
                match time {
                    Some(time) => tokio::time::sleep(time).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = event => event.map_or(Next::Ended, Next::Event),
                () = end => Next::Time,
                () = received(signals) => Next::Interrupted,
            }
        })
    }

    /// Runs `work`, which blocks. Returns `None` if Ctrl-C came first; the work is then abandoned.
    pub(crate) fn run<T: Send + 'static>(&mut self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, result) = oneshot::channel();
        std::thread::spawn(move || done.send(work()));
        let signals = &mut self.signals;
        self.runtime.block_on(async {
            tokio::select! {
                result = result => result.ok(),
                () = received(signals) => None,
            }
        })
    }
}

/// Waits for the first of the signals.
async fn received(signals: &mut [Signal]) {
    poll_fn(|context| {
        let mut ready = signals.iter_mut().map(|signal| signal.poll_recv(context).is_ready());
        match ready.any(|ready| ready) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}
