//! The choice between the relays that lead to one peer, by probes over each of them.
//!
//! A session keeps a relayed path that works, because a neighbour can forge what it announces. Only
//! answers of the peer, sealed under the keys of the session, move packets that pass. In a round the
//! path in use and a few others are probed at the same moments, each answer returns over the link that
//! its probe came by, and the path changes if another one is clearly better in two rounds in a row.
//! docs/protocol/behaviour.md, "Choice of relays".

use weft_contract::LinkId;

/// Probes over each path in a round.
const TRIES: u32 = 8;
/// Time between two of them, in ms.
const EVERY: u64 = 150;
/// Time for the last answer, in ms.
const WAIT: u64 = 2_000;
/// Maximum number of paths in a round besides the one in use.
const MAX_OTHERS: usize = 3;
/// Time from the first packets to the first round, in ms. Most sessions become direct before.
const FIRST: u64 = 10_000;
/// Time between a round with a better path and the one that confirms it, in ms.
const CONFIRM: u64 = 1_000;
/// Time between two rounds that change nothing, in ms: at first, and at most. It doubles.
const PAUSE: u64 = 15_000;
const LONGEST_PAUSE: u64 = 240_000;
/// Time after a change of path in which no other one follows, in ms: at first, and how often it
/// doubles at most.
const HOLD: u64 = 15_000;
const MAX_DOUBLED: u32 = 5;
/// Changes of path longer ago than this do not count, in ms.
const FORGET: u64 = 3_600_000;
/// Minimum time between two rounds that a sign of a worse path causes, in ms.
const SIGN_PAUSE: u64 = 10_000;
/// The cost of a path without delay, in ms: a difference below a fifth of this is none.
const FLOOR: u64 = 10;

/// An effect of the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Send a probe with this number over this link; the first one of the round there, or not.
    Probe { link: LinkId, number: u32, first: bool },
    /// The path over this link is better, and will be used if the next round confirms it.
    Favour(LinkId),
    /// The session uses the path over this link from now on.
    Move(LinkId),
}

/// The state of the choice for one session. Times are ms on the caller's clock.
#[derive(Debug)]
pub(crate) struct RelayChoice {
    /// The path in use.
    used: LinkId,
    stage: Stage,
    pause: u64,
    /// The better path of the last round.
    favourite: Option<LinkId>,
    /// When this choice last changed the path, and how many times in a row.
    moved: Option<(u64, u32)>,
    /// When the last round ended, and the round trip of the path in use in it, in ms.
    last: Option<(u64, Option<u64>)>,
    /// Number of rounds. If there are more paths than one round has room for, they take turns by it.
    rounds: usize,
    number: u32,
}

#[derive(Debug)]
enum Stage {
    Waiting(u64),
    Round(Round),
}

/// Probes over several paths at the same moments.
#[derive(Debug)]
struct Round {
    /// The number of its first probe.
    first: u32,
    /// When each try was sent.
    sent: Vec<u64>,
    next: u64,
    /// The path in use is the first.
    candidates: Vec<Candidate>,
}

/// A path in a round.
#[derive(Debug)]
struct Candidate {
    link: LinkId,
    /// The tries that were answered, one bit each.
    answered: u32,
    /// Their round trips, in ms.
    rtts: Vec<u64>,
}

impl Candidate {
    /// Returns the median round trip, in ms, if at least half of the probes were answered.
    fn rtt(&self) -> Option<u64> {
        let mut rtts = self.rtts.clone();
        rtts.sort_unstable();
        let enough = rtts.len() as u32 * 2 >= TRIES;
        rtts.get(rtts.len() / 2).copied().filter(|_| enough)
    }

    /// Returns the cost: the round trip, more for each probe that was lost. `loss` is known from
    /// elsewhere, in thousandths.
    fn cost(&self, loss: u32) -> Option<u64> {
        let arrived = self.rtts.len() as u64 * 1_000 / u64::from(TRIES);
        let arrived = arrived.min(1_000 - u64::from(loss.min(999)));
        Some((FLOOR + self.rtt()?) * 1_000_000 / arrived)
    }
}

impl RelayChoice {
    /// Begins with a session whose packets pass over `used` since `now`.
    pub(crate) fn new(now: u64, used: LinkId) -> Self {
        Self {
            used,
            stage: Stage::Waiting(now + FIRST),
            pause: PAUSE,
            favourite: None,
            moved: None,
            last: None,
            rounds: 0,
            number: 0,
        }
    }

    /// Returns when [`RelayChoice::handle_timeout`] has something to do.
    pub(crate) fn deadline(&self) -> u64 {
        match &self.stage {
            Stage::Waiting(at) => *at,
            Stage::Round(round) => round.next,
        }
    }

    /// Whether probes are under way.
    pub(crate) fn is_probing(&self) -> bool {
        matches!(self.stage, Stage::Round(_))
    }

    /// Handles a change of path that others have made.
    pub(crate) fn handle_used(&mut self, now: u64, used: LinkId) {
        if self.used != used {
            self.used = used;
            self.favourite = None;
            self.last = None;
            self.stage = Stage::Waiting(now + HOLD);
        }
    }

    /// Postpones a round that is due.
    pub(crate) fn postpone(&mut self, now: u64) {
        if !self.is_probing() {
            self.stage = Stage::Waiting(now + CONFIRM);
        }
    }

