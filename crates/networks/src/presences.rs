//! The presences of the members of one network: which this node keeps, and which other members get.
//!
//! A member that this node can reach gets a digest first: `BUCKETS` hashes, each of the members
//! whose keys begin alike. It answers with what it has in those that differ. After that, it gets what
//! changes. Everything is paced by `PAUSE` and bounded by the number of members.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use sha2::{Digest as _, Sha256};
use weft_noise::{Identity, PublicKey};
use weft_reach::candidate::check;
use weft_reach::rate::Bucket;
use weft_roster::network_id::NetworkId;

use crate::document::{Document, DocumentError};
use crate::place::Places;
use crate::presence::{MAX_IN_DOCUMENT, MAX_VERSION, Presence};

/// Number of hashes in a digest.
pub(super) const BUCKETS: usize = 64;
/// The minimum interval between two documents with presences to one member, between two digests,
/// and between two statements of this node, in ms.
pub(super) const PAUSE: u64 = 5_000;
/// The interval between two digests to a member that stays reachable, in ms. Changes are sent by
/// themselves, and again if they do not arrive, so digests find what else went wrong; each costs a
/// session.
const DIGEST_AGAIN: u64 = 3_600_000;
/// The age at which a presence is forgotten, in seconds: seven days. It is news for a member that
/// was off for a weekend, and costs attempts to link at no more than eight addresses.
pub(super) const LIFE: u64 = 7 * 86_400;
/// The time within which a sent presence may turn out not to have arrived, in ms: a stream gives up
/// after 40 s without progress.
const UNSURE: u64 = 60_000;
/// The age at which this node makes a new statement with the same addresses, in ms.
const RENEW: i64 = 86_400_000;
/// Maximum number of ports of one IP address at which a member is dialled.
const PER_HOST: usize = 2;
/// Signatures that one member may have this node verify at once.
const CHECKS: u64 = 256;
/// The time after which it may have one more verified, in ms.
const CHECK_INTERVAL: u64 = 50;
/// Statements of one member that are taken at once.
const MOVES: u64 = 6;
/// The time after which one more is taken, in ms.
const MOVE_INTERVAL: u64 = 10_000;
/// The statements of a member none of which was taken lately.
const ALL_MOVES: Bucket = Bucket::new(MOVES, MOVE_INTERVAL);

/// The hashes of a digest.
pub type PresenceDigest = [[u8; 8]; BUCKETS];

/// The presences of one network.
#[derive(Debug, Clone)]
pub(super) struct Presences {
    network: NetworkId,
    me: PublicKey,
    kept: BTreeMap<PublicKey, Kept>,
    /// The keys of `kept` by their serial numbers.
    order: BTreeMap<u64, PublicKey>,
    /// The serial number of the last change.
    serial: u64,
    /// No presence was made before, in ms.
    oldest: i64,
    partners: BTreeMap<PublicKey, Partner>,
    own: Own,
    unsaved: bool,
}

#[derive(Debug, Clone)]
struct Kept {
    presence: Presence,
    /// When its member made it, in ms; by the ages that nodes on the way said.
    born: i64,
    serial: u64,
    /// The member that it came from.
    from: Option<PublicKey>,
    moves: Bucket,
}

/// A member that gets presences.
#[derive(Debug, Clone)]
struct Partner {
    /// Whether it can be reached.
    here: bool,
    /// When it gets the next document, in ms.
    next: u64,
    /// When it gets the next digest, in ms.
    digest: u64,
    /// When its next digest is looked at, in ms.
    answer: u64,
    /// The buckets that it has to get, the lowest first.
    owed: u64,
    /// The last key of the lowest one that it got.
    cursor: Option<PublicKey>,
    /// The serial number up to which it got changes.
    through: u64,
    /// What was sent within [`UNSURE`], the first one in front.
    sent: VecDeque<Sent>,
    checks: Bucket,
}

/// What a member had to get before a document was sent.
#[derive(Debug, Clone, Copy)]
struct Sent {
    /// When it was sent, in ms.
    at: u64,
    through: u64,
    owed: u64,
}

/// What this node says about itself.
#[derive(Debug, Clone, Default)]
struct Own {
    wanted: Places,
    /// Milliseconds since 1970 at 0 of the clock.
    unix_at_zero: u64,
    /// A version that is in use already: a former life of this node made it.
    used: u64,
    /// No statement is made before, in ms.
    next: u64,
}

impl Presences {
    pub(super) fn new(network: NetworkId, me: PublicKey) -> Self {
        Self {
            network,
            me,
            kept: BTreeMap::new(),
            order: BTreeMap::new(),
            serial: 0,
            oldest: i64::MAX,
            partners: BTreeMap::new(),
            own: Own::default(),
            unsaved: false,
        }
    }

