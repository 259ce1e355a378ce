//! The targets of one attempt, from the moment when both tokens are known: when which of them is
//! probed, and what was spent on it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::budget::{self, OverBudget};
use crate::candidate::{Prefix, Refused};
use crate::history::{Outcome, Source, Tried};
use crate::message::{Kind, Token};
use crate::nat::Mappings;
use crate::probe::{Key, Probe};
use crate::search::{self, Search, Shot};

/// Milliseconds for which a target is probed.
pub(crate) const LIFE: u64 = 10_000;
/// Milliseconds for which an attempt lasts that hears of new targets.
pub(crate) const LONGEST: u64 = 20_000;
/// Milliseconds in which a target is probed often.
pub(crate) const EAGER: u64 = 2_000;
/// Milliseconds between two probes of a target while it is probed often.
pub(crate) const FAST: u64 = 200;
/// Milliseconds between two probes of a target from then on.
pub(crate) const SLOW: u64 = 500;
/// Targets that the peer named, at most: those of one message.
pub(crate) const TOLD: usize = 32;
/// Targets that are the source of a probe, at most.
pub(crate) const HEARD: usize = 8;

/// An address that is probed.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) at: SocketAddr,
    pub(crate) source: Source,
    /// The sequence of its first probe is random, those of the others follow.
    base: u32,
    sent: u32,
    /// When it became a target.
    added: u64,
    last: Option<u64>,
    /// When it is probed next; `u64::MAX` for never.
    due: u64,
    answered: bool,
    over: Option<OverBudget>,
}

impl Target {
    fn ends(&self) -> u64 {
        self.added + LIFE
    }

    /// Whether a probe with this sequence was sent to it.
    fn has_sent(&self, sequence: u32) -> bool {
        sequence.wrapping_sub(self.base) < self.sent
    }

    fn probe(&mut self, now: u64, key: Key) -> Probe {
        let sequence = self.base.wrapping_add(self.sent);
        self.sent += 1;
        self.last = Some(now);
        let pace = if now < self.added + EAGER { FAST } else { SLOW };
        self.due = now + pace;
        if self.due >= self.ends() {
            self.due = u64::MAX;
        }
        let ack = false;
        Probe { ack, sequence, key }
    }

    fn tried(&self, over: bool) -> Tried {
        let outcome = match self.over {
            _ if self.answered => Outcome::Answered,
            Some(cause) => Outcome::OverBudget(cause),
            None if over => Outcome::Silent,
            None => Outcome::Probing,
        };
        Tried {
            at: self.at,
            source: self.source,
            last: self.last,
            probes: self.sent,
            outcome,
        }
    }
}

/// What is probed next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Aim {
    /// The target of this number.
    Target(usize),
    /// What the search says.
    Search,
}

/// What begins with the peer's token: targets, and what was spent on them.
#[derive(Debug)]
pub(crate) struct Round {
    /// The peer's token.
    pub(crate) theirs: Token,
    pub(crate) key: Key,
    /// The number of the probe that was sent last, among all attempts of the node.
    pub(crate) served: u64,
    since: u64,
    /// The mappings of the peer's NATs, as it says.
    pub(crate) mappings: Mappings,
    /// When other nodes are asked where they see the peer; `u64::MAX` afterwards.
    pub(crate) ask_at: u64,
    /// Whether they were asked.
    pub(crate) asked: bool,
    /// When it is to be decided whether a search begins; `u64::MAX` afterwards.
    pub(crate) search_at: u64,
    pub(crate) search: Option<Search>,
    targets: Vec<Target>,
    refused: Vec<(SocketAddr, Kind, Refused)>,
    spent: BTreeMap<Prefix, u32>,
    /// Addresses that have answered: they receive what is sent to them, and want it.
    answered: BTreeSet<SocketAddr>,
}

