//! The message `request`, in which a node asks a peer to answer its probes later.
//!
//! `docs/protocol/reach.md`, "Lifetimes", has every byte.

use thiserror::Error;

use crate::probe::Key;

/// The delays of a request at most.
pub const MOST: usize = 8;
/// The longest delay that is answered, in s.
pub const LONGEST: u16 = 600;

/// The first byte: version 1 in the high nibble, type 2 in the low one.
pub(crate) const REQUEST: u8 = 0x12;
/// Bytes in front of the delays.
const HEADER: usize = 20;
/// Bytes of a delay.
const DELAY: usize = 2;

/// The message `request`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What the probes end in.
    pub key: Key,
    /// The port of a socket of the sender that sends nothing; 0 for none.
    pub silent: u16,
    /// After which times the peer answers, in s, at most [`MOST`]: the n-th one belongs to probes with
    /// the number n.
    pub delays: Vec<u16>,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BadRequest {
    /// It is shorter than its fixed part.
    #[error("a request of {0} bytes ends before its delays")]
    TooShort(usize),
    /// The first byte is that of another message or version.
    #[error("messages of the type {0:#04x} are not known")]
    UnknownType(u8),
    /// It has no delay, or more than [`MOST`].
    #[error("a request with {0} delays, where 1 to {MOST} are taken")]
    WrongCount(u8),
    /// Its length is not that of the delays it counts.
    #[error("a request has {got} bytes, and its delays take {expected}")]
    WrongLength {
        /// Bytes that its count implies.
        expected: usize,
        /// Bytes of the message.
        got: usize,
    },
    /// A delay is 0 or longer than [`LONGEST`].
    #[error("a request with a delay of {0} s, where 1 to {LONGEST} are taken")]
    WrongDelay(u16),
}

impl Request {
    /// Whether a message claims to be a request.
    #[must_use]
    pub fn is_named(bytes: &[u8]) -> bool {
        bytes.first() == Some(&REQUEST)
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`BadRequest`].
    pub fn parse(bytes: &[u8]) -> Result<Self, BadRequest> {
        let (header, rest) = bytes
            .split_first_chunk::<HEADER>()
            .ok_or(BadRequest::TooShort(bytes.len()))?;
        let [kind, .., high, low, count] = *header;
        if kind != REQUEST {
            return Err(BadRequest::UnknownType(kind));
        }
        if !(1..=MOST).contains(&usize::from(count)) {
            return Err(BadRequest::WrongCount(count));
        }
        let expected = HEADER + usize::from(count) * DELAY;
        if bytes.len() != expected {
            let got = bytes.len();
            return Err(BadRequest::WrongLength { expected, got });
        }
        let mut key = Key::default();
        key.copy_from_slice(&header[1..17]);
        let (delays, _) = rest.as_chunks::<DELAY>();
        let delays: Vec<u16> = delays.iter().map(|delay| u16::from_be_bytes(*delay)).collect();
        match delays.iter().find(|delay| !(1..=LONGEST).contains(*delay)) {
            Some(delay) => Err(BadRequest::WrongDelay(*delay)),
            None => Ok(Self {
                key,
                silent: u16::from_be_bytes([high, low]),
                delays,
            }),
        }
    }

    /// Returns the bytes that [`Request::parse`] reads. Delays beyond [`MOST`] are left out.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let delays = &self.delays[..self.delays.len().min(MOST)];
        let mut bytes = vec![REQUEST];
        bytes.extend(self.key);
        bytes.extend(self.silent.to_be_bytes());
        // MOST fits.
        bytes.push(delays.len() as u8);
        bytes.extend(delays.iter().flat_map(|delay| delay.to_be_bytes()));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(count: usize) -> Request {
        Request {
            key: [7; 16],
            silent: 40_000,
            delays: vec![45; count],
        }
    }

    #[test]
    fn a_cause_for_each_error() {
        let good = request(2).emit();
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            Request::parse(&bytes)
        };
        assert_eq!(Request::parse(&good), Ok(request(2)));
        assert_eq!(Request::parse(&good[..19]), Err(BadRequest::TooShort(19)));
        assert_eq!(with(0, 0x11), Err(BadRequest::UnknownType(0x11)));
        assert_eq!(with(19, 0), Err(BadRequest::WrongCount(0)));
        assert_eq!(with(19, 9), Err(BadRequest::WrongCount(9)));
        assert_eq!(with(19, 1), Err(BadRequest::WrongLength { expected: 22, got: 24 }));
        assert_eq!(with(21, 0), Err(BadRequest::WrongDelay(0)));
        assert_eq!(with(20, 3), Err(BadRequest::WrongDelay(3 * 256 + 45)));
        assert_eq!(Request::parse(&request(MOST + 1).emit()), Ok(request(MOST)));
    }

    #[test]
    fn it_has_the_bytes_of_the_documentation() {
        let page = include_str!("../../../../docs/protocol/reach.md");
        let request = Request {
            delays: super::super::DELAYS.to_vec(),
            ..request(0)
        };
        assert!(
            page.contains(&hex::encode(request.emit())),
            "{}",
            hex::encode(request.emit())
        );
    }

    proptest! {
        #[test]
        fn parsed_requests_are_emitted_unchanged(mut bytes in proptest::collection::vec(any::<u8>(), 20..40), count in 0u8..10) {
            (bytes[0], bytes[19]) = (REQUEST, count);
            bytes.resize(HEADER + usize::from(count) * DELAY, 1);
            // Delays below 512.
            bytes.iter_mut().skip(HEADER).step_by(2).for_each(|high| *high &= 1);
            if let Ok(request) = Request::parse(&bytes) {
                prop_assert_eq!(request.emit(), bytes);
            }
        }
    }
}
