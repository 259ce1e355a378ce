//! Where the peer of a link is, as handshakes and the core tell.

use std::net::SocketAddr;

use weft_wire::fmp;
use weft_wire::link::PROBE;

use super::{Lane, Link};
use crate::control::{EpochUse, LinkId};
use crate::frame;
use crate::paths::Paths;
use crate::train::{Train, Transmit};

impl Link {
    /// Takes note of where the handshake of an epoch shows the peer to be. The path of a link in use changes by our own
    /// handshake alone; the initiator of any other may be any host until its keys are proven.
    pub(super) fn note_path(&mut self, index: u32, (path, proven): (SocketAddr, bool), usage: EpochUse) {
        let fresh = !self.in_use;
        self.in_use |= usage == EpochUse::Send;
        match usage {
            EpochUse::Send if proven => self.paths.place(path, None),
            EpochUse::Send if fresh => self.paths = Paths::new(path, false),
            EpochUse::Candidate => {
                self.answered.retain(|(known, ..)| *known != index);
                self.answered.reserve_exact(1);
                self.answered.push((index, path, proven));
            }
            EpochUse::Send | EpochUse::ReceiveOnly => {}
        }
        if fresh && usage != EpochUse::Send {
            self.paths = Paths::new(path, proven);
        }
    }

    /// The answer to a candidate's handshake has gone to another address as well.
    pub(super) fn doubt_path(&mut self, index: u32) {
        if let Some((.., proven)) = self.answered.iter_mut().find(|(known, ..)| *known == index) {
            *proven = false;
        }
    }

    /// The candidate `index` is proven by a frame from `from`, and seals from now on: the sender of the frame got the answer
    /// to its handshake. That shows where it is, if the answer went to one address.
    pub(crate) fn settle_path(&mut self, index: u32, from: SocketAddr) {
        let was_in_use = std::mem::replace(&mut self.in_use, true);
        let Some(at) = self.answered.iter().position(|(known, ..)| *known == index) else {
            return;
        };
        let (_, path, proven) = self.answered.swap_remove(at);
        self.answered.shrink_to_fit();
        if proven && (path == from || !was_in_use) {
            self.paths.place(path, None);
        } else if !was_in_use {
            self.paths = Paths::new(from, false);
        }
    }
}

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
            self.counters.epoch_spent += 1;
            return;
        };
        link.totals.sent(now, len);
        train.commit(to, len);
    }
}
