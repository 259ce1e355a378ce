//! One direction of an emulated cable: when each frame is delivered.
//!
//! The impairments apply to each segment of a super-frame. Consecutive segments that pass unharmed
//! are delivered as one super-frame again, at the time of the last, so that the receiver has less
//! work. It models a network card that gathers frames for [`GATHER`] before it interrupts.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use serde::Serialize;
use weft_os::tun::VNET_HEADER_LEN;

use super::super_frame::{Segments, complete};
use super::too_big;
use crate::random::SplitMix64;

/// How long a segment may wait for the next ones, ns. If frames are held back none waits, as that
/// would change their order.
pub const GATHER: u64 = 200_000;

/// The impairments of one direction of a cable. The default has none.
///
/// They apply to a frame, or a segment of a super-frame, in this order: the MTU, the queue before
/// the rate limit, loss, duplication, delay with jitter, reordering. Each decision depends on the
/// seed and the frames before, never on the clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Impairments {
    /// Delay of every frame.
    pub delay: Duration,
    /// Maximum additional delay, uniformly distributed. It causes no reordering.
    pub jitter: Duration,
    /// The share of frames that are lost, from 0 to 1.
    pub loss: f64,
    /// The share of frames that are delivered twice, from 0 to 1.
    pub duplicate: f64,
    /// The share of frames that are held back, from 0 to 1, so that later ones overtake them.
    pub reorder: f64,
    /// How long they are held back.
    pub reorder_by: Duration,
    /// Bits per second, counting whole Ethernet frames without their checksum; `None` for no limit.
    pub rate: Option<u64>,
    /// Size of the queue before the rate limit in bytes; frames beyond it are dropped.
    pub queue: usize,
    /// The largest IP packet in bytes; `None` for no limit. Other frames always pass.
    pub mtu: Option<u16>,
    /// The treatment of larger packets.
    pub too_big: TooBig,
}

/// The treatment of an IP packet larger than the MTU. It is never delivered, whatever its DF bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooBig {
    /// Dropped silently: a black hole.
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
    /// A delay only.
    #[must_use]
    pub fn delay(delay: Duration) -> Self {
        Self {
            delay,
            ..Self::default()
        }
    }

    /// Loss only, from 0 to 1. With 1 the direction is dead although both ends have a carrier.
    #[must_use]
    pub fn loss(loss: f64) -> Self {
        Self {
            loss,
            ..Self::default()
        }
    }

    /// An MTU only.
    #[must_use]
    pub fn mtu(mtu: u16, too_big: TooBig) -> Self {
        Self {
            mtu: Some(mtu),
            too_big,
            ..Self::default()
        }
    }
}

/// Counters of frames so far, with the segments of super-frames counted one by one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PipeCounts {
    /// Received from the sender.
    pub taken: u64,
    /// Delivered to the receiver, including duplicates.
    pub given: u64,
    /// Dropped at random.
    pub lost: u64,
    /// Duplicated.
    pub duplicated: u64,
    /// Held back.
    pub reordered: u64,
    /// Dropped because the queue was full.
    pub overflowed: u64,
    /// Dropped because they exceeded the MTU.
    pub too_big: u64,
}

/// One direction. Pure: times are nanoseconds from any start. Frames have a virtio header in front.
#[derive(Debug)]
pub struct Pipe {
    impairments: Impairments,
    random: SplitMix64,
    /// Until when the line is busy with earlier frames.
    busy_until: u64,
    /// When the last frame of the regular order is delivered.
    last_due: u64,
    sequence: u64,
    /// Frames in the regular order, and their bytes one behind the other.
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

    /// Sets the impairments of frames from now on. Frames in flight keep their times.
    pub fn set(&mut self, impairments: Impairments) {
        self.impairments = impairments;
    }

    /// The counters so far.
    #[must_use]
    pub fn counts(&self) -> PipeCounts {
        self.counts
    }

    /// Adds a frame. `answer` receives the frames for its sender, without virtio header: errors
    /// about segments that are too large, if the sender is to be notified.
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

    /// Moves the next frame that is due at `now` to `out`. Returns false if there is none.
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
            // As two slices, since a drain copies byte by byte.
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

    /// When the next frame is due.
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

    /// When a segment that arrives now leaves the queue; `None` if it is dropped, there or later.
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

    /// When a frame that arrives now leaves the queue; `None` if the queue is full. An idle line
    /// accepts any frame.
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

    /// When a segment that has left the queue is delivered.
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

/// A frame in flight.
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

/// Segments of one super-frame that are delivered together.
#[derive(Debug, Clone, Copy)]
struct Run {
    start: usize,
    end: usize,
    /// When the first would be delivered alone.
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

/// A frame that others overtake. The greatest is the one that is due first.
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
