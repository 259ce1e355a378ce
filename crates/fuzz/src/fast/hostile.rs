//! A hostile peer that has the keys, and an attacker on the path that alters the frames of others.

use std::collections::BTreeSet;
use std::ops::Range;

use weft_noise::fast::{FastCipher, Secret, Suite};
use weft_packet::checksum::Checksum;
use weft_packet::{HEADROOM, Inbound, Lane, Train};
use weft_wire::NodeAddr;
use weft_wire::fast::{self, CONFIRM, PHASE};

use super::super::coalesce::joins_and_cuts;
use super::content::{assert_packet, expanded, full_content, may_enter, packet_content};
use super::{HONEST, HOSTILE, Input, MAX_ANSWERS, ME, Sent, Trio, address};

/// The state of an authenticated hostile peer.
pub(super) struct Hostile {
    pub(super) index: u32,
    pub(super) suite: Suite,
    /// The secrets of its phases so far, and of the next.
    pub(super) secrets: Vec<Secret>,
    pub(super) counter: u64,
    /// Counters of frames that opened under these keys.
    pub(super) opened: BTreeSet<u64>,
}

/// A frame of the hostile peer, and the packet that it may give at most.
pub(super) struct Crafted {
    pub(super) frame: Vec<u8>,
    pub(super) counter: u64,
    /// The packet, and whether its checksum was left out.
    pub(super) packet: Option<(Vec<u8>, bool)>,
}

/// The content of a frame before it is sealed.
struct Draft {
    kind: u8,
    flags: u8,
    plain: Vec<u8>,
    phase: usize,
    /// The length in its header, if it is not the real one.
    lie: Option<u16>,
}

impl Trio {
    /// Sends frames under the right keys, one behind the other as the kernel coalesces them.
    pub(super) fn hostile_sends(&mut self, input: &mut Input<'_>) {
        let count = 1 + input.below(8);
        if self.in_trains {
            let crafted = self.craft_alike(input, count);
            return self.deliver_train(&crafted);
        }
        let crafted: Vec<Crafted> = (0..count).map(|_| self.craft(input)).collect();
        self.deliver(&crafted);
    }

    pub(super) fn craft(&mut self, input: &mut Input<'_>) -> Crafted {
        let Draft {
            kind,
            flags,
            plain,
            phase,
            lie,
        } = self.draft(input);
        self.hostile.seal(kind, flags, &plain, phase, lie)
    }

    /// Builds frames of one length, in each of which one byte may differ.
    fn craft_alike(&mut self, input: &mut Input<'_>, count: usize) -> Vec<Crafted> {
        let mut draft = self.draft(input);
        let crafted = (0..count).map(|_| {
            if !draft.plain.is_empty() && input.flag() {
                let at = input.within(0..draft.plain.len());
                draft.plain[at] ^= input.u8();
            }
            self.hostile
                .seal(draft.kind, draft.flags, &draft.plain, draft.phase, draft.lie)
        });
        crafted.collect()
    }

    fn draft(&mut self, input: &mut Input<'_>) -> Draft {
        let shape = input.u8();
        let kind = match shape & 7 {
            0..=3 => 0,
            4 | 5 => 1,
            6 => 3,
            _ => input.u8() & 15,
        };
        let flags = if shape & 0x38 == 0x38 {
            input.u8()
        } else {
            shape >> 3 & 3
        };
        let clock = input.u8();
        let mut plain = vec![clock; fast::TIMESTAMP_LEN];
        match (kind, shape >> 6) {
            (0, 0..=2) => plain.extend(packet_content(input)),
            (3, 0..=2) => plain.extend(full_content(input, (HOSTILE, ME))),
            (1, 0) => plain.extend([CONFIRM, input.u8() & 1]),
            (1, 1) => {
                plain.push(PHASE);
                plain.extend([input.u8(), input.u8() & 1, 0, 0]);
            }
            (1, 2) => {
                plain.push(0x10 | input.u8() & 0x0f);
                plain.extend(input.bytes());
            }
            _ => {
                plain.truncate(input.below(8));
                plain.extend(input.bytes());
            }
        }
        if shape & 0xc0 == 0x80 {
            // A gap, a repetition, or any counter.
            self.hostile.counter = match input.below(4) {
                0 => self.hostile.counter.wrapping_add(u64::from(input.u16())),
                1 => self.hostile.counter.wrapping_sub(u64::from(input.u8())),
                2 => self.hostile.counter,
                _ => u64::from_le_bytes(input.array()),
            };
        }
        // The phase bit matches the key, unless it is to be wrong.
        let back = input.below(4).saturating_sub(1);
        let lie = (shape == 0xff).then(|| input.u16());
        let phase = self.hostile.secrets.len().saturating_sub(2 + back);
        let phase = if shape & 0x3f == 0x15 { phase + 1 } else { phase };
        Draft {
            kind,
            flags,
            plain,
            phase,
            lie,
        }
    }

