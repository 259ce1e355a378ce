//! How this node comes into a network: by an invite, by the decision of an administrator, or back, once it
//! has lost the records.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use weft_noise::PublicKey;
use weft_roster::invite::{Code, Proof};
use weft_roster::names::Name;
use weft_roster::network_id::NetworkId;
use weft_roster::set::RecordSet;

use super::Network;
use crate::document::{Ask, Document, Refusal};

/// The interval between two requests to join, in ms.
const ASK_AGAIN: u64 = 2_000;
/// Contacts of a network whose records are lost, beyond which a node that calls is not listened to.
const MAX_CALLERS: usize = 64;

/// A request to join that is under way, or was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joining {
    /// The proof that this node has an invite code; `None` if an administrator has approved its
    /// request, and only the records are missing.
    pub proof: Option<Proof>,
    /// The name that it would like.
    pub name: Option<Name>,
    /// The last refusal. The request continues, because the next answer may be another one.
    pub refusal: Option<Refusal>,
    /// When it is sent again, in ms.
    pub(super) next: u64,
}

impl Network {
    /// A network that this node is about to join with `code`.
    pub(crate) fn join(own: &PublicKey, code: &Code, host: Option<Name>, now: u64) -> Self {
        let mut contacts = BTreeMap::from([(code.inviter, code.addresses.clone())]);
        if let Some(entry) = &code.entry {
            contacts.entry(entry.key).or_default().push(entry.address);
        }
        contacts.remove(own);
        let proof = code.seed.prove(own, code.network);
        let mut network = Self::kept(own, RecordSet::new(code.network), contacts, Some((Some(proof), host)));
        network.note_change();
        if let Some(joining) = &mut network.joining {
            joining.next = now;
        }
        network
    }

    /// A network of which this node shall be a member, as the administrator `admin` says.
    pub(crate) fn approved(own: &PublicKey, id: NetworkId, admin: PublicKey, addresses: Vec<SocketAddr>) -> Self {
        let mut network = Self::kept(own, RecordSet::new(id), BTreeMap::new(), None);
        network.expect_records(admin, addresses);
        network
    }

    /// A network that this node had, and whose records it has lost. The `contacts` are members, each
    /// with addresses at which it was.
    pub(crate) fn lost(own: &PublicKey, id: NetworkId, contacts: BTreeMap<PublicKey, Vec<SocketAddr>>) -> Self {
        let mut network = Self::kept(own, RecordSet::new(id), contacts, Some((None, None)));
        network.is_lost = true;
        network
    }

    /// Whether its records were lost here, and have not come back.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Takes records from the administrator `admin` until this node is a member.
    pub(crate) fn expect_records(&mut self, admin: PublicKey, addresses: Vec<SocketAddr>) {
        self.contacts.insert(admin, addresses);
        self.joining.get_or_insert(Joining {
            proof: None,
            name: None,
            refusal: None,
            next: 0,
        });
        self.note_change();
    }

    /// Whether this node listens to another one: as long as it knows no members, to those that it asked.
    /// One that has lost the records listens to more: those that dial it may be members, and records
    /// prove themselves.
    pub(super) fn listens_to(&mut self, from: &PublicKey) -> bool {
        if self.knows_members() || self.contacts.contains_key(from) {
            return true;
        }
        let room = self.is_lost && self.contacts.len() < MAX_CALLERS;
        if room {
            self.contacts.insert(*from, Vec::new());
        }
        room
    }

    /// Whether it listens to others than its contacts.
    pub(super) fn listens_to_some(&self) -> bool {
        self.is_lost || self.knows_members()
    }

    fn knows_members(&self) -> bool {
        self.joining.is_none() || !self.state.members.is_empty()
    }

    /// Ends the request once this node is a member. `from` has sent the records.
    pub(super) fn end_joining(&mut self, own: &PublicKey, from: &PublicKey) {
        if !self.is_member(own) {
            return;
        }
        self.joining = None;
        if std::mem::take(&mut self.is_lost) {
            // Nodes that called and gave nothing.
            self.contacts
                .retain(|key, addresses| key == from || !addresses.is_empty());
        }
    }

    /// Forgets callers that are gone, which makes room for others.
    pub(super) fn forget_callers(&mut self, reachable: &BTreeSet<PublicKey>) {
        if self.is_lost {
            self.contacts
                .retain(|key, addresses| !addresses.is_empty() || reachable.contains(key));
        }
    }

    /// The contacts of which no record has come yet. Records come in several messages, and that of
    /// this node may come before those of the nodes that send them.
    pub(super) fn awaited(&self) -> impl Iterator<Item = &PublicKey> {
        let known = |key: &PublicKey| self.is_member(key) || self.state.removed.contains_key(key);
        self.contacts.keys().filter(move |key| !known(key))
    }

    /// Handles an answer to this node's request.
    pub(crate) fn handle_answer(&mut self, from: &PublicKey, refusal: Option<Refusal>) {
        if let Some(joining) = self.joining.as_mut().filter(|_| self.contacts.contains_key(from)) {
            joining.refusal = refusal;
        }
    }

    /// The request to join, to the next of the contacts, if it is due.
    pub(super) fn ask(&mut self, own: &PublicKey, now: u64) -> Option<(PublicKey, Vec<u8>)> {
        let network = self.id();
        let joining = self.joining.as_mut().filter(|joining| joining.next <= now)?;
        let proof = joining.proof.clone()?;
        joining.next = now + ASK_AGAIN;
        let turn = usize::try_from(now / ASK_AGAIN).unwrap_or(0) % self.contacts.len().max(1);
        let to = *self.contacts.keys().nth(turn)?;
        let ask = Document::Ask(Ask {
            network,
            member: *own,
            proof,
            name: joining.name.clone(),
        });
        Some((to, ask.encode()))
    }
}
