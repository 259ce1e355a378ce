//! Hashes of groups and of whole files.
//!
//! A file is cut into groups of 1 MiB, each of which has the BLAKE3 hash of its bytes. The hash of a file is made of its
//! size and of the hashes of those groups that are not all zero, so holes of sparse files cost neither end anything.

use std::fmt;
use std::sync::LazyLock;

/// The bytes of a group. The last one of a file may be shorter.
pub const GROUP: u64 = 1_048_576;

/// What the hash of a file begins with, so that no group has the hash of a file.
const FILE: &[u8] = b"weft file\0";

/// Zeros as long as a whole group.
static ZEROS: [u8; GROUP as usize] = [0; GROUP as usize];

/// The hash of a whole group of zeros.
static ZERO_GROUP: LazyLock<Hash> = LazyLock::new(|| Hash::of(&ZEROS));

/// A hash of BLAKE3.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The plain BLAKE3 hash of some bytes, such as those of a group.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl fmt::Display for Hash {
    /// 64 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The hash of a file, made of the hashes of its groups in ascending order.
#[derive(Clone, Debug)]
pub struct FileHasher {
    size: u64,
    hasher: blake3::Hasher,
}

impl FileHasher {
    /// The hasher of a file of `size` bytes.
    #[must_use]
    pub fn new(size: u64) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(FILE).update(&size.to_le_bytes());
        Self { size, hasher }
    }

    /// Adds the hash of a group. The indices of the calls ascend; in another order the result is another hash.
    ///
    /// A group that is all zero may be given or not: the hash of its zeros is recognised and left out, so the result is
    /// the same whether a file system stores zeros or a hole.
    pub fn add(&mut self, index: u64, hash: &Hash) {
        if *hash != self.zero(index) {
            self.hasher.update(&index.to_le_bytes()).update(&hash.0);
        }
    }

    /// The hash of the file.
    #[must_use]
    pub fn finish(self) -> Hash {
        Hash(*self.hasher.finalize().as_bytes())
    }

    /// The hash that a group has if it is all zero.
    fn zero(&self, index: u64) -> Hash {
        match group_len(self.size, index) {
            len if len < ZEROS.len() => Hash::of(ZEROS.get(..len).unwrap_or_default()),
            _ => *ZERO_GROUP,
        }
    }
}

/// The number of groups of a file of `size` bytes.
#[must_use]
pub fn groups(size: u64) -> u64 {
    size.div_ceil(GROUP)
}

/// The bytes of the group `index` in a file of `size` bytes; 0 beyond the end.
#[must_use]
pub fn group_len(size: u64, index: u64) -> usize {
    let start = index.saturating_mul(GROUP);
    usize::try_from(size.saturating_sub(start).min(GROUP)).unwrap_or_default()
}

/// Whether all bytes are zero; none are.
#[must_use]
pub fn is_zero(bytes: &[u8]) -> bool {
    // The first is zero and each equals the next one: a comparison of memory, which is fast in any build.
    match (bytes.split_first(), bytes.split_last()) {
        (Some((first, behind)), Some((_, before))) => *first == 0 && before == behind,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash of a file with these groups.
    fn file(size: u64, groups: &[(u64, Hash)]) -> String {
        let mut hasher = FileHasher::new(size);
        groups.iter().for_each(|(index, hash)| hasher.add(*index, hash));
        hasher.finish().to_string()
    }

    #[test]
    fn a_group_has_the_hash_of_plain_blake3() {
        let empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(Hash::of(b"").to_string(), empty);
        let abc = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85";
        assert_eq!(Hash::of(b"abc").to_string(), abc);
    }

    #[test]
    fn a_file_has_the_hash_of_its_size_and_groups() {
        let abc = Hash::of(b"abc");
        let mut text = b"weft file\0".to_vec();
        text.extend(3u64.to_le_bytes());
        text.extend(0u64.to_le_bytes());
        text.extend(abc.0);
        assert_eq!(file(3, &[(0, abc)]), Hash::of(&text).to_string());
        let empty = "60b41b875a996dd48aee8a48535cf0d7101cd6c820bb367c2d480da74086016a";
        assert_eq!(file(0, &[]), empty);
        let small = "b636b3302674b71af293e57aad8ac21879c0711abaa39913e049798c84919f66";
        assert_eq!(file(3, &[(0, abc)]), small);
        let behind_a_hole = "a29ca42ca6b7193de189a99b7c0cedb363c2f7a525f9821a7c35b6f2ca982590";
        assert_eq!(file(GROUP + 3, &[(1, abc)]), behind_a_hole);
    }

    #[test]
    fn zeros_and_holes_have_the_same_hash() {
        let (zero, short, abc) = (Hash::of(&ZEROS), Hash::of(&[0; 5]), Hash::of(b"abc"));
        let size = 3 * GROUP + 5;
        assert_eq!(
            file(size, &[(0, zero), (1, abc), (2, zero), (3, short)]),
            file(size, &[(1, abc)])
        );
        // The hash of other zeros than those of the group is that of other bytes.
        assert_ne!(file(size, &[(0, short)]), file(size, &[]));
        assert_ne!(file(size, &[]), file(size + 1, &[]));
    }

    #[test]
    fn the_last_group_is_as_long_as_what_is_left() {
        assert_eq!([0, 1, GROUP, GROUP + 1].map(groups), [0, 1, 1, 2]);
        assert_eq!(groups(u64::MAX), 1 << 44);
        let lengths = [0, 1, 2, u64::MAX].map(|index| group_len(GROUP + 7, index));
        assert_eq!(lengths, [1 << 20, 7, 0, 0]);
        assert_eq!(group_len(0, 0), 0);
        assert_eq!(group_len(u64::MAX, (1 << 44) - 1), (1 << 20) - 1);
    }

    #[test]
    fn one_bit_anywhere_is_not_zero() {
        assert!(is_zero(&[]) && is_zero(&[0]) && is_zero(&ZEROS));
        for len in [1, 2, 7, 64, 65, 4097] {
            for at in [0, len / 2, len - 1] {
                let mut bytes = vec![0; len];
                bytes[at] = 0x10;
                assert!(!is_zero(&bytes), "{at} of {len}");
            }
        }
    }
}
