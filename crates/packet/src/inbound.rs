//! From the wire to the TUN: classify, open, expand.

use std::net::SocketAddr;
use std::ops::Range;

use weft_noise::aead::TAG_LEN;
use weft_wire::fast::{self, HEADROOM};
use weft_wire::link::{LinkMessageType, PROBE, PROBE_ANSWER, SessionDatagram};
use weft_wire::session::{DataPorts, IPV6_SHIM_PORT, SessionMessageType, SessionMsg3};
use weft_wire::{NodeAddr, fmp, fsp, shim};

use crate::checksum::Checksum;
use crate::clear::{self, Clear, Parties};
use crate::control::{EpochId, Layer, LinkId, LinkReport, Report, SessionReport};
use crate::counters::DropReason;
use crate::echo;
use crate::ecn::{self, Seen};
use crate::epoch::{OpenFailure, Proof};
use crate::fast::{FastIndex, Source};
use crate::lane::{Index, Lane};
use crate::meter::Arrival;
use crate::mss;
use crate::paths;
use crate::received::Received;
use crate::session::{Expecting, Session};
use crate::train::{Train, Transmit};

/// The shortest interval between reports of unknown sessions for one link, in ms.
const UNKNOWN_SESSION_INTERVAL: u64 = 200;
/// The shortest interval between reports of a session's arrival link, in ms. Frames may alternate
/// between links.
const ARRIVAL_INTERVAL: u64 = 100;
/// The largest link or session message that is passed to the core, in bytes. The largest in FIPS is
/// FilterAnnounce, 1,035 bytes; a TreeAnnounce is bounded by the datagram.
const MAX_CONTROL: usize = 4096;

/// The outcome of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inbound {
    /// An IP packet for the TUN, at this range of the buffer, and the state of its checksum.
    Packet(Range<usize>, Checksum),
    /// Nothing for the TUN: the datagram was a message, or was dropped and counted.
    Done,
}

/// The outcome of a session datagram.
enum Routed {
    /// A handshake message or error signal for this node, which the core processes.
    Local,
    /// The lane has processed it.
    Done(Inbound),
}

impl Lane {
    /// Processes the datagrams of one receive: `step` bytes each but the last, one behind the
    /// other, from offset [`HEADROOM`] of `room` on. Calls `deliver` for each IP packet for the
    /// TUN, with the packet, its range in `room`, where it stays, and the state of its checksum.
    /// Datagrams for other lanes are copied for [`Lane::foreign`].
    pub fn inbound_train<T: Transmit>(
        &mut self,
        now: u64,
        from: SocketAddr,
        room: &mut [u8],
        step: usize,
        train: &mut Train<T>,
        mut deliver: impl FnMut(&[u8], Range<usize>, Checksum),
    ) {
        self.foreign.clear();
        let mut received = Received::new(room, step);
        self.counters.ce_underlay += if self.outer == Seen::Ce {
            received.count() as u64
        } else {
            0
        };
        while let Some(head) = received.head() {
            if !self.is_ours(head)
                && let Some(owner) = self.other_owner(head)
            {
                self.leave(owner, head);
                received.skip();
                continue;
            }
            self.take(now, from, &mut received, train, &mut deliver);
        }
        self.outer = Seen::Nothing;
    }

    /// Processes one datagram and opens it in place. The datagram is in `room` behind [`HEADROOM`]
    /// bytes, which may be overwritten. These bytes may be the end of a datagram that was processed
    /// before, of which only the tag lies there.
    ///
    /// Packets that waited for what this datagram proves are committed to `train`.
    pub fn inbound<T: Transmit>(
        &mut self,
        now: u64,
        from: SocketAddr,
        room: &mut [u8],
        train: &mut Train<T>,
    ) -> Inbound {
        let mut inbound = Inbound::Done;
        let mut received = Received::new(room, usize::MAX);
        if received.head().is_none() {
            self.counters.udp_rx += 1;
            self.counters.drops.count(DropReason::Malformed);
        } else {
            self.take(now, from, &mut received, train, &mut |_, range, checksum| {
                inbound = Inbound::Packet(range, checksum);
            });
        }
        inbound
    }

