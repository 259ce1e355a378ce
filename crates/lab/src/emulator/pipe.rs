//! One direction of an emulated cable: which frame leaves when.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

use serde::Serialize;

use super::too_big;
use crate::random::SplitMix64;

/// What one direction of a cable does to frames. The default does nothing.
///
/// A frame meets, in this order: the largest packet, the queue in front of the rate, loss, duplication, delay with
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

/// What became of the frames so far.
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

/// One direction. Pure: times are nanoseconds from any start.
#[derive(Debug)]
pub struct Pipe {
    impairments: Impairments,
    random: SplitMix64,
    /// Until when the frames so far keep the line busy.
    busy_until: u64,
    /// When the last frame that keeps its place leaves.
    last_due: u64,
    sequence: u64,
    under_way: BinaryHeap<Frame>,
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
            under_way: BinaryHeap::new(),
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

    /// A frame enters. Gives the frame that goes back to its sender, if it is too large and the sender shall know.
    pub fn push(&mut self, now: u64, frame: Vec<u8>) -> Option<Vec<u8>> {
        let with = self.impairments;
        self.counts.taken += 1;
        if let Some(mtu) = with.mtu.filter(|mtu| too_big::is_too_big(&frame, *mtu)) {
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

    /// The next frame that leaves at `now` or has left before.
    pub fn pop(&mut self, now: u64) -> Option<Vec<u8>> {
        if self.under_way.peek()?.due > now {
            return None;
        }
        let frame = self.under_way.pop()?;
        self.counts.given += 1;
        Some(frame.bytes)
    }

    /// When the next frame leaves.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        Some(self.under_way.peek()?.due)
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

    fn enter(&mut self, due: u64, bytes: Vec<u8>) {
        let sequence = self.sequence;
        self.sequence += 1;
        self.under_way.push(Frame { due, sequence, bytes });
    }
}

/// A frame under way. The greatest is the one that leaves first.
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

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn frame(number: usize, len: usize) -> Vec<u8> {
        let mut frame = vec![0; len];
        frame[..8].copy_from_slice(&number.to_be_bytes());
        frame
    }

    /// Frames of 1000 bytes, one each `gap` ns; what comes out, as (number, time).
    fn run(impairments: Impairments, seed: u64, count: usize, gap: u64) -> Vec<(usize, u64)> {
        let mut pipe = Pipe::new(impairments, seed);
        let mut out = Vec::new();
        let mut drain = |pipe: &mut Pipe, until: u64| {
            while let Some(due) = pipe.next_due().filter(|due| *due <= until) {
                if due > 0 {
                    assert_eq!(pipe.pop(due - 1), None);
                }
                let bytes = pipe.pop(due).unwrap();
                out.push((usize::from_be_bytes(bytes[..8].try_into().unwrap()), due));
            }
        };
        for number in 0..count {
            let now = number as u64 * gap;
            drain(&mut pipe, now);
            assert_eq!(pipe.push(now, frame(number, 1000)), None);
        }
        drain(&mut pipe, u64::MAX);
        let counts = pipe.counts();
        assert_eq!(counts.taken, count as u64);
        let gone = counts.lost + counts.overflowed + counts.too_big;
        assert_eq!(counts.given, out.len() as u64);
        assert_eq!(counts.given, counts.taken - gone + counts.duplicated);
        out
    }

    #[test]
    fn nothing_is_the_default_and_delay_is_exact() {
        let out = run(Impairments::default(), 1, 100, MS);
        assert!(out.iter().enumerate().all(|(i, frame)| *frame == (i, i as u64 * MS)));
        let out = run(Impairments::delay(Duration::from_millis(20)), 1, 100, MS);
        assert!(
            out.iter()
                .enumerate()
                .all(|(i, frame)| *frame == (i, (20 + i as u64) * MS))
        );
    }

    #[test]
    fn jitter_spreads_and_keeps_the_order() {
        let jittery = Impairments {
            jitter: Duration::from_millis(5),
            ..Impairments::delay(Duration::from_millis(20))
        };
        let out = run(jittery, 1, 1000, 10 * MS);
        assert!(out.iter().map(|(number, _)| *number).eq(0..1000));
        let extra: Vec<u64> = out.iter().map(|(i, due)| due - (20 + 10 * *i as u64) * MS).collect();
        assert!(extra.iter().all(|extra| *extra <= 5 * MS));
        let mean = extra.iter().sum::<u64>() / 1000;
        assert!((2 * MS..3 * MS).contains(&mean), "{mean}");
        // Closer together than the jitter they still keep their order.
        assert!(run(jittery, 1, 1000, MS / 10).is_sorted());
    }

    #[test]
    fn loss_duplication_and_reordering_have_their_shares() {
        let out = run(Impairments::loss(0.1), 1, 10_000, MS);
        assert!((8800..9200).contains(&out.len()), "{}", out.len());
        assert!(run(Impairments::loss(1.0), 1, 100, MS).is_empty());
        let doubled = Impairments {
            duplicate: 0.2,
            ..Impairments::default()
        };
        let out = run(doubled, 1, 10_000, MS);
        assert!((11_700..12_300).contains(&out.len()), "{}", out.len());
        let reordered = Impairments {
            reorder: 0.05,
            reorder_by: Duration::from_millis(3),
            ..Impairments::default()
        };
        let out = run(reordered, 1, 10_000, MS);
        assert_eq!(out.len(), 10_000);
        let late = out.windows(2).filter(|pair| pair[0].0 > pair[1].0).count();
        assert!((400..600).contains(&late), "{late}");
    }

    #[test]
    fn a_rate_spaces_frames_and_its_queue_is_bounded() {
        // 8 Mbit/s: 1000 bytes take 1 ms. They come twice as fast.
        let narrow = Impairments {
            rate: Some(8_000_000),
            queue: 10_000,
            ..Impairments::default()
        };
        let out = run(narrow, 1, 1000, MS / 2);
        assert!(out.windows(2).all(|pair| pair[1].1 - pair[0].1 == MS));
        assert!((500..=510).contains(&out.len()), "{}", out.len());
        // No frame waits longer than the queue is long.
        assert!(
            out.iter()
                .all(|(number, due)| due - *number as u64 * (MS / 2) <= 11 * MS)
        );
        // A frame longer than the queue passes an idle line.
        let tight = Impairments { queue: 10, ..narrow };
        assert_eq!(run(tight, 1, 10, 2 * MS).len(), 10);
    }

    #[test]
    fn the_seed_decides_all() {
        let all = Impairments {
            delay: Duration::from_millis(7),
            jitter: Duration::from_millis(2),
            loss: 0.05,
            duplicate: 0.05,
            reorder: 0.05,
            rate: Some(20_000_000),
            ..Impairments::default()
        };
        assert_eq!(run(all, 7, 2000, MS), run(all, 7, 2000, MS));
        assert_ne!(run(all, 7, 2000, MS), run(all, 8, 2000, MS));
    }
}