    /// Delivers frames of one length in one receive. Their packets stay in place.
    fn deliver_train(&mut self, crafted: &[Crafted]) {
        let (before, waiting) = (*self.me.counters(), self.me.inspect().queued(&HOSTILE));
        let frames = crafted.iter().map(|one| one.frame.as_slice());
        let arrived = train_in(&mut self.me, &mut self.train, (self.now, HOSTILE), frames);
        let opened = self.me.counters().fast_rx - before.fast_rx;
        assert!(
            arrived.len() as u64 <= opened,
            "a packet out of a frame that did not open"
        );
        let answers = self.take_sent().len();
        self.assert_few(answers, MAX_ANSWERS * crafted.len(), &before, waiting);
        self.drain();
        for (number, packet, checksum) in &arrived {
            let one = &crafted[*number];
            assert!(self.hostile.opened.insert(one.counter), "a counter opened twice");
            let (expected, partial) = one.packet.as_ref().unwrap_or_else(|| panic!("no packet was in it"));
            assert_eq!(*checksum == Checksum::Partial, *partial);
            assert_packet(packet, expected, *partial);
        }
        let in_order = arrived.iter().map(|(number, ..)| number).is_sorted_by(|a, b| a < b);
        assert!(in_order, "packets of one receive change places");
        let packets: Vec<_> = arrived
            .iter()
            .map(|(_, packet, sum)| (packet.as_slice(), *sum))
            .collect();
        joins_and_cuts(&packets);
    }

    /// Delivers frames from one buffer, each behind the one before; their packets stay in place
    /// until the end.
    pub(super) fn deliver(&mut self, crafted: &[Crafted]) {
        let mut buffer = vec![0x5a; HEADROOM];
        let mut ends = Vec::new();
        for one in crafted {
            buffer.extend(&one.frame);
            ends.push(buffer.len());
        }
        let (mut start, mut delivered) = (0, Vec::new());
        for (one, end) in crafted.iter().zip(ends) {
            let (before, waiting) = (*self.me.counters(), self.me.inspect().queued(&HOSTILE));
            let opened = before.fast_rx;
            let room = &mut buffer[start..end];
            let inbound = self.me.inbound(self.now, address(HOSTILE), room, &mut self.train);
            if self.me.counters().fast_rx > opened {
                assert!(self.hostile.opened.insert(one.counter), "a counter opened twice");
            }
            let answers = self.take_sent().len();
            self.assert_few(answers, MAX_ANSWERS, &before, waiting);
            if let Inbound::Packet(range, checksum) = inbound {
                assert!(
                    self.me.counters().fast_rx > opened,
                    "a packet out of a frame that did not open"
                );
                let expected = one.packet.clone();
                delivered.push((start + range.start..start + range.end, checksum, expected));
            }
            start = end - HEADROOM;
        }
        self.drain();
        for (range, checksum, expected) in &delivered {
            let (expected, partial) = expected.as_ref().unwrap_or_else(|| panic!("no packet was in it"));
            assert_eq!(*checksum == Checksum::Partial, *partial);
            assert_packet(&buffer[range.clone()], expected, *partial);
        }
        let packets: Vec<_> = delivered
            .iter()
            .map(|(range, sum, _)| (&buffer[range.clone()], *sum))
            .collect();
        joins_and_cuts(&packets);
    }

    /// A frame of the honest peer that was delivered before, or withheld: it is not opened twice.
    pub(super) fn replayed(&mut self, input: &mut Input<'_>) {
        let Some(frame) = input.latest(&self.captured).cloned() else {
            return;
        };
        for round in 0..2 {
            let got = self
                .me
                .inbound_alone(self.now, address(HONEST), &frame, &mut self.train);
            assert!(round == 0 || got.is_none(), "a frame opens again");
        }
        self.take_sent();
        self.drain();
    }

