//! One direction of an emulated cable: which frame leaves when.
//!
//! A super-frame meets what its segments would, one by one; those neighbours that come through it unharmed leave as one
//! again, at the moment of the last, so that the receiver has less to do. It is what a card does that gathers frames for
//! [`GATHER`] before it interrupts.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use serde::Serialize;
use weft_os::tun::VNET_HEADER_LEN;

use super::super_frame::{Segments, complete};
use super::too_big;
use crate::random::SplitMix64;

/// How long a segment may wait for its neighbours, ns. Where frames are held back none does, as it would change their
/// order.
pub const GATHER: u64 = 200_000;

/// What one direction of a cable does to frames. The default does nothing.
///
/// A frame, or a segment of a super-frame, meets, in this order: the largest packet, the queue in front of the rate, loss, duplication, delay with
/// jitter, reordering. Each is decided by the seed and the frames before, never by the clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Impairments {
    /// What every frame takes.
    pub delay: Duration,
    /// Up to so much more, each amount as likely. Frames do not overtake each other by it.
    pub jitter: Duration,
    /// The share of frames that are lost, from 0 to 1.
    pub loss: f64,
    /// The share of frames that arrive twice, from 0 to 1.
    pub duplicate: f64,
    /// The share of frames that are held back, from 0 to 1, so that others overtake them.
    pub reorder: f64,
    /// How long those are held back.
    pub reorder_by: Duration,
    /// Bits per second, counting whole Ethernet frames without their checksum; none for no limit.
    pub rate: Option<u64>,
    /// Bytes that may wait for their turn where there is a rate; what comes on top is lost.
    pub queue: usize,
    /// The largest IP packet in bytes; none for no limit. Other frames always pass.
    pub mtu: Option<u16>,
    /// What becomes of larger ones.
    pub too_big: TooBig,
}

/// What happens to an IP packet that is larger than the MTU. It never arrives, whatever its DF bit says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooBig {
    /// Its sender learns nothing: a black hole.
    Silent,
    /// Its sender gets an ICMP error that names the MTU (RFC 792 type 3 code 4 as of RFC 1191, RFC 4443 type 2).
    Icmp,
}

impl Default for Impairments {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_by: Duration::from_millis(10),
            rate: None,
            queue: 256 * 1024,
            mtu: None,
            too_big: TooBig::Silent,
        }
    }
}

impl Impairments {
    /// Nothing but a delay.
    #[must_use]
    pub fn delay(delay: Duration) -> Self {
        Self {
            delay,
            ..Self::default()
        }
    }

    /// Nothing but loss, from 0 to 1. With 1 the direction is dead though both ends have a carrier.
    #[must_use]
    pub fn loss(loss: f64) -> Self {
        Self {
            loss,
            ..Self::default()
        }
    }

    /// Nothing but a largest IP packet.
    #[must_use]
    pub fn mtu(mtu: u16, too_big: TooBig) -> Self {
        Self {
            mtu: Some(mtu),
            too_big,
            ..Self::default()
        }
    }
}

/// What became of the frames so far, those of super-frames counted one by one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PipeCounts {
    /// Taken from the sender.
    pub taken: u64,
    /// Given to the receiver, duplicates included.
    pub given: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Doubled.
    pub duplicated: u64,
    /// Held back.
    pub reordered: u64,
    /// Lost because the queue was full.
    pub overflowed: u64,
    /// Lost because they were larger than the MTU.
    pub too_big: u64,
}

/// One direction. Pure: times are nanoseconds from any start. Frames have a virtio header in front.
#[derive(Debug)]
pub struct Pipe {
    impairments: Impairments,
    random: SplitMix64,
    /// Until when the frames so far keep the line busy.
    busy_until: u64,
    /// When the last frame that keeps its place leaves.
    last_due: u64,
    sequence: u64,
    /// Frames that keep their place, and their bytes one behind the other.
    in_order: VecDeque<Waiting>,
    bytes: VecDeque<u8>,
    held_back: BinaryHeap<HeldBack>,
    scratch: Vec<u8>,
    counts: PipeCounts,
}

