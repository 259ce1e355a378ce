//! Carrying on: the frames of one receive that go to one next hop, sealed for it where they lie and sent from there.
//!
//! A relayed frame is as long for the next hop as it was for this one, so what came in one receive leaves in one train,
//! uncopied. Whatever is not so simple is left to [`Lane::inbound`], or if its hop has opened, to
//! [`Lane::relayed_frame`].

use std::net::SocketAddr;
use std::ops::Range;

use weft_wire::fast::{self, FLAG_CE, FLAG_WHOLE, HEADROOM, Kind, LABEL_AT, MAX_HOPS, RelayHeader};

use super::FastIndex;
use crate::control::{Carry, LinkId};
use crate::ecn::Seen;
use crate::inbound::Inbound;
use crate::lane::{Lane, Link};
use crate::train::{Train, Transmit};

/// Frames behind each other in a receive that go to one next hop.
struct Run {
    /// Where the first begins, and where the last ends, behind the headroom.
    frames: Range<usize>,
    /// What the neighbour they came from calls where they go.
    label: u32,
    /// Where they go, and as what.
    to: (LinkId, u32),
}

/// What came behind a run.
enum End {
    /// Nothing of the kind, or nothing at all: the rest is not looked at.
    Left,
    /// A frame that did not open. It is dropped.
    Failed,
    /// A frame that opened, and has to be looked at alone.
    Odd { flags: u8 },
}

impl Lane {
    /// Takes relayed frames from `at` on, `step` bytes each but the last, as long as they are under the keys of one hop.
    /// Frames start behind the first [`HEADROOM`] bytes of `room`, where `at` counts from. Returns where the first frame
    /// starts that is left, for [`Lane::inbound`] to take; packets for us go to `deliver`, with where they lie in `room`.
    pub(crate) fn carry_run<T: Transmit>(
        &mut self,
        now: u64,
        from: SocketAddr,
        room: &mut [u8],
        (mut at, step): (usize, usize),
        train: &mut Train<T>,
        mut deliver: impl FnMut(Range<usize>, Inbound, &mut [u8]),
    ) -> usize {
        let total = room.len().saturating_sub(HEADROOM);
        let Some(id) = self.hop_of(room.get(HEADROOM + at..)) else {
            return at;
        };
        while at < total {
            let frames = room.get_mut(HEADROOM..).unwrap_or_default();
            let (run, end) = self.open_run(now, from, id, frames, (at, step));
            if let Some(run) = run {
                at = run.frames.end;
                self.seal_run(now, id, &run, frames, step, train);
            }
            let next = (at + step).min(total);
            match end {
                End::Left => break,
                End::Failed => {}
                End::Odd { flags } => {
                    let lone = room.get_mut(at..HEADROOM + next).unwrap_or_default();
                    if let Some(inbound) = self.relayed_frame(now, from, (id, flags), lone, train) {
                        deliver(at..next, inbound, lone);
                    }
                }
            }
            at = next;
        }
        at
    }

    /// The link whose hop the first of these frames is of.
    fn hop_of(&self, frames: Option<&[u8]>) -> Option<LinkId> {
        match self.fast_indices.get(&fast::index_of(frames?)?) {
            Some(&FastIndex::Hop(id)) => Some(id),
            _ => None,
        }
    }

