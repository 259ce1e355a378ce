//! Coordinates of nodes, as received lately.
//!
//! Handshakes, look-ups and warm-ups contain coordinates, and other datagrams do not. So a relay
//! has to remember them. Source: FIPS, `cache/coord_cache.rs` and session layer, "Coordinate
//! Cache".

use std::collections::BTreeMap;
use std::mem::size_of;

use weft_wire::NodeAddr;

use super::provenance::{Provenance, Word};

/// Time for which coordinates that are not used are kept, in ms.
pub(crate) const TTL: u64 = 300_000;
/// Maximum number of addresses of a path. A datagram makes at most 64 hops.
pub(crate) const MAX_PATH: usize = 64;
/// Average number of addresses of a path for which the capacity is sized.
const MEAN_PATH: usize = 16;
/// Size of an entry in both maps, without its path.
const ENTRY_BYTES: usize = size_of::<(NodeAddr, Entry)>() + size_of::<(u64, NodeAddr)>();

/// Entries that are evicted together: the statements of one neighbour with the same provenance.
type Group = (Provenance, NodeAddr);

/// The reason why coordinates were not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CoordsError {
    /// The path is empty or begins with another node.
    #[error("coordinates of another node")]
    NotOfDest,
    /// The path has more than [`MAX_PATH`] addresses.
    #[error("coordinates of {0} addresses")]
    TooLong(usize),
}

/// Coordinates by node. Times are ms on the caller's clock.
///
/// If there is no room, the entries with the weakest provenance are evicted, among these those of
/// the neighbour with the most of them, and among its own the least recently used. So a neighbour
/// that forges coordinates displaces none that a node has proven or answered with, and displaces
/// its own statements first.
#[derive(Debug)]
pub(crate) struct CoordCache {
    entries: BTreeMap<NodeAddr, Entry>,
    /// Nodes by [`Entry::used`] in each group. Each use also renews the expiry, so the entry that
    /// expires first is the first one.
    by_use: BTreeMap<Group, BTreeMap<u64, NodeAddr>>,
    capacity: usize,
    bytes: usize,
    /// Number of uses so far.
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    /// The path from the node to the root.
    path: Box<[NodeAddr]>,
    /// The statement that the path is from.
    word: Word,
    /// When that statement was made.
    told: u64,
    /// The last ms at which the entry is valid.
    expires: u64,
    /// The number of the last use of this entry.
    used: u64,
}

impl Entry {
    fn group(&self) -> Group {
        (self.word.provenance, self.word.teller)
    }

    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.path.len() * NodeAddr::LEN
    }
}

