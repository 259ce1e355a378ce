//! From the wire: fast frames of a session, to IP packets and messages.
//!
//! The frames of one receive under one set of keys are opened in one run, with the look-ups made
//! once. A frame that proves keys, begins a phase or is not a packet ends the run, because what it
//! requires needs the whole lane.

use std::ops::Range;

use weft_contract::{CountedEpoch, Endpoint, EpochId, Layer, LinkId, SessionReport};
use weft_noise::aead::TAG_LEN;
use weft_wire::fast::{self, FULL_AT, HEADROOM, Kind, UPPER_AT};

use super::keys::Opened;
use super::message::{LEAST_PROBE, phase_in};
use crate::admit::{Door, Form, Tally};
use crate::checksum::Checksum;
use crate::counters::{Counters, DropReason};
use crate::ecn::Seen;
use crate::kinds::{Duty, core_message};
use crate::lane::Lane;
use crate::meter::Arrival;
use crate::paths;
use crate::received::Received;
use crate::tables::{LinkKey, SessionKey};
use crate::train::{Train, Transmit};

/// The offset of the content, behind the clock, in a frame.
pub(super) const CONTENT_AT: usize = fast::Header::LEN + fast::TIMESTAMP_LEN;

/// The origin of frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    /// The source address of the datagram.
    pub(crate) from: Endpoint,
    /// The neighbour that relayed the frames, unless the session's peer sent the datagram itself.
    pub(crate) via: Option<Via>,
}

/// The neighbour that relayed a frame to this node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Via {
    /// The link with it.
    pub(crate) link: LinkId,
    /// Whether it marked the frame as having experienced congestion.
    pub(crate) marked: bool,
}

impl Source {
    /// Returns the congestion that the frames have met. `outer` is the mark in the IP header of the
    /// datagram.
    pub(super) fn seen(self, outer: Seen) -> Seen {
        self.via.map_or(outer, |via| Seen::marked(via.marked))
    }
}

/// The outcome of a run of frames.
#[derive(Default)]
struct Run {
    /// The number of frames that opened, and their bytes.
    frames: u64,
    bytes: usize,
    /// Whether one of the frames has the highest counter of all.
    newest: bool,
    /// What the packets in them call for.
    tally: Tally,
    /// The link that the session is bound to.
    link: Option<LinkKey>,
}

/// A frame that opened and ended a run.
struct Odd {
    header: fast::Header,
    /// The epoch of its keys.
    id: u32,
    opened: Opened,
    /// Whether its keys were not proven, or only for relayed frames while this one arrived
    /// directly.
    unproven: bool,
}

/// The frames of one session in one receive, and what their processing needs.
pub(crate) struct SessionIngress<'a, T> {
    pub(crate) lane: &'a mut Lane,
    /// The present time, in ms.
    pub(crate) now: u64,
    pub(crate) source: Source,
    pub(crate) key: SessionKey,
    pub(crate) train: &'a mut Train<T>,
}

