//! What the records of a network amount to.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use thiserror::Error;
use weft_noise::PublicKey;
use weft_wire::Subnet as Prefix;

use crate::addresses::{self, Addresses};
use crate::admins::{Admins, Rank};
use crate::guest;
use crate::key::RecordKey;
use crate::names::{self, Claim, Name};
use crate::network_id::NetworkId;
use crate::record::{Body, Exit, Guest, Invite, Member, Record, RuleList, Secret};
use crate::rules::{Policy, Rule, Table};
use crate::set::RecordSet;

/// Members of a network, at most.
pub const MAX_MEMBERS: usize = 2_000;

/// Invites that are open at one time, at most.
pub const MAX_INVITES: usize = 256;

/// What the records of a network amount to: a function of the set, whatever the order of arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The network.
    pub network: NetworkId,
    /// Its name.
    pub name: Option<Name>,
    /// The administrators.
    pub admins: Admins,
    /// The members.
    pub members: BTreeMap<PublicKey, Member>,
    /// The nodes that a record removed: that record, which is all that they may still get.
    pub removed: BTreeMap<PublicKey, Arc<Record>>,
    /// Nodes that are not members because their invite had no use left for them: the invite.
    pub over_used: BTreeMap<PublicKey, [u8; 32]>,
    /// Names by which members are found, no two equal.
    pub names: BTreeMap<PublicKey, Name>,
    /// Members whose name is not that of their record, because another member has it.
    pub renamed: BTreeSet<PublicKey>,
    /// IPv4 addresses of members, and collisions.
    pub addresses: Addresses,
    /// Subnets, and the members that they are behind.
    pub routes: BTreeMap<Prefix, BTreeSet<PublicKey>>,
    /// Members that forward to all other addresses, and the IP versions of each.
    pub exits: BTreeMap<PublicKey, Exit>,
    /// Guests that count, by their WireGuard keys. Each has an IPv4 address, and a member as host.
    pub guests: BTreeMap<[u8; 32], Guest>,
    /// Names by which guests are found, no two equal, and none that of a member.
    pub guest_names: BTreeMap<[u8; 32], Name>,
    /// Invites, closed ones included.
    pub invites: BTreeMap<[u8; 32], OpenInvite>,
    /// The secret of the members.
    pub secret: Option<Secret>,
    /// What passes.
    pub table: Table,
    /// What the limits refused.
    pub refused: Refused,
}

/// An invite and what is left of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenInvite {
    /// What its record says.
    pub invite: Invite,
    /// Uses that are left.
    pub remaining: u32,
    /// Whether it was revoked.
    pub revoked: bool,
    /// When it was revoked or used up, in seconds since 1970, as the signers of these records say.
    pub closed_at: Option<u64>,
    /// Whether it is one too many ([`MAX_INVITES`]).
    pub refused: bool,
}

/// How many keys have a record in force that a limit refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refused {
    /// Administrators above [`MAX_ADMINS`](crate::admins::MAX_ADMINS).
    pub admins: usize,
    /// Members above [`MAX_MEMBERS`].
    pub members: usize,
    /// Open invites above [`MAX_INVITES`].
    pub invites: usize,
    /// Guests above [`MAX_GUESTS`](guest::MAX_GUESTS).
    pub guests: usize,
}

/// The reason why an invite admits no one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InviteClosed {
    /// No record of it is in force.
    #[error("the invite is not known to the network")]
    Unknown,
    /// It was revoked.
    #[error("the invite was revoked")]
    Revoked,
    /// It has expired.
    #[error("the invite has expired")]
    Expired,
    /// The node was removed from the network.
    #[error("the node was removed from the network; an administrator can admit it again without an invite")]
    Removed,
    /// All uses are taken.
    #[error("the invite was used as often as it may be")]
    Used,
    /// It is beyond the limit of open invites.
    #[error("the network has more open invites than the limit of {MAX_INVITES}")]
    Refused,
}

