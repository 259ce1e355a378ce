//! A set of node addresses with false positives and without false negatives.
//!
//! Source: FIPS, `proto/bloom/core.rs`. The bits are sent on the wire, so they match the daemon's
//! exactly.

use std::fmt;

use sha2::{Digest, Sha256};
use weft_wire::NodeAddr;
use weft_wire::filter::FILTER_LEN;

/// Hash functions of every filter. The wire format contains the number, and the first version of
/// the protocol has no other one.
pub(crate) const HASHES: u8 = 5;
/// Bits of every filter.
pub(crate) const BITS: u16 = 8 * FILTER_LEN as u16;
/// Maximum number of ones of a useful filter: above, more than one positive answer in five is
/// false, and the FIPS daemon refuses the filter. About 2,113 addresses.
pub(crate) const MAX_ONES: u32 = 5_937;
/// Number of ones above which a parent's filter no longer shows which nodes are absent: its other
/// neighbours may well have more addresses than fit, and then their fullest filters are left out. A
/// quarter of the maximum, about 330 addresses.
const TELLING_ONES: u32 = MAX_ONES / 4;

/// The bits in wire order: bit `i` is bit `i % 8` of byte `i / 8`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Bloom(Box<[u8; FILTER_LEN]>);

impl Bloom {
    /// Returns the empty set.
    pub(crate) fn new() -> Self {
        Self(Box::new([0; FILTER_LEN]))
    }

    /// Returns a filter from the wire.
    pub(crate) fn from_bits(bits: &[u8; FILTER_LEN]) -> Self {
        Self(Box::new(*bits))
    }

    /// Returns the bits as they are sent.
    pub(crate) fn bits(&self) -> &[u8; FILTER_LEN] {
        &self.0
    }

    /// Adds an address.
    pub(crate) fn insert(&mut self, addr: &NodeAddr) {
        for bit in Probe::new(addr).0 {
            self.0[usize::from(bit / 8)] |= 1 << (bit % 8);
        }
    }

    /// Whether the address may be in the set. `false` is certain.
    pub(crate) fn contains(&self, addr: &NodeAddr) -> bool {
        self.holds(&Probe::new(addr))
    }

    /// Returns the same as [`Bloom::contains`], for a caller that queries many filters for one
    /// address.
    pub(crate) fn holds(&self, probe: &Probe) -> bool {
        let set = |bit: &u16| self.0[usize::from(bit / 8)] >> (bit % 8) & 1 == 1;
        probe.0.iter().all(set)
    }

    /// Becomes the union of both sets.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0.iter()).for_each(|(a, b)| *a |= b);
    }

    /// Adds all addresses of `other`, unless the union would be too full. Returns whether it did.
    pub(crate) fn merge_if_it_fits(&mut self, other: &Self) -> bool {
        let union = self.0.iter().zip(other.0.iter()).map(|(a, b)| (a | b).count_ones());
        let fits = union.sum::<u32>() <= MAX_ONES;
        if fits {
            self.merge(other);
        }
        fits
    }

    /// Returns the number of ones.
    pub(crate) fn ones(&self) -> u32 {
        self.0.iter().map(|byte| byte.count_ones()).sum()
    }

    /// Returns the ones per thousand bits, rounded down.
    #[cfg(test)]
    pub(crate) fn fill(&self) -> u16 {
        let per_mille = self.ones() * 1_000 / u32::from(BITS);
        u16::try_from(per_mille).unwrap_or(1_000)
    }

    /// Whether the FIPS daemon would refuse the filter.
    pub(crate) fn is_too_full(&self) -> bool {
        self.ones() > MAX_ONES
    }

    /// Whether the filter takes a part of an announcement that others could use.
    pub(crate) fn is_considerable(&self) -> bool {
        self.ones() * 32 > MAX_ONES
    }

    /// Whether an absent node may have been left out.
    pub(crate) fn may_be_cut(&self) -> bool {
        self.ones() > TELLING_ONES
    }

    /// Returns how many addresses set this many bits on average, or `None` if all bits are set.
    #[cfg(test)]
    pub(crate) fn estimated_entries(&self) -> Option<u32> {
        let bits = f64::from(BITS);
        let zeros = bits - f64::from(self.ones());
        let entries = -(bits / f64::from(HASHES)) * (zeros / bits).ln();
        // Finite and not negative, below 15,000: the cast loses nothing.
        (zeros > 0.0).then(|| entries.round() as u32)
    }

    /// Returns the SHA-256 of the bits.
    pub(crate) fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.bits()).into()
    }
}

