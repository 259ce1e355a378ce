//! Forwarding of session datagrams of other nodes from one link to the next.
//!
//! The lane forwards by a table that the core publishes. A datagram without an entry, and every
//! message that announces coordinates in the clear, goes to the core, which learns from it,
//! forwards it, and publishes the route for the next one.

use std::ops::Range;

use weft_contract::LinkReport;
use weft_wire::fsp::{self, FspPhase};
use weft_wire::link::SessionDatagram;
use weft_wire::session::SessionMessageType;
use weft_wire::{CoordsPair, NodeAddr, fmp};

use super::FipsIngress;
use super::frame;
use crate::clear::{self, Clear, Parties};
use crate::counters::DropReason;
use crate::ecn;
use crate::link::Link;
use crate::sender::Sender;
use crate::tables::{LinkKey, SessionKey};
use crate::train::Transmit;

impl<T: Transmit> FipsIngress<'_, T> {
    /// Processes the session datagram for another node whose body is at `at`.
    pub(super) fn transit(&mut self, from: LinkKey, datagram: &mut [u8], at: Range<usize>) -> Result<(), DropReason> {
        let tables = &mut self.lane.tables;
        let config = tables.config;
        if !config.transit {
            return Err(DropReason::NotForUs);
        }
        let (marked, draw) = (ecn::is_marked(datagram), clear::draw(datagram));
        let body = datagram.get_mut(at).ok_or(DropReason::Malformed)?;
        let parsed = SessionDatagram::parse(body).map_err(|_| DropReason::Malformed)?;
        // With a larger TTL a datagram could loop for longer than any honest path takes.
        let ttl = parsed.ttl.min(SessionDatagram::DEFAULT_TTL);
        let (src, dest) = (parsed.src, parsed.dest);
        let path_mtu = parsed.path_mtu.min(config.mtu);
        if ttl <= 1 {
            return Err(DropReason::Ttl);
        }
        let next = tables.next_hops.get(&dest).copied();
        let fits = frame::LINK_BODY_OFFSET + body.len() + fmp::TAG_LEN <= usize::from(config.mtu);
        let kind = Clear::of(parsed.payload);
        let coordinates = has_coordinates(kind, parsed.payload);
        let link = tables.links.get_mut(from).ok_or(DropReason::NoKeys)?;
        let id = link.id;
        let parties = Parties {
            neighbour: link.peer,
            src,
            dest,
            me: config.me,
        };
        let admitted = link.may_forward(self.now, kind, parties, draw);
        // Data whose coordinates are over the rate is forwarded along a known route.
        if !admitted && kind != Some(Clear::Coords) {
            return Err(DropReason::ClearForwarded);
        }
        match next.filter(|next| *next != id) {
            Some(next) if fits && !(coordinates && admitted) => {
                SessionDatagram::rewrite_hop(body, ttl - 1, path_mtu).map_err(|_| DropReason::Malformed)?;
                let next = tables.links.key(&next).ok_or(DropReason::ForwardFailed)?;
                self.lane.sender(self.now, self.train).forward(next, marked, body)
            }
            _ if !admitted => Err(DropReason::ClearForwarded),
            _ if !fits => {
                let len = body.len();
                self.lane
                    .out
                    .report_link(id, LinkReport::TransitTooLarge { src, dest, len });
                Err(DropReason::TransitTooLarge)
            }
            _ => {
                let body = body.to_vec();
                self.lane.out.report_link(id, LinkReport::Transit { body });
                Ok(())
            }
        }
    }
}

impl Link {
    /// Returns whether a message of other nodes with this in the clear, which arrived over the
    /// link, may be forwarded. The rate of each link is bounded.
    fn may_forward(&mut self, now: u64, kind: Option<Clear>, parties: Parties, draw: u32) -> bool {
        let Some(kind) = kind else { return true };
        // With this node as its source, over its link with the destination, the message would pass
        // for its own.
        let ours = kind == Clear::Handshake && parties.src == parties.me;
        !ours && self.clear.take(now, kind, parties, draw)
    }
}

impl<T: Transmit> Sender<'_, T> {
    /// Announces the coordinates of both ends of a session to the nodes on the path.
    pub(crate) fn warm(&mut self, key: SessionKey, src: &[NodeAddr], dest: &[NodeAddr]) {
        let egress = self.tables.egress(key);
        let message = (SessionMessageType::CoordsWarmup.to_byte(), &[][..]);
        // If it is not sent, the nodes on the path ask for the coordinates.
        let _ = self.fips_frame(egress, None, message, Some(CoordsPair::of(src, dest)), false);
    }
}

/// Returns whether a session message has coordinates in the clear, which nodes on the path store.
fn has_coordinates(kind: Option<Clear>, message: &[u8]) -> bool {
    match kind {
        Some(Clear::Coords) => true,
        Some(Clear::Handshake) => {
            let prefix = fsp::FspPrefix::parse(message);
            prefix.is_ok_and(|prefix| FspPhase::from_nibble(prefix.phase) != Some(FspPhase::Msg3))
        }
        Some(Clear::Signal) | None => false,
    }
}
