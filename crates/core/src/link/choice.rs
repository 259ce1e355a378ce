//! The choice among the addresses at which a peer answers: the best one in use, the others warm.
//!
//! A *round* probes the address in use and the others at the same moments, three times, so that their
//! round trips compare. There are two kinds:
//!
//! - An ordinary round runs when an address is new, when either end's network changed, and every 20 s
//!   while payload passes. At its end, the node with the smaller address decides ([`is_better`]): one
//!   end alone decides between addresses that work, as the controlling agent of ICE does (RFC 8445,
//!   section 6.1.1), so that the two never disagree. The other end follows the announcement of a
//!   change of addresses.
//! - An urgent round runs when payload is unanswered. Either end moves as soon as another address has
//!   answered and the one in use has not.
//!
//! Either end may have several uplinks, and with them paths that it wants to use only while no other
//! works: *spare* ones. Its probes of such a path say so. Both ends leave a spare path as soon as another
//! one works, and neither takes one for its round trip. A *narrow* path, on which small frames pass and
//! those that every path has to take do not, is avoided in the same way, and before a spare one. Probes of
//! that size show that it takes them again.
//!
//! A link that has just come up has a path that works. Its other addresses are compared a few seconds
//! later, but for those that promise a better path: local ones, and those through further uplinks. All
//! are compared at once if the neighbour is silent, or if the network of one end changed since.
//!
//! An idle link is not probed, nor one on which a message passes now and then. What goes to an address
//! that has never answered is bounded: one round in 30 s at first, and in 10 min at last.

use std::cmp::Ordering;

use weft_contract::{Endpoint, SocketId};
use weft_wire::address;

use super::paths::Paths;

/// Probes to each address in a round.
const VOLLEYS: u8 = 3;
/// Probes to each address in an urgent round, which ends with the first proof.
const URGENT_VOLLEYS: u8 = 10;
/// The time between two probes of a round, in ms.
const VOLLEY_EVERY: u64 = 200;
/// The time for the answers to the last probes of a round, in ms: two round trips within these bounds.
const MIN_WAIT: u64 = 300;
const MAX_WAIT: u64 = 1_000;
/// The time from one round to the next, in ms.
const PAUSE: u64 = 2_000;
/// The time for which a link that has come up is left alone with its path, in ms.
pub(super) const COMPARE_AFTER: u64 = 5_000;
/// The time between two probes of an address that answers, while payload passes, in ms.
const WARM: u64 = 20_000;
/// Payload within this time counts as passing, in ms.
const RECENT: u64 = 30_000;
/// The time for which payload has to pass before addresses that were probed are probed again, in ms. A
/// message between nodes now and then costs no rounds.
const STEADY: u64 = 2_000;
/// The time between two rounds for an address that does not answer, in ms; doubles each time.
const MIN_RETRY: u64 = 30_000;
pub(super) const MAX_RETRY: u64 = 600_000;
/// The time after which an urgent round without success is repeated, in ms.
const URGENT_AGAIN: u64 = 5_000;
/// Answers in a round that show that an address works.
const ENOUGH: u8 = 2;
/// For how long an address that has failed in use is not preferred again, in ms; doubles with each
/// failure that follows the last within [`PENALTY_MEMORY`].
const MIN_PENALTY: u64 = 5_000;
const MAX_PENALTY: u64 = 320_000;
pub(super) const PENALTY_MEMORY: u64 = 600_000;

/// What a link knows that the choice depends on. Times are ms.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// The address in use.
    pub(super) path: Endpoint,
    /// Whether this node decides between addresses that work.
    pub(super) decides: bool,
    /// The smoothed round trip of the address in use.
    pub(super) srtt: u64,
    /// Until when the link is left alone with its path, but for addresses that promise a better one.
    pub(super) alone_until: u64,
    /// When payload was last sent or received.
    pub(super) payload: u64,
    /// When sent payload will have been unanswered for long enough to look for another address.
    pub(super) unanswered_at: u64,
}

/// What a link has to do for the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Send a probe with this number to this address.
    Probe {
        /// The address.
        to: Endpoint,
        /// A number that no other node can know.
        number: u64,
    },
    /// Send one that is as large as a full frame.
    ProbeFull {
        /// The address.
        to: Endpoint,
        /// A number that no other node can know.
        number: u64,
    },
    /// Use this address from now on.
    Move {
        /// The address.
        to: Endpoint,
    },
}

