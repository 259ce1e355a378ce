//! What is known about one peer.

use weft_reach::rate::Bucket;

use super::Progress;
use crate::signal::{Answer, Offer};

/// Offers of a peer that are answered at once, and milliseconds until one more is.
pub(super) const ANSWERS: (u64, u64) = (4, 15_000);
/// Milliseconds from an offer to the next one; the last is for all further ones.
pub(super) const PAUSES: [u64; 5] = [10_000, 20_000, 60_000, 120_000, 300_000];
/// Milliseconds for which an unanswered offer of this node goes before one of the peer: as long as
/// two relays and a round trip take.
pub(super) const CROSSING: u64 = 3_000;

/// Milliseconds for which a peer is wanted before the first offer: links over known addresses come
/// sooner, and relays need not hear of them.
pub(super) const GRACE: u64 = 2_000;

/// The state of one peer.
#[derive(Debug)]
pub(super) struct Peer {
    /// It has no direct link, and one is wanted.
    pub(super) wanted: bool,
    /// When the next offer is due.
    pub(super) next: Option<u64>,
    tries: usize,
    /// No offer goes before this time.
    earliest: u64,
    /// The last offer of this node and when it was sent, until its answer has come.
    pub(super) offer: Option<(u64, Offer)>,
    pub(super) answers: Bucket,
    /// The last answer to it. In a session it may get lost, and the peer repeats its offer.
    pub(super) answered: Option<Answer>,
    /// When its newest advert was signed.
    pub(super) advertised: Option<u64>,
    pub(super) progress: Option<Progress>,
    pub(super) skew: Option<i64>,
}

impl Peer {
    pub(super) fn new() -> Self {
        Self {
            wanted: false,
            next: None,
            tries: 0,
            earliest: 0,
            offer: None,
            answers: Bucket::new(ANSWERS.0, ANSWERS.1),
            answered: None,
            advertised: None,
            progress: None,
            skew: None,
        }
    }

    /// It is wanted from now on, or not. If that is news, returns when the first offer is due.
    pub(super) fn want(&mut self, now: u64, wanted: bool) -> Option<Option<u64>> {
        if self.wanted == wanted {
            return None;
        }
        self.wanted = wanted;
        self.tries = 0;
        self.offer = None;
        self.earliest = now + GRACE;
        Some(wanted.then_some(self.earliest))
    }

    /// When an offer may be made: one that was just sent may still be answered.
    pub(super) fn may_offer(&self, now: u64) -> u64 {
        let recent = self.offer.as_ref().map_or(0, |(sent, _)| sent + CROSSING);
        now.max(recent).max(self.earliest)
    }

    /// Something has changed: the next offers come in short intervals again.
    pub(super) fn start_again(&mut self) {
        self.tries = 0;
    }

    /// An offer is sent. Returns when the next one is due.
    pub(super) fn sent(&mut self, now: u64, offer: Offer) -> u64 {
        self.offer = Some((now, offer));
        self.progress = Some(Progress::Offered);
        now + self.pause()
    }

    /// Both have agreed. Returns when the next offer is due, if no link follows.
    pub(super) fn agreed(&mut self, now: u64) -> u64 {
        self.offer = None;
        self.progress = Some(Progress::Agreed);
        now + self.pause().max(2 * PAUSES[0])
    }

    fn pause(&mut self) -> u64 {
        let pause = PAUSES.get(self.tries).or(PAUSES.last()).copied().unwrap_or(0);
        self.tries += 1;
        pause
    }
}