    /// Where a member may be: of its addresses those that can be dialled, [`PER_HOST`] at most with one
    /// IP address, so that a member that names another host sends little there.
    pub(super) fn addresses(&self, member: &PublicKey) -> impl Iterator<Item = SocketAddr> {
        let kept = self.kept.get(member).into_iter();
        let addresses = kept.flat_map(|kept| kept.presence.places.addresses());
        let mut hosts = Vec::new();
        addresses.filter(move |at| {
            let of_host = hosts.iter().filter(|known| **known == at.ip()).count();
            hosts.push(at.ip());
            of_host < PER_HOST && check(*at).is_ok()
        })
    }

    /// Sets the addresses of this node; `unix_ms` is the time since 1970 at `now`. Without any, the
    /// statement before stays.
    pub(super) fn set_own(&mut self, addresses: &[SocketAddr], now: u64, unix_ms: u64) {
        self.own.unix_at_zero = unix_ms.saturating_sub(now);
        self.own.wanted = Places::of_udp(addresses);
    }

    /// Makes these members those that get presences now.
    pub(super) fn set_partners(&mut self, here: &BTreeSet<PublicKey>, now: u64) {
        for (key, partner) in &mut self.partners {
            if !here.contains(key) {
                partner.here = false;
            }
        }
        for key in here {
            let serial = self.serial;
            let partner = self.partner(key);
            if !std::mem::replace(&mut partner.here, true) {
                // The digests show what is missing.
                partner.through = serial;
                let last = partner.digest.saturating_sub(DIGEST_AGAIN);
                partner.digest = if partner.digest == 0 {
                    now
                } else {
                    now.max(last + PAUSE)
                };
            }
        }
    }

    /// A member that sends something may do so before this node knows that it can be reached.
    fn partner(&mut self, key: &PublicKey) -> &mut Partner {
        let through = self.serial;
        // Its digest may have come before this node was a member.
        let owed = 1 << bucket(&self.me);
        self.partners.entry(*key).or_insert(Partner {
            here: false,
            next: 0,
            digest: 0,
            answer: 0,
            owed,
            cursor: None,
            through,
            sent: VecDeque::new(),
            checks: Bucket::new(CHECKS, CHECK_INTERVAL),
        })
    }

    /// Forgets nodes that are not members.
    pub(super) fn retain(&mut self, member: impl Fn(&PublicKey) -> bool) {
        let gone: Vec<PublicKey> = self.kept.keys().filter(|key| !member(key)).copied().collect();
        gone.iter().for_each(|key| self.forget(key));
        self.partners.retain(|key, _| member(key));
    }

    /// Takes presences that a member passed on. Returns whether an address of another member changed.
    pub(super) fn receive(
        &mut self,
        from: &PublicKey,
        presences: Vec<(Presence, u32)>,
        member: impl Fn(&PublicKey) -> bool,
        now: u64,
    ) -> bool {
        let mut changed = false;
        for (presence, age) in presences {
            // Refusals that cost nothing come before the check of the signature.
            let known = self.kept.get(&presence.member);
            let is_news = known.is_none_or(|known| presence.is_newer(&known.presence));
            if !is_news || u64::from(age) >= LIFE || !member(&presence.member) {
                continue;
            }
            let mut moves = known.map_or(ALL_MOVES, |known| known.moves);
            let may_check = self.partner(from).checks.take(now);
            if !may_check || !presence.is_genuine(&self.network) {
                continue;
            }
            if presence.member == self.me {
                // Of a former life of this node, whose clock or memory was another one.
                if presence.version < MAX_VERSION {
                    self.own.used = self.own.used.max(presence.version);
                    let me = self.me;
                    self.forget(&me);
                }
                continue;
            }
            if moves.take(now) {
                let born = now as i64 - i64::from(age) * 1_000;
                self.keep(presence, born, Some(*from), moves);
                changed = true;
            }
        }
        changed
    }

    /// Takes the digest of a member, which is to get what it lacks.
    pub(super) fn receive_digest(&mut self, from: &PublicKey, theirs: &PresenceDigest, now: u64) {
        let partner = self.partner(from);
        if now < partner.answer {
            return;
        }
        partner.answer = now + PAUSE;
        self.join_digest(from, now);
        let ours = self.digest();
        let bits = ours.iter().zip(theirs).enumerate();
        let differing = bits.filter(|(_, (ours, theirs))| ours != theirs);
        let owed = differing.fold(0, |owed, (at, _)| owed | 1 << at);
        let partner = self.partner(from);
        (partner.owed, partner.cursor) = (owed, None);
    }