    /// Processes the first remaining datagram, and those behind it under the same keys.
    fn take<T: Transmit>(
        &mut self,
        now: u64,
        from: SocketAddr,
        received: &mut Received<'_>,
        train: &mut Train<T>,
        deliver: &mut impl FnMut(&[u8], Range<usize>, Checksum),
    ) {
        let before = received.count();
        let Some(head) = received.head() else { return };
        let owner = fast::index_of(head).map(|index| self.fast_indices.get(&index).copied());
        match owner {
            Some(Some(FastIndex::Session(peer))) => {
                let source = Source { from, via: None };
                self.session_frames(now, source, peer, received, train, deliver);
            }
            Some(Some(FastIndex::Hop(link))) => self.hop_frames(now, from, link, received, train, deliver),
            Some(None) => {
                let reason = match fast::Header::parse(head) {
                    Ok(_) => DropReason::FastUnknown,
                    Err(_) => DropReason::Malformed,
                };
                self.counters.drops.count(reason);
                received.skip();
            }
            None => {
                let (at, room) = received.head_in_room();
                let datagram = room.get_mut(HEADROOM..).unwrap_or_default();
                match self.fips_datagram(now, from, datagram, train) {
                    Ok(Inbound::Packet(range, checksum)) => {
                        let packet = datagram.get(range.clone()).unwrap_or_default();
                        let at = at + HEADROOM;
                        deliver(packet, at + range.start..at + range.end, checksum);
                    }
                    Ok(Inbound::Done) => {}
                    Err(reason) => self.counters.drops.count(reason),
                }
                received.skip();
            }
        }
        self.counters.udp_rx += (before - received.count()) as u64;
    }

    /// Returns whether this is a fast frame under a receiver index of this lane.
    fn is_ours(&self, datagram: &[u8]) -> bool {
        fast::index_of(datagram).is_some_and(|index| self.fast_indices.contains_key(&index))
    }

    /// Like [`Lane::inbound`] for a datagram without headroom: returns the IP packet for the TUN in
    /// it, if there is one, with a complete checksum. It copies, and is for tests and simulations.
    pub fn inbound_alone<T: Transmit>(
        &mut self,
        now: u64,
        from: SocketAddr,
        datagram: &[u8],
        train: &mut Train<T>,
    ) -> Option<Vec<u8>> {
        let mut room = [&[0; HEADROOM], datagram].concat();
        let Inbound::Packet(range, checksum) = self.inbound(now, from, &mut room, train) else {
            return None;
        };
        let mut packet = room.get(range)?.to_vec();
        if checksum == Checksum::Partial {
            crate::checksum::complete(&mut packet);
        }
        Some(packet)
    }

    fn fips_datagram<T: Transmit>(
        &mut self,
        now: u64,
        from: SocketAddr,
        datagram: &mut [u8],
        train: &mut Train<T>,
    ) -> Result<Inbound, DropReason> {
        let prefix = fmp::CommonPrefix::parse(datagram).map_err(|_| DropReason::Malformed)?;
        match fmp::Phase::from_nibble(prefix.phase) {
            Some(fmp::Phase::Established) => self.established(now, from, datagram, train),
            Some(_) if prefix.version == fmp::VERSION => self.handshake(now, from, datagram),
            _ => Err(DropReason::Malformed),
        }
    }

    /// Passes a well-formed handshake message to the core, at a bounded rate.
    fn handshake(&mut self, now: u64, from: SocketAddr, datagram: &[u8]) -> Result<Inbound, DropReason> {
        let wanted = if let Ok(msg1) = fmp::Msg1::parse(datagram) {
            self.gate.admits_msg1(now, from, &msg1)
        } else {
            // An answer is examined only if a handshake of this node waits for it.
            fmp::Msg2::parse(datagram).is_ok_and(|msg2| self.gate.admits_msg2(now, from, &msg2))
        };
        if !wanted {
            return Err(DropReason::Handshake);
        }
        self.report(Report::Handshake {
            from,
            datagram: datagram.to_vec(),
        });
        Ok(Inbound::Done)
    }

