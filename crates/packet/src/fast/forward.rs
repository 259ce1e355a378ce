//! Forwarding of relayed fast frames from one link to the next, and delivery of those whose last
//! hop is this node.
//!
//! A hop opens and seals the part of a frame that it reads, a label and a TTL, and leaves the rest
//! as it is. A frame has the same length on every hop, so it is sealed in place, and the frames
//! that one receive brought under one label leave in one train, uncopied. docs/protocol/fast.md,
//! "Relayed".

use std::net::SocketAddr;
use std::ops::Range;

use weft_wire::fast::{self, FLAG_CE, FLAG_WHOLE, INNER_AT, Kind, LABEL_AT, MAX_HOPS, RelayHeader};

use super::FastIndex;
use super::ingress::{Source, Via, asks, frame_content};
use super::keys::Opened;
use crate::checksum::Checksum;
use crate::control::{Carry, EpochId, LinkId, LinkReport, Report};
use crate::counters::DropReason;
use crate::ecn::Seen;
use crate::epoch::OpenFailure;
use crate::lane::Lane;
use crate::link::Link;
use crate::paths;
use crate::received::Received;
use crate::train::{Train, Transmit};

/// The shortest interval between reports of failed labels for one link, in ms.
const FAILED_LABEL_INTERVAL: u64 = 200;

/// Consecutive opened frames that go to one next hop under one label.
#[derive(Clone, Copy)]
struct Run {
    bytes: usize,
    /// The label by which the previous hop knows the destination.
    label: u32,
    /// The link to the next hop, and the label there.
    to: (LinkId, u32),
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

/// A frame that opened and does not belong to a run.
struct Odd {
    header: fast::Header,
    /// The number of its keys.
    key: u32,
    opened: Opened,
    unproven: bool,
    /// The header of a relayed frame for this hop.
    told: Option<RelayHeader>,
}

impl Lane {
    /// Processes the frames under the keys of a hop at the front of `received`: all those with the
    /// receiver index of the first. Calls `deliver` for each IP packet for the TUN, with its range
    /// in the room.
    pub(crate) fn hop_frames<T: Transmit>(
        &mut self,
        now: u64,
        from: SocketAddr,
        id: LinkId,
        received: &mut Received<'_>,
        train: &mut Train<T>,
        deliver: &mut impl FnMut(&[u8], Range<usize>, Checksum),
    ) {
        let Some(index) = received.head().and_then(|head| fast::index_of(head)) else {
            return;
        };
        loop {
            let (run, end) = self.open_relayed(now, from, (id, index), received);
            if let Some(run) = run {
                self.forward(now, id, run, self.whole, received, train);
                received.skip_bytes(run.bytes);
            }
            match end {
                End::Left => return,
                End::Dropped(reason) => self.counters.drops.count(reason),
                End::Odd(odd) => {
                    let done = self.odd_relayed(now, from, (id, &odd), received, train, deliver);
                    self.counters.note(done);
                }
            }
            received.skip();
        }
    }

    /// Opens frames for the hop until one does not belong to the run, and returns the cause.
    fn open_relayed(
        &mut self,
        now: u64,
        from: SocketAddr,
        (id, index): (LinkId, u32),
        received: &mut Received<'_>,
    ) -> (Option<Run>, End) {
        let (frames, step) = received.rest();
        let mut run: Option<Run> = None;
        let mut at = 0;
        while let Some(rest) = frames.get_mut(at..) {
            let len = rest.len().min(step);
            let frame = rest.get_mut(..len).unwrap_or_default();
            let header = match fast::Header::parse(frame) {
                Ok(header) if header.receiver_index == index => header,
                _ if fast::index_of(frame) != Some(index) => break,
                _ => return (run, End::Dropped(DropReason::Malformed)),
            };
            let odd = match self.open_for_hop(now, from, id, header, frame) {
                Ok(odd) => odd,
                Err(reason) => return (run, End::Dropped(reason)),
            };
            let simple = !odd.unproven && !odd.opened.new_phase && odd.header.flags & FLAG_WHOLE == 0;
            let told = odd.told.filter(|told| simple && told.ttl > 1);
            let next = told.and_then(|told| match run {
                Some(run) => (run.label == told.label).then_some(run),
                None => self.next_run(id, told.label, step),
            });
            let Some(next) = next else {
                return (run, End::Odd(odd));
            };
            at += len;
            run = Some(Run { bytes: at, ..next });
        }
        (run, End::Left)
    }