    /// A session with a member is up for another reason. Its digest goes along if half of the interval is
    /// over.
    pub(super) fn join_digest(&mut self, member: &PublicKey, now: u64) {
        if let Some(partner) = self.partners.get_mut(member)
            && partner.digest <= now.saturating_add(DIGEST_AGAIN / 2)
        {
            partner.digest = partner.digest.min(now);
        }
    }

    /// A document to a member did not arrive. It gets again what it was sent lately.
    pub(super) fn handle_lost(&mut self, member: &PublicKey, now: u64) {
        let Some(partner) = self.partners.get_mut(member) else {
            return;
        };
        if let Some(first) = partner.sent.pop_front() {
            partner.through = partner.through.min(first.through);
            (partner.owed, partner.cursor) = (partner.owed | first.owed, None);
            partner.next = partner.next.max(now + PAUSE);
            partner.sent.clear();
        }
    }

    /// Makes the statement of this node that is due, and forgets what is too old. Returns whether an
    /// address of another member is forgotten.
    pub(super) fn handle_timeout(&mut self, identity: &Identity, now: u64) -> bool {
        if self.own_due().is_some_and(|due| due <= now) {
            let present = (self.own.unix_at_zero + now).min(MAX_VERSION - 1);
            let version = present.max(self.own.used + 1).min(MAX_VERSION);
            self.own.used = version;
            self.own.next = now + PAUSE;
            let presence = Presence::sign(identity, &self.network, version, self.own.wanted.clone());
            self.keep(presence, now as i64, None, ALL_MOVES);
        }
        self.expire(now)
    }

    /// Returns the next document to send.
    pub(super) fn poll(&mut self, now: u64) -> Option<(PublicKey, Vec<u8>)> {
        let network = self.network;
        let here = |partner: &Partner| partner.here;
        let to_digest = self
            .partners
            .iter()
            .find(|(_, partner)| here(partner) && partner.digest <= now);
        if let Some(to) = to_digest.map(|(key, _)| *key) {
            let digest = Box::new(self.digest());
            if let Some(partner) = self.partners.get_mut(&to) {
                partner.digest = now + DIGEST_AGAIN;
            }
            return Some((to, Document::PresenceDigest { network, digest }.encode()));
        }
        let serial = self.serial;
        loop {
            let mut partners = self.partners.iter();
            let due = |partner: &Partner| partner.here && partner.next <= now && partner.has_news(serial);
            let to = *partners.find(|(_, partner)| due(partner))?.0;
            let before = self.partners.get(&to).map(|partner| (partner.through, partner.owed));
            let presences = self.take_news(&to, now);
            if !presences.is_empty() {
                if let (Some(partner), Some((through, owed))) = (self.partners.get_mut(&to), before) {
                    // The statement of this node to a new partner delays no news.
                    let is_first = partner.sent.is_empty() && owed == 1 << bucket(&self.me);
                    partner.next = now + if is_first { 0 } else { PAUSE };
                    partner.sent.retain(|sent| now < sent.at + UNSURE);
                    partner.sent.push_back(Sent { at: now, through, owed });
                }
                return Some((to, Document::Presences { network, presences }.encode()));
            }
        }
    }

    /// When something is due, in ms.
    pub(super) fn timeout(&self) -> Option<u64> {
        let here = self.partners.values().filter(|partner| partner.here);
        let of_partner = |partner: &Partner| match partner.has_news(self.serial) {
            true => partner.digest.min(partner.next),
            false => partner.digest,
        };
        here.map(of_partner).chain(self.own_due()).min()
    }

    /// All presences with their ages in seconds, for the file.
    pub(super) fn all(&self, now: u64) -> impl Iterator<Item = (&Presence, u64)> {
        let age = move |kept: &Kept| (now as i64 - kept.born).max(0) as u64 / 1_000;
        self.kept.values().map(move |kept| (&kept.presence, age(kept)))
    }

    /// Takes a presence of the file. That of this node is a lower bound for its next version.
    pub(super) fn restore(&mut self, presence: Presence, age: u64, now: u64) {
        if presence.member == self.me {
            self.own.used = presence.version.min(MAX_VERSION - 1);
        } else if age < LIFE && presence.is_genuine(&self.network) {
            self.keep(presence, now as i64 - age as i64 * 1_000, None, ALL_MOVES);
        }
        self.unsaved = false;
    }

    pub(super) fn is_unsaved(&self) -> bool {
        self.unsaved
    }

    pub(super) fn note_saved(&mut self) {
        self.unsaved = false;
    }

    /// When this node makes a statement, in ms; `None` if the present one holds.
    fn own_due(&self) -> Option<u64> {
        if self.own.wanted.as_bytes().is_empty() {
            return None;
        }
        match self.kept.get(&self.me) {
            Some(kept) if kept.presence.places == self.own.wanted => Some((kept.born + RENEW).max(0) as u64),
            _ => Some(self.own.next),
        }
    }

