//! What the daemon of this end knows of the other, for a test.

use std::path::PathBuf;

use weft_node::control::{self, ControlCommand};
use weft_node::peer::PeerRef;
use weft_node::status::Peers;
use weft_perf::end::{DaemonLook, DaemonView};

/// Asks the daemon over its control socket.
pub(super) struct View {
    control: PathBuf,
    peer: PeerRef,
    pid: Option<u32>,
}

impl View {
    /// Asks about `peer` at the socket `control`; `pid` is the daemon's process.
    pub(super) fn new(control: PathBuf, peer: PeerRef, pid: Option<u32>) -> Self {
        Self { control, peer, pid }
    }
}

impl DaemonView for View {
    fn look(&mut self) -> DaemonLook {
        let command = ControlCommand::Peers {
            peer: Some(self.peer.clone()),
        };
        let peers = control::call::<Peers>(&self.control, &command).ok();
        let peer = peers.and_then(|peers| peers.peers.into_iter().next());
        DaemonLook {
            pid: self.pid,
            path: peer.and_then(|peer| peer.path).map(|path| path.to_string()),
        }
    }
}
