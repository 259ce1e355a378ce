//! Compression of groups with zstd (RFC 8878), where the path is slow and a sample says that it pays.

use std::io;
use std::time::Instant;

use zstd::bulk::{Compressor, Decompressor};

/// The fastest level but the negative ones.
const LEVEL: i32 = 1;
/// The bytes at the beginning of a group that tell whether the whole pays.
const SAMPLE: usize = 64 << 10;
/// Fewer bytes are sent as they are.
const LEAST: usize = 512;
/// Groups of at least so many bytes are parts of large files, most of which are of one kind.
const LARGE: usize = 4 * SAMPLE;
/// The most large groups that are sent as they are after one that did not pay.
const MOST_SKIPPED: u32 = 15;

/// Compresses groups.
pub struct Packer {
    compressor: Compressor<'static>,
    room: Vec<u8>,
}

impl Packer {
    /// Creates it.
    ///
    /// # Errors
    /// Those of zstd: no memory.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            compressor: Compressor::new(LEVEL)?,
            room: Vec::new(),
        })
    }

    /// Returns the compressed bytes, unless they save less than an eighth, of a sample or in all.
    pub fn pack(&mut self, bytes: &[u8]) -> Option<&[u8]> {
        let sample = bytes.get(..SAMPLE).unwrap_or(bytes);
        if bytes.len() < LEAST || !self.compress(sample) || sample.len() < bytes.len() && !self.compress(bytes) {
            return None;
        }
        Some(&self.room)
    }

    /// Compresses into the room; false if that saves less than an eighth.
    fn compress(&mut self, bytes: &[u8]) -> bool {
        let most = bytes.len() / 8 * 7;
        self.room.clear();
        self.room.reserve(most);
        // An error says that the room is too small.
        let compressed = self.compressor.compress_to_buffer(bytes, &mut self.room);
        compressed.is_ok() && self.room.len() <= most
    }
}

/// Takes compressed groups apart.
pub struct Unpacker {
    decompressor: Decompressor<'static>,
    room: Vec<u8>,
}

