//! Which keys are administrators, and of which rank.
//!
//! The founder has rank 0, and so has the successor that the founder's own `network` record names.
//! Such a successor can retire the founder, whose machine is lost; the founder takes its rank back with
//! its key, and names another successor or none.
//! The other ranks follow one by one. Among the records about an undecided key that administrators
//! of the present rank signed, the one of the highest precedence decides: the key is an
//! administrator of the next rank, or none. Records of later ranks about a decided key mean
//! nothing, so seniority goes before version, and no record can act on its signer's seniors or
//! equals.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weft_noise::PublicKey;

use crate::key::RecordKey;
use crate::record::{Body, Network, Record};
use crate::set::Slots;

/// Administrators of a network, at most.
pub const MAX_ADMINS: usize = 64;

/// The place of an administrator: 0 for founder and successor, otherwise one more than the rank of
/// the administrator that made it one. Lower is more senior.
pub type Rank = u8;

/// An administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// The rank.
    pub rank: Rank,
    /// The record that made the key an administrator; `None` for founder and successor.
    pub grant: Option<Arc<Record>>,
}

/// The administrators of a network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Admins {
    /// The founder; `None` as long as no record proves it. There are no administrators until then.
    pub founder: Option<PublicKey>,
    /// All administrators.
    pub of: BTreeMap<PublicKey, Admin>,
    /// The keys that resigned by a record of their own.
    pub resigned: BTreeSet<PublicKey>,
    /// The record by which the founder has handed over to its successor, if it has.
    pub retirement: Option<Arc<Record>>,
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

impl Keep {
    /// Whether a record about the rights of `subject` stays.
    pub(crate) fn keeps_rights(&self, subject: &PublicKey, removed: bool) -> bool {
        match removed {
            true => self.rest,
            false => self.admins.contains(subject),
        }
    }
}

impl Admins {
    /// The administrators that records make.
    pub(crate) fn settle(slots: &Slots, revoked: Option<Revocation<'_>>) -> Self {
        let mut admins = Self::default();
        let Some((founder, network)) = founding(slots) else {
            return admins;
        };
        admins.founder = Some(founder);
        let revoked_key = revoked.map(|revoked| *revoked.admin);
        admins.retirement = retirement(slots, &founder, network);
        let own = Some(founder).filter(|_| admins.retirement.is_none());
        let first = BTreeSet::from_iter(own.into_iter().chain(network.successor));
        let mut layer: Vec<PublicKey> = first.into_iter().filter(|key| Some(*key) != revoked_key).collect();
        for key in &layer {
            admins.of.insert(*key, Admin { rank: 0, grant: None });
        }
        admins.resigned.extend(own.is_none().then_some(founder));
        let mut open = undecided(slots);
        for key in layer.iter().chain(&revoked_key) {
            open.remove(key);
        }
        let mut rank = 0;
        while !layer.is_empty() && !open.is_empty() {
            rank += 1;
            layer = admins.next_layer(rank, &layer, &mut open, revoked);
        }
        admins
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
        // What of the revoked one stays counts as if `by` had signed it.
        let revoked = revoked.filter(|revoked| layer.contains(revoked.by));
        let mut next = Vec::new();
        open.retain(|subject, records| {
            let stays = |signer: &PublicKey, record: &Record| {
                revoked.is_some_and(|revoked| {
                    signer == revoked.admin && revoked.keep.keeps_rights(subject, record.removed())
                })
            };
            let counts =
                |(signer, record): &(&PublicKey, &&Arc<Record>)| signers.contains(signer) || stays(signer, record);
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

    /// The node that the founder's record names as its successor.
    #[must_use]
    pub fn successor(&self) -> Option<&PublicKey> {
        let first = self.of.iter().filter(|(_, admin)| admin.rank == 0);
        first.map(|(key, _)| key).find(|key| !self.is_founder(key))
    }

    /// Whether a key is that of the founder.
    #[must_use]
    pub fn is_founder(&self, key: &PublicKey) -> bool {
        self.founder.as_ref() == Some(key)
    }

    /// The rank of a key; `None` if it is no administrator.
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

/// The record by which the founder has handed over: of its own records about its rights and those of its
/// successor, the best one, if that removes them.
fn retirement(slots: &Slots, founder: &PublicKey, network: &Network) -> Option<Arc<Record>> {
    let successor = network.successor.as_ref()?;
    let slot = slots.get(&RecordKey::Admin(*founder))?;
    let records = [founder, successor].into_iter().filter_map(|signer| slot.get(signer));
    let best = records
        .map(|kept| &kept.best)
        .max_by_key(|record| record.precedence())?;
    best.removed().then(|| Arc::clone(best))
}

/// The founder and its record. Of several keys, which takes a collision of 128 bits, the lowest.
fn founding(slots: &Slots) -> Option<(PublicKey, &Network)> {
    let records = slots.get(&RecordKey::Network)?;
    records.iter().find_map(|(signer, kept)| match kept.best.body() {
        Body::Network(network) if network.founder.is_some() => Some((*signer, network)),
        _ => None,
    })
}
