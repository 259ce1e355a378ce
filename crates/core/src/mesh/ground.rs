//! What knowledge about a node rests on, and when it yields to other knowledge.
//!
//! Coordinates and ways come signed by the node, as an unsigned answer to a request, or in passing. Only the first
//! cannot be made up, and FIPS nodes on the way have no key to check it with. So what a neighbour says stands against
//! what other neighbours say for a while: a node that is not on the way cannot move traffic that has one, and a node on
//! it could drop that traffic anyway. What brings no answer is passed over at once, see [`doubts`](super::doubts).

use weft_wire::NodeAddr;

/// How long what one neighbour said in passing stands against what another says in passing, ms.
pub(crate) const FIRM: u64 = 30_000;
/// How long an answer stands against another one, ms: all answers to one request come within that, and the first is
/// from the shortest way. A later request was sent because the way had failed.
pub(crate) const ANSWER_FIRM: u64 = 2_000;

/// How something about a node became known, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ground {
    /// A message in the node's name came by: any node can send one.
    Passing,
    /// It answered a request that we had sent or passed on, but its signature could not be checked.
    Answer,
    /// The node itself signed it for a request.
    Proven,
}

/// A neighbour's word, and what it rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// The neighbour that said it.
    pub(crate) teller: NodeAddr,
    /// What it rests on.
    pub(crate) ground: Ground,
}

impl Word {
    /// Whether this word, given at `at` and not withdrawn, yields to another one at `now`.
    pub(crate) fn yields(self, at: u64, other: Self, now: u64) -> bool {
        let firm = match self.ground {
            _ if self.teller == other.teller => 0,
            Ground::Passing => FIRM,
            Ground::Answer => ANSWER_FIRM,
            Ground::Proven => 0,
        };
        other.ground > self.ground || other.ground == self.ground && now.saturating_sub(at) >= firm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(teller: u8, ground: Ground) -> Word {
        let teller = NodeAddr::new([teller; 16]);
        Word { teller, ground }
    }

    #[test]
    fn a_stranger_to_the_way_changes_nothing_until_it_is_old() {
        let (known, other) = (word(1, Ground::Passing), word(2, Ground::Passing));
        assert!(!known.yields(1_000, other, 1_000 + FIRM - 1));
        assert!(known.yields(1_000, other, 1_000 + FIRM));
        assert!(known.yields(1_000, word(1, Ground::Passing), 1_001));
    }

    #[test]
    fn the_first_answer_stands_against_the_others_of_its_request_alone() {
        let (known, other) = (word(1, Ground::Answer), word(2, Ground::Answer));
        assert!(!known.yields(1_000, other, 1_000 + ANSWER_FIRM - 1));
        assert!(known.yields(1_000, other, 1_000 + ANSWER_FIRM));
    }

    #[test]
    fn better_grounds_win_at_once_and_worse_ones_never() {
        let grounds = [Ground::Passing, Ground::Answer, Ground::Proven];
        for (i, low) in grounds.into_iter().enumerate() {
            for high in &grounds[i + 1..] {
                assert!(word(1, low).yields(0, word(2, *high), 0));
                assert!(!word(1, *high).yields(0, word(1, low), u64::MAX));
            }
        }
        assert!(word(1, Ground::Proven).yields(0, word(2, Ground::Proven), 0));
    }
}
