//! Forwarding of relayed fast frames from one link to the next, and delivery of those whose last
//! hop is this node.
//!
//! A hop opens and seals the part of a frame that it reads, a label and a TTL, and leaves the rest
//! as it is. A frame has the same length on every hop, so it is sealed in place, and the frames
//! that one receive brought under one label leave in one train, uncopied. docs/protocol/fast.md,
//! "Relayed".

use std::ops::Range;

use weft_contract::{Endpoint, EpochId, Label, LabelRoute, LinkReport, relayed_payload};
use weft_wire::fast::{self, FLAG_CE, FLAG_WHOLE, INNER_AT, Kind, LABEL_AT, MAX_HOPS, RelayHeader};

use super::FastEpoch;
use super::ingress::{SessionIngress, Source, Via, asks, frame_content};
use super::keys::Opened;
use super::message::phase_in;
use crate::checksum::Checksum;
use crate::counters::DropReason;
use crate::ecn::Seen;
use crate::fips::OpenFailure;
use crate::lane::Lane;
use crate::link::Link;
use crate::paths;
use crate::received::Received;
use crate::tables::{FastOwner, LinkKey, Tables};
use crate::train::{Train, Transmit};

/// The shortest interval between reports of failed labels for one link, in ms.
const FAILED_LABEL_INTERVAL: u64 = 200;

/// Consecutive opened frames that go to one next hop under one label.
#[derive(Clone, Copy)]
struct Run {
    bytes: usize,
    /// The label by which the previous hop knows the destination.
    label: u32,
    /// The link to the next hop.
    next: LinkKey,
    /// The label by which the next hop knows the destination.
    next_label: u32,
}

/// The cause that ends a run.
enum End {
    /// No further frame, or a frame under other keys.
    Left,
    /// A frame that is dropped.
    Dropped(DropReason),
    /// A frame that opened and is processed by itself.
    Odd(Odd),
}

/// Frames of a hop that were opened one after the other.
#[derive(Default)]
struct Batch {
    /// The length of those that belong to the run, in bytes.
    bytes: usize,
    /// The number of frames that opened, and their length in bytes.
    opened: u64,
    opened_bytes: usize,
    /// Whether one of them, under the keys in use, has the highest counter of all.
    newest: bool,
}

/// A frame that opened and does not belong to a run.
struct Odd {
    header: fast::Header,
    /// The length of the frame, in bytes.
    len: usize,
    /// The number of its keys.
    key: u32,
    opened: Opened,
    unproven: bool,
    /// The header of a relayed frame for this hop.
    relay: Option<RelayHeader>,
}

impl Odd {
    /// Returns the label of a frame that needs nothing but to be forwarded.
    #[inline]
    fn forwarded(&self) -> Option<u32> {
        let simple = !self.unproven && !self.opened.new_phase && self.header.flags & FLAG_WHOLE == 0;
        let relay = self.relay.filter(|relay| simple && relay.ttl > 1);
        relay.map(|relay| relay.label)
    }
}

/// The frames over one hop in one receive, and what their processing needs.
pub(crate) struct HopIngress<'a, T> {
    pub(crate) lane: &'a mut Lane,
    /// The present time, in ms.
    pub(crate) now: u64,
    /// The source address of the datagrams.
    pub(crate) from: Endpoint,
    /// The link of the hop.
    pub(crate) key: LinkKey,
    pub(crate) train: &'a mut Train<T>,
}