impl State {
    /// Computes the state of a set.
    #[must_use]
    pub fn of(set: &RecordSet) -> Self {
        let winners = Winners::of(set, set.admins());
        let (name, inside) = winners.network();
        let mut invites = winners.invites();
        let (mut members, removed, over_used) = winners.members(&mut invites);
        let refused_members = cut_members(&mut members, set.admins());
        let (names, renamed) = names::settle(winners.claims(&members, set.admins()));
        let network = set.network().to_string();
        let fixed = members.iter().map(|(key, member)| (key, member.ipv4));
        let addresses = addresses::settle(&network, fixed);
        let guests = guest::settle(winners.guests(), &members, (&addresses, &names));
        let refused = Refused {
            admins: set.admins().refused.len(),
            members: refused_members,
            invites: refuse_invites(&mut invites),
            guests: guests.refused,
        };
        Self {
            network: set.network(),
            name,
            admins: set.admins().clone(),
            routes: winners.routes(&members),
            exits: winners.exits(&members),
            guests: guests.of,
            guest_names: guests.names,
            secret: winners.secret(),
            table: Table {
                rules: rules(set),
                inside,
            },
            members,
            removed,
            over_used,
            names,
            renamed,
            addresses,
            invites,
            refused,
        }
    }

    /// Makes the state of a network that was founded with nvpn, which has no records: what its signed list says.
    /// nvpn calls the network `id`, and the addresses of members follow from that. No node is an administrator in
    /// the sense of weft, and all flows between members pass.
    #[must_use]
    pub fn foreign(id: &str, name: Option<Name>, members: BTreeMap<PublicKey, Option<Name>>) -> Self {
        let named = |(key, name)| {
            let member = Member {
                name,
                ..Member::default()
            };
            (key, member)
        };
        let members: BTreeMap<PublicKey, Member> = members.into_iter().map(named).collect();
        let claims = members.iter().filter_map(|(member, of)| {
            let name = of.name.as_ref()?;
            Some(Claim { member, name, rank: 0 })
        });
        let (names, renamed) = names::settle(claims);
        Self {
            network: NetworkId::of_nvpn(id),
            name,
            admins: Admins::default(),
            removed: BTreeMap::new(),
            over_used: BTreeMap::new(),
            names,
            renamed,
            addresses: addresses::settle(id, members.keys().map(|key| (key, None))),
            routes: BTreeMap::new(),
            exits: BTreeMap::new(),
            guests: BTreeMap::new(),
            guest_names: BTreeMap::new(),
            invites: BTreeMap::new(),
            secret: None,
            table: Table {
                rules: Some(Vec::new()),
                inside: Policy::Allow,
            },
            refused: Refused::default(),
            members,
        }
    }

    /// Returns the first 8 bytes of SHA-256 of the identifiers of the records that removed members,
    /// in the order of the members' keys, then of the keys of over-used nodes, ascending: the nodes
    /// from which a new secret is kept.
    #[must_use]
    pub fn exclusions(&self) -> [u8; 8] {
        let removed = self.removed.values().map(|removal| *removal.id());
        let over_used = self.over_used.keys().map(|key| *key.as_bytes());
        let mut hash = Sha256::new();
        for excluded in removed.chain(over_used) {
            hash.update(excluded);
        }
        let digest: [u8; 32] = hash.finalize().into();
        std::array::from_fn(|at| digest[at])
    }

    /// Returns true if an administrator has to make a new secret: there is none, or its signer did
    /// not know of all removals, so that a removed node may have it.
    #[must_use]
    pub fn lacks_secret(&self) -> bool {
        self.secret
            .as_ref()
            .is_none_or(|secret| secret.exclusions != self.exclusions())
    }

    /// Returns the invite if an administrator may admit `member` by it at the time `now`, in
    /// seconds since 1970. A node that was removed needs an administrator that admits it without an
    /// invite: its code may still have uses, and it still has the code.
    ///
    /// # Errors
    /// [`InviteClosed`].
    pub fn may_join(&self, member: &PublicKey, invite: &[u8; 32], now: u64) -> Result<&Invite, InviteClosed> {
        if self.removed.contains_key(member) {
            return Err(InviteClosed::Removed);
        }
        self.open_invite(invite, now)
    }

    /// Returns what the record of an invite says, if an administrator may admit a node by it at the
    /// time `now`, in seconds since 1970.
    ///
    /// # Errors
    /// [`InviteClosed`].
    pub fn open_invite(&self, invite: &[u8; 32], now: u64) -> Result<&Invite, InviteClosed> {
        let found = self.invites.get(invite).ok_or(InviteClosed::Unknown)?;
        if found.revoked {
            return Err(InviteClosed::Revoked);
        }
        if found.invite.expires.is_some_and(|expires| now > expires) {
            return Err(InviteClosed::Expired);
        }
        if found.remaining == 0 {
            return Err(InviteClosed::Used);
        }
        if found.refused {
            return Err(InviteClosed::Refused);
        }
        Ok(&found.invite)
    }
}

