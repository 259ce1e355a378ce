//! The stage that the connection with a peer has reached, since when, and what keeps it from going
//! further.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::node::Peer;
use crate::passing::FRESH;
use crate::{Config, PeerState, Standing};

/// The reason why packets do not pass although there are keys or a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TroubleKind")]
#[serde(rename_all = "kebab-case")]
pub enum Trouble {
    /// This node sends, and receives nothing authentic in return.
    NothingComes,
    /// This node sends and receives frames of the peer, but the peer reports that nothing of this
    /// node has arrived.
    NothingArrives,
}

/// A peer without a path that was heard within this time counts as one that is being connected to, in
/// ms.
const LOST: u64 = 3_000;

/// The state of a peer at one moment. Times are ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) state: PeerState,
    /// The summary for users.
    pub(crate) standing: Standing,
    /// The trouble, and the time of the last sign to the contrary.
    pub(crate) trouble: Option<(Trouble, u64)>,
    /// When this may change with time alone.
    pub(crate) next: u64,
}

impl Look {
    pub(crate) fn at(peer: &Peer, config: &Config, now: u64) -> Self {
        let (link, session) = (&peer.link, &peer.session);
        let targets = link.has_target();
        if peer.paths.path().is_none() {
            let lost_at = match session.is_up() {
                true => session.liveness.last_heard().saturating_add(LOST),
                false => 0,
            };
            let (state, standing) = match (targets, link.failures) {
                (true, 0) => (PeerState::Linking, Standing::Connecting),
                (true, _) => (PeerState::Linking, Standing::Offline),
                // Its path has just ended, and another one is looked for.
                (false, _) if now < lost_at => (PeerState::Known, Standing::Connecting),
                (false, _) => (PeerState::Known, Standing::Offline),
            };
            return Self {
                next: later(now, [lost_at]),
                ..Self::calm(state, standing)
            };
        }
        let silent_at = match config.mesh && link.health.is_silent() {
            true => 0,
            false => link.unanswered_at(),
        };
        let silent_at = if link.is_up() { silent_at } else { u64::MAX };
        if !session.is_up() {
            let silent_at = if session.is_relayed() { u64::MAX } else { silent_at };
            let trouble = (now >= silent_at).then_some((Trouble::NothingComes, link.liveness.last_heard()));
            // A path through other nodes is not a sign of the peer itself.
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

    /// Whether packets can pass.
    fn is_online(&self) -> bool {
        self.standing >= Standing::Connected
    }

    /// Whether a path is left and the idle session has ended. An idle peer may be there all the time.
    fn rests(&self) -> bool {
        self.state == PeerState::Linked && self.trouble.is_none()
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

/// Returns the first of these times that is in the future.
fn later<const N: usize>(now: u64, times: [u64; N]) -> u64 {
    times.into_iter().filter(|at| *at > now).min().unwrap_or(u64::MAX)
}

/// The last noted state of a peer, and since when it has been so.
#[derive(Debug)]
pub(crate) struct Progress {
    state: PeerState,
    since: u64,
    standing: Standing,
    standing_since: u64,
    /// Since when it could be reached, also while its session rests.
    online_since: Option<u64>,
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
            online_since: None,
            trouble: None,
            next: now,
        }
    }

    /// Records a look, and returns the trouble if it has changed.
    pub(crate) fn note(&mut self, now: u64, look: &Look) -> Option<Option<Trouble>> {
        self.next = look.next;
        if self.state != look.state {
            (self.state, self.since) = (look.state, now);
        }
        if self.standing != look.standing {
            (self.standing, self.standing_since) = (look.standing, now);
        }
        if look.is_online() {
            self.online_since.get_or_insert(now);
        } else if !look.rests() {
            self.online_since = None;
        }
        let trouble = look.trouble.map(|(trouble, _)| trouble);
        (std::mem::replace(&mut self.trouble, trouble) != trouble).then_some(trouble)
    }

    /// Returns since when the peer has been in the state of `look`, which is later than the last
    /// one recorded.
    pub(crate) fn since(&self, now: u64, look: &Look) -> u64 {
        if self.state == look.state { self.since } else { now }
    }

    /// Returns since when it could be reached, without a sign of the contrary since; `None` if it cannot be.
    pub(crate) fn online_since(&self, now: u64, look: &Look) -> Option<u64> {
        look.is_online().then(|| self.online_since.unwrap_or(now))
    }

    /// Returns since when its standing is that of `look`.
    pub(crate) fn standing_since(&self, now: u64, look: &Look) -> u64 {
        match self.standing == look.standing {
            true => self.standing_since,
            false => now,
        }
    }
}

const _: () = assert!(FRESH < 10_000, "a dead direction leaves the state within 10 s");
