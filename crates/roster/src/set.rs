//! The records of one network that a node keeps.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;
use weft_noise::PublicKey;

use crate::admins::Admins;
use crate::key::RecordKey;
use crate::network_id::NetworkId;
use crate::record::Record;
use crate::state::in_force;

/// Bytes of JSON of all records of a set, at most.
pub const MAX_SET: usize = 16 << 20;

/// Bytes of JSON of the void records of a set, at most: those of a former administrator, which count
/// again if its removal turns out to be void.
pub const MAX_VOID: usize = 4_194_304;

/// Records about administrators of one signer, at most: each is about another node, and costs a look at each
/// further one.
pub const MAX_RIGHTS: usize = 256;

/// The records of one network: of each signer the best one about each key.
///
/// The order in which records arrive makes no difference, as long as all of them together are
/// within [`MAX_SET`].
#[derive(Debug, Clone)]
pub struct RecordSet {
    network: NetworkId,
    slots: Slots,
    admins: Admins,
    /// Void records in the order of their identifiers, each with its length in bytes.
    void: BTreeMap<Void, usize>,
    void_bytes: usize,
    bytes: usize,
    max_bytes: usize,
    counts: Counts,
    /// How many records about administrators each signer has signed.
    rights: BTreeMap<PublicKey, usize>,
    /// Whether the records come from a file of this node, where all of them had room.
    is_file: bool,
}

/// Key, signer, and what is kept of this signer about this key.
pub(crate) type Slots = BTreeMap<RecordKey, BTreeMap<PublicKey, Kept>>;

/// The records of one signer about one key.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    /// The one of the highest precedence.
    pub(crate) best: Arc<Record>,
    /// If this version of Weft does not understand it: the best one that it does understand.
    pub(crate) understood: Option<Arc<Record>>,
}

/// Identifier, key and signer of a record.
type Void = ([u8; 32], RecordKey, PublicKey);

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Insertion {
    /// It is kept.
    Kept,
    /// It was there.
    Known,
    /// A better one of its signer about its key is there.
    Older,
    /// It is not kept, and counted.
    Refused(Refusal),
}

/// The reason why a set does not take a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum Refusal {
    /// It is of another network.
    #[error("the record is of another network")]
    OtherNetwork,
    /// The set is full.
    #[error("the records of the network are too many: {MAX_SET} bytes are the limit")]
    Full,
}

/// How many records were refused or removed, by cause, and how many were verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Records of another network.
    pub other_network: u64,
    /// Records that found no room.
    pub full: u64,
    /// Records of signers that are no administrators, removed to make room.
    pub evicted: u64,
    /// Records of others that were not looked at: their signer has no say.
    pub without_rank: u64,
    /// Records of others whose signature was verified.
    pub verified: u64,
}

impl RecordSet {
    /// Creates the empty set of a network.
    #[must_use]
    pub fn new(network: NetworkId) -> Self {
        Self::with_room(network, MAX_SET)
    }

    /// Creates an empty set of at most `max_bytes`.
    #[must_use]
    pub fn with_room(network: NetworkId, max_bytes: usize) -> Self {
        Self {
            network,
            slots: Slots::new(),
            admins: Admins::default(),
            void: BTreeMap::new(),
            void_bytes: 0,
            bytes: 0,
            max_bytes,
            counts: Counts::default(),
            rights: BTreeMap::new(),
            is_file: false,
        }
    }

    /// Creates the set of the records that this node has kept.
    #[must_use]
    pub fn of_file(network: NetworkId, records: &[Arc<Record>]) -> Self {
        let mut set = Self::new(network);
        set.is_file = true;
        set.insert_all(records);
        set.is_file = false;
        set
    }

    /// Returns the network.
    #[must_use]
    pub const fn network(&self) -> NetworkId {
        self.network
    }

    /// Returns the administrators that the records make.
    #[must_use]
    pub const fn admins(&self) -> &Admins {
        &self.admins
    }

    /// Returns the size of all records in bytes of JSON.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the counts of records refused, removed and verified so far.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }

    pub(crate) const fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Returns all records that are kept.
    pub fn records(&self) -> impl Iterator<Item = &Arc<Record>> {
        let kept = self.slots.values().flat_map(BTreeMap::values);
        kept.flat_map(|kept| [&kept.best].into_iter().chain(&kept.understood))
    }

    /// Returns the records that count: those of administrators, and the resignations of former
    /// ones. Two sets in which these are equal have equal states, whatever else is in them.
    pub fn live(&self) -> impl Iterator<Item = &Arc<Record>> {
        let kept = self.slots.values().flat_map(BTreeMap::values);
        kept.map(|kept| &kept.best).filter(|record| self.is_live(record))
    }

