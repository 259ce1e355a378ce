//! The node's own look-ups: attempts with fresh request ids, until one is answered.

use std::collections::BTreeMap;
use std::mem::size_of;

use rand_core::Rng;
use weft_noise::PublicKey;
use weft_wire::link::LinkMessageType;
use weft_wire::lookup::{LookupRequest, LookupResponse};
use weft_wire::{Coords, NodeAddr};

use super::answers::Answers;
use super::hops::{Hops, Quest};
use super::message::{is_proven, request_body};
use super::{ATTEMPTS, Limits, LookupOutput, Lookups, View};

/// The attempt, counted from 0, from which on undirected neighbours are asked too.
const WIDEN_FROM: usize = 2;

/// Look-ups in progress, by target.
#[derive(Debug, Default)]
pub(super) struct Wanted(BTreeMap<NodeAddr, Search>);

#[derive(Debug)]
struct Search {
    /// Request ids and answers, one entry for each attempt so far, because a late answer is as
    /// good.
    attempts: Vec<(u64, Answers)>,
    /// When the present attempt is given up.
    deadline: u64,
}

impl Wanted {
    /// Returns when the next attempt is given up.
    pub(super) fn deadline(&self) -> u64 {
        self.0.values().map(|search| search.deadline).min().unwrap_or(u64::MAX)
    }

    /// Whether a request of this node has this target and id.
    pub(super) fn asked(&self, target: &NodeAddr, request_id: u64) -> bool {
        let search = self.0.get(target);
        search.is_some_and(|s| s.attempts.iter().any(|(id, _)| *id == request_id))
    }

    fn answers(&mut self, target: &NodeAddr, request_id: u64) -> Option<&mut Answers> {
        let search = self.0.get_mut(target)?;
        let attempt = search.attempts.iter_mut().find(|(id, _)| *id == request_id)?;
        Some(&mut attempt.1)
    }

    pub(super) fn bytes(&self) -> usize {
        let attempts = |search: &Search| search.attempts.capacity() * size_of::<(u64, Answers)>();
        let answers = |search: &Search| {
            search
                .attempts
                .iter()
                .map(|(_, answers)| answers.bytes())
                .sum::<usize>()
        };
        let entry = size_of::<(NodeAddr, Search)>();
        self.0
            .values()
            .map(|search| entry + attempts(search) + answers(search))
            .sum()
    }

    pub(super) fn check(&self, limits: &Limits) -> Result<(), String> {
        if self.0.len() > limits.wanted {
            return Err(format!("{} look-ups wanted", self.0.len()));
        }
        for (target, search) in &self.0 {
            if !(1..=ATTEMPTS).contains(&search.attempts.len()) {
                return Err(format!("{} attempts for {target}", search.attempts.len()));
            }
            search.attempts.iter().try_for_each(|(_, answers)| answers.check())?;
        }
        Ok(())
    }
}

impl Lookups {
    /// Starts a look-up, unless one is in progress. A link to the node, if there is one, makes no
    /// difference (L9).
    pub(crate) fn want(&mut self, now: u64, target: NodeAddr, view: &impl View, rng: &mut (impl Rng + ?Sized)) {
        if self.is_pending(&target) || target == view.me() {
            return;
        }
        if self.wanted.0.len() >= self.limits.wanted {
            self.counters.refused += 1;
            self.outputs.push_back(LookupOutput::Failed { target });
            return;
        }
        self.counters.started += 1;
        self.attempt(now, target, view, rng);
    }

    /// Cancels a look-up; nothing more is reported about it.
    #[cfg(test)]
    pub(crate) fn cancel(&mut self, target: &NodeAddr) {
        self.wanted.0.remove(target);
    }

    /// Whether a look-up is in progress.
    pub(crate) fn is_pending(&self, target: &NodeAddr) -> bool {
        self.wanted.0.contains_key(target)
    }

    /// Begins the attempts that are due, ends look-ups whose attempts all failed, and forgets old
    /// requests.
    pub(crate) fn handle_timeout(&mut self, now: u64, view: &impl View, rng: &mut (impl Rng + ?Sized)) {
        self.recent.tidy(&self.limits, now);
        let due = self.wanted.0.iter().filter(|(_, search)| search.deadline <= now);
        let due: Vec<_> = due.map(|(target, search)| (*target, search.attempts.len())).collect();
        for (target, attempts) in due {
            if attempts < ATTEMPTS {
                self.attempt(now, target, view, rng);
            } else {
                self.wanted.0.remove(&target);
                self.counters.failed += 1;
                self.outputs.push_back(LookupOutput::Failed { target });
            }
        }
    }

    /// Makes one attempt. A look-up continues even if there is no neighbour to ask: links and
    /// filters may come up later.
    fn attempt(&mut self, now: u64, target: NodeAddr, view: &impl View, rng: &mut (impl Rng + ?Sized)) {
        let request_id = rng.next_u64();
        let search = self.wanted.0.entry(target).or_insert_with(|| Search {
            attempts: Vec::with_capacity(ATTEMPTS),
            deadline: 0,
        });
        let number = search.attempts.len();
        let quest = Quest {
            from: None,
            origin: view.me(),
            target,
            request_id,
            min_mtu: 0,
            widen: number >= WIDEN_FROM,
        };
        let hops = Hops::choose(&quest, view, self.limits.fanout);
        search.attempts.push((request_id, Answers::due_from(hops.len())));
        search.deadline = now + self.limits.attempts.get(number).copied().unwrap_or_default();
        self.counters.attempts += 1;
        let request = LookupRequest {
            request_id,
            target,
            origin: view.me(),
            ttl: LookupRequest::DEFAULT_TTL,
            min_mtu: quest.min_mtu,
            origin_coords: Coords::new(view.my_coords()),
        };
        let Ok(body) = request_body(&request) else { return };
        for to in hops.iter() {
            self.send(to, LinkMessageType::LookupRequest, body.clone());
        }
    }

    /// Handles an answer to a request of this node.
    pub(super) fn conclude(
        &mut self,
        from: NodeAddr,
        response: &LookupResponse<'_>,
        view: &impl View,
        key: Option<PublicKey>,
    ) {
        let Some(answers) = self.wanted.answers(&response.target, response.request_id) else {
            return;
        };
        if !answers.admit(from) {
            self.counters.surplus += 1;
            return;
        }
        let Some(key) = key else {
            self.counters.unknown_key += 1;
            return;
        };
        if !is_proven(&key, response) {
            self.counters.forged += 1;
            return;
        }
        self.wanted.0.remove(&response.target);
        self.counters.found += 1;
        self.outputs.push_back(LookupOutput::Found {
            target: response.target,
            coords: response.target_coords.iter().collect(),
            path_mtu: response.path_mtu.min(view.link_mtu(&from)),
            via: from,
        });
    }
}
