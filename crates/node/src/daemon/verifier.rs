//! The thread that verifies the signatures of records: a message has hundreds, and nothing else waits for
//! them.

use std::io;
use std::sync::mpsc;
use std::thread;

use tokio::sync::mpsc::{Receiver, Sender, channel};
use weft_noise::PublicKey;
use weft_roster::sync::{Proven, Unproven};

/// Messages that wait, at most. Each has 128 KiB at most, and further ones are dropped: a digest finds what
/// is missing.
const MAX_WAITING: usize = 32;

/// A document with records.
pub(super) struct Records {
    pub(super) from: PublicKey,
    pub(super) document: Vec<u8>,
}

/// The thread, and the documents that it has looked at, in the order in which they came.
pub(super) struct Verifier {
    waiting: mpsc::SyncSender<(Records, Unproven)>,
    verified: Receiver<(Records, Proven)>,
}

impl Verifier {
    /// Starts the thread that verifies records.
    ///
    /// # Errors
    /// The error of the system: it starts no thread.
    pub(super) fn start() -> io::Result<Self> {
        let (waiting, to_do) = mpsc::sync_channel(MAX_WAITING);
        let (report, verified) = channel(MAX_WAITING);
        // It ends with the daemon, whose end of the channels closes.
        let _ = thread::Builder::new()
            .name("weft-records".to_owned())
            .spawn(move || work(&to_do, &report))?;
        Ok(Self { waiting, verified })
    }

    /// Takes a document, if there is room.
    pub(super) fn begin(&self, records: Records, unproven: Unproven) -> bool {
        self.waiting.try_send((records, unproven)).is_ok()
    }

    /// Waits for the next document that was looked at. Safe to cancel.
    pub(super) async fn next(&mut self) -> Option<(Records, Proven)> {
        self.verified.recv().await
    }
}

fn work(to_do: &mpsc::Receiver<(Records, Unproven)>, report: &Sender<(Records, Proven)>) {
    for (records, unproven) in to_do {
        if report.blocking_send((records, unproven.verify())).is_err() {
            return;
        }
    }
}
