//! Probes: the datagrams by which two nodes open their NATs for each other.
//!
//! The layout is that of FIPS's punch packets; `docs/protocol/reach.md`, "Probes".

use sha2::{Digest, Sha256};
use thiserror::Error;
use weft_wire::NodeAddr;

use crate::message::Token;

/// "NPTC".
const PROBE: u32 = 0x4e50_5443;
/// "NPTA".
const ACK: u32 = 0x4e50_5441;
/// The prefix of what the key is the hash of.
const LABEL: &[u8] = b"weft reach 1";

/// What the datagrams of an attempt have in common: [`Output::Listen`](crate::Output::Listen).
pub type Key = [u8; 16];

/// Returns the key of the probes between two nodes: of `me` with the token `own`, and of `peer` with
/// the token `theirs`.
#[must_use]
pub fn key(me: NodeAddr, own: Token, peer: NodeAddr, theirs: Token) -> Key {
    let (first, second) = if me < peer { (own, theirs) } else { (theirs, own) };
    let mut hash = Sha256::new();
    hash.update(LABEL);
    hash.update(first.as_bytes());
    hash.update(second.as_bytes());
    let mut key = Key::default();
    key.copy_from_slice(&hash.finalize()[..16]);
    key
}

/// A probe, or its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Whether it is the answer.
    pub ack: bool,
    /// Random in a probe. An answer repeats it.
    pub sequence: u32,
    /// The key of the attempt.
    pub key: Key,
}

/// Why a datagram is not read as a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BadProbe {
    /// It does not have [`Probe::LEN`] bytes.
    #[error("a datagram of {0} bytes is no probe")]
    WrongLength(usize),
    /// It does not begin as one.
    #[error("a datagram that begins with {0:#010x} is no probe")]
    WrongMagic(u32),
}

impl Probe {
    /// Bytes of the datagram.
    pub const LEN: usize = 24;

    /// Reads a datagram.
    ///
    /// # Errors
    /// [`BadProbe`]: it is no probe and no answer.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadProbe> {
        let whole: &[u8; Self::LEN] = bytes.try_into().map_err(|_| BadProbe::WrongLength(bytes.len()))?;
        let (words, _) = whole.as_chunks::<4>();
        let word = |n: usize| words.get(n).map_or(0, |word| u32::from_be_bytes(*word));
        let ack = match word(0) {
            PROBE => false,
            ACK => true,
            other => return Err(BadProbe::WrongMagic(other)),
        };
        let mut key = Key::default();
        key.copy_from_slice(&whole[8..]);
        Ok(Self {
            ack,
            sequence: word(1),
            key,
        })
    }

    /// Returns the datagram.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let magic = if self.ack { ACK } else { PROBE };
        bytes[..4].copy_from_slice(&magic.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[8..].copy_from_slice(&self.key);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_probe_reads_back(ack: bool, sequence: u32, key: Key) {
            let probe = Probe { ack, sequence, key };
            prop_assert_eq!(Probe::parse(&probe.emit()), Ok(probe));
        }
    }

    #[test]
    fn a_cause_for_each_error() {
        let good = Probe {
            ack: false,
            sequence: 7,
            key: [9; 16],
        }
        .emit();
        assert_eq!(Probe::parse(&good[..23]), Err(BadProbe::WrongLength(23)));
        assert_eq!(
            Probe::parse(&[&good[..], &[0]].concat()),
            Err(BadProbe::WrongLength(25))
        );
        let mut other = good;
        other[3] = b'D';
        assert_eq!(Probe::parse(&other), Err(BadProbe::WrongMagic(0x4e50_5444)));
    }

    /// Both ends compute the same key, and each token and the order of the nodes count.
    #[test]
    fn both_ends_have_one_key() {
        let (a, b) = (NodeAddr::new([1; 16]), NodeAddr::new([2; 16]));
        let token = |byte| Token::new([byte; 8]).unwrap();
        let here = key(a, token(3), b, token(4));
        assert_eq!(here, key(b, token(4), a, token(3)));
        assert_ne!(here, key(a, token(4), b, token(3)));
        assert_ne!(here, key(a, token(3), b, token(5)));
    }
}