impl<T: Transmit> HopIngress<'_, T> {
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
        let whole = self.lane.tables.whole;
        loop {
            let (run, end) = self.open_run(index, received);
            if let Some(run) = run {
                self.forward(run, whole, received);
                received.skip_bytes(run.bytes);
            }
            match end {
                End::Left => return,
                End::Dropped(reason) => self.lane.out.count(reason),
                End::Odd(odd) => {
                    let done = self.odd(&odd, received, deliver);
                    self.lane.out.counters.note(done);
                }
            }
            received.skip();
        }
    }

    /// Opens frames until one does not belong to the run, and returns the cause.
    fn open_run(&mut self, index: u32, received: &mut Received<'_>) -> (Option<Run>, End) {
        let (frames, step) = received.rest();
        let mut run: Option<Run> = None;
        loop {
            let (at, label) = run.map_or((0, None), |run| (run.bytes, Some(run.label)));
            let Some(link) = self.lane.tables.links.get_mut(self.key) else {
                return (run, End::Dropped(DropReason::FastUnknown));
            };
            let rest = frames.get_mut(at..).unwrap_or_default();
            let (batch, end) = link.open_frames(self.now, index, label, rest, step);
            run = run.map(|run| Run {
                bytes: at + batch.bytes,
                ..run
            });
            self.account(&batch);
            let End::Odd(odd) = end else { return (run, end) };
            let first = odd.forwarded().filter(|_| run.is_none());
            let tables = &self.lane.tables;
            match first.and_then(|label| tables.next_run(self.key, label, step)) {
                Some(next) => {
                    let bytes = odd.len;
                    run = Some(Run { bytes, ..next });
                }
                None => return (run, End::Odd(odd)),
            }
        }
    }

    /// Accounts for opened frames.
    fn account(&mut self, batch: &Batch) {
        let Some(link) = self.lane.tables.links.get_mut(self.key) else {
            return;
        };
        if batch.opened == 0 {
            return;
        }
        link.received(self.now, batch.opened, batch.opened_bytes);
        link.received_payload(batch.opened);
        // Frames from a new address count as those of the link.
        if batch.newest
            && let Some(room) = link.paths.came_from(self.now, self.from, batch.opened_bytes)
        {
            self.lane.out.report(paths::moved(link.id, self.from, room));
        }
    }

    /// Seals the first frames of `received` for their next hop, and sends them. `whole`: seals all
    /// of each frame anew, and not only the part that the hop reads.
    fn forward(&mut self, run: Run, whole: bool, received: &mut Received<'_>) {
        let (frames, step) = received.rest();
        let frames = frames.get_mut(..run.bytes).unwrap_or_default();
        let came_marked = self.lane.outer == Seen::Ce;
        let Some(link) = self.lane.tables.links.get_mut(run.next) else {
            return;
        };
        let (mut sealed, mut marked) = (0, 0);
        for frame in frames.chunks_mut(step) {
            let Some(ce) = link.seal_on(run.next_label, came_marked, whole, frame) else {
                break;
            };
            marked += u64::from(ce);
            sealed += frame.len();
        }
        let count = sealed.div_ceil(step);
        let counters = &mut self.lane.out.counters;
        link.sent(self.now, count as u64, sealed, true);
        counters.relayed += count as u64;
        counters.ce_forwarded += marked;
        let frames_sealed = frames.get(..sealed).unwrap_or_default();
        link.paths.send_from(self.train, counters, frames_sealed, step);
        if link.hop_is_spent() {
            self.lane.tables.changed();
        }
        if sealed < frames.len() {
            let failed = (frames.len() - sealed).div_ceil(step);
            self.lane.out.count_many(DropReason::RelayFailed, failed as u64);
            self.label_failed(run.label);
        }
    }

    /// Processes the first frame of `received`, which has opened: what it proves about its keys,
    /// and its content.
    fn odd(
        &mut self,
        odd: &Odd,
        received: &mut Received<'_>,
        deliver: &mut impl FnMut(&[u8], Range<usize>, Checksum),
    ) -> Result<(), DropReason> {
        let content = frame_content(received.head_in_room().1);
        let tables = &mut self.lane.tables;
        let link = tables.links.get_mut(self.key).ok_or(DropReason::NoKeys)?;
        let (id, key) = (link.id, EpochId(odd.key));
        if odd.unproven && !asks(odd.header.kind, content) {
            link.hop.prove(odd.key, true);
            tables.changed();
            self.lane.out.report_link(id, LinkReport::HopProven { id: key });
        }
        if odd.opened.new_phase {
            let mut sender = self.lane.sender(self.now, self.train);
            sender.announce_hop_phase(self.key, Some(odd.key));
        }
        if odd.header.kind == Kind::Message {
            return self.message(odd.key, content);
        }
        let relay = odd.relay.ok_or(DropReason::Malformed)?;
        let link = self.lane.tables.links.get(self.key).ok_or(DropReason::NoKeys)?;
        match link.labels.get(&relay.label).copied() {
            None => {
                self.label_failed(relay.label);
                Err(DropReason::LabelUnknown)
            }
            Some(LabelRoute::On { .. }) if relay.ttl <= 1 => Err(DropReason::RelayTtl),
            Some(LabelRoute::On { .. }) => {
                let bytes = received.head().map_or(0, |head| head.len());
                let Some(run) = self.lane.tables.next_run(self.key, relay.label, bytes) else {
                    self.label_failed(relay.label);
                    return Err(DropReason::RelayFailed);
                };
                // A node that seals whole frames at each hop does so with every frame. A frame that
                // arrived so goes on so.
                let whole = self.lane.tables.whole || odd.header.flags & FLAG_WHOLE != 0;
                self.forward(Run { bytes, ..run }, whole, received);
                Ok(())
            }
            Some(LabelRoute::Here) => {
                let marked = relay.marks & FLAG_CE != 0 || self.lane.outer == Seen::Ce;
                self.arrived(Via { link: id, marked }, received, deliver)
            }
        }
    }

    /// Processes the message in a frame that opened under the keys `id` of the hop.
    fn message(&mut self, id: u32, content: &[u8]) -> Result<(), DropReason> {
        let (&msg_type, body) = content.split_first().ok_or(DropReason::Malformed)?;
        match msg_type {
            fast::CONFIRM if body == [fast::CONFIRM_ASKS] => {
                let mut sender = self.lane.sender(self.now, self.train);
                sender.hop_message(self.key, Some(id), fast::CONFIRM, &[fast::CONFIRM_ANSWERS]);
            }
            fast::PHASE => {
                let phase = phase_in(body)?;
                let link = self.lane.tables.links.get_mut(self.key);
                let keys = link.and_then(|link| link.hop.get_mut(id));
                keys.ok_or(DropReason::NoKeys)?.acknowledge(phase);
                self.lane.tables.changed();
            }
            _ => {}
        }
        Ok(())
    }

    /// Processes the session's frame inside the first frame of `received`, whose last hop is this
    /// node.
    fn arrived(
        &mut self,
        via: Via,
        received: &mut Received<'_>,
        deliver: &mut impl FnMut(&[u8], Range<usize>, Checksum),
    ) -> Result<(), DropReason> {
        let (outer, room) = received.head_in_room();
        let inner = room.get_mut(INNER_AT..).ok_or(DropReason::Malformed)?;
        let mut inner = Received::new(inner, usize::from(u16::MAX));
        let index = inner.head().and_then(|head| fast::index_of(head));
        let index = index.ok_or(DropReason::Malformed)?;
        let Some(&FastOwner::Session(key)) = self.lane.tables.fast_indices.get(&index) else {
            return Err(DropReason::FastUnknown);
        };
        let source = Source {
            from: self.from,
            via: Some(via),
        };
        let mut session = SessionIngress {
            lane: self.lane,
            now: self.now,
            source,
            key,
            train: self.train,
        };
        let at = outer + INNER_AT;
        session.frames(&mut inner, &mut |packet, range, checksum| {
            deliver(packet, at + range.start..at + range.end, checksum);
        });
        Ok(())
    }

    fn label_failed(&mut self, label: u32) {
        let Some(link) = self.lane.tables.links.get_mut(self.key) else {
            return;
        };
        if link.last_failed_label == 0 || self.now.saturating_sub(link.last_failed_label) >= FAILED_LABEL_INTERVAL {
            link.last_failed_label = self.now.max(1);
            let id = link.id;
            self.lane
                .out
                .report_link(id, LinkReport::LabelFailed { label: Label(label) });
        }
    }
}