    /// A corrupted frame of the honest peer.
    pub(super) fn spoiled(&mut self, input: &mut Input<'_>) {
        let Some(mut frame) = input.latest(&self.captured).cloned() else {
            return;
        };
        input.spoil(&mut frame);
        if self.captured.contains(&frame) {
            return;
        }
        let before = *self.me.counters();
        let got = self
            .me
            .inbound_alone(self.now, address(HOSTILE), &frame, &mut self.train);
        assert_eq!(got, None, "a forged frame is delivered");
        assert_eq!(self.take_sent().len(), 0, "a forged frame is answered");
        let reported = self.drain();
        assert_eq!(self.me.counters().fast_rx, before.fast_rx);
        let mut one_more = before;
        one_more.udp_rx += 1;
        assert!(
            *self.me.counters() != one_more || reported > 0,
            "dropped without a trace"
        );
    }
}

/// Delivers frames of one length, except the last, in one receive of the lane. Returns their
/// packets, each with the number of its frame.
pub(super) fn train_in<'f>(
    lane: &mut Lane,
    train: &mut Train<Sent>,
    (now, from): (u64, NodeAddr),
    frames: impl Iterator<Item = &'f [u8]>,
) -> Vec<(usize, Vec<u8>, Checksum)> {
    let (mut room, mut step) = (vec![0x5a; HEADROOM], 0);
    for frame in frames {
        step = step.max(frame.len());
        room.extend(frame);
    }
    let mut arrived: Vec<(Range<usize>, Vec<u8>, Checksum)> = Vec::new();
    lane.inbound_train(now, address(from), &mut room, step, train, |packet, place, checksum| {
        arrived.push((place, packet.to_vec(), checksum));
    });
    for (place, packet, _) in &arrived {
        assert_eq!(&room[place.clone()], packet, "a packet does not stay where it was");
    }
    // A packet may begin before its frame, and ends in it.
    let number = |place: &Range<usize>| (place.end - HEADROOM - 1) / step.max(1);
    let packets = arrived
        .iter()
        .map(|(place, packet, sum)| (number(place), packet.clone(), *sum));
    packets.collect()
}

impl Hostile {
    /// Seals `plain` behind a header with this kind and these flags under the secret of `phase`,
    /// where one more than the present is the next, with a length that may be wrong.
    pub(super) fn seal(&mut self, kind: u8, flags: u8, plain: &[u8], phase: usize, length: Option<u16>) -> Crafted {
        let phase = phase.min(self.secrets.len() - 1);
        if phase + 1 == self.secrets.len() {
            let next = self.secrets[phase].next();
            self.secrets.push(next);
        }
        let cipher: FastCipher = self.secrets[phase].cipher(self.suite);
        let counter = self.counter;
        self.counter = counter.wrapping_add(1);
        let flags = flags & !fast::FLAG_PHASE | (flags ^ phase as u8) & fast::FLAG_PHASE;
        let real = (plain.len() + fast::TAG_LEN) as u16;
        let header = [
            &[fast::VERSION << 4 | kind, flags][..],
            &length.unwrap_or(real).to_le_bytes(),
            &self.index.to_le_bytes(),
            &counter.to_le_bytes(),
        ]
        .concat();
        let mut sealed = plain.to_vec();
        let tag = cipher.seal_in_place(counter, &header, &mut sealed);
        let whole = kind == 0 && flags & !(fast::FLAG_PHASE | fast::FLAG_PARTIAL) == 0;
        let content = plain
            .get(fast::TIMESTAMP_LEN..)
            .filter(|content| content.len() >= fast::IPV6_REST);
        let full = kind == 3 && flags & !(fast::FLAG_PHASE | fast::FLAG_PARTIAL) == 0;
        let let_in = plain
            .get(fast::TIMESTAMP_LEN..)
            .filter(|content| full && may_enter(content));
        let packet = content.filter(|_| whole).map(expanded).or(let_in.map(<[u8]>::to_vec));
        Crafted {
            frame: [&header, &sealed, &tag[..]].concat(),
            counter,
            packet: packet.map(|packet| (packet, flags & fast::FLAG_PARTIAL != 0)),
        }
    }
}
