//! The nodes of relayed paths: requests that go along a path, and what each node of it says about
//! itself.
//!
//! A request passes from relay to relay as data does, and each relay remembers where it came from.
//! So an answer goes only to a neighbour that asked, and has no address that could be forged. What
//! one request costs is bounded by [`MAX_DISTANCE`] requests and as many answers on each link;
//! how many there are is bounded by the link over which they arrive. docs/protocol/link.md,
//! "HopsRequest".

use std::collections::{BTreeMap, VecDeque};

use weft_contract::{Bucket, Label, LinkId, Rate, SendCommand};
use weft_noise::PublicKey;
pub use weft_wire::hops::Onward;
use weft_wire::hops::{Hop, HopsRequest, MAX_DISTANCE};
use weft_wire::link::{HOP, HOPS_REQUEST};
use weft_wire::{NodeAddr, WireError};

use super::{Node, Peer};
use crate::Event;

/// Requests of one neighbour.
const OF_LINK: Rate = Rate {
    per_second: PER_SECOND,
    burst: BURST,
};
/// Requests of all neighbours together.
const ALL: Rate = Rate {
    per_second: ALL_PER_SECOND,
    burst: ALL_BURST,
};
const PER_SECOND: u64 = 2;
const BURST: u64 = 16;
const ALL_PER_SECOND: u64 = 32;
const ALL_BURST: u64 = 64;
/// Number of links above which those whose budget has filled up again are forgotten.
const MANY: usize = 128;
/// Time in which answers to a request count, in ms.
const LIFE: u64 = 2_000;
/// Maximum number of requests whose answers are awaited. The rates allow fewer, and the rest is for
/// this node's own.
const OPEN: usize = 160;

/// What a node of a path says about itself. Only that of the first node is proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopSaid {
    /// How many links it is away, 1 or more.
    pub distance: u8,
    /// Its public key.
    pub key: PublicKey,
    /// The round trip of its link to the next hop in µs, if it is measured.
    pub rtt_us: Option<u32>,
    /// What became of the request there.
    pub onward: Onward,
}

/// The requests that this node has sent or passed on, and the budgets of those of neighbours. Times
/// are ms on the caller's clock.
#[derive(Debug)]
pub(super) struct Hops {
    open: VecDeque<Request>,
    /// The number of the latest request that was sent.
    last: u32,
    of_link: BTreeMap<LinkId, Bucket>,
    all: Bucket,
}

/// A request that went to a next hop.
#[derive(Debug)]
struct Request {
    /// Its number there.
    id: u32,
    to: LinkId,
    /// The distance of the next hop from the node that asks.
    distance: u8,
    /// Where its answers go; `None` for a request of this node.
    from: Option<(LinkId, u32)>,
    until: u64,
    /// The distances from which an answer came, as bits.
    heard: u32,
}

impl Default for Hops {
    fn default() -> Self {
        Self {
            open: VecDeque::new(),
            last: 0,
            of_link: BTreeMap::new(),
            all: Bucket::new(ALL, 0),
        }
    }
}

impl Hops {
    /// Takes a request of a neighbour from the budgets, and returns whether it may be read.
    fn take(&mut self, now: u64, link: LinkId) -> bool {
        if self.of_link.len() >= MANY && !self.of_link.contains_key(&link) {
            self.of_link.retain(|_, share| !share.is_full(OF_LINK, now));
        }
        let share = self.of_link.entry(link);
        let share = share.or_insert_with(|| Bucket::new(OF_LINK, now));
        share.take(OF_LINK, now, 1) == 1 && self.all.take(ALL, now, 1) == 1
    }

    /// Enters a request to the next hop on `to`, and returns its number.
    fn open(&mut self, now: u64, to: LinkId, distance: u8, from: Option<(LinkId, u32)>) -> u32 {
        self.open.retain(|request| now < request.until);
        if self.open.len() >= OPEN {
            self.open.pop_front();
        }
        self.last = self.last.wrapping_add(1);
        self.open.push_back(Request {
            id: self.last,
            to,
            distance,
            from,
            until: now + LIFE,
            heard: 0,
        });
        self.last
    }

