//! Packets with all of their header: IPv4, and IPv6 between networks behind nodes. Let in only from where their
//! sender may send.

use weft_noise::aead::TAG_LEN;
use weft_wire::NodeAddr;
use weft_wire::fast::{self, FULL_AT, HEADROOM};

use crate::checksum::{self, Checksum};
use crate::ecn;
use crate::inbound::Inbound;
use crate::inner::Inner;
use crate::lane::Lane;
use crate::mss;
use crate::networks::addresses;

impl Lane {
    /// Takes the packet in an opened frame of [`Full`](fast::Kind::Full), behind the headroom of `room`.
    pub(super) fn full_packet(
        &mut self,
        now: u64,
        peer: NodeAddr,
        room: &mut [u8],
        flags: u8,
        marked: bool,
    ) -> Option<Inbound> {
        let range = HEADROOM + FULL_AT..room.len().checked_sub(TAG_LEN)?;
        let packet = room.get_mut(range.clone())?;
        let checksum = self.let_in(now, peer, packet, flags, marked)?;
        Some(Inbound::Packet(range, checksum))
    }

    /// The same for a packet that came in pieces.
    pub(super) fn full_whole(&mut self, now: u64, peer: NodeAddr, mut packet: Vec<u8>, marked: bool) -> Option<()> {
        self.let_in(now, peer, &mut packet, 0, marked)?;
        self.counters.fast_reassembled += 1;
        self.push_reply(packet);
        Some(())
    }

    /// Whether a packet may go to the TUN: it is one, this peer may send from its source, and its destination is ours.
    fn let_in(&mut self, now: u64, peer: NodeAddr, packet: &mut [u8], flags: u8, marked: bool) -> Option<Checksum> {
        if !self.allowed.contains_key(&peer.to_ipv6().octets()) {
            self.counters.not_allowed += 1;
            return None;
        }
        let whole = Inner::parse(packet).is_ok_and(|inner| inner.packet().len() == packet.len());
        let Some((source, dest)) = addresses(packet).filter(|_| whole) else {
            self.counters.malformed += 1;
            return None;
        };
        if self.peer_behind(source) != Some(peer) {
            self.counters.foreign_source += 1;
            return None;
        }
        if !self.is_ours(dest) {
            self.counters.foreign_destination += 1;
            return None;
        }
        if mss::opens_connection_full(packet) {
            mss::clamp(packet, self.room_to(&peer).full().max_tcp());
        }
        let checksum = if flags & fast::FLAG_PARTIAL == 0 {
            Checksum::Full
        } else if checksum::start_full(packet) {
            Checksum::Partial
        } else {
            self.counters.malformed += 1;
            return None;
        };
        if marked && ecn::mark_full(packet) {
            self.counters.ce_delivered += 1;
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