/// The choice among the paths of one link.
#[derive(Debug)]
pub(super) struct Choice {
    round: Option<Box<Round>>,
    /// No ordinary round begins before, in ms.
    next: u64,
    /// No urgent round begins before, in ms.
    next_urgent: u64,
    /// When an urgent round begins because of a change of the network, in ms.
    look_at: u64,
    /// The network of one end changed since the link came up.
    hurried: bool,
    /// Since when payload has passed without a longer pause than [`RECENT`], in ms.
    passing_since: u64,
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            round: None,
            next: 0,
            next_urgent: 0,
            look_at: u64::MAX,
            hurried: false,
            passing_since: 0,
        }
    }
}

/// What comparing an address with others has shown. Times are ms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compared {
    /// Whether the peer, the user or the LAN named it. Otherwise frames of the peer came from it,
    /// which another party may have forwarded.
    pub(super) named: bool,
    /// Whether this end, and the other one, use it only while no other works.
    pub(super) spare: Ends,
    /// The shortest round trip of the last round with an answer, ms.
    pub(super) rtt: Option<u64>,
    /// Probes of the last whole round with an answer, and those of them that were answered.
    pub(super) probes: Option<(u8, u8)>,
    /// Whether the peer answered there in the last round.
    pub(super) works: bool,
    /// Why it is probed although no payload passes.
    fresh: Option<Fresh>,
    /// Rounds without an answer since the last one with.
    failures: u32,
    /// When it is in an ordinary round again.
    next: u64,
    /// It is not preferred before.
    penalty_until: u64,
    /// How long that was the last time.
    penalty: u64,
}

/// Why an address is probed soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fresh {
    /// It was not probed since it became known.
    New,
    /// It was not probed since the network of one end changed.
    Moved,
}

/// The ends that have a certain reason to avoid a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) here: bool,
    pub(super) there: bool,
}

impl Ends {
    /// How many of them: the less, the better.
    pub(super) const fn count(self) -> u8 {
        self.here as u8 + self.there as u8
    }
}

/// The reasons to avoid a path, the stronger one first: it is narrow, and it is spare.
pub(super) type Burdens = [Ends; 2];

/// The less, the better.
pub(super) fn weight(burdens: Burdens) -> [u8; 2] {
    burdens.map(Ends::count)
}

/// The time from a probe without an answer to the next one, after this number of failures before, in ms.
pub(super) fn retry_after(failures: u32, longest: u64) -> u64 {
    (MIN_RETRY << failures.min(8)).min(longest)
}

#[derive(Debug)]
struct Round {
    urgent: bool,
    began: u64,
    /// When the next probes are sent, or the round ends.
    next: u64,
    used: Asked,
    others: Vec<Asked>,
}

/// The probes to one address in a round.
#[derive(Debug)]
struct Asked {
    at: Endpoint,
    /// Probes that are still to be sent, and those that were.
    volleys: u8,
    sent: u8,
    /// Number and time of each probe that is not answered.
    open: Vec<(u64, u64)>,
    answers: u8,
    /// The shortest round trip, ms.
    rtt: u64,
    /// The probes as large as full frames, if the path is narrow and such ones are due.
    full: Option<Full>,
}

/// The probes of a narrow path that are as large as full frames.
#[derive(Debug, Default)]
struct Full {
    open: Vec<u64>,
    answered: bool,
}

impl Compared {
    pub(super) fn new(named: bool) -> Self {
        Self {
            named,
            spare: Ends::default(),
            rtt: None,
            probes: None,
            works: false,
            fresh: Some(Fresh::New),
            failures: 0,
            next: 0,
            penalty_until: 0,
            penalty: 0,
        }
    }

    /// The share of probes without an answer when there last was one, in thousandths.
    pub(super) fn loss(&self) -> Option<u16> {
        let (sent, answered) = self.probes?;
        let lost = u16::from(sent.saturating_sub(answered));
        (lost * 1_000).checked_div(sent.into())
    }

    /// When it is probed by an ordinary round.
    fn due(&self, at: Endpoint, view: &View) -> u64 {
        let better = is_local(at) && !is_local(view.path) || !at.socket().is_ordinary();
        match better || self.fresh != Some(Fresh::New) {
            true => self.next,
            false => self.next.max(view.alone_until),
        }
    }

    /// Notes the outcome of a round. `rtt`: the shortest round trip, if there was an answer.
    /// `longest`: the longest time to the next round, if there was none.
    fn note(&mut self, now: u64, rtt: Option<u64>, longest: u64) {
        (self.works, self.fresh) = (rtt.is_some(), None);
        if rtt.is_some() {
            (self.failures, self.next, self.rtt) = (0, now + WARM, rtt);
        } else {
            self.next = now + retry_after(self.failures, longest);
            self.failures += 1;
        }
    }

