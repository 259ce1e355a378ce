//! Requests received lately: they identify echoes, and give answers their route back.

use std::collections::{BTreeMap, VecDeque};
use std::mem::size_of;

use weft_contract::Bucket;
use weft_wire::NodeAddr;
use weft_wire::lookup::{LookupRequest, LookupResponse};

use super::answers::Answers;
use super::hops::Hops;
use super::{Limits, MAX_COORDS};

/// Minimum time between two walks through all entries, in ms.
const TIDY_INTERVAL: u64 = 1_000;

/// Target and request id. With the id alone, a node that guesses or sees it could block a request
/// for another target.
type Key = (NodeAddr, u64);

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It was received before.
    Duplicate,
    /// The neighbour sends too many.
    Throttled,
    /// There is no room for it.
    Full,
}

/// The node that an answer is for.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    /// The neighbour that the request was received from.
    pub(super) from: NodeAddr,
    /// The origin of the request.
    pub(super) origin: NodeAddr,
    /// Its coordinates; empty until the request is forwarded.
    pub(super) origin_coords: Box<[NodeAddr]>,
}

/// A request.
#[derive(Debug)]
pub(super) struct Recent {
    pub(super) asker: Asker,
    at: u64,
    /// No neighbour could be asked.
    dead_end: bool,
    pub(super) answers: Answers,
}

/// The requests and the budgets of a neighbour.
#[derive(Debug)]
struct Source {
    /// The times and keys of its requests, oldest first.
    held: VecDeque<(u64, Key)>,
    requests: Bucket,
    undirected: Bucket,
}

/// The earlier requests of the same origin, for the same target and through the same neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tries {
    /// Requests forwarded within [`Limits::forward_interval`].
    pub(super) lately: usize,
    /// An earlier request ended here, or had enough time for an answer and got none that is known
    /// to be proven.
    pub(super) in_vain: bool,
}

/// All requests of the last [`Limits::window`].
///
/// No neighbour holds more than [`Limits::recent_per_neighbour`]. If all entries are in use, the
/// neighbour with the most makes room, so a flood displaces only itself.
#[derive(Debug)]
pub(super) struct RecentRequests {
    entries: BTreeMap<Key, Recent>,
    sources: BTreeMap<NodeAddr, Source>,
    purge_at: u64,
}

impl RecentRequests {
    pub(super) fn new() -> Self {
        Self {
            entries: BTreeMap::new(),
            sources: BTreeMap::new(),
            purge_at: u64::MAX,
        }
    }

    /// Records a request.
    pub(super) fn admit(
        &mut self,
        limits: &Limits,
        now: u64,
        from: NodeAddr,
        request: &LookupRequest<'_>,
    ) -> Result<(), Refusal> {
        let key = (request.target, request.request_id);
        match self.entries.get(&key) {
            Some(recent) if is_live(limits, now, recent.at) => return Err(Refusal::Duplicate),
            Some(_) => self.purge(limits, now),
            None => self.tidy(limits, now),
        }
        self.purge_at = self.purge_at.min(now.saturating_add(limits.window));
        let source = self.sources.entry(from).or_insert_with(|| Source::new(limits, now));
        if source.requests.take(limits.requests, now, 1) == 0 {
            return Err(Refusal::Throttled);
        }
        if !self.has_room(limits, from) {
            self.purge(limits, now);
            if !self.has_room(limits, from) && !self.make_room(from) {
                return Err(Refusal::Full);
            }
        }
        let asker = Asker {
            from,
            origin: request.origin,
            origin_coords: Box::default(),
        };
        let recent = Recent {
            asker,
            at: now,
            dead_end: false,
            answers: Answers::default(),
        };
        self.entries.insert(key, recent);
        let source = self.sources.entry(from).or_insert_with(|| Source::new(limits, now));
        source.held.push_back((now, key));
        Ok(())
    }

    /// Returns the outcome of earlier such requests.
    pub(super) fn tries(&self, limits: &Limits, now: u64, from: NodeAddr, request: &LookupRequest<'_>) -> Tries {
        let mut tries = Tries::default();
        let same_target = self.entries.range((request.target, 0)..=(request.target, u64::MAX));
        for (_, recent) in same_target {
            let same = recent.asker.from == from && recent.asker.origin == request.origin;
            if !same || !is_live(limits, now, recent.at) {
                continue;
            }
            let is_late = now.saturating_sub(recent.at) >= limits.forward_interval;
            let passed_on = recent.answers.are_due();
            tries.lately += usize::from(passed_on && !is_late);
            tries.in_vain |= recent.dead_end || (passed_on && is_late && !recent.answers.settled());
        }
        tries
    }

    /// Truncates the hops to the budget of the neighbour. Its request has paid for the first
    /// directed one.
    pub(super) fn charge(&mut self, limits: &Limits, now: u64, from: NodeAddr, hops: &mut Hops) {
        let Some(source) = self.sources.get_mut(&from) else {
            return;
        };
        let more = hops.directed.len().saturating_sub(1);
        let directed = 1 + source.requests.take(limits.requests, now, more);
        hops.directed.truncate(directed);
        let undirected = source.undirected.take(limits.undirected, now, hops.undirected.len());
        hops.undirected.truncate(undirected);
    }

