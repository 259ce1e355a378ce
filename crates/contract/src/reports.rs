//! Reports on their way to the core: proofs and handshakes apart from the rest, and the rest in
//! shares of those that cause it.
//!
//! Each lane has such a queue, and another one is between the lanes and the core. A proof is
//! reported once and changes the keys that seal, so it goes first and is never dropped. Every other
//! report is repeated in some form. One neighbour's flood may cost that neighbour alone.

use std::collections::VecDeque;

use weft_wire::NodeAddr;

use crate::bounds;
use crate::control::{Layer, LinkActivity, LinkId, LinkReport, Report, SessionActivity, SessionReport};
use crate::shares::{Load, Shares};

/// The party that causes a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The neighbour of this link.
    Link(LinkId),
    /// The peer of a session, whose keys opened what is reported.
    Peer(NodeAddr),
    /// The same peer, by messages for services. They have a share of their own, so that they keep no
    /// other report of the peer out.
    Service(NodeAddr),
    /// Hosts that have seen a token which this node awaits.
    Outside,
    /// Hosts that send messages of WireGuard other than data messages.
    WireGuard,
    /// This node and its host.
    Own,
}

impl Report {
    /// Returns whether the report announces that keys are in use. It is sent once: without it, core
    /// and lane disagree about the keys.
    #[must_use]
    pub fn is_proof(&self) -> bool {
        matches!(
            self,
            Self::Link(_, LinkReport::Proven { .. } | LinkReport::HopProven { .. })
                | Self::Session(
                    _,
                    SessionReport::Proven { .. } | SessionReport::FastProven { .. } | SessionReport::Confirmed { .. }
                )
        )
    }

    /// Returns whether the report is a handshake datagram that the gate admitted.
    #[must_use]
    pub fn is_handshake(&self) -> bool {
        matches!(self, Self::Handshake { .. })
    }

    /// Returns the party whose share the report counts towards.
    #[must_use]
    pub fn cause(&self) -> Cause {
        match self {
            Self::Handshake { .. } | Self::Session(_, SessionReport::Wanted) | Self::Activity { .. } => Cause::Own,
            Self::Outside { .. } => Cause::Outside,
            Self::WireGuard { .. } => Cause::WireGuard,
            Self::WireGuardTraffic(peer, _) => Cause::Peer(*peer),
            Self::Link(link, _)
            | Self::Session(_, SessionReport::Arrives { link })
            | Self::Measured(Layer::Link(link), _) => Cause::Link(*link),
            Self::Session(peer, SessionReport::Service { .. }) => Cause::Service(*peer),
            Self::Session(peer, _) | Self::Measured(Layer::Session(peer), _) => Cause::Peer(*peer),
        }
    }

    /// Returns how much the report takes while it waits, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let more = match self {
            Self::Handshake { datagram, .. } | Self::Outside { datagram, .. } | Self::WireGuard { datagram, .. } => {
                datagram.len()
            }
            Self::Link(_, LinkReport::Message { body, .. } | LinkReport::Transit { body })
            | Self::Session(_, SessionReport::Message { body, .. } | SessionReport::Service { bytes: body, .. }) => {
                body.len()
            }
            Self::Activity { links, sessions } => {
                size_of_val::<[LinkActivity]>(links) + size_of_val::<[SessionActivity]>(sessions)
            }
            _ => 0,
        };
        size_of::<Self>() + more
    }
}

/// The reports that wait, each with a tag of type `T`; see the module.
#[derive(Debug)]
pub struct ReportQueue<T> {
    /// Proofs and handshakes.
    first: VecDeque<(T, Report)>,
    handshakes: usize,
    max_proofs: usize,
    rest: VecDeque<(T, Report)>,
    shares: Shares<Cause>,
}

impl<T> ReportQueue<T> {
    /// Makes an empty queue for at most `max_proofs` proofs, with the bounds in [`bounds`] for
    /// everything else.
    #[must_use]
    pub const fn new(max_proofs: usize) -> Self {
        Self {
            first: VecDeque::new(),
            handshakes: 0,
            max_proofs,
            rest: VecDeque::new(),
            shares: Shares::new(bounds::REPORTS),
        }
    }

