//! Probes of the address of a link's peer.

use std::net::SocketAddr;

use weft_wire::fmp;
use weft_wire::link::PROBE;

use super::Lane;
use crate::control::LinkId;
use crate::counters::DropReason;
use crate::frame;
use crate::train::{Train, Transmit};

impl Lane {
    /// Asks the peer of a link whether it is at `to`.
    pub(super) fn probe_link<T: Transmit>(
        &mut self,
        now: u64,
        id: LinkId,
        to: SocketAddr,
        number: u64,
        train: &mut Train<T>,
    ) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let Some(epoch) = link.epochs.current_mut() else { return };
        let body = number.to_le_bytes();
        let end = frame::LINK_BODY_OFFSET + body.len();
        let slot = train.reserve(end + fmp::TAG_LEN);
        let Some(room) = slot.get_mut(frame::LINK_BODY_OFFSET..end) else {
            return;
        };
        room.copy_from_slice(&body);
        let Some(len) = frame::seal_link(epoch, now, 0, PROBE, slot, end) else {
            self.counters.drops.count(DropReason::EpochSpent);
            return;
        };
        link.sent(now, 1, len, false);
        train.commit(to, len);
    }
}
