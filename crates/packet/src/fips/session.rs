//! Session datagrams for this node, from the wire: handshake messages and signals, and frames under
//! the keys of a session.

use std::ops::Range;

use weft_contract::{CountedEpoch, EpochId, Layer, LinkReport, SessionReport};
use weft_noise::aead::TAG_LEN;
use weft_wire::link::SessionDatagram;
use weft_wire::session::{CONTROL_MAGIC, DataPorts, IPV6_SHIM_PORT, SessionMsg3};
use weft_wire::{fsp, shim};

use super::{FipsIngress, OpenFailure, Proof};
use crate::admit::Form;
use crate::clear::{self, Clear, Parties};
use crate::counters::DropReason;
use crate::early::SessionFrame;
use crate::ecn::{self, Seen};
use crate::kinds::{Duty, core_message};
use crate::meter::Arrival;
use crate::received::Inbound;
use crate::session::{Expecting, Session};
use crate::tables::{LinkKey, SessionKey};
use crate::train::Transmit;

/// The shortest interval between reports of unknown sessions for one link, in ms.
const UNKNOWN_SESSION_INTERVAL: u64 = 200;

impl<T: Transmit> FipsIngress<'_, T> {
    /// Processes a session datagram, whose body is at `at`, for this node or for another one.
    /// Returns `None` for a handshake message or error signal for this node, which the core
    /// processes.
    pub(super) fn session_datagram(
        &mut self,
        key: LinkKey,
        datagram: &mut [u8],
        at: Range<usize>,
    ) -> Result<Option<Inbound>, DropReason> {
        let (draw, marked) = (clear::draw(datagram), ecn::is_marked(datagram));
        let parsed = datagram
            .get(at.clone())
            .and_then(|body| SessionDatagram::parse(body).ok());
        let parsed = parsed.and_then(|d| Some((d, fsp::FspPrefix::parse(d.payload).ok()?)));
        let (parsed, prefix) = parsed.ok_or(DropReason::Malformed)?;
        let (now, tables) = (self.now, &mut self.lane.tables);
        if parsed.dest != tables.config.me {
            self.transit(key, datagram, at)?;
            return Ok(Some(Inbound::Done));
        }
        let link = tables.links.get_mut(key).ok_or(DropReason::NoKeys)?;
        let (src, phase) = (parsed.src, fsp::FspPhase::from_nibble(prefix.phase));
        if phase == Some(fsp::FspPhase::Established) && !prefix.is_signal() {
            let frame = SessionFrame {
                link: link.id,
                src,
                path_mtu: parsed.path_mtu,
                marked,
                direct: false,
                at: at.end - parsed.payload.len()..at.end,
            };
            return self.session_frame(frame, datagram).map(Some);
        }
        // The rate of each link is bounded.
        let kind = Clear::of(parsed.payload).ok_or(DropReason::Clear)?;
        let parties = Parties {
            neighbour: link.peer,
            src,
            dest: parsed.dest,
            me: parsed.dest,
        };
        if !link.clear.take(now, kind, parties, draw) {
            return Err(DropReason::Clear);
        }
        if let Some(session) = tables.sessions.find_mut(&src).filter(|session| session.allowed) {
            if let Ok(msg3) = SessionMsg3::parse(parsed.payload) {
                session.expecting = Some(Expecting::renewed(session.expecting, now, msg3.noise));
            } else if phase == Some(fsp::FspPhase::Setup) {
                session.asked = now;
            }
        }
        Ok(None)
    }

    /// Opens a frame of a session in place, and processes its content.
    pub(crate) fn session_frame(&mut self, frame: SessionFrame, datagram: &mut [u8]) -> Result<Inbound, DropReason> {
        let at = frame.at.clone();
        let message = datagram.get_mut(at.clone()).ok_or(DropReason::Malformed)?;
        let parsed = fsp::EncryptedMessage::parse(message).map_err(|_| DropReason::Malformed)?;
        let header = parsed.header;
        let sealed_at = message.len() - parsed.ciphertext.len();
        let (clear, sealed) = message.split_at_mut(sealed_at);
        let aad = clear.get(..fsp::EncryptedHeader::LEN).ok_or(DropReason::Malformed)?;
        let key_bit = header.flags & fsp::FLAG_KEY_EPOCH != 0;
        let lane = &mut *self.lane;
        let session = lane.tables.sessions.key(&frame.src);
        let opened = session.and_then(|key| {
            let session = lane.tables.sessions.get_mut(key)?;
            Some((
                key,
                session.open(self.now, header.counter, key_bit, aad, sealed, &mut lane.scratch),
            ))
        });
        let (key, id, newest) = match opened {
            Some((key, Ok((id, newest)))) => (key, id, newest),
            Some((key, Err(OpenFailure::Replay))) => {
                // Counters of new keys begin at zero, so these may look like ones of the old keys.
                let expects = |session: &Session| session.expects_keys(self.now);
                if !lane.tables.sessions.get(key).is_some_and(expects) {
                    return Err(DropReason::SessionReplay);
                }
                self.keep_early(frame, datagram);
                return Ok(Inbound::Done);
            }
            Some((_, Err(OpenFailure::Tag))) | None => {
                self.no_keys(frame, datagram)?;
                return Ok(Inbound::Done);
            }
        };
        let plain_at = at.start + sealed_at;
        let plain = datagram.get(plain_at..at.end - TAG_LEN).ok_or(DropReason::Malformed)?;
        let (inner, body) = fsp::FspInner::parse(plain).map_err(|_| DropReason::Malformed)?;
        let duty = Duty::in_fips(inner.msg_type);
        if frame.direct {
            self.note_record(key, frame.link, datagram.len());
        }
        let lane = &mut *self.lane;
        let session = lane.tables.sessions.get_mut(key).ok_or(DropReason::NoKeys)?;
        let arrives = newest && !duty.is_aside() && session.arrives_over(self.now, frame.link);
        let proof = session.epochs.authenticated(id, key_bit);
        if arrives {
            lane.out
                .report_session(frame.src, SessionReport::Arrives { link: frame.link });
        }
        if proof != Proof::None {
            self.session_proof(key, EpochId(id), proof);
        }
        if duty.is_aside() {
            return self.relay_probe(key, frame.link, id, (duty, body));
        }
        let is_packet =
            duty == Duty::Data && DataPorts::parse(body).is_ok_and(|(ports, _)| ports.dst == IPV6_SHIM_PORT);
        let session = self.lane.tables.sessions.get_mut(key).ok_or(DropReason::NoKeys)?;
        session.path_mtu = Some(frame.path_mtu);
        if let Some(epoch) = session.epochs.pick_mut(Some(id)).filter(|_| newest) {
            epoch.observe_spin(inner.inner_flags & fsp::INNER_FLAG_SPIN != 0);
        }
        if session.epochs.seals_with(id) {
            let arrival = Arrival {
                epoch: CountedEpoch::fips(id),
                counter: header.counter,
                timestamp: inner.timestamp,
                bytes: plain.len(),
                ce: frame.marked,
            };
            session.meter.receive(self.now, arrival);
        }
        let body_at = plain_at + fsp::FspInner::LEN;
        if is_packet {
            return self.ip_packet(
                key,
                datagram,
                (Form::Between, frame.marked),
                body_at + DataPorts::LEN..at.end - TAG_LEN,
            );
        }
        if duty == Duty::WholePacket && self.lane.tables.takes_whole {
            let control = body.starts_with(CONTROL_MAGIC);
            self.note_whole(key);
            if !control {
                return self.ip_packet(key, datagram, (Form::Whole, frame.marked), body_at..at.end - TAG_LEN);
            }
        }
        let (now, tables) = (self.now, &mut self.lane.tables);
        if let Some(session) = tables.sessions.get_mut(key) {
            session.received_message(now);
        }
        let report = match duty {
            Duty::Data => tables.service_message(now, key, body)?,
            Duty::Measured => tables.measured(now, Layer::Session(frame.src), CountedEpoch::fips(id), body)?,
            // No other kind has a duty of its own in these frames.
            Duty::Core
            | Duty::WholePacket
            | Duty::NoService
            | Duty::Confirm
            | Duty::Probe
            | Duty::Phase
            | Duty::RelayProbe
            | Duty::RelayProbeAnswer => core_message(frame.src, EpochId(id), inner.msg_type, body)?,
        };
        self.lane.out.report(report);
        Ok(Inbound::Done)
    }

    /// Notes that the peer sends packets with their whole header in FIPS frames, and so reads them. Packets
    /// may have waited for that.
    fn note_whole(&mut self, key: SessionKey) {
        let session = self.lane.tables.sessions.get_mut(key);
        if session.is_some_and(|session| !std::mem::replace(&mut session.reads_whole, true)) {
            self.lane.tables.changed();
            self.lane.sender(self.now, self.train).flush_queue(key);
        }
    }

    /// Passes the packet at `at` through the door. The header of one between both nodes is rebuilt in
    /// front of its payload, over the headers of the frame.
    fn ip_packet(
        &mut self,
        key: SessionKey,
        datagram: &mut [u8],
        (form, marked): (Form, bool),
        at: Range<usize>,
    ) -> Result<Inbound, DropReason> {
        let end = at.end;
        let lane = &mut *self.lane;
        let seen = match lane.outer {
            Seen::Ce => Seen::Ce,
            _ if marked => Seen::Marked,
            outer => outer,
        };
        let mut door = lane.tables.door(self.now, key, lane.echo_token, seen)?;
        let admitted = door.ends().and_then(|(source, dest)| {
            let opened = datagram.get_mut(..end).ok_or(DropReason::Malformed)?;
            let start = match form {
                Form::Between => shim::expand_in_place(opened, at.start, source, dest),
                Form::Whole => Ok(at.start),
            };
            let start = start.map_err(|_| DropReason::Malformed)?;
            let packet = opened.get_mut(start..).ok_or(DropReason::Malformed)?;
            let admitted = door.admit(form, false, packet, &mut lane.out.counters)?;
            Ok(admitted.map(|checksum| (start, checksum)))
        });
        let tally = door.close();
        if let Some(session) = lane.tables.sessions.get_mut(key) {
            match tally.is_empty() {
                true => session.received_message(self.now),
                false => tally.account(self.now, session),
            }
        }
        lane.sender(self.now, self.train).settle(key, tally);
        Ok(admitted?.map_or(Inbound::Done, |(start, checksum)| Inbound::Packet(start..end, checksum)))
    }

    /// Reports what a frame proves about its keys.
    #[cold]
    fn session_proof(&mut self, key: SessionKey, id: EpochId, proof: Proof) {
        let Some(peer) = self.lane.tables.sessions.get(key).map(|session| session.peer) else {
            return;
        };
        match proof {
            Proof::None => {}
            Proof::Confirmed => self.lane.out.report_session(peer, SessionReport::Confirmed { id }),
            Proof::Promoted => {
                self.lane.tables.changed();
                self.lane.out.report_session(peer, SessionReport::Proven { id });
                self.lane.sender(self.now, self.train).flush_queue(key);
            }
        }
    }

    /// Handles a frame that no epoch opens: its keys may still be on their way from the core, or
    /// this node may have lost them.
    fn no_keys(&mut self, frame: SessionFrame, datagram: &[u8]) -> Result<(), DropReason> {
        let (now, link, src) = (self.now, frame.link, frame.src);
        let session = self.lane.tables.sessions.find(&src);
        let expecting = session.and_then(|session| session.expecting);
        let expecting = expecting.filter(|expecting| expecting.is_open(now));
        let keeps = session.is_some_and(|session| session.expects_keys(now));
        if keeps {
            self.keep_early(frame, datagram);
        }
        // Handshake messages that lead to no keys must not hide that this node has lost its keys.
        if expecting.is_some_and(|expecting| !expecting.in_vain(now)) {
            return Ok(());
        }
        let known = self.lane.tables.links.find_mut(&link).ok_or(DropReason::NoKeys)?;
        if known.last_unknown == 0 || now.saturating_sub(known.last_unknown) >= UNKNOWN_SESSION_INTERVAL {
            known.last_unknown = now.max(1);
            self.lane.out.report_link(link, LinkReport::UnknownSession { src });
        }
        let waits = keeps && expecting.is_none();
        if waits { Ok(()) } else { Err(DropReason::SessionTag) }
    }
}
