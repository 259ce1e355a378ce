//! The evidence for knowledge about a node, and when it yields to other knowledge.
//!
//! Coordinates and routes are signed by the node, or from an unsigned answer to a request, or from
//! a message in transit. Only the first cannot be forged, and FIPS nodes on the path have no key to
//! verify it with. So a neighbour's statement holds against those of other neighbours for a while:
//! a node that is not on the path cannot redirect traffic that has a route, and a node on it could
//! drop that traffic anyway. A route without answers is avoided at once, see
//! [`suspects`](super::suspects).

use weft_wire::NodeAddr;

/// Time for which a neighbour's statement from a message in transit holds against that of another
/// neighbour, in ms.
pub(crate) const FIRM: u64 = 30_000;
/// Time for which an answer holds against another one, in ms: all answers to one request arrive
/// within that time, and the first took the shortest path. A later request was sent because the
/// path had failed.
pub(crate) const ANSWER_FIRM: u64 = 2_000;

/// The evidence for a statement about a node, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Provenance {
    /// A message in the node's name was received: any node can send one.
    Passing,
    /// An answer to a request that this node had sent or forwarded, but its signature could not be
    /// verified.
    Answer,
    /// The node itself signed it for a request.
    Proven,
}

/// A neighbour's statement, and its provenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// The neighbour that made it.
    pub(crate) teller: NodeAddr,
    /// The evidence for it.
    pub(crate) provenance: Provenance,
}

impl Word {
    /// Whether this statement, made at `at` and not withdrawn, yields to another one at `now`.
    pub(crate) fn yields(self, at: u64, other: Self, now: u64) -> bool {
        let firm = match self.provenance {
            _ if self.teller == other.teller => 0,
            Provenance::Passing => FIRM,
            Provenance::Answer => ANSWER_FIRM,
            Provenance::Proven => 0,
        };
        other.provenance > self.provenance || other.provenance == self.provenance && now.saturating_sub(at) >= firm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(teller: u8, provenance: Provenance) -> Word {
        let teller = NodeAddr::new([teller; 16]);
        Word { teller, provenance }
    }

    #[test]
    fn a_stranger_to_the_way_changes_nothing_until_it_is_old() {
        let (known, other) = (word(1, Provenance::Passing), word(2, Provenance::Passing));
        assert!(!known.yields(1_000, other, 1_000 + FIRM - 1));
        assert!(known.yields(1_000, other, 1_000 + FIRM));
        assert!(known.yields(1_000, word(1, Provenance::Passing), 1_001));
    }

    #[test]
    fn the_first_answer_wins_only_over_others_of_its_request() {
        let (known, other) = (word(1, Provenance::Answer), word(2, Provenance::Answer));
        assert!(!known.yields(1_000, other, 1_000 + ANSWER_FIRM - 1));
        assert!(known.yields(1_000, other, 1_000 + ANSWER_FIRM));
    }

    #[test]
    fn better_grounds_win_at_once_and_worse_ones_never() {
        let grounds = [Provenance::Passing, Provenance::Answer, Provenance::Proven];
        for (i, low) in grounds.into_iter().enumerate() {
            for high in &grounds[i + 1..] {
                assert!(word(1, low).yields(0, word(2, *high), 0));
                assert!(!word(1, *high).yields(0, word(1, low), u64::MAX));
            }
        }
        assert!(word(1, Provenance::Proven).yields(0, word(2, Provenance::Proven), 0));
    }
}
