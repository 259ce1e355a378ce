//! The underlay sockets of a node beside the ordinary ones.
//!
//! All lanes send by them, since sessions of each may go over one; the first lane reads them, and
//! hands over what belongs to another, as it does with datagrams that were coalesced. So one socket
//! is enough for any number of lanes, and a lane without such sockets does nothing for them.
//! docs/decisions/0048-underlay-sockets.md.

use std::sync::Arc;

use weft_contract::SocketId;
use weft_os::poll::{Interest, Poller};

use crate::bind::{Arrival, Bind, BindCounters};
use crate::underlay::Full;

/// A socket that the threads of all lanes have.
pub(crate) type SharedBind = Arc<dyn Bind + Send + Sync>;

/// A change of the further sockets, which a lane executes before the commands that wait.
#[derive(Clone)]
pub(crate) enum Change {
    /// From now on paths with this number lead through this socket. `reads`: this lane reads it.
    Add {
        id: SocketId,
        socket: SharedBind,
        reads: bool,
    },
    /// Datagrams for paths with this number are dropped and counted from now on.
    Remove { id: SocketId },
}

/// The further sockets of one lane.
#[derive(Default)]
pub(crate) struct Further {
    /// Those that it reads come first.
    list: Vec<Entry>,
    readable: usize,
    /// The counters of those that this lane has read and that are gone.
    gone: BindCounters,
}

struct Entry {
    id: SocketId,
    socket: SharedBind,
    full: Full,
}

impl Further {
    /// Executes a change. `poller` wakes the thread when a socket that it reads is readable, with
    /// `token`.
    pub(crate) fn apply(&mut self, change: Change, poller: &Poller, token: u64) {
        match change {
            Change::Add { id, socket, reads } => {
                self.remove(id, poller);
                // Without a descriptor for it the socket is not read, and the handshake fails.
                let reads = reads && poller.add(&*socket, token, Interest::Readable).is_ok();
                let entry = Entry {
                    id,
                    socket,
                    full: Full::default(),
                };
                self.list.insert(if reads { 0 } else { self.list.len() }, entry);
                self.readable += usize::from(reads);
            }
            Change::Remove { id } => self.remove(id, poller),
        }
    }

    fn remove(&mut self, id: SocketId, poller: &Poller) {
        let Some(at) = self.list.iter().position(|entry| entry.id == id) else {
            return;
        };
        let entry = self.list.remove(at);
        if at < self.readable {
            self.readable -= 1;
            self.gone += entry.socket.counters();
            // Other threads may keep it open for a moment.
            let _ = poller.remove(&*entry.socket);
        }
    }

    /// The number of sockets that this lane reads.
    #[inline]
    pub(crate) fn readable(&self) -> usize {
        self.readable
    }

    /// Receives from one of them.
    #[cold]
    pub(crate) fn recv(&self, at: usize, buf: &mut [u8]) -> Option<Arrival> {
        let entry = self.list.get(..self.readable)?.get(at)?;
        let arrival = entry.socket.recv(buf).ok()?;
        let from = entry.id.path(arrival.from);
        Some(Arrival { from, ..arrival })
    }

    /// The socket with this number, and how full it is.
    pub(crate) fn get(&mut self, id: SocketId) -> Option<(&(dyn Bind + Send + Sync), &mut Full)> {
        let entry = self.list.iter_mut().find(|entry| entry.id == id)?;
        Some((&*entry.socket, &mut entry.full))
    }

    /// The counters of all that this lane reads or has read, if there were any.
    pub(crate) fn counters(&self) -> Option<BindCounters> {
        let mut all = self.gone;
        for entry in self.list.iter().take(self.readable) {
            all += entry.socket.counters();
        }
        (all != BindCounters::default()).then_some(all)
    }
}