    /// Opens a frame for the hop, and accounts for it.
    #[inline]
    fn open_for_hop(
        &mut self,
        now: u64,
        from: SocketAddr,
        id: LinkId,
        header: fast::Header,
        frame: &mut [u8],
    ) -> Result<Odd, DropReason> {
        let link = self.links.get_mut(&id).ok_or(DropReason::FastUnknown)?;
        let current = link.hop.current_id();
        let keys = link
            .hop
            .by_index_mut(header.receiver_index)
            .ok_or(DropReason::FastUnknown)?;
        let opened = match header.kind {
            Kind::Relayed => keys.open_hop(now, &header, frame).map_err(OpenFailure::of_fast)?,
            Kind::Message => {
                let parts = frame.split_at_mut_checked(fast::Header::LEN);
                let (aad, sealed) = parts.ok_or(DropReason::Malformed)?;
                keys.open(now, &header, aad, sealed).map_err(OpenFailure::of_fast)?
            }
            // The two ends of a hop exchange messages only.
            Kind::Ipv6 | Kind::Full | Kind::Fragment => return Err(DropReason::Malformed),
        };
        let (key, unproven) = (keys.id, !keys.proven);
        link.received(now, 1, frame.len());
        link.received_payload(1);
        // A frame from a new address counts as one of the link.
        if opened.newest
            && current == Some(key)
            && let Some(room) = link.paths.came_from(now, from, frame.len())
        {
            self.report(paths::moved(id, from, room));
        }
        let told = frame.get(LABEL_AT..).filter(|_| header.kind == Kind::Relayed);
        Ok(Odd {
            header,
            key,
            opened,
            unproven,
            told: told.and_then(|told| RelayHeader::parse(told).ok()),
        })
    }

    /// Returns an empty run to the next hop of this label of the neighbour, if frames of `len`
    /// bytes can be forwarded there.
    fn next_run(&self, id: LinkId, label: u32, len: usize) -> Option<Run> {
        match *self.links.get(&id)?.labels.get(&label)? {
            Carry::On { link, label: on } if self.may_forward(link, len) => Some(Run {
                bytes: 0,
                label,
                to: (link, on),
            }),
            _ => None,
        }
    }

    /// Returns whether frames of this length, in bytes, can go over this link.
    fn may_forward(&self, next: LinkId, len: usize) -> bool {
        let ready = self.links.get(&next).is_some_and(|next| next.hop.current().is_some());
        ready && len <= usize::from(self.config.mtu)
    }

    /// Seals the first frames of `received` for their next hop, and sends them. `whole`: seals all
    /// of each frame anew, and not only the part that the hop reads.
    fn forward<T: Transmit>(
        &mut self,
        now: u64,
        came: LinkId,
        run: Run,
        whole: bool,
        received: &mut Received<'_>,
        train: &mut Train<T>,
    ) {
        let (frames, step) = received.rest();
        let frames = frames.get_mut(..run.bytes).unwrap_or_default();
        let (next, label) = run.to;
        let Some(link) = self.links.get_mut(&next) else { return };
        let (mut sealed, mut marked, came_marked) = (0, 0, self.outer == Seen::Ce);
        for frame in frames.chunks_mut(step) {
            let Some(ce) = link.seal_on(label, came_marked, whole, frame) else {
                break;
            };
            marked += u64::from(ce);
            sealed += frame.len();
        }
        let count = sealed.div_ceil(step);
        link.sent(now, count as u64, sealed, true);
        self.counters.relayed += count as u64;
        self.counters.ce_forwarded += marked;
        let frames_sealed = frames.get(..sealed).unwrap_or_default();
        link.paths.send_from(train, &mut self.counters, frames_sealed, step);
        let spent = link.hop_is_spent();
        self.note_spent(spent);
        if sealed < frames.len() {
            let failed = (frames.len() - sealed).div_ceil(step);
            self.counters.drops.count_many(DropReason::RelayFailed, failed as u64);
            self.label_failed(now, came, run.label);
        }
    }

