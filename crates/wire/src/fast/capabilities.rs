//! The capabilities that each side of a session announces before fast frames.

use crate::WireError;
use crate::cursor::{Reader, Writer};

/// The version of [`Capabilities`] that this crate reads and writes.
pub const CAPABILITIES_VERSION: u8 = 1;
/// Bit of [`Capabilities::flags`]: the sender reads frames of [`Kind::Full`](super::Kind::Full).
pub const READS_FULL: u8 = 0x01;
/// Maximum number of suites, and of lanes, that one side may announce.
pub const MAX_LISTED: usize = 16;
/// Maximum length of [`Capabilities::version`], bytes.
pub const MAX_VERSION: usize = 32;

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
    /// The version of the sender's software, as it claims: printable ASCII without spaces, 1 to
    /// [`MAX_VERSION`] bytes. `None` if it announces none in this form.
    pub version: Option<&'a str>,
}

/// Bytes of one suite on offer: its number, and its cost.
const SUITE_LEN: usize = 5;
/// Bytes of one receiver index.
const INDEX_LEN: usize = 4;

impl<'a> Capabilities<'a> {
    /// Bytes in front of the lists.
    const FIXED: usize = 1 + 1 + 2 + 16;
    /// Maximum length of a body, without bytes for later versions.
    pub const MAX_LEN: usize = Self::FIXED + 2 + MAX_LISTED * (SUITE_LEN + INDEX_LEN) + 1 + MAX_VERSION;

    /// Reads a body. Bytes behind it are reserved for later versions of the same format. Nothing
    /// behind the lists makes a body invalid.
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
        let version = r.u8().ok().and_then(|len| r.take(len.into()).ok());
        Ok(Self {
            flags,
            max_payload,
            random,
            suites,
            indices,
            version: version.and_then(printable),
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

    /// Writes a body with these lists, of at most [`MAX_LISTED`] each, and returns its length. A
    /// version that [`Capabilities::version`] would not return is left out, with its length.
    ///
    /// # Errors
    /// [`WireError::TooLong`], [`WireError::BufferTooSmall`].
    pub fn emit_with(
        flags: u8,
        max_payload: u16,
        random: &[u8; 16],
        suites: &[(u8, u32)],
        indices: &[u32],
        version: &str,
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
        if let Some((version, len)) = printable(version.as_bytes()).zip(u8::try_from(version.len()).ok()) {
            w.u8(len).bytes(version.as_bytes());
        }
        w.finish()
    }
}

/// Returns the bytes as text if they are a [`Capabilities::version`].
fn printable(bytes: &[u8]) -> Option<&str> {
    let fits = (1..=MAX_VERSION).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
    core::str::from_utf8(bytes).ok().filter(|_| fits)
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
            version in "[!-~]{0,32}",
            behind in prop::collection::vec(any::<u8>(), 0..10),
        ) {
            let mut body = [0; Capabilities::MAX_LEN];
            let len = Capabilities::emit_with(flags, max_payload, &random, &suites, &indices, &version, &mut body).unwrap();
            let mut body = body[..len].to_vec();
            if !version.is_empty() {
                body.extend(behind);
            }
            let parsed = Capabilities::parse(&body).unwrap();
            prop_assert_eq!((parsed.flags, parsed.max_payload, parsed.random), (flags, max_payload, random));
            prop_assert_eq!(parsed.suites().collect::<Vec<_>>(), suites);
            prop_assert_eq!(parsed.indices().collect::<Vec<_>>(), indices);
            prop_assert_eq!(parsed.version.unwrap_or_default(), &version);
            let lists = len - if version.is_empty() { 0 } else { 1 + version.len() };
            for cut in 0..lists {
                prop_assert!(Capabilities::parse(&body[..cut]).is_err());
            }
            for cut in lists..len {
                prop_assert_eq!(Capabilities::parse(&body[..cut]).unwrap().version, None);
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
    fn a_version_stands_behind_the_lists() {
        let mut body = [0; 100];
        let len = Capabilities::emit_with(0, 1280, &[0; 16], &[(1, 9)], &[7], "0.1.0", &mut body).unwrap();
        let lists = Capabilities::FIXED + 1 + SUITE_LEN + 1 + INDEX_LEN;
        assert_eq!(body[lists..len], *b"\x050.1.0");
    }

    #[test]
    fn a_version_that_is_not_printable_is_none() {
        for version in [
            "",
            "0.1 0",
            "0.1\n",
            "\u{e9}1",
            "\u{1b}[31m",
            &"9".repeat(MAX_VERSION + 1),
        ] {
            let mut body = [0; 100];
            let len = Capabilities::emit_with(0, 1280, &[0; 16], &[], &[], version, &mut body).unwrap();
            assert_eq!(len, Capabilities::FIXED + 2, "{version:?} is not sent");
            body[len] = version.len() as u8;
            body[len + 1..][..version.len()].copy_from_slice(version.as_bytes());
            let parsed = Capabilities::parse(&body[..len + 1 + version.len()]).unwrap();
            assert_eq!(parsed.version, None, "{version:?} is not read");
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
        let emitted = Capabilities::emit_with(0, 1280, &[0; 16], &many, &[], "", &mut body);
        assert_eq!(emitted, Err(too_long));
        body[0] = CAPABILITIES_VERSION;
        body[20] = MAX_LISTED as u8 + 1;
        assert_eq!(Capabilities::parse(&body), Err(too_long));
        body[0] = 2;
        assert_eq!(Capabilities::parse(&body), Err(WireError::UnsupportedVersion(2)));
    }
}
