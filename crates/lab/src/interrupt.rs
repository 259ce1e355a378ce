//! Ctrl-C: cleaning up on a signal.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::child;

/// The exit status that shells show for a process that ended by SIGINT.
const INTERRUPTED: i32 = 130;

/// Catches SIGINT, SIGTERM and SIGHUP while it exists.
#[derive(Debug)]
pub struct Interrupts {
    signals: Receiver<()>,
    awaited: Arc<AtomicBool>,
}

impl Interrupts {
    /// From now on a signal kills the processes under test, removes `directory` and ends this
    /// process, unless a thread [waits](Interrupts::wait) for one.
    ///
    /// # Errors
    /// If the system provides no thread or no signal handler.
    pub fn catch(directory: PathBuf) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (sender, signals) = channel();
        let awaited = Arc::new(AtomicBool::new(false));
        let waiting = Arc::clone(&awaited);
        let (ready, installed) = channel();
        std::thread::Builder::new()
            .name("interrupts".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
                    let [Ok(mut int), Ok(mut term), Ok(mut hup)] = kinds.map(signal) else {
                        return;
                    };
                    let _ = ready.send(());
                    loop {
                        tokio::select! {
                            _ = int.recv() => {}
                            _ = term.recv() => {}
                            _ = hup.recv() => {}
                        }
                        if !waiting.swap(false, Ordering::AcqRel) {
                            break;
                        }
                        let _ = sender.send(());
                    }
                    // No other thread starts a process from here on.
                    let _nobody = child::kill_all();
                    remove(&directory);
                    std::process::exit(INTERRUPTED);
                });
            })?;
        match installed.recv() {
            Ok(()) => Ok(Self { signals, awaited }),
            Err(_) => Err(io::Error::other("no signal handler")),
        }
    }

    /// Waits for a signal and consumes it; the next one ends the process.
    pub fn wait(&self) {
        self.awaited.store(true, Ordering::Release);
        // The sender's thread ends only with the process.
        let _ = self.signals.recv();
    }
}

/// Removes a directory in which another thread may still create files: a file that is created while
/// its directory is being emptied makes the removal fail, so it is repeated.
fn remove(directory: &Path) {
    for _ in 0..REMOVALS {
        match std::fs::remove_dir_all(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => std::thread::sleep(PAUSE),
            _ => return,
        }
    }
}

/// Maximum number of attempts at a removal, and the pause between them.
const REMOVALS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);
