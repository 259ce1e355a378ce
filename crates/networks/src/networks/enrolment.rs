//! Requests to join with an invite.
//!
//! An admitted node learns it once its record is saved. Otherwise a restart would open the invite
//! again, and another node could take the use that the first one has.

use weft_noise::PublicKey;
use weft_roster::network_id::NetworkId;

use super::Networks;
use crate::Network;
use crate::document::{Ask, Document, Refusal};
use crate::network::Enrolment;

/// Maximum number of requests whose answers this node passes back.
pub(super) const MAX_PASSED_ON: usize = 64;
/// Administrators that get a request that this node passes on.
const ASKED_ADMINS: usize = 3;

/// A node that was admitted by its invite.
pub(super) struct Enrolled {
    /// The network without it.
    before: Box<Network>,
    member: PublicKey,
    /// The node from which the request came.
    from: PublicKey,
}

impl Networks {
    /// Decides about a request, or passes it on.
    pub(super) fn answer_ask(&mut self, from: PublicKey, ask: &Ask, bytes: &[u8], now: u64, unix: u64) {
        let known = self.all.get_mut(&ask.network).filter(|known| !known.is_foreign());
        let outcome = match known {
            Some(network) => network.enrol(&self.identity, ask, now, unix),
            None => Enrolment::Refused(Refusal::OtherNetwork),
        };
        let refusal = match outcome {
            Enrolment::Member => None,
            Enrolment::Done(before) => {
                let member = ask.member;
                self.enrolled = Some(Enrolled { before, member, from });
                return;
            }
            Enrolment::Refused(refusal) => Some(refusal),
            Enrolment::PassOn(admins) => match self.pass_on(from, ask, admins, bytes) {
                true => return,
                false => Some(Refusal::NoAdmin),
            },
        };
        self.answer_asking(from, (ask.network, ask.member), refusal);
    }

    /// The network that a node was taken into which is not told yet. [`settle_enrolment`](Self::settle_enrolment)
    /// has to follow before anything else of it is sent.
    #[must_use]
    pub fn enrolled(&self) -> Option<&Network> {
        let enrolled = self.enrolled.as_ref()?;
        self.all.get(&enrolled.before.id())
    }

    /// Ends an enrolment. If it is `saved`, the node is told that it is a member; otherwise the network
    /// becomes what it was, and the node is refused.
    pub fn settle_enrolment(&mut self, saved: bool) {
        let Some(Enrolled { before, member, from }) = self.enrolled.take() else {
            return;
        };
        let id = before.id();
        let refusal = match saved {
            true => {
                self.changed = true;
                None
            }
            false => {
                let mut before = *before;
                // The file may be the new one all the same.
                before.note_change();
                self.all.insert(id, before);
                self.generation += 1;
                Some(Refusal::NotSaved)
            }
        };
        self.answer_asking(from, (id, member), refusal);
    }

    fn answer_asking(&mut self, to: PublicKey, (network, member): (NetworkId, PublicKey), refusal: Option<Refusal>) {
        let answer = Document::Answer {
            network,
            member,
            refusal,
        };
        self.out.push((to, answer.encode()));
    }

    /// Passes a request on to administrators that can be reached. Returns whether there is one.
    fn pass_on(&mut self, from: PublicKey, ask: &Ask, admins: Vec<PublicKey>, bytes: &[u8]) -> bool {
        let admins = admins.into_iter().filter(|admin| self.reachable.contains(admin));
        let admins: Vec<PublicKey> = admins.filter(|admin| *admin != from).take(ASKED_ADMINS).collect();
        if admins.is_empty() {
            return false;
        }
        if self.passed_on.len() >= MAX_PASSED_ON {
            self.passed_on.pop_first();
        }
        self.passed_on.insert((ask.network, ask.member), from);
        self.out.extend(admins.into_iter().map(|admin| (admin, bytes.to_vec())));
        true
    }
}