impl CoordCache {
    /// Creates a cache for `capacity` nodes (at least one), or for fewer if their paths are longer
    /// than 16 addresses on average.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            by_use: BTreeMap::new(),
            capacity: capacity.max(1),
            bytes: 0,
            uses: 0,
        }
    }

    /// Learns the coordinates of a node, or learns them again: its address first, the root's last.
    /// Coordinates with a stronger provenance stay.
    ///
    /// # Errors
    ///
    /// [`CoordsError`]. The previous coordinates stay.
    pub(crate) fn insert(
        &mut self,
        now: u64,
        dest: NodeAddr,
        path: &[NodeAddr],
        word: Word,
    ) -> Result<(), CoordsError> {
        if path.first() != Some(&dest) {
            return Err(CoordsError::NotOfDest);
        }
        if path.len() > MAX_PATH {
            return Err(CoordsError::TooLong(path.len()));
        }
        match self.entries.get_mut(&dest).filter(|entry| now <= entry.expires) {
            Some(entry) if *entry.path == *path => {
                let yields = entry.word.yields(entry.told, word, now);
                self.renew(now, &dest, yields.then_some(word));
            }
            Some(entry) if !entry.word.yields(entry.told, word, now) => {}
            _ => {
                self.remove(&dest);
                self.add(now, dest, path, word);
            }
        }
        self.expire((word.provenance, word.teller), now);
        self.evict(now);
        Ok(())
    }

    /// Returns the path from a node to the root, and keeps it for another [`TTL`].
    pub(crate) fn lookup(&mut self, now: u64, dest: &NodeAddr) -> Option<&[NodeAddr]> {
        if self.peek(now, dest).is_some() {
            self.renew(now, dest, None);
        } else {
            self.remove(dest);
        }
        self.entries.get(dest).map(|entry| &*entry.path)
    }

    /// Returns the same as [`CoordCache::lookup`], but does not keep it any longer.
    pub(crate) fn peek(&self, now: u64, dest: &NodeAddr) -> Option<&[NodeAddr]> {
        let entry = self.entries.get(dest).filter(|entry| now <= entry.expires);
        entry.map(|entry| &*entry.path)
    }

    /// Forgets a node and returns whether it was known.
    pub(crate) fn remove(&mut self, dest: &NodeAddr) -> bool {
        let Some(entry) = self.entries.remove(dest) else {
            return false;
        };
        self.bytes -= entry.bytes();
        self.forget_use(entry.group(), entry.used);
        true
    }

    /// Forgets the nodes whose path to the root leads through `node`, and returns their number. The
    /// node calls it with its own address when its coordinates change, because these paths contain
    /// its earlier ones.
    pub(crate) fn remove_below(&mut self, node: &NodeAddr) -> usize {
        self.retain(|path| !path.contains(node))
    }

    /// Forgets the nodes of trees with another root, and returns their number: no distance to them
    /// is defined.
    pub(crate) fn remove_other_roots(&mut self, root: &NodeAddr) -> usize {
        self.retain(|path| path.last() == Some(root))
    }

    /// Forgets all nodes.
    #[cfg(test)]
    pub(crate) fn flush(&mut self) {
        self.retain(|_| false);
    }

    /// Returns the number of nodes, including expired ones that no other has displaced yet.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the memory in use, in bytes, approximately. Never above [`CoordCache::max_bytes`].
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the maximum memory, in bytes.
    pub(crate) fn max_bytes(&self) -> usize {
        let entries = self.capacity.saturating_mul(ENTRY_BYTES + MEAN_PATH * NodeAddr::LEN);
        entries.max(ENTRY_BYTES + MAX_PATH * NodeAddr::LEN)
    }

    /// Checks the invariants that hold after every call.
    ///
    /// # Errors
    ///
    /// The broken invariant, in words.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        let bytes: usize = self.entries.values().map(Entry::bytes).sum();
        if self.bytes != bytes || bytes > self.max_bytes() || self.entries.len() > self.capacity {
            return Err(format!("{} coordinates in {bytes} bytes", self.entries.len()));
        }
        let uses = || {
            self.by_use
                .iter()
                .flat_map(|(group, uses)| uses.iter().map(move |of| (group, of)))
        };
        let used = |(group, (used, addr)): (&Group, (&u64, &NodeAddr))| {
            let entry = self.entries.get(addr);
            entry.is_some_and(|entry| entry.used == *used && entry.group() == *group)
        };
        let kept = self.by_use.values().all(|uses| !uses.is_empty());
        if uses().count() != self.entries.len() || !uses().all(used) || !kept {
            return Err("the order of use is not that of the entries".into());
        }
        Ok(())
    }

    fn add(&mut self, now: u64, dest: NodeAddr, path: &[NodeAddr], word: Word) {
        let entry = Entry {
            path: path.into(),
            word,
            told: now,
            expires: now.saturating_add(TTL),
            used: self.uses,
        };
        self.uses += 1;
        self.bytes += entry.bytes();
        self.by_use.entry(entry.group()).or_default().insert(entry.used, dest);
        self.entries.insert(dest, entry);
    }

    /// Renews the expiry of an entry, with a new statement or with its present one.
    fn renew(&mut self, now: u64, dest: &NodeAddr, word: Option<Word>) {
        let Some(entry) = self.entries.get_mut(dest) else {
            return;
        };
        let before = (entry.group(), entry.used);
        if let Some(word) = word {
            (entry.word, entry.told) = (word, now);
        }
        entry.expires = now.saturating_add(TTL);
        entry.used = self.uses;
        let group = entry.group();
        self.forget_use(before.0, before.1);
        self.by_use.entry(group).or_default().insert(self.uses, *dest);
        self.uses += 1;
    }

    fn forget_use(&mut self, group: Group, used: u64) {
        if let Some(uses) = self.by_use.get_mut(&group) {
            uses.remove(&used);
            if uses.is_empty() {
                self.by_use.remove(&group);
            }
        }
    }

    /// Removes the expired entries of a group.
    fn expire(&mut self, group: Group, now: u64) {
        while let Some(oldest) = self.oldest_of(group) {
            if self.peek(now, &oldest).is_some() {
                break;
            }
            self.remove(&oldest);
        }
    }

    /// Removes entries until the rest fits: expired ones, then those with the weakest provenance.
    fn evict(&mut self, now: u64) {
        let fits = |cache: &Self| cache.entries.len() <= cache.capacity && cache.bytes <= cache.max_bytes();
        if fits(self) {
            return;
        }
        let groups: Vec<Group> = self.by_use.keys().copied().collect();
        groups.into_iter().for_each(|group| self.expire(group, now));
        while !fits(self) {
            let weakest = self.by_use.keys().next().map(|(provenance, _)| *provenance);
            let of_weakest = self
                .by_use
                .iter()
                .take_while(|((provenance, _), _)| Some(*provenance) == weakest);
            let most = of_weakest.max_by_key(|(_, uses)| uses.len()).map(|(group, _)| *group);
            let Some(oldest) = most.and_then(|group| self.oldest_of(group)) else {
                break;
            };
            self.remove(&oldest);
        }
    }

    fn oldest_of(&self, group: Group) -> Option<NodeAddr> {
        let (_, oldest) = self.by_use.get(&group)?.first_key_value()?;
        Some(*oldest)
    }

    fn retain(&mut self, keep: impl Fn(&[NodeAddr]) -> bool) -> usize {
        let before = self.entries.len();
        self.entries.retain(|_, entry| keep(&entry.path));
        for uses in self.by_use.values_mut() {
            uses.retain(|_, addr| self.entries.contains_key(addr));
        }
        self.by_use.retain(|_, uses| !uses.is_empty());
        self.bytes = self.entries.values().map(Entry::bytes).sum();
        before - self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::provenance::{FIRM, Provenance};
    use super::*;

    /// A statement that only another one with the same provenance replaces.
    const SIGNED: Word = Word {
        teller: NodeAddr::new([0; 16]),
        provenance: Provenance::Proven,
    };

    fn addr(number: u8) -> NodeAddr {
        NodeAddr::new([number; 16])
    }

    fn path(numbers: &[u8]) -> Vec<NodeAddr> {
        numbers.iter().copied().map(addr).collect()
    }

    #[test]
    fn the_last_ms_still_counts_and_use_prolongs() {
        let mut cache = CoordCache::new(10);
        cache.insert(1_000, addr(5), &path(&[5, 2, 1]), SIGNED).unwrap();
        assert_eq!(cache.peek(1_000 + TTL, &addr(5)), Some(&*path(&[5, 2, 1])));
        assert_eq!(cache.peek(1_001 + TTL, &addr(5)), None);
        assert!(cache.lookup(1_000 + TTL, &addr(5)).is_some());
        assert!(cache.lookup(1_000 + 2 * TTL, &addr(5)).is_some());
        assert_eq!(cache.lookup(1_001 + 3 * TTL, &addr(5)), None);
        assert_eq!((cache.len(), cache.bytes()), (0, 0));
    }

    #[test]
    fn hostile_coordinates_are_refused_and_what_was_known_stays() {
        let mut cache = CoordCache::new(10);
        cache.insert(0, addr(5), &path(&[5, 1]), SIGNED).unwrap();
        assert_eq!(cache.insert(0, addr(5), &[], SIGNED), Err(CoordsError::NotOfDest));
        assert_eq!(
            cache.insert(0, addr(5), &path(&[6, 5, 1]), SIGNED),
            Err(CoordsError::NotOfDest)
        );
        let long = vec![addr(5); MAX_PATH + 1];
        assert_eq!(cache.insert(0, addr(5), &long, SIGNED), Err(CoordsError::TooLong(65)));
        assert_eq!(cache.peek(0, &addr(5)), Some(&*path(&[5, 1])));
        assert_eq!(cache.insert(0, addr(5), &long[1..], SIGNED), Ok(()));
    }

    #[test]
    fn forged_coordinates_do_not_replace_those_in_use() {
        let mut cache = CoordCache::new(10);
        let passing = |teller| Word {
            teller: addr(teller),
            provenance: Provenance::Passing,
        };
        cache.insert(0, addr(5), &path(&[5, 1]), SIGNED).unwrap();
        cache.insert(1, addr(5), &path(&[5, 9, 1]), passing(7)).unwrap();
        assert_eq!(cache.peek(1, &addr(5)), Some(&*path(&[5, 1])));
        cache.insert(0, addr(6), &path(&[6, 1]), passing(8)).unwrap();
        cache.insert(FIRM - 1, addr(6), &path(&[6, 9, 1]), passing(7)).unwrap();
        assert_eq!(cache.peek(FIRM, &addr(6)), Some(&*path(&[6, 1])));
        // The neighbour that reported the first ones may correct them.
        cache.insert(FIRM - 1, addr(6), &path(&[6, 2, 1]), passing(8)).unwrap();
        assert_eq!(cache.peek(FIRM, &addr(6)), Some(&*path(&[6, 2, 1])));
    }

    #[test]
    fn invented_coordinates_displace_neither_proofs_nor_others() {
        let mut cache = CoordCache::new(10);
        let passing = |teller| Word {
            teller: addr(teller),
            provenance: Provenance::Passing,
        };
        cache.insert(0, addr(5), &path(&[5, 1]), SIGNED).unwrap();
        cache.insert(1, addr(6), &path(&[6, 1]), passing(2)).unwrap();
        for number in 20..=255 {
            cache
                .insert(2, addr(number), &path(&[number, 9, 1]), passing(9))
                .unwrap();
            cache.check_invariants().unwrap();
        }
        assert_eq!(cache.len(), 10);
        assert_eq!(cache.peek(2, &addr(5)), Some(&*path(&[5, 1])));
        assert_eq!(cache.peek(2, &addr(6)), Some(&*path(&[6, 1])));
        // A statement does not displace a proof even if all other entries are proofs.
        let mut cache = CoordCache::new(3);
        for number in [5, 6, 7] {
            cache.insert(0, addr(number), &path(&[number, 1]), SIGNED).unwrap();
        }
        cache.insert(1, addr(8), &path(&[8, 1]), passing(2)).unwrap();
        assert!([5, 6, 7].iter().all(|number| cache.peek(1, &addr(*number)).is_some()));
        // A proof turns an entry into one of its own group.
        cache.insert(2, addr(5), &path(&[5, 1]), passing(3)).unwrap();
        cache.check_invariants().unwrap();
    }

    #[test]
    fn long_paths_take_the_place_of_many_short_ones() {
        let mut cache = CoordCache::new(100);
        for number in 0..=255 {
            cache
                .insert(0, addr(number), &[addr(number); MAX_PATH], SIGNED)
                .unwrap();
            cache.check_invariants().unwrap();
        }
        let max = cache.max_bytes();
        assert!(
            (20..40).contains(&cache.len()) && cache.bytes() <= max,
            "{}",
            cache.len()
        );
        // Even the smallest cache holds the longest path.
        let mut cache = CoordCache::new(0);
        cache.insert(0, addr(1), &[addr(1); MAX_PATH], SIGNED).unwrap();
        assert_eq!(cache.len(), 1);
    }

    #[test]
    fn a_new_place_or_root_makes_only_the_stale_ones_forgotten() {
        let mut cache = CoordCache::new(10);
        for numbers in [[5, 2, 1], [6, 3, 1], [7, 2, 9]] {
            cache.insert(0, addr(numbers[0]), &path(&numbers), SIGNED).unwrap();
        }
        assert_eq!(cache.remove_below(&addr(3)), 1);
        cache.check_invariants().unwrap();
        assert_eq!(cache.remove_other_roots(&addr(9)), 1);
        cache.check_invariants().unwrap();
        assert!(cache.peek(0, &addr(7)).is_some());
        cache.flush();
        cache.check_invariants().unwrap();
        assert_eq!((cache.len(), cache.bytes()), (0, 0));
    }

    #[derive(Clone, Debug)]
    enum Event {
        Insert(u8, Vec<u8>),
        Lookup(u8),
        Peek(u8),
        Remove(u8),
        Wait(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        let number = || 0_u8..12;
        prop_oneof![
            (number(), prop::collection::vec(number(), 0..5)).prop_map(|(node, rest)| Event::Insert(node, rest)),
            number().prop_map(Event::Lookup),
            number().prop_map(Event::Peek),
            number().prop_map(Event::Remove),
            (0..TTL / 2).prop_map(Event::Wait),
        ]
    }

    proptest! {
        /// The model is a list, the most recently used last, with the time of the last use.
        #[test]
        fn it_forgets_in_the_order_of_use(capacity in 1_usize..6, events in prop::collection::vec(event(), 0..100)) {
            let mut cache = CoordCache::new(capacity);
            let mut model: Vec<(u8, u64, Vec<NodeAddr>)> = Vec::new();
            let mut now = 0;
            for event in events {
                match event {
                    Event::Insert(node, mut rest) => {
                        rest.insert(0, node);
                        cache.insert(now, addr(node), &path(&rest), SIGNED).unwrap();
                        model.retain(|(known, ..)| *known != node);
                        model.push((node, now, path(&rest)));
                        model.drain(..model.len().saturating_sub(capacity));
                        // A new entry replaces expired ones.
                        prop_assert_eq!(cache.len(), model.len());
                    }
                    Event::Lookup(node) => {
                        let at = model.iter().position(|(known, ..)| *known == node);
                        let known = at.map(|at| model.remove(at));
                        prop_assert_eq!(cache.lookup(now, &addr(node)), known.as_ref().map(|(.., path)| &**path));
                        model.extend(known.map(|(node, _, path)| (node, now, path)));
                    }
                    Event::Peek(node) => {
                        let known = model.iter().find(|(known, ..)| *known == node);
                        prop_assert_eq!(cache.peek(now, &addr(node)), known.map(|(.., path)| &**path));
                    }
                    Event::Remove(node) => {
                        // Both forget a node that expired, but only the cache may still hold it.
                        let known = model.iter().any(|(known, ..)| *known == node);
                        let removed = cache.remove(&addr(node));
                        prop_assert!(removed || !known);
                        model.retain(|(known, ..)| *known != node);
                    }
                    Event::Wait(pause) => {
                        now += pause;
                        model.retain(|(_, used, _)| now <= used + TTL);
                    }
                }
                cache.check_invariants().unwrap();
                prop_assert!(cache.len() >= model.len());
            }
        }
    }

    #[test]
    fn memory_is_that_of_the_entries_and_of_their_paths() {
        let entry = size_of::<(NodeAddr, Entry)>() + size_of::<(u64, NodeAddr)>();
        let mut cache = CoordCache::new(10);
        cache.insert(0, addr(5), &path(&[5, 2, 1]), SIGNED).unwrap();
        cache.insert(0, addr(6), &path(&[6, 1]), SIGNED).unwrap();
        assert_eq!(cache.bytes(), 2 * entry + 5 * 16);
        assert_eq!(CoordCache::new(100).max_bytes(), 100 * (entry + 16 * 16));
        assert_eq!(CoordCache::new(1).max_bytes(), entry + 64 * 16);
    }

    #[test]
    fn weaker_repeats_extend_coordinates_and_keep_their_provenance() {
        let mut cache = CoordCache::new(10);
        let passing = Word {
            teller: addr(7),
            provenance: Provenance::Passing,
        };
        cache.insert(0, addr(5), &path(&[5, 1]), SIGNED).unwrap();
        cache.insert(TTL, addr(5), &path(&[5, 1]), passing).unwrap();
        cache.insert(TTL + 1, addr(5), &path(&[5, 9, 1]), passing).unwrap();
        assert_eq!(cache.peek(2 * TTL, &addr(5)), Some(&*path(&[5, 1])));
        assert_eq!(cache.peek(2 * TTL + 1, &addr(5)), None);
    }

    #[test]
    fn it_tells_how_many_places_are_forgotten() {
        let known = || {
            let mut cache = CoordCache::new(10);
            for number in 20..30 {
                let root = if number < 26 { 1 } else { 2 };
                cache
                    .insert(0, addr(number), &path(&[number, 9, root]), SIGNED)
                    .unwrap();
            }
            cache
        };
        let mut cache = known();
        assert_eq!((cache.remove_other_roots(&addr(1)), cache.len()), (4, 6));
        assert_eq!((cache.remove_other_roots(&addr(1)), cache.len()), (0, 6));
        let mut cache = known();
        assert_eq!((cache.remove_below(&addr(2)), cache.len()), (4, 6));
        assert_eq!((cache.remove_below(&addr(9)), cache.len()), (6, 0));
        assert_eq!(cache.remove_below(&addr(9)), 0);
    }

    /// Breaks an invariant of a cache whose entries are all in one group.
    type Breakage = fn(&mut CoordCache, Group);

    #[test]
    fn each_broken_invariant_is_found() {
        let full = || {
            let mut cache = CoordCache::new(2);
            for number in [5, 6] {
                cache.insert(0, addr(number), &path(&[number, 1]), SIGNED).unwrap();
            }
            cache
        };
        assert_eq!(full().check_invariants(), Ok(()));
        let group = (SIGNED.provenance, SIGNED.teller);
        let breakages: [(&str, Breakage); 8] = [
            ("bytes", |cache, _| cache.bytes -= 1),
            ("entries", |cache, _| cache.capacity = 1),
            ("memory", |cache, _| {
                let entry = cache.entries.get_mut(&addr(5)).unwrap();
                entry.path = vec![addr(5); 2 * MAX_PATH].into();
                cache.bytes = cache.entries.values().map(Entry::bytes).sum();
            }),
            ("a use is missing", |cache, group| {
                cache.by_use.get_mut(&group).unwrap().remove(&0);
            }),
            ("a use of another time", |cache, group| {
                let uses = cache.by_use.get_mut(&group).unwrap();
                uses.remove(&0);
                uses.insert(9, addr(5));
            }),
            ("a use of nothing", |cache, group| {
                let uses = cache.by_use.get_mut(&group).unwrap();
                uses.insert(0, addr(9));
            }),
            ("another group", |cache, _| {
                cache.entries.get_mut(&addr(5)).unwrap().word.provenance = Provenance::Answer;
            }),
            ("an empty group", |cache, _| {
                cache.by_use.insert((Provenance::Answer, addr(1)), BTreeMap::new());
            }),
        ];
        for (name, breakage) in breakages {
            let mut cache = full();
            breakage(&mut cache, group);
            assert!(cache.check_invariants().is_err(), "{name}");
        }
    }

    #[test]
    fn a_cache_may_be_as_full_as_it_may_get() {
        let mut cache = CoordCache::new(1);
        cache.insert(0, addr(5), &[addr(5); MAX_PATH], SIGNED).unwrap();
        assert_eq!((cache.bytes(), cache.len()), (cache.max_bytes(), 1));
        assert_eq!(cache.check_invariants(), Ok(()));
    }
}
