//! The handle of a lane's thread.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::bind::Bind;
use crate::device::Device;
use crate::setup::LaneSetup;
use crate::shared::Shared;
use crate::worker::{self, Worker};

/// Why a lane did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system returned no descriptor for polling.
    #[error("cannot set up waiting for sockets: {0}")]
    Poll(#[source] io::Error),
    /// The system started no thread.
    #[error("cannot start a packet thread: {0}")]
    Thread(#[source] io::Error),
}

/// A running lane. Dropping it stops the thread and waits for it.
pub(crate) struct LaneThread {
    pub(crate) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl LaneThread {
    /// Starts the thread of lane number `at`.
    pub(crate) fn start<D, B>(setup: LaneSetup<D, B>, at: usize, lanes: Arc<[Arc<Shared>]>) -> Result<Self, StartError>
    where
        D: Device + Send + 'static,
        B: Bind + Send + 'static,
    {
        let name = match lanes.len() {
            1 => "weft-lane".to_owned(),
            _ => format!("weft-lane-{at}"),
        };
        let shared = match lanes.get(at) {
            Some(shared) => shared.clone(),
            None => Shared::new().map(Arc::new).map_err(StartError::Poll)?,
        };
        let preferred = setup.preferred;
        let worker = Worker::new(setup, shared.clone(), lanes).map_err(StartError::Poll)?;
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || worker::run(worker, preferred))
            .map_err(StartError::Thread)?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Whether the thread has ended, which happens only if it was stopped or its TUN is gone.
    pub(crate) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for LaneThread {
    fn drop(&mut self) {
        self.shared.tell_to_stop();
        if let Some(thread) = self.thread.take() {
            // The thread has already printed its panic.
            let _ = thread.join();
        }
    }
}
