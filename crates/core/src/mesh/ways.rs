//! The neighbour on the route to a node, as learned from answers and from messages in transit (L11,
//! "reply-learned routes").

use std::collections::BTreeMap;
use std::mem::size_of;

use weft_wire::NodeAddr;

use super::ground::{Ground, Word};

/// Maximum number of nodes with a route.
pub(crate) const MAX_WAYS: usize = 4096;
/// Time for which a route is used without confirmation, in ms. FIPS keeps coordinates for as long.
const LIFE: u64 = 300_000;

/// Minimum time between two evictions for the sake of a message in transit, in ms.
const PURGE_PAUSE: u64 = 100;

/// Routes by destination, and the time of the last eviction. Times are ms on the caller's clock.
#[derive(Debug, Default)]
pub(crate) struct Ways(BTreeMap<NodeAddr, Way>, u64);

#[derive(Debug)]
struct Way {
    /// The statement; the neighbour that made it is the next hop.
    word: Word,
    /// When it was last confirmed.
    at: u64,
    /// The neighbour that last forwarded a message of the node, if it is another one, and when. Any
    /// node can send such a message, so it is used only if there is no better route.
    back: Option<(NodeAddr, u64)>,
}

impl Ways {
    /// Learns a neighbour's statement that it leads to `dest`. A route with a stronger ground
    /// stays.
    pub(crate) fn learn(&mut self, now: u64, dest: NodeAddr, word: Word) {
        let Some(way) = self.0.get_mut(&dest) else {
            if self.make_room(now, word) {
                self.0.insert(
                    dest,
                    Way {
                        word,
                        at: now,
                        back: None,
                    },
                );
            }
            return;
        };
        if now >= way.at + LIFE || way.word.yields(way.at, word, now) {
            *way = Way {
                word,
                at: now,
                back: None,
            };
        } else if way.word.teller == word.teller {
            way.at = now;
        } else {
            way.back = Some((word.teller, now));
        }
    }

    /// Returns the neighbour over which the latest message of `dest` was received, if that is not
    /// the route.
    pub(crate) fn back_to(&self, now: u64, dest: &NodeAddr) -> Option<NodeAddr> {
        let (via, at) = self.0.get(dest)?.back?;
        (now < at + LIFE).then_some(via)
    }

    /// Returns the next hop to `dest`, and the ground of the route.
    pub(crate) fn to(&self, now: u64, dest: &NodeAddr) -> Option<(NodeAddr, Ground)> {
        let way = self.0.get(dest).filter(|way| now < way.at + LIFE)?;
        Some((way.word.teller, way.word.ground))
    }

    /// Forgets all routes through a neighbour that is gone.
    pub(crate) fn forget_through(&mut self, neighbour: &NodeAddr) {
        self.0.retain(|_, way| way.word.teller != *neighbour);
        for way in self.0.values_mut() {
            way.back.take_if(|(via, _)| via == neighbour);
        }
    }