impl Pipe {
    /// An empty pipe.
    #[must_use]
    pub fn new(impairments: Impairments, seed: u64) -> Self {
        Self {
            impairments,
            random: SplitMix64::new(seed),
            busy_until: 0,
            last_due: 0,
            sequence: 0,
            in_order: VecDeque::new(),
            bytes: VecDeque::new(),
            held_back: BinaryHeap::new(),
            scratch: Vec::new(),
            counts: PipeCounts::default(),
        }
    }

    /// From now on frames meet these. Those under way keep their time.
    pub fn set(&mut self, impairments: Impairments) {
        self.impairments = impairments;
    }

    /// What became of the frames so far.
    #[must_use]
    pub fn counts(&self) -> PipeCounts {
        self.counts
    }

    /// A frame enters. `answer` is given the frames, without virtio header, that go back to its sender: those about
    /// segments that are too large, if the sender shall know.
    pub fn push(&mut self, now: u64, frame: &[u8], mut answer: impl FnMut(&[u8])) {
        let segments = Segments::of(frame);
        let mut run: Option<Run> = None;
        for index in 0..segments.count() {
            self.counts.taken += 1;
            if self.is_too_big(frame, &segments, index, &mut answer) {
                continue;
            }
            let Some(sent) = self.survives(now, segments.wire_len(index)) else {
                continue;
            };
            let twice = self.random.chance(self.impairments.duplicate);
            self.counts.duplicated += u64::from(twice);
            for _ in 0..=u8::from(twice) {
                let waiting = self.schedule(sent);
                match &mut run {
                    _ if waiting.held_back => {
                        segments.cut(frame, index..index + 1, &mut self.scratch);
                        let bytes = self.scratch.clone();
                        self.held_back.push(HeldBack { waiting, bytes });
                    }
                    Some(run) if run.takes(index, waiting.due, self.gather()) => {
                        run.end = index + 1;
                        run.waiting.due = waiting.due;
                    }
                    _ => {
                        if let Some(run) = run.replace(Run::new(index, waiting)) {
                            self.enter(frame, &segments, run);
                        }
                    }
                }
            }
        }
        if let Some(run) = run {
            self.enter(frame, &segments, run);
        }
    }

    /// Moves the next frame that leaves at `now`, or has left before, to `out`. False if there is none.
    pub fn pop(&mut self, now: u64, out: &mut Vec<u8>) -> bool {
        if self.next_due().is_none_or(|due| due > now) {
            return false;
        }
        out.clear();
        let waiting = if self.held_back_is_next() {
            let Some(HeldBack { waiting, bytes }) = self.held_back.pop() else {
                return false;
            };
            out.extend_from_slice(&bytes);
            waiting
        } else {
            let Some(waiting) = self.in_order.pop_front() else {
                return false;
            };
            // As two slices, since a drain goes byte by byte.
            let (front, back) = self.bytes.as_slices();
            let first = waiting.len.min(front.len());
            out.extend_from_slice(front.get(..first).unwrap_or_default());
            out.extend_from_slice(back.get(..waiting.len - first).unwrap_or_default());
            self.bytes.drain(..waiting.len);
            waiting
        };
        self.counts.given += waiting.segments;
        true
    }

