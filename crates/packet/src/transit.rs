//! Across: session datagrams of others, from one link to the next.
//!
//! The lane forwards by a table that the core publishes. What the table does not have, and every message that tells
//! coordinates in the clear, goes to the core, which learns from it, forwards it, and publishes the way for the next.

use std::ops::Range;

use weft_wire::fsp::{self, FspPhase};
use weft_wire::link::{LinkMessageType, SessionDatagram};
use weft_wire::{Coords, CoordsPair, NodeAddr, fmp};

use crate::control::{LinkId, Report};
use crate::ecn;
use crate::frame::{self, Layers};
use crate::lane::Lane;
use crate::train::{Train, Transmit};

impl Lane {
    /// Takes the session datagram whose body lies at `at`, for another node.
    pub(crate) fn transit<T: Transmit>(
        &mut self,
        now: u64,
        from: LinkId,
        datagram: &mut [u8],
        at: Range<usize>,
        train: &mut Train<T>,
    ) {
        if !self.config.transit {
            self.counters.not_for_us += 1;
            return;
        }
        let marked = ecn::is_marked(datagram);
        let Some(body) = datagram.get_mut(at) else { return };
        let Ok(parsed) = SessionDatagram::parse(body) else {
            return;
        };
        let (ttl, path_mtu) = (parsed.ttl, parsed.path_mtu);
        if ttl <= 1 {
            self.counters.ttl_expired += 1;
            return;
        }
        let next = self.routes.get(&parsed.dest).copied().filter(|next| *next != from);
        let frame_len = frame::LINK_BODY_OFFSET + body.len() + fmp::TAG_LEN;
        let fits = frame_len <= usize::from(self.config.mtu);
        match next {
            Some(next) if fits && !tells_coordinates(parsed.payload) => {
                let path_mtu = path_mtu.min(self.config.mtu);
                if SessionDatagram::rewrite_hop(body, ttl - 1, path_mtu).is_ok() {
                    self.forward(now, next, marked, body, train);
                }
            }
            _ => {
                let body = body.to_vec();
                self.report(Report::Transit { link: from, body });
            }
        }
    }

    fn forward<T: Transmit>(&mut self, now: u64, next: LinkId, marked: bool, body: &[u8], train: &mut Train<T>) {
        let Some(link) = self.links.get_mut(&next) else {
            self.counters.forward_failed += 1;
            return;
        };
        let Some(epoch) = link.epochs.current_mut() else {
            self.counters.forward_failed += 1;
            return;
        };
        let end = frame::LINK_BODY_OFFSET + body.len();
        let slot = train.reserve(end + fmp::TAG_LEN);
        slot[frame::LINK_BODY_OFFSET..end].copy_from_slice(body);
        // Once marked it stays so for the rest of the way.
        let flags = if marked || link.congested { fmp::FLAG_CE } else { 0 };
        self.counters.ce_forwarded += u64::from(flags != 0);
        let msg_type = LinkMessageType::SessionDatagram.to_byte();
        let Some(len) = frame::seal_link(epoch, now, flags, msg_type, slot, end) else {
            self.counters.epoch_spent += 1;
            return;
        };
        link.totals.sent(now, len);
        link.totals.last_payload_tx = now;
        self.counters.forwarded += 1;
        train.commit(link.path, len);
    }
}

impl Lane {
    /// Tells the nodes on the way where both ends of a session are.
    pub(crate) fn warm<T: Transmit>(
        &mut self,
        now: u64,
        peer: NodeAddr,
        src: &[NodeAddr],
        dest: &[NodeAddr],
        train: &mut Train<T>,
    ) {
        let (ends, room) = (self.ends(peer), usize::from(self.config.mtu));
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        let Some(link) = session.link.and_then(|id| self.links.get_mut(&id)) else {
            return;
        };
        let (Some(link_epoch), Some(session_epoch)) = (link.epochs.current_mut(), session.epochs.current_mut()) else {
            return;
        };
        let coords = CoordsPair {
            src: Coords::new(src),
            dest: Coords::new(dest),
        };
        let mut layers = Layers {
            link: link_epoch,
            session: session_epoch,
        };
        // Coordinates that do not fit a datagram are not told; the nodes on the way then ask.
        let Some(len) = layers.seal_warmup(now, ends, coords, train.reserve(room)) else {
            return;
        };
        link.totals.sent(now, len);
        train.commit(link.path, len);
    }
}

/// Whether a session message carries coordinates in the clear, which nodes on the way keep.
fn tells_coordinates(message: &[u8]) -> bool {
    let Ok(prefix) = fsp::FspPrefix::parse(message) else {
        return false;
    };
    match FspPhase::from_nibble(prefix.phase) {
        Some(FspPhase::Setup | FspPhase::Ack) => true,
        Some(FspPhase::Established) => prefix.flags & fsp::FLAG_COORDS != 0,
        _ => false,
    }
}
