//! A hash of a run.

/// FNV-1a over everything that was delivered and when, eight bytes at a time: it compares runs and
/// authenticates nothing.
#[derive(Debug)]
pub(crate) struct Trace(u64);

impl Default for Trace {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Trace {
    /// Adds a delivery at `now`.
    pub(crate) fn mix(&mut self, now: u64, bytes: &[u8]) {
        self.word(now);
        self.word(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    /// The hash so far.
    pub(crate) fn hash(&self) -> u64 {
        self.0
    }

    fn word(&mut self, word: u64) {
        // In a plain multiplication high bits never affect lower ones.
        self.0 = (self.0 ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(deliveries: &[(u64, &[u8])]) -> u64 {
        let mut trace = Trace::default();
        deliveries.iter().for_each(|(now, bytes)| trace.mix(*now, bytes));
        trace.hash()
    }

    #[test]
    fn time_order_length_and_every_bit_count() {
        let all = [
            hash(&[]),
            hash(&[(1, b"ab")]),
            hash(&[(2, b"ab")]),
            hash(&[(1, b"ab\0")]),
            hash(&[(1, b"a"), (1, b"b")]),
            hash(&[(1, b"b"), (1, b"a")]),
            hash(&[(1, b"abcdefgh\x80")]),
            hash(&[(1, b"abcdefgh\x00")]),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(hash(&[(1, b"ab")]), all[1]);
    }
}
