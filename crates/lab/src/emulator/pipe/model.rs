//! A simple model of the pipe, for comparison: every frame alone, in a heap.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::{Impairments, PipeCounts, TooBig, nanos, too_big};
use crate::random::SplitMix64;

/// One direction, frame by frame, in one heap. Frames have no virtio header.
#[derive(Debug)]
pub(super) struct Model {
    impairments: Impairments,
    random: SplitMix64,
    /// Until when the line is busy with earlier frames.
    busy_until: u64,
    /// When the last frame of the regular order is delivered.
    last_due: u64,
    sequence: u64,
    under_way: BinaryHeap<Frame>,
    counts: PipeCounts,
}

impl Model {
    /// An empty pipe.
    pub(super) fn new(impairments: Impairments, seed: u64) -> Self {
        Self {
            impairments,
            random: SplitMix64::new(seed),
            busy_until: 0,
            last_due: 0,
            sequence: 0,
            under_way: BinaryHeap::new(),
            counts: PipeCounts::default(),
        }
    }

    /// The counters so far.
    pub(super) fn counts(&self) -> PipeCounts {
        self.counts
    }

    /// Adds a frame. Returns the frame for its sender, if it is too large and the sender is to be
    /// notified.
    pub(super) fn push(&mut self, now: u64, frame: Vec<u8>) -> Option<Vec<u8>> {
        let with = self.impairments;
        self.counts.taken += 1;
        if let Some(mtu) = with.mtu.filter(|mtu| too_big::is_too_big(&frame, frame.len(), *mtu)) {
            self.counts.too_big += 1;
            return match with.too_big {
                TooBig::Silent => None,
                TooBig::Icmp => too_big::answer(&frame, mtu),
            };
        }
        let Some(sent) = self.transmit(now, frame.len()) else {
            self.counts.overflowed += 1;
            return None;
        };
        if self.random.chance(with.loss) {
            self.counts.lost += 1;
            return None;
        }
        let twice = self.random.chance(with.duplicate).then(|| frame.clone());
        self.counts.duplicated += u64::from(twice.is_some());
        for frame in std::iter::once(frame).chain(twice) {
            let jitter = self.random.below(nanos(with.jitter).saturating_add(1));
            let due = self.last_due.max(sent + nanos(with.delay) + jitter);
            let held = self.random.chance(with.reorder);
            if held {
                self.counts.reordered += 1;
                self.enter(due + nanos(with.reorder_by), frame);
            } else {
                self.last_due = due;
                self.enter(due, frame);
            }
        }
        None
    }

    /// The next frame that is due at `now`.
    pub(super) fn pop(&mut self, now: u64) -> Option<Vec<u8>> {
        if self.under_way.peek()?.due > now {
            return None;
        }
        let frame = self.under_way.pop()?;
        self.counts.given += 1;
        Some(frame.bytes)
    }

    /// When the next frame is due.
    pub(super) fn next_due(&self) -> Option<u64> {
        Some(self.under_way.peek()?.due)
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

    fn enter(&mut self, due: u64, bytes: Vec<u8>) {
        let sequence = self.sequence;
        self.sequence += 1;
        self.under_way.push(Frame { due, sequence, bytes });
    }
}

/// A frame in flight. The greatest is the one that is due first.
#[derive(Debug)]
struct Frame {
    due: u64,
    sequence: u64,
    bytes: Vec<u8>,
}

impl Frame {
    fn key(&self) -> (u64, u64) {
        (self.due, self.sequence)
    }
}

impl Ord for Frame {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl PartialOrd for Frame {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Frame {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Frame {}