    /// Records that an admitted request was sent to `hops` neighbours.
    pub(super) fn passed_on(&mut self, request: &LookupRequest<'_>, hops: usize) {
        if let Some(recent) = self.entries.get_mut(&(request.target, request.request_id)) {
            recent.asker.origin_coords = request.origin_coords.iter().collect();
            recent.answers = Answers::due_from(hops);
        }
    }

    /// Records that an admitted request was sent to none.
    pub(super) fn dead_end(&mut self, request: &LookupRequest<'_>) {
        if let Some(recent) = self.entries.get_mut(&(request.target, request.request_id)) {
            recent.dead_end = true;
        }
    }

    /// Returns the forwarded request that this response answers.
    pub(super) fn passed(&mut self, limits: &Limits, now: u64, response: &LookupResponse<'_>) -> Option<&mut Recent> {
        let recent = self.entries.get_mut(&(response.target, response.request_id))?;
        (is_live(limits, now, recent.at) && recent.answers.are_due()).then_some(recent)
    }

    /// Returns when there is something to forget; `u64::MAX` for never.
    pub(super) fn purge_at(&self) -> u64 {
        self.purge_at
    }

    /// Forgets old requests, unless that was done a moment ago.
    pub(super) fn tidy(&mut self, limits: &Limits, now: u64) {
        if now >= self.purge_at {
            self.purge(limits, now);
        }
    }

    fn purge(&mut self, limits: &Limits, now: u64) {
        let mut earliest = u64::MAX;
        for source in self.sources.values_mut() {
            while let Some((_, key)) = source.held.pop_front_if(|(at, _)| !is_live(limits, now, *at)) {
                self.entries.remove(&key);
            }
            let oldest = source.held.front().map_or(now, |(at, _)| *at);
            earliest = earliest.min(oldest.saturating_add(limits.window));
        }
        self.sources.retain(|_, source| !source.is_idle(limits, now));
        self.purge_at = if self.sources.is_empty() {
            u64::MAX
        } else {
            earliest.max(now.saturating_add(TIDY_INTERVAL))
        };
    }

    fn held(&self, from: NodeAddr) -> usize {
        self.sources.get(&from).map_or(0, |source| source.held.len())
    }

    fn has_room(&self, limits: &Limits, from: NodeAddr) -> bool {
        self.entries.len() < limits.recent && self.held(from) < limits.recent_per_neighbour
    }

    /// Forgets the oldest request of the neighbour that holds the most, if that is more than `from`
    /// would then hold.
    fn make_room(&mut self, from: NodeAddr) -> bool {
        let held = self.held(from);
        let Some(most) = self.sources.values_mut().max_by_key(|source| source.held.len()) else {
            return false;
        };
        if most.held.len() <= held + 1 {
            return false;
        }
        if let Some((_, key)) = most.held.pop_front() {
            self.entries.remove(&key);
        }
        true
    }

    pub(super) fn bytes(&self) -> usize {
        let entry = |recent: &Recent| {
            let coords = recent.asker.origin_coords.len() * size_of::<NodeAddr>();
            size_of::<(Key, Recent)>() + coords + recent.answers.bytes()
        };
        let source =
            |source: &Source| size_of::<(NodeAddr, Source)>() + source.held.capacity() * size_of::<(u64, Key)>();
        self.entries.values().map(entry).sum::<usize>() + self.sources.values().map(source).sum::<usize>()
    }

    pub(super) fn check(&self, limits: &Limits) -> Result<(), String> {
        let held: usize = self.sources.values().map(|source| source.held.len()).sum();
        if held != self.entries.len() || held > limits.recent {
            return Err(format!("{held} requests held, {} known", self.entries.len()));
        }
        for (from, source) in &self.sources {
            if source.held.len() > limits.recent_per_neighbour {
                return Err(format!("{} requests of {from}", source.held.len()));
            }
            for (at, key) in &source.held {
                let known = self.entries.get(key);
                if known.is_none_or(|recent| recent.asker.from != *from || recent.at != *at) {
                    return Err(format!("a request of {from} belongs to nobody"));
                }
            }
        }
        for recent in self.entries.values() {
            recent.answers.check()?;
            if recent.asker.origin_coords.len() > MAX_COORDS {
                return Err(format!("{} coordinates", recent.asker.origin_coords.len()));
            }
        }
        if !self.sources.is_empty() && self.purge_at == u64::MAX {
            return Err("requests that are never forgotten".into());
        }
        Ok(())
    }
}

impl Source {
    fn new(limits: &Limits, now: u64) -> Self {
        Self {
            held: VecDeque::new(),
            requests: Bucket::new(limits.requests, now),
            undirected: Bucket::new(limits.undirected, now),
        }
    }

    fn is_idle(&self, limits: &Limits, now: u64) -> bool {
        self.held.is_empty()
            && self.requests.is_full(limits.requests, now)
            && self.undirected.is_full(limits.undirected, now)
    }
}

fn is_live(limits: &Limits, now: u64, at: u64) -> bool {
    now.saturating_sub(at) < limits.window
}
