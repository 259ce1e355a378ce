//! One attempt to reach one peer: its token, its messages, its end.

use crate::history::{End, Record, Why};
use crate::message::Token;
use crate::probe::Key;
use crate::round::Round;

/// Milliseconds until an unanswered message is sent again; each further time takes twice as long.
pub(crate) const RESEND: u64 = 1_000;
/// How often it is sent again.
pub(crate) const RESENDS: u32 = 5;
/// Milliseconds for which probes are answered after the end.
pub(crate) const LINGER: u64 = 10_000;
/// Milliseconds for which an attempt that waits for the peer's token keeps others waiting.
pub(crate) const YOUNG: u64 = 2_000;

/// An attempt to reach a peer.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// The token of this node.
    pub(crate) own: Token,
    pub(crate) why: Why,
    started: u64,
    /// The peer has this node's token.
    answered: bool,
    resends: u32,
    resend_at: u64,
    /// Present when the peer's token is.
    pub(crate) round: Option<Round>,
    /// When and how it ended; from then on probes are answered, and none are sent.
    end: Option<(u64, End)>,
    /// [`YOUNG`] has not passed.
    young: bool,
}

/// What is due of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// To send the message again.
    Message,
    /// To ask other nodes where they see the peer.
    Ask,
    /// To decide whether a search begins.
    Search,
    /// To end it.
    End(End),
    /// To forget it.
    Forget,
}

impl Attempt {
    /// Begins an attempt; its message is sent by the caller.
    pub(crate) fn new(now: u64, own: Token, why: Why) -> Self {
        Self {
            own,
            why,
            started: now,
            answered: false,
            resends: 0,
            resend_at: now + RESEND,
            round: None,
            end: None,
            young: true,
        }
    }

    /// An attempt whose key and targets were agreed on elsewhere: no messages belong to it, and no
    /// search.
    pub(crate) fn agreed(now: u64, own: Token, key: Key) -> Self {
        let mut round = Round::new(now, own, key);
        round.search_at = u64::MAX;
        Self {
            answered: true,
            round: Some(round),
            ..Self::new(now, own, Why::Agreed)
        }
    }

    /// Whether it counts among those that run.
    pub(crate) fn holds_place(&self) -> bool {
        self.end.is_none() && (self.round.is_some() || self.young)
    }

    /// Whether probes are sent.
    pub(crate) fn probes(&self) -> bool {
        self.end.is_none() && self.round.is_some()
    }

    /// Whether it ended with an address, on which a link may follow.
    pub(crate) fn has_found(&self) -> bool {
        matches!(self.end, Some((_, End::Found(_))))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// The peer is known to have this node's token.
    pub(crate) fn note_answer(&mut self) {
        self.answered = true;
    }

    /// Ends it, apart from answers to probes. Returns whether there are any to give.
    pub(crate) fn finish(&mut self, now: u64, end: End) -> bool {
        self.end = Some((now, end));
        self.round.is_some()
    }

    /// Returns when [`Attempt::due`] has something.
    pub(crate) fn deadline(&self) -> (u64, &'static str) {
        if let Some((at, _)) = self.end {
            return (at + LINGER, "end of answers");
        }
        let end = (self.last_moment(), "end of attempt");
        let ask = self.round.as_ref().map_or(u64::MAX, |round| round.ask_at);
        let search = self.round.as_ref().map_or(u64::MAX, |round| round.search_at);
        let young = if self.young && self.round.is_none() {
            self.started + YOUNG
        } else {
            u64::MAX
        };
        let resend = if self.answered || self.resends >= RESENDS {
            u64::MAX
        } else {
            self.resend_at
        };
        let first = end.min((young, "place")).min((resend, "candidates"));
        first.min((ask, "sightings")).min((search, "search"))
    }

    /// Returns what is due, and makes what follows of it due later.
    pub(crate) fn due(&mut self, now: u64) -> Option<Due> {
        if let Some((at, _)) = self.end {
            return (now >= at + LINGER).then_some(Due::Forget);
        }
        self.young &= now < self.started + YOUNG;
        if now >= self.last_moment() {
            let end = if self.round.is_some() {
                End::NoAnswer
            } else {
                End::NoReply
            };
            return Some(Due::End(end));
        }
        if let Some(round) = self.round.as_mut().filter(|round| now >= round.ask_at) {
            round.ask_at = u64::MAX;
            return Some(Due::Ask);
        }
        if let Some(round) = self.round.as_mut().filter(|round| now >= round.search_at) {
            round.search_at = u64::MAX;
            return Some(Due::Search);
        }
        if self.answered || self.resends >= RESENDS || now < self.resend_at {
            return None;
        }
        self.resends += 1;
        self.resend_at = now + (RESEND << self.resends);
        Some(Due::Message)
    }

    /// Without the peer's token, the attempt waits as long for an answer to the last message as it
    /// has waited for one to that before.
    fn last_moment(&self) -> u64 {
        match &self.round {
            Some(round) => round.ends(),
            None if self.resends >= RESENDS => self.resend_at,
            None => u64::MAX,
        }
    }

    pub(crate) fn record(&self) -> Record {
        let over = self.end.is_some();
        let tried = self.round.iter().flat_map(|round| round.tried(over));
        Record {
            started: self.started,
            why: self.why,
            end: self.end,
            tried: tried.collect(),
        }
    }
}