impl Unpacker {
    /// Creates it.
    ///
    /// # Errors
    /// Those of zstd: no memory.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            decompressor: Decompressor::new()?,
            room: Vec::new(),
        })
    }

    /// Returns the `len` bytes that were compressed. Whatever `bytes` say, no more than `len` are made.
    ///
    /// # Errors
    /// `InvalidData` if they are more or fewer, or damaged.
    pub fn unpack(&mut self, bytes: &[u8], len: usize) -> io::Result<&[u8]> {
        self.room.resize(len, 0);
        match self.decompressor.decompress_to_buffer(bytes, self.room.as_mut_slice()) {
            Ok(made) if made == len => Ok(&self.room),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// The compression of a worker, which packs while the path holds it up.
pub struct Packing {
    /// None before the first use, and if the system gives no memory.
    packer: Option<Packer>,
    /// Seconds that groups waited for the path, and all, those before counting less.
    waited: f64,
    all: f64,
    /// When the last group was sent.
    last: Instant,
    /// How many large groups in a row are not tried after the next one that does not pay, and how many still now.
    skips: u32,
    skipping: u32,
}

impl Packing {
    /// Creates it at `now`.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self {
            packer: None,
            waited: 0.0,
            all: 0.0,
            last: now,
            skips: 1,
            skipping: 0,
        }
    }

    /// Returns the compressed bytes of a group, if that pays.
    pub fn pack(&mut self, bytes: &[u8]) -> Option<&[u8]> {
        let is_large = bytes.len() >= LARGE;
        if !self.is_path() || is_large && self.skipping > 0 {
            self.skipping = self.skipping.saturating_sub(u32::from(is_large));
            return None;
        }
        if self.packer.is_none() {
            self.packer = Packer::new().ok();
        }
        let packed = self.packer.as_mut()?.pack(bytes);
        if is_large {
            // A sample costs time that is lost where files are compressed already.
            (self.skips, self.skipping) = match packed {
                Some(_) => (1, 0),
                None => ((2 * self.skips + 1).min(MOST_SKIPPED), self.skips),
            };
        }
        packed
    }

    /// Notes that a group waited for the path from `begun` to `now`.
    pub fn note(&mut self, begun: Instant, now: Instant) {
        let seconds = |from| now.saturating_duration_since(from).as_secs_f64();
        self.waited = self.waited * 7.0 / 8.0 + seconds(begun);
        self.all = self.all * 7.0 / 8.0 + seconds(self.last);
        self.last = now;
    }

    /// Whether groups wait for the path more than half of the time.
    fn is_path(&self) -> bool {
        self.waited * 2.0 > self.all
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    /// Bytes that cannot be compressed.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn groups_are_packed_where_that_pays() {
        let mut packer = Packer::new().unwrap();
        let text = b"a line of a log, more or less\n".repeat(1 << 15);
        let packed = packer.pack(&text).unwrap().to_vec();
        assert!(packed.len() < text.len() / 100);
        assert_eq!(Unpacker::new().unwrap().unpack(&packed, text.len()).unwrap(), text);
        for bytes in [noise(1 << 20), text[..LEAST - 1].to_vec(), Vec::new()] {
            assert!(packer.pack(&bytes).is_none(), "{}", bytes.len());
        }
        // The sample counts first, then the whole.
        let late = [noise(SAMPLE), text.clone()].concat();
        assert!(packer.pack(&late).is_none());
        let early = [text[..SAMPLE].to_vec(), noise(1 << 20)].concat();
        assert!(packer.pack(&early).is_none());
        assert!(packer.pack(&text).is_some(), "after those that did not pay");
    }

    #[test]
    fn a_bomb_makes_no_more_than_its_group() {
        let mut packer = Compressor::new(19).unwrap();
        let bomb = packer.compress(&vec![0; 64 << 20]).unwrap();
        assert!(bomb.len() < 10_000);
        let mut unpacker = Unpacker::new().unwrap();
        assert!(unpacker.unpack(&bomb, 1 << 20).is_err());
        assert_eq!(unpacker.room.capacity(), 1 << 20);
        let small = packer.compress(b"hello").unwrap();
        assert!(unpacker.unpack(&small, 6).is_err(), "fewer than announced");
        assert_eq!(unpacker.unpack(&small, 5).unwrap(), b"hello");
        // Two frames one behind the other, and bytes behind a frame.
        let twice = [small.clone(), small.clone()].concat();
        assert!(unpacker.unpack(&twice, 5).is_err());
        assert!(unpacker.unpack(&[&small[..], b"x"].concat(), 5).is_err());
    }

    #[test]
    fn a_worker_packs_while_the_path_is_slow() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let text = b"more or less ".repeat(100);
        let mut packing = Packing::new(begun);
        assert!(packing.pack(&text).is_none(), "it is not known yet");
        packing.note(at(10), at(100));
        assert!(packing.pack(&text).is_some());
        for turn in 0..20 {
            packing.note(at(129 + 30 * turn), at(130 + 30 * turn));
        }
        assert!(packing.pack(&text).is_none());
    }

    #[test]
    fn large_groups_that_do_not_pay_are_tried_ever_less() {
        let begun = Instant::now();
        let mut packing = Packing::new(begun);
        packing.note(begun, begun + Duration::from_millis(100));
        let (noise, text) = (noise(LARGE), b"more or less ".repeat(LARGE / 13 + 1));
        let mut tries = |bytes: &[u8], count: usize| -> Vec<bool> {
            let mut try_one = |_| packing.pack(bytes).is_some();
            (0..count).map(&mut try_one).collect()
        };
        assert_eq!(tries(&noise, 1), [false]);
        assert_eq!(tries(&text, 2), [false, true], "one is not tried");
        for _ in 0..20 {
            tries(&noise, MOST_SKIPPED as usize);
        }
        let small = &text[..SAMPLE];
        assert_eq!(tries(small, 2), [true; 2], "small files are tried each");
        let later = tries(&text, MOST_SKIPPED as usize + 1);
        assert!(later.contains(&true), "{later:?}");
    }

    proptest! {
        #[test]
        fn no_bytes_upset_the_unpacker(bytes in proptest::collection::vec(any::<u8>(), 0..200), len in 0..100_usize) {
            let mut unpacker = Unpacker::new().unwrap();
            if let Ok(made) = unpacker.unpack(&bytes, len) {
                prop_assert_eq!(made.len(), len);
            }
        }
    }
}
