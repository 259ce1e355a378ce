//! Packets with all of their header: IPv4, and IPv6 between networks behind nodes. Let in only from where their
//! sender may send.

use std::net::IpAddr;
use std::ops::Range;

use weft_noise::aead::TAG_LEN;
use weft_wire::NodeAddr;
use weft_wire::fast::{self, FULL_AT, HEADROOM};

use crate::checksum::{self, Checksum};
use crate::ecn::Seen;
use crate::inbound::Inbound;
use crate::inner::Inner;
use crate::lane::Lane;
use crate::mss;
use crate::networks::{Borders, addresses};

impl Lane {
    /// Takes the packet in an opened frame of [`Full`](fast::Kind::Full), behind the headroom of `room`.
    pub(super) fn full_packet(
        &mut self,
        now: u64,
        peer: NodeAddr,
        room: &mut [u8],
        flags: u8,
        seen: Seen,
    ) -> Option<Inbound> {
        let range = place(room)?;
        let packet = room.get_mut(range.clone())?;
        let checksum = self.let_in(now, peer, packet, flags, seen)?;
        Some(Inbound::Packet(range, checksum))
    }

    /// The same for a packet that came in pieces.
    pub(super) fn full_whole(&mut self, now: u64, peer: NodeAddr, mut packet: Vec<u8>, seen: Seen) -> Option<()> {
        self.let_in(now, peer, &mut packet, 0, seen)?;
        self.counters.fast_reassembled += 1;
        self.push_reply(packet);
        Some(())
    }

    /// Lets a packet in, or counts why not, and what it is of the session.
    fn let_in(&mut self, now: u64, peer: NodeAddr, packet: &mut [u8], flags: u8, seen: Seen) -> Option<Checksum> {
        if !self.allowed.contains_key(&peer.to_ipv6().octets()) {
            self.counters.not_allowed += 1;
            return None;
        }
        let mut border = Border::new(self.borders(), peer, self.room_to(&peer).full().max_tcp());
        let checksum = match border.let_in(packet, flags) {
            Ok(checksum) => checksum,
            Err(refusal) => {
                self.counters.refused(refusal);
                return None;
            }
        };
        if !Self::tell_congestion(&mut self.counters, seen, packet) {
            return None;
        }
        let session = self.sessions.get_mut(&peer)?;
        session.totals.received(now, 1, packet.len());
        session.totals.rx_payload += 1;
        session.last_data = now;
        self.counters.full_rx += 1;
        self.counters.tun_tx += 1;
        Some(checksum)
    }
}

/// Where the packet lies of an opened frame behind the headroom of `room`.
pub(super) fn place(room: &[u8]) -> Option<Range<usize>> {
    Some(HEADROOM + FULL_AT..room.len().checked_sub(TAG_LEN)?)
}

/// Why a packet may not go to the TUN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is none.
    Malformed,
    /// This peer may not send from its source.
    Source,
    /// Its destination is not ours.
    Destination,
}

/// Where packets of one peer come in.
pub(super) struct Border<'a> {
    borders: Borders<'a>,
    peer: NodeAddr,
    max_tcp: usize,
    /// Source and destination of the last that was let in: many of one flow come together.
    last: Option<(IpAddr, IpAddr)>,
}

impl<'a> Border<'a> {
    /// `max_tcp` bounds what TCP connections agree on, bytes.
    pub(super) fn new(borders: Borders<'a>, peer: NodeAddr, max_tcp: usize) -> Self {
        Self {
            borders,
            peer,
            max_tcp,
            last: None,
        }
    }

    /// Makes a packet ready for the TUN, and tells how much of its checksum is there, or why it may not go there.
    pub(super) fn let_in(&mut self, packet: &mut [u8], flags: u8) -> Result<Checksum, Refusal> {
        let whole = Inner::parse(packet).is_ok_and(|inner| inner.packet().len() == packet.len());
        let ends = addresses(packet).filter(|_| whole).ok_or(Refusal::Malformed)?;
        if self.last != Some(ends) {
            if self.borders.peer_behind(ends.0) != Some(self.peer) {
                return Err(Refusal::Source);
            }
            if !self.borders.is_ours(ends.1) {
                return Err(Refusal::Destination);
            }
            self.last = Some(ends);
        }
        if mss::opens_connection_full(packet) {
            mss::clamp(packet, self.max_tcp);
        }
        if flags & fast::FLAG_PARTIAL == 0 {
            return Ok(Checksum::Full);
        }
        if !checksum::start_full(packet) {
            return Err(Refusal::Malformed);
        }
        Ok(Checksum::Partial)
    }
}
