//! How far we got with a peer, since when, and what stands in the way.

use crate::node::Peer;
use crate::passing::FRESH;
use crate::{Config, PeerState, Standing};

/// Why packets do not pass although keys or a link are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// We send, and nothing authentic comes back.
    NothingComes,
    /// We send, frames of the peer come, and the peer reports that nothing of ours has come to it.
    NothingArrives,
}

/// How a peer stands at one moment. Times are ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) state: PeerState,
    /// The same for people.
    pub(crate) standing: Standing,
    /// And since when there has been no sign to the contrary.
    pub(crate) trouble: Option<(Trouble, u64)>,
    /// When this may change by itself.
    pub(crate) next: u64,
}

impl Look {
    pub(crate) fn at(peer: &Peer, config: &Config, now: u64) -> Self {
        let (link, session) = (&peer.link, &peer.session);
        let targets = link.has_target();
        if peer.paths.path().is_none() {
            let (state, standing) = match (targets, link.failures) {
                (true, 0) => (PeerState::Linking, Standing::Connecting),
                (true, _) => (PeerState::Linking, Standing::Offline),
                (false, _) => (PeerState::Known, Standing::Offline),
            };
            return Self::calm(state, standing);
        }
        let silent_at = match config.mesh && link.trust.is_silent() {
            true => 0,
            false => link.unanswered_at(),
        };
        let silent_at = if link.is_up() { silent_at } else { u64::MAX };
        if !session.is_up() {
            let silent_at = if session.is_relayed() { u64::MAX } else { silent_at };
            let trouble = (now >= silent_at).then_some((Trouble::NothingComes, link.liveness.last_heard()));
            // A way through other nodes is no sign of the peer itself.
            let unsure = trouble.is_some() || session.wanted.is_some() || session.is_relayed();
            return Self {
                state: PeerState::Linked,
                standing: if unsure {
                    Standing::Connecting
                } else {
                    Standing::Connected
                },
                trouble,
                next: later(now, [silent_at]),
            };
        }
        let (passing, heard) = (&session.passing, session.liveness.last_heard());
        let unheard_at = passing.unheard_at(heard);
        let unheard_at = if session.is_relayed() {
            unheard_at
        } else {
            unheard_at.min(silent_at)
        };
        let untold_at = passing.untold_at(session.metrics.srtt().unwrap_or(0));
        let trouble = if now >= unheard_at {
            Some((Trouble::NothingComes, heard.max(session.up_since.unwrap_or(0))))
        } else {
            (now >= untold_at).then_some((Trouble::NothingArrives, passing.told()))
        };
        let held_back = session.requires_fast() && !session.is_fast_any();
        let fresh_until = passing.fresh_until();
        let passes = trouble.is_none() && !held_back && now < fresh_until;
        let (state, standing) = match (passes, trouble.is_some() || held_back) {
            (true, _) => (PeerState::Payload, Standing::Active),
            (false, false) => (PeerState::Session, Standing::Connected),
            (false, true) => (PeerState::Session, Standing::Connecting),
        };
        Self {
            state,
            standing,
            trouble,
            next: later(now, [unheard_at, untold_at, fresh_until]),
        }
    }

    fn calm(state: PeerState, standing: Standing) -> Self {
        Self {
            state,
            standing,
            trouble: None,
            next: u64::MAX,
        }
    }
}

/// The first of these times that is still to come.
fn later<const N: usize>(now: u64, times: [u64; N]) -> u64 {
    times.into_iter().filter(|at| *at > now).min().unwrap_or(u64::MAX)
}

/// The last look at a peer, and since when it has been so.
#[derive(Debug)]
pub(crate) struct Progress {
    state: PeerState,
    since: u64,
    standing: Standing,
    standing_since: u64,
    trouble: Option<Trouble>,
    /// When the next look is due.
    pub(crate) next: u64,
}

impl Progress {
    pub(crate) fn new(now: u64) -> Self {
        Self {
            state: PeerState::Known,
            since: now,
            standing: Standing::Offline,
            standing_since: now,
            trouble: None,
            next: now,
        }
    }

    /// Takes note of a look, and tells the trouble if it is another one than before.
    pub(crate) fn note(&mut self, now: u64, look: &Look) -> Option<Option<Trouble>> {
        self.next = look.next;
        if self.state != look.state {
            (self.state, self.since) = (look.state, now);
        }
        if self.standing != look.standing {
            (self.standing, self.standing_since) = (look.standing, now);
        }
        let trouble = look.trouble.map(|(trouble, _)| trouble);
        (std::mem::replace(&mut self.trouble, trouble) != trouble).then_some(trouble)
    }

    /// Since when the peer has been in the state of `look`, which is later than the last one noted.
    pub(crate) fn since(&self, now: u64, look: &Look) -> u64 {
        if self.state == look.state { self.since } else { now }
    }

    /// Since when its standing is that of `look`.
    pub(crate) fn standing_since(&self, now: u64, look: &Look) -> u64 {
        match self.standing == look.standing {
            true => self.standing_since,
            false => now,
        }
    }
}

const _: () = assert!(FRESH < 10_000, "a dead direction leaves the state within 10 s");
