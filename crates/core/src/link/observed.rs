//! The address that a neighbour sees of this node, and the one that this node sees of it; what it
//! asks about third nodes.
//!
//! A node behind a NAT does not know its outer address; its neighbours do. What they say is a hint:
//! a neighbour can say anything, and nothing is sent there without further proof.

use std::net::SocketAddr;

use weft_contract::{Bucket, Endpoint};
use weft_wire::address;
use weft_wire::link::{OBSERVED, SIGHTING, SIGHTING_REQUEST};
use weft_wire::sighting::Sighting;

use super::Link;
use crate::Event;
use crate::context::Context;
use crate::node::REQUESTS;

/// The least time between two changes that are taken from one neighbour, in ms. One that changes
/// its mind more often is not believed more often.
const PACE: u64 = 1_000;

/// How often a neighbour is told again at which address it is seen: nothing says that it has heard it.
const REPEATS: u8 = 2;
/// The time until the first repetition, in ms; four times as long until the next one.
const REPEAT_AFTER: u64 = 1_000;

/// What a neighbour says, and is told. Times are ms.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// The address, and when it came.
    said: Option<(SocketAddr, u64)>,
    /// The repetitions that are left of what the neighbour is told, and when the next one is due.
    repeats: (u8, u64),
    /// The requests for sightings that are still answered; `None` before the first.
    requests: Option<Box<Bucket>>,
}

impl Observed {
    /// Whether the neighbour has said anything: it is a weft node.
    pub(crate) const fn is_told(&self) -> bool {
        self.said.is_some()
    }

    /// Forgets what the neighbour has said: it says it anew on the next link, even if it is the same.
    pub(super) const fn forget(&mut self) {
        self.said = None;
    }

    /// Takes what the neighbour says. Returns whether it is new.
    fn note(&mut self, now: u64, said: SocketAddr) -> bool {
        let known = |(before, at)| before == said || now.saturating_sub(at) < PACE;
        if self.said.is_some_and(known) {
            return false;
        }
        self.said = Some((said, now));
        true
    }

    /// Returns when the neighbour is told again what it was told.
    const fn repeat_at(&self) -> u64 {
        match self.repeats {
            (0, _) => u64::MAX,
            (_, at) => at,
        }
    }

    /// Whether a request of the neighbour for a sighting is within its rate.
    pub(crate) fn may_ask(&mut self, now: u64) -> bool {
        let requests = self
            .requests
            .get_or_insert_with(|| Box::new(Bucket::new(REQUESTS, now)));
        requests.take(REQUESTS, now, 1) == 1
    }
}

impl Link {
    /// Says the neighbour at which address it is seen, if it has proven that address.
    pub(super) fn tell_observed(&mut self, ctx: &mut Context, now: u64) {
        self.send_observed(ctx);
        self.observed.repeats = (REPEATS, now + REPEAT_AFTER);
    }

    /// Returns when [`Link::repeat_observed`] is due.
    pub(super) fn observed_at(&self) -> u64 {
        self.while_up(self.observed.repeat_at())
    }

    /// Says it again.
    pub(super) fn repeat_observed(&mut self, ctx: &mut Context, now: u64) {
        self.send_observed(ctx);
        let left = self.observed.repeats.0.saturating_sub(1);
        self.observed.repeats = (left, now + 4 * REPEAT_AFTER);
    }

    fn send_observed(&self, ctx: &mut Context) {
        if let Some(path) = self.proven_path() {
            self.send(ctx, OBSERVED, address::to_bytes(path.remote()).to_vec());
        }
    }

    /// Returns the path in use, if the neighbour has proven it.
    pub(crate) fn proven_path(&self) -> Option<Endpoint> {
        self.path.filter(|_| !self.moves.is_unproven())
    }

    /// Asks the neighbour whether it sees a third node.
    pub(crate) fn ask_sighting(&self, ctx: &mut Context, asked: &Sighting) {
        self.send(ctx, SIGHTING_REQUEST, asked.to_bytes().to_vec());
    }

    /// Sends the neighbour the address at which this node sees a third node.
    pub(crate) fn tell_sighting(&self, ctx: &mut Context, seen: &Sighting) {
        self.send(ctx, SIGHTING, seen.to_bytes().to_vec());
    }

    /// Handles what the neighbour says about this node.
    pub(crate) fn handle_observed(&mut self, ctx: &mut Context, now: u64, body: &[u8]) {
        let Some(at) = address::from_bytes(body) else { return };
        if self.is_up() && self.observed.note(now, at) {
            ctx.event(Event::Observed { by: self.peer, at });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_is_heard_once_a_second() {
        let mut observed = Observed::default();
        let [a, b] = ["192.0.2.1:1", "192.0.2.1:2"].map(|addr| addr.parse().unwrap());
        assert!(observed.note(5, a));
        assert!(!observed.note(5_000, a), "it says the same");
        assert!(observed.note(5_001, b));
        assert!(!observed.note(6_000, a), "too soon");
        assert!(observed.note(6_001, a));
        assert_eq!(observed.said.map(|(said, _)| said), Some(a));
    }
}