    /// When the next frame leaves.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        let held_back = self.held_back.peek().map(|held| held.waiting.due);
        let in_order = self.in_order.front().map(|waiting| waiting.due);
        held_back.into_iter().chain(in_order).min()
    }

    fn held_back_is_next(&self) -> bool {
        match (self.held_back.peek(), self.in_order.front()) {
            (Some(held), Some(next)) => held.waiting.key() < next.key(),
            (held, _) => held.is_some(),
        }
    }

    fn is_too_big(&mut self, frame: &[u8], segments: &Segments, index: usize, answer: &mut impl FnMut(&[u8])) -> bool {
        let Some(mtu) = self.impairments.mtu else {
            return false;
        };
        let headers = frame.get(VNET_HEADER_LEN..).unwrap_or_default();
        if !too_big::is_too_big(headers, segments.wire_len(index), mtu) {
            return false;
        }
        self.counts.too_big += 1;
        if self.impairments.too_big == TooBig::Icmp {
            segments.cut(frame, index..index + 1, &mut self.scratch);
            complete(&mut self.scratch);
            let segment = self.scratch.get(VNET_HEADER_LEN..).unwrap_or_default();
            if let Some(error) = too_big::answer(segment, mtu) {
                answer(&error);
            }
        }
        true
    }

    /// When a segment that comes now has left the queue; none if it is lost, there or behind it.
    fn survives(&mut self, now: u64, len: usize) -> Option<u64> {
        let Some(sent) = self.transmit(now, len) else {
            self.counts.overflowed += 1;
            return None;
        };
        if self.random.chance(self.impairments.loss) {
            self.counts.lost += 1;
            return None;
        }
        Some(sent)
    }

    /// When a frame that comes now has left the queue; none if there is no room for it. An idle line takes any.
    fn transmit(&mut self, now: u64, len: usize) -> Option<u64> {
        let Some(rate) = self.impairments.rate.filter(|rate| *rate > 0) else {
            return Some(now);
        };
        let start = self.busy_until.max(now);
        let waiting = u128::from(start - now) * u128::from(rate) / 8_000_000_000;
        if waiting > 0 && waiting + len as u128 > self.impairments.queue as u128 {
            return None;
        }
        let time = len as u128 * 8_000_000_000 / u128::from(rate);
        self.busy_until = start.saturating_add(u64::try_from(time).unwrap_or(u64::MAX));
        Some(self.busy_until)
    }

    /// When a segment that has left the queue arrives.
    fn schedule(&mut self, sent: u64) -> Waiting {
        let with = self.impairments;
        let jitter = self.random.below(nanos(with.jitter).saturating_add(1));
        let due = self.last_due.max(sent + nanos(with.delay) + jitter);
        let held_back = self.random.chance(with.reorder);
        if held_back {
            self.counts.reordered += 1;
        } else {
            self.last_due = due;
        }
        let sequence = self.sequence;
        self.sequence += 1;
        Waiting {
            due: due + if held_back { nanos(with.reorder_by) } else { 0 },
            sequence,
            held_back,
            len: 0,
            segments: 1,
        }
    }

    fn gather(&self) -> u64 {
        if self.impairments.reorder > 0.0 || !self.held_back.is_empty() {
            0
        } else {
            GATHER
        }
    }

    fn enter(&mut self, frame: &[u8], segments: &Segments, run: Run) {
        segments.cut(frame, run.start..run.end, &mut self.scratch);
        self.bytes.extend(&self.scratch);
        self.in_order.push_back(Waiting {
            len: self.scratch.len(),
            segments: (run.end - run.start) as u64,
            ..run.waiting
        });
    }
}

/// A frame under way.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    due: u64,
    sequence: u64,
    held_back: bool,
    len: usize,
    segments: u64,
}

impl Waiting {
    fn key(&self) -> (u64, u64) {
        (self.due, self.sequence)
    }
}

/// Segments of one super-frame that leave together.
#[derive(Debug, Clone, Copy)]
struct Run {
    start: usize,
    end: usize,
    /// When the first would leave alone.
    first_due: u64,
    waiting: Waiting,
}

impl Run {
    fn new(index: usize, waiting: Waiting) -> Self {
        Self {
            start: index,
            end: index + 1,
            first_due: waiting.due,
            waiting,
        }
    }

    fn takes(&self, index: usize, due: u64, gather: u64) -> bool {
        self.end == index && due - self.first_due <= gather
    }
}

/// A frame that others overtake. The greatest is the one that leaves first.
#[derive(Debug)]
struct HeldBack {
    waiting: Waiting,
    bytes: Vec<u8>,
}

impl Ord for HeldBack {
    fn cmp(&self, other: &Self) -> Ordering {
        other.waiting.key().cmp(&self.waiting.key())
    }
}

impl PartialOrd for HeldBack {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for HeldBack {
    fn eq(&self, other: &Self) -> bool {
        self.waiting.key() == other.waiting.key()
    }
}

impl Eq for HeldBack {}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
