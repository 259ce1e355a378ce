//! Reassembly of packets from pieces.
//!
//! The store is bounded, whatever the peer sends: a number of packets, each of a bounded length in
//! a bounded number of pieces, for a bounded time. Pieces that overlap, or disagree about their
//! packet, end it (RFC 5722 has the reasons).

use std::collections::VecDeque;

use weft_wire::fast::{Fragment, Kind};

/// The number of packets of which some pieces have been received. A new one displaces the oldest.
const MAX_PACKETS: usize = 16;
/// How long a packet may be incomplete before it is given up, in ms.
const EXPIRY: u64 = 2_000;

/// The outcome of a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The piece waits for others.
    Kept,
    /// The content is complete: its bytes, behind the requested headroom.
    Whole(Vec<u8>),
    /// The piece contradicts earlier ones, and the whole packet is dropped.
    Conflict,
}

#[derive(Debug)]
struct Partial {
    keys: u32,
    packet: u32,
    kind: Kind,
    since: u64,
    total: u16,
    missing: usize,
    /// Offsets and lengths of the pieces received, in bytes.
    pieces: Vec<(usize, usize)>,
    buf: Vec<u8>,
}

/// The incomplete packets of one session.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    partial: VecDeque<Partial>,
    /// The number of packets given up because their other pieces did not arrive in time, or too
    /// many packets were begun.
    given_up: u64,
}

impl Reassembly {
    /// Adds a piece that arrived under `keys`. Complete content is returned behind `headroom`
    /// bytes, whose number depends on the kind alone.
    pub(crate) fn take(&mut self, now: u64, keys: u32, fragment: Fragment, piece: &[u8], headroom: usize) -> Taken {
        self.expire(now);
        let known = |p: &Partial| (p.keys, p.packet) == (keys, fragment.packet);
        let at = match self.partial.iter().position(known) {
            Some(at) => at,
            None => {
                if self.partial.len() == MAX_PACKETS {
                    self.partial.pop_front();
                    self.given_up += 1;
                }
                self.partial.push_back(Partial {
                    keys,
                    packet: fragment.packet,
                    kind: fragment.kind,
                    since: now,
                    total: fragment.total,
                    missing: usize::from(fragment.total),
                    pieces: Vec::new(),
                    buf: vec![0; headroom + usize::from(fragment.total)],
                });
                self.partial.len() - 1
            }
        };
        let fits = self
            .partial
            .get_mut(at)
            .is_some_and(|p| p.add(fragment, piece, headroom));
        if !fits {
            self.partial.remove(at);
            return Taken::Conflict;
        }
        if self.partial.get(at).is_some_and(|p| p.missing > 0) {
            return Taken::Kept;
        }
        self.partial.remove(at).map_or(Taken::Conflict, |p| Taken::Whole(p.buf))
    }

    /// Gives up packets that have been incomplete for too long.
    pub(crate) fn expire(&mut self, now: u64) {
        while self
            .partial
            .front()
            .is_some_and(|p| now.saturating_sub(p.since) >= EXPIRY)
        {
            self.partial.pop_front();
            self.given_up += 1;
        }
    }

    /// Returns how many packets were given up since the last call.
    pub(crate) fn take_given_up(&mut self) -> u64 {
        std::mem::take(&mut self.given_up)
    }

    /// Returns the number of incomplete packets.
    pub(crate) fn len(&self) -> usize {
        self.partial.len()
    }

    /// The upper bound of [`Reassembly::len`].
    pub(crate) const MAX: usize = MAX_PACKETS;
}

