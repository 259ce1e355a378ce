//! Which keys are administrators, and of which rank.
//!
//! The head of a network has rank 0, and so has the successor that the head's own `network` record names.
//! The founder is the first head. A record that removes the rights of the head, by itself or by its
//! successor, and that has a higher version than the head's `network` record, makes the successor the next
//! head. An earlier head takes the place back by a further `network` record.
//! The other ranks follow one by one. Among the records about an undecided key that administrators
//! of the present rank signed, the one of the highest precedence decides: the key is an
//! administrator of the next rank, or none. Records of later ranks about a decided key mean
//! nothing, so seniority goes before version, and no record can act on its signer's seniors or
//! equals.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weft_noise::PublicKey;

use crate::key::RecordKey;
use crate::record::{Body, Record};
use crate::set::Slots;

/// Administrators of a network, at most.
pub const MAX_ADMINS: usize = 64;

/// The place of an administrator: 0 for the head and its successor, otherwise one more than the rank of
/// the administrator that made it one. Lower is more senior.
pub type Rank = u8;

/// An administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// The rank.
    pub rank: Rank,
    /// The record that made the key an administrator; `None` for the head and its successor.
    pub grant: Option<Arc<Record>>,
}

/// The administrators of a network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Admins {
    /// The founder; `None` as long as no record proves it. There are no administrators until then.
    pub founder: Option<PublicKey>,
    /// All administrators.
    pub of: BTreeMap<PublicKey, Admin>,
    /// The keys that resigned by a record of their own, and the heads that have handed over.
    pub resigned: BTreeSet<PublicKey>,
    /// The heads of the network in their order: the founder, and each successor that has taken over. The
    /// last one is the head now.
    pub heads: Vec<PublicKey>,
    /// The records by which each head but the last one has handed over to the next.
    pub handovers: Vec<Arc<Record>>,
    /// The keys that a record makes administrators beyond [`MAX_ADMINS`].
    pub refused: BTreeSet<PublicKey>,
}

/// A change that has not been made: `admin` is none any more, and `by` has signed some of its records about
/// rights again.
#[derive(Clone, Copy)]
pub(crate) struct Revocation<'a> {
    pub(crate) admin: &'a PublicKey,
    pub(crate) by: &'a PublicKey,
    pub(crate) keep: &'a Keep,
    /// The administrators before the change.
    pub(crate) now: &'a Admins,
    /// Those of them that are none behind it.
    pub(crate) lost: &'a BTreeSet<PublicKey>,
}

/// What stays of the records of an administrator that is removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keep {
    /// Whether all stays but grants and invites: members, rules, routes, and what it has removed.
    pub rest: bool,
    /// The administrators that it has made and that stay.
    pub admins: BTreeSet<PublicKey>,
    /// The open invites that stay, by the public half of their key.
    pub invites: BTreeSet<[u8; 32]>,
}

impl Revocation<'_> {
    /// Returns true if a record about the rights of `subject` stays, although its signer has none
    /// any more.
    fn keeps(&self, signer: &PublicKey, subject: &PublicKey, record: &Record) -> bool {
        if record.removed() {
            return self.keep.rest && self.lost.contains(signer);
        }
        let grant = self.now.of.get(subject).and_then(|admin| admin.grant.as_ref());
        let in_force = || grant.is_some_and(|grant| grant.id() == record.id());
        self.keep.admins.contains(subject) && (signer == self.admin || in_force())
    }
}

impl Admins {
    /// Determines the administrators that records make.
    pub(crate) fn settle(slots: &Slots, revoked: Option<Revocation<'_>>) -> Self {
        let mut admins = Self::default();
        let Some(founder) = founder(slots) else {
            return admins;
        };
        admins.founder = Some(founder);
        let successor = admins.find_head(slots, founder, revoked);
        let revoked_key = revoked.map(|revoked| *revoked.admin);
        let first = BTreeSet::from_iter(admins.head().copied().into_iter().chain(successor));
        let mut layer: Vec<PublicKey> = first.into_iter().filter(|key| Some(*key) != revoked_key).collect();
        for key in &layer {
            admins.of.insert(*key, Admin { rank: 0, grant: None });
        }
        let mut open = undecided(slots);
        for key in layer.iter().chain(&revoked_key) {
            open.remove(key);
        }
        let mut rank = 0;
        while !layer.is_empty() && !open.is_empty() {
            rank += 1;
            layer = admins.next_layer(rank, &layer, &mut open, revoked);
        }
        let Self { of, resigned, .. } = &mut admins;
        resigned.retain(|key| !of.contains_key(key));
        admins
    }

    /// Follows the handovers from the founder to the head of now, and returns its successor.
    fn find_head(&mut self, slots: &Slots, founder: PublicKey, revoked: Option<Revocation<'_>>) -> Option<PublicKey> {
        let mut head = founder;
        loop {
            self.heads.push(head);
            let successor = successor_of(slots, &head)?;
            let handover = handover(slots, &head, &successor);
            let (mut falls, mut retires) = (false, false);
            if let Some(Revocation { admin, by, .. }) = revoked {
                // An earlier head takes its place back; the head itself and its successor end it.
                falls = *admin == successor && (handover.is_none() || self.heads.contains(by));
                retires = *admin == head && (*by == successor || *by == head);
            }
            let again = self.heads.contains(&successor) || self.heads.len() == MAX_ADMINS;
            if falls || again || (handover.is_none() && !retires) {
                return Some(successor);
            }
            self.handovers.extend(handover.cloned());
            self.resigned.insert(head);
            head = successor;
        }
    }