    /// Returns the memory in use, in bytes, estimated.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len() * size_of::<(NodeAddr, Way)>()
    }

    /// Checks that the number of routes is bounded.
    ///
    /// # Errors
    ///
    /// The broken invariant, in words.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        match self.0.len() {
            0..=MAX_WAYS => Ok(()),
            many => Err(format!("{many} ways")),
        }
    }

    /// Returns whether one more route fits, after expired ones are removed. Routes from messages in
    /// transit make room for answers and proofs, and those of the neighbour with the most of them
    /// for those of others.
    fn make_room(&mut self, now: u64, word: Word) -> bool {
        if self.0.len() < MAX_WAYS {
            return true;
        }
        // Otherwise each message of a flood would search all of them.
        if word.ground == Ground::Passing && now < self.1.saturating_add(PURGE_PAUSE) {
            return false;
        }
        self.1 = now;
        self.0.retain(|_, way| now < way.at + LIFE);
        if self.0.len() >= MAX_WAYS {
            let mut told: BTreeMap<NodeAddr, Vec<u64>> = BTreeMap::new();
            for way in self.0.values().filter(|way| way.word.ground == Ground::Passing) {
                told.entry(way.word.teller).or_default().push(way.at);
            }
            let most = told.into_iter().max_by_key(|(_, times)| times.len());
            let Some((teller, mut times)) =
                most.filter(|(teller, _)| *teller != word.teller || word.ground > Ground::Passing)
            else {
                return false;
            };
            // Half of them at once, so that this is rare.
            let middle = times.len() / 2;
            let (_, median, _) = times.select_nth_unstable(middle);
            let median = *median;
            let passing = Word {
                teller,
                ground: Ground::Passing,
            };
            self.0.retain(|_, way| way.word != passing || way.at > median);
        }
        self.0.len() < MAX_WAYS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(n: u16) -> NodeAddr {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&n.to_be_bytes());
        NodeAddr::new(bytes)
    }

    fn word(teller: u16, ground: Ground) -> Word {
        let teller = addr(teller);
        Word { teller, ground }
    }

    #[test]
    fn a_forged_source_does_not_move_a_way() {
        let mut ways = Ways::default();
        ways.learn(0, addr(9), word(1, Ground::Answer));
        ways.learn(1, addr(9), word(2, Ground::Passing));
        assert_eq!(ways.to(1, &addr(9)), Some((addr(1), Ground::Answer)));
        // After its whole life without confirmation, any other route is better.
        ways.learn(LIFE, addr(9), word(2, Ground::Passing));
        assert_eq!(ways.to(LIFE, &addr(9)), Some((addr(2), Ground::Passing)));
    }

    #[test]
    fn traffic_confirms_the_way_that_it_comes_by() {
        let mut ways = Ways::default();
        ways.learn(0, addr(9), word(1, Ground::Answer));
        ways.learn(LIFE - 1, addr(9), word(1, Ground::Passing));
        assert_eq!(ways.to(LIFE, &addr(9)), Some((addr(1), Ground::Answer)));
        assert_eq!(ways.to(2 * LIFE - 1, &addr(9)), None);
    }

    #[test]
    fn a_message_by_another_way_tells_the_way_back_and_no_more() {
        let mut ways = Ways::default();
        ways.learn(0, addr(9), word(1, Ground::Answer));
        assert_eq!(ways.back_to(0, &addr(9)), None);
        ways.learn(1, addr(9), word(2, Ground::Passing));
        assert_eq!(ways.to(1, &addr(9)), Some((addr(1), Ground::Answer)));
        assert_eq!(ways.back_to(LIFE, &addr(9)), Some(addr(2)));
        assert_eq!(ways.back_to(1 + LIFE, &addr(9)), None);
        ways.forget_through(&addr(2));
        assert_eq!(ways.back_to(1, &addr(9)), None);
    }

    #[test]
    fn a_flood_of_sources_is_bounded_and_leaves_what_is_there() {
        let mut ways = Ways::default();
        ways.learn(0, addr(9), word(1, Ground::Proven));
        for n in 100..10_000 {
            ways.learn(1, addr(n), word(2, Ground::Passing));
        }
        assert_eq!(ways.check_invariants(), Ok(()));
        assert_eq!(ways.to(1, &addr(9)), Some((addr(1), Ground::Proven)));
        // There is room for statements of others, and also for answers of the attacker.
        ways.learn(PURGE_PAUSE + 1, addr(8), word(3, Ground::Passing));
        assert_eq!(ways.to(PURGE_PAUSE + 1, &addr(8)), Some((addr(3), Ground::Passing)));
        for n in 10_000..20_000 {
            ways.learn(300, addr(n), word(2, Ground::Passing));
        }
        ways.learn(300, addr(7), word(2, Ground::Answer));
        assert_eq!(ways.to(300, &addr(7)), Some((addr(2), Ground::Answer)));
        assert_eq!(ways.to(300, &addr(8)), Some((addr(3), Ground::Passing)));
        ways.forget_through(&addr(3));
        ways.forget_through(&addr(2));
        assert_eq!(ways.bytes(), size_of::<(NodeAddr, Way)>());
    }

    /// A full table. Neighbour 2 reports each route in transit, the first at `at` and each further
    /// one `step` ms later.
    fn full(at: u64, step: u64) -> Ways {
        let mut ways = Ways::default();
        for n in 0..MAX_WAYS as u64 {
            let now = at + n * step;
            ways.learn(now, addr(n as u16), word(2, Ground::Passing));
            assert!(ways.to(now, &addr(n as u16)).is_some(), "there is room");
        }
        ways
    }

    #[test]
    fn more_ways_than_there_may_be_break_an_invariant() {
        let mut ways = full(1_000, 0);
        assert_eq!(ways.check_invariants(), Ok(()));
        let (word, at, back) = (word(2, Ground::Passing), 1_000, None);
        ways.0.insert(addr(u16::MAX), Way { word, at, back });
        assert!(ways.check_invariants().is_err());
    }

    #[test]
    fn a_neighbour_does_not_push_out_its_own_words_in_passing() {
        let mut ways = full(1_000, 0);
        ways.learn(2_000, addr(u16::MAX), word(2, Ground::Passing));
        assert_eq!(ways.to(2_000, &addr(u16::MAX)), None);
        assert_eq!(ways.0.len(), MAX_WAYS);
    }

    #[test]
    fn ways_that_nobody_believes_any_more_make_room_for_all() {
        for (now, learned) in [(LIFE - 1, false), (LIFE, true)] {
            let mut ways = full(1_000, 0);
            ways.learn(1_000 + now, addr(u16::MAX), word(2, Ground::Passing));
            assert_eq!(ways.to(1_000 + now, &addr(u16::MAX)).is_some(), learned);
            assert_eq!(ways.0.len(), if learned { 1 } else { MAX_WAYS });
        }
    }

    #[test]
    fn the_older_half_of_what_the_loudest_neighbour_told_makes_room() {
        let mut ways = full(1_000, 1);
        ways.learn(9_000, addr(u16::MAX), word(3, Ground::Passing));
        assert_eq!(ways.to(9_000, &addr(u16::MAX)), Some((addr(3), Ground::Passing)));
        assert_eq!(ways.0.len(), MAX_WAYS / 2);
        assert!(ways.to(9_000, &addr(0)).is_none(), "the oldest");
        assert!(ways.to(9_000, &addr(MAX_WAYS as u16 - 1)).is_some(), "the latest");
    }

    #[test]
    fn room_is_made_for_words_in_passing_again_after_a_pause() {
        for (pause, learned) in [(PURGE_PAUSE - 1, false), (PURGE_PAUSE, true), (2 * PURGE_PAUSE, true)] {
            let mut ways = full(1_000, 0);
            ways.learn(2_000, addr(u16::MAX), word(2, Ground::Passing));
            ways.learn(2_000 + pause, addr(u16::MAX), word(3, Ground::Passing));
            assert_eq!(ways.to(2_000 + pause, &addr(u16::MAX)).is_some(), learned, "{pause} ms");
        }
    }
}
