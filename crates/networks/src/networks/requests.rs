//! Requests for membership without an invite, as an administrator's node keeps them: few, for a
//! bounded time, and only while its owner accepts them.

use std::collections::BTreeMap;

use weft_noise::PublicKey;
use weft_roster::names::Name;
use weft_roster::network_id::NetworkId;

use crate::document::Verdict;

/// Maximum number of requests that wait for a decision.
pub const MAX_REQUESTS: usize = 8;
/// How long a request waits at most, in ms from its arrival.
const WAITS: u64 = 3_600_000;
/// Maximum number of decisions that are kept for the nodes that ask again.
const MAX_DECISIONS: usize = 64;
/// How long a decision is kept, in ms.
const DECISION: u64 = 600_000;
/// How long guests stay welcome after a decision, in ms, so that the node learns it.
const LINGER: u64 = 30_000;

/// A request that waits for a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The name that the node would like. It stays that of the first request, which the owner saw.
    pub name: Option<Name>,
    /// When it came, in ms.
    pub since: u64,
}

/// A decision about a node, which the node may not know yet.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Decision {
    /// The network that it is a member of now; `None` if it was denied.
    network: Option<NetworkId>,
    request: Request,
    /// When it was made, in ms.
    at: u64,
}

/// The requests of a node, and whether it accepts any. Nothing of it is kept between two runs.
#[derive(Debug, Clone, Default)]
pub(super) struct Requests {
    accepted_until: u64,
    waiting: BTreeMap<PublicKey, Request>,
    decided: BTreeMap<PublicKey, Decision>,
}

impl Requests {
    /// Accepts requests until a time, in ms; a time that is over refuses further ones.
    pub(super) fn accept_until(&mut self, until: u64) {
        self.accepted_until = until;
    }

    /// For how many ms more requests are accepted.
    pub(super) fn accepted_for(&self, now: u64) -> Option<u64> {
        self.accepted_until.checked_sub(now).filter(|left| *left > 0)
    }

    /// Whether nodes that are not configured may link, to ask or to learn a decision.
    pub(super) fn welcome_guests(&self, now: u64) -> bool {
        let mut decided = self.decided.values();
        self.accepted_for(now).is_some() || decided.any(|decision| now < decision.at + LINGER)
    }

    /// The requests that wait, by key.
    pub(super) fn iter(&self, now: u64) -> impl Iterator<Item = (&PublicKey, &Request)> {
        self.waiting.iter().filter(move |(_, request)| !request.is_over(now))
    }

    /// What is known of the request of a node; [`Verdict::Closed`] if nothing is.
    pub(super) fn receive(&mut self, from: PublicKey, name: Option<Name>, now: u64) -> (Option<NetworkId>, Verdict) {
        self.forget(now);
        if let Some(decision) = self.decided.get(&from) {
            let verdict = decision.network.map_or(Verdict::Denied, |_| Verdict::TakenIn);
            return (decision.network, verdict);
        }
        if self.waiting.contains_key(&from) {
            return (None, Verdict::Waits);
        }
        if self.accepted_for(now).is_none() {
            return (None, Verdict::Closed);
        }
        if self.waiting.len() >= MAX_REQUESTS {
            return (None, Verdict::TooMany);
        }
        self.waiting.insert(from, Request { name, since: now });
        (None, Verdict::Waits)
    }

    /// The request of a node: one that waits, or one that was denied by mistake.
    pub(super) fn find(&self, node: &PublicKey, now: u64) -> Option<&Request> {
        let denied = |decision: &&Decision| decision.network.is_none() && now < decision.at + DECISION;
        let decided = self.decided.get(node).filter(denied);
        let waiting = self.waiting.get(node).filter(|request| !request.is_over(now));
        waiting.or(decided.map(|decision| &decision.request))
    }

    /// Keeps a decision: the network, or that the node was denied. Returns whether it had asked.
    pub(super) fn decide(&mut self, node: &PublicKey, network: Option<NetworkId>, now: u64) -> bool {
        self.forget(now);
        let denied = |decided: &mut Self| Some(decided.decided.remove(node)?.request);
        let Some(request) = self.waiting.remove(node).or_else(|| denied(self)) else {
            return false;
        };
        if self.decided.len() >= MAX_DECISIONS {
            let oldest = self.decided.iter().min_by_key(|(_, decision)| decision.at);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                self.decided.remove(&oldest);
            }
        }
        let decision = Decision {
            network,
            request,
            at: now,
        };
        self.decided.insert(*node, decision);
        true
    }

    /// Forgets that a node was approved for a network that it is not a member of any longer.
    pub(super) fn forget_approval(&mut self, node: &PublicKey, is_member: impl Fn(&NetworkId) -> bool) {
        let network = self.decided.get(node).and_then(|decision| decision.network);
        if network.is_some_and(|network| !is_member(&network)) {
            self.decided.remove(node);
        }
    }

    fn forget(&mut self, now: u64) {
        self.waiting.retain(|_, request| !request.is_over(now));
        self.decided.retain(|_, decision| now < decision.at + DECISION);
    }
}

