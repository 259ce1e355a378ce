//! Forwarding of session datagrams of other nodes from one link to the next.
//!
//! The lane forwards by a table that the core publishes. A datagram without an entry, and every
//! message that announces coordinates in the clear, goes to the core, which learns from it,
//! forwards it, and publishes the route for the next one.

use std::ops::Range;

use weft_wire::fsp::{self, FspPhase};
use weft_wire::link::{LinkMessageType, SessionDatagram};
use weft_wire::{Coords, CoordsPair, NodeAddr, fmp};

use crate::clear::{self, Clear, Parties};
use crate::control::{LinkId, LinkReport, Report};
use crate::counters::DropReason;
use crate::ecn;
use crate::frame::{self, Layers};
use crate::lane::Lane;
use crate::train::{Train, Transmit};

impl Lane {
    /// Processes the session datagram for another node whose body is at `at`.
    pub(crate) fn transit<T: Transmit>(
        &mut self,
        now: u64,
        from: LinkId,
        datagram: &mut [u8],
        at: Range<usize>,
        train: &mut Train<T>,
    ) -> Result<(), DropReason> {
        if !self.config.transit {
            return Err(DropReason::NotForUs);
        }
        let (marked, draw) = (ecn::is_marked(datagram), clear::draw(datagram));
        let body = datagram.get_mut(at).ok_or(DropReason::Malformed)?;
        let parsed = SessionDatagram::parse(body).map_err(|_| DropReason::Malformed)?;
        // With a larger TTL a datagram could loop for longer than any honest path takes.
        let ttl = parsed.ttl.min(SessionDatagram::DEFAULT_TTL);
        let path_mtu = parsed.path_mtu;
        if ttl <= 1 {
            return Err(DropReason::Ttl);
        }
        let next = self.routes.get(&parsed.dest).copied().filter(|next| *next != from);
        let frame_len = frame::LINK_BODY_OFFSET + body.len() + fmp::TAG_LEN;
        let fits = frame_len <= usize::from(self.config.mtu);
        let (kind, ends) = (Clear::of(parsed.payload), (parsed.src, parsed.dest));
        let tells = tells_coordinates(kind, parsed.payload);
        let admitted = self.admits_carried(now, from, kind, ends, draw);
        // Data whose coordinates are over the rate is forwarded along a known route.
        if !admitted && kind != Some(Clear::Coords) {
            return Err(DropReason::ClearForwarded);
        }
        match next {
            Some(next) if fits && !(tells && admitted) => {
                let path_mtu = path_mtu.min(self.config.mtu);
                SessionDatagram::rewrite_hop(body, ttl - 1, path_mtu).map_err(|_| DropReason::Malformed)?;
                self.forward_datagram(now, next, marked, body, train)
            }
            _ if !admitted => Err(DropReason::ClearForwarded),
            _ if !fits => {
                let (link, src, dest, len) = (from, parsed.src, parsed.dest, body.len());
                self.report(Report::Link(link, LinkReport::TransitTooLarge { src, dest, len }));
                Err(DropReason::TransitTooLarge)
            }
            _ => {
                let body = body.to_vec();
                self.report(Report::Link(from, LinkReport::Transit { body }));
                Ok(())
            }
        }
    }

    /// Returns whether a message of other nodes with this in the clear may be forwarded. The rate
    /// of each link is bounded.
    fn admits_carried(
        &mut self,
        now: u64,
        from: LinkId,
        kind: Option<Clear>,
        (src, dest): (NodeAddr, NodeAddr),
        draw: u32,
    ) -> bool {
        let (Some(kind), Some(link)) = (kind, self.links.get_mut(&from)) else {
            return true;
        };
        let me = self.config.me;
        let neighbour = link.peer;
        let parties = Parties {
            neighbour,
            src,
            dest,
            me,
        };
        // With this node as its source, over its link with the destination, the message would pass
        // for its own.
        let ours = kind == Clear::Handshake && src == me;
        !ours && link.clear.take(now, kind, parties, draw)
    }

    fn forward_datagram<T: Transmit>(
        &mut self,
        now: u64,
        next: LinkId,
        marked: bool,
        body: &[u8],
        train: &mut Train<T>,
    ) -> Result<(), DropReason> {
        let link = self.links.get_mut(&next).ok_or(DropReason::ForwardFailed)?;
        let epoch = link.epochs.current_mut().ok_or(DropReason::ForwardFailed)?;
        let end = frame::LINK_BODY_OFFSET + body.len();
        let slot = train.reserve(end + fmp::TAG_LEN);
        slot[frame::LINK_BODY_OFFSET..end].copy_from_slice(body);
        // A mark stays for the rest of the path.
        let flags = if marked || link.congested { fmp::FLAG_CE } else { 0 };
        self.counters.ce_forwarded += u64::from(flags != 0);
        let msg_type = LinkMessageType::SessionDatagram.to_byte();
        let len = frame::seal_link(epoch, now, flags, msg_type, slot, end);
        let len = len.ok_or(DropReason::EpochSpent)?;
        link.sent(now, 1, len, true);
        self.counters.forwarded += 1;
        link.paths.commit(train, &mut self.counters, len);
        Ok(())
    }
}

impl Lane {
    /// Announces the coordinates of both ends of a session to the nodes on the path.
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
        // Coordinates that do not fit a datagram are not announced. The nodes on the path then ask
        // for them.
        let Some(len) = layers.seal_warmup(now, ends, coords, train.reserve(room)) else {
            return;
        };
        link.sent(now, 1, len, false);
        link.paths.commit(train, &mut self.counters, len);
    }
}

/// Returns whether a session message has coordinates in the clear, which nodes on the path store.
fn tells_coordinates(kind: Option<Clear>, message: &[u8]) -> bool {
    match kind {
        Some(Clear::Coords) => true,
        Some(Clear::Handshake) => {
            let prefix = fsp::FspPrefix::parse(message);
            prefix.is_ok_and(|prefix| FspPhase::from_nibble(prefix.phase) != Some(FspPhase::Msg3))
        }
        Some(Clear::Signal) | None => false,
    }
}