    /// Processes the first frame of `received`, which has opened: what it proves about its keys,
    /// and its content.
    fn odd_relayed<T: Transmit>(
        &mut self,
        now: u64,
        from: SocketAddr,
        (id, odd): (LinkId, &Odd),
        received: &mut Received<'_>,
        train: &mut Train<T>,
        deliver: &mut impl FnMut(&[u8], Range<usize>, Checksum),
    ) -> Result<(), DropReason> {
        let content = frame_content(received.head_in_room().1);
        if odd.unproven && !asks(odd.header.kind, content) {
            self.links
                .get_mut(&id)
                .ok_or(DropReason::NoKeys)?
                .hop
                .prove(odd.key, true);
            self.tables_changed();
            let key = EpochId(odd.key);
            self.report(Report::Link(id, LinkReport::HopProven { id: key }));
        }
        if odd.opened.new_phase {
            self.tell_hop_phase(now, id, Some(odd.key), train);
        }
        if odd.header.kind == Kind::Message {
            return self.hop_message(now, id, odd.key, content, train);
        }
        let told = odd.told.ok_or(DropReason::Malformed)?;
        let link = self.links.get(&id).ok_or(DropReason::NoKeys)?;
        match link.labels.get(&told.label).copied() {
            None => {
                self.label_failed(now, id, told.label);
                Err(DropReason::LabelUnknown)
            }
            Some(Carry::On { .. }) if told.ttl <= 1 => Err(DropReason::RelayTtl),
            Some(Carry::On { .. }) => {
                let bytes = received.head().map_or(0, |head| head.len());
                let Some(run) = self.next_run(id, told.label, bytes) else {
                    self.label_failed(now, id, told.label);
                    return Err(DropReason::RelayFailed);
                };
                // A node that seals whole frames at each hop does so with every frame. A frame that
                // arrived so goes on so.
                let whole = self.whole || odd.header.flags & FLAG_WHOLE != 0;
                self.forward(now, id, Run { bytes, ..run }, whole, received, train);
                Ok(())
            }
            Some(Carry::Here) => {
                let marked = told.marks & FLAG_CE != 0 || self.outer == Seen::Ce;
                let via = Some(Via { link: id, marked });
                self.relayed_here(now, Source { from, via }, received, train, deliver)
            }
        }
    }

    /// Processes the session's frame inside the first frame of `received`, whose last hop is this
    /// node.
    fn relayed_here<T: Transmit>(
        &mut self,
        now: u64,
        source: Source,
        received: &mut Received<'_>,
        train: &mut Train<T>,
        deliver: &mut impl FnMut(&[u8], Range<usize>, Checksum),
    ) -> Result<(), DropReason> {
        let (outer, room) = received.head_in_room();
        let inner = room.get_mut(INNER_AT..).ok_or(DropReason::Malformed)?;
        let mut inner = Received::new(inner, usize::from(u16::MAX));
        let index = inner.head().and_then(|head| fast::index_of(head));
        let index = index.ok_or(DropReason::Malformed)?;
        let Some(&FastIndex::Session(peer)) = self.fast_indices.get(&index) else {
            return Err(DropReason::FastUnknown);
        };
        let at = outer + INNER_AT;
        self.session_frames(now, source, peer, &mut inner, train, &mut |packet, range, checksum| {
            deliver(packet, at + range.start..at + range.end, checksum);
        });
        Ok(())
    }

    fn label_failed(&mut self, now: u64, id: LinkId, label: u32) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.last_failed_label == 0 || now.saturating_sub(link.last_failed_label) >= FAILED_LABEL_INTERVAL {
            link.last_failed_label = now.max(1);
            self.report(Report::Link(id, LinkReport::LabelFailed { label }));
        }
    }
}

impl Link {
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