impl Partial {
    /// Copies a piece to its place. Returns false if it does not fit.
    fn add(&mut self, fragment: Fragment, piece: &[u8], headroom: usize) -> bool {
        let (start, len) = (usize::from(fragment.offset), piece.len());
        let overlaps = |(at, l): &(usize, usize)| start < at + l && *at < start + len;
        let same = (fragment.total, fragment.kind) == (self.total, self.kind);
        if !same || self.pieces.len() == Fragment::MAX_PIECES || self.pieces.iter().any(overlaps) {
            return false;
        }
        let Some(room) = self.buf.get_mut(headroom + start..headroom + start + len) else {
            return false;
        };
        room.copy_from_slice(piece);
        self.pieces.push((start, len));
        // Pieces neither overlap nor exceed the packet, so this does not pass below zero.
        self.missing = self.missing.saturating_sub(len);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// The headroom of all tests.
    const ROOM: usize = 3;
    /// The length of packets of the other kind.
    const FULL: u16 = 61;

    fn piece(packet: u32, offset: u16, total: u16) -> Fragment {
        Fragment {
            packet,
            kind: if total == FULL { Kind::Full } else { Kind::Ipv6 },
            offset,
            total,
        }
    }

    /// A packet of the model: keys, number, time of its first piece, total, pieces, and each byte
    /// received.
    type Slow = (u32, u32, u64, u16, usize, BTreeMap<usize, u8>);

    /// The same behaviour, in a slow form: a map of bytes for each packet.
    #[derive(Default)]
    struct Model {
        packets: Vec<Slow>,
    }

    impl Model {
        fn take(&mut self, now: u64, keys: u32, fragment: Fragment, bytes: &[u8]) -> Taken {
            self.packets.retain(|p| now - p.2 < EXPIRY);
            let known = |p: &Slow| (p.0, p.1) == (keys, fragment.packet);
            let at = self.packets.iter().position(known).unwrap_or_else(|| {
                if self.packets.len() == MAX_PACKETS {
                    self.packets.remove(0);
                }
                let begun = (keys, fragment.packet, now, fragment.total, 0, BTreeMap::new());
                self.packets.push(begun);
                self.packets.len() - 1
            });
            let p = &mut self.packets[at];
            let mut good = p.3 == fragment.total && p.4 < Fragment::MAX_PIECES;
            p.4 += 1;
            for (i, byte) in bytes.iter().enumerate() {
                good &= p.5.insert(usize::from(fragment.offset) + i, *byte).is_none();
            }
            if !good {
                self.packets.remove(at);
                return Taken::Conflict;
            }
            if p.5.len() < usize::from(p.3) {
                return Taken::Kept;
            }
            let whole = self.packets.remove(at).5;
            Taken::Whole([0; ROOM].into_iter().chain(whole.into_values()).collect())
        }
    }

    proptest! {
        /// Honest pieces, stray ones, overlaps and floods: the outcome is always that of the slow
        /// model, and the bound holds.
        #[test]
        fn equals_the_slow_model(events in prop::collection::vec(
            (0_u64..900, 0_u32..2, 0_u32..24, 0_u16..6, 1_usize..30, prop_oneof![4 => Just(60_u16), 1 => 30_u16..70]), 0..300,
        )) {
            let (mut fast, mut slow, mut now) = (Reassembly::default(), Model::default(), 0);
            for (n, (pause, keys, packet, slot, len, total)) in events.into_iter().enumerate() {
                now += pause / 100;
                let offset = (slot * 10).min(total - 1);
                let len = len.min(usize::from(total - offset)).min(if n % 3 == 0 { 30 } else { 10 });
                let bytes = vec![n as u8; len];
                let fragment = piece(packet, offset, total);
                prop_assert_eq!(fast.take(now, keys, fragment, &bytes, ROOM), slow.take(now, keys, fragment, &bytes));
                prop_assert!(fast.len() <= MAX_PACKETS && fast.len() == slow.packets.len());
            }
        }

        /// A packet is the same however it is cut and in whatever order its pieces arrive.
        #[test]
        fn any_order_makes_it_whole(content in prop::collection::vec(any::<u8>(), 8..500), cuts in 1_usize..8, seed: u64) {
            let each = content.len().div_ceil(cuts);
            let mut pieces: Vec<_> = content.chunks(each).enumerate().collect();
            let mut state = seed | 1;
            for i in (1..pieces.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                pieces.swap(i, (state >> 33) as usize % (i + 1));
            }
            let mut all = Reassembly::default();
            let mut last = Taken::Kept;
            for (n, bytes) in pieces {
                prop_assert_eq!(&last, &Taken::Kept);
                last = all.take(0, 0, piece(7, (n * each) as u16, content.len() as u16), bytes, ROOM);
            }
            prop_assert_eq!(last, Taken::Whole([&[0; ROOM], &content[..]].concat()));
            prop_assert_eq!(all.len(), 0);
        }
    }

    #[test]
    fn packets_that_are_not_whole_in_time_are_given_up() {
        let mut all = Reassembly::default();
        assert_eq!(all.take(0, 0, piece(1, 0, 10), &[1; 5], ROOM), Taken::Kept);
        all.expire(EXPIRY - 1);
        assert_eq!(all.len(), 1);
        assert_eq!(all.take(EXPIRY, 0, piece(1, 5, 10), &[1; 5], ROOM), Taken::Kept);
        assert_eq!((all.len(), all.take_given_up(), all.take_given_up()), (1, 1, 0));
    }

    #[test]
    fn the_oldest_packet_goes_for_a_new_one_and_is_counted() {
        let mut all = Reassembly::default();
        for packet in 0..=MAX_PACKETS as u32 {
            assert_eq!(all.take(0, 0, piece(packet, 0, 10), &[1; 5], ROOM), Taken::Kept);
        }
        assert_eq!((all.len(), all.take_given_up()), (MAX_PACKETS, 1));
        // Its other piece begins the packet again.
        assert_eq!(all.take(0, 0, piece(0, 5, 10), &[1; 5], ROOM), Taken::Kept);
        assert_eq!(all.take_given_up(), 1);
    }

    #[test]
    fn a_packet_in_too_many_pieces_or_of_two_kinds_is_dropped() {
        let mut all = Reassembly::default();
        for offset in 0..Fragment::MAX_PIECES as u16 {
            assert_eq!(all.take(0, 0, piece(1, offset, 100), &[1], ROOM), Taken::Kept);
        }
        let next = piece(1, Fragment::MAX_PIECES as u16, 100);
        assert_eq!(all.take(0, 0, next, &[1], ROOM), Taken::Conflict);
        assert_eq!(all.take(0, 0, piece(2, 0, FULL), &[1], ROOM), Taken::Kept);
        let other = Fragment {
            kind: Kind::Ipv6,
            ..piece(2, 1, FULL)
        };
        assert_eq!(all.take(0, 0, other, &[1], ROOM), Taken::Conflict);
        assert_eq!(all.len(), 0);
    }
}
