//! The capabilities that each side of a session announces before fast frames.

use crate::WireError;
use crate::cursor::{Reader, Writer};

/// The version of [`Capabilities`] that this crate reads and writes.
pub const CAPABILITIES_VERSION: u8 = 1;
/// Bit of [`Capabilities::flags`]: the sender reads frames of [`Kind::Full`](super::Kind::Full).
pub const READS_FULL: u8 = 0x01;
/// Maximum number of suites, and of lanes, that one side may announce.
pub const MAX_LISTED: usize = 16;

/// What one side of a session can do in fast frames, announced once per FSP epoch. Every byte of
/// the body, including bytes that this parser does not know, goes into the key derivation: after a
/// change in transit the keys do not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities<'a> {
    /// [`READS_FULL`]; other bits are sent as 0 and ignored.
    pub flags: u8,
    /// The largest fast frame that the sender of this body accepts, bytes of UDP payload.
    pub max_payload: u16,
    /// Random, new for each epoch.
    pub random: [u8; 16],
    /// Suites on offer: five bytes each, see [`Capabilities::suites`].
    suites: &'a [u8],
    /// Receiver indices, one for each lane: four bytes each.
    indices: &'a [u8],
}

/// Bytes of one suite on offer: its number, and its cost.
const SUITE_LEN: usize = 5;
/// Bytes of one receiver index.
const INDEX_LEN: usize = 4;

impl<'a> Capabilities<'a> {
    /// Bytes in front of the lists.
    const FIXED: usize = 1 + 1 + 2 + 16;
    /// Maximum length of a body, without bytes behind the lists.
    pub const MAX_LEN: usize = Self::FIXED + 2 + MAX_LISTED * (SUITE_LEN + INDEX_LEN);

    /// Reads a body. Bytes behind it are reserved for later versions of the same format.
    ///
    /// # Errors
    /// [`WireError::TooShort`], [`WireError::UnsupportedVersion`], and [`WireError::TooLong`] for a
    /// list of more than [`MAX_LISTED`] entries.
    pub fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(body);
        let version = r.u8()?;
        if version != CAPABILITIES_VERSION {
            return Err(WireError::UnsupportedVersion(version));
        }
        let (flags, max_payload, random) = (r.u8()?, r.u16()?, *r.array_ref()?);
        let mut list = |each: usize| {
            let count = usize::from(r.u8()?);
            if count > MAX_LISTED {
                return Err(WireError::TooLong {
                    max: MAX_LISTED,
                    got: count,
                });
            }
            r.take(count * each)
        };
        let (suites, indices) = (list(SUITE_LEN)?, list(INDEX_LEN)?);
        Ok(Self {
            flags,
            max_payload,
            random,
            suites,
            indices,
        })
    }

    /// The suites on offer: number, and the sender's cost in nanoseconds of sealing and opening
    /// 1,400 bytes. A number may be unknown to this node.
    pub fn suites(&self) -> impl Iterator<Item = (u8, u32)> + 'a {
        let suites = self.suites.as_chunks::<SUITE_LEN>().0.iter();
        suites.map(|&[suite, a, b, c, d]| (suite, u32::from_le_bytes([a, b, c, d])))
    }

    /// The receiver index of each lane, lane 0 first.
    pub fn indices(&self) -> impl Iterator<Item = u32> + 'a {
        let indices = self.indices.as_chunks::<INDEX_LEN>().0.iter();
        indices.map(|index| u32::from_le_bytes(*index))
    }

    /// Writes a body with these lists, of at most [`MAX_LISTED`] each, and returns its length.
    ///
    /// # Errors
    /// [`WireError::TooLong`], [`WireError::BufferTooSmall`].
    pub fn emit_with(
        flags: u8,
        max_payload: u16,
        random: &[u8; 16],
        suites: &[(u8, u32)],
        indices: &[u32],
        out: &mut [u8],
    ) -> Result<usize, WireError> {
        let count = |len: usize| {
            let fits = u8::try_from(len).ok().filter(|_| len <= MAX_LISTED);
            fits.ok_or(WireError::TooLong {
                max: MAX_LISTED,
                got: len,
            })
        };
        let (suite_count, index_count) = (count(suites.len())?, count(indices.len())?);
        let mut w = Writer::new(out);
        w.u8(CAPABILITIES_VERSION).u8(flags).u16(max_payload).bytes(random);
        w.u8(suite_count);
        for (suite, cost) in suites {
            w.u8(*suite).u32(*cost);
        }
        w.u8(index_count);
        for index in indices {
            w.u32(*index);
        }
        w.finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::vec::Vec;

    use super::*;

    proptest! {
        #[test]
        fn round_trip(
            flags: u8, max_payload: u16, random: [u8; 16],
            suites in prop::collection::vec(any::<(u8, u32)>(), 0..=MAX_LISTED),
            indices in prop::collection::vec(any::<u32>(), 0..=MAX_LISTED),
            behind in prop::collection::vec(any::<u8>(), 0..10),
        ) {
            let mut body = [0; Capabilities::MAX_LEN];
            let len = Capabilities::emit_with(flags, max_payload, &random, &suites, &indices, &mut body).unwrap();
            let mut body = body[..len].to_vec();
            body.extend(behind);
            let parsed = Capabilities::parse(&body).unwrap();
            prop_assert_eq!((parsed.flags, parsed.max_payload, parsed.random), (flags, max_payload, random));
            prop_assert_eq!(parsed.suites().collect::<Vec<_>>(), suites);
            prop_assert_eq!(parsed.indices().collect::<Vec<_>>(), indices);
            for cut in 0..len {
                prop_assert!(Capabilities::parse(&body[..cut]).is_err());
            }
        }

        #[test]
        fn any_bytes(mut body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Capabilities::parse(&body);
            if let Some(first) = body.first_mut() {
                *first = CAPABILITIES_VERSION;
            }
            let _ = Capabilities::parse(&body);
        }
    }

    #[test]
    fn lists_are_bounded_and_other_versions_refused() {
        let mut body = [0; Capabilities::MAX_LEN];
        let many = [(1, 1); MAX_LISTED + 1];
        let too_long = WireError::TooLong {
            max: MAX_LISTED,
            got: MAX_LISTED + 1,
        };
        let emitted = Capabilities::emit_with(0, 1280, &[0; 16], &many, &[], &mut body);
        assert_eq!(emitted, Err(too_long));
        body[0] = CAPABILITIES_VERSION;
        body[20] = MAX_LISTED as u8 + 1;
        assert_eq!(Capabilities::parse(&body), Err(too_long));
        body[0] = 2;
        assert_eq!(Capabilities::parse(&body), Err(WireError::UnsupportedVersion(2)));
    }
}
