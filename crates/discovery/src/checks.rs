//! Whether peers are there, as far as users have asked lately: when they are asked, and what the
//! silence of one means. Pure; times are ms.
//!
//! An idle session sends nothing, so nothing tells whether its peer is still there. A look at the
//! status asks the peers that were not heard lately ([`Check`](weft_wire::check::Check)), and an answer
//! is awaited for no longer than [`PATIENCE`].

use std::collections::BTreeMap;

use weft_contract::{Bucket, Rate};
use weft_noise::PublicKey;

/// A peer that was heard within this time is not asked.
const FRESH: u64 = 2_000;
/// The interval between two questions to a peer that is silent.
const AGAIN: u64 = 2_000;
/// Time after which a question is repeated once: datagrams get lost.
const REPEAT: u64 = 250;
/// How long an answer may take. A longer round trip is added.
pub const PATIENCE: u64 = 600;
/// Maximum number of peers that are asked at a time.
pub const MAX_ASKED: usize = 64;
/// A peer without an answer that was not heard for this long is offline: two heartbeats of a link.
pub const GONE: u64 = 25_000;

/// Answers to one peer.
const OF_PEER: Rate = Rate {
    per_second: 4,
    burst: 8,
};
/// Answers to all peers.
const ALL: Rate = Rate {
    per_second: 64,
    burst: 128,
};

/// The questions to peers, and the budgets of answers to theirs.
#[derive(Debug)]
pub struct Checks {
    next: u64,
    asked: BTreeMap<PublicKey, Asked>,
    answers: BTreeMap<PublicKey, Bucket>,
    all: Bucket,
}

/// The questions to a peer.
#[derive(Debug)]
struct Asked {
    /// The number of the last question.
    number: u64,
    /// When the first question was sent since the peer was last heard.
    first: u64,
    /// When the last one was.
    last: u64,
    /// Whether it was repeated.
    repeated: bool,
    /// The time that an answer may take.
    patience: u64,
    /// When the peer last answered.
    heard: u64,
}

impl Checks {
    /// `first`: a random number, so that answers cannot be guessed.
    #[must_use]
    pub fn new(first: u64) -> Self {
        Self {
            next: first,
            asked: BTreeMap::new(),
            answers: BTreeMap::new(),
            all: Bucket::new(ALL, 0),
        }
    }

    /// Returns the number of a question to a peer, if one is due. `heard`: when something of it was last
    /// received; `rtt`: the round trip to it, if that is known.
    pub fn ask(&mut self, now: u64, peer: PublicKey, heard: u64, rtt: Option<u64>) -> Option<u64> {
        let before = self.asked.get(&peer);
        let heard = before.map_or(heard, |asked| asked.heard.max(heard));
        let is_due = now.saturating_sub(heard) >= FRESH
            && before.is_none_or(|asked| now.saturating_sub(asked.last) >= AGAIN)
            && (before.is_some() || self.asked.len() < MAX_ASKED);
        if !is_due {
            return None;
        }
        let first = before.map(|asked| asked.first).filter(|first| *first > heard);
        let number = self.number();
        let asked = Asked {
            number,
            first: first.unwrap_or(now),
            last: now,
            repeated: false,
            patience: PATIENCE + 2 * rtt.unwrap_or(0).min(1_000),
            heard,
        };
        self.asked.insert(peer, asked);
        Some(number)
    }

    /// A number for another question.
    pub const fn number(&mut self) -> u64 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    /// Returns the questions that are to be repeated now.
    pub fn repeat(&mut self, now: u64) -> Vec<(PublicKey, u64)> {
        let due = self.asked.iter_mut().filter(|(_, asked)| {
            let open = asked.heard < asked.first && !asked.repeated;
            open && now.saturating_sub(asked.last) >= REPEAT
        });
        due.map(|(peer, asked)| {
            asked.repeated = true;
            (*peer, asked.number)
        })
        .collect()
    }

    /// Handles an answer. Returns false if it answers no question.
    pub fn handle_answer(&mut self, now: u64, peer: &PublicKey, number: u64) -> bool {
        match self.asked.get_mut(peer) {
            Some(asked) if asked.number == number => {
                asked.heard = now;
                true
            }
            _ => false,
        }
    }

    /// Whether a question of a peer is answered.
    pub fn may_answer(&mut self, now: u64, peer: PublicKey) -> bool {
        if !self.answers.contains_key(&peer) {
            self.answers.retain(|_, budget| !budget.is_full(OF_PEER, now));
        }
        let own = self.answers.entry(peer).or_insert_with(|| Bucket::new(OF_PEER, now));
        own.take(OF_PEER, now, 1) == 1 && self.all.take(ALL, now, 1) == 1
    }

    /// When a peer was last heard that the core heard at `heard`.
    #[must_use]
    pub fn heard(&self, peer: &PublicKey, heard: u64) -> u64 {
        self.asked.get(peer).map_or(heard, |asked| asked.heard.max(heard))
    }