    fn established<T: Transmit>(
        &mut self,
        now: u64,
        from: SocketAddr,
        datagram: &mut [u8],
        train: &mut Train<T>,
    ) -> Result<Inbound, DropReason> {
        let mut header = fmp::EstablishedHeader::parse(datagram).map_err(|_| DropReason::Malformed)?;
        let Some(id) = self.classify(header.receiver_idx)? else {
            return Ok(Inbound::Done);
        };
        let link = self.links.get_mut(&id).ok_or(DropReason::NoKeys)?;
        let epoch = link.epochs.pick_mut(Some(header.receiver_idx));
        let epoch = epoch.ok_or(DropReason::NoKeys)?;
        let (aad, sealed) = datagram.split_at_mut(fmp::EstablishedHeader::LEN);
        let newest = epoch.open(header.counter, aad, sealed).map_err(OpenFailure::of_link)?;
        if newest {
            epoch.observe_spin(header.flags & fmp::FLAG_SPIN != 0);
        }
        if self.outer == Seen::Ce
            && let Some(flags) = datagram.get_mut(1)
        {
            // A CE mark of the underlay becomes a mark of the hop, whatever the frame contains. The
            // header has been authenticated before.
            header.flags |= fmp::FLAG_CE;
            *flags |= fmp::FLAG_CE;
        }
        link.received(now, 1, datagram.len());
        let proof = link
            .epochs
            .authenticated(header.receiver_idx, header.flags & fmp::FLAG_KEY_EPOCH != 0);
        if proof == Proof::Promoted {
            link.settle_path(header.receiver_idx, from);
        }
        // Late frames under old keys may come from an earlier address of the peer.
        let current = link.epochs.current().is_some_and(|e| e.id == header.receiver_idx);
        let moved = match newest && current {
            true => link.paths.came_from(now, from, datagram.len()),
            false => None,
        };
        let (path, proven) = (link.paths.proven(), link.paths.is_proven());
        if proof == Proof::Promoted {
            self.tables_changed();
            self.report(Report::Link(
                id,
                LinkReport::Proven {
                    index: header.receiver_idx,
                    path,
                    proven,
                },
            ));
            self.flush_queues(now, id, train);
        }
        if let Some(room) = moved {
            self.report(paths::moved(id, from, room));
        }
        self.link_message(now, id, &header, datagram, train)
    }

    /// Returns the link that an index belongs to, or `None` if its handshake is not finished. The
    /// latter is reported to the core once.
    fn classify(&mut self, index: u32) -> Result<Option<LinkId>, DropReason> {
        match self.indices.get_mut(&index) {
            Some(Index::Keyed(link)) => Ok(Some(*link)),
            Some(Index::Armed(link, reported)) => {
                self.counters.early_frames += 1;
                if !std::mem::replace(reported, true) {
                    let link = *link;
                    self.report(Report::Link(link, LinkReport::EarlyFrame { index }));
                }
                Ok(None)
            }
            None => Err(DropReason::UnknownIndex),
        }
    }