impl Tables {
    /// Returns an empty run to the next hop of this label of a neighbour, if frames of `len` bytes
    /// can be forwarded there.
    fn next_run(&self, key: LinkKey, label: u32, len: usize) -> Option<Run> {
        let LabelRoute::On {
            link: next,
            label: Label(next_label),
        } = *self.links.get(key)?.labels.get(&label)?
        else {
            return None;
        };
        let next = self.links.key(&next)?;
        let ready = self.links.get(next)?.hop.current().is_some();
        let run = Run {
            bytes: 0,
            label,
            next,
            next_label,
        };
        (ready && len <= usize::from(relayed_payload(self.config.probe, self.config.mtu))).then_some(run)
    }
}

impl Link {
    /// Opens frames with this receiver index while they are to be forwarded under `label`, and
    /// returns what ends that.
    fn open_frames(
        &mut self,
        now: u64,
        index: u32,
        label: Option<u32>,
        frames: &mut [u8],
        step: usize,
    ) -> (Batch, End) {
        let mut batch = Batch::default();
        let current = self.hop.current_id();
        let Some(keys) = self.hop.by_index_mut(index) else {
            return (batch, End::Dropped(DropReason::FastUnknown));
        };
        let (key, unproven) = (keys.id, !keys.proven);
        while let Some(rest) = frames.get_mut(batch.bytes..) {
            let len = rest.len().min(step);
            let frame = rest.get_mut(..len).unwrap_or_default();
            let header = match fast::Header::parse(frame) {
                Ok(header) if header.receiver_index == index => header,
                _ if fast::index_of(frame) != Some(index) => break,
                _ => return (batch, End::Dropped(DropReason::Malformed)),
            };
            let opened = match keys.open_of_hop(now, &header, frame) {
                Ok(opened) => opened,
                Err(reason) => return (batch, End::Dropped(reason)),
            };
            batch.opened += 1;
            batch.opened_bytes += len;
            batch.newest |= opened.newest && current == Some(key);
            let relay = frame.get(LABEL_AT..).filter(|_| header.kind == Kind::Relayed);
            let odd = Odd {
                header,
                len,
                key,
                opened,
                unproven,
                relay: relay.and_then(|relay| RelayHeader::parse(relay).ok()),
            };
            if label.is_none() || odd.forwarded() != label {
                return (batch, End::Odd(odd));
            }
            batch.bytes += len;
        }
        (batch, End::Left)
    }

