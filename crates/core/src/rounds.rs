//! The moments at which work is done that concerns all peers.

/// The number of peers for which work may be done each millisecond.
const PEERS_PER_MS: usize = 8;
/// The longest time that a timer of a peer waits for those of others, in ms.
const MAX_SLACK: u64 = 50;

/// Rounds of work that concerns all peers.
///
/// With many peers there are many changes, and each may concern all peers. If every change were
/// followed at once, ten thousand peers would cost ten thousand times what a hundred do. So changes
/// are followed in rounds that are the longer apart the more peers there are: with fewer than 16 at
/// once, with ten thousand every 1.25 s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    /// Time between two rounds, in ms.
    every: u64,
}

impl Rounds {
    /// Returns the rounds of a node with so many peers.
    pub(crate) fn of(peers: usize) -> Self {
        let every = (peers / PEERS_PER_MS).max(1) as u64;
        Self { every }
    }

    /// Returns the rounds for the timers of so many peers. Each wake of a thread takes longer than
    /// what most timers ask for, such as a heartbeat, so timers of many peers share one. With 800
    /// peers or more, that is every 50 ms.
    pub(crate) fn of_timers(peers: usize) -> Self {
        let Self { every } = Self::of(peers / 2);
        Self {
            every: every.min(MAX_SLACK),
        }
    }

    /// Returns the first round at `at` or later, in ms.
    pub(crate) fn next(self, at: u64) -> u64 {
        at.checked_next_multiple_of(self.every).unwrap_or(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_peers_wait_for_nothing_and_many_for_each_other() {
        assert_eq!([0, 1, 15].map(|peers| Rounds::of(peers).next(1_001)), [1_001; 3]);
        assert_eq!([1_001, 1_124, 1_125].map(|at| Rounds::of(1_000).next(at)), [1_125; 3]);
        assert_eq!(Rounds::of(10_000).next(1), 1_250);
        assert_eq!(Rounds::of(10_000).next(u64::MAX), u64::MAX);
        assert_eq!(
            [31, 160, 10_000].map(|peers| Rounds::of_timers(peers).next(1_001)),
            [1_001, 1_010, 1_050]
        );
    }
}