    /// The address in use does not work any longer.
    fn fail(&mut self, now: u64) {
        if now.saturating_sub(self.penalty_until) > PENALTY_MEMORY {
            self.penalty = 0;
        }
        self.penalty = (2 * self.penalty).clamp(MIN_PENALTY, MAX_PENALTY);
        self.penalty_until = now + self.penalty;
        (self.works, self.failures, self.next) = (false, 0, now + PAUSE);
    }
}

impl Asked {
    const fn new(at: Endpoint, volleys: u8) -> Self {
        Self {
            at,
            volleys,
            sent: 0,
            open: Vec::new(),
            answers: 0,
            rtt: u64::MAX,
            full: None,
        }
    }

    /// Takes the answer to the probe with this number, if it is one of these.
    fn take_answer(&mut self, now: u64, number: u64) -> bool {
        if let Some(full) = self.full.as_mut().filter(|full| full.open.contains(&number)) {
            full.answered = true;
            return true;
        }
        let Some(n) = self.open.iter().position(|(open, _)| *open == number) else {
            return false;
        };
        let (_, sent) = self.open.swap_remove(n);
        self.answers += 1;
        self.rtt = self.rtt.min(now.saturating_sub(sent));
        true
    }

    /// The shortest round trip, if there was an answer.
    fn answered(&self) -> Option<u64> {
        (self.answers > 0).then_some(self.rtt)
    }

    const fn works(&self) -> bool {
        self.answers >= ENOUGH
    }
}

impl Round {
    fn asked(&mut self) -> impl Iterator<Item = &mut Asked> {
        std::iter::once(&mut self.used).chain(&mut self.others)
    }

    /// The addresses are probed once more.
    fn volley(&mut self, now: u64, srtt: u64, mut number: impl FnMut() -> u64) -> Vec<Step> {
        let last = self.asked().all(|asked| asked.volleys <= 1);
        self.next = now + if last { patience(srtt) } else { VOLLEY_EVERY };
        let mut steps = Vec::new();
        for asked in self.asked().filter(|asked| asked.volleys > 0) {
            let (to, drawn) = (asked.at, number());
            asked.volleys -= 1;
            asked.sent += 1;
            asked.open.push((drawn, now));
            steps.push(Step::Probe { to, number: drawn });
            if let Some(full) = &mut asked.full {
                let number = number();
                full.open.push(number);
                steps.push(Step::ProbeFull { to, number });
            }
        }
        steps
    }

    /// Whether the outcome of an urgent round is clear already.
    fn is_clear(&self, now: u64, srtt: u64) -> bool {
        let another = self.others.iter().any(Asked::works) && now >= self.began + patience(srtt);
        self.urgent && (self.used.works() || self.used.answers == 0 && another)
    }

    fn is_over(&self, now: u64) -> bool {
        let done = |asked: &Asked| asked.volleys == 0;
        now >= self.next && done(&self.used) && self.others.iter().all(done)
    }
}

/// For how long answers to a probe are awaited, in ms.
fn patience(srtt: u64) -> u64 {
    (2 * srtt).clamp(MIN_WAIT, MAX_WAIT)
}

/// Whether an address is one of a local network, by its form.
pub(super) fn is_local(at: Endpoint) -> bool {
    address::is_local(at.ip())
}

/// Whether an address with the round trip `theirs` is to be used instead of the one in use, with the
/// round trip `ours`, in ms. The difference has to be clear, a fifth and 2 ms: each change may reorder
/// packets. A local address that was named may be that much slower, since its path loads no uplink: but
/// not one of the LAN alone, where any host can repeat an announcement with its own address.
fn is_better((other, theirs, named): (Endpoint, u64, bool), (used, ours): (Endpoint, u64)) -> bool {
    let margin = (ours / 5).max(2);
    match (is_local(other), is_local(used)) {
        (true, false) if named => theirs <= ours + margin,
        (false, true) => theirs + 2 * margin < ours,
        _ => theirs + margin < ours,
    }
}

impl Choice {
    /// The peer has just answered at an address from which its frames came.
    pub(super) fn note_works(&mut self, paths: &mut Paths, now: u64, path: Endpoint, at: Endpoint) {
        self.note_source(paths, now, Some(path), at);
        paths.note_proven(now, at);
        if let Some(known) = paths.find_mut(at).filter(|known| !known.works) {
            (known.works, known.failures) = (true, 0);
            known.next = known.next.min(now);
        }
    }

    /// Takes an address into account that nothing but frames of the peer have named.
    fn note_source(&mut self, paths: &mut Paths, now: u64, path: Option<Endpoint>, at: Endpoint) {
        if paths.compare_source(now, path, at) {
            self.round = None;
        }
    }

