//! Opening: fast frames from the wire, to IP packets and messages.

use std::net::{Ipv6Addr, SocketAddr};
use std::ops::Range;

use weft_noise::aead::TAG_LEN;
use weft_wire::NodeAddr;
use weft_wire::fast::{self, HEADROOM, Kind, UPPER_AT};

use super::FastIndex;
use super::keys::Opened;
use crate::checksum::{self, Checksum};
use crate::control::{EpochId, LinkId, Report};
use crate::ecn::Seen;
use crate::inbound::Inbound;
use crate::lane::Lane;
use crate::meter::Arrival;
use crate::mss;
use crate::paths;
use crate::train::{Train, Transmit};

/// Where the content starts behind the clock.
pub(super) const CONTENT_AT: usize = fast::Header::LEN + fast::TIMESTAMP_LEN;

impl Lane {
    /// Takes the fast frame behind the first [`HEADROOM`] bytes of `room`.
    pub(crate) fn fast_frame<T: Transmit>(
        &mut self,
        now: u64,
        from: SocketAddr,
        room: &mut [u8],
        train: &mut Train<T>,
    ) -> Option<Inbound> {
        let frame = room.get_mut(HEADROOM..)?;
        let Ok(header) = fast::Header::parse(frame) else {
            self.counters.malformed += 1;
            return None;
        };
        match self.fast_indices.get(&header.receiver_index) {
            Some(&FastIndex::Session(peer)) => self.ends_frame(now, (from, None), peer, &header, room, train),
            Some(&FastIndex::Hop(link)) => self.hop_frame(now, from, link, &header, room, train),
            None => {
                self.counters.fast_unknown += 1;
                None
            }
        }
    }

    /// Takes the frame of a session, as its source sealed it: from the peer itself, or by the link of another node.
    pub(crate) fn ends_frame<T: Transmit>(
        &mut self,
        now: u64,
        (from, via): (SocketAddr, Option<Via>),
        peer: NodeAddr,
        header: &fast::Header,
        room: &mut [u8],
        train: &mut Train<T>,
    ) -> Option<Inbound> {
        if header.kind == Kind::Relayed {
            self.counters.malformed += 1;
            return None;
        }
        let frame = room.get_mut(HEADROOM..)?;
        let session = self.sessions.get_mut(&peer)?;
        let epoch = session.fast.by_index_mut(header.receiver_index)?;
        let (aad, sealed) = frame.split_at_mut_checked(fast::Header::LEN)?;
        let opened = match epoch.open(now, header, aad, sealed) {
            Ok(opened) => opened,
            Err(failure) => {
                self.counters.fast_open_failed(failure);
                return None;
            }
        };
        let (id, number) = (epoch.id, epoch.number());
        let proven = epoch.proven && (epoch.direct || via.is_some());
        self.counters.fast_rx += 1;
        self.counters.relayed_rx += u64::from(via.is_some());
        let seen = via.map_or(self.outer, |via| Seen::marked(via.marked));
        let arrival = Arrival {
            ce: seen.is_ce(),
            ..arrival(number, header, frame)
        };
        self.fast_arrived(now, (from, via), peer, id, opened, arrival);
        if !proven && !asks(header.kind, frame_content(room)) {
            let direct = via.is_none();
            let session = self.sessions.get_mut(&peer)?;
            session.fast.prove(id, direct);
            session.splits = true;
            let id = EpochId(id);
            self.report(Report::FastProven { peer, id, direct });
            self.flush_queue(now, peer, train);
        }
        if opened.new_phase {
            self.tell_phase(now, peer, Some(id), train);
        }
        match header.kind {
            Kind::Ipv6 => self.fast_packet(now, peer, room, header.flags, seen),
            Kind::Full => self.full_packet(now, peer, room, header.flags, seen),
            Kind::Fragment => {
                self.fast_piece(now, peer, id, room, seen);
                None
            }
            Kind::Message | Kind::Relayed => {
                self.fast_message(now, peer, id, frame_content(room), train);
                None
            }
        }
    }

    /// What a frame shows of the session and the link that it is of.
    fn fast_arrived(
        &mut self,
        now: u64,
        (from, via): (SocketAddr, Option<Via>),
        peer: NodeAddr,
        id: u32,
        opened: Opened,
        arrival: Arrival,
    ) {
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        // Late frames of old keys may come from where the peer was, and are not what reports are about.
        let current = session.fast.current().is_some_and(|current| current.id == id);
        if current {
            session.meter.receive(now, arrival);
        }
        let newest = opened.newest && current;
        match via {
            Some(via) if newest => self.note_arrival(now, via.link, peer),
            Some(_) => {}
            None => self.heard(now, from, peer, (1, arrival.bytes), newest),
        }
    }

    /// So many frames, of so many bytes together, came from there; `newest` says that one of them is the newest of all.
    pub(super) fn heard(
        &mut self,
        now: u64,
        from: SocketAddr,
        peer: NodeAddr,
        (frames, bytes): (u64, usize),
        newest: bool,
    ) {
        let bound = self.sessions.get(&peer).and_then(|session| session.link);
        let Some(id) = self.direct_link(bound, peer) else {
            return;
        };
        let Some(link) = self.links.get_mut(&id) else { return };
        link.totals.received(now, frames, bytes);
        link.totals.rx_payload += frames;
        if newest {
            if let Some(room) = link.paths.came_from(now, from, bytes) {
                self.report(paths::moved(id, from, room));
            }
            self.note_arrival(now, id, peer);
        }
    }

