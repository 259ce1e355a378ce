//! Random numbers from a seed: SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
//! generators", 2014). Not for keys.

/// A sequence of pseudo-random words.
#[derive(Debug, Clone)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The sequence of `seed`, from its start.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next word.
    pub fn next_word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_word()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns true with this probability, from 0 to 1. Consumes no word for 0.
    pub fn chance(&mut self, probability: f64) -> bool {
        const STEPS: f64 = (1_u64 << 53) as f64;
        probability > 0.0 && ((self.next_word() >> 11) as f64) < probability * STEPS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_first_words_of_seed_0() {
        let mut row = SplitMix64::new(0);
        assert_eq!(row.next_word(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(row.next_word(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn bounds_and_chances_are_kept() {
        let mut row = SplitMix64::new(1);
        assert!((0..10_000).all(|_| row.below(7) < 7));
        assert_eq!(row.below(0), 0);
        let hits = (0..100_000).filter(|_| row.chance(0.25)).count();
        assert!((24_000..26_000).contains(&hits), "{hits}");
        assert!((0..1000).all(|_| !row.chance(0.0)));
        assert!((0..1000).all(|_| row.chance(1.0)));
    }
}