impl<T: Transmit> SessionIngress<'_, T> {
    /// Processes the frames at the front of `received`: all those with the receiver index of the
    /// first. Calls `deliver` for each IP packet for the TUN, with its range in the room.
    pub(crate) fn frames(
        &mut self,
        received: &mut Received<'_>,
        deliver: &mut impl FnMut(&[u8], Range<usize>, Checksum),
    ) {
        let Some(index) = received.head().and_then(|head| fast::index_of(head)) else {
            return;
        };
        let mut opened = None;
        loop {
            let (run, odd) = self.open_run(index, received, opened, deliver);
            self.end_run(run);
            let Some(odd) = odd else { return };
            self.note_odd(&odd, frame_content(received.head_in_room().1));
            opened = Some(odd.header).filter(|header| matches!(header.kind, Kind::Ipv6 | Kind::Full));
            if opened.is_none() {
                let room = received.head_in_room().1;
                let done = match odd.header.kind {
                    Kind::Fragment => self.piece(odd.id, room),
                    _ => self.message(odd.id, frame_content(room)),
                };
                self.lane.out.counters.note(done);
                received.skip();
            }
        }
    }

    /// Opens frames until one is odd or has another index. `opened`: the header of the first frame,
    /// if it is already open and accounted for.
    #[inline]
    fn open_run(
        &mut self,
        index: u32,
        received: &mut Received<'_>,
        mut opened: Option<fast::Header>,
        deliver: &mut impl FnMut(&[u8], Range<usize>, Checksum),
    ) -> (Run, Option<Odd>) {
        let mut run = Run::default();
        let mut odd = None;
        let (now, lane) = (self.now, &mut *self.lane);
        let seen = self.source.seen(lane.outer);
        let egress = lane.tables.egress(self.key);
        let Some(session) = lane.tables.sessions.get_mut(self.key) else {
            received.skip();
            lane.out.count(DropReason::NoKeys);
            return (run, None);
        };
        let counters = &mut lane.out.counters;
        let checks = (&lane.tables.routes, &mut lane.tables.firewall);
        let mut door = Door::new(now, checks, (session, egress), lane.echo_token, seen);
        let current = session.fast.current_id();
        let Some(keys) = session.fast.by_index_mut(index) else {
            received.skip();
            counters.drops.count(DropReason::FastUnknown);
            return (run, None);
        };
        let current = current == Some(keys.id);
        let unproven = !keys.proven || !keys.direct && self.source.via.is_none();
        loop {
            let (at, room) = received.head_in_room();
            let header = match opened.take() {
                Some(header) => header,
                None => {
                    let frame = room.get_mut(HEADROOM..).unwrap_or_default();
                    let header = match fast::Header::parse(frame) {
                        Ok(header) if header.receiver_index == index && header.kind != Kind::Relayed => header,
                        _ if fast::index_of(frame) != Some(index) => break,
                        _ => {
                            counters.drops.count(DropReason::Malformed);
                            received.skip();
                            continue;
                        }
                    };
                    let Some((aad, sealed)) = frame.split_at_mut_checked(fast::Header::LEN) else {
                        break;
                    };
                    let opened = match keys.open(now, &header, aad, sealed) {
                        Ok(opened) => opened,
                        Err(failure) => {
                            counters.drops.count(failure.of_fast());
                            received.skip();
                            continue;
                        }
                    };
                    run.frames += 1;
                    run.bytes += frame.len();
                    // Late frames under old keys may come from an earlier address of the peer, and
                    // reports are not about them.
                    if current {
                        run.newest |= opened.newest;
                        let arrived = arrival(keys.counted(), &header, frame, seen);
                        session.meter.receive(now, arrived);
                    }
                    if unproven || opened.new_phase || !matches!(header.kind, Kind::Ipv6 | Kind::Full) {
                        let id = keys.id;
                        odd = Some(Odd {
                            header,
                            id,
                            opened,
                            unproven,
                        });
                        break;
                    }
                    header
                }
            };
            match to_door(&mut door, &header, room, counters) {
                Ok(Some((range, checksum))) => {
                    let packet = room.get(range.clone()).unwrap_or_default();
                    deliver(packet, at + range.start..at + range.end, checksum);
                }
                Ok(None) => {}
                Err(reason) => counters.drops.count(reason),
            }
            received.skip();
        }
        run.tally = door.close();
        run.tally.account(now, session);
        run.link = egress.link;
        (run, odd)
    }

    fn end_run(&mut self, run: Run) {
        let counters = &mut self.lane.out.counters;
        counters.fast_rx += run.frames;
        match self.source.via {
            Some(via) => {
                counters.relayed_rx += run.frames;
                if run.newest {
                    self.note_arrival(via.link);
                }
            }
            None if run.frames > 0 => self.heard(&run),
            None => {}
        }
        self.lane.sender(self.now, self.train).settle(self.key, run.tally);
    }

    /// Records what a frame proves about its keys.
    fn note_odd(&mut self, odd: &Odd, content: &[u8]) {
        let tables = &mut self.lane.tables;
        if odd.unproven
            && !asks(odd.header.kind, content)
            && let Some(session) = tables.sessions.get_mut(self.key)
        {
            let (id, direct) = (EpochId(odd.id), self.source.via.is_none());
            session.fast.prove(odd.id, direct);
            session.splits = true;
            let peer = session.peer;
            tables.changed();
            self.lane
                .out
                .report_session(peer, SessionReport::FastProven { id, direct });
            self.lane.sender(self.now, self.train).flush_queue(self.key);
        }
        if odd.opened.new_phase {
            self.lane
                .sender(self.now, self.train)
                .announce_phase(self.key, Some(odd.id));
        }
    }

    /// Accounts for the frames of a run that the peer itself sent.
    fn heard(&mut self, run: &Run) {
        let tables = &mut self.lane.tables;
        let Some(session) = tables.sessions.get(self.key) else {
            return;
        };
        let Some(key) = tables.direct_link(run.link, session.peer) else {
            return;
        };
        let Some(link) = tables.links.get_mut(key) else { return };
        link.received(self.now, run.frames, run.bytes);
        link.received_payload(run.frames);
        if run.newest {
            let id = link.id;
            if let Some(room) = link.paths.came_from(self.now, self.source.from, run.bytes) {
                self.lane.out.report(paths::moved(id, self.source.from, room));
            }
            self.note_arrival(id);
        }
    }

    /// Records that the newest frame of the session arrived over this link.
    fn note_arrival(&mut self, link: LinkId) {
        if let Some(session) = self.lane.tables.sessions.get_mut(self.key)
            && session.arrives_over(self.now, link)
        {
            self.lane
                .out
                .report_session(session.peer, SessionReport::Arrives { link });
        }
    }

    /// Processes the message in a frame that opened under the keys of epoch `id`.
    fn message(&mut self, id: u32, content: &[u8]) -> Result<(), DropReason> {
        let (&msg_type, body) = content.split_first().ok_or(DropReason::Malformed)?;
        let tables = &mut self.lane.tables;
        let session = tables.sessions.get_mut(self.key).ok_or(DropReason::NoKeys)?;
        session.received_message(self.now);
        let answer = match Duty::in_fast(msg_type) {
            Duty::Confirm if body == [fast::CONFIRM_ASKS] => (fast::CONFIRM, &[fast::CONFIRM_ANSWERS][..]),
            Duty::Confirm => return Ok(()),
            Duty::Probe => {
                let number = body.get(..LEAST_PROBE).ok_or(DropReason::Malformed)?;
                (fast::PROBE_ANSWER, number)
            }
            Duty::Phase => {
                let phase = phase_in(body)?;
                session.fast.get_mut(id).ok_or(DropReason::NoKeys)?.acknowledge(phase);
                tables.changed();
                // Sends the packets that waited for the acknowledgement, if no other keys could
                // seal them.
                self.lane.sender(self.now, self.train).flush_queue(self.key);
                return Ok(());
            }
            Duty::Data | Duty::NoService => return Err(DropReason::NoService),
            Duty::Measured => {
                let counted = session.fast.get_mut(id).ok_or(DropReason::NoKeys)?.counted();
                let on = Layer::Session(session.peer);
                let report = tables.measured(self.now, on, counted, body)?;
                self.lane.out.report(report);
                return Ok(());
            }
            Duty::WholePacket | Duty::RelayProbe | Duty::RelayProbeAnswer | Duty::Core => {
                let report = core_message(session.peer, EpochId(id), msg_type, body)?;
                self.lane.out.report(report);
                return Ok(());
            }
        };
        let mut sender = self.lane.sender(self.now, self.train);
        // The path back may have no label. A probe is about the path that it came by.
        if !sender.fast_message(self.key, Some(id), answer.0, answer.1) && answer.0 == fast::PROBE_ANSWER {
            sender.session_message(self.key, None, answer.0, answer.1);
        }
        Ok(())
    }
}