    /// Seals an opened frame for the next hop, and returns whether it is marked as having
    /// experienced congestion. Returns `None` if the keys of the hop are spent.
    fn seal_on(&mut self, label: u32, came_marked: bool, whole: bool, frame: &mut [u8]) -> Option<bool> {
        let place = frame.get_mut(LABEL_AT..)?.first_chunk_mut()?;
        let came = RelayHeader::parse(place).ok()?;
        // A mark stays on all further hops.
        let ce = came.marks & FLAG_CE | if self.congested || came_marked { FLAG_CE } else { 0 };
        let on = RelayHeader {
            label,
            ttl: came.ttl.min(MAX_HOPS).saturating_sub(1),
            marks: ce,
        };
        *place = on.to_bytes();
        self.hop.current_mut()?.seal_hop(frame, whole)?;
        Some(ce != 0)
    }
}

impl FastEpoch {
    /// Opens in place what this hop reads of a frame.
    #[inline]
    fn open_of_hop(&mut self, now: u64, header: &fast::Header, frame: &mut [u8]) -> Result<Opened, DropReason> {
        let opened = match header.kind {
            Kind::Relayed => self.open_hop(now, header, frame),
            Kind::Message => {
                let parts = frame.split_at_mut_checked(fast::Header::LEN);
                let (aad, sealed) = parts.ok_or(DropReason::Malformed)?;
                self.open(now, header, aad, sealed)
            }
            // The two ends of a hop exchange messages only.
            Kind::Ipv6 | Kind::Full | Kind::Fragment => return Err(DropReason::Malformed),
        };
        opened.map_err(OpenFailure::of_fast)
    }
}