    /// Takes an answer that came over `link` from the neighbour with `key`. Returns where it goes, or
    /// `None` if it was not asked for.
    fn answer(&mut self, now: u64, link: LinkId, key: &PublicKey, hop: &Hop) -> Option<Option<(LinkId, u32)>> {
        let fits = |request: &&mut Request| request.id == hop.id && request.to == link && now < request.until;
        let request = self.open.iter_mut().find(fits)?;
        let bit = 1_u32 << hop.distance;
        let forged = hop.distance == request.distance && hop.key != *key.as_bytes();
        if hop.distance < request.distance || request.heard & bit != 0 || forged {
            return None;
        }
        request.heard |= bit;
        Some(request.from)
    }

    /// Checks that memory is bounded.
    ///
    /// # Errors
    /// The broken invariant, in words.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.open.len() {
            0..=OPEN => Ok(()),
            more => Err(format!("{more} requests for hops wait for answers")),
        }
    }
}

impl Node {
    /// Asks the nodes on the path to a peer about themselves, if it is relayed and the first relay is
    /// known to be a weft node. Returns the number of the request; [`Event::Hop`] follows for each
    /// node that says something.
    pub fn ask_hops(&mut self, now: u64, peer: &PublicKey) -> Option<u32> {
        let dest = peer.node_addr();
        let to = self.peers.get(&dest)?.session.next_hop()?;
        let (via, relay) = self.up(to)?;
        if via == dest || !relay.link.observed.is_told() {
            return None;
        }
        let id = self.hops.open(now, to, 1, None);
        self.send_request(to, id, 1, dest);
        Some(id)
    }

    /// Returns the round trip of the link to a neighbour in µs, if it is measured.
    #[must_use]
    pub fn link_rtt_us(&self, now: u64, neighbour: &PublicKey) -> Option<u32> {
        self.peers.get(&neighbour.node_addr())?.hop_quality(now).rtt_us
    }

    /// Handles a request of a neighbour about the path to a node.
    pub(super) fn handle_hops_request(&mut self, now: u64, link: LinkId, body: &[u8]) {
        let Some(asked) = self.read_hops(HopsRequest::parse(body)) else {
            return;
        };
        let forwards = self.ctx.config.mesh && self.ctx.config.transit && !self.is_apart(link);
        let next = match forwards && self.hops.take(now, link) {
            true => self.hop_of_data(now, link, asked.dest),
            false => None,
        };
        let Some((to, via)) = next else {
            self.counters.hops_refused += 1;
            return;
        };
        let Some(peer) = self.peers.get(&via) else { return };
        let onward = match peer.link.observed.is_told() {
            _ if via == asked.dest => Onward::Destination,
            false => Onward::Foreign,
            true if asked.distance >= MAX_DISTANCE => Onward::Far,
            true => Onward::Passed,
        };
        let own = Hop {
            id: asked.id,
            distance: asked.distance,
            onward,
            rtt_us: peer.hop_quality(now).rtt_us.unwrap_or(Hop::UNKNOWN_RTT),
            key: *self.ctx.identity.public().as_bytes(),
        };
        self.send_on(link, HOP, own.to_bytes().to_vec());
        if onward == Onward::Passed {
            let distance = asked.distance + 1;
            let id = self.hops.open(now, to, distance, Some((link, asked.id)));
            self.send_request(to, id, distance, asked.dest);
        }
    }

    /// Handles what a neighbour, or a node behind it, says about itself.
    pub(super) fn handle_hop(&mut self, now: u64, link: LinkId, body: &[u8]) {
        let Some(hop) = self.read_hops(Hop::parse(body)) else {
            return;
        };
        let neighbour = self.up(link).map(|(_, peer)| peer.key());
        match neighbour.and_then(|key| self.hops.answer(now, link, &key, &hop)) {
            Some(Some((back, id))) => self.send_on(back, HOP, Hop { id, ..hop }.to_bytes().to_vec()),
            Some(None) => self.report_hop(&hop),
            None => self.counters.hops_refused += 1,
        }
    }

    /// Reports what a node says about itself to the user.
    fn report_hop(&mut self, hop: &Hop) {
        let Ok(key) = PublicKey::from_bytes(&hop.key) else {
            self.counters.hops_refused += 1;
            return;
        };
        let said = HopSaid {
            distance: hop.distance,
            key,
            rtt_us: Some(hop.rtt_us).filter(|rtt| *rtt != Hop::UNKNOWN_RTT),
            onward: hop.onward,
        };
        self.ctx.event(Event::Hop { id: hop.id, said });
    }

