//! The neighbour on the route to a node, as learned from answers and from messages in transit (L11,
//! "reply-learned routes").

use std::collections::BTreeMap;
use std::mem::size_of;

use weft_wire::NodeAddr;

use super::provenance::{Provenance, Word};

/// Maximum number of nodes with a route.
pub(crate) const MAX_NEXT_HOPS: usize = 4096;
/// Time for which a route is used without confirmation, in ms. FIPS keeps coordinates for as long.
const LIFE: u64 = 300_000;

/// Minimum time between two evictions for the sake of a message in transit, in ms.
const PURGE_PAUSE: u64 = 100;

/// Routes by destination, and the time of the last eviction. Times are ms on the caller's clock.
#[derive(Debug, Default)]
pub(crate) struct NextHops(BTreeMap<NodeAddr, NextHop>, u64);

#[derive(Debug)]
struct NextHop {
    /// The statement; the neighbour that made it is the next hop.
    word: Word,
    /// When it was last confirmed.
    at: u64,
    /// The neighbour that last forwarded a message of the node, if it is another one, and when. Any
    /// node can send such a message, so it is used only if there is no better route.
    back: Option<(NodeAddr, u64)>,
}

impl NextHops {
    /// Learns a neighbour's statement that it leads to `dest`. A route with a stronger provenance
    /// stays.
    pub(crate) fn learn(&mut self, now: u64, dest: NodeAddr, word: Word) {
        let Some(next_hop) = self.0.get_mut(&dest) else {
            if self.make_room(now, word) {
                self.0.insert(
                    dest,
                    NextHop {
                        word,
                        at: now,
                        back: None,
                    },
                );
            }
            return;
        };
        if now >= next_hop.at + LIFE || next_hop.word.yields(next_hop.at, word, now) {
            *next_hop = NextHop {
                word,
                at: now,
                back: None,
            };
        } else if next_hop.word.teller == word.teller {
            next_hop.at = now;
        } else {
            next_hop.back = Some((word.teller, now));
        }
    }

    /// Returns the neighbour over which the latest message of `dest` was received, if that is not
    /// the route.
    pub(crate) fn back_to(&self, now: u64, dest: &NodeAddr) -> Option<NodeAddr> {
        let (via, at) = self.0.get(dest)?.back?;
        (now < at + LIFE).then_some(via)
    }

    /// Returns the next hop to `dest`, and the provenance of the route.
    pub(crate) fn to(&self, now: u64, dest: &NodeAddr) -> Option<(NodeAddr, Provenance)> {
        let next_hop = self.0.get(dest).filter(|next_hop| now < next_hop.at + LIFE)?;
        Some((next_hop.word.teller, next_hop.word.provenance))
    }

    /// Forgets all routes through a neighbour that is gone.
    pub(crate) fn forget_through(&mut self, neighbour: &NodeAddr) {
        self.0.retain(|_, next_hop| next_hop.word.teller != *neighbour);
        for next_hop in self.0.values_mut() {
            next_hop.back.take_if(|(via, _)| via == neighbour);
        }
    }

