//! The thread that writes networks: a disk that is slow holds nothing else up.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc;
use std::thread;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use weft_networks::Network;
use weft_roster::network_id::NetworkId;

use weft_store::network_files::{NetworkFiles, SaveError, Unusable};

/// Networks to write, and networks whose files have to go.
pub(super) struct Job {
    /// Whether nothing more is done after the first failure.
    pub(super) whole: bool,
    pub(super) save: Vec<Network>,
    pub(super) remove: Vec<NetworkId>,
}

/// What has become of a job.
pub(super) struct Done {
    /// The networks that were written, each with its revision.
    pub(super) written: Vec<(NetworkId, u64)>,
    /// The networks whose files are gone.
    pub(super) removed: Vec<NetworkId>,
    /// What failed.
    pub(super) failed: Vec<(NetworkId, SaveError)>,
    /// The files that could not be read and are still there.
    pub(super) unusable: BTreeMap<NetworkId, Unusable>,
}

/// The thread, and what it has done. Jobs are done one after the other.
pub(super) struct Writer {
    jobs: Option<mpsc::Sender<Job>>,
    done: UnboundedReceiver<Done>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread that writes files.
    ///
    /// # Errors
    /// The error of the system: it starts no thread.
    pub(super) fn start(files: NetworkFiles) -> io::Result<Self> {
        let (jobs, to_do) = mpsc::channel();
        let (report, done) = unbounded_channel();
        let thread = thread::Builder::new()
            .name("weft-files".to_owned())
            .spawn(move || work(files, &to_do, &report))?;
        Ok(Self {
            jobs: Some(jobs),
            done,
            thread: Some(thread),
        })
    }

    pub(super) fn begin(&self, job: Job) {
        // The thread ends with this sender, and not before.
        let sent = self.jobs.as_ref().map(|jobs| jobs.send(job));
        debug_assert!(sent.is_some_and(|sent| sent.is_ok()));
    }

    /// Waits for the next job that is done. Safe to cancel.
    pub(super) async fn next(&mut self) -> Option<Done> {
        self.done.recv().await
    }

    /// Waits until all jobs are done, and ends the thread.
    pub(super) fn end(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(mut files: NetworkFiles, jobs: &mpsc::Receiver<Job>, report: &UnboundedSender<Done>) {
    for job in jobs {
        let done = carry_out(&mut files, &job);
        if report.send(done).is_err() {
            return;
        }
    }
}

fn carry_out(files: &mut NetworkFiles, job: &Job) -> Done {
    let mut done = Done {
        written: Vec::new(),
        removed: Vec::new(),
        failed: Vec::new(),
        unusable: BTreeMap::new(),
    };
    let goes_on = |done: &Done| !job.whole || done.failed.is_empty();
    for network in &job.save {
        if !goes_on(&done) {
            break;
        }
        match files.save(network) {
            Ok(()) => done.written.push((network.id(), network.revision())),
            Err(error) => done.failed.push((network.id(), error)),
        }
    }
    for id in &job.remove {
        if !goes_on(&done) {
            break;
        }
        match files.remove(*id) {
            Ok(()) => done.removed.push(*id),
            Err(error) => done.failed.push((*id, error)),
        }
    }
    done.unusable.clone_from(files.all_unusable());
    done
}