    /// Payload passed at `last`, and at `before` the time before.
    pub(super) fn note_payload(&mut self, before: u64, last: u64) {
        if last > before.saturating_add(RECENT) {
            self.passing_since = last;
        }
    }

    /// Whether the address in use answers is in question: an urgent round begins, if another one works.
    pub(super) fn look(&mut self, now: u64) {
        (self.look_at, self.next_urgent) = (now, 0);
    }

    /// The network of one end changed, so that all addresses are probed soon.
    pub(super) fn hurry(&mut self, paths: &mut Paths) {
        (self.next_urgent, self.hurried) = (0, true);
        for (_, known) in paths.compared_mut() {
            (known.next, known.failures, known.fresh) = (0, 0, Some(Fresh::Moved));
        }
    }

    /// The path in use has become narrow, so that all are compared at once.
    pub(super) fn handle_narrow(&mut self, paths: &mut Paths, now: u64) {
        self.hurry(paths);
        self.next = now;
    }

    /// Whether the network of one end changed since the link came up.
    pub(super) fn is_hurried(&self) -> bool {
        self.hurried
    }

    /// The paths through this underlay socket are gone.
    pub(super) fn forget_socket(&mut self, socket: SocketId) {
        self.round
            .take_if(|round| round.asked().any(|asked| asked.at.socket() == socket));
    }

    /// The local ends of paths are other ones than before.
    pub(super) fn forget_round(&mut self) {
        self.round = None;
    }

    /// The link uses another address from now on.
    pub(super) fn handle_moved(&mut self, paths: &mut Paths, now: u64, from: Option<Endpoint>, to: Endpoint) {
        self.round = None;
        // For a while the peer believes that this node has moved wherever a probe of it comes from.
        self.next = self.next.max(now + COMPARE_AFTER);
        for at in [Some(to), from].into_iter().flatten() {
            self.note_source(paths, now, Some(to), at);
        }
    }

    /// Returns when [`Choice::poll`] has something to do.
    pub(super) fn deadline(&self, paths: &Paths, view: &View) -> u64 {
        match &self.round {
            Some(round) if round.urgent => round.next,
            Some(round) => round.next.min(self.urgent_at(paths, view)),
            None => self.urgent_at(paths, view).min(self.ordinary_at(paths, view)),
        }
    }

    fn urgent_at(&self, paths: &Paths, view: &View) -> u64 {
        match others(paths, view).any(|(_, other)| other.works) {
            true => view.unanswered_at.min(self.look_at).max(self.next_urgent),
            false => u64::MAX,
        }
    }

    /// Addresses that are new are probed at any time, the others while payload passes.
    fn ordinary_at(&self, paths: &Paths, view: &View) -> u64 {
        let is_steady = view.payload.saturating_sub(self.passing_since) >= STEADY;
        let passing_until = view.payload.saturating_add(RECENT);
        let due = others(paths, view).filter_map(|(at, other)| {
            let at = other.due(at, view).max(self.next);
            (other.fresh.is_some() || is_steady && at <= passing_until).then_some(at)
        });
        due.min().unwrap_or(u64::MAX)
    }

    /// Performs what is due. `number` draws a number that no other node can know.
    pub(super) fn poll(&mut self, paths: &mut Paths, now: u64, view: &View, number: impl FnMut() -> u64) -> Vec<Step> {
        // An urgent round takes the place of an ordinary one.
        let urgent = now >= self.urgent_at(paths, view) && self.round.as_ref().is_none_or(|round| !round.urgent);
        if urgent {
            self.look_at = u64::MAX;
        }
        if urgent || self.round.is_none() && now >= self.ordinary_at(paths, view) {
            self.begin(paths, now, view, urgent);
        }
        match &mut self.round {
            Some(round) if round.is_clear(now, view.srtt) || round.is_over(now) => self.end(paths, now, view),
            Some(round) if now >= round.next => round.volley(now, view.srtt, number),
            _ => Vec::new(),
        }
    }

    fn begin(&mut self, paths: &Paths, now: u64, view: &View, urgent: bool) {
        let volleys = |known: &Compared| match urgent && known.works {
            true => URGENT_VOLLEYS,
            false => VOLLEYS,
        };
        let others = others(paths, view).filter(|(at, other)| other.works || other.due(*at, view) <= now);
        let others = others.map(|(at, other)| Asked {
            full: (!urgent && paths.is_full_due(at, now)).then(Full::default),
            ..Asked::new(at, volleys(other))
        });
        let others = others.collect();
        let used = Asked::new(view.path, if urgent { URGENT_VOLLEYS } else { VOLLEYS });
        self.round = Some(Box::new(Round {
            urgent,
            began: now,
            next: now,
            used,
            others,
        }));
    }