    /// Handles what the session measures on the path in use: its round trip in ms, and the share of
    /// frames that are lost on the way to the peer, in thousandths. A path that has become worse is
    /// compared soon.
    pub(crate) fn handle_measured(&mut self, now: u64, rtt: Option<u64>, loss: Option<u32>) {
        let (Stage::Waiting(at), Some((ended, before))) = (&mut self.stage, self.last) else {
            return;
        };
        let slower = rtt
            .zip(before)
            .is_some_and(|(rtt, before)| rtt > before + before / 4 + FLOOR);
        let lossy = loss.is_some_and(|loss| loss >= 50);
        let held = self.moved.map_or(0, |(at, times)| at + hold(times));
        if slower || lossy {
            self.pause = PAUSE;
            *at = (*at).min((ended + SIGN_PAUSE).max(held).max(now));
        }
    }

    /// Handles the peer's answer to a probe.
    pub(crate) fn handle_answer(&mut self, now: u64, number: u32) {
        let Stage::Round(round) = &mut self.stage else { return };
        let place = number.wrapping_sub(round.first) as usize;
        let paths = round.candidates.len();
        let (attempt, path) = (place / paths, place % paths);
        let (Some(sent), Some(path)) = (round.sent.get(attempt), round.candidates.get_mut(path)) else {
            return;
        };
        let bit = 1 << attempt;
        if path.answered & bit == 0 {
            path.answered |= bit;
            path.rtts.push(now.saturating_sub(*sent));
        }
        let all = (1 << TRIES) - 1;
        if round.candidates.iter().all(|path| path.answered == all) {
            round.next = now;
        }
    }

    /// Performs what is due. `loss` is the share of frames that are lost on the path in use, in
    /// thousandths, as the session measures it; `others` are the links over which another path may
    /// lead.
    pub(crate) fn handle_timeout(
        &mut self,
        now: u64,
        loss: u32,
        others: impl FnOnce() -> Vec<LinkId>,
        effects: &mut Vec<Effect>,
    ) {
        if now < self.deadline() {
            return;
        }
        if let Stage::Waiting(_) = self.stage {
            let others = others();
            if others.is_empty() {
                return self.wait(now);
            }
            self.stage = Stage::Round(self.round(now, others));
        }
        let Stage::Round(round) = &mut self.stage else { return };
        if round.sent.len() < TRIES as usize {
            let first = round.sent.is_empty();
            for path in &round.candidates {
                let (link, number) = (path.link, self.number);
                effects.push(Effect::Probe { link, number, first });
                self.number = self.number.wrapping_add(1);
            }
            round.sent.push(now);
            let more = round.sent.len() < TRIES as usize;
            round.next = now + if more { EVERY } else { WAIT };
            return;
        }
        self.conclude(now, loss, effects);
    }

    /// Begins a round over the path in use and some of the others.
    fn round(&mut self, now: u64, mut others: Vec<LinkId>) -> Round {
        if others.len() > MAX_OTHERS {
            let turn = self.rounds * MAX_OTHERS % others.len();
            others.rotate_left(turn);
        }
        self.rounds += 1;
        // The favourite is compared again, whatever the turn.
        others.sort_by_key(|link| Some(*link) != self.favourite);
        others.truncate(MAX_OTHERS);
        let links = [self.used].into_iter().chain(others);
        Round {
            first: self.number,
            sent: Vec::new(),
            next: now,
            candidates: links
                .map(|link| Candidate {
                    link,
                    answered: 0,
                    rtts: Vec::new(),
                })
                .collect(),
        }
    }

    fn conclude(&mut self, now: u64, loss: u32, effects: &mut Vec<Effect>) {
        let Stage::Round(round) = std::mem::replace(&mut self.stage, Stage::Waiting(now)) else {
            return;
        };
        let mut candidates = round.candidates.iter();
        let used = candidates.next();
        self.last = Some((now, used.and_then(Candidate::rtt)));
        let present = used.and_then(|path| path.cost(loss)).unwrap_or(u64::MAX);
        let best = candidates.filter_map(|path| Some((path.cost(0)?, path.link))).min();
        let better = best.filter(|(cost, _)| cost.saturating_mul(5) < present.saturating_mul(4));
        match better {
            Some((_, link)) if self.favourite == Some(link) => {
                let times = self.moved.filter(|(at, _)| now.saturating_sub(*at) < FORGET);
                let times = times.map_or(0, |(_, times)| times + 1);
                self.moved = Some((now, times));
                (self.used, self.favourite, self.last, self.pause) = (link, None, None, PAUSE);
                self.stage = Stage::Waiting(now + hold(times));
                effects.push(Effect::Move(link));
            }
            Some((_, link)) => {
                self.favourite = Some(link);
                self.stage = Stage::Waiting(now + CONFIRM);
                effects.push(Effect::Favour(link));
            }
            None => self.wait(now),
        }
    }

    /// Waits for longer than the last time, because nothing is to be changed.
    fn wait(&mut self, now: u64) {
        self.favourite = None;
        self.stage = Stage::Waiting(now + self.pause);
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
    }
}

/// Returns how long no change follows a change, if there were `times` before it, in ms.
fn hold(times: u32) -> u64 {
    HOLD << times.min(MAX_DOUBLED)
}

#[cfg(test)]
mod tests;
