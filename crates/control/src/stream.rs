//! Answers that go on: one line for each event, until the client or the daemon ends.
//!
//! Each client has a queue of [`QUEUE`] events. The daemon never waits for it: a client whose queue is
//! full gets a refusal behind what it has, and its connection ends.

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::clients::Audience;
use super::server::WRITE;
use super::{ErrorCode, Refusal, answer_line};
use crate::status::Document;

/// The most events that wait for one client.
pub const QUEUE: usize = 1_024;

/// The daemon's end of a stream. A drop ends it.
#[derive(Debug)]
pub struct Subscriber {
    to: mpsc::Sender<Result<Value, Refusal>>,
    audience: Audience,
}

impl Subscriber {
    pub(super) fn new(audience: Audience) -> (Self, mpsc::Receiver<Result<Value, Refusal>>) {
        let (to, events) = mpsc::channel(QUEUE);
        (Self { to, audience }, events)
    }

    /// Queues a document, in the form that the client may read. Returns false if the client has gone,
    /// or is too slow; the subscriber is then to be dropped.
    #[must_use]
    pub fn send(&self, document: &impl Document) -> bool {
        let document = match self.audience {
            Audience::Owners => serde_json::to_value(document).ok(),
            Audience::AllUsers => document.for_all_users(),
        };
        document.is_none_or(|document| self.to.try_send(Ok(document)).is_ok())
    }

    /// Ends the stream with the reason, behind what is queued. A client whose queue is full is refused as too slow.
    pub fn end(self, reason: Refusal) {
        let _ = self.to.try_send(Err(reason));
    }

    /// Whether the client has gone.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.to.is_closed()
    }
}

/// Writes the events to one client until it disconnects, sends something, does not read, or the
/// daemon ends.
pub(super) async fn serve(
    mut read: impl AsyncRead + Unpin,
    mut write: impl AsyncWrite + Unpin,
    mut events: mpsc::Receiver<Result<Value, Refusal>>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut room = [0; 64];
    loop {
        let event = tokio::select! {
            biased;
            event = events.recv() => event,
            // What was queued before the end is still sent, the end itself among it.
            _ = stopped.wait_for(|stopped| *stopped) => match events.try_recv() {
                Ok(event) => Some(event),
                Err(_) => return,
            },
            // The end of the client, or a request, which has no place here.
            _ = read.read(&mut room) => return,
        };
        let event = event.unwrap_or_else(|| Err(too_slow()));
        let ends = event.is_err();
        let written = timeout(WRITE, write.write_all(answer_line(event).as_bytes())).await;
        if ends || !matches!(written, Ok(Ok(()))) {
            return;
        }
    }
}

fn too_slow() -> Refusal {
    Refusal::new(
        ErrorCode::TooSlow,
        format!("{QUEUE} events wait for this client already; read faster, and ask again"),
    )
}