impl Request {
    fn is_over(&self, now: u64) -> bool {
        now >= self.since + WAITS
    }
}

#[cfg(test)]
mod tests {
    use weft_noise::SecretKey;

    use super::*;

    fn key(number: u8) -> PublicKey {
        SecretKey::from_bytes(&[number + 1; 32]).unwrap().public()
    }

    fn verdict(requests: &mut Requests, number: u8, now: u64) -> Verdict {
        requests.receive(key(number), None, now).1
    }

    #[test]
    fn requests_are_accepted_only_while_the_owner_allows_them() {
        let mut requests = Requests::default();
        assert_eq!(verdict(&mut requests, 0, 1_000), Verdict::Closed);
        assert!(!requests.welcome_guests(1_000) && requests.accepted_for(1_000).is_none());
        requests.accept_until(61_000);
        assert_eq!(requests.accepted_for(1_000), Some(60_000));
        assert!(requests.welcome_guests(60_999) && !requests.welcome_guests(61_000));
        assert_eq!(verdict(&mut requests, 0, 60_999), Verdict::Waits);
        assert_eq!(verdict(&mut requests, 1, 61_000), Verdict::Closed);
        // One that waits goes on waiting, for an hour.
        assert_eq!(verdict(&mut requests, 0, 61_000), Verdict::Waits);
        assert_eq!(requests.iter(60_999 + WAITS - 1).count(), 1);
        assert_eq!(requests.iter(60_999 + WAITS).count(), 0);
        assert!(requests.find(&key(0), 60_999 + WAITS).is_none());
        assert_eq!(verdict(&mut requests, 0, 60_999 + WAITS), Verdict::Closed);
    }

    #[test]
    fn a_ninth_request_finds_no_room_and_the_first_name_stays() {
        let mut requests = Requests::default();
        requests.accept_until(10_000);
        let name = |text: &str| Some(Name::host(text).unwrap());
        requests.receive(key(0), name("desk"), 1);
        requests.receive(key(0), name("evil"), 2);
        assert_eq!(requests.find(&key(0), 2).unwrap().name, name("desk"));
        for number in 1..8 {
            assert_eq!(verdict(&mut requests, number, 2), Verdict::Waits);
        }
        assert_eq!(verdict(&mut requests, 8, 2), Verdict::TooMany);
        assert_eq!(requests.iter(2).count(), MAX_REQUESTS);
        assert!(requests.decide(&key(3), None, 3));
        assert_eq!(verdict(&mut requests, 8, 3), Verdict::Waits);
        assert_eq!(verdict(&mut requests, 3, 3), Verdict::Denied);
    }

    #[test]
    fn decisions_are_kept_for_a_while_and_are_few() {
        let mut requests = Requests::default();
        assert!(!requests.decide(&key(0), None, 0), "it has not asked");
        requests.accept_until(1_000);
        for number in 0..200 {
            assert_eq!(verdict(&mut requests, number, number.into()), Verdict::Waits);
            assert!(requests.decide(&key(number), None, number.into()));
        }
        assert_eq!(requests.decided.len(), MAX_DECISIONS);
        assert_eq!(verdict(&mut requests, 199, 2_000), Verdict::Denied);
        assert_eq!(
            verdict(&mut requests, 0, 2_000),
            Verdict::Closed,
            "the oldest is forgotten"
        );
        assert!(requests.welcome_guests(199 + LINGER - 1) && !requests.welcome_guests(199 + LINGER));
        // A request that was denied by mistake can be approved.
        let network = NetworkId::from_bytes([4; 16]);
        assert!(requests.find(&key(199), 2_000).is_some());
        assert!(requests.decide(&key(199), Some(network), 2_000));
        let taken_in = (Some(network), Verdict::TakenIn);
        assert_eq!(requests.receive(key(199), None, 2_001), taken_in);
        assert_eq!(verdict(&mut requests, 199, 2_000 + DECISION), Verdict::Closed);
    }
}