    /// Queues a report. Returns the reports for which there is no room: this one, or the newest
    /// ones of parties that hold more than their share.
    #[must_use]
    pub fn push(&mut self, tag: T, report: Report) -> Vec<Report> {
        if report.is_proof() {
            if self.first.len() - self.handshakes >= self.max_proofs {
                return vec![report];
            }
            if let Report::Link(link, LinkReport::Proven { .. }) = report {
                self.forget_moves(link);
            }
            self.first.push_back((tag, report));
        } else if report.is_handshake() {
            if self.handshakes >= bounds::HANDSHAKES {
                return vec![report];
            }
            self.handshakes += 1;
            self.first.push_back((tag, report));
        } else {
            let (cause, bytes) = (report.cause(), report.bytes());
            let mut displaced = Vec::new();
            while !self.shares.take(cause, bytes) {
                let most = self.shares.displaces(cause, bytes);
                match most.and_then(|most| self.take_newest(most)) {
                    Some(newest) => displaced.push(newest),
                    None => {
                        displaced.push(report);
                        return displaced;
                    }
                }
            }
            self.rest.push_back((tag, report));
            return displaced;
        }
        Vec::new()
    }

    fn take_newest(&mut self, of: Cause) -> Option<Report> {
        let at = self.rest.iter().rposition(|(_, report)| report.cause() == of)?;
        let (_, report) = self.rest.remove(at)?;
        self.shares.give_back(of, report.bytes());
        Some(report)
    }

    /// Removes earlier reports of new addresses of a link, since a proof of the link reports its
    /// address and overtakes them.
    fn forget_moves(&mut self, of: LinkId) {
        let shares = &mut self.shares;
        self.rest.retain(|(_, report)| {
            let moved = matches!(report, Report::Link(link, LinkReport::Roamed { .. }) if *link == of);
            if moved {
                shares.give_back(report.cause(), report.bytes());
            }
            !moved
        });
    }

    /// Puts back a proof that was removed and found no room elsewhere: it is the next report again.
    pub fn put_back(&mut self, tag: T, proof: Report) {
        self.first.push_front((tag, proof));
    }

    /// Removes and returns the next report.
    pub fn pop(&mut self) -> Option<(T, Report)> {
        self.pop_if(|_| true)
    }

    /// Removes and returns the next report if its tag is ready.
    pub fn pop_if(&mut self, ready: impl Fn(&T) -> bool) -> Option<(T, Report)> {
        if self.first.front().is_some_and(|(tag, _)| ready(tag)) {
            let next = self.first.pop_front();
            let handshake = next.as_ref().is_some_and(|(_, report)| report.is_handshake());
            self.handshakes -= usize::from(handshake);
            return next;
        }
        if !self.rest.front().is_some_and(|(tag, _)| ready(tag)) {
            return None;
        }
        let (tag, report) = self.rest.pop_front()?;
        self.shares.give_back(report.cause(), report.bytes());
        Some((tag, report))
    }

    /// Returns the tags of the next reports of either kind.
    pub fn next_tags(&self) -> impl Iterator<Item = &T> {
        [self.first.front(), self.rest.front()]
            .into_iter()
            .flatten()
            .map(|(tag, _)| tag)
    }

    /// Returns whether no report waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && self.rest.is_empty()
    }

    /// Drops all reports but proofs.
    pub fn drop_all_but_proofs(&mut self) {
        self.first.retain(|(_, report)| report.is_proof());
        self.handshakes = 0;
        self.rest.clear();
        self.shares = Shares::new(bounds::REPORTS);
    }

    /// Returns the number and size of the reports that wait, without proofs and handshakes.
    #[must_use]
    pub fn load(&self) -> Load {
        self.shares.load()
    }

    /// Checks that the bounds hold.
    ///
    /// # Errors
    /// The broken invariant, in words.
    pub fn check(&self) -> Result<(), String> {
        let (load, bound) = (self.shares.load(), self.shares.bound());
        if load.count != self.rest.len() || load.count > bound.count || load.bytes > bound.bytes {
            return Err(format!("{load:?} of reports wait, at most {bound:?}"));
        }
        if self.handshakes > bounds::HANDSHAKES {
            return Err(format!("{} handshakes wait", self.handshakes));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