/// Returns the record in force for a key, of those that administrators signed.
///
/// About an administrator only its own records and those of its seniors count; about the successor
/// those of the head, too, which names it. The order is version, removal, seniority, lower
/// identifier.
pub(crate) fn in_force<'a>(
    admins: &Admins,
    key: &RecordKey,
    records: impl IntoIterator<Item = &'a Arc<Record>>,
) -> Option<&'a Arc<Record>> {
    let subject = key.subject().and_then(|subject| Some((subject, admins.rank(subject)?)));
    let counted = records
        .into_iter()
        .filter_map(|record| Some((admins.rank(record.signer())?, record)));
    let may_sign = |(rank, record): &(Rank, &Arc<Record>)| {
        subject
            .is_none_or(|(subject, own)| *rank < own || record.signer() == subject || admins.is_head(record.signer()))
    };
    let best = counted
        .filter(may_sign)
        .max_by_key(|(rank, record)| order(*rank, record));
    best.map(|(_, record)| record)
}

/// Returns the order of records by administrators about a key.
fn order(rank: Rank, record: &Record) -> (u64, bool, Reverse<Rank>, Reverse<&[u8; 32]>) {
    (record.version(), record.removed(), Reverse(rank), Reverse(record.id()))
}

/// The records in force.
pub(crate) struct Winners<'a>(pub(crate) BTreeMap<&'a RecordKey, &'a Arc<Record>>);

impl<'a> Winners<'a> {
    /// Selects the records in force if the administrators are `admins`.
    pub(crate) fn of(set: &'a RecordSet, admins: &Admins) -> Self {
        let found = set.slots().iter().filter_map(|(key, slot)| {
            let best = slot.values().map(|kept| &kept.best);
            Some((key, in_force(admins, key, best)?))
        });
        Self(found.collect())
    }

    /// Returns the records in force without the removals among them.
    fn present(&self) -> impl Iterator<Item = (&'a RecordKey, &'a Record)> {
        let records = self.0.iter().map(|(key, record)| (*key, &***record));
        records.filter(|(_, record)| !record.removed())
    }

    fn network(&self) -> (Option<Name>, Policy) {
        match self.0.get(&RecordKey::Network).map(|record| record.body()) {
            Some(Body::Network(network)) => (network.name.clone(), network.inside),
            _ => (None, Policy::Allow),
        }
    }

    fn invites(&self) -> BTreeMap<[u8; 32], OpenInvite> {
        let invite = |(key, record): (&&RecordKey, &&Arc<Record>)| match (key, record.body()) {
            (RecordKey::Invite(key), Body::Invite(invite)) => Some((
                *key,
                OpenInvite {
                    invite: invite.clone(),
                    remaining: invite.uses,
                    revoked: record.removed(),
                    closed_at: record.removed().then_some(record.event().body().created_at),
                    refused: false,
                },
            )),
            _ => None,
        };
        self.0.iter().filter_map(invite).collect()
    }

    /// Collects members, removed nodes, and those whose invite had no use left for them. Counts the
    /// uses of the invites: a removed member has used its invite, too.
    fn members(&self, invites: &mut BTreeMap<[u8; 32], OpenInvite>) -> Membership {
        let (mut members, mut removed) = (BTreeMap::new(), BTreeMap::new());
        let mut by_invite: BTreeMap<[u8; 32], BTreeMap<[u8; 32], PublicKey>> = BTreeMap::new();
        let mut last_use: BTreeMap<[u8; 32], u64> = BTreeMap::new();
        for (key, record) in &self.0 {
            let (RecordKey::Member(subject), Body::Member(member)) = (key, record.body()) else {
                continue;
            };
            if let Some(proof) = &member.proof {
                let place = use_order(&proof.invite, subject);
                by_invite.entry(proof.invite).or_default().insert(place, *subject);
                let last = last_use.entry(proof.invite).or_default();
                *last = record.event().body().created_at.max(*last);
            }
            if record.removed() {
                removed.insert(*subject, Arc::clone(record));
            } else {
                members.insert(*subject, member.clone());
            }
        }
        let mut over_used = BTreeMap::new();
        for (key, users) in by_invite {
            // Without its record an invite has no limit: its administrator was removed, and those
            // that it admitted stay by the records of others.
            let Some(open) = invites.get_mut(&key) else { continue };
            let uses = open.invite.uses;
            open.remaining = uses.saturating_sub(u32::try_from(users.len()).unwrap_or(u32::MAX));
            if open.remaining == 0 && open.closed_at.is_none() {
                open.closed_at = last_use.get(&key).copied();
            }
            for user in users.into_values().skip(uses as usize) {
                if members.remove(&user).is_some() {
                    over_used.insert(user, key);
                }
            }
        }
        (members, removed, over_used)
    }