    /// Opens frames from `at` on for the hop until one is not of the run, and tells what that is.
    fn open_run(
        &mut self,
        now: u64,
        from: SocketAddr,
        id: LinkId,
        frames: &mut [u8],
        (mut at, step): (usize, usize),
    ) -> (Option<Run>, End) {
        let mut run: Option<Run> = None;
        let mut takes = None;
        while let Some(frame) = frames.get_mut(at..).filter(|rest| !rest.is_empty()) {
            let len = frame.len().min(step);
            let Some(frame) = frame.get_mut(..len) else { break };
            let Some(link) = self.links.get_mut(&id).filter(|link| link.paths.is_settled(from)) else {
                break;
            };
            let Ok(header) = fast::Header::parse(frame) else { break };
            let current = link.hop.current_mut();
            let Some(keys) = current.filter(|keys| keys.our_index == header.receiver_index && keys.proven) else {
                break;
            };
            if header.kind != Kind::Relayed || !keys.is_in_phase(&header) {
                break;
            }
            self.counters.udp_rx += 1;
            if let Err(failure) = keys.open_hop(now, &header, frame) {
                self.counters.fast_open_failed(failure);
                return (run, End::Failed);
            }
            link.totals.received(now, 1, len);
            link.totals.rx_payload += 1;
            let odd = End::Odd { flags: header.flags };
            let Some(told) = frame.get(LABEL_AT..).and_then(|told| RelayHeader::parse(told).ok()) else {
                return (run, odd);
            };
            let carry = match takes {
                None => link.labels.get(&told.label).copied(),
                Some(_) => None,
            };
            let (label, to) = match (takes, carry) {
                (Some(takes), _) => takes,
                (None, Some(Carry::On { link, label })) if self.may_carry(link, step) => (told.label, (link, label)),
                _ => return (run, odd),
            };
            takes = Some((label, to));
            if told.label != label || told.ttl <= 1 || header.flags & FLAG_WHOLE != 0 {
                return (run, odd);
            }
            let frames = run.map_or(at, |run| run.frames.start)..at + len;
            run = Some(Run { frames, label, to });
            at += len;
        }
        (run, End::Left)
    }

    /// Whether frames of this length can go over this link with no more than their header sealed.
    fn may_carry(&self, next: LinkId, len: usize) -> bool {
        let ready = self.links.get(&next).is_some_and(|next| next.hop.current().is_some());
        ready && !self.whole && len <= usize::from(self.config.mtu)
    }

    /// Seals a run for its next hop, and sends it.
    fn seal_run<T: Transmit>(
        &mut self,
        now: u64,
        came: LinkId,
        run: &Run,
        frames: &mut [u8],
        step: usize,
        train: &mut Train<T>,
    ) {
        let Some(frames) = frames.get_mut(run.frames.clone()) else {
            return;
        };
        let (next, label) = run.to;
        let Some(link) = self.links.get_mut(&next) else { return };
        let (mut sealed, mut marked, came_marked) = (0, 0, self.outer == Seen::Ce);
        for frame in frames.chunks_mut(step) {
            let Some(ce) = link.seal_on(label, came_marked, frame) else {
                break;
            };
            marked += u64::from(ce);
            sealed += frame.len();
        }
        let count = sealed.div_ceil(step);
        link.totals.sent_many(now, count as u64, sealed);
        link.totals.last_payload_tx = now;
        self.counters.relayed += count as u64;
        self.counters.ce_forwarded += marked;
        let frames_sealed = frames.get(..sealed).unwrap_or_default();
        link.paths.send_from(train, &mut self.counters, frames_sealed, step);
        if sealed < frames.len() {
            let failed = (frames.len() - sealed).div_ceil(step);
            self.counters.relay_failed += failed as u64;
            self.label_failed(now, came, run.label);
        }
    }
}

impl Link {
    /// Seals an opened frame for the next hop; tells whether it says that it has experienced congestion. `None` if the keys
    /// of the hop are spent.
    fn seal_on(&mut self, label: u32, came_marked: bool, frame: &mut [u8]) -> Option<bool> {
        let place = frame.get_mut(LABEL_AT..)?.first_chunk_mut()?;
        let came = RelayHeader::parse(place).ok()?;
        let ce = came.marks & FLAG_CE | if self.congested || came_marked { FLAG_CE } else { 0 };
        let on = RelayHeader {
            label,
            ttl: came.ttl.min(MAX_HOPS) - 1,
            marks: ce,
        };
        *place = on.to_bytes();
        self.hop.current_mut()?.seal_hop(frame, false)?;
        Some(ce != 0)
    }
}