    /// Returns for how long a peer has been asked without an answer; `None` while one may still come.
    /// `heard`: when something of it was last received.
    #[must_use]
    pub fn silence(&self, now: u64, peer: &PublicKey, heard: u64) -> Option<u64> {
        let asked = self.asked.get(peer)?;
        let silent = now.saturating_sub(asked.first);
        (asked.first > asked.heard.max(heard) && silent >= asked.patience).then_some(silent)
    }

    /// When the next question is to be repeated, or the wait for an answer ends. `u64::MAX` if no answer
    /// is awaited.
    #[must_use]
    pub fn timeout(&self, now: u64) -> u64 {
        let open = self.asked.values().filter(|asked| asked.heard < asked.first);
        let due = open.flat_map(|asked| {
            let repeat = (!asked.repeated).then_some(asked.last + REPEAT);
            let patience = asked.first + asked.patience;
            repeat.into_iter().chain((patience > now).then_some(patience))
        });
        due.min().unwrap_or(u64::MAX)
    }

    /// Whether an answer may still come within the patience for it.
    #[must_use]
    pub fn awaits(&self, now: u64) -> bool {
        let open = |asked: &Asked| asked.heard < asked.first && now < asked.first + asked.patience;
        self.asked.values().any(open)
    }

    /// Forgets the questions to a peer.
    pub fn forget(&mut self, peer: &PublicKey) {
        self.asked.remove(peer);
    }

    /// Forgets the peers that were not asked for a while, and those that `is_peer` does not name.
    pub fn retain(&mut self, now: u64, is_peer: impl Fn(&PublicKey) -> bool) {
        self.asked
            .retain(|peer, asked| is_peer(peer) && now.saturating_sub(asked.last) < GONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> PublicKey {
        weft_noise::SecretKey::from_bytes(&[byte; 32]).unwrap().public()
    }

    #[test]
    fn a_silent_peer_is_asked_and_its_silence_grows() {
        let mut checks = Checks::new(7);
        assert_eq!(checks.ask(1_500, key(1), 1_000, None), None, "it was heard just now");
        assert_eq!(checks.ask(10_000, key(1), 1_000, None), Some(8));
        assert!(checks.awaits(10_000));
        assert_eq!(checks.ask(10_100, key(1), 1_000, None), None);
        assert_eq!(checks.timeout(10_100), 10_250);
        assert_eq!(checks.repeat(10_249), []);
        assert_eq!(checks.repeat(10_250), [(key(1), 8)]);
        assert_eq!(checks.repeat(10_300), []);
        assert_eq!(checks.timeout(10_300), 10_600);
        assert_eq!(checks.silence(10_599, &key(1), 1_000), None);
        assert_eq!(checks.silence(10_600, &key(1), 1_000), Some(600));
        assert!(!checks.awaits(10_600));
        assert_eq!(checks.timeout(10_600), u64::MAX);
        assert_eq!(checks.ask(12_000, key(1), 1_000, None), Some(9));
        assert!(!checks.awaits(12_000), "a look waits for a silent peer once");
        assert_eq!(checks.silence(13_000, &key(1), 1_000), Some(3_000));
        // Anything authentic ends it.
        assert_eq!(checks.silence(13_000, &key(1), 12_500), None);
    }

    #[test]
    fn an_answer_counts_for_its_question_alone() {
        let mut checks = Checks::new(u64::MAX);
        assert_eq!(checks.ask(10_000, key(1), 0, Some(100)), Some(0));
        assert!(!checks.handle_answer(10_100, &key(1), 1));
        assert!(!checks.handle_answer(10_100, &key(2), 0));
        assert_eq!(checks.silence(10_700, &key(1), 0), None, "the round trip is added");
        assert_eq!(checks.silence(10_800, &key(1), 0), Some(800));
        assert!(checks.handle_answer(10_800, &key(1), 0));
        assert_eq!(checks.silence(10_900, &key(1), 0), None);
        assert_eq!(checks.heard(&key(1), 5), 10_800);
        assert_eq!(checks.ask(12_000, key(1), 0, None), None);
        assert_eq!(checks.ask(12_800, key(1), 0, None), Some(1));
        checks.retain(12_900, |peer| *peer != key(1));
        assert_eq!(checks.heard(&key(1), 5), 5);
    }

    #[test]
    fn questions_and_answers_are_bounded() {
        let mut checks = Checks::new(0);
        let asked = (0..200).filter(|n| checks.ask(10_000, key(n + 1), 0, None).is_some());
        assert_eq!(asked.count(), MAX_ASKED);
        let answered = (0..10_000).filter(|n| checks.may_answer(20_000 + n, key(1)));
        assert_eq!(answered.count(), 8 + 39);
        let floods = (0..100_000).filter(|n| checks.may_answer(50_000 + n / 10, key((n % 250) as u8 + 1)));
        assert!(floods.count() <= 128 + 640);
        checks.may_answer(1_000_000, key(251));
        assert!(checks.answers.len() <= 2, "full budgets are forgotten");
    }
}