impl fmt::Debug for Bloom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bloom({} ones)", self.ones())
    }
}

/// The bits that represent one address in every filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe([u16; HASHES as usize]);

impl Probe {
    /// Hashes the address once. Bit `i` is `h1 + i * h2` modulo [`BITS`], with the first two
    /// little-endian 64-bit words of the address's SHA-256. Because the modulus is a power of two,
    /// the low 16 bits of each word decide.
    pub(crate) fn new(addr: &NodeAddr) -> Self {
        let digest = Sha256::digest(addr.as_bytes());
        let h1 = u16::from_le_bytes([digest[0], digest[1]]);
        let h2 = u16::from_le_bytes([digest[8], digest[9]]);
        Self(std::array::from_fn(|i| {
            h1.wrapping_add((i as u16).wrapping_mul(h2)) % BITS
        }))
    }
}

/// The union of many filters, from which any one of them can be removed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Bits set in one filter or more.
    any: Bloom,
    /// Bits set in two or more, which stay whichever filter is removed.
    more: Bloom,
}

impl Tally {
    /// Returns the tally of the filters.
    pub(crate) fn of<'a>(filters: impl Iterator<Item = &'a Bloom>) -> Self {
        let (mut any, mut more) = (Bloom::new(), Bloom::new());
        for filter in filters {
            let sums = any.0.iter_mut().zip(more.0.iter_mut());
            for ((any, more), bits) in sums.zip(filter.0.iter()) {
                *more |= *any & bits;
                *any |= bits;
            }
        }
        Self { any, more }
    }

    /// Returns the union of all but `one`, if that is given. It must be one of them.
    pub(crate) fn except(&self, one: Option<&Bloom>) -> Bloom {
        one.map_or_else(|| self.all(), |one| self.without(one))
    }

    /// Returns the union of all.
    pub(crate) fn all(&self) -> Bloom {
        self.any.clone()
    }

    /// Returns the union of all but `one`, which must be one of them.
    pub(crate) fn without(&self, one: &Bloom) -> Bloom {
        let mut rest = self.more.clone();
        let rest_and_any = rest.0.iter_mut().zip(self.any.0.iter());
        for ((rest, any), bits) in rest_and_any.zip(one.0.iter()) {
            *rest |= any & !bits;
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_types, reason = "a model needs no order")]

    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// Returns the address of a number; the vectors below were made with the same addresses.
    fn addr(number: u32) -> NodeAddr {
        super::super::tests::addr(number)
    }

    fn filter(numbers: impl IntoIterator<Item = u32>) -> Bloom {
        let mut filter = Bloom::new();
        numbers.into_iter().for_each(|number| filter.insert(&addr(number)));
        filter
    }

    fn with_ones(ones: usize) -> Bloom {
        let mut bits = [0; FILTER_LEN];
        (0..ones).for_each(|i| bits[i / 8] |= 1 << (i % 8));
        Bloom::from_bits(&bits)
    }

    fn fnv(filter: &Bloom) -> u64 {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        filter.bits().iter().fold(0xcbf2_9ce4_8422_2325, step)
    }

    #[test]
    fn the_bits_of_an_address_are_the_daemons() {
        let known = [
            (NodeAddr::new([0; 16]), [403, 764, 1125, 1486, 1847]),
            (NodeAddr::new([255; 16]), [1626, 1899, 2172, 2445, 2718]),
            // The sum wraps around the filter.
            (
                NodeAddr::new(std::array::from_fn(|i| i as u8)),
                [178, 1470, 3195, 4920, 6645],
            ),
            (addr(1), [7204, 7364, 7524, 7684, 7844]),
            (addr(5), [65, 1423, 3701, 5979, 7337]),
        ];
        for (addr, bits) in known {
            let mut probe = Probe::new(&addr).0;
            probe.sort_unstable();
            assert_eq!(probe, bits, "{addr}");
        }
    }

    #[test]
    fn the_bits_of_many_addresses_are_the_daemons() {
        let known = [
            (1, 5, 0x24c1_4ae2_9c3e_0c74),
            (10, 50, 0x67b5_fe23_357e_9d3c),
            (100, 484, 0xec9f_6d1f_87c6_9155),
            (400, 1775, 0x78f6_9196_e601_3028),
            (1200, 4305, 0x8b76_e28f_eb62_9691),
            (2000, 5808, 0xe4ab_78a9_2f99_1523),
        ];
        for (entries, ones, hash) in known {
            let filter = filter(0..entries);
            assert_eq!((filter.ones(), fnv(&filter)), (ones, hash), "{entries} entries");
        }
    }

    #[test]
    fn figures_are_the_daemons() {
        let figures = |ones| {
            let filter = with_ones(ones);
            (filter.fill(), filter.is_too_full(), filter.estimated_entries())
        };
        assert_eq!(figures(0), (0, false, Some(0)));
        assert_eq!(figures(4_096), (500, false, Some(1_136)));
        assert_eq!(figures(5_937), (724, false, Some(2_114)));
        assert_eq!(figures(5_938), (724, true, Some(2_114)));
        assert_eq!(figures(8_191), (999, true, Some(14_763)));
        assert_eq!(figures(8_192), (1_000, true, None));
    }

    #[test]
    fn few_strangers_seem_to_be_in_it() {
        // 400 entries: one in 2,000 by the formula.
        let filter = filter(0..400);
        let strangers = (100_000..140_000).filter(|number| filter.contains(&addr(*number)));
        assert!((5..60).contains(&strangers.count()));
    }

    proptest! {
        #[test]
        fn a_filter_contains_all_that_was_inserted(numbers in prop::collection::hash_set(any::<u32>(), 0..200), other in any::<u32>()) {
            let filter = filter(numbers.iter().copied());
            for number in &numbers {
                prop_assert!(filter.contains(&addr(*number)));
            }
            // A bit that no member sets is decisive.
            let bits: HashSet<u16> = numbers.iter().flat_map(|number| Probe::new(&addr(*number)).0).collect();
            prop_assert_eq!(filter.ones() as usize, bits.len());
            let covered = Probe::new(&addr(other)).0.iter().all(|bit| bits.contains(bit));
            prop_assert_eq!(filter.contains(&addr(other)), covered);
        }

        #[test]
        fn merging_is_the_union(a in prop::collection::vec(any::<u32>(), 0..100), b in prop::collection::vec(any::<u32>(), 0..100)) {
            let mut merged = filter(a.iter().copied());
            merged.merge(&filter(b.iter().copied()));
            prop_assert_eq!(merged, filter(a.into_iter().chain(b)));
        }

        #[test]
        fn a_tally_without_one_is_the_union_of_the_others(
            sets in prop::collection::vec(prop::collection::vec(0_u32..50, 0..30), 1..8),
        ) {
            let filters: Vec<Bloom> = sets.into_iter().map(filter).collect();
            let tally = Tally::of(filters.iter());
            let union = |skip: usize| {
                let mut union = Bloom::new();
                let others = filters.iter().enumerate().filter(|(i, _)| *i != skip);
                others.for_each(|(_, filter)| union.merge(filter));
                union
            };
            prop_assert_eq!(tally.all(), union(usize::MAX));
            for (i, filter) in filters.iter().enumerate() {
                prop_assert_eq!(tally.without(filter), union(i));
            }
        }
    }
}
