//! The handle of all lanes of a node.

use std::sync::Arc;

use weft_contract::{Audience, Command, SocketId};

use crate::bind::Bind;
use crate::counters::Snapshot;
use crate::device::Device;
use crate::further::{Change, SharedBind};
use crate::handle::{LaneThread, StartError};
use crate::setup::LaneSetup;
use crate::shared::Shared;
use crate::trace::Trace;

/// The running lanes of a node. Dropping them stops their threads and waits for them.
pub struct Lanes {
    /// In the order of their numbers; never empty.
    threads: Vec<LaneThread>,
}

impl Lanes {
    /// Starts a thread for each lane, lane 0 first. Each lane was created with its
    /// [`Place`](weft_contract::Place).
    ///
    /// # Errors
    ///
    /// [`StartError`]; sockets and TUN are then closed, and no thread runs.
    pub fn start<D, B>(setups: Vec<LaneSetup<D, B>>) -> Result<Self, StartError>
    where
        D: Device + Send + 'static,
        B: Bind + Send + 'static,
    {
        let shared = setups.iter().map(|_| Shared::new().map(Arc::new));
        let shared: Arc<[Arc<Shared>]> = shared.collect::<Result<_, _>>().map_err(StartError::Poll)?;
        let start = |(at, setup)| LaneThread::start(setup, at, shared.clone());
        let threads = setups.into_iter().enumerate().map(start).collect::<Result<_, _>>()?;
        Ok(Self { threads })
    }

    /// Queues commands for the lanes that they concern ([`Command::audience`]), which execute them
    /// in this order.
    ///
    /// Commands that change tables are few, a handful per event and per peer; messages that the
    /// core sends or forwards are bounded in bytes
    /// ([`bounds::COMMANDS`](weft_contract::bounds::COMMANDS)).
    pub fn send(&self, commands: Vec<Command>) {
        let Some((first, others)) = self.threads.split_first() else {
            return;
        };
        if others.is_empty() {
            let for_first = |command: &Command| !matches!(command.audience(), Audience::Others);
            return first.shared.send(commands.into_iter().filter(for_first));
        }
        let mut each: Vec<Vec<Command>> = self.threads.iter().map(|_| Vec::new()).collect();
        for command in commands {
            let (from, to) = match command.audience() {
                Audience::First => (0, 1),
                Audience::One(lane) => (usize::from(lane), usize::from(lane) + 1),
                Audience::Others => (1, each.len()),
                Audience::All => (0, each.len()),
            };
            if let Some((last, rest)) = each.get_mut(from..to).and_then(<[_]>::split_last_mut) {
                rest.iter_mut().for_each(|lane| lane.push(command.clone()));
                last.push(command);
            }
        }
        for (thread, commands) in self.threads.iter().zip(each) {
            thread.shared.send(commands);
        }
    }

    /// Adds an underlay socket: from now on, paths with this number ([`SocketId::path`]) lead
    /// through it. The first lane reads it, all send by it. It replaces one with the same number.
    pub fn add_socket(&self, id: SocketId, socket: impl Bind + Send + Sync + 'static) {
        let socket: SharedBind = Arc::new(socket);
        for (at, thread) in self.threads.iter().enumerate() {
            let (socket, reads) = (socket.clone(), at == 0);
            thread.shared.change(Change::Add { id, socket, reads });
        }
    }

    /// Removes a socket that [`Lanes::add_socket`] has added; it is closed when the lanes have done
    /// so. Datagrams for its paths are dropped and counted then.
    pub fn remove_socket(&self, id: SocketId) {
        for thread in &self.threads {
            thread.shared.change(Change::Remove { id });
        }
    }

    /// The counters of each lane.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.threads.iter().map(|thread| thread.shared.snapshot()).collect()
    }

    /// Starts or stops the tracing of all lanes.
    pub fn set_traced(&self, on: bool) {
        self.threads.iter().for_each(|thread| thread.shared.set_traced(on));
    }

    /// The trace of each lane, as of its last sample; `None` for a lane that is not traced or has
    /// no sample yet.
    pub fn traces(&self) -> Vec<Option<Trace>> {
        self.threads.iter().map(|thread| thread.shared.trace()).collect()
    }

    /// Whether a thread has ended, which happens only if it was stopped or its TUN is gone.
    pub fn is_finished(&self) -> bool {
        self.threads.iter().any(LaneThread::is_finished)
    }

    /// Executes the commands queued so far, stops the threads, and waits for them.
    pub fn stop(self) {
        self.threads.iter().for_each(|thread| thread.shared.tell_to_stop());
    }
}