/// Brings the packet of an opened frame, behind the first [`HEADROOM`] bytes of `room`, to the door.
/// Returns its range in `room`, and the state of its checksum, if it goes to the TUN now.
#[inline]
fn to_door(
    door: &mut Door<'_>,
    header: &fast::Header,
    room: &mut [u8],
    counters: &mut Counters,
) -> Result<Option<(Range<usize>, Checksum)>, DropReason> {
    let (source, dest) = door.ends()?;
    let end = room.len().checked_sub(TAG_LEN).ok_or(DropReason::Malformed)?;
    let (form, start) = match header.kind {
        Kind::Full => (Form::Whole, HEADROOM + FULL_AT),
        _ => {
            let opened = room.get_mut(..end).ok_or(DropReason::Malformed)?;
            let start = fast::expand_in_place(opened, HEADROOM + UPPER_AT, source, dest);
            (Form::Between, start.map_err(|_| DropReason::Malformed)?)
        }
    };
    let packet = room.get_mut(start..end).ok_or(DropReason::Malformed)?;
    let partial = header.flags & fast::FLAG_PARTIAL != 0;
    let admitted = door.admit(form, partial, packet, counters)?;
    Ok(admitted.map(|checksum| (start..end, checksum)))
}

/// Returns what an opened frame shows about its path.
#[inline]
fn arrival(epoch: CountedEpoch, header: &fast::Header, frame: &[u8], seen: Seen) -> Arrival {
    let clock = frame.get(fast::Header::LEN..).and_then(<[u8]>::first_chunk);
    Arrival {
        epoch,
        counter: header.counter,
        timestamp: clock.map_or(0, |clock| u32::from_le_bytes(*clock)),
        bytes: frame.len(),
        ce: seen.is_ce(),
    }
}

/// Returns whether this asks for a confirm. A peer that asks may not have received any frame of
/// this node, so it proves nothing about their arrival.
pub(super) fn asks(kind: Kind, content: &[u8]) -> bool {
    kind == Kind::Message && content == [fast::CONFIRM, fast::CONFIRM_ASKS]
}

/// Returns the opened content of the frame behind the headroom, without the clock.
pub(super) fn frame_content(room: &[u8]) -> &[u8] {
    let content = HEADROOM + CONTENT_AT..room.len().saturating_sub(TAG_LEN);
    room.get(content).unwrap_or_default()
}
