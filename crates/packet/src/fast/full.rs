//! Packets with all of their header: IPv4, and IPv6 between networks behind nodes. Sealed and opened here, and let in only
//! from where their sender may send.

use weft_noise::aead::TAG_LEN;
use weft_wire::NodeAddr;
use weft_wire::fast::{self, FULL_AT, FULL_OVERHEAD, HEADROOM, Kind};

use super::{FastEpoch, Spent, Way};
use crate::checksum::{self, Checksum};
use crate::ecn;
use crate::inbound::Inbound;
use crate::inner::Inner;
use crate::lane::{Lane, Room};
use crate::mss;
use crate::networks::addresses;
use crate::split::Splitter;
use crate::train::{Train, Transmit};

impl FastEpoch {
    /// Seals the splitter's next packet into `frame`; `prepare` may change the packet. Returns the length of the packet and
    /// of the frame: none when there is no further packet, an error when nothing may be sealed.
    fn seal_next_full(
        &mut self,
        now: u64,
        splitter: &mut Splitter<'_>,
        frame: &mut [u8],
        prepare: impl FnOnce(&mut [u8]),
    ) -> Option<Result<(usize, usize), Spent>> {
        let room = frame.get_mut(FULL_AT..)?;
        let len = splitter.next_into(room)?;
        let packet = room.get_mut(..len)?;
        prepare(packet);
        let flags = if splitter.leave_checksum(packet) {
            fast::FLAG_PARTIAL
        } else {
            0
        };
        let sealed = self.seal_stamped(now, Kind::Full, flags, frame, FULL_AT + len);
        Some(sealed.map(|frame| (len, frame)).ok_or(Spent))
    }
}

impl Lane {
    /// Sends the splitter's packets by the way that `room` tells.
    pub(crate) fn seal_full<T: Transmit>(
        &mut self,
        now: u64,
        (peer, room): (NodeAddr, Room),
        mut splitter: Splitter<'_>,
        train: &mut Train<T>,
    ) {
        let (Some(way), Some(session)) = (room.fast, self.sessions.get_mut(&peer)) else {
            return;
        };
        let (link, inner_at) = match way {
            Way::Direct(link) => (link, 0),
            Way::Relayed(relay) => (relay.link, fast::INNER_AT),
        };
        let (Some(link), Some(epoch)) = (self.links.get_mut(&link), session.fast.current_mut()) else {
            return;
        };
        splitter.elide_checksums();
        if inner_at == 0 && room.is_large(splitter.segment_len()) {
            session.last_large_tx = now;
        }
        let (max_frame, max_tcp) = (inner_at + room.max_inner() + FULL_OVERHEAD, room.max_tcp());
        loop {
            let began = T::clock();
            let mut split = began;
            let slot = train.reserve(max_frame);
            let Some(frame) = slot.get_mut(inner_at..) else { break };
            let sealed = epoch.seal_next_full(now, &mut splitter, frame, |packet| {
                if mss::opens_connection_full(packet) {
                    mss::clamp(packet, max_tcp);
                }
                split = T::clock();
            });
            let Some(Ok((ip_len, len))) = sealed else {
                self.counters.epoch_spent += u64::from(sealed.is_some());
                break;
            };
            let len = inner_at + len;
            if let Way::Relayed(relay) = way {
                if link.seal_relayed(relay, self.whole, slot, len).is_none() {
                    self.counters.epoch_spent += 1;
                    break;
                }
                self.counters.relayed_tx += 1;
            }
            train.out_mut().sealed(split - began, T::clock() - split);
            self.counters.fast_tx += 1;
            self.counters.full_tx += 1;
            link.totals.sent(now, len);
            session.totals.sent(now, ip_len);
            train.commit(link.path, len);
        }
        link.totals.last_payload_tx = now;
        session.last_data = now;
        session.last_data_tx = now;
    }

    /// Takes the packet in an opened frame of [`Kind::Full`], behind the headroom of `room`.
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