    /// Decides what records of `layer` are about, and returns the administrators that they make.
    fn next_layer(
        &mut self,
        rank: Rank,
        layer: &[PublicKey],
        open: &mut Undecided<'_>,
        revoked: Option<Revocation<'_>>,
    ) -> Vec<PublicKey> {
        let signers: BTreeSet<&PublicKey> = layer.iter().collect();
        // Records of the revoked one that stay count as if `by` had signed them.
        let revoked = revoked.filter(|revoked| layer.contains(revoked.by));
        let mut next = Vec::new();
        open.retain(|subject, records| {
            let counts = |(signer, record): &(&PublicKey, &&Arc<Record>)| {
                signers.contains(signer) || revoked.is_some_and(|revoked| revoked.keeps(signer, subject, record))
            };
            let of_layer = records.iter().filter(counts);
            let Some(decisive) = of_layer
                .map(|(_, record)| *record)
                .max_by_key(|record| record.precedence())
            else {
                return true;
            };
            let own = records.get(subject).filter(|own| own.removed());
            if decisive.removed() {
                // The subject is no administrator.
            } else if own.is_some_and(|own| own.version() > decisive.version()) {
                self.resigned.insert(*subject);
            } else if self.of.len() == MAX_ADMINS {
                self.refused.insert(*subject);
            } else {
                let grant = Some(Arc::clone(decisive));
                self.of.insert(*subject, Admin { rank, grant });
                next.push(*subject);
            }
            false
        });
        next
    }

    /// Returns the head: the founder, or the successor that has taken over from it.
    #[must_use]
    pub fn head(&self) -> Option<&PublicKey> {
        self.heads.last()
    }

    /// Returns true if a key is that of the head.
    #[must_use]
    pub fn is_head(&self, key: &PublicKey) -> bool {
        self.head() == Some(key)
    }

    /// Returns the node that the record of the head names as its successor.
    #[must_use]
    pub fn successor(&self) -> Option<&PublicKey> {
        let first = self.of.iter().filter(|(_, admin)| admin.rank == 0);
        first.map(|(key, _)| key).find(|key| !self.is_head(key))
    }

    /// Returns true if a key is that of the founder.
    #[must_use]
    pub fn is_founder(&self, key: &PublicKey) -> bool {
        self.founder.as_ref() == Some(key)
    }

    /// Returns true if a record or removal counts without regard to the rank of its signer: a resignation of its
    /// signer, and what heads, earlier ones, too, say about the network and about the rights of each other.
    pub(crate) fn counts_of_former(&self, signer: &PublicKey, key: &RecordKey, removed: bool) -> bool {
        let is_head = |key: &PublicKey| self.heads.contains(key);
        match key {
            RecordKey::Network => is_head(signer),
            RecordKey::Admin(subject) if subject == signer => removed && self.resigned.contains(signer),
            RecordKey::Admin(subject) => is_head(signer) && is_head(subject),
            _ => false,
        }
    }

    /// Returns the rank of an administrator; `None` for other keys.
    #[must_use]
    pub fn rank(&self, key: &PublicKey) -> Option<Rank> {
        self.of.get(key).map(|admin| admin.rank)
    }
}

/// Records about keys that may be administrators: subject, signer, record.
type Undecided<'a> = BTreeMap<PublicKey, BTreeMap<PublicKey, &'a Arc<Record>>>;

fn undecided(slots: &Slots) -> Undecided<'_> {
    let mut open = Undecided::new();
    for (key, slot) in slots {
        if let RecordKey::Admin(subject) = key {
            let records = slot.iter().map(|(signer, kept)| (*signer, &kept.best));
            open.insert(*subject, records.collect());
        }
    }
    open
}

/// Finds the record by which `head` has handed over to `successor`: of its resignation and what the successor says
/// about its rights the latest one, if that removes them and is later than what the head says about the network.
fn handover<'a>(slots: &'a Slots, head: &PublicKey, successor: &PublicKey) -> Option<&'a Arc<Record>> {
    let slot = slots.get(&RecordKey::Admin(*head))?;
    let records = [head, successor].into_iter().filter_map(|signer| slot.get(signer));
    let latest = records
        .map(|kept| &kept.best)
        .filter(|record| record.signer() == successor || record.removed())
        .max_by_key(|record| (record.version(), record.removed(), Reverse(record.id())))?;
    let network = network_of(slots, head)?;
    (latest.removed() && latest.version() > network.version()).then_some(latest)
}

/// Returns the record of a signer about the network.
pub(crate) fn network_of<'a>(slots: &'a Slots, signer: &PublicKey) -> Option<&'a Arc<Record>> {
    let kept = slots.get(&RecordKey::Network)?.get(signer)?;
    Some(&kept.best)
}

/// Returns the successor that a node names. It counts if the node is the head.
pub(crate) fn successor_of(slots: &Slots, head: &PublicKey) -> Option<PublicKey> {
    match network_of(slots, head)?.body() {
        Body::Network(network) => network.successor.filter(|successor| successor != head),
        _ => None,
    }
}

/// Returns the founder: of several keys, which takes a collision of 128 bits, the lowest.
fn founder(slots: &Slots) -> Option<PublicKey> {
    let mut records = slots.get(&RecordKey::Network)?.iter();
    records.find(|(_, kept)| kept.best.founds()).map(|(signer, _)| *signer)
}
