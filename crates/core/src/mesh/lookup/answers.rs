//! The number of answers that one request may cause, and their senders.

use std::mem::size_of;

use weft_wire::NodeAddr;

/// Maximum number of answers to one request that are forwarded. A target answers once, but a node
/// that does not know its key cannot distinguish a forged answer that arrives first from the true
/// one after it. With a single answer, an attacker that received the request could end every
/// look-up.
const MAX_PASSED: usize = 4;
/// Maximum number of answers to one request that are read.
const MAX_SEEN: usize = 16;

/// The answers to one request so far. FIPS has a flag instead, by which it forwards one answer
/// only.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Number of neighbours that were asked; with zero, no answer is due.
    asked: usize,
    /// The senders of the answers, in order, one entry for each answer.
    senders: Vec<NodeAddr>,
    passed: usize,
    settled: bool,
}

impl Answers {
    /// Returns the state after the request was sent to `asked` neighbours.
    pub(super) fn due_from(asked: usize) -> Self {
        Self {
            asked,
            ..Self::default()
        }
    }

    /// Whether the request was sent to any neighbour.
    pub(super) fn are_due(&self) -> bool {
        self.asked > 0
    }

    /// Whether one of the answers was proven.
    pub(super) fn settled(&self) -> bool {
        self.settled
    }

    /// Whether one more answer may be read. No neighbour has more than a fair share, so that one
    /// with forged answers leaves room for the others. If only one neighbour was asked, it may send
    /// all, because attacker and target may both be behind it.
    pub(super) fn admit(&mut self, from: NodeAddr) -> bool {
        let share = (MAX_PASSED / self.asked.max(1)).max(1);
        let used = self.senders.iter().filter(|sender| **sender == from).count();
        let admitted = !self.settled && self.passed < MAX_PASSED && self.senders.len() < MAX_SEEN && used < share;
        if admitted {
            self.senders.push(from);
        }
        admitted
    }

    /// Records an answer that was good enough to forward. After a proven one no other is forwarded.
    pub(super) fn pass(&mut self, proven: bool) {
        self.passed += 1;
        self.settled |= proven;
    }

    pub(super) fn bytes(&self) -> usize {
        self.senders.capacity() * size_of::<NodeAddr>()
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if self.senders.len() > MAX_SEEN || self.passed > MAX_PASSED {
            return Err(format!("{} answers seen, {} passed", self.senders.len(), self.passed));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(n: u8) -> NodeAddr {
        NodeAddr::new([n; 16])
    }

    #[test]
    fn a_liar_leaves_room_for_the_others() {
        let mut answers = Answers::due_from(2);
        for _ in 0..2 {
            assert!(answers.admit(addr(1)));
            answers.pass(false);
        }
        assert!(!answers.admit(addr(1)));
        assert!(answers.admit(addr(2)));
    }

    #[test]
    fn the_only_one_asked_may_bring_all() {
        let mut answers = Answers::due_from(1);
        for _ in 0..MAX_PASSED {
            assert!(answers.admit(addr(1)));
            answers.pass(false);
        }
        assert!(!answers.admit(addr(1)));
        assert!(!answers.admit(addr(2)));
    }

    #[test]
    fn nothing_follows_a_proven_answer() {
        let mut answers = Answers::due_from(4);
        assert!(answers.admit(addr(1)));
        answers.pass(true);
        assert!(answers.settled());
        assert!(!answers.admit(addr(2)));
    }

    #[test]
    fn forgeries_that_were_found_out_are_bounded_too() {
        let mut answers = Answers::due_from(16);
        let admitted = (0..=255).filter(|n| answers.admit(addr(*n))).count();
        assert_eq!(admitted, MAX_SEEN);
        assert_eq!(answers.check(), Ok(()));
    }
}