impl Round {
    pub(crate) fn new(now: u64, theirs: Token, key: Key) -> Self {
        Self {
            theirs,
            key,
            served: 0,
            since: now,
            mappings: Mappings::default(),
            ask_at: now + search::ASK_AFTER,
            asked: false,
            search_at: now + search::AFTER,
            search: None,
            targets: Vec::new(),
            refused: Vec::new(),
            spent: BTreeMap::new(),
            answered: BTreeSet::new(),
        }
    }

    /// Adds a target, unless there is one with its address, or there are too many of its kind.
    /// `base` is random.
    pub(crate) fn add(&mut self, now: u64, at: SocketAddr, source: Source, base: u32) {
        let told = |target: &&Target| target.source != Source::Heard;
        let (told, most) = match source {
            Source::Told(_) => (self.targets.iter().filter(told).count(), TOLD),
            Source::Heard | Source::Searched => (self.targets.iter().filter(|target| !told(target)).count(), HEARD),
        };
        let last = self.search.as_ref().map_or(self.since + LONGEST - LIFE, Search::ends);
        let late = now >= last;
        if told >= most || late || self.targets.iter().any(|target| target.at == at) {
            return;
        }
        self.targets.push(Target {
            at,
            source,
            base,
            sent: 0,
            added: now,
            last: None,
            due: now,
            answered: false,
            over: None,
        });
    }

    /// Lets it be decided again whether a search begins, now that more is known about the NATs. Others
    /// are asked once.
    pub(crate) fn reconsider(&mut self, now: u64) {
        if self.search.is_some() || self.search_at != u64::MAX {
            return;
        }
        self.search_at = now;
        if !self.asked {
            self.ask_at = now;
        }
    }

    /// Notes a candidate that is not probed.
    pub(crate) fn refuse(&mut self, at: SocketAddr, kind: Kind, cause: Refused) {
        let known = self.refused.iter().any(|(known, ..)| *known == at);
        if !known && self.refused.len() < TOLD {
            self.refused.push((at, kind, cause));
        }
    }

    /// A probe of the peer came from this address: if it is a target, it is probed as often as at
    /// the start.
    pub(crate) fn hear(&mut self, now: u64, from: SocketAddr) {
        if let Some(target) = self.targets.iter_mut().find(|target| target.at == from)
            && target.over.is_none()
            && let Some(last) = target.last
            && now < target.ends()
        {
            target.due = target.due.min(last + FAST).max(now);
        }
    }

    /// Whether this probe is one of ours that came back.
    pub(crate) fn is_reflected(&self, probe: &Probe) -> bool {
        let by_target = || self.targets.iter().any(|target| target.has_sent(probe.sequence));
        let by_search = || self.search.iter().any(|search| search.has_sent(probe.sequence));
        !probe.ack && (by_target() || by_search())
    }

    /// Handles an answer, which came to the ordinary socket or to one of a search. Returns the source
    /// of its target, if a probe was sent there with that sequence.
    pub(crate) fn handle_ack(&mut self, socket: Option<u16>, from: SocketAddr, sequence: u32) -> Option<Source> {
        let found = match self
            .targets
            .iter_mut()
            .find(|target| target.at == from && target.has_sent(sequence))
        {
            Some(target) if socket.is_none() => {
                target.answered = true;
                target.source
            }
            _ => {
                let search = self.search.as_mut()?;
                search.handle_ack(socket, from, sequence).then_some(Source::Searched)?
            }
        };
        self.answered.insert(from);
        Some(found)
    }

    /// Returns what is probed next, and when. Targets go before a search, and those that were not
    /// probed yet before others.
    pub(crate) fn next(&self) -> Option<(u64, Aim)> {
        let due = self.targets.iter().enumerate();
        let due = due.map(|(n, target)| (target.due, u8::from(target.sent > 0), Aim::Target(n)));
        let search = self.search.iter().map(|search| (search.due(), 2, Aim::Search));
        let first = due.chain(search).filter(|(due, ..)| *due != u64::MAX).min();
        first.map(|(due, _, aim)| (due, aim))
    }

