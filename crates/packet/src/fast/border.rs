//! IP packets out of opened fast frames, admitted only from sources that their sender may use.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;

use weft_noise::aead::TAG_LEN;
use weft_wire::fast::{self, FULL_AT, HEADROOM, Kind, UPPER_AT};

use crate::checksum::{self, Checksum};
use crate::counters::{Counters, DropReason};
use crate::ecn::{self, Seen};
use crate::inner::{Inner, addresses};
use crate::mss;
use crate::session::Session;
use crate::tables::{Egress, Routes};

/// The check of one peer's packets before they go to the TUN.
pub(super) struct Border<'a> {
    routes: &'a Routes,
    source: Ipv6Addr,
    allowed: bool,
    egress: Egress,
    /// Source and destination of the last packet that was admitted: packets of one flow arrive
    /// together.
    last: Option<(IpAddr, IpAddr)>,
}

impl<'a> Border<'a> {
    /// `egress` describes the frames to the peer. It bounds the MSS of TCP connections with it.
    pub(super) fn new(routes: &'a Routes, session: &Session, egress: Egress) -> Self {
        Self {
            routes,
            source: session.peer.to_ipv6(),
            allowed: session.allowed,
            egress,
            last: None,
        }
    }

    /// Makes the packet of an opened frame, behind the first [`HEADROOM`] bytes of `room`, ready
    /// for the TUN. Returns its range in `room`, and the state of its checksum.
    #[inline]
    pub(super) fn packet(
        &mut self,
        header: &fast::Header,
        room: &mut [u8],
        seen: Seen,
        counters: &mut Counters,
    ) -> Result<(Range<usize>, Checksum), DropReason> {
        if !self.allowed {
            return Err(DropReason::NotAllowed);
        }
        let (range, checksum) = match header.kind {
            Kind::Full => self.full(room, header.flags)?,
            _ => self.expand(room, header.flags)?,
        };
        let packet = room.get_mut(range.clone()).ok_or(DropReason::Malformed)?;
        ecn::apply(counters, seen, packet)?;
        counters.full_rx += u64::from(header.kind == Kind::Full);
        Ok((range, checksum))
    }

    /// Checks a packet with its whole header that was reassembled from pieces.
    pub(super) fn whole(&mut self, packet: &mut [u8], seen: Seen, counters: &mut Counters) -> Result<(), DropReason> {
        self.let_in(packet, 0)?;
        ecn::apply(counters, seen, packet)?;
        counters.full_rx += 1;
        Ok(())
    }

    /// Writes the IPv6 header in front of the upper layer in the frame.
    #[inline]
    fn expand(&self, room: &mut [u8], flags: u8) -> Result<(Range<usize>, Checksum), DropReason> {
        let end = room.len().checked_sub(TAG_LEN).ok_or(DropReason::Malformed)?;
        let opened = room.get_mut(..end).ok_or(DropReason::Malformed)?;
        let start = fast::expand_in_place(opened, HEADROOM + UPPER_AT, self.source, self.routes.me());
        let start = start.map_err(|_| DropReason::Malformed)?;
        let packet = opened.get_mut(start..).ok_or(DropReason::Malformed)?;
        if mss::opens_connection(packet) {
            mss::clamp(packet, self.egress.max_tcp());
        }
        let checksum = if flags & fast::FLAG_PARTIAL == 0 {
            Checksum::Full
        } else if checksum::start(packet) {
            Checksum::Partial
        } else {
            return Err(DropReason::Malformed);
        };
        Ok((start..end, checksum))
    }

    fn full(&mut self, room: &mut [u8], flags: u8) -> Result<(Range<usize>, Checksum), DropReason> {
        let end = room.len().checked_sub(TAG_LEN).ok_or(DropReason::Malformed)?;
        let range = HEADROOM + FULL_AT..end;
        let packet = room.get_mut(range.clone()).ok_or(DropReason::Malformed)?;
        let checksum = self.let_in(packet, flags)?;
        Ok((range, checksum))
    }

    /// Admits a packet with its whole header if this peer may send from its source, and its
    /// destination is this node or behind it.
    fn let_in(&mut self, packet: &mut [u8], flags: u8) -> Result<Checksum, DropReason> {
        let whole = Inner::parse(packet).is_ok_and(|inner| inner.packet().len() == packet.len());
        let ends = addresses(packet).filter(|_| whole).ok_or(DropReason::Malformed)?;
        if self.last != Some(ends) {
            if self.routes.peer_behind(ends.0) != Some(self.egress.session) {
                return Err(DropReason::ForeignSource);
            }
            if !self.routes.is_ours(ends.1) {
                return Err(DropReason::ForeignDestination);
            }
            self.last = Some(ends);
        }
        if mss::opens_connection_full(packet) {
            mss::clamp(packet, self.egress.full().max_tcp());
        }
        if flags & fast::FLAG_PARTIAL == 0 {
            return Ok(Checksum::Full);
        }
        if !checksum::start_full(packet) {
            return Err(DropReason::Malformed);
        }
        Ok(Checksum::Partial)
    }
}
