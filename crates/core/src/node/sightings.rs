//! Where neighbours see third nodes.
//!
//! A peer can name any address as its own, a victim's too. Before this node sends many datagrams to
//! where a peer says that it is, it asks neighbours that it trusts whether they see the peer there.
//! docs/protocol/link.md, "SightingRequest".

use std::collections::VecDeque;
use std::net::SocketAddr;

use weft_contract::{Endpoint, LinkId, Rate};
use weft_noise::PublicKey;
use weft_wire::NodeAddr;
use weft_wire::sighting::Sighting;

use super::{Node, Peer};
use crate::Event;

/// Requests of one neighbour that are answered a second, and at once.
pub(crate) const REQUESTS: Rate = Rate {
    per_second: PER_SECOND,
    burst: BURST,
};
const PER_SECOND: u64 = 1;
const BURST: u64 = 16;
/// Requests of this node that wait for an answer; the oldest makes room.
const ASKED: usize = 32;
/// Time within which an answer counts, in ms.
const ANSWER_WITHIN: u64 = 10_000;

/// Requests of this node that wait for an answer.
#[derive(Debug, Default)]
pub(super) struct Sightings(VecDeque<Asked>);

#[derive(Debug)]
struct Asked {
    of: NodeAddr,
    neighbour: NodeAddr,
    at: SocketAddr,
    when: u64,
}

impl Sightings {
    fn ask(&mut self, asked: Asked) {
        if self.0.len() >= ASKED {
            self.0.pop_front();
        }
        self.0.push_back(asked);
    }

    /// Takes an answer of a neighbour. Returns whether it was asked.
    fn take(&mut self, now: u64, neighbour: NodeAddr, said: &Sighting) -> bool {
        self.0.retain(|asked| now < asked.when + ANSWER_WITHIN);
        let fits = |asked: &Asked| asked.neighbour == neighbour && asked.of == said.of && asked.at.ip() == said.at.ip();
        let at = self.0.iter().position(fits);
        at.and_then(|at| self.0.remove(at)).is_some()
    }
}

impl Node {
    /// Asks a neighbour whether it sees the node `of` at this IP address. If it does,
    /// [`Event::Sighted`] follows. Returns whether there is a link with the neighbour.
    pub fn ask_sighting(&mut self, now: u64, neighbour: &PublicKey, of: NodeAddr, at: SocketAddr) -> bool {
        let addr = neighbour.node_addr();
        let Some(peer) = self.peers.get_mut(&addr).filter(|peer| peer.link.is_up() && addr != of) else {
            return false;
        };
        peer.link.ask_sighting(&mut self.ctx, &Sighting { of, at });
        let when = now;
        self.sightings.ask(Asked {
            of,
            neighbour: addr,
            at,
            when,
        });
        true
    }

    /// Handles the question of a neighbour.
    pub(super) fn handle_sighting_request(&mut self, now: u64, link: LinkId, body: &[u8]) {
        let Ok(asked) = Sighting::parse(body) else {
            self.counters.messages_malformed += 1;
            return;
        };
        let Some(from) = self.by_link.get(&link).copied() else {
            return;
        };
        let apart = self.is_apart(link);
        let peer = self.peers.get_mut(&from).filter(|_| !apart);
        if !peer.is_some_and(|peer| peer.link.observed.may_ask(now)) {
            self.counters.sightings_refused += 1;
            return;
        }
        let seen = self.peers.get(&asked.of).and_then(|peer| peer.link.proven_path());
        let seen = seen
            .map(Endpoint::remote)
            .filter(|at| at.ip() == asked.at.ip() && asked.of != from);
        if let (Some(at), Some(peer)) = (seen, self.peers.get_mut(&from)) {
            peer.link.tell_sighting(&mut self.ctx, &Sighting { of: asked.of, at });
        }
    }

    /// Handles the answer of a neighbour.
    pub(super) fn handle_sighting(&mut self, now: u64, link: LinkId, body: &[u8]) {
        let Ok(said) = Sighting::parse(body) else {
            self.counters.messages_malformed += 1;
            return;
        };
        let neighbour = self.by_link.get(&link).and_then(|addr| self.peers.get(addr));
        let Some(by) = neighbour.map(Peer::key) else { return };
        if self.sightings.take(now, by.node_addr(), &said) {
            let Sighting { of, at } = said;
            self.ctx.event(Event::Sighted { by, of, at });
        } else {
            self.counters.sightings_refused += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeAddr = NodeAddr::new([1; 16]);
    const B: NodeAddr = NodeAddr::new([2; 16]);

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn asked(when: u64, number: u8) -> Asked {
        Asked {
            of: NodeAddr::new([number; 16]),
            neighbour: A,
            at: at("203.0.113.5:1"),
            when,
        }
    }

    #[test]
    fn only_an_answer_that_was_asked_for_counts_and_once() {
        let mut sightings = Sightings::default();
        sightings.ask(asked(0, 9));
        let of = NodeAddr::new([9; 16]);
        let said = Sighting {
            of,
            at: at("203.0.113.5:40001"),
        };
        assert!(!sightings.take(1, B, &said), "another neighbour");
        assert!(!sightings.take(1, A, &Sighting { of: B, ..said }), "another node");
        let elsewhere = at("203.0.113.6:40001");
        assert!(!sightings.take(1, A, &Sighting { at: elsewhere, ..said }));
        assert!(sightings.take(1, A, &said) && !sightings.take(1, A, &said));
        sightings.ask(asked(5, 9));
        assert!(!sightings.take(5 + ANSWER_WITHIN, A, &said), "too late");
    }

    #[test]
    fn the_requests_that_wait_are_bounded() {
        let mut sightings = Sightings::default();
        (0..200).for_each(|number| sightings.ask(asked(0, number)));
        assert_eq!(sightings.0.len(), ASKED);
        assert_eq!(sightings.0.back().unwrap().of, NodeAddr::new([199; 16]));
    }
}
