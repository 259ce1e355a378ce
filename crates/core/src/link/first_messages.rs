//! First handshake messages of links that were answered: a copy receives the same answer and a
//! replay none, at the cost of a look-up.

use std::collections::{BTreeMap, VecDeque};

use weft_contract::LinkId;
use weft_wire::fmp::NOISE_MSG1_LEN;

/// Spent messages that are kept of each peer. If the two ends take turns and rekey every two
/// minutes, these are the messages of eight hours.
const MAX_SPENT: usize = 128;

/// The key of a message: the start of its ephemeral key. Its parity byte is left out, because the
/// keys do not depend on it.
pub(crate) type Mark = u64;

/// The state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// This link answered it, and its sender may not have received the answer.
    Answered(LinkId),
    /// Its sender received the answer, or has given up long ago: the message is a replay.
    Spent,
}

/// The states of the messages that are remembered.
#[derive(Debug, Default)]
pub(crate) struct FirstMessages(BTreeMap<Mark, First>);

impl FirstMessages {
    pub(crate) fn get(&self, noise: &[u8; NOISE_MSG1_LEN]) -> Option<First> {
        self.0.get(&mark(noise)).copied()
    }

    pub(crate) fn note_answered(&mut self, noise: &[u8; NOISE_MSG1_LEN], link: LinkId) {
        self.0.insert(mark(noise), First::Answered(link));
    }

    pub(crate) fn forget(&mut self, noise: &[u8; NOISE_MSG1_LEN]) {
        self.0.remove(&mark(noise));
    }

    pub(crate) fn forget_mark(&mut self, mark: Mark) {
        self.0.remove(&mark);
    }

    /// `of_peer`: the spent messages of its sender, the oldest first.
    pub(crate) fn spend(&mut self, noise: &[u8; NOISE_MSG1_LEN], of_peer: &mut VecDeque<Mark>) {
        let mark = mark(noise);
        if self.0.insert(mark, First::Spent) == Some(First::Spent) {
            return;
        }
        of_peer.push_back(mark);
        if of_peer.len() > MAX_SPENT
            && let Some(oldest) = of_peer.pop_front()
        {
            self.0.remove(&oldest);
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.len()
    }
}

fn mark(noise: &[u8; NOISE_MSG1_LEN]) -> Mark {
    let [_, a, b, c, d, e, f, g, h, ..] = *noise;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(number: u16) -> [u8; NOISE_MSG1_LEN] {
        let mut noise = [0; NOISE_MSG1_LEN];
        noise[1..3].copy_from_slice(&number.to_le_bytes());
        noise
    }

    #[test]
    fn a_message_is_answered_until_it_is_spent() {
        let (mut known, mut of_peer) = (FirstMessages::default(), VecDeque::new());
        assert_eq!(known.get(&message(1)), None);
        known.note_answered(&message(1), LinkId(7));
        assert_eq!(known.get(&message(1)), Some(First::Answered(LinkId(7))));
        known.spend(&message(1), &mut of_peer);
        assert_eq!(known.get(&message(1)), Some(First::Spent));
        let mut flipped = message(1);
        flipped[0] ^= 1;
        assert_eq!(
            known.get(&flipped),
            Some(First::Spent),
            "the parity makes no other keys"
        );
        known.note_answered(&message(2), LinkId(7));
        known.forget(&message(2));
        assert_eq!(known.get(&message(2)), None);
    }

    #[test]
    fn each_peer_has_a_bounded_number_of_spent_ones() {
        let (mut known, mut of_peer) = (FirstMessages::default(), VecDeque::new());
        for number in 0..1_000 {
            known.spend(&message(number), &mut of_peer);
            known.spend(&message(number), &mut of_peer);
        }
        assert_eq!((known.len(), of_peer.len()), (MAX_SPENT, MAX_SPENT));
        assert_eq!(known.get(&message(0)), None);
        assert_eq!(known.get(&message(999)), Some(First::Spent));
    }

    #[test]
    fn a_message_of_a_peer_that_is_forgotten_is_new_again() {
        let (mut known, mut of_peer) = (FirstMessages::default(), VecDeque::new());
        known.spend(&message(1), &mut of_peer);
        known.spend(&message(2), &mut of_peer);
        known.forget_mark(of_peer[0]);
        assert_eq!(
            (known.get(&message(1)), known.get(&message(2))),
            (None, Some(First::Spent))
        );
    }
}