    /// Handles the answer to a probe. Returns whether the probe was one of the round.
    pub(super) fn handle_answer(&mut self, now: u64, number: u64) -> bool {
        let round = self.round.as_mut();
        round.is_some_and(|round| round.asked().any(|asked| asked.take_answer(now, number)))
    }

    /// The same if it was one of the path in use.
    pub(super) fn handle_answer_of_used(&mut self, now: u64, number: u64) -> bool {
        let round = self.round.as_mut();
        round.is_some_and(|round| round.used.take_answer(now, number))
    }

    /// Ends a round: notes what works, and decides.
    fn end(&mut self, paths: &mut Paths, now: u64, view: &View) -> Vec<Step> {
        let Some(round) = self.round.take() else {
            return Vec::new();
        };
        let complete = round.is_over(now);
        // While a spare or narrow address is in use, the return of another one is noticed soon.
        let longest = match weight(paths.burdens(round.used.at)) {
            [0, 0] => MAX_RETRY,
            _ => MIN_RETRY,
        };
        for asked in round
            .others
            .iter()
            .chain([&round.used])
            .filter(|asked| asked.answers > 0)
        {
            paths.note_proven(now, asked.at);
            if let Some(known) = paths.get_mut(asked.at).filter(|_| complete) {
                known.probes = Some((asked.sent, asked.answers));
            }
        }
        for asked in round.others.iter().filter(|asked| complete || asked.answers > 0) {
            if let Some(known) = paths.get_mut(asked.at) {
                known.note(now, asked.answered(), longest);
            }
            if let Some(full) = asked.full.as_ref().filter(|full| complete || full.answered) {
                paths.note_full(now, asked.at, full.answered);
            }
        }
        if let Some(known) = paths.get_mut(round.used.at).filter(|_| round.used.answers > 0) {
            known.rtt = round.used.answered();
        }
        self.next = now + PAUSE;
        if round.urgent {
            self.next_urgent = now + if round.used.works() { PAUSE } else { URGENT_AGAIN };
        }
        let chosen = match round.used.answers {
            0 if round.urgent => fallback(paths, now, &round),
            // Payload is answered there, so that the path works for all that matters.
            0 => None,
            _ => preferred(paths, now, &round, view.decides),
        };
        chosen.map(|to| Step::Move { to }).into_iter().collect()
    }
}

/// The paths beside the one in use.
fn others<'paths>(paths: &'paths Paths, view: &View) -> impl Iterator<Item = (Endpoint, &'paths Compared)> {
    let used = view.path;
    paths.compared().filter(move |(at, _)| *at != used)
}

/// The address to use since the one in use does not answer.
fn fallback(paths: &mut Paths, now: u64, round: &Round) -> Option<Endpoint> {
    let works = round.others.iter().filter(|asked| asked.works());
    let best = works.min_by_key(|asked| (weight(paths.burdens(asked.at)), asked.rtt))?;
    if let Some(known) = paths.get_mut(round.used.at) {
        known.fail(now);
    }
    Some(best.at)
}

/// The address that is better than the one in use, which works. An end that does not decide leaves
/// an address that is narrow or spare for itself alone.
fn preferred(paths: &Paths, now: u64, round: &Round, decides: bool) -> Option<Endpoint> {
    let used = Some(&round.used).filter(|used| used.works())?;
    let left = paths.burdens(used.at);
    let better = round.others.iter().filter(|asked| {
        let known = paths.get(asked.at);
        let named = known.is_some_and(|known| known.named) && !paths.is_of_lan_alone(asked.at);
        let penalized = known.is_some_and(|known| now < known.penalty_until);
        let other = paths.burdens(asked.at);
        let is_better = || match weight(other).cmp(&weight(left)) {
            Ordering::Less => decides || is_lighter_here(other, left),
            Ordering::Equal => decides && is_better((asked.at, asked.rtt, named), (used.at, used.rtt)),
            Ordering::Greater => false,
        };
        asked.works() && !penalized && is_better()
    });
    let best = better.min_by_key(|asked| (weight(paths.burdens(asked.at)), !is_local(asked.at), asked.rtt))?;
    Some(best.at)
}

/// Whether the strongest difference between the reasons to avoid two paths is one of this end.
fn is_lighter_here(other: Burdens, left: Burdens) -> bool {
    let differ = |(other, left): &(Ends, Ends)| other.count() != left.count();
    let strongest = other.into_iter().zip(left).find(differ);
    strongest.is_some_and(|(other, left)| left.here && !other.here)
}

#[cfg(test)]
mod tests;
