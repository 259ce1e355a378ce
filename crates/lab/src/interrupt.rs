//! Ctrl-C: nothing stays behind.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::child;

/// The exit status of a process that ended by SIGINT, as shells say it.
const INTERRUPTED: i32 = 130;

/// Catches SIGINT, SIGTERM and SIGHUP from its making on.
#[derive(Debug)]
pub struct Interrupts {
    signals: Receiver<()>,
    awaited: Arc<AtomicBool>,
}

impl Interrupts {
    /// From now on a signal kills the processes under test, removes `directory` and ends this process,
    /// unless a thread [waits](Interrupts::wait) for one.
    ///
    /// # Errors
    /// When the system gives no thread or no signal handler.
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

    /// Waits for a signal and takes it; the next one ends the process.
    pub fn wait(&self) {
        self.awaited.store(true, Ordering::Release);
        // The sender's thread ends only with the process.
        let _ = self.signals.recv();
    }
}

/// Removes a directory in which another thread may be making files still: what comes into one being emptied makes that
/// fail, and nothing comes into one that is gone.
fn remove(directory: &Path) {
    for _ in 0..REMOVALS {
        match std::fs::remove_dir_all(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => std::thread::sleep(PAUSE),
            _ => return,
        }
    }
}

/// How often a removal is tried, and how long in between.
const REMOVALS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);