    fn keep(&mut self, presence: Presence, born: i64, from: Option<PublicKey>, moves: Bucket) {
        let member = presence.member;
        self.forget(&member);
        self.serial += 1;
        self.order.insert(self.serial, member);
        self.oldest = self.oldest.min(born);
        let kept = Kept {
            presence,
            born,
            serial: self.serial,
            from,
            moves,
        };
        self.kept.insert(member, kept);
    }

    /// Forgets what is too old. Returns whether there was any.
    fn expire(&mut self, now: u64) -> bool {
        let life = LIFE as i64 * 1_000;
        if self.oldest.saturating_add(life) > now as i64 {
            return false;
        }
        let old = self.kept.iter().filter(|(_, kept)| kept.born + life <= now as i64);
        let old: Vec<PublicKey> = old.map(|(key, _)| *key).collect();
        old.iter().for_each(|key| self.forget(key));
        self.oldest = self.kept.values().map(|kept| kept.born).min().unwrap_or(i64::MAX);
        !old.is_empty()
    }

    fn forget(&mut self, member: &PublicKey) {
        self.unsaved = true;
        if let Some(kept) = self.kept.remove(member) {
            self.order.remove(&kept.serial);
        }
    }

    /// The presences that a member gets next, at most [`MAX_IN_DOCUMENT`]: what has changed, and then
    /// what its digest lacked.
    fn take_news(&mut self, to: &PublicKey, now: u64) -> Vec<(Presence, u32)> {
        let mut news = Vec::new();
        let Some(partner) = self.partners.get_mut(to) else {
            return news;
        };
        let mut changes = self.order.range(partner.through + 1..).take(MAX_IN_DOCUMENT);
        let mut keys: Vec<PublicKey> = Vec::new();
        for (serial, key) in changes.by_ref() {
            partner.through = *serial;
            let came_from = self.kept.get(key).and_then(|kept| kept.from);
            if came_from != Some(*to) && key != to {
                keys.push(*key);
            }
        }
        if self.order.range(partner.through + 1..).next().is_none() {
            partner.through = self.serial;
        }
        while partner.owed != 0 && keys.len() < MAX_IN_DOCUMENT {
            let lowest = partner.owed.trailing_zeros() as usize;
            let after = partner.cursor;
            let rest = self
                .kept
                .keys()
                .filter(|key| bucket(key) == lowest && after.is_none_or(|after| **key > after));
            let room = MAX_IN_DOCUMENT - keys.len();
            let some: Vec<PublicKey> = rest.take(room).copied().collect();
            partner.cursor = some.last().copied().or(after);
            if some.len() < room {
                partner.owed &= partner.owed - 1;
                partner.cursor = None;
            }
            for key in some {
                if key != *to && !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        for kept in keys.iter().filter_map(|key| self.kept.get(key)) {
            let age = (now as i64 - kept.born).max(0) as u64 / 1_000;
            news.push((kept.presence.clone(), age.min(u32::MAX.into()) as u32));
        }
        news
    }

    fn digest(&self) -> PresenceDigest {
        let mut hashes: [Sha256; BUCKETS] = std::array::from_fn(|_| Sha256::new());
        for (key, kept) in &self.kept {
            if let Some(hash) = hashes.get_mut(bucket(key)) {
                hash.update(key.as_bytes());
                hash.update(kept.presence.version.to_be_bytes());
            }
        }
        hashes.map(|hash| {
            let mut short = [0; 8];
            let hash: [u8; 32] = hash.finalize().into();
            short.copy_from_slice(&hash[..8]);
            short
        })
    }
}

impl Partner {
    fn has_news(&self, serial: u64) -> bool {
        self.owed != 0 || self.through < serial
    }
}

/// The bucket of a key: its first six bits.
fn bucket(key: &PublicKey) -> usize {
    usize::from(key.as_bytes().first().copied().unwrap_or(0) >> 2)
}

/// Reads the presences of a document. One that is malformed is left out, and takes none of the others
/// with it: a node that reads places less strictly has passed it on in good faith.
///
/// # Errors
/// [`DocumentError`]: there are too many, or the last one has no end.
pub(super) fn read_presences(mut bytes: &[u8]) -> Result<Vec<(Presence, u32)>, DocumentError> {
    let mut presences = Vec::new();
    let mut count = 0;
    while !bytes.is_empty() {
        if count == MAX_IN_DOCUMENT {
            return Err(DocumentError::Field("number of presences"));
        }
        let (presence, rest) = Presence::split(bytes)?;
        presences.extend(Presence::read(presence));
        count += 1;
        bytes = rest;
    }
    Ok(presences)
}

#[cfg(test)]
mod tests;
