//! Return routability: a check that the flow of this end arrives at the party that requested it
//! (RFC 9000, sections 8.2 and 9.3, has the same for QUIC's paths).
//!
//! The server answers a greeting with a fresh random number, to the address that the greeting came
//! from, and begins only when that address returns the number. Outside the tunnel it continues to
//! send fresh numbers in the flow, and the client returns them over the control connection, which
//! only the client can write to. A greeting with a forged source sends its victim 24 bytes for each
//! 16, and no flow; a flow to an address that changes hands ends within [`PATIENCE`].

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weft_os::random::random_bytes;

use crate::token::Token;

/// Interval between two numbers in the flow.
pub const EVERY: Duration = Duration::from_millis(200);

/// How long a number is valid after it was sent, and how long the flow continues after the last one
/// that was returned.
pub const PATIENCE: Duration = Duration::from_secs(4);

/// Length of a datagram of the flow that contains a number: shorter than any datagram of the load.
pub const LEN: usize = Token::LEN + 8;

/// A random number that only its receiver can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Challenge(u64);

impl Challenge {
    /// Creates a fresh one.
    ///
    /// # Errors
    /// The error of the system's random numbers.
    pub fn fresh() -> io::Result<Self> {
        let mut number = [0; 8];
        random_bytes(&mut number)?;
        Ok(Self(u64::from_be_bytes(number)))
    }

    /// Returns it as a datagram of the run with this token.
    #[must_use]
    pub fn datagram(self, token: Token) -> [u8; LEN] {
        let mut datagram = [0; LEN];
        for (to, from) in datagram.iter_mut().zip(token.0.into_iter().chain(self.0.to_be_bytes())) {
            *to = from;
        }
        datagram
    }

    /// Reads the challenge of a datagram. Returns `None` if it is another kind of datagram, or
    /// belongs to another run.
    #[must_use]
    pub fn read(datagram: &[u8], token: Token) -> Option<Self> {
        let number = datagram.get(Token::LEN..).filter(|_| token.begins(datagram))?;
        number.try_into().ok().map(u64::from_be_bytes).map(Self)
    }

    /// Its value as a word, for an atomic; the inverse of [`from_word`](Self::from_word).
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The challenge with this number.
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }
}

impl From<Challenge> for String {
    fn from(challenge: Challenge) -> Self {
        hex::encode(challenge.0.to_be_bytes())
    }
}

impl TryFrom<String> for Challenge {
    type Error = hex::FromHexError;

    fn try_from(text: String) -> Result<Self, hex::FromHexError> {
        let mut number = [0; 8];
        hex::decode_to_slice(text, &mut number)?;
        Ok(Self(u64::from_be_bytes(number)))
    }
}

/// Whether a flow still arrives, by the numbers that were returned.
#[derive(Debug)]
pub struct Arriving {
    sent: VecDeque<(Instant, Challenge)>,
    proven: Instant,
}

impl Arriving {
    /// A flow to an address that has just returned a number.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self {
            sent: VecDeque::new(),
            proven: now,
        }
    }

    /// Records that `challenge` was sent.
    pub fn sent(&mut self, now: Instant, challenge: Challenge) {
        self.forget(now);
        self.sent.push_back((now, challenge));
    }

    /// Records that `challenge` was returned. One that was not sent, was sent too long ago, or was
    /// returned before, proves nothing.
    pub fn came_back(&mut self, now: Instant, challenge: Challenge) {
        self.forget(now);
        if let Some(at) = self.sent.iter().position(|(_, sent)| *sent == challenge) {
            self.sent.drain(..=at);
            self.proven = now;
        }
    }

    /// Whether the flow may continue.
    #[must_use]
    pub fn goes_on(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.proven) <= PATIENCE
    }

    fn forget(&mut self, now: Instant) {
        while let Some((at, _)) = self.sent.front()
            && now.saturating_duration_since(*at) > PATIENCE
        {
            self.sent.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Token = Token([9; Token::LEN]);

    #[test]
    fn a_number_passes_in_datagrams_and_text() {
        let challenge = Challenge::fresh().unwrap();
        let datagram = challenge.datagram(TOKEN);
        assert_eq!(Challenge::read(&datagram, TOKEN), Some(challenge));
        assert_eq!(Challenge::read(&datagram, Token([8; Token::LEN])), None);
        assert_eq!(Challenge::read(&datagram[..LEN - 1], TOKEN), None);
        assert_eq!(Challenge::read(&[datagram.as_slice(), &[0]].concat(), TOKEN), None);
        let text = serde_json::to_string(&challenge).unwrap();
        assert_eq!(serde_json::from_str::<Challenge>(&text).unwrap(), challenge);
        assert_eq!(Challenge::from_word(challenge.word()), challenge);
        assert_ne!(Challenge::fresh().unwrap(), challenge);
    }

    #[test]
    fn a_flow_goes_on_while_numbers_come_back() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut flow = Arriving::new(start);
        for n in 0..100 {
            flow.sent(at(n * 200), Challenge(n));
            // The client returns the newest once a second.
            if n % 5 == 0 {
                flow.came_back(at(n * 200 + 300), Challenge(n));
            }
            assert!(flow.goes_on(at(n * 200 + 300)), "{n}");
        }
        let last = 95 * 200 + 300;
        assert!(flow.goes_on(at(last + 4_000)));
        assert!(!flow.goes_on(at(last + 4_001)), "a client that falls silent ends it");
    }

    #[test]
    fn numbers_that_prove_nothing() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut flow = Arriving::new(start);
        flow.sent(at(0), Challenge(1));
        flow.came_back(at(10), Challenge(1));
        flow.came_back(at(3_000), Challenge(1));
        flow.came_back(at(3_000), Challenge(77));
        assert!(!flow.goes_on(at(4_011)), "the same again, and one that was invented");
        flow.sent(at(5_000), Challenge(2));
        flow.came_back(at(9_001), Challenge(2));
        assert!(!flow.goes_on(at(9_001)), "one from too long ago");
        assert!(flow.sent.is_empty(), "what is too old takes no memory");
    }
}