    /// Returns the link on which data of the neighbour on `link` goes to `dest`, and the next hop. An
    /// answer about it needs no look-up, and enters no route.
    fn hop_of_data(&self, now: u64, link: LinkId, dest: NodeAddr) -> Option<(LinkId, NodeAddr)> {
        let from = self.by_link.get(&link).copied()?;
        let of_link = (link, Label(0))..=(link, Label(u32::MAX));
        let mut labels = self.labels.incoming.range(of_link).map(|(_, incoming)| incoming);
        let labelled = labels.find(|incoming| incoming.dest == dest).and_then(|label| label.to);
        let labelled = labelled.filter(|to| *to != link);
        let labelled = labelled.and_then(|to| Some((to, self.up(to)?.0)));
        labelled.or_else(|| self.next_hop_in_use(now, dest, Some(from)))
    }

    /// Returns the neighbour on a link that is up.
    fn up(&self, link: LinkId) -> Option<(NodeAddr, &Peer)> {
        let addr = self.by_link.get(&link)?;
        let peer = self.peers.get(addr).filter(|peer| peer.link.is_up())?;
        Some((*addr, peer))
    }

    fn read_hops<T>(&mut self, read: Result<T, WireError>) -> Option<T> {
        self.counters.messages_malformed += u64::from(read.is_err());
        read.ok()
    }

    fn send_request(&mut self, to: LinkId, id: u32, distance: u8, dest: NodeAddr) {
        let request = HopsRequest { id, distance, dest };
        self.send_on(to, HOPS_REQUEST, request.to_bytes().to_vec());
    }

    fn send_on(&mut self, link: LinkId, msg_type: u8, body: Vec<u8>) {
        if self.up(link).is_some() {
            self.ctx.lane(SendCommand::OnLink {
                link,
                epoch: None,
                msg_type,
                body,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_noise::SecretKey;

    use super::*;

    const A: LinkId = LinkId(1);
    const B: LinkId = LinkId(2);

    fn key(number: u8) -> PublicKey {
        SecretKey::from_bytes(&[number; 32]).unwrap().public()
    }

    fn hop(id: u32, distance: u8, key: &PublicKey) -> Hop {
        Hop {
            id,
            distance,
            onward: Onward::Passed,
            rtt_us: 1,
            key: *key.as_bytes(),
        }
    }

    #[test]
    fn an_answer_counts_once_for_each_distance_and_by_the_next_hop() {
        let (mut hops, next, far) = (Hops::default(), key(1), key(2));
        let id = hops.open(0, A, 3, Some((B, 77)));
        assert_eq!(hops.answer(1, B, &next, &hop(id, 3, &next)), None, "another link");
        assert_eq!(hops.answer(1, A, &next, &hop(id + 1, 3, &next)), None, "another number");
        assert_eq!(hops.answer(1, A, &next, &hop(id, 2, &next)), None, "this node itself");
        assert_eq!(
            hops.answer(1, A, &next, &hop(id, 3, &far)),
            None,
            "a forged key of the next hop"
        );
        for (distance, key) in [(4, far), (3, next), (MAX_DISTANCE, far)] {
            let said = hop(id, distance, &key);
            assert_eq!(hops.answer(1, A, &next, &said), Some(Some((B, 77))), "{distance}");
            assert_eq!(hops.answer(1, A, &next, &said), None, "{distance} again");
        }
        assert_eq!(hops.answer(LIFE, A, &next, &hop(id, 5, &far)), None, "too late");
    }

    #[test]
    fn requests_have_rates_and_those_that_wait_are_bounded() {
        let mut hops = Hops::default();
        let burst = (0..1_000).filter(|_| hops.take(0, A)).count();
        assert_eq!(burst as u64, BURST);
        assert!(hops.take(0, B), "another neighbour has its own");
        let minute = (1..=60_000).filter(|now| hops.take(*now, A)).count();
        assert_eq!(minute as u64, 60 * PER_SECOND);
        let all = (0..1_000).filter(|n| hops.take(60_000, LinkId(10 + n))).count();
        assert!(all as u64 <= ALL_BURST, "{all}");
        for n in 0..1_000 {
            hops.open(n / 100, A, 1, None);
            hops.check().unwrap();
        }
        assert_eq!(hops.open.len(), OPEN);
        hops.open(LIFE + 10, A, 1, None);
        assert_eq!(hops.open.len(), 1, "the old ones are gone");
    }

    #[test]
    fn budgets_of_links_that_are_gone_are_forgotten() {
        let mut hops = Hops::default();
        for n in 0..100_000 {
            hops.take(u64::from(n) * 1_000, LinkId(n));
        }
        assert!(hops.of_link.len() <= MANY, "{}", hops.of_link.len());
    }
}