    /// The link with this node itself: the one that its session goes over, as a rule.
    fn direct_link(&self, bound: Option<LinkId>, peer: NodeAddr) -> Option<LinkId> {
        let is_direct = |id: &LinkId| self.links.get(id).is_some_and(|link| link.peer == peer);
        let other = || self.links.iter().find(|(_, link)| link.peer == peer).map(|(id, _)| *id);
        bound.filter(is_direct).or_else(other)
    }

    fn fast_packet(&mut self, now: u64, peer: NodeAddr, room: &mut [u8], flags: u8, seen: Seen) -> Option<Inbound> {
        if !self.allowed.contains_key(&peer.to_ipv6().octets()) {
            self.counters.not_allowed += 1;
            return None;
        }
        let ends = (peer.to_ipv6(), self.config.me.to_ipv6());
        let Some((range, checksum)) = expand(room, flags, ends, || self.room_to(&peer).max_tcp()) else {
            self.counters.malformed += 1;
            return None;
        };
        let session = self.sessions.get_mut(&peer)?;
        session.totals.received(now, 1, range.len());
        session.totals.rx_payload += 1;
        session.last_data = now;
        let packet = room.get_mut(range.clone())?;
        if !Self::tell_congestion(&mut self.counters, seen, packet) {
            return None;
        }
        self.note_echo(peer, packet);
        self.counters.tun_tx += 1;
        Some(Inbound::Packet(range, checksum))
    }

    fn fast_message<T: Transmit>(
        &mut self,
        now: u64,
        peer: NodeAddr,
        id: u32,
        content: &[u8],
        train: &mut Train<T>,
    ) -> Option<()> {
        let Some((&msg_type, body)) = content.split_first() else {
            self.counters.malformed += 1;
            return None;
        };
        let session = self.sessions.get_mut(&peer)?;
        session.totals.received(now, 1, 0);
        match msg_type {
            fast::CONFIRM if body == [fast::CONFIRM_ASKS] => {
                let answer = (fast::CONFIRM, &[fast::CONFIRM_ANSWERS][..]);
                self.send_fast(now, peer, Some(id), answer, train);
            }
            fast::CONFIRM => {}
            fast::PROBE => {
                let number = *body.first_chunk()?;
                self.answer_probe(now, peer, id, number, train);
            }
            fast::PHASE => {
                let phase = u32::from_le_bytes(*body.first_chunk()?);
                session.fast.get_mut(id)?.acknowledge(phase);
                // What waited for that, if nothing else may carry it.
                self.flush_queue(now, peer, train);
            }
            _ => {
                let number = session.fast.get_mut(id)?.number();
                self.session_message(now, peer, (EpochId(id), number), msg_type, body);
            }
        }
        Some(())
    }

    /// Tells the other side which phase its frames are opened with.
    pub(crate) fn tell_phase<T: Transmit>(&mut self, now: u64, peer: NodeAddr, id: Option<u32>, train: &mut Train<T>) {
        let session = self.sessions.get_mut(&peer);
        let epoch = session.and_then(|s| match id {
            Some(id) => s.fast.get_mut(id),
            None => s.fast.current_mut(),
        });
        if let Some(phase) = epoch.map(|epoch| epoch.opens_with()).filter(|phase| *phase > 0) {
            self.send_fast(now, peer, id, (fast::PHASE, &phase.to_le_bytes()), train);
        }
    }
}

/// The node that carried a frame to us.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Via {
    /// The link with it.
    pub(crate) link: LinkId,
    /// It says that the frame has experienced congestion.
    pub(crate) marked: bool,
}

/// What a frame that opened tells of its way.
pub(super) fn arrival(epoch: u32, header: &fast::Header, frame: &[u8]) -> Arrival {
    let clock = frame.get(fast::Header::LEN..).and_then(<[u8]>::first_chunk);
    Arrival {
        epoch,
        counter: header.counter,
        timestamp: clock.map_or(0, |clock| u32::from_le_bytes(*clock)),
        bytes: frame.len(),
        ce: false,
    }
}

/// Makes the IP packet of an opened frame, which lies behind the first [`HEADROOM`] bytes of `room`, where it is: returns
/// where, and how much of its checksum is there. `None` if it can be none. `max_tcp` bounds what TCP connections agree on.
pub(super) fn expand(
    room: &mut [u8],
    flags: u8,
    (source, dest): (Ipv6Addr, Ipv6Addr),
    max_tcp: impl FnOnce() -> usize,
) -> Option<(Range<usize>, Checksum)> {
    let end = room.len().checked_sub(TAG_LEN)?;
    let opened = room.get_mut(..end)?;
    let start = fast::expand_in_place(opened, HEADROOM + UPPER_AT, source, dest).ok()?;
    let packet = opened.get_mut(start..)?;
    if mss::opens_connection(packet) {
        mss::clamp(packet, max_tcp());
    }
    let checksum = if flags & fast::FLAG_PARTIAL == 0 {
        Checksum::Full
    } else if checksum::start(packet) {
        Checksum::Partial
    } else {
        return None;
    };
    Some((start..end, checksum))
}

/// Whether this asks for a confirm. A peer that asks has not heard from us, so nothing shows that our frames arrive.
pub(super) fn asks(kind: Kind, content: &[u8]) -> bool {
    kind == Kind::Message && content == [fast::CONFIRM, fast::CONFIRM_ASKS]
}

/// The opened content of the frame behind the headroom, without the clock.
pub(super) fn frame_content(room: &[u8]) -> &[u8] {
    let content = HEADROOM + CONTENT_AT..room.len() - TAG_LEN;
    room.get(content).unwrap_or_default()
}