    /// Returns the memory in use, in bytes, estimated.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len() * size_of::<(NodeAddr, NextHop)>()
    }

    /// Checks that the number of routes is bounded.
    ///
    /// # Errors
    ///
    /// The broken invariant, in words.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        match self.0.len() {
            0..=MAX_NEXT_HOPS => Ok(()),
            many => Err(format!("{many} next hops")),
        }
    }

    /// Returns whether one more route fits, after expired ones are removed. Routes from messages in
    /// transit make room for answers and proofs, and those of the neighbour with the most of them
    /// for those of others.
    fn make_room(&mut self, now: u64, word: Word) -> bool {
        if self.0.len() < MAX_NEXT_HOPS {
            return true;
        }
        // Otherwise each message of a flood would search all of them.
        if word.provenance == Provenance::Passing && now < self.1.saturating_add(PURGE_PAUSE) {
            return false;
        }
        self.1 = now;
        self.0.retain(|_, next_hop| now < next_hop.at + LIFE);
        if self.0.len() >= MAX_NEXT_HOPS {
            let mut told: BTreeMap<NodeAddr, Vec<u64>> = BTreeMap::new();
            for next_hop in self
                .0
                .values()
                .filter(|next_hop| next_hop.word.provenance == Provenance::Passing)
            {
                told.entry(next_hop.word.teller).or_default().push(next_hop.at);
            }
            let most = told.into_iter().max_by_key(|(_, times)| times.len());
            let Some((teller, mut times)) =
                most.filter(|(teller, _)| *teller != word.teller || word.provenance > Provenance::Passing)
            else {
                return false;
            };
            // Half of them at once, so that this is rare.
            let middle = times.len() / 2;
            let (_, median, _) = times.select_nth_unstable(middle);
            let median = *median;
            let passing = Word {
                teller,
                provenance: Provenance::Passing,
            };
            self.0
                .retain(|_, next_hop| next_hop.word != passing || next_hop.at > median);
        }
        self.0.len() < MAX_NEXT_HOPS
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

    fn word(teller: u16, provenance: Provenance) -> Word {
        let teller = addr(teller);
        Word { teller, provenance }
    }

    #[test]
    fn a_forged_source_does_not_move_a_way() {
        let mut next_hops = NextHops::default();
        next_hops.learn(0, addr(9), word(1, Provenance::Answer));
        next_hops.learn(1, addr(9), word(2, Provenance::Passing));
        assert_eq!(next_hops.to(1, &addr(9)), Some((addr(1), Provenance::Answer)));
        // After its whole life without confirmation, any other route is better.
        next_hops.learn(LIFE, addr(9), word(2, Provenance::Passing));
        assert_eq!(next_hops.to(LIFE, &addr(9)), Some((addr(2), Provenance::Passing)));
    }

    #[test]
    fn traffic_confirms_the_way_that_it_comes_by() {
        let mut next_hops = NextHops::default();
        next_hops.learn(0, addr(9), word(1, Provenance::Answer));
        next_hops.learn(LIFE - 1, addr(9), word(1, Provenance::Passing));
        assert_eq!(next_hops.to(LIFE, &addr(9)), Some((addr(1), Provenance::Answer)));
        assert_eq!(next_hops.to(2 * LIFE - 1, &addr(9)), None);
    }

    #[test]
    fn a_message_by_another_way_tells_the_way_back_and_no_more() {
        let mut next_hops = NextHops::default();
        next_hops.learn(0, addr(9), word(1, Provenance::Answer));
        assert_eq!(next_hops.back_to(0, &addr(9)), None);
        next_hops.learn(1, addr(9), word(2, Provenance::Passing));
        assert_eq!(next_hops.to(1, &addr(9)), Some((addr(1), Provenance::Answer)));
        assert_eq!(next_hops.back_to(LIFE, &addr(9)), Some(addr(2)));
        assert_eq!(next_hops.back_to(1 + LIFE, &addr(9)), None);
        next_hops.forget_through(&addr(2));
        assert_eq!(next_hops.back_to(1, &addr(9)), None);
    }

    #[test]
    fn a_flood_of_sources_is_bounded_and_leaves_what_is_there() {
        let mut next_hops = NextHops::default();
        next_hops.learn(0, addr(9), word(1, Provenance::Proven));
        for n in 100..10_000 {
            next_hops.learn(1, addr(n), word(2, Provenance::Passing));
        }
        assert_eq!(next_hops.check_invariants(), Ok(()));
        assert_eq!(next_hops.to(1, &addr(9)), Some((addr(1), Provenance::Proven)));
        // There is room for statements of others, and also for answers of the attacker.
        next_hops.learn(PURGE_PAUSE + 1, addr(8), word(3, Provenance::Passing));
        assert_eq!(
            next_hops.to(PURGE_PAUSE + 1, &addr(8)),
            Some((addr(3), Provenance::Passing))
        );
        for n in 10_000..20_000 {
            next_hops.learn(300, addr(n), word(2, Provenance::Passing));
        }
        next_hops.learn(300, addr(7), word(2, Provenance::Answer));
        assert_eq!(next_hops.to(300, &addr(7)), Some((addr(2), Provenance::Answer)));
        assert_eq!(next_hops.to(300, &addr(8)), Some((addr(3), Provenance::Passing)));
        next_hops.forget_through(&addr(3));
        next_hops.forget_through(&addr(2));
        assert_eq!(next_hops.bytes(), size_of::<(NodeAddr, NextHop)>());
    }

    /// A full table. Neighbour 2 reports each route in transit, the first at `at` and each further
    /// one `step` ms later.
    fn full(at: u64, step: u64) -> NextHops {
        let mut next_hops = NextHops::default();
        for n in 0..MAX_NEXT_HOPS as u64 {
            let now = at + n * step;
            next_hops.learn(now, addr(n as u16), word(2, Provenance::Passing));
            assert!(next_hops.to(now, &addr(n as u16)).is_some(), "there is room");
        }
        next_hops
    }

    #[test]
    fn more_ways_than_there_may_be_break_an_invariant() {
        let mut next_hops = full(1_000, 0);
        assert_eq!(next_hops.check_invariants(), Ok(()));
        let (word, at, back) = (word(2, Provenance::Passing), 1_000, None);
        next_hops.0.insert(addr(u16::MAX), NextHop { word, at, back });
        assert!(next_hops.check_invariants().is_err());
    }

    #[test]
    fn a_neighbour_does_not_push_out_its_own_words_in_passing() {
        let mut next_hops = full(1_000, 0);
        next_hops.learn(2_000, addr(u16::MAX), word(2, Provenance::Passing));
        assert_eq!(next_hops.to(2_000, &addr(u16::MAX)), None);
        assert_eq!(next_hops.0.len(), MAX_NEXT_HOPS);
    }

    #[test]
    fn expired_next_hops_make_room_for_all() {
        for (now, learned) in [(LIFE - 1, false), (LIFE, true)] {
            let mut next_hops = full(1_000, 0);
            next_hops.learn(1_000 + now, addr(u16::MAX), word(2, Provenance::Passing));
            assert_eq!(next_hops.to(1_000 + now, &addr(u16::MAX)).is_some(), learned);
            assert_eq!(next_hops.0.len(), if learned { 1 } else { MAX_NEXT_HOPS });
        }
    }

    #[test]
    fn the_older_half_of_what_the_loudest_neighbour_told_makes_room() {
        let mut next_hops = full(1_000, 1);
        next_hops.learn(9_000, addr(u16::MAX), word(3, Provenance::Passing));
        assert_eq!(
            next_hops.to(9_000, &addr(u16::MAX)),
            Some((addr(3), Provenance::Passing))
        );
        assert_eq!(next_hops.0.len(), MAX_NEXT_HOPS / 2);
        assert!(next_hops.to(9_000, &addr(0)).is_none(), "the oldest");
        assert!(
            next_hops.to(9_000, &addr(MAX_NEXT_HOPS as u16 - 1)).is_some(),
            "the latest"
        );
    }

    #[test]
    fn room_is_made_for_words_in_passing_again_after_a_pause() {
        for (pause, learned) in [(PURGE_PAUSE - 1, false), (PURGE_PAUSE, true), (2 * PURGE_PAUSE, true)] {
            let mut next_hops = full(1_000, 0);
            next_hops.learn(2_000, addr(u16::MAX), word(2, Provenance::Passing));
            next_hops.learn(2_000 + pause, addr(u16::MAX), word(3, Provenance::Passing));
            assert_eq!(
                next_hops.to(2_000 + pause, &addr(u16::MAX)).is_some(),
                learned,
                "{pause} ms"
            );
        }
    }
}