    /// Dispatches an opened link message. `datagram` holds its plaintext behind the header.
    fn link_message<T: Transmit>(
        &mut self,
        now: u64,
        link: LinkId,
        header: &fmp::EstablishedHeader,
        datagram: &mut [u8],
        train: &mut Train<T>,
    ) -> Result<Inbound, DropReason> {
        let index = header.receiver_idx;
        let end = datagram.len().checked_sub(TAG_LEN).ok_or(DropReason::Malformed)?;
        let plain = datagram.get(fmp::EstablishedHeader::LEN..end);
        let parsed = plain.and_then(|plain| fmp::InnerHeader::parse(plain).ok());
        let (inner, body) = parsed.ok_or(DropReason::Malformed)?;
        let body_at = end - body.len();
        let kind = LinkMessageType::from_byte(inner.msg_type);
        // Tree and filter announcements, reports and heartbeats call for no answer, and a probe has
        // its own. A message of unknown type may call for one.
        let answerable = !matches!(
            kind,
            Some(
                LinkMessageType::Heartbeat
                    | LinkMessageType::SenderReport
                    | LinkMessageType::ReceiverReport
                    | LinkMessageType::TreeAnnounce
                    | LinkMessageType::FilterAnnounce
            )
        ) && !matches!(inner.msg_type, PROBE | PROBE_ANSWER);
        if let Some(link) = self.links.get_mut(&link) {
            link.received_payload(u64::from(answerable));
            if link.epochs.seals_with(index) {
                let arrival = Arrival {
                    epoch: index,
                    counter: header.counter,
                    timestamp: inner.timestamp,
                    bytes: datagram.len(),
                    ce: header.flags & fmp::FLAG_CE != 0,
                };
                link.meter.receive(now, arrival);
            }
        }
        match kind {
            Some(LinkMessageType::Heartbeat) if body.is_empty() => return Ok(Inbound::Done),
            Some(LinkMessageType::ReceiverReport) => {
                self.measured(now, Layer::Link(link), index, body)?;
                return Ok(Inbound::Done);
            }
            Some(LinkMessageType::SessionDatagram) => {
                match self.session_datagram(now, link, datagram, body_at..end, train)? {
                    Routed::Local => {}
                    Routed::Done(inbound) => return Ok(inbound),
                }
            }
            _ => {}
        }
        let body = datagram.get(body_at..end).unwrap_or_default();
        if body.len() > MAX_CONTROL {
            return Err(DropReason::ControlTooLong);
        }
        let body = body.to_vec();
        self.report(Report::Link(
            link,
            LinkReport::Message {
                index,
                msg_type: inner.msg_type,
                body,
            },
        ));
        Ok(Inbound::Done)
    }

    /// Processes a session datagram, whose body is at `at`, for this node or for another one.
    fn session_datagram<T: Transmit>(
        &mut self,
        now: u64,
        link: LinkId,
        datagram: &mut [u8],
        at: Range<usize>,
        train: &mut Train<T>,
    ) -> Result<Routed, DropReason> {
        let draw = clear::draw(datagram);
        let parsed = datagram
            .get(at.clone())
            .and_then(|body| SessionDatagram::parse(body).ok());
        let parsed = parsed.and_then(|d| Some((d, fsp::FspPrefix::parse(d.payload).ok()?)));
        let (parsed, prefix) = parsed.ok_or(DropReason::Malformed)?;
        if parsed.dest != self.config.me {
            self.transit(now, link, datagram, at, train)?;
            return Ok(Routed::Done(Inbound::Done));
        }
        let (src, phase) = (parsed.src, fsp::FspPhase::from_nibble(prefix.phase));
        if phase != Some(fsp::FspPhase::Established) || prefix.is_signal() {
            if !self.admits_clear(now, link, src, parsed.payload, draw) {
                return Err(DropReason::Clear);
            }
            if let Ok(msg3) = SessionMsg3::parse(parsed.payload)
                && self.allowed.contains_key(&src.to_ipv6().octets())
            {
                let session = self.sessions.entry(src).or_default();
                session.expecting = Some(Expecting::renewed(session.expecting, now, msg3.noise));
            }
            return Ok(Routed::Local);
        }
        let fsp_at = at.end - parsed.payload.len();
        let inbound = self.session_frame(now, link, src, datagram, fsp_at..at.end, train)?;
        Ok(Routed::Done(inbound))
    }

    /// Returns whether a handshake message or signal for this node is processed. The rate of each
    /// link is bounded.
    fn admits_clear(&mut self, now: u64, link: LinkId, src: NodeAddr, message: &[u8], draw: u32) -> bool {
        let (Some(kind), Some(link)) = (Clear::of(message), self.links.get_mut(&link)) else {
            return false;
        };
        let (me, neighbour) = (self.config.me, link.peer);
        let parties = Parties {
            neighbour,
            src,
            dest: me,
            me,
        };
        link.clear.take(now, kind, parties, draw)
    }