    /// Returns true if a record counts. One that proves the founder counts in any case.
    #[must_use]
    pub fn is_live(&self, record: &Record) -> bool {
        if record.founds() {
            return true;
        }
        self.admins.rank(record.signer()).is_some() || self.counts_of_former(record)
    }

    fn counts_of_former(&self, record: &Record) -> bool {
        let (signer, key) = (record.signer(), record.key());
        self.admins.counts_of_former(signer, key, record.removed())
    }

    /// Returns the record that is in force for a key, also one that removes.
    #[must_use]
    pub fn in_force(&self, key: &RecordKey) -> Option<&Arc<Record>> {
        let slot = self.slots.get(key)?;
        in_force(&self.admins, key, slot.values().map(|kept| &kept.best))
    }

    /// Takes a record.
    pub fn insert(&mut self, record: &Arc<Record>) -> Insertion {
        let (insertion, decides) = self.put_in(record);
        if decides {
            self.settle();
        }
        self.bound_void();
        insertion
    }

    /// Inserts records, and says what became of each. Decides once about the administrators: after the records
    /// about them and before the others.
    pub fn insert_all(&mut self, records: &[Arc<Record>]) -> Vec<Insertion> {
        let mut insertions = vec![Insertion::Known; records.len()];
        for about_rights in [true, false] {
            let mut decide = false;
            for (record, insertion) in records.iter().zip(&mut insertions) {
                if record.key().is_about_rights() == about_rights {
                    let (became, decides) = self.put_in(record);
                    *insertion = became;
                    decide |= decides;
                }
            }
            if decide {
                self.settle();
            }
        }
        self.bound_void();
        insertions
    }

    /// Takes a record. Returns true if it may change the set of administrators.
    fn put_in(&mut self, record: &Arc<Record>) -> (Insertion, bool) {
        if record.network() != self.network {
            self.counts.other_network += 1;
            return (Insertion::Refused(Refusal::OtherNetwork), false);
        }
        let kept = self.kept(record);
        let Some((kept, replaced)) = kept.map_or(Ok((Kept::first(record), 0)), |kept| kept.with(record)).ok() else {
            let known = self.records_of(record).any(|kept| kept.id() == record.id());
            let insertion = if known { Insertion::Known } else { Insertion::Older };
            return (insertion, false);
        };
        if self.is_beyond_rights(record) || !self.make_room(record, replaced) {
            self.counts.full += 1;
            return (Insertion::Refused(Refusal::Full), false);
        }
        self.put(record.key().clone(), *record.signer(), kept);
        (Insertion::Kept, self.decides_admins(record))
    }

    fn kept(&self, record: &Record) -> Option<&Kept> {
        self.slots.get(record.key())?.get(record.signer())
    }

    fn records_of(&self, record: &Record) -> impl Iterator<Item = &Arc<Record>> {
        let kept = self.kept(record).into_iter();
        kept.flat_map(|kept| [&kept.best].into_iter().chain(&kept.understood))
    }

    /// Returns true if a record can change the set of administrators.
    fn decides_admins(&self, record: &Record) -> bool {
        match record.key() {
            RecordKey::Network if record.founds() => true,
            RecordKey::Network => self.counts_of_former(record),
            RecordKey::Admin(_) => self.is_live(record),
            _ => false,
        }
    }

    fn settle(&mut self) {
        let admins = Admins::settle(&self.slots, None);
        if admins == self.admins {
            return;
        }
        self.admins = admins;
        let all = self.slots.values().flat_map(BTreeMap::values);
        let void = all.filter(|kept| !self.is_live(&kept.best));
        self.void = void.map(|kept| (kept.void(), kept.len())).collect();
        self.void_bytes = self.void.values().sum();
    }

    /// Drops void records beyond the limit: of the signer that has most bytes of them, those of the highest
    /// identifiers. So a former administrator that fills the room leaves that of the others.
    fn bound_void(&mut self) {
        if self.void_bytes <= MAX_VOID {
            return;
        }
        let mut signers: BTreeMap<PublicKey, (usize, Vec<Void>)> = BTreeMap::new();
        for (void, len) in &self.void {
            let (bytes, all) = signers.entry(void.2).or_default();
            *bytes += len;
            all.push(void.clone());
        }
        while self.void_bytes > MAX_VOID {
            let most = signers.values_mut().max_by_key(|(bytes, _)| *bytes);
            let Some((bytes, void)) = most.and_then(|(bytes, all)| Some((bytes, all.pop()?))) else {
                return;
            };
            *bytes -= self.void.get(&void).copied().unwrap_or_default();
            self.evict(&void);
        }
    }

