//! Reports on their way to the core: proofs and handshakes apart from the rest, and the rest shared by who causes it.
//!
//! The same queue is in each lane and between the lanes and the core. A proof is told once and changes what is sealed with, so
//! it goes first and is never dropped. Everything else comes again in some way, and one neighbour's flood may cost that
//! neighbour alone.

use std::collections::VecDeque;

use weft_wire::NodeAddr;

use crate::bounds;
use crate::control::{Layer, LinkActivity, LinkId, Report, SessionActivity};
use crate::shares::{Load, Shares};

/// Who causes a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The neighbour at the other end of this link.
    Link(LinkId),
    /// The other end of a session, whose keys opened it.
    Peer(NodeAddr),
    /// This node and its host.
    Own,
}

impl Report {
    /// It tells that keys are in use, once: if it is lost, core and lane disagree about them.
    #[must_use]
    pub fn is_proof(&self) -> bool {
        matches!(
            self,
            Self::LinkProven { .. }
                | Self::SessionProven { .. }
                | Self::FastProven { .. }
                | Self::HopProven { .. }
                | Self::SessionConfirmed { .. }
        )
    }

    /// It is a handshake datagram that the gate admitted.
    #[must_use]
    pub fn is_handshake(&self) -> bool {
        matches!(self, Self::Handshake { .. })
    }

    /// Whose share it comes out of.
    #[must_use]
    pub fn cause(&self) -> Cause {
        match self {
            Self::EarlyFrame { link, .. }
            | Self::LinkProven { link, .. }
            | Self::HopProven { link, .. }
            | Self::LabelFailed { link, .. }
            | Self::LinkMessage { link, .. }
            | Self::Transit { link, .. }
            | Self::TransitTooLarge { link, .. }
            | Self::UnknownSession { link, .. }
            | Self::Arrives { link, .. }
            | Self::Roamed { link, .. }
            | Self::Measured {
                on: Layer::Link(link), ..
            } => Cause::Link(*link),
            Self::SessionProven { peer, .. }
            | Self::FastProven { peer, .. }
            | Self::SessionConfirmed { peer, .. }
            | Self::SessionMessage { peer, .. }
            | Self::EchoReply { peer, .. }
            | Self::Measured {
                on: Layer::Session(peer),
                ..
            } => Cause::Peer(*peer),
            Self::Handshake { .. } | Self::Wanted { .. } | Self::Activity { .. } => Cause::Own,
        }
    }

    /// What it takes while it waits, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let more = match self {
            Self::Handshake { datagram, .. } => datagram.len(),
            Self::LinkMessage { body, .. } | Self::Transit { body, .. } | Self::SessionMessage { body, .. } => {
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

/// See the module. `T` goes along with each report.
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
    /// An empty queue that takes so many proofs, and what [`bounds`] says of everything else.
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

    /// Queues a report. Returns the reports that find no room: this one, or the newest ones of parties that hold more than
    /// their part.
    #[must_use]
    pub fn push(&mut self, tag: T, report: Report) -> Vec<Report> {
        if report.is_proof() {
            if self.first.len() - self.handshakes >= self.max_proofs {
                return vec![report];
            }
            if let Report::LinkProven { link, .. } = report {
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

    /// A proof of a link tells where it leads now, and overtakes what was told of that before.
    fn forget_moves(&mut self, of: LinkId) {
        let shares = &mut self.shares;
        self.rest.retain(|(_, report)| {
            let moved = matches!(report, Report::Roamed { link, .. } if *link == of);
            if moved {
                shares.give_back(report.cause(), report.bytes());
            }
            !moved
        });
    }

    /// Puts back a proof that was taken out and found no room elsewhere: it is the next one again.
    pub fn put_back(&mut self, tag: T, proof: Report) {
        self.first.push_front((tag, proof));
    }

    /// The next report.
    pub fn pop(&mut self) -> Option<(T, Report)> {
        self.pop_if(|_| true)
    }

    /// The next report whose tag is ready.
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

    /// The tags of the next reports of either kind.
    pub fn next_tags(&self) -> impl Iterator<Item = &T> {
        [self.first.front(), self.rest.front()]
            .into_iter()
            .flatten()
            .map(|(tag, _)| tag)
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && self.rest.is_empty()
    }

    /// Drops everything but proofs.
    pub fn drop_all_but_proofs(&mut self) {
        self.first.retain(|(_, report)| report.is_proof());
        self.handshakes = 0;
        self.rest.clear();
        self.shares = Shares::new(bounds::REPORTS);
    }

    /// What waits, but for proofs and handshakes.
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
