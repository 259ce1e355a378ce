//! Ctrl-C during a command that repeats an action.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::failure::Failure;

/// Catches SIGINT from its creation on.
pub(crate) struct Interrupt {
    runtime: Runtime,
    signal: Signal,
}

impl Interrupt {
    pub(crate) fn catch() -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Failure::Signals)?;
        let signal = {
            let _inside = runtime.enter();
            signal(SignalKind::interrupt()).map_err(Failure::Signals)?
        };
        Ok(Self { runtime, signal })
    }

    /// Waits for `time`. Returns false if Ctrl-C ended the wait.
    pub(crate) fn pause(&mut self, time: Duration) -> bool {
        let signal = &mut self.signal;
        self.runtime.block_on(async {
            tokio::select! {
                () = tokio::time::sleep(time) => true,
                _ = signal.recv() => false,
            }
        })
    }

    /// Runs `work`, which blocks. Returns `None` if Ctrl-C came first; the work is then abandoned.
    pub(crate) fn run<T: Send + 'static>(&mut self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, result) = oneshot::channel();
        std::thread::spawn(move || done.send(work()));
        let signal = &mut self.signal;
        self.runtime.block_on(async {
            tokio::select! {
                result = result => result.ok(),
                _ = signal.recv() => None,
            }
        })
    }
}