    /// Returns the probe of a search that is due.
    pub(crate) fn shot(&mut self, now: u64) -> Option<(Shot, Probe)> {
        let (ack, key) = (false, self.key);
        let shot = self.search.as_mut()?.shot(now)?;
        let sequence = shot.sequence;
        Some((shot, Probe { ack, sequence, key }))
    }

    /// Returns the addresses that the peer named.
    pub(crate) fn told(&self) -> impl Iterator<Item = SocketAddr> {
        let told = self
            .targets
            .iter()
            .filter(|target| matches!(target.source, Source::Told(_)));
        told.map(|target| target.at)
    }

    pub(crate) fn address(&self, n: usize) -> Option<SocketAddr> {
        self.targets.get(n).map(|target| target.at)
    }

    pub(crate) fn probe(&mut self, now: u64, n: usize) -> Option<Probe> {
        let key = self.key;
        self.targets.get_mut(n).map(|target| target.probe(now, key))
    }

    /// Ends the probing of a target.
    pub(crate) fn give_up(&mut self, n: usize, cause: OverBudget) {
        if let Some(target) = self.targets.get_mut(n) {
            (target.due, target.over) = (u64::MAX, Some(cause));
        }
    }

    /// Ends the probing of the target with this address. Returns how many there were.
    pub(crate) fn give_up_address(&mut self, at: SocketAddr, cause: OverBudget) -> u64 {
        let known = self.targets.iter_mut().filter(|target| target.at == at);
        let mut given_up = 0;
        for target in known.filter(|target| target.over.is_none() && !target.answered) {
            (target.due, target.over) = (u64::MAX, Some(cause));
            given_up += 1;
        }
        given_up
    }

    /// Whether bytes to this address are free of any budget, since it has answered.
    pub(crate) fn has_answered(&self, to: SocketAddr) -> bool {
        self.answered.contains(&to)
    }

    /// # Errors
    /// [`OverBudget::Attempt`]: the address has had its bytes.
    pub(crate) fn allows(&self, to: Prefix, bytes: u32) -> Result<(), OverBudget> {
        let spent = self.spent.get(&to).copied().unwrap_or(0);
        if spent + bytes > budget::ATTEMPT {
            Err(OverBudget::Attempt)
        } else {
            Ok(())
        }
    }

    pub(crate) fn note_spent(&mut self, to: Prefix, bytes: u32) {
        *self.spent.entry(to).or_default() += bytes;
    }

    /// When all targets have had their time.
    pub(crate) fn ends(&self) -> u64 {
        let last = self.targets.iter().map(Target::ends).max();
        let search = self.search.as_ref().map_or(0, Search::ends);
        last.unwrap_or(0).max(self.since + LIFE).max(search)
    }
    /// Returns what was tried, and what was refused.
    pub(crate) fn tried(&self, over: bool) -> impl Iterator<Item = Tried> {
        let refused = self.refused.iter().map(|(at, kind, cause)| Tried {
            at: *at,
            source: Source::Told(*kind),
            last: None,
            probes: 0,
            outcome: Outcome::Refused(*cause),
        });
        let search = self.search.iter().map(move |search| search.tried(over));
        let targets = self.targets.iter().map(move |target| target.tried(over));
        targets.chain(search).chain(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/protocol/security.md, P27: what a peer can make a node keep.
    #[test]
    fn an_attempt_has_a_bound_in_bytes() {
        let targets = (TOLD + HEARD) * size_of::<Target>();
        let refused = TOLD * size_of::<(SocketAddr, Kind, Refused)>();
        let prefixes = (TOLD + HEARD) * (size_of::<(Prefix, u32)>() + size_of::<SocketAddr>());
        let tried = (2 * TOLD + HEARD) * size_of::<Tried>();
        let all = targets + refused + prefixes + tried;
        assert!(all <= 12 << 10, "{targets} + {refused} + {prefixes} + {tried}");
    }
}