    /// Opens the FSP frame at `at` of `datagram` and processes its content.
    pub(crate) fn session_frame<T: Transmit>(
        &mut self,
        now: u64,
        link: LinkId,
        src: NodeAddr,
        datagram: &mut [u8],
        at: Range<usize>,
        train: &mut Train<T>,
    ) -> Result<Inbound, DropReason> {
        let message = datagram.get_mut(at.clone()).ok_or(DropReason::Malformed)?;
        let parsed = fsp::EncryptedMessage::parse(message).map_err(|_| DropReason::Malformed)?;
        let header = parsed.header;
        let sealed_at = message.len() - parsed.ciphertext.len();
        let (clear, sealed) = message.split_at_mut(sealed_at);
        let aad = clear.get(..fsp::EncryptedHeader::LEN).ok_or(DropReason::Malformed)?;
        let key_bit = header.flags & fsp::FLAG_KEY_EPOCH != 0;
        let opened = self
            .sessions
            .get_mut(&src)
            .map(|s| s.open(header.counter, key_bit, aad, sealed, &mut self.scratch));
        let (id, newest) = match opened {
            Some(Ok((id, newest))) => {
                if newest {
                    self.note_arrival(now, link, src);
                }
                (id, newest)
            }
            Some(Err(OpenFailure::Replay)) => return Err(DropReason::SessionReplay),
            Some(Err(OpenFailure::Tag)) | None => {
                self.no_keys(now, link, src, datagram, at)?;
                return Ok(Inbound::Done);
            }
        };
        self.session_proof(now, src, id, key_bit, train);
        let plain_at = at.start + sealed_at;
        let plain = datagram.get(plain_at..at.end - TAG_LEN).ok_or(DropReason::Malformed)?;
        let (inner, body) = fsp::FspInner::parse(plain).map_err(|_| DropReason::Malformed)?;
        let is_packet = inner.msg_type == SessionMessageType::Data.to_byte()
            && DataPorts::parse(body).is_ok_and(|(ports, _)| ports.dst == IPV6_SHIM_PORT);
        let envelope = at.start.checked_sub(SessionDatagram::HEADER_LEN);
        let envelope = envelope.and_then(|start| SessionDatagram::parse(datagram.get(start..at.end)?).ok());
        let path_mtu = envelope.ok_or(DropReason::Malformed)?.path_mtu;
        let session = self.sessions.get_mut(&src).ok_or(DropReason::NoKeys)?;
        session.path_mtu = Some(path_mtu);
        if let Some(epoch) = session.epochs.pick_mut(Some(id)).filter(|_| newest) {
            epoch.observe_spin(inner.inner_flags & fsp::INNER_FLAG_SPIN != 0);
        }
        if session.epochs.seals_with(id) {
            let arrival = Arrival {
                epoch: id,
                counter: header.counter,
                timestamp: inner.timestamp,
                bytes: plain.len(),
                ce: ecn::is_marked(datagram),
            };
            session.meter.receive(now, arrival);
        }
        if is_packet {
            session.received_packets(now, 1, body.len());
            let shim_at = plain_at + fsp::FspInner::LEN + DataPorts::LEN;
            return self.ip_packet(src, datagram, shim_at, at.end - TAG_LEN);
        }
        session.received_message(now);
        self.session_message(now, src, (EpochId(id), id), inner.msg_type, body)?;
        Ok(Inbound::Done)
    }

    /// Processes an opened session message that is not an IP packet: in the lane, or in the core.
    /// `number` identifies its keys in measurements.
    pub(crate) fn session_message(
        &mut self,
        now: u64,
        peer: NodeAddr,
        (id, number): (EpochId, u32),
        msg_type: u8,
        body: &[u8],
    ) -> Result<(), DropReason> {
        if msg_type == SessionMessageType::ReceiverReport.to_byte() {
            return self.measured(now, Layer::Session(peer), number, body);
        }
        if body.len() > MAX_CONTROL {
            return Err(DropReason::ControlTooLong);
        }
        let body = body.to_vec();
        self.report(Report::Session(peer, SessionReport::Message { id, msg_type, body }));
        Ok(())
    }

