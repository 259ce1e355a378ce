//! The events of the daemon, read by a thread of their own.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;
use tokio::sync::mpsc;
use weft_control::status::EventKind;
use weft_control::{ControlError, EventStream};

/// Events that were read and not taken yet. The thread reads no further then, and the daemon ends a
/// stream that is not read.
const WAITING: usize = 64;

/// Events as they come. Their connection ends with this.
pub(crate) struct Feed {
    events: mpsc::Receiver<Result<Value, ControlError>>,
    connection: UnixStream,
}

impl Drop for Feed {
    fn drop(&mut self) {
        // The thread waits for the next event. One that has ended has closed the connection.
        let _ = self.connection.shutdown(Shutdown::Both);
    }
}

impl Feed {
    /// Asks the daemon at the socket `path`, and waits for its first event, `listening`.
    pub(crate) fn open(path: &Path) -> Result<(Self, Value), ControlError> {
        let mut stream = EventStream::open(path)?;
        let first = stream
            .next_event()?
            .ok_or_else(|| ControlError::Stopped(path.to_owned()))?;
        let connection = stream.connection()?;
        let (to, events) = mpsc::channel(WAITING);
        std::thread::spawn(move || {
            while let Some(event) = stream.next_event().transpose() {
                let last = event.is_err();
                if to.blocking_send(event).is_err() || last {
                    break;
                }
            }
        });
        Ok((Self { events, connection }, first))
    }

    /// The next event; `None` after the last one.
    pub(crate) async fn next(&mut self) -> Option<Result<Value, ControlError>> {
        self.events.recv().await
    }

    /// Drops the events that have come already.
    pub(crate) fn skip(&mut self) {
        while self.events.try_recv().is_ok() {}
    }
}

/// The kind of an event, if this version knows it.
pub(crate) fn kind(event: &Value) -> Option<EventKind> {
    serde_json::from_value(event.get("event")?.clone()).ok()
}
