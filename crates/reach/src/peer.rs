//! What is known about one peer.

use std::collections::VecDeque;
use std::net::SocketAddr;

use weft_wire::NodeAddr;

use crate::attempt::Attempt;
use crate::history::{Record, Why};
use crate::message::Token;
use crate::nat::Mappings;
use crate::rate::Bucket;

/// Milliseconds from a failed attempt to the next one; the last is for all further ones.
pub(crate) const AGAIN: [u64; 3] = [30_000, 120_000, 600_000];
/// Attempts that changes here, or the peer, may cause at once.
pub(crate) const STARTS: u64 = 6;
/// Milliseconds until one more may be caused.
pub(crate) const START_INTERVAL: u64 = 10_000;
/// Messages of a peer that are read at once.
pub(crate) const MESSAGES: u64 = 16;
/// Milliseconds until one more is read.
pub(crate) const MESSAGE_INTERVAL: u64 = 1_000;
/// Nodes whose word on where a peer is seen is remembered, and for how many milliseconds.
const SEEN: usize = 8;
const SEEN_LIFE: u64 = 3_600_000;
/// Tokens that the peer has replaced and that are remembered.
const STALE: usize = 4;

/// How a peer is reached, as its caller knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Through relays: a direct path is wanted.
    Relayed,
    /// Over a link with this address: nothing is wanted, and messages of the peer are answered.
    Direct(SocketAddr),
    /// Not at all: all that is known about it is to be forgotten.
    Gone,
}

/// An address under which another node sees the peer.
#[derive(Clone, Copy, Debug)]
struct Seen {
    by: NodeAddr,
    at: SocketAddr,
    now: u64,
}

/// The state of one peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) direct: bool,
    pub(crate) attempt: Option<Attempt>,
    /// The attempt before, when it has ended.
    pub(crate) last: Option<Record>,
    /// When the next attempt begins, and why.
    pub(crate) next: Option<(u64, Why)>,
    /// Its place among those that wait for others to end.
    pub(crate) waits: Option<u64>,
    /// Attempts that failed since the peer became relayed.
    failures: usize,
    /// The peer's token that came last.
    pub(crate) theirs: Option<Token>,
    /// Tokens that came before it: messages with them are old.
    stale: VecDeque<Token>,
    /// The mappings of the peer's NATs, as it said last.
    pub(crate) mappings: Option<Mappings>,
    /// What this node may begin, and the peer.
    pub(crate) own_starts: Bucket,
    pub(crate) peer_starts: Bucket,
    pub(crate) messages: Bucket,
    /// Where neighbours see it, the latest last: by which node, and when.
    seen: Vec<Seen>,
    /// When the last search with it began.
    pub(crate) searched: Option<u64>,
    /// Its deadline in the node's index.
    pub(crate) indexed: u64,
}

impl Peer {
    pub(crate) fn new() -> Self {
        let starts = Bucket::new(STARTS, START_INTERVAL);
        Self {
            direct: true,
            attempt: None,
            last: None,
            next: None,
            waits: None,
            failures: 0,
            theirs: None,
            stale: VecDeque::new(),
            mappings: None,
            own_starts: starts,
            peer_starts: starts,
            messages: Bucket::new(MESSAGES, MESSAGE_INTERVAL),
            seen: Vec::new(),
            searched: None,
            indexed: u64::MAX,
        }
    }

    /// Whether a message with this token was sent before the peer drew its present one.
    pub(crate) fn is_stale(&self, token: Token) -> bool {
        self.stale.contains(&token)
    }

    /// Notes the token that the peer uses from now on.
    pub(crate) fn learn(&mut self, token: Token) {
        if let Some(before) = self.theirs.replace(token).filter(|before| *before != token) {
            self.stale.truncate(STALE - 1);
            self.stale.push_front(before);
        }
    }

    /// Notes where a node sees the peer.
    pub(crate) fn see(&mut self, now: u64, by: NodeAddr, at: SocketAddr) {
        self.seen.retain(|seen| seen.by != by);
        if self.seen.len() >= SEEN {
            self.seen.remove(0);
        }
        self.seen.push(Seen { by, at, now });
    }

    /// Returns where nodes have seen the peer lately, the latest first.
    pub(crate) fn seen(&self, now: u64) -> impl Iterator<Item = SocketAddr> {
        let lately = self.seen.iter().rev().filter(move |seen| now < seen.now + SEEN_LIFE);
        lately.map(|seen| seen.at)
    }

    /// The peer is relayed from now on, or direct.
    pub(crate) fn set_direct(&mut self, now: u64, direct: bool) {
        self.direct = direct;
        self.failures = 0;
        self.next = (!direct).then_some((now, Why::Relayed));
    }

    /// An attempt has ended, and did not make the peer direct yet: another one follows.
    pub(crate) fn try_again(&mut self, now: u64) {
        if self.direct {
            return;
        }
        let pause = AGAIN.get(self.failures).or(AGAIN.last()).copied().unwrap_or(0);
        self.failures += 1;
        self.next = Some((now + pause, Why::Again));
    }

    /// Returns when something is due of the peer itself.
    pub(crate) fn deadline(&self) -> (u64, &'static str) {
        let attempt = self.attempt.as_ref().map_or((u64::MAX, "nothing"), Attempt::deadline);
        let next = self.next.map_or((u64::MAX, "nothing"), |(at, _)| (at, "attempt"));
        attempt.min(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_ten_minutes() {
        let mut peer = Peer::new();
        peer.set_direct(0, false);
        let pauses = [0; 5].map(|_| {
            peer.try_again(1_000);
            peer.next.unwrap().0 - 1_000
        });
        assert_eq!(pauses, [30_000, 120_000, 600_000, 600_000, 600_000]);
        peer.set_direct(5_000, true);
        peer.try_again(5_000);
        assert_eq!(peer.next, None);
    }

    #[test]
    fn replaced_tokens_are_remembered_for_a_while() {
        let token = |n: u8| Token::new([n + 1; 8]).unwrap();
        let mut peer = Peer::new();
        (0..6).for_each(|n| peer.learn(token(n)));
        peer.learn(token(5));
        let stale: Vec<bool> = (0..6).map(|n| peer.is_stale(token(n))).collect();
        assert_eq!(stale, [false, true, true, true, true, false]);
    }
}