    fn evict(&mut self, (_, key, signer): &Void) {
        self.take_out(key, signer);
        self.counts.evicted += 1;
    }

    fn put(&mut self, key: RecordKey, signer: PublicKey, kept: Kept) {
        self.take_out(&key, &signer);
        self.bytes += kept.len();
        if !self.is_live(&kept.best) {
            self.void_bytes += kept.len();
            self.void.insert(kept.void(), kept.len());
        }
        if matches!(key, RecordKey::Admin(_)) {
            *self.rights.entry(signer).or_default() += 1;
        }
        self.slots.entry(key).or_default().insert(signer, kept);
    }

    fn take_out(&mut self, key: &RecordKey, signer: &PublicKey) {
        let Some(of_key) = self.slots.get_mut(key) else { return };
        if let Some(old) = of_key.remove(signer) {
            if let (RecordKey::Admin(_), Some(count)) = (key, self.rights.get_mut(signer)) {
                *count -= 1;
            }
            self.bytes -= old.len();
            self.void_bytes -= self.void.remove(&old.void()).unwrap_or_default();
        }
        if of_key.is_empty() {
            self.slots.remove(key);
        }
    }

    /// Returns the number of bytes up to which a record finds room. Each rank has less than the one before, down
    /// to three quarters, so that an administrator that fills the set can be removed. The last part is for records about
    /// rights, and the part in front of it for other removals.
    fn room_of(&self, record: &Record) -> usize {
        let rank = self.admins.rank(record.signer()).filter(|_| !self.is_file);
        let Some(rank) = rank.map(usize::from) else {
            return self.max_bytes;
        };
        let part = self.max_bytes / 64;
        let kept = match record.key().is_about_rights() {
            true => 0,
            false if record.removed() => part,
            false => part * 2,
        };
        self.max_bytes - part * 4 * rank.min(4) - kept
    }

    /// Returns true if a signer has signed so many records about rights that a further one is not
    /// taken.
    fn is_beyond_rights(&self, record: &Record) -> bool {
        let new = matches!(record.key(), RecordKey::Admin(_)) && self.kept(record).is_none();
        new && self
            .rights
            .get(record.signer())
            .is_some_and(|count| *count >= MAX_RIGHTS)
    }

    /// Makes room for a record that replaces `replaced` bytes. Returns true if there is room. Void
    /// records leave first, those of the highest identifiers before others, so that the ones that
    /// stay do not depend on the order of arrival.
    fn make_room(&mut self, record: &Record, replaced: usize) -> bool {
        let may_count = self.is_live(record) || self.decides_admins(record);
        let room = self.room_of(record);
        // A record that takes no more room than the one before it finds some.
        while record.len() > replaced && self.bytes - replaced + record.len() > room {
            let Some(last) = self.void.keys().next_back().cloned() else {
                return false;
            };
            let (id, key, signer) = &last;
            let same = *key == *record.key() && *signer == *record.signer();
            if same || (!may_count && *id < *record.id()) {
                return false;
            }
            self.evict(&last);
        }
        true
    }
}

impl Kept {
    fn first(record: &Arc<Record>) -> Self {
        Self {
            best: Arc::clone(record),
            understood: None,
        }
    }

    /// Returns this with another record of the same signer and key, and the number of bytes that leave. The error
    /// means that the record is not better than what is kept.
    fn with(&self, record: &Arc<Record>) -> Result<(Self, usize), ()> {
        let understood = self
            .understood
            .as_ref()
            .or(Some(&self.best))
            .filter(|kept| kept.understood());
        if record.precedence() > self.best.precedence() {
            let kept = Self {
                best: Arc::clone(record),
                understood: understood.filter(|_| !record.understood()).cloned(),
            };
            let leaving = self.len() + record.len() - kept.len();
            return Ok((kept, leaving));
        }
        let better = understood.is_none_or(|kept| record.precedence() > kept.precedence());
        if self.best.understood() || !record.understood() || !better {
            return Err(());
        }
        let kept = Self {
            best: Arc::clone(&self.best),
            understood: Some(Arc::clone(record)),
        };
        Ok((kept, self.understood.as_ref().map_or(0, |old| old.len())))
    }

    fn len(&self) -> usize {
        self.best.len() + self.understood.as_ref().map_or(0, |record| record.len())
    }

    fn void(&self) -> Void {
        (*self.best.id(), self.best.key().clone(), *self.best.signer())
    }
}
