//! Messages of services: from peers to the caller, and back.

use thiserror::Error;
use weft_contract::{MAX_SERVICE, TableCommand};
use weft_noise::PublicKey;
use weft_wire::NodeAddr;
use weft_wire::session::DataPorts;

use super::Node;

/// Why a message of a service is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ServiceError {
    /// The key belongs to no configured peer.
    #[error("no peer has this key")]
    NoPeer,
    /// The message is longer than any path is sure to take.
    #[error("a message of {0} bytes, at most {max} fit", max = MAX_SERVICE)]
    TooLong(usize),
    /// As many messages as may wait for the session already do.
    #[error("too many messages wait for the session")]
    NoRoom,
}

impl Node {
    /// Sets the ports at which messages of peers become [`Output::Service`](crate::Output::Service)
    /// from now on. All other data behind ports are dropped and counted.
    pub fn listen(&mut self, ports: Vec<u16>) {
        self.ctx.lane(TableCommand::Listen { ports });
    }

    /// Sends a message of a service to a peer, in its session. If there is none, one is requested,
    /// and the message waits for it a few seconds. Messages may get lost, as datagrams do.
    ///
    /// # Errors
    /// [`ServiceError`]: the message is dropped.
    pub fn send_service(
        &mut self,
        now: u64,
        peer: &PublicKey,
        ports: DataPorts,
        bytes: &[u8],
    ) -> Result<(), ServiceError> {
        if bytes.len() > MAX_SERVICE {
            return Err(ServiceError::TooLong(bytes.len()));
        }
        let addr = peer.node_addr();
        let known = self.peers.get_mut(&addr).filter(|known| known.speaks());
        let known = known.ok_or(ServiceError::NoPeer)?;
        if known.session.send_service(&mut self.ctx, ports, bytes) {
            return Ok(());
        }
        let (taken, dropped) = known.session.keep_service(now, ports, bytes);
        self.counters.services_dropped += dropped;
        self.handle_wanted(now, addr);
        if taken { Ok(()) } else { Err(ServiceError::NoRoom) }
    }

    /// Handles a message of a peer for a service.
    pub(super) fn handle_service(&mut self, now: u64, peer: NodeAddr, ports: DataPorts, bytes: Vec<u8>) {
        self.with_peer(peer, |ctx, p| {
            if p.speaks() {
                p.session.note_service(now);
                ctx.service(p.key(), ports, bytes);
            }
        });
    }
}
