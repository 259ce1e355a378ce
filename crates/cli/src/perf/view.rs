//! The local daemon's view of the peer, for a test.

use std::path::PathBuf;

use weft_config::peer::NodeRef;
use weft_control::ControlCommand;
use weft_control::status::{PathStatus, Peers};
use weft_control::trace::{LaneTrace, TraceDocument};
use weft_perf::endpoint::{DaemonLook, DaemonView};
use weft_perf::stages::LaneTotals;

/// How long the daemon continues to measure stages after a query of a test, in milliseconds: longer
/// than the interval between two.
const STAGES_MS: u32 = 3_000;

/// Asks the daemon over its control socket.
pub(super) struct View {
    control: PathBuf,
    peer: NodeRef,
    pid: Option<u32>,
}

impl View {
    /// Asks about `peer` at the socket `control`; `pid` is the daemon's process.
    pub(super) fn new(control: PathBuf, peer: NodeRef, pid: Option<u32>) -> Self {
        Self { control, peer, pid }
    }
}

impl DaemonView for View {
    fn look(&mut self) -> DaemonLook {
        let command = ControlCommand::Peers {
            peer: Some(self.peer.clone()),
        };
        let peers = weft_control::call::<Peers>(&self.control, &command).ok();
        let peer = peers.and_then(|peers| peers.peers.into_iter().next());
        let path = peer.and_then(|peer| peer.path);
        DaemonLook {
            pid: self.pid,
            path: path.as_ref().map(ToString::to_string),
            link: match path {
                Some(PathStatus::Direct { addr }) => Some(addr),
                _ => None,
            },
        }
    }

    fn stages(&mut self, last: bool) -> Option<Vec<LaneTotals>> {
        let for_ms = Some(if last { 0 } else { STAGES_MS });
        let document: TraceDocument = weft_control::call(&self.control, &ControlCommand::Trace { for_ms }).ok()?;
        let lanes = match &*document.lanes {
            [] => std::slice::from_ref(&document.total),
            lanes => lanes,
        };
        Some(lanes.iter().map(totals).collect())
    }
}

fn totals(lane: &LaneTrace) -> LaneTotals {
    LaneTotals {
        seconds: lane.seconds,
        stages: lane.stages.clone(),
    }
}
