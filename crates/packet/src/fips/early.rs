//! Session frames that arrive before their keys: kept, and opened once the keys are there.

use weft_contract::bounds;
use weft_wire::NodeAddr;

use super::FipsIngress;
use crate::counters::DropReason;
use crate::early::{EarlyFrame, SessionFrame};
use crate::received::Inbound;
use crate::train::Transmit;

impl<T: Transmit> FipsIngress<'_, T> {
    /// Keeps a frame whose keys the core is about to install.
    pub(crate) fn keep_early(&mut self, frame: SessionFrame, datagram: &[u8]) {
        let lane = &mut *self.lane;
        let longest = bounds::EARLY_LONGEST.max(lane.tables.config.mtu.into());
        if datagram.len() > longest {
            lane.out.count(DropReason::Early);
            return;
        }
        let dropped = lane.early.push(EarlyFrame {
            since: self.now,
            frame,
            datagram: datagram.to_vec(),
        });
        lane.out.count_many(DropReason::Early, dropped);
    }

    /// Opens the frames that arrived before the keys of this session.
    pub(crate) fn take_early(&mut self, peer: NodeAddr) {
        for mut early in self.lane.early.take(peer) {
            let done = self.session_frame(early.frame, &mut early.datagram);
            let out = &mut self.lane.out;
            match done {
                Ok(Inbound::Packet(range, _)) => out.reply(early.datagram.get(range).unwrap_or_default().to_vec()),
                Ok(Inbound::Done) => {}
                Err(reason) => out.count(reason),
            }
        }
    }
}
