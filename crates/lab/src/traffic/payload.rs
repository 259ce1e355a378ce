//! Test data that a receiver can verify: a long pseudo-random stream from a seed.

use crate::random::SplitMix64;

/// An endless byte stream from a seed (SplitMix64). Not for keys.
#[derive(Debug, Clone)]
pub struct Payload {
    words: SplitMix64,
}

impl Payload {
    /// The stream of `seed`, from its start.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            words: SplitMix64::new(seed),
        }
    }

    /// Fills `buf` with the next bytes. Every call starts at a new 8-byte word, so two readers see the
    /// same stream if they ask for the same lengths, or only for multiples of 8.
    pub fn fill(&mut self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            let word = self.words.next_word().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_whole_words_make_one_stream() {
        let mut whole = vec![0; 4096];
        Payload::new(7).fill(&mut whole);
        let mut parts = vec![0; 4096];
        let mut stream = Payload::new(7);
        let (a, b) = parts.split_at_mut(1000);
        stream.fill(a);
        stream.fill(b);
        assert_eq!(whole, parts);
        let mut other = vec![0; 4096];
        Payload::new(8).fill(&mut other);
        assert_ne!(whole, other);
    }

    #[test]
    fn a_cut_word_keeps_its_first_bytes() {
        let (mut five, mut eight) = ([0; 5], [0; 8]);
        Payload::new(1).fill(&mut five);
        Payload::new(1).fill(&mut eight);
        assert_eq!(five, eight[..5]);
    }
}
