//! Checks: an end of a session asks the other one whether it is there (weft only).
//! docs/protocol/check.md.
//!
//! A check is a message of a service in the session, so rules about IP packets do not concern it, and
//! an answer proves that the peer has the keys.

use crate::WireError;
use crate::cursor::{Writer, whole};

/// The service port of checks, at both ends.
pub const PORT: u16 = 7373;

/// The version of the messages.
const VERSION: u8 = 1;
const ASK: u8 = 1;
const ANSWER: u8 = 2;
const ASK_EXIT: u8 = 3;
const EXIT: u8 = 4;

/// A message about whether a peer is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Asks for an answer.
    Ask(u64),
    /// The answer, with the number of the question.
    Answer(u64),
    /// Asks an exit what it has found out about itself.
    AskExit(u64),
    /// The answer, with the number of the question.
    Exit(u64, ExitState),
}

/// What an exit has found out about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExitState {
    /// Whether it forwards IPv4 (1), and whether something on its host keeps packets from passing (2).
    pub ipv4: (bool, bool),
    /// The same for IPv6 (4 and 8).
    pub ipv6: (bool, bool),
    /// Its name server does not answer (16).
    pub nameless: bool,
    /// The age of these results in ms; [`u16::MAX`] for more.
    pub age: u16,
}

impl ExitState {
    fn flags(self) -> u8 {
        let bits = [self.ipv4.0, self.ipv4.1, self.ipv6.0, self.ipv6.1, self.nameless];
        bits.into_iter().rev().fold(0, |flags, bit| flags << 1 | u8::from(bit))
    }

    fn new(flags: u8, age: u16) -> Self {
        let bit = |at: u8| flags >> at & 1 == 1;
        Self {
            ipv4: (bit(0), bit(1)),
            ipv6: (bit(2), bit(3)),
            nameless: bit(4),
            age,
        }
    }
}

impl Check {
    /// Length in bytes.
    pub const LEN: usize = 1 + 1 + 8 + 1 + 2;

    /// Reads a message. Flags that are not known are left out.
    ///
    /// # Errors
    /// [`WireError::WrongLength`], and [`WireError::UnknownCheck`] for another version or kind.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = whole(bytes, Self::LEN)?;
        let (version, kind, number) = (reader.u8()?, reader.u8()?, reader.u64()?);
        let state = ExitState::new(reader.u8()?, reader.u16()?);
        match (version, kind) {
            (VERSION, ASK) => Ok(Self::Ask(number)),
            (VERSION, ANSWER) => Ok(Self::Answer(number)),
            (VERSION, ASK_EXIT) => Ok(Self::AskExit(number)),
            (VERSION, EXIT) => Ok(Self::Exit(number, state)),
            _ => Err(WireError::UnknownCheck(version, kind)),
        }
    }

    /// Returns the message. All kinds have the same length, so an answer amplifies nothing.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let (kind, number, state) = match self {
            Self::Ask(number) => (ASK, number, ExitState::default()),
            Self::Answer(number) => (ANSWER, number, ExitState::default()),
            Self::AskExit(number) => (ASK_EXIT, number, ExitState::default()),
            Self::Exit(number, state) => (EXIT, number, state),
        };
        let mut bytes = [0; Self::LEN];
        let _ = Writer::new(&mut bytes)
            .u8(VERSION)
            .u8(kind)
            .u64(number)
            .u8(state.flags())
            .u16(state.age)
            .finish();
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::vec::Vec;

    use super::*;

    proptest! {
        #[test]
        fn checks_round_trip(number in any::<u64>(), flags in 0_u8..32, age in any::<u16>()) {
            let state = ExitState::new(flags, age);
            for check in [Check::Ask(number), Check::Answer(number), Check::AskExit(number), Check::Exit(number, state)] {
                prop_assert_eq!(Check::parse(&check.to_bytes()), Ok(check));
            }
        }

        #[test]
        fn no_bytes_upset_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
            let known = bytes.len() == Check::LEN && bytes[0] == 1 && (1..=4).contains(&bytes[1]);
            prop_assert_eq!(Check::parse(&bytes).is_ok(), known);
        }
    }

    #[test]
    fn a_check_as_documented() {
        let bytes = |check: Check| check.to_bytes().to_vec();
        let ask = [1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0];
        assert_eq!(bytes(Check::Ask(0x0807_0605_0403_0201)), ask);
        assert_eq!(bytes(Check::Answer(1)), [1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let state = ExitState {
            ipv4: (true, true),
            ipv6: (true, false),
            nameless: true,
            age: 300,
        };
        assert_eq!(bytes(Check::Exit(2, state)), [1, 4, 2, 0, 0, 0, 0, 0, 0, 0, 23, 44, 1]);
        for (version, kind) in [(2, 1), (1, 5), (1, 0)] {
            let strange: Vec<u8> = [&[version, kind][..], &[0; 11]].concat();
            assert_eq!(Check::parse(&strange), Err(WireError::UnknownCheck(version, kind)));
        }
        assert!(matches!(Check::parse(&[1, 1]), Err(WireError::WrongLength { .. })));
    }
}