    /// Returns the names that the records of members give them.
    fn claims<'b>(
        &'b self,
        members: &'b BTreeMap<PublicKey, Member>,
        admins: &'b Admins,
    ) -> impl Iterator<Item = Claim<'b>> {
        self.present().filter_map(|(key, record)| match key {
            RecordKey::Member(member) => Some(Claim {
                member,
                name: members.get(member)?.name.as_ref()?,
                rank: admins.rank(record.signer())?,
            }),
            _ => None,
        })
    }

    fn routes(&self, members: &BTreeMap<PublicKey, Member>) -> BTreeMap<Prefix, BTreeSet<PublicKey>> {
        let mut routes: BTreeMap<Prefix, BTreeSet<PublicKey>> = BTreeMap::new();
        for (key, _) in self.present() {
            if let RecordKey::Route(member, prefix) = key
                && members.contains_key(member)
            {
                routes.entry(*prefix).or_default().insert(*member);
            }
        }
        routes
    }

    fn exits(&self, members: &BTreeMap<PublicKey, Member>) -> BTreeMap<PublicKey, Exit> {
        let exit = |(key, record): (&RecordKey, &Record)| match (key, record.body()) {
            (RecordKey::Exit(member), Body::Exit(exit)) if members.contains_key(member) => Some((*member, *exit)),
            _ => None,
        };
        self.present().filter_map(exit).collect()
    }

    fn secret(&self) -> Option<Secret> {
        match self
            .0
            .get(&RecordKey::Secret)
            .map(|record| (record.removed(), record.body()))
        {
            Some((false, Body::Secret(secret))) => Some(secret.clone()),
            _ => None,
        }
    }

    fn guests(&self) -> BTreeMap<&'a [u8; 32], &'a Guest> {
        let guest = |(key, record): (&'a RecordKey, &'a Record)| match (key, record.body()) {
            (RecordKey::Guest(key), Body::Guest(guest)) => Some((key, guest)),
            _ => None,
        };
        self.present().filter_map(guest).collect()
    }
}

/// Members; removed nodes with their removal; nodes beyond the uses of their invite.
type Membership = (
    BTreeMap<PublicKey, Member>,
    BTreeMap<PublicKey, Arc<Record>>,
    BTreeMap<PublicKey, [u8; 32]>,
);

/// Returns the place of a member among those that an invite admitted: SHA-256(invite key || member
/// key), which no order of arrival changes.
fn use_order(invite: &[u8; 32], member: &PublicKey) -> [u8; 32] {
    let hash = Sha256::new().chain_update(invite).chain_update(member.as_bytes());
    hash.finalize().into()
}

/// Removes the members beyond the limit, administrators last, and returns how many.
fn cut_members(members: &mut BTreeMap<PublicKey, Member>, admins: &Admins) -> usize {
    let over = members.len().saturating_sub(MAX_MEMBERS);
    if over == 0 {
        return 0;
    }
    let mut order: Vec<PublicKey> = members.keys().copied().collect();
    order.sort_by_key(|key| (admins.rank(key).is_none(), *key));
    for key in order.iter().skip(MAX_MEMBERS) {
        members.remove(key);
    }
    over
}

/// Marks the open invites beyond the limit and returns how many.
fn refuse_invites(invites: &mut BTreeMap<[u8; 32], OpenInvite>) -> usize {
    let open = invites.values_mut().filter(|open| !open.revoked && open.remaining > 0);
    let beyond = open.skip(MAX_INVITES).map(|open| open.refused = true);
    beyond.count()
}

/// Returns the rules in force: those of the best record, or, if this node does not understand it,
/// of the best one that it understands. `None` if there is none.
fn rules(set: &RecordSet) -> Option<Vec<Rule>> {
    let Some(slot) = set.slots().get(&RecordKey::Rules) else {
        return Some(Vec::new());
    };
    let best = slot.values().map(|kept| &kept.best);
    let Some(mut record) = in_force(set.admins(), &RecordKey::Rules, best) else {
        return Some(Vec::new());
    };
    if !record.understood() {
        let all = slot
            .values()
            .flat_map(|kept| [&kept.best].into_iter().chain(&kept.understood));
        let understood = all.filter(|record| record.understood());
        record = in_force(set.admins(), &RecordKey::Rules, understood)?;
    }
    match record.body() {
        _ if record.removed() => Some(Vec::new()),
        Body::Rules(RuleList::Understood(rules)) => Some(rules.clone()),
        _ => None,
    }
}