    /// Rebuilds the IPv6 header in front of the payload, over the headers of the frame.
    fn ip_packet(
        &mut self,
        src: NodeAddr,
        datagram: &mut [u8],
        shim_at: usize,
        end: usize,
    ) -> Result<Inbound, DropReason> {
        let src_ip = src.to_ipv6();
        if !self.allowed.contains_key(&src_ip.octets()) {
            return Err(DropReason::NotAllowed);
        }
        let seen = match self.outer {
            Seen::Ce => Seen::Ce,
            _ if ecn::is_marked(datagram) => Seen::Marked,
            outer => outer,
        };
        let opened = datagram.get_mut(..end).ok_or(DropReason::Malformed)?;
        let start = shim::expand_in_place(opened, shim_at, src_ip, self.config.me.to_ipv6());
        let start = start.map_err(|_| DropReason::Malformed)?;
        let packet = opened.get_mut(start..).ok_or(DropReason::Malformed)?;
        self.hand_over(src, packet);
        ecn::tell(&mut self.counters, seen, packet)?;
        self.counters.tun_tx += 1;
        Ok(Inbound::Packet(start..end, Checksum::Full))
    }

    /// Processes an IP packet that is about to go to the TUN: clamps the MSS and recognises echo
    /// replies.
    pub(crate) fn hand_over(&mut self, src: NodeAddr, packet: &mut [u8]) {
        if mss::opens_connection(packet) {
            let max_tcp = self.egress(&src).max_tcp();
            mss::clamp(packet, max_tcp);
        }
        self.note_echo(src, packet);
    }

    /// Reports an answer to an echo request of the core.
    pub(crate) fn note_echo(&mut self, src: NodeAddr, packet: &[u8]) {
        if let Some(seq) = self.echo_token.and_then(|token| echo::reply(packet, token)) {
            self.report(Report::Session(src, SessionReport::EchoReply { seq }));
        }
    }

    /// Records that the newest frame of a session arrived over this link.
    pub(crate) fn note_arrival(&mut self, now: u64, link: LinkId, peer: NodeAddr) {
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        let known = |(last, at)| last == link || now.saturating_sub(at) < ARRIVAL_INTERVAL;
        if !session.arrived.is_some_and(known) {
            session.arrived = Some((link, now));
            self.report(Report::Session(peer, SessionReport::Arrives { link }));
        }
    }

    fn session_proof<T: Transmit>(&mut self, now: u64, peer: NodeAddr, id: u32, key_bit: bool, train: &mut Train<T>) {
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        match session.epochs.authenticated(id, key_bit) {
            Proof::None => {}
            Proof::Confirmed => self.report(Report::Session(peer, SessionReport::Confirmed { id: EpochId(id) })),
            Proof::Promoted => {
                self.tables_changed();
                self.report(Report::Session(peer, SessionReport::Proven { id: EpochId(id) }));
                self.flush_queue(now, peer, train);
            }
        }
    }

    /// Handles a frame that no epoch opens: its keys may still be on their way from the core, or
    /// this node may have lost them.
    fn no_keys(
        &mut self,
        now: u64,
        id: LinkId,
        src: NodeAddr,
        datagram: &[u8],
        at: Range<usize>,
    ) -> Result<(), DropReason> {
        let expecting = |s: &Session| s.expecting.filter(|expecting| expecting.is_open(now));
        let session = self.sessions.get(&src).and_then(|s| Some((s, expecting(s)?)));
        if let Some((session, expecting)) = session {
            // A failed attempt to open has destroyed the frame, so a frame can wait only if no
            // epoch was tried.
            let waits = session.epochs.ids().next().is_none();
            if waits {
                self.keep_early(now, id, src, datagram, at);
            }
            // Handshake messages that lead to no keys must not hide that this node has lost its
            // keys.
            if !expecting.in_vain(now) {
                return if waits { Ok(()) } else { Err(DropReason::Early) };
            }
        }
        let link = self.links.get_mut(&id).ok_or(DropReason::NoKeys)?;
        if link.last_unknown == 0 || now.saturating_sub(link.last_unknown) >= UNKNOWN_SESSION_INTERVAL {
            link.last_unknown = now.max(1);
            self.report(Report::Link(id, LinkReport::UnknownSession { src }));
        }
        Err(DropReason::SessionTag)
    }
}
